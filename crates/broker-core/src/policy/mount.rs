//! Mount points: the part of the topic tree in which a client lives without knowing it.
//!
//! ```text
//! client              broker, and everybody without a mount point
//! temperature   ──▶   plant-a/temperature      PUBLISH, will, Response Topic
//! +/status      ──▶   plant-a/+/status         SUBSCRIBE, UNSUBSCRIBE, also behind $share/GROUP/
//! temperature   ◀──   plant-a/temperature      deliveries, Response Topic
//! $SYS/uptime   ◀─▶   $SYS/uptime              what begins with `$`: the same for all
//! ```
//!
//! A [`MountPoint`] is as configured, with placeholders; a [`Mount`] is one client's. It holds as
//! long as the connection: a client whose mount point changes is disconnected.
//!
//! Invariants:
//! - A mount begins with no `$`, ends with `/` and has no wildcard. So a filter of its client asks
//!   for nothing outside of it, and a topic has one name in it or none.
//! - A topic that has `$` behind the mount has no name in it: its client would take it for the
//!   broker's. No filter of its client that begins with a wildcard asks for it [MQTT-4.7.2-1].
//!
//! Deliberately absent: which mount point a client gets, and where topics are converted (the
//! shard).

use std::sync::Arc;

use unbroken_mqtt_proto::topic::SubscriptionFilter;
use unbroken_mqtt_proto::{Properties, Property, PropertyBuf, TopicName};

use super::rules::is_unusable;
use super::tree::{Level, Part};
use super::{Claims, Identity, Policy};

/// A mount point as configured: the beginning of topics, with placeholders for a client's names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MountPoint {
    text: Arc<str>,
    parts: Arc<[Part]>,
}

/// Why a text is no mount point.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MountPointError {
    /// It is empty.
    #[error("it is empty; without a mount point, leave the key out")]
    Empty,
    /// It has a wildcard, U+0000 or more than 65,535 bytes.
    #[error("{0}")]
    Topic(Box<str>),
    /// It begins with `$`.
    #[error("it begins with `$`, as only topics of the broker do")]
    Dollar,
    /// It does not end with `/`.
    #[error("it does not end with `/`, so the client's `x` would be `{0}x`; write `{0}/`")]
    NoSlash(Box<str>),
    /// Names of one client, put together, may be those of another one.
    #[error(
        "two placeholders stand in one level: the names of two clients may make the same one, as \
         in {{user}}-{{client}} `a-b` with `c` and `a` with `b-c`; put `/` between them"
    )]
    TwoInOneLevel,
    /// A placeholder that means nothing.
    #[error(
        "only {{user}}, {{client}}, {{role}} and {{claim.NAME}} have a meaning; a brace is written {{{{"
    )]
    Placeholder,
}

/// Why a client cannot have its mount point.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MountError {
    /// Two of its roles have different ones.
    #[error("its roles `{0}` and `{1}` have different mount points")]
    Contradiction(Arc<str>, Arc<str>),
    /// The name that a placeholder stands for is not known of it, or empty.
    #[error("its mount point `{point}` needs {what}, and it has none")]
    Missing {
        /// The mount point.
        point: Arc<str>,
        /// What is missing.
        what: Box<str>,
    },
    /// It has more than one role that a token or a service vouches for.
    #[error("its mount point `{0}` names its role, and it has more than one")]
    ManyRoles(Arc<str>),
    /// The name that a placeholder stands for means more than itself in a topic.
    #[error(
        "its mount point `{0}` names it, and its name contains '+', '#' or '/', or begins with '$'"
    )]
    UnusableName(Arc<str>),
    /// No topic behind it would be within the limits.
    #[error(
        "its mount point `{0}` leaves no room within limits.topic_bytes_max or topic_levels_max"
    )]
    TooLong(Arc<str>),
}

impl MountPoint {
    /// Reads one.
    pub fn parse(text: &str) -> Result<Self, MountPointError> {
        if text.is_empty() {
            return Err(MountPointError::Empty);
        }
        if text.starts_with('$') {
            return Err(MountPointError::Dollar);
        }
        if let Err(error) = TopicName::parse(text) {
            return Err(MountPointError::Topic(error.to_string().into()));
        }
        if !text.ends_with('/') {
            return Err(MountPointError::NoSlash(text.into()));
        }
        let level = Level::parse(text).map_err(|_| MountPointError::Placeholder)?;
        let parts = level.into_parts();
        if has_two_names_in_a_level(&parts) {
            return Err(MountPointError::TwoInOneLevel);
        }
        Ok(Self {
            text: text.into(),
            parts: parts.into(),
        })
    }

    /// As it is written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The mount of a client.
    pub(crate) fn of(&self, identity: &Identity) -> Result<Mount, MountError> {
        let prefix = self.expand(identity)?;
        Ok(Mount(Arc::new(Prefix(prefix.into()))))
    }

