//! Topic aliases: numbers for topic names, per connection and per direction.
//!
//! [`Inbound`] is for the aliases that the other side sets, [`Outbound`] for those that we set.
//! Both begin empty with each connection and end with it `[MQTT-3.3.2-7]`: a re-sent or queued
//! message carries its full topic.
//!
//! Deliberately absent: taking an alias back. The first topics of a connection get the aliases; a
//! client that wants more announces a larger maximum.

use std::collections::HashMap;

use thiserror::Error;

use crate::ReasonCode;
use crate::topic::{TopicError, TopicName};

/// The aliases that the other side has set.
#[derive(Clone, Debug, Default)]
pub struct Inbound {
    /// What we announced; aliases are 1 to this.
    maximum: u16,
    /// The name of alias `n` at `n - 1`; grows to the highest alias in use.
    names: Vec<Option<Box<str>>>,
}

impl Inbound {
    /// `maximum` is the Topic Alias Maximum that we announced; 0 if we announced none.
    pub const fn new(maximum: u16) -> Self {
        Self {
            maximum,
            names: Vec::new(),
        }
    }

    /// The topic of a PUBLISH, from its topic field and its alias, if it has one.
    pub fn resolve<'a>(
        &'a mut self,
        topic: &'a str,
        alias: Option<u16>,
    ) -> Result<TopicName<'a>, AliasError> {
        let Some(alias) = alias else {
            if topic.is_empty() {
                return Err(AliasError::NoTopic);
            }
            return Ok(TopicName::parse(topic)?);
        };
        // [MQTT-3.3.2-8] [MQTT-3.3.2-9] [MQTT-3.3.2-10] [MQTT-3.3.2-12]
        if alias == 0 || alias > self.maximum {
            return Err(AliasError::OutOfRange {
                alias,
                maximum: self.maximum,
            });
        }
        let at = usize::from(alias) - 1;
        if topic.is_empty() {
            let name = self.names.get(at).and_then(Option::as_deref);
            return name
                .map(TopicName::trusted)
                .ok_or(AliasError::Unknown { alias });
        }
        let name = TopicName::parse(topic)?;
        if self.names.len() <= at {
            self.names.resize(at + 1, None);
        }
        if let Some(entry) = self.names.get_mut(at)
            && entry.as_deref() != Some(topic)
        {
            *entry = Some(topic.into());
        }
        Ok(name)
    }
}

/// Why a PUBLISH has no topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum AliasError {
    /// 0, or more than was announced.
    #[error("topic alias {alias} is not in 1..={maximum}")]
    OutOfRange {
        /// What the other side used.
        alias: u16,
        /// What we announced.
        maximum: u16,
    },
    /// Not set on this connection.
    #[error("topic alias {alias} was not set")]
    Unknown {
        /// What the other side used.
        alias: u16,
    },
    /// Neither a topic nor an alias.
    #[error("neither a topic nor a topic alias")]
    NoTopic,
    /// A topic, but not a valid one.
    #[error(transparent)]
    Topic(#[from] TopicError),
}

impl AliasError {
    /// What the other side is told.
    pub fn reason(self) -> ReasonCode {
        match self {
            Self::OutOfRange { .. } => ReasonCode::TopicAliasInvalid,
            Self::Unknown { .. } | Self::NoTopic => ReasonCode::ProtocolError,
            Self::Topic(error) => error.reason(),
        }
    }
}

/// The aliases that we have set.
#[derive(Clone, Debug, Default)]
pub struct Outbound {
    /// The most that the other side takes.
    maximum: u16,
    aliases: HashMap<Box<str>, u16>,
}

impl Outbound {
    /// `maximum` is the smaller of the Topic Alias Maximum that the other side announced
    /// `[MQTT-3.3.2-11]` and of what we want to keep for it.
    pub fn new(maximum: u16) -> Self {
        Self {
            maximum,
            aliases: HashMap::new(),
        }
    }

    /// How the next PUBLISH on `topic` names it. The PUBLISH must then be sent: the other side
    /// learns the alias from it.
    pub fn assign(&mut self, topic: &str) -> Naming {
        // [MQTT-3.1.2-27]
        if self.maximum == 0 {
            return Naming::Full;
        }
        if let Some(&alias) = self.aliases.get(topic) {
            return Naming::Known(alias);
        }
        match u16::try_from(self.aliases.len()) {
            // [MQTT-3.1.2-26]
            Ok(used) if used < self.maximum => {
                let alias = used + 1;
                self.aliases.insert(topic.into(), alias);
                Naming::First(alias)
            }
            _ => Naming::Full,
        }
    }

