//! Who got what: for one receiver and one flow, which numbers came, which are missing, which came
//! late or twice.
//!
//! Invariants: each number is counted exactly once as *in order*, *late* or *missing*, and every
//! further copy as a duplicate; memory stays within [`MAX_GAPS`] ranges whatever a broker does. A
//! number that is overtaken is missing until it comes: then it was reordered. Deliberately absent:
//! any opinion on whether a loss was allowed.

use std::ops::Range;

/// More holes than this and the oldest is given up: should it still be filled, that counts as
/// duplicates.
const MAX_GAPS: usize = 4096;

/// What one arrival was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// The next one, after `skipped` numbers that have not come.
    Next {
        /// How many were overtaken just now.
        skipped: u32,
    },
    /// Overtaken by a later one, but here.
    Late,
    /// Seen before.
    Duplicate,
}

/// One flow as one receiver sees it.
#[derive(Debug, Default)]
pub(crate) struct Lane {
    next: u32,
    /// Ascending, not touching, all below `next`.
    missing: Vec<Range<u32>>,
}

impl Lane {
    /// Notes that `sequence` came.
    pub(crate) fn note(&mut self, sequence: u32) -> Arrival {
        if sequence < self.next {
            return self.note_old(sequence);
        }
        let skipped = sequence - self.next;
        if skipped > 0 {
            self.open_gap(self.next..sequence);
        }
        // A flow ends long before its numbers do; at the very last one, its copies would be taken
        // for it.
        self.next = sequence.saturating_add(1);
        Arrival::Next { skipped }
    }

    #[cold]
    fn open_gap(&mut self, gap: Range<u32>) {
        if self.missing.len() == MAX_GAPS {
            self.missing.remove(0);
        }
        self.missing.push(gap);
    }

    #[cold]
    fn note_old(&mut self, sequence: u32) -> Arrival {
        let after = self.missing.partition_point(|gap| gap.end <= sequence);
        let Some(gap) = self
            .missing
            .get_mut(after)
            .filter(|gap| gap.contains(&sequence))
        else {
            return Arrival::Duplicate;
        };
        let rest = sequence + 1..gap.end;
        gap.end = sequence;
        match (gap.start == gap.end, rest.start == rest.end) {
            (true, true) => drop(self.missing.remove(after)),
            (true, false) => *gap = rest,
            (false, true) => {}
            (false, false) => self.missing.insert(after + 1, rest),
        }
        Arrival::Late
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    #[test]
    fn arrivals_are_named_for_what_they_are() {
        use Arrival::{Duplicate, Late, Next};
        let mut lane = Lane::default();
        let story = [
            (0, Next { skipped: 0 }),
            (1, Next { skipped: 0 }),
            (1, Duplicate),
            (5, Next { skipped: 3 }),
            (3, Late),
            (3, Duplicate),
            (2, Late),
            (4, Late),
            (4, Duplicate),
            (6, Next { skipped: 0 }),
            (0, Duplicate),
        ];
        for (sequence, expected) in story {
            assert_eq!(lane.note(sequence), expected, "{sequence}");
        }
        assert!(lane.missing.is_empty());
    }

    #[test]
    fn memory_is_bounded_when_every_second_message_is_lost() {
        let mut lane = Lane::default();
        for sequence in 0..100_000 {
            lane.note(sequence * 2);
        }
        assert_eq!(lane.missing.len(), MAX_GAPS);
    }

    proptest! {
        /// The reference model remembers every number it saw.
        #[test]
        fn agrees_with_a_set_of_all_numbers(story in prop::collection::vec(0_u32..60, 0..200)) {
            let mut lane = Lane::default();
            let mut seen = HashSet::new();
            for sequence in story {
                let highest = seen.iter().max().copied();
                let expected = if !seen.insert(sequence) {
                    Arrival::Duplicate
                } else if highest.is_some_and(|highest| sequence < highest) {
                    Arrival::Late
                } else {
                    Arrival::Next { skipped: highest.map_or(sequence, |highest| sequence - highest - 1) }
                };
                prop_assert_eq!(lane.note(sequence), expected);
            }
        }
    }
}
