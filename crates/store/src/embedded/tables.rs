//! Reads every byte of the tables of a closed store.
//!
//! A start [examines](super::examine) which tables exist, not their contents; damage inside one is
//! found by a read. Here each table is read completely and compared with the file checksum in the
//! version of its tree. If a tree does not open, the checksum is searched in the bytes of the
//! version.
//!
//! ```text
//! v<id>      ... id of a table (8, low bits first), 0, XXH3-128 of its file (16, the same) ...
//! ```
//!
//! Invariants:
//! - The store is not changed. Temporary files are in DIR/examining.
//! - Damage does not end the check: everything else is read too.
//!
//! After the engine has ended, the tables that it has merged are checked too: see [`or_met`].
//!
//! Deliberately absent: trees that the list does not name and tables that no tree names, which a
//! crash leaves and the engine removes, unless the list is unreadable; and the meaning of a table's
//! contents, which is checked when the store is opened.

use std::collections::BTreeMap;
use std::path::Path;

use fjall::Keyspace;
use lsm_tree::AbstractTree as _;
use memchr::memmem;
use xxhash_rust::xxh3::Xxh3;

use super::examine::{LIST, LIST_NAME, TABLES, Trees, XXH3, entries, examine};
use super::{directory, rewrite};
use crate::data_directory::{DataDirectory, EXAMINING, STORE};
use crate::error::StoreError;

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

    /// Reads a table, and notes what is wrong with it.
    fn read(
        &mut self,
        path: &Path,
        name: &str,
        is_written: impl FnOnce(u128) -> bool,
    ) -> Result<(), StoreError> {
        let read = read(path, name, is_written, |bytes| self.table_bytes += bytes);
        read.or_else(|error| self.note(error))
    }
}

/// Reads a table, which is whole if its checksum is the one that was written.
fn read(
    path: &Path,
    name: &str,
    is_written: impl FnOnce(u128) -> bool,
    mut count: impl FnMut(u64),
) -> Result<(), StoreError> {
    let mut checksum = Xxh3::new();
    rewrite::read_pieces(path, |piece| {
        checksum.update(piece);
        count(piece.len() as u64);
    })?;
    if is_written(checksum.digest128()) {
        return Ok(());
    }
    let what = format!("it is a table of {name}, and its checksum does not match");
    Err(StoreError::damaged(path.display(), what))
}

/// What ended an engine that has these trees: damage, if it has met some. It does not say what it
/// has met while it merged tables, and takes nothing any more, whatever that was. So the tables of
/// all that it merges are read, which takes as long as reading them.
pub(super) fn or_met<'t>(
    error: StoreError,
    trees: impl IntoIterator<Item = &'t Keyspace>,
) -> StoreError {
    if !matches!(error, StoreError::Dead { .. }) {
        return error;
    }
    let mut trees = trees.into_iter();
    trees.find_map(damage_of).unwrap_or(error)
}

fn damage_of(tree: &Keyspace) -> Option<StoreError> {
    // As long as the version is held, so are its files.
    let version = tree.tree.current_version();
    // One is never merged.
    let tables = version
        .iter_tables()
        .filter(|_| tree.tree.table_count() > 1);
    let read = tables.map(|table| {
        let written = table.checksum().into_u128();
        read(
            &table.path,
            tree.name(),
            |checksum| checksum == written,
            drop,
        )
    });
    let mut failed = read.filter_map(Result::err);
    failed.find(|error| matches!(error, StoreError::Damaged { .. }))
}

