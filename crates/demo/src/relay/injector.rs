//! What happens to the packets of one connection on the way that is injected. Bytes in, bytes out;
//! time is an argument.
//!
//! A message that is lost is acknowledged to its sender in the receiver's place, at QoS 2 to the
//! end of the exchange. What is held back is acknowledged when its receiver has it. A second
//! message, copied or invented, goes out under the packet id of the first when that is
//! acknowledged; of the two acknowledgements the sender sees the later one. So neither side ever
//! has more under way than it may, and the second keeps behind the first. At QoS 0 it goes out at
//! once, and a message at QoS 2 gets none.
//!
//! An injected fault is seen when its message is acknowledged. One that was not seen by the end of
//! the connection never will be: the sender sends the message again, flagged so, and unchanged. So
//! it does with a lost one whose acknowledgement has not reached it.
//!
//! A message is injected when it carries exactly one readable audit property and is neither a
//! repair nor MQTT's own repetition (DUP). One that sets a topic alias is left alone: those behind
//! it would have no name.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use unbroken_merkle_log::{Hasher, Property as Audit};
use unbroken_mqtt_proto::connection::alias;
use unbroken_mqtt_proto::{
    Ack, Frame, Packet, PacketId, PacketType, Property, PropertyBuf, Publish, QoS, Version,
};

use super::orders::Orders;
use crate::injection::{Injected, Injection, Stamps};
use crate::limits::SWAP_WITHIN;

/// The user property in which a processor's output names what it was made from.
const ORIGIN: &str = "audit-origin";

#[derive(Debug)]
pub(super) struct Injector {
    aliases: alias::Inbound,
    /// QoS 2 messages lost, whose PUBREL is still to come.
    unreleased: BTreeSet<PacketId>,
    held: Option<Held>,
    /// Second messages, until the first with their id is acknowledged.
    seconds: BTreeMap<PacketId, Second>,
    /// Injections of messages that have passed and are not acknowledged.
    unseen: Unseen,
    /// One that passed unchanged, to be replayed.
    old: Option<Old>,
    /// Messages that passed since the last one was kept for that.
    since_old: u32,
}

/// By the id of the last message of each.
type Unseen = BTreeMap<PacketId, Injected>;

/// A message that passed long ago.
#[derive(Debug)]
struct Old {
    topic: String,
    properties: PropertyBuf,
    payload: Vec<u8>,
    stamps: Stamps,
}

/// A second message under the id of the first.
#[derive(Debug)]
struct Second {
    bytes: Vec<u8>,
    injected: Injected,
}

/// A message that waits.
#[derive(Debug)]
struct Held {
    bytes: Vec<u8>,
    packet_id: Option<PacketId>,
    injected: Injected,
    until: Instant,
    /// Another of its lane has passed.
    is_overtaken: bool,
}

/// An audited message, with what is needed to write it again.
struct Subject<'a> {
    frame: Frame<'a>,
    publish: Publish<'a>,
    topic: &'a str,
    audit: Audit,
}

impl Injector {
    pub(super) fn new() -> Self {
        Self {
            aliases: alias::Inbound::new(u16::MAX),
            unreleased: BTreeSet::new(),
            held: None,
            seconds: BTreeMap::new(),
            unseen: BTreeMap::new(),
            old: None,
            since_old: 0,
        }
    }

