//! What processors declare of messages that do not come themselves: dropped, or gone into a batch.
//!
//! **Invariants.** A declaration is believed as much as a message is: the leaves and subtrees it
//! brings must give the producer's root, or a descent names them forged. It denies nothing: a
//! message that was declared dropped arrives when it comes and fits, until a root has proven what
//! was declared. Leaves of drop records are held on their own until then.

use std::ops::Range;
use std::time::Duration;

use super::gaps::{Gaps, Hole};
use super::limits::{LedgerLimits, WINDOW};
use super::receiver::{Arrival, Join, LaneLedger};
use super::verdict::{Event, Verdict};
use super::window::{Node, slot};
use super::windows::Windows;
use crate::{CompactRange, Digest, Hash};

/// What drop records name of an epoch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Declared {
    /// What has not come. It is not missing.
    pub(super) numbers: Gaps,
    /// Behind the last that came all the same.
    pub(super) came: Option<u64>,
}

impl Declared {
    /// What a root has proven is the producer's, declared or not: of the windows that were open
    /// those that no longer are.
    pub(super) fn forget_passed(&mut self, open: Vec<u64>, windows: &Windows) {
        let mut still_open = windows.open.iter().map(|window| window.index).peekable();
        for index in open {
            if still_open.next_if_eq(&index).is_none() {
                let first = index * WINDOW;
                self.numbers.forget(&(first..first + WINDOW));
            }
        }
    }

    /// Bytes on the heap.
    pub(super) fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.numbers.len() * 64
    }
}

impl LaneLedger {
    /// Takes a run of a drop record: these numbers, with their leaves, go no further. Returns how
    /// many of them had not been seen. Those for which there is no room are still missing.
    pub fn dropped(
        &mut self,
        first: u64,
        leaves: &[Hash],
        now: Duration,
        limits: &LedgerLimits,
        digest: &impl Digest,
    ) -> u64 {
        let (mut taken, mut is_worth_review) = (0, false);
        for (number, leaf) in (first..).zip(leaves) {
            if number < self.scope(number) || !self.is_missing(number) {
                continue;
            }
            if !self.declare(number, limits) {
                break;
            }
            self.reopen_for(number);
            if number >= self.next {
                self.suspect_told(number, now, limits);
                self.next = number + 1;
            } else {
                self.gaps.fill(number);
            }
            self.reach(number, limits);
            self.altered.remove(&number);
            self.parts.remove(&number);
            is_worth_review |= self.windows.declare(number, *leaf);
            taken += 1;
        }
        self.cut_if_whole();
        if is_worth_review {
            self.review(digest);
        }
        taken
    }

    /// Takes it that no copy is wanted of what drop records have named so far.
    pub fn forget_declared(&mut self) {
        if let Some(declared) = &mut self.declared {
            declared.numbers = Gaps::default();
        }
    }

    /// Whether only a drop record tells of this number.
    pub(super) fn is_declared(&self, number: u64) -> bool {
        let declared = self.declared.as_ref();
        declared.is_some_and(|declared| declared.numbers.find(number).is_some())
    }

    /// Notes that a drop record names a number; false where there is no room.
    fn declare(&mut self, number: u64, limits: &LedgerLimits) -> bool {
        let declared = self.declared.get_or_insert_default();
        let has_room = declared.numbers.len() < limits.gaps_max;
        if has_room {
            declared.numbers.add(number..number + 1);
        }
        has_room
    }

    /// Takes a message that a drop record named: it arrives. `None` where none did, or a root has
    /// proven what it said.
    pub(super) fn take_declared(
        &mut self,
        arrival: &Arrival,
        digest: &impl Digest,
    ) -> Option<Verdict> {
        let number = arrival.number;
        if !self.is_declared(number) || self.windows.is_collapsed(number) {
            return None;
        }
        let declared = self.declared.as_mut()?;
        declared.numbers.fill(number);
        // Neighbours that follow at once are reported with the first.
        if declared.came.replace(number + 1) != Some(number) {
            self.events.push(Event::DropContradicted(number));
        }
        self.parts.remove(&number);
        if self.windows.undeclare(number, arrival.leaf) {
            self.review(digest);
        }
        Some(match (self.join, arrival.resent) {
            (Join::Member, _) => Verdict::InOrder,
            (_, true) => Verdict::Repaired,
            (_, false) => Verdict::Late,
        })
    }

