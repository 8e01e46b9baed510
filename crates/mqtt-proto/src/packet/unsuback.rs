//! UNSUBACK: the server's answer to UNSUBSCRIBE.

use super::{PacketType, PropertySection, check_codes, put_properties, read_properties};
use crate::{
    error::{DecodeError, EncodeError},
    primitive::Reader,
    property::Properties,
    qos::PacketId,
    version::Version,
};

const PACKET: PacketType = PacketType::UnsubAck;

/// One reason code for each filter of an UNSUBSCRIBE, in its order; in 3.x only the packet id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnsubAck<'a> {
    /// Of the UNSUBSCRIBE.
    pub packet_id: PacketId,
    /// Empty in 3.x.
    pub properties: Properties<'a>,
    /// Empty in 3.x, and not sent there.
    pub reasons: &'a [u8],
}

impl<'a> UnsubAck<'a> {
    pub(super) fn decode(reader: &mut Reader<'a>, version: Version) -> Result<Self, DecodeError> {
        let packet_id = reader.packet_id()?;
        if !version.has_unsuback_codes() {
            return Ok(Self {
                packet_id,
                properties: Properties::EMPTY,
                reasons: &[],
            });
        }
        let properties = read_properties(reader, version, PropertySection::Packet(PACKET))?;
        let reasons = reader.take_rest();
        check_codes(PACKET, version, reasons)?;
        Ok(Self {
            packet_id,
            properties,
            reasons,
        })
    }

    pub(super) fn encode_body(
        &self,
        version: Version,
        out: &mut Vec<u8>,
    ) -> Result<(), EncodeError> {
        out.extend_from_slice(&self.packet_id.get().to_be_bytes());
        if !version.has_unsuback_codes() {
            return Ok(());
        }
        check_codes(PACKET, version, self.reasons).map_err(EncodeError::Invalid)?;
        put_properties(
            out,
            version,
            PropertySection::Packet(PACKET),
            self.properties,
        )?;
        out.extend_from_slice(self.reasons);
        Ok(())
    }
}
