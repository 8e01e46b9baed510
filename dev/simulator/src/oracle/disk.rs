//! Stored before it leaves: what the broker has asked to be stored, and what may leave only then.

use std::collections::{BTreeMap, BTreeSet};

use unbroken_broker_core::{Record, StoredSubscription};
use unbroken_mqtt_proto::{Packet, PacketId, QoS};

use super::{Oracle, matches};
use crate::client::Pending;
use crate::message::{MessageId, identify};

/// The records of one run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Disk {
    /// Requests without an answer.
    unstored: BTreeMap<Fact, u32>,
    /// What a restart would find.
    found: BTreeSet<Fact>,
    /// Messages that were asked for at some time.
    messages: BTreeSet<MessageId>,
    /// How many sessions were asked for, and the last one of each client.
    begun: u64,
    last_begun: BTreeMap<usize, u64>,
    /// By client: the session that a restart would find.
    sessions: BTreeMap<usize, u64>,
    /// By client: the will that it would find.
    wills: BTreeMap<usize, MessageId>,
    /// By client and filter: what was last asked for of the subscription.
    said: BTreeMap<(usize, Box<str>), StoredSubscription>,
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
    /// The will of a client.
    Will(usize),
}

/// A record on its way to the disk.
#[derive(Debug)]
pub(crate) struct Request {
    facts: Vec<(Fact, Effect)>,
    /// Of which session it says what has come to its end.
    landed: Option<(usize, u64, Vec<MessageId>)>,
    /// What it says of entries, if it may be about what groups have given.
    of_groups: Option<Record>,
}

/// What it does there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Effect {
    Begins,
    /// A session with this number begins, and what was found of an older one is void.
    Renews(u64),
    /// A will, with its message.
    Leaves(MessageId),
    /// Was asked for already, in the same words: who waits for it waits for that.
    Repeats,
    Ends,
}

impl Disk {
    /// The number of the last session that this client began.
    pub(super) fn last_begun(&self, client: usize) -> u64 {
        self.last_begun.get(&client).copied().unwrap_or(0)
    }

    /// The number of the session of this client that a restart finds.
    pub(super) fn session(&self, client: usize) -> Option<u64> {
        self.sessions.get(&client).copied()
    }

    /// The will of this client that a restart finds.
    pub(super) fn will(&self, client: usize) -> Option<MessageId> {
        self.wills.get(&client).copied()
    }

    pub(super) fn has(&self, message: MessageId) -> bool {
        self.found.contains(&Fact::Message(message))
    }

    /// A restart would find this. Numbers of sessions are not given again.
    pub(super) fn go_back_to(&mut self, synced: Self) {
        let (begun, last_begun) = (self.begun, std::mem::take(&mut self.last_begun));
        *self = Self {
            begun,
            last_begun,
            ..synced
        };
    }

    /// The broker has forgotten what it has asked for.
    pub(super) fn restarted(&mut self) {
        self.unstored.clear();
        self.said.clear();
        let found = &self.found;
        self.messages
            .retain(|id| found.contains(&Fact::Message(*id)));
    }

    fn ask(&mut self, record: &Record) -> Vec<(Fact, Effect)> {
        let mut facts = facts_of(record);
        let repeats = self.repeats(record);
        for (fact, effect) in &mut facts {
            if repeats {
                *effect = Effect::Repeats;
                continue;
            }
            *self.unstored.entry(fact.clone()).or_insert(0) += 1;
            match (fact, effect) {
                (Fact::Message(id), _) => {
                    self.messages.insert(*id);
                }
                (Fact::Session(client), Effect::Renews(number)) => {
                    self.begun += 1;
                    *number = self.begun;
                    self.last_begun.insert(*client, self.begun);
                }
                _ => {}
            }
        }
        facts
    }

    /// Whether a subscription is as it was last asked for. So it is when a SUBACK that comes late,
    /// of a SUBSCRIBE before the last, puts in force what is already. That what is retained was
    /// sent for it meanwhile is nothing that a SUBACK says.
    fn repeats(&mut self, record: &Record) -> bool {
        match record {
            Record::Subscribed {
                client_id,
                subscription,
                ..
            } => {
                let key = (number_of(client_id), subscription.filter.clone());
                let said = self.said.insert(key, subscription.clone());
                said.is_some_and(|mut said| {
                    said.retained_due &= subscription.retained_due;
                    said == *subscription
                })
            }
            Record::Progress {
                client_id,
                progress,
            } => {
                for scanned in &progress.scanned {
                    let key = (number_of(client_id), scanned.filter.clone());
                    self.said.insert(key, scanned.clone());
                }
                false
            }
            Record::Unsubscribed {
                client_id,
                subscription,
            } => {
                let key = (number_of(client_id), subscription.filter.clone());
                self.said.remove(&key);
                false
            }
            Record::SessionOpened {
                client_id,
                new: true,
                ..
            }
            | Record::SessionOpened {
                client_id,
                expiry_s: 0,
                ..
            }
            | Record::SessionEnded { client_id } => {
                let client = number_of(client_id);
                self.said.retain(|(of, _), _| *of != client);
                false
            }
            _ => false,
        }
    }

