//! Mount points at the boundary of a client: which one it has, its topics and filters with it, and
//! what becomes of a client whose mount point changes.
//!
//! ```text
//! of a role given to users by name > of another role > of the listener     at CONNECT, and then
//!                                                                          as long as it is here
//! ```
//!
//! A session is of one mount. A client that comes with another one begins a new session: it learns
//! so by CONNACK, and what waited is dropped by name, since it was for other topics.
//!
//! Topics of deliveries are converted where they are written (`delivery`). Everything between knows
//! whole topics: rules, routes, retained messages, the logs and the audit's rules.
//!
//! Deliberately absent: what a mount point is, see `policy/mount.rs`.

use std::sync::Arc;
use std::time::Instant;

use unbroken_mqtt_proto::topic::{TopicFilter, TopicName};
use unbroken_mqtt_proto::{Publish, QoS, ReasonCode};

use crate::connection::Connection;
use crate::ids::{ConnectionId, SessionId};
use crate::policy::{Denial, Identity, Mount, MountError, MountPoint, Policy};
use crate::reason::{Fault, Flow};
use crate::session::Session;
use crate::shard::Shard;
use crate::shard::publish::invalid_topic;
use crate::telemetry::Event;

/// The mount points of listeners, and whether any client may have one.
#[derive(Debug, Default)]
pub(super) struct MountPoints {
    /// By the position of the listener in the configuration.
    of_listeners: Arc<[Option<MountPoint>]>,
    /// Whether a session may have a mount: it stays so, since one may that has no client. HOT:
    /// while none may, each message costs a look at this and no more.
    in_use: bool,
}

impl MountPoints {
    pub(super) fn new(of_listeners: &Arc<[Option<MountPoint>]>) -> Self {
        Self {
            of_listeners: Arc::clone(of_listeners),
            in_use: of_listeners.iter().any(Option::is_some),
        }
    }

    fn of_listener(&self, listener: u16) -> Option<&MountPoint> {
        self.of_listeners.get(usize::from(listener))?.as_ref()
    }

    /// Whether a session may have a mount.
    #[inline]
    pub(super) const fn are_in_use(&self) -> bool {
        self.in_use
    }
}

impl Shard {
    /// The mount of such a client.
    pub(super) fn mount_of(&self, identity: &Identity) -> Result<Option<Mount>, Fault> {
        self.find_mount(identity).map_err(|error| {
            let detail = error.to_string().into();
            let reason = ReasonCode::NotAuthorized;
            Fault { reason, detail }
        })
    }

    fn find_mount(&self, identity: &Identity) -> Result<Option<Mount>, MountError> {
        let policy = self.access.policy();
        let of_role = match policy {
            Some(policy) => policy.mount_point(identity)?,
            None => None,
        };
        let of_listener = self.mount_points.of_listener(identity.peer.listener);
        let Some(point) = of_role.or(of_listener) else {
            return Ok(None);
        };
        let mount = point.of(identity)?;
        let limits = &self.options.limits;
        let levels = mount.as_str().split('/').count();
        if mount.as_str().len() >= usize::from(limits.topic_bytes_max)
            || levels > usize::from(limits.topic_levels_max)
        {
            return Err(MountError::TooLong(point.as_str().into()));
        }
        Ok(Some(mount))
    }

    /// Rules with mount points are in force, or none. Of clients that are here it is decided when
    /// [the listeners' are known](Self::replace_mount_points).
    pub(super) fn note_mount_points(&mut self) {
        let policy = self.access.policy();
        self.mount_points.in_use |= policy.is_some_and(Policy::has_mount_points);
    }

    /// A session that was stored has this mount.
    pub(super) fn restore_mount(&mut self, id: SessionId, mount: Option<&str>) {
        self.mount_points.in_use |= mount.is_some();
        self.set_mount(id, mount.map(Mount::restore));
    }

    /// Listeners have these mount points from now on, and roles those of the policy in force. A
    /// client that has another mount by that is disconnected.
    #[cold]
    pub(super) fn replace_mount_points(
        &mut self,
        now: Instant,
        of_listeners: &Arc<[Option<MountPoint>]>,
    ) {
        let was_in_use = self.mount_points.in_use;
        self.mount_points = MountPoints::new(of_listeners);
        self.mount_points.in_use |= was_in_use;
        let ids: Vec<_> = self.connections.iter().map(Connection::id).collect();
        for id in ids {
            if let Err(fault) = self.check_mount(id) {
                self.disconnect(now, id, fault);
            }
        }
    }

    /// Whether the client of a connection still has the mount that it was let in with.
    pub(super) fn check_mount(&self, id: ConnectionId) -> Result<(), Fault> {
        let connection = self.connections.get(id);
        let session = connection.and_then(Connection::session);
        let Some(session) = session.and_then(|session| self.sessions.get(session)) else {
            return Ok(()); // it is decided when it is admitted
        };
        let mount = self.mount_of(&self.identity(id, &session.client_id))?;
        if mount.as_ref() == session.mount() {
            return Ok(());
        }
        let detail = "its mount point has changed";
        Err(Fault::new(ReasonCode::AdministrativeAction, detail))
    }

