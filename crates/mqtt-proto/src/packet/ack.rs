//! PUBACK, PUBREC, PUBREL and PUBCOMP, which have one form.

use super::{PacketType, put_outcome, read_outcome};
use crate::{
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

    pub(super) fn decode(reader: &mut Reader<'a>, version: Version) -> Result<Self, DecodeError> {
        let packet_id = reader.packet_id()?;
        let (reason, properties) = read_outcome(reader, version)?;
        Ok(Self {
            packet_id,
            reason,
            properties,
        })
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
