//! The control socket of a broker that stores nothing: users, roles and bans are in a store in
//! memory, and end with the process.
//!
//! Invariant: a socket on which a program answers is not replaced, nor is one made in a data
//! directory, whose commands would take it for the store's.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::Sender;

use unbroken_store::{Batch, Embedded, Memory, Store};

use super::Operator;
use crate::control::{self, Control};
use crate::failure::Failure;
use crate::handle::{AccessInForce, Requests, WriteBatch};
use crate::notice::Notice;

/// Why there can be no control socket in a directory.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ControlError {
    /// Another broker has it.
    #[error(
        "another broker answers at the control socket in {}; choose another directory with \
         `storage.control` or --control DIR", .0.display()
    )]
    InUse(PathBuf),
    /// It is a data directory.
    #[error(
        "{} has a store; a broker that stores nothing has its control socket in another directory \
         (`storage.control` or --control DIR)", .0.display()
    )]
    IsStore(PathBuf),
    /// The socket cannot be made.
    #[error("cannot create the control socket in {}: {source}", directory.display())]
    Io {
        /// Where.
        directory: PathBuf,
        /// Why not.
        source: io::Error,
    },
}

/// Keeps changes of users, roles and bans in memory.
#[derive(Debug)]
struct Writer(Arc<Memory>);

impl WriteBatch for Writer {
    fn write(&self, batch: Batch, done: Sender<()>) {
        let committed = self.0.commit(&[batch]);
        if committed.is_ok_and(|results| results.iter().all(Result::is_ok)) {
            let _ = done.send(()); // the command may have gone
        }
    }
}

/// Answers commands at a socket in this directory, until it is dropped.
pub(crate) fn start(
    directory: &Path,
    requests: Requests,
    access: Arc<AccessInForce>,
    notify: Sender<Notice>,
) -> Result<Control, ControlError> {
    let place = || directory.to_owned();
    if control::is_answered(directory) {
        return Err(ControlError::InUse(place()));
    }
    if matches!(Embedded::is_in(directory), Ok(true)) {
        return Err(ControlError::IsStore(place()));
    }
    let store = Arc::new(Memory::new());
    access.set_disk(Box::new(Writer(Arc::clone(&store))));
    let operator = Operator {
        is_in_memory: true,
        ..Operator::new((requests, &access), Failure::new(directory), notify)
    };
    let started = control::start(store, directory, Box::new(operator));
    started.map_err(|source| ControlError::Io {
        directory: place(),
        source,
    })
}
