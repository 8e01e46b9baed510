//! The engine under the embedded store: settings, memory cost, and the meaning of its errors.
//!
//! Memory: blocks in cache [`CACHE_BYTES`]; written and not yet in tables up to
//! [`LOG_BUFFER_BYTES`] for each log that is written and [`SPACE_BUFFER_BYTES`] for each space,
//! about twice that while older ones are being flushed; open files [`FILES_MAX`].

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use fjall::config::{CompressionPolicy, FilterPolicy};
use fjall::{AbstractTree, CompressionType, Database, Keyspace, KeyspaceCreateOptions};
use lsm_tree::GlobalTableId;

use super::generation::INDEX_BYTES_MAX;
use crate::batch::Space;
use crate::data_directory::sync;
use crate::error::StoreError;
use crate::file_system::disk_bytes;

const CACHE_BYTES: u64 = 16 * 1024 * 1024;
/// Memory for each log. Messages that are released before the buffer is full never reach a table
/// ([`Unflushed`](super::unflushed::Unflushed)). A larger buffer delays commits for longer while
/// its table is synced; a smaller one releases less in time.
///
const LOG_BUFFER_BYTES: u64 = 12 * 1024 * 1024;
const SPACE_BUFFER_BYTES: u64 = 4 * 1024 * 1024;
const FILES_MAX: usize = 128;
/// The thread writes and merges tables. With a second one, the first busy-waits while the other
/// merges. At most four buffers wait to be written; then commits wait.
const THREADS: usize = 1;
/// Journals on disk. The engine rotates one at 64 MB, and has what holds back the oldest written
/// out when they exceed this together, without the newest.
const JOURNAL_BYTES: u64 = 128 * 1024 * 1024;
/// The newest journal: so much is set aside for it.
const NEWEST_JOURNAL_BYTES: u64 = 64 * 1024 * 1024;

/// The most memory that a store with so many logs takes, in bytes: what this file says above, and
/// the index of each log's newest generation.
pub(crate) const fn memory_bytes_max(logs: u64) -> u64 {
    // Spaces, and the tree of the store's own.
    let values = (Space::ALL.len() as u64 + 1) * SPACE_BUFFER_BYTES;
    CACHE_BYTES + 2 * (values + logs * LOG_BUFFER_BYTES) + logs * INDEX_BYTES_MAX
}

/// The most bytes that a store with so many logs takes on disk beside what is kept in it: journals,
/// and of each log what is trimmed of a generation that is not gone yet.
pub(crate) const fn overhead_bytes_max(logs: u64, generation_bytes: u64) -> u64 {
    JOURNAL_BYTES + NEWEST_JOURNAL_BYTES + logs * generation_bytes
}

/// The most bytes that the engine writes of what a store with so many logs has given it: of each
/// tree one buffer and four that wait, each perhaps twice as large as it may be; and a merge.
pub(crate) const fn owed_bytes_max(logs: u64) -> u64 {
    let values = (Space::ALL.len() as u64 + 1) * SPACE_BUFFER_BYTES;
    10 * (values + logs * LOG_BUFFER_BYTES) + MERGE_BYTES_MAX
}

/// The most that one merge of tables writes: the newest tables, and a level below them.
pub(crate) const MERGE_BYTES_MAX: u64 = 320 * 1024 * 1024;

/// Where the engine has its trees, each in a directory.
pub(super) const TREES: &str = "keyspaces";

/// The engine syncs what is in a tree that it has made, and not the name of its directory: until
/// that is done a power cut takes back the tree, with all that is in it.
pub(crate) fn make_trees_safe(path: &Path) -> Result<(), StoreError> {
    let trees = path.join(TREES);
    sync(&trees).map_err(|error| StoreError::io("syncing", trees.display(), error))
}

/// Bytes of what is in a tree, tables and what is not yet written to one: about what it takes on
/// disk when all of it is.
pub(crate) fn tree_bytes(tree: &Keyspace) -> u64 {
    tree.disk_space() + tree.tree.active_memtable().size()
}

/// Closes the files of a tree that was deleted: the engine goes on having them open, and the disk
/// has no more space than before.
pub(super) fn close_files(tree: &Keyspace) {
    if let Some(open) = &tree.tree.tree_config().descriptor_table {
        for table in tree.tree.current_version().iter_tables() {
            open.remove_for_table(&GlobalTableId::from((tree.tree.id(), table.id())));
        }
    }
}

