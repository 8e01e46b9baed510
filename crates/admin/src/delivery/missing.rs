//! Which numbers of an incident have not been put right.
//!
//! Invariant: at most [`MISSING_RUNS_MAX`] runs, in order, none touching the next. Numbers without
//! room are counted in `more`, and never leave it: their incident stays open until somebody
//! ignores it.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::limits::MISSING_RUNS_MAX;

/// Numbers that were not sent again.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub(crate) struct Missing {
    /// The first and the last number of each run.
    #[schema(value_type = Vec<Vec<u64>>)]
    runs: Vec<(u64, u64)>,
    /// Numbers that there was no room for.
    more: u64,
}

impl Missing {
    pub(crate) fn is_empty(&self) -> bool {
        self.runs.is_empty() && self.more == 0
    }

    /// Adds all from `first` to `last`.
    pub(crate) fn add(&mut self, first: u64, last: u64) {
        let begin = self
            .runs
            .partition_point(|(_, end)| end.saturating_add(1) < first);
        let touching = self.runs[begin..].iter();
        let touching = touching.take_while(|(start, _)| *start <= last.saturating_add(1));
        let end = begin + touching.count();
        if begin == end && self.runs.len() >= MISSING_RUNS_MAX {
            self.more = self.more.saturating_add((last - first).saturating_add(1));
            return;
        }
        let joined = self.runs[begin..end].iter();
        let joined = joined.fold((first, last), |(first, last), (start, end)| {
            (first.min(*start), last.max(*end))
        });
        self.runs.splice(begin..end, [joined]);
    }

    /// Adds what another one has.
    pub(crate) fn join(&mut self, other: &Self) {
        for (first, last) in &other.runs {
            self.add(*first, *last);
        }
        self.more = self.more.saturating_add(other.more);
    }

    /// Takes a number out. Answers whether it was in it.
    pub(crate) fn remove(&mut self, number: u64) -> bool {
        let at = self.runs.partition_point(|(_, last)| *last < number);
        let Some((first, last)) = self.runs.get(at).copied() else {
            return false;
        };
        if number < first {
            return false;
        }
        let before = (first < number).then(|| (first, number - 1));
        let mut after = (number < last).then(|| (number + 1, last));
        if before.is_some() && self.runs.len() >= MISSING_RUNS_MAX {
            // The half behind it has no room.
            self.more += after.take().map_or(0, |(first, last)| last - first + 1);
        }
        self.runs.splice(at..=at, before.into_iter().chain(after));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_join_and_each_number_leaves_once() {
        let mut missing = Missing::default();
        for (first, last) in [(4, 5), (9, 9), (6, 6), (1, 1)] {
            missing.add(first, last);
        }
        assert_eq!(missing.runs, [(1, 1), (4, 6), (9, 9)]);
        missing.add(2, 8);
        assert_eq!(missing.runs, [(1, 9)]);
        assert!(missing.remove(5) && !missing.remove(5) && !missing.remove(10));
        assert_eq!(missing.runs, [(1, 4), (6, 9)]);
        for number in [1, 2, 3, 4, 6, 7, 8, 9] {
            assert!(!missing.is_empty());
            assert!(missing.remove(number), "{number}");
        }
        assert!(missing.is_empty());
    }

    #[test]
    fn numbers_without_room_stay() {
        let mut missing = Missing::default();
        let runs = MISSING_RUNS_MAX as u64;
        for number in 0..=runs {
            missing.add(3 * number, 3 * number);
        }
        assert_eq!((missing.runs.len(), missing.more), (MISSING_RUNS_MAX, 1));
        for number in 0..=runs {
            missing.remove(3 * number);
        }
        assert!(!missing.is_empty());
    }
}
