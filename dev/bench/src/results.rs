//! Runs of a row on its peers, and what a table says of them: medians over rounds, and ratios of
//! one peer to another.
//!
//! Invariant: a ratio is of two runs of the same round, which met the machine in the same mood;
//! what is told of ratios is their median, the least and the most. A ratio of two medians could be
//! of runs that were far apart.

use crate::{
    error::BenchError,
    outcome::BUSY,
    peer::{Peer, Role, YARDSTICK},
    rows::Row,
};
use serde::Serialize;
use unbroken_load::{Broker, Figures, Report};

/// One row with all its peers.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct RowResult {
    pub(crate) row: &'static str,
    pub(crate) title: &'static str,
    /// What a run is told beside the title, in words.
    pub(crate) load: String,
    #[serde(skip)]
    pub(crate) kind: Kind,
    pub(crate) cells: Vec<Cell>,
    /// Of all its runs, with starting and ending the brokers.
    pub(crate) took_s: f64,
}

/// What matters in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Throughput,
    Latency,
    Idle,
}

/// One peer in one row.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Cell {
    pub(crate) peer: &'static str,
    #[serde(skip)]
    pub(crate) role: Role,
    pub(crate) runs: Vec<Run>,
    pub(crate) failures: Vec<String>,
}

/// A run that came to its end.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Run {
    /// Counted from 0.
    pub(crate) round: usize,
    #[serde(flatten)]
    pub(crate) report: Report,
}

/// What was found in all rounds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) least: f64,
    pub(crate) most: f64,
    /// How many values there were.
    pub(crate) rounds: usize,
}

/// A figure of a run, if the run has it.
pub(crate) type Metric = fn(&Report) -> Option<f64>;

/// Of a delivery, so it is nothing where nothing is delivered.
pub(crate) const CPU: Metric = |report| {
    let figures = figures(report).filter(|figures| figures.tally.delivered > 0)?;
    Some(figures.broker?.cpu_us)
};
pub(crate) const SWITCHES: Metric = |report| broker(report).map(|broker| broker.switches);
pub(crate) const PEAK_MB: Metric = |report| {
    #[expect(clippy::cast_precision_loss, reason = "memory is far below 2^52 bytes")]
    broker(report).map(|broker| broker.peak_resident as f64 / 1e6)
};
pub(crate) const DELIVERED: Metric =
    |report| figures(report).map(|figures| figures.delivered_per_second);
pub(crate) const PUBLISHED: Metric =
    |report| figures(report).map(|figures| figures.published_per_second);
pub(crate) const GENERATOR_CPU: Metric = |report| figures(report)?.generator_cpu_us;
pub(crate) const GENERATOR_SHARE: Metric = |report| figures(report)?.generator_cpu_share;
/// Of the time of all its threads in the phase that a run is about: while messages flow, or, where
/// none do, while clients connect. One is all of it, however many threads there are.
pub(crate) const GENERATOR_OF_ITS_THREADS: Metric = |report| {
    let share = match figures(report) {
        Some(figures) => figures.generator_cpu_share,
        None => report.connecting.generator_cpu_share,
    };
    Some(share? / f64::from(report.told.threads.max(1)))
};
pub(crate) const OTHERS: Metric = |report| figures(report)?.other_load;
pub(crate) const P50: Metric = |report| figures(report).map(|figures| figures.latency.p50);
pub(crate) const P99: Metric = |report| figures(report).map(|figures| figures.latency.p99);
pub(crate) const P999: Metric = |report| figures(report).map(|figures| figures.latency.p999);
pub(crate) const MAX: Metric = |report| figures(report).map(|figures| figures.latency.max);
pub(crate) const CONNECTIONS: Metric = |report| Some(report.connecting.per_second);
pub(crate) const CONNECT_CPU: Metric = |report| report.connecting.broker_cpu_us;
pub(crate) const CONNECT_BYTES: Metric = |report| report.connecting.broker_bytes;
pub(crate) const CONNECT_SHARE: Metric = |report| report.connecting.generator_cpu_share;
pub(crate) const SUBSCRIBE_BYTES: Metric = |report| report.connecting.broker_bytes_per_subscriber;
pub(crate) const IDLE_SHARE: Metric = |report| report.idle?.broker_cpu_share;

pub(crate) const ACKNOWLEDGED_P99: Metric =
    |report| Some(figures(report)?.acknowledged.as_ref()?.p99);
/// Bytes written, to those of a message's topic and payload.
#[expect(clippy::cast_precision_loss, reason = "a payload is not so large")]
pub(crate) const WRITTEN: Metric = |report| {
    let told = &report.told;
    Some(broker(report)?.written? / (told.topic_bytes + told.payload_bytes as f64))
};

fn figures(report: &Report) -> Option<&Figures> {
    report.figures.as_ref()
}

