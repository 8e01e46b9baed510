//! What stamping costs the broker: its rate beside that of the same broker that stamps nothing.

use std::{io::Write, path::Path};

use crate::{
    error::BenchError,
    figure::{Bar, Figure},
    peer::{self, Peer},
    results::{CPU, DELIVERED},
    rounds, rows,
};

const STAMPED: &str = "unbroken";
const UNSTAMPED: &str = "unstamped";

/// Our own with stamps and without.
pub(super) fn peers(unbroken: &Path) -> Result<Vec<Peer>, BenchError> {
    let names = [STAMPED, UNSTAMPED].map(String::from);
    peer::choose(unbroken, None, &names, false)
}

/// Ratios within each round.
pub(super) fn figures(
    peers: &[Peer],
    rounds: usize,
    smoke: bool,
    progress: &mut dyn Write,
) -> Result<Vec<Figure>, BenchError> {
    let mut figures = Vec::new();
    for (name, rate, cpu) in [
        (
            "stamping",
            [
                "stamping",
                "messages delivered with stamps to without, 16 bytes",
            ],
            ["stamping-cpu", "CPU time of the broker, the same"],
        ),
        (
            "stamping200",
            [
                "stamping200",
                "messages delivered with stamps to without, 200 bytes",
            ],
            ["stamping200-cpu", "CPU time of the broker, the same"],
        ),
    ] {
        let row = rows::choose(&[name.to_owned()])?.remove(0);
        let row = if smoke { row.smoke() } else { row };
        let result = rounds::run_one(&row, peers, rounds, progress)?;
        for ([name, title], metric, bar) in [
            (rate, DELIVERED, Some(Bar::AtLeast(0.95))),
            (cpu, CPU, None),
        ] {
            let mut figure = Figure::new(name, title, "ratio", bar);
            let without = result.values(UNSTAMPED, metric);
            for (with, without) in result.values(STAMPED, metric).iter().zip(without) {
                figure.add(with / without);
            }
            figures.push(figure);
        }
    }
    Ok(figures)
}
