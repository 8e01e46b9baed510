//! SUBACKs that wait for the disk and for other shards.

use std::ops::Range;

use unbroken_mqtt_proto::PacketId;

use crate::ids::{ConnectionId, SessionId, StoreId};

/// A SUBACK that waits until the subscription is stored, and in force on every shard.
#[derive(Debug)]
pub(crate) struct PendingSubAck {
    pub(crate) connection: ConnectionId,
    pub(crate) session: SessionId,
    /// Which one of that number: see [`crate::session::Session::serial`].
    pub(crate) serial: u64,
    pub(crate) packet_id: PacketId,
    pub(crate) codes: Vec<u8>,
    /// Filter and era of what is granted and was not in force: it is on every shard once the SUBACK
    /// leaves, and from when on it is known only then.
    pub(crate) filters: Vec<(Box<str>, u32)>,
    /// Every shard has applied what this one announced up to here.
    pub(crate) barrier: u64,
    /// Joins of groups on other shards that have not been answered.
    pub(crate) joins: Vec<u64>,
    /// The record of the last of its filters.
    pub(crate) stored: StoreId,
    /// Tokens of the scans for retained messages that begin with it.
    pub(crate) retained: Range<u64>,
}

impl PendingSubAck {
    /// What it counts towards `output_bytes_max` while it waits: a filter may be a join.
    pub(crate) fn cost(&self) -> usize {
        let filter = 1 + size_of::<u64>() + size_of::<(Box<str>, u32)>();
        size_of::<Self>() + self.codes.len() * filter
    }
}
