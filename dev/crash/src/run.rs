//! A run: clients of a broker that is ended again and again, and the verdict.
//!
//! A round begins when the broker listens, and ends at a random moment in one of the ways of
//! [`End`]. The clients are not informed.

use std::path::Path;
use std::time::Duration;
use std::{fs, io};

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;
use unbroken_acceptance::disk::{Disk, Fault};
use unbroken_client::QoS;
use unbroken_merkle_log::LaneId;

use crate::auditor::{self, BrokerVerdict};
use crate::broker::{Broker, BrokerError, Shards};
use crate::faults::{Met, When};
use crate::others::Others;
use crate::patience::{PATIENCE, out_of_patience, patiently};
use crate::publisher::{ClientError, Load, Progress, Publisher};
use crate::random::Random;
use crate::subscriber::Subscriber;
use crate::witness::Witness;

/// How often the broker ends in which way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    /// SIGKILL.
    pub(crate) kills: u64,
    /// SIGTERM, and it must end in good order.
    pub(crate) stops: u64,
    /// SIGKILL, and what no sync had made safe is gone.
    pub(crate) cuts: u64,
    /// The disk fails, and the broker must end by itself; then as a power cut, some of them after
    /// the broker was started once more.
    pub(crate) faults: u64,
    /// The disk fails while the broker begins, which must end by itself or do without; then as a
    /// power cut. If there are any, the same before all, in each way while it makes its store.
    pub(crate) starts: u64,
    pub(crate) shards: Shards,
    /// The broker's: `strict` is what power cuts and faults are for.
    pub(crate) durability: String,
    pub(crate) load: Load,
    /// The same number gives the same ends and numbers of shards, at moments that differ as
    /// machines do.
    pub(crate) seed: u64,
}

/// A way in which a round ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// SIGKILL before it listens, while it finds out what was.
    Early,
    /// SIGKILL.
    Kill,
    /// SIGTERM.
    Stop,
    /// SIGKILL, and what no sync had made safe is gone.
    Cut,
    /// The disk fails. What no sync had made safe is gone then, too, or after another while of the
    /// broker on the same machine.
    Fault(Fault),
    /// The disk has failed since before it listened; then as after a fault.
    Begin(Fault),
}

/// What came out.
#[derive(Debug, Default)]
pub(crate) struct Verdict {
    /// Received by all subscribers together, each once.
    pub(crate) messages: u64,
    /// Received again.
    pub(crate) repeated: u64,
    /// What groups, wills and the retained value came to.
    pub(crate) others: String,
    /// Changes of files that power cuts took back.
    pub(crate) undone_writes: u64,
    /// Whether the disk has failed as it was told to.
    pub(crate) met: Met,
    /// What must not be, a sentence each.
    pub(crate) faults: Vec<String>,
}

