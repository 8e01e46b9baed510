//! Stored before it leaves: what the broker has asked to be stored, and what may leave only then.

use std::collections::{BTreeMap, BTreeSet};

use unbroken_broker_core::Record;
use unbroken_mqtt_proto::{Packet, PacketId, QoS};

use super::Oracle;
use crate::client::Pending;
use crate::message::{MessageId, identify};

/// The records of one run.
#[derive(Debug, Default)]
pub(crate) struct Disk {
    /// Requests without an answer.
    unstored: BTreeMap<Fact, u32>,
    /// What a restart would find.
    found: BTreeSet<Fact>,
    /// Messages that were asked for at some time.
    messages: BTreeSet<MessageId>,
}

/// What a record is about.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Fact {
    Message(MessageId),
    Session(usize),
    Filter(usize, Box<str>),
    /// A message of QoS 2 came from this client, and its PUBREL has not.
    Marker(usize, PacketId),
    /// A message of QoS 2 was given this id towards this client.
    Sent(usize, PacketId),
    /// Its PUBREC came.
    Received(usize, PacketId),
}

/// A record on its way to the disk.
#[derive(Debug)]
pub(crate) struct Request(Vec<(Fact, Effect)>);

/// What it does there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Effect {
    Begins,
    /// It begins, and what was found of an older session is void.
    Renews,
    Ends,
}

impl Disk {
    /// The broker asks for a record.
    pub(crate) fn ask(&mut self, record: &Record) -> Request {
        let facts = facts_of(record);
        for (fact, _) in &facts {
            *self.unstored.entry(fact.clone()).or_insert(0) += 1;
            if let Fact::Message(id) = fact {
                self.messages.insert(*id);
            }
        }
        Request(facts)
    }

    pub(crate) fn stored(&mut self, request: Request) {
        for (fact, effect) in request.0 {
            if let Some(count) = self.unstored.get_mut(&fact) {
                *count -= 1;
                if *count == 0 {
                    self.unstored.remove(&fact);
                }
            }
            match fact {
                Fact::Session(client) if effect != Effect::Begins => self.forget(client),
                Fact::Sent(client, id) => {
                    self.found.remove(&Fact::Received(client, id));
                }
                Fact::Received(client, id) => {
                    self.found.remove(&Fact::Sent(client, id));
                }
                _ => {}
            }
            if effect == Effect::Ends {
                self.found.remove(&fact);
            } else {
                self.found.insert(fact);
            }
        }
    }

    pub(super) fn has_asked_for(&self, message: MessageId) -> bool {
        self.messages.contains(&message)
    }

    pub(super) fn waits_for(&self, message: MessageId) -> bool {
        self.unstored.contains_key(&Fact::Message(message))
    }

    /// Nothing of this client's session would be found.
    fn forget(&mut self, client: usize) {
        self.found.retain(|fact| match fact {
            Fact::Message(_) => true,
            Fact::Session(of)
            | Fact::Filter(of, _)
            | Fact::Marker(of, _)
            | Fact::Sent(of, _)
            | Fact::Received(of, _) => *of != client,
        });
    }

    /// What is said is on disk; of a session that stays, it must have been asked for.
    fn check(&self, packet: &Packet<'_>, stays: bool, fact: &Fact, wanted: bool) {
        assert!(
            !self.unstored.contains_key(fact),
            "{packet:?} was about to leave before {fact:?} was stored"
        );
        assert!(
            !stays || self.found.contains(fact) == wanted,
            "{packet:?} was about to leave, and {fact:?} is {}stored",
            if wanted { "not " } else { "" }
        );
    }
}

