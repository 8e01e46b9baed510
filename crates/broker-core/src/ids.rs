//! Names for the things a shard holds. All are small copies; none is meaningful on another machine.

use std::fmt;

/// A shard of this broker: `0..shards`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ShardId(pub u8);

/// A connection of one shard, chosen by the driver when it opens the connection.
///
/// `index` is dense and reused, so both sides can keep tables by it; `serial` is never reused, so
/// an answer that arrives after the connection has gone is recognised.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ConnectionId {
    /// Position in the driver's and the shard's tables.
    pub index: u32,
    /// Counts the connections this driver thread has opened.
    pub serial: u32,
}

/// A session of one shard. Dense and reused after the session ends.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SessionId(pub u32);

impl SessionId {
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// A shared subscription group of one shard. Dense and reused after its last member has left.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct GroupId(pub u32);

impl fmt::Display for ShardId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}
