//! The `unbroken` command: parse, run, report errors, exit.

mod access;
mod admin;
mod admin_client;
mod audit;
mod bench;
mod broker_args;
mod cert;
mod check;
mod check_mosquitto;
mod client_error;
mod command;
mod completions;
mod connect_args;
mod data;
mod demo;
mod exit;
mod format;
mod gateways;
mod json;
mod man;
mod message;
mod options_file;
mod packet_lines;
mod passwd;
mod pipe;
mod properties;
mod publish;
mod reload;
mod report;
mod ring;
mod runtime;
mod serve;
mod subscribe;
mod trace;
mod transport_args;
mod url;
mod user_args;

/// Gives memory back to the system after a while, wherever in the heap it was freed.
#[cfg(target_os = "linux")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> std::process::ExitCode {
    command::main()
}
