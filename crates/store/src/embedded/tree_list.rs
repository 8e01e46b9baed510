//! A copy of the engine's list of trees, used when the list itself cannot be read.
//!
//! The engine keeps the names and settings of all trees in a tree of its own, some KiB. One bad
//! block in it, and no tree can be opened. So a thread makes a copy beside the engine, after a
//! start and whenever a generation was created; no commit waits for it. Salvage uses the copy if
//! the list itself is unusable.
//!
//! ```text
//! store/list       unbroken-list 1\n
//!                  length, `current` | length, version | (number, length, table)*
//!                  XXH3-128 of all before it (16, high first)
//! store/list.new   one that is being written
//! ```
//!
//! It contains the files of the tree; see [`super::examine`]. Numbers and lengths are those of
//! [`crate::codec`].
//!
//! Invariants:
//! - Only what the engine has written is copied: it is compared with its checksums.
//! - The previous copy stays until the new one is safe.
//! - An old copy names trees that are gone, and lacks the newest, but names none falsely. The
//!   engine numbers a new tree above all that it finds, and the tree with the greatest number, the
//!   newest generation of its log, is not dropped before there is a greater.
//!
//! Deliberately absent: errors. A missing or damaged copy is made again next time.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write as _};
use std::path::Path;
use std::sync::mpsc::{self, SyncSender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use lsm_tree::AbstractTree as _;
use xxhash_rust::xxh3::xxh3_128;

use super::directory::Directory;
use super::examine::{BEGINNING, LIST, LIST_NAME, TABLES, Trees, read};
use crate::codec::{Reader, RecordError, put_number, put_string};
use crate::data_directory::{DataDirectory, EXAMINING, STORE, make_all};
use crate::error::StoreError;

/// Copies the list of an open store, one copy after another. Dropping it completes the last
/// requested copy.
#[derive(Debug)]
pub(super) struct ListCopier {
    /// Locked while the list changes.
    list: Arc<Mutex<()>>,
    requests: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl ListCopier {
    /// Copies the list, and again whenever it is [requested](Self::copy).
    pub(super) fn start(directory: &Directory) -> Result<Self, StoreError> {
        let (place, store) = (directory.place().clone(), directory.path().to_owned());
        let list = Arc::new(Mutex::new(()));
        copy(&place, &store, &list);
        // A waiting request copies the list as it is by then.
        let (requests, queue) = mpsc::sync_channel(1);
        let changes = Arc::clone(&list);
        let thread = thread::Builder::new()
            .name("list".to_owned())
            .spawn(move || {
                while queue.recv().is_ok() {
                    copy(&place, &store, &changes);
                }
            });
        let failed = |error| StoreError::io("starting", "a thread", error);
        Ok(Self {
            list,
            requests: Some(requests),
            thread: Some(thread.map_err(failed)?),
        })
    }

    /// The list may be changed while this is held.
    pub(super) fn lock(&self) -> MutexGuard<'_, ()> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Requests a copy, because the list has changed.
    pub(super) fn copy(&self) {
        if let Some(requests) = &self.requests {
            // A waiting request covers this change.
            let _ = requests.try_send(());
        }
    }
}

impl Drop for ListCopier {
    fn drop(&mut self) {
        drop(self.requests.take());
        if let Some(thread) = self.thread.take() {
            // Otherwise the previous copy remains.
            let _ = thread.join();
        }
    }
}

/// Copies the list of an open store, unless the copy is current.
fn copy(place: &DataDirectory, store: &Path, list: &Mutex<()>) {
    let held = list.lock().unwrap_or_else(PoisonError::into_inner);
    let cleared = place.clear(EXAMINING);
    let packed = cleared.and_then(|()| pack(place, &store.join("engine")));
    drop(held);
    // A start clears it too.
    let _ = place.clear(EXAMINING);
    if let Ok(bytes) = packed {
        // Otherwise the previous copy stays valid.
        let _ = put(store, &bytes);
    }
}

fn pack(place: &DataDirectory, engine: &Path) -> Result<Vec<u8>, StoreError> {
    let trees = Trees::new(engine, &place.part(EXAMINING), true);
    let (path, list) = (trees.path(LIST), trees.open(LIST, LIST_NAME)?);
    let mut out = FORMAT.to_vec();
    put_string(&mut out, &read(&path.join(BEGINNING))?);
    put_string(&mut out, &trees.version(LIST)?);
    for table in list.current_version().iter_tables() {
        let path = path.join(TABLES).join(table.id().to_string());
        let bytes = read(&path)?;
        if xxh3_128(&bytes) != table.checksum().into_u128() {
            return Err(StoreError::damaged(
                path.display(),
                "its checksum does not match",
            ));
        }
        put_number(&mut out, table.id());
        put_string(&mut out, &bytes);
    }
    out.extend_from_slice(&xxh3_128(&out).to_be_bytes());
    Ok(out)
}

/// The name is not synced: after a power cut this copy or the previous one is there.
fn put(store: &Path, bytes: &[u8]) -> io::Result<()> {
    let (path, new) = (store.join(NAME), store.join(NEW));
    let write = || {
        let mut file = File::create(&new)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&new, &path)
    };
    let is_there = fs::read(&path).is_ok_and(|there| there == bytes);
    let done = if is_there { Ok(()) } else { write() };
    match fs::remove_file(&new) {
        Err(error) if error.kind() != ErrorKind::NotFound => done.and(Err(error)),
        _ => done,
    }
}

/// Creates a directory with the files of the list as of the copy; false if there is no whole copy.
pub(super) fn unpack(store: &Path, to: &Path) -> Result<bool, StoreError> {
    let Ok(bytes) = fs::read(store.join(NAME)) else {
        return Ok(false);
    };
    let Some(files) = parse(&bytes) else {
        return Ok(false);
    };
    let write = || {
        make_all(&to.join(TABLES))?;
        for (name, bytes) in files {
            fs::write(to.join(name), bytes)?;
        }
        Ok(())
    };
    write().map_err(|error| StoreError::io("writing", to.display(), error))?;
    Ok(true)
}

/// The fault of the copy in a directory, if any. While a broker uses it, which may be making
/// another, only whether it is whole.
pub(super) fn fault(path: &Path) -> Result<Option<String>, StoreError> {
    let store = path.join(STORE);
    let copy = store.join(NAME);
    let what = match read(&copy) {
        Err(StoreError::Io { source, .. }) if source.kind() == ErrorKind::NotFound => {
            Some("is missing".to_owned())
        }
        Err(error) => Some(format!("cannot be read: {error}")),
        Ok(bytes) if parse(&bytes).is_none() => Some("is damaged".to_owned()),
        Ok(_) => match DataDirectory::take(path) {
            Err(StoreError::Held { .. }) => None,
            place => {
                let place = place?;
                place.clear(EXAMINING)?;
                let unnamed = unnamed(&store, &place.part(EXAMINING));
                let cleared = place.clear(EXAMINING);
                let unnamed = unnamed.and_then(|unnamed| cleared.map(|()| unnamed))?;
                (unnamed > 0).then(|| format!("is out of date: it lacks {unnamed} of the trees"))
            }
        },
    };
    let copy = copy.display();
    Ok(what.map(|what| {
        format!(
            "{copy}, the copy of the engine's list of trees, {what}; the next start rewrites it"
        )
    }))
}

/// Trees that the copy does not name. A tree that the list itself does not name either was left by
/// a crash, unless the list cannot be read.
fn unnamed(store: &Path, scratch: &Path) -> Result<usize, StoreError> {
    let engine = &store.join("engine");
    let trees = Trees::new(engine, &scratch.join("trees"), true);
    let listed: Vec<u64> = match trees.names() {
        Ok(names) => names.into_keys().collect(),
        Err(StoreError::Damaged { .. }) => trees.numbers()?,
        Err(error) => return Err(error),
    };
    let list = &scratch.join("list");
    unpack(store, list)?;
    let trees = Trees::new(engine, &scratch.join("copied"), true).listed_in(list);
    let named = trees.names()?;
    let mut unnamed = 0;
    for number in listed {
        let is_meant = number != LIST && trees.has_beginning(number)?;
        unnamed += usize::from(is_meant && !named.contains_key(&number));
    }
    Ok(unnamed)
}

/// The files with their names, if the copy is whole.
fn parse(bytes: &[u8]) -> Option<Vec<(String, &[u8])>> {
    let (bytes, seal) = bytes.split_last_chunk()?;
    if xxh3_128(bytes) != u128::from_be_bytes(*seal) {
        return None;
    }
    let mut reader = Reader::plain(bytes.strip_prefix(FORMAT)?);
    let mut read = || -> Result<_, RecordError> {
        let current = reader.string(BEGINNING)?;
        let id = u64::from_le_bytes(Reader::plain(current).array("version")?);
        let mut files = vec![(BEGINNING.to_owned(), current)];
        files.push((format!("v{id}"), reader.string("version")?));
        while reader.len() > 0 {
            let table = reader.number("table")?;
            files.push((format!("{TABLES}/{table}"), reader.string("table")?));
        }
        Ok(files)
    };
    read().ok()
}

const NAME: &str = "list";
const NEW: &str = "list.new";
const FORMAT: &[u8] = b"unbroken-list 1\n";
