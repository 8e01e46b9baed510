//! The clock on the wall, and how old what a producer has dated is by it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::data::human_format;

/// When the listening began, by this machine's clock.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wall {
    begun_us: u64,
}

impl Wall {
    /// The age from which on a checkpoint is old when it comes: two heartbeats of an idle producer.
    pub(crate) const OLD: Duration = Duration::from_secs(20);

    pub(crate) fn start() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        Self {
            begun_us: since.map_or(0, micros),
        }
    }

    #[cfg(test)]
    pub(crate) fn at_second(second: u64) -> Self {
        Self {
            begun_us: second * 1_000_000,
        }
    }

    /// How old what was made then is, so long after the beginning; nothing, of a clock ahead.
    pub(crate) fn age(self, made_us: u64, now: Duration) -> Duration {
        let now_us = self.begun_us.saturating_add(micros(now));
        Duration::from_micros(now_us.saturating_sub(made_us))
    }

    /// A moment of the listening, in UTC.
    pub(crate) fn at(self, now: Duration) -> String {
        date(self.begun_us.saturating_add(micros(now)))
    }
}

/// To the second, in UTC.
pub(crate) fn date(us: u64) -> String {
    human_format::time(us / 1_000_000 * 1_000)
}

/// `3 d`, `2 h`, `59 s`.
pub(crate) fn span(time: Duration) -> String {
    human_format::span(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
