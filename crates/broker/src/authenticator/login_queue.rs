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
use std::time::{Duration, Instant};

use super::failures::{self, FailureBucket, Source};
use crate::bounds::{FAILED_LOGINS, WAITING_LOGIN_BYTES, WAITING_LOGINS};

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
        self.drop_overdue(now, source);
        if let Some(refusal) = self.refusal(now, source, bytes, timeout) {
            return Err(refusal);
        }
        let queue = self.sources.entry(source).or_insert_with(|| SourceQueue {
            bucket: FailureBucket::full(now),
            waiting: VecDeque::new(),
            bytes: 0,
            place: Place::Idle,
        });
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
            self.drop_overdue(now, source);
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

    /// Drops from the front of a queue what no client waits for.
    fn drop_overdue(&mut self, now: Instant, source: Source) {
        let Some(queue) = self.sources.get_mut(&source) else {
            return;
        };
        while let Some(first) = queue.waiting.pop_front_if(|first| first.deadline <= now) {
            queue.bytes -= first.bytes;
            self.waiting -= 1;
            self.bytes -= first.bytes;
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
mod tests {
    use super::*;
    use crate::bounds::{FAILED_LOGIN_INTERVAL, FAILED_LOGINS_AT_ONCE};

    const TIMEOUT: Duration = Duration::from_secs(10);

    /// One thread, and a clock that the test drives.
    struct Clock {
        queue: LoginQueue<u32>,
        now: Instant,
    }

    impl Clock {
        fn new(threads: usize) -> Self {
            Self {
                queue: LoginQueue::new(threads),
                now: Instant::now(),
            }
        }

        fn push(&mut self, source: Source, request: u32) -> Result<(), Refusal> {
            self.queue.push(self.now, source, (request, 100), TIMEOUT)
        }

        fn pop(&mut self) -> Option<(Source, u32)> {
            match self.queue.pop(self.now) {
                Next::Verify(source, request) => Some((source, request)),
                Next::Wait(_) => None,
            }
        }

        /// Verifies so many requests, all right or all wrong.
        fn verify(&mut self, most: usize, is_right: bool) -> Vec<u32> {
            let mut verified = Vec::new();
            while verified.len() < most
                && let Some((source, request)) = self.pop()
            {
                self.queue.finish(self.now, source, is_right, None);
                verified.push(request);
            }
            verified
        }

        #[track_caller]
        fn check(&self) {
            let queue = &self.queue;
            let waiting = queue.sources.values().map(|it| it.waiting.len());
            assert_eq!(waiting.sum::<usize>(), queue.waiting);
            assert_eq!(queue.waiting * 100, queue.bytes);
            let active = queue.turns.len() + queue.resting.len();
            let places = queue.sources.values().filter(|it| it.place != Place::Idle);
            assert_eq!(places.count(), active);
            assert!(queue.debts.len() <= FAILED_LOGINS);
        }
    }

    fn source(number: u16) -> Source {
        Source::V6([number, 0, 0, 0])
    }

    #[test]
    fn addresses_are_served_in_turn() {
        let mut clock = Clock::new(1);
        for request in 0..5 {
            clock.push(source(1), request).unwrap();
        }
        clock.push(source(2), 20).unwrap();
        clock.push(source(3), 30).unwrap();
        clock.push(source(3), 31).unwrap();
        assert_eq!(clock.verify(99, true), [0, 20, 30, 1, 31, 2, 3, 4]);
        clock.check();
        assert!(clock.queue.sources.is_empty());
    }

    #[test]
    fn an_address_that_fails_too_often_waits_and_others_do_not() {
        let mut clock = Clock::new(1);
        let burst = FAILED_LOGINS_AT_ONCE as usize;
        for request in 0..burst + 3 {
            clock.push(source(1), count(request)).unwrap();
        }
        assert_eq!(clock.verify(99, false).len(), burst);
        clock.push(source(2), 200).unwrap();
        assert_eq!(clock.verify(99, true), [200]);
        let until = clock.now + FAILED_LOGIN_INTERVAL;
        assert_eq!(clock.queue.pop(clock.now), Next::Wait(Some(until)));
        for _ in 0..3 {
            clock.now += FAILED_LOGIN_INTERVAL;
            assert_eq!(clock.verify(99, false).len(), 1);
            clock.check();
        }
        assert_eq!(clock.queue.pop(clock.now), Next::Wait(None));
    }

    #[test]
    fn right_passwords_of_an_address_without_tokens_go_on_once_it_has_one() {
        let mut clock = Clock::new(1);
        for request in 0..FAILED_LOGINS_AT_ONCE + 30 {
            clock.push(source(1), request).unwrap();
        }
        clock.verify(FAILED_LOGINS_AT_ONCE as usize, false);
        assert_eq!(clock.verify(99, true), [0; 0]);
        clock.now += FAILED_LOGIN_INTERVAL;
        assert_eq!(clock.verify(99, true).len(), 30);
        clock.check();
    }

    #[test]
    fn verifications_at_the_same_time_do_not_exceed_the_rate() {
        let mut clock = Clock::new(1000);
        let burst = FAILED_LOGINS_AT_ONCE;
        for request in 0..burst + 2 {
            clock.push(source(1), request).unwrap();
        }
        let begun: Vec<_> = (0..burst + 2).map_while(|_| clock.pop()).collect();
        assert_eq!(begun.len(), burst as usize);
        let (now, took) = (clock.now, Some(Duration::from_millis(30)));
        clock.queue.finish(now, begun[0].0, true, took);
        assert!(clock.pop().is_some(), "its token came back");
        assert!(clock.pop().is_none());
        clock.check();
    }

    #[test]
    fn while_an_address_waits_for_tokens_its_queue_is_as_short_as_its_clients_wait() {
        let mut clock = Clock::new(1);
        for request in 0..FAILED_LOGINS_AT_ONCE {
            clock.push(source(1), request).unwrap();
        }
        clock.verify(99, false);
        let answers: Vec<_> = (0..60).map(|n| clock.push(source(1), n)).collect();
        let most = usize::try_from(TIMEOUT.as_millis() / FAILED_LOGIN_INTERVAL.as_millis());
        let queued = answers.iter().filter(|answer| answer.is_ok()).count();
        assert_eq!(Ok(queued), most);
        assert_eq!(answers.last(), Some(&Err(Refusal::TooManyFailures)));
        assert_eq!(clock.push(source(2), 0), Ok(()));
    }

    #[test]
    fn one_address_gets_a_third_of_the_queue_and_a_flood_of_some_leaves_room() {
        let mut clock = Clock::new(1);
        let fill = |clock: &mut Clock, number| {
            let mut pushed = 0;
            while clock.push(source(number), 0).is_ok() {
                pushed += 1;
            }
            assert_eq!(clock.push(source(number), 0), Err(Refusal::Full));
            pushed
        };
        let first = fill(&mut clock, 1);
        assert!((WAITING_LOGINS / 3..=WAITING_LOGINS / 3 + 1).contains(&first));
        for number in 2..9 {
            assert!(fill(&mut clock, number) > 0);
        }
        assert_eq!(clock.push(source(100), 0), Ok(()));
        // At the very end each address has one place, while there is one.
        let places = (101..u16::MAX).take_while(|n| clock.push(source(*n), 0).is_ok());
        assert!(places.count() > 10);
        assert_eq!(clock.queue.waiting, WAITING_LOGINS);
        assert_eq!(clock.push(source(99), 0), Err(Refusal::Full));
        clock.check();
    }

    #[test]
    fn long_passwords_are_bounded_in_bytes() {
        let mut clock = Clock::new(1);
        let long = 128 * 1024;
        let mut pushed = 0;
        while clock
            .queue
            .push(clock.now, source(1), (0, long), TIMEOUT)
            .is_ok()
        {
            pushed += 1;
        }
        assert!(pushed * long <= WAITING_LOGIN_BYTES / 3 + long, "{pushed}");
        assert_eq!(clock.push(source(2), 0), Ok(()));
    }

    #[test]
    fn requests_past_their_deadline_are_dropped_and_do_not_count() {
        let mut clock = Clock::new(1);
        clock.queue.record(Duration::from_secs(3));
        let answers: Vec<_> = (0..6).map(|n| clock.push(source(1), n)).collect();
        let slow = Err(Refusal::TooSlow);
        assert_eq!(answers, [Ok(()), Ok(()), Ok(()), Ok(()), slow, slow]);
        clock.now += Duration::from_secs(9);
        assert_eq!(clock.push(source(1), 6), slow);
        clock.now += Duration::from_secs(1);
        assert_eq!(clock.push(source(1), 7), Ok(()));
        assert_eq!(clock.verify(99, true), [7]);
        clock.check();
    }

    #[test]
    fn an_address_that_waits_little_is_not_delayed_by_the_queue_of_another() {
        let mut clock = Clock::new(1);
        clock.queue.record(Duration::from_secs(1));
        while clock.push(source(1), 0).is_ok() {}
        assert_eq!(clock.push(source(1), 0), Err(Refusal::TooSlow));
        assert_eq!(clock.push(source(2), 1), Ok(()));
        assert_eq!(clock.verify(2, true), [0, 1]);
    }

    #[test]
    fn one_verification_that_took_long_is_soon_forgotten() {
        for mean in [Duration::from_millis(1), Duration::from_micros(1)] {
            let mut clock = Clock::new(1);
            clock.push(source(1), 0).unwrap();
            clock.queue.record(Duration::from_mins(1));
            for _ in 0..250 {
                clock.queue.record(mean);
            }
            assert!(clock.queue.wait(0) < 2 * mean, "{:?}", clock.queue);
        }
    }

    #[test]
    fn a_removed_request_is_not_verified_and_frees_its_place() {
        let mut clock = Clock::new(1);
        for request in 0..3 {
            clock.push(source(1), request).unwrap();
        }
        assert_eq!(
            clock.queue.remove(source(1), |request| *request == 1),
            Some(1)
        );
        assert_eq!(clock.queue.remove(source(1), |request| *request == 1), None);
        assert_eq!(clock.queue.remove(source(2), |_| true), None);
        clock.check();
        assert_eq!(clock.verify(99, true), [0, 2]);
    }

    #[test]
    fn failures_of_very_many_addresses_are_bounded_and_forgotten() {
        let mut clock = Clock::new(1);
        for number in 0..FAILED_LOGINS + 1000 {
            let halves = [number >> 16, number & 0xffff].map(|half| u16::try_from(half).unwrap());
            let source = Source::V6([halves[0], halves[1], 0, 1]);
            clock.push(source, 0).unwrap();
            clock.verify(1, false);
        }
        clock.check();
        assert!(clock.queue.sources.len() <= FAILED_LOGINS);
        clock.now += FAILED_LOGIN_INTERVAL;
        assert_eq!(clock.queue.pop(clock.now), Next::Wait(None));
        assert!(
            clock.queue.sources.is_empty(),
            "{}",
            clock.queue.sources.len()
        );
    }
}
