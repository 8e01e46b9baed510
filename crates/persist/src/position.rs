//! One message's place as the shards name it and as the store does: the only conversion between the
//! two.
//!
//! The shards count up to where something is: a number is the last within, and 0 is nothing. The
//! store's ranges begin with a sequence and end before one.

use unbroken_broker_core::{Frontier, LogId, Position};
use unbroken_store as store;
use unbroken_store::Sequence;

/// The log of a shard.
pub fn log_of(log: LogId) -> store::LogId {
    store::LogId(log.0)
}

/// The shard's name of a log.
pub(crate) fn shard_log(log: store::LogId) -> LogId {
    LogId(log.0)
}

/// The first that is not within a number.
pub fn behind(number: u64) -> Sequence {
    Sequence(number).next()
}

/// The last before a sequence.
pub(crate) const fn last_before(sequence: Sequence) -> u64 {
    sequence.0.saturating_sub(1)
}

pub(crate) fn stored(position: Position) -> store::Position {
    store::Position {
        log: log_of(position.log),
        sequence: Sequence(position.number),
    }
}

/// `None` for 0, which is before the first.
pub(crate) fn position_of(log: store::LogId, sequence: Sequence) -> Option<Position> {
    (sequence > Sequence::BEFORE_ALL).then_some(Position {
        log: shard_log(log),
        number: sequence.0,
    })
}

pub(crate) fn positions_of(frontier: &Frontier) -> Vec<store::Position> {
    let numbers = frontier.iter();
    numbers
        .map(|(log, number)| stored(Position { log, number }))
        .collect()
}

pub(crate) fn frontier_of(positions: &[store::Position]) -> Frontier {
    let positions = positions.iter();
    positions
        .map(|at| (shard_log(at.log), at.sequence.0))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_is_the_same_there_and_back() {
        let position = Position {
            log: LogId(3),
            number: 7,
        };
        let there = stored(position);
        assert_eq!(position_of(there.log, there.sequence), Some(position));
        assert_eq!(position_of(store::LogId(3), Sequence::BEFORE_ALL), None);
        let frontier: Frontier = [(LogId(0), 2), (LogId(3), 7)].into_iter().collect();
        let back = frontier_of(&positions_of(&frontier));
        assert!(back.iter().eq(frontier.iter()));
    }

    #[test]
    fn a_range_ends_behind_the_last_within() {
        for number in [0, 1, 41] {
            assert_eq!(last_before(behind(number)), number);
        }
        assert_eq!(last_before(Sequence::BEFORE_ALL), 0);
    }
}
