//! Runs many seeds, or tells what happens in one.
//!
//! ```text
//! cargo run --release -p unbroken-simulator -- --seeds 100000 [--from 1]
//! cargo run --release -p unbroken-simulator -- --trace SEED
//! ```
//!
//! `--kills N` gives the broker a disk in every run, and kills it about so often.

#![allow(clippy::print_stdout, reason = "a program's output")]

use std::process::ExitCode;
use std::time::Instant;

use unbroken_simulator::{Options, Report, run_with};

fn main() -> ExitCode {
    let wanted = match Wanted::from_arguments(std::env::args().skip(1)) {
        Ok(wanted) => wanted,
        Err(problem) => {
            println!("{problem}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    if let Some(seed) = wanted.trace {
        let options = wanted.options(seed);
        println!("{options:?}");
        return match run_with(options, true) {
            Ok(report) => {
                println!("seed {seed} finds nothing: {report:?}");
                ExitCode::SUCCESS
            }
            Err(failure) => {
                println!("{failure}");
                ExitCode::FAILURE
            }
        };
    }
    // A finding is printed once, by us, and not also where it was found.
    std::panic::set_hook(Box::new(|_| {}));
    let begin = Instant::now();
    let mut total = Report::default();
    let mut failed = 0u64;
    for done in 0..wanted.seeds {
        match run_with(wanted.options(wanted.from.wrapping_add(done)), false) {
            Ok(report) => {
                total.messages += report.messages;
                total.sent += report.sent;
                total.dropped += report.dropped;
                total.kills += report.kills;
                total.refused_between_kills += report.refused_between_kills;
                total.epochs_cut += report.epochs_cut;
            }
            Err(failure) => {
                failed += 1;
                println!("{failure}\n");
                if failed >= wanted.failures {
                    break;
                }
            }
        }
        if (done + 1) % PROGRESS_EVERY == 0 {
            println!(
                "{} seeds, {failed} failed, {:.0} s",
                done + 1,
                begin.elapsed().as_secs_f64()
            );
        }
    }
    println!(
        "{} seeds from {}: {failed} failed; {} messages, {} copies sent, {} dropped and named; \
         {} kills, {} refusals between them, {} epochs cut and proven; {:.1} s",
        wanted.seeds,
        wanted.from,
        total.messages,
        total.sent,
        total.dropped,
        total.kills,
        total.refused_between_kills,
        total.epochs_cut,
        begin.elapsed().as_secs_f64()
    );
    if wanted.seeds >= SEEDS_WITH_ALL && wanted.kills.is_none() && total.epochs_cut == 0 {
        println!("nothing was proven after a crash in any of them: the simulation has lost that");
        return ExitCode::FAILURE;
    }
    if failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

struct Wanted {
    from: u64,
    seeds: u64,
    /// How many findings end the run.
    failures: u64,
    trace: Option<u64>,
    kills: Option<u32>,
}

impl Wanted {
    fn from_arguments(mut arguments: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut wanted = Self {
            from: 1,
            seeds: 1_000,
            failures: 10,
            trace: None,
            kills: None,
        };
        while let Some(flag) = arguments.next() {
            let value = arguments
                .next()
                .ok_or_else(|| format!("{flag} needs a number"))?;
            let number = value
                .parse()
                .map_err(|_| format!("{flag} {value}: not a number"))?;
            match flag.as_str() {
                "--from" => wanted.from = number,
                "--seeds" => wanted.seeds = number,
                "--failures" => wanted.failures = number,
                "--trace" => wanted.trace = Some(number),
                "--kills" => wanted.kills = Some(u32::try_from(number).unwrap_or(u32::MAX)),
                _ => return Err(format!("{flag} is not known")),
            }
        }
        Ok(wanted)
    }

    fn options(&self, seed: u64) -> Options {
        let options = Options::from_seed(seed);
        match self.kills {
            Some(kills) => options.with_kills(kills),
            None => options,
        }
    }
}

const USAGE: &str =
    "usage: unbroken-simulator [--seeds N] [--from S] [--failures N] | --trace SEED  [--kills N]";
const PROGRESS_EVERY: u64 = 10_000;
/// Among so many each kind of run is found.
const SEEDS_WITH_ALL: u64 = 10_000;
