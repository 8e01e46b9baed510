//! The sending end of a hop: it stamps messages, publishes checkpoints, and answers those who miss
//! some.
//!
//! A value over one [`Lane`]: what is to be sent comes out as messages. The lane is new with every
//! start, so what it claims ends with the process.
//!
//! The names on the wire, under a prefix: `checkpoint/<lane>` out, `repair/<lane>` in. An answer
//! goes to the asker's response topic: each message again under its own stamp, flagged re-sent,
//! with its topic in `audit-topic`; hashes, and numbers no longer held, in one with `audit-answer`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use unbroken_client::{EncodeError, Message, QoS, Received, TopicError};
use unbroken_merkle_log::ledger::{Answer, Request};
use unbroken_merkle_log::{
    Checkpoint, DropReason, DropRecord, Epoch, Hasher, Lane, LaneId, LaneLimits, Property,
};

use crate::limits::ORIGINS_HELD;

/// User properties beside the stamp.
pub(crate) const ORIGIN: &str = "audit-origin";
pub(crate) const TOPIC: &str = "audit-topic";
pub(crate) const ANSWER: &str = "audit-answer";

/// Stamps what one sender sends.
#[derive(Debug)]
pub struct Stamper {
    hasher: Hasher,
    lane: Lane,
    id: LaneId,
    prefix: String,
    /// The stamps that each of the latest messages passed on, for answers.
    origins: BTreeMap<u64, Arc<[String]>>,
}

/// A message that cannot be sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StampError {
    /// Its topic.
    #[error("cannot publish there: {0}")]
    Topic(#[from] TopicError),
    /// Its properties.
    #[error("cannot carry its stamps: {0}")]
    Encode(#[from] EncodeError),
}

impl Stamper {
    /// A new lane under this prefix. `now` counts from any fixed moment, the same for all calls.
    pub fn new(id: LaneId, prefix: &str, now: Duration) -> Self {
        Self {
            hasher: Hasher::xxh3(),
            lane: Lane::new(id, Epoch(0), LaneLimits::default(), now),
            id,
            prefix: prefix.to_owned(),
            origins: BTreeMap::new(),
        }
    }

    /// The lane.
    pub fn lane(&self) -> LaneId {
        self.id
    }

    /// How many messages were stamped.
    pub fn sent(&self) -> u64 {
        self.lane.size()
    }

    /// The topic on which others ask for what they miss.
    pub fn repair_topic(&self) -> String {
        format!("{}/repair/{}", self.prefix, self.id)
    }

    /// Stamps a message. `origins` are the stamps that its input bore, oldest first.
    pub fn stamp(
        &mut self,
        topic: &str,
        payload: &[u8],
        origins: Vec<String>,
    ) -> Result<Message, StampError> {
        // Checked before the lane counts it: a number that is never sent would be a loss.
        Message::new(topic, payload)?;
        let property = self.lane.issue(topic.as_bytes(), payload, &self.hasher);
        let origins: Arc<[String]> = origins.into();
        if !origins.is_empty() {
            self.origins.insert(property.sequence, Arc::clone(&origins));
            while self.origins.len() > ORIGINS_HELD {
                self.origins.pop_first();
            }
        }
        message(topic, payload, &property, &origins)
    }

    /// Says of an input that it goes no further, and why.
    pub fn drop_record(
        &self,
        reason: DropReason,
        dropped: &Property,
    ) -> Result<Message, StampError> {
        let record = DropRecord::of(reason, [dropped]).expect("one message is of one lane");
        let mut bytes = Vec::new();
        record
            .encode(&self.hasher, &mut bytes)
            .expect("one message makes one run");
        let topic = format!("{}/drop/{}", self.prefix, record.lane);
        Ok(Message::new(topic, bytes)?.qos(QoS::AtLeastOnce))
    }

    /// The last checkpoint: nothing more is stamped. `None` if nothing was.
    pub fn close(&self) -> Result<Option<Message>, StampError> {
        let Some(checkpoint) = self.lane.clone().close(wall_us(), &self.hasher) else {
            return Ok(None);
        };
        self.sealed(&checkpoint).map(Some)
    }

    /// The checkpoint that is due, if one is.
    pub fn poll(&mut self, now: Duration) -> Result<Option<Message>, StampError> {
        let due = self.lane.poll_checkpoint(now, wall_us(), &self.hasher);
        due.map(|checkpoint| self.sealed(&checkpoint)).transpose()
    }

    /// The answers to a request that came on the repair topic. One that cannot be read, or says
    /// not where to answer, has none: whoever wrote it will miss the answer.
    pub fn answer(&self, request: &Received) -> Result<Vec<Message>, StampError> {
        let Some(to) = request.properties().response_topic() else {
            return Ok(Vec::new());
        };
        let Ok((epoch, asked)) = Request::parse(request.payload()) else {
            return Ok(Vec::new());
        };
        let mut answers = Vec::new();
        let told = match &asked {
            Request::Numbers(missing) => {
                let repair = self.lane.repair(missing);
                for number in repair.held.into_iter().flatten() {
                    answers.extend(self.again(number, to)?);
                }
                (!repair.not_held.is_empty()).then_some(Answer::NotHeld(repair.not_held))
            }
            hashes => self.lane.answer(hashes, &self.hasher),
        };
        if let Some(told) = told {
            let mut bytes = Vec::new();
            told.encode(epoch, &mut bytes);
            let message = Message::new(to, bytes)?.qos(QoS::AtLeastOnce);
            answers.push(message.user_property(ANSWER, &self.id.to_string())?);
        }
        Ok(answers)
    }

    fn sealed(&self, checkpoint: &Checkpoint) -> Result<Message, StampError> {
        let mut bytes = Vec::new();
        checkpoint.encode(&self.hasher, &mut bytes);
        let topic = format!("{}/checkpoint/{}", self.prefix, self.id);
        Ok(Message::new(topic, bytes)?.qos(QoS::AtLeastOnce))
    }

    fn again(&self, number: u64, to: &str) -> Result<Option<Message>, StampError> {
        let Some(held) = self.lane.resend(number, &self.hasher) else {
            return Ok(None);
        };
        let origins = self.origins.get(&number).map_or(&[][..], |origins| origins);
        let message = message(to, &held.payload, &held.property, origins)?;
        let topic = String::from_utf8_lossy(&held.topic);
        Ok(Some(message.user_property(TOPIC, &topic)?))
    }
}

fn message(
    topic: &str,
    payload: &[u8],
    property: &Property,
    origins: &[String],
) -> Result<Message, StampError> {
    let message = Message::new(topic, payload)?.qos(QoS::AtLeastOnce);
    let mut message = message.user_property(Property::NAME, &property.to_text())?;
    for origin in origins {
        message = message.user_property(ORIGIN, origin)?;
    }
    Ok(message)
}

/// Microseconds since 1970; 0 on a machine whose clock stands before it.
fn wall_us() -> u64 {
    let time = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    time.map_or(0, |time| {
        u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
    })
}
