//! The data directory: which process has it, and which part of it is the store.
//!
//! ```text
//! DIR/lock         locked while a process has the directory; `unbroken-lock 1`, which, since when
//! DIR/store/       the store
//! DIR/making/      one that is being made, with nothing in it
//! DIR/restoring/   one that is being filled from a backup
//! DIR/examining/   copies of parts of the store, to look at
//! DIR/salvaging/   one that is being filled from a damaged one
//! DIR/salvaged/    that one, whole: it takes the place of the damaged one
//! DIR/damaged-T/   a damaged one that was set aside
//! DIR/reserve      room that a start gives free if there is not enough
//! DIR/control      the broker's own, and of its last run
//! DIR/failed
//! DIR/admin        socket of the admin server
//! DIR/delivery/    its incidents and series
//! ```
//!
//! Invariants:
//! - DIR is never renamed, and nothing is created beside it: it may be a mount point or a link, and
//!   its name may end with a slash.
//! - Files in it have mode 0600 and directories 0700, whatever the mask of the process was: who
//!   takes a data directory changes that mask for good.
//! - Only the process with the lock changes its contents. The lock file is never renamed.
//! - `store` is one complete store. Another complete one replaces it by a single rename; unfinished
//!   ones have other names, and each rename is safe on disk before the next.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::sys::stat::{Mode, umask};
use nix::unistd::Uid;

use crate::error::StoreError;
use crate::file_system::free_bytes;

pub(crate) const STORE: &str = "store";
pub(crate) const MAKING: &str = "making";
pub(crate) const EXAMINING: &str = "examining";
pub(crate) const RESTORING: &str = "restoring";
pub(crate) const SALVAGING: &str = "salvaging";
pub(crate) const SALVAGED: &str = "salvaged";
/// What follows is when it was set aside.
pub(crate) const DAMAGED: &str = "damaged-";
const LOCK: &str = "lock";
const RESERVE: &str = "reserve";
/// What a broker that was killed, or whose store has failed, leaves beside the store.
const CONTROL: &str = "control";
const FAILED: &str = "failed";
/// The socket of the admin server, and its incidents and series.
const ADMIN: &str = "admin";
const DELIVERY: &str = "delivery";

/// The first versions wrote no such line; their lock files can be read too.
const LOCK_FORMAT: &str = "unbroken-lock 1";

/// A directory that this process has locked.
#[derive(Clone, Debug)]
pub(crate) struct DataDirectory {
    path: PathBuf,
    /// Unlocked when the last owner closes it.
    _lock: Arc<File>,
}

impl DataDirectory {
    /// Locks the directory, creates it if necessary, and completes or undoes interrupted
    /// operations. In a world-writable directory, one of another user is refused.
    pub(crate) fn take(path: &Path) -> Result<Self, StoreError> {
        let making = |error| StoreError::io("making", path.display(), error);
        make_parents(path).map_err(making)?;
        keep_files_private();
        make(path).map_err(making)?;
        check_owner(path).map_err(|error| StoreError::io("using", path.display(), error))?;
        let place = Self {
            path: path.to_owned(),
            _lock: Arc::new(lock(path)?),
        };
        place.finish_interrupted()?;
        Ok(place)
    }

    /// Has room on the disk for the next start, if there is twice as much; makes it unless it is
    /// there. Without it a start depends on the space that others leave.
    pub(crate) fn keep_reserve(&self, bytes: u64) {
        let path = self.part(RESERVE);
        let has_it = fs::metadata(&path).is_ok_and(|found| found.len() >= bytes);
        if has_it || free_bytes(&self.path).is_none_or(|free| free < 2 * bytes) {
            return;
        }
        let made = File::create(&path).and_then(|file| allocate(&file, bytes));
        if made.is_err() {
            // Not every file system can.
            let _ = fs::remove_file(&path);
        }
    }

