//! Sessions and connections of one shard.
//!
//! Bytes are appended to one buffer per connection; the driver writes each buffer once for all that
//! has come to it, those first that have waited longest. A buffer exists only while something is
//! pending (see [`crate::buffers`]).
//!
//! Deliberately absent: what brings a message to a session ([`crate::deliver`]), and what is known
//! of sessions beside it, which has files of its own.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use foldhash::fast::FixedState;
use slab::Slab;
use unbroken_merkle_log::Epoch;
use unbroken_mqtt_proto::{Packet, frame_length};

use crate::audit::IngressLane;
use crate::audit::letters::LetterNumbers;
use crate::audit::watch::Home;
use crate::buffers::BufferPool;
use crate::census::Census;
use crate::connection::Connection;
use crate::durability::Qos2Pending;
use crate::farewell::LastWords;
use crate::frames::Frames;
use crate::full::Fullness;
use crate::held::Promises;
use crate::ids::{ConnectionId, SessionId};
use crate::laggards::Laggards;
use crate::limits::{Limits, WRITTEN_BYTES_MIN};
use crate::mesh::Bundles;
use crate::message::MessagePool;
use crate::output::Output;
use crate::session::Session;
use crate::settings::ShardOptions;
use crate::spread::Spreads;
use crate::telemetry::{DropTallies, Stats};

pub(crate) struct Clients {
    pub(crate) limits: Limits,
    /// By the index of the [`ConnectionId`].
    pub(crate) connections: Vec<Option<Box<Connection>>>,
    pub(crate) sessions: Slab<Session>,
    pub(crate) by_client_id: HashMap<Arc<str>, SessionId, FixedState>,
    pub(crate) outputs: VecDeque<Output>,
    pub(crate) stats: Stats,
    pub(crate) pool: MessagePool,
    /// Of messages that had no receiver to be told of.
    pub(crate) drops: DropTallies,
    /// Sessions that may have drops to tell; some may have ended since.
    pub(crate) untold: Vec<SessionId>,
    /// Sessions that the present input has made miss something.
    pub(crate) missing: Vec<SessionId>,
    /// The broker is stopping: nothing that has to wait will be delivered, but what is on disk.
    pub(crate) stopping: bool,
    /// What must be true before something leaves.
    pub(crate) promises: Promises,
    /// Sessions that are at the limit of what may wait for them.
    pub(crate) fullness: Fullness,
    /// Sessions that keep too much of the logs.
    pub(crate) laggards: Laggards,
    /// Sessions of which nobody knows what they are owed.
    pub(crate) census: Census,
    /// Sessions of which the disk is to be told how far they are; some may have ended since.
    pub(crate) touched: Vec<SessionId>,
    /// To be written to or read again, in the order in which they became so.
    dirty: VecDeque<ConnectionId>,
    pub(crate) frames: Frames,
    /// Lanes of sessions that have ended, while what they published is followed.
    pub(crate) departed: HashMap<(Arc<str>, Epoch), Box<IngressLane>, FixedState>,
    /// Which shard this is, and what the audit has to tell.
    pub(crate) home: Home,
    /// Of letters to and from other shards.
    pub(crate) letters: LetterNumbers,
    pub(crate) bundles: Bundles,
    pub(crate) buffers: BufferPool,
    /// Messages that are on their way to very many.
    pub(crate) spreads: Spreads,
    /// What is on disk of messages of QoS 2 that clients have not released.
    pub(crate) unreleased: Qos2Pending,
}

impl Clients {
    /// The seed keeps clients from choosing ids that meet in the table.
    pub(crate) fn new(options: &ShardOptions) -> Self {
        Self {
            limits: options.limits.clone(),
            connections: Vec::new(),
            sessions: Slab::new(),
            by_client_id: HashMap::with_hasher(FixedState::with_seed(options.seed)),
            outputs: VecDeque::new(),
            stats: Stats::default(),
            pool: MessagePool::default(),
            drops: DropTallies::default(),
            untold: Vec::new(),
            missing: Vec::new(),
            stopping: false,
            promises: Promises::new(options.id),
            fullness: Fullness::default(),
            laggards: Laggards::default(),
            census: Census::default(),
            touched: Vec::new(),
            dirty: VecDeque::new(),
            frames: Frames::default(),
            departed: HashMap::with_hasher(FixedState::with_seed(options.seed)),
            home: Home::new(options),
            letters: LetterNumbers::default(),
            bundles: Bundles::default(),
            buffers: BufferPool::default(),
            unreleased: Qos2Pending::default(),
            spreads: Spreads::new(options.settings.at_once),
        }
    }

    pub(crate) fn connection_of(&self, session_id: SessionId) -> Option<ConnectionId> {
        let index = self.sessions.get(session_id.index())?.connection?;
        Some(self.connection(index)?.id)
    }

    /// Appends a packet other than PUBLISH to the session's connection, if it has one.
    pub(crate) fn send_to(&mut self, session_id: SessionId, packet: &Packet<'_>) {
        if let Some(index) = self
            .sessions
            .get(session_id.index())
            .and_then(|session| session.connection)
        {
            self.send(index, packet);
        }
    }

    /// Appends a packet other than PUBLISH.
    pub(crate) fn send(&mut self, index: u32, packet: &Packet<'_>) -> bool {
        let Some(connection) = self.connections[index as usize].as_deref_mut() else {
            return false;
        };
        self.buffers.provide_output(&mut connection.output, 0);
        let fits = connection.append(packet);
        if fits {
            self.stats.packets_sent += 1;
        }
        if !connection.dirty {
            connection.dirty = true;
            self.dirty.push_back(connection.id);
        }
        fits
    }

