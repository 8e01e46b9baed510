//! The values of the `$SYS` tree, made of the sum over all shards: Mosquitto's names, ours under
//! `$SYS/broker/unbroken/`.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::time::Duration;

use super::{Stats, audit_values};
use crate::ids::ShardId;
use crate::reason::DropReason;
use crate::settings::AuditSettings;

/// What is to be said beside the counters.
#[derive(Debug)]
pub(crate) struct About<'a> {
    pub(crate) version: &'a str,
    pub(crate) uptime_s: u64,
    /// Between two updates.
    pub(crate) interval: Duration,
    pub(crate) shards: u8,
    /// What has become of the store.
    pub(crate) store: &'a str,
    pub(crate) audit: &'a AuditSettings,
    /// Bytes that clients make the broker hold: those that are not admitted, and all others.
    pub(crate) memory: [u64; 2],
}

/// What shard 0 knows of the others, and what it last published.
#[derive(Debug, Default)]
pub(super) struct Sys {
    shards: BTreeMap<ShardId, Stats>,
    /// Most clients connected at once, as far as these updates have seen.
    clients_maximum: u64,
    published: BTreeMap<String, String>,
    loads: BTreeMap<&'static str, Load>,
}

/// A rate per minute as Mosquitto shows it: moving averages over 1, 5 and 15 minutes.
#[derive(Debug, Default)]
struct Load {
    last: u64,
    averages: [f64; 3],
}

impl Load {
    fn update(&mut self, total: u64, interval: Duration) -> [f64; 3] {
        let seconds = interval.as_secs_f64().max(f64::EPSILON);
        #[allow(clippy::cast_precision_loss, reason = "a rate shown with two decimals")]
        let per_minute = total.saturating_sub(self.last) as f64 * 60.0 / seconds;
        self.last = total;
        for (average, minutes) in self.averages.iter_mut().zip([1.0, 5.0, 15.0]) {
            let keep = (-seconds / (minutes * 60.0)).exp();
            *average = per_minute + keep * (*average - per_minute);
        }
        self.averages
    }
}

impl Sys {
    pub(super) fn note(&mut self, shard: ShardId, stats: Stats) {
        self.shards.insert(shard, stats);
    }

    pub(super) fn sum(&mut self) -> Stats {
        let mut sum = Stats::default();
        for stats in self.shards.values() {
            sum.add(stats);
        }
        // The shards had their maxima at different times, so these do not add up.
        let seen = sum.clients_connected.max(sum.clients_maximum);
        self.clients_maximum = self.clients_maximum.max(seen);
        sum.clients_maximum = self.clients_maximum;
        sum
    }

    /// Every value by its topic, but the verdict.
    pub(super) fn values(&mut self, about: &About<'_>, sum: &Stats) -> Vec<(String, String)> {
        let mut values = vec![
            broker("version", &about.version),
            broker("uptime", &format_args!("{} seconds", about.uptime_s)),
            broker(STORE, &about.store),
            broker("unbroken/shards", &about.shards),
            broker("unbroken/memory/unadmitted", &about.memory[0]),
            broker("unbroken/memory/clients", &about.memory[1]),
        ];
        if sum.heap[0] > 0 {
            values.push(broker("heap/current", &sum.heap[0]));
            values.push(broker("heap/maximum", &sum.heap[1]));
        }
        let counts = COUNTS.iter();
        values.extend(counts.map(|(name, count)| broker(name, &count(sum))));
        values.extend(sum.refused.iter().map(|(reason, count)| {
            let name = reason.name().to_lowercase().replace(' ', "-");
            broker(&format!("unbroken/refused/{name}"), count)
        }));
        values.extend(DropReason::ALL.into_iter().map(|reason| {
            let count = sum.dropped[reason as usize];
            broker(&format!("unbroken/dropped/{}", reason.name()), &count)
        }));
        for (name, total) in RATES {
            let load = self.loads.entry(name).or_default();
            let averages = load.update(total(sum), about.interval);
            for (average, span) in averages.iter().zip(["1min", "5min", "15min"]) {
                let topic = format!("load/{name}/{span}");
                values.push(broker(&topic, &format_args!("{average:.2}")));
            }
        }
        values.extend(audit_values::sys_values(sum, about.audit));
        values
    }

