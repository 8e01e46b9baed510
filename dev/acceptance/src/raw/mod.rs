//! MQTT bytes, written and read by hand.
//!
//! The writer builds correct packets by default and takes any bytes where a test wants wrong ones
//! ([`hex`], [`frame`]). The reader understands what a server sends, and refuses what a server must
//! not send: wrong flags, wrong lengths, unknown properties.
//!
//! Deliberately absent: any use of the broker's own codec.

mod build;
mod parse;
mod property;

pub use build::{Connect, Publish, Subscribe, Unsubscribe, Will};
pub use parse::{Ack, AckKind, Codes, ConnAck, Packet, Reason, has_frame, take_frame};
pub use property::{Properties, Value, id};

/// The protocol versions a client can speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// MQTT 3.1, protocol name `MQIsdp`.
    V3_1,
    /// MQTT 3.1.1.
    V3_1_1,
    /// MQTT 5.0.
    V5,
}

impl Version {
    /// All of them, oldest first.
    pub const ALL: [Self; 3] = [Self::V3_1, Self::V3_1_1, Self::V5];

    /// The protocol level byte of CONNECT.
    pub fn level(self) -> u8 {
        match self {
            Self::V3_1 => 3,
            Self::V3_1_1 => 4,
            Self::V5 => 5,
        }
    }

    /// The protocol name of CONNECT.
    pub fn protocol_name(self) -> &'static str {
        if self == Self::V3_1 { "MQIsdp" } else { "MQTT" }
    }

    /// From the way people write it: `3.1`, `3.1.1`, `5.0`.
    pub fn from_text(text: &str) -> Self {
        match text {
            "3.1" => Self::V3_1,
            "3.1.1" => Self::V3_1_1,
            "5" | "5.0" => Self::V5,
            other => panic!("no MQTT version is called {other:?}"),
        }
    }
}

/// Bytes from spaced hexadecimal text; line breaks are fine.
pub fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<char> = text.chars().filter(|c| !c.is_whitespace()).collect();
    digits
        .chunks(2)
        .map(|pair| {
            let pair = String::from_iter(pair);
            assert_eq!(pair.len(), 2, "half a byte in {text:?}");
            u8::from_str_radix(&pair, 16).unwrap_or_else(|_| panic!("{pair:?} is no hex"))
        })
        .collect()
}

/// Bytes as spaced hexadecimal text, for messages about them.
pub fn to_hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect::<Vec<_>>()
        .join(" ")
}

/// A whole packet: first byte, minimal remaining length, then the parts.
pub fn frame(first_byte: u8, parts: &[&[u8]]) -> Vec<u8> {
    let body = parts.concat();
    let length = u32::try_from(body.len()).expect("test packets fit into u32");
    let mut out = vec![first_byte];
    out.extend(varint(length));
    out.extend(body);
    out
}

/// A variable byte integer in its shortest form.
pub fn varint(mut value: u32) -> Vec<u8> {
    let mut out = Vec::new();
    loop {
        let low = (value & 0x7f) as u8;
        value >>= 7;
        if value == 0 {
            out.push(low);
            return out;
        }
        out.push(low | 0x80);
    }
}

/// A string or binary field: two bytes of length, then the content.
pub fn field(content: impl AsRef<[u8]>) -> Vec<u8> {
    let content = content.as_ref();
    let length = u16::try_from(content.len()).expect("a field holds at most 65,535 bytes");
    [&length.to_be_bytes(), content].concat()
}

/// PUBACK, PUBREC, PUBREL or PUBCOMP meaning success, in the two-byte form all versions know.
pub fn ack(kind: AckKind, packet_id: u16) -> Vec<u8> {
    frame(kind.first_byte(), &[&packet_id.to_be_bytes()])
}

/// The same with a reason code, which only 5.0 has.
pub fn ack_with_reason(kind: AckKind, packet_id: u16, reason: u8) -> Vec<u8> {
    frame(kind.first_byte(), &[&packet_id.to_be_bytes(), &[reason]])
}

/// PINGREQ.
pub const PINGREQ: [u8; 2] = [0xc0, 0x00];

/// DISCONNECT without a body: a normal end in every version.
pub const DISCONNECT: [u8; 2] = [0xe0, 0x00];

/// DISCONNECT of 5.0 with a reason.
pub fn disconnect(reason: u8) -> Vec<u8> {
    frame(0xe0, &[&[reason]])
}

/// DISCONNECT of 5.0 with a reason and properties.
pub fn disconnect_with(reason: u8, properties: &Properties) -> Vec<u8> {
    frame(0xe0, &[&[reason], &properties.encode()])
}

/// AUTH of 5.0.
pub fn auth(reason: u8, properties: &Properties) -> Vec<u8> {
    frame(0xf0, &[&[reason], &properties.encode()])
}

/// Reason codes by the names of the standard; 0x00 to 0x02 of SUBACK are written as numbers.
#[allow(missing_docs, reason = "the names are the standard's")]
pub mod reason {
    pub const SUCCESS: u8 = 0x00;
    pub const DISCONNECT_WITH_WILL: u8 = 0x04;
    pub const NO_MATCHING_SUBSCRIBERS: u8 = 0x10;
    pub const NO_SUBSCRIPTION_EXISTED: u8 = 0x11;
    pub const CONTINUE_AUTHENTICATION: u8 = 0x18;
    pub const REAUTHENTICATE: u8 = 0x19;
    pub const UNSPECIFIED: u8 = 0x80;
    pub const MALFORMED_PACKET: u8 = 0x81;
    pub const PROTOCOL_ERROR: u8 = 0x82;
    pub const IMPLEMENTATION_SPECIFIC_ERROR: u8 = 0x83;
    pub const UNSUPPORTED_PROTOCOL_VERSION: u8 = 0x84;
    pub const CLIENT_IDENTIFIER_NOT_VALID: u8 = 0x85;
    pub const BAD_USER_NAME_OR_PASSWORD: u8 = 0x86;
    pub const NOT_AUTHORIZED: u8 = 0x87;
    pub const SERVER_UNAVAILABLE: u8 = 0x88;
    pub const BANNED: u8 = 0x8a;
    pub const SERVER_SHUTTING_DOWN: u8 = 0x8b;
    pub const BAD_AUTHENTICATION_METHOD: u8 = 0x8c;
    pub const KEEP_ALIVE_TIMEOUT: u8 = 0x8d;
    pub const SESSION_TAKEN_OVER: u8 = 0x8e;
    pub const TOPIC_FILTER_INVALID: u8 = 0x8f;
    pub const TOPIC_NAME_INVALID: u8 = 0x90;
    pub const PACKET_IDENTIFIER_IN_USE: u8 = 0x91;
    pub const PACKET_IDENTIFIER_NOT_FOUND: u8 = 0x92;
    pub const RECEIVE_MAXIMUM_EXCEEDED: u8 = 0x93;
    pub const TOPIC_ALIAS_INVALID: u8 = 0x94;
    pub const PACKET_TOO_LARGE: u8 = 0x95;
    pub const MESSAGE_RATE_TOO_HIGH: u8 = 0x96;
    pub const QUOTA_EXCEEDED: u8 = 0x97;
    pub const ADMINISTRATIVE_ACTION: u8 = 0x98;
    pub const RETAIN_NOT_SUPPORTED: u8 = 0x9a;
    pub const QOS_NOT_SUPPORTED: u8 = 0x9b;
    pub const CONNECTION_RATE_EXCEEDED: u8 = 0x9f;
}
