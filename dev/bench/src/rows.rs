//! The rows of the table: what is put on each peer, by the name under which it is compared from
//! version to version.

use crate::error::BenchError;
use std::{io, net::SocketAddr, time::Duration};
use unbroken_load::{Extent, Scenario, Settings, grouped};

/// One load with a name.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    scenario: Scenario,
    payload: usize,
    qos: u8,
    window: u32,
    batch: u32,
    rate: Option<f64>,
    stay: bool,
    threads: u32,
    warm_up: Duration,
    extent: Duration,
    /// The length-cutting relay can do it too: QoS 0, no wildcards.
    pub(crate) has_floor: bool,
}

const fn pairs(name: &'static str, title: &'static str, connections: u32) -> Row {
    Row {
        name,
        title,
        scenario: Scenario::Pairs { connections },
        payload: 16,
        qos: 0,
        window: 100,
        batch: 1,
        rate: None,
        stay: false,
        threads: 1,
        warm_up: Duration::from_millis(300),
        extent: Duration::from_millis(1_200),
        has_floor: true,
    }
}

const fn ping(name: &'static str, title: &'static str, pairs_count: u32, listeners: u32) -> Row {
    let scenario = Scenario::Ping {
        pairs: pairs_count,
        listeners,
    };
    Row {
        scenario,
        has_floor: false,
        ..pairs(name, title, 0)
    }
}

/// At QoS 1 and 2 the window is 10: with 100, Mosquitto spends its time in lists of 20,000
/// unacknowledged messages, and being better at that would say little.
const fn fan_in(name: &'static str, title: &'static str, qos: u8) -> Row {
    let window = if qos == 0 { 100 } else { 10 };
    let scenario = Scenario::FanIn { publishers: 200 };
    Row {
        scenario,
        qos,
        window,
        has_floor: false,
        ..pairs(name, title, 0)
    }
}

/// Long enough for a p99.9 that means something.
const fn latency(name: &'static str, title: &'static str, connections: u32, rate: f64) -> Row {
    Row {
        rate: Some(rate),
        warm_up: Duration::from_secs(1),
        extent: Duration::from_secs(10),
        ..pairs(name, title, connections)
    }
}

/// All rows, in the order of the table.
pub(crate) const ROWS: [Row; 17] = [
    pairs("pairs100", "100 connections in pairs, 16 B", 100),
    pairs("pairs500", "500 connections in pairs, 16 B", 500),
    pairs("pairs1000", "1,000 connections in pairs, 16 B", 1_000),
    Row {
        batch: 32,
        ..pairs("pairs100b", "the same, 32 messages a write", 100)
    },
    Row {
        payload: 1_024,
        window: 50,
        ..pairs("pairs1k", "100 connections in pairs, 1 KiB", 100)
    },
    Row {
        payload: 65_536,
        window: 8,
        ..pairs("pairs64k", "20 connections in pairs, 64 KiB", 20)
    },
    ping(
        "ping400",
        "400 request/reply pairs, 20 wildcard listeners",
        400,
        20,
    ),
    ping(
        "ping200",
        "200 request/reply pairs, 200 wildcard listeners",
        200,
        200,
    ),
    ping(
        "ping100",
        "100 request/reply pairs, 400 wildcard listeners",
        100,
        400,
    ),
    fan_in("fanin0", "200 publishers to one subscriber, QoS 0", 0),
    fan_in("fanin1", "200 publishers to one subscriber, QoS 1", 1),
    fan_in("fanin2", "200 publishers to one subscriber, QoS 2", 2),
    Row {
        scenario: Scenario::FanOut { subscribers: 1_000 },
        ..pairs("fanout", "one publisher to 1,000 subscribers", 0)
    },
    Row {
        scenario: Scenario::Tree {
            subscribers: 500,
            filters: 100_000,
            publishers: 10,
        },
        has_floor: false,
        ..pairs(
            "tree",
            "100,000 filters with + and #, each message matching two",
            0,
        )
    },
    latency(
        "lat5k",
        "open loop at 5,000/s, 200 connections in pairs",
        200,
        5_000.0,
    ),
    latency(
        "lat20k",
        "open loop at 20,000/s, 200 connections in pairs",
        200,
        20_000.0,
    ),
    latency(
        "lat60k",
        "open loop at 60,000/s, 1,000 connections in pairs",
        1_000,
        60_000.0,
    ),
];

