//! The whole line in real processes: A, broker, B, broker, C and the relays that inject faults, as
//! `unbroken demo` runs them. The relays write down what they did and the receivers what they
//! found; the program compares both and says what came out, which is read here.
//! Old messages are replayed, one checkpoint in eight is lost, and C is restarted at random
//! moments.

use std::io;
use std::path::Path;
use std::process::Command;

use crate::error::BenchError;
use crate::figure::{Bar, Figure};
use crate::machine::BUILD_OURS;

/// A run of so many messages with so many faults.
struct Trial {
    name: &'static str,
    title: &'static str,
    injections: u32,
}

const TRIALS: [Trial; 4] = [
    Trial {
        name: "line-1",
        title: "through real processes, of 1 fault",
        injections: 1,
    },
    Trial {
        name: "line-10",
        title: "the same, of 10 faults of every kind",
        injections: 10,
    },
    Trial {
        name: "line-100",
        title: "the same, of 100",
        injections: 100,
    },
    Trial {
        name: "line-1000",
        title: "the same, of 1,000",
        injections: 1_000,
    },
];
/// Messages a second that A sends.
const RATE: u32 = 5_000;

/// Runs all trials with `messages` each.
pub(super) fn figures(unbroken: &Path, messages: u32) -> Result<Vec<Figure>, BenchError> {
    let count = |name, title, unit| Figure::new(name, title, unit, Some(Bar::AtMost(0.0)));
    let mut figures = Vec::new();
    let (mut wrong, mut slowest_loss_s) = (0, 0.0_f64);
    for trial in &TRIALS {
        let found = run(unbroken, messages, trial.injections)?;
        let unrepaired = trial.injections.saturating_sub(found.repaired);
        let unseen = found.missing.max(unrepaired);
        figures.push(count(trial.name, trial.title, "unseen or unrepaired").with(unseen.into()));
        wrong += found.wrong;
        slowest_loss_s = slowest_loss_s.max(found.slowest_loss_s);
    }
    let others = count(
        "line-false",
        "names for what was not injected, in all of them",
        "wrong",
    );
    figures.push(others.with(wrong.into()));
    let title = "until a loss is confirmed, the slowest of all of them";
    let bar = Some(Bar::AtMost(2.0));
    figures.push(Figure::new("line-loss", title, "s", bar).with(slowest_loss_s));
    Ok(figures)
}

/// What the receivers found of what the relays did.
#[derive(Debug, PartialEq)]
struct Found {
    missing: u32,
    wrong: u32,
    repaired: u32,
    slowest_loss_s: f64,
}

fn run(unbroken: &Path, messages: u32, injections: u32) -> Result<Found, BenchError> {
    let mut command = Command::new(unbroken);
    command.args(["demo", "--plain", "--messages", &messages.to_string()]);
    command.args([
        "--faults",
        &injections.to_string(),
        "--rate",
        &RATE.to_string(),
    ]);
    let output = command.output().map_err(|source| BenchError::Start {
        peer: "unbroken",
        source,
        hint: BUILD_OURS,
    })?;
    let said = String::from_utf8_lossy(&output.stdout);
    found(&said).ok_or_else(|| {
        let why = String::from_utf8_lossy(&output.stderr);
        let text = format!("`unbroken demo` did not say what came out:\n{said}{why}");
        io::Error::other(text).into()
    })
}

/// Reads `named: 100, missing: 0, false: 0, repaired: 100; the last loss after 0.98 s, …`.
fn found(said: &str) -> Option<Found> {
    let line = said.lines().rfind(|line| line.starts_with("named: "))?;
    let (counts, times) = line.split_once("; the last loss after ")?;
    let (slowest_loss_s, _) = times.split_once(" s")?;
    let of = |name: &str| {
        let mut counts = counts
            .split(", ")
            .filter_map(|count| count.split_once(": "));
        let (_, count) = counts.find(|(known, _)| *known == name)?;
        count.replace(',', "").parse().ok()
    };
    Some(Found {
        missing: of("missing")?,
        wrong: of("false")?,
        repaired: of("repaired")?,
        slowest_loss_s: slowest_loss_s.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_out_is_read_from_the_last_lines() {
        let said = "named: 1, of which none\nfaults injected: 1,000 (143 lost)\n\
                    named: 998, missing: 2, false: 1, repaired: 1,000; the last loss after 0.98 s, \
                    the last name after 1.25 s\n\
                    1,000,000 sent";
        let expected = Found {
            missing: 2,
            wrong: 1,
            repaired: 1_000,
            slowest_loss_s: 0.98,
        };
        assert_eq!(found(said), Some(expected));
        assert_eq!(found("1,000,000 sent"), None);
    }
}