/// The run could not be carried through, which is a fault of somebody's.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RunError {
    #[error(transparent)]
    Broker(#[from] BrokerError),
    #[error(transparent)]
    Line(#[from] ClientError),
    #[error("a line has ended before it should")]
    Ended,
    #[error("nothing moves any more, for {PATIENCE:?}; the broker said last:\n{0}")]
    Stuck(String),
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Carries out the plan in a directory of its own; `report` is called for each round with its
/// number, its end, and the broker's shards.
pub(crate) async fn run(
    plan: &Plan,
    home: &Path,
    mut report: impl FnMut(u64, End, u32),
) -> Result<Verdict, RunError> {
    let mut random = Random::new(plan.seed);
    let mut broker = Broker::new(home, plan.shards, &plan.durability, plan.seed)?;
    let disk = Disk::under(&broker.disk(), home)?;
    let ends = plan.ends(&mut random);
    let mut met = Met::default();
    if plan.starts > 0 {
        make(&mut broker, &disk, &mut random, &mut met).await?;
    }
    broker.spawn(None)?;
    broker.listens().await?;
    let mut clients = Clients::begin(&broker, home, plan).await?;
    // Each lane has something to prove.
    clients.advance(STEPS_MAX, &broker).await?;
    broker.kill().await?;
    begin(&mut broker, ends.first(), &disk, &mut random)?;
    let mut rounds = Rounds {
        plan,
        random,
        broker,
        disk,
        clients,
        met,
        undone_writes: 0,
    };
    for (round, end) in (1..).zip(&ends) {
        report(round, *end, rounds.broker.shards());
        rounds.serve(round, *end).await?;
        rounds.end(*end).await?;
        let next = usize::try_from(round)
            .ok()
            .and_then(|round| ends.get(round));
        rounds.prepare(*end, next).await?;
    }
    rounds.verdict().await
}

/// The state of a run between its rounds.
struct Rounds<'p> {
    plan: &'p Plan,
    random: Random,
    broker: Broker,
    disk: Disk,
    clients: Clients,
    met: Met,
    /// Writes that power cuts have undone.
    undone_writes: u64,
}

impl Rounds<'_> {
    /// Serves clients, unless the round ends before that.
    async fn serve(&mut self, round: u64, end: End) -> Result<(), RunError> {
        let Self {
            random,
            broker,
            clients,
            ..
        } = self;
        clients.progress.change(|point| point.round = round);
        match end {
            End::Early => {
                pause(random, EARLY_US_MAX).await;
                broker.kill().await?;
            }
            End::Begin(_) => broker.listens_or_fails().await?,
            _ => {
                broker.listens().await?;
                let others = async {
                    clients.others.start_listeners(round).await?;
                    clients.others.look(round).await
                };
                match patiently(others).await {
                    Ok(done) => done?,
                    Err(_) => return Err(RunError::Stuck(broker.log())),
                }
                clients.advance(random.below(STEPS_MAX), broker).await?;
                // Not only right after an acknowledgement.
                pause(random, PAUSE_US_MAX).await;
            }
        }
        Ok(())
    }

    /// Ends the broker.
    async fn end(&mut self, end: End) -> Result<(), RunError> {
        let Self {
            random,
            broker,
            clients,
            disk,
            ..
        } = self;
        match end {
            End::Early => {}
            End::Kill | End::Cut | End::Begin(_) => broker.kill().await?,
            End::Stop => {
                // Not always: more is published in a second than others receive in ten; of large
                // messages more than may wait for them.
                if self.plan.load == Load::Light && random.one_in(4) {
                    clients.wait_for_verdicts(broker).await?;
                }
                broker.stop().await?;
            }
            End::Fault(fault) => {
                disk.fail(fault, When::Serving.draw(fault, random))?;
                if fault == Fault::Short {
                    for _ in 0..SHORT_STEPS_MAX {
                        if disk.has_failed() {
                            break;
                        }
                        clients.advance(1, broker).await?;
                    }
                    clients.advance(STEPS_MAX, broker).await?;
                    broker.kill().await?;
                } else {
                    broker.fail().await?;
                }
            }
        }
        Ok(())
    }

    /// Repairs the disk, cuts the power, and starts the broker for the next round.
    async fn prepare(&mut self, end: End, next: Option<&End>) -> Result<(), RunError> {
        let Self {
            random,
            broker,
            clients,
            disk,
            met,
            ..
        } = self;
        let failed = match end {
            End::Fault(fault) => Some((When::Serving, fault)),
            End::Begin(fault) => Some((When::Beginning, fault)),
            _ => None,
        };
        if let Some((when, fault)) = failed {
            met.note(when, fault, disk.has_failed());
            disk.repair()?;
            if random.one_in(2) {
                broker.spawn(Some(disk))?;
                broker.listens().await?;
                clients.advance(random.below(STEPS_MAX), broker).await?;
                broker.kill().await?;
            }
        }
        clients.others.drop_ended();
        if disk_for(Some(&end), disk).is_some() {
            self.undone_writes += disk.cut_power(&mut |bound| random.below(bound))?;
        }
        begin(broker, next, disk, random)
    }

    async fn verdict(mut self) -> Result<Verdict, RunError> {
        let broker = &mut self.broker;
        broker.listens().await?;
        if self.plan.load == Load::Light {
            self.clients.advance(STEPS_MAX, broker).await?;
            self.clients.wait_for_verdicts(broker).await?;
        }
        let mut verdict = self.clients.end(broker).await?;
        verdict.undone_writes = self.undone_writes;
        verdict.faults.extend(self.met.faults());
        if self.plan.cuts > 0 && self.undone_writes == 0 {
            let fault = "power was cut, but no cut has undone a write";
            verdict.faults.push(fault.to_owned());
        }
        verdict.met = self.met;
        broker.kill().await?;
        Ok(verdict)
    }
}

