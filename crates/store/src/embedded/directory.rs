//! The files of a store: its format, and how far it was acknowledged.
//!
//! | file | content |
//! |---|---|
//! | `format` | `unbroken-store 1`; in another line `secret` and the digits of a [`Secret`] |
//! | `acknowledged` | 24 bytes: `witness1`, the revision up to which was answered, its complement |
//! | `list` | a copy of the engine's list of its trees; see [`super::tree_list`] |
//! | `engine/` | the engine's |
//!
//! The secret is that of the store's batches. They contain it too; the copy serves when they are
//! damaged.
//!
//! `acknowledged` is the witness. It is written after each safe commit, without an fsync of its
//! own, so after a power cut it may be behind the data, and never ahead. A store that ends before
//! the witness has lost acknowledged data. It begins with `doubted1` after a failed write or sync:
//! see [`super::rewrite`].

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::batch::Revision;
use crate::data_directory::{DataDirectory, exists, make, sync};
use crate::error::StoreError;

use super::link::Secret;
use super::rewrite::rewrite;

/// The format that is written, and the newest one that is read. A newer version of this code that
/// changes it reads the one before as well, and writes the new number when it has changed all.
const FORMAT: u64 = 1;
const FORMAT_NAME: &str = "unbroken-store";
const FORMAT_FILE: &str = "format";
const SECRET_NAME: &str = "secret";

const WITNESS: &str = "acknowledged";
/// The first versions wrote no such name, and are read without.
const WITNESS_NAME: [u8; 8] = *b"witness1";
const DISTRUSTED_NAME: [u8; 8] = *b"doubted1";

/// The files of a store that this process has.
#[derive(Debug)]
pub(crate) struct Directory {
    path: PathBuf,
    acknowledged: File,
    /// Given up last.
    place: DataDirectory,
}

impl Directory {
    /// Opens what has this name in a place, and makes it if it is not there.
    pub(crate) fn open(place: &DataDirectory, name: &str) -> Result<Self, StoreError> {
        let path = &place.part(name);
        make(path).map_err(|error| StoreError::io("making", path.display(), error))?;
        let engine = path.join("engine");
        let made = engine
            .try_exists()
            .map_err(|error| StoreError::io("looking for", engine.display(), error))?;
        check_format(&path.join(FORMAT_FILE), made)?;
        make(&engine).map_err(|error| StoreError::io("making", engine.display(), error))?;
        let witness = path.join(WITNESS);
        let failed = |doing, error| StoreError::io(doing, witness.display(), error);
        name_witness(&witness).map_err(|error| failed("writing", error))?;
        let acknowledged = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&witness)
            .map_err(|error| failed("opening", error))?;
        let directory = Self {
            path: path.to_owned(),
            acknowledged,
            place: place.clone(),
        };
        directory.begin_witness()?;
        directory.trust_witness()?;
        Ok(directory)
    }

    /// A write or a sync has failed. Nothing more can be done if this fails too: then the next
    /// start is on a file system that takes no changes, or behind a power cut.
    pub(crate) fn distrust_witness(&self) {
        let _ = self.acknowledged.write_all_at(&DISTRUSTED_NAME, 0);
    }

    /// Makes safe what the last run could not.
    fn trust_witness(&self) -> Result<(), StoreError> {
        let witness = || self.witness().display().to_string();
        let bytes = fs::read(self.witness());
        let bytes = bytes.map_err(|error| StoreError::io("reading", witness(), error))?;
        if !bytes.starts_with(&DISTRUSTED_NAME) {
            return Ok(());
        }
        rewrite(&self.engine())?;
        let written = self.acknowledged.write_all_at(&WITNESS_NAME, 0);
        written
            .and_then(|()| self.acknowledged.sync_all())
            .map_err(|error| StoreError::io("writing", witness(), error))
    }

    /// A power cut may leave zeros where a file has just grown. So the witness has its length
    /// before it is needed; later each change of it is of one sector, which is there or not.
    fn begin_witness(&self) -> Result<(), StoreError> {
        let failed = |error| StoreError::io("writing", self.witness().display(), error);
        let length = self.acknowledged.metadata().map_err(failed)?.len();
        if length > 0 {
            return Ok(());
        }
        self.acknowledge(Revision(0))?;
        let synced = self.acknowledged.sync_all();
        synced.and_then(|()| sync(&self.path)).map_err(failed)
    }

    /// Where it is.
    pub(crate) fn place(&self) -> &DataDirectory {
        &self.place
    }

    /// Where its files are.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Where the engine's files are.
    pub(crate) fn engine(&self) -> PathBuf {
        self.path.join("engine")
    }

    /// Everything up to here was answered, and is safe.
    pub(crate) fn acknowledge(&self, revision: Revision) -> Result<(), StoreError> {
        self.acknowledged
            .write_all_at(&witness_of(revision), 0)
            .map_err(|error| StoreError::io("writing", self.witness().display(), error))
    }

    /// Up to where it was answered; the beginning if nothing was.
    pub(crate) fn acknowledged(&self) -> Result<Revision, StoreError> {
        acknowledged(&self.path)
    }

    /// What was made with the store for its batches.
    pub(super) fn secret(&self) -> Option<Secret> {
        secret(&self.path)
    }

    pub(super) fn witness(&self) -> PathBuf {
        self.path.join(WITNESS)
    }
}