/// Silent connections; the number is what the usual descriptor limit of 20,000 leaves.
pub(crate) const IDLE: Row = Row {
    scenario: Scenario::Idle {
        connections: 15_000,
    },
    extent: Duration::from_secs(1),
    has_floor: false,
    ..pairs("idle", "15,000 silent connections", 0)
};

/// What is kept until its subscriber, whose session stays, has acknowledged it. For
/// `unbroken-bench durability`.
pub(crate) const KEPT: Row = Row {
    payload: 100,
    stay: true,
    warm_up: Duration::from_secs(1),
    extent: Duration::from_secs(4),
    ..fan_in("kept", "200 publishers to one session that stays, QoS 1", 1)
};

/// Rows that run only when they are named: the same load with and without the numbers and hashes of
/// the audit. Longer than the others, because what is looked for is a twentieth.
const ON_REQUEST: [Row; 2] = [
    Row {
        extent: Duration::from_secs(3),
        has_floor: false,
        ..pairs(
            "stamping",
            "100 connections in pairs, 16 B, stamped or not",
            100,
        )
    },
    Row {
        payload: 200,
        extent: Duration::from_secs(3),
        has_floor: false,
        ..pairs("stamping200", "the same, 200 B", 100)
    },
];

/// The rows of these names, or all that need not be named.
pub(crate) fn choose(names: &[String]) -> Result<Vec<Row>, BenchError> {
    let all: Vec<_> = ROWS.into_iter().chain([IDLE]).collect();
    if names.is_empty() {
        return Ok(all);
    }
    let all: Vec<_> = all.into_iter().chain(ON_REQUEST).collect();
    let find = |name: &String| {
        all.iter()
            .find(|row| row.name == name)
            .copied()
            .ok_or_else(|| BenchError::Unknown {
                what: "row",
                name: name.clone(),
                known: all
                    .iter()
                    .map(|row| row.name)
                    .collect::<Vec<_>>()
                    .join(", "),
            })
    };
    names.iter().map(find).collect()
}

/// The same, as long as a run is to be: a short round, so many seconds, or each its own.
pub(crate) fn prepared(
    names: &[String],
    secs: Option<f64>,
    smoke: bool,
) -> Result<Vec<Row>, BenchError> {
    let secs = secs.map(Duration::try_from_secs_f64).transpose();
    let secs = secs.map_err(io::Error::other)?;
    let rows = choose(names)?.into_iter();
    let rows = rows.map(|row| if smoke { row.smoke() } else { row });
    Ok(rows.map(|row| row.lasting(secs)).collect())
}

impl Row {
    pub(crate) fn is_idle(&self) -> bool {
        matches!(self.scenario, Scenario::Idle { .. })
    }

    /// Latency is the point, not throughput.
    pub(crate) fn is_open_loop(&self) -> bool {
        self.rate.is_some()
    }

    /// A short and small version, to see that it runs at all.
    pub(crate) fn smoke(mut self) -> Self {
        self.extent = Duration::from_millis(200);
        self.warm_up = Duration::ZERO;
        self.scenario = match self.scenario {
            Scenario::Idle { .. } => Scenario::Idle { connections: 500 },
            Scenario::Tree { .. } => Scenario::Tree {
                subscribers: 50,
                filters: 1_000,
                publishers: 2,
            },
            Scenario::FanOut { .. } => Scenario::FanOut { subscribers: 50 },
            other => other,
        };
        self
    }