fn broker(report: &Report) -> Option<&Broker> {
    figures(report)?.broker.as_ref()
}

impl RowResult {
    pub(crate) fn new(row: &Row, peers: &[Peer]) -> Self {
        let cells = peers.iter().filter(|peer| peer.can(row)).map(|peer| Cell {
            peer: peer.name,
            role: peer.role,
            runs: Vec::new(),
            failures: Vec::new(),
        });
        let kind = match (row.is_idle(), row.is_open_loop()) {
            (true, _) => Kind::Idle,
            (_, true) => Kind::Latency,
            _ => Kind::Throughput,
        };
        Self {
            row: row.name,
            title: row.title,
            load: row.in_words(),
            kind,
            cells: cells.collect(),
            took_s: 0.0,
        }
    }

    /// What a peer did.
    pub(crate) fn cell(&self, peer: &str) -> Option<&Cell> {
        self.cells.iter().find(|cell| cell.peer == peer)
    }

    /// A peer's figure in each round.
    pub(crate) fn values(&self, peer: &str, metric: Metric) -> Vec<f64> {
        let cell = self.cell(peer);
        cell.map_or_else(Vec::new, |cell| cell.values(metric))
    }

    /// The figure that the row is about: CPU time of a delivery, or of a connection.
    pub(crate) fn headline(&self) -> Metric {
        if self.kind == Kind::Idle {
            CONNECT_CPU
        } else {
            CPU
        }
    }

    /// How a peer compares to the yardstick.
    pub(crate) fn ratio(&self, cell: &Cell, metric: Metric) -> Option<Spread> {
        Spread::of(self.ratios(cell, YARDSTICK, metric))
    }

    /// How a peer compares to another, in each round in which both have the figure. One to whom
    /// something went missing in a round is nothing to be compared with in that round.
    pub(crate) fn ratios(&self, cell: &Cell, to: &str, metric: Metric) -> Vec<f64> {
        let Some(other) = self.cell(to) else {
            return Vec::new();
        };
        let others = other.runs.iter().filter(|run| run.report.is_clean());
        let of_round = |other: &Run| {
            let to = metric(&other.report).filter(|to| *to > 0.0)?;
            let run = cell.runs.iter().find(|run| run.round == other.round)?;
            Some(metric(&run.report)? / to)
        };
        others.filter_map(of_round).collect()
    }
}

impl Cell {
    /// The figure in each round that has it.
    fn values(&self, metric: Metric) -> Vec<f64> {
        let reports = self.runs.iter().map(|run| &run.report);
        reports.filter_map(metric).collect()
    }

    pub(crate) fn median(&self, metric: Metric) -> Option<f64> {
        median(self.values(metric))
    }

    pub(crate) fn spread(&self, metric: Metric) -> Option<Spread> {
        Spread::of(self.values(metric))
    }

    /// Our own load generator was what limited it, or what its messages waited for.
    pub(crate) fn is_generator_busy(&self) -> bool {
        self.median(GENERATOR_OF_ITS_THREADS) > Some(BUSY)
    }

    /// Every run of it ended, and everything arrived in each.
    pub(crate) fn is_clean(&self) -> bool {
        self.faulty_runs() == 0
    }

    /// Runs that did not end, or in which something was lost, repeated, out of order or altered.
    pub(crate) fn faulty_runs(&self) -> usize {
        let faulty = self.runs.iter().filter(|run| !run.report.is_clean());
        self.failures.len() + faulty.count()
    }
}

impl Spread {
    /// None of no values.
    pub(crate) fn of(values: Vec<f64>) -> Option<Self> {
        let least = values.iter().copied().reduce(f64::min)?;
        let most = values.iter().copied().reduce(f64::max)?;
        let rounds = values.len();
        let median = median(values)?;
        Some(Self {
            median,
            least,
            most,
            rounds,
        })
    }

    /// Of a value that is there once.
    pub(crate) const fn one(value: f64) -> Self {
        Self {
            median: value,
            least: value,
            most: value,
            rounds: 1,
        }
    }

    /// The median, and in brackets the least and the most where they differ.
    pub(crate) fn shown(self, number: impl Fn(f64) -> String) -> String {
        let [median, least, most] = [self.median, self.least, self.most].map(number);
        if least == most {
            median
        } else {
            format!("{median} ({least}..{most})")
        }
    }
}

/// Fails if a run did not end, or something did not arrive in it.
pub(crate) fn refuse_faults(rows: &[RowResult]) -> Result<(), BenchError> {
    let mut all = rows
        .iter()
        .flat_map(|row| row.cells.iter().map(move |cell| (row.row, cell)));
    match all.find(|(_, cell)| !cell.is_clean()) {
        Some((row, Cell { peer, .. })) => Err(BenchError::Faulty { row, peer }),
        None => Ok(()),
    }
}

