//! The result of a run as plain data, for machines as it is and for people as lines with units.

use crate::{
    plan::Scenario,
    process::Usage,
    settings::{Extent, Settings},
    tally::Tally,
};
use hdrhistogram::Histogram;
use serde::Serialize;
use std::{
    fmt::{self, Write as _},
    time::Duration,
};
use unbroken_mqtt_proto::Version;

/// What a run found.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// `pairs`, `ping` and so on.
    pub scenario: &'static str,
    /// What it was told.
    pub told: Told,
    /// How the connections came about.
    pub connecting: Connecting,
    /// What was sent before anything was measured, and what became of it. In no figure, but a fault
    /// there is one of the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warm_up: Option<Tally>,
    /// Of the measured phase.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub figures: Option<Figures>,
    /// Of the silent phase of `idle`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle: Option<Idle>,
}

/// The settings that shape the result.
#[derive(Debug, Clone, Serialize)]
#[expect(missing_docs, reason = "the names are those of the settings")]
pub struct Told {
    pub connections: u32,
    pub mqtt: &'static str,
    pub transport: &'static str,
    /// Mean over the topics that are published to.
    pub topic_bytes: f64,
    pub payload_bytes: usize,
    pub qos: u8,
    pub window: u32,
    pub batch: u32,
    pub rate: Option<f64>,
    pub seconds: Option<f64>,
    pub messages_per_publisher: Option<u64>,
    pub warm_up_seconds: f64,
    pub threads: u32,
}

/// Opening connections and subscribing.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Connecting {
    /// Connections opened.
    pub connections: u32,
    /// Connections accepted per second.
    pub per_second: f64,
    /// CPU time of the broker for each, in microseconds.
    pub broker_cpu_us: Option<f64>,
    /// Memory of the broker for each.
    pub broker_bytes: Option<f64>,
    /// Memory that came on top by subscribing, divided by all connections.
    pub broker_bytes_per_subscriber: Option<f64>,
    /// CPU seconds of this program per second.
    pub generator_cpu_share: Option<f64>,
}

/// Connections without traffic.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Idle {
    /// How long it was watched.
    pub seconds: f64,
    /// CPU seconds of the broker per second.
    pub broker_cpu_share: Option<f64>,
    /// Connections that were closed at the end of that time.
    pub closed: u64,
    /// Connections on which something had come that nobody asked for.
    pub spoken_to: u64,
}

/// The measured phase.
#[derive(Debug, Clone, Serialize)]
pub struct Figures {
    /// The exact counts.
    #[serde(flatten)]
    pub tally: Tally,
    /// Deliveries that never came.
    pub lost: u64,
    /// From the first message to the last delivery or acknowledgement.
    pub seconds: f64,
    /// Messages sent per second.
    pub published_per_second: f64,
    /// Messages that came per second.
    pub delivered_per_second: f64,
    /// From the time a message was to be sent to its delivery; in `ping`, to the reply.
    pub latency: Latency,
    /// From the time a message was to be sent to its PUBACK or PUBCOMP; at QoS 0 there is none.
    pub acknowledged: Option<Latency>,
    /// If its process was known.
    pub broker: Option<Broker>,
    /// CPU time of this program per delivery, in microseconds.
    pub generator_cpu_us: Option<f64>,
    /// CPU seconds of this program per second.
    pub generator_cpu_share: Option<f64>,
    /// CPU seconds per second that neither the broker nor this program took.
    pub other_load: Option<f64>,
}

/// Latencies in microseconds.
#[derive(Debug, Clone, Serialize)]
#[expect(missing_docs, reason = "the names are the percentiles")]
pub struct Latency {
    pub count: u64,
    pub min: f64,
    pub mean: f64,
    pub p50: f64,
    pub p90: f64,
    pub p99: f64,
    pub p999: f64,
    pub max: f64,
    /// Percentile and latency, denser towards the end, for plots.
    pub curve: Vec<(f64, f64)>,
}

