//! An application message: as it lies in the bytes it came in ([`Publication`]), and as it is kept
//! while someone still waits for it ([`Message`]).
//!
//! Invariants:
//! - A publication's properties never hold Topic Alias, Message Expiry Interval or Subscription
//!   Identifier: the first ends at the broker, the second is a deadline here and counted down where
//!   it is written, the third is the receiver's.
//! - A message is never changed after it was shared; a used one is refilled only by its last owner.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use unbroken_merkle_log::{
    Algorithm, Epoch, Flags, Hash, LaneId, Property as Stamp, Xxh3, message_digest,
};
use unbroken_mqtt_proto::{Properties, Property, PropertyBuf, QoS};

use crate::limits::{LENT_MAX, MESSAGE_POOL_BYTES, MESSAGE_POOL_EACH_MAX};
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
    mark: Option<Mark>,
    /// The client id it came from; `None` for the broker's own.
    publisher: Option<Arc<str>>,
    /// Where it is stored, packed; 0 if it is not. It is asked for while some have it already, and
    /// before another shard does.
    position: AtomicU64,
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
    /// its publisher gave it one.
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
        into.extend(properties);
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

/// Messages of this shard that have been used, so that steady traffic asks the allocator for
/// nothing.
///
/// HOT: `message` runs for each message that somebody must remember, `lend` for each that another
/// shard gets and not in a [bundle](crate::mesh).
///
/// ```text
/// message:  one is free? refill it : the longest lent is back? refill it : ask the allocator
/// release:  nobody else holds it? free : whoever still does will release it
/// lend:     behind those lent before; it is back when our reference is the only one left
/// ```
///
/// Other shards use up what this one makes. They give nothing back: they drop it, and the reference
/// that stays here finds itself alone. So a stream in one direction goes round without a message in
/// the other.
///
/// What is held for long (a queue of a client that is away) is given up once it is the oldest of
/// [`LENT_MAX`]; until it is, what was lent after it is not looked at, and the allocator is
/// asked. A retained message is not lent, because it stays.
///
/// Tried and lost:
/// - Whoever uses a message last takes it into the pool of that shard: a stream in one direction
///   then fills one pool and asks the allocator in the other for every message.
/// - A second look, at the next longest lent, or passing over what is held: no fewer allocations,
///   because what is held for long fills the ring and then leaves it either way.
/// - Lending everything that is still in use, also to sessions of this shard: a release by the last
///   of them is cheaper than looking.
#[derive(Debug, Default)]
pub(crate) struct MessagePool {
    /// Nobody else has a reference.
    free: Vec<Arc<Message>>,
    /// What they take together.
    free_bytes: usize,
    /// Longest lent in front. Others may have references.
    lent: VecDeque<Arc<Message>>,
}

impl MessagePool {
    pub(crate) fn message(
        &mut self,
        publication: &Publication<'_>,
        publisher: Option<&Arc<str>>,
    ) -> Arc<Message> {
        let refill = |used: &mut Arc<Message>| match Arc::get_mut(used) {
            Some(message) => {
                message.clear();
                message.fill(publication, publisher);
                true
            }
            None => false,
        };
        // Nobody else has one of these.
        if let Some(mut used) = self.free.pop() {
            self.free_bytes -= used.memory();
            if refill(&mut used) {
                return used;
            }
        }
        self.lent
            .pop_front_if(refill)
            .unwrap_or_else(|| Arc::new(Message::new(publication, publisher)))
    }

    /// Gives a reference back; the last one out leaves the buffers for the next message.
    pub(crate) fn release(&mut self, mut message: Arc<Message>) {
        let Some(used) = Arc::get_mut(&mut message) else {
            return;
        };
        let memory = used.memory();
        if memory <= MESSAGE_POOL_EACH_MAX && self.free_bytes + memory <= MESSAGE_POOL_BYTES {
            used.clear();
            self.free_bytes += memory;
            self.free.push(message);
        }
    }

