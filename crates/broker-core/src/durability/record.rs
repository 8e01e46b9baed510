//! What a shard wants on disk, one record at a time.
//!
//! A record is asked for before the packet that promises it may leave; the packet waits in the
//! shard until [`Input::Stored`](crate::Input::Stored) has answered. The table says what waits:
//!
//! | record                                 | waits for it                            |
//! |----------------------------------------|-----------------------------------------|
//! | [`Message`](Record::Message)           | PUBACK or PUBREC; the copies of QoS 2   |
//! | [`Marker`](Record::Marker)             | PUBREC                                  |
//! | [`Retained`](Record::Retained), [`Unretained`](Record::Unretained) | PUBACK or PUBREC |
//! | [`SessionOpened`](Record::SessionOpened), [`SessionEnded`](Record::SessionEnded) | CONNACK |
//! | [`Subscribed`](Record::Subscribed)     | SUBACK                                  |
//! | [`Unsubscribed`](Record::Unsubscribed) | UNSUBACK                                |
//! | [`Released`](Record::Released)         | PUBCOMP; PUBACK or PUBREC of a message instead |
//! | [`Given`](Record::Given)               | PUBLISH of QoS 2; what a group gives to a session |
//! | [`DeliveriesExpected`](Record::DeliveriesExpected)| PUBREC                                  |
//! | [`DeliveredBy`](Record::DeliveredBy)  | PUBREC, on the shard of the publisher   |
//! | [`DeliveriesComplete`](Record::DeliveriesComplete)| nothing                                 |
//! | [`HandedOver`](Record::HandedOver)     | nothing                                 |
//! | [`HandedOn`](Record::HandedOn)         | nothing                                 |
//! | [`Received`](Record::Received)         | PUBREL                                  |
//! | [`Will`](Record::Will)                 | CONNACK                                 |
//! | [`WillOver`](Record::WillOver)         | the next CONNACK of its client          |
//! | [`LaneClosed`](Record::LaneClosed)    | nothing                                 |
//! | [`LaneSnapshot`](Record::LaneSnapshot)| nothing                                 |
//! | [`LaneForgotten`](Record::LaneForgotten)| nothing                                 |
//! | [`LanesResumed`](Record::LanesResumed)| every CONNACK                           |
//! | [`Progress`](Record::Progress)         | nothing                                 |
//!
//! Only what outlives a connection is asked for: sessions that end with theirs ask for nothing but
//! their will, if it is of QoS 1 or 2 or retained; nor does QoS 0 that is not retained.
//!
//! What may be stored late, because a restart without it only repeats what the other side
//! recognizes, is told together: the end of deliveries (PUBACK, PUBCOMP), what expired, and whether
//! a session is connected. [`DeliveriesComplete`](Record::DeliveriesComplete) may be stored late,
//! too.

use std::num::{NonZeroU32, NonZeroU64};
use std::sync::Arc;
use std::time::Duration;

use unbroken_merkle_log::Hash;
use unbroken_mqtt_proto::{
    PacketId, QoS, SubscriptionFilter, SubscriptionOptions, TopicFilter, TopicName,
};

use crate::ids::{Errand, HandOver};
use crate::message::Message;
use crate::policy::Identity;
use crate::position::{Frontier, Position};

/// What is remembered of a message of QoS 2 from a client whose session stays: who sends it again
/// is recognized, and nothing is done for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Marker {
    /// The id it gave the message.
    pub packet_id: PacketId,
    /// Another shard is to retain the message: a restart sees to it if that shard has not.
    pub retained: Option<Errand>,
}