/// Looks at the store in a directory, as a start does before it opens it, and reads all tables.
pub(super) fn look(path: &Path) -> Result<Looked, StoreError> {
    let place = DataDirectory::take(path)?;
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
                looked.not_read = Some("their location is unknown".to_owned());
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

fn read_tables(place: &DataDirectory, store: &Path, looked: &mut Looked) -> Result<(), StoreError> {
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
    place: &DataDirectory,
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

#[cfg(test)]
mod tests {
    use super::super::fault_injection::{SPACE, Tables, key, value};
    use super::super::{Embedded, Options};
    use crate::batch::{Batch, Space};
    use crate::committer::{Committer, Refusal};
    use crate::error::StoreError;
    use crate::quarantine::{OnCorruption, open};
    use crate::store::{Kv as _, Store as _};
    use std::sync::{Arc, mpsc};

    /// As many tables as the engine merges; the last is damaged.
    fn four() -> Tables {
        let mut tables = Tables::new();
        for number in 0..4 {
            let mut batch = Batch::new();
            batch.put(SPACE, key(number), value(number, 1));
            batch.put(SPACE, key(9), value(number, 2));
            tables.flushed(SPACE, batch);
        }
        tables.damage(&value(3, 1));
        tables
    }

    fn change() -> Batch {
        let mut batch = Batch::new();
        batch.put(Space::Control, b"changed".to_vec(), vec![7]);
        batch
    }

    /// It does so as soon as it has the store, and does not say what it has met.
    #[test]
    fn damage_that_the_engine_meets_while_it_merges_tables_is_damage() {
        let tables = four();
        let begun = Embedded::open(tables.path(), Options::default()).and_then(|store| {
            loop {
                store.commit(&[change()])?;
            }
        });
        let Err::<(), _>(met) = begun else {
            unreachable!("it merges them");
        };
        let words = met.to_string();
        assert!(matches!(met, StoreError::Damaged { .. }), "{words}");
        assert!(words.contains("it is a table of wills"), "{words}");
    }

    /// Commits, until the error that ends it.
    #[test]
    fn a_waiting_commit_reports_that_the_store_is_damaged() {
        let tables = four();
        let options = Options::default();
        let opened = open(tables.path(), options, OnCorruption::Quarantine).unwrap();
        let (store, quarantined) = opened;
        if quarantined.is_some() {
            return; // it was met before
        }
        let (answer, answers) = mpsc::channel();
        let committer = Committer::start(Arc::new(store), None, move |list| {
            for given in list.drain(..) {
                answer.send(given.result).unwrap();
            }
        });
        let committer = committer.unwrap();
        let refusal = loop {
            committer.submit(change(), ()).unwrap();
            if let Err(refusal) = answers.recv().unwrap() {
                break refusal;
            }
        };
        assert!(matches!(refusal, Refusal::Damaged(_)), "{refusal}");
    }

    /// What is to be removed is looked for first.
    #[test]
    fn damage_that_is_met_by_removing_all_of_a_prefix_is_reported_as_damage() {
        let mut tables = Tables::new();
        let mut batch = Batch::new();
        batch.put(SPACE, key(1), value(1, 1));
        tables.flushed(SPACE, batch);
        tables.damage(&value(1, 1));
        let store = Embedded::open(tables.path(), Options::default()).unwrap();
        let (answer, answers) = mpsc::channel();
        let committer = Committer::start(Arc::new(store), None, move |list| {
            for given in list.drain(..) {
                answer.send(given.result).unwrap();
            }
        });
        let committer = committer.unwrap();
        let mut batch = Batch::new();
        batch.delete_all(SPACE, b"k".to_vec());
        for batch in [batch, change()] {
            committer.submit(batch, ()).unwrap();
            let refusal = answers.recv().unwrap().unwrap_err();
            assert!(matches!(refusal, Refusal::Damaged(_)), "{refusal}");
        }
    }

    #[test]
    fn an_engine_that_has_met_no_damage_is_not_said_to_have() {
        let tables = Tables::new();
        let store = tables.store.as_ref().unwrap();
        for number in 0..3 {
            let mut batch = Batch::new();
            batch.put(SPACE, key(number), value(number, 1));
            tables.flushed(SPACE, batch);
        }
        let ended = || StoreError::Dead {
            cause: "a test".to_owned(),
        };
        assert!(matches!(store.or_met(ended()), StoreError::Dead { .. }));
        assert!(store.get(SPACE, &key(1)).unwrap().is_some());
    }
}
