//! Writing again what the system takes for written.
//!
//! When a sync fails, the system has dropped what it could not write, and goes on showing it to
//! whoever reads: no later sync tries again. A store that is opened again before the machine is
//! would put new messages behind such a hole, and a power cut would take them with it. So
//! everything that is changed in place is read, and written as it was read, before anything new is.
//!
//! Tables are not: the engine uses none whose sync has failed.
//!
//! Source: Rebello et al., "Can Applications Recover from fsync Failures?", USENIX ATC 2020.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::engine;
use crate::error::StoreError;
use crate::places::sync;

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
    let mut bytes = vec![0; PIECE_BYTES];
    let mut at = 0;
    loop {
        let piece = read_piece(&file, &mut bytes, at);
        let piece = piece.map_err(|error| {
            engine::error(engine::READING, path.display(), fjall::Error::Io(error))
        })?;
        if piece.is_empty() {
            return file.sync_all().map_err(failed);
        }
        // A journal is made with room at its end, which takes none on the disk.
        if piece.iter().any(|byte| *byte != 0) {
            file.write_all_at(piece, at).map_err(failed)?;
        }
        at += piece.len() as u64;
    }
}

/// As much as there is, up to a piece; nothing at the end of the file.
fn read_piece<'a>(file: &File, bytes: &'a mut [u8], at: u64) -> io::Result<&'a [u8]> {
    let mut read = 0;
    while let Some(rest) = bytes.get_mut(read..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, at + read as u64) {
            Ok(0) => break,
            Ok(more) => read += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(bytes.get(..read).unwrap_or_default())
}

/// What each of the engine's trees has its tables in.
const TABLES: &str = "tables";
const PIECE_BYTES: usize = 64 * 1024;
