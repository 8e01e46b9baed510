//! The disk space that the store may use: a limit beside the configured one, because other programs
//! use the same disk, and a failed write to the store ends the broker.
//!
//! ```text
//! all   = free on the disk + what the directory takes
//! spare = free - what the store owes (journals are written to tables later)
//! lack  : spare < the reserve + twice what is requested and not committed yet
//! room  = all - the engine's share, and at least half of all, but never more than
//!         stored + spare - the reserve
//! ```
//!
//! The reserve is a quarter of the engine's share, or of all. At least half of `all` is room,
//! because the engine's share (256 MiB and more) would close a small disk that has some. Never more
//! than is free, because the engine has to write in order to delete.
//!
//! While the disk lacks space, publishers are refused what would have to be stored. The end of that
//! needs a quarter of the reserve more than its begin.
//!
//! Deliberately absent: what happens at the limit (the shards decide); quotas, which the kernel's
//! answer does not include.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use unbroken_store::FreeSpace;

use crate::broker_store::BrokerStore;

/// The disk of a directory. The shards read what the committer and the log reader have found.
#[derive(Debug)]
pub(crate) struct DiskSpace {
    directory: PathBuf,
    free: fn(&dyn BrokerStore) -> Option<FreeSpace>,
    /// Bytes that the engine may take beside the stored data.
    overhead: u64,
    /// What is left free.
    reserve: AtomicU64,
    /// Requested bytes that are not committed.
    requested: AtomicU64,
    /// As many there may be before the next look.
    allowed: AtomicU64,
    is_lacking: AtomicBool,
    lacking_since: Mutex<Option<Instant>>,
}

impl DiskSpace {
    pub(super) fn new(directory: &Path, overhead: u64) -> Self {
        Self {
            directory: directory.to_owned(),
            free: |store| store.free_space(),
            overhead,
            reserve: AtomicU64::new(0),
            requested: AtomicU64::new(0),
            allowed: AtomicU64::new(u64::MAX),
            is_lacking: AtomicBool::new(false),
            lacking_since: Mutex::new(None),
        }
    }

    /// A disk with so much free space, all of it for stored data.
    #[cfg(test)]
    pub(super) fn with_free(free: fn(&dyn BrokerStore) -> Option<FreeSpace>) -> Self {
        Self {
            free,
            ..Self::new(Path::new(""), 0)
        }
    }

    pub(super) fn free_space(&self, store: &dyn BrokerStore) -> Option<FreeSpace> {
        (self.free)(store)
    }

    /// The most bytes that can be stored while so many are stored and the directory takes so many.
    /// `u64::MAX` if the file system reports no size.
    pub(super) fn available(&self, space: Option<FreeSpace>, kept: u64, taken: u64) -> u64 {
        let Some(space) = space else {
            return u64::MAX;
        };
        let all = space.free.saturating_add(taken);
        let reserve = self.overhead.min(all) / 4;
        self.reserve.store(reserve, Ordering::Relaxed);
        let mut left = reserve;
        if let Some(since) = *self.lock() {
            if since.elapsed() < JOURNALS_FREED_AFTER {
                return u64::MAX; // nothing is dropped for what may be freed without
            }
            left += self.margin() + 2 * self.requested.load(Ordering::Relaxed);
        }
        let now = kept.saturating_add(space.spare().saturating_sub(left));
        now.min(all.saturating_sub(self.overhead).max(all / 2))
    }

    /// Looks how much is free, and logs when the disk begins to lack space and when it has it
    /// again. What the store has in memory is written out at the begin.
    pub(super) fn look(&self, store: &dyn BrokerStore) {
        let Some(space) = self.free_space(store) else {
            return;
        };
        let was_lacking = self.is_lacking();
        self.note(space);
        if self.is_lacking() && !was_lacking {
            // The next commit meets the same error and reports it.
            let _ = store.write_out();
        }
    }

