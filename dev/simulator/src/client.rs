//! A client as a well-behaved one is: its state, and what it answers to what it receives.

use std::collections::{BTreeMap, VecDeque};

use unbroken_mqtt_proto::connection::alias;
use unbroken_mqtt_proto::session::{Arrival, Inbound, Outbound, PubRec, Resend};
use unbroken_mqtt_proto::{
    Ack, ConnAck, Packet, PacketId, Property, PropertyBuf, Publish, QoS, ReasonCode, Version,
    next_frame,
};

use crate::message::{MessageId, identify};
use crate::options::Options;
use crate::oracle::{Heard, Oracle, Received, Terms};
use crate::rng::Rng;

/// One client, connected or not.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) number: usize,
    pub(crate) id: String,
    pub(crate) version: Version,
    /// The link it uses now.
    pub(crate) link: Option<usize>,
    /// CONNACK was seen.
    pub(crate) connected: bool,
    pub(crate) outbound: Outbound<MessageId>,
    pub(crate) inbound: Inbound,
    pub(crate) pending: Option<Pending>,
    pub(crate) aliases_in: alias::Inbound,
    pub(crate) aliases_out: alias::Outbound,
    /// Messages sent over this connection whose PUBACK or PUBREC has not come, in order. Each with
    /// what it is, unless it was sent over an earlier one too.
    unanswered: VecDeque<(PacketId, Option<MessageId>)>,
    /// Packets received and not yet answered, in order.
    pub(crate) answers: VecDeque<Answer>,
    /// What it received last at QoS 2 under each id.
    unreleased: BTreeMap<PacketId, Option<MessageId>>,
    /// Received and not yet a whole packet.
    pub(crate) unread: Vec<u8>,
    pub(crate) packet_bytes_max: u32,
    /// QoS 1 and 2 messages the broker may have open towards it.
    pub(crate) receive_maximum: u16,
    /// What it has ready to be sent: bytes, and the messages whose PUBLISH is among them.
    pub(crate) to_send: Vec<u8>,
    pub(crate) to_send_messages: Vec<MessageId>,
    subscribe_id: u16,
    /// The serial number of the session it last heard of.
    session: u64,
    /// Retained messages it was sent: for the probes at the end.
    pub(crate) retained_seen: Vec<(String, Option<MessageId>)>,
}

/// A SUBSCRIBE or UNSUBSCRIBE without its answer.
#[derive(Debug)]
pub(crate) enum Pending {
    Subscribe {
        id: PacketId,
        entries: Vec<(&'static str, Terms)>,
        since: u64,
    },
    Unsubscribe {
        id: PacketId,
        text: &'static str,
    },
}

/// An answer that is due.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Answer {
    Ack(PacketId, ReasonCode),
    Rec(PacketId, ReasonCode),
    Comp(PacketId),
}

impl Client {
    pub(crate) fn new(number: usize, id: String, version: Version) -> Self {
        Self {
            number,
            id,
            version,
            link: None,
            connected: false,
            outbound: Outbound::new(),
            inbound: Inbound::new(),
            pending: None,
            aliases_in: alias::Inbound::new(0),
            aliases_out: alias::Outbound::new(0),
            unanswered: VecDeque::new(),
            answers: VecDeque::new(),
            unreleased: BTreeMap::new(),
            unread: Vec::new(),
            packet_bytes_max: u32::MAX,
            receive_maximum: u16::MAX,
            to_send: Vec::new(),
            to_send_messages: Vec::new(),
            subscribe_id: SUBSCRIBE_IDS,
            session: 0,
            retained_seen: Vec::new(),
        }
    }

    /// The connection has gone, whoever ended it. What had not been answered will come again.
    pub(crate) fn lost(&mut self) {
        self.link = None;
        self.connected = false;
        self.outbound.handle_disconnected();
        self.inbound.handle_disconnected();
        self.pending = None;
        self.unanswered.clear();
        self.answers.clear();
        self.unread.clear();
        self.to_send.clear();
        self.to_send_messages.clear();
        self.aliases_in = alias::Inbound::new(0);
        self.aliases_out = alias::Outbound::new(0);
    }

    /// What it knows of its session.
    pub(crate) fn heard(&self) -> Heard {
        Heard {
            serial: self.session,
            connected: self.connected,
        }
    }

    /// An id for SUBSCRIBE or UNSUBSCRIBE; messages use the low ones.
    pub(crate) fn next_subscribe_id(&mut self) -> PacketId {
        self.subscribe_id = self.subscribe_id.checked_add(1).unwrap_or(SUBSCRIBE_IDS);
        PacketId::new(self.subscribe_id).expect("not 0")
    }

