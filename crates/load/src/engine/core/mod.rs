//! The state of a worker and what each readable or writable socket does to it.

mod closing;
mod publishing;
mod receiving;

use super::{
    Common, Outcome,
    connection::{Connection, Received},
    publisher::Publisher,
    schedule::Schedule,
};
use crate::{
    error::LoadError,
    ledger::Lane,
    plan::{Client as PlannedClient, Flow, Plan},
    settings::{Extent, Settings},
    stamp::Payloads,
    tally::{CLASSES, Live, Tally, latencies},
    timer::Timer,
    wire::{self, Frame},
};
use hdrhistogram::Histogram;
use mio::{Registry, Token, event::Event};
use std::{
    collections::VecDeque,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

/// What a client has reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// Not begun.
    Planned,
    /// The socket is being connected.
    Opening,
    /// CONNECT is out.
    Greeting,
    /// SUBSCRIBE is out.
    Subscribing,
    /// Nothing is owed.
    Up,
    /// The broker closed it.
    Closed,
}

const STAGES: usize = 6;
/// Read at a time, if frames are not larger.
const BUFFER: usize = 128 << 10;
/// An open loop stops feeding a socket that has so much waiting; its messages stay due.
const BACKLOG: usize = 1 << 20;
/// Messages of an open loop that one turn may send before it reads again.
const BURST: u32 = 256;
/// How often the live counts are refreshed.
const SHOW_EVERY_NS: u64 = 100_000_000;
const TIMER: Token = Token(usize::MAX);

#[derive(Debug)]
struct Client {
    plan: PlannedClient,
    stage: Stage,
    connection: Option<Connection>,
    lanes: Vec<Lane>,
    /// QoS 2 messages received and not yet released, in order.
    unreleased: VecDeque<(u16, Earning)>,
    publisher: Option<Publisher>,
    /// It has queued bytes and stands in the list of those to flush.
    dirty: bool,
}

#[derive(Debug)]
pub(super) struct Core {
    registry: Registry,
    common: Common,
    properties: bool,
    payloads: Payloads,
    topics: Vec<String>,
    first_flow: u32,
    flows: Vec<Flow>,
    /// The next number of each flow.
    sequences: Vec<u32>,
    /// The number with which each flow began this phase.
    firsts: Vec<u32>,
    clients: Vec<Client>,
    stages: [usize; STAGES],
    /// Clients that start messages, for the open loop's turns.
    initiators: Vec<usize>,
    ready: VecDeque<usize>,
    dirty: Vec<usize>,
    unread: Vec<usize>,
    buffer: Vec<u8>,
    timer: Timer,
    schedule: Option<Schedule>,
    publishing: bool,
    unacknowledged: u64,
    awaiting_release: u64,
    /// When the phase's first message was to be sent.
    first_ns: Option<u64>,
    /// When the last delivery or acknowledgement came.
    last_ns: u64,
    /// When anything last came or went.
    moved_ns: u64,
    tally: Tally,
    /// Overtaken, and not here.
    missing: u64,
    /// The counts before this phase.
    earlier: Tally,
    latency: Histogram<u64>,
    acknowledged: Histogram<u64>,
    classes: [u64; CLASSES],
    live: Arc<Live>,
    shown_ns: u64,
}

/// What a delivery does for the one who may send more because of it.
#[derive(Debug, Clone, Copy)]
struct Earning {
    client: usize,
    credit: u64,
    /// When the message was to be sent; a reply carries it back.
    question_ns: u64,
}

/// Why the bytes of a connection are not read further.
enum Stop {
    /// Not MQTT, or not what a broker may send now.
    Garbage,
    /// The run cannot go on.
    Fatal(LoadError),
}

