//! Examines a store before the engine opens it.
//!
//! The engine cannot tell whether a store is whole: opening one cuts journals at the first
//! unreadable byte, and removes trees that are not in its list or have no beginning. So the
//! journals are [read here](super::journals), each tree is opened alone, in a directory with links
//! to its files, and the result is compared with the acknowledged revision.
//!
//! ```text
//! keyspaces/<tree>/current      id (8, low bits first), XXH3-128 of v<id> (16, the same), 0
//! keyspaces/<tree>/v<id>        which tables it has; replaced as a whole, as `current` is
//! keyspaces/<tree>/tables/<id>  never changed
//! ```
//!
//! Invariants:
//! - The store is not changed. Temporary files are in DIR/examining.
//! - No disk space is required: without it, trees are not opened.
//!
//! Deliberately absent: the blocks of tables. They have checksums, which every read verifies; see
//! [`crate::quarantine`], and [`super::tables`] for reading all of them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read as _};
use std::os::unix::fs::symlink;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lsm_tree::{AbstractTree as _, AnyTree, Cache, Guard as _, SeqNo, SequenceNumberCounter};
use xxhash_rust::xxh3::xxh3_128;

use super::engine::{self, TREES};
use super::generation::Generation;
use super::journals::{Journals, Known};
use super::link::{Link, Secret};
use super::opened::{LINK_KEY, NEWEST_KEY, OWN, REVISION_KEY, newest_key, number, parse_log_key};
use super::{directory, rewrite};
use crate::batch::{Revision, Space};
use crate::data_directory::{DataDirectory, EXAMINING, exists, make_all};
use crate::error::StoreError;
use crate::position::Sequence;

/// The trees of an engine's directory, each to be looked at alone.
pub(super) struct Trees {
    directory: PathBuf,
    /// Where the tree is that lists the others, if not there.
    list: Option<PathBuf>,
    /// Where each has a directory to be opened in.
    scratch: PathBuf,
    /// Whether a tree is copied where no links can be made.
    copies: bool,
    cache: Arc<Cache>,
}

/// Whether all is there that was acknowledged; the journals, as they are.
pub(super) fn examine(place: &DataDirectory, store: &Path) -> Result<Journals, StoreError> {
    place.clear(EXAMINING)?;
    let scratch = place.part(EXAMINING);
    // Some of the engine's checks of what it finds on disk are assertions.
    let found = catch_unwind(AssertUnwindSafe(|| look(store, &scratch)));
    let cleared = place.clear(EXAMINING);
    let found = found.unwrap_or_else(|_| {
        let what = "the engine cannot read it";
        Err(StoreError::damaged(store.display(), what))
    });
    or_skimmed(store, found).and_then(|journals| cleared.map(|()| journals))
}

/// What was found, or what can be looked at where nothing can be made beside the store.
fn or_skimmed(store: &Path, found: Result<Journals, StoreError>) -> Result<Journals, StoreError> {
    use ErrorKind::{QuotaExceeded, StorageFull, Unsupported};

    match found {
        Err(ref error @ StoreError::Io { ref source, .. })
            if matches!(source.kind(), QuotaExceeded | StorageFull | Unsupported) =>
        {
            let mut journals = skim(store)?;
            journals.alone = Some(error.to_string());
            Ok(journals)
        }
        found => found,
    }
}

/// What can be seen in place: all but what is in tables.
fn skim(store: &Path) -> Result<Journals, StoreError> {
    let engine = &store.join("engine");
    has_version(engine)?;
    let trees = Trees::new(engine, Path::new(""), false);
    for number in trees.numbers()? {
        if trees.has_beginning(number)? {
            trees.version(number)?;
        }
    }
    if !trees.has_beginning(LIST)? {
        return Err(trees.has_no_beginning(LIST, LIST_NAME));
    }
    let known = Known {
        likely: directory::secret(store),
        ..Known::default()
    };
    let journals = Journals::read(engine, known)?;
    if let Some(found) = journals.own.get(REVISION_KEY) {
        let found = Revision(number("revision", found)?);
        is_acknowledged(store, &journals, found)?;
    }
    Ok(journals)
}

