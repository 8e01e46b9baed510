//! What the access rules of a configuration say of one question, and why.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;
use std::sync::Arc;

use unbroken_broker_core::{
    Action, Claims, Decision, Denial, Identity, MountError, MountPoint, Peer, Policy, PolicyError,
    RuleSet, TooManyClaims, Verdict,
};
use unbroken_mqtt_proto::{QoS, SubscriptionFilter, TopicName};

use super::{AccessError, ConfigRules};
use crate::config::{Config, Listener};
use crate::stored_access::StoredAccess;

/// The compiled access rules of a configuration, to be asked.
#[derive(Debug)]
pub struct AccessRules {
    policy: Policy,
    has_rules: bool,
    /// By the position of the listener in the configuration.
    mount_points: Vec<Option<MountPoint>>,
}

/// Whether a client may do something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// Its user name; `None`: it has none.
    pub user: Option<String>,
    /// Its client id.
    pub client_id: String,
    /// Roles that a token or a service vouches for.
    pub roles: Vec<String>,
    /// Values that it vouches for, by their names.
    pub values: Vec<(String, String)>,
    /// The position of its listener in the configuration.
    pub listener: u16,
    /// Its address; `None`: no rule about addresses fits it.
    pub address: Option<SocketAddr>,
    /// What it wants to do; `None`: to connect.
    pub action: Option<Action>,
    /// At which QoS, `0..=2`, it wants to publish or subscribe.
    pub qos: u8,
    /// Whether it wants to publish a retained message.
    pub retain: bool,
    /// The topic, or for [`Action::Subscribe`] the topic filter; whole, with the client's mount
    /// point.
    pub topic: String,
}

/// The answer, and what gave it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// Whether the client may.
    pub is_allowed: bool,
    /// The name of the role that decided, if one did.
    pub role: Option<String>,
    /// Where the rule is written that decided, if one did.
    pub rule: Option<String>,
    /// Why, in a few words.
    pub reason: String,
    /// What the client's topics begin with, if it has a mount point.
    pub mount: Option<String>,
    /// The highest QoS of what is allowed, `0..=2`.
    pub max_qos: u8,
    /// Whether what is allowed may be retained.
    pub retain: bool,
}

/// A line of a table of expectations: `allow|deny USER CLIENT ACTION TOPIC`, where the action may
/// have `,qos=N` and `,retain` behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expectation {
    /// What is asked; its listener and address are not in the line.
    pub question: Question,
    /// The expected answer.
    pub is_allowed: bool,
}

