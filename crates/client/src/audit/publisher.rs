//! The handle of an audited publisher: one lane.

use std::fmt;
use std::marker::PhantomData;
use std::path::PathBuf;

use tokio::sync::{mpsc, oneshot, watch};
use unbroken_merkle_log::{Epoch, Hasher, Lane, LaneId, LaneLimits, Property};
use unbroken_mqtt_proto::{PropertyBuf, QoS};

use super::error::{AuditError, OpenError};
use super::producer::{Ending, Job, Order, Producer};
use super::spool::{Remembered, Spool};
use super::taken::SharedTaken;
use super::{ANSWER, AUDIT, Clock, Names, ORIGIN, PARENTS, THROUGH, TOPIC, check_version, heard};
use crate::inbox::Acknowledgement;
use crate::{Acknowledged, Acknowledging, Client, Message, TotalDuration};

/// A publisher that remembers on disk what it has numbered: a restart continues the lane, sends
/// again what was not acknowledged, and its receivers see one unbroken sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spooled {}

/// A publisher without a disk. **Its claim is weaker**: each start begins a new epoch, and what the
/// last one had issued behind its last checkpoint stays unproven at the receivers for ever.
///
/// Epochs are random, since there is nothing to go on from: a start has the epoch of an earlier one
/// with a chance of 1 in 2^32 for each that a receiver remembers. Its messages are then duplicates
/// and conflicts there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unspooled {}

/// How a lane is published. Everything but the lane has a default.
#[derive(Clone, Debug)]
pub struct PublisherOptions {
    lane: LaneId,
    prefix: String,
    hasher: Hasher,
    qos: QoS,
    lane_limits: LaneLimits,
    spool_bytes_max: u64,
}

/// One lane of numbered messages, whose receivers can prove that they have them all. Clones are
/// handles of the same one. It ends with the last of them, after everything is acknowledged; the
/// epoch stays open then, for the next start. [`close`](Self::close) ends the epoch too.
///
/// `Claim` is [`Spooled`] or [`Unspooled`], and says how strong the claim is.
pub struct AuditedPublisher<Claim> {
    orders: mpsc::Sender<Order>,
    lane: LaneId,
    epoch: Epoch,
    /// Where a spool remembers.
    taken: Option<SharedTaken>,
    end: End,
    claim: PhantomData<fn() -> Claim>,
}

/// A message that the broker has acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Published {
    /// What it bore.
    pub property: Property,
    /// What the broker said.
    pub acknowledged: Acknowledged,
}

/// The answer to come for a message that has its number. Dropping it changes nothing for the
/// message.
#[derive(Debug)]
pub struct Stamped {
    answer: oneshot::Receiver<Result<Published, AuditError>>,
    end: End,
}

/// How a publisher ended, once it has.
#[derive(Clone, Debug)]
struct End(watch::Receiver<Option<AuditError>>);

impl End {
    /// Why it takes nothing more, for a caller whose order it has not answered.
    async fn why(&mut self) -> AuditError {
        // What it was working on is given up before it says why.
        let why = self.0.wait_for(Option::is_some).await;
        let why = why.ok().and_then(|why| why.clone());
        why.unwrap_or(AuditError::Panicked)
    }

    /// The same, when its channel has ended: it has said why before that.
    fn why_closed(&self) -> AuditError {
        self.0.borrow().clone().unwrap_or(AuditError::Panicked)
    }
}

impl PublisherOptions {
    /// XXH3-128, which finds accidents and no forger; QoS 1; 64 windows of 1,024 messages and
    /// 16 MiB held for repair; a spool of 256 MiB at most; topics under `audit/`.
    pub fn new(lane: LaneId) -> Self {
        Self {
            lane,
            prefix: Names::DEFAULT_PREFIX.to_owned(),
            hasher: Hasher::xxh3(),
            qos: QoS::AtLeastOnce,
            lane_limits: LaneLimits::default(),
            spool_bytes_max: 256 << 20,
        }
    }

    /// Another algorithm, or a key. A spool belongs to one.
    #[must_use]
    pub fn hasher(mut self, hasher: Hasher) -> Self {
        self.hasher = hasher;
        self
    }

    /// Other topics for checkpoints and repair; the same for all who take part.
    #[must_use]
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// The QoS of messages and checkpoints: one for the lane, since brokers keep order only within
    /// one.
    ///
    /// At QoS 0 delivery is not promised, and an acknowledgement means only that the message was
    /// given to the connection. Losses are still named, and receivers still ask for them; the
    /// producer sends again what it [holds](Self::lane_limits), at QoS 0 too, so a repair may take
    /// several tries. A checkpoint that is lost costs nothing once a later one comes.
    #[must_use]
    pub fn qos(mut self, qos: QoS) -> Self {
        self.qos = qos;
        self
    }