    /// Passes a packet, whole or injected: what goes on to its receiver, and what goes back to its
    /// sender. `version` is unknown before a CONNECT.
    pub(super) fn handle(
        &mut self,
        frame: Frame<'_>,
        version: Option<Version>,
        orders: &mut Orders,
        now: Instant,
        onward: &mut Vec<u8>,
        back: &mut Vec<u8>,
    ) {
        let Some(version) = version else {
            onward.extend_from_slice(frame.bytes);
            return;
        };
        if let Some(packet_id) = self.released(frame, version) {
            answer(Packet::PubComp(Ack::success(packet_id)), version, back);
            return;
        }
        let publish = frame
            .is_publish()
            .then(|| Publish::decode(frame, version).ok());
        let Some(publish) = publish.flatten() else {
            onward.extend_from_slice(frame.bytes);
            return;
        };
        let alias = publish.properties.topic_alias();
        let sets_alias = alias.is_some() && !publish.topic.is_empty();
        let Ok(topic) = self.aliases.resolve(publish.topic, alias) else {
            onward.extend_from_slice(frame.bytes);
            return;
        };
        let topic = topic.as_str().to_owned();
        if !sets_alias && orders.loses_checkpoint(&topic) {
            lose(&publish, version, &mut self.unreleased, back);
            return;
        }
        let audit = audit(&publish).filter(|audit| !audit.flags.resent);
        if publish.dup
            && let Some(audit) = &audit
        {
            orders.repeated(audit);
        }
        let Some(audit) = audit.filter(|_| !sets_alias && !publish.dup) else {
            onward.extend_from_slice(frame.bytes);
            return;
        };
        let subject = Subject {
            frame,
            publish,
            topic: &topic,
            audit,
        };
        // One at a time, so that faults are of different messages.
        let is_free = self.held.is_none();
        let has_old = self.old.is_some();
        let can = |injection| {
            is_free && (injection != Injection::Replay || has_old) && subject.can_have(injection)
        };
        match orders.due(can) {
            None => self.pass(&subject, orders, now, onward),
            Some(injection) => {
                let output = (onward, back);
                self.inject(injection, &subject, version, orders, now, output);
            }
        }
    }

    /// Forwards a message unchanged, and behind it one that was held.
    fn pass(
        &mut self,
        subject: &Subject<'_>,
        orders: &mut Orders,
        now: Instant,
        onward: &mut Vec<u8>,
    ) {
        let is_free = self.held.is_none();
        self.since_old += 1;
        if self.old.is_none() && is_free && self.since_old >= REPLAYED_AFTER {
            self.old = Some(subject.kept());
            self.since_old = 0;
        }
        onward.extend_from_slice(subject.frame.bytes);
        if let Some(overtaken) = overtake(&mut self.held, subject, now) {
            onward.extend(overtaken.bytes);
            let (injected, id) = (overtaken.injected, overtaken.packet_id);
            note(injected, id, &mut self.unseen, orders);
        }
    }

    /// Injects a fault into a message.
    fn inject(
        &mut self,
        injection: Injection,
        subject: &Subject<'_>,
        version: Version,
        orders: &mut Orders,
        now: Instant,
        (onward, back): (&mut Vec<u8>, &mut Vec<u8>),
    ) {
        match injection {
            Injection::Lose => {
                lose(&subject.publish, version, &mut self.unreleased, back);
                orders.note(subject.injected(Injection::Lose, now));
            }
            Injection::Swap | Injection::Hold(_) => {
                let until = match injection {
                    Injection::Hold(time) => now + time,
                    _ => now + SWAP_WITHIN,
                };
                self.held = Some(Held {
                    bytes: subject.named_in_full(),
                    packet_id: subject.publish.packet_id,
                    injected: subject.injected(injection, now),
                    until,
                    is_overtaken: false,
                });
            }
            Injection::Replay => {
                onward.extend_from_slice(subject.frame.bytes);
                if let (Some(old), Some(packet_id)) = (self.old.take(), subject.publish.packet_id) {
                    let bytes = old.written(&subject.publish);
                    let injected = Injected {
                        injection,
                        topic: old.topic,
                        message: old.stamps,
                        overtaken_by: None,
                        at: now,
                    };
                    self.seconds.insert(packet_id, Second { bytes, injected });
                }
            }
            Injection::Duplicate | Injection::Inject => {
                let payload = subject.publish.payload;
                let bytes = match injection {
                    Injection::Duplicate => subject.written(payload, None),
                    _ => subject.written(&altered(payload), None),
                };
                onward.extend_from_slice(subject.frame.bytes);
                let injected = subject.injected(injection, now);
                if let Some(packet_id) = subject.publish.packet_id {
                    self.seconds.insert(packet_id, Second { bytes, injected });
                } else {
                    onward.extend(bytes);
                    orders.note(injected);
                }
            }
            Injection::Alter | Injection::Forge => {
                let payload = altered(subject.publish.payload);
                let forged = (injection == Injection::Forge)
                    .then(|| subject.forged(&payload))
                    .flatten();
                onward.extend(subject.written(&payload, forged));
                let (injected, id) = (subject.injected(injection, now), subject.publish.packet_id);
                note(injected, id, &mut self.unseen, orders);
            }
        }
    }

