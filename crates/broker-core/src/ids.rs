//! Names for the things a shard holds or asks for. All are small copies; none is meaningful on
//! another machine.

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

/// Numbers the store requests of one shard, in order, from 1.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct StoreId(pub u64);

impl StoreId {
    /// Before the first request: what waits for it waits for nothing.
    pub(crate) const NOTHING: Self = Self(0);
    /// Behind every request: what waits for it waits for the restart.
    pub(crate) const NEVER: Self = Self(u64::MAX);
}

/// Numbers what a shard asks of others, and what lives in it: from 1, none twice.
#[derive(Debug, Default)]
pub(crate) struct Numbers(u64);

impl Numbers {
    pub(crate) fn issue(&mut self) -> u64 {
        self.0 += 1;
        self.0
    }

    /// The next one.
    pub(crate) fn next(&self) -> u64 {
        self.0 + 1
    }
}

/// One log: what the shard of this number took in, in this run of the broker and those before.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LogId(pub u16);

/// For whom a shard wants what matches a filter.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Want {
    /// Somebody who keeps nothing of it: a session that ends with its connection, or a subscription
    /// of QoS 0.
    Passing,
    /// A session that stays, at QoS 1 or 2.
    Staying,
    /// A shared group with such a member: who is given it is for the group to say, and it answers
    /// when that is on disk.
    Sharing,
}

/// A message of QoS 2 that is marked, and that another shard is to retain. That shard notes it as
/// done in the very record by which it is, so that a restart does not do it again over what came
/// later.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Errand {
    /// The shard that took it in.
    pub from: ShardId,
    /// The shard that keeps its topic.
    pub to: ShardId,
    /// Grows with each that `from` sends in one run: `to` does them in this order.
    pub number: u64,
}

/// A message that a session which has ended had from a group, on its way to another member. The
/// name holds until the message is there, over any number of runs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct HandOver {
    /// The shard of the session; or [`NO_SHARD`](Self::NO_SHARD).
    pub from: ShardId,
    /// Grows with each that `from` notes.
    pub number: u64,
}

impl HandOver {
    /// Who ended the session was none of the broker's shards, of which there are at most 64.
    pub const NO_SHARD: ShardId = ShardId(u8::MAX);
}

/// A session of any shard, as a member of a group.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Member {
    pub(crate) shard: ShardId,
    pub(crate) session: SessionId,
    /// Names its stay in the group. By the time a message arrives the session may have left, and
    /// its number may be another's.
    pub(crate) serial: u64,
}

/// A group, as a message on its way to the member that it chose remembers it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct GroupRef {
    pub(crate) shard: ShardId,
    pub(crate) group: GroupId,
    /// The group's number may be another's by the time the message comes back.
    pub(crate) serial: u64,
}

/// Whether a member can be given a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Readiness {
    /// It is connected.
    Ready,
    /// Its session keeps it.
    Away,
    /// Its session has no room, and publishers are refused for that.
    Full,
    /// It is away, and its session keeps nothing, since it is granted QoS 0.
    Absent,
}

/// Who would have to keep a message.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Holder {
    Session(SessionId),
    /// One of its members.
    Group(GroupId),
}

/// A holder of any shard.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct HolderRef {
    pub(crate) shard: ShardId,
    pub(crate) holder: Holder,
}