/// Without it the engine would make all anew.
fn has_version(engine: &Path) -> Result<(), StoreError> {
    let version = engine.join("version");
    if exists(&version)? {
        return Ok(());
    }
    Err(StoreError::damaged(version.display(), "it is missing"))
}

/// Whether the last change that was found is as far as was acknowledged.
fn is_acknowledged(store: &Path, journals: &Journals, found: Revision) -> Result<(), StoreError> {
    let acknowledged = directory::acknowledged(store)?;
    if found >= acknowledged {
        return Ok(());
    }
    let count = acknowledged.0 - found.0;
    let mut what = format!("{count} changes were acknowledged after the last one found");
    if let Some(tail) = journals.tail() {
        what = format!("{what}; they were in {tail}");
    }
    Err(StoreError::damaged(store.display(), what))
}

fn look(store: &Path, scratch: &Path) -> Result<Journals, StoreError> {
    let engine = &store.join("engine");
    let trees = Trees::new(engine, scratch, false);
    has_version(engine)?;
    let names = trees.names()?;
    let number_of = |wanted: &str| {
        let found = names.iter().find(|(_, name)| name.as_str() == wanted);
        let missing = || trees.damaged(LIST, format_args!("it does not name {wanted}"));
        found.map(|(number, _)| *number).ok_or_else(missing)
    };
    let own = number_of(OWN)?;
    for space in Space::ALL {
        number_of(space.name())?;
    }
    let tree = trees.open(own, OWN)?;
    let known = Known {
        own,
        secret: trees.secret(own, &tree)?,
        likely: directory::secret(store),
    };
    let journals = Journals::read(engine, known)?;
    let mut begun = Begun {
        journals: &journals,
        own: tree,
        place: trees.path(own),
    };
    begun.is_joined()?;
    is_acknowledged(store, &journals, begun.revision()?)?;
    for name in begun.newest()? {
        number_of(&name)?;
    }
    for (number, name) in names.iter().filter(|(number, _)| **number != own) {
        if trees.has_beginning(*number)? {
            trees.open(*number, name)?;
        } else if begun.has(name)? {
            return Err(trees.has_no_beginning(*number, name));
        }
    }
    Ok(journals)
}

/// The store's own tree, and what the journals have of it.
struct Begun<'a> {
    journals: &'a Journals,
    own: AnyTree,
    place: PathBuf,
}

