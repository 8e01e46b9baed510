//! SUBACK: the server's answer to SUBSCRIBE.

use super::{PacketType, PropertySection, check_codes, put_properties, read_properties};
use crate::{
    error::{DecodeError, EncodeError},
    primitive::Reader,
    property::Properties,
    qos::PacketId,
    version::Version,
};

const PACKET: PacketType = PacketType::SubAck;

/// One reason code for each filter of a SUBSCRIBE, in its order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubAck<'a> {
    /// Of the SUBSCRIBE.
    pub packet_id: PacketId,
    /// Empty in 3.x.
    pub properties: Properties<'a>,
    /// Granted QoS or an error; in 3.x every error is 0x80.
    pub reasons: &'a [u8],
}

impl<'a> SubAck<'a> {
    pub(super) fn decode(reader: &mut Reader<'a>, version: Version) -> Result<Self, DecodeError> {
        let suback = Self {
            packet_id: reader.packet_id()?,
            properties: read_properties(reader, version, PropertySection::Packet(PACKET))?,
            reasons: reader.take_rest(),
        };
        check_codes(PACKET, version, suback.reasons)?;
        Ok(suback)
    }

    pub(super) fn encode_body(
        &self,
        version: Version,
        out: &mut Vec<u8>,
    ) -> Result<(), EncodeError> {
        check_codes(PACKET, Version::V5, self.reasons).map_err(EncodeError::Invalid)?;
        out.extend_from_slice(&self.packet_id.get().to_be_bytes());
        put_properties(
            out,
            version,
            PropertySection::Packet(PACKET),
            self.properties,
        )?;
        out.extend(self.reasons.iter().map(|&code| version.suback_code(code)));
        Ok(())
    }
}
