//! How long messages may wait, and which go when the store is full.
//!
//! ```text
//! every log:  ... released | wait for an overdue session ........ wait for others ... end
//!                          ^ needed: nothing above it can be trimmed
//! ```
//!
//! A log is trimmed up to what the slowest session needs, so one device that never comes back would
//! keep everything that came since. Three limits end that: what waits for a session beyond its
//! count and bytes is dropped, and what is older than `queue_age_max_s`, and when the store is at
//! `store_bytes_max` the oldest eighth of what waits is released, if that is the configured answer
//! and not values alone fill it.
//!
//! Sessions that have something to drop are *overdue*. Each drops what waits in memory, then reads
//! its logs from where it is to the first message that it may keep, and drops those before by name.
//! So it costs what is dropped, and nothing is dropped that was not looked at.
//!
//! Invariants:
//! - What is dropped is a [`DropReason`], counted and reported, as everywhere.
//! - What a client was sent is its own until its connection ends [MQTT-4.4.0-1]. So a client that
//!   does not acknowledge what is released is disconnected, if the store is still full when the
//!   driver says so the next time.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::{Duration, Instant};

use crate::ids::{ConnectionId, LogId, SessionId};
use crate::limits::{Limits, StoreFull};
use crate::message::Message;
use crate::position::{Frontier, Position};
use crate::reason::DropReason;
use crate::telemetry::CommitTimes;

/// Which sessions are to drop something, and what of the logs.
#[derive(Debug, Default)]
pub(crate) struct Retention {
    overdue: VecDeque<SessionId>,
    /// The store is at its limit.
    store_is_full: bool,
    /// Releasing messages would not help: its values alone are at the limit, or what would be
    /// released stays on a disk that has no room.
    nothing_is_gained: bool,
    /// The disk lacks the space that the store needs to take in more.
    disk_lacks_space: bool,
    /// What is within is dropped, to make room.
    released: Frontier,
    /// Over these some of that was in flight when it was released.
    holders: Vec<ConnectionId>,
    /// [`Timer::Retention`](crate::timers::Timer) is set.
    is_scheduled: bool,
}

/// How large the store is, and which part of it no shard needs.
#[derive(Clone, Debug)]
pub struct StoreSize {
    /// Bytes of what is kept in it: messages that were not trimmed, and values.
    pub bytes: u64,
    /// Of these, bytes of values.
    pub values: u64,
    /// Of `bytes`, what letting go of messages takes off no disk: values, and what lies in the
    /// newest part of a log.
    pub staying: u64,
    /// The most bytes that the disk, as full as it is, has room to keep. It counts where it is less
    /// than `store_bytes_max`; `u64::MAX` if unknown.
    pub room: u64,
    /// Up to where no shard needs each log: the lowest of what all of them have
    /// [said](crate::Shard::needed).
    pub needed: Frontier,
    /// Numbers that no message of a log has, of each log in ascending order.
    pub left_out: Vec<(LogId, Range<u64>)>,
    /// How long commits took since this was last said, if there were any.
    pub commits: Option<Box<CommitTimes>>,
}

/// What waits for a session.
#[derive(Clone, Copy)]
pub(crate) struct Waiting<'a> {
    pub(crate) message: &'a Message,
    /// It is sent as retained: it has not waited here since it was published.
    pub(crate) retain: bool,
    /// Its session is persistent, so that it holds on to the log.
    pub(crate) durable: bool,
}

impl Retention {
    /// Publishers are refused: the disk lacks space, or the store is at its limit and so the limits
    /// say, or nothing else helps.
    pub(crate) fn refuses(&self, limits: &Limits) -> bool {
        self.disk_lacks_space || self.is_at_limit_to_refuse(limits)
    }

    fn is_at_limit_to_refuse(&self, limits: &Limits) -> bool {
        let is_refused = limits.store_full == StoreFull::Refuse || self.nothing_is_gained;
        self.store_is_full && is_refused
    }

    /// Notes whether the disk lacks space. Messages go on being released meanwhile.
    pub(crate) fn note_disk_space(&mut self, lacks: bool) {
        self.disk_lacks_space = lacks;
    }

    /// Messages are dropped, to make room.
    pub(crate) fn releases(&self) -> bool {
        self.released.iter().next().is_some()
    }

    /// Whether this message is dropped, to make room.
    pub(crate) fn has_released(&self, position: Position) -> bool {
        self.released.covers(position)
    }

    /// Whether a message is dropped, to make room, of those that are not within `needs`.
    pub(crate) fn has_released_beyond(&self, needs: &Frontier) -> bool {
        !needs.reaches(&self.released)
    }

