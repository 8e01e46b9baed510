//! How many messages moved, and which: the number of first arrivals less the longest increasing
//! subsequence of their numbers.
//!
//! That number is minimal and unique: no smaller set of messages explains the disorder. It is
//! streamed. While numbers arrive in order and none is missing, nothing is kept; from the first
//! hole on, arrivals are collected as runs of neighbouring numbers until the next *cut*, when
//! every number below the highest has come or been given up. Everything before a cut is smaller
//! than everything after it, so each stretch is solved alone.
//!
//! A run is never split by the solution: no other arrival has a number between two neighbours, so
//! whatever goes with one of them goes with all. The heaviest increasing chain of runs is
//! therefore the longest increasing subsequence, and a loss in a fast lane costs one run, however
//! many messages follow it. Of two equally long chains the one with more messages that were on
//! time is taken, so that of two swapped neighbours the late one is named.
//!
//! A stretch lasts as long as something is missing. A message that comes late in it is named at
//! once, with how many have overtaken it so far; which messages moved is known at its end.
//!
//! **Exact** as long as no message comes after it was given up as lost; each that does counts as
//! one move. **Absent:** order between lanes, which nobody promises.

use std::collections::BTreeMap;
use std::ops::Range;

use super::limits::DISORDER_RUNS_MAX;

/// The stretch of disorder that is being collected.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Order {
    pub(crate) runs: Vec<Run>,
}

/// Neighbouring numbers that arrived one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) first: u64,
    pub(crate) len: u64,
    /// Below a number that had already come.
    pub(crate) late: bool,
}

/// Messages that left their place together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moved {
    /// Their numbers, which arrived one after the other.
    pub numbers: Range<u64>,
    /// Places between where they came and where they belonged among what arrived: above 0 when
    /// they came too late, below 0 when too early.
    pub displacement: i64,
}

impl Order {
    /// Takes a first arrival of a stretch. Returns false when the stretch is as long as it may be
    /// and must be cut.
    pub(crate) fn arrived(&mut self, number: u64, late: bool) -> bool {
        if let Some(last) = self.runs.last_mut()
            && last.first + last.len == number
            && last.late == late
        {
            last.len += 1;
        } else {
            self.runs.push(Run {
                first: number,
                len: 1,
                late,
            });
        }
        self.runs.len() < DISORDER_RUNS_MAX
    }

    /// How many of the stretch have a higher number than this one, which is in it.
    pub(crate) fn above(&self, number: u64) -> u64 {
        let higher = self.runs.iter().filter(|run| run.first > number);
        higher.map(|run| run.len).sum()
    }

    /// True while nothing is collected.
    pub(crate) fn is_calm(&self) -> bool {
        self.runs.is_empty()
    }

    /// Ends the stretch and names what moved in it, in the order of arrival.
    pub(crate) fn cut(&mut self) -> Vec<Moved> {
        let runs = std::mem::take(&mut self.runs);
        if runs.iter().all(|run| !run.late) {
            return Vec::new();
        }
        moved(&runs)
    }
}

/// Length of a chain, then how much of it was on time.
type Weight = (u64, u64);

fn moved(runs: &[Run]) -> Vec<Moved> {
    let stays = heaviest_chain(runs);
    let mut by_number: Vec<usize> = (0..runs.len()).collect();
    by_number.sort_unstable_by_key(|index| runs[*index].first);
    let mut rank = vec![0_i64; runs.len()];
    let mut before = 0;
    for index in by_number {
        rank[index] = before;
        before = before.saturating_add_unsigned(runs[index].len);
    }
    let mut place = 0_i64;
    let mut moved = Vec::new();
    for (index, run) in runs.iter().enumerate() {
        if !stays[index] {
            moved.push(Moved {
                numbers: run.first..run.first + run.len,
                displacement: place - rank[index],
            });
        }
        place = place.saturating_add_unsigned(run.len);
    }
    moved
}

