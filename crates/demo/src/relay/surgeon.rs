//! What happens to the packets of one connection on the way that is wounded. Bytes in, bytes out;
//! time is an argument.
//!
//! A copy or an invention travels at QoS 0, so it takes no packet id and nobody acknowledges it. A
//! message that is lost is acknowledged to its sender in the receiver's place, at QoS 2 to the end
//! of the exchange. What is held back is acknowledged when its receiver has it.
//!
//! A message is wounded when it carries exactly one readable audit property and is neither a
//! repair nor MQTT's own repetition (DUP). One that sets a topic alias is left alone: those behind
//! it would have no name.

use std::collections::BTreeSet;
use std::time::Instant;

use unbroken_merkle_log::{Hasher, Property as Audit};
use unbroken_mqtt_proto::connection::alias;
use unbroken_mqtt_proto::{
    Ack, Frame, Packet, PacketId, Property, PropertyBuf, Publish, QoS, Version,
};

use super::orders::Orders;
use crate::limits::SWAP_WITHIN;
use crate::wound::{Stamps, Wound, Wounded};

/// The user property in which a processor's output names what it was made from.
const ORIGIN: &str = "audit-origin";

#[derive(Debug)]
pub(super) struct Surgeon {
    aliases: alias::Inbound,
    /// QoS 2 messages lost, whose PUBREL is still to come.
    unreleased: BTreeSet<PacketId>,
    held: Option<Held>,
}

/// A message that waits.
#[derive(Debug)]
struct Held {
    bytes: Vec<u8>,
    wounded: Wounded,
    until: Instant,
}

/// An audited message, with what is needed to write it again.
struct Subject<'a> {
    frame: Frame<'a>,
    publish: Publish<'a>,
    topic: &'a str,
    audit: Audit,
}

impl Surgeon {
    pub(super) fn new() -> Self {
        Self {
            aliases: alias::Inbound::new(u16::MAX),
            unreleased: BTreeSet::new(),
            held: None,
        }
    }