impl Begun<'_> {
    /// Between what tables have and what journals have is nothing missing.
    fn is_joined(&self) -> Result<(), StoreError> {
        let in_tables = self.in_tables(LINK_KEY)?;
        let in_tables = in_tables.and_then(|link| Link::decode(&link));
        let (Some(in_tables), Some((first, last))) = (in_tables, self.journals.links) else {
            let missing = self.journals.links.filter(|(first, _)| *first > 1);
            return missing.map_or(Ok(()), |(first, _)| Err(self.torn_off(first, 0)));
        };
        if first > in_tables.number.saturating_add(1) {
            return Err(self.torn_off(first, in_tables.number));
        }
        if last < in_tables.number
            && let Some(tail) = self.journals.tail()
        {
            let what = format!("change {} is missing after {last} in {tail}", last + 1);
            return Err(StoreError::damaged(self.place.display(), what));
        }
        Ok(())
    }

    fn torn_off(&self, first: u64, before: u64) -> StoreError {
        let what = format!("the *.jnl begin with change {first}, and the tables end with {before}");
        let engine = self.place.ancestors().nth(2).unwrap_or(&self.place);
        StoreError::damaged(engine.display(), what)
    }

    /// The last that there is.
    fn revision(&self) -> Result<Revision, StoreError> {
        Ok(Revision(
            self.last(REVISION_KEY, "revision")?.unwrap_or_default(),
        ))
    }

    /// Whether a tree of this name had been begun, so that it cannot be without a beginning. A
    /// crash leaves those that had not.
    fn has(&mut self, name: &str) -> Result<bool, StoreError> {
        let Some((log, first)) = Generation::parse_name(name) else {
            return Ok(true);
        };
        let newest = self.last(&newest_key(log), "newest generation")?;
        Ok(newest.is_some_and(|newest| newest >= first.0))
    }

    /// The names of the trees that were begun last, of each log.
    fn newest(&self) -> Result<BTreeSet<String>, StoreError> {
        let mut keys = BTreeSet::new();
        for guard in self.own.prefix(NEWEST_KEY, SeqNo::MAX, None) {
            let key = guard.key().map_err(fjall::Error::Storage);
            let key = key.map_err(|error| self.unreadable(error))?;
            keys.insert(key.to_vec());
        }
        let later = self.journals.own.keys();
        keys.extend(later.filter(|key| key.starts_with(NEWEST_KEY)).cloned());
        let mut names = BTreeSet::new();
        for key in keys {
            let log = parse_log_key(NEWEST_KEY, &key)?;
            if let Some(first) = self.last(&key, "newest generation")? {
                names.insert(Generation::name(log, Sequence(first)));
            }
        }
        Ok(names)
    }

    fn unreadable(&self, error: fjall::Error) -> StoreError {
        engine::error(engine::READING, self.place.display(), error)
    }

    /// A number that only grows.
    fn last(&self, key: &[u8], field: &'static str) -> Result<Option<u64>, StoreError> {
        let in_tables = self.in_tables(key)?;
        let in_tables = in_tables.map(|bytes| number(field, &bytes)).transpose()?;
        let later = self.journals.own.get(key);
        let later = later.map(|bytes| number(field, bytes)).transpose()?;
        Ok(in_tables.max(later))
    }

    fn in_tables(&self, key: &[u8]) -> Result<Option<lsm_tree::Slice>, StoreError> {
        in_tables(&self.own, &self.place, key)
    }
}

impl Trees {
    pub(super) fn new(engine: &Path, scratch: &Path, copies: bool) -> Self {
        Self {
            directory: engine.join(TREES),
            list: None,
            scratch: scratch.to_owned(),
            copies,
            cache: Arc::new(Cache::with_capacity_bytes(CACHE_BYTES)),
        }
    }

    /// With a copy of the tree that lists the others in its place.
    pub(super) fn listed_in(self, list: &Path) -> Self {
        Self {
            list: Some(list.to_owned()),
            ..self
        }
    }

    /// The names of the trees that are in the engine's list, by their numbers. A tree without a
    /// beginning, as a crash leaves it, stays in it when another is made with its name: only that
    /// other is given then.
    pub(super) fn names(&self) -> Result<BTreeMap<u64, String>, StoreError> {
        if !self.has_beginning(LIST)? {
            return Err(self.has_no_beginning(LIST, LIST_NAME));
        }
        let list = self.open(LIST, LIST_NAME)?;
        let mut names = BTreeMap::new();
        for guard in list.prefix(NAME_KEY, SeqNo::MAX, None) {
            let read = guard.into_inner().map_err(fjall::Error::Storage);
            let place = self.path(LIST);
            let read = read.map_err(|error| engine::error(engine::READING, place.display(), error));
            let (key, name) = read?;
            let number = key.strip_prefix(NAME_KEY).and_then(|it| it.try_into().ok());
            let name = str::from_utf8(&name).ok().map(str::to_owned);
            let (Some(number), Some(name)) = (number.map(u64::from_be_bytes), name) else {
                return Err(self.damaged(LIST, "its name is invalid"));
            };
            names.insert(number, name);
        }
        let mut begun = BTreeSet::new();
        for (number, name) in &names {
            if self.has_beginning(*number)? {
                begun.insert(name.clone());
            }
        }
        let mut stale = Vec::new();
        for (number, name) in &names {
            if begun.contains(name) && !self.has_beginning(*number)? {
                stale.push(*number);
            }
        }
        for number in stale {
            names.remove(&number);
        }
        Ok(names)
    }

