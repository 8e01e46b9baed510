//! How a failed command ends: a code for scripts and a message for people.
//!
//! `serve` and its relatives use the numbers of BSD's sysexits.h; `pub` and `sub` use Mosquitto's.

use std::fmt::Display;
use std::io;

/// What the user gave cannot be understood.
pub(crate) const USAGE: u8 = 2;
/// `audit`: nothing could be judged, so nothing is said to be well.
pub(crate) const UNJUDGED: u8 = 3;
/// What was written is damaged, or of a version that this one does not know.
pub(crate) const DATA: u8 = 65;
/// A file that must be there is not, or cannot be read.
pub(crate) const NO_INPUT: u8 = 66;
/// Something outside is not available: the port is taken, for one.
pub(crate) const UNAVAILABLE: u8 = 69;
/// A fault of ours.
pub(crate) const INTERNAL: u8 = 70;
/// A file cannot be written.
pub(crate) const CANNOT_CREATE: u8 = 73;
/// Reading or writing failed.
pub(crate) const IO: u8 = 74;
/// Somebody else may, and this user may not.
pub(crate) const NO_PERMISSION: u8 = 77;
/// The configuration is wrong.
pub(crate) const CONFIG: u8 = 78;

/// Why a command ended, and the number it ends with.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: u8,
    /// `None`: there is nothing to say, or nobody to say it to.
    pub(crate) message: Option<String>,
}

impl Failure {
    pub(crate) fn new(code: u8, message: impl Display) -> Self {
        Self {
            code,
            message: Some(format!("Error: {message}")),
        }
    }

    /// Ends with a number and no word.
    pub(crate) fn silent(code: u8) -> Self {
        Self {
            code,
            message: None,
        }
    }

    /// Standard output could not be written. A reader that has gone away has what it wanted.
    pub(crate) fn output(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::silent(0),
            _ => Self::new(IO, format!("cannot write to standard output: {error}")),
        }
    }
}
