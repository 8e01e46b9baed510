//! The load generator alone, for measuring brokers without building ours: the arguments are those
//! of `unbroken bench` but for TLS, WebSocket and unix sockets.

use clap::Parser;
use std::process::ExitCode;
use unbroken_client::Transport;

#[derive(Debug, Parser)]
#[command(disable_help_flag = true)]
struct Command {
    #[command(flatten)]
    args: unbroken_load::cli::Args,
}

fn main() -> Result<ExitCode, unbroken_load::LoadError> {
    unbroken_load::cli::run(Command::parse().args, &Transport::default(), None)
}
