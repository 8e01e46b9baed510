//! The counts of a run, exact in each worker, and a coarse copy that others may watch while it
//! runs.

use hdrhistogram::Histogram;
use serde::Serialize;
use std::sync::atomic::{
    AtomicU64,
    Ordering::{Relaxed, Release},
};

/// What was sent and what became of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Tally {
    /// Messages sent.
    pub published: u64,
    /// Deliveries that those messages owe to all their receivers.
    pub expected: u64,
    /// Deliveries that came, each message once a receiver.
    pub delivered: u64,
    /// Of these, overtaken by a later message of the same publisher.
    pub reordered: u64,
    /// Copies beyond the first.
    pub duplicated: u64,
    /// Deliveries of messages that had been given up as lost when the phase began. They are none of
    /// `delivered`, so that they make good for no loss of this phase.
    pub belated: u64,
    /// Payloads that are not as they were sent.
    pub corrupted: u64,
    /// Messages to one who did not ask for them, or on another topic than they were sent to.
    pub misdelivered: u64,
    /// Acknowledgements that refused a message.
    pub refused: u64,
    /// Connections that the broker closed.
    pub closed: u64,
}

impl Tally {
    /// Deliveries that never came.
    pub fn lost(&self) -> u64 {
        self.expected.saturating_sub(self.delivered)
    }

    /// Whether everything came, once, in order, unaltered.
    pub fn is_clean(&self) -> bool {
        self.lost() == 0 && self.faults() == 0
    }

    /// What should not have happened, without what never came.
    pub(crate) fn faults(&self) -> u64 {
        let Self {
            published: _,
            expected: _,
            delivered: _,
            reordered,
            duplicated,
            belated,
            corrupted,
            misdelivered,
            refused,
            closed,
        } = self;
        reordered + duplicated + belated + corrupted + misdelivered + refused + closed
    }

    /// What happened since `earlier`.
    pub(crate) fn since(&self, earlier: &Self) -> Self {
        self.combine(earlier, u64::saturating_sub)
    }

    pub(crate) fn plus(&self, other: &Self) -> Self {
        self.combine(other, u64::saturating_add)
    }

    fn combine(&self, other: &Self, with: fn(u64, u64) -> u64) -> Self {
        Self {
            published: with(self.published, other.published),
            expected: with(self.expected, other.expected),
            delivered: with(self.delivered, other.delivered),
            reordered: with(self.reordered, other.reordered),
            duplicated: with(self.duplicated, other.duplicated),
            belated: with(self.belated, other.belated),
            corrupted: with(self.corrupted, other.corrupted),
            misdelivered: with(self.misdelivered, other.misdelivered),
            refused: with(self.refused, other.refused),
            closed: with(self.closed, other.closed),
        }
    }
}

/// Latencies in nanoseconds, from 1 µs to two minutes with three digits.
pub(crate) fn latencies() -> Histogram<u64> {
    Histogram::new_with_bounds(1_000, 120_000_000_000, 3)
        .expect("the bounds are constants within the type's range")
}

/// Latency classes of the live view: each twice as wide as the one before, the first below 16 µs.
pub(crate) const CLASSES: usize = 20;

/// The class of a latency.
pub(crate) fn class(latency_ns: u64) -> usize {
    let micros = latency_ns / 1_000;
    let bits = 64 - (micros >> 4).leading_zeros() as usize;
    bits.min(CLASSES - 1)
}

/// The upper end of a class in microseconds.
pub(crate) const fn class_end_us(class: usize) -> u64 {
    16 << class
}

/// What one worker lets others see, a few times a second.
#[derive(Debug, Default)]
pub(crate) struct Live {
    pub(crate) clients: AtomicU64,
    pub(crate) published: AtomicU64,
    pub(crate) delivered: AtomicU64,
    pub(crate) faults: AtomicU64,
    pub(crate) classes: [AtomicU64; CLASSES],
}

impl Live {
    /// `missing` are those that were overtaken and have not come.
    pub(crate) fn show(&self, tally: &Tally, missing: u64, classes: &[u64; CLASSES]) {
        self.faults.store(tally.faults() + missing, Relaxed);
        self.delivered.store(tally.delivered, Relaxed);
        // Last here and first where it is read, so that nobody sees a message sent whose delivery
        // was there before and is not seen.
        self.published.store(tally.published, Release);
        for (shown, count) in self.classes.iter().zip(classes) {
            shown.store(*count, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_double_in_width() {
        for (micros, expected) in [
            (0, 0),
            (15, 0),
            (16, 1),
            (31, 1),
            (32, 2),
            (1_000, 6),
            (u64::MAX / 2_000, 19),
        ] {
            assert_eq!(class(micros * 1_000), expected, "{micros}");
            if expected < CLASSES - 1 {
                assert!(micros < class_end_us(expected), "{micros}");
            }
        }
    }

    #[test]
    fn a_missing_delivery_is_a_loss_and_not_clean() {
        let tally = Tally {
            expected: 10,
            delivered: 9,
            ..Tally::default()
        };
        assert_eq!(tally.lost(), 1);
        assert!(!tally.is_clean());
        assert!(
            Tally {
                delivered: 10,
                ..tally
            }
            .is_clean()
        );
    }
}
