//! A clock that the test drives, and one thread.

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
fn failures_without_the_queue_cost_the_same_tokens() {
    let mut clock = Clock::new(1);
    for _ in 0..FAILED_LOGINS_AT_ONCE {
        assert!(clock.queue.may_fail(clock.now, source(1)));
        clock.queue.note_failure(clock.now, source(1));
    }
    assert!(!clock.queue.may_fail(clock.now, source(1)));
    clock.push(source(1), 0).unwrap();
    assert_eq!(clock.verify(9, true), [0; 0]);
    clock.now += FAILED_LOGIN_INTERVAL;
    assert!(clock.queue.may_fail(clock.now, source(1)));
    assert_eq!(clock.verify(9, true), [0]);
    clock.check();
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
