//! One run: workers on their threads, phases in step, and the kernel's figures read between the
//! phases.
//!
//! The CPU time that a report gives belongs to the measured phase alone: it is read when the
//! warm-up has settled and again when the last delivery and acknowledgement has come. Deliberately
//! absent: any drawing; an [`Observer`] sees progress and may stop the run.

use crate::{
    engine::{Common, Engine, Outcome},
    error::LoadError,
    plan::{Plan, Scenario},
    process::{Process, Usage, machine_busy, make_descriptor_table, raise_descriptor_limit},
    report::{Broker, Connecting, Figures, Idle, Report},
    settings::{Extent, Settings},
    tally::{CLASSES, Live, Tally, latencies},
};
use std::{
    ops::ControlFlow,
    sync::{
        Arc,
        atomic::{
            AtomicBool,
            Ordering::{Acquire, Relaxed},
        },
        mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    },
    thread,
    time::{Duration, Instant},
};

/// Sees a run while it goes on.
pub trait Observer {
    /// Called about ten times a second, also while nothing happens. `Break` ends the run.
    fn observe(&mut self, progress: &Progress) -> ControlFlow<()>;
}

/// Sees nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Unobserved;

impl Observer for Unobserved {
    fn observe(&mut self, _progress: &Progress) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}

/// What the run is about at the moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Opening connections.
    Connecting,
    /// Sending SUBSCRIBE, waiting for SUBACK.
    Subscribing,
    /// Messages flow, nothing is counted yet.
    WarmingUp,
    /// Messages are counted.
    Measuring,
    /// Connections are open and silent.
    Idling,
}

/// A moment of a run; counts are those since it began.
#[derive(Debug, Clone)]
pub struct Progress {
    /// The phase.
    pub phase: Phase,
    /// Since the phase began.
    pub in_phase: Duration,
    /// How long the phase is meant to take, if that is known.
    pub planned: Option<Duration>,
    /// Clients for whom the broker owes no answer.
    pub clients: u64,
    /// Messages sent.
    pub published: u64,
    /// Messages that came.
    pub delivered: u64,
    /// Missing between others that came, duplicated, reordered, belated, corrupted, misdelivered,
    /// refused, closed.
    pub faults: u64,
    /// Deliveries of this phase by latency: below 16 µs, 32 µs, 64 µs and so on.
    pub latency_classes: [u64; CLASSES],
}

const OBSERVE_EVERY: Duration = Duration::from_millis(100);

/// Runs a scenario to its end.
pub fn run(settings: Settings, observer: &mut dyn Observer) -> Result<Report, LoadError> {
    settings.check(raise_descriptor_limit())?;
    make_descriptor_table(settings.scenario.connections());
    let mut crew = Crew::hire(Arc::new(settings), observer)?;
    let report = crew.work();
    crew.dismiss();
    report
}

#[derive(Debug, Clone, Copy)]
enum Order {
    Connect,
    Subscribe,
    Run(Extent),
    /// At what has become of silent connections.
    Look,
}

type Answer = Result<Option<Outcome>, LoadError>;

/// The workers and what leads them.
struct Crew<'a> {
    settings: Arc<Settings>,
    observer: &'a mut dyn Observer,
    stop: Arc<AtomicBool>,
    workers: Vec<Worker>,
    answers: Receiver<Answer>,
    /// Mean over the topics that are published to.
    topic_bytes: f64,
}

struct Worker {
    orders: Sender<Order>,
    live: Arc<Live>,
    thread: thread::JoinHandle<()>,
}

/// The kernel's figures at one moment.
#[derive(Debug, Clone, Copy)]
struct Sample {
    at: Instant,
    broker: Option<Usage>,
    own: Option<Usage>,
    machine: Option<Duration>,
}

impl<'a> Crew<'a> {
    fn hire(settings: Arc<Settings>, observer: &'a mut dyn Observer) -> Result<Self, LoadError> {
        let stop = Arc::new(AtomicBool::new(false));
        let common = Common {
            settings: Arc::clone(&settings),
            epoch: Instant::now(),
            stop: Arc::clone(&stop),
        };
        let prefix = prefix();
        let (answer, answers) = channel();
        let mut workers = Vec::new();
        let mut lengths = Vec::new();
        for number in 0..settings.threads {
            let part = (number, settings.threads);
            let plan = Plan::new(settings.scenario, &prefix, settings.window, part);
            lengths.extend(plan.topics.iter().map(String::len));
            let live = Arc::new(Live::default());
            let engine = Engine::new(common.clone(), plan, Arc::clone(&live))?;
            let (orders, received) = channel();
            let answer = answer.clone();
            let thread = thread::Builder::new()
                .name(format!("load-{number}"))
                .spawn(move || obey(engine, &received, &answer))?;
            workers.push(Worker {
                orders,
                live,
                thread,
            });
        }
        Ok(Self {
            settings,
            observer,
            stop,
            workers,
            answers,
            topic_bytes: mean(&lengths),
        })
    }