    /// Looks at a packet of the other way. If it acknowledges a message that is to have a second
    /// one, that goes onward now, and the acknowledgement is not passed on.
    pub(super) fn acknowledged(
        &mut self,
        frame: Frame<'_>,
        version: Option<Version>,
        orders: &mut Orders,
        now: Instant,
    ) -> Option<Vec<u8>> {
        let type_ = frame.packet_type();
        let is_acknowledgement = matches!(type_, Some(PacketType::PubAck | PacketType::PubRec));
        if !is_acknowledgement || self.seconds.is_empty() && self.unseen.is_empty() {
            return None;
        }
        let Ok(Packet::PubAck(ack) | Packet::PubRec(ack)) = Packet::decode(frame, version?) else {
            return None;
        };
        self.unseen.remove(&ack.packet_id);
        let Second { bytes, injected } = self.seconds.remove(&ack.packet_id)?;
        let injected = Injected {
            at: now,
            ..injected
        };
        note(injected, Some(ack.packet_id), &mut self.unseen, orders);
        Some(bytes)
    }

    /// When [`Injector::release`] has something to do.
    pub(super) fn release_at(&self) -> Option<Instant> {
        self.held.as_ref().map(|held| held.until)
    }

    /// Passes on what was held back for long enough. If no other of its lane came meanwhile nothing
    /// has happened to it, and the order stands.
    pub(super) fn release(&mut self, orders: &mut Orders, now: Instant, onward: &mut Vec<u8>) {
        let Some(held) = self.held.take_if(|held| held.until <= now) else {
            return;
        };
        onward.extend_from_slice(&held.bytes);
        if held.is_overtaken {
            note(held.injected, held.packet_id, &mut self.unseen, orders);
        } else {
            orders.give_back(held.injected.injection);
        }
    }

    /// The connection is over. What was begun and not done, or done and not seen, stands as an
    /// order.
    pub(super) fn abandon(self, orders: &mut Orders) {
        for injected in self.unseen.into_values() {
            orders.undo(injected);
        }
        let held = self.held.map(|held| held.injected);
        let seconds = self.seconds.into_values().map(|second| second.injected);
        for injected in held.into_iter().chain(seconds) {
            orders.give_back(injected.injection);
        }
    }

    /// The id, if this is the PUBREL of a message that was lost here.
    fn released(&mut self, frame: Frame<'_>, version: Version) -> Option<PacketId> {
        if self.unreleased.is_empty() || frame.packet_type() != Some(PacketType::PubRel) {
            return None;
        }
        match Packet::decode(frame, version) {
            Ok(Packet::PubRel(ack)) => self
                .unreleased
                .remove(&ack.packet_id)
                .then_some(ack.packet_id),
            _ => None,
        }
    }
}

impl Subject<'_> {
    fn can_have(&self, injection: Injection) -> bool {
        match injection {
            Injection::Forge => Hasher::new(self.audit.algorithm, None).is_ok(),
            Injection::Duplicate | Injection::Inject => self.publish.qos != QoS::ExactlyOnce,
            Injection::Replay => self.publish.qos == QoS::AtLeastOnce,
            _ => true,
        }
    }

    fn injected(&self, injection: Injection, at: Instant) -> Injected {
        Injected {
            injection,
            topic: self.topic.to_owned(),
            message: self.stamps(),
            overtaken_by: None,
            at,
        }
    }

    /// What is needed to send it once more.
    fn kept(&self) -> Old {
        let mut properties = PropertyBuf::new();
        for property in self.publish.properties {
            if !matches!(property, Property::TopicAlias(_)) {
                properties
                    .push(property)
                    .expect("it was read from a packet");
            }
        }
        Old {
            topic: self.topic.to_owned(),
            properties,
            payload: self.publish.payload.to_vec(),
            stamps: self.stamps(),
        }
    }

    fn stamps(&self) -> Stamps {
        let origins = self.publish.properties.user_properties();
        let origins = origins.filter(|(name, _)| *name == ORIGIN);
        Stamps {
            audit: self.audit,
            origins: origins
                .filter_map(|(_, text)| Audit::parse_text(text).ok())
                .collect(),
        }
    }

    /// A stamp that fits another payload.
    fn forged(&self, payload: &[u8]) -> Option<Audit> {
        let hasher = Hasher::new(self.audit.algorithm, None).ok()?;
        let Audit {
            lane,
            epoch,
            sequence,
            flags,
            part,
            ..
        } = self.audit;
        let topic = self.topic.as_bytes();
        Some(Audit {
            flags,
            part,
            ..Audit::stamp(&hasher, lane, epoch, sequence, topic, payload)
        })
    }

    /// Its bytes, with its topic if it had only an alias, which may mean another topic by then.
    fn named_in_full(&self) -> Vec<u8> {
        match self.publish.properties.topic_alias() {
            Some(_) => self.written(self.publish.payload, None),
            None => self.frame.bytes.to_vec(),
        }
    }

    /// The message with this payload, and perhaps another stamp, and its topic in full.
    fn written(&self, payload: &[u8], forged: Option<Audit>) -> Vec<u8> {
        let forged = forged.map(|audit| audit.to_text());
        let mut properties = PropertyBuf::new();
        for property in self.publish.properties {
            let property = match (property, &forged) {
                (Property::TopicAlias(_), _) => continue,
                (Property::UserProperty(Audit::NAME, _), Some(forged)) => {
                    Property::UserProperty(Audit::NAME, forged)
                }
                (property, _) => property,
            };
            properties
                .push(property)
                .expect("it was read from a packet, or is base64 text");
        }
        let publish = Publish {
            topic: self.topic,
            properties: properties.as_properties(),
            payload,
            ..self.publish
        };
        let mut bytes = Vec::new();
        // Properties are 5.0's; and it is at most a few bytes longer than one that was read.
        Packet::Publish(publish)
            .encode(Version::V5, &mut bytes)
            .expect("a packet that was read can be written");
        bytes
    }
}