    /// The topic that an alias was set to. Looks through all of them: for rare questions.
    pub fn topic(&self, alias: u16) -> Option<&str> {
        let mut aliases = self.aliases.iter();
        aliases.find_map(|(topic, set)| (*set == alias).then_some(&**topic))
    }
}

/// How a PUBLISH names its topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Naming {
    /// By its name only.
    Full,
    /// By its name, and with an alias for the next time.
    First(u16),
    /// By its alias, the name left empty.
    Known(u16),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve(
        aliases: &mut Inbound,
        topic: &str,
        alias: impl Into<Option<u16>>,
    ) -> Result<String, ReasonCode> {
        let resolved = aliases.resolve(topic, alias.into());
        resolved
            .map(|name| name.as_str().to_owned())
            .map_err(AliasError::reason)
    }

    // [MQTT-3.3.2-10] [MQTT-3.3.2-12]
    #[test]
    fn an_alias_stands_for_the_last_topic_it_was_set_to() {
        let mut aliases = Inbound::new(2);
        assert_eq!(resolve(&mut aliases, "a", 2), Ok("a".into()));
        assert_eq!(resolve(&mut aliases, "", 2), Ok("a".into()));
        assert_eq!(resolve(&mut aliases, "b", None), Ok("b".into()));
        assert_eq!(resolve(&mut aliases, "", 2), Ok("a".into()));
        assert_eq!(resolve(&mut aliases, "c", 2), Ok("c".into()));
        assert_eq!(resolve(&mut aliases, "", 2), Ok("c".into()));
    }

    // [MQTT-3.3.2-8] [MQTT-3.3.2-9]
    #[test]
    fn aliases_outside_the_announced_range_are_invalid() {
        for (maximum, alias) in [(0, 0), (0, 1), (2, 0), (2, 3), (2, u16::MAX)] {
            let mut aliases = Inbound::new(maximum);
            let expect = Err(ReasonCode::TopicAliasInvalid);
            assert_eq!(resolve(&mut aliases, "a", alias), expect);
            assert_eq!(resolve(&mut aliases, "", alias), expect);
        }
    }

    #[test]
    fn a_topic_that_is_neither_given_nor_known_is_a_protocol_error() {
        let mut aliases = Inbound::new(3);
        assert_eq!(
            resolve(&mut aliases, "", None),
            Err(ReasonCode::ProtocolError)
        );
        assert_eq!(resolve(&mut aliases, "", 1), Err(ReasonCode::ProtocolError));
        assert_eq!(resolve(&mut aliases, "a", 2), Ok("a".into()));
        assert_eq!(resolve(&mut aliases, "", 1), Err(ReasonCode::ProtocolError));
        assert_eq!(resolve(&mut aliases, "", 3), Err(ReasonCode::ProtocolError));
    }

    #[test]
    fn an_invalid_topic_sets_no_alias() {
        let mut aliases = Inbound::new(1);
        assert_eq!(
            resolve(&mut aliases, "a/#", 1),
            Err(ReasonCode::TopicNameInvalid)
        );
        assert_eq!(resolve(&mut aliases, "", 1), Err(ReasonCode::ProtocolError));
    }

    // [MQTT-3.3.2-11]
    #[test]
    fn no_more_aliases_are_set_than_the_other_side_takes() {
        let mut aliases = Outbound::new(2);
        assert_eq!(aliases.assign("a"), Naming::First(1));
        assert_eq!(aliases.assign("b"), Naming::First(2));
        assert_eq!(aliases.assign("c"), Naming::Full);
        assert_eq!(aliases.assign("a"), Naming::Known(1));
        assert_eq!(aliases.assign("b"), Naming::Known(2));
        assert_eq!(Outbound::new(0).assign("a"), Naming::Full);
    }

    #[test]
    fn the_topic_of_an_alias_that_was_set_can_be_asked_for() {
        let mut aliases = Outbound::new(2);
        aliases.assign("a");
        aliases.assign("b");
        aliases.assign("c");
        assert_eq!(aliases.topic(1), Some("a"));
        assert_eq!(aliases.topic(2), Some("b"));
        assert_eq!(aliases.topic(3), None);
    }
}
