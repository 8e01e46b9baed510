//! The size of a file system, and what is free of it.

use std::path::Path;

/// Bytes that an unprivileged process may still write below a directory; none if the file system
/// reports no size.
pub(crate) fn free_bytes(directory: &Path) -> Option<u64> {
    let disk = nix::sys::statvfs::statvfs(directory).ok()?;
    let has_size = disk.blocks() > 0;
    has_size.then(|| disk.blocks_available().saturating_mul(disk.fragment_size()))
}

/// All bytes of the file system of a directory; none if it reports no size.
pub(crate) fn disk_bytes(directory: &Path) -> Option<u64> {
    let disk = nix::sys::statvfs::statvfs(directory).ok()?;
    let bytes = disk.blocks().saturating_mul(disk.fragment_size());
    (bytes > 0).then_some(bytes)
}