/// Whether there is a store in this directory, in a format that is known.
pub(super) fn is_there(path: &Path) -> Result<bool, StoreError> {
    let format = path.join(FORMAT_FILE);
    if !exists(&format)? && !exists(&path.join("engine"))? {
        return Ok(false);
    }
    check_format(&format, true)?;
    Ok(true)
}

/// What the store in this directory was made with; none if it is older than secrets, or damaged.
pub(super) fn secret(path: &Path) -> Option<Secret> {
    let text = fs::read_to_string(path.join(FORMAT_FILE)).ok()?;
    let line = text.lines().nth(1)?.strip_prefix(SECRET_NAME)?;
    Secret::parse(line.strip_prefix(' ')?)
}

/// Up to where the store in this directory was acknowledged, without having it; the beginning if
/// nothing was.
pub(super) fn acknowledged(path: &Path) -> Result<Revision, StoreError> {
    let witness = path.join(WITNESS);
    let bytes = match fs::read(&witness) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Revision(0)),
        read => read.map_err(|error| StoreError::io("reading", witness.display(), error))?,
    };
    if bytes.is_empty() {
        return Ok(Revision(0));
    }
    let names = [&WITNESS_NAME, &DISTRUSTED_NAME];
    let named = names.iter().find_map(|name| bytes.strip_prefix(*name));
    let wrong = || StoreError::damaged(witness.display(), "it holds no revision");
    parse_revision(named.unwrap_or(&bytes)).ok_or_else(wrong)
}

fn witness_of(revision: Revision) -> [u8; 24] {
    let (number, complement) = (revision.0.to_be_bytes(), (!revision.0).to_be_bytes());
    let mut bytes = [0; 24];
    let parts = WITNESS_NAME.into_iter().chain(number).chain(complement);
    bytes
        .iter_mut()
        .zip(parts)
        .for_each(|(byte, part)| *byte = part);
    bytes
}

/// A number and its complement.
fn parse_revision(bytes: &[u8]) -> Option<Revision> {
    let (number, rest) = bytes.split_first_chunk()?;
    let number = u64::from_be_bytes(*number);
    (rest == (!number).to_be_bytes()).then_some(Revision(number))
}

/// Puts its name before a witness that has none, so that there is the old one or the new one.
fn name_witness(place: &Path) -> io::Result<()> {
    let bytes = match fs::read(place) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        read => read?,
    };
    match parse_revision(&bytes) {
        Some(revision) => replace(place, &witness_of(revision)),
        None => Ok(()),
    }
}

