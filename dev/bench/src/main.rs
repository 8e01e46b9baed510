//! The `unbroken-bench` command, which `cargo xtask bench` runs.

use clap::Parser;
use std::process::ExitCode;
use unbroken_bench::{BenchError, cli};

fn main() -> Result<ExitCode, BenchError> {
    cli::run(cli::Cli::parse())
}
