//! The numbers of a lane that have not arrived, as a set of intervals.
//!
//! Together with the highest number seen, this is the exact set of everything that ever arrived,
//! in memory that grows with the number of holes and not with the age of the lane: a duplicate of
//! a message from last month is still known as one.
//!
//! **Invariants.** Holes do not touch unless they differ in when they were noticed or in whether
//! they were given up or written off; none is empty; `waiting` counts those not given up.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

/// Numbers that are missing, ordered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Gaps {
    holes: BTreeMap<u64, Hole>,
    waiting: usize,
}

/// What is known of a run of missing numbers, kept under its first one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hole {
    pub(crate) end: u64,
    /// When its absence was seen first, on the lane's clock.
    pub(crate) noticed: Duration,
    /// The lateness bound has passed: it was reported lost.
    pub(crate) lost: bool,
    /// Lost, and by an answer no longer held: not worth waiting for.
    pub(crate) gone: bool,
}

impl Hole {
    /// What is known of numbers whose absence was noticed then, but for where they end.
    pub(crate) const fn new(noticed: Duration) -> Self {
        Self {
            end: 0,
            noticed,
            lost: false,
            gone: false,
        }
    }

    /// Whether the same is known of both.
    fn is_alike(self, other: Self) -> bool {
        (self.noticed, self.lost, self.gone) == (other.noticed, other.lost, other.gone)
    }
}

impl Gaps {
    /// Adds missing numbers. None of them may be in the set.
    pub(crate) fn open(&mut self, numbers: Range<u64>, noticed: Duration, lost: bool) {
        if numbers.is_empty() {
            return;
        }
        debug_assert_eq!(self.missing_in(numbers.clone()), 0, "opened twice");
        let hole = Hole {
            end: numbers.end,
            noticed,
            lost,
            gone: false,
        };
        if let Some((_, last)) = self.holes.range_mut(..numbers.start).next_back()
            && last.end == numbers.start
            && (last.noticed, last.lost, last.gone) == (noticed, lost, false)
        {
            last.end = numbers.end;
            return;
        }
        self.insert(numbers.start, hole);
    }

    /// The hole that this number lies in.
    pub(crate) fn find(&self, number: u64) -> Option<Hole> {
        let (_, hole) = self.holes.range(..=number).next_back()?;
        (number < hole.end).then_some(*hole)
    }

    /// Takes one number out, and returns the hole it was in.
    pub(crate) fn fill(&mut self, number: u64) -> Option<Hole> {
        let (&start, &hole) = self.holes.range(..=number).next_back()?;
        if number >= hole.end {
            return None;
        }
        self.remove(start);
        if start < number {
            self.insert(
                start,
                Hole {
                    end: number,
                    ..hole
                },
            );
        }
        if number + 1 < hole.end {
            self.insert(number + 1, hole);
        }
        Some(hole)
    }

    /// Marks as lost what was noticed no later than `noticed_by` and lies below `below`; returns
    /// it, ordered.
    pub(crate) fn give_up(&mut self, noticed_by: Duration, below: u64) -> Vec<Range<u64>> {
        let due: Vec<(u64, Hole)> = self
            .holes
            .range(..below)
            .filter(|(_, hole)| !hole.lost && hole.noticed <= noticed_by)
            .map(|(start, hole)| (*start, *hole))
            .collect();
        let mut lost: Vec<Range<u64>> = Vec::with_capacity(due.len());
        for (start, hole) in due {
            self.remove(start);
            let end = hole.end.min(below);
            self.insert(
                start,
                Hole {
                    end,
                    lost: true,
                    ..hole
                },
            );
            if end < hole.end {
                self.insert(end, hole);
            }
            match lost.last_mut() {
                Some(last) if last.end == start => last.end = end,
                _ => lost.push(start..end),
            }
        }
        lost
    }

    /// Marks what was given up among these numbers as not worth waiting for.
    pub(crate) fn write_off(&mut self, numbers: &Range<u64>) {
        let parts: Vec<Range<u64>> = self.within(numbers.clone()).collect();
        for part in parts {
            let Some((&start, &hole)) = self.holes.range(..=part.start).next_back() else {
                continue;
            };
            if !hole.lost || hole.gone {
                continue;
            }
            self.remove(start);
            let middle = Hole {
                end: part.end,
                gone: true,
                ..hole
            };
            let before = Hole {
                end: part.start,
                ..hole
            };
            for (start, piece) in [(start, before), (part.start, middle), (part.end, hole)] {
                if start < piece.end {
                    self.insert(start, piece);
                }
            }
        }
    }