    /// A directory in it.
    pub(crate) fn part(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Removes a part with all that is in it, if it is there.
    pub(crate) fn clear(&self, name: &str) -> Result<(), StoreError> {
        let part = self.part(name);
        match fs::remove_dir_all(&part) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(StoreError::io("removing", part.display(), error))
            }
            _ => Ok(()),
        }
    }

    /// Renames a part; safe against a power cut.
    pub(crate) fn rename(&self, from: &str, to: &str) -> Result<(), StoreError> {
        let from = self.part(from);
        fs::rename(&from, self.part(to))
            .and_then(|()| sync(&self.path))
            .map_err(|error| StoreError::io("renaming", from.display(), error))
    }

    /// A damaged store is set aside when the new one is complete, so without the former the latter
    /// is the store.
    fn finish_interrupted(&self) -> Result<(), StoreError> {
        self.clear(MAKING)?;
        self.clear(EXAMINING)?;
        self.clear(RESTORING)?;
        self.clear(SALVAGING)?;
        if !exists(&self.part(SALVAGED))? {
            Ok(())
        } else if exists(&self.part(STORE))? {
            self.clear(SALVAGED)
        } else {
            self.rename(SALVAGED, STORE)
        }
    }
}

/// Whether there is a store in this directory, of whatever version and in whatever state.
pub(crate) fn has_store(path: &Path) -> Result<bool, StoreError> {
    Ok(exists(&path.join(STORE))? || exists(&path.join(SALVAGED))?)
}

/// The damaged stores that were set aside in this directory, oldest first.
pub(crate) fn damaged_stores(path: &Path) -> Result<Vec<PathBuf>, StoreError> {
    let list = || -> io::Result<_> {
        let mut found = Vec::new();
        for entry in fs::read_dir(path)? {
            let entry = entry?;
            if is_set_aside(&entry.file_name().to_string_lossy()) {
                found.push(entry.path());
            }
        }
        found.sort();
        Ok(found)
    };
    list().map_err(|error| StoreError::io("reading", path.display(), error))
}

/// An entry of this directory that belongs neither to a data directory without a store nor to the
/// file system.
pub(crate) fn foreign_entry(path: &Path) -> Result<Option<PathBuf>, StoreError> {
    let parts = [
        LOCK, RESERVE, MAKING, EXAMINING, RESTORING, CONTROL, FAILED, ADMIN, DELIVERY,
    ];
    let is_ours = |name: &str| parts.contains(&name) || is_set_aside(name);
    let look = || -> io::Result<_> {
        for entry in fs::read_dir(path)? {
            let entry = entry?;
            let name = entry.file_name();
            let name = name.to_string_lossy();
            if !is_ours(&name) && name != "lost+found" {
                return Ok(Some(entry.path()));
            }
        }
        Ok(None)
    };
    match look() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => Ok(Some(path.to_owned())),
        looked => looked.map_err(|error| StoreError::io("reading", path.display(), error)),
    }
}

fn is_set_aside(name: &str) -> bool {
    name.starts_with(DAMAGED)
}

pub(crate) fn exists(path: &Path) -> Result<bool, StoreError> {
    path.try_exists()
        .map_err(|error| StoreError::io("looking for", path.display(), error))
}

/// Makes changes of names in a directory survive a power cut.
pub(crate) fn sync(directory: &Path) -> io::Result<()> {
    let here = directory.as_os_str().is_empty();
    File::open(if here { Path::new(".") } else { directory })?.sync_all()
}

/// Creates a directory and its parents; safe against a power cut. Only the user can read it,
/// because clients' messages lie there. The parents have the user's default mode.
pub(crate) fn make(path: &Path) -> io::Result<()> {
    make_with(path, PRIVATE_MODE)
}

/// Creates a directory that need not survive a power cut, and its parents. Only the user can read
/// them.
pub(crate) fn make_all(path: &Path) -> io::Result<()> {
    DirBuilder::new()
        .recursive(true)
        .mode(PRIVATE_MODE)
        .create(path)
}

fn make_with(path: &Path, mode: u32) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    make_parents(path)?;
    match DirBuilder::new().mode(mode).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => {}
        made => made?,
    }
    sync(path.parent().unwrap_or(Path::new("")))
}

/// With the user's default mode.
fn make_parents(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => make_with(parent, DEFAULT_MODE),
        _ => Ok(()),
    }
}

/// Whatever this process makes from now on, only its user can read and write: the engine makes its
/// files without a mode.
fn keep_files_private() {
    umask(Mode::from_bits_truncate(!PRIVATE_MODE & DEFAULT_MODE));
}

