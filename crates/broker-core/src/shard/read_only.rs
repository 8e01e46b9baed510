//! The store has failed, and the broker goes on without it.
//!
//! ```text
//! Input::StoreFailed ---> who needs the disk is disconnected ---> who would need it is refused
//! ```
//!
//! For what is on disk it is as if the broker had been killed at that moment: sessions that stay,
//! retained messages and wills are there again, as they were, when the broker is started again.
//! Until then it serves who needs none of that: sessions that end with their connections, QoS 0,
//! and QoS 1 and 2 between them.
//!
//! Invariants:
//! - Nothing that waited for the store is ever answered: whose client waits for it is disconnected.
//! - Nothing that is on disk changes in memory where a client would see it: it cannot be kept.
//!
//! Deliberately absent: a way back. What is on disk after an error is known at the next start only.

use std::sync::Arc;
use std::time::Instant;

use unbroken_mqtt_proto::ReasonCode;

use crate::connection::{ConnectRequest, Connection};
use crate::ids::SessionId;
use crate::reason::{DropReason, Fault};
use crate::session::Session;
use crate::shard::Clients;
use crate::shard::Shard;

/// What a publisher of MQTT 5.0 is answered, and a client that is disconnected is told.
pub(crate) const REFUSED: ReasonCode = ReasonCode::ImplementationSpecificError;
/// The reason in words.
pub(crate) const DETAIL: &str = "the broker's store has failed, and takes nothing any more";

impl Shard {
    pub(crate) fn handle_store_failed(&mut self, now: Instant, cause: Arc<str>) {
        if self.clients.gate.has_failed() {
            return; // the first error is the one that counts
        }
        self.clients.gate.fail(cause);
        let stored = self.clients.gate.stored();
        let connections = self.clients.connections.iter();
        let concerned = connections.filter(|connection| self.needs_store(connection));
        let concerned: Vec<_> = concerned
            .map(|connection| (connection.id(), connection.gate_open(stored)))
            .collect();
        for (id, is_in) in concerned {
            let reason = if is_in {
                REFUSED
            } else {
                ReasonCode::ServerUnavailable
            };
            self.fail(now, id, Fault::new(reason, DETAIL));
        }
        self.publish_store_state(now);
    }

    /// Whether this client waits for the store, or will.
    fn needs_store(&self, connection: &Connection) -> bool {
        let Clients { sessions, gate, .. } = &self.clients;
        let session = connection.session();
        let session = session.and_then(|session| sessions.get(session));
        !connection.gate_open(gate.stored())
            || session.is_some_and(|session| session.is_durable() || session.will_on_disk)
            || connection.any_waits(gate)
    }

    /// Why nothing can be put on disk, if so: the store has failed, or is full and publishers are
    /// told.
    pub(crate) fn store_refuses(&self) -> Option<DropReason> {
        if self.clients.gate.has_failed() {
            Some(DropReason::StoreFailed)
        } else if self.clients.gate.retention().refuses(&self.clients.limits) {
            Some(DropReason::StoreFull)
        } else {
            None
        }
    }

    /// Whether a client cannot be let in because the store has failed: it would have something
    /// there, or has.
    pub(crate) fn store_is_needed(
        &self,
        now: Instant,
        client_id: &Arc<str>,
        request: &ConnectRequest,
        expiry_s: u32,
    ) -> bool {
        let clients = &self.clients;
        if !clients.gate.has_failed() {
            return false;
        }
        let existing = clients.sessions.find(client_id);
        let existing = existing.and_then(|id| clients.sessions.get(id));
        let will = request.will(now, client_id);
        expiry_s > 0
            || existing.is_some_and(|session| session.is_durable() || session.will_on_disk)
            || will.is_some_and(|will| will.outlives_broker(expiry_s))
            || clients.gate.blocks(client_id)
    }

    /// The store has failed, and has this session: it ends after the restart, if it has to.
    pub(crate) fn is_left_on_disk(&self, id: SessionId) -> bool {
        let session = self.clients.sessions.get(id);
        self.clients.gate.has_failed() && session.is_some_and(Session::is_durable)
    }

    /// The store has failed, and has the will of this session: that is where it stays.
    pub(crate) fn stays_on_disk(&self, id: SessionId) -> bool {
        let session = self.clients.sessions.get(id);
        let on_disk = |session: &Session| session.will_on_disk;
        self.clients.gate.has_failed() && session.is_some_and(on_disk)
    }
}