/// What the broker spent in the measured phase.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Broker {
    /// Microseconds of CPU time per delivery.
    pub cpu_us: f64,
    /// Of these in the kernel.
    pub system_us: f64,
    /// CPU seconds per second.
    pub cpu_share: f64,
    /// Context switches per delivery.
    pub switches: f64,
    /// Bytes at the end.
    pub resident: u64,
    /// The most it ever was.
    pub peak_resident: u64,
    /// Bytes handed to the disk per delivery, where the kernel tells.
    pub written: Option<f64>,
}

impl Report {
    pub(crate) fn new(settings: &Settings, topic_bytes: f64, connecting: Connecting) -> Self {
        let (seconds, messages) = match settings.extent {
            Extent::Time(time) => (Some(time.as_secs_f64()), None),
            Extent::Messages(messages) => (None, Some(messages)),
        };
        Self {
            scenario: settings.scenario.name(),
            told: Told {
                connections: settings.scenario.connections(),
                mqtt: match settings.identity.version {
                    Version::V3_1 => "3.1",
                    Version::V3_1_1 => "3.1.1",
                    Version::V5 => "5.0",
                },
                transport: settings.transport.name(),
                topic_bytes,
                payload_bytes: settings.payload,
                qos: settings.qos,
                window: match settings.scenario {
                    Scenario::Ping { .. } => 1,
                    _ => settings.window,
                },
                batch: settings.batch,
                rate: settings.rate,
                seconds,
                messages_per_publisher: messages,
                warm_up_seconds: settings.warm_up.as_secs_f64(),
                threads: settings.threads,
            },
            connecting,
            warm_up: None,
            figures: None,
            idle: None,
        }
    }

    /// Whether everything came, once, in order, unaltered, in the warm-up too; and whether silent
    /// connections stayed, and silent.
    pub fn is_clean(&self) -> bool {
        let measured = self.figures.as_ref().map(|figures| &figures.tally);
        let mut phases = self.warm_up.iter().chain(measured);
        phases.all(Tally::is_clean) && self.idle.is_none_or(Idle::is_clean)
    }
}

impl Idle {
    const fn is_clean(self) -> bool {
        self.closed == 0 && self.spoken_to == 0
    }
}

impl Figures {
    pub(crate) fn new(
        tally: Tally,
        elapsed: Duration,
        latency: &Histogram<u64>,
        acknowledged: &Histogram<u64>,
    ) -> Self {
        let seconds = elapsed.as_secs_f64();
        let per_second = |count| {
            if seconds > 0.0 {
                number(count) / seconds
            } else {
                0.0
            }
        };
        Self {
            lost: tally.lost(),
            seconds,
            published_per_second: per_second(tally.published),
            delivered_per_second: per_second(tally.delivered),
            latency: Latency::new(latency),
            acknowledged: (!acknowledged.is_empty()).then(|| Latency::new(acknowledged)),
            broker: None,
            generator_cpu_us: None,
            generator_cpu_share: None,
            other_load: None,
            tally,
        }
    }
}

impl Latency {
    fn new(histogram: &Histogram<u64>) -> Self {
        let micros = |nanos: u64| number(nanos) / 1e3;
        let at = |percentile| micros(histogram.value_at_percentile(percentile));
        let curve = histogram.iter_quantiles(4).map(|step| {
            (
                step.quantile_iterated_to() * 100.0,
                micros(step.value_iterated_to()),
            )
        });
        Self {
            count: histogram.len(),
            min: if histogram.is_empty() {
                0.0
            } else {
                micros(histogram.min())
            },
            mean: histogram.mean() / 1e3,
            p50: at(50.0),
            p90: at(90.0),
            p99: at(99.0),
            p999: at(99.9),
            max: micros(histogram.max()),
            curve: curve.collect(),
        }
    }
}