    /// When the next hole below `below` was noticed that is not given up yet: the earliest one.
    pub(crate) fn earliest_waiting(&self, below: u64) -> Option<Duration> {
        if self.waiting == 0 {
            return None;
        }
        self.holes
            .range(..below)
            .filter(|(_, hole)| !hole.lost)
            .map(|(_, hole)| hole.noticed)
            .min()
    }

    /// Forgets the oldest hole, which then counts as seen.
    pub(crate) fn forget_oldest(&mut self) -> Option<Range<u64>> {
        let (&start, hole) = self.holes.first_key_value()?;
        let numbers = start..hole.end;
        self.remove(start);
        Some(numbers)
    }

    /// Adds numbers of which nothing but this is known, as one run with what they touch. None of
    /// them may be in the set.
    pub(crate) fn add(&mut self, mut numbers: Range<u64>) {
        if let Some(behind) = self.holes.get(&numbers.end).copied() {
            self.remove(numbers.end);
            numbers.end = behind.end;
        }
        self.open(numbers, Duration::ZERO, true);
    }

    /// Takes these numbers out, as far as they are in the set.
    pub(crate) fn forget(&mut self, numbers: &Range<u64>) {
        let parts: Vec<Range<u64>> = self.within(numbers.clone()).collect();
        for part in parts {
            let Some((&start, &hole)) = self.holes.range(..=part.start).next_back() else {
                continue;
            };
            self.remove(start);
            let before = Hole {
                end: part.start,
                ..hole
            };
            for (start, piece) in [(start, before), (part.end, hole)] {
                if start < piece.end {
                    self.insert(start, piece);
                }
            }
        }
    }

    /// The highest number below `end` that is not in the set.
    pub(crate) fn last_outside(&self, mut end: u64) -> Option<u64> {
        for (start, hole) in self.holes.range(..end).rev() {
            if hole.end < end {
                break;
            }
            end = *start;
        }
        end.checked_sub(1)
    }

    /// What is in this set and not in `other`.
    pub(crate) fn without(&self, other: &Self) -> Self {
        let mut rest = self.clone();
        for (start, hole) in other.iter() {
            rest.forget(&(start..hole.end));
        }
        rest
    }

    /// What is in one of two sets that have no number in common.
    pub(crate) fn with(&self, other: &Self) -> Self {
        let mut both = self.clone();
        for (start, hole) in other.iter() {
            both.insert(start, hole);
        }
        both
    }

    /// The missing numbers that lie in `numbers`, ordered.
    pub(crate) fn within(&self, numbers: Range<u64>) -> impl Iterator<Item = Range<u64>> {
        let before = self.holes.range(..numbers.start).next_back();
        let inside = self
            .holes
            .range(numbers.start..numbers.end.max(numbers.start));
        before
            .into_iter()
            .chain(inside)
            .map(move |(start, hole)| (*start).max(numbers.start)..hole.end.min(numbers.end))
            .filter(|part| !part.is_empty())
    }

    /// How many of `numbers` are missing.
    pub(crate) fn missing_in(&self, numbers: Range<u64>) -> u64 {
        self.within(numbers).map(|part| part.end - part.start).sum()
    }

    /// How many of `numbers` were given up.
    pub(crate) fn lost_in(&self, numbers: Range<u64>) -> u64 {
        let parts = self.within(numbers);
        let lost = parts.filter(|part| self.find(part.start).is_some_and(|hole| hole.lost));
        lost.map(|part| part.end - part.start).sum()
    }

    /// The numbers below `next` that are missing from both this set and `other`, where each lacks
    /// everything from its own next number on. `both` says what is known of such a hole; one that
    /// is beyond a set's next number is not in it.
    pub(crate) fn common(
        (one, one_next): (&Self, u64),
        (other, other_next): (&Self, u64),
        mut both: impl FnMut(Option<Hole>, Option<Hole>) -> Hole,
    ) -> Self {
        let end = one_next.max(other_next);
        let missing = |gaps: &Self, next: u64| {
            let holes = gaps
                .iter()
                .map(|(start, hole)| (start..hole.end, Some(hole)));
            let mut missing: Vec<_> = holes.collect();
            if next < end {
                missing.push((next..end, None));
            }
            missing
        };
        let (ours, theirs) = (missing(one, one_next), missing(other, other_next));
        let mut common = Self::default();
        let (mut at, mut there) = (0, 0);
        while let (Some((one, ours)), Some((other, theirs))) = (ours.get(at), theirs.get(there)) {
            let start = one.start.max(other.start);
            let hole = both(*ours, *theirs);
            let hole = Hole {
                end: one.end.min(other.end),
                ..hole
            };
            if start < hole.end {
                common.append(start, hole);
            }
            if one.end <= other.end {
                at += 1;
            } else {
                there += 1;
            }
        }
        common
    }

