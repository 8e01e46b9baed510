use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

/// A token bucket as the textbook has it, in exact fractions of a unit: the reference model.
struct Naive {
    per_second: u128,
    /// Units that are there, in billionths; less than nothing is debt.
    level: i128,
    at: Duration,
}

impl Naive {
    fn new(per_second: u32) -> Self {
        Self {
            per_second: per_second.into(),
            level: i128::from(per_second) * NANOS.cast_signed(),
            at: Duration::ZERO,
        }
    }

    /// Takes so many units; answers how long they wait, in nanoseconds.
    fn take(&mut self, now: Duration, count: u64) -> u128 {
        let come = now.saturating_sub(self.at).as_nanos() * self.per_second;
        let full = self.per_second * NANOS;
        self.level = (self.level + come.cast_signed()).min(full.cast_signed());
        self.level -= i128::from(count) * NANOS.cast_signed();
        self.at = now;
        let debt = u128::try_from(-self.level).unwrap_or(0);
        debt.div_ceil(self.per_second)
    }
}

#[expect(clippy::disallowed_methods, reason = "a test's epoch")]
fn start() -> Instant {
    Instant::now()
}

fn scope(limits: RateLimits, start: Instant) -> Arc<RateScope> {
    Arc::new(RateScope::new(0, "a rate".into(), limits, start))
}

fn messages(per_second: u32) -> RateLimits {
    RateLimits {
        messages_per_second: Some(per_second),
        ..RateLimits::default()
    }
}

fn rates(scopes: &[&Arc<RateScope>], now: Instant) -> Rates {
    Rates::new(scopes.iter().map(|scope| scope.join()).collect(), now)
}

proptest! {
    /// A bucket is a unit more generous at most, and never less so.
    #[test]
    fn a_bucket_waits_as_its_reference_model_does(
        per_second in 1..2_000_000_000u32,
        steps in vec((0..3_000_000_000u64, 0..5_000_000u64), 1..60),
    ) {
        let (bucket, mut naive) = (Bucket::new(per_second), Naive::new(per_second));
        let mut now = Duration::ZERO;
        for (nanos, count) in steps {
            now += Duration::from_nanos(nanos);
            let due = bucket.take(now, count);
            let waits = due.map_or(0, |due| due.saturating_sub(now).as_nanos());
            let expected = naive.take(now, count);
            let unit = NANOS.div_ceil(per_second.into());
            prop_assert!(waits <= expected, "{waits} ns instead of {expected}");
            prop_assert!(waits + unit >= expected, "{waits} ns instead of {expected}");
        }
    }

    /// Whatever comes, no time sees more than it is worth and one second's worth.
    #[test]
    fn no_window_lets_through_more_than_its_worth(
        per_second in 1..50u32,
        pauses in vec(0..400_000_000u64, 1..120),
    ) {
        let bucket = Bucket::new(per_second);
        let mut now = Duration::ZERO;
        let mut through: Vec<Duration> = Vec::new();
        for nanos in pauses {
            now += Duration::from_nanos(nanos);
            let at = bucket.take(now, 1).unwrap_or(now);
            prop_assert!(through.last().is_none_or(|last| *last <= at), "out of order");
            through.push(at);
        }
        for (first, begin) in through.iter().enumerate() {
            for (last, end) in through.iter().enumerate().skip(first) {
                let count = (last - first + 1) as u128;
                let worth = end.saturating_sub(*begin).as_nanos() * u128::from(per_second) / NANOS;
                prop_assert!(count <= worth + u128::from(per_second) + 2);
            }
        }
    }
}

#[test]
fn those_that_wait_for_one_bucket_get_their_turns_one_by_one() {
    let start = start();
    let shared = scope(messages(10), start);
    let mut clients = [0, 1, 2].map(|_| rates(&[&shared], start));
    for client in &mut clients {
        for _ in 0..3 {
            assert!(client.take_message(start));
        }
    }
    assert!(clients[0].take_message(start), "ten in the first second");
    let ends = clients.each_mut().map(|client| {
        assert!(!client.take_message(start));
        client.next_look(None).unwrap() - start
    });
    assert_eq!(ends, [100, 200, 300].map(Duration::from_millis));
    let now = start + Duration::from_millis(100);
    assert!(matches!(clients[0].end_pause(now, None), PauseEnd::Over));
    assert!(clients[0].take_message(now), "its turn was granted");
    assert!(!clients[0].take_message(now));
    assert!(matches!(
        clients[1].end_pause(now, None),
        PauseEnd::Later(at) if at == start + Duration::from_millis(200)
    ));
}

#[test]
fn all_rates_of_a_connection_must_have_room() {
    let start = start();
    let (wide, narrow) = (scope(messages(100), start), scope(messages(1), start));
    let mut client = rates(&[&wide, &narrow], start);
    assert!(client.take_message(start));
    assert!(!client.take_message(start));
    assert_eq!(client.next_look(None), Some(start + Duration::from_secs(1)));
    let mut other = rates(&[&wide], start);
    assert!(other.take_message(start));
}

