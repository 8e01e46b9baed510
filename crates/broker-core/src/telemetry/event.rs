//! What an operator wants to read, one event at a time.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use unbroken_mqtt_proto::{QoS, ReasonCode, Version};

use crate::message::Publication;
use crate::policy::Denial;
use crate::reason::{
    Disconnection, DropPlace, DropReason, FaultKind, FaultPlace, LaneRefusal, Sent,
};

/// Something that happened to a client or a message and that an operator can find by the client's
/// id.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Event {
    /// A client was let in.
    Connected {
        /// Its id.
        client_id: Arc<str>,
        /// As whom it was let in; `None`: it is anonymous.
        user: Option<Arc<str>>,
        /// From where.
        address: Option<std::net::SocketAddr>,
        /// The protocol it speaks.
        version: Version,
        /// Whether it found its session.
        session_present: bool,
        /// Seconds of its keep alive; 0 is none.
        keep_alive_s: u16,
    },
    /// A client was not let in, or what came was not MQTT.
    Refused {
        /// Its id, if it got that far.
        client_id: Option<Arc<str>>,
        /// The user name that its CONNECT claims.
        user_name: Option<Box<str>>,
        /// From where.
        address: Option<std::net::SocketAddr>,
        /// Why, in the words of 5.0.
        reason: ReasonCode,
        /// The code in its CONNACK, in 3.x a return code; none if the connection was only closed.
        sent: Option<u8>,
        /// What was wrong.
        detail: Cow<'static, str>,
    },
    /// A connection ended.
    Disconnected {
        /// Whose.
        client_id: Arc<str>,
        /// Why.
        why: Disconnection,
    },
    /// A client is over its rate: from now on it is read no faster than it may send.
    Slowed {
        /// Which one.
        client_id: Arc<str>,
        /// The rate, and whose it is.
        rate: String,
    },
    /// A session was forgotten: expired, or ended by its client.
    SessionEnded {
        /// Whose.
        client_id: Arc<str>,
        /// Messages that were still waiting in it.
        undelivered: u64,
        /// Messages on disk from before the broker started, for this session and others, that had
        /// not been looked at to count what waits: what of them was for it is not in
        /// `undelivered`. Mostly none.
        uncounted_of: u64,
    },
    /// A client subscribed, or was refused it.
    Subscribed {
        /// Who.
        client_id: Arc<str>,
        /// To what.
        filter: Box<str>,
        /// Granted QoS or why not.
        reason: ReasonCode,
        /// The code in its SUBACK: 3.x has one for all refusals.
        sent: u8,
    },
    /// A client unsubscribed.
    Unsubscribed {
        /// Who.
        client_id: Arc<str>,
        /// From what. A filter it did not have is not told.
        filter: Box<str>,
    },
    /// A subscription has ended because it is not allowed any more.
    SubscriptionRevoked {
        /// Whose.
        client_id: Arc<str>,
        /// To what.
        filter: Box<str>,
        /// Why.
        why: Denial,
    },
    /// The will of a client that has gone was published.
    WillPublished {
        /// Whose.
        client_id: Arc<str>,
        /// To where.
        topic: Box<str>,
    },
    /// Messages were not delivered. Told at once, then at most once a second for a session and
    /// reason.
    Dropped {
        /// Whose: the receiver at [`DropPlace::Receiver`], the publisher elsewhere.
        client_id: Arc<str>,
        /// The newest one's topic; empty if it is not known: it lies on disk and was not read.
        topic: Box<str>,
        /// Why.
        reason: DropReason,
        /// How many since it was last told.
        count: u64,
        /// The client of the session for which the newest was refused to its publisher, if it was
        /// full.
        full: Option<Arc<str>>,
        /// Where.
        place: DropPlace,
        /// Which messages; `None` if that is not known: they have no number, or lie on disk.
        numbers: Option<Box<Numbers>>,
    },
    /// A publisher that stamps its messages did not send what its stamps say, or it did not arrive
    /// so.
    PublisherFault {
        /// Who.
        client_id: Arc<str>,
        /// The lane it stamps.
        lane: u64,
        /// The epoch of the lane.
        epoch: u32,
        /// What.
        kind: FaultKind,
        /// The number of the first.
        first: u64,
        /// How many.
        count: u64,
        /// The topic of the message that shows it, if there is one.
        topic: Option<Box<str>>,
    },
    /// A publisher that stamps its messages has sent one again that was lost, for a receiver that
    /// asked for it. Told once for each loss.
    SentAgain {
        /// Who.
        client_id: Arc<str>,
        /// The lane it stamps.
        lane: u64,
        /// The epoch of the lane.
        epoch: u32,
        /// The number of the message.
        number: u64,
    },
    /// A client published in a lane that another publisher stamps, or in its name: what it sent is
    /// delivered, and is not judged as that lane's.
    LaneIntruded {
        /// Who.
        client_id: Arc<str>,
        /// As whom it was let in.
        user: Option<Arc<str>>,
        /// The lane.
        lane: u64,
        /// Whose lane it is.
        owner: Arc<str>,
        /// What it sent.
        sent: Sent,
        /// A number of the lane that it gave to a message, or said in another way.
        number: u64,
        /// How many since it was last told.
        count: u64,
    },
    /// A lane whose publisher's session has ended was opened by another client.
    LaneOwner {
        /// Whose it is now.
        client_id: Arc<str>,
        /// The lane.
        lane: u64,
        /// Whose it was.
        before: Arc<str>,
    },
    /// A lane of a publisher is not judged.
    LaneRefused {
        /// Who.
        client_id: Arc<str>,
        /// The lane.
        lane: u64,
        /// Why.
        why: LaneRefusal,
        /// How many messages of its lanes that are not judged, since it was last told.
        count: u64,
    },
    /// Something happened to a message inside the broker that must not happen.
    Fault {
        /// Where.
        place: FaultPlace,
        /// What.
        kind: FaultKind,
        /// The number of the first.
        first: u64,
        /// How many.
        count: u64,
    },
}

