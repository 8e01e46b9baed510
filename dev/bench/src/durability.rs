//! `unbroken-bench durability`: what it costs to keep what was acknowledged, held against its bars.
//!
//! Two rows, in which each broker keeps the messages of 200 publishers for a session that stays: at
//! full speed, and at half of what ours did then. Then sessions that sleep, and a session for which
//! millions wait: there it is looked whether what was kept is there. The directories are where
//! temporary files are: set `TMPDIR` to choose the disk.

use std::{
    io::{self, Write},
    process::ExitCode,
};

use clap::Args;

use crate::{
    arguments::{self, Common, Missing},
    error::BenchError,
    figure::{Bar, Figure, Record},
    outcome::Quantity,
    peer::{self, EACH_CHANGE, HALF_HOUR, MEMORY, NATS, RELAXED, STRICT},
    record::Described,
    results::{
        ACKNOWLEDGED_P99, Cell, GENERATOR_OF_ITS_THREADS, Metric, PUBLISHED, RowResult, WRITTEN,
    },
    rounds,
    rows::KEPT,
};

mod row;
mod sleepers;
mod waiting;

/// How much is run, and where it is recorded.
#[derive(Debug, Args)]
pub(crate) struct Durability {
    /// Sessions that sleep while ten messages are published to all of them
    #[arg(long, default_value_t = 100_000)]
    sleepers: u32,
    /// Messages that wait while the broker is killed
    #[arg(long, default_value_t = 10_000_000)]
    waiting: u32,
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    missing: Missing,
}

const NOTES: &str = "each round one run of every broker in turn. 200 publishers send messages of \
    100 bytes at QoS 1, each with up to 10 unacknowledged, to one connected subscriber whose session \
    stays. What is written is counted by the kernel, and compared with payload and topic; payloads there are \
    random bytes, of which compression makes no fewer. For those who sleep, and for what waits, they \
    are a number and a filling. Where the load generator had no time left, a rate of ours is at least what is shown, \
    and a time at most: what is reached even so is passed, and what is not is not judged. Where it had \
    none left for the other of a ratio, nothing is passed.";

impl Durability {
    pub(crate) fn run(self) -> Result<ExitCode, BenchError> {
        let machine = self.common.begin()?;
        let (rounds, smoke) = (self.common.rounds(), self.common.smoke);
        let unbroken = self.common.unbroken()?;
        let mut peers = peer::keepers(&unbroken)?;
        if smoke {
            arguments::tell(&self.missing.take_out(&mut peers))?;
        }
        let described = Described::all(&peers)?;
        let row = if smoke { KEPT.smoke() } else { KEPT };
        let progress = &mut io::stderr().lock();
        let at_full_speed = rounds::run_one(&row, &peers, rounds, progress)?;
        let strict = median(&at_full_speed, STRICT, PUBLISHED);
        let half_rate = (strict / 2.0).max(100.0);
        let half = row.at(half_rate);
        let ours: Vec<_> = peers
            .iter()
            .filter(|peer| [STRICT, RELAXED, MEMORY].contains(&peer.name))
            .cloned()
            .collect();
        let at_half = rounds::run_one(&half, &ours, rounds, progress)?;
        let mut figures = figures(&at_full_speed, &at_half);
        figures.push(published_at_half(&at_half, half_rate));
        let sleepers = if smoke { 200 } else { self.sleepers };
        writeln!(progress, "{sleepers} sessions that sleep")?;
        figures.extend(sleepers::figures(&peers, sleepers)?);
        let waiting = if smoke { 20_000 } else { self.waiting };
        writeln!(progress, "{waiting} messages that wait")?;
        figures.extend(waiting::figures(&unbroken, waiting)?);
        if smoke {
            return Ok(ExitCode::SUCCESS);
        }
        let record = Record {
            title: "What it costs to keep messages",
            notes: NOTES.to_owned(),
            below: "",
            machine,
            rounds,
            peers: described,
            figures,
        };
        record.write(&self.common.out, "durability")
    }
}

fn median(row: &RowResult, peer: &str, metric: Metric) -> f64 {
    row.cell(peer)
        .and_then(|cell| cell.median(metric))
        .unwrap_or(f64::NAN)
}