    /// What is held for receivers that miss something, and the time between checkpoints.
    #[must_use]
    pub fn lane_limits(mut self, limits: LaneLimits) -> Self {
        self.lane_limits = limits;
        self
    }

    /// The largest that the spool may become, in bytes. Beyond it messages are refused until the
    /// broker has acknowledged. Acknowledged ones that are held for repair stay in it as long as
    /// they leave half of it free, and give way to new ones. At least 64 KiB beside the largest
    /// message.
    #[must_use]
    pub fn spool_bytes_max(mut self, bytes: u64) -> Self {
        self.spool_bytes_max = bytes;
        self
    }

    /// Begins, or continues, with a spool in this directory. What the last run had not seen
    /// acknowledged is sent again first.
    pub async fn open(
        self,
        client: &Client,
        directory: impl Into<PathBuf>,
    ) -> Result<AuditedPublisher<Spooled>, OpenError> {
        // Before anything is on the disk.
        check_version(client)?;
        let directory = directory.into();
        let (lane, bytes_max) = (self.lane, self.spool_bytes_max);
        let (limits, hasher) = (self.lane_limits.clone(), self.hasher.clone());
        let opening = tokio::task::spawn_blocking(move || {
            Spool::open(&directory, lane, bytes_max, &limits, &hasher)
        });
        let (spool, remembered) = opening.await.expect("opening a spool does not panic")?;
        self.begin(client, Some(spool), remembered).await
    }

    /// Begins a new epoch that no restart continues: see [`Unspooled`].
    pub async fn open_unspooled(
        self,
        client: &Client,
    ) -> Result<AuditedPublisher<Unspooled>, OpenError> {
        check_version(client)?;
        self.begin(client, None, Remembered::default()).await
    }

    async fn begin<Claim>(
        self,
        client: &Client,
        mut spool: Option<Spool>,
        mut remembered: Remembered,
    ) -> Result<AuditedPublisher<Claim>, OpenError> {
        let names = Names::new(&self.prefix);
        let clock = Clock::start();
        let lane = remembered.lane.take().unwrap_or_else(|| {
            let epoch = match (&spool, remembered.closed) {
                (None, _) => Clock::fresh_epoch(),
                (Some(_), None) => Epoch(Clock::seconds()),
                (Some(_), Some(Epoch(closed))) => {
                    Epoch(closed.saturating_add(1).max(Clock::seconds()))
                }
            };
            let lane = Lane::new(self.lane, epoch, self.lane_limits.clone(), clock.now());
            if let Some(spool) = &mut spool {
                spool.put_lane(&lane, &self.hasher);
            }
            lane
        });
        remembered.start = Clock::start_number(self.lane, remembered.start);
        if let Some(spool) = &mut spool {
            spool.put_start(remembered.start);
        }
        let filters = vec![heard(names.repair(self.lane))?];
        let requests = client
            .subscribe_all(filters, Acknowledging::Automatic)
            .await?;
        let (orders, wishes) = mpsc::channel(ORDERS_MAX);
        let epoch = lane.epoch();
        let taken = SharedTaken::new(std::mem::take(&mut remembered.taken));
        let shared = spool.is_some().then(|| taken.clone());
        let (why_ended, end) = watch::channel(None);
        let producer = Producer::new(
            client.clone(),
            names,
            self.hasher,
            self.qos,
            clock,
            lane,
            spool,
            remembered,
            taken,
            why_ended,
        );
        tokio::spawn(producer.run(wishes, requests));
        Ok(AuditedPublisher {
            orders,
            lane: self.lane,
            epoch,
            taken: shared,
            end: End(end),
            claim: PhantomData,
        })
    }
}

impl<Claim> AuditedPublisher<Claim> {
    /// The lane.
    pub fn lane(&self) -> LaneId {
        self.lane
    }

    /// The epoch.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Numbers a message, remembers it, sends it at the lane's QoS and waits for the broker's
    /// acknowledgement. Messages get their numbers in the order of the calls.
    pub async fn publish(&self, message: Message) -> Result<Published, AuditError> {
        self.send(message).await?.published().await
    }

    /// As [`publish`](Self::publish), and waits only for its turn.
    pub async fn send(&self, message: Message) -> Result<Stamped, AuditError> {
        check(&message)?;
        let (job, stamped) = self.job(message, Made::default());
        self.order(Order::Publish(job)).await?;
        Ok(stamped)
    }

