//! The control packets: one borrowed model for all versions, decoded from a frame and encoded to a
//! buffer.
//!
//! A decoded packet has passed every check that needs no connection state: lengths, flags, UTF-8,
//! identifiers, properties, reason codes. Topic syntax is `topic`'s; who may send what, and when,
//! is the connection's. Decoding allocates nothing.

mod ack;
mod auth;
mod connack;
mod connect;
mod disconnect;
mod packet_type;
pub mod publish;
mod suback;
mod subscribe;
mod unsuback;
mod unsubscribe;

pub use self::{
    ack::Ack,
    auth::Auth,
    connack::ConnAck,
    connect::{Connect, Will},
    disconnect::Disconnect,
    packet_type::{PacketType, PropertySection},
    publish::Publish,
    suback::SubAck,
    subscribe::{RetainHandling, Subscribe, SubscriptionOptions, Subscriptions, SubscriptionsIter},
    unsuback::UnsubAck,
    unsubscribe::{TopicFilters, TopicFiltersIter, Unsubscribe},
};
use crate::{
    deframer::Frame,
    error::{DecodeError, EncodeError, Field},
    primitive::{self, Reader},
    property::Properties,
    reason::ReasonCode,
    version::Version,
};

/// Any control packet, borrowing its strings, payloads and properties.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "each packet's own type says what it is")]
pub enum Packet<'a> {
    Connect(Connect<'a>),
    ConnAck(ConnAck<'a>),
    Publish(Publish<'a>),
    PubAck(Ack<'a>),
    PubRec(Ack<'a>),
    PubRel(Ack<'a>),
    PubComp(Ack<'a>),
    Subscribe(Subscribe<'a>),
    SubAck(SubAck<'a>),
    Unsubscribe(Unsubscribe<'a>),
    UnsubAck(UnsubAck<'a>),
    PingReq,
    PingResp,
    Disconnect(Disconnect<'a>),
    Auth(Auth<'a>),
}

impl<'a> Packet<'a> {
    /// The packet in a frame. `version` is what the connection speaks; a CONNECT says its own.
    pub fn decode(frame: Frame<'a>, version: Version) -> Result<Self, DecodeError> {
        let (packet, mut reader) = open(frame, version)?;
        let decoded = match packet {
            PacketType::Connect => Self::Connect(Connect::decode(&mut reader)?),
            PacketType::ConnAck => Self::ConnAck(ConnAck::decode(&mut reader, version)?),
            PacketType::Publish => {
                Self::Publish(Publish::decode_body(frame.flags(), &mut reader, version)?)
            }
            PacketType::PubAck => Self::PubAck(Ack::decode(&mut reader, version)?),
            PacketType::PubRec => Self::PubRec(Ack::decode(&mut reader, version)?),
            PacketType::PubRel => Self::PubRel(Ack::decode(&mut reader, version)?),
            PacketType::PubComp => Self::PubComp(Ack::decode(&mut reader, version)?),
            PacketType::Subscribe => Self::Subscribe(Subscribe::decode(&mut reader, version)?),
            PacketType::SubAck => Self::SubAck(SubAck::decode(&mut reader, version)?),
            PacketType::Unsubscribe => {
                Self::Unsubscribe(Unsubscribe::decode(&mut reader, version)?)
            }
            PacketType::UnsubAck => Self::UnsubAck(UnsubAck::decode(&mut reader, version)?),
            PacketType::PingReq => Self::PingReq,
            PacketType::PingResp => Self::PingResp,
            PacketType::Disconnect => Self::Disconnect(Disconnect::decode(&mut reader, version)?),
            PacketType::Auth => Self::Auth(Auth::decode(&mut reader)?),
        };
        reader.finish()?;
        Ok(decoded)
    }

    /// Appends the packet to `out` in its shortest form. After an error `out` is as it was.
    ///
    /// What a version cannot carry is left out: properties and reasons in 3.x, the session-present
    /// bit in 3.1. A CONNECT is written in its own version.
    pub fn encode(&self, version: Version, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let packet = self.packet_type();
        if !version.has_packet(packet) {
            return Err(EncodeError::PacketNotInVersion { packet, version });
        }
        if let Self::Publish(publish) = self {
            return publish.encode(version, out);
        }
        if let Self::PubAck(ack) | Self::PubRec(ack) | Self::PubRel(ack) | Self::PubComp(ack) = self
            && let Some(bytes) = ack.shortest(packet, version)
        {
            out.extend_from_slice(&bytes);
            return Ok(());
        }
        encode_frame(packet, out, |out| match self {
            Self::Connect(connect) => connect.encode_body(out),
            Self::ConnAck(connack) => connack.encode_body(version, out),
            Self::PubAck(ack) | Self::PubRec(ack) | Self::PubRel(ack) | Self::PubComp(ack) => {
                ack.encode_body(packet, version, out)
            }
            Self::Subscribe(subscribe) => subscribe.encode_body(version, out),
            Self::SubAck(suback) => suback.encode_body(version, out),
            Self::Unsubscribe(unsubscribe) => unsubscribe.encode_body(version, out),
            Self::UnsubAck(unsuback) => unsuback.encode_body(version, out),
            Self::Publish(_) | Self::PingReq | Self::PingResp => Ok(()),
            Self::Disconnect(disconnect) => disconnect.encode_body(version, out),
            Self::Auth(auth) => auth.encode_body(out),
        })
    }

    /// Which packet this is.
    pub const fn packet_type(&self) -> PacketType {
        match self {
            Self::Connect(_) => PacketType::Connect,
            Self::ConnAck(_) => PacketType::ConnAck,
            Self::Publish(_) => PacketType::Publish,
            Self::PubAck(_) => PacketType::PubAck,
            Self::PubRec(_) => PacketType::PubRec,
            Self::PubRel(_) => PacketType::PubRel,
            Self::PubComp(_) => PacketType::PubComp,
            Self::Subscribe(_) => PacketType::Subscribe,
            Self::SubAck(_) => PacketType::SubAck,
            Self::Unsubscribe(_) => PacketType::Unsubscribe,
            Self::UnsubAck(_) => PacketType::UnsubAck,
            Self::PingReq => PacketType::PingReq,
            Self::PingResp => PacketType::PingResp,
            Self::Disconnect(_) => PacketType::Disconnect,
            Self::Auth(_) => PacketType::Auth,
        }
    }
}

/// The type of a packet that this version has, with the flags it must have, and its body.
#[inline]
fn open(frame: Frame<'_>, version: Version) -> Result<(PacketType, Reader<'_>), DecodeError> {
    let first_byte = frame.first_byte;
    let Some(packet) = frame.packet_type() else {
        return Err(DecodeError::UnknownPacketType { first_byte });
    };
    if !version.has_packet(packet) {
        return Err(DecodeError::PacketNotInVersion { packet, version });
    }
    // A CONNECT says its own version.
    let version = match packet {
        PacketType::Connect => Connect::claimed_version(frame).unwrap_or(Version::V5),
        _ => version,
    };
    if !version.allows_flags(packet, frame.flags()) {
        return Err(DecodeError::ReservedFlags {
            packet,
            flags: frame.flags(),
        });
    }
    Ok((packet, Reader::new(packet, frame.body)))
}

/// Appends fixed header and body; the remaining length is known once the body is written.
fn encode_frame(
    packet: PacketType,
    out: &mut Vec<u8>,
    body: impl FnOnce(&mut Vec<u8>) -> Result<(), EncodeError>,
) -> Result<(), EncodeError> {
    let start = out.len();
    // One byte is kept for the length: most packets that come this way are that short.
    out.extend_from_slice(&[packet.first_byte(), 0]);
    let body_start = out.len();
    let written = body(out).and_then(|()| {
        let mut length = [0; 4];
        let length_len = primitive::varint(out.len() - body_start, &mut length)
            .ok_or(EncodeError::PacketTooLong { packet })?;
        out.splice(start + 1..body_start, length.into_iter().take(length_len));
        Ok(())
    });
    if written.is_err() {
        out.truncate(start);
    }
    written
}

/// The property section, which 3.x does not have and 5.0 always has, if only as a length of 0.
///
/// [MQTT-2.2.2-1]
#[inline]
fn read_properties<'a>(
    reader: &mut Reader<'a>,
    version: Version,
    section: PropertySection,
) -> Result<Properties<'a>, DecodeError> {
    if !version.has_properties() {
        return Ok(Properties::EMPTY);
    }
    let length = reader.varint(Field::PropertyLength)?;
    let bytes = reader.slice(length as usize, Field::PropertyLength)?;
    Properties::parse(bytes, section)
}

/// The property section, if the version has one.
fn put_properties(
    out: &mut Vec<u8>,
    version: Version,
    section: PropertySection,
    properties: Properties<'_>,
) -> Result<(), EncodeError> {
    if !version.has_properties() {
        return Ok(());
    }
    Properties::parse(properties.as_bytes(), section).map_err(EncodeError::Invalid)?;
    primitive::put_varint(out, properties.len())?;
    out.extend_from_slice(properties.as_bytes());
    Ok(())
}

/// Reason code and properties at the end of a packet, of which 5.0 lets a sender leave out what
/// says nothing.
fn read_outcome<'a>(
    reader: &mut Reader<'a>,
    version: Version,
) -> Result<(ReasonCode, Properties<'a>), DecodeError> {
    if !version.has_properties() || reader.is_empty() {
        return Ok((ReasonCode::Success, Properties::EMPTY));
    }
    let reason = read_reason(reader)?;
    if reader.is_empty() {
        return Ok((reason, Properties::EMPTY));
    }
    let section = PropertySection::Packet(reader.packet());
    Ok((reason, read_properties(reader, version, section)?))
}

fn put_outcome(
    out: &mut Vec<u8>,
    packet: PacketType,
    version: Version,
    reason: ReasonCode,
    properties: Properties<'_>,
) -> Result<(), EncodeError> {
    if !version.has_properties() {
        return Ok(());
    }
    if !properties.is_empty() || reason != ReasonCode::Success {
        out.push(checked_reason(packet, reason)?);
    }
    if !properties.is_empty() {
        put_properties(out, version, PropertySection::Packet(packet), properties)?;
    }
    Ok(())
}

fn read_reason(reader: &mut Reader<'_>) -> Result<ReasonCode, DecodeError> {
    let packet = reader.packet();
    let code = reader.u8(Field::ReasonCode)?;
    ReasonCode::try_from(code)
        .ok()
        .filter(|reason| reason.is_allowed_in(packet))
        .ok_or(DecodeError::InvalidReasonCode { packet, code })
}

fn checked_reason(packet: PacketType, reason: ReasonCode) -> Result<u8, EncodeError> {
    let code = reason.code();
    if reason.is_allowed_in(packet) {
        Ok(code)
    } else {
        Err(EncodeError::Invalid(DecodeError::InvalidReasonCode {
            packet,
            code,
        }))
    }
}

/// One code for each filter of a SUBSCRIBE or UNSUBSCRIBE.
fn check_codes(packet: PacketType, version: Version, codes: &[u8]) -> Result<(), DecodeError> {
    if codes.is_empty() {
        return Err(DecodeError::EmptyList { packet });
    }
    match codes
        .iter()
        .find(|&&code| !version.allows_filter_code(packet, code))
    {
        Some(&code) => Err(DecodeError::InvalidReasonCode { packet, code }),
        None => Ok(()),
    }
}
