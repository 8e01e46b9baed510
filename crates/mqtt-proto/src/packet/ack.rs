//! PUBACK, PUBREC, PUBREL and PUBCOMP, which have one form.

use crate::{property::Properties, qos::PacketId, reason::ReasonCode};

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

impl Ack<'_> {
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
}
