//! The user's words for what the protocol says in numbers, and for how a client connects.

use crate::raw::{Connect, Publish, Subscribe, Version, Will, id, reason};
use crate::tools::Tool;

/// A reason code of 5.0 by what it means.
pub(crate) fn reason_code(words: &str) -> u8 {
    match words {
        "all is well" => reason::SUCCESS,
        "no client subscribes to the topic" => reason::NO_MATCHING_SUBSCRIBERS,
        "there was no such subscription" => reason::NO_SUBSCRIPTION_EXISTED,
        "a packet was malformed" => reason::MALFORMED_PACKET,
        "the protocol was broken" => reason::PROTOCOL_ERROR,
        "the version is not supported" => reason::UNSUPPORTED_PROTOCOL_VERSION,
        "the client id is not valid" => reason::CLIENT_IDENTIFIER_NOT_VALID,
        "the user name or password is wrong" => reason::BAD_USER_NAME_OR_PASSWORD,
        "it is not authorized" => reason::NOT_AUTHORIZED,
        "it is banned" => reason::BANNED,
        "an operator ended its connection" => reason::ADMINISTRATIVE_ACTION,
        "the authentication method is unknown" => reason::BAD_AUTHENTICATION_METHOD,
        "its keep alive ran out" => reason::KEEP_ALIVE_TIMEOUT,
        "its session was taken over" => reason::SESSION_TAKEN_OVER,
        "the topic filter is not valid" => reason::TOPIC_FILTER_INVALID,
        "the topic name is not valid" => reason::TOPIC_NAME_INVALID,
        "it sent too many messages at once" => reason::RECEIVE_MAXIMUM_EXCEEDED,
        "the topic alias is not valid" => reason::TOPIC_ALIAS_INVALID,
        "a packet was too large" => reason::PACKET_TOO_LARGE,
        "its message rate was too high" => reason::MESSAGE_RATE_TOO_HIGH,
        "a quota is exceeded" => reason::QUOTA_EXCEEDED,
        "retained messages are not supported" => reason::RETAIN_NOT_SUPPORTED,
        "its QoS is not supported" => reason::QOS_NOT_SUPPORTED,
        "the store has failed" => reason::IMPLEMENTATION_SPECIFIC_ERROR,
        "the broker is unavailable" => reason::SERVER_UNAVAILABLE,
        other => panic!("no reason is called {other:?}"),
    }
}

/// The CONNACK return code that 3.x has for a reason.
pub(crate) fn return_code(words: &str) -> u8 {
    match words {
        "the version is not supported" => 1,
        "the client id is not valid" => 2,
        "a quota is exceeded" | "the broker is unavailable" => 3,
        "the user name or password is wrong" => 4,
        "it is not authorized" | "it is banned" => 5,
        other => panic!("3.x has no code for {other:?}"),
    }
}

/// The parts of a list: `a persistent session, a keep alive of 1 second`.
fn parts(list: &str) -> impl Iterator<Item = &str> {
    list.split(", ").filter(|part| !part.is_empty())
}

/// The first number in a phrase.
fn number(phrase: &str) -> u32 {
    phrase
        .split(' ')
        .find_map(|word| word.parse().ok())
        .unwrap_or_else(|| panic!("no number in {phrase:?}"))
}

/// The quoted pieces of a phrase.
fn quoted(phrase: &str) -> Vec<&str> {
    phrase.split('"').skip(1).step_by(2).collect()
}

/// How a client connects, and with whose library if not with raw bytes.
pub(crate) fn connect(version: Version, name: &str, list: &str) -> (Connect, Option<Tool>) {
    let mut connect = Connect::new(version, name);
    let mut tool = None;
    for part in parts(list) {
        let values = quoted(part);
        connect = match part.split('"').next().unwrap_or(part).trim() {
            "a persistent session" => connect.persistent(),
            "a clean start" => connect,
            "no client id" => Connect {
                client_id: String::new(),
                ..connect
            },
            "the client id" => Connect {
                client_id: values[0].to_owned(),
                ..connect
            },
            "the user" => match values[..] {
                [user] => connect.user_name(user),
                [user, password] => connect.user_name(user).password(password),
                _ => panic!("{part:?} names no user"),
            },
            "the will" => connect.will(will(part, &values)),
            "the retained will" => connect.will(will(part, &values).retained()),
            "the authentication method" => connect.property(id::AUTHENTICATION_METHOD, values[0]),
            phrase => match phrase {
                _ if phrase.starts_with("a session kept for ") => {
                    let kept = connect.property(id::SESSION_EXPIRY_INTERVAL, number(phrase));
                    kept.not_clean()
                }
                _ if phrase.starts_with("a keep alive of ") => {
                    connect.keep_alive(u16::try_from(number(phrase)).expect("a short time"))
                }
                _ if phrase.starts_with("room for packets of ") => {
                    connect.property(id::MAXIMUM_PACKET_SIZE, number(phrase))
                }
                _ if phrase.ends_with(" at once") => {
                    connect.property(id::RECEIVE_MAXIMUM, number(phrase))
                }
                _ if phrase.ends_with(" topic aliases") => {
                    connect.property(id::TOPIC_ALIAS_MAXIMUM, number(phrase))
                }
                library => {
                    tool = Some(Tool::named(library));
                    connect
                }
            },
        };
    }
    (connect, tool)
}

