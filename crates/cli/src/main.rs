//! The `unbroken` command: parse, run, say what went wrong, exit.

mod bench;
mod check;
mod client;
mod command;
mod completions;
mod connect_args;
mod exit;
mod format;
mod json;
mod man;
mod passwd;
mod properties;
mod publish;
mod report;
mod serve;
mod signals;
mod subscribe;
mod url;

fn main() -> std::process::ExitCode {
    command::main()
}
