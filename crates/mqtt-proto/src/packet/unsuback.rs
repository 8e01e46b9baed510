//! UNSUBACK: the server's answer to UNSUBSCRIBE.

use crate::{property::Properties, qos::PacketId};

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
