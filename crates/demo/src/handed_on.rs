//! What C has handed on, by A's numbers: each once, and in their order?
//!
//! It stands behind everything that sees to that and trusts none of it: it knows only which numbers
//! have passed. Of those that were passed over it remembers so many; one that comes after it was
//! forgotten is counted as handed on again.

use std::collections::BTreeSet;

use crate::limits::PASSED_OVER_MAX;

#[derive(Debug, Default)]
pub(crate) struct HandedOn {
    /// One more than the highest number.
    next: u64,
    passed_over: BTreeSet<u64>,
}

/// How a number was handed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Passed {
    /// For the first time, and behind lower ones only.
    InOrder,
    /// For the first time, and behind a higher one.
    Reordered,
    /// Again.
    Duplicated,
}

impl HandedOn {
    /// One more.
    pub(crate) fn pass(&mut self, number: u64) -> Passed {
        if number >= self.next {
            let over = (self.next..number).rev().take(PASSED_OVER_MAX);
            self.passed_over.extend(over);
            while self.passed_over.len() > PASSED_OVER_MAX {
                self.passed_over.pop_first();
            }
            self.next = number + 1;
            Passed::InOrder
        } else if self.passed_over.remove(&number) {
            Passed::Reordered
        } else {
            Passed::Duplicated
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_in_order_once_and_otherwise_moved_or_again() {
        use Passed::{Duplicated, InOrder, Reordered};
        let mut handed_on = HandedOn::default();
        let passed = [0, 1, 1, 4, 3, 3, 5, 2, 0].map(|number| handed_on.pass(number));
        let expected = [
            InOrder, InOrder, Duplicated, InOrder, Reordered, Duplicated, InOrder, Reordered,
            Duplicated,
        ];
        assert_eq!(passed, expected);
    }

    #[test]
    fn what_was_passed_over_is_remembered_up_to_a_limit() {
        let mut handed_on = HandedOn::default();
        handed_on.pass(1 << 60);
        assert_eq!(handed_on.passed_over.len(), PASSED_OVER_MAX);
        assert_eq!(handed_on.pass((1 << 60) - 1), Passed::Reordered);
        assert_eq!(handed_on.pass(0), Passed::Duplicated);
    }
}
