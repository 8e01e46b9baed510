//! The free space of the disk, and what the store will take of it by itself.
//!
//! ```text
//! free = what the store owes + what the next start writes + what may be taken in
//!        ^ memory that is not in tables yet, and the largest merge of tables
//! ```
//!
//! What is taken in is written twice: to a journal, and later to a table. The engine ends for good
//! when a write of its own finds no space, and a store without any is not opened again. So the
//! store fails before that.
//!
//! Invariant: after each commit there is room for what the store owes and for the next start. So a
//! store can be opened on the disk on which it stopped. If others have taken that space meanwhile,
//! the next start has that of the file `reserve`.
//!
//! Deliberately absent: what is done while space is short, which the owner of the store decides;
//! quotas, which the kernel's answer does not include.

use std::io::{Error, ErrorKind};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fjall::{AbstractTree, Keyspace};

use super::opened::{Engine, Published};
use super::{Embedded, engine};
use crate::error::StoreError;
use crate::file_system::free_bytes;

/// What there is, and what the store will take of it by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FreeSpace {
    /// Bytes that an unprivileged process may still write.
    pub free: u64,
    /// Bytes that the store will write without being asked for anything more, at most. Not counted,
    /// and 0, while twice as many are free as they can be.
    pub owed: u64,
}

/// What the engine counts as its memory, and no tree has any more.
#[derive(Debug, Default)]
pub(super) struct Forgotten(AtomicU64);

/// The memory of the engine that is not in tables yet.
struct Unwritten {
    bytes: u64,
    /// Some of it is being written, or waits for that.
    is_flushing: bool,
}

impl FreeSpace {
    /// Bytes that may be written beside what the store owes.
    pub const fn spare(self) -> u64 {
        self.free.saturating_sub(self.owed)
    }
}

/// Whether so little is free that journals matter, and enough to write what is in them to tables.
pub(super) fn is_short(directory: &Path) -> bool {
    let free = directory.parent().and_then(free_bytes);
    free.is_some_and(|free| (RESERVE_BYTES + START_BYTES..SHORT_BYTES).contains(&free))
}

impl Embedded {
    /// The space of the disk; none if it is unknown.
    pub fn free_space(&self) -> Option<FreeSpace> {
        self.look_at_disk().map(|(space, _)| space)
    }

    fn look_at_disk(&self) -> Option<(FreeSpace, bool)> {
        let published = self.read_published();
        let most = engine::owed_bytes_max(published.logs.len() as u64);
        let free = free_bytes(self.directory.path())?;
        if free / 2 > most {
            return Some((FreeSpace { free, owed: 0 }, false));
        }
        let unwritten = self.engine.unwritten(&published, &self.forgotten);
        let owed = unwritten.bytes + self.engine.merged_bytes_max(&published);
        drop(published);
        // Later than what is owed: what is written meanwhile counts twice, and not never.
        let free = free_bytes(self.directory.path())?;
        Some((FreeSpace { free, owed }, unwritten.is_flushing))
    }

    /// Has what is in the engine's memory written to tables: all of it, if that frees a journal,
    /// and otherwise what is worth a table. Then less is owed, and a start needs less.
    pub fn write_out(&self) -> Result<(), StoreError> {
        self.alive()?;
        let journals = self.engine.database.journal_count();
        let most = if journals > 1 { 0 } else { TABLE_BYTES_MIN };
        let published = self.read_published();
        let trees: Vec<_> = self.engine.trees(&published).cloned().collect();
        drop(published);
        for tree in trees {
            if tree.tree.active_memtable().size() > most {
                let failed = |error| engine::error("writing", tree.name(), error);
                self.or_dead(tree.rotate_memtable().map_err(failed))?;
            }
        }
        Ok(())
    }

    /// Whether so many bytes can be taken in, so that what the store owes then, and the next start,
    /// still have room.
    pub(super) fn has_room_for(&self, bytes: u64) -> Result<(), StoreError> {
        let wanted = bytes.saturating_mul(2).saturating_add(START_BYTES);
        let begin = Instant::now();
        loop {
            let Some((space, is_flushing)) = self.look_at_disk() else {
                return Ok(());
            };
            if space.spare() >= wanted {
                return Ok(());
            }
            // What is being written counts twice until it is.
            if !is_flushing || begin.elapsed() >= FLUSH_TIMEOUT {
                let what = format!(
                    "no space left: {} bytes are free, and {} are needed to write more and to \
                     start again; free disk space",
                    space.free,
                    space.owed.saturating_add(wanted),
                );
                let source = Error::new(ErrorKind::StorageFull, what);
                let place = self.directory.path().display();
                return Err(StoreError::io("writing", place, source));
            }
            // The engine does not say when it has written.
            thread::park_timeout(LOOK_AGAIN);
        }
    }
}

impl Engine {
    /// All that are written to, or were.
    fn trees<'a>(&'a self, published: &'a Published) -> impl Iterator<Item = &'a Keyspace> {
        let logs = published.logs.values();
        let generations = logs.flat_map(|log| log.generations.all());
        let generations = generations.map(|generation| &generation.keyspace);
        self.spaces.iter().chain([&self.own]).chain(generations)
    }

    fn unwritten(&self, published: &Published, forgotten: &Forgotten) -> Unwritten {
        let (mut bytes, mut is_flushing) = (0, false);
        for tree in self.trees(published) {
            bytes += tree.tree.active_memtable().size();
            is_flushing |= tree.tree.sealed_memtable_count() > 0;
        }
        // The engine does not say how much waits to be written of one tree, and goes on counting
        // the memory of trees that were deleted.
        let counted = self.database.write_buffer_size();
        if is_flushing {
            bytes = bytes.max(counted.saturating_sub(forgotten.0.load(Ordering::Relaxed)));
        } else {
            let more = counted.saturating_sub(bytes);
            forgotten.0.store(more, Ordering::Relaxed);
        }
        Unwritten { bytes, is_flushing }
    }

    /// The most that a merge writes before it frees anything. One runs at a time. Tables of a log
    /// that do not overlap are not merged.
    fn merged_bytes_max(&self, published: &Published) -> u64 {
        let values = self.spaces.iter().chain([&self.own]);
        let values = values.map(Keyspace::disk_space);
        let logs = published.logs.values();
        let generations = logs.flat_map(|log| log.generations.all());
        let trees = generations.map(|generation| &generation.keyspace);
        let overlapping = trees.filter(|tree| tree.tree.l0_run_count() > 1);
        let merged = values.chain(overlapping.map(Keyspace::disk_space));
        merged.max().unwrap_or(0).min(engine::MERGE_BYTES_MAX)
    }
}

/// What a start writes before it is asked for anything, at most: names, the list of trees, the
/// first batches, and pieces of journals that are written again after an error.
const START_BYTES: u64 = 4 * 1024 * 1024;
/// For it in a file, so that others cannot take it; and for what the store has in memory when they
/// take the rest.
pub(crate) const RESERVE_BYTES: u64 = 2 * START_BYTES;
/// A smaller table is not worth it.
const TABLE_BYTES_MIN: u64 = 1024 * 1024;
/// Less than the journals may take.
const SHORT_BYTES: u64 = 192 * 1024 * 1024;
/// As long a commit waits for the tables that are being written.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(10);
const LOOK_AGAIN: Duration = Duration::from_millis(5);
