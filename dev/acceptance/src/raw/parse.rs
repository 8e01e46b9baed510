//! Packets a server sends, read by hand and strictly.
//!
//! Whatever a server must not put on the wire ends the test: reserved flags set, trailing bytes, a
//! packet only clients send, properties where the version has none.

use super::property::{Properties, take, take_short, take_text};
use super::{Publish, Version, to_hex};

/// What the broker sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Packet {
    /// CONNACK.
    ConnAck(ConnAck),
    /// PUBLISH.
    Publish(Publish),
    /// PUBACK, PUBREC, PUBREL or PUBCOMP.
    Ack(Ack),
    /// SUBACK.
    SubAck(Codes),
    /// UNSUBACK; without codes in 3.x.
    UnsubAck(Codes),
    /// PINGRESP.
    PingResp,
    /// DISCONNECT, 5.0 only.
    Disconnect(Reason),
    /// AUTH, 5.0 only.
    Auth(Reason),
}

/// The content of CONNACK.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnAck {
    /// Whether the broker had the session.
    pub session_present: bool,
    /// Reason code of 5.0 or return code of 3.x.
    pub reason: u8,
    /// Properties, 5.0 only.
    pub properties: Properties,
}

/// The content of an acknowledgement of a PUBLISH.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ack {
    /// Which of the four.
    pub kind: AckKind,
    /// Packet identifier.
    pub packet_id: u16,
    /// Reason code; success in 3.x.
    pub reason: u8,
    /// Properties, 5.0 only.
    pub properties: Properties,
}

/// The four acknowledgements of a PUBLISH.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are the standard's")]
pub enum AckKind {
    PubAck,
    PubRec,
    PubRel,
    PubComp,
}

impl AckKind {
    /// Packet type and the flags it must have.
    pub fn first_byte(self) -> u8 {
        match self {
            Self::PubAck => 0x40,
            Self::PubRec => 0x50,
            Self::PubRel => 0x62,
            Self::PubComp => 0x70,
        }
    }
}

/// The content of SUBACK and UNSUBACK.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Codes {
    /// Packet identifier.
    pub packet_id: u16,
    /// One code for each filter.
    pub codes: Vec<u8>,
    /// Properties, 5.0 only.
    pub properties: Properties,
}

/// The content of DISCONNECT and AUTH.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason {
    /// Reason code.
    pub code: u8,
    /// Properties.
    pub properties: Properties,
}

/// Whether a complete packet is at the front of `buffer`.
pub fn has_frame(buffer: &[u8]) -> bool {
    frame_span(buffer).is_some_and(|(_, end)| buffer.len() >= end)
}

/// Takes the first complete packet off the front of `buffer`, as first byte and body.
pub fn take_frame(buffer: &mut Vec<u8>) -> Option<(u8, Vec<u8>)> {
    let (start, end) = frame_span(buffer)?;
    if buffer.len() < end {
        return None;
    }
    let packet: Vec<u8> = buffer.drain(..end).collect();
    Some((packet[0], packet[start..].to_vec()))
}

/// Where the body of the packet at the front starts and ends, once its header is there.
fn frame_span(buffer: &[u8]) -> Option<(usize, usize)> {
    let mut length = 0;
    for index in 1..=4 {
        let byte = *buffer.get(index)?;
        length |= usize::from(byte & 0x7f) << (7 * (index - 1));
        if byte & 0x80 == 0 {
            assert!(
                byte != 0 || index == 1,
                "length longer than needed: {}",
                to_hex(buffer)
            );
            return Some((index + 1, index + 1 + length));
        }
    }
    panic!(
        "a remaining length of more than four bytes: {}",
        to_hex(buffer)
    );
}

