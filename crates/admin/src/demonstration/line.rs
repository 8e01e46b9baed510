//! The parts of the demonstration at work.

use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use tempfile::TempDir;
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval, timeout};
use unbroken_client::audit::{
    AuditedPublisher, AuditedSubscriber, Delivery, PublisherOptions, Scope, Spooled,
    SubscriberOptions,
};
use unbroken_client::{Client, Filter, Message, TotalDuration};
use unbroken_demo::{Injected, News, Place, Relay, Towards, random_lane};

use super::{CLIENT_PREFIX, FaultKind, PREFIX, Progress, held};
use crate::broker::Broker;
use crate::delivery::inside::Inside;
use crate::limits::DEMONSTRATION_TIME_MAX;
use crate::problem::Problem;
use crate::recorder::Recorder;
use crate::time::Moment;

pub(super) struct Line {
    relay: Relay,
    producer: Client,
    /// Until it is closed.
    output: Option<AuditedPublisher<Spooled>>,
    consumer: Client,
    input: AuditedSubscriber,
    topic: String,
    recorder: Recorder,
    progress: Arc<Mutex<Progress>>,
    /// Between two messages, faults that were ordered.
    ordered: Vec<FaultKind>,
    sent: u64,
    began: Instant,
    /// The producer's spool.
    _directory: TempDir,
    /// Its user is there while the clients are.
    _inside: Inside,
}

impl Line {
    /// Starts all parts, the last one first.
    pub(super) async fn start(
        broker: &Broker,
        recorder: Recorder,
    ) -> Result<(Self, Arc<Mutex<Progress>>), Problem> {
        let prefix = broker.handle().config().audit.prefix.clone();
        let rules = vec![format!("all {PREFIX}/#"), format!("all {prefix}/#")];
        let inside = Inside::open(broker, rules).await?;
        let starting = Self::assemble(inside, &prefix, recorder);
        let started = timeout(START_WITHIN, starting).await;
        let started = started.unwrap_or_else(|_| Err("it did not start within 10 s".to_owned()));
        let line = started.map_err(|why| {
            let detail = format!("the demonstration cannot start: {why}");
            Problem::new(StatusCode::CONFLICT, detail)
        })?;
        let progress = Arc::clone(&line.progress);
        Ok((line, progress))
    }

    async fn assemble(inside: Inside, prefix: &str, recorder: Recorder) -> Result<Self, String> {
        fn words(error: impl std::fmt::Display) -> String {
            error.to_string()
        }
        let directory = tempfile::tempdir().map_err(words)?;
        let target = inside.options(inside.address);
        let relay = Relay::start(target, Towards::Broker).await.map_err(words)?;
        let consumer = inside
            .options(inside.address)
            .client_id(format!("{CLIENT_PREFIX}consumer"))
            .connect()
            .await
            .map_err(words)?;
        let lane = random_lane();
        let topic = format!("{PREFIX}/readings");
        let filter = Filter::new(topic.as_str()).map_err(words)?;
        let input = SubscriberOptions::new(vec![filter])
            .prefix(prefix)
            .scope(Scope::FromBeginning);
        let input = input.open(&consumer).await.map_err(words)?;
        let producer = inside
            .options(relay.address())
            .client_id(format!("{CLIENT_PREFIX}producer"))
            .connect()
            .await
            .map_err(words)?;
        let output = PublisherOptions::new(lane).prefix(prefix);
        let output = output
            .open(&producer, directory.path())
            .await
            .map_err(words)?;
        let now = Moment::now();
        let time_max = u64::try_from(DEMONSTRATION_TIME_MAX.as_millis()).unwrap_or(0);
        let progress = Progress {
            state: "running",
            started_at: Some(now),
            ends_at: Some(Moment(now.0 + time_max)),
            topic: topic.clone(),
            lane: Some(lane.to_string()),
            ..Progress::none()
        };
        Ok(Self {
            relay,
            producer,
            output: Some(output),
            consumer,
            input,
            topic,
            recorder,
            progress: Arc::new(Mutex::new(progress)),
            ordered: Vec::new(),
            sent: 0,
            began: Instant::now(),
            _directory: directory,
            _inside: inside,
        })
    }

    /// Sends and receives until its time is over, or there are no more orders.
    pub(super) async fn run(mut self, mut orders: mpsc::Receiver<FaultKind>) -> Result<(), String> {
        let mut ticks = interval(BETWEEN);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while self.began.elapsed() < DEMONSTRATION_TIME_MAX {
            tokio::select! {
                _ = ticks.tick() => self.send().await?,
                kind = orders.recv() => {
                    let Some(kind) = kind else { break };
                    self.relay.inject(kind.injection()).map_err(|error| error.to_string())?;
                    self.ordered.push(kind);
                }
                delivery = self.input.next() => {
                    self.take(&delivery.map_err(|error| error.to_string())?);
                }
            }
        }
        if timeout(END_WITHIN, self.end()).await.is_err() {
            tracing::debug!("the demonstration did not end in its order");
        }
        Ok(())
    }

    /// Ends its parts, the first one first, so that no message is under way to one that has ended.
    async fn end(mut self) {
        if let Some(output) = self.output.take() {
            let mut closing = pin!(output.close(TotalDuration(QUIET)));
            loop {
                tokio::select! {
                    _ = &mut closing => break,
                    delivery = self.input.next() => match delivery {
                        Ok(delivery) => self.take(&delivery),
                        Err(_) => break,
                    }
                }
            }
        }
        while let Ok(Ok(delivery)) = timeout(QUIET, self.input.next()).await {
            self.take(&delivery);
        }
        self.producer.disconnect().await;
        let _ = self.input.unsubscribe().await; // it ends with the connection at the latest
        self.consumer.disconnect().await;
    }