impl Broker {
    pub(crate) fn new(from: Usage, to: Usage, wall: Duration, delivered: u64) -> Self {
        let cpu = to.cpu.saturating_sub(from.cpu).as_secs_f64();
        let per_delivery = |amount: f64| amount / number(delivered).max(1.0);
        let [user, system] = [(from.user, to.user), (from.system, to.system)]
            .map(|(from, to)| to.saturating_sub(from).as_secs_f64());
        // The split is coarse, the sum is not.
        let system = if user + system > 0.0 {
            cpu * system / (user + system)
        } else {
            0.0
        };
        Self {
            cpu_us: per_delivery(cpu * 1e6),
            system_us: per_delivery(system * 1e6),
            cpu_share: cpu / wall.as_secs_f64(),
            switches: per_delivery(number(to.switches.saturating_sub(from.switches))),
            resident: to.resident,
            peak_resident: to.peak_resident,
            written: to
                .written
                .zip(from.written)
                .map(|(to, from)| per_delivery(number(to.saturating_sub(from)))),
        }
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "figures have far fewer than 2^52 units"
)]
fn number(count: u64) -> f64 {
    count as f64
}

/// For people.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let told = &self.told;
        write!(
            f,
            "{}: {} connections, MQTT {}",
            self.scenario, told.connections, told.mqtt
        )?;
        if told.transport != "plain" {
            write!(f, " over {}", told.transport)?;
        }
        if self.idle.is_none() {
            write!(f, ", QoS {}, {} B payload", told.qos, told.payload_bytes)?;
            match told.rate {
                Some(rate) => write!(f, ", open loop at {}/s", grouped(rate))?,
                None => write!(f, ", window {}, {} a write", told.window, told.batch)?,
            }
        }
        writeln!(f)?;
        for (name, value) in self.lines() {
            writeln!(f, "  {name:<18}{value}")?;
        }
        Ok(())
    }
}

impl Report {
    /// Names and values with units, in the order of interest.
    fn lines(&self) -> Vec<(&'static str, String)> {
        let mut lines = Vec::new();
        if let Some(tally) = self.warm_up.filter(|tally| !tally.is_clean()) {
            lines.push(("warm-up", faults(&tally)));
        }
        if let Some(figures) = &self.figures {
            lines.extend(figures.lines(self.scenario));
        }
        let connecting = &self.connecting;
        let mut text = format!("{}/s", grouped(connecting.per_second));
        if let Some(cpu) = connecting.broker_cpu_us {
            write_to(&mut text, format_args!(", broker {cpu:.1} µs"));
        }
        if let (Some(bytes), Some(more)) = (
            connecting.broker_bytes,
            connecting.broker_bytes_per_subscriber,
        ) {
            write_to(
                &mut text,
                format_args!(
                    " and {} B a connection, {} B more to subscribe",
                    grouped(bytes),
                    grouped(more),
                ),
            );
        }
        if let Some(share) = connecting.generator_cpu_share {
            write_to(
                &mut text,
                format_args!("; load generator {:.0} % of a core", share * 100.0),
            );
        }
        lines.push(("connecting", text));
        if let Some(idle) = &self.idle {
            let share = idle.broker_cpu_share.map_or_else(
                || "give --pid to see what the broker spends".to_owned(),
                |share| format!("broker {:.2} % of a core", share * 100.0),
            );
            lines.push(("idle", format!("{share}, over {:.1} s", idle.seconds)));
            let found = if idle.is_clean() {
                "every connection stayed, and silent".to_owned()
            } else {
                listed(&[(idle.closed, CLOSED), (idle.spoken_to, "spoken to")])
            };
            lines.push(("at the end", found));
        }
        lines
    }
}