/// Patience sorting with weights: for each last number the heaviest chain that ends there, kept
/// only where no smaller number ends a chain as heavy.
fn heaviest_chain(runs: &[Run]) -> Vec<bool> {
    let mut ends: BTreeMap<u64, (Weight, usize)> = BTreeMap::new();
    let mut previous: Vec<Option<usize>> = Vec::with_capacity(runs.len());
    for (index, run) in runs.iter().enumerate() {
        let own = (run.len, if run.late { 0 } else { run.len });
        let below = ends.range(..run.first).next_back().map(|(_, end)| *end);
        let weight = below.map_or(own, |((len, on_time), _)| (len + own.0, on_time + own.1));
        previous.push(below.map(|(_, index)| index));
        while let Some((&number, &(heavy, _))) = ends.range(run.first..).next()
            && heavy <= weight
        {
            ends.remove(&number);
        }
        ends.insert(run.first, (weight, index));
    }
    let mut stays = vec![false; runs.len()];
    let mut at = ends.last_key_value().map(|(_, (_, index))| *index);
    while let Some(index) = at {
        stays[index] = true;
        at = previous[index];
    }
    stays
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn solve(arrivals: &[u64]) -> Vec<Moved> {
        let mut order = Order::default();
        let mut next = 0;
        for &number in arrivals {
            assert!(order.arrived(number, number < next));
            next = next.max(number + 1);
        }
        order.cut()
    }

    fn count(moved: &[Moved]) -> usize {
        moved.iter().flat_map(|run| run.numbers.clone()).count()
    }

    /// Longest increasing subsequence by its definition, in quadratic time.
    fn naive_lis(numbers: &[u64]) -> usize {
        let mut best = vec![1; numbers.len()];
        for at in 0..numbers.len() {
            for before in 0..at {
                if numbers[before] < numbers[at] {
                    best[at] = best[at].max(best[before] + 1);
                }
            }
        }
        best.into_iter().max().unwrap_or(0)
    }

    #[test]
    fn of_two_swapped_neighbours_the_late_one_moved() {
        let late = |number: u64, displacement| Moved {
            numbers: number..number + 1,
            displacement,
        };
        assert_eq!(solve(&[1, 0]), [late(0, 1)]);
        assert_eq!(solve(&[0, 2, 1, 3]), [late(1, 1)]);
        assert_eq!(solve(&[2, 1, 3, 5, 4, 6]), [late(1, 1), late(4, 1)]);
    }

    #[test]
    fn a_message_far_too_early_is_the_one_that_moved() {
        let early = Moved {
            numbers: 9..10,
            displacement: -4,
        };
        assert_eq!(solve(&[9, 1, 2, 3, 4]), [early]);
    }

    #[test]
    fn a_block_that_moved_is_named_once() {
        let block = Moved {
            numbers: 0..2,
            displacement: 3,
        };
        assert_eq!(solve(&[2, 3, 4, 0, 1, 5]), [block]);
    }

    #[test]
    fn a_hole_that_is_never_filled_moves_nothing() {
        assert_eq!(solve(&[0, 1, 3, 4, 7]), []);
    }

    #[test]
    fn all_runs_behind_a_number_are_above_it() {
        let mut order = Order::default();
        for number in [5, 6, 9, 2, 3] {
            order.arrived(number, number < 5);
        }
        assert_eq!(order.above(2), 3);
        assert_eq!(order.above(6), 1);
        assert_eq!(order.above(9), 0);
    }

    #[test]
    fn a_stretch_of_as_many_runs_as_there_may_be_is_to_be_cut() {
        let mut order = Order::default();
        let most = u64::try_from(DISORDER_RUNS_MAX).expect("it is small");
        assert!((1..most).all(|run| order.arrived(2 * run, false)));
        assert!(!order.arrived(2 * most, false));
    }

    #[test]
    fn a_stretch_of_late_messages_alone_has_what_moved_in_it() {
        let mut order = Order::default();
        for number in [5, 3] {
            order.arrived(number, true);
        }
        assert_eq!(count(&order.cut()), 1);
    }

    proptest! {
        #[test]
        fn moved_is_n_less_the_longest_increasing_subsequence(
            arrivals in prop::collection::vec(0_u64..40, 0..40)
                .prop_map(|mut numbers| {
                    let mut seen = std::collections::HashSet::new();
                    numbers.retain(|number| seen.insert(*number));
                    numbers
                }),
        ) {
            let moved = solve(&arrivals);
            prop_assert_eq!(count(&moved), arrivals.len() - naive_lis(&arrivals));
            let gone: Vec<u64> = moved.iter().flat_map(|run| run.numbers.clone()).collect();
            let rest: Vec<u64> = arrivals.iter().copied().filter(|n| !gone.contains(n)).collect();
            prop_assert!(rest.is_sorted());
        }
    }
}
