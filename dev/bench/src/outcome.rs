//! What becomes of a bar: the one place that decides what a figure says where the load generator
//! had no time left, or the run was too short.
//!
//! Invariant: what is not known is not passed. A rate that was held back is the least that a broker
//! does, and a latency, which is counted from when a message was due, the most. So where ours was,
//! it is at least as good as what was found: a bar that it reaches is reached. Where the other's
//! was, the ratio may flatter ours, and is only missed for certain; where both were, nothing is
//! known.

use serde::Serialize;

use crate::figure::Bar;

/// What became of a bar.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Outcome {
    Passed,
    /// Missed by less than twice the spread between the rounds, where that counts as met.
    WithinSpread,
    Missed,
    /// There was nothing to compare with.
    NotMeasured,
    NotJudged(Because),
}

/// Why a figure says nothing of a broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Because {
    /// It took all the time of its threads.
    LoadGenerator,
    /// Of a program that we did not write, the same.
    Client,
    /// Fewer rounds, or seconds, than the bar is about.
    TooShort,
}

/// What a busy load generator does to a figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Quantity {
    /// Nothing: it is the broker's own.
    Cost,
    /// What is found is the least that the broker does.
    Rate,
    /// It holds the wait for the generator: what is found is the most that the broker takes.
    Latency,
}

/// Above this share of the time of all its threads the load generator is what limits a closed
/// loop, and what messages wait for in an open one.
pub(crate) const BUSY: f64 = 0.95;

impl Outcome {
    /// Of a figure, if there is one.
    pub(crate) fn of(bar: Bar, value: Option<f64>) -> Self {
        match value {
            Some(value) if bar.admits(value) => Self::Passed,
            Some(_) => Self::Missed,
            None => Self::NotMeasured,
        }
    }

    pub(crate) fn passed(self) -> bool {
        matches!(self, Self::Passed | Self::WithinSpread)
    }

    /// The same where whoever made the load had no time left for ours.
    pub(crate) fn held_back(self, what: Quantity, by: Because) -> Self {
        match (what, self) {
            (Quantity::Rate | Quantity::Latency, Self::Missed) => Self::NotJudged(by),
            _ => self,
        }
    }

    /// The same where it had none left for one that ours is held against.
    pub(crate) fn other_held_back(self, what: Quantity, by: Because) -> Self {
        match (what, self) {
            (Quantity::Rate | Quantity::Latency, it) if it.passed() => Self::NotJudged(by),
            _ => self,
        }
    }

    /// The same in a run that is shorter than the bar is about. One that is missed stays so.
    pub(crate) fn in_short(self) -> Self {
        match self {
            it if it.passed() => Self::NotJudged(Because::TooShort),
            _ => self,
        }
    }

    /// In a table.
    pub(crate) const fn shown(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::WithinSpread => "passed within the spread",
            Self::Missed => "**missed**",
            Self::NotMeasured => "**not measured**",
            Self::NotJudged(Because::LoadGenerator) => "**not judged (load generator)**",
            Self::NotJudged(Because::Client) => "**not judged (the program)**",
            Self::NotJudged(Because::TooShort) => "**not judged (too short)**",
        }
    }

    /// Behind the name of what was not passed.
    pub(crate) const fn why(self) -> &'static str {
        match self {
            Self::Passed | Self::WithinSpread | Self::Missed => "",
            Self::NotMeasured => ", not measured",
            Self::NotJudged(Because::LoadGenerator) => {
                ", not judged: the load generator took all the time of its threads"
            }
            Self::NotJudged(Because::Client) => {
                ", not judged: the program took what the broker left of the machine"
            }
            Self::NotJudged(Because::TooShort) => {
                ", not judged: fewer rounds or seconds than asked"
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_held_back_may_be_passed_and_not_missed() {
        let by = Because::LoadGenerator;
        let unknown = Outcome::NotJudged(by);
        for (what, passed, missed) in [
            (Quantity::Cost, Outcome::Passed, Outcome::Missed),
            (Quantity::Rate, Outcome::Passed, unknown),
            (Quantity::Latency, Outcome::Passed, unknown),
        ] {
            assert_eq!(Outcome::Passed.held_back(what, by), passed);
            assert_eq!(Outcome::Missed.held_back(what, by), missed);
            let none = Outcome::NotMeasured;
            assert_eq!(none.held_back(what, by), none);
        }
    }

    #[test]
    fn against_what_was_held_back_ours_may_be_missed_and_not_passed() {
        let by = Because::LoadGenerator;
        let unknown = Outcome::NotJudged(by);
        for (what, passed, missed) in [
            (Quantity::Cost, Outcome::Passed, Outcome::Missed),
            (Quantity::Rate, unknown, Outcome::Missed),
            (Quantity::Latency, unknown, Outcome::Missed),
        ] {
            assert_eq!(Outcome::Passed.other_held_back(what, by), passed);
            assert_eq!(Outcome::Missed.other_held_back(what, by), missed);
            let none = Outcome::NotMeasured;
            assert_eq!(none.other_held_back(what, by), none);
        }
        for what in [Quantity::Rate, Quantity::Latency] {
            for outcome in [Outcome::Passed, Outcome::Missed] {
                let both = outcome.held_back(what, by);
                assert_eq!(both.other_held_back(what, by), unknown);
            }
        }
    }

    #[test]
    fn what_is_passed_in_short_is_not_and_what_is_missed_stays_so() {
        assert!(!Outcome::Passed.in_short().passed());
        assert_eq!(Outcome::Missed.in_short(), Outcome::Missed);
    }
}
