//! The intact parts of a tree: its tables, each read alone, and merged.
//!
//! The engine reads all tables of a tree at once, and fails at the first unreadable block. Here a
//! read goes on after a bad block of a table. The keys between which it lay are known, its contents
//! are not: that is a [`Hole`].
//!
//! Another table may have an older value for a key in a hole. It is the newest if the damaged table
//! has none for that key, which the table's filter shows for nearly all keys. Other values are
//! marked as [possibly old](Entry::is_newest).
//!
//! Invariants:
//! - Entries come in the order of their keys, each key once; a hole comes before every entry that
//!   lies in it, but for one at its beginning.
//! - One block of each table is in memory, however large the tree is.
//!
//! Deliberately absent: tables whose index cannot be read. Their tree does not open.

use std::collections::VecDeque;

use fjall::{AbstractTree as _, Keyspace};
use lsm_tree::range::prefix_to_range;
use lsm_tree::table::filter::standard_bloom::Builder as Filter;
use lsm_tree::{InternalValue, SeqNo, Table, UserKey};

use super::engine;
use crate::error::StoreError;

/// Reads what begins with a prefix.
pub(super) struct Intact {
    readers: Vec<Reader>,
    /// Holes that were not reported yet.
    met: VecDeque<Hole>,
}

/// What is found, in the order of keys.
pub(super) enum Piece {
    Hole(Hole),
    Entry(Entry),
}

/// A value that is there.
pub(super) struct Entry {
    pub(super) key: Vec<u8>,
    pub(super) value: Vec<u8>,
    /// Whether no newer one, nor its removal, lay in a hole.
    pub(super) is_newest: bool,
}

/// Something cannot be read that lay between these keys, or at the one that is a table's first or
/// last.
#[derive(Clone)]
pub(super) struct Hole {
    pub(super) from: UserKey,
    pub(super) to: UserKey,
    /// What was met there.
    pub(super) cause: String,
}

/// A table, and how far it is read.
struct Reader {
    table: Table,
    place: String,
    entries: Box<dyn Iterator<Item = lsm_tree::Result<InternalValue>>>,
    /// The next entry; none at the end.
    head: Option<InternalValue>,
    /// The last one that was met, if any.
    hole: Option<Hole>,
    /// More errors than it has blocks are one that does not go away.
    errors_left: u64,
}

impl Intact {
    /// Of a tree that is not used otherwise. Its memtable is written to a table first.
    pub(super) fn read(tree: &Keyspace, name: &str, prefix: &[u8]) -> Result<Self, StoreError> {
        let flushed = tree.tree.flush_active_memtable(0);
        let failed = |error| engine::error("writing", name, fjall::Error::Storage(error));
        flushed.map_err(failed)?;
        let mut this = Self {
            readers: Vec::new(),
            met: VecDeque::new(),
        };
        let range = prefix_to_range(prefix);
        let bounds = (
            range.0.as_ref().map(|key| &**key),
            range.1.as_ref().map(|key| &**key),
        );
        for table in tree.tree.current_version().iter_tables() {
            let meta = &table.metadata;
            if !meta.key_range.overlaps_with_bounds(&bounds) {
                continue;
            }
            let mut reader = Reader {
                place: format!("table {} of {name}", table.id()),
                entries: Box::new(table.range(range.clone())),
                head: None,
                hole: None,
                errors_left: meta.data_block_count + meta.index_block_count,
                table: table.clone(),
            };
            this.met.extend(reader.advance(meta.key_range.min())?);
            this.readers.push(reader);
        }
        Ok(this)
    }

    /// What comes next; nothing at the end.
    pub(super) fn next(&mut self) -> Result<Option<Piece>, StoreError> {
        loop {
            if let Some(hole) = self.met.pop_front() {
                return Ok(Some(Piece::Hole(hole)));
            }
            // Of the same key the newest is the least.
            let heads = self
                .readers
                .iter()
                .filter_map(|reader| reader.head.as_ref());
            let Some(newest) = heads.min_by(|a, b| a.key.cmp(&b.key)).cloned() else {
                return Ok(None);
            };
            let is_newest = !self.readers.iter().any(|reader| reader.may_renew(&newest));
            let key = &newest.key.user_key;
            for reader in &mut self.readers {
                while reader.is_at(key) {
                    self.met.extend(reader.advance(key)?);
                }
            }
            if !newest.is_tombstone() {
                return Ok(Some(Piece::Entry(Entry {
                    key: key.to_vec(),
                    value: newest.value.to_vec(),
                    is_newest,
                })));
            }
        }
    }
}

impl Hole {
    /// Whether a key that begins so may have been in it.
    pub(super) fn meets(&self, prefix: &[u8]) -> bool {
        *self.to >= *prefix && (*self.from <= *prefix || self.from.starts_with(prefix))
    }
}

impl std::fmt::Display for Hole {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { from, to, cause } = self;
        let (from, to) = (from.escape_ascii(), to.escape_ascii());
        write!(f, "values from key {from} to key {to} ({cause})")
    }
}

impl Reader {
    fn is_at(&self, key: &UserKey) -> bool {
        let head = self.head.as_ref();
        head.is_some_and(|head| head.key.user_key == *key)
    }

    /// Goes on to the next entry that can be read, behind that of a key; the hole before it, if
    /// there is one.
    fn advance(&mut self, behind: &UserKey) -> Result<Option<Hole>, StoreError> {
        let mut met = None;
        self.head = loop {
            let error = match self.entries.next().transpose() {
                Ok(entry) => break entry,
                Err(error) => fjall::Error::Storage(error),
            };
            let error = engine::error(engine::READING, &self.place, error);
            if !matches!(error, StoreError::Damaged { .. }) {
                return Err(error);
            }
            met.get_or_insert(error);
            let Some(left) = self.errors_left.checked_sub(1) else {
                break None;
            };
            self.errors_left = left;
        };
        let Some(cause) = met else { return Ok(None) };
        let last = self.table.metadata.key_range.max();
        let to = self.head.as_ref().map_or(last, |head| &head.key.user_key);
        self.hole = Some(Hole {
            from: behind.clone(),
            to: to.clone(),
            cause: cause.to_string(),
        });
        Ok(self.hole.clone())
    }

    /// Whether a newer value of the key, or its removal, may be in a block that cannot be read.
    fn may_renew(&self, entry: &InternalValue) -> bool {
        let key = &entry.key.user_key;
        let is_within = |hole: &Hole| hole.from <= *key && *key <= hole.to;
        self.hole.as_ref().is_some_and(is_within)
            && self.table.get_highest_seqno() > entry.key.seqno
            && self
                .table
                .get(key, SeqNo::MAX, Filter::get_hash(key))
                .is_err()
    }
}
