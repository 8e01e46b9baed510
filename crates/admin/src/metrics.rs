//! `/metrics`: the counters in the text format of OpenMetrics 1.0.
//!
//! Names follow Prometheus' conventions: base units, `_total` for counters. There is no label for
//! clients or topics, so the size of the answer does not depend on them.

mod histograms;

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};
use unbroken_broker::Expiry;
use unbroken_broker::handle::{DropReason, Stats};

use crate::broker::Broker;
use crate::problem::Problem;
use crate::process::Process;

const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

pub(crate) async fn show(State(broker): State<Broker>) -> Response {
    match scrape(&broker).await {
        Ok(text) => ([(header::CONTENT_TYPE, CONTENT_TYPE)], text).into_response(),
        Err(why) => Problem::new(StatusCode::SERVICE_UNAVAILABLE, why).into_response(),
    }
}

async fn scrape(broker: &Broker) -> Result<String, String> {
    let stats = broker.counters().await?;
    let asked = broker.ask(|handle| (handle.connections(), handle.expiries()));
    let (connections, expiries) = asked.await?;
    let snapshot = Snapshot {
        stats,
        connections,
        expiries,
        version: broker.version.to_string(),
        started: broker.started,
        process: Process::now(),
    };
    let mut registry = Registry::default();
    registry.register_collector(Box::new(snapshot));
    let mut answer = String::new();
    text::encode(&mut answer, &registry).map_err(|error| format!("no metrics: {error}"))?;
    Ok(answer)
}

/// All of one answer.
#[derive(Debug)]
struct Snapshot {
    stats: Stats,
    connections: u32,
    expiries: Vec<Expiry>,
    version: String,
    started: SystemTime,
    process: Process,
}

/// Name, meaning, and value.
type Figure = (&'static str, &'static str, fn(&Stats) -> u64);

const COUNTERS: [Figure; 11] = [
    (
        "unbroken_messages_received",
        "PUBLISH packets received from clients",
        |stats| stats.publishes_received,
    ),
    (
        "unbroken_messages_sent",
        "PUBLISH packets written to clients",
        Stats::publishes_written,
    ),
    (
        "unbroken_messages_unrouted",
        "Messages that had no subscriber",
        |stats| stats.publishes_unrouted,
    ),
    (
        "unbroken_payload_received_bytes",
        "Payload bytes of PUBLISH packets received",
        |stats| stats.publish_bytes_received,
    ),
    (
        "unbroken_payload_sent_bytes",
        "Payload bytes of PUBLISH packets written",
        Stats::publish_bytes_written,
    ),
    (
        "unbroken_packets_received",
        "MQTT packets of any kind received",
        |stats| stats.packets_received,
    ),
    (
        "unbroken_packets_sent",
        "MQTT packets of any kind written",
        Stats::packets_written,
    ),
    (
        "unbroken_network_received_bytes",
        "Bytes of MQTT packets received",
        |stats| stats.bytes_received,
    ),
    (
        "unbroken_network_sent_bytes",
        "Bytes of MQTT packets sent",
        |stats| stats.bytes_sent,
    ),
    (
        "unbroken_connections_admitted",
        "CONNECT packets that were accepted",
        |stats| stats.connects_admitted,
    ),
    (
        "unbroken_sessions_expired",
        "Sessions that ended by expiry",
        |stats| stats.sessions_expired,
    ),
];

const GAUGES: [Figure; 13] = [
    (
        "unbroken_clients_connected",
        "Clients that are connected",
        |stats| stats.clients_connected,
    ),
    (
        "unbroken_sessions_offline",
        "Sessions without a connection",
        |stats| stats.clients_disconnected,
    ),
    (
        "unbroken_sessions_offline_holding",
        "Sessions without a connection for which messages wait, as of the last update of $SYS",
        |stats| stats.sleeping.holding,
    ),
    (
        "unbroken_subscriptions",
        "Subscriptions of all sessions",
        |stats| stats.subscriptions,
    ),
    (
        "unbroken_shared_subscriptions",
        "Shared subscriptions of all sessions",
        |stats| stats.shared_subscriptions,
    ),
    ("unbroken_retained_messages", "Retained messages", |stats| {
        stats.retained_messages
    }),
    (
        "unbroken_retained_bytes",
        "Bytes of retained messages",
        |stats| stats.retained_bytes,
    ),
    (
        "unbroken_messages_waiting",
        "Messages in queues or in flight",
        |stats| stats.messages_waiting,
    ),
    (
        "unbroken_messages_waiting_bytes",
        "Bytes of messages in queues",
        |stats| stats.messages_waiting_bytes,
    ),
    (
        "unbroken_store_bytes",
        "Bytes of the data directory",
        |stats| stats.store_bytes,
    ),
    (
        "unbroken_store_lacks_space",
        "1 while the disk lacks the space that the store needs",
        |stats| stats.disk_lacks_space,
    ),
    (
        "unbroken_store_failed",
        "1 if the store has failed, and the broker goes on without it",
        |stats| stats.store_failed,
    ),
    (
        "unbroken_deliveries_waiting",
        "Expected deliveries that were not sent yet",
        |stats| stats.audit.shown_waiting(),
    ),
];

