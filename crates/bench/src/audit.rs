//! `unbroken-bench audit`: what the proof costs, held against its bars.
//!
//! Rates are relative: the ledger takes the same messages that are also only hashed, in turns, so
//! that a machine that gets slower gets slower for both. Bytes and counts are exact and the same in
//! every run.

mod bars;
mod cost;
mod faults;
mod rates;
mod trial;

use std::{
    fmt, fs,
    io::{self, Write},
    path::PathBuf,
    process::ExitCode,
};

use clap::Args;
use serde::Serialize;

use crate::{error::BenchError, machine::Machine};

/// How much is run, and where it is recorded.
#[derive(Debug, Args)]
pub(crate) struct Audit {
    /// Rounds; medians of fewer than five say little
    #[arg(long, default_value_t = 7)]
    rounds: usize,
    /// Where the record is written
    #[arg(long, default_value = "docs/benchmarks")]
    out: PathBuf,
    /// One short round of everything, no record; fails if a count or a size misses its bar
    #[arg(long)]
    smoke: bool,
    /// Also a million messages through real processes, with 1, 10, 100 and 1,000 wounds: about a
    /// quarter of an hour
    #[arg(long)]
    trial: bool,
    /// The program of the trial
    #[arg(long, env = "UNBROKEN_BIN")]
    unbroken: Option<PathBuf>,
}

/// Messages of a trial.
const TRIAL_MESSAGES: u32 = 1_000_000;

/// What was measured, round by round, and what it has to reach.
#[derive(Debug, Serialize)]
pub(crate) struct Figure {
    name: &'static str,
    title: &'static str,
    unit: &'static str,
    values: Vec<f64>,
    bar: Option<Bar>,
}

/// What a figure has to reach.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) enum Bar {
    AtLeast(f64),
    AtMost(f64),
}

#[derive(Debug, Serialize)]
struct Record {
    machine: Machine,
    rounds: usize,
    figures: Vec<Figure>,
}

impl Audit {
    pub(crate) fn run(self) -> Result<ExitCode, BenchError> {
        let machine = Machine::here();
        let rounds = if self.smoke { 1 } else { self.rounds.max(1) };
        let mut figures = rates::figures();
        for round in 1..=rounds {
            writeln!(io::stderr(), "round {round} of {rounds}")?;
            rates::round(&mut figures, self.smoke);
        }
        figures.extend(cost::figures());
        writeln!(
            io::stderr(),
            "a million swaps, a million messages with faults"
        )?;
        figures.extend(faults::figures(self.smoke));
        if self.trial {
            writeln!(io::stderr(), "four lines of a million messages")?;
            let unbroken = self.unbroken.map_or_else(crate::cli::sibling, Ok)?;
            figures.extend(trial::figures(&unbroken, TRIAL_MESSAGES)?);
        }
        let record = Record {
            machine,
            rounds,
            figures,
        };
        if self.smoke {
            let exact = |figure: &&Figure| figure.values.len() == 1 && !figure.is_timed();
            let missed = record
                .figures
                .iter()
                .filter(exact)
                .find(|figure| !figure.passed());
            return match missed {
                Some(figure) => Err(BenchError::Missed {
                    figure: figure.name,
                }),
                None => Ok(ExitCode::SUCCESS),
            };
        }
        let write = |name: &str, text: String| {
            let path = self.out.join(name);
            fs::write(&path, text).map_err(|source| BenchError::Write { path, source })
        };
        write("audit.md", format!("{record}"))?;
        let json = serde_json::to_string_pretty(&record).map_err(io::Error::other)?;
        write("audit.json", json + "\n")?;
        write!(
            io::stdout().lock(),
            "{record}\nWritten to {}\n",
            self.out.display()
        )?;
        Ok(ExitCode::SUCCESS)
    }
}

impl Figure {
    pub(crate) const fn new(
        name: &'static str,
        title: &'static str,
        unit: &'static str,
        bar: Option<Bar>,
    ) -> Self {
        Self {
            name,
            title,
            unit,
            values: Vec::new(),
            bar,
        }
    }

    pub(crate) fn with(mut self, value: f64) -> Self {
        self.values.push(value);
        self
    }

    /// Adds the value of a round.
    pub(crate) fn add(&mut self, value: f64) {
        self.values.push(value);
    }

    fn is_timed(&self) -> bool {
        ["ratio", "M/s", "s"].contains(&self.unit)
    }

    fn median(&self) -> f64 {
        let mut sorted = self.values.clone();
        sorted.sort_unstable_by(f64::total_cmp);
        sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
    }

    fn spread(&self) -> (f64, f64) {
        let least = self.values.iter().copied().fold(f64::INFINITY, f64::min);
        let most = self
            .values
            .iter()
            .copied()
            .fold(f64::NEG_INFINITY, f64::max);
        (least, most)
    }

    fn passed(&self) -> bool {
        match self.bar {
            None => true,
            Some(Bar::AtLeast(bar)) => self.median() >= bar,
            Some(Bar::AtMost(bar)) => self.median() <= bar,
        }
    }
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let machine = &self.machine;
        writeln!(f, "# What the proof costs\n")?;
        writeln!(
            f,
            "{}, {} cores, {:.0} GiB, {}, kernel {}. {}, commit {}, load average before: {}.\n",
            machine.processor,
            machine.cores,
            machine.memory_gib,
            machine.system,
            machine.kernel,
            machine.date,
            machine.commit,
            machine.load_before,
        )?;
        writeln!(f, "Repeat it with `{}`.\n", machine.command)?;
        writeln!(
            f,
            "Rates are medians of {} rounds, least and most in brackets, on one thread. Ratios are taken \
             within a round, in which hashing and judging the same messages take turns. A message has \
             200 bytes of payload; its digest, its property's check, its window's hash and the \
             checkpoints are all in the ledger's time. Sizes and counts are the same in every run.\n",
            self.rounds
        )?;
        writeln!(f, "| figure | what | | bar | |\n|---|---|--:|--:|---|")?;
        for figure in &self.figures {
            let value = figure.median();
            let (least, most) = figure.spread();
            let spread = if figure.values.len() > 1 {
                format!(" ({least:.2}..{most:.2})")
            } else {
                String::new()
            };
            let (bar, verdict) = match figure.bar {
                None => (String::new(), ""),
                Some(bar) => (
                    match bar {
                        Bar::AtLeast(bar) => format!("≥ {bar}"),
                        Bar::AtMost(bar) => format!("≤ {bar}"),
                    },
                    if figure.passed() {
                        "passed"
                    } else {
                        "**missed**"
                    },
                ),
            };
            writeln!(
                f,
                "| {} | {} | {} {}{spread} | {bar} | {verdict} |",
                figure.name,
                figure.title,
                number(value),
                figure.unit,
            )?;
        }
        write!(f, "\n{}", bars::BARS)
    }
}

fn number(value: f64) -> String {
    if value.fract().abs() < 1e-9 {
        crate::grouped(value)
    } else {
        format!("{value:.3}")
    }
}