    /// Takes a PUBLISH on the topic that its client calls `own`.
    #[inline]
    pub(super) fn take_named(
        &mut self,
        now: Instant,
        id: ConnectionId,
        session_id: SessionId,
        publish: &Publish<'_>,
        own: TopicName<'_>,
    ) -> Result<Flow, Fault> {
        if self.mount_points.are_in_use() {
            self.take_mounted(now, id, session_id, publish, own)
        } else {
            self.take_checked(now, id, session_id, publish, own)
        }
    }

    #[inline(never)]
    fn take_mounted(
        &mut self,
        now: Instant,
        id: ConnectionId,
        session_id: SessionId,
        publish: &Publish<'_>,
        own: TopicName<'_>,
    ) -> Result<Flow, Fault> {
        let connection = self.connections.get(id);
        let Some(mount) = connection.and_then(Connection::mount).cloned() else {
            return self.take_checked(now, id, session_id, publish, own);
        };
        let mut scratch = std::mem::take(&mut self.scratch.mounted);
        let (topic, properties) = &mut scratch;
        topic.clear();
        properties.clear();
        mount.push_topic(own.as_str(), topic);
        let taken = if Mount::changes(publish.properties) {
            match mount.push_properties(publish.properties, own.as_str(), properties) {
                Ok(()) => TopicName::parse(topic)
                    .map_err(invalid_topic)
                    .and_then(|topic| {
                        let publish = Publish {
                            properties: properties.as_properties(),
                            ..*publish
                        };
                        self.take_checked(now, id, session_id, &publish, topic)
                    }),
                Err(_) => Err(response_too_long()),
            }
        } else {
            TopicName::parse(topic)
                .map_err(invalid_topic)
                .and_then(|topic| self.take_checked(now, id, session_id, publish, topic))
        };
        self.scratch.mounted = scratch;
        taken
    }

    /// What the client of a session calls the topic of a message that it has published.
    #[inline]
    pub(super) fn own_topic<'a>(&self, id: SessionId, topic: &'a str) -> &'a str {
        if !self.mount_points.are_in_use() {
            return topic;
        }
        let session = self.sessions.get(id);
        session.map_or(topic, |session| session.own_topic(topic))
    }

    /// Whether a topic lies outside the mount of the client that has published to it.
    #[inline]
    pub(super) fn leaves_mount(&self, id: SessionId, topic: &str) -> bool {
        topic.starts_with('$') && self.sessions.get(id).and_then(Session::mount).is_some()
    }

    /// Whether the client of a session may subscribe to this filter, of a shared subscription the
    /// one behind the group's name. What begins with `$` is outside its mount: only rules allow it.
    pub(super) fn judge_filter(
        &self,
        id: SessionId,
        filter: TopicFilter<'_>,
    ) -> Result<QoS, Denial> {
        if self.leaves_mount(id, filter.as_str()) && !self.access.has_rules_for(id) {
            return Err(Denial::OutsideMount);
        }
        self.access.subscribe(id, filter)
    }

    /// The client of a session has this mount.
    pub(super) fn set_mount(&mut self, id: SessionId, mount: Option<Mount>) {
        if let Some(session) = self.sessions.get_mut(id) {
            session.set_mount(mount);
        }
    }

    /// Whether a session is one of another mount than its client has now: its subscriptions, and
    /// what waits for it, are not what the client would call so. Reports the subscriptions.
    pub(super) fn is_of_other_mount(&mut self, id: SessionId, mount: Option<&Mount>) -> bool {
        let Some(session) = self.sessions.get(id) else {
            return false;
        };
        if session.mount() == mount {
            return false;
        }
        let client_id = Arc::clone(&session.client_id);
        let filters = session.subscriptions.iter();
        let filters: Vec<Box<str>> = filters.map(|(filter, _)| filter.into()).collect();
        for filter in filters {
            self.event(Event::SubscriptionRevoked {
                client_id: Arc::clone(&client_id),
                filter,
                why: Denial::MountChanged,
            });
        }
        true
    }
}

/// The first so many of these filters of a client as the broker knows them; `None`: the client has
/// no mount.
pub(super) fn mounted_filters<'a>(
    connection: &Connection,
    own: impl Iterator<Item = &'a str>,
    most: usize,
) -> Option<Vec<String>> {
    let mount = connection.mount()?;
    Some(own.take(most).map(|own| mount.filter(own)).collect())
}

/// [MQTT-3.3.2-14]
pub(super) fn response_too_long() -> Fault {
    let detail = "the response topic is too long with the client's mount point";
    Fault::new(ReasonCode::ProtocolError, detail)
}
