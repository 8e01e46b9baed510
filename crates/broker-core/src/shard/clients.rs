//! Sessions and connections of one shard.
//!
//! Deliberately absent: what brings a message to a session ([`crate::delivery`]), and what is known
//! of sessions beside it, which has files of its own.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use crate::audit::Audit;
use crate::audit::account::Open;
use crate::connection::Connections;
use crate::delivery::{Deliverer, Deliveries};
use crate::durability::CommitGate;
use crate::ids::{ConnectionId, SessionId};
use crate::limits::Limits;
use crate::mesh::Mesh;
use crate::output::Output;
use crate::policy::AccessControl;
use crate::retained::Retained;
use crate::session::Sessions;
use crate::settings::ShardOptions;
use crate::telemetry::Telemetry;

pub(crate) struct Clients {
    pub(crate) limits: Limits,
    /// What clients may do.
    pub(crate) access: AccessControl,
    pub(crate) connections: Connections,
    pub(crate) sessions: Sessions,
    pub(crate) outputs: VecDeque<Output>,
    pub(crate) telemetry: Telemetry,
    pub(crate) retained: Retained,
    /// The broker is stopping: nothing that has to wait will be delivered, but what is on disk.
    pub(crate) stopping: bool,
    /// What must be true before something leaves.
    pub(crate) gate: CommitGate,
    pub(crate) audit: Audit,
    pub(crate) mesh: Mesh,
    pub(crate) deliveries: Deliveries,
}

impl Clients {
    pub(crate) fn new(options: &ShardOptions) -> Self {
        Self {
            limits: options.limits.clone(),
            access: AccessControl::default(),
            connections: Connections::default(),
            sessions: Sessions::new(options.seed),
            outputs: VecDeque::new(),
            telemetry: Telemetry::default(),
            retained: Retained::new(Arc::clone(&options.totals)),
            stopping: false,
            gate: CommitGate::new(options.id),
            audit: Audit::new(options),
            mesh: Mesh::new(options.id, options.shards),
            deliveries: Deliveries::new(options.settings.at_once),
        }
    }

    pub(crate) fn connection_of(&self, session_id: SessionId) -> Option<ConnectionId> {
        let index = self.sessions.get(session_id)?.connection?;
        Some(self.connections.at(index)?.id())
    }

    /// Delivery at work on the parts that it needs.
    #[inline]
    pub(crate) fn deliverer(&mut self, now: Instant) -> Deliverer<'_> {
        Deliverer {
            now,
            stopping: self.stopping,
            limits: &self.limits,
            access: &mut self.access,
            connections: &mut self.connections,
            sessions: &mut self.sessions,
            telemetry: &mut self.telemetry,
            retained: &mut self.retained,
            gate: &mut self.gate,
            audit: &mut self.audit,
            deliveries: &mut self.deliveries,
        }
    }

    /// Deliveries accepted for sessions that stay that are not known to be on disk. Costs a look at
    /// everything that waits for them.
    pub(crate) fn unstored(&self) -> u64 {
        let sessions = self.sessions.iter();
        let on_disk = self.gate.log_ends().on_disk();
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
        self.connections
            .wrote(now, id, bytes, &self.gate, &self.limits)
    }
}

impl std::fmt::Debug for Clients {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Clients")
            .field("sessions", &self.sessions.len())
            .finish_non_exhaustive()
    }
}
