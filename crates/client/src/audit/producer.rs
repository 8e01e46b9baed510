//! The task of an audited publisher: numbers, remembers, sends, in that order; tells checkpoints
//! when they are due; answers who misses something.
//!
//! Invariants: a number is on the disk before it is on the wire; messages are sent in the order of
//! their numbers; what waits has a limit here or in the client.

mod answering;
mod telling;
mod trimming;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::sleep_until;
use unbroken_merkle_log::{Checkpoint, DropRecord, Flags, Hasher, Lane, LaneId, Property as Stamp};
use unbroken_mqtt_proto::{EncodeError, Property, PropertyBuf, QoS};

use self::answering::Repair;
use super::error::{AuditError, SpoolError};
use super::gathered::{Gathered, LeftOut};
use super::publisher::Published;
use super::spool::{Remembered, Spool};
use super::taken::SharedTaken;
use super::{AUDIT, Clock, Names, ORIGIN, PARENTS, THROUGH};
use crate::client::Receipt;
use crate::inbox::Acknowledgement;
use crate::{Client, Message, PublishError, SubscribeError, Subscription, TotalDuration};

/// What the handles wish.
#[derive(Debug)]
pub(super) enum Order {
    Publish(Job),
    /// All of these or none.
    Parts(Vec<Job>),
    LeaveOut(LeftOut),
    PassOn(PassedOn),
    Note(Elsewhere),
    End(Ending),
}

/// Messages that another processor has dropped. That is not published again.
#[derive(Debug)]
pub(super) struct Elsewhere {
    pub(super) record: DropRecord,
    /// May be acknowledged once the spool has it.
    pub(super) release: Option<Acknowledgement>,
}

/// A checkpoint of another lane, behind the outputs of all that it covers.
#[derive(Debug)]
pub(super) struct PassedOn {
    pub(super) checkpoint: Checkpoint,
    pub(super) bytes: Vec<u8>,
    pub(super) release: Option<Acknowledgement>,
}

/// How the publisher is to end, and whom to tell.
#[derive(Debug)]
pub(super) struct Ending {
    /// With the epoch, after which who misses something is answered for this long.
    pub(super) closing: Option<TotalDuration>,
    pub(super) reply: oneshot::Sender<Result<(), AuditError>>,
}

/// A message to be numbered.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) message: Message,
    pub(super) reply: oneshot::Sender<Result<Published, AuditError>>,
    /// The lanes of the inputs of a batch.
    pub(super) lanes: Vec<LaneId>,
    /// May be acknowledged once this message is.
    pub(super) releases: Vec<Acknowledgement>,
}

pub(super) struct Producer {
    client: Client,
    names: Names,
    hasher: Hasher,
    qos: QoS,
    clock: Clock,
    lane: Lane,
    spool: Option<Spool>,
    /// The first message in the spool.
    spooled_from: u64,
    /// What is not acknowledged yet, in the order in which it was sent.
    sent: VecDeque<Sent>,
    /// Everything below is acknowledged.
    acknowledged: u64,
    /// Acknowledged as the spool knows it.
    acknowledged_noted: u64,
    told: Option<(u32, u64)>,
    /// User properties and the like of messages that may be asked for, where there are any.
    properties: BTreeMap<u64, Kept>,
    repairs: VecDeque<Repair>,
    /// More than at any start before.
    start: u32,
    /// Since the start.
    directories: u32,
    directory_due: Duration,
    /// What a processor has seen to, as the spool has it.
    taken: SharedTaken,
    gathered: Gathered,
    /// From the last run.
    left: VecDeque<Message>,
    left_dropped: Vec<Arc<[u8]>>,
    /// For the handles: set if an error ends it.
    why_ended: watch::Sender<Option<AuditError>>,
}

/// A message to be sent once the spool has it.
#[derive(Debug)]
struct Ready {
    message: Message,
    about: About,
    releases: Vec<Acknowledgement>,
}