/// In a world-writable directory such as `/var/tmp`, another user may create a name that is known
/// beforehand, in order to read the data or to choose which file is overwritten. In other
/// directories the users with write access are trusted; and root cannot be guarded against.
fn check_owner(path: &Path) -> io::Result<()> {
    // Without a slash at the end, behind which a link would be what it leads to.
    let name = path.components().as_path();
    let found = fs::symlink_metadata(name)?;
    let parent = match name.parent() {
        Some(parent) if found.is_symlink() && parent.as_os_str().is_empty() => PathBuf::from("."),
        Some(parent) if found.is_symlink() => parent.to_owned(),
        _ => name.join(".."), // also of `.`
    };
    let parent = fs::metadata(parent)?;
    let (owner, user) = (found.uid(), Uid::effective().as_raw());
    let is_safe = [0, user].contains(&owner);
    if is_safe || parent.mode() & WORLD_WRITABLE_MODE != WORLD_WRITABLE_MODE {
        return Ok(());
    }
    let what = format!(
        "it belongs to user {owner}, not to user {user}, in a world-writable \
         directory; inspect and remove it, or use another directory"
    );
    Err(io::Error::new(io::ErrorKind::PermissionDenied, what))
}

fn lock(directory: &Path) -> Result<File, StoreError> {
    let path = directory.join(LOCK);
    let failed = |doing, error| StoreError::io(doing, path.display(), error);
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(&path)
        .map_err(|error| failed("opening", error))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::Error(error)) => return Err(failed("locking", error)),
        Err(TryLockError::WouldBlock) => {
            let mut by = String::new();
            file.read_to_string(&mut by)
                .map_err(|error| failed("reading", error))?;
            let by = match by.strip_prefix(LOCK_FORMAT).unwrap_or(&by).trim() {
                "" => "another process".to_owned(),
                known => known.to_owned(),
            };
            let place = directory.display().to_string();
            return Err(StoreError::Held { place, by });
        }
    }
    give_reserve(directory);
    let who = format!(
        "{LOCK_FORMAT}\nprocess {} since {:.0}\n",
        std::process::id(),
        jiff::Timestamp::now()
    );
    // It keeps its place on a disk that has no other.
    let written = file
        .rewind()
        .and_then(|()| file.write_all(who.as_bytes()))
        .and_then(|()| file.set_len(who.len() as u64));
    written.map_err(|error| failed("writing", error))?;
    Ok(file)
}

/// Has a file take so many bytes of the disk.
#[cfg(target_os = "linux")]
fn allocate(file: &File, bytes: u64) -> io::Result<()> {
    let length = i64::try_from(bytes).map_err(io::Error::other)?;
    nix::fcntl::posix_fallocate(file, 0, length).map_err(io::Error::from)
}

#[cfg(not(target_os = "linux"))]
fn allocate(_: &File, _: u64) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// What a start writes has room: gives the reserve for it, if there is no other.
fn give_reserve(directory: &Path) {
    let path = directory.join(RESERVE);
    let reserved = fs::metadata(&path).map_or(0, |found| found.len());
    if free_bytes(directory).is_some_and(|free| free < reserved) {
        // The start fails for want of space then, and says so.
        let _ = fs::remove_file(&path);
    }
}