/// One thing to be put on disk, whole or not at all.
#[derive(Clone, Debug)]
pub enum Record {
    /// A message of QoS 1 or 2 that a session that stays may wait for. It is asked for where it
    /// came in, once, and before any other shard is given it.
    Message {
        /// The message, its publisher and its position in it: the next one of its log.
        message: Arc<Message>,
        /// The packet id under which a publisher whose session stays sent it at QoS 2: from now on
        /// a repetition is recognized [MQTT-4.3.3-10].
        marker: Option<Marker>,
        /// It is the [`Will`](Self::Will) of its publisher, which is over with it.
        will_over: bool,
    },
    /// A message of QoS 2 came from a client whose session stays, and nobody whose session stays
    /// waits for it: only its id is remembered [MQTT-4.3.3-10].
    Marker {
        /// The publisher.
        client_id: Arc<str>,
        /// The id it gave the message.
        packet_id: PacketId,
        /// The message is retained by another shard, as [`Marker::retained`] says.
        retained: Option<(Errand, Arc<Message>)>,
    },
    /// The retained message of its topic, in place of the one before.
    Retained {
        /// The message; its payload is not empty.
        message: Arc<Message>,
        /// It came from another shard, and is done with that.
        errand: Option<Errand>,
    },
    /// The topic has no retained message any more.
    Unretained {
        /// The topic.
        topic: Box<str>,
        /// Another shard asked for this, or for what was refused, and it is done with that.
        errand: Option<Errand>,
    },
    /// A session that stays has begun, or another time to stay was agreed on, or it is another
    /// user's.
    SessionOpened {
        /// Whose.
        client_id: Arc<str>,
        /// Seconds it outlives its connection; `u32::MAX` is without end. 0: it does not any more,
        /// and a restart does not find it.
        expiry_s: u32,
        /// The user whose it is, if its client has a name.
        user: Option<Arc<str>>,
        /// The mount of its client, if it has one.
        mount: Option<Box<str>>,
        /// Whatever is on disk of an earlier session of this client is void.
        new: bool,
    },
    /// A session ended, or will end with its connection from now on: nothing of it is needed after
    /// a restart.
    SessionEnded {
        /// Whose.
        client_id: Arc<str>,
    },
    /// A subscription begins.
    Subscribed {
        /// Whose.
        client_id: Arc<str>,
        /// The subscription.
        subscription: StoredSubscription,
        /// The one with the same filter that is over with that: a restart finds one of the two.
        replaced: Option<StoredSubscription>,
    },
    /// A subscription is over, for what comes from now on.
    Unsubscribed {
        /// Whose.
        client_id: Arc<str>,
        /// The subscription, with its end.
        subscription: StoredSubscription,
    },
    /// PUBREL came, or a new message under the id, whose own mark follows if it is taken in: the id
    /// of an earlier [`Message`](Self::Message) or [`Marker`](Self::Marker) is free
    /// [MQTT-4.3.3-12].
    Released {
        /// The publisher.
        client_id: Arc<str>,
        /// The id.
        packet_id: PacketId,
    },
    /// A session is given a message: one of QoS 2 is about to be sent for the first time, or will
    /// be when the window has a place for it, and from now on it has this id and no other
    /// [MQTT-4.4.0-1]; or a group has chosen the session for it.
    Given {
        /// The receiver.
        client_id: Arc<str>,
        /// The message.
        entry: Entry,
        /// The number of the entry as which it waited, which is over with this one.
        waited: Option<NonZeroU64>,
    },
    /// A message that is marked is on its way to other shards, whose groups give it to somebody: a
    /// restart gives it in place of those that have not. It is asked for with the message.
    DeliveriesExpected {
        /// Where the message is stored.
        position: Position,
    },
    /// A group has given such a message to somebody, or to nobody and by name. It is asked for with
    /// what that leads to.
    DeliveredBy {
        /// As its filter is written.
        group: Arc<str>,
        /// Where the message is stored.
        position: Position,
    },
    /// All groups have given such a message.
    DeliveriesComplete {
        /// Where the message is stored.
        position: Position,
    },
    /// A session has ended with a message that a group had given to it, and another member is to
    /// have it: a restart gives it to one. It is asked for with the end of the session.
    HandedOver {
        /// Its name.
        hand_over: HandOver,
        /// The group, as its filter is written.
        group: Arc<str>,
        /// The message; one without a [position](Message::position) is in no log.
        message: Arc<Message>,
    },
    /// The group has given such a message to somebody, or to nobody and by name. It is asked for
    /// with what that leads to.
    HandedOn {
        /// Its name.
        hand_over: HandOver,
    },
    /// PUBREC came: the message must not be sent again, only PUBREL [MQTT-4.3.3-6].
    Received {
        /// The receiver.
        client_id: Arc<str>,
        /// Its entry.
        received: ReceivedEntry,
    },
    /// The will of a client that has connected, in place of the one before: if its connection ends
    /// with the broker, it is published at the restart [MQTT-3.1.2-7, MQTT311-3.1.2-8].
    Will {
        /// Whose.
        client_id: Arc<str>,
        /// The will.
        will: Will,
    },
    /// The will of this client is not to be published, or was [MQTT-3.1.2-10, MQTT311-3.1.2-10].
    WillOver {
        /// Whose.
        client_id: Arc<str>,
    },
    /// A lane of a session that stays, as it is when the broker stops: the last thing that is asked
    /// for.
    LaneClosed(LaneState),
    /// Every [`LaneClosed`](Self::LaneClosed) is void: the broker runs, and goes on with them. The
    /// first thing that each shard asks for.
    LanesResumed {
        /// The first epoch that this run may begin, in seconds since 1970.
        floor: u32,
    },
    /// A lane as it is while the broker runs, in place of what was said of it before. Of an ingress
    /// lane it is asked for with a message that is stored, which is the last in it. After a crash
    /// the epoch of an ingress lane ends here, and a ledger goes on from here.
    LaneSnapshot(LaneState),
    /// An epoch of an ingress lane is over, and was told for long enough: of its
    /// [`LaneSnapshot`](Self::LaneSnapshot) nothing is needed any more.
    LaneForgotten {
        /// Whose.
        client_id: Arc<str>,
        /// The epoch.
        epoch: u32,
    },
    /// How far a session is. To be put on disk whole, like every record.
    Progress {
        /// Whose.
        client_id: Arc<str>,
        /// How far.
        progress: Box<Progress>,
    },
}

