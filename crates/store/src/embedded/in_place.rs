//! Whether the store is still where it was opened.
//!
//! A directory that is deleted or replaced lives on for the process that has its files open: it
//! goes on writing, and the next start finds none of it. So a store that is not in its place has
//! failed.
//!
//! Invariant: a commit is answered only if the witness had its name after it.
//!
//! Deliberately absent: files of the engine by name. It makes and deletes them all the time, so
//! only that there is a journal is looked at.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::engine::TREES;
use super::journals;
use crate::error::StoreError;

/// Names of a store, and what they led to when it was opened.
#[derive(Debug)]
pub(super) struct InPlace {
    witness: Named,
    engine: Named,
    trees: Named,
}

#[derive(Debug)]
struct Named {
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl InPlace {
    /// Of a store whose engine is open.
    pub(super) fn of(witness: PathBuf, engine: &Path) -> Result<Self, StoreError> {
        Ok(Self {
            witness: Named::of(witness)?,
            engine: Named::of(engine.to_owned())?,
            trees: Named::of(engine.join(TREES))?,
        })
    }

    /// A look at one name, for each commit.
    pub(super) fn check(&self) -> Result<(), StoreError> {
        self.witness.check()
    }

    /// A look at all of them.
    pub(super) fn check_all(&self) -> Result<(), StoreError> {
        for named in [&self.witness, &self.engine, &self.trees] {
            named.check()?;
        }
        let engine = &self.engine.path;
        let entries = fs::read_dir(engine)
            .map_err(|error| StoreError::io("looking for", engine.display(), error))?;
        let mut names = entries.flatten().map(|entry| entry.file_name());
        let is_journal = |name: OsString| journals::number(&name.to_string_lossy()).is_some();
        if names.any(is_journal) {
            return Ok(());
        }
        Err(self.engine.gone())
    }
}

impl Named {
    fn of(path: PathBuf) -> Result<Self, StoreError> {
        let found = fs::metadata(&path)
            .map_err(|error| StoreError::io("looking for", path.display(), error))?;
        Ok(Self {
            path,
            device: found.dev(),
            inode: found.ino(),
        })
    }

    fn check(&self) -> Result<(), StoreError> {
        match fs::metadata(&self.path) {
            Ok(found) if (found.dev(), found.ino()) == (self.device, self.inode) => Ok(()),
            Ok(_) => Err(self.gone()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(self.gone()),
            Err(error) => Err(StoreError::io("looking for", self.path.display(), error)),
        }
    }

    fn gone(&self) -> StoreError {
        let words = "it was deleted, moved or replaced while it was in use";
        let source = io::Error::new(io::ErrorKind::NotFound, words);
        StoreError::io("writing", self.path.display(), source)
    }
}