const PRIVATE_MODE: u32 = 0o700;
/// Less what the process masks.
const DEFAULT_MODE: u32 = 0o777;
/// Everybody makes names there, and removes only their own.
const WORLD_WRITABLE_MODE: u32 = 0o1002;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, chown, lchown, symlink};

    use super::*;

    #[test]
    fn a_new_directory_is_private() {
        let temp = tempfile::tempdir().unwrap();
        // As another test may have left it.
        keep_files_private();
        let mode = |path: &str| {
            let metadata = fs::metadata(temp.path().join(path)).unwrap();
            metadata.permissions().mode() & 0o777
        };
        fs::create_dir(temp.path().join("usual")).unwrap();
        drop(DataDirectory::take(&temp.path().join("between/data")).unwrap());
        assert_eq!(mode("between/data"), 0o700);
        assert_eq!(mode("between"), mode("usual"));
        // An existing directory keeps its mode; its contents are private.
        fs::set_permissions(temp.path().join("usual"), PermissionsExt::from_mode(0o755)).unwrap();
        let path = temp.path().join("usual");
        drop(crate::Embedded::open(&path, crate::Options::default()).unwrap());
        assert_eq!((mode("usual"), mode("usual/store")), (0o755, 0o700));
    }

    #[test]
    fn no_other_user_can_read_a_file_whatever_the_mask_is() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("data");
        for mask in [0o000, 0o277] {
            umask(Mode::from_bits_truncate(mask));
            drop(crate::Embedded::open(&path, crate::Options::default()).unwrap());
        }
        let mut waiting = vec![path];
        let mut seen = 0;
        while let Some(path) = waiting.pop() {
            let metadata = fs::symlink_metadata(&path).unwrap();
            let expected = if metadata.is_dir() { 0o700 } else { 0o600 };
            let mode = metadata.permissions().mode() & 0o777;
            assert_eq!(mode, expected, "{}: {mode:o}", path.display());
            seen += 1;
            if metadata.is_dir() {
                waiting.extend(
                    fs::read_dir(&path)
                        .unwrap()
                        .map(|entry| entry.unwrap().path()),
                );
            }
        }
        assert!(seen > 10, "{seen}");
    }

    /// They could look into it, and choose what a broker's `lock` leads to.
    #[test]
    fn what_somebody_else_has_made_where_everybody_makes_names_is_refused() {
        let temp = tempfile::tempdir().unwrap();
        let at = |name: &str| temp.path().join(name);
        let set_mode = |mode| {
            let mode = PermissionsExt::from_mode(mode);
            fs::set_permissions(temp.path(), mode).unwrap();
        };
        fs::create_dir(at("theirs")).unwrap();
        fs::create_dir(at("ours")).unwrap();
        symlink("ours", at("link")).unwrap();
        // Only root can give away what is its own.
        if chown(at("theirs"), Some(12_345), None).is_err() {
            return;
        }
        lchown(at("link"), Some(12_345), None).unwrap();
        set_mode(0o1777);
        for name in ["theirs", "theirs/", "link", "link/."] {
            let refused = DataDirectory::take(&at(name)).unwrap_err().to_string();
            let words = "it belongs to user 12345, not to user 0";
            assert!(refused.contains(words), "{name}: {refused}");
        }
        for name in ["theirs", "ours"] {
            assert_eq!(fs::read_dir(at(name)).unwrap().count(), 0, "{name}");
        }
        drop(DataDirectory::take(&at("ours")).unwrap());
        drop(DataDirectory::take(&at("new")).unwrap());
        // In other directories users with write access are trusted, as with a container's volume.
        set_mode(0o755);
        drop(DataDirectory::take(&at("theirs")).unwrap());
        drop(DataDirectory::take(&at("link")).unwrap());
    }

    #[test]
    fn a_directory_in_use_says_by_whom() {
        let temp = tempfile::tempdir().unwrap();
        let first = DataDirectory::take(temp.path()).unwrap();
        let second = DataDirectory::take(temp.path()).unwrap_err().to_string();
        let pid = format!("process {} since 2", std::process::id());
        assert!(second.contains(&pid), "{second}");
        drop(first);
        DataDirectory::take(temp.path()).unwrap();
    }

    #[test]
    fn a_lock_of_the_first_versions_is_read() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join(LOCK);
        fs::write(&path, "process 1 since 2026\n").unwrap();
        let held = File::open(&path).unwrap();
        held.try_lock().unwrap();
        let refused = DataDirectory::take(temp.path()).unwrap_err().to_string();
        assert!(
            refused.contains("in use by process 1 since 2026"),
            "{refused}"
        );
    }

    #[test]
    fn who_does_not_have_the_directory_changes_nothing_in_it() {
        let temp = tempfile::tempdir().unwrap();
        let held = DataDirectory::take(temp.path()).unwrap();
        let halves = [MAKING, EXAMINING, RESTORING, SALVAGING, SALVAGED];
        for name in halves {
            fs::create_dir(held.part(name)).unwrap();
        }
        DataDirectory::take(temp.path()).unwrap_err();
        assert!(halves.iter().all(|name| held.part(name).is_dir()));
        assert!(!held.part(STORE).exists());
        drop(held);
        let place = DataDirectory::take(temp.path()).unwrap();
        assert!(halves.iter().all(|name| !place.part(name).exists()));
        assert!(place.part(STORE).is_dir(), "what was whole took its place");
    }

    #[test]
    fn directories_are_made_where_a_link_leads_and_nowhere_else() {
        let temp = tempfile::tempdir().unwrap();
        let link = temp.path().join("link");
        symlink("there", &link).unwrap();
        let refused = DataDirectory::take(&link).unwrap_err().to_string();
        assert!(refused.starts_with("making "), "{refused}");
        fs::create_dir(temp.path().join("there")).unwrap();
        let place = DataDirectory::take(&link.join("a/b/")).unwrap();
        assert!(temp.path().join("there/a/b").join(LOCK).is_file());
        assert_eq!(place.part("x"), link.join("a/b/x"));
    }
}