    /// Keeps a reference to a message that was made here and sent to another shard.
    pub(crate) fn lend(&mut self, message: Arc<Message>) {
        if message.memory() > MESSAGE_POOL_EACH_MAX {
            return;
        }
        if self.lent.len() >= LENT_MAX {
            self.lent.pop_front();
        }
        self.lent.push_back(message);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes messages, and says where each lies.
    struct Maker {
        pool: MessagePool,
        now: Instant,
    }

    impl Maker {
        #[expect(clippy::disallowed_methods, reason = "a test's epoch")]
        fn new() -> Self {
            Self {
                pool: MessagePool::default(),
                now: Instant::now(),
            }
        }

        fn make(&mut self, payload: &[u8]) -> Arc<Message> {
            let publication = Publication {
                topic: "topic",
                properties: Properties::EMPTY,
                payload,
                qos: QoS::AtLeastOnce,
                retain: false,
                expires: None,
                stamp: self.now,
                mark: None,
            };
            let made = self.pool.message(&publication, None);
            assert_eq!((made.topic(), made.payload()), ("topic", payload));
            made
        }

        /// A message as the shard that it was sent to holds it.
        fn send(&mut self, payload: &[u8]) -> Arc<Message> {
            let made = self.make(payload);
            let sent = Arc::clone(&made);
            self.pool.lend(made);
            sent
        }
    }

    #[test]
    fn a_lent_message_is_refilled_when_its_last_user_has_dropped_it() {
        let mut maker = Maker::new();
        let first = maker.send(b"first");
        let lies_at = Arc::as_ptr(&first);
        drop(first);
        assert_eq!(Arc::as_ptr(&maker.send(b"2nd")), lies_at);
    }

    #[test]
    fn a_message_that_somebody_still_holds_is_never_refilled() {
        let mut maker = Maker::new();
        let held: Vec<_> = (0..10).map(|n| maker.send(&[n])).collect();
        let another_user = Arc::clone(&held[0]);
        let timer = Arc::downgrade(&held[1]);
        drop(held);
        for n in 10..20 {
            drop(maker.send(&[n]));
        }
        assert_eq!(another_user.payload(), [0]);
        drop(another_user);
        drop(maker.send(&[20]));
        drop(maker.send(&[21]));
        let payload = timer.upgrade().map(|message| message.payload().to_vec());
        assert_eq!(payload.as_deref(), Some(&[1][..]), "a timer may look at it");
    }

    #[test]
    fn what_is_held_for_long_is_given_up_when_the_ring_is_full() {
        let mut maker = Maker::new();
        let held = maker.send(b"held");
        let next = Arc::as_ptr(&maker.send(b"next"));
        for _ in 2..LENT_MAX {
            drop(maker.send(b"more"));
        }
        assert_eq!(maker.pool.lent.len(), LENT_MAX);
        assert_eq!(Arc::strong_count(&held), 2);
        drop(maker.send(b"one too many"));
        assert_eq!(maker.pool.lent.len(), LENT_MAX);
        assert_eq!(Arc::strong_count(&held), 1, "nothing but its user holds it");
        assert_eq!(Arc::as_ptr(&maker.send(b"the next is back")), next);
    }

    #[test]
    fn a_large_message_is_not_kept() {
        let large = vec![0; MESSAGE_POOL_EACH_MAX];
        let mut maker = Maker::new();
        let sent = maker.send(&large);
        assert_eq!(Arc::strong_count(&sent), 1);
        let made = maker.make(&large);
        maker.pool.release(made);
        assert_eq!(maker.pool.free.len(), 0);
    }

    #[test]
    fn what_is_free_takes_no_more_than_the_pool_may() {
        let mut maker = Maker::new();
        let payload = [0; 1_024];
        let made: Vec<_> = (0..=MESSAGE_POOL_BYTES / payload.len())
            .map(|_| maker.make(&payload))
            .collect();
        for message in made {
            maker.pool.release(message);
        }
        let of_all = |pool: &MessagePool| pool.free.iter().map(|free| free.memory()).sum::<usize>();
        assert_eq!(maker.pool.free_bytes, of_all(&maker.pool));
        assert!(maker.pool.free_bytes <= MESSAGE_POOL_BYTES);
        assert!(maker.pool.free_bytes > MESSAGE_POOL_BYTES - MESSAGE_POOL_EACH_MAX);
        let again = maker.make(&payload);
        assert_eq!(maker.pool.free_bytes, of_all(&maker.pool));
        assert_eq!(again.payload(), payload);
    }

    #[test]
    fn the_last_reference_that_is_released_makes_a_message_free() {
        let mut maker = Maker::new();
        let first = maker.make(b"first");
        let lies_at = Arc::as_ptr(&first);
        maker.pool.release(Arc::clone(&first));
        assert_ne!(Arc::as_ptr(&maker.make(b"still in use")), lies_at);
        maker.pool.release(first);
        assert_eq!(Arc::as_ptr(&maker.make(b"2nd")), lies_at);
    }
}
