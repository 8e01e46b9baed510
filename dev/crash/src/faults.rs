//! The faults of a disk that are tried, and whether each was met.
//!
//! A fault waits for a number of calls of its kind. One that waits for more of them than a broker
//! makes is no fault at all, and the run with it shows nothing: so the numbers are drawn below what
//! a broker makes at least, and a kind that was tried and never met is a fault of the run.

use std::collections::BTreeMap;
use std::fmt;

use unbroken_acceptance::disk::Fault;

use crate::random::Random;

/// When the disk fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum When {
    /// While clients are served.
    Serving,
    /// While a broker begins that has a store.
    Beginning,
    /// While a broker begins that has none, and makes one.
    Making,
}

impl When {
    /// The kinds that can be met then, with how many calls of each there are at least.
    fn kinds(self) -> &'static [(Fault, u64)] {
        match self {
            Self::Serving => &SERVING,
            Self::Beginning => &BEGINNING,
            Self::Making => &MAKING,
        }
    }

    /// So many faults, of one kind after the other.
    pub(crate) fn faults(self, count: u64) -> impl Iterator<Item = Fault> {
        let kinds = self.kinds().iter().cycle();
        (0..count).zip(kinds).map(|(_, (fault, _))| *fault)
    }

    /// One of each kind.
    pub(crate) fn each(self) -> impl Iterator<Item = Fault> {
        self.kinds().iter().map(|(fault, _)| *fault)
    }

    /// After how many calls the disk fails.
    pub(crate) fn draw(self, fault: Fault, random: &mut Random) -> u64 {
        let found = self.kinds().iter().find(|(kind, _)| *kind == fault);
        random.below(found.map_or(1, |(_, calls)| *calls))
    }
}

/// How often each fault was tried, and how often a call has met it.
#[derive(Debug, Default)]
pub(crate) struct Met(BTreeMap<(When, Fault), (u64, u64)>);

impl Met {
    pub(crate) fn note(&mut self, when: When, fault: Fault, is_met: bool) {
        let (tried, met) = self.0.entry((when, fault)).or_default();
        *tried += 1;
        *met += u64::from(is_met);
    }

    /// The kinds that were never met, a sentence each.
    pub(crate) fn faults(&self) -> Vec<String> {
        let never = self.0.iter().filter(|(_, (_, met))| *met == 0);
        let never = never.map(|((when, fault), (tried, _))| {
            format!("{when:?}: {fault:?} was tried {tried} times, and no call has met it")
        });
        never.collect()
    }
}

/// As in `Serving: Full 3 of 3, Write 3 of 3; Making: Rename 1 of 1`.
impl fmt::Display for Met {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut before = None;
        for ((when, fault), (tried, met)) in &self.0 {
            match before {
                Some(before) if before == when => f.write_str(", ")?,
                Some(_) => write!(f, "; {when:?}: ")?,
                None => write!(f, "{when:?}: ")?,
            }
            write!(f, "{fault:?} {met} of {tried}")?;
            before = Some(when);
        }
        if before.is_none() {
            f.write_str("none")?;
        }
        Ok(())
    }
}

/// A broker that serves goes on until it has met its fault, so this is only how long it does.
const SERVING: [(Fault, u64); 4] = [
    (Fault::Full, 100),
    (Fault::Write, 100),
    (Fault::Sync, 100),
    (Fault::Short, 100),
];
/// Counted with 1 shard on a store of one generation. Nothing is renamed.
const BEGINNING: [(Fault, u64); 7] = [
    (Fault::Open, 250),
    (Fault::Make, 20),
    (Fault::Truncate, 1),
    (Fault::Remove, 40),
    (Fault::Full, 4),
    (Fault::Write, 4),
    (Fault::Sync, 5),
];
/// Counted with 1 shard.
const MAKING: [(Fault, u64); 8] = [
    (Fault::Open, 250),
    (Fault::Make, 80),
    (Fault::Rename, 15),
    (Fault::Truncate, 2),
    (Fault::Remove, 40),
    (Fault::Full, 150),
    (Fault::Write, 150),
    (Fault::Sync, 100),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_that_was_never_met_is_named() {
        let mut met = Met::default();
        assert_eq!(met.to_string(), "none");
        met.note(When::Serving, Fault::Full, true);
        met.note(When::Making, Fault::Full, false);
        met.note(When::Making, Fault::Rename, false);
        met.note(When::Making, Fault::Rename, true);
        assert_eq!(
            met.to_string(),
            "Serving: Full 1 of 1; Making: Full 0 of 1, Rename 1 of 2"
        );
        assert_eq!(
            met.faults(),
            ["Making: Full was tried 1 times, and no call has met it"]
        );
    }
}
