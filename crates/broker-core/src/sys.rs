//! The `$SYS` tree: Mosquitto's names, ours under `$SYS/broker/unbroken/`, and what the audit has
//! come to under `$SYS/audit/`.
//!
//! Every shard sends its counters to shard 0, which adds them up and publishes what has changed,
//! retained. The messages take the way of any other, so they are matched, limited and cleared like
//! those of clients.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use unbroken_mqtt_proto::{Properties, QoS};

use crate::audit::tell;
use crate::audit::verdict::VERDICT;
use crate::ids::ShardId;
use crate::item::Item;
use crate::mail::Letter;
use crate::message::Publication;
use crate::reason::DropReason;
use crate::shard::Shard;
use crate::telemetry::Stats;
use crate::timers::Timer;

/// What shard 0 knows of the others, and what it last published.
#[derive(Debug, Default)]
pub(crate) struct Sys {
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
    pub(crate) fn note(&mut self, shard: ShardId, stats: Stats) {
        self.shards.insert(shard, stats);
    }

    fn sum(&mut self) -> Stats {
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
}

impl Shard {
    pub(crate) fn start_sys(&mut self) {
        if self.options.settings.sys_interval.is_some() {
            // At once, so that the tree is there for the first client that looks.
            self.timers.set(self.options.start, Timer::Sys);
        }
    }

    pub(crate) fn publish_sys(&mut self, now: Instant) {
        let Some(interval) = self.options.settings.sys_interval else {
            return;
        };
        self.timers.set(now + interval, Timer::Sys);
        let mine = self.stats_now(now);
        if self.options.id != ShardId(0) {
            return self.mail(ShardId(0), Letter::Stats(Box::new(mine)));
        }
        self.sys.note(ShardId(0), mine);
        let sum = self.sys.sum();
        for (topic, value) in self.sys_values(now, interval, &sum) {
            self.publish_sys_value(now, topic, value);
        }
        let verdict = tell::sentence(&sum, &self.options.settings.audit);
        self.publish_sys_value(now, VERDICT.to_owned(), verdict);
    }

    /// What has been counted up to now, brought up to date.
    pub(crate) fn stats_now(&mut self, now: Instant) -> Stats {
        self.clients.stats.sleeping = self.sleeping_totals(now);
        self.clients.stats.audit.unstored = self.clients.unstored();
        self.clients.stats.clone()
    }

    /// Publishes it if it is news. The verdict is not retained: it is made for whoever subscribes.
    fn publish_sys_value(&mut self, now: Instant, topic: String, value: String) {
        if self.sys.published.get(&topic) == Some(&value) {
            return;
        }
        let publication = sys_publication(now, &topic, &value);
        let mut item = Item::borrowed(publication, None);
        if topic != VERDICT {
            self.retain(now, &mut item, QoS::AtMostOnce);
        }
        self.route(now, &mut item, None);
        item.finish(&mut self.clients.pool);
        self.sys.published.insert(topic, value);
    }

    /// Says at once what has become of the store.
    pub(crate) fn publish_store_state(&mut self, now: Instant) {
        if self.options.settings.sys_interval.is_some() && self.options.id == ShardId(0) {
            let (topic, state) = self.store_state();
            self.publish_sys_value(now, topic, state);
        }
    }

    fn store_state(&self) -> (String, String) {
        let state = match &self.clients.promises.failed {
            Some(cause) => format!("failed: {cause}"),
            None if self.options.settings.durable => "working".to_owned(),
            None => "in memory".to_owned(),
        };
        ("$SYS/broker/unbroken/store".to_owned(), state)
    }