    /// The numbers of the trees that have a directory, whether the list names them or not.
    pub(super) fn numbers(&self) -> Result<Vec<u64>, StoreError> {
        let paths = entries(&self.directory)?.into_iter();
        let numbers = paths.filter_map(|path| path.file_name()?.to_str()?.parse().ok());
        Ok(numbers.collect())
    }

    pub(super) fn has_beginning(&self, number: u64) -> Result<bool, StoreError> {
        exists(&self.path(number).join(BEGINNING))
    }

    /// Opens one that has a beginning, with what is in its tables.
    pub(super) fn open(&self, number: u64, name: &str) -> Result<AnyTree, StoreError> {
        let (path, copy) = (self.path(number), self.scratch.join(number.to_string()));
        if !self.has_beginning(number)? {
            return Err(self.has_no_beginning(number, name));
        }
        self.version(number)?;
        match link_tree(&path, &copy) {
            Err(error) if self.copies && is_unsupported(&error) => {
                // Some links may be there, and what is written to them is written to the store.
                let removed = fs::remove_dir_all(&copy);
                removed.map_err(|error| StoreError::io("removing", copy.display(), error))?;
                copy_tree(&path, &copy)?;
            }
            linked => linked?,
        }
        let counter = SequenceNumberCounter::default;
        let config = lsm_tree::Config::new(&copy, counter(), counter());
        let config = config.use_cache(Arc::clone(&self.cache));
        // Some of the engine's checks of what it finds on disk are assertions.
        match catch_unwind(AssertUnwindSafe(|| config.open())) {
            Ok(opened) => opened.map_err(|error| failed(&path, error)),
            Err(_) => Err(self.damaged(number, "the engine cannot read it")),
        }
    }

    /// The file that says which tables a tree has, if it is the one that was written. The engine
    /// does not look, and believes what it says: it removes tables that are not named there.
    pub(super) fn version(&self, number: u64) -> Result<Vec<u8>, StoreError> {
        let path = self.path(number);
        let current = read(&path.join(BEGINNING))?;
        let parts = current.split_first_chunk().and_then(|(id, rest)| {
            let (checksum, kind) = rest.split_first_chunk()?;
            let (id, checksum) = (u64::from_le_bytes(*id), u128::from_le_bytes(*checksum));
            (kind == [XXH3]).then_some((id, checksum))
        });
        let Some((id, checksum)) = parts else {
            let what = format!("its file `{BEGINNING}` names no version");
            return Err(self.damaged(number, what));
        };
        let version = path.join(format!("v{id}"));
        if !exists(&version)? {
            return Err(self.damaged(number, format_args!("its file `v{id}` is missing")));
        }
        let version = read(&version)?;
        if xxh3_128(&version) != checksum {
            let what = format!("the checksum of its file `v{id}` does not match");
            return Err(self.damaged(number, what));
        }
        Ok(version)
    }

    /// What the links of the store have, if it is in the tables of its own tree.
    pub(super) fn secret(&self, own: u64, tree: &AnyTree) -> Result<Option<Secret>, StoreError> {
        let link = in_tables(tree, &self.path(own), LINK_KEY)?;
        let link = link.and_then(|link| Link::decode(&link));
        Ok(link.map(|link| link.secret))
    }

    /// The directory of one.
    pub(super) fn path(&self, number: u64) -> PathBuf {
        match &self.list {
            Some(list) if number == LIST => list.clone(),
            _ => self.directory.join(number.to_string()),
        }
    }

    fn has_no_beginning(&self, number: u64, name: &str) -> StoreError {
        self.damaged(
            number,
            format_args!("{name}: its file `{BEGINNING}` is missing"),
        )
    }

    fn damaged(&self, number: u64, what: impl ToString) -> StoreError {
        StoreError::damaged(self.path(number).display(), what)
    }
}