impl Event {
    /// The client that it is about, as far as that has a name.
    pub fn client_id(&self) -> Option<&Arc<str>> {
        match self {
            Self::Refused { client_id, .. } => client_id.as_ref(),
            Self::Connected { client_id, .. }
            | Self::Disconnected { client_id, .. }
            | Self::Slowed { client_id, .. }
            | Self::SessionEnded { client_id, .. }
            | Self::Subscribed { client_id, .. }
            | Self::Unsubscribed { client_id, .. }
            | Self::SubscriptionRevoked { client_id, .. }
            | Self::WillPublished { client_id, .. }
            | Self::Dropped { client_id, .. }
            | Self::PublisherFault { client_id, .. }
            | Self::SentAgain { client_id, .. }
            | Self::LaneIntruded { client_id, .. }
            | Self::LaneOwner { client_id, .. }
            | Self::LaneRefused { client_id, .. } => Some(client_id),
            Self::Fault { place, .. } => match place {
                FaultPlace::Session(client_id) | FaultPlace::Lane(client_id) => Some(client_id),
                _ => None,
            },
        }
    }
}

/// Messages of one publisher by their numbers in its ingress lane.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Numbers {
    /// Who published them.
    pub publisher: Option<Arc<str>>,
    /// The lane.
    pub lane: u64,
    /// Its epoch.
    pub epoch: u32,
    /// The lowest number.
    pub first: u64,
    /// The highest number; those between may be other messages.
    pub last: u64,
    /// How many messages these are. Of messages of several lanes only those of the newest lane,
    /// since the lane last changed.
    pub count: u64,
    /// Of the newest, as it was published.
    pub qos: QoS,
    /// How long the newest was in the broker.
    pub waited: Duration,
}

impl Numbers {
    /// Of one message, if it has a number.
    pub(crate) fn of(
        publication: &Publication<'_>,
        publisher: Option<&Arc<str>>,
        now: Instant,
    ) -> Option<Self> {
        let mark = publication.mark?;
        Some(Self {
            publisher: publisher.cloned(),
            lane: mark.lane.value(),
            epoch: mark.epoch.0,
            first: mark.number,
            last: mark.number,
            count: 1,
            qos: publication.qos,
            waited: now.saturating_duration_since(publication.stamp),
        })
    }

    /// Adds a newer message. Of several lanes only the newest is known.
    pub(crate) fn add(
        all: &mut Option<Self>,
        publication: &Publication<'_>,
        publisher: Option<&Arc<str>>,
        now: Instant,
    ) {
        let Some(mark) = publication.mark else {
            return;
        };
        let lane = (mark.lane.value(), mark.epoch.0);
        match all {
            Some(all) if (all.lane, all.epoch) == lane => {
                all.first = all.first.min(mark.number);
                all.last = all.last.max(mark.number);
                all.count += 1;
                all.qos = publication.qos;
                all.waited = now.saturating_duration_since(publication.stamp);
            }
            _ => *all = Self::of(publication, publisher, now),
        }
    }
}