impl Old {
    /// It, as the sender of this one would send it now.
    fn written(&self, like: &Publish<'_>) -> Vec<u8> {
        let publish = Publish {
            topic: &self.topic,
            properties: self.properties.as_properties(),
            payload: &self.payload,
            ..*like
        };
        let mut bytes = Vec::new();
        Packet::Publish(publish)
            .encode(Version::V5, &mut bytes)
            .expect("a packet that was read can be written");
        bytes
    }
}

/// The audit property, if there is exactly one and it can be read.
fn audit(publish: &Publish<'_>) -> Option<Audit> {
    let mut found = publish
        .properties
        .user_properties()
        .filter(|(name, _)| *name == Audit::NAME);
    let (_, text) = found.next()?;
    if found.next().is_some() {
        return None;
    }
    Audit::parse_text(text).ok()
}

/// A message has passed: what was held for a swap with it goes behind it now.
fn overtake(held: &mut Option<Held>, neighbour: &Subject<'_>, now: Instant) -> Option<Held> {
    let lane = |audit: &Audit| (audit.lane, audit.epoch);
    let waiting = held.as_mut()?;
    if lane(&waiting.injected.message.audit) != lane(&neighbour.audit) {
        return None;
    }
    waiting.is_overtaken = true;
    let mut swapped = held.take_if(|held| held.injected.injection == Injection::Swap)?;
    swapped.injected.overtaken_by = Some(neighbour.stamps());
    swapped.injected.at = now;
    Some(swapped)
}

/// A fault is injected. At QoS 0 no peer says whether it is seen.
fn note(injected: Injected, packet_id: Option<PacketId>, unseen: &mut Unseen, orders: &mut Orders) {
    unseen.extend(packet_id.map(|id| (id, injected.clone())));
    orders.note(injected);
}

/// Tells the sender of a message that it arrived, as the receiver would have.
fn lose(
    publish: &Publish<'_>,
    version: Version,
    unreleased: &mut BTreeSet<PacketId>,
    back: &mut Vec<u8>,
) {
    let Some(packet_id) = publish.packet_id else {
        return;
    };
    let ack = Ack::success(packet_id);
    if publish.qos == QoS::ExactlyOnce {
        unreleased.insert(packet_id);
        answer(Packet::PubRec(ack), version, back);
    } else {
        answer(Packet::PubAck(ack), version, back);
    }
}

fn answer(packet: Packet<'_>, version: Version, back: &mut Vec<u8>) {
    packet
        .encode(version, back)
        .expect("an acknowledgement without properties fits every version");
}

/// Another payload that looks much like this one: one bit of the byte in the middle differs.
fn altered(payload: &[u8]) -> Vec<u8> {
    let mut payload = payload.to_vec();
    match payload.len() {
        0 => payload.push(b'?'),
        length => payload[length / 2] ^= 1,
    }
    payload
}

/// So many messages pass unchanged between two that are kept to be replayed.
const REPLAYED_AFTER: u32 = 8;

#[cfg(test)]
mod tests;
