//! When each message of an open loop is due.
//!
//! Message `k` is due at `k / rate` after the start, whatever happened to those before it: a broker
//! that stalls makes messages late, never fewer, so waiting in line is part of the measured time
//! (no coordinated omission).

use std::time::Duration;

/// A fixed rate for a fixed number of messages.
#[derive(Debug, Clone, Copy)]
pub(super) struct Schedule {
    start_ns: u64,
    interval_ns: f64,
    next: u64,
    end: u64,
}

impl Schedule {
    /// `per_second` messages from `start_ns` on, `count` in all.
    pub(super) fn new(start_ns: u64, per_second: f64, count: u64) -> Self {
        Self {
            start_ns,
            interval_ns: 1e9 / per_second.max(1e-3),
            next: 0,
            end: count,
        }
    }

    /// The number and the time of the next message, if there is one.
    pub(super) fn next(&self) -> Option<(u64, u64)> {
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a run has far fewer than 2^52 messages and nanoseconds, all positive"
        )]
        let offset = (self.next as f64 * self.interval_ns) as u64;
        (self.next < self.end).then_some((self.next, self.start_ns + offset))
    }

    pub(super) fn advance(&mut self) {
        self.next += 1;
    }

    /// No message after the next ones; those not yet due are dropped.
    pub(super) fn stop(&mut self) {
        self.end = self.next;
    }

    /// How long until the next message, zero if it is due.
    pub(super) fn wait(&self, now_ns: u64) -> Option<Duration> {
        let (_, due_ns) = self.next()?;
        Some(Duration::from_nanos(due_ns.saturating_sub(now_ns)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_start_does_not_move_later_messages() {
        let mut schedule = Schedule::new(1_000, 1e6, 3);
        let mut due = Vec::new();
        while let Some((number, at)) = schedule.next() {
            due.push((number, at));
            schedule.advance();
        }
        assert_eq!(due, [(0, 1_000), (1, 2_000), (2, 3_000)]);
        assert_eq!(schedule.wait(0), None);
    }

    #[test]
    fn waiting_is_zero_once_due() {
        let mut schedule = Schedule::new(0, 1e6, 10);
        schedule.advance();
        assert_eq!(schedule.wait(400), Some(Duration::from_nanos(600)));
        assert_eq!(schedule.wait(5_000), Some(Duration::ZERO));
        schedule.stop();
        assert_eq!(schedule.wait(0), None);
    }
}
