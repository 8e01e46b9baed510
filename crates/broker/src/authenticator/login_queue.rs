//! Passwords that wait for verification: a queue for each client address, served in turn.
//!
//! ```text
//!           refused: too many wait, would take too long, too many failures
//!              ▲
//! push ──▶ queue of its address ──▶ in turn ──▶ pop ──▶ finish(right): token back
//!                                   │     ▲             finish(wrong): token lost
//!                        no token   ▼     │ a token
//!                                  resting
//! ```
//!
//! Limits of length are dynamic thresholds (Choudhury and Hahne): one address may queue as much as
//! half of what is free. So one address alone gets a third of all, and a flood from some addresses
//! always leaves room for others.
//!
//! Invariants:
//! - An address with waiting requests is in `turns` or in `resting`, once; another is in neither.
//! - A request that was pushed is popped once, or removed, or past its deadline.
//! - `sources` is bounded: requests that wait, those being verified, and [`FAILED_LOGINS`].
//!
//! Deliberately absent: threads, a clock, and what a request is.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::mem;
use std::time::{Duration, Instant};

use super::failures::{self, FailureBucket};
use crate::bounds::{FAILED_LOGINS, WAITING_LOGIN_BYTES, WAITING_LOGINS};
use crate::source::Source;

#[derive(Debug)]
pub(super) struct LoginQueue<T> {
    threads: u32,
    sources: HashMap<Source, SourceQueue<T>>,
    turns: VecDeque<Source>,
    /// Addresses without a token, and when they have one.
    resting: BTreeSet<(Instant, Source)>,
    /// Addresses in debt of which nothing waits, and when they have none, as it was known then. An
    /// address may be in it several times; the last one counts.
    debts: VecDeque<(Instant, Source)>,
    /// Requests that were refused, or for which no client waits. Whoever holds the lock takes them
    /// out, and drops them behind it: one may own the queue itself.
    removed: Vec<T>,
    waiting: usize,
    bytes: usize,
    verifying: usize,
    /// Mean time of one verification; none before the first.
    mean: Option<Duration>,
}

#[derive(Debug)]
struct SourceQueue<T> {
    bucket: FailureBucket,
    waiting: VecDeque<Waiting<T>>,
    bytes: usize,
    place: Place,
}

impl<T> SourceQueue<T> {
    fn new(now: Instant) -> Self {
        Self {
            bucket: FailureBucket::full(now),
            waiting: VecDeque::new(),
            bytes: 0,
            place: Place::Idle,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    /// Nothing waits.
    Idle,
    InTurn,
    Resting(Instant),
}

#[derive(Debug)]
struct Waiting<T> {
    request: T,
    bytes: usize,
    /// The client does not wait longer.
    deadline: Instant,
}

/// Why a request is not queued.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Refusal {
    /// Too many wait already.
    Full,
    /// It would wait for longer than its client does.
    TooSlow,
    /// Its address has failed too often, and others of it wait already.
    TooManyFailures,
}

/// What a verifier does next.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next<T> {
    Verify(Source, T),
    /// Nothing before this time, or before the next push.
    Wait(Option<Instant>),
}

impl<T> LoginQueue<T> {
    pub(super) fn new(threads: usize) -> Self {
        Self {
            threads: u32::try_from(threads).unwrap_or(u32::MAX).max(1),
            sources: HashMap::new(),
            turns: VecDeque::new(),
            resting: BTreeSet::new(),
            debts: VecDeque::new(),
            removed: Vec::new(),
            waiting: 0,
            bytes: 0,
            verifying: 0,
            mean: None,
        }
    }

    /// Queues a request that holds so many bytes, of a client that waits for `timeout`.
    pub(super) fn push(
        &mut self,
        now: Instant,
        source: Source,
        (request, bytes): (T, usize),
        timeout: Duration,
    ) -> Result<(), Refusal> {
        self.remove_overdue(now, source);
        if let Some(refusal) = self.refusal(now, source, bytes, timeout) {
            self.removed.push(request);
            return Err(refusal);
        }
        let queue = self
            .sources
            .entry(source)
            .or_insert_with(|| SourceQueue::new(now));
        let deadline = now + timeout;
        queue.waiting.push_back(Waiting {
            request,
            bytes,
            deadline,
        });
        queue.bytes += bytes;
        self.waiting += 1;
        self.bytes += bytes;
        if queue.place == Place::Idle {
            queue.place = Place::InTurn;
            self.turns.push_back(source);
        }
        Ok(())
    }

    fn refusal(
        &self,
        now: Instant,
        source: Source,
        bytes: usize,
        timeout: Duration,
    ) -> Option<Refusal> {
        let queue = self.sources.get(&source);
        let (ahead, own_bytes) = queue.map_or((0, 0), |own| (own.waiting.len(), own.bytes));
        let free = WAITING_LOGINS - self.waiting;
        let free_bytes = WAITING_LOGIN_BYTES - self.bytes;
        if ahead >= free.div_ceil(2) || own_bytes + bytes > free_bytes.div_ceil(2) {
            return Some(Refusal::Full);
        }
        let interval = self.interval();
        let rest = queue.map_or(Duration::ZERO, |own| own.bucket.wait(now, interval));
        if !rest.is_zero() && rest + interval.saturating_mul(count(ahead)) > timeout {
            return Some(Refusal::TooManyFailures);
        }
        (self.wait(ahead) > timeout).then_some(Refusal::TooSlow)
    }

    /// Time until the verification of a request begins that has so many ahead of it in its own
    /// queue: each other queue is served as often. Zero while a thread is free, so that the mean is
    /// always measured anew.
    fn wait(&self, ahead: usize) -> Duration {
        let turns = (ahead + 1).saturating_mul(self.turns.len().max(1));
        let before = count(self.waiting.min(turns) + self.verifying);
        let before = before.saturating_sub(self.threads - 1);
        self.mean.unwrap_or_default().saturating_mul(before) / self.threads
    }

