//! The task of an audited publisher: numbers, remembers, sends, in that order; tells checkpoints
//! when they are due; answers who misses something.
//!
//! Invariants: a number is on the disk before it is on the wire; messages are sent in the order of
//! their numbers; what waits has a limit here or in the client.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until};
use unbroken_merkle_log::ledger::{Answer, Request};
use unbroken_merkle_log::{
    Checkpoint, Directory, Epoch, Flags, Hasher, Lane, OpenLane, Property as Stamp,
};
use unbroken_mqtt_proto::{EncodeError, Property, PropertyBuf, QoS, TopicName};

use super::error::{AuditError, SpoolError};
use super::publisher::Published;
use super::spool::{Remembered, Spool};
use super::{ANSWER, AUDIT, Clock, Kind, Names, ORIGIN, PARENTS, TOPIC};
use crate::client::Receipt;
use crate::inbox::Acknowledgement;
use crate::{Client, Message, Received, Subscription, TotalDuration};

/// What the handles wish.
#[derive(Debug)]
pub(super) enum Order {
    Publish(Job),
    Tell {
        message: Message,
        releases: Vec<Acknowledgement>,
    },
    End(Ending),
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
    directories: u32,
    directory_due: Duration,
    /// From the last run.
    left: VecDeque<Message>,
}

struct Sent {
    /// `None` for what has no number.
    property: Option<Stamp>,
    receipt: Receipt,
    reply: Option<oneshot::Sender<Result<Published, AuditError>>>,
    releases: Vec<Acknowledgement>,
}

/// What a lane does not keep of a message.
struct Kept {
    properties: PropertyBuf,
    retain: bool,
}

