//! The numbers of a lane that were lost and have not been sent again.
//!
//! Invariant: the runs do not touch each other, and there are at most [`RUNS_MAX`]. Of more the
//! lowest is forgotten: its messages stay lost, whatever is sent again.

use std::collections::BTreeMap;

/// The first number of each run, and the one behind its last.
#[derive(Debug, Default)]
pub(super) struct Losses(BTreeMap<u64, u64>);

impl Losses {
    /// These are lost.
    pub(super) fn add(&mut self, first: u64, count: u64) {
        let (mut first, mut end) = (first, first.saturating_add(count));
        while let Some((&begin, &behind)) = self.0.range(..=end).next_back() {
            if behind < first {
                break;
            }
            self.0.remove(&begin);
            (first, end) = (first.min(begin), end.max(behind));
        }
        self.insert(first, end);
    }

    /// This one was sent again. Answers whether it was among them.
    pub(super) fn remove(&mut self, number: u64) -> bool {
        let Some((&begin, &end)) = self.0.range(..=number).next_back() else {
            return false;
        };
        if end <= number {
            return false;
        }
        self.0.remove(&begin);
        self.insert(begin, number);
        self.insert(number + 1, end);
        true
    }

    fn insert(&mut self, first: u64, end: u64) {
        if first < end {
            self.0.insert(first, end);
        }
        if self.0.len() > RUNS_MAX {
            self.0.pop_first();
        }
    }
}

/// 16 bytes each.
const RUNS_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn agrees_with_a_set(steps in prop::collection::vec((any::<bool>(), 0..60_u64, 1..6_u64), 0..80)) {
            let (mut losses, mut twin) = (Losses::default(), BTreeSet::new());
            for (is_lost, number, count) in steps {
                if is_lost {
                    losses.add(number, count);
                    twin.extend(number..number + count);
                } else {
                    prop_assert_eq!(losses.remove(number), twin.remove(&number));
                }
                let runs: Vec<_> = losses.0.iter().map(|(first, end)| (*first, *end)).collect();
                prop_assert!(runs.is_sorted_by(|one, next| one.1 < next.0));
                let all: BTreeSet<_> = runs.into_iter().flat_map(|(first, end)| first..end).collect();
                prop_assert_eq!(&all, &twin);
            }
        }
    }

    #[test]
    fn of_too_many_runs_the_lowest_are_forgotten() {
        let mut losses = Losses::default();
        for number in 0..=RUNS_MAX as u64 {
            losses.add(2 * number, 1);
        }
        assert!(!losses.remove(0));
        assert!(losses.remove(2));
    }
}