    /// What the topics of a client begin with.
    pub fn expand(&self, identity: &Identity) -> Result<String, MountError> {
        let mut prefix = String::new();
        for part in &*self.parts {
            match part {
                Part::Text(text) => prefix.push_str(text),
                named => prefix.push_str(self.name(named, identity)?),
            }
        }
        Ok(prefix)
    }

    /// The name that a placeholder stands for.
    fn name<'a>(&self, part: &Part, identity: &'a Identity) -> Result<&'a str, MountError> {
        let claims = identity.claims.as_deref();
        let (name, what) = match part {
            Part::Text(_) => (None, "a text".into()),
            Part::User => (identity.user.as_deref(), "a user name".into()),
            Part::Client => (Some(&*identity.client_id), "a client id".into()),
            Part::Role => {
                let mut roles = claims.into_iter().flat_map(Claims::roles);
                let first = roles.next();
                if roles.next().is_some() {
                    return Err(MountError::ManyRoles(Arc::clone(&self.text)));
                }
                (first, "a role in its token".into())
            }
            Part::Claim(name) => {
                let value = claims.and_then(|claims| claims.value(name));
                (value, format!("`{name}` in its token").into_boxed_str())
            }
        };
        match name {
            None | Some("") => Err(MountError::Missing {
                point: Arc::clone(&self.text),
                what,
            }),
            Some(name) if is_unusable(name) => {
                Err(MountError::UnusableName(Arc::clone(&self.text)))
            }
            Some(name) => Ok(name),
        }
    }
}

fn has_two_names_in_a_level(parts: &[Part]) -> bool {
    let mut names = 0;
    parts.iter().any(|part| {
        match part {
            Part::Text(text) if text.contains('/') => names = 0,
            Part::Text(_) => {}
            Part::User | Part::Client | Part::Role | Part::Claim(_) => names += 1,
        }
        names > 1
    })
}

/// The mount of one client. 8 bytes, since sessions and connections are many.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Mount(Arc<Prefix>);

#[derive(PartialEq, Eq, Debug)]
struct Prefix(Box<str>);

impl Mount {
    /// One that was stored.
    pub(crate) fn restore(prefix: &str) -> Self {
        Self(Arc::new(Prefix(prefix.into())))
    }

    /// What the topics of its client begin with.
    pub(crate) fn as_str(&self) -> &str {
        &self.0.0
    }

    /// Appends the topic that its client calls `own`.
    pub(crate) fn push_topic(&self, own: &str, full: &mut String) {
        if !own.starts_with('$') {
            full.push_str(self.as_str());
        }
        full.push_str(own);
    }

    /// The topic that its client calls `own`.
    pub(crate) fn topic(&self, own: &str) -> String {
        let mut full = String::with_capacity(self.as_str().len() + own.len());
        self.push_topic(own, &mut full);
        full
    }

    /// The filter that its client calls `own`, of a shared subscription the one behind the group.
    pub(crate) fn filter(&self, own: &str) -> String {
        match SubscriptionFilter::parse(own) {
            Ok(SubscriptionFilter::Shared { group, filter }) => {
                let mut full = format!("$share/{group}/");
                self.push_topic(filter.as_str(), &mut full);
                full
            }
            _ => self.topic(own),
        }
    }

    /// What its client calls a topic; `None`: it has no name for it.
    pub(crate) fn own<'a>(&self, full: &'a str) -> Option<&'a str> {
        if full.starts_with('$') {
            return Some(full);
        }
        let own = full.strip_prefix(self.as_str())?;
        (!own.is_empty() && !own.starts_with('$')).then_some(own)
    }

    /// Whether a message of its client has other properties for others.
    pub(crate) fn changes(own: Properties<'_>) -> bool {
        own.response_topic().is_some() || signed_as(own, "").is_some()
    }

    /// The properties of a message of its client, for others: its Response Topic with the mount,
    /// and the topic that the client's stamp covers.
    pub(crate) fn push_properties(
        &self,
        own: Properties<'_>,
        topic: &str,
        full: &mut PropertyBuf,
    ) -> Result<(), TooLong> {
        for property in own {
            let pushed = match property {
                Property::ResponseTopic(response) => {
                    full.push(Property::ResponseTopic(&self.topic(response)))
                }
                property => full.push(property),
            };
            pushed.map_err(|_| TooLong)?;
        }
        if let Some(signed) = signed_as(own, topic) {
            push(full, signed);
        }
        Ok(())
    }

    /// The properties of a message for its client. A Response Topic for which the client has no
    /// name is left out: it could not answer there.
    pub(crate) fn push_own_properties(
        &self,
        full: Properties<'_>,
        topic: &str,
        own: &mut PropertyBuf,
    ) {
        for property in full {
            match property {
                Property::ResponseTopic(response) => {
                    if let Some(response) = self.own(response) {
                        push(own, Property::ResponseTopic(response));
                    }
                }
                property => push(own, property),
            }
        }
        if let Some(signed) = signed_as(full, topic) {
            push(own, signed);
        }
    }
}

