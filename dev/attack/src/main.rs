//! Attacks on the real broker over the network: each is a bounded program with an honest client
//! beside it, which sends itself a message every 20 ms.
//!
//! ```text
//! cargo build --release -p unbroken
//! cargo run --release -p unbroken-attack -- topic-matching [--seconds N]
//! cargo run --release -p unbroken-attack -- all [--seconds N]
//! cargo run --release -p unbroken-attack -- list
//! ```
//!
//! An attack prints its figures, and the program ends with 1 if the limit that should hold an
//! attack off did not. Gaps that are known are listed in [`attacks::ATTACKS`] and fail no run; one
//! that holds where a gap is listed is reported, so that the entry can go. An attack of less than
//! ten seconds is also smaller in proportion.
//!
//! Deliberately absent: our own codec and client, and anything random. What an attacker sends is
//! decided here, byte by byte.

#![allow(clippy::print_stdout, reason = "a program's output")]

mod attacks;
mod broker;
mod honest;
mod link;
mod stage;

use std::process::ExitCode;

use nix::sys::resource::{Resource, getrlimit, setrlimit};

use crate::attacks::{ATTACKS, Attack};
use crate::stage::{Check, Outcome, Scale, WHOLE_SECONDS};

const USAGE: &str = "usage: unbroken-attack list | all | NAME [--seconds N]";

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let name = arguments.next().unwrap_or_default();
    let seconds = match (arguments.next().as_deref(), arguments.next()) {
        (None, _) => Some(WHOLE_SECONDS),
        (Some("--seconds"), Some(number)) => number.parse().ok().filter(|number| *number > 0),
        _ => None,
    };
    if name == "list" {
        list();
        return ExitCode::SUCCESS;
    }
    let chosen: Vec<_> = ATTACKS
        .iter()
        .filter(|attack| name == "all" || name == attack.name)
        .collect();
    let Some(seconds) = seconds.filter(|_| !chosen.is_empty()) else {
        println!("{USAGE}");
        return ExitCode::from(2);
    };
    allow_many_sockets();
    let mut tally = Tally::default();
    for attack in &chosen {
        tally.add(try_it(attack, Scale { seconds }));
    }
    println!(
        "{} tests ({} passed, {} failed, {} skipped)",
        chosen.len(),
        tally.passed,
        tally.failed,
        tally.skipped,
    );
    ExitCode::from(u8::from(tally.failed > 0))
}

fn list() {
    for attack in ATTACKS {
        let state = attack
            .open
            .map_or("held".to_owned(), |why| format!("open: {why}"));
        println!("{:<22}{}\n{:<22}{state}", attack.name, attack.about, "");
    }
}

/// How an attack ended.
enum Verdict {
    Passed,
    Failed,
    /// It cannot be tried here, or its gap is known.
    Skipped,
}

#[derive(Default)]
struct Tally {
    passed: usize,
    failed: usize,
    skipped: usize,
}

impl Tally {
    fn add(&mut self, verdict: Verdict) {
        match verdict {
            Verdict::Passed => self.passed += 1,
            Verdict::Failed => self.failed += 1,
            Verdict::Skipped => self.skipped += 1,
        }
    }
}

fn try_it(attack: &Attack, scale: Scale) -> Verdict {
    println!("{}: {}", attack.name, attack.about);
    let checks = match (attack.run)(scale) {
        Ok(Outcome::Measured(checks)) => checks,
        Ok(Outcome::Skipped(why)) => {
            println!("  skipped: {why}");
            return Verdict::Skipped;
        }
        Err(error) => {
            println!("  {error}");
            // What an open attack does to the attacker itself proves nothing.
            return attack.open.map_or(Verdict::Failed, |_| Verdict::Skipped);
        }
    };
    for Check {
        what,
        figure,
        limit,
        holds,
    } in &checks
    {
        let mark = if *holds { "held" } else { "NOT HELD" };
        println!("  {what}: {figure}, limit {limit}: {mark}");
    }
    match (checks.iter().all(|check| check.holds), attack.open) {
        (true, None) => Verdict::Passed,
        (true, Some(why)) => {
            println!("  the limits held although a gap is listed: {why}");
            Verdict::Passed
        }
        (false, None) => Verdict::Failed,
        (false, Some(why)) => {
            println!("  known to be open: {why}");
            Verdict::Skipped
        }
    }
}

/// As many as the system allows; an attack that needs more fails by itself.
fn allow_many_sockets() {
    if let Ok((_, most)) = getrlimit(Resource::RLIMIT_NOFILE) {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, most, most);
    }
}
