//! Backup: a store as one file, which any store can be restored from.
//!
//! ```text
//! unbroken-backup 1\n
//! block*      length of the body (4 BE) | seal (32) | body
//! ```
//!
//! The seal of a block is the BLAKE3 hash of the seal before it and its body; before the first is
//! the hash of the line. So any change is noticed. The bodies are rows; none spans two blocks:
//!
//! ```text
//! 1 | log | first | next            a log, and its bounds
//! 2 | number | length, message      a message of the log that was named last
//! 3 | length, space | length, key | length, value
//! 0 | messages | values             how many there were; the last row
//! ```
//!
//! Numbers are varints, as in the records. Logs come in ascending order, then values by space and
//! key; messages keep their numbers, since sessions speak of them.
//!
//! Invariants:
//! - It is written and read in pieces: memory does not grow with it.
//! - A store is restored whole or not at all.
//!
//! Deliberately absent: compression and encryption (other tools do that), and revisions.

mod read;
mod write;

use std::io::{self, Read};
use std::path::Path;

pub use self::read::read;
pub use self::write::write;
use crate::data_directory::{DataDirectory, RESTORING, STORE, foreign_entry};
use crate::embedded::{Durability, Embedded, Options};
use crate::error::StoreError;
use crate::store::Store;
use crate::store_health;

/// What is in a backup.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    /// Messages of all logs.
    pub messages: u64,
    /// Values of all spaces.
    pub values: u64,
    /// Bytes of the file.
    pub bytes: u64,
}

/// Why a backup could not be written or restored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackupError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The file could not be written or read.
    #[error("{doing} the backup: {source}")]
    Io {
        /// "writing" or "reading".
        doing: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// The file is none.
    #[error("not a backup: it does not begin with `{NAME} {VERSION}`")]
    NoBackup,
    /// The file was written by a version that this one does not know.
    #[error(
        "the backup has format {found}, and this version reads up to {VERSION}; \
         use the version that wrote it, or a newer one"
    )]
    Format {
        /// The format found.
        found: u64,
    },
    /// The file is not as it was written.
    #[error("the backup is damaged at byte {at}: {what}")]
    Damaged {
        /// Where the block begins that is wrong.
        at: u64,
        /// What is wrong with it.
        what: String,
    },
    /// There is something already.
    #[error(
        "{place} is not empty: there is {what}; restore the backup into an empty or a new directory"
    )]
    NotEmpty {
        /// The directory.
        place: String,
        /// What is in it.
        what: String,
    },
}

/// Makes a store in a directory that is empty or not there. It is filled under another name and
/// gets its own when it is whole and safe: there is the whole store or none, whatever interrupts
/// this. What earlier attempts and stores that were set aside have left there is in nobody's way.
pub fn restore(
    from: &mut dyn Read,
    path: &Path,
    mut options: Options,
) -> Result<Contents, BackupError> {
    // Nothing is made in a directory that is somebody's, not even a lock.
    empty(path)?;
    let place = DataDirectory::take(path)?;
    empty(path)?;
    // It is synced once, when it is whole.
    options.durability = Durability::Off;
    let store = Embedded::open_part(&place, RESTORING, options)?;
    let restored = read(from, &store).and_then(|contents| {
        store_health::mark_gap(&store, store.chance())?; // it is older than what clients remember
        store.sync()?;
        Ok(contents)
    });
    drop(store);
    match restored {
        Ok(contents) => {
            place.rename(RESTORING, STORE)?;
            Ok(contents)
        }
        Err(error) => {
            place.clear(RESTORING)?;
            Err(error)
        }
    }
}

fn empty(path: &Path) -> Result<(), BackupError> {
    match foreign_entry(path)? {
        None => Ok(()),
        Some(what) => Err(BackupError::NotEmpty {
            place: path.display().to_string(),
            what: what.display().to_string(),
        }),
    }
}

type Seal = [u8; blake3::OUT_LEN];

fn seal(before: &Seal, body: &[u8]) -> Seal {
    let mut hasher = blake3::Hasher::new();
    hasher.update(before).update(body);
    hasher.finalize().into()
}

const NAME: &str = "unbroken-backup";
const VERSION: u64 = 1;
/// More than the first line of any version.
const LINE_BYTES_MAX: u64 = 64;
/// About so much is read from a store, written to one, or in a block, at a time: one row more.
const PIECE_BYTES: usize = 1024 * 1024;
const END: u8 = 0;
const LOG: u8 = 1;
const MESSAGE: u8 = 2;
const VALUE: u8 = 3;
