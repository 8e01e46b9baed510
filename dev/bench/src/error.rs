//! Why a benchmark could not be run or recorded.

use std::{io, path::PathBuf};
use unbroken_load::LoadError;

/// Why a benchmark could not be run or recorded.
#[derive(thiserror::Error)]
pub enum BenchError {
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
    /// A peer's program is not there.
    #[error("cannot start {peer}: {source}; {hint}")]
    Start {
        /// Its name.
        peer: &'static str,
        /// What the system said.
        source: io::Error,
        /// How to get the program.
        hint: &'static str,
    },
    /// A peer that started and did not come up.
    #[error("{peer} does not accept connections on port {port}: {why}; it said:\n{said}")]
    NotReady {
        /// Its name.
        peer: &'static str,
        /// Where it was to listen.
        port: u16,
        /// It ended, or the time was over.
        why: String,
        /// The end of its output.
        said: String,
    },
    /// The load generator gave no report.
    #[error("{row} on {peer}: {source}")]
    Load {
        /// The row.
        row: &'static str,
        /// The peer.
        peer: &'static str,
        /// Why.
        source: Box<LoadError>,
    },
    /// A peer's program is another than the bars are about.
    #[error(
        "{peer} says {said:?} and should be {pin}: put that first on the path, or leave \
         --require-bars out, and the record says so"
    )]
    OtherVersion {
        /// Its name.
        peer: &'static str,
        /// What it says of itself.
        said: String,
        /// What it should be.
        pin: &'static str,
    },
    /// Messages were lost where none may be.
    #[error("{row} on {peer}: not everything arrived, see above")]
    Faulty {
        /// The row.
        row: &'static str,
        /// The peer.
        peer: &'static str,
    },
    /// A broker closed the connection beside which something was to be measured.
    #[error(
        "{peer} did not keep the connection of the silent subscriber: nothing is known beside it"
    )]
    CutOff {
        /// Its name.
        peer: &'static str,
    },
    /// What a broker had acknowledged is not there, or not as it was.
    #[error("{what}")]
    NotKept {
        /// What should be there, and what is.
        what: String,
    },
    /// A size or a count that is the same in every run is not as it has to be.
    #[error("{figure} misses its bar")]
    Missed {
        /// Its name.
        figure: &'static str,
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
impl std::fmt::Debug for BenchError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}
