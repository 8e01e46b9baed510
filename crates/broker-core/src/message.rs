//! An application message: as it lies in the bytes it came in ([`Publication`]), and as it is kept
//! while someone still waits for it ([`Message`]).
//!
//! Invariants:
//! - A publication's properties never hold Topic Alias, Message Expiry Interval or Subscription
//!   Identifier: the first ends at the broker, the second is a deadline here and counted down where
//!   it is written, the third is the receiver's.
//! - A message is never changed after it was shared; a used one is refilled only by its last owner.

use std::sync::Arc;
use std::time::Instant;

use unbroken_mqtt_proto::{Properties, Property, PropertyBuf, QoS};

use crate::limits::{MESSAGE_POOL_BYTES_MAX, MESSAGE_POOL_MAX};

/// A message on its way through one turn of the shard, borrowed from wherever it lies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Publication<'a> {
    pub(crate) topic: &'a str,
    pub(crate) properties: Properties<'a>,
    pub(crate) payload: &'a [u8],
    pub(crate) qos: QoS,
    /// As the publisher set it.
    pub(crate) retain: bool,
    /// When its Message Expiry Interval will have passed.
    pub(crate) expires: Option<Instant>,
    /// When the broker took it. Orders copies of one topic that took different ways through the
    /// shards.
    pub(crate) stamp: Instant,
}

impl Publication<'_> {
    /// What it costs a queue: topic, properties and payload in bytes.
    pub(crate) fn cost(&self) -> u64 {
        (self.topic.len() + self.properties.as_bytes().len() + self.payload.len()) as u64
    }

    pub(crate) fn expired(&self, now: Instant) -> bool {
        self.expires.is_some_and(|at| at <= now)
    }

    /// Whole seconds left of the Message Expiry Interval [MQTT-3.3.2-6], rounded up so that a
    /// message which is not yet expired never says 0.
    pub(crate) fn seconds_left(&self, now: Instant) -> Option<u32> {
        self.expires.map(|at| {
            // Another shard's clock may be a turn behind: never more than the publisher said.
            let left = at.saturating_duration_since(now.max(self.stamp));
            let seconds = left.as_secs() + u64::from(left.subsec_nanos() > 0);
            u32::try_from(seconds).unwrap_or(u32::MAX)
        })
    }
}

/// A message that outlives the turn it came in, shared by all who wait for it.
#[derive(Debug)]
pub struct Message {
    topic: String,
    properties: PropertyBuf,
    payload: Vec<u8>,
    qos: QoS,
    retain: bool,
    expires: Option<Instant>,
    stamp: Instant,
    /// The client id it came from; `None` for the broker's own.
    publisher: Option<Arc<str>>,
}

impl Message {
    pub(crate) fn new(publication: &Publication<'_>, publisher: Option<&Arc<str>>) -> Self {
        let mut message = Self {
            topic: String::new(),
            properties: PropertyBuf::new(),
            payload: Vec::new(),
            qos: publication.qos,
            retain: publication.retain,
            expires: publication.expires,
            stamp: publication.stamp,
            publisher: None,
        };
        message.fill(publication, publisher);
        message
    }

    fn fill(&mut self, publication: &Publication<'_>, publisher: Option<&Arc<str>>) {
        self.topic.push_str(publication.topic);
        self.properties.extend(publication.properties);
        self.payload.extend_from_slice(publication.payload);
        self.qos = publication.qos;
        self.retain = publication.retain;
        self.expires = publication.expires;
        self.stamp = publication.stamp;
        self.publisher = publisher.map(Arc::clone);
    }

    fn clear(&mut self) {
        self.topic.clear();
        self.properties.clear();
        self.payload.clear();
        self.publisher = None;
    }

    pub(crate) fn publication(&self) -> Publication<'_> {
        Publication {
            topic: &self.topic,
            properties: self.properties.as_properties(),
            payload: &self.payload,
            qos: self.qos,
            retain: self.retain,
            expires: self.expires,
            stamp: self.stamp,
        }
    }

    /// The topic it was published to.
    pub fn topic(&self) -> &str {
        &self.topic
    }

    /// The application's bytes.
    pub fn payload(&self) -> &[u8] {
        &self.payload
    }

    /// The client it came from; `None` for the broker's own messages.
    pub fn publisher(&self) -> Option<&Arc<str>> {
        self.publisher.as_ref()
    }
}

/// Copies the properties a receiver is to see: all but those the broker answers for itself,
/// unchanged [MQTT-3.3.2-4, MQTT-3.3.2-15, MQTT-3.3.2-16, MQTT-3.3.2-17, MQTT-3.3.2-20].
pub(crate) fn forwarded_properties<'a>(
    received: Properties<'a>,
    scratch: &'a mut PropertyBuf,
) -> Properties<'a> {
    if received.topic_alias().is_none() && received.message_expiry_interval().is_none() {
        return received;
    }
    scratch.clear();
    for property in received {
        if !matches!(
            property,
            Property::TopicAlias(_) | Property::MessageExpiryInterval(_)
        ) {
            crate::publish::add(scratch, property);
        }
    }
    scratch.as_properties()
}

/// Used messages of this shard, so that steady traffic asks the allocator for nothing.
#[derive(Debug, Default)]
pub(crate) struct MessagePool {
    free: Vec<Arc<Message>>,
}

impl MessagePool {
    pub(crate) fn message(
        &mut self,
        publication: &Publication<'_>,
        publisher: Option<&Arc<str>>,
    ) -> Arc<Message> {
        while let Some(mut used) = self.free.pop() {
            if let Some(message) = Arc::get_mut(&mut used) {
                message.fill(publication, publisher);
                return used;
            }
        }
        Arc::new(Message::new(publication, publisher))
    }

    /// Gives a reference back; the last one out leaves the buffers for the next message.
    pub(crate) fn release(&mut self, mut message: Arc<Message>) {
        if self.free.len() >= MESSAGE_POOL_MAX {
            return;
        }
        if let Some(used) = Arc::get_mut(&mut message)
            && used.payload.capacity() + used.topic.capacity() <= MESSAGE_POOL_BYTES_MAX
        {
            used.clear();
            self.free.push(message);
        }
    }
}