    /// The open windows, while something is declared.
    pub(super) fn windows_declared(&self) -> Vec<u64> {
        if self.declared.is_none() {
            return Vec::new();
        }
        self.windows
            .open
            .iter()
            .map(|window| window.index)
            .collect()
    }

    /// Counts as dropped, in the windows, what is declared and nothing else, unless a root has
    /// proven it.
    pub(super) fn count_declared(&mut self) {
        let Some(declared) = &self.declared else {
            return;
        };
        for window in &mut self.windows.open {
            let first = window.index * WINDOW;
            let is_proven = window.is_done();
            if let Some(doubt) = window.doubt.get_mut() {
                doubt.dropped.retain(|slot| {
                    let number = first + u64::from(*slot);
                    is_proven || declared.numbers.find(number).is_some()
                });
            }
        }
    }

    /// Takes `gaps` for what is missing now that `other` is taken in.
    pub(super) fn miss_with(&mut self, other: &Self, gaps: Gaps) {
        self.declared = self.declared_with(other, &gaps);
        self.gaps = gaps;
    }

    /// What is declared once `other` is taken in, by which `gaps` are missing: what has come to
    /// neither and is not missing.
    fn declared_with(&self, other: &Self, gaps: &Gaps) -> Option<Box<Declared>> {
        if self.declared.is_none() && other.declared.is_none() {
            return None;
        }
        let absent = |ledger: &Self| match &ledger.declared {
            Some(declared) => ledger.gaps.with(&declared.numbers),
            None => ledger.gaps.clone(),
        };
        let (own, theirs) = (absent(self), absent(other));
        let both = Gaps::common((&own, self.next), (&theirs, other.next), |_, _| Hole {
            lost: true,
            ..Hole::new(Duration::ZERO)
        });
        let mut numbers = both.without(gaps);
        numbers.forget_below(self.scope_start());
        let came = [self, other].map(|ledger| ledger.declared.as_ref()?.came);
        let came = came.into_iter().flatten().max();
        Some(Box::new(Declared { numbers, came }))
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
        let is_worth_review = self.windows.put_subtree(numbers.start, node);
        self.cut_if_whole();
        if is_worth_review {
            self.review(digest);
        }
        verdicts
    }

    fn is_any_missing(&self, numbers: &Range<u64>) -> bool {
        numbers.end > self.next || self.gaps.missing_in(numbers.clone()) > 0
    }
}

impl Windows {
    /// Fills a slot with a leaf that was declared dropped, and holds it. Its window must be open to
    /// count it. True when that makes its window worth a review.
    pub(super) fn declare(&mut self, number: u64, leaf: Hash) -> bool {
        let node = Node::leaf(number, leaf);
        self.find(number / WINDOW).is_some_and(|window| {
            window.doubt.dropped.push(node.start);
            window.fill(node, |slots| slots.put(node))
        })
    }

    /// A message came that was declared dropped: what it is counts. True when that makes its window
    /// worth a review.
    pub(super) fn undeclare(&mut self, number: u64, leaf: Hash) -> bool {
        let slot = slot(number);
        self.find(number / WINDOW).is_some_and(|window| {
            window.doubt.dropped.retain(|dropped| *dropped != slot);
            if window.slots.leaf(slot).is_some_and(|held| held != leaf) {
                window.slots.replace(slot, leaf);
                window.forget_descent();
            }
            window.claim.is_some()
        })
    }

