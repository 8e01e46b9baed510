//! A store with tables that a test has made, and damages.

use std::fs;
use std::path::Path;

use fjall::AbstractTree as _;

use super::engine::TREES;
use super::examine::{TABLES, entries};
use super::{Embedded, Options};
use crate::batch::{Batch, Space};
use crate::error::StoreError;
use crate::quarantine::{OnCorruption, Quarantined, mark, open};
use crate::store::Store as _;

/// No broker reads it, so keys and values may be anything.
pub(super) const SPACE: Space = Space::Wills;

pub(super) struct Tables {
    temp: tempfile::TempDir,
    pub(super) store: Option<Embedded>,
}

impl Tables {
    pub(super) fn new() -> Self {
        let temp = tempfile::tempdir().unwrap();
        let store = Embedded::open(temp.path(), Options::default()).unwrap();
        let store = Some(store);
        Self { temp, store }
    }

    pub(super) fn path(&self) -> &Path {
        self.temp.path()
    }

    pub(super) fn commit(&self, batch: Batch) {
        let results = self.store.as_ref().unwrap().commit(&[batch]);
        assert!(results.unwrap()[0].is_ok());
    }

    /// Writes what is held of a space to a table.
    pub(super) fn flush(&self, space: Space) {
        let store = self.store.as_ref().unwrap();
        let tree = &store.engine.space(space).tree;
        tree.flush_active_memtable(0).unwrap();
    }

    pub(super) fn flushed(&self, space: Space, batch: Batch) {
        self.commit(batch);
        self.flush(space);
    }

    /// Flips a bit in each place of the tables where these bytes are; there is one.
    pub(super) fn damage(&mut self, bytes: &[u8]) {
        self.store = None;
        let mut found = 0;
        for tree in entries(&self.path().join("store/engine").join(TREES)).unwrap() {
            for table in entries(&tree.join(TABLES)).unwrap() {
                let mut file = fs::read(&table).unwrap();
                if let Some(at) = memchr::memmem::find(&file, bytes) {
                    file[at] ^= 1;
                    fs::write(&table, file).unwrap();
                    found += 1;
                }
            }
        }
        assert_eq!(found, 1);
    }

    /// Flips a bit at the beginning of the newest table of a space.
    pub(super) fn damage_newest(&mut self, space: Space) {
        let tree = &self.store.as_ref().unwrap().engine.space(space).tree;
        let version = tree.current_version();
        let newest = version.iter_tables().max_by_key(|table| table.id());
        let path = newest.unwrap().path.as_ref().clone();
        drop(version);
        self.store = None;
        let mut file = fs::read(&path).unwrap();
        file[40] ^= 1;
        fs::write(path, file).unwrap();
    }

    /// The store that takes the place of this one.
    pub(super) fn salvaged(&self) -> (Embedded, Quarantined) {
        self.trim_journal();
        mark(self.path(), &StoreError::damaged("it", "met in use")).unwrap();
        let opened = open(self.path(), Options::default(), OnCorruption::Quarantine);
        let (store, quarantined) = opened.unwrap();
        (store, quarantined.unwrap())
    }

    /// Without what the engine has set aside, copies take no time.
    pub(super) fn trim_journal(&self) {
        let journal = self.path().join("store/engine/0.jnl");
        let bytes = fs::read(&journal).unwrap();
        let used = bytes.iter().rposition(|byte| *byte != 0).unwrap() + 1;
        fs::write(&journal, &bytes[..used]).unwrap();
    }
}

pub(super) fn key(number: u32) -> Vec<u8> {
    format!("k{number:04}").into_bytes()
}

/// Found in no other place.
pub(super) fn value(number: u32, table: u8) -> Vec<u8> {
    let seed = [&[table][..], &number.to_be_bytes()].concat();
    blake3::hash(&seed).as_bytes().repeat(3)
}
