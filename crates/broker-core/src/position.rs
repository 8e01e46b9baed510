//! Where a stored message is: in which log, and which number it has there.
//!
//! Each shard has a log of what it took in, and numbers it when it asks for it to be stored. So a
//! position is known before the disk has been heard of, and what a session is owed is a range of
//! each log.

use std::fmt;

use smallvec::{SmallVec, smallvec};

use crate::ids::LogId;

/// One message of all logs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Position {
    /// The log.
    pub log: LogId,
    /// Its number there, from 1 and below 2^48.
    pub number: u64,
}

/// How far something is in each log: everything up to these numbers, 0 being nothing. 16 bytes for
/// one log: each session that stays has several of these.
#[derive(Clone, Default, Debug)]
pub struct Frontier(Numbers);

#[derive(Clone, Default, Debug)]
enum Numbers {
    #[default]
    None,
    One(LogId, u64),
    More(Box<SmallVec<[(LogId, u64); 2]>>),
}

impl Position {
    /// As one number that is not 0.
    pub(crate) fn pack(self) -> u64 {
        u64::from(self.log.0) << NUMBER_BITS | self.number
    }

    pub(crate) fn unpack(packed: u64) -> Option<Self> {
        let log = u16::try_from(packed >> NUMBER_BITS).expect("16 bits are left");
        let number = packed & ((1 << NUMBER_BITS) - 1);
        (number > 0).then_some(Self {
            log: LogId(log),
            number,
        })
    }
}

impl Frontier {
    /// Nothing of any log.
    pub fn new() -> Self {
        Self::default()
    }

    /// The last number of this log that is within.
    pub fn of(&self, log: LogId) -> u64 {
        let mut numbers = self.iter();
        let number = numbers.find(|(other, _)| *other == log);
        number.map_or(0, |(_, number)| number)
    }

    /// Puts it at this number of a log, whatever it was.
    pub fn set(&mut self, log: LogId, number: u64) {
        match &mut self.0 {
            Numbers::None => self.0 = Numbers::One(log, number),
            Numbers::One(one, there) if *one == log => *there = number,
            Numbers::One(one, there) => {
                let both = smallvec![(*one, *there), (log, number)];
                self.0 = Numbers::More(Box::new(both));
            }
            Numbers::More(more) => match more.iter_mut().find(|(other, _)| *other == log) {
                Some((_, there)) => *there = number,
                None => more.push((log, number)),
            },
        }
    }

    /// Moves it on so that this is within.
    pub fn raise(&mut self, to: Position) {
        if to.number > self.of(to.log) {
            self.set(to.log, to.number);
        }
    }

    /// Moves it back so that this, and what is behind it, is not within.
    pub fn lower(&mut self, before: Position) {
        if before.number <= self.of(before.log) {
            self.set(before.log, before.number - 1);
        }
    }

    /// Whether this message is within.
    pub fn covers(&self, position: Position) -> bool {
        position.number <= self.of(position.log)
    }

    /// Whether all that is within `other` is within this.
    pub fn reaches(&self, other: &Self) -> bool {
        other.iter().all(|(log, number)| number <= self.of(log))
    }

    /// The last number of each log that it was told of, which may be 0.
    pub fn iter(&self) -> impl Iterator<Item = (LogId, u64)> + '_ {
        let (one, more) = match &self.0 {
            Numbers::None => (None, &[][..]),
            Numbers::One(log, number) => (Some((*log, *number)), &[][..]),
            Numbers::More(more) => (None, &more[..]),
        };
        one.into_iter().chain(more.iter().copied())
    }
}

impl PartialEq for Frontier {
    fn eq(&self, other: &Self) -> bool {
        self.reaches(other) && other.reaches(self)
    }
}

impl Eq for Frontier {}

impl FromIterator<(LogId, u64)> for Frontier {
    fn from_iter<I: IntoIterator<Item = (LogId, u64)>>(logs: I) -> Self {
        let mut frontier = Self::new();
        for (log, number) in logs {
            frontier.set(log, number);
        }
        frontier
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.log.0, self.number)
    }
}

const NUMBER_BITS: u32 = 48;

const _: () = assert!(size_of::<Option<Frontier>>() == 16, "the figure above");

#[cfg(test)]
mod tests {
    use super::*;

    fn at(log: u16, number: u64) -> Position {
        Position {
            log: LogId(log),
            number,
        }
    }

    #[test]
    fn a_position_is_one_number_and_comes_back() {
        for position in [at(0, 1), at(3, 7), at(u16::MAX, (1 << NUMBER_BITS) - 1)] {
            assert_eq!(Position::unpack(position.pack()), Some(position));
        }
        assert_eq!(Position::unpack(0), None);
    }

    #[test]
    fn frontiers_are_equal_when_the_same_is_within() {
        let of = |numbers: &[(u16, u64)]| -> Frontier {
            numbers.iter().map(|(log, n)| (LogId(*log), *n)).collect()
        };
        assert_eq!(of(&[(1, 5), (2, 3)]), of(&[(2, 3), (1, 5)]));
        assert_eq!(of(&[(1, 5), (2, 0), (3, 0)]), of(&[(1, 5)]));
        assert_eq!(of(&[(1, 0)]), Frontier::new());
        assert_ne!(of(&[(1, 5), (2, 3)]), of(&[(1, 5)]));
        let told = of(&[(1, 0)]);
        assert_eq!(told.iter().collect::<Vec<_>>(), [(LogId(1), 0)]);
    }

    #[test]
    fn a_frontier_moves_in_each_log_by_itself() {
        let mut frontier = Frontier::new();
        frontier.raise(at(1, 5));
        frontier.raise(at(1, 3));
        frontier.raise(at(0, 2));
        assert!(frontier.covers(at(1, 5)) && !frontier.covers(at(1, 6)));
        frontier.lower(at(1, 4));
        assert!(frontier.covers(at(1, 3)) && !frontier.covers(at(1, 4)));
        assert!(frontier.covers(at(0, 2)) && !frontier.covers(at(2, 1)));
        assert!(frontier.reaches(&[(LogId(1), 3)].into_iter().collect()));
        assert!(!frontier.reaches(&[(LogId(2), 1)].into_iter().collect()));
    }
}
