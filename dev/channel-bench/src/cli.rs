//! The arguments of the benchmark and what they set off.

use crate::{
    error::ChannelBenchError,
    lexer::Lexer,
    peers,
    record::Record,
    results::RowResult,
    rounds::{self, Contestants, GIVE_UP_AFTER_S},
    rows::{self, Row, Size},
};
use clap::{Args, Parser, Subcommand};
use nix::unistd::alarm;
use std::{
    io::{self, Write},
    path::PathBuf,
    process::ExitCode,
};
use unbroken_bench::machine::Machine;

/// Benchmarks of channels beside each other
#[derive(Debug, Parser)]
#[command(version)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run every row on every peer in turn, and record figures, ratios and bars
    Channels(Channels),
    /// Read texts with lexers, and with tokenizers, in turn, and record figures and ratios
    Lexer(Lexer),
    /// Run one row on one peer in this process, and print what it found out
    #[command(hide = true)]
    One(One),
}

/// How much is run, on whom, and where it is recorded.
#[derive(Debug, Args)]
struct Channels {
    /// Rows by name, separated by commas; all if left out
    #[arg(long, value_delimiter = ',')]
    rows: Vec<String>,
    /// Peers by name, separated by commas; all if left out
    #[arg(long, value_delimiter = ',')]
    peers: Vec<String>,
    /// Rounds; medians of fewer than seven say little
    #[arg(long, default_value_t = 7)]
    rounds: usize,
    /// A tenth of the messages
    #[arg(long)]
    quick: bool,
    /// Where the record is written
    #[arg(long, default_value = "docs/benchmarks")]
    out: PathBuf,
    /// One tiny round of everything, no record; fails if something does not run or a message is
    /// missing
    #[arg(long)]
    smoke: bool,
}

#[derive(Debug, Args)]
struct One {
    #[arg(long)]
    row: String,
    #[arg(long)]
    peer: String,
    #[arg(long)]
    parties: u64,
    #[arg(long)]
    rounds: u64,
}

/// Does what the arguments say.
pub fn run(cli: Cli) -> Result<ExitCode, ChannelBenchError> {
    match cli.command {
        Command::Channels(args) => args.run(),
        Command::Lexer(args) => args.run(),
        Command::One(args) => args.run(),
    }
}

impl Channels {
    fn run(self) -> Result<ExitCode, ChannelBenchError> {
        let sized = |row: Row| match (self.smoke, self.quick) {
            (true, _) => row.smoke(),
            (false, true) => row.quick(),
            (false, false) => row,
        };
        let rows: Vec<_> = rows::choose(&self.rows)?.into_iter().map(sized).collect();
        let contestants = Contestants::choose(&self.peers)?;
        let rounds = if self.smoke { 1 } else { self.rounds.max(1) };
        let machine = Machine::here();
        let results = rounds::run(&rows, &contestants, rounds, &mut io::stderr().lock())?;
        if !self.smoke {
            let record = Record::new(machine, rounds, &contestants, results.clone());
            record.write(&self.out)?;
            let mut out = io::stdout().lock();
            writeln!(out, "{record}\n\nWritten to {}\n", self.out.display())?;
            record.tell_bars(&mut out)?;
        }
        refuse_failures(&results)
    }
}

impl One {
    fn run(self) -> Result<ExitCode, ChannelBenchError> {
        let row = rows::choose(std::slice::from_ref(&self.row))?.remove(0);
        let size = Size {
            parties: self.parties,
            rounds: self.rounds,
            ..row.size
        };
        // A channel that lost a wake would wait for ever; the signal ends this process.
        alarm::set(GIVE_UP_AFTER_S);
        let measured = peers::run(&row, &self.peer, size)?;
        serde_json::to_writer(io::stdout().lock(), &measured).map_err(io::Error::from)?;
        Ok(ExitCode::SUCCESS)
    }
}

fn refuse_failures(results: &[RowResult]) -> Result<ExitCode, ChannelBenchError> {
    let mut failures = Vec::new();
    for result in results {
        for cell in &result.cells {
            let all = cell.failures.iter();
            failures.extend(all.map(|why| format!("{} on {}: {why}", result.row, cell.peer)));
        }
    }
    match failures.len() {
        0 => Ok(ExitCode::SUCCESS),
        count => Err(ChannelBenchError::Failed {
            count,
            first: failures.swap_remove(0),
        }),
    }
}
