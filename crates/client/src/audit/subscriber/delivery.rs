//! What a subscriber gives: messages with verdicts, and what became known about lanes.

use unbroken_merkle_log::ledger::{Event, Presence, Request};
use unbroken_merkle_log::{Checkpoint, DropRecord, Epoch, LaneId};

use super::Absence;
use crate::audit::judged::AuditedMessage;

/// What [`AuditedSubscriber::next`](super::AuditedSubscriber::next) gives.
#[derive(Debug)]
#[non_exhaustive]
pub enum Delivery {
    /// A message with its verdict.
    Message(AuditedMessage),
    /// Something became known about a lane.
    Event {
        /// Of which lane.
        lane: LaneId,
        /// Of which epoch.
        epoch: Epoch,
        /// What.
        event: Event,
    },
    /// A producer was asked for something.
    Asked {
        /// Which lane's.
        lane: LaneId,
        /// In which epoch.
        epoch: Epoch,
        /// For what.
        request: Request,
    },
    /// A producer says how much it has issued, and everything before it was read.
    Checkpoint {
        /// What it says.
        checkpoint: Checkpoint,
        /// As it came.
        bytes: Vec<u8>,
    },
    /// These messages will not come, and why: a processor decided so, or a limit of the broker's
    /// kept them from this client. They are not lost, and not asked for. A processor
    /// hears it once more when the broker repeats it.
    Dropped {
        /// Which, and why.
        record: DropRecord,
        /// The broker says it, of this client alone.
        by_broker: bool,
    },
    /// Messages of a lane come and none of them fits: its producer has another key or another
    /// algorithm than this subscriber, which therefore proves nothing about it. Said once for a
    /// lane.
    OtherKey {
        /// Which lane.
        lane: LaneId,
        /// What does not fit, and what to do.
        why: String,
    },
    /// A lane that was to come has not, or has at last.
    Expected {
        /// Which lane.
        lane: LaneId,
        /// Whether it is there.
        presence: Presence,
    },
    /// This subscriber follows as many epochs of lanes as it may, and nothing is claimed of one
    /// more. Its messages fit their stamps and are given out ([`AuditedMessage::is_unjudged`]).
    /// Said once for an epoch.
    NoRoom {
        /// Which lane's.
        lane: LaneId,
        /// Which.
        epoch: Epoch,
        /// How many it follows:
        /// [`LedgerLimits::lanes_max`](unbroken_merkle_log::ledger::LedgerLimits::lanes_max).
        lanes_max: usize,
    },
    /// This subscriber knows directories of as many producers as it may, and takes none of more:
    /// of lanes that only such a directory lists nothing is missed. Said once.
    NoRoomForProducers {
        /// How many it knows.
        producers_max: usize,
    },
    /// A message with this number came as what another one was made of, and then came itself, with
    /// which its lane begins anew: what others say that they were made of claims nothing of it.
    InputContradicted {
        /// Of which lane.
        lane: LaneId,
        /// Of which epoch.
        epoch: Epoch,
        /// Which.
        number: u64,
    },
    /// This subscriber was not connected, and the broker kept no session for it: what was published
    /// meanwhile does not come. Losses that this explains:
    /// [`AuditedSubscriber::absence`](super::AuditedSubscriber::absence).
    Away(Absence),
    /// Something came to a topic of the audit that is not what belongs there.
    Refused {
        /// To which topic.
        topic: String,
        /// Why it was refused.
        why: String,
        /// The lanes that a directory lists, with those of one that it contradicts.
        lanes: Vec<LaneId>,
    },
}
