//! An application message: as it lies in the bytes it came in ([`Publication`]), and as it is kept
//! while someone still waits for it ([`Message`]).
//!
//! Invariants:
//! - A publication's properties never hold Topic Alias, Message Expiry Interval or Subscription
//!   Identifier: the first ends at the broker, the second is a deadline here and counted down where
//!   it is written, the third is the receiver's.
//! - A message is never changed after it was shared; a used one is refilled only by its last owner.

mod pool;

pub(crate) use pool::MessagePool;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use unbroken_merkle_log::{
    Algorithm, Epoch, Flags, Hash, LaneId, Property as Stamp, Xxh3, message_digest,
};
use unbroken_mqtt_proto::{Properties, Property, PropertyBuf, QoS};

use crate::memory::{Budget, Charge};
use crate::policy::SIGNED_TOPIC;
use crate::position::Position;

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
    /// What it bears inside the broker; none if it is the broker's own, or not audited.
    pub(crate) mark: Option<Mark>,
}

impl<'a> Publication<'a> {
    /// The same on another topic.
    pub(crate) fn on(&self, topic: &'a str) -> Self {
        Self { topic, ..*self }
    }

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
    mark: Option<Mark>,
    /// The client id it came from; `None` for the broker's own.
    publisher: Option<Arc<str>>,
    /// Where it is stored, packed; 0 if it is not. It is asked for while some have it already, and
    /// before another shard does.
    position: AtomicU64,
    /// Its memory, among what waits for clients.
    charge: Charge,
}

/// All that there is to a message, to store it and to make it again.
#[derive(Clone, Debug)]
pub struct MessageParts<'a> {
    /// The topic it was published to.
    pub topic: &'a str,
    /// Without those that end at the broker, are a deadline here, or are the receiver's.
    pub properties: Properties<'a>,
    /// The application's bytes.
    pub payload: &'a [u8],
    /// As published.
    pub qos: QoS,
    /// As the publisher set it.
    pub retain: bool,
    /// When the broker took it.
    pub stamp: Instant,
    /// When its Message Expiry Interval will have passed.
    pub expires: Option<Instant>,
    /// The client id it came from; `None` for the broker's own.
    pub publisher: Option<Arc<str>>,
    /// What it bears for the proof.
    pub mark: Option<MarkParts>,
}

/// A message's place in the lane of the client it came from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MarkParts {
    /// The lane; not 0.
    pub lane: u64,
    /// Its epoch.
    pub epoch: u32,
    /// The number in the epoch.
    pub number: u64,
    /// The beginning of the hash of the message.
    pub leaf: [u8; 16],
}

