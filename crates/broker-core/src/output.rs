//! What a shard asks for. A closed enum: this and [`crate::input`] are the whole contract.
//!
//! Bytes to write are not here: they move in batches, by [`crate::Shard::take_dirty`],
//! [`crate::Shard::pending_output`] and [`crate::Shard::wrote`].

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Instant;

use unbroken_mqtt_proto::{ReasonCode, Version};

use crate::access::Peer;
use crate::durability::{ReadRequest, Record};
use crate::farewell::LastWords;
use crate::ids::{ConnectionId, ShardId, StoreId};
use crate::mail::Mail;
use crate::position::Frontier;
use crate::reason::{Disconnection, DropReason, FaultKind, FaultPlace, LaneRefusal};

/// One thing the shard wants done.
#[derive(Debug)]
pub enum Output {
    /// Write these bytes as far as the peer still takes them, then close, and hand back what was
    /// not written as [`crate::Input::Unsaid`]. The shard has forgotten the connection; no
    /// [`crate::Input::Closed`] is expected for it.
    Close {
        /// Which one.
        connection: ConnectionId,
        /// Everything not yet written, a DISCONNECT or CONNACK last.
        last_words: LastWords,
    },
    /// The client belongs to another shard: take the connection off this thread, open it there, and
    /// offer it `unread`.
    Move {
        /// Which one. The shard has forgotten it.
        connection: ConnectionId,
        /// Where it belongs.
        to: ShardId,
        /// Its CONNECT and whatever came behind it.
        unread: Vec<u8>,
    },
    /// Decide whether this client may come in, and answer with [`crate::Input::Authenticated`].
    /// Do not read from the connection until then.
    Authenticate {
        /// Who asks.
        connection: ConnectionId,
        /// What it showed.
        credentials: Credentials,
        /// Nobody waits for the answer after that.
        until: Instant,
    },
    /// Give this to another shard, behind everything given before.
    Mail {
        /// The receiver.
        to: ShardId,
        /// What to say.
        mail: Mail,
    },
    /// Put this on disk and answer with [`crate::Input::Stored`]. Whatever promises it waits in the
    /// shard until then. What all shards ask for goes to disk in the order in which they asked: a
    /// message comes before what another shard asks about it.
    Store(StoreRequest),
    /// Read this, after everything is on disk that any shard has asked for before, and answer with
    /// [`crate::Input::Read`].
    Read(ReadRequest),
    /// When all is on disk that this shard has asked for before, no session of it needs what is
    /// within: the log may be trimmed up to there. Said only where one shard knows that alone.
    Needed(Frontier),
    /// Something an operator wants to read.
    Event(Event),
}

/// What a client showed in its CONNECT. No `Debug`: it holds a password.
pub struct Credentials {
    /// The client id.
    pub client_id: Arc<str>,
    /// The user name, if it gave one.
    pub user_name: Option<Box<str>>,
    /// The password, if it gave one.
    pub password: Option<Box<[u8]>>,
    /// Where it came from.
    pub peer: Peer,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credentials")
            .field("client_id", &self.client_id)
            .finish_non_exhaustive()
    }
}

/// What must be on disk before something may leave.
#[derive(Clone, Debug)]
pub struct StoreRequest {
    /// Answered by [`crate::Input::Stored`] with this or a later number.
    pub id: StoreId,
    /// What is to be stored.
    pub record: Record,
}

/// Something that happened to a client or a message and that an operator can find by the client's
/// id.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Event {
    /// A client was let in.
    Connected {
        /// Its id.
        client_id: Arc<str>,
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
        /// Whose: the receiver, or the publisher where nobody was to receive it yet.
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
    },
    /// A publisher that stamps its messages did not send what its stamps say, or it did not arrive
    /// so.
    PublisherFault {
        /// Who.
        client_id: Arc<str>,
        /// The lane it stamps.
        lane: u64,
        /// What.
        kind: FaultKind,
        /// The number of the first.
        first: u64,
        /// How many.
        count: u64,
    },
    /// A client published in a lane that another publisher stamps: its messages are delivered, and
    /// are not judged as that lane's.
    LaneIntruded {
        /// Who.
        client_id: Arc<str>,
        /// As whom it was let in.
        user: Option<Arc<str>>,
        /// The lane.
        lane: u64,
        /// Whose lane it is.
        owner: Arc<str>,
        /// A number of the lane that it gave to a message.
        number: u64,
        /// How many messages since it was last told.
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
