//! PUBACK, PUBREC, PUBREL and PUBCOMP, which have one form.

use super::{PacketType, open, put_outcome, read_outcome};
use crate::{
    deframer::Frame,
    error::{DecodeError, EncodeError},
    primitive::Reader,
    property::Properties,
    qos::PacketId,
    reason::ReasonCode,
    version::Version,
};

/// One step of a QoS 1 or 2 exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ack<'a> {
    /// Of the PUBLISH.
    pub packet_id: PacketId,
    /// `Success` in 3.x, which has no reason here.
    pub reason: ReasonCode,
    /// Empty in 3.x.
    pub properties: Properties<'a>,
}

impl<'a> Ack<'a> {
    /// Success without properties.
    pub const fn success(packet_id: PacketId) -> Self {
        Self::new(packet_id, ReasonCode::Success)
    }

    /// A reason without properties.
    pub const fn new(packet_id: PacketId, reason: ReasonCode) -> Self {
        Self {
            packet_id,
            reason,
            properties: Properties::EMPTY,
        }
    }

    /// The PUBACK in a frame. Behind each message at QoS 1 comes one, and what holds any packet is
    /// large to move.
    #[inline]
    pub fn decode_puback(frame: Frame<'a>, version: Version) -> Result<Self, DecodeError> {
        let expected = PacketType::PubAck;
        let (packet, mut reader) = open(frame, version)?;
        if packet != expected {
            return Err(DecodeError::UnexpectedPacket { packet, expected });
        }
        let ack = Self::decode(&mut reader, version)?;
        reader.finish()?;
        Ok(ack)
    }

    #[inline]
    pub(super) fn decode(reader: &mut Reader<'a>, version: Version) -> Result<Self, DecodeError> {
        let packet_id = reader.packet_id()?;
        let (reason, properties) = read_outcome(reader, version)?;
        Ok(Self {
            packet_id,
            reason,
            properties,
        })
    }

    /// The whole packet, if it says no more than what it acknowledges: 3.x has no words for more.
    #[inline]
    pub(super) fn shortest(&self, packet: PacketType, version: Version) -> Option<[u8; 4]> {
        let says_more = version.has_properties()
            && (self.reason != ReasonCode::Success || !self.properties.is_empty());
        let [high, low] = self.packet_id.get().to_be_bytes();
        (!says_more).then_some([packet.first_byte(), 2, high, low])
    }

    pub(super) fn encode_body(
        &self,
        packet: PacketType,
        version: Version,
        out: &mut Vec<u8>,
    ) -> Result<(), EncodeError> {
        out.extend_from_slice(&self.packet_id.get().to_be_bytes());
        put_outcome(out, packet, version, self.reason, self.properties)
    }
}