    pub(crate) fn write(&mut self, packet: &Packet<'_>) {
        packet
            .encode(self.version, &mut self.to_send)
            .unwrap_or_else(|error| panic!("a client made {packet:?}: {error}"));
    }

    /// Sends a message; false if the window is closed.
    pub(crate) fn publish(&mut self, oracle: &mut Oracle, id: MessageId) -> bool {
        let qos = oracle.messages[id].qos;
        let mut packet_id = None;
        if qos > QoS::AtMostOnce {
            let Ok(begun) = self.outbound.begin(qos, id) else {
                return false;
            };
            packet_id = Some(begun);
        }
        self.write_publish(oracle, id, packet_id, false);
        true
    }

    fn write_publish(
        &mut self,
        oracle: &Oracle,
        id: MessageId,
        packet_id: Option<PacketId>,
        dup: bool,
    ) {
        let message = &oracle.messages[id];
        let mut properties = PropertyBuf::new();
        let mut topic = message.topic;
        if self.version == Version::V5 {
            let mut add = |property| properties.push(property).expect("short");
            if let Some(seconds) = message.expiry_s {
                add(Property::MessageExpiryInterval(seconds));
            }
            match self.aliases_out.assign(topic) {
                alias::Naming::Full => {}
                alias::Naming::First(alias) => add(Property::TopicAlias(alias)),
                alias::Naming::Known(alias) => {
                    topic = "";
                    add(Property::TopicAlias(alias));
                }
            }
        }
        let payload = message.payload(id);
        self.write(&Packet::Publish(Publish {
            dup,
            qos: message.qos,
            retain: message.retain,
            topic,
            packet_id,
            properties: properties.as_properties(),
            payload: &payload,
        }));
        self.to_send_messages.push(id);
        let new = (!dup).then_some(id);
        self.unanswered
            .extend(packet_id.map(|packet_id| (packet_id, new)));
    }

    /// Sends again what the last connection left open, as the window allows.
    fn resend(&mut self, oracle: &Oracle) {
        while let Some(again) = self.outbound.poll_resend() {
            match again {
                Resend::Publish {
                    id, dup, message, ..
                } => {
                    let message = *message;
                    self.write_publish(oracle, message, Some(id), dup);
                }
                Resend::PubRel { id } => self.write(&Packet::PubRel(Ack::success(id))),
            }
        }
    }

    /// Sends the answers that are due, in order.
    pub(crate) fn answer(&mut self) {
        while let Some(answer) = self.answers.pop_front() {
            match answer {
                Answer::Ack(id, reason) => {
                    self.inbound.acknowledged(id);
                    self.write(&Packet::PubAck(Ack::new(id, reason)));
                }
                Answer::Rec(id, reason) => {
                    if reason.is_error() {
                        self.inbound.acknowledged(id);
                    } else {
                        self.inbound.received(id);
                    }
                    self.write(&Packet::PubRec(Ack::new(id, reason)));
                }
                Answer::Comp(id) => self.write(&Packet::PubComp(Ack::success(id))),
            }
        }
    }

    /// Takes received bytes. `false`: the server has said goodbye.
    pub(crate) fn receive(&mut self, world: &mut Hearing<'_>, bytes: &[u8]) -> bool {
        self.unread.extend_from_slice(bytes);
        let unread = std::mem::take(&mut self.unread);
        let mut rest = unread.as_slice();
        let mut open = true;
        loop {
            let frame = next_frame(rest, self.packet_bytes_max)
                .unwrap_or_else(|error| panic!("the broker sent client {}: {error}", self.number));
            let Some(frame) = frame else { break };
            let packet = Packet::decode(frame, self.version)
                .unwrap_or_else(|error| panic!("the broker sent client {}: {error}", self.number));
            rest = &rest[frame.bytes.len()..];
            assert!(
                open,
                "the broker sent client {} {packet:?} after its last word",
                self.number
            );
            open = self.handle(world, &packet);
        }
        self.unread = rest.to_vec();
        if !world.options.lazy_acks {
            self.answer();
        }
        open
    }

    /// Before 5.0 it is not said whether there is a receiver.
    fn acknowledged(&self, world: &mut Hearing<'_>, message: MessageId, reason: ReasonCode) {
        world.oracle.acknowledged(message);
        if self.version == Version::V5 && reason == ReasonCode::Success {
            world.oracle.told_of_receiver(message);
        }
    }