    fn sys_values(
        &mut self,
        now: Instant,
        interval: Duration,
        sum: &Stats,
    ) -> Vec<(String, String)> {
        let uptime = now.saturating_duration_since(self.options.start).as_secs();
        let mut values: Vec<(String, String)> = vec![
            (
                "$SYS/broker/version".into(),
                self.options.settings.version.clone(),
            ),
            ("$SYS/broker/uptime".into(), format!("{uptime} seconds")),
            self.store_state(),
        ];
        let dropped = sum.dropped_total();
        let counts: [(&str, u64); 34] = [
            (
                "clients/total",
                sum.clients_connected + sum.clients_disconnected,
            ),
            ("clients/connected", sum.clients_connected),
            ("clients/active", sum.clients_connected),
            ("clients/disconnected", sum.clients_disconnected),
            ("clients/inactive", sum.clients_disconnected),
            ("clients/maximum", sum.clients_maximum),
            ("clients/expired", sum.sessions_expired),
            ("messages/received", sum.packets_received),
            ("messages/sent", sum.packets_sent),
            (
                "messages/stored",
                sum.retained_messages + sum.messages_waiting,
            ),
            (
                "store/messages/count",
                sum.retained_messages + sum.messages_waiting,
            ),
            (
                "store/messages/bytes",
                sum.retained_bytes + sum.messages_waiting_bytes,
            ),
            ("publish/messages/received", sum.publishes_received),
            ("publish/messages/sent", sum.publishes_sent),
            ("publish/messages/dropped", dropped),
            ("publish/bytes/received", sum.publish_bytes_received),
            ("publish/bytes/sent", sum.publish_bytes_sent),
            ("bytes/received", sum.bytes_received),
            ("bytes/sent", sum.bytes_sent),
            ("subscriptions/count", sum.subscriptions),
            ("shared_subscriptions/count", sum.shared_subscriptions),
            ("retained messages/count", sum.retained_messages),
            ("unbroken/shards", u64::from(self.options.shards)),
            ("unbroken/publish/unrouted", sum.publishes_unrouted),
            ("unbroken/store/bytes", sum.store_bytes),
            ("unbroken/store/commit-us/p50", sum.commits.p50_us),
            ("unbroken/store/commit-us/p99", sum.commits.p99_us),
            (
                "sessions/count",
                sum.clients_connected + sum.clients_disconnected,
            ),
            ("sessions/persistent/count", sum.sleeping.persistent),
            ("sessions/sleeping/count", sum.clients_disconnected),
            ("sessions/sleeping/holding", sum.sleeping.holding),
            ("sessions/sleeping/messages", sum.sleeping.messages),
            ("sessions/sleeping/bytes", sum.sleeping.bytes),
            ("sessions/sleeping/oldest", sum.sleeping.oldest_s),
        ];
        values.extend(
            counts
                .iter()
                .map(|(name, value)| (format!("$SYS/broker/{name}"), value.to_string())),
        );
        for (reason, count) in &sum.refused {
            let name = reason.name().to_lowercase().replace(' ', "-");
            values.push((
                format!("$SYS/broker/unbroken/refused/{name}"),
                count.to_string(),
            ));
        }
        for reason in DropReason::ALL {
            let count = sum.dropped[reason as usize];
            values.push((
                format!("$SYS/broker/unbroken/dropped/{}", reason.name()),
                count.to_string(),
            ));
        }
        let rates: [(&'static str, u64); 10] = [
            ("messages/received", sum.packets_received),
            ("messages/sent", sum.packets_sent),
            ("publish/dropped", dropped),
            ("publish/received", sum.publishes_received),
            ("publish/sent", sum.publishes_sent),
            ("bytes/received", sum.bytes_received),
            ("bytes/sent", sum.bytes_sent),
            ("connections", sum.connects_admitted),
            ("sockets", sum.connects_admitted + sum.connects_refused),
            ("sessions/expired", sum.sessions_expired),
        ];
        for (name, total) in rates {
            let averages = self
                .sys
                .loads
                .entry(name)
                .or_default()
                .update(total, interval);
            for (average, span) in averages.iter().zip(["1min", "5min", "15min"]) {
                values.push((
                    format!("$SYS/broker/load/{name}/{span}"),
                    format!("{average:.2}"),
                ));
            }
        }
        values.extend(tell::sys_values(sum, &self.options.settings.audit));
        values
    }
}

/// A value as it is told.
pub(crate) fn sys_publication<'a>(now: Instant, topic: &'a str, value: &'a str) -> Publication<'a> {
    Publication {
        topic,
        properties: Properties::EMPTY,
        payload: value.as_bytes(),
        qos: QoS::AtMostOnce,
        retain: true,
        expires: None,
        stamp: now,
        mark: None,
    }
}

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