    pub(super) fn commit(&mut self, request: &Request) {
        for (fact, effect) in &request.facts {
            match (fact, effect) {
                (Fact::Session(client), Effect::Renews(number)) => {
                    self.forget(*client);
                    self.sessions.insert(*client, *number);
                }
                (Fact::Session(client), Effect::Ends) => self.forget(*client),
                (Fact::Will(client), Effect::Leaves(message)) => {
                    self.wills.insert(*client, *message);
                }
                (Fact::Will(client), Effect::Ends) => {
                    self.wills.remove(client);
                }
                (Fact::Sent(client, id), _) => {
                    self.found.remove(&Fact::Received(*client, *id));
                }
                (Fact::Received(client, id), _) => {
                    self.found.remove(&Fact::Sent(*client, *id));
                }
                _ => {}
            }
            if *effect == Effect::Ends {
                self.found.remove(fact);
            } else {
                self.found.insert(fact.clone());
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
        self.sessions.remove(&client);
        self.found.retain(|fact| match fact {
            Fact::Message(_) | Fact::Will(_) => true,
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
    /// The broker asks for a record.
    pub(crate) fn ask(&mut self, record: &Record) -> Request {
        self.check_kept(record);
        let facts = self.disk.ask(record);
        let mut landed = None;
        if let Record::Progress { client_id, .. } = record {
            let client = number_of(client_id);
            let session = &mut self.sessions[client];
            let ended = std::mem::take(&mut session.repeats.ended);
            landed = Some((client, session.serial, ended));
        }
        Request {
            facts,
            landed,
            of_groups: self.left_to_groups.concerns(record).then(|| record.clone()),
        }
    }

    /// Only what somebody keeps is put in a log.
    fn check_kept(&self, record: &Record) {
        let Record::Message { message, .. } = record else {
            return;
        };
        let topic = message.topic();
        let mut kept = self.kept_texts.iter();
        assert!(
            kept.any(|text| matches(text, topic)),
            "a message to {topic} is stored, which nobody keeps"
        );
    }

    /// It is on disk.
    pub(crate) fn committed(&mut self, request: &Request) {
        self.disk.commit(request);
        if let Some(record) = &request.of_groups {
            self.left_to_groups.commit(record);
        }
        if let Some((client, serial, landed)) = &request.landed
            && self.sessions[*client].serial == *serial
        {
            self.sessions[*client].note_landed(landed);
        }
    }

    /// The shard that asked is told that it is on disk.
    pub(crate) fn answered(&mut self, request: &Request) {
        let asked = |(_, effect): &&(Fact, Effect)| *effect != Effect::Repeats;
        for (fact, _) in request.facts.iter().filter(asked) {
            if let Some(count) = self.disk.unstored.get_mut(fact) {
                *count -= 1;
                if *count == 0 {
                    self.disk.unstored.remove(fact);
                }
            }
        }
    }

    /// The broker lets this packet out to a client, whose question is `pending`, if it has one; an
    /// acknowledgement is of `message`.
    pub(crate) fn check_leaving(
        &mut self,
        (client, link): (usize, usize),
        packet: &Packet<'_>,
        pending: Option<&Pending>,
        message: Option<MessageId>,
    ) {
        let is_let_in = matches!(packet, Packet::ConnAck(connack) if !connack.reason.is_error());
        if is_let_in && self.sessions[client].link == Some(link) {
            self.will_is_told(client);
            let tick = self.tick();
            let told_at = &mut self.sessions[client].told_at;
            if *told_at == 0 {
                *told_at = tick;
            }
        }
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
        if let (Packet::PubAck(ack) | Packet::PubRec(ack), Some(message)) = (packet, message)
            && !ack.reason.is_error()
        {
            self.check_acknowledging(message);
        }
    }

    /// PUBACK or PUBREC is about to leave, and everything is durable.
    fn check_acknowledging(&self, id: MessageId) {
        if self.messages[id].clear {
            return;
        }
        // Sent again at QoS 1 it is a new message, which those who wait for the first copy may no
        // longer want.
        let again = self.messages[id].qos == QoS::AtLeastOnce && self.messages[id].accepts > 1;
        assert!(
            again || !self.disk.waits_for(id),
            "message {id} was acknowledged before it was stored"
        );
        assert!(
            self.disk.has_asked_for(id) || !self.queues_fit || !self.must_be_stored.contains(&id),
            "message {id} was acknowledged and never stored, but a session that stays waits for it"
        );
    }
}

fn facts_of(record: &Record) -> Vec<(Fact, Effect)> {
    match record {
        Record::Message { .. }
        | Record::Marker { .. }
        | Record::Released { .. }
        | Record::Will { .. }
        | Record::WillOver { .. } => publisher_facts(record),
        Record::SessionOpened { .. }
        | Record::SessionEnded { .. }
        | Record::Subscribed { .. }
        | Record::Unsubscribed { .. } => session_facts(record),
        Record::Given { .. } | Record::Received { .. } => delivery_facts(record),
        // The payloads do not show which of several retained messages is the newest. Progress of a
        // session may be recorded at any time, and nothing waits for it.
        Record::Retained { .. }
        | Record::Unretained { .. }
        | Record::LaneClosed(_)
        | Record::LanesResumed { .. }
        | Record::LaneSnapshot(_)
        | Record::LaneForgotten { .. }
        | Record::DeliveriesExpected { .. }
        | Record::DeliveredBy { .. }
        | Record::DeliveriesComplete { .. }
        | Record::HandedOver { .. }
        | Record::HandedOn { .. }
        | Record::Progress { .. } => Vec::new(),
    }
}

/// Messages of clients, unreleased packet ids, and wills.
fn publisher_facts(record: &Record) -> Vec<(Fact, Effect)> {
    match record {
        Record::Message {
            message,
            marker,
            will_over,
        } => {
            let message_id = identify(message.payload()).map(Fact::Message);
            let publisher = message.publisher();
            let marker = publisher.zip(*marker);
            let marker = marker
                .map(|(client_id, marker)| Fact::Marker(number_of(client_id), marker.packet_id));
            let facts = message_id.into_iter().chain(marker);
            let begins = facts.map(|fact| (fact, Effect::Begins));
            let over = publisher.filter(|_| *will_over);
            let over = over.map(|client_id| (Fact::Will(number_of(client_id)), Effect::Ends));
            begins.chain(over).collect()
        }
        Record::Marker {
            client_id,
            packet_id,
            ..
        } => vec![(
            Fact::Marker(number_of(client_id), *packet_id),
            Effect::Begins,
        )],
        Record::Released {
            client_id,
            packet_id,
        } => vec![(Fact::Marker(number_of(client_id), *packet_id), Effect::Ends)],
        Record::Will { client_id, will } => {
            let message = identify(will.message.payload());
            let leaves = |message| (Fact::Will(number_of(client_id)), Effect::Leaves(message));
            message.into_iter().map(leaves).collect()
        }
        Record::WillOver { client_id } => {
            vec![(Fact::Will(number_of(client_id)), Effect::Ends)]
        }
        _ => Vec::new(),
    }
}

/// Sessions and their subscriptions.
fn session_facts(record: &Record) -> Vec<(Fact, Effect)> {
    match record {
        Record::SessionOpened {
            client_id,
            new,
            expiry_s,
            ..
        } => {
            let effect = match (*expiry_s, *new) {
                (0, _) => Effect::Ends,
                (_, true) => Effect::Renews(0),
                (_, false) => Effect::Begins,
            };
            let client = number_of(client_id);
            let over = new.then_some((Fact::Will(client), Effect::Ends));
            over.into_iter()
                .chain([(Fact::Session(client), effect)])
                .collect()
        }
        Record::SessionEnded { client_id } => {
            let client = number_of(client_id);
            let ended = [Fact::Session(client), Fact::Will(client)];
            ended.map(|fact| (fact, Effect::Ends)).into()
        }
        Record::Subscribed {
            client_id,
            subscription,
            ..
        } => vec![(
            Fact::Filter(number_of(client_id), subscription.filter.clone()),
            Effect::Begins,
        )],
        Record::Unsubscribed {
            client_id,
            subscription,
        } => vec![(
            Fact::Filter(number_of(client_id), subscription.filter.clone()),
            Effect::Ends,
        )],
        _ => Vec::new(),
    }
}

/// Messages on their way to clients.
fn delivery_facts(record: &Record) -> Vec<(Fact, Effect)> {
    match record {
        Record::Given {
            client_id, entry, ..
        } => {
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
        _ => Vec::new(),
    }
}

pub(super) fn number_of(client_id: &str) -> usize {
    let number = client_id.strip_prefix('c').and_then(|n| n.parse().ok());
    number.unwrap_or_else(|| panic!("nobody is called {client_id:?}"))
}