/// A message that a session was given and has not done with.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Among all that the session was given, ever: from 1; those with a packet id in the order in
    /// which they got it.
    pub number: u64,
    /// Under this id. Without one it waits, and a group has chosen this session for it.
    pub packet_id: Option<PacketId>,
    /// As it is sent: 1 or 2.
    pub qos: QoS,
    /// The message; one without a [position](Message::position) is in no log.
    pub message: Arc<Message>,
    /// The flag to send.
    pub retain: bool,
    /// The subscription identifiers to send.
    pub identifiers: Vec<NonZeroU32>,
    /// No subscription of the session finds it in the log, as when a group has chosen the session
    /// for it.
    pub by_group: bool,
    /// That group, as its filter is written: another member gets the message if the session ends
    /// first.
    pub group: Option<Arc<str>>,
}

/// A message of QoS 2 that the receiver has: only PUBREL is to be sent for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReceivedEntry {
    /// The number of its entry.
    pub number: u64,
    /// Its id.
    pub packet_id: PacketId,
    /// Where it is stored, if it is in a log.
    pub position: Option<Position>,
    /// As in [`Entry::by_group`].
    pub by_group: bool,
}

/// How far a session is, and what has changed since it was last told.
#[derive(Clone, Debug)]
pub struct Progress {
    /// All up to here was given a packet id, is among the entries, or is not for this session.
    pub through: Frontier,
    /// New entries.
    pub given: Vec<Entry>,
    /// The numbers of entries that have come to their end.
    pub ended: Vec<u64>,
    /// Entries that have, and where their messages are: above *through*, so that a restart would
    /// find them in the log again.
    pub done: Vec<(u64, Position)>,
    /// Subscriptions for which all that is retained was sent: it is among what was given.
    pub scanned: Vec<StoredSubscription>,
    /// Filter and era of subscriptions that are not needed any more.
    pub past: Vec<(Box<str>, u32)>,
    /// If that has changed: whether it is connected.
    pub presence: Option<Presence>,
    /// If that has changed: what may have been sent before the broker was started; nothing, if it
    /// is empty.
    pub maybe_sent: Option<MaybeSent>,
}