    /// Adds a hole behind all others.
    fn append(&mut self, start: u64, hole: Hole) {
        if let Some(mut last) = self.holes.last_entry()
            && last.get().end == start
            && last.get().is_alike(hole)
        {
            last.get_mut().end = hole.end;
            return;
        }
        self.insert(start, hole);
    }

    /// Takes out everything below `start`.
    pub(crate) fn forget_below(&mut self, start: u64) {
        while let Some((&first, &hole)) = self.holes.first_key_value()
            && first < start
        {
            self.remove(first);
            if start < hole.end {
                self.insert(start, hole);
            }
        }
    }

    /// Takes out everything from `end` on.
    pub(crate) fn truncate(&mut self, end: u64) {
        let beyond: Vec<u64> = self.holes.range(end..).map(|(start, _)| *start).collect();
        for start in beyond {
            self.remove(start);
        }
        if let Some((_, last)) = self.holes.iter_mut().next_back() {
            last.end = last.end.min(end);
        }
    }

    /// Every hole with its first number, ordered.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, Hole)> {
        self.holes.iter().map(|(start, hole)| (*start, *hole))
    }

    /// Holes in the set.
    pub(crate) fn len(&self) -> usize {
        self.holes.len()
    }

    /// Holes that may still be filled by a late message.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting
    }

    fn insert(&mut self, start: u64, hole: Hole) {
        self.waiting += usize::from(!hole.lost);
        self.holes.insert(start, hole);
    }

    fn remove(&mut self, start: u64) {
        if let Some(hole) = self.holes.remove(&start) {
            self.waiting -= usize::from(!hole.lost);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    const NOW: Duration = Duration::ZERO;

    #[test]
    fn a_number_taken_from_the_middle_leaves_two_holes() {
        let mut gaps = Gaps::default();
        gaps.open(10..20, NOW, false);
        assert!(gaps.fill(15).is_some());
        assert!(gaps.fill(15).is_none());
        let holes: Vec<_> = gaps.within(0..100).collect();
        assert_eq!(holes, [10..15, 16..20]);
    }

    #[test]
    fn what_is_not_covered_is_not_given_up() {
        let mut gaps = Gaps::default();
        gaps.open(10..20, NOW, false);
        assert_eq!(gaps.give_up(NOW, 15), [10..15]);
        assert_eq!(gaps.give_up(NOW, 15), []);
        assert_eq!(gaps.waiting(), 1);
        assert!(gaps.find(14).unwrap().lost);
        assert!(!gaps.find(15).unwrap().lost);
    }

    #[test]
    fn only_what_was_given_up_is_written_off() {
        let mut gaps = Gaps::default();
        gaps.open(10..20, NOW, false);
        gaps.give_up(NOW, 15);
        gaps.write_off(&(12..18));
        let gone: Vec<_> = gaps.iter().filter(|(_, hole)| hole.gone).collect();
        assert_eq!(gone.len(), 1);
        assert_eq!((gone[0].0, gone[0].1.end), (12, 15));
        assert_eq!(gaps.missing_in(0..100), 10);
        assert_eq!(gaps.lost_in(0..100), 5);
    }

    #[test]
    fn what_was_noticed_later_is_not_given_up() {
        let mut gaps = Gaps::default();
        gaps.open(1..2, Duration::from_secs(1), false);
        gaps.open(3..4, Duration::from_secs(2), false);
        assert_eq!(gaps.give_up(Duration::from_secs(1), 9), [1..2]);
        assert_eq!(gaps.earliest_waiting(9), Some(Duration::from_secs(2)));
    }

    fn holes(gaps: &Gaps) -> Vec<Range<u64>> {
        gaps.iter().map(|(start, hole)| start..hole.end).collect()
    }

    #[test]
    fn only_what_touches_and_was_noticed_at_once_is_one_hole() {
        let mut gaps = Gaps::default();
        gaps.open(1..3, NOW, false);
        gaps.open(3..5, NOW, false);
        assert_eq!(holes(&gaps), [1..5]);
        gaps.open(10..12, NOW, false);
        gaps.open(12..14, Duration::from_secs(1), false);
        gaps.open(14..16, Duration::from_secs(1), true);
        assert_eq!(holes(&gaps), [1..5, 10..12, 12..14, 14..16]);
        assert_eq!((gaps.len(), gaps.waiting()), (4, 3));
    }

    #[test]
    fn what_is_given_up_at_once_and_touches_is_named_as_one() {
        let mut gaps = Gaps::default();
        let later = Duration::from_secs(1);
        gaps.open(10..12, NOW, false);
        gaps.open(12..14, later, false);
        gaps.open(15..16, NOW, false);
        assert_eq!(gaps.give_up(later, 100), [10..14, 15..16]);
    }

    #[test]
    fn the_middle_of_a_hole_is_written_off_and_its_ends_are_not() {
        let mut gaps = Gaps::default();
        gaps.open(10..20, NOW, true);
        gaps.write_off(&(12..15));
        assert_eq!(holes(&gaps), [10..12, 12..15, 15..20]);
        let gone: Vec<_> = gaps.iter().map(|(_, hole)| hole.gone).collect();
        assert_eq!(gone, [false, true, false]);
    }

    #[test]
    fn the_oldest_hole_is_forgotten_first() {
        let mut gaps = Gaps::default();
        assert_eq!(gaps.forget_oldest(), None);
        gaps.open(1..3, NOW, false);
        gaps.open(5..6, NOW, false);
        assert_eq!(gaps.forget_oldest(), Some(1..3));
        assert_eq!((holes(&gaps), gaps.waiting()), (vec![5..6], 1));
    }

    #[test]
    fn what_lies_below_or_beyond_is_taken_out() {
        let all = || {
            let mut gaps = Gaps::default();
            gaps.open(1..3, NOW, false);
            gaps.open(5..9, NOW, false);
            gaps.open(11..13, NOW, false);
            gaps
        };
        for (start, expect) in [
            (1, vec![1..3, 5..9, 11..13]),
            (2, vec![2..3, 5..9, 11..13]),
            (3, vec![5..9, 11..13]),
            (7, vec![7..9, 11..13]),
            (20, vec![]),
        ] {
            let mut gaps = all();
            gaps.forget_below(start);
            assert_eq!(
                (gaps.waiting(), holes(&gaps)),
                (expect.len(), expect),
                "{start}"
            );
        }
        for (end, expect) in [
            (20, vec![1..3, 5..9, 11..13]),
            (12, vec![1..3, 5..9, 11..12]),
            (11, vec![1..3, 5..9]),
            (6, vec![1..3, 5..6]),
            (1, vec![]),
        ] {
            let mut gaps = all();
            gaps.truncate(end);
            assert_eq!(
                (gaps.waiting(), holes(&gaps)),
                (expect.len(), expect),
                "{end}"
            );
        }
    }

    #[test]
    fn what_two_sets_have_in_common_is_one_hole_where_the_same_is_known_of_it() {
        let set = |holes: &[(Range<u64>, bool)]| {
            let mut gaps = Gaps::default();
            for (numbers, lost) in holes {
                gaps.open(numbers.clone(), NOW, *lost);
            }
            gaps
        };
        let one = set(&[(0..4, false), (4..8, true), (10..12, false)]);
        let other = set(&[(2..6, false), (6..9, true), (11..15, false)]);
        let both = |lost: bool| {
            move |one: Option<Hole>, other: Option<Hole>| Hole {
                lost: lost && [one, other].iter().flatten().any(|hole| hole.lost),
                ..Hole::new(NOW)
            }
        };
        // Both end at 12 and 15; from there on nothing is in the first.
        let common = Gaps::common((&one, 12), (&other, 15), both(false));
        assert_eq!(holes(&common), [2..8, 11..15]);
        let common = Gaps::common((&other, 15), (&one, 12), both(true));
        assert_eq!(holes(&common), [2..4, 4..8, 11..15]);
        assert_eq!(common.waiting(), 2);
    }

    proptest! {
        #[test]
        fn it_agrees_with_a_plain_set(steps in prop::collection::vec((0_u8..3, 0_u64..64), 0..200)) {
            let mut gaps = Gaps::default();
            let mut model = BTreeSet::new();
            let mut next = 0;
            for (step, number) in steps {
                match step {
                    0 => {
                        let end = next + number % 7;
                        gaps.open(next..end, Duration::from_secs(number), false);
                        model.extend(next..end);
                        next = end + 1;
                    }
                    1 => prop_assert_eq!(gaps.fill(number).is_some(), model.remove(&number)),
                    _ => drop(gaps.give_up(Duration::from_secs(number), number)),
                }
                let all: Vec<u64> = gaps.within(0..1_000).flatten().collect();
                prop_assert_eq!(&all, &model.iter().copied().collect::<Vec<_>>());
                let waiting = gaps.iter().filter(|(_, hole)| !hole.lost).count();
                prop_assert_eq!(gaps.waiting(), waiting);
                for number in 0..64 {
                    prop_assert_eq!(gaps.find(number).is_some(), model.contains(&number));
                }
            }
        }
    }
}