    /// Why this may not wait any longer, if so.
    pub(crate) fn outstayed(
        &self,
        limits: &Limits,
        now: Instant,
        waiting: Waiting<'_>,
    ) -> Option<DropReason> {
        let message = waiting.message;
        let stamp = message.publication().stamp;
        let position = message.position().filter(|_| waiting.durable);
        if !waiting.retain && is_too_old(limits, now, stamp) {
            Some(DropReason::TooOld)
        } else if position.is_some_and(|position| self.has_released(position)) {
            Some(DropReason::StoreFull)
        } else {
            None
        }
    }

    /// Notes how large the store is. Answers whether messages are to be released.
    pub(crate) fn note_size(&mut self, limits: &Limits, size: &StoreSize) -> bool {
        let (most, room) = (limits.store_bytes_max, size.room);
        self.store_is_full = size.bytes >= most.min(room);
        self.nothing_is_gained = size.values >= most || size.bytes >= room && size.staying >= room;
        let is_full = self.store_is_full && !self.is_at_limit_to_refuse(limits);
        if !is_full {
            self.holders.clear();
            self.released = Frontier::new();
        }
        is_full
    }

    /// Releases the oldest part of what waits in each log up to its end.
    pub(crate) fn release(&mut self, ends: &Frontier, size: &StoreSize) {
        for (log, end) in ends.iter() {
            let left_out = size.left_out.iter().filter(|(of, _)| *of == log);
            let waiting = size.needed.of(log) + 1..end + 1;
            let number = oldest_part(waiting, left_out.map(|(_, range)| range));
            self.released.raise(Position { log, number });
        }
    }

    /// Takes the connections over which something was in flight when it was released.
    pub(crate) fn take_holders(&mut self) -> Vec<ConnectionId> {
        std::mem::take(&mut self.holders)
    }

    pub(crate) fn set_holders(&mut self, holders: Vec<ConnectionId>) {
        self.holders = holders;
    }

    /// In how long sessions are to be looked at, if that is not scheduled.
    pub(crate) fn schedule(&mut self, limits: &Limits) -> Option<Duration> {
        let every = (age_max(limits) / LOOKS).clamp(LOOK_AT_MOST_EVERY, LOOK_AT_LEAST_EVERY);
        let was_scheduled = std::mem::replace(&mut self.is_scheduled, true);
        (!was_scheduled).then_some(every)
    }

    /// The time has come that was scheduled. Answers whether sessions are to be looked at.
    pub(crate) fn begin(&mut self) -> bool {
        self.is_scheduled = false;
        self.overdue.is_empty()
    }

    pub(crate) fn set_overdue(&mut self, sessions: VecDeque<SessionId>) {
        self.overdue = sessions;
    }

    pub(super) fn next_overdue(&mut self) -> Option<SessionId> {
        self.overdue.pop_front()
    }
}

/// The last number of the oldest part of these, by how many messages there are. Where numbers are
/// left out there are none, and there may be far more of those than of messages.
fn oldest_part<'a>(
    numbers: Range<u64>,
    left_out: impl Iterator<Item = &'a Range<u64>> + Clone,
) -> u64 {
    let without = left_out.map(|range| {
        let within = range.start.max(numbers.start)..range.end.min(numbers.end);
        (within.start, within.end.saturating_sub(within.start))
    });
    let missing: u64 = without.clone().map(|(_, count)| count).sum();
    let messages = numbers.end.saturating_sub(numbers.start + missing);
    let mut last = numbers.start - 1 + messages.div_ceil(RELEASED_PARTS);
    for (start, count) in without {
        if start <= last {
            last += count;
        }
    }
    last
}

pub(crate) fn is_too_old(limits: &Limits, now: Instant, stamp: Instant) -> bool {
    now.saturating_duration_since(stamp) > age_max(limits)
}

fn age_max(limits: &Limits) -> Duration {
    match limits.queue_age_max_s {
        u32::MAX => Duration::MAX,
        seconds => Duration::from_secs(seconds.into()),
    }
}

/// At the limit of the store one part in so many of what waits is released, each time that the
/// driver says that it is still there.
const RELEASED_PARTS: u64 = 8;
/// How often sessions are looked at in the time that messages may wait, within bounds.
const LOOKS: u32 = 16;
const LOOK_AT_MOST_EVERY: Duration = Duration::from_secs(1);
const LOOK_AT_LEAST_EVERY: Duration = Duration::from_secs(10);