    /// Takes the next request.
    pub(super) fn pop(&mut self, now: Instant) -> Next<T> {
        self.forget_debts(now);
        self.wake_rested(now);
        let interval = self.interval();
        while let Some(source) = self.turns.pop_front() {
            self.remove_overdue(now, source);
            let Some(queue) = self.sources.get_mut(&source) else {
                continue;
            };
            queue.place = Place::Idle;
            if queue.waiting.is_empty() {
                self.settle(now, source);
                continue;
            }
            let rest = queue.bucket.wait(now, interval);
            if !rest.is_zero() {
                queue.place = Place::Resting(now + rest);
                self.resting.insert((now + rest, source));
                continue;
            }
            let Some(next) = queue.waiting.pop_front() else {
                continue;
            };
            queue.bucket.take(now, interval);
            queue.bytes -= next.bytes;
            self.waiting -= 1;
            self.bytes -= next.bytes;
            self.verifying += 1;
            if !queue.waiting.is_empty() {
                queue.place = Place::InTurn;
                self.turns.push_back(source);
            }
            return Next::Verify(source, next.request);
        }
        Next::Wait(self.resting.first().map(|(at, _)| *at))
    }

    /// A request that was popped is decided. `took`: how long its hash took, if there was one.
    pub(super) fn finish(
        &mut self,
        now: Instant,
        source: Source,
        is_right: bool,
        took: Option<Duration>,
    ) {
        self.verifying = self.verifying.saturating_sub(1);
        if let Some(took) = took {
            self.record(took);
        }
        let interval = self.interval();
        if is_right && let Some(queue) = self.sources.get_mut(&source) {
            queue.bucket.give_back(interval);
            if let Place::Resting(at) = queue.place {
                queue.place = Place::InTurn;
                self.resting.remove(&(at, source));
                self.turns.push_back(source);
            }
        }
        self.settle(now, source);
    }

    /// Whether an address has a token for a failure that is decided without the queue.
    pub(super) fn may_fail(&self, now: Instant, source: Source) -> bool {
        let queue = self.sources.get(&source);
        queue.is_none_or(|queue| queue.bucket.wait(now, self.interval()).is_zero())
    }

    /// Charges such a failure.
    pub(super) fn note_failure(&mut self, now: Instant, source: Source) {
        let interval = self.interval();
        let queue = self
            .sources
            .entry(source)
            .or_insert_with(|| SourceQueue::new(now));
        queue.bucket.take(now, interval);
        self.settle(now, source);
    }

    /// Removes the first waiting request of this address that `is_it`.
    pub(super) fn remove(&mut self, source: Source, is_it: impl Fn(&T) -> bool) -> Option<T> {
        let queue = self.sources.get_mut(&source)?;
        let position = queue.waiting.iter().position(|it| is_it(&it.request))?;
        let removed = queue.waiting.remove(position)?;
        queue.bytes -= removed.bytes;
        self.waiting -= 1;
        self.bytes -= removed.bytes;
        Some(removed.request)
    }

    /// What was removed since the last time.
    pub(super) fn take_removed(&mut self) -> Vec<T> {
        mem::take(&mut self.removed)
    }

    /// Removes from the front of a queue what no client waits for.
    fn remove_overdue(&mut self, now: Instant, source: Source) {
        let Some(queue) = self.sources.get_mut(&source) else {
            return;
        };
        while let Some(first) = queue.waiting.pop_front_if(|first| first.deadline <= now) {
            queue.bytes -= first.bytes;
            self.waiting -= 1;
            self.bytes -= first.bytes;
            self.removed.push(first.request);
        }
    }

    fn wake_rested(&mut self, now: Instant) {
        while let Some(&(at, source)) = self.resting.first()
            && at <= now
        {
            self.resting.pop_first();
            if let Some(queue) = self.sources.get_mut(&source) {
                queue.place = Place::InTurn;
                self.turns.push_back(source);
            }
        }
    }

    /// Forgets an address of which nothing waits, at once or when its failures are paid for.
    fn settle(&mut self, now: Instant, source: Source) {
        let Some(queue) = self.sources.get(&source) else {
            return;
        };
        if queue.place != Place::Idle {
            return;
        }
        if queue.bucket.full_at() <= now {
            self.sources.remove(&source);
        } else {
            self.debts.push_back((queue.bucket.full_at(), source));
            self.forget_debts(now);
        }
    }

    /// Forgets debts that are paid, and the oldest if there are too many.
    fn forget_debts(&mut self, now: Instant) {
        while let Some(&(at, source)) = self.debts.front()
            && (at <= now || self.debts.len() > FAILED_LOGINS)
        {
            self.debts.pop_front();
            if let Some(queue) = self.sources.get(&source)
                && queue.place == Place::Idle
                && queue.bucket.full_at() <= at.max(now)
            {
                self.sources.remove(&source);
            }
        }
    }

    /// The time between two tokens of an address.
    fn interval(&self) -> Duration {
        failures::interval(self.mean.unwrap_or_default())
    }

    /// Adds a measurement. Hashes differ, and the thread may have waited for a core, so a mean is
    /// kept.
    fn record(&mut self, took: Duration) {
        let before = self.mean.unwrap_or(took);
        self.mean = Some((before * (MEAN_SAMPLES - 1) + took) / MEAN_SAMPLES);
    }
}

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// The mean is roughly of so many verifications.
const MEAN_SAMPLES: u32 = 8;

#[cfg(test)]
mod tests;
