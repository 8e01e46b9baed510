//! What sessions that have ended leave to shared groups, on its way to other members.
//!
//! ```text
//! shard of the session --HandOver--> of the group --Deliver--> of the member
//!        ^ holds the log                                            |
//!        +------------------------- HandedOn -----------------------+
//! ```
//!
//! The disk has a place in a log ([`Record::HandedOver`](crate::Record::HandedOver)), and a member
//! may leave its group before it is given the message, which then goes on to the next. So the shard
//! of the session, or after a restart the one that has its number, needs the message in the log
//! until it hears that a session has it, which needs it from then on.

use std::collections::BTreeMap;

use crate::ids::{HandOver, ShardId};
use crate::position::Position;

/// What a shard knows of them.
#[derive(Debug, Default)]
pub(super) struct HandOvers {
    /// The last number that was given here, by this run or by one before if it is still on disk.
    last: u64,
    /// Where the messages are for which this shard holds the logs.
    under_way: BTreeMap<HandOver, Position>,
}

impl HandOvers {
    /// A name for one more.
    pub(super) fn next(&mut self, from: ShardId) -> HandOver {
        self.last += 1;
        HandOver {
            from,
            number: self.last,
        }
    }

    /// This shard has noted this one in an earlier run.
    pub(super) fn go_on_behind(&mut self, number: u64) {
        self.last = number.max(self.last);
    }

    /// `position`: none if the disk has a copy of its own.
    pub(super) fn hold(&mut self, hand_over: HandOver, position: Option<Position>) {
        if let Some(position) = position {
            self.under_way.insert(hand_over, position);
        }
    }

    /// A session has it, or it was dropped by name.
    pub(super) fn let_go(&mut self, hand_over: HandOver) {
        self.under_way.remove(&hand_over);
    }

    /// What is not to be trimmed.
    pub(super) fn positions(&self) -> impl Iterator<Item = Position> + '_ {
        self.under_way.values().copied()
    }
}
