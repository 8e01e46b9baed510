//! What a run is told, complete and cross-checked.

use crate::{
    error::LoadError,
    greeting::Identity,
    plan::Scenario,
    transport::{Target, Transport},
};
use std::time::Duration;

/// Everything a run depends on.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The broker.
    pub target: Target,
    /// What clients speak below MQTT.
    pub transport: Transport,
    /// How clients present themselves.
    pub identity: Identity,
    /// What they do.
    pub scenario: Scenario,
    /// Bytes; the stamp of 16 is the least.
    pub payload: usize,
    /// Whether the sessions of subscribers outlive their connections. Payloads are then filled with
    /// bytes that no compression makes fewer.
    pub stay: bool,
    /// 0, 1 or 2, for publishing and subscribing alike.
    pub qos: u8,
    /// Messages that a publisher may have undelivered. Without meaning in an open loop and in
    /// `ping`.
    pub window: u32,
    /// Messages in one write.
    pub batch: u32,
    /// Messages per second of all publishers together; none is a closed loop, as fast as
    /// deliveries come.
    pub rate: Option<f64>,
    /// How long messages are counted.
    pub extent: Extent,
    /// How long they flow before that.
    pub warm_up: Duration,
    /// Threads that drive connections.
    pub threads: u32,
    /// Connections being opened at a time.
    pub connecting: u32,
    /// The broker's process, to read its CPU time and memory.
    pub pid: Option<u32>,
}

/// When the measured phase ends.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Extent {
    /// After this time.
    Time(Duration),
    /// After so many messages of each publisher.
    Messages(u64),
}

/// The largest payload that fits a frame by far; a run is no test of the frame limit.
const MAX_PAYLOAD: usize = 64 << 20;
/// Descriptors beside the connections: the standard ones, epoll, timers, logs.
const OTHER_DESCRIPTORS: u64 = 64;

impl Settings {
    /// The scenario with the defaults of the command line.
    pub fn new(target: impl Into<Target>, scenario: Scenario) -> Self {
        Self {
            target: target.into(),
            transport: Transport::default(),
            identity: Identity::default(),
            scenario,
            payload: 16,
            stay: false,
            qos: 0,
            window: 100,
            batch: 1,
            rate: None,
            extent: Extent::Time(Duration::from_secs(5)),
            warm_up: Duration::from_millis(500),
            threads: 1,
            connecting: 64,
            pid: None,
        }
    }

    pub(crate) fn check(&self, descriptors: u64) -> Result<(), LoadError> {
        let wrong = |text: &str| Err(LoadError::Settings(text.to_owned()));
        let connections = self.scenario.connections();
        if connections == 0 {
            return wrong("the scenario has no connection; give it some");
        }
        if u64::from(connections) + OTHER_DESCRIPTORS > descriptors {
            return Err(LoadError::Descriptors {
                wanted: connections,
                limit: descriptors,
            });
        }
        if self.payload > MAX_PAYLOAD {
            return wrong("payloads above 64 MiB are not for this tool");
        }
        if self.window == 0 || self.batch == 0 || self.threads == 0 || self.connecting == 0 {
            return wrong("window, batch, threads and connecting start at 1");
        }
        if self.window > u32::from(u16::MAX) {
            return wrong("a window above 65535 would use packet identifiers twice");
        }
        if self.qos > 2 {
            return wrong("QoS is 0, 1 or 2");
        }
        if self.batch > self.window {
            return wrong("a batch larger than the window would never be sent; raise --window");
        }
        if self.batch > 1 && (!self.scenario.repeats_topic() || self.rate.is_some()) {
            return wrong(
                "--batch needs publishers that repeat one topic at full speed: pairs, fan-in or fan-out",
            );
        }
        if self.threads > self.scenario.parts() {
            return wrong(
                "this scenario cannot be cut into so many threads; fan-in, fan-out and tree take one",
            );
        }
        if self
            .rate
            .is_some_and(|rate| !rate.is_finite() || rate <= 0.0)
        {
            return wrong("--rate is a positive number of messages per second");
        }
        if self.rate.is_some() && matches!(self.scenario, Scenario::Ping { .. }) {
            return wrong("ping is a closed loop by nature; use pairs with --rate");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::SocketAddr;

    #[test]
    fn contradictions_are_refused_before_anything_is_opened() {
        let good = Settings::new(
            SocketAddr::from(([127, 0, 0, 1], 1)),
            Scenario::Pairs { connections: 10 },
        );
        assert!(good.check(1_000).is_ok());
        let bad = [
            Settings {
                batch: 101,
                ..good.clone()
            },
            Settings {
                window: 0,
                ..good.clone()
            },
            Settings {
                window: 70_000,
                ..good.clone()
            },
            Settings {
                qos: 3,
                ..good.clone()
            },
            Settings {
                threads: 6,
                ..good.clone()
            },
            Settings {
                rate: Some(f64::NAN),
                ..good.clone()
            },
            Settings {
                rate: Some(1.0),
                scenario: Scenario::Ping {
                    pairs: 1,
                    listeners: 0,
                },
                ..good.clone()
            },
            Settings {
                scenario: Scenario::Pairs { connections: 1 },
                ..good.clone()
            },
            Settings {
                threads: 2,
                scenario: Scenario::FanOut { subscribers: 5 },
                ..good.clone()
            },
        ];
        for settings in bad {
            assert!(settings.check(1_000).is_err(), "{settings:?}");
        }
        assert!(matches!(good.check(20), Err(LoadError::Descriptors { .. })));
    }
}