fn will(part: &str, values: &[&str]) -> Will {
    let [payload, topic] = values else {
        panic!("{part:?} needs a payload and a topic")
    };
    let will = Will::new(topic, payload).qos(1);
    match part.split_once("delayed by ") {
        Some((_, delay)) => will.property(id::WILL_DELAY_INTERVAL, number(delay)),
        None => will,
    }
}

/// A message with what a step says about it.
pub(crate) fn message(topic: &str, payload: &str, qos: &str, list: &str) -> Publish {
    let mut message = Publish::new(topic, payload).qos(quality(qos));
    for part in parts(list) {
        let values = quoted(part);
        message = match part.split('"').next().unwrap_or(part).trim() {
            "retained" => message.retained(),
            "with content type" => message.property(id::CONTENT_TYPE, values[0]),
            "as text" => message.property(id::PAYLOAD_FORMAT_INDICATOR, 1),
            "asking for a reply on" => message.property(id::RESPONSE_TOPIC, values[0]),
            "with correlation" => message.property(id::CORRELATION_DATA, values[0].as_bytes()),
            "with" => {
                let (name, value) = values[0].split_once('=').expect("a property has a value");
                message.property(id::USER_PROPERTY, (name, value))
            }
            phrase if phrase.starts_with("expiring after ") => {
                message.property(id::MESSAGE_EXPIRY_INTERVAL, number(phrase))
            }
            phrase if phrase.starts_with("under alias ") => {
                message.property(id::TOPIC_ALIAS, number(phrase))
            }
            other => panic!("a message cannot be {other:?}"),
        };
    }
    message
}

/// A subscription with what a step says about it.
pub(crate) fn subscription(filter: &str, qos: &str, list: &str) -> Subscribe {
    let mut options = quality(qos);
    let mut identifier = None;
    for part in parts(list) {
        match part {
            "without its own messages" => options |= Subscribe::NO_LOCAL,
            "keeping the retain flag" => options |= Subscribe::RETAIN_AS_PUBLISHED,
            "with retained messages only if new" => options |= Subscribe::RETAINED_IF_NEW,
            "without retained messages" => options |= Subscribe::NO_RETAINED,
            other if other.starts_with("under number ") => identifier = Some(number(other)),
            other => panic!("a subscription cannot be {other:?}"),
        }
    }
    let subscribe = Subscribe::to(filter, options);
    match identifier {
        Some(number) => subscribe.identified(number),
        None => subscribe,
    }
}

/// Checks what a step says about a received message.
#[track_caller]
pub(crate) fn check(message: &Publish, qos: &str, list: &str) {
    if !qos.is_empty() {
        assert_eq!(message.qos, quality(qos), "quality of {message:?}");
    }
    let properties = &message.properties;
    for part in parts(list) {
        let values = quoted(part);
        let true_of_it = match part.split('"').next().unwrap_or(part).trim() {
            "as a retained message" => message.retain,
            "as a live message" => !message.retain,
            "sent again" => message.dup,
            "for the first time" => !message.dup,
            "with content type" => properties.text(id::CONTENT_TYPE) == Some(values[0]),
            "as text" => properties.number(id::PAYLOAD_FORMAT_INDICATOR) == Some(1),
            "asking for a reply on" => properties.text(id::RESPONSE_TOPIC) == Some(values[0]),
            "with correlation" => {
                properties.binary(id::CORRELATION_DATA) == Some(values[0].as_bytes())
            }
            "with" => {
                let expected: Vec<_> = values.iter().filter_map(|v| v.split_once('=')).collect();
                properties.user() == expected
            }
            "without properties" => properties.is_empty(),
            phrase if phrase.starts_with("expiring within ") => properties
                .number(id::MESSAGE_EXPIRY_INTERVAL)
                .is_some_and(|left| left <= number(phrase)),
            phrase if phrase.starts_with("under number") => {
                let expected: Vec<u32> = phrase
                    .split(' ')
                    .filter_map(|word| word.parse().ok())
                    .collect();
                properties.numbers(id::SUBSCRIPTION_IDENTIFIER) == expected
            }
            other => panic!("a message cannot be {other:?}"),
        };
        assert!(true_of_it, "not {part:?}: {message:?}");
    }
}

/// What the broker says of a message in its user property `audit`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stamp {
    pub(crate) epoch: u32,
    pub(crate) number: u64,
}

/// The stamp of a message, from `docs/audit.md`.
pub(crate) fn stamp(message: &Publish) -> Stamp {
    let user = message.properties.user();
    let (_, text) = user
        .iter()
        .find(|(name, _)| *name == "audit")
        .unwrap_or_else(|| panic!("it is not stamped: {message:?}"));
    let bytes = from_base64url(text);
    Stamp {
        epoch: u32::from_be_bytes(bytes[4..8].try_into().expect("4 bytes")),
        number: u64::from_be_bytes(bytes[16..24].try_into().expect("8 bytes")),
    }
}

/// Without padding.
fn from_base64url(text: &str) -> Vec<u8> {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut bytes = Vec::new();
    let (mut bits, mut count) = (0_u32, 0);
    for letter in text.bytes() {
        let value = LETTERS.iter().position(|other| *other == letter);
        let value = value.expect("it is base64url");
        bits = (bits << 6) | u32::try_from(value).expect("below 64");
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push(((bits >> count) & 0xFF) as u8);
        }
    }
    bytes
}

fn quality(text: &str) -> u8 {
    if text.is_empty() {
        0
    } else {
        text.parse().expect("the pattern lets only digits through")
    }
}