#[test]
fn patience_is_lost_while_paused_and_regained_while_not() {
    let start = start();
    let at = |ms| start + Duration::from_millis(ms);
    let patience = Some(Duration::from_millis(2_500));
    let mut client = rates(&[&scope(messages(1), start)], start);
    assert!(client.take_message(start));
    let mut ends = Vec::new();
    for second in 0..3 {
        let now = at(1_000 * second);
        assert!(!client.take_message(now));
        let look = client.next_look(patience).unwrap();
        ends.push(look - start);
        match client.end_pause(look, patience) {
            PauseEnd::Over => assert!(client.take_message(look)),
            PauseEnd::Impatient(fault) => {
                assert_eq!(fault.reason, ReasonCode::MessageRateTooHigh);
                assert!(fault.detail.contains("messages_per_second of a rate"));
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(ends, [1_000, 2_000, 2_500].map(Duration::from_millis));

    let mut client = rates(&[&scope(messages(1), start)], start);
    assert!(client.take_message(start));
    for round in 0..20 {
        let now = at(2_000 * round);
        assert!(!client.take_message(now), "the bucket is empty");
        let now = now + Duration::from_secs(1);
        assert!(matches!(client.end_pause(now, patience), PauseEnd::Over));
        assert!(client.take_message(now));
        // It takes what has come in a second of silence, and is paused in front of the next.
        assert!(client.take_message(now + Duration::from_secs(1)));
    }
}

#[test]
fn bytes_beyond_the_rate_wait_until_they_are_paid_for() {
    let start = start();
    let limits = RateLimits {
        bytes_per_second: Some(1_000),
        ..RateLimits::default()
    };
    let mut client = rates(&[&scope(limits, start)], start);
    assert!(client.take_bytes(start, 1_000));
    assert!(client.take_message(start), "messages have no limit");
    assert!(!client.take_bytes(start, 500));
    assert!(
        !client.take_bytes(start, 250),
        "those that were read already"
    );
    let until = start + Duration::from_millis(750);
    assert_eq!(client.next_look(None), Some(until));
    match client.end_pause(start, Some(Duration::ZERO)) {
        PauseEnd::Impatient(fault) => assert_eq!(fault.reason, ReasonCode::QuotaExceeded),
        other => panic!("{other:?}"),
    }
    assert!(matches!(client.end_pause(until, None), PauseEnd::Over));
}

#[test]
fn connections_beyond_a_limit_are_refused_and_places_come_back() {
    let start = start();
    let limits = RateLimits {
        max_connections: Some(2),
        connections_per_second: Some(3),
        ..RateLimits::default()
    };
    let scope = scope(limits, start);
    let (first, second) = (scope.enter(false).unwrap(), scope.enter(false).unwrap());
    let refusal = scope.enter(false).unwrap_err();
    assert_eq!(refusal.reason, ReasonCode::QuotaExceeded);
    let third = scope.enter(true).expect("it takes the place of another");
    assert!(scope.enter(true).is_err(), "which one connection does");
    drop((second, third));
    assert!(scope.enter(false).is_ok());
    assert!((0..3).all(|_| first.admit(start).is_ok()));
    let refusal = first.admit(start).unwrap_err();
    assert_eq!(refusal.reason, ReasonCode::ConnectionRateExceeded);
    let later = start + Duration::from_millis(334);
    assert!(first.admit(later).is_ok() && first.admit(later).is_err());
    assert!(
        !scope.is_idle(later + Duration::from_secs(9)),
        "one is open"
    );
    drop(first);
    assert!(!scope.is_idle(later), "the bucket is not full");
    assert!(scope.is_idle(later + Duration::from_secs(9)));
}

#[test]
fn what_a_connection_took_in_advance_is_given_back_when_it_ends() {
    let start = start();
    let limits = RateLimits {
        bytes_per_second: Some(1_000),
        messages_per_second: Some(1),
        ..RateLimits::default()
    };
    let shared = scope(limits, start);
    for _ in 0..100 {
        let mut client = rates(&[&shared], start);
        assert!(!client.take_bytes(start, 3_000));
        client.take_message(start);
    }
    let mut other = rates(&[&shared], start);
    assert!(other.take_bytes(start, 1_000), "nothing of it was used");
    let mut paid = rates(&[&shared], start);
    assert!(!paid.take_bytes(start, 500));
    let later = start + Duration::from_secs(1);
    assert!(matches!(paid.end_pause(later, None), PauseEnd::Over));
    drop(paid);
    assert!(!shared.is_idle(later), "what was used stays paid");
}

#[test]
fn a_connection_that_is_refused_elsewhere_uses_up_no_rate() {
    let start = start();
    let limits = RateLimits {
        connections_per_second: Some(1),
        ..RateLimits::default()
    };
    let place = scope(limits, start).enter(false).unwrap();
    assert!(place.admit(start).is_ok());
    place.take_back();
    assert!(place.admit(start).is_ok());
    assert!(place.admit(start).is_err());
}
