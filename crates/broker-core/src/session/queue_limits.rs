//! Sessions that are at the limit of what may wait for them, where publishers are refused for it
//! ([`QueueFull::Refuse`]).
//!
//! ```text
//! session's shard:  full ──── MeshMessage::Full, with its subscriptions ───> every other shard
//!                   room ──── MeshMessage::Room ──────────────────────────>
//! publish, there:   does a full session have to keep this? -> 0x97, before anything is done
//! ```
//!
//! Each shard knows the full sessions of all, so a message is refused where it comes in, to its
//! publisher, and no session receives it. A shared group passes over its full members, and is full
//! itself, which its shard says in the same way, when all of them are. A session has room again
//! when an eighth of both limits is free, so that one at its limit is not announced with every
//! message.
//!
//! Invariants:
//! - With `Refuse` no acknowledged message is dropped from a persistent session because too much
//!   waits. What was under way when it became full is kept beyond the limit, as is what a group
//!   hands over, and a will, which has no publisher to refuse: up to twice the limits and more than
//!   can be under way. (Limits that are lowered to less than half of what waits do drop.)
//! - A broker without a full session pays one comparison for each message.
//!
//! Deliberately absent: sessions that end with their connections, for which no publisher is
//! refused, and the audit's own messages, which are dropped by name.

use foldhash::fast::FixedState;
use std::collections::HashSet;

use super::{Session, Sessions};
use crate::ids::SessionId;
use crate::limits::{BEYOND_BYTES_MAX, BEYOND_MESSAGES_MAX, Limits, QueueFull};

/// The full sessions of this shard.
#[derive(Debug, Default)]
pub(super) struct QueueLimits {
    /// Those that the other shards know of.
    full: HashSet<SessionId, FixedState>,
    /// Those that may have become full or have room again; some may have ended since.
    changed: Vec<SessionId>,
}

/// What every shard is to learn of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum QueueChange {
    /// It has become full.
    Full(SessionId),
    /// It has room again.
    Room(SessionId),
}

impl Limits {
    fn is_full(&self, messages: u64, bytes: u64) -> bool {
        messages >= self.queue_messages_max.into() || bytes >= self.queue_bytes_max
    }

    fn has_room(&self, messages: u64, bytes: u64) -> bool {
        let most = |max: u64| max - (max / ROOM_PARTS).max(1);
        messages <= most(self.queue_messages_max.into()) && bytes <= most(self.queue_bytes_max)
    }

    /// Whether so much is more than may wait for a session that stays: the oldest of it goes, but
    /// not the last one.
    pub(crate) fn is_exceeded(&self, messages: u64, bytes: u64) -> bool {
        let exceeds = messages > self.queue_messages_max.into()
            || bytes > self.queue_bytes_max && messages > 1;
        exceeds && !self.keeps_beyond(messages, bytes)
    }

    /// Whether it is so much more that it is worth reading what goes.
    pub(crate) fn is_far_exceeded(&self, messages: u64, bytes: u64) -> bool {
        let most = |max: u64| max.saturating_add(max / EXCESS_PARTS);
        self.is_exceeded(messages, bytes)
            && (messages > most(self.queue_messages_max.into())
                || bytes > most(self.queue_bytes_max))
    }

    /// Whether a session that stays and has so much keeps more beyond its limit: publishers that
    /// were not refused may have been told that it was taken in.
    pub(crate) fn keeps_beyond(&self, messages: u64, bytes: u64) -> bool {
        self.queue_full == QueueFull::Refuse
            && messages < u64::from(self.queue_messages_max) * 2 + BEYOND_MESSAGES_MAX
            && bytes
                < self
                    .queue_bytes_max
                    .saturating_mul(2)
                    .saturating_add(BEYOND_BYTES_MAX)
    }
}

impl Session {
    /// More waits for it than may, as far as that is counted: the oldest of what is on disk goes.
    pub(crate) fn holds_too_much(&self, limits: &Limits) -> bool {
        let (messages, bytes) = self.counted();
        limits.is_exceeded(messages, bytes)
    }

    /// So much more that it is worth reading.
    pub(crate) fn holds_far_too_much(&self, limits: &Limits) -> bool {
        let (messages, bytes) = self.counted();
        limits.is_far_exceeded(messages, bytes)
    }

    /// What waits for it, but while not all is counted without what waits in memory: that was read
    /// since, whether or not it was counted, and is older than what was.
    fn counted(&self) -> (u64, u64) {
        let kept = self.kept.as_deref();
        match kept.and_then(|kept| kept.backlog.as_deref()) {
            Some(backlog) if !backlog.is_counted() => (backlog.messages, backlog.bytes),
            _ => self.waiting(),
        }
    }

    /// Messages and bytes that wait for it.
    fn waiting(&self) -> (u64, u64) {
        let backlog = self
            .kept
            .as_deref()
            .and_then(|kept| kept.backlog.as_deref());
        let on_disk = backlog.map_or((0, 0), |backlog| (backlog.messages, backlog.bytes));
        let messages = self.outbox.queue_len() as u64 + on_disk.0;
        (messages, self.outbox.queue_bytes() + on_disk.1)
    }
}

