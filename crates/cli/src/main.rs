//! The `unbroken` command: parse, run, say what went wrong, exit.

mod bench;
mod check;
mod command;
mod completions;
mod exit;
mod man;
mod passwd;
mod serve;

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let command = match command::Cli::try_parse() {
        Ok(cli) => cli.command,
        Err(error) => return command::explain(&error),
    };
    match command.run() {
        Ok(code) => code,
        Err(failure) => {
            if let Some(message) = failure.message {
                // With standard error closed nobody is left to be told.
                let _ = writeln!(std::io::stderr(), "{message}");
            }
            ExitCode::from(failure.code)
        }
    }
}
