//! CONNACK: the server's answer to CONNECT.

use super::{
    PacketType, PropertySection, checked_reason, put_properties, read_properties, read_reason,
};
use crate::{
    error::{DecodeError, EncodeError, Field},
    primitive::Reader,
    property::Properties,
    reason::ReasonCode,
    version::Version,
};

const PACKET: PacketType = PacketType::ConnAck;
const SESSION_PRESENT: u8 = 1;

/// Accepts or refuses a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnAck<'a> {
    /// The server holds a session for the client. Not sent in 3.1.
    pub session_present: bool,
    /// In 3.x the nearest of its return codes.
    pub reason: ReasonCode,
    /// Empty in 3.x.
    pub properties: Properties<'a>,
}

impl<'a> ConnAck<'a> {
    pub(super) fn decode(reader: &mut Reader<'a>, version: Version) -> Result<Self, DecodeError> {
        let flags = reader.u8(Field::AcknowledgeFlags)?;
        // [MQTT-3.2.2-1]; 3.1 has no flags here and says nothing of the byte.
        if version.has_session_present() && flags & !SESSION_PRESENT != 0 {
            let field = Field::AcknowledgeFlags;
            return Err(DecodeError::ReservedBits {
                packet: PACKET,
                field,
                bits: flags,
            });
        }
        let connack = Self {
            session_present: version.has_session_present() && flags & SESSION_PRESENT != 0,
            reason: if version.has_properties() {
                read_reason(reader)?
            } else {
                read_return_code(reader)?
            },
            properties: read_properties(reader, version, PropertySection::Packet(PACKET))?,
        };
        connack.check()?;
        Ok(connack)
    }

    pub(super) fn encode_body(
        &self,
        version: Version,
        out: &mut Vec<u8>,
    ) -> Result<(), EncodeError> {
        self.check().map_err(EncodeError::Invalid)?;
        out.push(u8::from(
            version.has_session_present() && self.session_present,
        ));
        out.push(if version.has_properties() {
            checked_reason(PACKET, self.reason)?
        } else {
            self.reason.to_connack_v3()
        });
        put_properties(
            out,
            version,
            PropertySection::Packet(PACKET),
            self.properties,
        )
    }

    // [MQTT-3.2.2-6, MQTT311-3.2.2-4]
    const fn check(&self) -> Result<(), DecodeError> {
        if self.session_present && self.reason.is_error() {
            return Err(DecodeError::SessionPresentOnRefusal);
        }
        Ok(())
    }
}

fn read_return_code(reader: &mut Reader<'_>) -> Result<ReasonCode, DecodeError> {
    let code = reader.u8(Field::ReasonCode)?;
    ReasonCode::from_connack_v3(code).ok_or(DecodeError::InvalidReasonCode {
        packet: PACKET,
        code,
    })
}