/// Opens the engine's directory, or makes it.
pub(crate) fn open(path: &Path) -> Result<Database, StoreError> {
    open_with(path, THREADS)
}

/// Opens a directory of the engine to read what is in its tables: it does nothing to them.
pub(crate) fn open_still(path: &Path) -> Result<Database, StoreError> {
    open_with(path, 0)
}

fn open_with(path: &Path, threads: usize) -> Result<Database, StoreError> {
    let open = || {
        Database::builder(path)
            .cache_size(CACHE_BYTES)
            .max_cached_files(Some(FILES_MAX))
            .max_journaling_size(journal_bytes(path))
            .worker_threads_unchecked(threads)
            .open()
    };
    // Some of the engine's checks of what it finds on disk are assertions.
    match catch_unwind(AssertUnwindSafe(open)) {
        Ok(Ok(database)) => {
            let named = path.parent().map_or(Ok(()), sync);
            named.map_err(|error| StoreError::io("making", path.display(), error))?;
            Ok(database)
        }
        Ok(Err(error)) => Err(opening(path, error)),
        Err(_) => Err(StoreError::damaged(
            path.display(),
            "the engine cannot read it",
        )),
    }
}

/// On a small disk as little as the engine takes.
fn journal_bytes(path: &Path) -> u64 {
    let disk = path.parent().and_then(disk_bytes).unwrap_or(u64::MAX);
    (disk / DISK_JOURNALS).clamp(NEWEST_JOURNAL_BYTES, JOURNAL_BYTES)
}

/// Journals take one part in so many of a disk, if the engine can do with it.
const DISK_JOURNALS: u64 = 8;

/// A generation of a log: read in order and by number, so filters would be of no use.
pub(crate) fn log_options() -> KeyspaceCreateOptions {
    KeyspaceCreateOptions::default()
        .max_memtable_size(LOG_BUFFER_BYTES)
        .filter_policy(FilterPolicy::disabled())
        .data_block_compression_policy(CompressionPolicy::all(CompressionType::Lz4))
}

/// A space of small values.
pub(crate) fn space_options() -> KeyspaceCreateOptions {
    KeyspaceCreateOptions::default().max_memtable_size(SPACE_BUFFER_BYTES)
}

/// What an error of the engine is here. What was written and cannot be read any more is damage.
pub(crate) fn error(doing: &'static str, place: impl ToString, error: fjall::Error) -> StoreError {
    match error {
        fjall::Error::Io(source) | fjall::Error::Storage(fjall::LsmError::Io(source))
            if doing == READING && is_unreadable(&source) =>
        {
            StoreError::damaged(place, source)
        }
        fjall::Error::Io(source) | fjall::Error::Storage(fjall::LsmError::Io(source)) => {
            StoreError::io(doing, place, source)
        }
        fjall::Error::Poisoned => StoreError::Dead {
            cause: "the engine could not flush its buffers; is the disk full or failing?".into(),
        },
        fjall::Error::Locked => StoreError::Held {
            place: place.to_string(),
            by: "another process".into(),
        },
        other => StoreError::damaged(place, format_args!("{other:?}")),
    }
}

/// To be said to [`error`] by whoever reads what the store has acknowledged.
pub(crate) const READING: &str = "reading";

/// The disk does not give back what lies there, or less of it than there was.
pub(crate) fn is_unreadable(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidData, UnexpectedEof};

    matches!(error.kind(), UnexpectedEof | InvalidData) || error.raw_os_error() == Some(EIO)
}

/// Input/output error, on every Unix.
const EIO: i32 = 5;

/// As [`error`], but what is missing or too short is damage: the directory was complete once.
pub(super) fn opening(path: &Path, error: fjall::Error) -> StoreError {
    use std::io::ErrorKind::{InvalidData, NotFound, UnexpectedEof};

    match self::error("opening", path.display(), error) {
        StoreError::Io { place, source, .. }
            if matches!(source.kind(), NotFound | UnexpectedEof | InvalidData) =>
        {
            StoreError::damaged(place, source)
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_read_is_damage_and_what_cannot_be_written_is_not() {
        let failed = |doing, number| {
            let cause = io::Error::from_raw_os_error(number);
            error(doing, "a place", fjall::Error::Io(cause))
        };
        assert!(matches!(failed(READING, EIO), StoreError::Damaged { .. }));
        assert!(matches!(failed("writing", EIO), StoreError::Io { .. }));
        // Too many open files say nothing about the disk.
        assert!(matches!(failed(READING, 24), StoreError::Io { .. }));
    }
}