impl Core {
    pub(super) fn new(
        registry: Registry,
        common: Common,
        plan: Plan,
        live: Arc<Live>,
    ) -> Result<Self, LoadError> {
        let timer = Timer::new(&registry, TIMER)?;
        let payloads = if common.settings.stay {
            // They are written to a disk, and how much that is may be looked at.
            Payloads::fresh(common.settings.payload)
        } else {
            Payloads::new(common.settings.payload)
        };
        let clients: Vec<_> = plan.clients.into_iter().map(Client::new).collect();
        let initiators = clients.iter().enumerate().filter_map(|(index, client)| {
            let publisher = client.publisher.as_ref()?;
            (!publisher.replies).then_some(index)
        });
        let mut stages = [0; STAGES];
        stages[Stage::Planned as usize] = clients.len();
        Ok(Self {
            properties: common.settings.identity.has_properties(),
            buffer: vec![0; BUFFER.max(payloads.len() * 2 + 4096)],
            sequences: vec![0; plan.flows.len()],
            firsts: vec![0; plan.flows.len()],
            initiators: initiators.collect(),
            registry,
            common,
            payloads,
            topics: plan.topics,
            first_flow: plan.first_flow,
            flows: plan.flows,
            clients,
            stages,
            ready: VecDeque::new(),
            dirty: Vec::new(),
            unread: Vec::new(),
            timer,
            schedule: None,
            publishing: false,
            unacknowledged: 0,
            awaiting_release: 0,
            first_ns: None,
            last_ns: 0,
            moved_ns: 0,
            tally: Tally::default(),
            missing: 0,
            earlier: Tally::default(),
            latency: latencies(),
            acknowledged: latencies(),
            classes: [0; CLASSES],
            live,
            shown_ns: 0,
        })
    }

    pub(super) fn settings(&self) -> &Settings {
        &self.common.settings
    }

    pub(super) fn len(&self) -> usize {
        self.clients.len()
    }