    /// Puts a connection on the list of those that the driver is to look at.
    pub(crate) fn mark_dirty(&mut self, id: ConnectionId) {
        if let Some(connection) = self.named(id)
            && !connection.dirty
        {
            connection.dirty = true;
            self.dirty.push_back(id);
        }
    }

    pub(crate) fn connection(&self, index: u32) -> Option<&Connection> {
        self.connections.get(index as usize)?.as_deref()
    }

    /// Whether a packet of this connection may be looked at now: not while its CONNECT is being
    /// decided about or its CONNACK may not leave [MQTT-3.1.4-6], nor while the answers to earlier
    /// ones wait or are not taken.
    pub(crate) fn may_consume(&self, connection: &Connection) -> bool {
        let waiting = connection.pending() + connection.held_bytes;
        connection.connect.is_none()
            && !connection.answers_first
            && !connection.waits_for_spreads
            && waiting < self.limits.output_bytes_max as usize
            && self.gate_open(connection)
    }

    pub(crate) fn connection_mut(&mut self, index: u32) -> Option<&mut Connection> {
        self.connections.get_mut(index as usize)?.as_deref_mut()
    }

    /// The connection of this name, if it is still that one.
    pub(crate) fn named(&mut self, id: ConnectionId) -> Option<&mut Connection> {
        self.connection_mut(id.index)
            .filter(|connection| connection.id == id)
    }

    pub(crate) fn session_mut(&mut self, id: SessionId) -> Option<&mut Session> {
        self.sessions.get_mut(id.index())
    }

    /// Keeps what this connection has received and what cannot be used yet.
    pub(crate) fn keep_unread(&mut self, id: ConnectionId, bytes: &[u8]) {
        if let Some(Some(connection)) = self.connections.get_mut(id.index as usize)
            && connection.id == id
        {
            // A length is believed as far as some of it has come.
            let length = frame_length(bytes, self.limits.packet_bytes_max);
            let length = length.ok().flatten().unwrap_or(0);
            let room = length.min(bytes.len() * BELIEVED_PARTS);
            self.buffers.provide(&mut connection.unread, room);
            connection.unread.extend_from_slice(bytes);
        }
    }

    pub(crate) fn take_dirty(&mut self, into: &mut Vec<ConnectionId>, most: usize) {
        for id in self.dirty.drain(..most.min(self.dirty.len())) {
            if let Some(connection) = self.connections[id.index as usize].as_deref_mut()
                && connection.id == id
            {
                connection.dirty = false;
                into.push(id);
            }
        }
    }

    pub(crate) fn has_dirty(&self) -> bool {
        !self.dirty.is_empty()
    }

    /// Notes that the driver has written so much; answers whose connection it was if all of it has
    /// gone or at least half the limit is free again, which is when its session may send more.
    pub(crate) fn wrote(
        &mut self,
        now: Instant,
        id: ConnectionId,
        bytes: usize,
    ) -> Option<SessionId> {
        let limit = self.limits.output_bytes_max as usize;
        let half = limit / 2;
        let connection = self
            .connections
            .get_mut(id.index as usize)?
            .as_deref_mut()
            .filter(|c| c.id == id)?;
        let before = connection.pending();
        debug_assert!(bytes <= before, "more was written than was pending");
        if before + connection.held_bytes >= limit && bytes > 0 {
            // Nothing was read from it meanwhile: that it takes what we send is its sign of life.
            connection.last_received = now;
        }
        connection.written = connection.output.len().min(connection.written + bytes);
        let after = connection.pending();
        if after == 0 {
            self.buffers.release(std::mem::take(&mut connection.output));
            connection.written = 0;
        } else if connection.written >= half.max(WRITTEN_BYTES_MIN) {
            connection.forget_written();
        }
        self.stats.bytes_sent += bytes as u64;
        (after == 0 || before > half && after <= half)
            .then_some(connection.session)
            .flatten()
    }

    /// Counts messages that were appended for a session.
    pub(crate) fn sent_bytes(&mut self, session_id: SessionId, publishes: u64) {
        self.stats.publishes_sent += publishes;
        self.stats.packets_sent += publishes;
        if let Some(index) = self
            .sessions
            .get(session_id.index())
            .and_then(|session| session.connection)
            && let Some(connection) = self.connections[index as usize].as_deref_mut()
            && !connection.dirty
        {
            connection.dirty = true;
            self.dirty.push_back(connection.id);
        }
    }

    /// Takes what a connection has still to say, with a farewell behind it: nothing is to be
    /// written to it any more.
    pub(crate) fn last_words(
        &mut self,
        id: ConnectionId,
        farewell: impl FnOnce(&Connection, &mut Vec<u8>),
    ) -> Option<LastWords> {
        let session = self.named(id)?.session;
        if let Some(session) = session {
            self.catch_up(self.home.now, session);
        }
        let session = session.and_then(|session| self.sessions.get(session.index()));
        let client_id = session.map(|session| Arc::clone(&session.client_id));
        let connection = self.named(id)?;
        Some(LastWords::of(connection, client_id, farewell))
    }
}

impl std::fmt::Debug for Clients {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Clients")
            .field("sessions", &self.sessions.len())
            .finish_non_exhaustive()
    }
}

/// Of a packet that has begun, the buffer is for at most so many times what has come.
const BELIEVED_PARTS: usize = 16;