    fn work(&mut self) -> Result<Report, LoadError> {
        let start = self.sample()?;
        self.command(Order::Connect, Phase::Connecting, None)?;
        let connected = self.sample()?;
        self.command(Order::Subscribe, Phase::Subscribing, None)?;
        let subscribed = self.sample()?;
        let connecting = connecting(&self.settings, start, connected, subscribed);
        let mut report = Report::new(&self.settings, self.topic_bytes, connecting);
        if let Scenario::Idle { .. } = self.settings.scenario {
            let quiet = match self.settings.extent {
                Extent::Time(quiet) => quiet,
                Extent::Messages(_) => Duration::from_secs(1),
            };
            self.idle(quiet)?;
            // Looking comes when all is measured.
            let end = self.sample()?;
            let found = total(&self.command(Order::Look, Phase::Idling, Some(quiet))?);
            report.idle = Some(idle(subscribed, end, &found));
            return Ok(report);
        }
        let warm_up = self.settings.warm_up;
        if !warm_up.is_zero() {
            let order = Order::Run(Extent::Time(warm_up));
            let outcomes = self.command(order, Phase::WarmingUp, Some(warm_up))?;
            report.warm_up = Some(total(&outcomes));
        }
        let extent = self.settings.extent;
        let planned = match extent {
            Extent::Time(time) => Some(time),
            Extent::Messages(_) => None,
        };
        let before = self.sample()?;
        let outcomes = self.command(Order::Run(extent), Phase::Measuring, planned)?;
        let after = self.sample()?;
        report.figures = Some(figures(&outcomes, before, after));
        Ok(report)
    }

    /// Gives all workers an order and waits for all answers; the first error wins.
    fn command(
        &mut self,
        order: Order,
        phase: Phase,
        planned: Option<Duration>,
    ) -> Result<Vec<Outcome>, LoadError> {
        for worker in &self.workers {
            worker
                .orders
                .send(order)
                .map_err(|_| LoadError::WorkerLost)?;
        }
        let began = Instant::now();
        let mut outcomes = Vec::new();
        let mut failed = None;
        let mut missing = self.workers.len();
        while missing > 0 {
            match self.answers.recv_timeout(OBSERVE_EVERY) {
                Ok(answer) => {
                    missing -= 1;
                    match answer {
                        Ok(outcome) => outcomes.extend(outcome),
                        Err(error) => {
                            // The others need not go on.
                            self.stop.store(true, Relaxed);
                            failed.get_or_insert(error);
                        }
                    }
                }
                Err(RecvTimeoutError::Timeout) if self.lost_a_worker() => {
                    return Err(LoadError::WorkerLost);
                }
                Err(RecvTimeoutError::Timeout) => self.observe(phase, began, planned),
                Err(RecvTimeoutError::Disconnected) => return Err(LoadError::WorkerLost),
            }
        }
        failed.map_or(Ok(outcomes), Err)
    }

    /// A worker ends only when told to; one that ended before will never answer.
    fn lost_a_worker(&self) -> bool {
        self.workers
            .iter()
            .any(|worker| worker.thread.is_finished())
    }

    /// Nothing is to happen; what the broker does then is the question.
    fn idle(&mut self, quiet: Duration) -> Result<(), LoadError> {
        let began = Instant::now();
        while let Some(rest) = quiet
            .checked_sub(began.elapsed())
            .filter(|rest| !rest.is_zero())
        {
            match self.answers.recv_timeout(rest.min(OBSERVE_EVERY)) {
                Err(RecvTimeoutError::Timeout) => self.observe(Phase::Idling, began, Some(quiet)),
                _ => return Err(LoadError::WorkerLost),
            }
            if self.stop.load(Relaxed) {
                return Err(LoadError::Stopped);
            }
        }
        Ok(())
    }

    fn observe(&mut self, phase: Phase, began: Instant, planned: Option<Duration>) {
        let mut progress = Progress {
            phase,
            in_phase: began.elapsed(),
            planned,
            clients: 0,
            published: 0,
            delivered: 0,
            faults: 0,
            latency_classes: [0; CLASSES],
        };
        for worker in &self.workers {
            progress.clients += worker.live.clients.load(Relaxed);
            progress.published += worker.live.published.load(Acquire);
            progress.delivered += worker.live.delivered.load(Relaxed);
            progress.faults += worker.live.faults.load(Relaxed);
            for (sum, class) in progress
                .latency_classes
                .iter_mut()
                .zip(&worker.live.classes)
            {
                *sum += class.load(Relaxed);
            }
        }
        if self.observer.observe(&progress).is_break() {
            self.stop.store(true, Relaxed);
        }
    }

