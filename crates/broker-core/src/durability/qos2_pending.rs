//! Copies of retained messages that lie on disk with messages of QoS 2 which are not released.
//!
//! The id of such a message is kept until PUBREL. If another shard is to retain the message, a copy
//! is kept with the id, so that a restart sees to it if that shard has not. A client that releases
//! nothing would fill the disk with them, retaining on one topic again and again. So each session
//! may have [`Limits::queue_bytes_max`] of them, or one; its next one is refused.
//!
//! Invariant: a session that has no such message costs nothing here.
//!
//! Deliberately absent: ids without a copy, which the protocol bounds, and copies from before the
//! broker was started: it sees to those when it starts, and keeps the ids.

use std::collections::{BTreeMap, HashMap};

use foldhash::fast::FixedState;
use unbroken_mqtt_proto::PacketId;

use crate::ids::SessionId;
use crate::limits::Limits;

/// The copies of all sessions of a shard.
#[derive(Debug, Default)]
pub(crate) struct Qos2Pending {
    sessions: HashMap<SessionId, Copies, FixedState>,
}

/// The copies of one session.
#[derive(Debug, Default)]
struct Copies {
    /// How large each is.
    of: BTreeMap<PacketId, u64>,
    /// All together.
    bytes: u64,
}

impl Qos2Pending {
    /// Whether a session may have so many bytes more.
    pub(crate) fn has_room(&self, limits: &Limits, id: SessionId, bytes: u64) -> bool {
        let copies = self.sessions.get(&id);
        copies.is_none_or(|copies| copies.bytes.saturating_add(bytes) <= limits.queue_bytes_max)
    }

    /// A copy is kept with this id, in place of an older one.
    pub(crate) fn keep(&mut self, id: SessionId, packet_id: PacketId, bytes: u64) {
        let copies = self.sessions.entry(id).or_default();
        let before = copies.of.insert(packet_id, bytes).unwrap_or_default();
        copies.bytes = copies.bytes.saturating_sub(before).saturating_add(bytes);
    }

    /// This id is free.
    pub(crate) fn release(&mut self, id: SessionId, packet_id: PacketId) {
        if let Some(copies) = self.sessions.get_mut(&id)
            && let Some(bytes) = copies.of.remove(&packet_id)
        {
            copies.bytes = copies.bytes.saturating_sub(bytes);
            if copies.of.is_empty() {
                self.sessions.remove(&id);
            }
        }
    }

    /// The session has ended, and what it had on disk is gone.
    pub(crate) fn end(&mut self, id: SessionId) {
        self.sessions.remove(&id);
    }
}