    fn handle(&mut self, world: &mut Hearing<'_>, packet: &Packet<'_>) -> bool {
        let number = self.number;
        match packet {
            // 3.1.1 has a code of its own for each reason.
            Packet::ConnAck(connack) if connack.reason.is_error() => {
                world.is_refused(connack.reason);
                return false;
            }
            Packet::ConnAck(connack) => self.handle_connack(world, connack),
            _ if !self.connected && !matches!(packet, Packet::Disconnect(_)) => {
                panic!("client {number} received {packet:?} before CONNACK")
            }
            Packet::Publish(publish) => self.handle_publish(world, publish),
            Packet::PubAck(ack) | Packet::PubRec(ack)
                if self.unanswered.pop_front().map(|(id, _)| id) != Some(ack.packet_id) =>
            {
                // [MQTT-4.6.0-2] [MQTT-4.6.0-3]
                panic!(
                    "client {number} received {packet:?} before the answer to an earlier message"
                )
            }
            Packet::PubAck(ack) => match self.outbound.handle_puback(ack.packet_id) {
                Ok(message) if ack.reason.is_error() => world.is_refused_message(message, ack),
                Ok(message) => self.acknowledged(world, message, ack.reason),
                Err(error) => panic!("client {number} received {ack:?}: {error}"),
            },
            Packet::PubRec(ack) => match self
                .outbound
                .handle_pubrec(ack.packet_id, ack.reason.is_error())
            {
                Ok(PubRec::SendPubRel(message)) => {
                    if let Some(message) = message {
                        self.acknowledged(world, message, ack.reason);
                    }
                    self.write(&Packet::PubRel(Ack::success(ack.packet_id)));
                }
                Ok(PubRec::Ended(message)) => world.is_refused_message(message, ack),
                other => panic!("client {number} received {ack:?}: {other:?}"),
            },
            Packet::PubComp(ack) => {
                if let Err(error) = self.outbound.handle_pubcomp(ack.packet_id) {
                    panic!("client {number} received {ack:?}: {error}");
                }
            }
            Packet::PubRel(ack) => {
                // Unknown after this client has begun anew; it is answered all the same.
                self.inbound.handle_pubrel(ack.packet_id);
                self.answers.push_back(Answer::Comp(ack.packet_id));
            }
            Packet::SubAck(suback) => {
                let Some(Pending::Subscribe { id, entries, since }) = self.pending.take() else {
                    panic!("client {number} received {suback:?} unasked");
                };
                assert_eq!(id, suback.packet_id);
                let granted =
                    |(code, (_, terms)): (&u8, &(_, Terms))| *code == terms.options.qos as u8;
                let all = suback.reasons.iter().zip(&entries).all(granted);
                assert!(
                    all && suback.reasons.len() == entries.len(),
                    "{entries:?}: {suback:?}"
                );
                world.oracle.subscribed(number, &entries, since);
            }
            Packet::UnsubAck(unsuback) => {
                let Some(Pending::Unsubscribe { id, text }) = self.pending.take() else {
                    panic!("client {number} received {unsuback:?} unasked");
                };
                assert_eq!(id, unsuback.packet_id);
                world.oracle.unsubscribed(number, text);
            }
            Packet::PingResp => {}
            Packet::Disconnect(_) => return false,
            other => panic!("client {number} received {other:?}"),
        }
        self.resend(world.oracle);
        true
    }

    fn handle_connack(&mut self, world: &mut Hearing<'_>, connack: &ConnAck<'_>) {
        assert!(
            !self.connected,
            "client {} received a second CONNACK",
            self.number
        );
        assert_eq!(
            connack.reason,
            ReasonCode::Success,
            "client {}",
            self.number
        );
        assert_eq!(
            connack.session_present, world.oracle.sessions[self.number].present,
            "client {} was told another thing than the log",
            self.number
        );
        self.connected = true;
        // A session that began and was lost before its CONNACK came is taken for the one before.
        // MQTT has no words for that; packet ids of the older one would pass for the newer
        // one's.
        let serial = world.oracle.sessions[self.number].serial;
        let begun_unheard = std::mem::replace(&mut self.session, serial) != serial;
        if !connack.session_present || begun_unheard {
            self.outbound = Outbound::new();
            let mut inbound = Inbound::new();
            inbound.set_receive_maximum(self.receive_maximum);
            self.inbound = inbound;
        }
        if self.version == Version::V5 {
            let properties = connack.properties;
            self.outbound
                .set_receive_maximum(properties.receive_maximum().unwrap_or(u16::MAX));
            let aliases = if world.options.aliases {
                properties.topic_alias_maximum().unwrap_or(0)
            } else {
                0
            };
            self.aliases_out = alias::Outbound::new(aliases.min(2));
        }
    }

