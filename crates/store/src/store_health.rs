//! Whether a store contains everything that its broker has acknowledged.
//!
//! ```text
//! key   "standing"     value   gaps | at risk 1
//!       "runs"                 there while a broker runs, and after it was killed
//! ```
//!
//! Unsynced commits may be gone after a power cut, and a backup is older than what clients
//! remember. A broker that starts with such a store knows less than its clients, of packet ids
//! above all. Such a start is a *gap*. Whether data is missing cannot be seen; that it may be is
//! known from this record.
//!
//! Invariants:
//! - A broker that does not sync its commits writes the record, synced, before it acknowledges
//!   anything, and removes it when everything is synced at the end.
//! - A store that was always written by synced commits has no such record.
//!
//! Deliberately absent: whether the machine kept running. A broker that was killed alone has lost
//! nothing, and its store still counts as one with a gap.

use crate::batch::{Batch, Space};
use crate::codec::{Reader, RecordError, VERSION, put_number};
use crate::error::StoreError;
use crate::store::{Kv, Store};

/// The key, in [`Space::Control`].
pub const KEY: &[u8] = b"standing";

/// Present while a broker runs; the value is not read.
const RUNS_KEY: &[u8] = b"runs";

/// The record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreHealth {
    /// Grows with each start that may have lacked acknowledged data; 0 if there was none. Not their
    /// number, if a store was filled from another.
    pub gaps: u64,
    /// Whether the next start may.
    pub at_risk: bool,
}

impl StoreHealth {
    /// The value in bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        put_number(&mut out, self.gaps);
        out.push(u8::from(self.at_risk));
        out
    }

    /// Reads a value.
    pub fn decode(bytes: &[u8]) -> Result<Self, RecordError> {
        let mut reader = Reader::versioned(bytes)?;
        let gaps = reader.number("gaps")?;
        let at_risk = match reader.byte("risk")? {
            0 => false,
            1 => true,
            value => {
                return Err(RecordError::Meaningless {
                    field: "risk",
                    value: value.into(),
                });
            }
        };
        reader.end()?;
        Ok(Self { gaps, at_risk })
    }
}

/// The record of a store.
pub fn of<S: Kv + ?Sized>(store: &S) -> Result<StoreHealth, StoreError> {
    let Some(found) = store.get(Space::Control, KEY)? else {
        return Ok(StoreHealth::default());
    };
    StoreHealth::decode(&found.bytes)
        .map_err(|error| StoreError::record("the store's health", &error))
}

/// The gaps with which a broker starts now, this start included.
pub fn gaps<S: Kv + ?Sized>(store: &S) -> Result<u64, StoreError> {
    let StoreHealth { gaps, at_risk } = of(store)?;
    Ok(gaps.saturating_add(at_risk.into()))
}

/// A broker starts, with synced commits or not. Call it before anything is acknowledged, and only
/// if nothing else prevents the start.
pub fn begin<S: Store + ?Sized>(store: &S, is_synced: bool) -> Result<(), StoreError> {
    let before = of(store)?;
    let standing = StoreHealth {
        gaps: gaps(store)?,
        at_risk: !is_synced,
    };
    write(store, before, standing)?;
    let mut batch = Batch::new();
    batch.put(Space::Control, RUNS_KEY.to_vec(), vec![VERSION]);
    store.commit(&[batch])?;
    Ok(())
}

/// Whether the last broker has not ended cleanly. Call it before [`begin`].
pub fn was_killed<S: Kv + ?Sized>(store: &S) -> Result<bool, StoreError> {
    Ok(store.get(Space::Control, RUNS_KEY)?.is_some())
}

fn note_end<S: Store + ?Sized>(store: &S) -> Result<(), StoreError> {
    if was_killed(store)? {
        let mut batch = Batch::new();
        batch.delete(Space::Control, RUNS_KEY.to_vec());
        store.commit(&[batch])?;
        store.sync()?;
    }
    Ok(())
}

/// The broker has ended cleanly: all that it has acknowledged is committed.
pub fn end<S: Store + ?Sized>(store: &S) -> Result<(), StoreError> {
    let before = of(store)?;
    let standing = StoreHealth {
        at_risk: false,
        ..before
    };
    note_end(store)?;
    write(store, before, standing)
}

/// This store was filled from another, and may be older than acknowledged data. One backup may be
/// restored several times; `chance` makes the results differ.
pub fn mark_gap<S: Store + ?Sized>(store: &S, chance: u32) -> Result<(), StoreError> {
    let before = of(store)?;
    let standing = StoreHealth {
        gaps: before.gaps.saturating_add(chance.into()),
        at_risk: true,
    };
    note_end(store)?; // no broker has run with this one
    write(store, before, standing)
}

fn write<S: Store + ?Sized>(
    store: &S,
    before: StoreHealth,
    standing: StoreHealth,
) -> Result<(), StoreError> {
    if standing == before {
        return Ok(());
    }
    let mut batch = Batch::new();
    batch.put(Space::Control, KEY.to_vec(), standing.encode());
    store.commit(&[batch])?;
    store.sync()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Memory;

    #[test]
    fn a_broker_that_ends_without_a_word_was_killed() {
        let store = Memory::new();
        assert!(!was_killed(&store).unwrap());
        begin(&store, true).unwrap();
        assert!(was_killed(&store).unwrap());
        begin(&store, true).unwrap();
        end(&store).unwrap();
        assert!(!was_killed(&store).unwrap());
        begin(&store, false).unwrap();
        mark_gap(&store, 1).unwrap();
        assert!(!was_killed(&store).unwrap(), "it was filled from another");
    }

    #[test]
    fn a_broker_that_does_not_sync_and_ends_without_a_word_leaves_a_gap() {
        let store = Memory::new();
        let gaps = || of(&store).unwrap().gaps;
        begin(&store, true).unwrap();
        begin(&store, true).unwrap();
        assert_eq!(store.get(Space::Control, KEY).unwrap(), None);
        begin(&store, false).unwrap();
        assert_eq!(gaps(), 0);
        begin(&store, true).unwrap();
        assert_eq!(gaps(), 1);
        begin(&store, false).unwrap();
        assert_eq!(gaps(), 1, "what was synced is there");
        end(&store).unwrap();
        begin(&store, false).unwrap();
        assert_eq!(gaps(), 1, "what was synced at the end is there");
        begin(&store, false).unwrap();
        assert_eq!(gaps(), 2);
        end(&store).unwrap();
        mark_gap(&store, 0).unwrap();
        begin(&store, true).unwrap();
        assert_eq!(gaps(), 3);
    }

    #[test]
    fn a_backup_that_is_restored_again_does_not_begin_as_the_time_before() {
        let [first, second] = [70_000, 80_000].map(|chance| {
            let store = Memory::new();
            mark_gap(&store, chance).unwrap();
            begin(&store, true).unwrap();
            of(&store).unwrap().gaps
        });
        assert_ne!(first, second);
    }

    #[test]
    fn what_is_no_note_is_refused() {
        let standing = StoreHealth {
            gaps: 300,
            at_risk: true,
        };
        let bytes = standing.encode();
        assert_eq!(StoreHealth::decode(&bytes), Ok(standing));
        StoreHealth::decode(&bytes[..bytes.len() - 1]).unwrap_err();
        StoreHealth::decode(&[VERSION, 0, 2]).unwrap_err();
        StoreHealth::decode(&[VERSION, 0, 0, 0]).unwrap_err();
    }
}