/// Messages that somebody asked for.
struct Repair {
    numbers: Range<u64>,
    topic: Arc<str>,
    correlation: Option<Vec<u8>>,
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
    ) -> Self {
        let directory_due = clock.now();
        Self {
            client,
            names,
            hasher,
            qos,
            clock,
            lane,
            spool,
            sent: VecDeque::new(),
            acknowledged: remembered.acknowledged,
            acknowledged_noted: remembered.acknowledged,
            told: remembered.told,
            properties: BTreeMap::new(),
            repairs: VecDeque::new(),
            directories: 0,
            directory_due,
            left: remembered.messages,
        }
    }

    pub(super) async fn run(
        mut self,
        mut orders: mpsc::Receiver<Order>,
        mut requests: Subscription,
    ) {
        // Whoever still waits after an error sees the channel end.
        if let Ok(Some(Ending { closing, reply })) = self.work(&mut orders, &mut requests).await {
            let result = self.finish(closing, &mut requests).await;
            // The spool is free before anybody hears of it.
            drop(self);
            // Whoever ended it may have stopped waiting.
            let _ = reply.send(result);
        } else {
            drop(self);
        }
    }

    /// Returns when nobody holds the publisher any more, or with how it is to end; an error when it
    /// cannot go on.
    async fn work(
        &mut self,
        orders: &mut mpsc::Receiver<Order>,
        requests: &mut Subscription,
    ) -> Result<Option<Ending>, AuditError> {
        self.send_left().await?;
        let mut is_over = false;
        loop {
            if is_over && self.sent.is_empty() && self.repairs.is_empty() {
                return Ok(None);
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
                    Err(_) => return Err(AuditError::Ended),
                },
                () = std::future::ready(()), if !self.repairs.is_empty() => self.repair().await?,
                () = sleep_until(due) => self.tell_what_is_due().await?,
            }
        }
    }

    /// Sends what the last run had not seen acknowledged, flagged re-sent.
    async fn send_left(&mut self) -> Result<(), AuditError> {
        self.commit().await?;
        let left = std::mem::take(&mut self.left);
        let first = self.lane.size() - left.len() as u64;
        for (number, message) in (first..).zip(left) {
            self.remember_properties(number, &message);
            if number < self.acknowledged {
                continue;
            }
            if let Some(resend) = self.lane.resend(number, &self.hasher) {
                let mut property = resend.property;
                property.flags.derived = is_derived(&message);
                let stamped = stamp(message, self.qos, &property)?;
                let receipt = self.client.send(stamped).await?;
                self.sent.push_back(Sent {
                    property: Some(property),
                    receipt,
                    reply: None,
                    releases: Vec::new(),
                });
            }
        }
        Ok(())
    }

    /// Numbers, remembers and sends all that waits, as one frame of the spool.
    async fn handle_orders(
        &mut self,
        first: Order,
        orders: &mut mpsc::Receiver<Order>,
    ) -> Result<Option<Ending>, AuditError> {
        let mut next = Some(first);
        let mut batch = Vec::new();
        let mut ending = None;
        while let Some(order) = next.take() {
            match order {
                Order::Publish(job) => {
                    if let Some(stamped) = self.number(job).await? {
                        batch.push(stamped);
                    }
                }
                Order::Tell { message, releases } => {
                    batch.push((message.qos(self.qos), None, None, releases));
                }
                Order::End(how) => {
                    ending = Some(how);
                    break;
                }
            }
            if batch.len() < BATCH_MAX {
                next = orders.try_recv().ok();
            }
        }
        self.commit().await?;
        for (message, property, reply, releases) in batch {
            let receipt = self.client.send(message).await?;
            self.sent.push_back(Sent {
                property,
                receipt,
                reply,
                releases,
            });
        }
        Ok(ending)
    }

    /// Gives a message its number and notes both; `None` when there is no room for it.
    async fn number(&mut self, job: Job) -> Result<Option<Numbered>, AuditError> {
        if self.room(&job.message).is_err() {
            self.trim().await?;
        }
        if let Err(full) = self.room(&job.message) {
            // Nobody need be waiting.
            let _ = job.reply.send(Err(full.into()));
            return Ok(None);
        }
        let message = job.message.qos(self.qos);
        let topic = Arc::<[u8]>::from(Arc::clone(&message.topic));
        let payload = Arc::clone(&message.payload);
        let mut property = self.lane.issue(topic, payload, &self.hasher);
        property.flags.derived = is_derived(&message);
        if let Some(spool) = &mut self.spool {
            spool.put_message(property.sequence, &message);
        }
        self.remember_properties(property.sequence, &message);
        let stamped = stamp(message, self.qos, &property)?;
        Ok(Some((
            stamped,
            Some(property),
            Some(job.reply),
            job.releases,
        )))
    }

    /// The first of those that wait was answered.
    fn handle_answer(&mut self, answer: Answered) -> Result<(), AuditError> {
        let Some(sent) = self.sent.pop_front() else {
            return Ok(());
        };
        let result = match answer {
            Ok(acknowledged) => {
                sent.releases.into_iter().for_each(Acknowledgement::give);
                if let Some(property) = sent.property {
                    self.acknowledged = property.sequence + 1;
                }
                Ok(acknowledged)
            }
            Err(crate::PublishError::Ended(_)) => return Err(AuditError::Ended),
            // It has its number, so receivers will miss it and ask.
            Err(error) => Err(AuditError::Publish(error)),
        };
        if let (Some(reply), Some(property)) = (sent.reply, sent.property) {
            // Nobody need be waiting.
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

    fn due(&self) -> Instant {
        // Nothing is said that the broker could not hear.
        if self.client.connection().is_none() {
            return Instant::now() + CONNECTING_STEP;
        }
        let checkpoint = (self.lane.size() > 0).then(|| self.lane.checkpoint_due());
        let due = checkpoint.map_or(self.directory_due, |due| due.min(self.directory_due));
        self.clock.instant(due)
    }

    async fn tell_what_is_due(&mut self) -> Result<(), AuditError> {
        if self.client.connection().is_none() {
            return Ok(());
        }
        loop {
            let now = self.clock.now();
            let time_us = Clock::time_us();
            let Some(checkpoint) = self.lane.poll_checkpoint(now, time_us, &self.hasher) else {
                break;
            };
            self.tell_checkpoint(&checkpoint).await?;
        }
        if self.clock.now() >= self.directory_due {
            self.tell_directory(true).await?;
        }
        if self.spool.as_ref().is_some_and(Spool::is_worth_trimming) {
            self.trim().await?;
        }
        Ok(())
    }

    async fn tell_checkpoint(&mut self, checkpoint: &Checkpoint) -> Result<Receipt, AuditError> {
        // Two checkpoints with one number would contradict each other.
        self.told = Some((checkpoint.number, checkpoint.size));
        if let Some(spool) = &mut self.spool {
            spool.put_told(checkpoint.number, checkpoint.size);
        }
        self.commit().await?;
        let mut payload = Vec::new();
        checkpoint.encode(&self.hasher, &mut payload);
        self.say(self.names.checkpoint(checkpoint.lane), payload)
            .await
    }

    async fn tell_directory(&mut self, is_open: bool) -> Result<(), AuditError> {
        let open = OpenLane {
            lane: self.lane.id(),
            epoch: self.lane.epoch(),
            size: self.lane.size(),
        };
        let directory = Directory {
            producer: self.lane.id().value(),
            epoch: self.lane.epoch(),
            number: self.directories,
            time_us: Clock::time_us(),
            lanes: if is_open { vec![open] } else { Vec::new() },
        };
        self.directories += 1;
        self.directory_due = self.clock.now() + DIRECTORY_STEP;
        let mut payload = Vec::new();
        directory
            .encode(&self.hasher, &mut payload)
            .expect("one lane or none is in order");
        let topic = self.names.directory(directory.producer);
        self.say(topic, payload).await?;
        Ok(())
    }

    async fn say(&self, topic: String, payload: Vec<u8>) -> Result<Receipt, AuditError> {
        let message = Message::new(topic, payload).expect("an audit topic is a topic");
        Ok(self.client.send(message.qos(self.qos)).await?)
    }

    /// Notes what is asked for, and answers at once what needs no messages.
    async fn handle_request(&mut self, received: &Received) -> Result<(), AuditError> {
        let properties = received.properties();
        let Some(topic) = properties.response_topic() else {
            return Ok(());
        };
        // Nobody is made to write where others read.
        if !matches!(self.names.kind(topic), Some(Kind::Answer(_)))
            || TopicName::parse(topic).is_err()
        {
            return Ok(());
        }
        let topic = Arc::<str>::from(topic);
        let correlation = properties.correlation_data().map(<[u8]>::to_vec);
        let Ok((epoch, request)) = Request::parse(received.payload()) else {
            return Ok(());
        };
        let answer = match request {
            Request::Numbers(missing) if epoch != self.lane.epoch() => Answer::NotHeld(missing),
            Request::Numbers(missing) => {
                let repair = self.lane.repair(&missing);
                for numbers in repair.held {
                    if self.repairs.len() >= REPAIRS_MAX {
                        // Whoever asked asks again.
                        break;
                    }
                    self.repairs.push_back(Repair {
                        numbers,
                        topic: Arc::clone(&topic),
                        correlation: correlation.clone(),
                    });
                }
                if repair.not_held.is_empty() {
                    return Ok(());
                }
                Answer::NotHeld(repair.not_held)
            }
            _ if epoch != self.lane.epoch() => return Ok(()),
            about_hashes => match self.lane.answer(&about_hashes, &self.hasher) {
                Some(answer) => answer,
                None => return Ok(()),
            },
        };
        let mut payload = Vec::new();
        answer.encode(epoch, &mut payload);
        let lane = self.lane.id().to_string();
        let message = Message::new(topic, payload).expect("the topic was read as one");
        let message = message.qos(self.qos).user_property(ANSWER, &lane)?;
        self.client
            .send(correlated(message, correlation.as_deref())?)
            .await?;
        Ok(())
    }

    /// Sends some of the messages that were asked for again.
    async fn repair(&mut self) -> Result<(), AuditError> {
        let Some(mut repair) = self.repairs.pop_front() else {
            return Ok(());
        };
        for number in repair.numbers.by_ref().take(REPAIRED_AT_ONCE) {
            let Some(resend) = self.lane.resend(number, &self.hasher) else {
                // No longer held since; whoever asked asks again and is told.
                continue;
            };
            let mut property = resend.property;
            let topic = String::from_utf8_lossy(&resend.topic).into_owned();
            let mut message = Message::new(Arc::clone(&repair.topic), resend.payload)
                .expect("the topic was read as one")
                .qos(self.qos);
            if let Some(kept) = self.properties.get(&number) {
                message.properties.extend(kept.properties.as_properties());
            }
            property.flags.derived = is_derived(&message);
            let message = message
                .user_property(AUDIT, &property.to_text())?
                .user_property(TOPIC, &topic)?;
            let message = correlated(message, repair.correlation.as_deref())?;
            self.client.send(message).await?;
        }
        if !repair.numbers.is_empty() {
            self.repairs.push_back(repair);
        }
        Ok(())
    }

    /// Writes the spool anew, without what nobody will ask for.
    async fn trim(&mut self) -> Result<(), AuditError> {
        let oldest_held = self.oldest_held();
        self.properties = self.properties.split_off(&oldest_held);
        let Some(mut spool) = self.spool.take() else {
            return Ok(());
        };
        let mut saved = Vec::new();
        let from = self.acknowledged.min(oldest_held);
        let from = self.lane.save(from, &self.hasher, &mut saved);
        let mut messages = Vec::new();
        for number in from..self.lane.size() {
            let Some(resend) = self.lane.resend(number, &self.hasher) else {
                // What is not acknowledged is not held: nothing can be trimmed now.
                self.spool = Some(spool);
                return Ok(());
            };
            let topic = String::from_utf8_lossy(&resend.topic).into_owned();
            let mut message = Message::new(topic, resend.payload)
                .expect("it was published to this topic")
                .qos(self.qos);
            if let Some(kept) = self.properties.get(&number) {
                message.properties.extend(kept.properties.as_properties());
                message.retain = kept.retain;
            }
            messages.push((number, message));
        }
        let (acknowledged, told) = (self.acknowledged, self.told);
        let trimming = tokio::task::spawn_blocking(move || {
            let messages = messages.iter().map(|(number, message)| (*number, message));
            let result = spool.rewrite(&saved, messages, acknowledged, told);
            (spool, result)
        });
        let (spool, result) = trimming.await.expect("writing a spool does not panic");
        self.spool = Some(spool);
        result.map_err(AuditError::from)
    }

    /// Waits until everything is acknowledged; then ends the epoch, if it is to end.
    async fn finish(
        &mut self,
        closing: Option<TotalDuration>,
        requests: &mut Subscription,
    ) -> Result<(), AuditError> {
        while !self.sent.is_empty() {
            let answer = first_answer(&mut self.sent).await;
            self.handle_answer(answer)?;
        }
        let Some(answering) = closing else {
            if let Some(spool) = &mut self.spool {
                spool.put_acknowledged(self.acknowledged);
            }
            return self.commit().await;
        };
        let lane = self.lane.clone();
        if let Some(last) = lane.close(Clock::time_us(), &self.hasher) {
            let receipt = self.tell_checkpoint(&last).await?;
            receipt.acknowledged().await?;
        }
        self.tell_directory(false).await?;
        let until = Instant::now() + answering.0;
        loop {
            tokio::select! {
                request = requests.recv() => match request {
                    Ok(request) => self.handle_request(&request).await?,
                    Err(_) => break,
                },
                () = std::future::ready(()), if !self.repairs.is_empty() => self.repair().await?,
                () = sleep_until(until) => break,
            }
        }
        self.note_end(self.lane.epoch()).await
    }

    async fn note_end(&mut self, epoch: Epoch) -> Result<(), AuditError> {
        if let Some(spool) = &mut self.spool {
            spool.put_closed(epoch);
        }
        self.commit().await
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

    fn room(&self, message: &Message) -> Result<(), SpoolError> {
        let spool = self.spool.as_ref();
        spool.map_or(Ok(()), |spool| spool.has_room(message))
    }

    /// The lowest number whose message could be sent again.
    fn oldest_held(&self) -> u64 {
        let size = self.lane.size();
        if size == 0 {
            return 0;
        }
        let all = self.lane.repair(std::slice::from_ref(&(0..size)));
        all.held.first().map_or(size, |held| held.start)
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

type Numbered = (
    Message,
    Option<Stamp>,
    Option<oneshot::Sender<Result<Published, AuditError>>>,
    Vec<Acknowledgement>,
);

type Answered = Result<crate::Acknowledged, crate::PublishError>;

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

/// Whether a processor made it.
fn is_derived(message: &Message) -> bool {
    let mut names = message.properties().user_properties();
    names.any(|(name, _)| name == ORIGIN || name == PARENTS)
}

fn correlated(message: Message, data: Option<&[u8]>) -> Result<Message, EncodeError> {
    match data {
        Some(data) => message.correlation_data(data),
        None => Ok(message),
    }
}

/// Messages in one frame of the spool.
const BATCH_MAX: usize = 256;
/// Acknowledged messages after which the spool is told.
const ACKNOWLEDGED_STEP: u64 = 256;
/// Ranges that were asked for and not sent yet; about 100 bytes each.
const REPAIRS_MAX: usize = 4_096;
/// Messages sent again before new ones get a turn.
const REPAIRED_AT_ONCE: usize = 32;
/// Properties kept before those are looked through that nobody can ask for any more.
const PROPERTIES_STEP: usize = 4_096;
/// How often to look for a connection.
const CONNECTING_STEP: Duration = Duration::from_millis(100);
/// Time between two directories.
const DIRECTORY_STEP: Duration = Duration::from_secs(10);
