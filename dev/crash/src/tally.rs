//! Numbers that must come, and those that have.

use std::collections::{BTreeMap, BTreeSet};

/// What was promised to somebody, and what has come.
#[derive(Debug)]
pub(crate) struct Tally {
    name: &'static str,
    may_repeat: bool,
    due: BTreeSet<u64>,
    /// How often each has come.
    came: BTreeMap<u64, u64>,
}

impl Tally {
    pub(crate) fn new(name: &'static str, may_repeat: bool) -> Self {
        Self {
            name,
            may_repeat,
            due: BTreeSet::new(),
            came: BTreeMap::new(),
        }
    }

    /// It is promised.
    pub(crate) fn expect(&mut self, number: u64) {
        self.due.insert(number);
    }

    pub(crate) fn take(&mut self, number: u64) {
        *self.came.entry(number).or_default() += 1;
    }

    pub(crate) fn has_all(&self) -> bool {
        self.due.iter().all(|number| self.came.contains_key(number))
    }

    /// What has come, each once.
    pub(crate) fn count(&self) -> u64 {
        self.came.len() as u64
    }

    /// What is wrong, a sentence each.
    pub(crate) fn faults(&self) -> Vec<String> {
        let name = self.name;
        let missing = self.due.iter().filter(|due| !self.came.contains_key(due));
        let missing = missing.map(|number| format!("{name}: {number} never came"));
        let again = self
            .came
            .iter()
            .filter(|(_, times)| **times > 1 && !self.may_repeat);
        let again = again.map(|(number, times)| format!("{name}: {number} came {times} times"));
        missing.chain(again).take(TOLD_MAX).collect()
    }
}

/// Faults that are told.
const TOLD_MAX: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_and_what_came_again_is_named() {
        let mut tally = Tally::new("heir", false);
        for number in 1..4 {
            tally.expect(number);
        }
        for number in [1, 2, 2, 9] {
            tally.take(number);
        }
        assert!(!tally.has_all());
        assert_eq!(tally.count(), 3);
        assert_eq!(
            tally.faults(),
            ["heir: 3 never came", "heir: 2 came 2 times"]
        );
        tally.take(3);
        assert!(tally.has_all());
    }
}