/// What a message is that is sent.
#[derive(Debug)]
enum About {
    Number(
        Stamp,
        Option<oneshot::Sender<Result<Published, AuditError>>>,
    ),
    /// The record that it is.
    Dropped(Arc<[u8]>),
    /// A checkpoint of another lane.
    Other,
}

struct Sent {
    about: About,
    receipt: Receipt,
    releases: Vec<Acknowledgement>,
}

/// What a lane does not keep of a message.
struct Kept {
    properties: PropertyBuf,
    retain: bool,
}

impl Producer {
    #[expect(
        clippy::too_many_arguments,
        reason = "made at one place, from its options"
    )]
    pub(super) fn new(
        client: Client,
        names: Names,
        hasher: Hasher,
        qos: QoS,
        clock: Clock,
        lane: Lane,
        spool: Option<Spool>,
        remembered: Remembered,
        taken: SharedTaken,
        why_ended: watch::Sender<Option<AuditError>>,
    ) -> Self {
        let directory_due = clock.now();
        let spooled_from = lane.size() - remembered.messages.len() as u64;
        Self {
            client,
            names,
            hasher,
            qos,
            clock,
            lane,
            spool,
            spooled_from,
            sent: VecDeque::new(),
            acknowledged: remembered.acknowledged,
            acknowledged_noted: remembered.acknowledged,
            told: remembered.told,
            properties: BTreeMap::new(),
            repairs: VecDeque::new(),
            start: remembered.start,
            directories: 0,
            directory_due,
            taken,
            gathered: Gathered::default(),
            left: remembered.messages,
            left_dropped: remembered.dropped,
            why_ended,
        }
    }

    pub(super) async fn run(
        mut self,
        mut orders: mpsc::Receiver<Order>,
        mut requests: Subscription,
    ) {
        let (end, reply) = match self.work(&mut orders, &mut requests).await {
            Ok(None) => (Ok(()), None),
            Ok(Some(Ending { closing, reply })) => {
                let end = self.finish(closing, &mut requests).await;
                if closing.is_some() {
                    requests.end();
                }
                (end, Some(reply))
            }
            Err(error) => (Err(error), None),
        };
        let why = end.as_ref().err().cloned().unwrap_or(AuditError::Ended);
        // Before any channel ends that also shows it. There may be no receiver left.
        let _ = self.why_ended.send(Some(why));
        // The spool is free before anybody hears of it.
        drop(self);
        if let Some(reply) = reply {
            // The caller that ended it may have stopped waiting.
            let _ = reply.send(end);
        }
    }

    /// Returns when no handle of the publisher is left, or with how it is to end; an error when it
    /// cannot continue.
    async fn work(
        &mut self,
        orders: &mut mpsc::Receiver<Order>,
        requests: &mut Subscription,
    ) -> Result<Option<Ending>, AuditError> {
        self.send_left().await?;
        // Before the first message of a new epoch: receivers that expect the lane know it by then.
        self.tell_directory(true).await?;
        let mut is_over = false;
        loop {
            if is_over {
                self.say_left_out().await?;
                if self.sent.is_empty() && self.repairs.is_empty() {
                    return Ok(None);
                }
            }
            let due = self.due();
            tokio::select! {
                order = orders.recv(), if !is_over => match order {
                    Some(order) => {
                        if let Some(ending) = self.handle_orders(order, orders).await? {
                            return Ok(Some(ending));
                        }
                    }
                    None => is_over = true,
                },
                acknowledged = first_answer(&mut self.sent) => self.handle_answer(acknowledged)?,
                request = requests.recv() => match request {
                    Ok(request) => self.handle_request(&request).await?,
                    Err(why) => return Err(why_requests_end(why)),
                },
                () = std::future::ready(()), if !self.repairs.is_empty() => self.repair().await?,
                () = sleep_until(due) => self.tell_what_is_due().await?,
            }
        }
    }

    /// Sends what the last run had not seen acknowledged, flagged re-sent. It comes from the spool:
    /// the lane holds less.
    async fn send_left(&mut self) -> Result<(), AuditError> {
        self.commit().await?;
        let left = std::mem::take(&mut self.left);
        let first = self.lane.size() - left.len() as u64;
        for (number, message) in (first..).zip(left) {
            self.remember_properties(number, &message);
            if number < self.acknowledged {
                continue;
            }
            let property = self.stamp_again(number, &message);
            let message = stamp(message, self.qos, &property)?;
            self.send(Ready {
                message,
                about: About::Number(property, None),
                releases: Vec::new(),
            })
            .await?;
        }
        for record in std::mem::take(&mut self.left_dropped) {
            // It was read, so it is one.
            if let Ok(sealed) = DropRecord::parse(&record) {
                let ready = self.drop_record(sealed.lane(), record)?;
                self.send(ready).await?;
            }
        }
        Ok(())
    }

    /// The property that a message of the last run had, flagged re-sent.
    fn stamp_again(&self, number: u64, message: &Message) -> Stamp {
        let (lane, epoch) = (self.lane.id(), self.lane.epoch());
        let (topic, payload) = (message.topic.as_bytes(), &message.payload);
        let mut property = Stamp::stamp(&self.hasher, lane, epoch, number, topic, payload);
        property.flags.resent = true;
        property.flags.derived = is_derived(message);
        property
    }

    /// Numbers, remembers and sends all that waits, as one frame of the spool.
    async fn handle_orders(
        &mut self,
        first: Order,
        orders: &mut mpsc::Receiver<Order>,
    ) -> Result<Option<Ending>, AuditError> {
        let mut next = Some(first);
        let mut batch = Vec::new();
        let mut noted = Vec::new();
        let mut ending = None;
        while let Some(order) = next.take() {
            match order {
                Order::Publish(job) => self.number(vec![job], &mut batch).await?,
                Order::Parts(jobs) => self.number(jobs, &mut batch).await?,
                Order::LeaveOut(left_out) => {
                    if let Some(spool) = &mut self.spool {
                        note_inputs(spool, &self.taken, &left_out.lanes);
                    }
                    self.gathered.put(left_out, self.clock.now());
                    if self.gathered.len() >= self.gathered_max() {
                        self.put_left_out(&mut batch)?;
                    }
                }
                Order::PassOn(passed_on) => {
                    self.put_left_out(&mut batch)?;
                    batch.push(self.passed_on(passed_on)?);
                }
                Order::Note(elsewhere) => {
                    if let Some(spool) = &mut self.spool {
                        note_inputs(spool, &self.taken, &[]);
                        self.taken.lock().dropped(&elsewhere.record);
                        spool.put_elsewhere(&encoded(&elsewhere.record, &self.hasher));
                    }
                    noted.extend(elsewhere.release);
                }
                Order::End(how) => {
                    self.put_left_out(&mut batch)?;
                    ending = Some(how);
                    break;
                }
            }
            if batch.len() + noted.len() < BATCH_MAX {
                next = orders.try_recv().ok();
            }
        }
        self.send_all(batch).await?;
        noted.into_iter().for_each(Acknowledgement::give);
        Ok(ending)
    }

    /// Gives messages their numbers and notes both; all of them, or none when there is no room.
    async fn number(&mut self, jobs: Vec<Job>, batch: &mut Vec<Ready>) -> Result<(), AuditError> {
        if let Err(full) = self.make_room(&jobs, batch).await? {
            for job in jobs {
                // The caller may have stopped waiting.
                let _ = job.reply.send(Err(full.clone().into()));
            }
            return Ok(());
        }
        for job in jobs {
            let message = job.message.qos(self.qos);
            let topic = Arc::<[u8]>::from(Arc::clone(&message.topic));
            let payload = Arc::clone(&message.payload);
            let mut property = self.lane.issue(topic, payload, &self.hasher);
            property.flags.derived = is_derived(&message);
            if let Some(spool) = &mut self.spool {
                if property.flags.derived {
                    note_inputs(spool, &self.taken, &job.lanes);
                    self.taken.lock().output(&message);
                }
                spool.put_message(property.sequence, &message);
            }
            self.remember_properties(property.sequence, &message);
            batch.push(Ready {
                message: stamp(message, self.qos, &property)?,
                about: About::Number(property, Some(job.reply)),
                releases: job.releases,
            });
        }
        Ok(())
    }

    /// Says what was gathered, behind what the batch says.
    fn put_left_out(&mut self, batch: &mut Vec<Ready>) -> Result<(), AuditError> {
        let (records, releases) = self.gathered.take();
        for record in &records {
            let payload = encoded(record, &self.hasher);
            if let Some(spool) = &mut self.spool {
                self.taken.lock().dropped(record);
                spool.put_dropped(&payload);
            }
            batch.push(self.drop_record(record.lane, payload.into())?);
        }
        // With the last one all are said.
        if let (Some(last), false) = (batch.last_mut(), records.is_empty()) {
            last.releases = releases;
        }
        Ok(())
    }

    async fn say_left_out(&mut self) -> Result<(), AuditError> {
        let mut batch = Vec::new();
        self.put_left_out(&mut batch)?;
        self.send_all(batch).await
    }

    fn drop_record(&self, lane: LaneId, record: Arc<[u8]>) -> Result<Ready, AuditError> {
        let message = Message::new(self.names.drop(lane), Arc::clone(&record));
        let message = message.expect("an audit topic is a topic").qos(self.qos);
        Ok(Ready {
            message: message.user_property(THROUGH, &self.lane.id().to_string())?,
            about: About::Dropped(record),
            releases: Vec::new(),
        })
    }

    fn passed_on(&self, passed_on: PassedOn) -> Result<Ready, AuditError> {
        let checkpoint = passed_on.checkpoint;
        self.taken.lock().checkpoint(&checkpoint);
        let message = Message::new(self.names.checkpoint(checkpoint.lane), passed_on.bytes);
        let message = message.expect("an audit topic is a topic").qos(self.qos);
        Ok(Ready {
            message: message.user_property(THROUGH, &self.lane.id().to_string())?,
            about: About::Other,
            releases: Vec::from_iter(passed_on.release),
        })
    }

    /// Sends what the spool has by then.
    async fn send_all(&mut self, batch: Vec<Ready>) -> Result<(), AuditError> {
        self.commit().await?;
        for ready in batch {
            self.send(ready).await?;
        }
        Ok(())
    }

    async fn send(&mut self, ready: Ready) -> Result<(), AuditError> {
        let receipt = self.client.send(ready.message).await?;
        self.sent.push_back(Sent {
            about: ready.about,
            receipt,
            releases: ready.releases,
        });
        Ok(())
    }

    /// The first of those that wait was answered.
    fn handle_answer(&mut self, answer: Answered) -> Result<(), AuditError> {
        let Some(sent) = self.sent.pop_front() else {
            return Ok(());
        };
        let result = match answer {
            Ok(acknowledged) => {
                let releases = sent.releases.into_iter();
                releases.for_each(Acknowledgement::give_processed);
                if let About::Number(property, _) = &sent.about {
                    self.acknowledged = property.sequence + 1;
                }
                Ok(acknowledged)
            }
            Err(error @ PublishError::Ended(_)) => return Err(error.into()),
            // It has its number, so receivers will miss it and ask.
            Err(error) => Err(AuditError::Publish(error)),
        };
        if let About::Number(property, Some(reply)) = sent.about {
            // The caller may have stopped waiting.
            let _ = reply.send(result.map(|acknowledged| Published {
                property,
                acknowledged,
            }));
        }
        if self.acknowledged >= self.acknowledged_noted + ACKNOWLEDGED_STEP
            && let Some(spool) = &mut self.spool
        {
            spool.put_acknowledged(self.acknowledged);
            self.acknowledged_noted = self.acknowledged;
        }
        Ok(())
    }

    /// Writes and syncs what was noted.
    async fn commit(&mut self) -> Result<(), AuditError> {
        let Some(mut spool) = self.spool.take_if(|spool| spool.has_notes()) else {
            return Ok(());
        };
        let writing = tokio::task::spawn_blocking(move || {
            let result = spool.commit();
            (spool, result)
        });
        let (spool, result): (_, Result<(), SpoolError>) =
            writing.await.expect("writing a spool does not panic");
        self.spool = Some(spool);
        result.map_err(AuditError::from)
    }

    /// Messages left out that may be gathered. What is gathered is not acknowledged, so it must not
    /// use up what the broker may send before.
    fn gathered_max(&self) -> usize {
        let limits = self.client.limits();
        let unacknowledged = usize::from(limits.receive_maximum) / 4;
        limits.left_out_max.min(unacknowledged).max(1)
    }

    fn remember_properties(&mut self, number: u64, message: &Message) {
        if !message.properties().is_empty() || message.retain {
            let kept = Kept {
                properties: message.properties.clone(),
                retain: message.retain,
            };
            self.properties.insert(number, kept);
        }
        if self.properties.len() > PROPERTIES_STEP && number.is_multiple_of(1_024) {
            let oldest_held = self.oldest_held();
            self.properties = self.properties.split_off(&oldest_held);
        }
    }
}

