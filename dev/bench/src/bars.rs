//! The bar of every row of `unbroken-bench brokers`: the one place where they stand.
//!
//! A bar is a ratio to the yardstick in the same run, so that it holds on any machine; only what an
//! idle connection takes is in bytes and microseconds. Beside it stands what the two peers of which
//! no package is at hand once reached, for runs without them.

use crate::{
    figure::Bar::{self, AtLeast, AtMost},
    outcome::Quantity,
    results::{
        CONNECT_BYTES, CONNECT_CPU, CONNECTIONS, CPU, DELIVERED, Metric, P50, P99, PUBLISHED,
    },
};

/// What a row asks of ours.
#[derive(Debug)]
pub(crate) struct RowBars {
    pub(crate) row: &'static str,
    pub(crate) demands: &'static [Demand],
}

/// A figure and what it has to reach.
#[derive(Debug)]
pub(crate) struct Demand {
    pub(crate) what: &'static str,
    pub(crate) metric: Metric,
    pub(crate) of: Quantity,
    pub(crate) against: Against,
    pub(crate) bar: Bar,
    pub(crate) noted: Option<Noted>,
}

/// What a figure is divided by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Against {
    Yardstick,
    /// Of the brokers of others in this run, the one that is best in it.
    BestPeer,
    Nothing,
}

/// A figure to the yardstick's, read in another run on another machine.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Noted {
    /// FlashMQ 1.26.2, with one thread or two, whichever was better in this figure.
    pub(crate) flashmq: f64,
    /// Mosquitto 2.1.2.
    pub(crate) mosquitto_2_1: f64,
}

/// When and where [`Noted`] was read.
pub(crate) const NOTED_ON: &str = "November 2026, another run on another machine (AMD EPYC, 2 cores, 1 to 4 rounds of 1.2 s): FlashMQ 1.26.2 with one \
     thread or two, whichever was better in the figure, and Mosquitto 2.1.2";

/// Of the yardstick, as Debian 12 has it: ratios to another are not the ones the bars mean.
pub(crate) const YARDSTICK_VERSION: &str = "2.0.11";

/// CPU per delivery with two shards to that with one.
pub(crate) const TWO_SHARDS_TO_ONE: Bar = AtMost(1.25);
/// Deliveries per second with two shards to those with one, in these rows, on a machine of so many
/// cores at least: on a smaller one the load has what the second shard would need.
pub(crate) const SECOND_SHARD_BRINGS: Bar = AtLeast(1.6);
pub(crate) const SCALING_ROWS: [&str; 3] = ["pairs100", "pairs500", "pairs1000"];
pub(crate) const SCALING_CORES: usize = 4;

/// By what factor ours, to the yardstick, may be dearer with a load generator that is not ours. Its
/// clock includes connecting, and it leaves a broker less of a small machine. How much cheaper ours
/// is there is asked nothing: a generator of ours that shows it dearer does it no favour.
pub(crate) const CROSS_CHECK: Bar = AtMost(1.5);
/// With the programs of 2013 ours has to lead, to the best peer: in CPU time of a delivery, and in
/// the messages each second that they tell.
pub(crate) const LEAST_CPU: Bar = AtMost(1.0);
pub(crate) const MOST_MESSAGES: Bar = AtLeast(1.0);

/// A bar is about so many rounds at least, and one of latency about runs of so many seconds.
pub(crate) const ROUNDS: usize = 5;
pub(crate) const LATENCY_SECONDS: f64 = 10.0;

/// In the order of the table.
pub(crate) const BARS: [RowBars; 18] = [
    row(
        "pairs100",
        &[cpu(0.26, noted(0.47, 0.69)), fastest(noted(1.9, 1.44))],
    ),
    row(
        "pairs500",
        &[cpu(0.38, noted(0.42, 0.55)), fastest(noted(2.38, 1.79))],
    ),
    row(
        "pairs1000",
        &[cpu(0.43, noted(0.44, 0.61)), fastest(noted(2.33, 1.65))],
    ),
    row(
        "pairs100b",
        &[cpu(0.045, noted(0.067, 0.75)), fastest(noted(14.65, 1.33))],
    ),
    row(
        "pairs1k",
        &[cpu(0.33, noted(0.48, 0.71)), fastest(noted(1.87, 1.4))],
    ),
    row(
        "pairs64k",
        &[cpu(0.28, noted(0.31, 0.35)), fastest(noted(3.21, 2.77))],
    ),
    row(
        "ping400",
        &[
            cpu(0.72, noted(0.85, 0.91)),
            publishes(noted(1.26, 1.11)),
            fastest(noted(1.26, 1.11)),
        ],
    ),
    row(
        "ping200",
        &[
            cpu(0.60, noted(1.05, 0.75)),
            publishes(noted(1.04, 1.35)),
            fastest(noted(1.04, 1.35)),
        ],
    ),
    row(
        "ping100",
        &[
            cpu(0.62, noted(0.95, 0.85)),
            publishes(noted(1.13, 1.21)),
            fastest(noted(1.13, 1.21)),
        ],
    ),
    row(
        "fanin0",
        &[cpu(0.30, noted(0.43, 0.62)), fastest(noted(2.35, 1.63))],
    ),
    row(
        "fanin1",
        &[cpu(0.18, noted(0.21, 0.67)), fastest(noted(4.89, 1.56))],
    ),
    row(
        "fanin2",
        &[cpu(0.155, noted(0.18, 2.08)), fastest(noted(5.53, 0.47))],
    ),
    row(
        "fanout",
        &[cpu(0.035, noted(0.056, 0.68)), fastest(noted(18.2, 1.47))],
    ),
    row(
        "tree",
        &[cpu(0.18, noted(0.30, 0.84)), fastest(noted(3.36, 1.2))],
    ),
    row(
        "lat5k",
        &[
            cpu(0.75, noted(1.23, 0.92)),
            p50_no_worse(noted(1.01, 0.88)),
            p99_near(noted(1.81, 1.02)),
        ],
    ),
    row(
        "lat20k",
        &[
            cpu(0.90, noted(0.95, 0.97)),
            p50_no_worse(noted(1.10, 1.06)),
            p99_near(noted(7.05, 2.89)),
        ],
    ),
    row("lat60k", &[P99_OF_THE_BEST]),
    row("idle", &[CONNECT_TIME, CONNECT_MEMORY, CONNECTS]),
];