    fn handle_publish(&mut self, world: &mut Hearing<'_>, publish: &Publish<'_>) {
        let properties = publish.properties;
        let topic = self
            .aliases_in
            .resolve(publish.topic, properties.topic_alias())
            .unwrap_or_else(|error| panic!("client {}: {error}", self.number))
            .as_str()
            .to_owned();
        if publish.retain {
            self.retained_seen
                .push((topic.clone(), identify(publish.payload)));
        }
        if let Some(own) = identify(publish.payload) {
            assert!(
                self.unanswered.iter().all(|(_, new)| *new != Some(own)),
                "client {} received its message {own} before the answer to it",
                self.number
            );
        }
        let mut arrival = Arrival::New;
        if let Some(id) = publish.packet_id {
            arrival = self
                .inbound
                .handle_publish(publish.qos, id)
                .unwrap_or_else(|error| panic!("the broker sent client {}: {error}", self.number));
        }
        if topic.starts_with("$audit/") {
            check_receipt(publish.payload);
        } else if topic.starts_with("audit/checkpoint/") {
            world.oracle.stamps.told(publish.payload);
        } else if arrival.is_new() {
            let received = Received {
                topic: &topic,
                payload: publish.payload,
                qos: publish.qos,
                dup: publish.dup,
                retain: publish.retain,
                packet_id: publish.packet_id,
                identifiers: properties.subscription_identifiers().collect(),
                expiry_s: properties.message_expiry_interval(),
                v5: self.version == Version::V5,
            };
            world.oracle.check_rights(self.number, &received);
            world.oracle.received(self.number, world.now, &received);
            if self.version == Version::V5 {
                world.oracle.stamps.received(publish, &topic);
            }
        }
        if let (QoS::ExactlyOnce, Some(id)) = (publish.qos, publish.packet_id) {
            let message = identify(publish.payload);
            let last = self.unreleased.insert(id, message);
            assert!(
                arrival.is_new() || last == Some(message),
                "client {} takes {message:?} for a repetition of {last:?} under {id:?}",
                self.number
            );
        }
        let Some(id) = publish.packet_id else { return };
        let refuse = world.options.refusals
            && self.version == Version::V5
            && arrival.is_new()
            && !publish.dup
            && world.rng.percent(10);
        let reason = if refuse {
            ReasonCode::UnspecifiedError
        } else {
            ReasonCode::Success
        };
        match (publish.qos, arrival) {
            (QoS::AtLeastOnce, _) => self.answers.push_back(Answer::Ack(id, reason)),
            (_, Arrival::InProgress) => {}
            _ => self.answers.push_back(Answer::Rec(id, reason)),
        }
    }
}

/// What a client needs of the world while it listens.
pub(crate) struct Hearing<'a> {
    pub(crate) oracle: &'a mut Oracle,
    pub(crate) options: &'a Options,
    pub(crate) rng: &'a mut Rng,
    pub(crate) now: std::time::Instant,
}

impl Hearing<'_> {
    fn is_refused_message(&mut self, message: MessageId, ack: &Ack<'_>) {
        self.is_refused(ack.reason);
        self.oracle.was_refused(message, ack.packet_id);
    }

    /// The broker has said no, which it does only if its store has failed, a session or what is
    /// retained is full, or the client may not publish there.
    fn is_refused(&mut self, reason: ReasonCode) {
        let expected = match reason {
            ReasonCode::ImplementationSpecificError | ReasonCode::ServerUnavailable => {
                self.options.read_only
            }
            ReasonCode::QuotaExceeded => self.options.refuses || self.options.retains_few(),
            ReasonCode::NotAuthorized => self.options.has_rules(),
            _ => false,
        };
        assert!(expected, "a client was refused: {reason:?}");
        self.oracle.refused += u64::from(reason == ReasonCode::QuotaExceeded);
    }
}

/// What a receipt says adds up: what was expected was sent, acknowledged or dropped, or is open.
fn check_receipt(payload: &[u8]) {
    let text = String::from_utf8_lossy(payload);
    let number = |key: &str| -> u64 {
        let key = format!("\"{key}\":");
        let (_, rest) = text
            .split_once(&key)
            .unwrap_or_else(|| panic!("{key} in {text}"));
        let digits = rest
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(rest.len());
        rest[..digits]
            .parse()
            .unwrap_or_else(|_| panic!("{key} in {text}"))
    };
    let (_, dropped) = text.split_once("\"dropped\":{").expect("there is a list");
    let (dropped, _) = dropped.split_once('}').expect("it ends");
    let counts = dropped.split(',').filter_map(|entry| entry.split_once(':'));
    let dropped: u64 = counts
        .map(|(_, count)| count.parse::<u64>().expect("a count"))
        .sum();
    let ended = number("handed_to_network") + number("acknowledged") + dropped;
    assert_eq!(number("expected"), ended + number("open"), "{text}");
    let finished = text.contains("\"finished\":true");
    assert!(!finished || number("open") == 0, "{text}");
}

/// Ids from here on are for SUBSCRIBE and UNSUBSCRIBE.
const SUBSCRIBE_IDS: u16 = 50_000;
