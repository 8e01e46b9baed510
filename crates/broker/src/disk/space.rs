//! The disk space that the store may use: a limit beside the configured one, because other programs
//! use the same disk, and a failed write to the store ends the broker.
//!
//! ```text
//! all  = free on the disk + what the directory takes
//! room = all - the engine's share, and at least half of all, but never more than
//!        stored + free - a quarter of the engine's share, or of all
//! ```
//!
//! At least half of `all`, because the engine's share (256 MiB and more) would close a small disk
//! that has some room. Never more than is free, because the engine has to write in order to delete.
//!
//! Deliberately absent: what happens at the limit (the shards decide); quotas, which the kernel's
//! answer does not include.

use std::path::{Path, PathBuf};

/// The disk of a directory.
#[derive(Debug)]
pub(super) struct DiskSpace {
    directory: PathBuf,
    /// Bytes that the engine may take beside the stored data.
    overhead: u64,
    free: fn(&Path) -> Option<u64>,
}

impl DiskSpace {
    pub(super) fn new(directory: &Path, overhead: u64) -> Self {
        Self {
            directory: directory.to_owned(),
            overhead,
            free,
        }
    }

    /// A disk with so many bytes free, all of them for stored data.
    #[cfg(test)]
    pub(super) fn with_free(free: fn(&Path) -> Option<u64>) -> Self {
        let (directory, overhead) = (PathBuf::new(), 0);
        Self {
            directory,
            overhead,
            free,
        }
    }

    /// The most bytes that can be stored while so many are stored and the directory takes so many.
    /// `u64::MAX` if the file system reports no size.
    pub(super) fn available(&self, kept: u64, taken: u64) -> u64 {
        let Some(free) = (self.free)(&self.directory) else {
            return u64::MAX;
        };
        let all = free.saturating_add(taken);
        let reserve = self.overhead.min(all) / 4;
        let now = kept.saturating_add(free.saturating_sub(reserve));
        now.min(all.saturating_sub(self.overhead).max(all / 2))
    }
}

/// Bytes that an unprivileged process may still write.
#[cfg(unix)]
fn free(directory: &Path) -> Option<u64> {
    let disk = nix::sys::statvfs::statvfs(directory).ok()?;
    // Some file systems report no size.
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
    fn free_and_used_space_without_the_engines_share_is_available() {
        const MIB: u64 = 1024 * 1024;
        let mut room = DiskSpace::new(Path::new("/"), 256 * MIB);
        assert!(room.available(0, 0) < u64::MAX, "the disk of this machine");
        let mut check = |free: fn(&Path) -> Option<u64>, kept, taken, expected| {
            room.free = free;
            assert_eq!(room.available(kept * MIB, taken * MIB), expected);
        };
        check(|_| Some(1_000 * MIB), 50, 100, 844 * MIB);
        check(|_| Some(100 * MIB), 50, 100, 100 * MIB); // half of a small disk
        check(|_| Some(74 * MIB), 1_000, 1_256, 1_010 * MIB); // hardly any left
        check(|_| Some(0), 50, 100, 50 * MIB);
        check(|_| None, 50, 100, u64::MAX);
        room = DiskSpace::new(Path::new("/proc"), 256 * MIB);
        assert_eq!(room.available(0, 0), u64::MAX, "it has no size");
    }
}