/// Appends what came in a packet, or a topic: neither is longer than a property may be.
fn push(properties: &mut PropertyBuf, property: Property<'_>) {
    let pushed = properties.push(property);
    debug_assert!(pushed.is_ok(), "{pushed:?}");
}

/// A Response Topic is longer with the mount than a topic may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TooLong;

/// The user property that says which topic the stamp of a message covers, if the message has a
/// stamp and does not say so: from here on it is known by another one.
fn signed_as<'a>(properties: Properties<'_>, topic: &'a str) -> Option<Property<'a>> {
    let has = |wanted| {
        let mut named = properties.user_properties();
        named.any(|(name, _)| name == wanted)
    };
    (has(STAMP) && !has(SIGNED_TOPIC)).then_some(Property::UserProperty(SIGNED_TOPIC, topic))
}

/// The topic that the stamp of a message covers: `topic`, or what stands behind a mount in it.
///
/// A message says so in a user property, which counts only if it is the end of the topic: nothing
/// else is a topic that the message may have had elsewhere.
pub(crate) fn signed_topic<'a>(properties: Properties<'a>, topic: &'a str) -> &'a str {
    let mut named = properties.user_properties();
    let signed = named.find_map(|(name, value)| (name == SIGNED_TOPIC).then_some(value));
    let is_end = |signed: &&str| {
        let mount = topic.strip_suffix(signed);
        mount.is_some_and(|mount| mount.ends_with('/'))
    };
    signed.filter(is_end).unwrap_or(topic)
}

/// The user property that holds the stamp of a message.
const STAMP: &str = unbroken_merkle_log::Property::NAME;
/// The user property that holds the topic that the stamp covers.
pub(crate) const SIGNED_TOPIC: &str = "audit-topic";

impl Policy {
    /// The mount point that the roles of such a client name. One of a role that is given to users
    /// by their names counts before those of other roles.
    pub fn mount_point(&self, identity: &Identity) -> Result<Option<&MountPoint>, MountError> {
        if !self.has_mount_points() {
            return Ok(None);
        }
        let subject = self.subject(identity);
        for names_users in [true, false] {
            let mut mounted = self.all_roles_of(&subject).filter_map(|role| {
                let point = role.mount_point.as_ref()?;
                (role.names_users() == names_users).then_some((role, point))
            });
            if let Some((role, point)) = mounted.next() {
                return match mounted.find(|(_, other)| *other != point) {
                    None => Ok(Some(point)),
                    Some((other, _)) => {
                        let names = [role, other].map(|role| Arc::clone(&role.name));
                        let [one, other] = names;
                        Err(MountError::Contradiction(one, other))
                    }
                };
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_point_is_the_beginning_of_topics() {
        let check = |text: &str, expected: Result<(), &str>| {
            let parsed = MountPoint::parse(text).map(drop);
            let parsed = parsed.map_err(|error| error.to_string());
            match expected {
                Ok(()) => assert_eq!(parsed, Ok(())),
                Err(words) => {
                    let error = parsed.unwrap_err();
                    assert!(error.contains(words), "{text}: {error}");
                }
            }
        };
        check("plant-a/", Ok(()));
        check("/", Ok(()));
        check("x/{user}/v-{client}/{{/", Ok(()));
        check("{user}-{client}/", Err("put `/` between them"));
        check("x/{claim.a}{role}/", Err("two placeholders"));
        check("", Err("it is empty"));
        check("plant-a", Err("write `plant-a/`"));
        check("$SYS/", Err("begins with `$`"));
        check("a/+/", Err("no wildcards"));
        check("a/#/", Err("no wildcards"));
        check(
            "a/{roles}/",
            Err("only {user}, {client}, {role} and {claim.NAME}"),
        );
        check("a/{user/", Err("only {user}"));
    }

    #[test]
    fn a_mount_has_one_name_for_what_is_inside_and_none_for_the_rest() {
        let mount = Mount::restore("a/");
        for (full, own) in [
            ("a/t", Some("t")),
            ("a//t", Some("/t")),
            ("a/", None),
            ("a", None),
            ("ab/t", None),
            ("a/$t", None),
            ("$SYS/t", Some("$SYS/t")),
        ] {
            assert_eq!(mount.own(full), own, "{full}");
            if let Some(own) = own {
                assert_eq!(mount.topic(own), full);
            }
        }
        assert_eq!(mount.filter("$share/g/+/t"), "$share/g/a/+/t");
        assert_eq!(mount.filter("$share/g/$SYS/#"), "$share/g/$SYS/#");
        assert_eq!(mount.filter("#"), "a/#");
    }
}
