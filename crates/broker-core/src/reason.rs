//! Why something was refused, dropped or ended: the names that events, `$SYS` and clients get.
//!
//! What a peer, an event or a counter says is one of these; the code that decides returns one and
//! does not act on it.

use std::borrow::Cow;
use std::sync::Arc;

use unbroken_merkle_log::DropReason as Declared;
use unbroken_mqtt_proto::{DecodeError, ReasonCode};

use crate::ids::ShardId;

/// Why a message was not delivered to somebody who might have had it. Every one is counted in
/// [`crate::Stats`] and told as an [`crate::Event::Dropped`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
#[non_exhaustive]
pub enum DropReason {
    /// The session's queue is at `queue_messages_max` or `queue_bytes_max`; or it was refused to
    /// its publisher, since some session's is.
    QueueFull = 0,
    /// A QoS 0 message for a connection at `output_bytes_max`.
    SlowReceiver = 1,
    /// Its message expiry interval had passed.
    Expired = 2,
    /// Larger than the receiver's Maximum Packet Size [MQTT-3.1.2-25].
    TooLargeForReceiver = 3,
    /// The session it waited in ended, or the broker stops and the session was only in memory.
    SessionEnded = 4,
    /// A QoS 0 message for a session that is not connected.
    NotConnected = 5,
    /// Retained messages are at `retained_messages_max` or `retained_bytes_max`.
    RetainedFull = 6,
    /// The publisher may not publish there, or the receiver may not receive it.
    NotAuthorized = 7,
    /// The receiver answered PUBREC or PUBACK with an error.
    RefusedByReceiver = 8,
    /// A QoS 0 message whose connection ended before it was written.
    ConnectionLost = 9,
    /// It has waited in a session for longer than `queue_age_max_s`.
    TooOld = 10,
    /// The store is at `store_bytes_max`: it was refused to its publisher, not retained, or let go
    /// because it was among the oldest that waited.
    StoreFull = 11,
    /// The store takes nothing any more: it was refused to its publisher, or not retained.
    StoreFailed = 12,
}

/// Where on its way a message was when it was dropped.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum DropPlace {
    /// At its publisher: the broker did not take it in.
    Publisher,
    /// In the broker, which had taken it in, and not for one receiver: it was to be retained, or a
    /// shared group has no member for it.
    Broker,
    /// At a receiver.
    Receiver,
}

impl DropReason {
    /// All reasons, in the order of their numbers.
    pub const ALL: [Self; 13] = [
        Self::QueueFull,
        Self::SlowReceiver,
        Self::Expired,
        Self::TooLargeForReceiver,
        Self::SessionEnded,
        Self::NotConnected,
        Self::RetainedFull,
        Self::NotAuthorized,
        Self::RefusedByReceiver,
        Self::ConnectionLost,
        Self::TooOld,
        Self::StoreFull,
        Self::StoreFailed,
    ];

    /// The same reason as drop records and receivers' reports have it. This is the one place where
    /// the two meet.
    pub const fn declared(self) -> Declared {
        match self {
            Self::QueueFull => Declared::QUEUE_FULL,
            Self::SlowReceiver => Declared::SLOW_RECEIVER,
            Self::Expired => Declared::EXPIRED,
            Self::TooLargeForReceiver => Declared::TOO_LARGE,
            Self::SessionEnded => Declared::SESSION_ENDED,
            Self::NotConnected => Declared::NOT_CONNECTED,
            Self::RetainedFull => Declared::RETAINED_FULL,
            Self::NotAuthorized => Declared::DENIED,
            Self::RefusedByReceiver => Declared::REFUSED_BY_RECEIVER,
            Self::ConnectionLost => Declared::CONNECTION_LOST,
            Self::TooOld => Declared::TOO_OLD,
            Self::StoreFull => Declared::STORE_FULL,
            Self::StoreFailed => Declared::STORE_FAILED,
        }
    }

    /// The reason as a word for `$SYS` topics and logs.
    pub const fn name(self) -> &'static str {
        self.declared()
            .name()
            .expect("the format names each reason that the broker has")
    }

    /// Whether a limit or a rule has decided it for this receiver: asking for the message again
    /// would come to the same.
    pub(crate) const fn is_decision(self) -> bool {
        match self {
            Self::QueueFull
            | Self::SlowReceiver
            | Self::Expired
            | Self::TooLargeForReceiver
            | Self::NotAuthorized
            | Self::TooOld
            | Self::StoreFull => true,
            Self::SessionEnded
            | Self::NotConnected
            | Self::RetainedFull
            | Self::RefusedByReceiver
            | Self::ConnectionLost
            | Self::StoreFailed => false,
        }
    }
}

/// Why a connection ended.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Disconnection {
    /// The client sent DISCONNECT, with this reason; there is none before 5.0.
    ByClient(Option<ReasonCode>),
    /// The client's connection broke.
    Lost(CloseCause),
    /// The broker ended it.
    ByBroker {
        /// Why, in the words of 5.0.
        reason: ReasonCode,
        /// The code in its DISCONNECT, or in its CONNACK if that had not left; none if the
        /// connection was only closed.
        sent: Option<u8>,
        /// What was wrong.
        detail: Cow<'static, str>,
    },
}

