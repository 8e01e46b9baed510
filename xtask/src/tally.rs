//! Adding up what test programs say of themselves.

use std::fmt;
use std::ops::AddAssign;

/// How many tests passed, failed and were skipped.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
    pub(crate) skipped: usize,
}

impl Tally {
    pub(crate) const PASSED: Self = Self {
        passed: 1,
        failed: 0,
        skipped: 0,
    };
    pub(crate) const FAILED: Self = Self {
        passed: 0,
        failed: 1,
        skipped: 0,
    };
    pub(crate) const SKIPPED: Self = Self {
        passed: 0,
        failed: 0,
        skipped: 1,
    };

    /// What this line of output adds: `test result: ok. 3 passed; 0 failed; 1 ignored; …` of
    /// libtest; `12 scenarios (11 passed, 1 skipped)` of the features; or `1 test (1 skipped)` of a
    /// test that leaves out what needs a program that is not there, and of whoever counts so.
    pub(crate) fn from_line(line: &str) -> Option<Self> {
        let line = line.trim();
        if let Some((_, counts)) = line
            .strip_prefix("test result: ")
            .and_then(|rest| rest.split_once(". "))
        {
            return Some(Self::from_counts(counts, ';'));
        }
        let (lead, counts) = line.split_once(" (")?;
        let (number, noun) = lead.split_once(' ')?;
        let counts = counts.strip_suffix(')')?;
        let is_known = noun.starts_with("scenario") || noun == "test" || noun == "tests";
        let is_count = number.parse::<usize>().is_ok() && is_known;
        is_count.then(|| Self::from_counts(counts, ','))
    }

    fn from_counts(counts: &str, separator: char) -> Self {
        let mut tally = Self::default();
        for count in counts.split(separator) {
            let Some((number, what)) = count.trim().split_once(' ') else {
                continue;
            };
            let number = number.parse().unwrap_or(0);
            match what {
                "passed" => tally.passed += number,
                "failed" => tally.failed += number,
                "ignored" | "skipped" => tally.skipped += number,
                _ => {}
            }
        }
        tally
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            passed,
            failed,
            skipped,
        } = self;
        write!(f, "{passed} passed, {failed} failed, {skipped} skipped")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str, expect: Option<(usize, usize, usize)>) {
        let expect = expect.map(|(passed, failed, skipped)| Tally {
            passed,
            failed,
            skipped,
        });
        assert_eq!(Tally::from_line(line), expect, "{line}");
    }

    #[test]
    fn results_of_test_programs_are_counted_and_nothing_else() {
        check(
            "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; finished in 0.01s",
            Some((3, 0, 1)),
        );
        check(
            "test result: FAILED. 7 passed; 2 failed; 0 ignored; 0 measured",
            Some((7, 2, 0)),
        );
        check("12 scenarios (11 passed, 1 skipped)", Some((11, 0, 1)));
        check("1 scenario (1 failed)", Some((0, 1, 0)));
        check("1 test (1 skipped)", Some((0, 0, 1)));
        check("13 tests (13 passed, 0 skipped)", Some((13, 0, 0)));
        check("50 steps (50 passed)", None);
        check("test connect ... ok", None);
    }
}
