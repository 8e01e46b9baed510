//! Who misses something of a lane is answered by its producer: messages again, or hashes of them.

use std::ops::Range;
use std::sync::Arc;

use unbroken_merkle_log::ledger::{Answer, Request};
use unbroken_mqtt_proto::{EncodeError, TopicName};

use super::super::error::AuditError;
use super::super::{ANSWER, AUDIT, Kind, TOPIC};
use super::{Producer, is_derived};
use crate::{Message, Received};

/// Messages that somebody asked for.
pub(super) struct Repair {
    numbers: Range<u64>,
    topic: Arc<str>,
    correlation: Option<Vec<u8>>,
}

impl Producer {
    /// Notes what is asked for, and answers at once what needs no messages.
    pub(super) async fn handle_request(&mut self, received: &Received) -> Result<(), AuditError> {
        let properties = received.properties();
        let Some(topic) = properties.response_topic() else {
            return Ok(());
        };
        // A request cannot make the producer write to topics of others.
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
                        // The receiver asks again.
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
    pub(super) async fn repair(&mut self) -> Result<(), AuditError> {
        let Some(mut repair) = self.repairs.pop_front() else {
            return Ok(());
        };
        for number in repair.numbers.by_ref().take(REPAIRED_AT_ONCE) {
            let Some(resend) = self.lane.resend(number, &self.hasher) else {
                // No longer held; the receiver asks again and gets that answer.
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
}

fn correlated(message: Message, data: Option<&[u8]>) -> Result<Message, EncodeError> {
    match data {
        Some(data) => message.correlation_data(data),
        None => Ok(message),
    }
}

/// Ranges that were asked for and not sent yet; about 100 bytes each.
const REPAIRS_MAX: usize = 4_096;
/// Messages sent again before new ones get a turn.
const REPAIRED_AT_ONCE: usize = 32;
