//! Everybody beside a subscriber that has stopped reading.

use std::{fmt, time::Duration};

use unbroken_load::{Extent, Report, Scenario, Settings, grouped};

use super::{Rounds, load, names};
use crate::{
    client::Client,
    error::BenchError,
    figure::{Bar, Figure},
    peer::{OURS, Peer},
    results::{DELIVERED, P99},
};

/// What the others found on one broker, each without and beside the silent one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    /// Messages delivered each second, at full speed.
    rate: [f64; 2],
    /// Milliseconds, at [`RATE`].
    p99: [f64; 2],
}

const ROW: &str = "silence";
/// Messages a second, open loop. With their size it fills every buffer on the way to the silent
/// subscriber before anything is measured.
const RATE: f64 = 5_000.0;
const PAYLOAD: usize = 1_024;
const CONNECTIONS: u32 = 100;
const WARM_UP: Duration = Duration::from_secs(2);
/// What is left of the rate at least: each message has one receiver more, for whom it is dropped.
const RATE_AT_LEAST: f64 = 0.95;
/// How much later the slowest hundredth may come.
const ADDED_MS: f64 = 2.0;

pub(super) fn measure(peer: &Peer, secs: Duration) -> Result<Found, BenchError> {
    let of = |rate, metric: fn(&Report) -> Option<f64>| {
        let without = run(peer, secs, rate, false)?;
        let beside = run(peer, secs, rate, true)?;
        let value = |report| metric(report).unwrap_or(f64::NAN);
        Ok::<_, BenchError>([value(&without), value(&beside)])
    };
    Ok(Found {
        rate: of(None, DELIVERED)?,
        p99: of(Some(RATE), P99)?.map(|micros| micros / 1e3),
    })
}

fn run(
    peer: &Peer,
    secs: Duration,
    rate: Option<f64>,
    is_silent_there: bool,
) -> Result<Report, BenchError> {
    let running = peer.start()?;
    // It is connected as long as this lives.
    let mut silent = is_silent_there
        .then(|| Client::passing(running.target, "silent"))
        .transpose()?;
    if let Some(silent) = &mut silent {
        silent.subscribe(["#".to_owned()].into_iter())?;
    }
    let scenario = Scenario::Pairs {
        connections: CONNECTIONS,
    };
    let settings = Settings {
        payload: PAYLOAD,
        window: 50,
        rate,
        warm_up: WARM_UP.min(secs),
        extent: Extent::Time(secs),
        ..Settings::new(running.target, scenario)
    };
    let report = load(ROW, peer, settings);
    drop(silent);
    report
}

pub(super) fn figures(rounds: &Rounds<Found>) -> Vec<Figure> {
    let mut figures = Vec::new();
    for name in names(rounds) {
        let bar = |bar| (name == OURS).then_some(bar);
        let mut rate = Figure::new(
            "silence-rate",
            "",
            "ratio",
            bar(Bar::AtLeast(RATE_AT_LEAST)),
        )
        .titled(format!(
            "{name}: messages delivered to others beside a subscriber that has stopped reading, to those without it"
        ));
        let mut added =
            Figure::new("silence-added", "", "ms", bar(Bar::AtMost(ADDED_MS))).titled(format!(
                "{name}: what it adds to the p99 of others, at {} messages/s",
                grouped(RATE)
            ));
        for (_, _, found) in rounds.iter().filter(|(_, peer, _)| *peer == name) {
            rate.add(found.rate[1] / found.rate[0]);
            added.add(found.p99[1] - found.p99[0]);
        }
        figures.extend([rate, added]);
    }
    figures
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ([rate, rate_beside], [p99, p99_beside]) = (self.rate, self.p99);
        let (rate, rate_beside) = (grouped(rate), grouped(rate_beside));
        write!(
            f,
            "{rate_beside} msgs/s, without {rate}; p99 {p99_beside:.2} ms, without {p99:.2} ms"
        )
    }
}
