//! Errors of a store, and their meaning for the caller.

use std::io;

use crate::batch::{Expect, Revision, Space};
use crate::codec::{RecordError, VERSION};
use crate::position::{LogId, Sequence};

/// Why an operation failed. After an error of [`Store::commit`] or
/// [`Store::sync`](crate::Store::sync) the store has failed for good, whatever the error: see
/// [`Store::commit`](crate::Store::commit).
///
/// [`Store::commit`]: crate::Store::commit
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// An earlier write failed; nothing is taken any more. What was acknowledged before is kept.
    #[error("the store has failed: {cause}; fix the cause and restart the broker")]
    Dead {
        /// The error that ended it.
        cause: String,
    },
    /// The operating system refused.
    #[error("{doing} {place}: {source}")]
    Io {
        /// What was being done, as in "writing".
        doing: &'static str,
        /// To which file, directory or part of the store.
        place: String,
        /// What the system said.
        source: io::Error,
    },
    /// What is on disk is not what was written.
    #[error("{place} is damaged: {what}")]
    Damaged {
        /// Which file, directory or part of the store.
        place: String,
        /// What is wrong with it.
        what: String,
    },
    /// The store was written by a version that this one does not know.
    #[error(
        "{place} has format {found}, and this version reads up to {known}; \
         use the version that wrote it, or a newer one"
    )]
    Format {
        /// Which directory or part of the store.
        place: String,
        /// The format found.
        found: u64,
        /// The newest format that is known here.
        known: u64,
    },
    /// Another process has the store.
    #[error("{place} is in use by {by}; stop that one, or use another directory")]
    Held {
        /// The directory.
        place: String,
        /// Who has it, and since when, as far as is known.
        by: String,
    },
}

/// Why one batch was not written. The others of the same commit were, and the store lives.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Conflict {
    /// The number is not the next one of its log: there is another writer, or an earlier message
    /// was refused.
    #[error("message {given} of log {log} cannot be appended: the next one is {next}")]
    Sequence {
        /// The log.
        log: LogId,
        /// The number given.
        given: Sequence,
        /// The number that would have been taken.
        next: Sequence,
    },
    /// Something else is at the key than was expected.
    #[error("a key of {space} is not as expected ({expected:?}): its revision is {found:?}")]
    Revision {
        /// Where.
        space: Space,
        /// The key.
        key: Vec<u8>,
        /// What was expected.
        expected: Expect,
        /// The revision there, if there is a value.
        found: Option<Revision>,
    },
    /// The key is empty or longer than [`KEY_BYTES_MAX`](crate::KEY_BYTES_MAX).
    #[error("a key of {space} has {bytes} bytes; it must have 1 to 65,535")]
    Key {
        /// Where.
        space: Space,
        /// Its length.
        bytes: usize,
    },
}

impl StoreError {
    /// The operating system refused.
    pub fn io(doing: &'static str, place: impl ToString, source: io::Error) -> Self {
        Self::Io {
            doing,
            place: place.to_string(),
            source,
        }
    }

    /// What is on disk is not what was written.
    pub fn damaged(place: impl ToString, what: impl ToString) -> Self {
        Self::Damaged {
            place: place.to_string(),
            what: what.to_string(),
        }
    }

    /// What is here is no record; one of a newer version is no damage.
    pub fn record(place: impl ToString, error: &RecordError) -> Self {
        match *error {
            RecordError::Version(found) if found > VERSION => Self::Format {
                place: place.to_string(),
                found: found.into(),
                known: VERSION.into(),
            },
            _ => Self::damaged(place, error),
        }
    }
}
