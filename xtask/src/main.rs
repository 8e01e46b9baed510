//! Development commands of the workspace: `cargo xtask <command>`.
//!
//! One file for each command; what several of them need (the file tree, running programs, adding up
//! results) lies beside them. Nothing here is part of the product, and nothing here needs more than
//! cargo and a C compiler; what `ci` needs beyond that, `tools.rs` installs or counts as skipped.

#![allow(
    clippy::print_stdout,
    reason = "these commands talk to a person at a terminal"
)]

mod bench;
mod ci;
mod conformance;
mod dist;
mod instructions;
mod last_full;
mod mutants;
mod page_tests;
mod process;
mod relay;
mod spec;
mod step;
mod tally;
mod tidy;
mod tools;
mod tree;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Development commands of the workspace.
#[derive(Parser)]
#[command(name = "cargo xtask", disable_version_flag = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Everything a change must pass, in order; the last line is `N passed, N failed, N skipped`
    Ci(ci::Arguments),
    /// Which normative statements are enforced and tested; fails if it is less than committed
    Spec(spec::Arguments),
    /// The rules of the repository that no compiler checks
    Tidy,
    /// Runs `dev/bench` or `dev/channel-bench`; the arguments are handed on, such as `brokers
    /// --help` or `channels --help`
    Bench {
        /// Arguments of the benchmark program
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Builds `unbroken` as packages have it: as a whole, and guided by a profile of benchmarks.
    /// Fails if no recent commit passed `ci --full`
    Dist(dist::Arguments),
    /// Counts what the hot path takes, and fails if it is more than committed
    Instructions(instructions::Arguments),
    /// Changes the ledger and the lanes of `merkle-log` in small, and fails if no test notices one
    /// that is not explained. Takes hours
    Mutants(mutants::Arguments),
    /// Runs conformance suites that others wrote, from outside the repository
    Conformance {
        /// Holds clones of `mqtt-lib` and `paho.mqtt.testing` (see docs/conformance.md)
        #[arg(long, value_name = "DIR")]
        suites: PathBuf,
        /// Only tests whose name contains this
        #[arg(long, default_value = "")]
        only: String,
        /// Tests another broker that listens here, instead of our release binary
        #[arg(long, value_name = "ADDRESS")]
        against: Option<std::net::SocketAddr>,
    },
    /// Runs the tests of the page in Chromium
    PageTests(page_tests::Arguments),
    /// Installs the third-party clients and tools that `ci` uses
    InstallTools {
        /// Also the brokers that `bench brokers` compares
        #[arg(long)]
        peers: bool,
    },
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().command {
        Command::Ci(arguments) => ci::run(&arguments),
        Command::Spec(arguments) => spec::run(&arguments),
        Command::Tidy => tidy::run(),
        Command::Instructions(arguments) => instructions::run(&arguments),
        Command::Mutants(arguments) => mutants::run(&arguments),
        Command::Dist(arguments) => dist::run(&arguments),
        Command::Bench { arguments } => bench::run(&arguments),
        Command::Conformance {
            suites,
            only,
            against,
        } => conformance::run(&suites, &only, against),
        Command::PageTests(arguments) => page_tests::run(&arguments),
        Command::InstallTools { peers } => tools::run(peers),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            println!("error: {problem}");
            ExitCode::FAILURE
        }
    }
}

/// What went wrong, in words for the person who called.
type Outcome<T = ()> = Result<T, String>;