impl Progress {
    /// Nothing else has changed.
    pub(crate) fn of(through: Frontier) -> Self {
        Self {
            through,
            given: Vec::new(),
            ended: Vec::new(),
            done: Vec::new(),
            scanned: Vec::new(),
            past: Vec::new(),
            presence: None,
            maybe_sent: None,
        }
    }
}

/// Whether a session has a connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Presence {
    /// It has.
    pub is_here: bool,
    /// Seconds it outlives it; `u32::MAX` is without end.
    pub expiry_s: u32,
    /// The user whose it is, if its client has a name.
    pub user: Option<Arc<str>>,
    /// The mount of its client, if it has one.
    pub mount: Option<Box<str>>,
}

/// A subscription, and for which part of each log it holds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoredSubscription {
    /// As the client wrote it, with its mount, `$share/…` included.
    pub filter: Box<str>,
    /// Counts the subscriptions with this filter that replaced each other, from 0.
    pub era: u32,
    /// As granted.
    pub options: SubscriptionOptions,
    /// The Subscription Identifier, if it has one.
    pub identifier: Option<NonZeroU32>,
    /// What is within came before it.
    pub since: Frontier,
    /// What is not within came after it.
    pub until: Option<Frontier>,
    /// What is retained is still to be sent for it, or some of it.
    pub retained_due: bool,
}

impl StoredSubscription {
    /// Whether it holds for something of every log.
    pub(crate) fn is_in_force(&self) -> bool {
        self.since.iter().all(|(_, number)| number != NOT_IN_FORCE)
    }

    pub(crate) fn is_present(&self) -> bool {
        self.until.is_none()
    }

    /// Whether it holds for what comes now: it is the present one, or yields to it.
    pub(crate) fn is_current(&self) -> bool {
        self.until.is_none() || self.yields()
    }

    /// Whether it holds in some logs until the one that replaces it is in force there.
    pub(crate) fn yields(&self) -> bool {
        let mut until = self.until.iter().flat_map(Frontier::iter);
        until.any(|(_, number)| number == HOLDS_ON)
    }

    /// Whether a message at this position is one that came while it held.
    pub(crate) fn holds_at(&self, position: Position) -> bool {
        !self.since.covers(position)
            && self
                .until
                .as_ref()
                .is_none_or(|until| until.covers(position))
    }

    /// Whether it is still the same with these terms. Of a group's only whether its member keeps
    /// what it is given counts: messages are entries, and it finds none in a log.
    pub(crate) fn goes_on(
        &self,
        options: SubscriptionOptions,
        identifier: Option<NonZeroU32>,
    ) -> bool {
        let keeps = |options: SubscriptionOptions| options.qos > QoS::AtMostOnce;
        let is_as_before = options.qos == self.options.qos
            && options.no_local == self.options.no_local
            && options.retain_as_published == self.options.retain_as_published
            && identifier == self.identifier;
        is_as_before || self.plain().is_none() && keeps(self.options) && keeps(options)
    }

    /// The filter, if it is not that of a group: a group's messages are entries.
    pub(crate) fn plain(&self) -> Option<TopicFilter<'_>> {
        match SubscriptionFilter::parse(&self.filter) {
            Ok(SubscriptionFilter::Plain(filter)) => Some(filter),
            _ => None,
        }
    }

    pub(crate) fn matches(&self, topic: TopicName<'_>) -> bool {
        self.plain().is_some_and(|filter| filter.matches(topic))
    }
}

/// Where a subscription begins in the log of a shard that does not know of it yet.
pub(crate) const NOT_IN_FORCE: u64 = u64::MAX;

/// Where one ends that yields, in the log of a shard that does not know of the next one yet.
pub(crate) const HOLDS_ON: u64 = u64::MAX;

/// What a client may have been sent before the broker was started.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct MaybeSent {
    /// Of what it finds in the logs, all up to here.
    pub through: Frontier,
    /// Of the entries that wait for a packet id, those up to this number.
    pub entries: u64,
}

