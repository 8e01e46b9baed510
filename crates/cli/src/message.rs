//! A message that came, as it is printed.

use unbroken_client::{PacketId, Properties, QoS, Received};

/// What can be printed of a message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Message<'a> {
    pub(crate) topic: &'a str,
    pub(crate) payload: &'a [u8],
    pub(crate) qos: QoS,
    pub(crate) retain: bool,
    pub(crate) dup: bool,
    pub(crate) packet_id: Option<PacketId>,
    pub(crate) properties: Properties<'a>,
}

impl<'a> From<&'a Received> for Message<'a> {
    fn from(received: &'a Received) -> Self {
        Self {
            topic: received.topic(),
            payload: received.payload(),
            qos: received.qos(),
            retain: received.is_retained(),
            dup: received.is_repeated(),
            packet_id: received.packet_id(),
            properties: received.properties(),
        }
    }
}
