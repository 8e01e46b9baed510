//! `unbroken-bench shards`: what a second shard costs, and what it brings, in the rows of `brokers`
//! on Unbroken with one shard and with two, in turns.
//!
//! A message whose publisher and subscriber live on different shards crosses a feed and is matched
//! twice, so it costs more; how much is held against a bar on any machine. What the second shard
//! brings can be seen only where the load does not take its core: on a machine of fewer than
//! [`SCALING_CORES`] the ratio of the rates is shown and asked nothing. Where the generator had no
//! time left for two shards, a rate that is too low is not judged; where it had none left for one,
//! which flatters the ratio, none is passed.

use std::{io, path::Path, process::ExitCode};

use clap::Args;

use crate::{
    arguments::Common,
    bars::{SCALING_CORES, SCALING_ROWS, SECOND_SHARD_BRINGS, TWO_SHARDS_TO_ONE},
    error::BenchError,
    figure::{Bar, Figure, Record},
    grouped,
    outcome::Quantity,
    peer::{self, ONE_SHARD, Peer, TWO_SHARDS},
    record::Described,
    results::{self, Cell, DELIVERED, GENERATOR_SHARE, Kind, Metric, P99, RowResult},
    rounds, rows,
};

/// Which rows are run, and how long.
#[derive(Debug, Args)]
pub(crate) struct Shards {
    /// Rows by the names of `brokers`, separated by commas; all if left out
    #[arg(long, value_delimiter = ',')]
    rows: Vec<String>,
    /// Measured seconds of every run, instead of each row's own
    #[arg(long)]
    secs: Option<f64>,
    /// Threads of the load generator, instead of one for each two cores
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    threads: Option<u32>,
    #[command(flatten)]
    common: Common,
}

const NOTES: &str = "in each of which both take turns, each on a broker of its own; ratios are taken \
    within a round, and beside them stand the medians. Everything arrived. The load generator has one \
    thread for each two cores unless `--threads` says how many, and in fan-in, fan-out and tree one. \
    Where it took more than 0.95 of their time with two shards, a rate that is too low is not judged; \
    where it did so with one, none is passed.";

impl Shards {
    pub(crate) fn run(self) -> Result<ExitCode, BenchError> {
        let machine = self.common.begin()?;
        let (rounds, smoke) = (self.common.rounds(), self.common.smoke);
        let threads = self.threads.unwrap_or(machine.generator_threads());
        let rows = rows::prepared(&self.rows, self.secs, smoke)?.into_iter();
        let rows: Vec<_> = rows.map(|row| row.driven_by(threads)).collect();
        let peers = peers(&self.common.unbroken()?)?;
        let results = rounds::run(&rows, &peers, rounds, &mut io::stderr().lock())?;
        results::refuse_faults(&results)?;
        if smoke {
            return Ok(ExitCode::SUCCESS);
        }
        let of_row = |row| [dearer(row)].into_iter().chain(brings(row, machine.cores));
        let figures = results.iter().flat_map(of_row).collect();
        let record = Record {
            title: "What a second shard costs, and what it brings",
            notes: NOTES.to_owned(),
            below: "",
            machine,
            rounds,
            peers: Described::all(&peers)?,
            figures,
        };
        record.write(&self.common.out, "shards")
    }
}

/// Ours with one shard and with two.
pub(crate) fn peers(unbroken: &Path) -> Result<Vec<Peer>, BenchError> {
    peer::choose(
        unbroken,
        None,
        &[ONE_SHARD, TWO_SHARDS].map(String::from),
        false,
    )
}

/// CPU time with two shards to that with one, held against its bar where it is about messages.
pub(crate) fn dearer(row: &RowResult) -> Figure {
    let (what, bar) = match row.kind {
        Kind::Idle => ("CPU time to connect", None),
        _ => ("CPU time of a delivery", Some(TWO_SHARDS_TO_ONE)),
    };
    let shown = |value: f64| format!("{value:.2} µs");
    compared(row, what, row.headline(), bar, shown)
}