    fn note(&self, space: FreeSpace) {
        let reserve = self.reserve.load(Ordering::Relaxed);
        let allowed = space.spare().saturating_sub(reserve) / 2;
        self.allowed.store(allowed, Ordering::Relaxed);
        let requested = self.requested.load(Ordering::Relaxed);
        let needed = reserve + space.owed + 2 * requested;
        let (free, directory) = (space.free, self.directory.display());
        let mut since = self.lock();
        match *since {
            None if free < needed => {
                *since = Some(Instant::now());
                self.is_lacking.store(true, Ordering::Relaxed);
                tracing::warn!(
                    free,
                    needed,
                    %directory,
                    "the disk lacks space: messages that would have to be stored are refused \
                     (0x97) until it has enough; free disk space, or fetch or remove what waits \
                     (`unbroken sessions ls`)"
                );
            }
            Some(begin) if free >= needed + self.margin() => {
                *since = None;
                self.is_lacking.store(false, Ordering::Relaxed);
                let lacked_ms = u64::try_from(begin.elapsed().as_millis()).unwrap_or(u64::MAX);
                tracing::info!(
                    free,
                    needed,
                    lacked_ms,
                    %directory,
                    "the disk has space again: messages are accepted"
                );
            }
            _ => {}
        }
    }

    fn margin(&self) -> u64 {
        self.reserve.load(Ordering::Relaxed) / 4
    }

    /// The disk lacked space at the last look.
    pub(super) fn is_lacking(&self) -> bool {
        self.is_lacking.load(Ordering::Relaxed)
    }

    /// Whether it lacks space once so many more bytes are requested.
    pub(super) fn would_lack(&self, bytes: u64) -> bool {
        let requested = self.requested.load(Ordering::Relaxed).saturating_add(bytes);
        self.is_lacking() || requested > self.allowed.load(Ordering::Relaxed)
    }

    /// So many bytes are requested; they are committed later.
    pub(super) fn request(&self, bytes: u64) {
        self.requested.fetch_add(bytes, Ordering::Relaxed);
    }

    /// So many of them are committed.
    pub(super) fn commit(&self, bytes: u64) {
        self.requested.fetch_sub(bytes, Ordering::Relaxed);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Instant>> {
        let guard = self.lacking_since.lock();
        guard.unwrap_or_else(PoisonError::into_inner)
    }
}

/// Until then journals may be freed, and nothing is dropped to make room.
const JOURNALS_FREED_AFTER: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1024 * 1024;

    fn space(free: u64, owed: u64) -> FreeSpace {
        let (free, owed) = (free * MIB, owed * MIB);
        FreeSpace { free, owed }
    }

    #[test]
    fn free_and_used_space_without_the_engines_share_is_available() {
        let disk = DiskSpace::new(Path::new("/"), 256 * MIB);
        let check = |free, kept, taken, expected| {
            let room = disk.available(Some(space(free, 0)), kept * MIB, taken * MIB);
            assert_eq!(room, expected * MIB);
        };
        check(1_000, 50, 100, 844);
        check(100, 50, 100, 100); // half of a small disk
        check(74, 1_000, 1_256, 1_010); // hardly any left
        check(0, 50, 100, 50);
        assert_eq!(disk.available(None, 50, 100), u64::MAX);
        // What the store will write by itself is not available.
        let owing = disk.available(Some(space(94, 20)), 1_000 * MIB, 1_256 * MIB);
        assert_eq!(owing, 1_010 * MIB);
    }

    #[test]
    fn a_disk_lacks_space_until_there_is_more_than_at_the_begin() {
        let disk = DiskSpace::new(Path::new("/"), 256 * MIB);
        disk.available(Some(space(1_000, 0)), 0, 0);
        let check = |free, owed, lacks| {
            disk.note(space(free, owed));
            assert_eq!(disk.is_lacking(), lacks, "{free} free, {owed} owed");
        };
        check(74, 10, false);
        check(73, 10, true);
        check(64 + 15, 0, true);
        check(64 + 16, 0, false);
        // What is requested is written to a journal and to a table.
        disk.request(8 * MIB);
        check(64 + 16, 0, false);
        check(64 + 15, 0, true);
        disk.commit(8 * MIB);
        check(64 + 16, 0, false);
        assert!(!disk.would_lack(8 * MIB));
        assert!(disk.would_lack(8 * MIB + 1));
        disk.request(1);
        assert!(disk.would_lack(8 * MIB));
    }
}
