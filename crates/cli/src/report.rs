//! Messages of `pub` and `sub` on standard error, unless they are quiet.

use std::fmt::Display;
use std::io::{self, Write};

use crate::client_error::ClientError;
use crate::exit::Failure;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Report {
    quiet: bool,
}

impl Report {
    pub(crate) fn new(quiet: bool) -> Self {
        Self { quiet }
    }

    pub(crate) fn warn(self, message: impl Display) {
        self.line(format_args!("Warning: {message}"));
    }

    pub(crate) fn line(self, message: impl Display) {
        if !self.quiet {
            // Nobody is left to be told that this failed.
            let _ = writeln!(io::stderr(), "{message}");
        }
    }

    /// How the command ends for this error.
    pub(crate) fn failure(self, error: &ClientError) -> Failure {
        if self.quiet {
            return Failure::silent(error.exit_code());
        }
        Failure::new(error.exit_code(), error)
    }
}