    pub(super) fn count(&self, stage: Stage) -> usize {
        self.stages[stage as usize]
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.common.epoch.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn enter(&mut self, index: usize, stage: Stage) {
        let client = &mut self.clients[index];
        self.stages[client.stage as usize] -= 1;
        self.stages[stage as usize] += 1;
        client.stage = stage;
    }

    // Phases

    pub(super) fn open(&mut self, index: usize) -> Result<(), LoadError> {
        let Settings {
            target, transport, ..
        } = self.settings();
        let opened = Connection::open((target, transport), &self.registry, Token(index));
        let connection = opened.map_err(|source| self.cannot_connect(index, source))?;
        self.clients[index].connection = Some(connection);
        self.enter(index, Stage::Opening);
        let Settings { identity, stay, .. } = &*self.common.settings;
        let client = &mut self.clients[index];
        let stays = *stay && !client.plan.filters.is_empty();
        let mut packet = Vec::new();
        let encoded = identity.connect(&client.plan.id, stays, &mut packet);
        if let Some(connection) = &mut client.connection {
            connection.queue(&packet);
        }
        encoded.map_err(|source| self.greeting_failed(index, source))
    }

    pub(super) fn subscribe(&mut self, index: usize) -> Result<(), LoadError> {
        let client = &mut self.clients[index];
        let Some(connection) = client
            .connection
            .as_mut()
            .filter(|_| !client.plan.filters.is_empty())
        else {
            return Ok(());
        };
        let settings = &self.common.settings;
        let mut packet = Vec::new();
        let encoded = settings
            .identity
            .subscribe(&client.plan.filters, settings.qos, &mut packet);
        let sent = connection.send(&packet);
        encoded.map_err(|source| self.greeting_failed(index, source))?;
        self.enter(index, Stage::Subscribing);
        if sent.is_err() {
            self.close(index);
        }
        Ok(())
    }

    /// Starts a phase. What an earlier one owes counts for nothing in it.
    pub(super) fn begin(&mut self, extent: Extent) {
        let now_ns = self.now_ns();
        let settings = Arc::clone(&self.common.settings);
        let publishers = self.initiators.len() as u64;
        let remaining = match extent {
            Extent::Time(_) => u64::MAX,
            Extent::Messages(messages) => messages,
        };
        self.publishing = true;
        self.first_ns = None;
        self.last_ns = now_ns;
        self.moved_ns = now_ns;
        self.latency.reset();
        self.acknowledged.reset();
        self.classes = [0; CLASSES];
        self.earlier = self.tally;
        self.firsts.clone_from(&self.sequences);
        self.schedule = settings.rate.map(|rate| {
            // Workers take turns too: each begins a fraction of the common interval later.
            let share = f64::from(settings.threads);
            Schedule::new(now_ns, rate / share, remaining.saturating_mul(publishers))
        });
        self.awaiting_release = 0;
        for index in 0..self.clients.len() {
            self.clients[index].unreleased.clear();
            if let Some(publisher) = &mut self.clients[index].publisher {
                publisher.renew(remaining);
                self.make_ready(index);
            }
        }
    }

    pub(super) fn is_publishing(&self) -> bool {
        self.publishing
    }

    pub(super) fn stop_publishing(&mut self) {
        self.publishing = false;
        if let Some(schedule) = &mut self.schedule {
            schedule.stop();
        }
    }

    /// Everything that was to be sent is sent, delivered and acknowledged.
    pub(super) fn is_settled(&self) -> bool {
        let all_sent =
            !self.publishing || self.initiators.iter().all(|index| self.is_spent(*index));
        all_sent
            && self.tally.delivered - self.earlier.delivered
                >= self.tally.expected - self.earlier.expected
            && self.unacknowledged == 0
            && self.awaiting_release == 0
    }

    fn is_spent(&self, index: usize) -> bool {
        let client = &self.clients[index];
        client.stage == Stage::Closed
            || client
                .publisher
                .as_ref()
                .is_none_or(|publisher| publisher.remaining == 0)
    }

    /// How long nothing has moved that should have.
    pub(super) fn idle_for(&self) -> Duration {
        let now_ns = self.now_ns();
        let next = self.schedule.as_ref().and_then(Schedule::next);
        if next.is_some_and(|(_, due_ns)| due_ns > now_ns) {
            return Duration::ZERO;
        }
        Duration::from_nanos(now_ns.saturating_sub(self.moved_ns.max(self.last_ns)))
    }

    /// How long the next turn may wait for readiness.
    pub(super) fn may_wait(&self, limit: Duration) -> Result<Duration, LoadError> {
        if !self.ready.is_empty() || !self.unread.is_empty() {
            return Ok(Duration::ZERO);
        }
        let Some(wait) = self
            .schedule
            .as_ref()
            .and_then(|schedule| schedule.wait(self.now_ns()))
        else {
            return Ok(limit);
        };
        // Whole milliseconds are too coarse; without a finer timer the loop turns without waiting.
        let armed = !wait.is_zero() && wait < limit && self.timer.arm(wait)?;
        Ok(if armed || wait >= limit {
            limit
        } else {
            Duration::ZERO
        })
    }

    /// Reads every socket once. Bytes on it are for one who did not ask for them.
    pub(super) fn read_all(&mut self) {
        for index in 0..self.clients.len() {
            let Some(connection) = self.clients[index].connection.as_mut() else {
                continue;
            };
            match connection.receive(&mut self.buffer) {
                Ok(Received::Nothing) => {}
                Ok(Received::Bytes { .. }) => self.tally.misdelivered += 1,
                Ok(Received::End) | Err(_) => self.close(index),
            }
        }
    }

    // What must not happen before messages flow

    // Readiness

    pub(super) fn on_ready(&mut self, event: &Event) -> Result<(), LoadError> {
        let Token(index) = event.token();
        if event.token() == TIMER || index >= self.clients.len() {
            return Ok(());
        }
        if event.is_writable() || event.is_error() {
            self.on_writable(index)?;
        }
        if event.is_readable() || event.is_read_closed() {
            self.read(index)?;
        }
        Ok(())
    }

    fn on_writable(&mut self, index: usize) -> Result<(), LoadError> {
        let client = &mut self.clients[index];
        let Some(connection) = client.connection.as_mut() else {
            return Ok(());
        };
        if client.stage == Stage::Opening {
            let opened = connection.finish_opening();
            if !opened.map_err(|source| self.cannot_connect(index, source))? {
                return Ok(());
            }
            self.enter(index, Stage::Greeting);
        }
        let client = &mut self.clients[index];
        let Some(connection) = client.connection.as_mut() else {
            return Ok(());
        };
        if connection.is_blocked() {
            if connection.unblock().is_err() {
                self.close(index);
            } else {
                self.make_ready(index);
            }
        }
        Ok(())
    }

    /// Goes on where a full buffer ended a read.
    pub(super) fn resume_reading(&mut self) -> Result<(), LoadError> {
        for _ in 0..self.unread.len() {
            if let Some(index) = self.unread.pop() {
                self.read(index)?;
            }
        }
        Ok(())
    }

    fn read(&mut self, index: usize) -> Result<(), LoadError> {
        let Some(connection) = self.clients[index].connection.as_mut() else {
            return Ok(());
        };
        let mut buffer = std::mem::take(&mut self.buffer);
        let received = connection.receive(&mut buffer);
        let outcome = match received {
            Ok(Received::Bytes { filled, more }) => {
                if more {
                    self.unread.push(index);
                }
                self.on_bytes(index, &buffer[..filled])
            }
            Ok(Received::Nothing) => Ok(()),
            Ok(Received::End) | Err(_) => {
                self.close(index);
                Ok(())
            }
        };
        self.buffer = buffer;
        outcome
    }

    fn on_bytes(&mut self, index: usize, bytes: &[u8]) -> Result<(), LoadError> {
        let now_ns = self.now_ns();
        let mut rest = bytes;
        loop {
            let step = match wire::cut(rest) {
                Ok(Some(frame)) => {
                    rest = &rest[frame.bytes.len()..];
                    self.on_frame(index, frame, now_ns)
                }
                Ok(None) => break,
                Err(wire::NotMqtt) => Err(Stop::Garbage),
            };
            match step {
                Ok(()) => {}
                Err(Stop::Fatal(error)) => return Err(error),
                Err(Stop::Garbage) => {
                    self.tally.corrupted += 1;
                    self.close(index);
                    return Ok(());
                }
            }
        }
        if let Some(connection) = self.clients[index].connection.as_mut() {
            connection.keep(rest);
        }
        Ok(())
    }

    fn on_frame(&mut self, index: usize, frame: Frame<'_>, now_ns: u64) -> Result<(), Stop> {
        match frame.kind() {
            wire::PUBLISH => self.on_publish(index, frame, now_ns),
            wire::PUBACK | wire::PUBCOMP => {
                self.on_acknowledged(index, frame, now_ns);
                Ok(())
            }
            wire::PUBREC => self.on_received(index, frame, now_ns),
            wire::PUBREL => self.on_release(index, frame, now_ns),
            wire::CONNACK => self.on_accepted(index, frame).map_err(Stop::Fatal),
            wire::SUBACK => self.on_granted(index, frame).map_err(Stop::Fatal),
            wire::DISCONNECT => {
                self.close(index);
                Ok(())
            }
            _ => Err(Stop::Garbage),
        }
    }

    fn on_accepted(&mut self, index: usize, frame: Frame<'_>) -> Result<(), LoadError> {
        let settings = Arc::clone(&self.common.settings);
        let accepted = settings.identity.accepted(frame.bytes);
        let accepted = accepted.map_err(|source| self.greeting_failed(index, source))?;
        if let Some(publisher) = &mut self.clients[index].publisher {
            publisher.max_unacknowledged = settings.window.min(accepted.receive_maximum.into());
        }
        self.enter(index, Stage::Up);
        Ok(())
    }

    fn on_granted(&mut self, index: usize, frame: Frame<'_>) -> Result<(), LoadError> {
        let settings = &self.common.settings;
        let filters = &self.clients[index].plan.filters;
        let granted = settings
            .identity
            .granted(frame.bytes, filters, settings.qos);
        granted.map_err(|source| self.greeting_failed(index, source))?;
        self.enter(index, Stage::Up);
        Ok(())
    }

    // Being watched

    pub(super) fn show_sometimes(&mut self) {
        let now_ns = self.now_ns();
        if now_ns.saturating_sub(self.shown_ns) > SHOW_EVERY_NS {
            self.shown_ns = now_ns;
            self.show();
        }
    }

    pub(super) fn show(&self) {
        self.live
            .clients
            .store(self.count(Stage::Up) as u64, Ordering::Relaxed);
        self.live.show(&self.tally, self.missing, &self.classes);
    }
}

impl Client {
    fn new(mut plan: PlannedClient) -> Self {
        Self {
            publisher: plan.publisher.take().map(Publisher::new),
            lanes: plan.lanes.clone().map(|_| Lane::default()).collect(),
            unreleased: VecDeque::new(),
            plan,
            stage: Stage::Planned,
            connection: None,
            dirty: false,
        }
    }
}

fn topic_of(flow: &Flow, sequence: u32) -> usize {
    let count = flow.topics.len().max(1);
    flow.topics.start + sequence as usize % count
}