impl Disconnection {
    /// Whether the time is over for which the client was authenticated.
    pub fn is_expiry(&self) -> bool {
        matches!(self, Self::ByBroker { detail, .. } if detail == GRANT_IS_OVER)
    }
}

pub(crate) const GRANT_IS_OVER: &str =
    "its token has expired: the time for which it was authenticated is over";

/// What a client sends of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sent {
    /// A message with a stamp.
    Message,
    /// A checkpoint.
    Checkpoint,
    /// A directory that lists it.
    Directory,
    /// A drop record.
    DropRecord,
}

impl Sent {
    /// As logs and `$audit` call it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Message => "message",
            Self::Checkpoint => "checkpoint",
            Self::Directory => "directory",
            Self::DropRecord => "drop-record",
        }
    }
}

/// Why a lane is not judged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum LaneRefusal {
    /// Its client has as many lanes open as one may have.
    Share,
    /// Only the lanes are left that are reserved for clients with few.
    Reserved,
    /// The shard judges as many lanes as it may.
    Full,
}

impl LaneRefusal {
    /// As a word for logs and topics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Share => "share-used-up",
            Self::Reserved => "rest-reserved",
            Self::Full => "lanes-full",
        }
    }
}

/// How a connection ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CloseCause {
    /// The peer closed it.
    Peer,
    /// The transport failed: reset, timed out.
    Transport(std::io::ErrorKind),
}

/// What went wrong with a delivery, or a message between shards, inside the broker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum FaultKind {
    /// It was owed and is nowhere.
    Lost,
    /// It left a second time.
    Duplicated,
    /// Its number had come before, and the content of the first is not known any more, so the two
    /// may differ. Said of publishers' own lanes only.
    Repeated,
    /// It left after one that came behind it.
    Reordered,
    /// Its topic or payload is not the one that was accepted.
    Altered,
    /// It bears a stamp that is not its publisher's: of a number that was another message's, or
    /// none that can be read. Said of publishers' own lanes only.
    Injected,
    /// It fits its stamp, and its publisher gave the number to another: one of these numbers, at
    /// least. Said of publishers' own lanes only, as are the next two.
    Forged,
    /// All of a window has come, and a checkpoint has another root over it: one of these numbers,
    /// at least, is forged. Which one only its publisher could tell, who is not asked.
    RootDiffers,
    /// Two checkpoints cannot both be true. The number is that of the later one.
    Contradicted,
    /// A message came beyond the end of its lane that a checkpoint told.
    EndContradicted,
    /// Several contradictions in one lane: two producers use it, or one of them is forged.
    TwoProducers,
    /// A client published it in a lane that is another's. Said of publishers' own lanes only.
    Intruded,
    /// What was owed is not what was sent, waits and was dropped together. The number is by how
    /// much.
    Unbalanced,
}

impl FaultKind {
    /// The kind as a word for topics and logs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lost => "lost",
            Self::Duplicated => "duplicated",
            Self::Repeated => "repeated",
            Self::Reordered => "reordered",
            Self::Altered => "altered",
            Self::Injected => "injected",
            Self::Forged => "forged",
            Self::RootDiffers => "root-differs",
            Self::Contradicted => "contradicted",
            Self::EndContradicted => "end-contradicted",
            Self::TwoProducers => "two-producers",
            Self::Intruded => "intruded",
            Self::Unbalanced => "unbalanced",
        }
    }
}

/// Where a fault was found.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum FaultPlace {
    /// In what is owed to this client. The number is that of the delivery.
    Session(Arc<str>),
    /// Between this shard and the one that found it. The number is that of the message.
    Messages(ShardId),
    /// In what this client published. The number is that of its lane.
    Lane(Arc<str>),
}

/// What has become of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Flow {
    /// It is dealt with.
    Done,
    /// It is looked at again later, as if it had not come.
    Requeue,
}

/// What a peer did wrong: the reason it is sent, and what the log says.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) reason: ReasonCode,
    pub(crate) detail: Cow<'static, str>,
}

impl Fault {
    pub(crate) const fn new(reason: ReasonCode, detail: &'static str) -> Self {
        Self {
            reason,
            detail: Cow::Borrowed(detail),
        }
    }
}

impl From<DecodeError> for Fault {
    fn from(error: DecodeError) -> Self {
        Self {
            reason: error.reason(),
            detail: Cow::Owned(error.to_string()),
        }
    }
}

/// The reason that clients are sent when the broker stops.
pub(crate) const fn stopping() -> Fault {
    Fault::new(ReasonCode::ServerShuttingDown, "the broker is stopping")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_reason_has_a_number_and_a_name_of_its_own() {
        let numbers: BTreeSet<u8> = DropReason::ALL.map(|reason| reason.declared().0).into();
        let names: BTreeSet<&str> = DropReason::ALL.map(DropReason::name).into();
        let all = DropReason::ALL.len();
        assert_eq!((numbers.len(), names.len()), (all, all));
    }
}
