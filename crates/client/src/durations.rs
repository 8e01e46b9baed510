//! Two kinds of time that are easily mistaken for each other: all of it, and that of one try.

use std::time::Duration;

/// The whole time that something may take, however many tries fit into it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TotalDuration(pub Duration);

/// The time of one try, or of the pause between two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RetryDuration(pub Duration);

/// Pauses between tries: each twice as long as the one before, up to a longest, of which a random
/// half is left out, so that clients that lost one broker do not all return at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pauses {
    pub(crate) first: RetryDuration,
    pub(crate) longest: RetryDuration,
}

impl Pauses {
    /// The pause after this many failed tries in a row, at least 1. `random` is any number.
    pub(crate) fn after(&self, failed: u32, random: u32) -> RetryDuration {
        let doublings = failed.saturating_sub(1).min(31);
        let grown = self.first.0.saturating_mul(1 << doublings);
        let whole = grown.min(self.longest.0);
        let share = f64::from(random) / f64::from(u32::MAX);
        RetryDuration(whole.mul_f64(0.5 + share / 2.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest_and_leave_out_half_at_most() {
        let pauses = Pauses {
            first: RetryDuration(Duration::from_millis(100)),
            longest: RetryDuration(Duration::from_secs(1)),
        };
        for (failed, whole_ms) in [
            (1, 100),
            (2, 200),
            (3, 400),
            (4, 800),
            (5, 1_000),
            (u32::MAX, 1_000),
        ] {
            let whole = Duration::from_millis(whole_ms);
            assert_eq!(pauses.after(failed, u32::MAX).0, whole);
            assert_eq!(pauses.after(failed, 0).0, whole / 2);
        }
    }
}
