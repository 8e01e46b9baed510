//! What streams get: text that is made once for all of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;
use unbroken_broker::handle::DropReason;

use super::rings::Point;
use super::series::{Reading, SERIES};
use crate::broker::Broker;
use crate::delivery::{Delivery, Incident};
use crate::time::Moment;

/// One event of a stream.
#[derive(Clone, Debug)]
pub(crate) struct Live {
    /// `snapshot` or `incident`.
    pub(crate) event: &'static str,
    /// Of a snapshot.
    pub(crate) id: Option<u64>,
    pub(crate) data: Arc<str>,
}

#[derive(Serialize)]
struct Snapshot<'a> {
    id: u64,
    as_of: Moment,
    delivery: &'a Delivery,
    rates: BTreeMap<&'static str, f32>,
    node: Node<'a>,
    /// Messages that were dropped since the start, by reason.
    drops: BTreeMap<&'static str, u64>,
    latency: BTreeMap<&'static str, f32>,
}

#[derive(Serialize)]
struct Node<'a> {
    version: &'a str,
    uptime_s: u64,
    cpu: Option<f32>,
    rss: Option<u64>,
    store_bytes: u64,
    clients: u64,
    connections: u32,
    sessions_offline: u64,
    subscriptions: u64,
    retained: u64,
    messages_waiting: u64,
    store_failed: bool,
    disk_lacks_space: bool,
}

impl Live {
    pub(crate) fn incident(incident: &Incident) -> Self {
        Self {
            event: "incident",
            id: None,
            data: json(incident),
        }
    }

    pub(super) fn snapshot(
        id: u64,
        delivery: &Delivery,
        reading: &Reading,
        newest: &[Option<Point>],
        broker: &Broker,
    ) -> Self {
        let stats = &reading.stats;
        let values = SERIES.iter().zip(newest);
        let values = values.filter_map(|(name, point)| Some((*name, point.as_ref()?.avg)));
        let of = |wanted: fn(&str) -> bool| values.clone().filter(move |(name, _)| wanted(name));
        let by_reason = DropReason::ALL.map(|reason| (reason.name(), stats.dropped_shown(reason)));
        let snapshot = Snapshot {
            id,
            as_of: delivery.as_of,
            delivery,
            rates: of(|name| name.contains("_per_s")).collect(),
            node: Node {
                version: &broker.version,
                uptime_s: broker.started.elapsed().unwrap_or_default().as_secs(),
                cpu: of(|name| name == "cpu_ratio")
                    .map(|(_, value)| value)
                    .next(),
                rss: reading.process.resident_bytes,
                store_bytes: stats.store_bytes,
                clients: stats.clients_connected,
                connections: reading.connections,
                sessions_offline: stats.clients_disconnected,
                subscriptions: stats.subscriptions,
                retained: stats.retained_messages,
                messages_waiting: stats.messages_waiting,
                store_failed: stats.store_failed > 0,
                disk_lacks_space: stats.disk_lacks_space > 0,
            },
            drops: by_reason.into(),
            latency: of(|name| name.starts_with("latency_"))
                .map(|(name, value)| (name.trim_start_matches("latency_"), value))
                .collect(),
        };
        Self {
            event: "snapshot",
            id: Some(id),
            data: json(&snapshot),
        }
    }
}

fn json(value: &impl Serialize) -> Arc<str> {
    serde_json::to_string(value)
        .unwrap_or_else(|error| format!("{{\"error\":\"{error}\"}}"))
        .into()
}
