//! `unbroken bench`: the command of the load generator.

use std::process::ExitCode;

use unbroken_load::cli;

use crate::exit::{self, Failure};

pub(crate) fn run(args: cli::Args) -> Result<ExitCode, Failure> {
    cli::run(args).map_err(|error| Failure::new(exit::UNAVAILABLE, error))
}
