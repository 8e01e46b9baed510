//! What processors declare of messages that do not come themselves: dropped, or gone into a batch.
//!
//! **Invariant.** A declaration is believed as much as a message is: the leaves and subtrees it
//! brings must give the producer's root, or a descent names them forged.

use std::ops::Range;
use std::time::Duration;

use super::limits::LedgerLimits;
use super::receiver::{Arrival, LaneLedger};
use super::verdict::Verdict;
use super::window::{Node, slot};
use crate::{CompactRange, Digest, Hash};

impl LaneLedger {
    /// Takes a run of a drop record: these numbers, with their leaves, go no further. Returns how
    /// many of them had not been seen.
    pub fn dropped(
        &mut self,
        first: u64,
        leaves: &[Hash],
        now: Duration,
        limits: &LedgerLimits,
        digest: &impl Digest,
    ) -> u64 {
        let mut taken = 0;
        for (number, leaf) in (first..).zip(leaves) {
            if number < self.scope(number) || !self.is_missing(number) {
                continue;
            }
            self.reopen_for(number);
            if number >= self.next {
                self.suspect(self.next..number, now, limits);
                self.next = number + 1;
            } else {
                self.gaps.fill(number);
            }
            self.reach(number, limits);
            self.windows.declare(number);
            let arrival = Arrival {
                number,
                leaf: *leaf,
                fits: true,
                resent: true,
                part: None,
            };
            self.place(&arrival, limits, digest);
            taken += 1;
        }
        self.cut_if_whole();
        taken
    }

    /// Takes the parents of a batch, which lie in one window: each of them arrives with it. What
    /// they are, as runs in order.
    pub fn parents(
        &mut self,
        parents: &CompactRange,
        now: Duration,
        limits: &LedgerLimits,
        digest: &impl Digest,
    ) -> Vec<(Range<u64>, Verdict)> {
        let mut verdicts: Vec<(Range<u64>, Verdict)> = Vec::new();
        for (level, index, hash) in parents.subtrees() {
            let numbers = index << level..(index + 1) << level;
            for (numbers, verdict) in self.subtree(numbers, hash, now, limits, digest) {
                match verdicts.last_mut() {
                    Some((run, same)) if *same == verdict && run.end == numbers.start => {
                        run.end = numbers.end;
                    }
                    _ => verdicts.push((numbers, verdict)),
                }
            }
        }
        verdicts
    }

    fn subtree(
        &mut self,
        numbers: Range<u64>,
        hash: Hash,
        now: Duration,
        limits: &LedgerLimits,
        digest: &impl Digest,
    ) -> Vec<(Range<u64>, Verdict)> {
        if numbers.start < self.scope(numbers.start) {
            return vec![(numbers, Verdict::OutOfScope)];
        }
        self.reopen_for(numbers.end - 1);
        if !self.is_any_missing(&numbers) {
            let own = self.windows.hash_over(&numbers, digest);
            let verdict = match own {
                Some(own) if own != hash => Verdict::Conflict,
                Some(_) => Verdict::Duplicate,
                None => Verdict::Repeated,
            };
            return vec![(numbers, verdict)];
        }
        let mut verdicts = Vec::new();
        for number in numbers.clone() {
            let verdict = if number >= self.next {
                self.at_or_above_next(number, false, now, limits)
            } else {
                self.in_gap(number, false).unwrap_or(Verdict::Repeated)
            };
            self.revise(number, false);
            verdicts.push((number..number + 1, verdict));
        }
        self.reach(numbers.end - 1, limits);
        let length = numbers.end - numbers.start;
        let node = Node {
            start: slot(numbers.start),
            level: u8::try_from(length.ilog2()).expect("below 64"),
            hash,
        };
        if self.windows.put_subtree(numbers.start, node) {
            self.review(digest);
        }
        self.cut_if_whole();
        verdicts
    }

    fn is_any_missing(&self, numbers: &Range<u64>) -> bool {
        numbers.end > self.next || self.gaps.missing_in(numbers.clone()) > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Hasher;
    use crate::ledger::limits::WINDOW;
    use crate::ledger::receiver::Join;

    const NOW: Duration = Duration::ZERO;

    fn leaf(number: u64) -> Hash {
        Hasher::xxh3().leaf(&[&number.to_be_bytes()])
    }

    fn ledger(seen: u64) -> LaneLedger {
        let mut ledger = LaneLedger::new(Join::Beginning);
        for number in 0..seen {
            let arrival = Arrival {
                number,
                leaf: leaf(number),
                fits: true,
                resent: false,
                part: None,
            };
            ledger.observe(&arrival, NOW, &LedgerLimits::default(), &Hasher::xxh3());
        }
        ledger
    }

    /// Takes one subtree over the first numbers.
    fn declare(ledger: &mut LaneLedger, end: u64, hash: Hash) -> Vec<(Range<u64>, Verdict)> {
        let parents = CompactRange::from_subtrees(0, end, vec![hash]);
        ledger.parents(&parents, NOW, &LedgerLimits::default(), &Hasher::xxh3())
    }

    #[test]
    fn parents_that_came_before_are_duplicates_or_contradict() {
        let root = Hasher::xxh3().node(&leaf(0), &leaf(1));
        for (hash, expected) in [(root, Verdict::Duplicate), (leaf(9), Verdict::Conflict)] {
            let mut ledger = ledger(2);
            assert_eq!(declare(&mut ledger, 2, hash), [(0..2, expected)]);
        }
    }

    #[test]
    fn parents_that_fill_a_window_open_no_other() {
        let mut ledger = ledger(0);
        declare(&mut ledger, WINDOW, leaf(9));
        assert_eq!((ledger.next, ledger.windows.reached), (WINDOW, 1));
    }

    #[test]
    fn parents_up_to_the_end_of_an_epoch_do_not_contradict_it() {
        for (end, expected) in [(1, 0), (2, 0), (4, 1)] {
            let mut ledger = ledger(0);
            assert!(ledger.close(2));
            declare(&mut ledger, end, leaf(9));
            assert_eq!(ledger.contradictions, expected, "{end}");
        }
    }
}
