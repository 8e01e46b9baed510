//! Sessions and connections of one shard.
//!
//! Deliberately absent: what brings a message to a session ([`crate::deliver`]), and what is known
//! of sessions beside it, which has files of its own.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use foldhash::fast::FixedState;
use slab::Slab;
use unbroken_mqtt_proto::Packet;

use crate::audit::Audit;
use crate::audit::account::Open;
use crate::census::Census;
use crate::connection::{Connection, Connections};
use crate::durability::Qos2Pending;
use crate::frames::Frames;
use crate::held::CommitGate;
use crate::ids::{ConnectionId, SessionId, ShardId};
use crate::laggards::Laggards;
use crate::limits::Limits;
use crate::mesh::{Bundles, LetterNumbers};
use crate::message::MessagePool;
use crate::output::Output;
use crate::retained::Retained;
use crate::session::{QueueLimits, Session};
use crate::settings::ShardOptions;
use crate::spread::Spreads;
use crate::telemetry::Telemetry;

pub(crate) struct Clients {
    /// Which shard this is.
    pub(crate) shard: ShardId,
    pub(crate) limits: Limits,
    pub(crate) connections: Connections,
    pub(crate) sessions: Slab<Session>,
    pub(crate) by_client_id: HashMap<Arc<str>, SessionId, FixedState>,
    pub(crate) outputs: VecDeque<Output>,
    pub(crate) telemetry: Telemetry,
    pub(crate) retained: Retained,
    pub(crate) pool: MessagePool,
    /// The broker is stopping: nothing that has to wait will be delivered, but what is on disk.
    pub(crate) stopping: bool,
    /// What must be true before something leaves.
    pub(crate) gate: CommitGate,
    /// Sessions that are at the limit of what may wait for them.
    pub(crate) queue_limits: QueueLimits,
    /// Sessions that keep too much of the logs.
    pub(crate) laggards: Laggards,
    /// Sessions of which nobody knows what they are owed.
    pub(crate) census: Census,
    /// Sessions of which the disk is to be told how far they are; some may have ended since.
    pub(crate) touched: Vec<SessionId>,
    pub(crate) frames: Frames,
    pub(crate) audit: Audit,
    /// Of letters to and from other shards.
    pub(crate) letters: LetterNumbers,
    pub(crate) bundles: Bundles,
    /// Messages that are on their way to very many.
    pub(crate) spreads: Spreads,
    /// What is on disk of messages of QoS 2 that clients have not released.
    pub(crate) unreleased: Qos2Pending,
}

impl Clients {
    /// The seed keeps clients from choosing ids that meet in the table.
    pub(crate) fn new(options: &ShardOptions) -> Self {
        Self {
            shard: options.id,
            limits: options.limits.clone(),
            connections: Connections::default(),
            sessions: Slab::new(),
            by_client_id: HashMap::with_hasher(FixedState::with_seed(options.seed)),
            outputs: VecDeque::new(),
            telemetry: Telemetry::default(),
            retained: Retained::new(Arc::clone(&options.totals)),
            pool: MessagePool::default(),
            stopping: false,
            gate: CommitGate::new(options.id),
            queue_limits: QueueLimits::default(),
            laggards: Laggards::default(),
            census: Census::default(),
            touched: Vec::new(),
            frames: Frames::default(),
            audit: Audit::new(options),
            letters: LetterNumbers::default(),
            bundles: Bundles::default(),
            unreleased: Qos2Pending::default(),
            spreads: Spreads::new(options.settings.at_once),
        }
    }

    pub(crate) fn connection_of(&self, session_id: SessionId) -> Option<ConnectionId> {
        let index = self.sessions.get(session_id.index())?.connection?;
        Some(self.connections.at(index)?.id())
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
        let Some(mut writer) = self.connections.writer(index) else {
            return false;
        };
        let fits = writer.append(packet);
        writer.mark_dirty();
        if fits {
            self.telemetry.sent_packet();
        }
        fits
    }

    /// Whether a packet of this connection may be looked at now.
    pub(crate) fn may_consume(&self, connection: &Connection) -> bool {
        let output_bytes_max = self.limits.output_bytes_max as usize;
        connection.may_consume(self.gate.stored(), output_bytes_max)
    }

    /// Whether what is written to this connection may leave.
    pub(crate) fn gate_open(&self, connection: &Connection) -> bool {
        connection.gate_open(self.gate.stored())
    }

    /// Whether the client is not read because of what it waits for, which is not for it to change.
    pub(crate) fn keeps_waiting(&self, connection: &Connection) -> bool {
        connection.keeps_waiting(&self.gate, self.limits.output_bytes_max as usize)
    }

    pub(crate) fn session_mut(&mut self, id: SessionId) -> Option<&mut Session> {
        self.sessions.get_mut(id.index())
    }

    /// More waits for this session than before.
    #[inline]
    pub(crate) fn note_fill(&mut self, id: SessionId) {
        self.queue_limits
            .note_fill(&self.sessions, &self.limits, id);
    }

    /// Less may wait for this session than before.
    #[inline]
    pub(crate) fn note_room(&mut self, id: SessionId) {
        self.queue_limits
            .note_room(&self.sessions, &self.limits, id);
    }

    /// Deliveries accepted for sessions that stay that are not known to be on disk. Costs a look at
    /// everything that waits for them.
    pub(crate) fn unstored(&self) -> u64 {
        let sessions = self.sessions.iter();
        let on_disk = &self.gate.on_disk;
        let unstored = sessions.map(|(_, session)| session.unstored(on_disk));
        unstored.sum()
    }

    /// By how much accounts do not balance, and totals do not come to them.
    pub(crate) fn imbalance(&self) -> u64 {
        let mut open = Open::default();
        let sessions = self.sessions.iter();
        let off: u64 = sessions
            .map(|(_, session)| session.imbalance(&mut open))
            .sum();
        off + open.imbalance(&self.telemetry.stats().audit)
    }

    /// Notes that the driver has written so much; answers the session that may send more.
    pub(crate) fn wrote(
        &mut self,
        now: Instant,
        id: ConnectionId,
        bytes: usize,
    ) -> Option<SessionId> {
        self.connections.get(id)?;
        self.telemetry.wrote(bytes);
        let output_bytes_max = self.limits.output_bytes_max as usize;
        self.connections.wrote(now, id, bytes, output_bytes_max)
    }
}

impl std::fmt::Debug for Clients {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Clients")
            .field("sessions", &self.sessions.len())
            .finish_non_exhaustive()
    }
}
