//! SUBACK: the server's answer to SUBSCRIBE.

use crate::{property::Properties, qos::PacketId};

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
