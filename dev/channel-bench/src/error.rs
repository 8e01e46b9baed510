//! Why a benchmark could not be run or recorded.

use std::{io, path::PathBuf};

/// Why a benchmark could not be run or recorded.
#[derive(thiserror::Error)]
pub enum ChannelBenchError {
    /// A row or peer that does not exist.
    #[error("no {what} is called {name:?}; there are {known}")]
    Unknown {
        /// Row or peer.
        what: &'static str,
        /// As given.
        name: String,
        /// What could have been given.
        known: String,
    },
    /// A peer was asked for a row that it has no program for.
    #[error("{peer} has no program for {row}; leave one of them out")]
    Unable {
        /// The peer.
        peer: String,
        /// The row.
        row: &'static str,
    },
    /// The program of the Go peer does not build.
    #[error("cannot build the Go peer: {why}; `--peers` can leave it out")]
    Go {
        /// What the Go tool said.
        why: String,
    },
    /// Some runs gave no figure.
    #[error("{count} runs gave no figure, the first: {first}")]
    Failed {
        /// How many.
        count: usize,
        /// Row, peer and reason.
        first: String,
    },
    /// A file could not be written.
    #[error("cannot write {path}: {source}")]
    Write {
        /// Which.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Anything else of the system.
    #[error(transparent)]
    System(#[from] io::Error),
}

/// `main` shows an error by `Debug`; people should read the sentence.
impl std::fmt::Debug for ChannelBenchError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}
