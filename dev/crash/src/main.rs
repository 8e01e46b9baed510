//! Ends the broker again and again, in every way that a process, a disk or a machine may end, and
//! asks the audit what was lost.
//!
//! ```text
//! cargo build --release -p unbroken
//! cargo run --release -p unbroken-crash -- \
//!     --kills 200 --stops 20 --cuts 40 --faults 24 --starts 24 [--shards 3] [--seed N]
//! ```
//!
//! Publishers number what they send and remember it in a spool; subscribers have sessions that the
//! broker keeps. At the end everything must have come, in order, and at QoS 2 once. Beside them
//! groups share messages, a retained value grows, and clients die with the broker and leave wills:
//! a group misses nothing, what is retained is the last that was acknowledged, and each will comes
//! once. What ends when, how many shards the broker has the next time, and what a power cut takes
//! back, is decided by the seed, which is printed; the moments between two messages are the
//! machine's.
//!
//! Deliberately absent: repair. Nobody asks for a message again, so what the broker loses stays
//! lost. With `--durability off` and power cuts it loses much, which shows that this would be seen.

#![allow(clippy::print_stdout, reason = "a program's output")]

mod auditor;
mod broker;
mod faults;
mod link;
mod others;
mod patience;
mod publisher;
mod random;
mod run;
mod subscriber;
mod tally;
mod witness;

use std::process::ExitCode;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use crate::broker::Shards;
use crate::publisher::Load;
use crate::run::Plan;

fn main() -> ExitCode {
    let plan = match plan(std::env::args().skip(1)) {
        Ok(plan) => plan,
        Err(problem) => {
            println!("{problem}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    println!("seed {}", plan.seed);
    match carry_out(&plan) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(problem) => {
            println!("{problem}");
            ExitCode::FAILURE
        }
    }
}

/// Whether there is no fault.
fn carry_out(plan: &Plan) -> Result<bool, Box<dyn std::error::Error>> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let home = tempfile::tempdir()?;
    let begin = Instant::now();
    let rounds = plan.kills + plan.stops + plan.cuts + plan.faults + plan.starts;
    let mut ends = Vec::new();
    let run = run::run(plan, home.path(), |round, end, shards| {
        ends.push((end, shards));
        if round % TELL_EVERY == 0 {
            let seconds = begin.elapsed().as_secs_f64();
            println!("round {round} of {rounds}, {seconds:.1} s");
        }
    });
    let seconds = |begin: Instant| begin.elapsed().as_secs_f64();
    let outcome = runtime.block_on(run);
    let leave = |home: tempfile::TempDir| {
        let seed = plan.seed;
        println!("seed {seed}, how the rounds ended, and with how many shards: {ends:?}");
        println!("what is on disk is left in {}", home.keep().display());
    };
    let verdict = match outcome {
        Ok(verdict) => verdict,
        Err(error) => {
            leave(home);
            return Err(error.into());
        }
    };
    for fault in &verdict.faults {
        println!("{fault}");
    }
    println!(
        "{} kills, {} stops, {} power cuts, {} faults of the disk and {} at a start: {} messages \
         received, {} of them again, {}; {} changes of files and names taken back; faults of the \
         disk that were met: {}; {} faults; {:.1} s",
        plan.kills,
        plan.stops,
        plan.cuts,
        plan.faults,
        plan.starts,
        verdict.messages,
        verdict.repeated,
        verdict.others,
        verdict.undone_writes,
        verdict.met,
        verdict.faults.len(),
        seconds(begin),
    );
    if verdict.faults.is_empty() {
        return Ok(true);
    }
    leave(home);
    Ok(false)
}

fn plan(arguments: impl Iterator<Item = String>) -> Result<Plan, String> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let mut plan = Plan {
        kills: 200,
        stops: 0,
        cuts: 0,
        faults: 0,
        starts: 0,
        shards: Shards::Drawn,
        durability: "strict".to_owned(),
        load: Load::Light,
        seed: now.map_or(0, |now| u64::from(now.subsec_nanos())),
    };
    let mut arguments = arguments;
    while let Some(name) = arguments.next() {
        let value = arguments.next().unwrap_or_default();
        if name == "--durability" {
            plan.durability = value;
            continue;
        }
        let number = value
            .parse()
            .map_err(|_| format!("{name} needs a number, and {value:?} is none"))?;
        match name.as_str() {
            "--kills" => plan.kills = number,
            "--stops" => plan.stops = number,
            "--cuts" => plan.cuts = number,
            "--faults" => plan.faults = number,
            "--starts" => plan.starts = number,
            "--seed" => plan.seed = number,
            "--heavy" => plan.load = Load::Heavy(number),
            "--shards" => {
                let shards = number.try_into();
                let shards = shards.map_err(|_| format!("{number} shards are too many"))?;
                plan.shards = Shards::Always(shards);
            }
            _ => return Err(format!("{name} is no option")),
        }
    }
    Ok(plan)
}

const USAGE: &str = "unbroken-crash [--kills N] [--stops N] [--cuts N] [--faults N] [--starts N] [--shards N] \
                     [--durability strict|relaxed|off] [--heavy BYTES] [--seed N]";
/// Rounds between two lines of progress.
const TELL_EVERY: u64 = 25;
