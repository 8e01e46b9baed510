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
//! | [`Owed`](Record::Owed)                 | PUBREC                                  |
//! | [`GivenBy`](Record::GivenBy)           | PUBREC, on the shard of the publisher   |
//! | [`OwedNoMore`](Record::OwedNoMore)     | nothing                                 |
//! | [`HandedOver`](Record::HandedOver)     | nothing                                 |
//! | [`HandedOn`](Record::HandedOn)         | nothing                                 |
//! | [`Received`](Record::Received)         | PUBREL                                  |
//! | [`Will`](Record::Will)                 | CONNACK                                 |
//! | [`WillOver`](Record::WillOver)         | the next CONNACK of its client          |
//! | [`LaneAtRest`](Record::LaneAtRest)     | nothing                                 |
//! | [`LaneSoFar`](Record::LaneSoFar)       | nothing                                 |
//! | [`LaneForgotten`](Record::LaneForgotten) | nothing                               |
//! | [`LanesAwake`](Record::LanesAwake)     | every CONNACK                           |
//! | [`Progress`](Record::Progress)         | nothing                                 |
//!
//! Only what outlives a connection is asked for: sessions that end with theirs ask for nothing but
//! their will, if it is of QoS 1 or 2 or retained; nor does QoS 0 that is not retained.
//!
//! What may be stored late, because a restart without it only repeats what the other side
//! recognizes, is told together: the end of deliveries (PUBACK, PUBCOMP), what expired, and whether
//! a session is connected. [`OwedNoMore`](Record::OwedNoMore) may be stored late, too.

use std::num::NonZeroU64;
use std::sync::Arc;

use unbroken_mqtt_proto::PacketId;

use crate::audit::rest::LaneState;
use crate::ids::{Errand, HandOver};
use crate::kept::{Entry, Holding, Progress, ReceivedEntry};
use crate::message::Message;
use crate::position::Position;
use crate::will::Will;

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
    /// A session that stays has begun, or another time to stay was agreed on.
    SessionOpened {
        /// Whose.
        client_id: Arc<str>,
        /// Seconds it outlives its connection; `u32::MAX` is without end. 0: it does not any more,
        /// and a restart does not find it.
        expiry_s: u32,
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
        holding: Holding,
        /// The one with the same filter that is over with that: a restart finds one of the two.
        replaced: Option<Holding>,
    },
    /// A subscription is over, for what comes from now on.
    Unsubscribed {
        /// Whose.
        client_id: Arc<str>,
        /// The subscription, with its end.
        holding: Holding,
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
    Owed {
        /// Where the message is stored.
        position: Position,
    },
    /// A group has given such a message to somebody, or to nobody and by name. It is asked for with
    /// what that leads to.
    GivenBy {
        /// As its filter is written.
        group: Arc<str>,
        /// Where the message is stored.
        position: Position,
    },
    /// All groups have given such a message.
    OwedNoMore {
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
    LaneAtRest(LaneState),
    /// Every [`LaneAtRest`](Self::LaneAtRest) is void: the broker runs, and goes on with them. The
    /// first thing that each shard asks for.
    LanesAwake {
        /// The first epoch that this run may begin, in seconds since 1970.
        floor: u32,
    },
    /// A lane as it is while the broker runs, in place of what was said of it before. Of an ingress
    /// lane it is asked for with a message that is stored, which is the last in it. After a crash
    /// the epoch of an ingress lane ends here, and a ledger goes on from here.
    LaneSoFar(LaneState),
    /// An epoch of an ingress lane is over, and was told for long enough: of its
    /// [`LaneSoFar`](Self::LaneSoFar) nothing is needed any more.
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
