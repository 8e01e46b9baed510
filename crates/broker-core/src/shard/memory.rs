//! Too much memory: which clients are ended for it.
//!
//! ```text
//! all hold more than the budget? -> end those here that hold more than their share, largest first
//!                                -> still? tell the other shards, and look again soon
//! less than an eighth is free?   -> an output takes little, and after a moment the same
//! ```
//!
//! Invariants:
//! - Only a client that holds more than its equal share of the budget is ended for it. There is one
//!   on some shard while the budget is exceeded.
//! - The clients of a shard that hold most are ended first, with 0x97 where they can be answered,
//!   and each is named in the log with what it held.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::time::Instant;

use unbroken_mqtt_proto::ReasonCode;

use super::Shard;
use crate::connection::{Connection, LastPacket};
use crate::ids::{ConnectionId, SessionId};
use crate::limits::{MEMORY_LOOK_EVERY, QueueFull};
use crate::mesh::MeshMessage;
use crate::reason::Fault;
use crate::session::Session;
use crate::timers::Timer;

/// What a shard does about memory later.
#[derive(Debug, Default)]
pub(super) struct MemoryWatch {
    /// [`Timer::Memory`] is set.
    is_due: bool,
    /// Until then: none of the clients here holds more than its share.
    is_for_others: bool,
}

impl Shard {
    /// Sees to it that clients hold no more memory than they may.
    #[inline]
    pub(crate) fn check_memory(&mut self, now: Instant) {
        let (unadmitted, memory) = (self.connections.unadmitted(), self.connections.memory());
        if unadmitted.is_exceeded() || memory.is_exceeded() || memory.is_tight() {
            self.relieve_memory(now);
        }
    }

    #[cold]
    fn relieve_memory(&mut self, now: Instant) {
        if !self.memory_watch.is_for_others {
            if self.connections.unadmitted().is_exceeded() {
                self.relieve_unadmitted(now);
            }
            if self.connections.memory().is_exceeded() {
                self.relieve_admitted(now);
            }
            let (unadmitted, memory) = (self.connections.unadmitted(), self.connections.memory());
            if unadmitted.is_exceeded() || memory.is_exceeded() {
                self.memory_watch.is_for_others = true;
                self.mesh.broadcast(|| MeshMessage::MemoryIsShort);
            }
        }
        if !self.memory_watch.is_due {
            self.memory_watch.is_due = true;
            self.timers.set(now + MEMORY_LOOK_EVERY, Timer::Memory);
        }
    }

    /// Receivers have had time to take what is for them, and other shards to end clients of theirs.
    pub(super) fn look_at_memory_again(&mut self, now: Instant) {
        self.memory_watch = MemoryWatch::default();
        self.connections.look_at_memory();
        if self.connections.memory().is_tight() {
            self.relieve_admitted(now);
        }
        if self.connections.memory().is_tight() {
            self.mesh.broadcast(|| MeshMessage::MemoryIsShort);
        } else {
            // What waited for room in an output that is empty waits for nothing else.
            let sessions = self.connections.iter().filter_map(Connection::session);
            for session in sessions.collect::<Vec<_>>() {
                self.pump(now, session);
            }
        }
    }

    fn relieve_unadmitted(&mut self, now: Instant) {
        let clients = self.options.totals.open_connections();
        let share = self.connections.unadmitted().share(1, clients);
        for (id, bytes) in self.connections.largest_unadmitted() {
            if bytes as u64 <= share || !self.connections.unadmitted().exceeds(1) {
                break;
            }
            self.refuse_for_memory(now, id, bytes);
        }
    }

    fn refuse_for_memory(&mut self, now: Instant, id: ConnectionId, bytes: usize) {
        let Some(connection) = self.connections.get(id) else {
            return;
        };
        let caller = connection.caller().unwrap_or_default();
        let detail = format!(
            "limits.unadmitted_bytes_max is reached, and it holds {bytes} bytes, more than others that are not admitted"
        );
        let fault = Fault {
            reason: ReasonCode::QuotaExceeded,
            detail: Cow::Owned(detail),
        };
        self.refuse(now, id, caller, fault);
    }

    fn relieve_admitted(&mut self, now: Instant) {
        let clients = self.options.totals.sessions.get();
        let share = self.connections.memory().share(2, clients);
        let sessions = self.sessions.iter();
        let holders = sessions.map(|(id, session)| (self.memory_of(session), id));
        let mut holders: Vec<_> = holders.filter(|(bytes, _)| *bytes > share).collect();
        holders.sort_unstable_by_key(|(bytes, _)| Reverse(*bytes));
        for (bytes, id) in holders {
            if !self.connections.memory().exceeds(2) {
                break;
            }
            self.end_for_memory(now, id, bytes);
            let session = self.sessions.get(id);
            if session.is_some_and(|found| self.may_drop(found) && self.memory_of(found) > share) {
                self.deliverer(now).drop_for_memory(id);
            }
        }
        self.connections.look_at_memory();
    }

    /// What one client holds. Messages that it shares with others count for each.
    fn memory_of(&self, session: &Session) -> u64 {
        let connection = session.connection();
        let connection = connection.and_then(|index| self.connections.at(index));
        session.outbox.memory() + connection.map_or(0, |it| it.memory() as u64)
    }

    /// What waits for a session that stays is not dropped where publishers are refused for it.
    fn may_drop(&self, session: &Session) -> bool {
        self.options.limits.queue_full == QueueFull::DropOldest || !session.is_durable()
    }

    /// Ends the connection of a session, if it has one, without what it has not taken.
    fn end_for_memory(&mut self, now: Instant, session: SessionId, bytes: u64) {
        let Some(id) = self.sessions.connection_of(session, &self.connections) else {
            return;
        };
        let detail = format!(
            "limits.memory_bytes_max is reached, and it holds {bytes} bytes, more than others"
        );
        let fault = Fault {
            reason: ReasonCode::QuotaExceeded,
            detail: Cow::Owned(detail),
        };
        let stored = self.gate.stored();
        let connection = self.connections.get_mut(id);
        let is_answered =
            connection.is_some_and(|it| it.is_between_packets() && it.gate_open(stored));
        if let Some((unsaid, _)) = self.final_bytes(now, id, LastPacket::None) {
            self.deliverer(now).drop_unsaid(&unsaid);
        }
        let last = if is_answered {
            LastPacket::Disconnect(&fault)
        } else {
            LastPacket::None
        };
        let last_words = self.final_bytes(now, id, last);
        self.end_for(now, id, last_words, fault);
    }
}
