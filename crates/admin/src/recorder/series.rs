//! The series, and their values from two snapshots of the counters.

use std::time::{Duration, Instant};

use unbroken_broker::handle::{DropReason, Histogram, Stats};

use super::rings::Sample;
use crate::delivery::flow::Flow;
use crate::process::Process;

/// Names, in the order of their values. Those of drops follow [`DropReason::ALL`].
pub(crate) const SERIES: [&str; 33] = [
    "received_per_s",
    "sent_per_s",
    "expected_per_s",
    "delivered_per_s",
    "dropped_per_s",
    "faults_per_s",
    "received_bytes_per_s",
    "sent_bytes_per_s",
    "clients",
    "connections",
    "sessions_offline",
    "subscriptions",
    "waiting",
    "in_flight",
    "latency_p50_ms",
    "latency_p95_ms",
    "latency_p99_ms",
    "cpu_ratio",
    "resident_bytes",
    "store_bytes",
    "dropped_per_s.queue-full",
    "dropped_per_s.slow-receiver",
    "dropped_per_s.expired",
    "dropped_per_s.too-large",
    "dropped_per_s.session-ended",
    "dropped_per_s.not-connected",
    "dropped_per_s.retained-full",
    "dropped_per_s.denied",
    "dropped_per_s.refused-by-receiver",
    "dropped_per_s.connection-lost",
    "dropped_per_s.too-old",
    "dropped_per_s.store-full",
    "dropped_per_s.store-failed",
];

/// The first series of drops by reason.
const DROPS: usize = SERIES.len() - DropReason::ALL.len();

/// What was read at one moment.
#[derive(Debug)]
pub(crate) struct Reading {
    pub(crate) stats: Stats,
    pub(crate) connections: u32,
    pub(crate) process: Process,
    pub(crate) at: Instant,
}

impl Reading {
    /// Whether no client has done anything since `before`. What the broker does to answer this
    /// does not count.
    pub(crate) fn is_like(&self, before: &Self) -> bool {
        let of = |reading: &Self| {
            let stats = &reading.stats;
            let counts = [
                stats.bytes_received,
                stats.bytes_sent,
                stats.clients_connected,
                stats.clients_disconnected,
                stats.subscriptions,
                stats.retained_messages,
                reading.connections.into(),
            ];
            (Flow::of(stats), counts)
        };
        of(self) == of(before)
    }

    /// The values of the time since `before`.
    pub(crate) fn since(&self, before: &Self) -> Sample {
        let took = self.at.saturating_duration_since(before.at);
        let (now, then) = (Flow::of(&self.stats), Flow::of(&before.stats));
        let per_s = |now: u64, then: u64| rate(now.saturating_sub(then), took);
        let stats = &self.stats;
        let [p50, p95, p99] = latency(&before.stats, stats);
        let cpu = self.process.cpu.zip(before.process.cpu);
        let cpu = cpu.map(|(now, then)| now.saturating_sub(then).div_duration_f32(took));
        let mut sample = [f32::NAN; SERIES.len()];
        let waiting = stats.audit.shown_waiting();
        let first = [
            per_s(now.received, then.received),
            per_s(now.sent, then.sent),
            per_s(now.expected, then.expected),
            per_s(now.delivered, then.delivered),
            per_s(now.dropped, then.dropped),
            per_s(now.faults, then.faults),
            per_s(stats.bytes_received, before.stats.bytes_received),
            per_s(stats.bytes_sent, before.stats.bytes_sent),
            value(stats.clients_connected),
            value(self.connections.into()),
            value(stats.clients_disconnected),
            value(stats.subscriptions),
            value(waiting),
            value(now.open.saturating_sub(waiting)),
            p50,
            p95,
            p99,
            cpu.unwrap_or(f32::NAN),
            self.process.resident_bytes.map_or(f32::NAN, value),
            value(stats.store_bytes),
        ];
        sample[..DROPS].copy_from_slice(&first);
        for (at, reason) in DropReason::ALL.into_iter().enumerate() {
            let (now, then) = (
                stats.dropped_shown(reason),
                before.stats.dropped_shown(reason),
            );
            sample[DROPS + at] = per_s(now, then);
        }
        sample
    }
}

/// Percentiles of publish-to-send in milliseconds, not a number if nothing was sent.
fn latency(before: &Stats, now: &Stats) -> [f32; 3] {
    let sent = now.latencies.sent.since(&before.latencies.sent);
    [500, 950, 990].map(|per_mille| {
        let micros = sent.quantile(per_mille);
        // The last bucket has no end.
        let micros = micros.map(|micros| micros.min(1 << (Histogram::BUCKETS - 1)));
        micros.map_or(f32::NAN, |micros| value(micros) / 1_000.0)
    })
}

fn rate(count: u64, took: Duration) -> f32 {
    value(count) / took.as_secs_f32().max(0.001)
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a chart shows seven digits at most"
)]
fn value(count: u64) -> f32 {
    count as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_are_of_what_was_sent_since_the_last_reading() {
        let of = |counts: [u64; 12]| {
            let mut stats = Stats::default();
            stats.latencies.sent = Histogram::of(counts, 0);
            stats
        };
        let mut counts = [0; 12];
        counts[10] = 1_000; // up to 1.024 ms, before
        let before = of(counts);
        counts[1] = 90;
        counts[10] += 8;
        counts[11] = 2;
        let micros = latency(&before, &of(counts)).map(|ms| (f64::from(ms) * 1_000.0).round());
        assert_eq!(format!("{micros:?}"), "[2.0, 1024.0, 2048.0]");
        assert!(latency(&before, &before).iter().all(|it| it.is_nan()));
    }

    #[test]
    fn drops_have_the_names_of_their_reasons() {
        for (name, reason) in SERIES[DROPS..].iter().zip(DropReason::ALL) {
            assert_eq!(name.strip_prefix("dropped_per_s."), Some(reason.name()));
        }
    }
}
