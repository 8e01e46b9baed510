//! What the disk has room for: a limit of the store beside the configured one, since who uses the
//! same disk does not ask, and a store that cannot be written ends the broker.
//!
//! ```text
//! all  = free on the disk + what the directory takes
//! room = all - what the engine may take beside what is kept, and at least half of all, but never
//!        more than what is kept + what is free - a quarter of the engine's share, or of all
//! ```
//!
//! Half of all, since the engine's share, 256 MiB and more, would close a small disk that has some
//! room; and never more than is free, since the engine has to write to let go of something.
//!
//! Deliberately absent: what happens at the limit, which is the shards'; and quotas, of which the
//! kernel's answer knows nothing.

use std::path::{Path, PathBuf};

/// Knows a directory's disk.
#[derive(Debug)]
pub(super) struct Room {
    directory: PathBuf,
    /// Bytes that the engine may take beside what is kept.
    beside: u64,
    free: fn(&Path) -> Option<u64>,
}

impl Room {
    pub(super) fn new(directory: &Path, beside: u64) -> Self {
        Self {
            directory: directory.to_owned(),
            beside,
            free,
        }
    }

    /// A disk with so many bytes free, all of them for what is kept.
    #[cfg(test)]
    pub(super) fn with_free(free: fn(&Path) -> Option<u64>) -> Self {
        let (directory, beside) = (PathBuf::new(), 0);
        Self {
            directory,
            beside,
            free,
        }
    }

    /// The most bytes that can be kept where so many are, and the directory takes so many.
    /// `u64::MAX` where the disk does not say.
    pub(super) fn of(&self, kept: u64, taken: u64) -> u64 {
        let Some(free) = (self.free)(&self.directory) else {
            return u64::MAX;
        };
        let all = free.saturating_add(taken);
        let reserve = self.beside.min(all) / 4;
        let now = kept.saturating_add(free.saturating_sub(reserve));
        now.min(all.saturating_sub(self.beside).max(all / 2))
    }
}

/// Bytes that a process without special rights may still write.
#[cfg(unix)]
fn free(directory: &Path) -> Option<u64> {
    let disk = nix::sys::statvfs::statvfs(directory).ok()?;
    // Some file systems have no size, or do not tell it.
    let has_size = disk.blocks() > 0;
    has_size.then(|| disk.blocks_available().saturating_mul(disk.fragment_size()))
}

#[cfg(not(unix))]
fn free(_: &Path) -> Option<u64> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_free_and_taken_but_for_the_engines_share_is_room() {
        const MIB: u64 = 1024 * 1024;
        let mut room = Room::new(Path::new("/"), 256 * MIB);
        assert!(room.of(0, 0) < u64::MAX, "the disk of this machine");
        let mut check = |free: fn(&Path) -> Option<u64>, kept, taken, expected| {
            room.free = free;
            assert_eq!(room.of(kept * MIB, taken * MIB), expected);
        };
        check(|_| Some(1_000 * MIB), 50, 100, 844 * MIB);
        check(|_| Some(100 * MIB), 50, 100, 100 * MIB); // half of a small disk
        check(|_| Some(74 * MIB), 1_000, 1_256, 1_010 * MIB); // hardly any left
        check(|_| Some(0), 50, 100, 50 * MIB);
        check(|_| None, 50, 100, u64::MAX);
        room = Room::new(Path::new("/proc"), 256 * MIB);
        assert_eq!(room.of(0, 0), u64::MAX, "it has no size");
    }
}
