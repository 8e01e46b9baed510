//! The `unbroken-channel-bench` command, which `cargo xtask bench channels` runs.

use clap::Parser;
use std::process::ExitCode;
use unbroken_channel_bench::{ChannelBenchError, cli, counting::Counting};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn main() -> Result<ExitCode, ChannelBenchError> {
    cli::run(cli::Cli::parse())
}
