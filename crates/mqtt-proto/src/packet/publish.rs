//! PUBLISH: an application message, in either direction.

use crate::{
    error::EncodeError,
    property::Properties,
    qos::{PacketId, QoS},
    version::Version,
};

/// An application message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Publish<'a> {
    /// Sent before, possibly.
    pub dup: bool,
    /// The level of this transfer.
    pub qos: QoS,
    /// To be kept (towards the server), or kept before (towards a client).
    pub retain: bool,
    /// Empty in 5.0 when a topic alias stands for it.
    pub topic: &'a str,
    /// Present exactly above QoS 0.
    pub packet_id: Option<PacketId>,
    /// Empty in 3.x.
    pub properties: Properties<'a>,
    /// Any bytes.
    pub payload: &'a [u8],
}

/// Everything of a PUBLISH before its properties, for a sender that appends properties and payload itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "as in Publish")]
pub struct PublishHeader<'a> {
    pub dup: bool,
    pub qos: QoS,
    pub retain: bool,
    pub topic: &'a str,
    pub packet_id: Option<PacketId>,
    /// Of the encoded properties, without their length field; must be 0 in 3.x.
    pub property_len: usize,
    pub payload_len: usize,
}

/// Appends fixed header, topic, packet id and (5.0) property length. The caller appends exactly `property_len` bytes
/// of properties and `payload_len` of payload.
///
/// Returns where in `out` the packet id went, so that a copy of the bytes can be patched ([`patch_packet_id`]).
pub fn encode_header(
    out: &mut Vec<u8>,
    version: Version,
    header: &PublishHeader<'_>,
) -> Result<Option<usize>, EncodeError> {
    let _ = (out, version, header);
    Ok(None)
}

/// The offset of the packet id within an encoded PUBLISH; `None` at QoS 0, or if the bytes are not a PUBLISH.
pub fn packet_id_offset(frame: &[u8]) -> Option<usize> {
    let _ = frame;
    None
}

/// Overwrites the packet id at an offset that [`encode_header`] or [`packet_id_offset`] gave; `false` if it is out of range.
pub fn patch_packet_id(frame: &mut [u8], offset: usize, packet_id: PacketId) -> bool {
    let _ = (frame, offset, packet_id);
    false
}