/// Wall throughput is no worse than the best peer's.
const fn fastest(noted: Noted) -> Demand {
    Demand {
        what: "deliveries/s, to the best peer's",
        metric: DELIVERED,
        of: Quantity::Rate,
        against: Against::BestPeer,
        bar: AtLeast(1.0),
        noted: Some(noted),
    }
}

const fn publishes(noted: Noted) -> Demand {
    Demand {
        what: "published/s, to Mosquitto's",
        metric: PUBLISHED,
        of: Quantity::Rate,
        against: Against::Yardstick,
        bar: AtLeast(1.25),
        noted: Some(noted),
    }
}

const fn cpu(at_most: f64, noted: Noted) -> Demand {
    Demand {
        what: "CPU of a delivery, to Mosquitto's",
        metric: CPU,
        of: Quantity::Cost,
        against: Against::Yardstick,
        bar: AtMost(at_most),
        noted: Some(noted),
    }
}

const fn p50_no_worse(noted: Noted) -> Demand {
    Demand {
        what: "p50, to Mosquitto's",
        metric: P50,
        of: Quantity::Latency,
        against: Against::Yardstick,
        bar: AtMost(1.0),
        noted: Some(noted),
    }
}

const fn p99_near(noted: Noted) -> Demand {
    Demand {
        what: "p99, to Mosquitto's",
        metric: P99,
        of: Quantity::Latency,
        against: Against::Yardstick,
        bar: AtMost(1.5),
        noted: Some(noted),
    }
}

/// CPU time is not to be bought with lateness. This rate was not tried elsewhere.
const P99_OF_THE_BEST: Demand = Demand {
    what: "p99, to the best peer's",
    metric: P99,
    of: Quantity::Latency,
    against: Against::BestPeer,
    bar: AtMost(1.0),
    noted: None,
};
const CONNECT_TIME: Demand = Demand {
    what: "CPU to connect, µs",
    metric: CONNECT_CPU,
    of: Quantity::Cost,
    against: Against::Nothing,
    bar: AtMost(30.0),
    noted: Some(noted(0.89, 0.75)),
};
const CONNECT_MEMORY: Demand = Demand {
    what: "memory of a connection, bytes",
    metric: CONNECT_BYTES,
    of: Quantity::Cost,
    against: Against::Nothing,
    bar: AtMost(1_500.0),
    noted: Some(noted(5.88, 6.93)),
};
/// The time that connecting takes, which no CPU time shows: a broker may wait meanwhile.
const CONNECTS: Demand = Demand {
    what: "connections/s, to the best peer's",
    metric: CONNECTIONS,
    of: Quantity::Rate,
    against: Against::BestPeer,
    bar: AtLeast(1.0),
    noted: Some(noted(1.05, 1.13)),
};

const fn row(row: &'static str, demands: &'static [Demand]) -> RowBars {
    RowBars { row, demands }
}

const fn noted(flashmq: f64, mosquitto_2_1: f64) -> Noted {
    Noted {
        flashmq,
        mosquitto_2_1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows;

    #[test]
    fn every_row_of_the_table_has_a_bar_and_every_bar_a_row() {
        let rows = rows::choose(&[]).unwrap();
        let rows: Vec<_> = rows.iter().map(|row| row.name).collect();
        let bars: Vec<_> = BARS.iter().map(|bars| bars.row).collect();
        assert_eq!(rows, bars);
    }

    #[test]
    fn beside_each_bar_stands_what_absent_peers_reached_in_its_figure() {
        let demands = BARS.iter().flat_map(|bars| {
            let demands = bars.demands.iter();
            demands.map(|demand| (bars.row, demand))
        });
        for (row, demand) in demands.filter(|(row, _)| *row != "lat60k") {
            assert!(demand.noted.is_some(), "{row}: {}", demand.what);
        }
    }
}
