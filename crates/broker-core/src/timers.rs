//! Deadlines of one shard, soonest first.
//!
//! A deadline that no longer matters is not searched for and removed: it comes up, is recognised as
//! stale by whoever it names, and is dropped. Keep alive uses the same: the entry is put where the
//! deadline was when it was last looked at, so receiving a packet costs no heap operation.
//!
//! Stale entries do not pile up until their time: the heap is gone through whenever it has doubled
//! since the last time, so that at most about half of it is stale and each entry pays for one look.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::sync::Weak;
use std::time::Instant;

use crate::ids::{ConnectionId, SessionId};
use crate::message::Message;

/// What is to be looked at when the time has come.
#[derive(Clone, Debug)]
pub(crate) enum Timer {
    /// No CONNECT yet, or no decision about it?
    Connect(ConnectionId),
    /// Nothing heard for one and a half times the keep alive?
    KeepAlive(ConnectionId),
    /// Not authenticated again yet?
    Reauthentication(ConnectionId),
    /// The end of what a client has authenticated by?
    Grant(ConnectionId),
    /// May it be read again that was over its rate?
    Rate(ConnectionId),
    /// The delayed will of a session that has been away since `absence`.
    Will { session: SessionId, absence: u64 },
    /// The end of a session that has been away since `absence`.
    SessionExpiry { session: SessionId, absence: u64 },
    /// A retained message whose expiry interval has passed, if it is still the one.
    Retained(Weak<Message>),
    /// Those that stand in line for the next turn go on.
    Turn,
    /// What is on its way to very many goes on.
    FanOut,
    /// What was dropped and only counted is to be told.
    TellDrops,
    /// The disk is to be told how far sessions are.
    Progress,
    /// The other shards are to be told how long the log is.
    Tail,
    /// Somebody is to look what has waited for too long.
    Retention,
    /// What waits from before the broker started is to be counted.
    RecoveryScan,
    /// `$SYS` is due.
    Sys,
    /// The lanes that are followed are due.
    Audit,
    /// The clocks of publishers' own lanes go on.
    Publishers,
    /// What was restored may begin.
    Revive,
    /// What all shards hold is to be looked at: this one holds more than its share.
    Memory,
    /// Something is to be asked for, though no input came to answer.
    Ask,
}

#[derive(Debug, Default)]
pub(crate) struct Timers {
    heap: BinaryHeap<Entry>,
    entries: u64,
    /// How many the last [`compact`](Self::compact) left.
    kept: usize,
}

impl Timers {
    pub(crate) fn set(&mut self, at: Instant, timer: Timer) {
        self.entries += 1;
        self.heap.push(Entry {
            at,
            number: self.entries,
            timer,
        });
    }

    pub(crate) fn next(&self) -> Option<Instant> {
        self.heap.peek().map(|entry| entry.at)
    }

    /// Whether the heap has grown so much that it is time to [`compact`](Self::compact) it.
    pub(crate) fn has_doubled(&self) -> bool {
        self.heap.len() > 2 * self.kept + COMPACT_FROM
    }

    /// Takes out what no longer matters.
    pub(crate) fn compact(&mut self, mut matters: impl FnMut(&Timer) -> bool) {
        self.heap.retain(|entry| matters(&entry.timer));
        self.heap.shrink_to(2 * self.heap.len() + COMPACT_FROM);
        self.kept = self.heap.len();
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.heap.len()
    }

    /// Takes a timer whose time has come.
    pub(crate) fn take_due(&mut self, now: Instant) -> Option<Timer> {
        if self.next()? > now {
            return None;
        }
        self.heap.pop().map(|entry| entry.timer)
    }
}

#[derive(Debug)]
struct Entry {
    at: Instant,
    /// Entries of one instant come up in the order they were set.
    number: u64,
    timer: Timer,
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.number).cmp(&(self.at, self.number)) // the heap has its greatest on top
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Entry {}

/// Fewer entries than this are not worth a look: about 50 KiB a shard.
const COMPACT_FROM: usize = 1_024;
