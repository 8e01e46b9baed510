//! A copy of the engine's list of trees, for the day when the list itself cannot be read.
//!
//! The engine has the names and the settings of all trees in a tree of its own, some KiB: one bad
//! block in it, and no tree can be opened, however whole it is. So there is a copy beside the
//! engine, made when a start has opened a store, and when a generation was made, by a thread of its
//! own: no commit waits until it is read and synced. Who salvages takes it where the list itself is
//! of no use.
//!
//! ```text
//! store/list       unbroken-list 1\n
//!                  length, `current` | length, version | (number, length, table)*
//!                  XXH3-128 of all before it (16, high first)
//! store/list.new   one that is being written
//! ```
//!
//! What is in it are the files of the tree; see [`super::examine`]. Numbers and lengths are those
//! of [`crate::codec`].
//!
//! Invariants:
//! - What is copied is what the engine has written: it is compared with its checksums.
//! - The copy before is there until the new one is safe.
//! - A copy that is old names trees that are gone, and not the newest; but none falsely. The engine
//!   gives a new tree a number above those of all that it finds, and the one that has the greatest,
//!   the newest generation of its log, is not let go before there is a greater.
//!
//! Deliberately absent: an answer where it cannot be made, or is damaged. Nothing needs it but who
//! has met damage already, and the next time makes it again.

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
use crate::error::StoreError;
use crate::places::{EXAMINING, Place, STORE, make_all};

/// Makes copies of the list of a store that is open, one after the other. When it is dropped, the
/// last one that was asked for is made.
#[derive(Debug)]
pub(super) struct Keeper {
    /// Held by whoever changes the list.
    list: Arc<Mutex<()>>,
    asked: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Keeper {
    /// Copies the list as it is, and goes on when it is [asked](Self::keep).
    pub(super) fn start(directory: &Directory) -> Result<Self, StoreError> {
        let (place, store) = (directory.place().clone(), directory.path().to_owned());
        let list = Arc::new(Mutex::new(()));
        keep(&place, &store, &list);
        // One that waits is of whatever the list is then.
        let (asked, questions) = mpsc::sync_channel(1);
        let changes = Arc::clone(&list);
        let thread = thread::Builder::new()
            .name("list".to_owned())
            .spawn(move || {
                while questions.recv().is_ok() {
                    keep(&place, &store, &changes);
                }
            });
        let failed = |error| StoreError::io("starting", "a thread", error);
        Ok(Self {
            list,
            asked: Some(asked),
            thread: Some(thread.map_err(failed)?),
        })
    }

    /// The list may be changed as long as this is held.
    pub(super) fn lock(&self) -> MutexGuard<'_, ()> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The list has changed.
    pub(super) fn keep(&self) {
        if let Some(asked) = &self.asked {
            // If one waits already, it is of the list as it is now.
            let _ = asked.try_send(());
        }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        drop(self.asked.take());
        if let Some(thread) = self.thread.take() {
            // Then there is the copy before.
            let _ = thread.join();
        }
    }
}

/// Copies the list of a store that is open, unless it was copied as it is.
fn keep(place: &Place, store: &Path, list: &Mutex<()>) {
    let held = list.lock().unwrap_or_else(PoisonError::into_inner);
    let cleared = place.clear(EXAMINING);
    let packed = cleared.and_then(|()| pack(place, &store.join("engine")));
    drop(held);
    // A start clears it, too.
    let _ = place.clear(EXAMINING);
    if let Ok(bytes) = packed {
        // Then the one before is as good as it was.
        let _ = put(store, &bytes);
    }
}

fn pack(place: &Place, engine: &Path) -> Result<Vec<u8>, StoreError> {
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
                "its checksum is another",
            ));
        }
        put_number(&mut out, table.id());
        put_string(&mut out, &bytes);
    }
    out.extend_from_slice(&xxh3_128(&out).to_be_bytes());
    Ok(out)
}

/// Its name is not synced: after a power cut there is this one, or the one before.
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

/// Makes a directory with the files of the list, as they were when they were copied; false if there
/// is no copy, or none that is whole.
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

/// What is wrong with the copy in a directory, if anything. While a broker has it, which may be
/// making another, only whether it is whole.
pub(super) fn fault(path: &Path) -> Result<Option<String>, StoreError> {
    let store = path.join(STORE);
    let copy = store.join(NAME);
    let what = match read(&copy) {
        Err(StoreError::Io { source, .. }) if source.kind() == ErrorKind::NotFound => {
            Some("is missing".to_owned())
        }
        Err(error) => Some(format!("cannot be read: {error}")),
        Ok(bytes) if parse(&bytes).is_none() => Some("is damaged".to_owned()),
        Ok(_) => match Place::take(path) {
            Err(StoreError::Held { .. }) => None,
            place => {
                let place = place?;
                place.clear(EXAMINING)?;
                let unnamed = unnamed(&store, &place.part(EXAMINING));
                let cleared = place.clear(EXAMINING);
                let unnamed = unnamed.and_then(|unnamed| cleared.map(|()| unnamed))?;
                (unnamed > 0).then(|| format!("is old: it does not name {unnamed} of the trees"))
            }
        },
    };
    let copy = copy.display();
    Ok(what.map(|what| {
        format!("{copy}, the copy of the engine's list of trees, {what}; the next start makes it")
    }))
}

/// How many trees there are that the copy does not name. A tree that the list itself does not name
/// either is what a crash has left, unless the list cannot be read.
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
