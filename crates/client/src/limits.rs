//! Every limit of a client, with what it costs.

/// How much a client holds. Change fields of [`Limits::default`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Messages given to the client that are not finished: queued, under way, or waiting for a
    /// connection. At least 1. Each costs itself and about 300 bytes.
    pub unfinished_max: usize,
    /// Messages of QoS 1 and 2 that the broker may send before one is acknowledged: 1 to 65,535.
    /// They may wait in a subscription, in the owner's hands, or as inputs of a
    /// [`Processor`](crate::audit::Processor), and cost themselves and about 200 bytes each.
    /// Nothing more comes while so many do, so it must be more than is ever gathered for one
    /// [batch](crate::audit::Processor::emit_batch). From a
    /// broker that does not keep to it, as Mosquitto 2, or cannot be told, as with 3.x, 65,535
    /// are taken.
    pub receive_maximum: u16,
    /// Messages of QoS 1 and 2 under way to any broker, which may take fewer. At least 1.
    pub inflight_max: u16,
    /// Messages of QoS 1 and 2 under way to a 3.x broker, which cannot say how many it takes; a
    /// 5.0 broker does. At least 1. Mosquitto takes 20 and does not keep the order of those
    /// beyond.
    pub inflight_max_3x: u16,
    /// Messages of QoS 0 that wait in one subscription for its owner. What comes beyond is
    /// dropped, counted and told as [`Event::Dropped`](crate::Event::Dropped).
    pub qos0_waiting_max: usize,
    /// Bytes of the largest packet that is read; 5.0 brokers are told. An announced length costs
    /// nothing until its bytes come.
    pub packet_bytes_max: u32,
    /// Topics that this client names by a number after the first time (5.0), as far as the broker
    /// takes them; 0 to 65,535. About 100 bytes each.
    pub topic_aliases_max: u16,
    /// Messages that a [`Processor`](crate::audit::Processor) leaves out before it says so; a
    /// quarter of `receive_maximum` at most, since they are acknowledged after that. 17 bytes each
    /// on the wire, and about 100 here.
    pub left_out_max: usize,
    /// Filters of all subscriptions together, and of those that were given up and may still see
    /// messages.
    pub filters_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            unfinished_max: 1_024,
            receive_maximum: 1_024,
            inflight_max: u16::MAX,
            inflight_max_3x: 20,
            qos0_waiting_max: 16_384,
            packet_bytes_max: 16 << 20,
            topic_aliases_max: 0,
            left_out_max: 256,
            filters_max: 1_024,
        }
    }
}

/// Encoded bytes that wait for the socket before no more is taken from the application.
pub(crate) const OUTPUT_BYTES: usize = 256 << 10;
/// Bytes asked of the socket at a time, and read before the owners of subscriptions have their
/// turn.
pub(crate) const READ_BYTES: usize = 64 << 10;
/// Bytes of a broken connection that are looked through for the broker's reason.
pub(crate) const LAST_BYTES: usize = 1 << 20;
/// The largest packet that a relay passes, held once a way while it is incomplete. A larger one
/// ends its connection.
pub(crate) const RELAYED_PACKET_BYTES: u32 = 16 << 20;
/// Wishes of the application taken at a time, so that a busy one does not keep the socket waiting.
pub(crate) const COMMANDS_AT_ONCE: usize = 256;
/// Commands beside messages (subscribe, ping, …) that may wait for the client's task.
pub(crate) const COMMANDS_SPARE: usize = 64;
/// Events that an observer may be behind before it misses some.
pub(crate) const EVENTS_HELD: usize = 256;
/// The highest subscription identifier given out: the last of two bytes on the wire.
pub(crate) const IDENTIFIER_MAX: u32 = 16_383;

const _: () = assert!(OUTPUT_BYTES >= READ_BYTES);
