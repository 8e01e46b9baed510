//! DISCONNECT: the last packet of a connection, from the client or (5.0) from the server.

use super::{PacketType, put_outcome, read_outcome};
use crate::{
    error::{DecodeError, EncodeError},
    primitive::Reader,
    property::Properties,
    reason::ReasonCode,
    version::Version,
};

/// Ends the connection and says why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disconnect<'a> {
    /// `Success` in 3.x, which has no reason here.
    pub reason: ReasonCode,
    /// Empty in 3.x.
    pub properties: Properties<'a>,
}

impl<'a> Disconnect<'a> {
    /// A reason without properties.
    pub const fn new(reason: ReasonCode) -> Self {
        Self {
            reason,
            properties: Properties::EMPTY,
        }
    }

    pub(super) fn decode(reader: &mut Reader<'a>, version: Version) -> Result<Self, DecodeError> {
        let (reason, properties) = read_outcome(reader, version)?;
        Ok(Self { reason, properties })
    }

    pub(super) fn encode_body(
        &self,
        version: Version,
        out: &mut Vec<u8>,
    ) -> Result<(), EncodeError> {
        put_outcome(
            out,
            PacketType::Disconnect,
            version,
            self.reason,
            self.properties,
        )
    }
}
