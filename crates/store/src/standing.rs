//! Whether a store has all that its broker has told anybody.
//!
//! ```text
//! key   "standing"     value   gaps | at risk 1
//!       "runs"                 there while a broker runs, and after it was killed
//! ```
//!
//! Commits that are not synced may be gone after a power cut, and a backup is older than what
//! clients remember. A broker that begins with such a store knows less than its clients: of packet
//! ids above all. A *gap* is such a beginning. Whether something is missing cannot be seen; that it
//! may be is known from this note.
//!
//! Invariants:
//! - The note is as safe as a sync makes it before a broker that does not sync its commits tells
//!   anybody anything, and goes when everything is synced at the end.
//! - A store that has always been written by synced commits has no note of its standing.
//!
//! Deliberately absent: whether the machine has gone on since. A broker that was killed alone has
//! lost nothing, and its store is taken for one with a gap all the same.

use crate::batch::{Batch, Space};
use crate::codec::{Reader, RecordError, VERSION, put_number};
use crate::error::StoreError;
use crate::store::{Kv, Store};

/// Where it is noted, in [`Space::Control`].
pub const KEY: &[u8] = b"standing";

/// There while a broker runs. Only whether it is there is read.
const RUNS_KEY: &[u8] = b"runs";

/// What is noted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// Grows with each time that a broker may have begun with less than it had told; 0 if none has.
    /// Not their number, where a store was filled from another.
    pub gaps: u64,
    /// Whether the next one may.
    pub at_risk: bool,
}

impl Standing {
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

/// What is noted in a store.
pub fn of<S: Kv + ?Sized>(store: &S) -> Result<Standing, StoreError> {
    let Some(found) = store.get(Space::Control, KEY)? else {
        return Ok(Standing::default());
    };
    Standing::decode(&found.bytes).map_err(|error| StoreError::record("the standing", &error))
}

/// The gaps that a broker begins with which begins now, its own included.
pub fn gaps<S: Kv + ?Sized>(store: &S) -> Result<u64, StoreError> {
    let Standing { gaps, at_risk } = of(store)?;
    Ok(gaps.saturating_add(at_risk.into()))
}

/// A broker begins, and commits what it tells either synced or not. Before it tells anything, and
/// not if something else keeps it from beginning.
pub fn begin<S: Store + ?Sized>(store: &S, is_synced: bool) -> Result<(), StoreError> {
    let before = of(store)?;
    let standing = Standing {
        gaps: gaps(store)?,
        at_risk: !is_synced,
    };
    note(store, before, standing)?;
    let mut batch = Batch::new();
    batch.put(Space::Control, RUNS_KEY.to_vec(), vec![VERSION]);
    store.commit(&[batch])?;
    Ok(())
}

/// Whether the broker that ran last has not ended in good order. Before [`begin`].
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

/// The broker has ended in good order: all that it has told is committed.
pub fn end<S: Store + ?Sized>(store: &S) -> Result<(), StoreError> {
    let before = of(store)?;
    let standing = Standing {
        at_risk: false,
        ..before
    };
    note_end(store)?;
    note(store, before, standing)
}

/// This store was filled from another, and may be older than what was told. One backup may be
/// restored several times, so what follows is not to be the same each time: `chance` sees to it.
pub fn doubt<S: Store + ?Sized>(store: &S, chance: u32) -> Result<(), StoreError> {
    let before = of(store)?;
    let standing = Standing {
        gaps: before.gaps.saturating_add(chance.into()),
        at_risk: true,
    };
    note_end(store)?; // no broker has run with this one
    note(store, before, standing)
}

fn note<S: Store + ?Sized>(
    store: &S,
    before: Standing,
    standing: Standing,
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
        doubt(&store, 1).unwrap();
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
        doubt(&store, 0).unwrap();
        begin(&store, true).unwrap();
        assert_eq!(gaps(), 3);
    }

    #[test]
    fn a_backup_that_is_restored_again_does_not_begin_as_the_time_before() {
        let [first, second] = [70_000, 80_000].map(|chance| {
            let store = Memory::new();
            doubt(&store, chance).unwrap();
            begin(&store, true).unwrap();
            of(&store).unwrap().gaps
        });
        assert_ne!(first, second);
    }

    #[test]
    fn what_is_no_note_is_refused() {
        let standing = Standing {
            gaps: 300,
            at_risk: true,
        };
        let bytes = standing.encode();
        assert_eq!(Standing::decode(&bytes), Ok(standing));
        Standing::decode(&bytes[..bytes.len() - 1]).unwrap_err();
        Standing::decode(&[VERSION, 0, 2]).unwrap_err();
        Standing::decode(&[VERSION, 0, 0, 0]).unwrap_err();
    }
}