impl Packet {
    /// Reads one packet; panics when a server of this version must not send it.
    pub fn parse(version: Version, first_byte: u8, body: &[u8]) -> Self {
        let v5 = version == Version::V5;
        let mut rest = body;
        let packet = match first_byte {
            0x20 => Self::ConnAck(connack(v5, &mut rest)),
            0x30..=0x3f => Self::Publish(publish(v5, first_byte, &mut rest)),
            0x40 => Self::Ack(ack(v5, AckKind::PubAck, &mut rest)),
            0x50 => Self::Ack(ack(v5, AckKind::PubRec, &mut rest)),
            0x62 => Self::Ack(ack(v5, AckKind::PubRel, &mut rest)),
            0x70 => Self::Ack(ack(v5, AckKind::PubComp, &mut rest)),
            0x90 => Self::SubAck(codes(v5, &mut rest)),
            0xb0 => Self::UnsubAck(codes(v5, &mut rest)),
            0xd0 => Self::PingResp,
            0xe0 if v5 => Self::Disconnect(reason(&mut rest)),
            0xf0 if v5 => Self::Auth(reason(&mut rest)),
            _ => panic!("a server must not send {first_byte:02x} {}", to_hex(body)),
        };
        assert!(
            rest.is_empty(),
            "bytes after the end of {packet:?}: {}",
            to_hex(rest)
        );
        packet
    }
}

fn connack(v5: bool, rest: &mut &[u8]) -> ConnAck {
    let flags = take(rest, 1)[0];
    // [MQTT-3.2.2-1]
    assert!(flags <= 1, "reserved CONNACK flags are set: {flags:#04x}");
    let reason = take(rest, 1)[0];
    if !v5 && reason == 0x84 {
        // The refusal of an unknown version may be written in the 5.0 layout.
        let properties = if rest.is_empty() {
            Properties::none()
        } else {
            Properties::decode(rest)
        };
        return ConnAck {
            session_present: flags == 1,
            reason,
            properties,
        };
    }
    // [MQTT-2.2.2-1]: in 5.0 the length of the properties is always there. A refusal with a 3.x
    // return code is the exception: it answers a client whose version is not known to be 5.0.
    let old_style = v5 && rest.is_empty() && (1..=5).contains(&reason);
    let properties = if v5 && !old_style {
        Properties::decode(rest)
    } else {
        Properties::none()
    };
    ConnAck {
        session_present: flags == 1,
        reason,
        properties,
    }
}

fn publish(v5: bool, first_byte: u8, rest: &mut &[u8]) -> Publish {
    let qos = first_byte >> 1 & 3;
    let dup = first_byte & 8 != 0;
    assert!(qos < 3, "a PUBLISH with both QoS bits set");
    assert!(qos > 0 || !dup, "DUP on QoS 0");
    let topic = take_text(rest);
    let packet_id = if qos == 0 { 0 } else { take_short(rest) };
    assert!(qos == 0 || packet_id != 0, "packet identifier 0");
    let properties = if v5 {
        Properties::decode(rest)
    } else {
        Properties::none()
    };
    let payload = take(rest, rest.len()).to_vec();
    Publish {
        dup,
        qos,
        retain: first_byte & 1 == 1,
        topic,
        packet_id,
        properties,
        payload,
    }
}

fn ack(v5: bool, kind: AckKind, rest: &mut &[u8]) -> Ack {
    let packet_id = take_short(rest);
    let reason = if v5 && !rest.is_empty() {
        take(rest, 1)[0]
    } else {
        0
    };
    let properties = if v5 && !rest.is_empty() {
        Properties::decode(rest)
    } else {
        Properties::none()
    };
    Ack {
        kind,
        packet_id,
        reason,
        properties,
    }
}

fn codes(v5: bool, rest: &mut &[u8]) -> Codes {
    let packet_id = take_short(rest);
    let properties = if v5 {
        Properties::decode(rest)
    } else {
        Properties::none()
    };
    let codes = take(rest, rest.len()).to_vec();
    Codes {
        packet_id,
        codes,
        properties,
    }
}

fn reason(rest: &mut &[u8]) -> Reason {
    let code = if rest.is_empty() { 0 } else { take(rest, 1)[0] };
    let properties = if rest.is_empty() {
        Properties::none()
    } else {
        Properties::decode(rest)
    };
    Reason { code, properties }
}