/// What an accepted message bears inside the broker, and not on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Mark {
    pub(crate) lane: LaneId,
    pub(crate) epoch: Epoch,
    pub(crate) number: u64,
    leaf: [u8; LEAF],
    /// What becomes of it is to be told.
    pub(crate) tracked: bool,
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
            mark: publication.mark,
            publisher: None,
            position: AtomicU64::new(0),
            charge: Charge::default(),
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
        self.mark = publication.mark;
        self.publisher = publisher.map(Arc::clone);
    }

    fn clear(&mut self) {
        self.topic.clear();
        self.properties.clear();
        self.payload.clear();
        self.publisher = None;
        *self.position.get_mut() = 0;
    }

    /// A message that was stored at this position; without one, it is kept elsewhere.
    pub fn restore(parts: MessageParts<'_>, position: Option<Position>) -> Self {
        let publication = Publication {
            topic: parts.topic,
            properties: parts.properties,
            payload: parts.payload,
            qos: parts.qos,
            retain: parts.retain,
            expires: parts.expires,
            stamp: parts.stamp,
            mark: parts.mark.and_then(Mark::restore),
        };
        let message = Self::new(&publication, parts.publisher.as_ref());
        let packed = position.map_or(0, Position::pack);
        message.position.store(packed, Ordering::Relaxed);
        message
    }

    /// A copy of its own, for whoever cannot know that the log still has this one.
    pub(crate) fn in_no_log(&self) -> Self {
        Self::new(&self.publication(), self.publisher.as_ref())
    }

    /// All that there is to it.
    pub fn parts(&self) -> MessageParts<'_> {
        MessageParts {
            topic: &self.topic,
            properties: self.properties.as_properties(),
            payload: &self.payload,
            qos: self.qos,
            retain: self.retain,
            stamp: self.stamp,
            expires: self.expires,
            publisher: self.publisher.clone(),
            mark: self.mark.as_ref().map(Mark::parts),
        }
    }

    /// Where it is stored, or asked to be. A shard that was sent it knows.
    pub fn position(&self) -> Option<Position> {
        Position::unpack(self.position.load(Ordering::Relaxed))
    }

    pub(crate) fn set_position(&self, position: Position) {
        self.position.store(position.pack(), Ordering::Relaxed);
    }

    /// Bytes that it keeps from the allocator, with the room in its buffers.
    const fn memory(&self) -> usize {
        let properties = self.properties.capacity();
        size_of::<Self>() + self.topic.capacity() + properties + self.payload.capacity()
    }

    /// Counts its memory among what waits for clients, if it is not counted.
    pub(crate) fn count(&mut self, budget: &Arc<Budget>) {
        let memory = self.memory();
        self.charge.count(budget, memory);
    }

    /// It is retained: another limit holds for that.
    pub(crate) fn end_count(&self) {
        self.charge.end();
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
            mark: self.mark,
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

impl Mark {
    /// Of a message that has this number in its lane.
    pub(crate) fn new(
        lane: LaneId,
        epoch: Epoch,
        number: u64,
        publication: &Publication<'_>,
    ) -> Self {
        Self {
            lane,
            epoch,
            number,
            leaf: leaf(lane, epoch, number, publication),
            tracked: false,
        }
    }

    /// Whether topic and payload are those that were accepted.
    pub(crate) fn fits(&self, publication: &Publication<'_>) -> bool {
        self.leaf == leaf(self.lane, self.epoch, self.number, publication)
    }

    pub(crate) fn leaf(&self) -> Hash {
        self.leaf.into()
    }

    pub(crate) fn parts(&self) -> MarkParts {
        MarkParts {
            lane: self.lane.value(),
            epoch: self.epoch.0,
            number: self.number,
            leaf: self.leaf,
        }
    }

    /// `None` for lane 0, which is none.
    pub(crate) fn restore(parts: MarkParts) -> Option<Self> {
        Some(Self {
            lane: LaneId::new(parts.lane)?,
            epoch: Epoch(parts.epoch),
            number: parts.number,
            leaf: parts.leaf,
            tracked: false,
        })
    }

    /// The properties of a message for 5.0 receivers, with the mark as its stamp; as they are if
    /// its publisher gave it one. This stamp covers the topic as it is: what the publisher says of
    /// that would make the message look altered.
    #[cold]
    pub(crate) fn add_to<'a>(
        &self,
        properties: Properties<'a>,
        into: &'a mut PropertyBuf,
    ) -> Properties<'a> {
        if properties
            .user_properties()
            .any(|(name, _)| name == Stamp::NAME)
        {
            return properties;
        }
        let stamp = Stamp {
            algorithm: Algorithm::Xxh3,
            flags: Flags::default(),
            part: None,
            epoch: self.epoch,
            lane: self.lane,
            sequence: self.number,
            digest: self.leaf.into(),
        };
        into.clear();
        for property in properties {
            if !matches!(property, Property::UserProperty(SIGNED_TOPIC, _)) {
                add(into, property);
            }
        }
        let text = stamp.to_text();
        add(into, Property::UserProperty(Stamp::NAME, &text));
        into.as_properties()
    }
}

fn leaf(lane: LaneId, epoch: Epoch, number: u64, publication: &Publication<'_>) -> [u8; LEAF] {
    let (topic, payload) = (publication.topic.as_bytes(), publication.payload);
    let hash = message_digest(&Xxh3, lane, epoch, number, topic, payload);
    let (leaf, _) = hash
        .padded()
        .split_first_chunk()
        .expect("32 bytes have 16 in front");
    *leaf
}

/// Bytes of an XXH3-128 leaf.
const LEAF: usize = 16;

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
            add(scratch, property);
        }
    }
    scratch.as_properties()
}

/// Adds a property whose size the caller has bounded.
pub(crate) fn add(properties: &mut PropertyBuf, property: Property<'_>) {
    let added = properties.push(property);
    debug_assert!(added.is_ok(), "{added:?}");
}