/// Rate is what there is to win; where it is given, the latency says what is lost.
fn brings(row: &RowResult, cores: usize) -> Option<Figure> {
    match row.kind {
        Kind::Idle => None,
        Kind::Latency => {
            let shown = |value: f64| format!("{} µs", grouped(value));
            Some(compared(row, "p99", P99, None, shown))
        }
        Kind::Throughput => {
            let has_bar = cores >= SCALING_CORES && SCALING_ROWS.contains(&row.row);
            let bar = has_bar.then_some(SECOND_SHARD_BRINGS);
            let figure = compared(row, "deliveries/s", DELIVERED, bar, grouped);
            let [two, one] = medians(row, GENERATOR_SHARE, |share| format!("{share:.2}"));
            let remark = format!("; the load generator took {two} cores, {one}");
            let mut figure = figure.with_remark(&remark);
            let is_busy = |peer| row.cell(peer).is_some_and(Cell::is_generator_busy);
            if is_busy(TWO_SHARDS) {
                figure = figure.held_back(Quantity::Rate);
            }
            if is_busy(ONE_SHARD) {
                figure = figure.other_held_back(Quantity::Rate);
            }
            Some(figure)
        }
    }
}

/// The ratio in each round, with the medians beside it.
fn compared(
    row: &RowResult,
    what: &str,
    metric: Metric,
    bar: Option<Bar>,
    shown: fn(f64) -> String,
) -> Figure {
    let [two, one] = medians(row, metric, shown);
    let title = format!("{what} with two shards to that with one: {two}, {one}");
    let mut figure = Figure::new(row.row, "", "ratio", bar).titled(title);
    let two = row.cell(TWO_SHARDS).into_iter();
    for ratio in two.flat_map(|two| row.ratios(two, ONE_SHARD, metric)) {
        figure.add(ratio);
    }
    figure
}

fn medians(row: &RowResult, metric: Metric, shown: fn(f64) -> String) -> [String; 2] {
    [TWO_SHARDS, ONE_SHARD].map(|peer| {
        let median = row.cell(peer).and_then(|cell| cell.median(metric));
        median.map_or_else(|| "unknown".to_owned(), shown)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{outcome::Outcome, peer::Role, results::tests::figures};
    use unbroken_load::Figures;

    #[test]
    fn what_a_second_shard_brings_is_not_missed_where_the_load_generator_was_busy() {
        let mut row = RowResult::made_of(&[
            (TWO_SHARDS, Role::Ours, &[1.0]),
            (ONE_SHARD, Role::Ours, &[1.0]),
        ]);
        (row.row, row.kind) = (SCALING_ROWS[0], Kind::Throughput);
        for (two, shares, passed, missed) in [
            (1.7, [0.9, 0.9], true, false),
            (1.5, [0.9, 0.9], false, true),
            (1.5, [0.99, 0.9], false, false),
            (1.7, [0.99, 0.9], true, false),
            // A rate of one shard that was held back flatters two.
            (1.7, [0.9, 0.99], false, false),
            (1.5, [0.9, 0.99], false, true),
            (1.7, [0.99, 0.99], false, false),
            (1.5, [0.99, 0.99], false, false),
        ] {
            for ((cell, rate), share) in row.cells.iter_mut().zip([two, 1.0]).zip(shares) {
                cell.runs[0].report.figures = Some(Figures {
                    delivered_per_second: rate,
                    generator_cpu_share: Some(share),
                    ..figures(1)
                });
            }
            let outcome = brings(&row, SCALING_CORES).unwrap().outcome().unwrap();
            assert_eq!(outcome.passed(), passed, "{two} {shares:?}");
            assert_eq!(outcome == Outcome::Missed, missed, "{two} {shares:?}");
            // On a smaller machine nothing is asked.
            let asked = brings(&row, SCALING_CORES - 1).unwrap().outcome();
            assert_eq!(asked, None);
        }
    }

    #[test]
    fn what_two_shards_cost_is_divided_round_by_round() {
        let row = RowResult::made_of(&[
            (TWO_SHARDS, Role::Ours, &[30.0, 12.0, 80.0]),
            (ONE_SHARD, Role::Ours, &[20.0, 10.0, 40.0]),
        ]);
        let figure = dearer(&row);
        assert!((figure.median() - 1.5).abs() < 1e-9);
        let title = figure.title();
        assert!(
            title.ends_with("two shards to that with one: 30.00 µs, 20.00 µs"),
            "{title}"
        );
    }
}