/// Why a line of a table of expectations is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "expected `allow|deny USER CLIENT publish|subscribe|receive TOPIC` or `allow|deny USER CLIENT \
     connect`, with `-` for a client without a user name; `,qos=N` and `,retain` may follow publish, \
     `,qos=N` subscribe"
)]
pub struct ExpectationError;

impl Question {
    /// Why it cannot be asked: its topic is none, or its filter.
    pub fn mistake(&self) -> Option<String> {
        if let Err(error) = self.claims() {
            return Some(error.to_string());
        }
        let topic = &self.topic;
        let parsed = match self.action {
            None => return None,
            Some(Action::Subscribe) => SubscriptionFilter::parse(topic).map(drop),
            Some(_) => TopicName::parse(topic).map(drop),
        };
        parsed.err().map(|error| format!("`{topic}`: {error}"))
    }
}

impl Question {
    fn claims(&self) -> Result<Claims, TooManyClaims> {
        let roles = self.roles.iter().map(|role| Arc::from(&**role));
        let values = self
            .values
            .iter()
            .map(|(k, v)| ((&**k).into(), (&**v).into()));
        Claims::new(roles.collect(), values.collect())
    }
}

impl AccessRules {
    /// Reads and compiles the access rules of a configuration, and of a store.
    pub fn load(config: &Config, stored: &StoredAccess) -> Result<Self, AccessError> {
        let rules = ConfigRules::read(&config.listeners, &config.roles)?;
        let sets = rules.sets(stored.core_roles().map_err(AccessError::Stored)?);
        Ok(Self::compile(sets, &config.listeners)?)
    }

    /// Compiles sets of rules for clients of these listeners.
    pub(crate) fn compile(sets: Vec<RuleSet>, listeners: &[Listener]) -> Result<Self, PolicyError> {
        let mount_points = listeners.iter().map(|it| it.mount_point.clone());
        Ok(Self {
            has_rules: !sets.is_empty(),
            policy: Policy::compile(0, sets)?,
            mount_points: mount_points.collect(),
        })
    }

    /// What the rules say. The broker's own topics (`$SYS/`, `$audit/`) are published by no client.
    pub fn explain(&self, question: &Question) -> Explanation {
        let identity = Identity {
            user: question.user.as_deref().map(Into::into),
            claims: question.claims().ok().map(Arc::new),
            client_id: question.client_id.as_str().into(),
            peer: Peer {
                address: question.address,
                listener: question.listener,
                ..Peer::default()
            },
        };
        let connect = self.policy.connect(&identity);
        let decision = match question.action {
            Some(action) if !connect.verdict.is_denied() => {
                let topic = match action {
                    // A shared subscription is judged by the filter behind its group.
                    Action::Subscribe => SubscriptionFilter::parse(&question.topic)
                        .map_or(&*question.topic, |filter| filter.filter().as_str()),
                    _ => &question.topic,
                };
                let qos = QoS::try_from(question.qos).unwrap_or(QoS::ExactlyOnce);
                match action {
                    Action::Publish => {
                        let terms = (qos, question.retain);
                        self.policy.decide_publish(&identity, topic, terms)
                    }
                    Action::Subscribe | Action::Receive => {
                        self.policy.decide(&identity, action, topic)
                    }
                }
            }
            _ => connect,
        };
        let mut explanation = self.explanation(decision);
        let is_granted = explanation.is_allowed && question.action == Some(Action::Subscribe);
        if is_granted && question.qos > explanation.max_qos {
            explanation.is_allowed = false;
            "its QoS is lowered".clone_into(&mut explanation.reason);
        }
        match self.mount(&identity) {
            Err(error) if explanation.is_allowed => Explanation {
                is_allowed: false,
                role: None,
                rule: None,
                reason: format!("it may not connect: {error}"),
                mount: None,
                ..explanation
            },
            mount => Explanation {
                mount: mount.ok().flatten(),
                ..explanation
            },
        }
        .outside_mount(question, self.policy.is_about(&identity))
    }

    /// What the topics of such a client begin with, if it has a mount point.
    fn mount(&self, identity: &Identity) -> Result<Option<String>, MountError> {
        let of_role = self.policy.mount_point(identity)?;
        let of_listener = self.mount_points.get(usize::from(identity.peer.listener));
        let point = of_role.or(of_listener.and_then(Option::as_ref));
        point.map(|point| point.expand(identity)).transpose()
    }

    fn explanation(&self, decision: Decision<'_>) -> Explanation {
        Explanation {
            mount: None,
            is_allowed: !decision.verdict.is_denied(),
            role: decision.role.map(|role| role.name.to_string()),
            rule: decision.rule.map(|rule| rule.origin.to_string()),
            reason: String::from(match decision.verdict {
                Verdict::Denied(denial) => denial.detail(),
                Verdict::Allowed if !self.has_rules => "there are no access rules",
                Verdict::Allowed if decision.rule.is_some() => "an access rule allows it",
                Verdict::Allowed => "no access rule is against it",
            }),
            max_qos: decision.ceiling.max_qos.into(),
            retain: decision.ceiling.retain,
        }
    }
}

impl Explanation {
    /// What begins with `$` is outside of a mount point: only rules open it, and only for reading.
    /// `has_rules`: there are some about this client.
    fn outside_mount(mut self, question: &Question, has_rules: bool) -> Self {
        let (action, topic) = (question.action, &*question.topic);
        let filter = SubscriptionFilter::parse(topic);
        let topic = filter.map_or(topic, |filter| filter.filter().as_str());
        let is_outside = self.mount.is_some() && action.is_some() && topic.starts_with('$');
        if self.is_allowed && is_outside && (action == Some(Action::Publish) || !has_rules) {
            self.is_allowed = false;
            self.reason = String::from(Denial::OutsideMount.detail());
            (self.role, self.rule) = (None, None);
        }
        self
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = if self.is_allowed { "allowed" } else { "denied" };
        write!(f, "{verdict}: {}", self.reason)?;
        match (&self.rule, &self.role) {
            (Some(rule), Some(role)) => write!(f, ": {rule}, role {role}"),
            (None, Some(role)) => write!(f, ": role {role}"),
            _ => Ok(()),
        }?;
        if let Some(mount) = &self.mount {
            write!(f, "; the client knows topics without `{mount}`")?;
        }
        if !self.is_allowed {
            return Ok(());
        }
        if self.max_qos < 2 {
            write!(f, "; up to QoS {}", self.max_qos)?;
        }
        if !self.retain {
            write!(f, "; nothing retained")?;
        }
        Ok(())
    }
}

impl FromStr for Expectation {
    type Err = ExpectationError;

    fn from_str(line: &str) -> Result<Self, Self::Err> {
        let mut words = line.trim_end_matches('\r').splitn(5, ' ');
        let mut next = || {
            words
                .next()
                .filter(|word| !word.is_empty())
                .ok_or(ExpectationError)
        };
        let is_allowed = match next()? {
            "allow" => true,
            "deny" => false,
            _ => return Err(ExpectationError),
        };
        let user = Some(next()?).filter(|user| *user != "-");
        let client_id = next()?;
        let mut terms = (0, false);
        let (action, topic) = match next()? {
            "connect" => (None, ""),
            word => {
                let (word, limits) = word.split_once(',').unwrap_or((word, ""));
                terms = limits.split_terminator(',').try_fold(terms, terms_with)?;
                (Some(Action::named(word).ok_or(ExpectationError)?), next()?)
            }
        };
        let (qos, retain) = terms;
        let has_them = match action {
            Some(Action::Publish) => true,
            Some(Action::Subscribe) => !retain,
            Some(Action::Receive) | None => terms == (0, false),
        };
        if !has_them {
            return Err(ExpectationError);
        }
        if words.next().is_some() {
            return Err(ExpectationError);
        }
        Ok(Self {
            question: Question {
                user: user.map(str::to_owned),
                client_id: client_id.to_owned(),
                roles: Vec::new(),
                values: Vec::new(),
                listener: 0,
                address: None,
                action,
                qos,
                retain,
                topic: topic.to_owned(),
            },
            is_allowed,
        })
    }
}

/// QoS and retain of an expectation, with one more word about them.
fn terms_with((qos, retain): (u8, bool), word: &str) -> Result<(u8, bool), ExpectationError> {
    match word {
        "retain" => Ok((qos, true)),
        "qos=0" => Ok((0, retain)),
        "qos=1" => Ok((1, retain)),
        "qos=2" => Ok((2, retain)),
        _ => Err(ExpectationError),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expectation_is_a_line() {
        let read = |line: &str| line.parse::<Expectation>();
        let plain = read("allow - c-1 publish a b/#").unwrap();
        assert!(plain.is_allowed);
        assert_eq!(plain.question.user, None);
        assert_eq!(plain.question.topic, "a b/#");
        let connect = read("deny ann c connect").unwrap();
        assert_eq!((connect.question.action, connect.is_allowed), (None, false));
        let retained = read("allow ann c publish,qos=1,retain a").unwrap().question;
        assert_eq!((retained.qos, retained.retain), (1, true));
        for line in [
            "allow ann c publish,qos=3 a",
            "allow ann c subscribe,retain a",
            "allow ann c receive,qos=1 a",
            "",
            "allow",
            "permit ann c connect",
            "allow ann c connect now",
            "allow ann c write a",
            "allow ann c publish",
            "allow ann  publish a",
        ] {
            assert_eq!(read(line), Err(ExpectationError), "{line:?}");
        }
    }
}
