//! The broker's clock as time of day.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// One moment by both clocks: what was stored by one is told by the other. The broker's clock
/// stands still while the machine sleeps, and the time of day may be set; so what is far from this
/// moment is told wrong, and each turn takes its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    instant: Instant,
    since_1970: Duration,
}

impl Times {
    /// This moment by the broker's clock is this one by time of day.
    pub fn new(instant: Instant, time: SystemTime) -> Self {
        Self {
            instant,
            since_1970: time.duration_since(UNIX_EPOCH).unwrap_or_default(),
        }
    }

    /// Whether this is that moment by the broker's clock.
    pub fn is_of(&self, now: Instant) -> bool {
        self.instant == now
    }

    /// Milliseconds since 1970; 0 for what was before.
    pub fn ms(&self, at: Instant) -> u64 {
        let time = match at.checked_duration_since(self.instant) {
            Some(later) => self.since_1970.saturating_add(later),
            None => self.since_1970.saturating_sub(self.instant - at),
        };
        u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
    }

    /// The moment by the broker's clock; as far back as that goes.
    pub fn instant(&self, ms: u64) -> Instant {
        let time = Duration::from_millis(ms);
        let later = self
            .instant
            .checked_add(time.saturating_sub(self.since_1970));
        let earlier = self.since_1970.saturating_sub(time);
        let moment = later.and_then(|moment| moment.checked_sub(earlier));
        moment.unwrap_or(self.instant)
    }

    /// How long ago this was at `now`; nothing if it is still to come, or if nobody knows.
    pub fn since(&self, ms: u64, now: Instant) -> Duration {
        if self.is_unknown(ms) {
            return Duration::ZERO;
        }
        Duration::from_millis(self.ms(now).saturating_sub(ms))
    }

    /// When a message came, and when it expires if it does. One that came nobody knows when has all
    /// of its interval from here on.
    pub fn stay(&self, came_ms: u64, expires_ms: Option<u64>) -> (Instant, Option<Instant>) {
        if !self.is_unknown(came_ms) {
            return (self.instant(came_ms), expires_ms.map(|ms| self.instant(ms)));
        }
        let here = self.ms(self.instant);
        let expires = expires_ms.map(|ms| here.saturating_add(ms.saturating_sub(came_ms)));
        (self.instant, expires.map(|ms| self.instant(ms)))
    }

    /// Whether an earlier run wrote this before its machine knew the time of day, as one without a
    /// battery does when it starts, and this one knows it.
    fn is_unknown(&self, ms: u64) -> bool {
        ms < CLOCK_IS_SET_MS && self.ms(self.instant) >= CLOCK_IS_SET_MS
    }
}

/// No broker wrote a store before 2025.
const CLOCK_IS_SET_MS: u64 = 1_735_689_600_000;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    #[test]
    fn a_moment_comes_back_to_the_millisecond() {
        let start = Instant::now() + Duration::from_secs(1_000);
        let times = Times::new(start, UNIX_EPOCH + Duration::from_secs(1_790_000_000));
        for at in [
            start,
            start + Duration::from_millis(1_500),
            start.checked_sub(Duration::from_millis(900)).unwrap(),
        ] {
            assert_eq!(times.instant(times.ms(at)), at);
        }
        assert_eq!(times.ms(start), 1_790_000_000_000);
        let hour_ago = times.ms(start) - 3_600_000;
        assert_eq!(times.since(hour_ago, start), Duration::from_hours(1));
        assert_eq!(times.since(times.ms(start) + 1, start), Duration::ZERO);
    }

    #[test]
    fn what_a_clock_said_that_was_not_set_is_of_no_age() {
        let start = Instant::now();
        let hour = Duration::from_hours(1);
        let set = Times::new(start, UNIX_EPOCH + Duration::from_secs(1_790_000_000));
        assert_eq!(set.since(60_000, start + hour), Duration::ZERO);
        assert_eq!(
            set.stay(60_000, Some(60_000 + 3_600_000)),
            (start, Some(start + hour))
        );
        // Nor is one that is not set yet.
        let unset = Times::new(start, UNIX_EPOCH + hour);
        assert_eq!(unset.since(60_000, start), Duration::from_mins(59));
        assert_eq!(unset.stay(3_600_000, None), (start, None));
    }

    #[test]
    fn a_write_after_a_sleep_is_dated_by_the_moment_after_it() {
        let (start, hour) = (Instant::now(), Duration::from_hours(1));
        let began = UNIX_EPOCH + Duration::from_secs(1_790_000_000);
        let before = Times::new(start, began);
        // The machine sleeps for ten hours, in which the broker's clock stands still.
        let woken = Times::new(start + hour, began + 11 * hour);
        assert!(woken.is_of(start + hour) && !before.is_of(start + hour));
        let left_ms = woken.ms(start + hour);
        let restarted = Times::new(start + hour, began + 11 * hour);
        assert_eq!(restarted.since(left_ms, start + hour), Duration::ZERO);
        let by_the_old = before.ms(start + hour);
        assert_eq!(restarted.since(by_the_old, start + hour), 10 * hour);
    }

    #[test]
    fn what_is_too_far_away_is_a_moment_all_the_same() {
        let start = Instant::now();
        let times = Times::new(start, UNIX_EPOCH + Duration::from_secs(1));
        assert!(times.instant(u64::MAX) >= start);
        assert!(times.instant(0) <= start);
    }
}