    /// As [`send`](Self::send), and never waits: the message comes back when there is no room for
    /// it now.
    pub fn try_send(&self, message: Message) -> Result<Stamped, Box<(Message, AuditError)>> {
        if let Err(error) = check(&message) {
            return Err(Box::new((message, error)));
        }
        let (job, stamped) = self.job(message, Made::default());
        match self.orders.try_send(Order::Publish(job)) {
            Ok(()) => Ok(stamped),
            Err(error) => {
                let why = match &error {
                    mpsc::error::TrySendError::Full(_) => AuditError::Full(ORDERS_MAX),
                    mpsc::error::TrySendError::Closed(_) => self.end.why_closed(),
                };
                match error.into_inner() {
                    Order::Publish(job) => Err(Box::new((job.message, why))),
                    _ => unreachable!("what was sent comes back"),
                }
            }
        }
    }

    /// Ends the epoch: waits until everything is acknowledged, tells the last checkpoint, answers
    /// receivers that miss something for some time more, and ends the publisher. Receivers then
    /// know that nothing follows. The next start begins a new epoch.
    pub async fn close(self, answering: TotalDuration) -> Result<(), AuditError> {
        self.end(Some(answering)).await
    }

    /// Waits until everything is acknowledged and ends the publisher. The epoch stays open, and the
    /// spool is free for the next start.
    pub async fn leave(self) -> Result<(), AuditError> {
        self.end(None).await
    }

    async fn end(mut self, closing: Option<TotalDuration>) -> Result<(), AuditError> {
        let (reply, answer) = oneshot::channel();
        self.order(Order::End(Ending { closing, reply })).await?;
        match answer.await {
            Ok(result) => result,
            Err(_) => Err(self.end.why().await),
        }
    }

    /// For a processor: with what they were made of, and what may be acknowledged once they are.
    /// All of them get their numbers, or none.
    pub(super) async fn send_made(
        &self,
        outputs: Vec<(Message, Made)>,
    ) -> Result<Vec<Stamped>, AuditError> {
        let mut jobs = Vec::with_capacity(outputs.len());
        let mut all = Vec::with_capacity(outputs.len());
        for (message, made) in outputs {
            check(&message)?;
            let (job, stamped) = self.job(message, made);
            jobs.push(job);
            all.push(stamped);
        }
        self.order(Order::Parts(jobs)).await?;
        Ok(all)
    }

    /// For a processor: says something about other lanes, in order with the messages.
    pub(super) async fn order(&self, order: Order) -> Result<(), AuditError> {
        self.orders
            .send(order)
            .await
            .map_err(|_| self.end.why_closed())
    }

    /// For a processor: where an order finds room.
    pub(super) async fn place(&self) -> Result<mpsc::Permit<'_, Order>, AuditError> {
        self.orders
            .reserve()
            .await
            .map_err(|_| self.end.why_closed())
    }

    fn job(&self, mut message: Message, made: Made) -> (Job, Stamped) {
        let (reply, answer) = oneshot::channel();
        message.properties.extend(made.properties.as_properties());
        let job = Job {
            message,
            reply,
            lanes: made.lanes,
            releases: made.releases,
        };
        let end = self.end.clone();
        (job, Stamped { answer, end })
    }

    /// What the spool remembers of a processor's inputs.
    pub(super) fn taken(&self) -> Option<&SharedTaken> {
        self.taken.as_ref()
    }
}

/// What a processor adds to a message.
#[derive(Debug, Default)]
pub(super) struct Made {
    /// `audit-origin` or `audit-parents`.
    pub(super) properties: PropertyBuf,
    /// The lanes of the inputs of a batch.
    pub(super) lanes: Vec<LaneId>,
    pub(super) releases: Vec<Acknowledgement>,
}

impl Stamped {
    /// Waits for the broker's acknowledgement.
    pub async fn published(mut self) -> Result<Published, AuditError> {
        match self.answer.await {
            Ok(answer) => answer,
            Err(_) => Err(self.end.why().await),
        }
    }
}

impl<Claim> Clone for AuditedPublisher<Claim> {
    fn clone(&self) -> Self {
        Self {
            orders: self.orders.clone(),
            lane: self.lane,
            epoch: self.epoch,
            taken: self.taken.clone(),
            end: self.end.clone(),
            claim: PhantomData,
        }
    }
}

impl<Claim> fmt::Debug for AuditedPublisher<Claim> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AuditedPublisher")
            .field("lane", &self.lane)
            .field("epoch", &self.epoch)
            .finish_non_exhaustive()
    }
}

fn check(message: &Message) -> Result<(), AuditError> {
    let taken = [AUDIT, ORIGIN, PARENTS, TOPIC, ANSWER, THROUGH];
    let mut names = message.properties().user_properties();
    match names.find(|(name, _)| taken.contains(name)) {
        Some((name, _)) => Err(AuditError::Reserved(name.to_owned())),
        None => Ok(()),
    }
}

/// Messages that wait for their numbers.
const ORDERS_MAX: usize = 1_024;
