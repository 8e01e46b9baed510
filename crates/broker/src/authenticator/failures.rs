//! What failed logins cost an address: a token bucket that only failures charge.
//!
//! A verification takes a token before it begins, so that several threads cannot exceed the rate,
//! and a success gives it back. An address without tokens waits.

use std::time::{Duration, Instant};

use crate::bounds::{
    FAILED_LOGIN_INTERVAL, FAILED_LOGIN_INTERVAL_MAX, FAILED_LOGIN_SHARE, FAILED_LOGINS_AT_ONCE,
};

/// How long an address waits for a token where a verification takes `mean`: so its failures take no
/// more than a part of one thread.
pub(super) fn interval(mean: Duration) -> Duration {
    let part = mean.saturating_mul(FAILED_LOGIN_SHARE);
    part.clamp(FAILED_LOGIN_INTERVAL, FAILED_LOGIN_INTERVAL_MAX)
}

/// The generic cell rate algorithm: a bucket is the time at which it will be full again. The
/// interval between two tokens may change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct FailureBucket {
    full_at: Instant,
}

impl FailureBucket {
    pub(super) const fn full(now: Instant) -> Self {
        Self { full_at: now }
    }

    /// How long until there is a token; zero if there is one.
    pub(super) fn wait(self, now: Instant, interval: Duration) -> Duration {
        let missing = self.full_at.saturating_duration_since(now);
        missing.saturating_sub(interval * (FAILED_LOGINS_AT_ONCE - 1))
    }

    pub(super) fn take(&mut self, now: Instant, interval: Duration) {
        self.full_at = self.full_at.max(now) + interval;
    }

    pub(super) fn give_back(&mut self, interval: Duration) {
        let earlier = self.full_at.checked_sub(interval);
        self.full_at = earlier.unwrap_or(self.full_at);
    }

    /// When it has no debt any more.
    pub(super) const fn full_at(self) -> Instant {
        self.full_at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = FAILED_LOGIN_INTERVAL;

    #[test]
    fn failures_at_once_and_then_one_in_each_interval() {
        let now = Instant::now();
        let mut bucket = FailureBucket::full(now);
        for _ in 0..FAILED_LOGINS_AT_ONCE {
            assert_eq!(bucket.wait(now, INTERVAL), Duration::ZERO);
            bucket.take(now, INTERVAL);
        }
        assert_eq!(bucket.wait(now, INTERVAL), INTERVAL);
        let later = now + INTERVAL;
        assert_eq!(bucket.wait(later, INTERVAL), Duration::ZERO);
        bucket.take(later, INTERVAL);
        assert_eq!(bucket.wait(later, INTERVAL), INTERVAL);
        // After a rest it is full, and not fuller.
        let rested = now + INTERVAL * 100;
        for _ in 0..FAILED_LOGINS_AT_ONCE {
            assert_eq!(bucket.wait(rested, INTERVAL), Duration::ZERO);
            bucket.take(rested, INTERVAL);
        }
        assert_eq!(bucket.wait(rested, INTERVAL), INTERVAL);
    }

    #[test]
    fn successes_cost_nothing() {
        let now = Instant::now();
        let mut bucket = FailureBucket::full(now);
        for _ in 0..1000 {
            assert_eq!(bucket.wait(now, INTERVAL), Duration::ZERO);
            bucket.take(now, INTERVAL);
            bucket.give_back(INTERVAL);
        }
        assert_eq!(bucket, FailureBucket::full(now));
    }

    #[test]
    fn failures_take_a_quarter_of_one_thread_at_most() {
        for (mean_ms, interval_ms) in [(0, 200), (30, 200), (50, 200), (150, 600), (3_000, 2_000)] {
            let interval = interval(Duration::from_millis(mean_ms));
            assert_eq!(interval, Duration::from_millis(interval_ms), "{mean_ms}");
        }
    }
}
