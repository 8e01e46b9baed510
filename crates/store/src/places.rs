//! Directories beside a store's that take its place when they are whole.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::error::StoreError;

/// The directory of this name with an ending.
pub(crate) fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

pub(crate) fn exists(path: &Path) -> Result<bool, StoreError> {
    path.try_exists()
        .map_err(|error| StoreError::io("looking for", path.display(), error))
}

/// Removes a directory with all that is in it, if it is there.
pub(crate) fn clear(path: &Path) -> Result<(), StoreError> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(StoreError::io("removing", path.display(), error))
        }
        _ => Ok(()),
    }
}

/// Gives a directory another name, also after a power cut. The other may be that of an empty one.
pub(crate) fn rename(from: &Path, to: &Path) -> Result<(), StoreError> {
    let renamed = fs::rename(from, to).and_then(|()| match to.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => fs::File::open(parent)?.sync_all(),
        _ => fs::File::open(".")?.sync_all(),
    });
    renamed.map_err(|error| StoreError::io("renaming", from.display(), error))
}
