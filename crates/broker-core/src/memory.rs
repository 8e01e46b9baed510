//! Memory that clients make the broker hold, counted over all shards.
//!
//! ```text
//! buffer, message ---> Tally of its shard ---(in steps)---> Budget, one for all shards
//! ```
//!
//! Invariants:
//! - What is counted is capacity: what the allocator has given, not what is used of it.
//! - Whoever counts something takes it back, at the latest when it is dropped.
//! - A budget is a number, not state: no shard learns from it what another holds.
//!
//! Deliberately absent: what happens when there is too much, which the shard decides.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// Bytes that all shards together hold of one kind.
#[derive(Debug, Default)]
pub(crate) struct Budget(AtomicU64);

impl Budget {
    /// Bytes in use, to [`STEP_BYTES`] for each shard.
    pub(crate) fn used(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What one shard holds of a budget. The budget learns of it in steps, so that buffers which come
/// and go with each turn touch nothing that shards share.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    budget: Arc<Budget>,
    held: u64,
    /// So much of it is in the budget.
    told: u64,
}

impl Tally {
    pub(crate) fn new(budget: &Arc<Budget>) -> Self {
        Self {
            budget: Arc::clone(budget),
            held: 0,
            told: 0,
        }
    }

    /// Something of this shard holds `new` bytes, and held `old`.
    #[inline]
    pub(crate) fn replace(&mut self, old: usize, new: usize) {
        self.held = self.held + new as u64 - old as u64;
        if self.held.abs_diff(self.told) >= STEP_BYTES {
            self.tell();
        }
    }

    /// By how much all shards together hold more than this.
    #[inline]
    pub(crate) fn excess(&self, limit: u64) -> u64 {
        // The others may tell what they hold at any time.
        let others = self.budget.used().saturating_sub(self.told);
        (others + self.held).saturating_sub(limit)
    }

    #[cold]
    fn tell(&mut self) {
        if self.held > self.told {
            let more = self.held - self.told;
            self.budget.0.fetch_add(more, Ordering::Relaxed);
        } else {
            let less = self.told - self.held;
            self.budget.0.fetch_sub(less, Ordering::Relaxed);
        }
        self.told = self.held;
    }
}

impl Drop for Tally {
    fn drop(&mut self) {
        self.held = 0;
        self.tell();
    }
}

/// What one thing holds of a budget, wherever it goes. Nothing until it is counted.
#[derive(Debug, Default)]
pub(crate) struct Charge(OnceLock<Counted>);

#[derive(Debug)]
struct Counted {
    budget: Arc<Budget>,
    bytes: AtomicUsize,
}

impl Charge {
    /// Counts so many bytes, unless some are counted already.
    pub(crate) fn count(&self, budget: &Arc<Budget>, bytes: usize) {
        self.0.get_or_init(|| {
            budget.0.fetch_add(bytes as u64, Ordering::Relaxed);
            Counted {
                budget: Arc::clone(budget),
                bytes: AtomicUsize::new(bytes),
            }
        });
    }

    /// It holds so many bytes now, if it is counted.
    #[inline]
    pub(crate) fn set(&mut self, bytes: usize) {
        if let Some(counted) = self.0.get_mut()
            && *counted.bytes.get_mut() != bytes
        {
            counted.set(bytes);
        }
    }

    /// It counts no more: another limit holds for it.
    pub(crate) fn end(&self) {
        if let Some(counted) = self.0.get() {
            counted.set(0);
        }
    }
}

impl Counted {
    #[cold]
    fn set(&self, bytes: usize) {
        let before = self.bytes.swap(bytes, Ordering::Relaxed);
        self.budget.0.fetch_add(bytes as u64, Ordering::Relaxed);
        self.budget.0.fetch_sub(before as u64, Ordering::Relaxed);
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.set(0);
    }
}

/// Bytes of a shard that the budget may not know of.
const STEP_BYTES: u64 = 64 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_the_sum_of_its_tallies_and_gets_back_what_is_dropped() {
        let budget = Arc::new(Budget::default());
        let (mut first, mut second) = (Tally::new(&budget), Tally::new(&budget));
        first.replace(0, 100_000);
        second.replace(0, 200_000);
        assert_eq!((budget.used(), first.excess(250_000)), (300_000, 50_000));
        first.replace(100_000, 10);
        assert_eq!((first.held, budget.used()), (10, 200_010));
        drop(second);
        assert_eq!((first.excess(0), budget.used()), (10, 10));
        drop(first);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn a_charge_counts_once_and_is_given_back() {
        let budget = Arc::new(Budget::default());
        let mut charge = Charge::default();
        charge.set(5);
        assert_eq!(budget.used(), 0);
        charge.count(&budget, 10);
        charge.count(&budget, 20);
        assert_eq!(budget.used(), 10);
        charge.set(30);
        assert_eq!(budget.used(), 30);
        charge.end();
        assert_eq!(budget.used(), 0);
        charge.set(7);
        drop(charge);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn a_shard_knows_its_own_to_the_byte_and_others_learn_of_it_in_steps() {
        let budget = Arc::new(Budget::default());
        let (mut tally, other) = (Tally::new(&budget), Tally::new(&budget));
        for _ in 0..STEP_BYTES - 1 {
            tally.replace(0, 1);
        }
        assert_eq!((tally.excess(0), other.excess(0)), (STEP_BYTES - 1, 0));
        tally.replace(0, 1);
        assert_eq!(other.excess(0), STEP_BYTES);
    }
}
