//! The property section of 5.0 packets.
//!
//! One table, [`kind`], says how each identifier is laid out; writer and reader both follow it.

use super::{field, varint};

/// Property identifiers by the names of the standard.
#[allow(missing_docs, reason = "the names are the standard's")]
pub mod id {
    pub const PAYLOAD_FORMAT_INDICATOR: u8 = 0x01;
    pub const MESSAGE_EXPIRY_INTERVAL: u8 = 0x02;
    pub const CONTENT_TYPE: u8 = 0x03;
    pub const RESPONSE_TOPIC: u8 = 0x08;
    pub const CORRELATION_DATA: u8 = 0x09;
    pub const SUBSCRIPTION_IDENTIFIER: u8 = 0x0b;
    pub const SESSION_EXPIRY_INTERVAL: u8 = 0x11;
    pub const ASSIGNED_CLIENT_IDENTIFIER: u8 = 0x12;
    pub const SERVER_KEEP_ALIVE: u8 = 0x13;
    pub const AUTHENTICATION_METHOD: u8 = 0x15;
    pub const AUTHENTICATION_DATA: u8 = 0x16;
    pub const REQUEST_PROBLEM_INFORMATION: u8 = 0x17;
    pub const WILL_DELAY_INTERVAL: u8 = 0x18;
    pub const REQUEST_RESPONSE_INFORMATION: u8 = 0x19;
    pub const RESPONSE_INFORMATION: u8 = 0x1a;
    pub const SERVER_REFERENCE: u8 = 0x1c;
    pub const REASON_STRING: u8 = 0x1f;
    pub const RECEIVE_MAXIMUM: u8 = 0x21;
    pub const TOPIC_ALIAS_MAXIMUM: u8 = 0x22;
    pub const TOPIC_ALIAS: u8 = 0x23;
    pub const MAXIMUM_QOS: u8 = 0x24;
    pub const RETAIN_AVAILABLE: u8 = 0x25;
    pub const USER_PROPERTY: u8 = 0x26;
    pub const MAXIMUM_PACKET_SIZE: u8 = 0x27;
    pub const WILDCARD_SUBSCRIPTION_AVAILABLE: u8 = 0x28;
    pub const SUBSCRIPTION_IDENTIFIER_AVAILABLE: u8 = 0x29;
    pub const SHARED_SUBSCRIPTION_AVAILABLE: u8 = 0x2a;
}

enum Kind {
    Byte,
    Short,
    Long,
    Varint,
    Text,
    Binary,
    Pair,
}

fn kind(property: u8) -> Kind {
    match property {
        0x01 | 0x17 | 0x19 | 0x24 | 0x25 | 0x28 | 0x29 | 0x2a => Kind::Byte,
        0x13 | 0x21 | 0x22 | 0x23 => Kind::Short,
        0x02 | 0x11 | 0x18 | 0x27 => Kind::Long,
        0x0b => Kind::Varint,
        0x03 | 0x08 | 0x12 | 0x15 | 0x1a | 0x1c | 0x1f => Kind::Text,
        0x09 | 0x16 => Kind::Binary,
        0x26 => Kind::Pair,
        other => panic!("MQTT has no property {other:#04x}"),
    }
}

/// The value of one property; its width on the wire follows from the identifier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// One, two or four bytes, or a variable byte integer.
    Number(u32),
    /// A UTF-8 string.
    Text(String),
    /// Any bytes.
    Binary(Vec<u8>),
    /// Name and value of a user property.
    Pair(String, String),
}

