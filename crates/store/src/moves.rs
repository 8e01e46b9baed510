//! With how many shards the broker runs, and where publishers have moved to other logs by that.
//!
//! ```text
//! key   "moves"     value   shards 1 | for each move, the oldest first: logs | (log | number)…
//! ```
//!
//! The number of shards decides whose messages each of them takes in. A *move* is a start with
//! another number than before, and is the last message of each log at that start: what a publisher
//! sent before it may lie in another log than what it has sent since, and is not beyond it.
//!
//! Invariant: a move is noted before anything is appended after it, and until every session has
//! been given all before it, or there are [`MOVES_MAX`] later ones.

use crate::batch::{Batch, Space};
use crate::codec::{Reader, RecordError, VERSION, put_number};
use crate::error::StoreError;
use crate::position::{LogId, Position, Sequence};
use crate::store::{Kv, Store};

/// Where it is noted, in [`Space::Control`].
pub const KEY: &[u8] = b"moves";

/// What is noted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Moves {
    /// The number of shards of the last start; 0 before the first.
    pub shards: u8,
    /// Of each move the last message of each log, the oldest first.
    pub moves: Vec<Vec<Position>>,
}

impl Moves {
    /// The value in bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION, self.shards];
        for tails in &self.moves {
            put_number(&mut out, tails.len() as u64);
            for tail in tails {
                put_number(&mut out, tail.log.0.into());
                put_number(&mut out, tail.sequence.0);
            }
        }
        out
    }

    /// Reads a value.
    pub fn decode(bytes: &[u8]) -> Result<Self, RecordError> {
        let mut reader = Reader::versioned(bytes)?;
        let shards = reader.byte("shards")?;
        let mut moves = Vec::new();
        while reader.len() > 0 {
            let mut tails = Vec::new();
            for _ in 0..reader.number("logs")? {
                tails.push(Position {
                    log: LogId(reader.small("log")?),
                    sequence: Sequence(reader.number("number")?),
                });
            }
            moves.push(tails);
        }
        Ok(Self { shards, moves })
    }
}

/// What is noted in a store.
pub fn of<S: Kv + ?Sized>(store: &S) -> Result<Moves, StoreError> {
    let Some(found) = store.get(Space::Control, KEY)? else {
        return Ok(Moves::default());
    };
    Moves::decode(&found.bytes).map_err(|error| StoreError::record("the moves", &error))
}

/// What is noted may be older than the logs: the next start is a move, whatever number it has.
pub(crate) fn mark_unknown<S: Store + ?Sized>(store: &S) -> Result<(), StoreError> {
    let noted = of(store)?;
    if noted.shards == 0 {
        return Ok(());
    }
    let mut batch = Batch::new();
    let noted = Moves { shards: 0, ..noted };
    batch.put(Space::Control, KEY.to_vec(), noted.encode());
    for result in store.commit(&[batch])? {
        result.map_err(|conflict| StoreError::damaged("the moves", conflict))?;
    }
    Ok(())
}

/// So many are noted, each being three bytes and more for each log: some 20 KiB with 8 logs, some
/// 100 with 64. Beyond, the oldest goes.
pub const MOVES_MAX: usize = 1_024;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Memory;

    fn at(log: u16, number: u64) -> Position {
        Position {
            log: LogId(log),
            sequence: Sequence(number),
        }
    }

    #[test]
    fn what_is_noted_reads_as_it_was_written() {
        let store = Memory::new();
        assert_eq!(of(&store).unwrap(), Moves::default());
        let moves = Moves {
            shards: 3,
            moves: vec![vec![at(0, 300)], vec![at(0, 300), at(2, 1)]],
        };
        let mut batch = Batch::new();
        batch.put(Space::Control, KEY.to_vec(), moves.encode());
        store.commit(&[batch]).unwrap();
        assert_eq!(of(&store).unwrap(), moves);
        mark_unknown(&store).unwrap();
        let unknown = Moves { shards: 0, ..moves };
        assert_eq!(of(&store).unwrap(), unknown);
    }

    #[test]
    fn a_value_that_ends_too_early_is_refused() {
        let whole = Moves {
            shards: 2,
            moves: vec![vec![at(1, 2), at(0, 5)]],
        };
        let bytes = whole.encode();
        for end in [0, 1, 3, 4, 5, 6] {
            Moves::decode(&bytes[..end]).unwrap_err();
        }
    }
}