    /// Whether this differs from what was last published, which it is from now on.
    pub(super) fn is_news(&mut self, topic: &str, value: &str) -> bool {
        if self.published.get(topic).is_some_and(|last| last == value) {
            return false;
        }
        self.published.insert(topic.to_owned(), value.to_owned());
        true
    }
}

/// A value of the broker.
fn broker(name: &str, value: &dyn Display) -> (String, String) {
    (format!("$SYS/broker/{name}"), value.to_string())
}

/// What becomes of the store, below `$SYS/broker/`.
pub(crate) const STORE: &str = "unbroken/store";

/// A name, and what it stands for.
type Value = (&'static str, fn(&Stats) -> u64);

/// Counters and gauges by their names below `$SYS/broker/`.
const COUNTS: [Value; 35] = [
    ("clients/total", |sum| {
        sum.clients_connected + sum.clients_disconnected
    }),
    ("clients/connected", |sum| sum.clients_connected),
    ("clients/active", |sum| sum.clients_connected),
    ("clients/disconnected", |sum| sum.clients_disconnected),
    ("clients/inactive", |sum| sum.clients_disconnected),
    ("clients/maximum", |sum| sum.clients_maximum),
    ("clients/expired", |sum| sum.sessions_expired),
    ("messages/received", |sum| sum.packets_received),
    ("messages/sent", |sum| sum.packets_written()),
    ("messages/stored", |sum| {
        sum.retained_messages + sum.messages_waiting
    }),
    ("store/messages/count", |sum| {
        sum.retained_messages + sum.messages_waiting
    }),
    ("store/messages/bytes", |sum| {
        sum.retained_bytes + sum.messages_waiting_bytes
    }),
    ("publish/messages/received", |sum| sum.publishes_received),
    ("publish/messages/sent", |sum| sum.publishes_written()),
    ("publish/messages/dropped", |sum| sum.dropped_total()),
    ("publish/bytes/received", |sum| sum.publish_bytes_received),
    ("publish/bytes/sent", |sum| sum.publish_bytes_written()),
    ("bytes/received", |sum| sum.bytes_received),
    ("bytes/sent", |sum| sum.bytes_sent),
    ("subscriptions/count", |sum| sum.subscriptions),
    ("shared_subscriptions/count", |sum| sum.shared_subscriptions),
    ("retained messages/count", |sum| sum.retained_messages),
    ("unbroken/publish/unrouted", |sum| sum.publishes_unrouted),
    ("unbroken/rates/pauses", |sum| sum.rate_pauses),
    ("unbroken/store/bytes", |sum| sum.store_bytes),
    ("unbroken/store/lacks-space", |sum| sum.disk_lacks_space),
    ("unbroken/store/commit-us/p50", |sum| sum.commits.p50_us),
    ("unbroken/store/commit-us/p99", |sum| sum.commits.p99_us),
    ("sessions/count", |sum| {
        sum.clients_connected + sum.clients_disconnected
    }),
    ("sessions/persistent/count", |sum| sum.sleeping.persistent),
    ("sessions/sleeping/count", |sum| sum.clients_disconnected),
    ("sessions/sleeping/holding", |sum| sum.sleeping.holding),
    ("sessions/sleeping/messages", |sum| sum.sleeping.messages),
    ("sessions/sleeping/bytes", |sum| sum.sleeping.bytes),
    ("sessions/sleeping/oldest", |sum| sum.sleeping.oldest_s),
];

/// Totals of which the rates are below `$SYS/broker/load/`.
const RATES: [Value; 10] = [
    ("messages/received", |sum| sum.packets_received),
    ("messages/sent", |sum| sum.packets_written()),
    ("publish/dropped", |sum| sum.dropped_total()),
    ("publish/received", |sum| sum.publishes_received),
    ("publish/sent", |sum| sum.publishes_written()),
    ("bytes/received", |sum| sum.bytes_received),
    ("bytes/sent", |sum| sum.bytes_sent),
    ("connections", |sum| sum.connects_admitted),
    ("sockets", |sum| {
        sum.connects_admitted + sum.connects_refused
    }),
    ("sessions/expired", |sum| sum.sessions_expired),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::CommitTimes;

    #[test]
    fn maxima_of_different_times_do_not_add_up() {
        let mut sys = Sys::default();
        let mut maximum = |connected: [u64; 2]| {
            for (shard, clients) in (0..).zip(connected) {
                let stats = Stats {
                    clients_connected: clients,
                    clients_maximum: 10,
                    ..Stats::default()
                };
                sys.note(ShardId(shard), stats);
            }
            sys.sum().clients_maximum
        };
        assert_eq!(maximum([1, 2]), 10);
        assert_eq!(maximum([9, 8]), 17);
        assert_eq!(maximum([0, 0]), 17);
    }

    #[test]
    fn how_long_commits_take_adds_up_over_no_shards() {
        let mut sys = Sys::default();
        let commits = CommitTimes {
            p50_us: 512,
            p99_us: 4_096,
            ..CommitTimes::default()
        };
        for shard in 0..3 {
            let stats = Stats {
                commits,
                ..Stats::default()
            };
            sys.note(ShardId(shard), stats);
        }
        assert_eq!(sys.sum().commits, commits);
    }

    /// Those of Mosquitto 2.0 (`src/sys_tree.c`), below `$SYS/broker/`.
    const MOSQUITTO: [&str; 30] = [
        "version",
        "uptime",
        "clients/total",
        "clients/inactive",
        "clients/disconnected",
        "clients/active",
        "clients/connected",
        "clients/expired",
        "clients/maximum",
        "messages/stored",
        "messages/received",
        "messages/sent",
        "store/messages/count",
        "store/messages/bytes",
        "subscriptions/count",
        "shared_subscriptions/count",
        "retained messages/count",
        "heap/current",
        "heap/maximum",
        "bytes/received",
        "bytes/sent",
        "publish/bytes/received",
        "publish/bytes/sent",
        "publish/messages/dropped",
        "publish/messages/received",
        "publish/messages/sent",
        "load/messages/received/1min",
        "load/messages/sent/5min",
        "load/publish/dropped/15min",
        "load/publish/received/1min",
    ];
    const MOSQUITTO_LOADS: [&str; 10] = [
        "messages/received",
        "messages/sent",
        "publish/dropped",
        "publish/received",
        "publish/sent",
        "bytes/received",
        "bytes/sent",
        "connections",
        "sockets",
        "messages/sent",
    ];

    #[test]
    fn mosquittos_topics_are_there_and_those_that_exporters_read_hold_numbers() {
        let mut sys = Sys::default();
        let audit = AuditSettings::default();
        let about = About {
            version: "unbroken 1.0",
            uptime_s: 5,
            interval: Duration::from_secs(10),
            shards: 1,
            store: "in memory",
            audit: &audit,
            memory: [1, 2],
        };
        let sum = Stats {
            heap: [3, 4],
            ..Stats::default()
        };
        let values: BTreeMap<_, _> = sys.values(&about, &sum).into_iter().collect();
        let loads = MOSQUITTO_LOADS.iter().flat_map(|name| {
            let spans = ["1min", "5min", "15min"].into_iter();
            spans.map(move |span| format!("load/{name}/{span}"))
        });
        let names = MOSQUITTO.iter().map(ToString::to_string).chain(loads);
        for name in names {
            let value = values.get(&format!("$SYS/broker/{name}"));
            let value = value.unwrap_or_else(|| panic!("{name} is missing"));
            match &*name {
                "version" => {}
                // As Mosquitto writes it.
                "uptime" => assert_eq!(value, "5 seconds"),
                _ => assert!(value.parse::<f64>().is_ok(), "{name}: {value}"),
            }
        }
        assert_eq!(values["$SYS/broker/heap/current"], "3");
        assert_eq!(values["$SYS/broker/heap/maximum"], "4");
    }

    #[test]
    fn a_steady_rate_becomes_its_average() {
        let mut load = Load::default();
        let mut total = 0;
        for _ in 0..1_000 {
            total += 100;
            load.update(total, Duration::from_secs(10));
        }
        assert!(
            load.averages
                .iter()
                .all(|average| (average - 600.0).abs() < 1.0),
            "{:?}",
            load.averages
        );
    }
}