    /// Whether a root or what is folded stands for the leaf of this number.
    pub(super) fn is_collapsed(&mut self, number: u64) -> bool {
        self.find(number / WINDOW)
            .is_some_and(|window| window.slots.is_collapsed(slot(number)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Hasher;
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

    fn drop_all(ledger: &mut LaneLedger, first: u64, leaves: &[Hash]) -> u64 {
        ledger.dropped(
            first,
            leaves,
            NOW,
            &LedgerLimits::default(),
            &Hasher::xxh3(),
        )
    }

    fn come(ledger: &mut LaneLedger, number: u64) -> Verdict {
        let arrival = Arrival {
            number,
            leaf: leaf(number),
            fits: true,
            resent: false,
            part: None,
        };
        ledger.observe(&arrival, NOW, &LedgerLimits::default(), &Hasher::xxh3())
    }

    #[test]
    fn a_forged_drop_record_denies_no_message_even_when_its_window_is_no_longer_open() {
        for jump in [None, Some(WINDOW * 1_000)] {
            let mut ledger = ledger(10);
            assert_eq!(drop_all(&mut ledger, 10, &vec![leaf(9); 290]), 290);
            if let Some(number) = jump {
                assert_eq!(drop_all(&mut ledger, number, &[leaf(9)]), 1);
            }
            ledger.take_events();
            for number in 10..300 {
                assert_eq!(
                    come(&mut ledger, number),
                    Verdict::Late,
                    "{number} {jump:?}"
                );
            }
            let events = ledger.take_events();
            assert_eq!(events, [Event::DropContradicted(10)], "{jump:?}");
            let again = if jump.is_some() {
                Verdict::Repeated
            } else {
                Verdict::Duplicate
            };
            assert_eq!(come(&mut ledger, 299), again);
        }
    }

    #[test]
    fn what_is_declared_behind_a_gap_comes_all_the_same() {
        let mut ledger = ledger(10);
        drop_all(&mut ledger, 12, &vec![leaf(9); 288]);
        let verdicts = (10..300).map(|number| come(&mut ledger, number));
        assert!(verdicts.into_iter().all(|verdict| verdict == Verdict::Late));
        assert!((0..300).all(|number| !ledger.is_declared(number)));
    }

    #[test]
    fn what_comes_is_no_longer_counted_as_dropped() {
        let mut ledger = ledger(2);
        drop_all(&mut ledger, 2, &[leaf(9), leaf(9)]);
        come(&mut ledger, 2);
        let window = &ledger.windows.open[0];
        assert_eq!(window.doubt.dropped, [3]);
        assert_eq!(window.slots.leaf(2), Some(leaf(2)));
        assert!(ledger.is_declared(3) && !ledger.is_declared(2));
    }

    #[test]
    fn what_a_receiver_leaves_out_itself_does_not_arrive_again() {
        let mut ledger = ledger(2);
        drop_all(&mut ledger, 2, &[leaf(2)]);
        ledger.forget_declared();
        assert_eq!(come(&mut ledger, 2), Verdict::Duplicate);
    }

    #[test]
    fn no_more_runs_are_declared_than_may() {
        let limits = LedgerLimits {
            gaps_max: 2,
            ..LedgerLimits::default()
        };
        let mut ledger = ledger(0);
        let mut declare = |number| {
            let leaves = [leaf(number)];
            ledger.dropped(number, &leaves, NOW, &limits, &Hasher::xxh3())
        };
        let taken = [0, 2, 4, 1].map(&mut declare);
        assert_eq!(taken, [1, 1, 0, 0]);
        assert!(ledger.is_missing(4) && ledger.is_missing(1));
    }

    #[test]
    fn what_one_member_declares_has_come_if_it_came_to_another() {
        let member = || LaneLedger::new(Join::Member);
        let (mut one, mut other) = (member(), member());
        drop_all(&mut one, 1, &[leaf(1), leaf(2), leaf(3)]);
        come(&mut other, 2);
        let merged = |one: &LaneLedger, other: &LaneLedger| {
            let mut merged = one.clone();
            merged.merge(other, &LedgerLimits::default());
            merged
        };
        for merged in [merged(&one, &other), merged(&other, &one)] {
            let declared = (0..5).filter(|number| merged.is_declared(*number));
            assert_eq!(declared.collect::<Vec<_>>(), [1, 3]);
            assert!(merged.is_missing(0) && !merged.is_missing(2));
            assert_eq!(merged.windows.open[0].doubt.dropped, [1, 3]);
        }
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