fn figures(at_full_speed: &RowResult, at_half: &RowResult) -> Vec<Figure> {
    let mut figures = rates(at_full_speed);
    figures.extend(ratios(at_full_speed));
    figures.push(written(at_full_speed));
    figures.push(puback(at_half));
    figures
}

fn rates(at_full_speed: &RowResult) -> Vec<Figure> {
    let mut figures = Vec::new();
    for (name, title) in [
        (STRICT, "published, kept and synced"),
        (RELAXED, "published, kept, synced every second"),
        (MEMORY, "published, in memory only"),
        (EACH_CHANGE, "Mosquitto, saving within a second"),
        (HALF_HOUR, "Mosquitto, saving every half hour"),
        (NATS, "NATS, synced every two minutes"),
    ] {
        let mut figure = Figure::new(name, title, "/s", None);
        for value in at_full_speed.values(name, PUBLISHED) {
            figure.add(value);
        }
        figures.push(figure);
    }
    figures
}

fn ratios(at_full_speed: &RowResult) -> Vec<Figure> {
    let mut figures = Vec::new();
    for (name, title, to, bar) in [
        (
            "to mosquitto-1",
            "strict to Mosquitto, saving within a second",
            EACH_CHANGE,
            Some(5.0),
        ),
        (
            "to mosquitto-1800",
            "strict to Mosquitto, saving every half hour",
            HALF_HOUR,
            Some(1.0),
        ),
        (
            "to nats",
            "strict to NATS, synced every two minutes",
            NATS,
            None,
        ),
        (
            "to in-memory",
            "strict to our own in memory",
            MEMORY,
            Some(0.7),
        ),
    ] {
        let mut figure = Figure::new(name, title, "ratio", bar.map(Bar::AtLeast));
        let ours = at_full_speed.values(STRICT, PUBLISHED);
        for (ours, theirs) in ours.iter().zip(at_full_speed.values(to, PUBLISHED)) {
            figure.add(ours / theirs);
        }
        if bar.is_some() {
            figure = with_generator(figure, at_full_speed, to);
            if is_generator_busy(at_full_speed, STRICT) {
                figure = figure.held_back(Quantity::Rate);
            }
            if is_generator_busy(at_full_speed, to) {
                figure = figure.other_held_back(Quantity::Rate);
            }
        }
        figures.push(figure);
    }
    figures
}

fn written(at_full_speed: &RowResult) -> Figure {
    let mut written = Figure::new(
        "written",
        "bytes written to bytes of payload and topic, strict",
        "ratio",
        Some(Bar::AtMost(2.5)),
    );
    for value in at_full_speed.values(STRICT, WRITTEN) {
        written.add(value);
    }
    written
}

fn puback(at_half: &RowResult) -> Figure {
    let mut puback = Figure::new(
        "PUBACK p99",
        "of PUBACK at half of that rate, strict: the median of the rounds, of each its p99",
        "ms",
        Some(Bar::AtMost(20.0)),
    );
    for value in at_half.values(STRICT, ACKNOWLEDGED_P99) {
        puback.add(value / 1e3);
    }
    puback = with_generator(puback, at_half, STRICT);
    if is_generator_busy(at_half, STRICT) {
        puback = puback.held_back(Quantity::Latency);
    }
    puback
}

/// A latency is one of the half load only if that was there.
fn published_at_half(at_half: &RowResult, half_rate: f64) -> Figure {
    let mut figure = Figure::new(
        "published at half",
        "of that half, what was really published, strict",
        "ratio",
        Some(Bar::AtLeast(0.99)),
    );
    for value in at_half.values(STRICT, PUBLISHED) {
        figure.add(value / half_rate);
    }
    figure
}

fn is_generator_busy(row: &RowResult, peer: &str) -> bool {
    row.cell(peer).is_some_and(Cell::is_generator_busy)
}

/// With what the load generator took of its core beside this one.
fn with_generator(figure: Figure, row: &RowResult, peer: &str) -> Figure {
    let Some(cell) = row.cell(peer) else {
        return figure;
    };
    let share = cell.spread(GENERATOR_OF_ITS_THREADS);
    let share = share.map_or_else(String::new, |share| {
        let share = share.shown(|share| format!("{share:.2}"));
        format!("; the load generator took {share} of a core")
    });
    figure.with_remark(&share)
}