impl Oracle {
    /// The broker lets this packet out to a client, whose question is `pending`, if it has one; an
    /// acknowledgement is of `message`.
    pub(crate) fn check_leaving(
        &self,
        client: usize,
        packet: &Packet<'_>,
        pending: Option<&Pending>,
        message: Option<MessageId>,
    ) {
        let disk = &self.disk;
        let stays = self.sessions[client].expiry_s > 0;
        let check = |fact: Fact, wanted| disk.check(packet, stays, &fact, wanted);
        match packet {
            // One that goes on for a connection only may have ended again, if this is among the
            // last words of that connection.
            Packet::ConnAck(connack) if connack.session_present && !stays => {}
            Packet::ConnAck(connack) if !connack.reason.is_error() => {
                check(Fact::Session(client), true);
            }
            Packet::SubAck(_) => {
                if let Some(Pending::Subscribe { entries, .. }) = pending {
                    for (text, _) in entries {
                        check(Fact::Filter(client, (*text).into()), true);
                    }
                }
            }
            Packet::UnsubAck(_) => {
                if let Some(Pending::Unsubscribe { text, .. }) = pending {
                    check(Fact::Filter(client, (*text).into()), false);
                }
            }
            Packet::Publish(publish) if publish.qos == QoS::ExactlyOnce => {
                if let Some(id) = publish.packet_id {
                    check(Fact::Sent(client, id), true);
                }
            }
            Packet::PubRel(ack) if !ack.reason.is_error() => {
                check(Fact::Received(client, ack.packet_id), true);
            }
            Packet::PubComp(ack) => check(Fact::Marker(client, ack.packet_id), false),
            Packet::PubRec(ack) if !ack.reason.is_error() => {
                check(Fact::Marker(client, ack.packet_id), true);
            }
            _ => {}
        }
        if let (Packet::PubAck(_) | Packet::PubRec(_), Some(message)) = (packet, message) {
            self.check_acknowledging(message);
        }
    }
}

fn facts_of(record: &Record) -> Vec<(Fact, Effect)> {
    match record {
        Record::Message {
            message, marker, ..
        } => {
            let message_id = identify(message.payload()).map(Fact::Message);
            let marker = message.publisher().zip(*marker);
            let marker = marker.map(|(client_id, id)| Fact::Marker(number_of(client_id), id));
            let facts = message_id.into_iter().chain(marker);
            facts.map(|fact| (fact, Effect::Begins)).collect()
        }
        Record::Marker {
            client_id,
            packet_id,
        } => vec![(
            Fact::Marker(number_of(client_id), *packet_id),
            Effect::Begins,
        )],
        // Which of several retained messages is the newest is not told by their payloads; how far a
        // session is may be told at any time, and nothing waits for it.
        Record::Retained { .. }
        | Record::Unretained { .. }
        | Record::Will { .. }
        | Record::LaneAtRest(_)
        | Record::LanesAwake { .. }
        | Record::WillOver { .. }
        | Record::Progress { .. } => Vec::new(),
        Record::SessionOpened { client_id, new, .. } => {
            let effect = if *new { Effect::Renews } else { Effect::Begins };
            vec![(Fact::Session(number_of(client_id)), effect)]
        }
        Record::SessionEnded { client_id } => {
            vec![(Fact::Session(number_of(client_id)), Effect::Ends)]
        }
        Record::Subscribed {
            client_id, holding, ..
        } => vec![(
            Fact::Filter(number_of(client_id), holding.filter.clone()),
            Effect::Begins,
        )],
        Record::Unsubscribed { client_id, holding } => vec![(
            Fact::Filter(number_of(client_id), holding.filter.clone()),
            Effect::Ends,
        )],
        Record::Released {
            client_id,
            packet_id,
        } => vec![(Fact::Marker(number_of(client_id), *packet_id), Effect::Ends)],
        Record::Given { client_id, entry } => {
            let sent = entry
                .packet_id
                .map(|id| Fact::Sent(number_of(client_id), id));
            sent.into_iter()
                .map(|fact| (fact, Effect::Begins))
                .collect()
        }
        Record::Received {
            client_id,
            received,
        } => vec![(
            Fact::Received(number_of(client_id), received.packet_id),
            Effect::Begins,
        )],
    }
}

fn number_of(client_id: &str) -> usize {
    let number = client_id.strip_prefix('c').and_then(|n| n.parse().ok());
    number.unwrap_or_else(|| panic!("nobody is called {client_id:?}"))
}
