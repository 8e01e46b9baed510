//! Too much memory: which clients are ended for it.
//!
//! ```text
//! all hold more than the budget? -> end those here that hold more than the mean, the largest first
//!                                -> still? tell the other shards, and look again soon
//! ```
//!
//! Invariants:
//! - Only a client that holds more than its equal share of the budget is ended for it. There is one
//!   on some shard while the budget is exceeded.
//! - The clients of a shard that hold most are ended first, with 0x97 where they can be answered,
//!   and each is named in the log with what it held.

use std::borrow::Cow;
use std::time::Instant;

use unbroken_mqtt_proto::ReasonCode;

use super::Shard;
use crate::ids::ConnectionId;
use crate::limits::{MEMORY_FREED_PARTS, MEMORY_LOOK_EVERY};
use crate::mesh::MeshMessage;
use crate::reason::Fault;
use crate::timers::Timer;

impl Shard {
    /// Sees to it that clients hold no more memory than they may.
    #[inline]
    pub(crate) fn check_memory(&mut self, now: Instant) {
        if self.is_memory_short() && !self.memory_is_due {
            self.relieve_memory(now);
        }
    }

    /// Whether the clients of all shards hold too much.
    #[inline]
    fn is_memory_short(&self) -> bool {
        let limits = &self.options.limits;
        let unadmitted = self.connections.unadmitted();
        unadmitted.excess(limits.unadmitted_bytes_max) > 0
    }

    #[cold]
    fn relieve_memory(&mut self, now: Instant) {
        self.relieve_unadmitted(now);
        if self.is_memory_short() {
            self.memory_is_due = true;
            self.mesh.broadcast(|| MeshMessage::MemoryIsShort);
            self.timers.set(now + MEMORY_LOOK_EVERY, Timer::Memory);
        }
    }

    /// The others have had time to end clients of theirs.
    pub(super) fn look_at_memory_again(&mut self) {
        self.memory_is_due = false;
    }

    fn relieve_unadmitted(&mut self, now: Instant) {
        let limit = self.options.limits.unadmitted_bytes_max;
        if self.connections.unadmitted().excess(limit) == 0 {
            return;
        }
        let most = limit - limit / MEMORY_FREED_PARTS;
        let mean = most / self.options.totals.open_connections().max(1);
        for (id, bytes) in self.connections.largest_unadmitted() {
            if bytes as u64 <= mean || self.connections.unadmitted().excess(most) == 0 {
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
}
