//! Rewrites data after a failed sync.
//!
//! When a sync fails, the kernel may have dropped the data, yet continues to show it to readers,
//! and no later sync retries. A store opened before the machine restarts would append after such a
//! hole, and a power cut would lose the new messages too. So all files that are changed in place
//! are read, and rewritten as they were read, before anything new is written.
//!
//! Not tables: the engine uses none whose sync has failed.
//!
//! Source: Rebello et al., "Can Applications Recover from fsync Failures?", USENIX ATC 2020.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::engine;
use super::examine::TABLES;
use crate::data_directory::sync;
use crate::error::StoreError;

/// Makes safe what is below a directory of the engine. A crash in between changes nothing.
pub(super) fn rewrite(path: &Path) -> Result<(), StoreError> {
    let failed = |error| StoreError::io("writing again", path.display(), error);
    for entry in fs::read_dir(path).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let kind = entry.file_type().map_err(failed)?;
        if kind.is_dir() && entry.file_name() != TABLES {
            rewrite(&entry.path())?;
        } else if kind.is_file() {
            rewrite_file(&entry.path())?;
        }
    }
    sync(path).map_err(failed)
}

fn rewrite_file(path: &Path) -> Result<(), StoreError> {
    let failed = |error| StoreError::io("writing again", path.display(), error);
    let open = OpenOptions::new().read(true).write(true).open(path);
    let file = open.map_err(failed)?;
    each_piece(path, &file, |piece, at| {
        // A journal is made with room at its end, which takes none on the disk.
        if piece.iter().any(|byte| *byte != 0) {
            file.write_all_at(piece, at).map_err(failed)?;
        }
        Ok(())
    })?;
    file.sync_all().map_err(failed)
}

/// What an error of opening a directory of the engine is: damage, if the disk does not give back
/// all that is there.
pub(super) fn or_unreadable(path: &Path, error: StoreError) -> StoreError {
    match &error {
        StoreError::Io { source, .. } if engine::is_unreadable(source) => {
            read_all(path).err().unwrap_or(error)
        }
        _ => error,
    }
}

/// Reads everything below a directory of the engine. What cannot be opened is not read.
fn read_all(path: &Path) -> Result<(), StoreError> {
    let Ok(entries) = fs::read_dir(path) else {
        return Ok(());
    };
    for path in entries.flatten().map(|entry| entry.path()) {
        if path.is_dir() {
            read_all(&path)?;
        } else if let Ok(file) = File::open(&path) {
            each_piece(&path, &file, |_, _| Ok(()))?;
        }
    }
    Ok(())
}

/// Gives a file piece by piece. What the disk does not give back is damage.
pub(super) fn read_pieces(path: &Path, mut give: impl FnMut(&[u8])) -> Result<(), StoreError> {
    let opened = File::open(path);
    let file = opened.map_err(|error| StoreError::io("opening", path.display(), error))?;
    each_piece(path, &file, |piece, _| {
        give(piece);
        Ok(())
    })
}

/// Gives each piece of a file and its place, in their order.
fn each_piece(
    path: &Path,
    file: &File,
    mut give: impl FnMut(&[u8], u64) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let mut bytes = vec![0; PIECE_BYTES];
    let mut at = 0;
    loop {
        let read = match file.read_at(&mut bytes, at) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            read => read.map_err(fjall::Error::Io),
        };
        let read = read.map_err(|error| engine::error(engine::READING, path.display(), error))?;
        let piece = bytes.get(..read).unwrap_or_default();
        if piece.is_empty() {
            return Ok(());
        }
        give(piece, at)?;
        at += piece.len() as u64;
    }
}

const PIECE_BYTES: usize = 64 * 1024;
