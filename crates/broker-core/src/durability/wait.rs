//! What a packet waits for, and what is woken when that is true.

use std::sync::Arc;

use crate::ids::{ConnectionId, ShardId, StoreId};

/// What a packet waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct WaitFor {
    /// This request and all before it are on disk.
    pub(crate) stored: StoreId,
    /// The messages that were sent to other shards with this token are answered.
    pub(crate) settled: Option<u64>,
}

impl WaitFor {
    /// Nothing of its own; it may stand behind others.
    pub(crate) const NOW: Self = Self {
        stored: StoreId::NOTHING,
        settled: None,
    };

    pub(crate) const fn stored(stored: StoreId) -> Self {
        Self {
            stored,
            settled: None,
        }
    }
}

/// What is woken when something is true that it waits for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Waiter {
    /// The packets that wait in this connection, from the first on.
    Packets(ConnectionId),
    /// The output of this connection: its CONNACK and what was written behind it.
    Output(ConnectionId),
    /// The shard that asked this one under a token of its own.
    Shard(ShardId, u64),
    /// The will of this client, which is on disk until then.
    Will(Arc<str>),
}