impl Collector for Snapshot {
    fn encode(&self, mut to: DescriptorEncoder<'_>) -> fmt::Result {
        for (name, help, value) in COUNTERS {
            counter(&mut to, name, help, value(&self.stats))?;
        }
        for (name, help, value) in GAUGES {
            gauge(&mut to, name, help, value(&self.stats))?;
        }
        let help = "Open network connections, those before CONNECT included";
        gauge(
            &mut to,
            "unbroken_connections",
            help,
            self.connections.into(),
        )?;
        self.encode_by_reason(&mut to)?;
        self.encode_audit(&mut to)?;
        histograms::encode(&self.stats, &mut to)?;
        self.encode_about(&mut to)?;
        self.encode_process(&mut to)
    }
}

impl Snapshot {
    fn encode_by_reason(&self, to: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let name = "unbroken_messages_dropped";
        let help = "Messages that were not delivered, by reason";
        let mut dropped = to.encode_descriptor(name, help, None, MetricType::Counter)?;
        for reason in DropReason::ALL {
            let count = ConstCounter::new(self.stats.dropped_shown(reason));
            count.encode(dropped.encode_family(&[("reason", reason.name())])?)?;
        }
        let name = "unbroken_clients_refused";
        let help = "Connections and subscriptions that were refused, by MQTT reason code";
        let mut refused = to.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (reason, count) in &self.stats.refused {
            let reason = reason.name().to_lowercase().replace(' ', "-");
            let count = ConstCounter::new(*count);
            count.encode(refused.encode_family(&[("reason", &*reason)])?)?;
        }
        Ok(())
    }

    /// The proof: what was promised, and what became of it.
    fn encode_audit(&self, to: &mut DescriptorEncoder<'_>) -> fmt::Result {
        for (figure, count) in self.stats.audit_figures() {
            if figure == "waiting" {
                continue; // a gauge
            }
            let name = figure.replace(['/', '-'], "_");
            let name = format!("unbroken_audit_{name}");
            let help = "As $SYS/audit has it under this name; see docs/audit.md";
            counter(to, &name, help, count)?;
        }
        Ok(())
    }

    fn encode_about(&self, to: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let help = "The version that runs";
        let mut version =
            to.encode_descriptor("unbroken_build_info", help, None, MetricType::Gauge)?;
        let labels = [("version", &*self.version)];
        ConstGauge::new(1_i64).encode(version.encode_family(&labels)?)?;
        let name = "unbroken_certificate_expiry_timestamp_seconds";
        let help = "The last second in which all certificates or lists of a file are valid";
        let mut expiries = to.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for expiry in &self.expiries {
            let file = expiry.file.display().to_string();
            let labels = [("file", &*file), ("what", expiry.what.name())];
            ConstGauge::new(expiry.not_after).encode(expiries.encode_family(&labels)?)?;
        }
        Ok(())
    }

    fn encode_process(&self, to: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let started = self.started.duration_since(UNIX_EPOCH).unwrap_or_default();
        let help = "Start of the process since the Unix epoch";
        let name = "process_start_time_seconds";
        gauge_f64(to, name, help, started.as_secs_f64())?;
        if let Some(cpu) = self.process.cpu {
            let help = "User and system CPU time";
            let seconds = Some(Unit::Seconds);
            let cpu = ConstCounter::new(cpu.as_secs_f64());
            let name = "process_cpu";
            let to = to.encode_descriptor(name, help, seconds.as_ref(), MetricType::Counter)?;
            cpu.encode(to)?;
        }
        for (name, help, value) in [
            (
                "process_resident_memory_bytes",
                "Resident memory",
                self.process.resident_bytes,
            ),
            (
                "process_open_fds",
                "Open file descriptors",
                self.process.open_files,
            ),
            (
                "process_max_fds",
                "Open file descriptors at most",
                self.process.open_files_max,
            ),
        ] {
            if let Some(value) = value {
                gauge(to, name, help, value)?;
            }
        }
        Ok(())
    }
}

fn counter(to: &mut DescriptorEncoder<'_>, name: &str, help: &str, value: u64) -> fmt::Result {
    let encoder = to.encode_descriptor(name, help, None, MetricType::Counter)?;
    ConstCounter::new(value).encode(encoder)
}

fn gauge(to: &mut DescriptorEncoder<'_>, name: &str, help: &str, value: u64) -> fmt::Result {
    #[expect(clippy::cast_precision_loss, reason = "Prometheus has only f64")]
    gauge_f64(to, name, help, value as f64)
}

fn gauge_f64(to: &mut DescriptorEncoder<'_>, name: &str, help: &str, value: f64) -> fmt::Result {
    let encoder = to.encode_descriptor(name, help, None, MetricType::Gauge)?;
    ConstGauge::new(value).encode(encoder)
}
