//! What a shard is told. A closed enum: this and [`crate::output`] are the whole contract.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use unbroken_mqtt_proto::{QoS, ReasonCode};

use crate::client_ids::ClientIdRules;
use crate::connection::{AuthExchange, LastWords};
use crate::durability::{ReadAnswer, StoreSize};
use crate::ids::{ConnectionId, ShardId, StoreId};
use crate::mesh::ShardMessage;
use crate::policy::{Grant, MountPoint, Peer, Policy};
use crate::rates::Rates;
use crate::reason::CloseCause;

/// One thing that happened.
#[derive(Debug)]
pub enum Input<'a> {
    /// A connection was accepted, or has moved here from another shard. It is empty: what the other
    /// shard had not used follows as [`Input::Received`].
    Opened {
        /// Its name from now on.
        connection: ConnectionId,
        /// Who is on the other side.
        peer: Peer,
    },
    /// What the transport knows of the other side by now: the name in a certificate that was
    /// verified. Comes before any bytes; a connection that has moved was opened with it.
    Identified {
        /// Whose other side.
        connection: ConnectionId,
        /// It replaces the one that the connection was opened with; the listener is the same.
        peer: Peer,
    },
    /// The transport holds so many bytes for a connection: the state of TLS, records that have not
    /// come whole, and what is sealed and not taken. They count as the client's. Comes when they
    /// have changed much; a connection that has moved begins with none.
    TransportHolds {
        /// For which one.
        connection: ConnectionId,
        /// All that it holds now.
        bytes: usize,
    },
    /// Bytes came, after TLS or WebSocket were taken off. The shard keeps what is incomplete.
    Received {
        /// From whom.
        connection: ConnectionId,
        /// At least one byte.
        bytes: &'a [u8],
    },
    /// The connection ended without the shard having asked for it.
    Closed {
        /// Which one.
        connection: ConnectionId,
        /// How.
        cause: CloseCause,
    },
    /// What [`crate::Output::Close`] gave to write, if not all of it was written before the
    /// connection was closed. Says with [`LastWords::wrote`] how much was.
    Unsaid(LastWords),
    /// The answer to [`crate::Output::Authenticate`].
    Authenticated {
        /// Whose answer. Ignored if that connection has gone.
        connection: ConnectionId,
        /// The answer.
        admission: Admission,
    },
    /// The other answer to it: the client is to take another step of its enhanced authentication.
    Challenged {
        /// Whose answer. Ignored if that connection has gone.
        connection: ConnectionId,
        /// What is sent to the client.
        data: Box<[u8]>,
        /// Is given back with the client's next step.
        exchange: AuthExchange,
    },
    /// The rates of a client from now on; `None`: it has none. Comes in front of
    /// [`Input::Authenticated`], and again when they are others.
    RatesSet {
        /// Whose. Ignored if that connection has gone.
        connection: ConnectionId,
        /// With a place in each scope.
        rates: Option<Box<Rates>>,
    },
    /// The answer to [`crate::Output::Store`]: this request and all before it are on disk.
    Stored(StoreId),
    /// The answer to [`crate::Output::Read`].
    Read(ReadAnswer),
    /// How large the store is: told to every shard now and then, and after logs were trimmed. A
    /// shard that is told that it is as large as may be takes in nothing that has to be stored,
    /// or lets go of the oldest that waits, as its limits say; if values alone are as large, it
    /// lets go of nothing, since nothing is gained.
    StoreSize(StoreSize),
    /// The disk lacks the space that the store needs to take in more (`true`), or has it again.
    /// Until then a shard takes in nothing that has to be stored, whatever its limits say.
    DiskLacksSpace(bool),
    /// The store takes nothing any more, until the broker is started again. Told to every shard;
    /// no [`Input::Stored`] need follow. From now on nothing is asked of it, and who needs it is
    /// refused: see `shard/store.rs`.
    StoreFailed {
        /// What happened, for people.
        cause: Arc<str>,
    },
    /// A message from another shard, in the order it was sent.
    ShardMessage {
        /// The sender.
        from: ShardId,
        /// What it says.
        message: ShardMessage,
    },
    /// The time that [`crate::Shard::next_timeout`] asked for has come.
    Timeout {
        /// Whatever clients had sent by then, the shard has been given, as far as it
        /// [wanted](crate::Shard::wants_input) it. So nobody is taken for silent whom the broker
        /// has not listened to: it may be behind with its work, or have stood still.
        heard: Instant,
    },
    /// An operator has asked for this.
    Operator(Operation),
    /// New limits, after the configuration was read again.
    Reconfigured(Box<crate::Limits>),
    /// What listeners ask of client ids from now on, by the number of the listener. Clients that
    /// are connected stay.
    ClientIdRulesReplaced(Arc<[ClientIdRules]>),
    /// The mount points of listeners from now on, by the number of the listener. Clients that have
    /// another mount point by this, or by the last [`Input::PolicyReplaced`], are disconnected.
    MountPointsReplaced(Arc<[Option<MountPoint>]>),
    /// What clients may do from now on; `None`: everything. Clients that may not connect any more
    /// are disconnected, and subscriptions that are not allowed any more end. Where its mount
    /// points may differ from those before, [`Input::MountPointsReplaced`] follows.
    PolicyReplaced(Option<Arc<Policy>>),
    /// The broker is stopping: say so to every client and close.
    Drain,
}

/// What an operator wants done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Operation {
    /// Remove this.
    Forget(Forget),
    /// End the connection of this client. A shard that does not have it does nothing.
    Disconnect {
        /// Its id.
        client_id: Arc<str>,
    },
    /// End the connections of all these clients, also of those that are being decided about. Whom
    /// the driver still lets in afterwards comes in.
    Ban(Clients),
    /// Publish this, unless the shard [refuses](crate::Shard::refuses) it. One shard is asked; it
    /// reaches all subscribers.
    Publish(OwnMessage),
}

impl From<Forget> for Operation {
    fn from(what: Forget) -> Self {
        Self::Forget(what)
    }
}

/// Clients with something in common.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Clients {
    /// Who has this id.
    WithId(Arc<str>),
    /// Who was admitted under this name.
    OfUser(Arc<str>),
    /// Who comes from an address of which so many leading bits are equal.
    From(IpAddr, u8),
}

/// A message that the broker publishes itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OwnMessage {
    /// Where to.
    pub topic: Box<str>,
    /// Any bytes.
    pub payload: Box<[u8]>,
    /// The most it is delivered with.
    pub qos: QoS,
    /// Whether it replaces the retained message of its topic.
    pub retain: bool,
}

/// Whether a client may come in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Admission {
    /// Yes.
    Granted(Grant),
    /// No.
    Refused {
        /// What the client is told: usually 0x86 or 0x87.
        reason: ReasonCode,
        /// Why, for people.
        detail: Cow<'static, str>,
    },
}

/// What is to be removed. A shard that does not have it does nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Forget {
    /// The session of this client, which is disconnected if it is here.
    Session {
        /// Its id.
        client_id: Arc<str>,
    },
    /// The retained message of a topic.
    Retained {
        /// The topic.
        topic: Arc<str>,
    },
}