impl Sessions {
    /// More waits for this session than before.
    #[inline]
    pub(crate) fn note_fill(&mut self, limits: &Limits, id: SessionId) {
        if limits.queue_full == QueueFull::Refuse {
            self.note_change(limits, id);
        }
    }

    /// Less may wait for this session than before.
    #[inline]
    pub(crate) fn note_room(&mut self, limits: &Limits, id: SessionId) {
        if !self.queue_limits.full.is_empty() {
            self.note_change(limits, id);
        }
    }

    /// The limits have changed. Costs a look at all sessions, if publishers are or were refused.
    pub(crate) fn note_limits(&mut self, limits: &Limits) {
        if limits.queue_full == QueueFull::Refuse || !self.queue_limits.full.is_empty() {
            for id in self.iter().map(|(id, _)| id).collect::<Vec<_>>() {
                self.note_change(limits, id);
            }
        }
    }

    /// Takes a session that has become full or has room again.
    #[inline]
    pub(crate) fn next_queue_change(&mut self, limits: &Limits) -> Option<QueueChange> {
        if self.queue_limits.changed.is_empty() {
            return None;
        }
        self.look_at_changed(limits)
    }

    #[cold]
    fn look_at_changed(&mut self, limits: &Limits) -> Option<QueueChange> {
        while let Some(id) = self.queue_limits.changed.pop() {
            let was_full = self.queue_limits.full.contains(&id);
            match (was_full, self.would_be_full(limits, id, was_full)) {
                (false, true) => {
                    self.queue_limits.full.insert(id);
                    return Some(QueueChange::Full(id));
                }
                (true, false) => {
                    self.queue_limits.full.remove(&id);
                    return Some(QueueChange::Room(id));
                }
                _ => {}
            }
        }
        None
    }

    /// The session ends. Answers whether it was full.
    pub(crate) fn end_full(&mut self, id: SessionId) -> bool {
        self.queue_limits.full.remove(&id)
    }

    /// Whether no session is full, as far as the shards know, and none has changed.
    pub(crate) fn all_have_room(&self) -> bool {
        self.queue_limits.full.is_empty() && self.queue_limits.changed.is_empty()
    }

    /// Whether all shards know that this session is full.
    pub(crate) fn is_full(&self, id: SessionId) -> bool {
        self.queue_limits.full.contains(&id)
    }

    #[cold]
    fn note_change(&mut self, limits: &Limits, id: SessionId) {
        let was_full = self.queue_limits.full.contains(&id);
        if was_full != self.would_be_full(limits, id, was_full) {
            self.queue_limits.changed.push(id);
        }
    }

    /// Whether publishers are to be refused for this session.
    fn would_be_full(&self, limits: &Limits, id: SessionId, was_full: bool) -> bool {
        let Some(session) = self.get(id).filter(|session| session.is_durable()) else {
            return false;
        };
        let (messages, bytes) = session.waiting();
        limits.queue_full == QueueFull::Refuse
            && if was_full {
                !limits.has_room(messages, bytes)
            } else {
                limits.is_full(messages, bytes)
            }
    }
}

/// A session has room again when one part in so many of each limit is free, and at least one
/// message.
const ROOM_PARTS: u64 = 8;
/// What is too much is read when it is more than one part in so many of a limit.
const EXCESS_PARTS: u64 = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beyond_a_limit_is_room_for_what_was_under_way_and_not_for_all_there_may_ever_be() {
        let mut limits = Limits {
            queue_messages_max: 10,
            queue_bytes_max: 1_000,
            ..Limits::default()
        };
        assert!(!limits.keeps_beyond(10, 0), "the oldest goes");
        limits.queue_full = QueueFull::Refuse;
        assert!(limits.keeps_beyond(10, 2_000));
        assert!(limits.keeps_beyond(BEYOND_MESSAGES_MAX, BEYOND_BYTES_MAX));
        assert!(!limits.keeps_beyond(20 + BEYOND_MESSAGES_MAX, 0));
        assert!(!limits.keeps_beyond(0, 2_000 + BEYOND_BYTES_MAX));
    }

    #[test]
    fn what_is_beyond_a_limit_is_worth_reading_when_it_is_an_eighth_and_never_the_last_message() {
        let limits = Limits {
            queue_messages_max: 16,
            queue_bytes_max: 1_600,
            ..Limits::default()
        };
        for (messages, bytes, exceeded, far) in [
            (16, 1_600, false, false),
            (17, 0, true, false),
            (19, 0, true, true),
            (2, 1_601, true, false),
            (2, 1_801, true, true),
            (1, 1_000_000, false, false),
        ] {
            assert_eq!(limits.is_exceeded(messages, bytes), exceeded);
            assert_eq!(limits.is_far_exceeded(messages, bytes), far);
        }
    }
}
