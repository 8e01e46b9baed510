//! Memory that clients make the broker hold, counted over all shards.
//!
//! ```text
//! buffer, message ---> Tally of its shard ---(in steps)---> Budget, one for all shards
//! ```
//!
//! Invariants:
//! - What is counted is capacity: what the allocator has given, not what is used of it.
//! - What is counted is subtracted again, at the latest when it is dropped.
//! - A budget is a number, not state: no shard learns from it what another holds.
//!
//! Deliberately absent: what happens when there is too much, which the shard decides.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::limits::MEMORY_PARTS;

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
    limit: u64,
    /// Little of the budget was left when this shard last looked.
    is_tight: bool,
}

impl Tally {
    pub(crate) fn new(budget: &Arc<Budget>, limit: u64) -> Self {
        Self {
            budget: Arc::clone(budget),
            limit,
            ..Self::default()
        }
    }

    /// The limit of the budget is another one.
    pub(crate) fn set_limit(&mut self, limit: u64) {
        self.limit = limit;
        self.look();
    }

    /// Something of this shard holds `new` bytes, and held `old`.
    #[inline]
    pub(crate) fn replace(&mut self, old: usize, new: usize) {
        self.held = self.held + new as u64 - old as u64;
        if self.held.abs_diff(self.told) >= STEP_BYTES {
            self.tell();
        }
    }

    /// Whether all shards together hold more than the limit.
    #[inline]
    pub(crate) fn is_exceeded(&self) -> bool {
        self.used() > self.limit
    }

    /// Whether they hold more than the limit without so many eighths of it.
    pub(crate) fn exceeds(&self, eighths_free: u64) -> bool {
        self.used() > self.limit - self.limit / MEMORY_PARTS * eighths_free
    }

    /// The part of the limit that each of so many clients may hold, if it has so many eighths free.
    pub(crate) fn share(&self, eighths_free: u64, clients: u64) -> u64 {
        (self.limit - self.limit / MEMORY_PARTS * eighths_free) / clients.max(1)
    }

    /// Whether less than an eighth of the budget was left when this shard last looked, which it
    /// does with each step at the latest.
    #[inline]
    pub(crate) const fn is_tight(&self) -> bool {
        self.is_tight
    }

    /// Looks at what all shards hold.
    pub(crate) fn look(&mut self) {
        self.is_tight = self.exceeds(1);
    }

    #[inline]
    fn used(&self) -> u64 {
        // The others may tell what they hold at any time.
        let others = self.budget.used().saturating_sub(self.told);
        others + self.held
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
        self.look();
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
pub(crate) struct Charge {
    budget: Option<Arc<Budget>>,
    bytes: AtomicUsize,
}

impl Charge {
    /// Counts so many bytes, unless some are counted already.
    pub(crate) fn count(&mut self, budget: &Arc<Budget>, bytes: usize) {
        if self.budget.is_none() {
            self.budget = Some(Arc::clone(budget));
            self.set(bytes);
        }
    }

    /// It holds so many bytes now, if it is counted.
    #[inline]
    pub(crate) fn set(&mut self, bytes: usize) {
        if *self.bytes.get_mut() != bytes {
            self.replace(bytes);
        }
    }

    /// It counts no more: another limit holds for it.
    pub(crate) fn end(&self) {
        self.replace(0);
    }

    #[cold]
    fn replace(&self, bytes: usize) {
        if let Some(budget) = &self.budget {
            let before = self.bytes.swap(bytes, Ordering::Relaxed);
            if bytes > before {
                let more = (bytes - before) as u64;
                budget.0.fetch_add(more, Ordering::Relaxed);
            } else {
                let less = (before - bytes) as u64;
                budget.0.fetch_sub(less, Ordering::Relaxed);
            }
        }
    }
}

impl Drop for Charge {
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
        let mut first = Tally::new(&budget, 250_000);
        let mut second = Tally::new(&budget, 250_000);
        first.replace(0, 100_000);
        assert!(!first.is_exceeded());
        second.replace(0, 200_000);
        assert_eq!((budget.used(), first.is_exceeded()), (300_000, true));
        first.replace(100_000, 10);
        assert_eq!((first.held, budget.used()), (10, 200_010));
        drop(second);
        assert_eq!((first.used(), budget.used()), (10, 10));
        drop(first);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn a_budget_is_tight_while_less_than_an_eighth_is_left() {
        let budget = Arc::new(Budget::default());
        let mut tally = Tally::new(&budget, 800_000);
        tally.replace(0, 700_000);
        assert!(!tally.is_tight());
        tally.replace(0, 100_000);
        assert!(tally.is_tight() && !tally.is_exceeded() && tally.exceeds(2));
        tally.set_limit(1_600_000);
        assert!(!tally.is_tight());
        assert_eq!(tally.share(2, 4), 300_000);
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
        let (mut tally, other) = (Tally::new(&budget, 0), Tally::new(&budget, 0));
        for _ in 0..STEP_BYTES - 1 {
            tally.replace(0, 1);
        }
        assert_eq!((tally.used(), other.used()), (STEP_BYTES - 1, 0));
        tally.replace(0, 1);
        assert_eq!(other.used(), STEP_BYTES);
    }
}
