//! What failed logins cost an address: a token bucket that only failures charge.
//!
//! A verification takes a token before it begins, so that several threads cannot exceed the rate,
//! and a success gives it back. An address without tokens waits.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::{Duration, Instant};

use crate::bounds::{
    FAILED_LOGIN_INTERVAL, FAILED_LOGIN_INTERVAL_MAX, FAILED_LOGIN_SHARE, FAILED_LOGINS_AT_ONCE,
};

/// One client address as far as logins are counted: all of an IPv6 /64, because one machine has
/// that many addresses. Connections without an address (a local socket) count together.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) enum Source {
    V4(Ipv4Addr),
    /// The first 64 bits.
    V6([u16; 4]),
    Local,
}

impl Source {
    pub(super) fn of(address: Option<IpAddr>) -> Self {
        match address {
            None => Self::Local,
            Some(IpAddr::V4(address)) => Self::V4(address),
            Some(IpAddr::V6(address)) => Self::of_v6(address),
        }
    }

    fn of_v6(address: Ipv6Addr) -> Self {
        match (address.to_ipv4_mapped(), address.segments()) {
            (Some(address), _) => Self::V4(address),
            (None, [a, b, c, d, ..]) => Self::V6([a, b, c, d]),
        }
    }
}

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
    fn an_address_is_one_of_ipv4_or_a_64th_of_ipv6() {
        let of = |text: &str| Source::of(Some(text.parse().unwrap()));
        assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
        assert_eq!(of("192.0.2.1"), of("::ffff:192.0.2.1"));
        assert_eq!(of("2001:db8:0:1::1"), of("2001:db8:0:1:ffff::2"));
        assert_ne!(of("2001:db8:0:1::1"), of("2001:db8:0:2::1"));
        assert_eq!(Source::of(None), Source::Local);
    }

    #[test]
    fn failures_take_a_quarter_of_one_thread_at_most() {
        for (mean_ms, interval_ms) in [(0, 200), (30, 200), (50, 200), (150, 600), (3_000, 2_000)] {
            let interval = interval(Duration::from_millis(mean_ms));
            assert_eq!(interval, Duration::from_millis(interval_ms), "{mean_ms}");
        }
    }
}