/// Lets the disk fail in each way while the broker makes its store. What is there then, after a
/// power cut, it must be able to begin with; in the end there is nothing, as before.
async fn make(
    broker: &mut Broker,
    disk: &Disk,
    random: &mut Random,
    met: &mut Met,
) -> Result<(), RunError> {
    for fault in When::Making.each() {
        disk.fail(fault, When::Making.draw(fault, random))?;
        broker.spawn(Some(disk))?;
        broker.listens_or_fails().await?;
        broker.kill().await?;
        met.note(When::Making, fault, disk.has_failed());
        disk.repair()?;
        disk.cut_power(&mut |bound| random.below(bound))?;
        broker.spawn(None)?;
        broker.listens().await?;
        broker.kill().await?;
        for entry in fs::read_dir(broker.disk())? {
            fs::remove_dir_all(entry?.path())?;
        }
    }
    Ok(())
}

/// Starts the broker for a round that ends so.
fn begin(
    broker: &mut Broker,
    end: Option<&End>,
    disk: &Disk,
    random: &mut Random,
) -> Result<(), RunError> {
    if let Some(End::Begin(fault)) = end {
        disk.fail(*fault, When::Beginning.draw(*fault, random))?;
    }
    broker.spawn(disk_for(end, disk))?;
    Ok(())
}

/// Only where it is needed: it makes every write slower.
fn disk_for<'a>(end: Option<&End>, disk: &'a Disk) -> Option<&'a Disk> {
    match end? {
        End::Early | End::Kill | End::Stop => None,
        End::Cut | End::Fault(_) | End::Begin(_) => Some(disk),
    }
}

async fn pause(random: &mut Random, longest_us: u64) {
    sleep(Duration::from_micros(random.below(longest_us))).await;
}

impl Plan {
    fn ends(&self, random: &mut Random) -> Vec<End> {
        let mut ends = Vec::new();
        for _ in 0..self.kills {
            ends.push(if random.one_in(8) {
                End::Early
            } else {
                End::Kill
            });
        }
        ends.extend((0..self.stops).map(|_| End::Stop));
        ends.extend((0..self.cuts).map(|_| End::Cut));
        ends.extend(When::Serving.faults(self.faults).map(End::Fault));
        ends.extend(When::Beginning.faults(self.starts).map(End::Begin));
        random.shuffle(&mut ends);
        ends
    }
}

/// How a subscriber lives.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Life {
    /// Always connected.
    Resident,
    /// Disconnects at times, and keeps its state.
    Traveller,
    /// Is killed at times, and loses its state.
    Visitor,
}

/// The clients.
struct Clients {
    progress: Progress,
    publishers: JoinSet<Result<(), ClientError>>,
    subscribers: JoinSet<Result<(), ClientError>>,
    witnesses: Vec<watch::Receiver<Witness>>,
    others: Others,
    /// The broker, of its lanes.
    said: watch::Sender<BrokerVerdict>,
}

impl Clients {
    /// At each quality two publishers, and subscribers of two kinds or three.
    async fn begin(broker: &Broker, home: &Path, plan: &Plan) -> Result<Self, RunError> {
        let (to, seed) = (broker.address(), plan.seed);
        let progress = Progress::new();
        let (mut publishers, mut subscribers) = (JoinSet::new(), JoinSet::new());
        let said = watch::Sender::new(BrokerVerdict::default());
        subscribers.spawn(auditor::listen(to, said.clone()).await?);
        let others = Others::begin(to, &progress, &mut publishers, &mut subscribers);
        let mut clients = Self {
            said,
            others: others.await?,
            progress,
            publishers,
            subscribers,
            witnesses: Vec::new(),
        };
        let subscribers = [
            ("resident-one", QoS::AtLeastOnce, Life::Resident),
            ("visitor-one", QoS::AtLeastOnce, Life::Visitor),
            ("resident-two", QoS::ExactlyOnce, Life::Resident),
            ("traveller-two", QoS::ExactlyOnce, Life::Traveller),
            ("visitor-two", QoS::ExactlyOnce, Life::Visitor),
        ];
        for (name, qos, life) in subscribers {
            // One that is killed does not know what it had half received.
            let may_repeat = qos == QoS::AtLeastOnce || life == Life::Visitor;
            let (witness, findings) = watch::channel(Witness::new(name, may_repeat));
            clients.witnesses.push(findings);
            let subscriber = Subscriber {
                name,
                qos,
                to,
                progress: clients.progress.clone(),
                witness,
            };
            let subscribers = &mut clients.subscribers;
            match life {
                Life::Resident => subscribers.spawn(subscriber.stay().await?),
                Life::Traveller => subscribers.spawn(subscriber.travel(seed).await?),
                Life::Visitor => subscribers.spawn(subscriber.come_and_go(seed).await?),
            };
        }
        let qualities = [QoS::AtLeastOnce, QoS::ExactlyOnce].into_iter().cycle();
        for (number, qos) in (1..=LANES).zip(qualities) {
            let publisher = Publisher {
                lane: LaneId::new(number).expect("not 0"),
                qos,
                spools: home.join("spools"),
                seed: seed ^ number,
                load: plan.load,
            };
            clients
                .publishers
                .spawn(publisher.run(to, clients.progress.clone()));
        }
        Ok(clients)
    }

