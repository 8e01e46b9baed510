//! A run: lines of messages over a broker that is ended again and again, and the verdict.
//!
//! A round begins when the broker listens and ends at a moment that chance chooses, in one of the
//! ways of [`End`]. The clients know nothing of it.

use std::path::Path;
use std::time::Duration;
use std::{fs, io};

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;
use unbroken_acceptance::disk::{Disk, Fault};
use unbroken_client::QoS;
use unbroken_merkle_log::LaneId;

use crate::auditor::{self, Said};
use crate::broker::{Broker, BrokerError, Shards};
use crate::faults::{Met, When};
use crate::line::{LineError, Load, Progress, Publisher};
use crate::others::Others;
use crate::patience::{PATIENCE, out_of_patience, patiently};
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
    pub(crate) taken_back: u64,
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
    Line(#[from] LineError),
    #[error("a line has ended before it should")]
    Ended,
    #[error("nothing moves any more, for {PATIENCE:?}; the broker said last:\n{0}")]
    Stuck(String),
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Carries the plan out in a directory of its own; `tell` hears about each round: its number, how
/// it ends, and how many shards the broker has.
pub(crate) async fn run(
    plan: &Plan,
    home: &Path,
    mut tell: impl FnMut(u64, End, u32),
) -> Result<Verdict, RunError> {
    let mut random = Random::new(plan.seed);
    let mut broker = Broker::new(home, plan.shards, &plan.durability, plan.seed)?;
    let disk = Disk::under(&broker.disk(), home)?;
    let ends = plan.ends(&mut random);
    let mut taken_back = 0;
    let mut met = Met::default();
    if plan.starts > 0 {
        make(&mut broker, &disk, &mut random, &mut met).await?;
    }
    broker.spawn(None)?;
    broker.listens().await?;
    let mut lines = Lines::begin(&broker, home, plan).await?;
    // Each lane has something to prove.
    lines.go_on(STEPS_MAX, &broker).await?;
    broker.kill().await?;
    begin(&mut broker, ends.first(), &disk, &mut random)?;
    for (round, end) in (1..).zip(&ends) {
        lines.progress.change(|point| point.round = round);
        tell(round, *end, broker.shards());
        if *end == End::Early {
            pause(&mut random, EARLY_US_MAX).await;
            broker.kill().await?;
        } else if let End::Begin(_) = end {
            broker.listens_or_fails().await?;
        } else {
            broker.listens().await?;
            let others = async {
                lines.others.give_birth(round).await?;
                lines.others.look(round).await
            };
            match patiently(others).await {
                Ok(done) => done?,
                Err(_) => return Err(RunError::Stuck(broker.log())),
            }
            lines.go_on(random.below(STEPS_MAX), &broker).await?;
            // Not only just behind an acknowledgement.
            pause(&mut random, PAUSE_US_MAX).await;
        }
        match end {
            End::Early => {}
            End::Kill | End::Cut | End::Begin(_) => broker.kill().await?,
            End::Stop => {
                // Not always: in a second more is published than others hear in ten; of large
                // messages more than may wait for them.
                if plan.load == Load::Light && random.one_in(4) {
                    lines.are_judged(&broker).await?;
                }
                broker.stop().await?;
            }
            End::Fault(fault) => {
                disk.fail(*fault, When::Serving.draw(*fault, &mut random))?;
                if *fault == Fault::Short {
                    for _ in 0..SHORT_STEPS_MAX {
                        if disk.has_failed() {
                            break;
                        }
                        lines.go_on(1, &broker).await?;
                    }
                    lines.go_on(STEPS_MAX, &broker).await?;
                    broker.kill().await?;
                } else {
                    broker.fail().await?;
                }
            }
        }
        let failed = match end {
            End::Fault(fault) => Some((When::Serving, *fault)),
            End::Begin(fault) => Some((When::Beginning, *fault)),
            _ => None,
        };
        if let Some((when, fault)) = failed {
            met.note(when, fault, disk.has_failed());
            disk.repair()?;
            if random.one_in(2) {
                broker.spawn(Some(&disk))?;
                broker.listens().await?;
                lines.go_on(random.below(STEPS_MAX), &broker).await?;
                broker.kill().await?;
            }
        }
        lines.others.bury();
        if disk_for(Some(end), &disk).is_some() {
            taken_back += disk.cut_power(&mut |bound| random.below(bound))?;
        }
        let next = usize::try_from(round)
            .ok()
            .and_then(|round| ends.get(round));
        begin(&mut broker, next, &disk, &mut random)?;
    }
    broker.listens().await?;
    if plan.load == Load::Light {
        lines.go_on(STEPS_MAX, &broker).await?;
        lines.are_judged(&broker).await?;
    }
    let mut verdict = lines.end(&broker).await?;
    verdict.taken_back = taken_back;
    verdict.faults.extend(met.faults());
    if plan.cuts > 0 && taken_back == 0 {
        let fault = "power was cut, and nothing was taken back: no cut has cut anything";
        verdict.faults.push(fault.to_owned());
    }
    verdict.met = met;
    broker.kill().await?;
    Ok(verdict)
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
    /// It is always there.
    Resident,
    /// It is away at times, and remembers.
    Traveller,
    /// It is killed at times, and begins anew.
    Visitor,
}

/// The clients.
struct Lines {
    progress: Progress,
    publishers: JoinSet<Result<(), LineError>>,
    subscribers: JoinSet<Result<(), LineError>>,
    witnesses: Vec<watch::Receiver<Witness>>,
    others: Others,
    /// The broker, of its lanes.
    said: watch::Sender<Said>,
}

impl Lines {
    /// At each quality two publishers, and subscribers of two kinds or three.
    async fn begin(broker: &Broker, home: &Path, plan: &Plan) -> Result<Self, RunError> {
        let (to, seed) = (broker.address(), plan.seed);
        let progress = Progress::new();
        let (mut publishers, mut subscribers) = (JoinSet::new(), JoinSet::new());
        let said = watch::Sender::new(Said::default());
        subscribers.spawn(auditor::listen(to, said.clone()).await?);
        let others = Others::begin(to, &progress, &mut publishers, &mut subscribers);
        let mut lines = Self {
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
            lines.witnesses.push(findings);
            let subscriber = Subscriber {
                name,
                qos,
                to,
                progress: lines.progress.clone(),
                witness,
            };
            let subscribers = &mut lines.subscribers;
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
            lines
                .publishers
                .spawn(publisher.run(to, lines.progress.clone()));
        }
        Ok(lines)
    }

    /// Waits for so many more steps.
    async fn go_on(&mut self, steps: u64, broker: &Broker) -> Result<(), RunError> {
        let until = self.progress.now().steps + steps;
        tokio::select! {
            () = self.progress.until(|point| point.steps >= until) => Ok(()),
            Some(ended) = self.publishers.join_next() => Err(why(ended)),
            Some(ended) = self.subscribers.join_next() => Err(why(ended)),
            () = out_of_patience() => Err(RunError::Stuck(broker.log())),
        }
    }

    /// Waits until the broker has said what it has found.
    async fn are_judged(&self, broker: &Broker) -> Result<(), RunError> {
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
impl Drop for Lines {
    fn drop(&mut self) {
        self.progress.change(|point| point.is_done = true);
    }
}

fn why(ended: Result<Result<(), LineError>, tokio::task::JoinError>) -> RunError {
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