impl Figures {
    fn lines(&self, scenario: &str) -> Vec<(&'static str, String)> {
        let tally = &self.tally;
        let rate =
            |count, rate| format!("{} messages, {}/s", grouped(number(count)), grouped(rate));
        let verdict = if tally.is_clean() {
            "every message arrived, once, in order, unaltered".to_owned()
        } else {
            faults(tally)
        };
        let latency = &self.latency;
        let mut lines = vec![
            ("delivery", verdict),
            (
                "delivered",
                rate(tally.delivered, self.delivered_per_second),
            ),
            (
                "published",
                rate(tally.published, self.published_per_second),
            ),
            (
                if scenario == "ping" {
                    "round trip"
                } else {
                    "latency"
                },
                format!(
                    "p50 {}, p90 {}, p99 {}, p99.9 {}, max {}",
                    micros(latency.p50),
                    micros(latency.p90),
                    micros(latency.p99),
                    micros(latency.p999),
                    micros(latency.max),
                ),
            ),
        ];
        if let Some(acknowledged) = &self.acknowledged {
            lines.push((
                "acknowledged",
                format!(
                    "p50 {}, p99 {}, max {}",
                    micros(acknowledged.p50),
                    micros(acknowledged.p99),
                    micros(acknowledged.max),
                ),
            ));
        }
        if let Some(broker) = &self.broker {
            lines.push(("broker", format!(
                "{:.2} µs CPU a delivery ({:.2} in the kernel), {:.0} % of a core, {:.3} switches a delivery",
                broker.cpu_us,
                broker.system_us,
                broker.cpu_share * 100.0,
                broker.switches,
            )));
            lines.push((
                "broker memory",
                format!(
                    "{:.1} MB, at most {:.1} MB",
                    number(broker.resident) / 1e6,
                    number(broker.peak_resident) / 1e6,
                ),
            ));
        }
        if let (Some(cpu), Some(share)) = (self.generator_cpu_us, self.generator_cpu_share) {
            lines.push((
                "load generator",
                format!(
                    "{cpu:.2} µs CPU a delivery, {:.0} % of a core",
                    share * 100.0
                ),
            ));
        }
        if let Some(other) = self.other_load {
            lines.push(("others", format!("{:.0} % of a core", other * 100.0)));
        }
        lines
    }
}

/// What went wrong, each with its count.
fn faults(tally: &Tally) -> String {
    listed(&[
        (tally.lost(), "lost"),
        (tally.duplicated, "duplicated"),
        (tally.reordered, "reordered"),
        (tally.belated, "belated"),
        (tally.corrupted, "corrupted"),
        (tally.misdelivered, "misdelivered"),
        (tally.refused, "refused"),
        (tally.closed, CLOSED),
    ])
}

const CLOSED: &str = "connections closed by the broker";

fn listed(named: &[(u64, &str)]) -> String {
    let faults = named.iter().filter(|(count, _)| *count > 0);
    let faults: Vec<_> = faults
        .map(|(count, name)| format!("{} {name}", grouped(number(*count))))
        .collect();
    faults.join(", ")
}

fn write_to(text: &mut String, arguments: fmt::Arguments<'_>) {
    // A string takes everything.
    let _ = text.write_fmt(arguments);
}

/// A latency in the unit that suits it.
pub fn micros(value: f64) -> String {
    if value < 1e3 {
        format!("{value:.0} µs")
    } else if value < 1e6 {
        format!("{:.2} ms", value / 1e3)
    } else {
        format!("{:.2} s", value / 1e6)
    }
}

/// A rounded number with thousands apart.
pub fn grouped(value: f64) -> String {
    let digits = format!("{:.0}", value.abs());
    let mut text = String::new();
    if value <= -0.5 {
        text.push('-');
    }
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tally::latencies;

    #[test]
    fn numbers_are_grouped_by_thousands() {
        for (value, expected) in [
            (0.0, "0"),
            (999.4, "999"),
            (1_000.0, "1,000"),
            (1_234_567.0, "1,234,567"),
            (-1_500.0, "-1,500"),
        ] {
            assert_eq!(grouped(value), expected);
        }
    }

    #[test]
    fn latencies_take_the_unit_that_suits_them() {
        assert_eq!(
            [12.3, 1_234.0, 2e6].map(micros),
            ["12 µs", "1.23 ms", "2.00 s"]
        );
    }

    #[test]
    fn faults_are_named_and_a_clean_run_says_so() {
        let figures =
            |tally| Figures::new(tally, Duration::from_secs(1), &latencies(), &latencies());
        let clean = figures(Tally {
            expected: 5,
            delivered: 5,
            ..Tally::default()
        });
        assert_eq!(
            clean.lines("pairs")[0].1,
            "every message arrived, once, in order, unaltered"
        );
        let faulty = figures(Tally {
            expected: 5,
            delivered: 3,
            duplicated: 1,
            ..Tally::default()
        });
        assert_eq!(faulty.lines("pairs")[0].1, "2 lost, 1 duplicated");
    }
}