    /// Waits for so many more steps.
    async fn advance(&mut self, steps: u64, broker: &Broker) -> Result<(), RunError> {
        let until = self.progress.now().steps + steps;
        tokio::select! {
            () = self.progress.until(|point| point.steps >= until) => Ok(()),
            Some(ended) = self.publishers.join_next() => Err(why(ended)),
            Some(ended) = self.subscribers.join_next() => Err(why(ended)),
            () = out_of_patience() => Err(RunError::Stuck(broker.log())),
        }
    }

    /// Waits until the broker has said what it has found.
    async fn wait_for_verdicts(&self, broker: &Broker) -> Result<(), RunError> {
        let mut said = self.said.subscribe();
        let before = said.borrow_and_update().times();
        match patiently(said.wait_for(|said| said.times() > before)).await {
            Ok(Ok(_)) => Ok(()),
            _ => Err(RunError::Stuck(broker.log())),
        }
    }

    /// Lets the publishers end and the subscribers hear everything.
    async fn end(mut self, broker: &Broker) -> Result<Verdict, RunError> {
        self.progress.change(|point| point.is_over = true);
        let published = async {
            while let Some(ended) = self.publishers.join_next().await {
                if !matches!(ended, Ok(Ok(()))) {
                    return Err(why(ended));
                }
            }
            Ok(())
        };
        let Ok(published) = patiently(published).await else {
            return Err(RunError::Stuck(broker.log()));
        };
        published?;
        let per_quality = usize::try_from(LANES / 2).unwrap_or_default();
        // What waits may be much: it is missing only when nothing has come for so long.
        loop {
            let steps = self.progress.now().steps;
            let heard = async {
                for witness in &mut self.witnesses {
                    // One that has ended has its findings nevertheless.
                    let _ = witness
                        .wait_for(|witness| witness.has_all(per_quality))
                        .await;
                }
            };
            let is_heard = patiently(heard).await.is_ok();
            if is_heard || self.progress.now().steps == steps {
                break;
            }
        }
        self.others.end(self.progress.now().round).await?;
        let ended = async {
            for witness in &mut self.witnesses {
                let _ = witness.wait_for(|witness| witness.has_ended).await;
            }
        };
        // Who has not heard it says so.
        let _ = patiently(ended).await;
        let mut verdict = Verdict {
            faults: self.others.faults(),
            others: self.others.summary(),
            ..Verdict::default()
        };
        verdict
            .faults
            .extend_from_slice(self.said.borrow().faults());
        for witness in &self.witnesses {
            let witness = witness.borrow();
            verdict.messages += witness.messages;
            verdict.repeated += witness.repeated;
            verdict.faults.extend(witness.faults());
        }
        Ok(verdict)
    }
}

/// A visitor cannot be aborted, only told.
impl Drop for Clients {
    fn drop(&mut self) {
        self.progress.change(|point| point.is_done = true);
    }
}

fn why(ended: Result<Result<(), ClientError>, tokio::task::JoinError>) -> RunError {
    match ended {
        Ok(Err(error)) => error.into(),
        _ => RunError::Ended,
    }
}

/// Publishers; as many at each quality.
const LANES: u64 = 4;
/// Messages acknowledged and received in a round.
const STEPS_MAX: u64 = 1_000;
/// Between the last of them and the end.
const PAUSE_US_MAX: u64 = 3_000;
/// Between the start and an early end.
const EARLY_US_MAX: u64 = 30_000;
/// Messages acknowledged and received until a write of the broker was short: nearly all are.
const SHORT_STEPS_MAX: u64 = 100_000;