    async fn send(&mut self) -> Result<(), String> {
        let reading = self.sent;
        let payload = format!(
            "{{\"reading\":{reading},\"celsius\":{}.{}}}",
            18 + reading / 10 % 8,
            reading % 10
        );
        let message = Message::new(self.topic.as_str(), payload.into_bytes());
        let message = message.map_err(|error| error.to_string())?;
        if self.producer.connection().is_some()
            && let Some(output) = &mut self.output
        {
            output
                .send(message)
                .await
                .map_err(|error| error.to_string())?;
            self.sent += 1;
            held(&self.progress).sent = self.sent;
        }
        for injected in self.relay.take_injected() {
            self.note_injected(&injected);
        }
        self.look_at_incidents();
        Ok(())
    }

    fn note_injected(&mut self, injected: &Injected) {
        let stamp = &injected.message.audit;
        let mut progress = held(&self.progress);
        let fault = progress.faults.iter_mut().find(|fault| {
            fault.injected_at.is_none() && fault.kind.injection() == injected.injection
        });
        if let Some(fault) = fault {
            fault.injected_at = Some(Moment::now().before(injected.at.elapsed()));
            fault.lane = Some(stamp.lane.to_string());
            fault.epoch = Some(stamp.epoch.0);
            fault.number = Some(stamp.sequence);
        }
    }

    /// What the broker has named.
    fn look_at_incidents(&self) {
        let mut progress = held(&self.progress);
        let now = Moment::now();
        for fault in progress
            .faults
            .iter_mut()
            .filter(|fault| fault.incident.is_none())
        {
            let (Some(lane), Some(epoch), Some(number)) = (&fault.lane, fault.epoch, fault.number)
            else {
                continue;
            };
            let near = number..number.saturating_add(2); // of two that change places either is named
            let named = self.recorder.with_incidents(|all| {
                let mut found = near.filter_map(|number| {
                    let incident = all.covering(lane, epoch, number)?;
                    fault
                        .kind
                        .is_called(&incident.kind)
                        .then(|| (number, incident.id, incident.kind.clone()))
                });
                found.next()
            });
            if let Some((number, id, kind)) = named {
                fault.incident = Some(id);
                fault.named_at.get_or_insert(now);
                fault.named.get_or_insert(kind);
                if let Some(at) = fault.repaired_at {
                    self.recorder
                        .with_incidents(|all| all.repaired(lane, epoch, number, at));
                }
            }
        }
    }

    fn take(&mut self, delivery: &Delivery) {
        for injected in self.relay.take_injected() {
            self.note_injected(&injected);
        }
        let news = News::of(delivery, &self.input);
        {
            let mut progress = held(&self.progress);
            if let Delivery::Message(message) = delivery {
                progress.received += 1;
                progress.verified += u64::from(message.is_new());
            }
        }
        for item in news {
            match item {
                News::Fault { fault, .. } => self.named(fault.place, &format!("{:?}", fault.kind)),
                News::Overtaken { place, .. } => self.named(place, "Reordered"),
                News::Repaired(place) => self.repaired(place),
                _ => {}
            }
        }
    }

    fn named(&self, place: Place, name: &str) {
        let name = name.to_lowercase();
        let now = Moment::now();
        let mut progress = held(&self.progress);
        let fault = progress.faults.iter_mut().find(|fault| {
            fault.named_at.is_none() && fault.is_at(place) && fault.kind.is_called(&name)
        });
        if let Some(fault) = fault {
            fault.named_at = Some(now);
            fault.named = Some(name);
            if !fault.kind.needs_repair() {
                // The consumer hands each message on once, and in its place.
                fault.repaired_at = Some(now);
            }
        }
    }

    fn repaired(&self, place: Place) {
        let now = Moment::now();
        let mut progress = held(&self.progress);
        let fault = progress.faults.iter_mut().find(|fault| {
            fault.repaired_at.is_none() && fault.kind.needs_repair() && fault.is_at(place)
        });
        if let Some(fault) = fault {
            fault.repaired_at = Some(now);
            let named = fault.named_at.get_or_insert(now);
            *named = (*named).min(now);
            if let (Some(lane), Some(epoch)) = (&fault.lane, fault.epoch) {
                let number = place.number;
                self.recorder
                    .with_incidents(|all| all.repaired(lane, epoch, number, now));
            }
        }
    }
}

impl super::Fault {
    fn is_at(&self, place: Place) -> bool {
        let reach = u64::from(self.kind == FaultKind::Reorder);
        self.lane.as_deref() == Some(&*place.lane.to_string())
            && self.epoch == Some(place.epoch.0)
            && self.number.is_some_and(|number| {
                (number..=number.saturating_add(reach)).contains(&place.number)
            })
    }
}

impl FaultKind {
    /// Whether a fault of this name is what was injected.
    fn is_called(self, name: &str) -> bool {
        match self {
            Self::Drop => name == "lost",
            Self::Duplicate => matches!(name, "duplicated" | "repeated"),
            Self::Reorder => name == "reordered",
            Self::Alter => matches!(name, "altered" | "lost" | "injected"),
        }
    }
}

/// Between two messages.
const BETWEEN: Duration = Duration::from_millis(50);
const START_WITHIN: Duration = Duration::from_secs(10);
/// For all parts to end in their order.
const END_WITHIN: Duration = Duration::from_secs(3);
/// Without a message for so long, none is under way.
const QUIET: Duration = Duration::from_millis(200);
