//! AUTH: a step of an enhanced authentication. 5.0 only.

use super::{PacketType, PropertySection, put_outcome, read_outcome};
use crate::{
    error::{DecodeError, EncodeError},
    primitive::Reader,
    property::{Properties, PropertyId},
    reason::ReasonCode,
    version::Version,
};

/// One step of an authentication exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Auth<'a> {
    /// `Success`, `ContinueAuthentication` or `ReAuthenticate`.
    pub reason: ReasonCode,
    /// With the method, always.
    pub properties: Properties<'a>,
}

impl<'a> Auth<'a> {
    pub(super) fn decode(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let (reason, properties) = read_outcome(reader, Version::V5)?;
        let auth = Self { reason, properties };
        auth.check()?;
        Ok(auth)
    }

    pub(super) fn encode_body(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        self.check().map_err(EncodeError::Invalid)?;
        put_outcome(
            out,
            PacketType::Auth,
            Version::V5,
            self.reason,
            self.properties,
        )
    }

    /// The standard lets an AUTH without properties be empty, and also calls every AUTH without a
    /// method an error; so an empty one is read and found wanting.
    fn check(&self) -> Result<(), DecodeError> {
        if self.properties.authentication_method().is_some() {
            return Ok(());
        }
        Err(DecodeError::MissingProperty {
            section: PropertySection::Packet(PacketType::Auth),
            property: PropertyId::AuthenticationMethod,
        })
    }
}