pub(crate) fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    let upper = *values.get(middle)?;
    let lower = if values.len().is_multiple_of(2) {
        *values.get(middle - 1)?
    } else {
        upper
    };
    Some(f64::midpoint(lower, upper))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::rows::IDLE;
    use unbroken_load::{Connecting, Idle, Latency, Tally, Told};

    impl RowResult {
        /// The row `idle`, each peer with the CPU time that connecting took in each round.
        pub(crate) fn made_of(peers: &[(&'static str, Role, &[f64])]) -> Self {
            let cells = peers.iter().map(|(peer, role, times)| Cell {
                peer,
                role: *role,
                runs: times
                    .iter()
                    .map(|time| report(*time))
                    .enumerate()
                    .map(run)
                    .collect(),
                failures: Vec::new(),
            });
            Self {
                cells: cells.collect(),
                ..Self::new(&IDLE, &[])
            }
        }
    }

    fn run((round, report): (usize, Report)) -> Run {
        Run { round, report }
    }

    #[track_caller]
    fn check_ratio(row: &RowResult, expected: Option<[f64; 3]>) {
        let ratio = row.ratio(&row.cells[0], CONNECT_CPU);
        let ratio = ratio.map(|ratio| [ratio.median, ratio.least, ratio.most]);
        assert_eq!(ratio, expected);
    }

    #[test]
    fn a_ratio_is_taken_within_a_round() {
        let mut row = RowResult::made_of(&[
            ("ours", Role::Ours, &[20.0, 10.0, 90.0]),
            (YARDSTICK, Role::Peer, &[40.0, 10.0, 30.0]),
        ]);
        // Of the medians it would be 20 to 30.
        check_ratio(&row, Some([1.0, 0.5, 3.0]));
        // A round that one of both has not is left out, and the others stay together.
        row.cells[0].runs.remove(0);
        check_ratio(&row, Some([2.0, 1.0, 3.0]));
    }

    #[test]
    fn the_yardstick_counts_only_where_it_is_clean() {
        let mut row = RowResult::made_of(&[
            ("ours", Role::Ours, &[20.0, 10.0]),
            (YARDSTICK, Role::Peer, &[40.0, 10.0]),
        ]);
        for (run, expected) in [(1, Some([0.5; 3])), (0, None)] {
            let idle = Idle {
                seconds: 1.0,
                broker_cpu_share: None,
                closed: 1,
                spoken_to: 0,
            };
            row.cells[1].runs[run].report.idle = Some(idle);
            check_ratio(&row, expected);
        }
    }

    #[test]
    fn a_broker_that_delivers_nothing_has_no_time_for_a_delivery() {
        let mut report = report(1.0);
        for (delivered, expected) in [(0, None), (1, Some(3.0))] {
            report.figures = Some(figures(delivered));
            assert_eq!(CPU(&report), expected);
        }
    }

    pub(crate) fn figures(delivered: u64) -> Figures {
        Figures {
            tally: Tally {
                delivered,
                ..Tally::default()
            },
            lost: 0,
            seconds: 1.0,
            published_per_second: 0.0,
            delivered_per_second: 0.0,
            latency: Latency {
                count: 0,
                min: 0.0,
                mean: 0.0,
                p50: 0.0,
                p90: 0.0,
                p99: 0.0,
                p999: 0.0,
                max: 0.0,
                curve: Vec::new(),
            },
            acknowledged: None,
            broker: Some(Broker {
                cpu_us: 3.0,
                system_us: 0.0,
                cpu_share: 0.0,
                switches: 0.0,
                resident: 0,
                peak_resident: 0,
                written: None,
            }),
            generator_cpu_us: None,
            generator_cpu_share: None,
            other_load: None,
        }
    }

    fn report(broker_cpu_us: f64) -> Report {
        Report {
            scenario: "idle",
            told: Told {
                connections: 1,
                transport: "plain",
                mqtt: "3.1.1",
                topic_bytes: 8.0,
                payload_bytes: 16,
                qos: 0,
                window: 1,
                batch: 1,
                rate: None,
                seconds: Some(1.0),
                messages_per_publisher: None,
                warm_up_seconds: 0.0,
                threads: 1,
            },
            connecting: Connecting {
                connections: 1,
                per_second: 1.0,
                broker_cpu_us: Some(broker_cpu_us),
                broker_bytes: Some(1_000.0),
                broker_bytes_per_subscriber: None,
                generator_cpu_share: None,
            },
            warm_up: None,
            figures: None,
            idle: None,
        }
    }

    #[test]
    fn the_median_is_the_middle_or_between_the_two_middle_ones() {
        assert_eq!(median(vec![]), None);
        assert_eq!(median(vec![3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }
}