    /// Passes a packet, whole or wounded: what goes on to its receiver, and what goes back to its
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
        let topic = topic.as_str();
        if !sets_alias && orders.loses_checkpoint(topic) {
            lose(&publish, version, &mut self.unreleased, back);
            return;
        }
        let audit = (!sets_alias && !publish.dup).then(|| audit(&publish));
        let Some(audit) = audit.flatten().filter(|audit| !audit.flags.resent) else {
            onward.extend_from_slice(frame.bytes);
            return;
        };
        let subject = Subject {
            frame,
            publish,
            topic,
            audit,
        };
        // One at a time, so that wounds are of different messages.
        let is_free = self.held.is_none();
        match orders.due(|wound| is_free && subject.can_have(wound)) {
            None => {
                onward.extend_from_slice(frame.bytes);
                overtake(&mut self.held, &subject, orders, now, onward);
            }
            Some(Wound::Lose) => {
                lose(&subject.publish, version, &mut self.unreleased, back);
                orders.note(subject.wounded(Wound::Lose, now));
            }
            Some(wound @ (Wound::Swap | Wound::Hold(_))) => {
                let until = match wound {
                    Wound::Hold(time) => now + time,
                    _ => now + SWAP_WITHIN,
                };
                self.held = Some(Held {
                    bytes: subject.named_in_full(),
                    wounded: subject.wounded(wound, now),
                    until,
                });
            }
            Some(wound) => {
                let payload = subject.publish.payload;
                match wound {
                    Wound::Duplicate => subject.copy(payload, onward),
                    Wound::Inject => subject.copy(&altered(payload), onward),
                    _ => subject.replace(&altered(payload), wound == Wound::Forge, onward),
                }
                orders.note(subject.wounded(wound, now));
            }
        }
    }

    /// When [`Surgeon::release`] has something to do.
    pub(super) fn release_at(&self) -> Option<Instant> {
        self.held.as_ref().map(|held| held.until)
    }

    /// Passes on what was held back for long enough. A swap whose neighbour did not come has not
    /// happened, and is ordered again.
    pub(super) fn release(&mut self, orders: &mut Orders, now: Instant, onward: &mut Vec<u8>) {
        let Some(held) = self.held.take_if(|held| held.until <= now) else {
            return;
        };
        onward.extend_from_slice(&held.bytes);
        match held.wounded.wound {
            Wound::Swap => orders.give_back(Wound::Swap),
            _ => orders.note(held.wounded),
        }
    }

    /// The connection is over. A message still held back was never delivered, so its sender will
    /// repeat it, and the order stands.
    pub(super) fn abandon(self, orders: &mut Orders) {
        if let Some(held) = self.held {
            orders.give_back(held.wounded.wound);
        }
    }

    /// The id, if this is the PUBREL of a message that was lost here.
    fn released(&mut self, frame: Frame<'_>, version: Version) -> Option<PacketId> {
        if self.unreleased.is_empty() || frame.first_byte >> 4 != PUBREL {
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

const PUBREL: u8 = 6;

impl Subject<'_> {
    fn can_have(&self, wound: Wound) -> bool {
        wound != Wound::Forge || Hasher::new(self.audit.algorithm, None).is_ok()
    }

    fn wounded(&self, wound: Wound, at: Instant) -> Wounded {
        Wounded {
            wound,
            topic: self.topic.to_owned(),
            message: self.stamps(),
            overtaken_by: None,
            at,
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

    /// The message as it came, then one more under its name with this payload.
    fn copy(&self, payload: &[u8], onward: &mut Vec<u8>) {
        onward.extend_from_slice(self.frame.bytes);
        let copy = Publish {
            qos: QoS::AtMostOnce,
            packet_id: None,
            payload,
            ..self.publish
        };
        self.write(copy, None, onward);
    }

    /// The message with another payload, and perhaps with a digest that fits it.
    fn replace(&self, payload: &[u8], fitting: bool, onward: &mut Vec<u8>) {
        let hasher = Hasher::new(self.audit.algorithm, None).ok();
        let forged = hasher.filter(|_| fitting).map(|hasher| {
            let Audit {
                lane,
                epoch,
                sequence,
                flags,
                part,
                ..
            } = self.audit;
            let topic = self.topic.as_bytes();
            Audit {
                flags,
                part,
                ..Audit::stamp(&hasher, lane, epoch, sequence, topic, payload)
            }
        });
        let publish = Publish {
            payload,
            ..self.publish
        };
        self.write(publish, forged, onward);
    }

    /// Its bytes, with its topic if it had only an alias, which may mean another topic by then.
    fn named_in_full(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        if self.publish.properties.topic_alias().is_some() {
            self.write(self.publish, None, &mut bytes);
        } else {
            bytes.extend_from_slice(self.frame.bytes);
        }
        bytes
    }

    /// Writes a message on this one's topic, in full.
    fn write(&self, publish: Publish<'_>, forged: Option<Audit>, onward: &mut Vec<u8>) {
        let forged = forged.map(|audit| audit.to_text());
        let mut properties = PropertyBuf::new();
        for property in publish.properties {
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
            ..publish
        };
        // Properties are 5.0's; and it is at most a few bytes longer than one that was read.
        Packet::Publish(publish)
            .encode(Version::V5, onward)
            .expect("a packet that was read can be written");
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

/// Behind the neighbour that overtook it goes what was held for a swap.
fn overtake(
    held: &mut Option<Held>,
    neighbour: &Subject<'_>,
    orders: &mut Orders,
    now: Instant,
    onward: &mut Vec<u8>,
) {
    let overtaken = held.take_if(|held| {
        let lane = |audit: &Audit| (audit.lane, audit.epoch);
        let Wounded { wound, message, .. } = &held.wounded;
        *wound == Wound::Swap && lane(&message.audit) == lane(&neighbour.audit)
    });
    if let Some(held) = overtaken {
        onward.extend_from_slice(&held.bytes);
        orders.note(Wounded {
            overtaken_by: Some(neighbour.stamps()),
            at: now,
            ..held.wounded
        });
    }
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

#[cfg(test)]
mod tests;
