//! Between the body of an SP message and an MQTT topic with its payload.
//!
//! SP has no topics: a SUB socket looks at how a body begins. So a topic travels in front of the
//! payload, with one byte between them that ends it.

use std::sync::Arc;

use unbroken_client::{Message, TopicError};

use crate::wire::Protocol;

/// What stands between topic and payload in a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Separator {
    /// The body is the payload alone, and all messages have one topic.
    None,
    /// A byte of 0, which no MQTT topic contains.
    Nul,
    /// A space. A topic with a space in it is cut at its first one by receivers.
    Space,
    /// A line feed.
    Newline,
}

impl Separator {
    /// A NUL for PUB and SUB, whose peers choose by topic; none for the others.
    pub const fn usual(protocol: Protocol) -> Self {
        match protocol {
            Protocol::Pub | Protocol::Sub => Self::Nul,
            Protocol::Push | Protocol::Pull | Protocol::Req | Protocol::Rep => Self::None,
        }
    }

    const fn byte(self) -> Option<u8> {
        match self {
            Self::None => None,
            Self::Nul => Some(0),
            Self::Space => Some(b' '),
            Self::Newline => Some(b'\n'),
        }
    }
}

/// Why a body makes no message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BodyError {
    #[error("no separator ends its topic")]
    NoTopic,
    #[error("its topic is not UTF-8")]
    NotUtf8,
    #[error("its topic is none: {0}")]
    Topic(#[from] TopicError),
}

/// How bodies and topics belong together.
#[derive(Clone, Debug)]
pub(crate) struct Mapping {
    /// Of all messages, or in front of the one in the body.
    pub(crate) topic: Arc<str>,
    pub(crate) separator: Separator,
}

impl Mapping {
    /// The message that a body is.
    pub(crate) fn message(&self, body: &[u8]) -> Result<Message, BodyError> {
        let Some(separator) = self.separator.byte() else {
            return Ok(Message::new(Arc::clone(&self.topic), body)?);
        };
        let at = body.iter().position(|byte| *byte == separator);
        let at = at.ok_or(BodyError::NoTopic)?;
        let own = str::from_utf8(&body[..at]).map_err(|_| BodyError::NotUtf8)?;
        let topic = match &*self.topic {
            "" => own.to_owned(),
            // An empty level is a level, but never what is meant.
            _ if own.is_empty() => self.topic.to_string(),
            prefix => format!("{prefix}/{own}"),
        };
        Ok(Message::new(topic, &body[at + 1..])?)
    }

    /// What stands before the payload in the body of a message with this topic.
    pub(crate) fn head(&self, topic: &str) -> Vec<u8> {
        let separator = self.separator.byte();
        separator.map_or_else(Vec::new, |byte| {
            let mut head = topic.as_bytes().to_vec();
            head.push(byte);
            head
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(topic: &str, separator: Separator) -> Mapping {
        Mapping {
            topic: topic.into(),
            separator,
        }
    }

    #[test]
    fn a_body_is_a_payload_or_a_topic_and_a_payload() {
        use Separator as S;
        for (topic, separator, body, expected) in [
            ("all", S::None, &b"a\0b"[..], Ok(("all", &b"a\0b"[..]))),
            ("all", S::None, b"", Ok(("all", b""))),
            ("", S::Nul, b"a/b\0payload", Ok(("a/b", b"payload"))),
            ("in", S::Nul, b"a/b\0\0\0", Ok(("in/a/b", b"\0\0"))),
            ("in", S::Nul, b"\0x", Ok(("in", b"x"))),
            ("in", S::Space, b"a b c", Ok(("in/a", b"b c"))),
            ("in", S::Newline, b"a\n", Ok(("in/a", b""))),
            ("in", S::Nul, b"payload", Err(BodyError::NoTopic)),
            ("in", S::Nul, b"", Err(BodyError::NoTopic)),
            ("in", S::Nul, b"\xff\0x", Err(BodyError::NotUtf8)),
        ] {
            let message = mapping(topic, separator).message(body);
            let found = message
                .as_ref()
                .map(|message| (message.topic(), message.payload()));
            assert_eq!(found, expected.as_ref().map(|parts| *parts), "{body:?}");
        }
        for body in [&b"a/#\0x"[..], b"+\0x", b"\0x"] {
            let found = mapping("", Separator::Nul).message(body);
            assert!(matches!(found, Err(BodyError::Topic(_))), "{body:?}");
        }
    }

    #[test]
    fn what_one_gateway_sends_the_other_understands() {
        for separator in [Separator::Nul, Separator::Space, Separator::Newline] {
            let mut body = mapping("", separator).head("a/b");
            body.extend(b"1 2\n3\0");
            let message = mapping("", separator).message(&body).unwrap();
            assert_eq!(
                (message.topic(), message.payload()),
                ("a/b", &b"1 2\n3\0"[..])
            );
        }
        assert!(mapping("", Separator::None).head("a").is_empty());
    }
}