/// Writes a file so that there is what was there before, or all of it.
fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let new = path.with_extension("new");
    let mut file = File::create(&new)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    path.parent().map_or(Ok(()), sync)
}

/// Reads the format, or writes it where there is nothing yet.
fn check_format(path: &Path, made: bool) -> Result<(), StoreError> {
    let failed = |doing, error| StoreError::io(doing, path.display(), error);
    match fs::read(path) {
        Ok(bytes) => {
            let text = String::from_utf8_lossy(&bytes);
            let first = text.lines().next().unwrap_or_default().trim_end();
            let number = first.strip_prefix(FORMAT_NAME);
            match number.and_then(|number| number.strip_prefix(' ')?.parse().ok()) {
                Some(FORMAT) => Ok(()),
                Some(found) if found > FORMAT => Err(StoreError::Format {
                    place: path.display().to_string(),
                    found,
                    known: FORMAT,
                }),
                _ => Err(StoreError::damaged(path.display(), "it names no format")),
            }
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound && !made => {
            let secret = Secret::new()
                .map_err(|error| failed("making", error))?
                .digits();
            let text = format!("{FORMAT_NAME} {FORMAT}\n{SECRET_NAME} {secret}\n");
            replace(path, text.as_bytes()).map_err(|error| failed("writing", error))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(StoreError::damaged(path.display(), "it is missing"))
        }
        Err(error) => Err(failed("reading", error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(path: &Path) -> Result<Directory, StoreError> {
        Directory::open(&DataDirectory::take(path).unwrap(), "store")
    }

    #[test]
    fn a_newer_format_is_refused_with_what_to_do() {
        let temp = tempfile::tempdir().unwrap();
        drop(open(temp.path()).unwrap());
        fs::write(temp.path().join("store/format"), "unbroken-store 2\n").unwrap();
        let error = open(temp.path()).unwrap_err();
        assert!(matches!(
            error,
            StoreError::Format {
                found: 2,
                known: 1,
                ..
            }
        ));
        assert!(error.to_string().contains("use the version that wrote it"));
        fs::write(temp.path().join("store/format"), "\0\0\0").unwrap();
        let error = open(temp.path()).unwrap_err();
        assert!(matches!(error, StoreError::Damaged { .. }));
    }

    #[test]
    fn what_was_acknowledged_is_remembered_and_its_damage_is_seen() {
        let temp = tempfile::tempdir().unwrap();
        let directory = open(temp.path()).unwrap();
        assert_eq!(directory.acknowledged().unwrap(), Revision(0));
        assert_eq!(fs::metadata(directory.witness()).unwrap().len(), 24);
        for revision in [1, 7, u64::MAX] {
            directory.acknowledge(Revision(revision)).unwrap();
        }
        drop(directory);
        let read = |path: &Path| open(path).unwrap().acknowledged();
        assert_eq!(read(temp.path()).unwrap(), Revision(u64::MAX));
        for length in [1, 16, 24, 25] {
            fs::write(temp.path().join("store/acknowledged"), vec![0; length]).unwrap();
            assert!(matches!(read(temp.path()), Err(StoreError::Damaged { .. })));
        }
    }

    #[test]
    fn a_witness_of_the_first_versions_is_read() {
        let temp = tempfile::tempdir().unwrap();
        drop(open(temp.path()).unwrap());
        let old = [7_u64.to_be_bytes(), (!7_u64).to_be_bytes()].concat();
        fs::write(temp.path().join("store/acknowledged"), old).unwrap();
        for _ in 0..2 {
            let directory = open(temp.path()).unwrap();
            assert_eq!(directory.acknowledged().unwrap(), Revision(7));
            assert_eq!(fs::metadata(directory.witness()).unwrap().len(), 24);
        }
    }
}
