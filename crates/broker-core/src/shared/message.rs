//! Messages between the shard of a group and those of its members.

use std::sync::Arc;

use super::PacketLimit;
use crate::ids::{GroupRef, HandOver, Member, Readiness};
use crate::message::Message;
use crate::routing::Grant;

/// What is due once a message has been given to a member of a group, or dropped by name.
#[derive(Clone, Debug)]
pub(crate) enum Duty {
    /// Nothing.
    None,
    /// The shard of the group waits for it.
    Awaited {
        /// Names it in the answer.
        token: u64,
        /// The group, as its filter is written, if it is to be on disk that it has given it, as
        /// [`Record::DeliveredBy`](crate::Record::DeliveredBy).
        owing: Option<Arc<str>>,
    },
    /// A session that has ended had it, and that is noted until then.
    HandedOver(HandOver),
}

/// A message to another shard about a shared group. "You" is the shard that gets it.
#[derive(Debug)]
pub(crate) enum GroupMessage {
    /// My session, one that keeps what it is given or not, joins this group of yours; answer
    /// `Joined` when every shard knows.
    Join {
        group: Box<str>,
        filter: Box<str>,
        member: Member,
        keeps: bool,
        grant: Grant,
        limit: Option<PacketLimit>,
        token: u64,
    },
    /// The join with this token is in force everywhere.
    Joined { token: u64 },
    /// My session leaves the group.
    Leave {
        group: Box<str>,
        filter: Box<str>,
        member: Member,
    },
    /// My session, a member of this group, is (no longer) connected, or full.
    Ready {
        group: Box<str>,
        filter: Box<str>,
        member: Member,
        readiness: Readiness,
        limit: Option<PacketLimit>,
    },
    /// Your session was chosen to get this one, with this duty: if that is awaited, answer
    /// `Settled` when it is stored.
    Deliver {
        member: Member,
        group: GroupRef,
        grant: Grant,
        message: Arc<Message>,
        duty: Duty,
    },
    /// You chose my session for this, and it has left the group: give it to another member, with
    /// the duty that it came with.
    Return {
        group: GroupRef,
        message: Arc<Message>,
        duty: Duty,
    },
    /// My session was given this by a group of yours, that with this filter as it is written, and
    /// ended before it had it: give it to another member.
    HandOver {
        group: Arc<str>,
        message: Arc<Message>,
        duty: Duty,
    },
    /// A session of mine was given what this names, or it was dropped by name: you need not keep
    /// the log for it.
    HandedOn { hand_over: HandOver },
}

impl GroupMessage {
    /// Bytes of topics, filters, properties and payloads in it, about.
    pub(crate) fn bytes(&self) -> u64 {
        match self {
            Self::Deliver { message, .. }
            | Self::Return { message, .. }
            | Self::HandOver { message, .. } => message.publication().cost(),
            Self::Join { group, filter, .. }
            | Self::Leave { group, filter, .. }
            | Self::Ready { group, filter, .. } => (group.len() + filter.len()) as u64,
            Self::Joined { .. } | Self::HandedOn { .. } => 0,
        }
    }
}