impl From<u32> for Value {
    fn from(number: u32) -> Self {
        Self::Number(number)
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<&[u8]> for Value {
    fn from(bytes: &[u8]) -> Self {
        Self::Binary(bytes.to_vec())
    }
}

impl From<(&str, &str)> for Value {
    fn from((name, value): (&str, &str)) -> Self {
        Self::Pair(name.to_owned(), value.to_owned())
    }
}

/// Properties in the order they have on the wire.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Properties(Vec<(u8, Value)>);

impl Properties {
    /// None.
    pub fn none() -> Self {
        Self::default()
    }

    /// A list of one.
    pub fn one(property: u8, value: impl Into<Value>) -> Self {
        Self::none().with(property, value)
    }

    /// These and one more.
    #[must_use]
    pub fn with(mut self, property: u8, value: impl Into<Value>) -> Self {
        self.0.push((property, value.into()));
        self
    }

    /// Whether the packet carries no property at all.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the property occurs.
    pub fn has(&self, property: u8) -> bool {
        self.0.iter().any(|(id, _)| *id == property)
    }

    /// The number under the identifier.
    pub fn number(&self, property: u8) -> Option<u32> {
        self.0.iter().find_map(|(id, value)| match value {
            Value::Number(number) if *id == property => Some(*number),
            _ => None,
        })
    }

    /// Every number under the identifier, sorted.
    pub fn numbers(&self, property: u8) -> Vec<u32> {
        let mut all: Vec<u32> = self
            .0
            .iter()
            .filter_map(|(id, value)| match value {
                Value::Number(number) if *id == property => Some(*number),
                _ => None,
            })
            .collect();
        all.sort_unstable();
        all
    }

    /// The text under the identifier.
    pub fn text(&self, property: u8) -> Option<&str> {
        self.0.iter().find_map(|(id, value)| match value {
            Value::Text(text) if *id == property => Some(text.as_str()),
            _ => None,
        })
    }

    /// The bytes under the identifier.
    pub fn binary(&self, property: u8) -> Option<&[u8]> {
        self.0.iter().find_map(|(id, value)| match value {
            Value::Binary(bytes) if *id == property => Some(bytes.as_slice()),
            _ => None,
        })
    }

    /// The user properties in order.
    pub fn user(&self) -> Vec<(&str, &str)> {
        self.0
            .iter()
            .filter_map(|(_, value)| match value {
                Value::Pair(name, value) => Some((name.as_str(), value.as_str())),
                _ => None,
            })
            .collect()
    }

    /// The whole section, with its length in front.
    pub fn encode(&self) -> Vec<u8> {
        let mut body = Vec::new();
        for (property, value) in &self.0 {
            body.push(*property);
            match (kind(*property), value) {
                (Kind::Byte, Value::Number(n)) => body.push(narrow(*n)),
                (Kind::Short, Value::Number(n)) => body.extend(narrow::<u16>(*n).to_be_bytes()),
                (Kind::Long, Value::Number(n)) => body.extend(n.to_be_bytes()),
                (Kind::Varint, Value::Number(n)) => body.extend(varint(*n)),
                (Kind::Text, Value::Text(text)) => body.extend(field(text)),
                (Kind::Binary, Value::Binary(bytes)) => body.extend(field(bytes)),
                (Kind::Pair, Value::Pair(name, value)) => {
                    body.extend(field(name));
                    body.extend(field(value));
                }
                (_, wrong) => panic!("property {property:#04x} cannot hold {wrong:?}"),
            }
        }
        let length = u32::try_from(body.len()).expect("test packets are small");
        [varint(length), body].concat()
    }

    /// Reads a whole section from the front of `bytes` and moves past it.
    pub(super) fn decode(bytes: &mut &[u8]) -> Self {
        let length = take_varint(bytes) as usize;
        let mut section = take(bytes, length);
        let mut list = Vec::new();
        while let Some((&property, rest)) = section.split_first() {
            section = rest;
            let value = match kind(property) {
                Kind::Byte => Value::Number(take(&mut section, 1)[0].into()),
                Kind::Short => Value::Number(take_short(&mut section).into()),
                Kind::Long => {
                    let high = u32::from(take_short(&mut section));
                    Value::Number(high << 16 | u32::from(take_short(&mut section)))
                }
                Kind::Varint => Value::Number(take_varint(&mut section)),
                Kind::Text => Value::Text(take_text(&mut section)),
                Kind::Binary => Value::Binary(take_field(&mut section).to_vec()),
                Kind::Pair => Value::Pair(take_text(&mut section), take_text(&mut section)),
            };
            list.push((property, value));
        }
        Self(list)
    }
}

fn narrow<N: TryFrom<u32>>(number: u32) -> N {
    N::try_from(number).unwrap_or_else(|_| panic!("{number} is too large for its property"))
}

pub(super) fn take<'a>(bytes: &mut &'a [u8], length: usize) -> &'a [u8] {
    assert!(
        length <= bytes.len(),
        "{length} bytes announced, {} left: {bytes:02x?}",
        bytes.len()
    );
    let (front, rest) = bytes.split_at(length);
    *bytes = rest;
    front
}

pub(super) fn take_short(bytes: &mut &[u8]) -> u16 {
    let pair = take(bytes, 2);
    u16::from_be_bytes([pair[0], pair[1]])
}

pub(super) fn take_field<'a>(bytes: &mut &'a [u8]) -> &'a [u8] {
    let length = take_short(bytes);
    take(bytes, length.into())
}

pub(super) fn take_text(bytes: &mut &[u8]) -> String {
    let content = take_field(bytes);
    match std::str::from_utf8(content) {
        Ok(text) => text.to_owned(),
        Err(error) => {
            panic!("the broker sent a string that is not UTF-8 ({error}): {content:02x?}")
        }
    }
}

fn take_varint(bytes: &mut &[u8]) -> u32 {
    let before = *bytes;
    let mut value = 0;
    for shift in [0, 7, 14, 21] {
        let byte = take(bytes, 1)[0];
        value |= u32::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            assert!(byte != 0 || shift == 0, "longer than needed: {before:02x?}");
            return value;
        }
    }
    panic!("a length of more than four bytes: {before:02x?}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_property_reads_back_as_written() {
        let written = Properties::none()
            .with(id::PAYLOAD_FORMAT_INDICATOR, 1)
            .with(id::TOPIC_ALIAS, 300)
            .with(id::MESSAGE_EXPIRY_INTERVAL, 70_000)
            .with(id::SUBSCRIPTION_IDENTIFIER, 200)
            .with(id::CONTENT_TYPE, "text/plain")
            .with(id::CORRELATION_DATA, [0_u8, 255].as_slice())
            .with(id::USER_PROPERTY, ("a", "1"));
        let bytes = written.encode();
        let mut rest = bytes.as_slice();
        assert_eq!(Properties::decode(&mut rest), written);
        assert!(rest.is_empty());
    }
}