impl MaybeSent {
    /// The same of a client that was connected, if it was: all of them.
    pub(crate) fn entries_of(&self, was_here: bool) -> u64 {
        if was_here { u64::MAX } else { self.entries }
    }
}

/// A last will: published when the client goes without saying DISCONNECT.
#[derive(Clone, Debug)]
pub struct Will {
    /// What is published, with its client as publisher. Its stamp is that of CONNECT.
    pub message: Arc<Message>,
    /// Message Expiry Interval; it begins to run when the will is published.
    pub expiry: Option<Duration>,
    /// Will Delay Interval, in seconds.
    pub delay_s: u32,
    /// Its client as it connected: the rules in force when the will is due may be others. `None`:
    /// stored by a version that did not keep it.
    pub author: Option<Arc<Identity>>,
}

impl Will {
    /// Whether anybody can get it after a restart of the broker, of a session that outlives its
    /// connection by `expiry_s`. Right after it nobody is there but sessions that stay, which get
    /// QoS 1 and 2; those who come later get what is retained, and what has waited for its delay.
    pub(crate) fn outlives_broker(&self, expiry_s: u32) -> bool {
        let publication = self.message.publication();
        publication.retain || publication.qos > QoS::AtMostOnce || self.delay_s > 0 && expiry_s > 0
    }
}

/// As whom a client was let in that sends messages of a lane.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LaneUser {
    /// It is not connected: it is its will, or was there before the broker started.
    Unknown,
    /// Without a name.
    Anonymous,
    /// Under this name.
    Named(Arc<str>),
}

impl LaneUser {
    pub(crate) fn name(&self) -> Option<&Arc<str>> {
        match self {
            Self::Named(name) => Some(name),
            Self::Unknown | Self::Anonymous => None,
        }
    }

    /// Whether both are known, and not the same.
    pub(crate) fn differs(&self, other: &Self) -> bool {
        *self != Self::Unknown && *other != Self::Unknown && self != other
    }

    /// Whether what is of this user passes to another one of the same client id, as its session
    /// does: no name has begun it.
    pub(crate) fn passes_to(&self, other: &Self) -> bool {
        match self {
            Self::Unknown => true,
            Self::Anonymous => *other != Self::Unknown,
            Self::Named(_) => self == other,
        }
    }
}

/// A lane as it is put on disk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LaneState {
    /// What a client published, as the broker has numbered it.
    Ingress {
        /// Whose.
        client_id: Arc<str>,
        /// Its epoch.
        epoch: u32,
        /// How many messages there are, and the hashes over them: an encoded `CompactRange`.
        leaves: Vec<u8>,
        /// What was told of it, if its stamps are forwarded.
        told: Option<LaneTold>,
    },
    /// What was found in a lane that a publisher stamps itself.
    Own {
        /// Who.
        client_id: Arc<str>,
        /// As which user.
        user: LaneUser,
        /// The lane; not 0.
        lane: u64,
        /// Its epoch.
        epoch: u32,
        /// For how long its publisher has been connected, by the ledger's clock.
        connected: Duration,
        /// Numbers that were refused, and may come yet; none of a lane at rest.
        refused: Vec<u64>,
        /// A saved `LaneLedger`.
        ledger: Vec<u8>,
    },
}

impl LaneState {
    /// Whose it is.
    pub fn client_id(&self) -> &Arc<str> {
        let (Self::Ingress { client_id, .. } | Self::Own { client_id, .. }) = self;
        client_id
    }

    /// Which epoch of it.
    pub fn epoch(&self) -> u32 {
        let (Self::Ingress { epoch, .. } | Self::Own { epoch, .. }) = self;
        *epoch
    }
}

/// What a lane has told of itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LaneTold {
    /// Checkpoints.
    pub checkpoints: u32,
    /// Messages in the last one.
    pub size: u64,
    /// The root of the last full window, or nothing.
    pub full_root: Vec<u8>,
}

impl LaneTold {
    pub(crate) fn root(&self) -> Option<Hash> {
        Hash::new(&self.full_root)
    }
}