    /// An open loop at this rate, in messages per second.
    pub(crate) fn at(mut self, rate: f64) -> Self {
        self.rate = Some(rate);
        self
    }

    /// With so many threads of the load generator, or as many as it can be cut into.
    pub(crate) fn driven_by(mut self, threads: u32) -> Self {
        self.threads = threads.min(self.scenario.parts());
        self
    }

    /// What a run is told beside its title, in words.
    pub(crate) fn in_words(&self) -> String {
        let (secs, warm_up) = (self.extent.as_secs_f64(), self.warm_up.as_secs_f64());
        let under_way = match (self.scenario, self.rate) {
            (Scenario::Idle { .. }, _) => {
                return format!(
                    "Watched for {secs} s when all are connected and have subscribed; 64 at a time connect."
                );
            }
            (_, Some(_)) => "Messages are sent when they are due, one a write".to_owned(),
            (Scenario::Ping { .. }, None) => {
                "One question of a pair is under way at a time".to_owned()
            }
            _ => format!(
                "At most {} messages of a publisher are under way, {} a write",
                self.window, self.batch
            ),
        };
        format!(
            "{under_way}; {} bytes, QoS {}; {warm_up} s of warm-up, then {secs} s.",
            grouped(f64::from(u32::try_from(self.payload).unwrap_or(u32::MAX))),
            self.qos
        )
    }

    fn lasting(mut self, extent: Option<Duration>) -> Self {
        self.extent = extent.unwrap_or(self.extent);
        self
    }

    pub(crate) fn settings(&self, target: SocketAddr, pid: u32) -> Settings {
        Settings {
            payload: self.payload,
            qos: self.qos,
            window: self.window,
            batch: self.batch,
            rate: self.rate,
            stay: self.stay,
            threads: self.threads,
            warm_up: self.warm_up,
            extent: Extent::Time(self.extent),
            pid: Some(pid),
            ..Settings::new(target, self.scenario)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_says_what_a_reader_has_to_know_to_repeat_it() {
        for (row, expected) in [
            (
                "pairs100b",
                "At most 100 messages of a publisher are under way, 32 a write; 16 bytes, QoS 0; 0.3 s of warm-up, then 1.2 s.",
            ),
            (
                "fanin2",
                "At most 10 messages of a publisher are under way, 1 a write; 16 bytes, QoS 2; 0.3 s of warm-up, then 1.2 s.",
            ),
            (
                "ping400",
                "One question of a pair is under way at a time; 16 bytes, QoS 0; 0.3 s of warm-up, then 1.2 s.",
            ),
            (
                "lat5k",
                "Messages are sent when they are due, one a write; 16 bytes, QoS 0; 1 s of warm-up, then 10 s.",
            ),
        ] {
            assert_eq!(choose(&[row.to_owned()]).unwrap()[0].in_words(), expected);
        }
    }

    #[test]
    fn no_row_is_driven_by_more_threads_than_it_can_be_cut_into() {
        for row in choose(&[]).unwrap() {
            let driven = row.driven_by(8);
            assert!((1..=8).contains(&driven.threads), "{}", row.name);
            assert!(driven.threads <= row.scenario.parts(), "{}", row.name);
        }
        let threads = |name: &str| choose(&[name.to_owned()]).unwrap()[0].driven_by(8).threads;
        assert_eq!(["pairs100", "fanin1", "tree"].map(threads), [8, 1, 1]);
    }

    #[test]
    fn row_names_differ_and_can_be_chosen() {
        let all = choose(&[]).unwrap();
        let named = all.iter().chain(&ON_REQUEST);
        let names: Vec<_> = named.map(|row| row.name.to_owned()).collect();
        assert_eq!(choose(&names).unwrap().len(), names.len());
        assert!(
            choose(&["nonsense".to_owned()])
                .unwrap_err()
                .to_string()
                .contains("pairs100")
        );
    }
}
