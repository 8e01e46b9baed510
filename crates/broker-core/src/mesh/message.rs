//! The messages between shards.

use std::sync::Arc;

use unbroken_merkle_log::Epoch;

use super::Bundle;
use crate::audit::owners::LaneMessage;
use crate::audit::receipt::News;
use crate::ids::{ConnectionId, Errand, Holder, SessionId, Want};
use crate::message::Message;
use crate::routing::Grant;
use crate::shared::GroupMessage;
use crate::shares::{Full, Network, Reserved};
use crate::telemetry::Stats;

/// A message from one shard to another. Opaque to the driver, which carries it.
#[derive(Debug)]
pub struct ShardMessage {
    pub(crate) message: MeshMessage,
    /// Counts the messages from one shard to another, from 0.
    pub(crate) number: u64,
}

impl ShardMessage {
    /// What it counts for in a channel that is bounded in bytes: those in it, and for a bundle of
    /// messages more, as its module says.
    pub fn cost(&self) -> u64 {
        match &self.message {
            MeshMessage::Bundle(bundle) => bundle.cost(),
            _ => self.bytes(),
        }
    }

    /// Bytes of topics, filters, properties and payloads in it, about. Those of messages may be
    /// shared with others.
    pub fn bytes(&self) -> u64 {
        let bytes = |message: &Arc<Message>| message.publication().cost();
        let text = |text: &str| text.len() as u64;
        match &self.message {
            MeshMessage::Publish { message, .. }
            | MeshMessage::Retain(RetainMessage::Keep { message, .. }) => bytes(message),
            MeshMessage::Retain(
                RetainMessage::Asked { topic, .. } | RetainMessage::Answered { topic, .. },
            ) => text(topic),
            MeshMessage::Bundle(bundle) => bundle.bytes() as u64,
            MeshMessage::RetainedAnswer { messages, .. } => messages.iter().map(bytes).sum(),
            MeshMessage::InterestAdded { filter, .. }
            | MeshMessage::InterestRemoved { filter, .. } => text(filter),
            MeshMessage::Full { filters, .. } => {
                filters.iter().map(|(filter, _)| text(filter)).sum()
            }
            MeshMessage::Room { filter, .. } => filter.as_deref().map_or(0, text),
            MeshMessage::RetainedQuery { filter, after, .. } => {
                text(filter) + after.as_deref().map_or(0, text)
            }
            MeshMessage::BarrierAsked { .. }
            | MeshMessage::BarrierReached { .. }
            | MeshMessage::Tail { .. }
            | MeshMessage::Settled { .. }
            | MeshMessage::News { .. }
            | MeshMessage::Stats(_)
            | MeshMessage::StatsAsked
            | MeshMessage::StatsAnswer(_)
            | MeshMessage::MemoryIsShort => 0,
            MeshMessage::Group(message) => message.bytes(),
            MeshMessage::Lane(message) => message.bytes(),
        }
    }
}

/// What the shard that a message came in on waits for, of another's part in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Awaited {
    /// Names it in the answer.
    pub(crate) token: u64,
    /// Whichever group gives it to somebody has that on disk, as
    /// [`Record::DeliveredBy`](crate::Record::DeliveredBy).
    pub(crate) expected: bool,
}

#[derive(Debug)]
pub(crate) enum MeshMessage {
    /// A message that matches something you told me you want; if that is awaited, answer `Settled`
    /// when what your groups have given to sessions that stay is stored.
    Publish {
        message: Arc<Message>,
        awaited: Option<Awaited>,
    },
    /// Messages that match something you told me you want, and that nobody waits for.
    Bundle(Arc<Bundle>),
    /// From now on send me what matches this filter; answer `BarrierReached` with the number.
    InterestAdded {
        filter: Box<str>,
        want: Want,
        barrier: u64,
    },
    /// Stop sending me what matches this filter, as far as I wanted it so.
    InterestRemoved { filter: Box<str>, want: Want },
    /// Answer `BarrierReached` with this number, and nothing more.
    BarrierAsked { barrier: u64 },
    /// Every interest you announced up to this number is in force here, from behind this message of
    /// my log on.
    BarrierReached { barrier: u64, tail: u64 },
    /// What you wanted of my log has come up to this message, and this one and all before it are on
    /// disk.
    Tail { tail: u64, on_disk: u64 },
    /// My session is at the limit of what may wait for it, or all members of my group are, and has
    /// these subscriptions: refuse what it would have to keep. A second message adds to the first,
    /// or replaces.
    Full {
        holder: Holder,
        name: Arc<str>,
        filters: Box<[(Box<str>, Grant)]>,
    },
    /// It has room again, or has ended; with a filter, only that subscription has.
    Room {
        holder: Holder,
        filter: Option<Box<str>>,
    },
    /// About a shared group.
    Group(GroupMessage),
    /// About a retained message.
    Retain(RetainMessage),
    /// A message that you sent with this token is carried out, and what it asked for is stored.
    Settled { token: u64 },
    /// Send my session your retained messages that match, from after this topic on.
    RetainedQuery {
        token: u64,
        session: SessionId,
        filter: Box<str>,
        after: Option<Box<str>>,
    },
    /// Some of them; ask again from after `next` if it is there.
    RetainedAnswer {
        token: u64,
        session: SessionId,
        messages: Vec<Arc<Message>>,
        next: Option<Box<str>>,
    },
    /// What became known of a message of this client of yours, whose lane is followed.
    News {
        publisher: Arc<str>,
        epoch: Epoch,
        number: u64,
        news: News,
    },
    /// What becomes of a lane that clients stamp.
    Lane(LaneMessage),
    /// My counters, for `$SYS`.
    Stats(Box<Stats>),
    /// Answer `StatsAnswer` with your counters as they are.
    StatsAsked,
    /// My counters, for the verdict that you were asked for.
    StatsAnswer(Box<Stats>),
    /// Clients hold more memory than they may, and none of mine too much of it.
    MemoryIsShort,
}

/// A message between shards about what is retained.
#[derive(Debug)]
pub(crate) enum RetainMessage {
    /// Keep this as the retained message of its topic, which is yours (empty payload: forget it);
    /// with a token, answer `Settled` when that is stored; with an errand, note it as done. One
    /// with reserved room is kept, since its publisher is promised that.
    Keep {
        message: Arc<Message>,
        token: Option<u64>,
        errand: Option<Errand>,
        address: Option<Network>,
        reserved: Option<Reserved>,
    },
    /// A client of mine wants to publish a message of so many bytes that is to be the retained one
    /// of its topic, which is yours: answer `Answered`.
    Asked {
        connection: ConnectionId,
        topic: Box<str>,
        bytes: u64,
        publisher: Arc<str>,
        address: Option<Network>,
    },
    /// It has this room, or there is none.
    Answered {
        connection: ConnectionId,
        topic: Box<str>,
        answer: Result<Reserved, Full>,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_costs_the_filters_in_it() {
        let cost = |message| ShardMessage { message, number: 0 }.cost();
        let filter = || Box::from("a".repeat(1_000));
        let added = MeshMessage::InterestAdded {
            filter: filter(),
            want: Want::Passing,
            barrier: 1,
        };
        assert_eq!(cost(added), 1_000);
        assert_eq!(
            cost(MeshMessage::InterestRemoved {
                filter: filter(),
                want: Want::Passing
            }),
            1_000
        );
        let query = MeshMessage::RetainedQuery {
            token: 1,
            session: SessionId(0),
            filter: filter(),
            after: Some(filter()),
        };
        assert_eq!(cost(query), 2_000);
    }
}