/// A subscription that was accepted ends with its client.
fn why_requests_end(error: SubscribeError) -> AuditError {
    match error {
        SubscribeError::Ended(why) => PublishError::Ended(why).into(),
        _ => AuditError::Ended,
    }
}

type Answered = Result<crate::Acknowledged, PublishError>;

/// Waits for the first of those that wait; for ever if there is none. Cancelling it loses nothing.
async fn first_answer(sent: &mut VecDeque<Sent>) -> Answered {
    match sent.front_mut() {
        Some(first) => first.receipt.answer().await,
        None => std::future::pending().await,
    }
}

/// The message with its property, and flagged re-sent for the case that it is repeated.
fn stamp(mut message: Message, qos: QoS, property: &Stamp) -> Result<Message, EncodeError> {
    let again = Stamp {
        flags: Flags {
            resent: true,
            ..property.flags
        },
        ..*property
    };
    let mut properties_again = message.properties.clone();
    properties_again.push(Property::UserProperty(AUDIT, &again.to_text()))?;
    message
        .properties
        .push(Property::UserProperty(AUDIT, &property.to_text()))?;
    message.properties_again = Some(properties_again);
    Ok(message.qos(qos))
}

/// Notes that a processor has begun, and the lanes of its inputs, when the spool has not got them.
fn note_inputs(spool: &mut Spool, taken: &SharedTaken, lanes: &[LaneId]) {
    let mut taken = taken.lock();
    if let Some(saved) = taken.save_new() {
        spool.put_taken(&saved);
    }
    for lane in lanes {
        if taken.hears(*lane) {
            spool.put_heard(*lane);
        }
    }
}

fn encoded(record: &DropRecord, hasher: &Hasher) -> Vec<u8> {
    let mut payload = Vec::new();
    record
        .encode(hasher, &mut payload)
        .expect("a record of properties, or one that was read, is in order");
    payload
}

/// Whether a processor made it.
pub(super) fn is_derived(message: &Message) -> bool {
    let mut names = message.properties().user_properties();
    names.any(|(name, _)| name == ORIGIN || name == PARENTS)
}

/// Messages in one frame of the spool.
const BATCH_MAX: usize = 256;
/// Acknowledged messages after which the spool notes them.
const ACKNOWLEDGED_STEP: u64 = 256;
/// Properties kept before those are removed that no receiver can ask for any more.
const PROPERTIES_STEP: usize = 4_096;