fn in_tables(
    tree: &AnyTree,
    place: &Path,
    key: &[u8],
) -> Result<Option<lsm_tree::Slice>, StoreError> {
    let found = tree.get(key, SeqNo::MAX).map_err(fjall::Error::Storage);
    found.map_err(|error| engine::error(engine::READING, place.display(), error))
}

/// Makes a directory for a tree with links to its files, in which it can be opened: what the engine
/// removes or replaces then are links.
fn link_tree(from: &Path, to: &Path) -> Result<(), StoreError> {
    let making = |error| StoreError::io("making", to.display(), error);
    make_all(to).map_err(making)?;
    for path in entries(from)? {
        let Some(name) = path.file_name() else {
            continue;
        };
        let there = to.join(name);
        if path.is_dir() {
            link_tree(&path, &there)?;
        } else if fs::hard_link(&path, &there).is_err() {
            // Not every file system has both.
            let linked = std::path::absolute(&path).and_then(|path| symlink(path, &there));
            linked.map_err(|error| {
                let error = io::Error::new(ErrorKind::Unsupported, error);
                StoreError::io("linking", there.display(), error)
            })?;
        }
    }
    Ok(())
}

/// Nothing of the kind can be made on this file system.
fn is_unsupported(error: &StoreError) -> bool {
    matches!(error, StoreError::Io { source, .. } if source.kind() == ErrorKind::Unsupported)
}

/// Makes a copy of a tree's directory: tables are linked, since they never change.
pub(super) fn copy_tree(from: &Path, to: &Path) -> Result<(), StoreError> {
    let making = |error| StoreError::io("making", to.display(), error);
    make_all(to).map_err(making)?;
    for path in entries(from)? {
        let Some(name) = path.file_name() else {
            continue;
        };
        let copy = to.join(name);
        if path.is_dir() {
            copy_tree(&path, &copy)?;
        } else if from.ends_with(TABLES) && fs::hard_link(&path, &copy).is_ok() {
            // It is there twice now.
        } else {
            let bytes = read(&path)?;
            let written = fs::write(&copy, bytes);
            written.map_err(|error| StoreError::io("writing", copy.display(), error))?;
        }
    }
    Ok(())
}

/// What is in a directory; nothing if it is not there.
pub(super) fn entries(directory: &Path) -> Result<Vec<PathBuf>, StoreError> {
    let entries = fs::read_dir(directory).and_then(|entries| {
        let paths = entries.map(|entry| Ok(entry?.path()));
        paths.collect()
    });
    match entries {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        entries => entries.map_err(|error| StoreError::io("reading", directory.display(), error)),
    }
}

/// What the disk does not give back is damage, and what cannot be opened is not.
pub(super) fn read(path: &Path) -> Result<Vec<u8>, StoreError> {
    let opened = File::open(path);
    let mut file = opened.map_err(|error| StoreError::io("opening", path.display(), error))?;
    let mut bytes = Vec::new();
    let read = file.read_to_end(&mut bytes).map_err(fjall::Error::Io);
    read.map_err(|error| engine::error(engine::READING, path.display(), error))?;
    Ok(bytes)
}

/// A tree does not open.
fn failed(path: &Path, error: lsm_tree::Error) -> StoreError {
    rewrite::or_unreadable(path, engine::opening(path, fjall::Error::Storage(error)))
}

/// The tree of the engine's own, which lists the others.
pub(super) const LIST: u64 = 0;
/// As it is called where a tree is named.
pub(super) const LIST_NAME: &str = "the list of all";
/// What the keys of names begin with there; the number of a tree follows.
const NAME_KEY: &[u8] = b"n";
/// The file of a tree that says which others it has.
pub(super) const BEGINNING: &str = "current";
/// In `current`, by which a version has its checksum, and in versions, by which tables have theirs.
pub(super) const XXH3: u8 = 0;
/// What each has its tables in, under their numbers.
pub(super) const TABLES: &str = "tables";
const CACHE_BYTES: u64 = 1024 * 1024;

#[cfg(test)]
mod tests;
