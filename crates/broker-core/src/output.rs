//! What a shard asks for. A closed enum: this and [`crate::input`] are the whole contract.
//!
//! Bytes to write are not here: they move in batches, by [`crate::Shard::take_dirty`],
//! [`crate::Shard::pending_output`] and [`crate::Shard::wrote`].

use std::sync::Arc;
use std::time::Instant;

use crate::connection::{AuthStep, LastWords};
use crate::durability::{ReadRequest, Request, StoreRequest};
use crate::ids::{ConnectionId, ShardId};
use crate::mesh::ShardMessage;
use crate::policy::Peer;
use crate::position::Frontier;
use crate::telemetry::Event;

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
    /// Decide whether this client may come in, or go on with its authentication, and answer with
    /// [`crate::Input::Authenticated`] or [`crate::Input::Challenged`].
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
    ShardMessage {
        /// The receiver.
        to: ShardId,
        /// What to send.
        message: ShardMessage,
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

impl From<Request> for Output {
    fn from(request: Request) -> Self {
        match request {
            Request::Store(request) => Self::Store(request),
            Request::Read(request) => Self::Read(request),
            Request::Trim(up_to) => Self::Needed(up_to),
        }
    }
}

/// What a client showed in its CONNECT, or in AUTH. No `Debug`: it holds a password.
pub struct Credentials {
    /// The client id.
    pub client_id: Arc<str>,
    /// The user name, if it gave one.
    pub user_name: Option<Box<str>>,
    /// The password, if it gave one.
    pub password: Option<Box<[u8]>>,
    /// A step of an enhanced authentication, if it named a method.
    pub step: Option<AuthStep>,
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
