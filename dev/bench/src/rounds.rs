//! The order of work: in every round, for every row, each peer once, and in the next round another
//! one first.

use crate::{
    error::BenchError,
    peer::Peer,
    results::{self, Cell, RowResult, Run},
    rows::Row,
};
use std::{io::Write, time::Instant};
use unbroken_load::{Report, Unobserved, grouped};

/// Runs everything and tells `progress` a line for each run. A run that fails is kept as a failure;
/// the others go on.
pub(crate) fn run(
    rows: &[Row],
    peers: &[Peer],
    rounds: usize,
    progress: &mut dyn Write,
) -> Result<Vec<RowResult>, BenchError> {
    run_and_keep(rows, peers, rounds, progress, |_, _| Ok(()))
}

/// And gives `keep` what there is after each round but the last, with the number of rounds so far.
pub(crate) fn run_and_keep(
    rows: &[Row],
    peers: &[Peer],
    rounds: usize,
    progress: &mut dyn Write,
    mut keep: impl FnMut(usize, &[RowResult]) -> Result<(), BenchError>,
) -> Result<Vec<RowResult>, BenchError> {
    let mut results: Vec<_> = rows.iter().map(|row| RowResult::new(row, peers)).collect();
    for round in 0..rounds {
        for (row, result) in rows.iter().zip(&mut results) {
            let began = Instant::now();
            let count = result.cells.len().max(1);
            for turn in 0..count {
                let place = (round + turn) % count;
                let Some(cell) = result.cells.get_mut(place) else {
                    continue;
                };
                let Some(peer) = peers.iter().find(|peer| peer.name == cell.peer) else {
                    continue;
                };
                let line = measure(row, peer, round, cell);
                writeln!(
                    progress,
                    "round {}/{rounds}  {:<10} {:<10} {line}",
                    round + 1,
                    row.name,
                    peer.name
                )?;
            }
            result.took_s += began.elapsed().as_secs_f64();
        }
        if round + 1 < rounds {
            keep(round + 1, &results)?;
        }
    }
    Ok(results)
}

/// One row, in which every run of every peer has to end with everything delivered.
pub(crate) fn run_one(
    row: &Row,
    peers: &[Peer],
    rounds: usize,
    progress: &mut dyn Write,
) -> Result<RowResult, BenchError> {
    let mut results = run(&[*row], peers, rounds, progress)?;
    results::refuse_faults(&results)?;
    Ok(results.remove(0))
}

/// One row on one freshly started peer.
fn measure(row: &Row, peer: &Peer, round: usize, cell: &mut Cell) -> String {
    let outcome = peer.start().and_then(|running| {
        let mut settings = row.settings(running.target, running.pid());
        settings.identity.keep_alive_s = peer.keep_alive_s;
        settings.warm_up = peer.warm_up(settings.warm_up);
        unbroken_load::run(settings, &mut Unobserved).map_err(|source| BenchError::Load {
            row: row.name,
            peer: peer.name,
            source: Box::new(source),
        })
    });
    match outcome {
        Ok(report) => {
            let line = summary(&report);
            cell.runs.push(Run { round, report });
            line
        }
        Err(error) => {
            let line = error.to_string();
            cell.failures.push(line.clone());
            line
        }
    }
}

fn summary(report: &Report) -> String {
    if let Some(figures) = &report.figures {
        let cpu = results::CPU(report).unwrap_or_default();
        let verdict = if report.is_clean() {
            "all arrived"
        } else {
            "NOT ALL ARRIVED"
        };
        let rate = grouped(figures.delivered_per_second);
        let latency = figures.latency.p99;
        return format!("{cpu:>8.2} µs/msg {rate:>10} msgs/s  p99 {latency:>8.0} µs  {verdict}");
    }
    let connecting = &report.connecting;
    let verdict = if report.is_clean() {
        "all stayed"
    } else {
        "NOT ALL STAYED SILENT"
    };
    format!(
        "{:>8.2} µs and {} B a connection  {verdict}",
        connecting.broker_cpu_us.unwrap_or_default(),
        grouped(connecting.broker_bytes.unwrap_or_default()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_there_is_after_each_round_but_the_last_is_given_to_be_kept() {
        let mut kept = Vec::new();
        let keep = |rounds, rows: &[RowResult]| {
            kept.push((rounds, rows.len()));
            Ok(())
        };
        let rows = [crate::rows::choose(&["idle".to_owned()]).unwrap().remove(0)];
        let found = run_and_keep(&rows, &[], 3, &mut Vec::new(), keep).unwrap();
        assert_eq!((kept, found.len()), (vec![(1, 1), (2, 1)], 1));
    }
}