    fn sample(&self) -> Result<Sample, LoadError> {
        let broker = self.settings.pid.map(|pid| {
            let usage = Process::new(pid).usage();
            usage.map_err(|source| LoadError::Process { pid, source })
        });
        Ok(Sample {
            broker: broker.transpose()?,
            own: Process::own().usage().ok(),
            machine: machine_busy().ok(),
            at: Instant::now(),
        })
    }

    fn dismiss(self) {
        self.stop.store(true, Relaxed);
        for worker in self.workers {
            drop(worker.orders);
            // A worker that panicked has already shown up as a lost one.
            drop(worker.thread.join());
        }
    }
}

/// What a worker's thread does.
fn obey(mut engine: Engine, orders: &Receiver<Order>, answers: &Sender<Answer>) {
    for order in orders {
        let answer = match order {
            Order::Connect => engine.connect().map(|()| None),
            Order::Subscribe => engine.subscribe().map(|()| None),
            Order::Run(extent) => engine.run(extent).map(Some),
            Order::Look => Ok(Some(engine.look())),
        };
        if answers.send(answer).is_err() {
            break;
        }
    }
    engine.disconnect();
}

#[expect(
    clippy::cast_precision_loss,
    reason = "lengths of topics, and how many there are"
)]
fn mean(lengths: &[usize]) -> f64 {
    lengths.iter().sum::<usize>() as f64 / lengths.len().max(1) as f64
}

/// A first topic level that no other run uses, short because it travels with every message, and as
/// long in each.
fn prefix() -> String {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let millis = now.map_or(0, |now| now.as_millis());
    format!(
        "load{:04x}",
        millis
            .wrapping_mul(31)
            .wrapping_add(std::process::id().into())
            & 0xFFFF
    )
}

fn connecting(
    settings: &Settings,
    start: Sample,
    connected: Sample,
    subscribed: Sample,
) -> Connecting {
    let connections = f64::from(settings.scenario.connections());
    let took = (connected.at - start.at).as_secs_f64();
    let broker = |of: fn(Usage, Usage) -> f64, from: Sample, to: Sample| {
        Some(of(from.broker?, to.broker?) / connections)
    };
    let cpu = |from: Usage, to: Usage| to.cpu.saturating_sub(from.cpu).as_secs_f64() * 1e6;
    let grown = |from: Usage, to: Usage| bytes(to.resident) - bytes(from.resident);
    Connecting {
        connections: settings.scenario.connections(),
        per_second: connections / took,
        broker_cpu_us: broker(cpu, start, connected),
        broker_bytes: broker(grown, start, connected),
        broker_bytes_per_subscriber: broker(grown, connected, subscribed),
        generator_cpu_share: spent(start.own, connected.own).map(|cpu| cpu.as_secs_f64() / took),
    }
}

fn idle(from: Sample, to: Sample, found: &Tally) -> Idle {
    let seconds = (to.at - from.at).as_secs_f64();
    Idle {
        seconds,
        broker_cpu_share: spent(from.broker, to.broker).map(|cpu| cpu.as_secs_f64() / seconds),
        closed: found.closed,
        spoken_to: found.misdelivered,
    }
}

fn spent(from: Option<Usage>, to: Option<Usage>) -> Option<Duration> {
    Some(to?.cpu.saturating_sub(from?.cpu))
}

fn total(outcomes: &[Outcome]) -> Tally {
    let tallies = outcomes.iter().map(|outcome| outcome.tally);
    tallies.fold(Tally::default(), |sum, tally| sum.plus(&tally))
}

fn figures(outcomes: &[Outcome], before: Sample, after: Sample) -> Figures {
    let tally = total(outcomes);
    let (mut latency, mut acknowledged) = (latencies(), latencies());
    let mut elapsed = Duration::ZERO;
    for outcome in outcomes {
        elapsed = elapsed.max(outcome.elapsed);
        // Bounds are the same everywhere, so adding cannot fail.
        let _ = latency.add(&outcome.latency);
        let _ = acknowledged.add(&outcome.acknowledged);
    }
    let wall = after.at - before.at;
    let own = spent(before.own, after.own);
    let broker = spent(before.broker, after.broker);
    let busy = before
        .machine
        .zip(after.machine)
        .map(|(from, to)| to.saturating_sub(from));
    let others = busy
        .zip(own)
        .zip(broker)
        .map(|((busy, own), broker)| busy.saturating_sub(own + broker));
    let share = |time: Option<Duration>| time.map(|time| time.as_secs_f64() / wall.as_secs_f64());
    let used = before.broker.zip(after.broker);
    Figures {
        broker: used.map(|(from, to)| Broker::new(from, to, wall, tally.delivered)),
        generator_cpu_us: own.map(|own| own.as_secs_f64() * 1e6 / bytes(tally.delivered).max(1.0)),
        generator_cpu_share: share(own),
        other_load: share(others),
        ..Figures::new(tally, elapsed, &latency, &acknowledged)
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "figures have far fewer than 2^52 units"
)]
fn bytes(count: u64) -> f64 {
    count as f64
}
