//! Reading every byte of the tables of a store that nobody has open.
//!
//! A start [looks](super::examine) at what names the tables, and not into them: what lies deep in
//! one is met by whoever reads it. Here each is read from its first byte to its last, and compared
//! with the checksum of the whole file that the version of its tree has. A tree that does not open
//! does not say what that is; then it is looked for in the bytes of the version.
//!
//! ```text
//! v<id>      ... id of a table (8, low bits first), 0, XXH3-128 of its file (16, the same) ...
//! ```
//!
//! Invariants:
//! - Nothing of the store is changed. What is made is in DIR/examining.
//! - Damage ends nothing here: what can be read besides it is read, too.
//!
//! Deliberately absent: trees that the list does not name and tables that no tree names, which a
//! crash leaves and the engine removes, but where that is not known; and what a table means, which
//! whoever opens the store finds out.

use std::collections::BTreeMap;
use std::path::Path;

use lsm_tree::AbstractTree as _;
use memchr::memmem;
use xxhash_rust::xxh3::Xxh3;

use super::examine::{LIST, LIST_NAME, TABLES, Trees, XXH3, entries, examine};
use super::{directory, rewrite};
use crate::error::StoreError;
use crate::places::{EXAMINING, Place, STORE};

/// What is found in a store by looking at it.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Looked {
    /// What is damaged, each with its file where that is known, or of a format that is not known;
    /// nothing if all is whole.
    pub damage: Vec<StoreError>,
    /// Bytes of tables that were read.
    pub table_bytes: u64,
    /// Why tables were not read, if so: the disk is full, or knows no links, or the store is of a
    /// format that is not known.
    pub not_read: Option<String>,
}

impl Looked {
    fn note(&mut self, error: StoreError) -> Result<(), StoreError> {
        if !matches!(
            error,
            StoreError::Damaged { .. } | StoreError::Format { .. }
        ) {
            return Err(error);
        }
        // What keeps a tree from opening is met at each attempt.
        let text = error.to_string();
        if self.damage.iter().all(|known| known.to_string() != text) {
            self.damage.push(error);
        }
        Ok(())
    }

    /// Reads a table, which is whole if its checksum is the one that was written.
    fn read(
        &mut self,
        path: &Path,
        name: &str,
        is_written: impl FnOnce(u128) -> bool,
    ) -> Result<(), StoreError> {
        let mut checksum = Xxh3::new();
        let read = rewrite::read_pieces(path, |piece| {
            checksum.update(piece);
            self.table_bytes += piece.len() as u64;
        });
        if let Err(error) = read {
            return self.note(error);
        }
        if is_written(checksum.digest128()) {
            return Ok(());
        }
        let what = format!("it is a table of {name}, and its checksum is another");
        self.note(StoreError::damaged(path.display(), what))
    }
}

/// Looks at the store in a directory, as a start does before it opens it, and reads all tables.
pub(super) fn look(path: &Path) -> Result<Looked, StoreError> {
    let place = Place::take(path)?;
    let store = place.part(STORE);
    let mut looked = Looked::default();
    let found = directory::is_there(&store).and_then(|there| {
        let journals = there.then(|| examine(&place, &store)).transpose()?;
        Ok((there, journals.and_then(|journals| journals.alone)))
    });
    let is_there = match found {
        Ok((there, alone)) => {
            looked.not_read = alone;
            there
        }
        Err(error) => {
            if matches!(error, StoreError::Format { .. }) {
                looked.not_read = Some("where they are is not known".to_owned());
            }
            looked.note(error)?;
            true
        }
    };
    if is_there && looked.not_read.is_none() {
        let read = read_tables(&place, &store, &mut looked);
        let cleared = place.clear(EXAMINING);
        read.and(cleared)?;
    }
    Ok(looked)
}

fn read_tables(place: &Place, store: &Path, looked: &mut Looked) -> Result<(), StoreError> {
    let trees = Trees::new(&store.join("engine"), &place.part(EXAMINING), false);
    let mut names = BTreeMap::new();
    match trees.names() {
        Ok(named) => names = named,
        Err(error) => looked.note(error)?,
    }
    names.insert(LIST, LIST_NAME.to_owned());
    if !looked.damage.is_empty() {
        // The list may be what is damaged: a tree that it does not name need not be one that a
        // crash left.
        for number in trees.numbers()? {
            let unnamed = || format!("tree {number}");
            names.entry(number).or_insert_with(unnamed);
        }
    }
    for (number, name) in names {
        // Whether one may be without was looked at before.
        if trees.has_beginning(number)?
            && let Err(error) = read_tree(place, &trees, number, &name, looked)
        {
            looked.note(error)?;
        }
    }
    Ok(())
}

fn read_tree(
    place: &Place,
    trees: &Trees,
    number: u64,
    name: &str,
    looked: &mut Looked,
) -> Result<(), StoreError> {
    // It may have been opened for its names.
    place.clear(EXAMINING)?;
    let tables = trees.path(number).join(TABLES);
    let tree = match trees.open(number, name) {
        Ok(tree) => tree,
        Err(error) => {
            looked.note(error)?;
            // Without it nothing is known of its tables.
            return match trees.version(number) {
                Ok(version) => read_all(&tables, &version, name, looked),
                Err(error) => looked.note(error),
            };
        }
    };
    for table in tree.current_version().iter_tables() {
        let path = tables.join(table.id().to_string());
        let written = table.checksum().into_u128();
        looked.read(&path, name, |checksum| checksum == written)?;
    }
    Ok(())
}

/// Reads what lies among the tables of a tree that does not open.
fn read_all(
    tables: &Path,
    version: &[u8],
    name: &str,
    looked: &mut Looked,
) -> Result<(), StoreError> {
    for path in entries(tables)? {
        let id = path.file_name().and_then(|id| id.to_str()?.parse().ok());
        let Some(id) = id.map(u64::to_le_bytes) else {
            continue;
        };
        looked.read(&path, name, |checksum| {
            let named = [&id[..], &[XXH3], &checksum.to_le_bytes()].concat();
            memmem::find(version, &named).is_some()
        })?;
    }
    Ok(())
}
