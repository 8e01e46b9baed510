//! One side: an application that publishes and receives, the session, and a disk that takes its
//! time.
//!
//! Everything that the documentation of [`Outbound`] and [`Inbound`] wants stored goes through
//! [`Peer::store`]; what waits for it leaves when it is on disk.

use std::collections::{BTreeSet, VecDeque};

use unbroken_mqtt_proto::session::{Arrival, Entry, Inbound, Outbound, PubRec, Resend};
use unbroken_mqtt_proto::{PacketId, QoS};

use crate::link::{Connection, Packet};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) number: u32,
    pub(crate) qos: QoS,
}

impl Message {
    /// Some are always refused by PUBREC.
    pub(crate) fn is_refused(self) -> bool {
        self.qos == QoS::ExactlyOnce && self.number % 16 == 7
    }
}

#[derive(Debug, Default)]
pub(crate) struct Peer {
    /// The connection whose CONNECT was accepted, as far as this side knows.
    pub(crate) connection: Option<Connection>,
    pub(crate) outbound: Outbound<Message>,
    pub(crate) inbound: Inbound,
    /// Published by the application and not begun.
    pub(crate) queue: VecDeque<Message>,
    /// What the application received, in order.
    pub(crate) delivered: Vec<Message>,
    /// What the other side takes at a time.
    window: usize,
    /// Begun or resumed on this connection and not finished, seen from the wire.
    open: BTreeSet<PacketId>,
    /// Sent on any connection of this session, as the wire saw it.
    seen: BTreeSet<u32>,
    crashed: bool,
    durable: bool,
    storing: VecDeque<Storing>,
    disk: Image,
}

#[derive(Debug)]
struct Storing {
    done_at: u64,
    image: Image,
    on: Option<Connection>,
    then: Then,
}

/// What waits for the disk.
#[derive(Clone, Copy, Debug)]
enum Then {
    Nothing,
    Publish(PacketId),
    Send(Packet),
}

/// All that a restart finds.
#[derive(Clone, Debug, Default)]
struct Image {
    outbound: Vec<Entry<Message>>,
    inbound: Vec<PacketId>,
    queue: VecDeque<Message>,
    delivered: usize,
}

/// What a step sends, and how long the disk needs for what it stores.
pub(crate) struct Step<'a> {
    pub(crate) now: u64,
    pub(crate) disk_ms: u64,
    pub(crate) out: &'a mut Vec<Packet>,
}

impl Peer {
    pub(crate) fn new(durable: bool) -> Self {
        Self {
            durable,
            ..Self::default()
        }
    }

    pub(crate) fn publish(&mut self, message: Message, step: &mut Step<'_>) {
        // QoS 0 is not kept for later.
        if message.qos != QoS::AtMostOnce || self.connection.is_some() {
            self.queue.push_back(message);
            self.store(Then::Nothing, step);
        }
    }

    /// The connection begins; the store is idle, as [`Outbound`] asks for before re-sending.
    pub(crate) fn connected(&mut self, connection: Connection, ours: u16, theirs: u16) {
        assert!(self.disk_is_idle() && self.connection.is_none());
        self.connection = Some(connection);
        self.inbound.set_receive_maximum(ours);
        self.outbound.set_receive_maximum(theirs);
        self.window = usize::from(theirs);
        self.open.clear();
    }

    pub(crate) fn disconnected(&mut self) {
        if self.connection.take().is_some() {
            self.outbound.handle_disconnected();
            self.inbound.handle_disconnected();
        }
    }

    /// Sends what may be sent: first again, then new.
    pub(crate) fn pump(&mut self, step: &mut Step<'_>) {
        let mut sent = Vec::new();
        while let Some(resend) = self.outbound.poll_resend() {
            sent.push(match resend {
                Resend::Publish {
                    id,
                    qos,
                    dup,
                    message,
                } => Packet::Publish {
                    dup,
                    qos,
                    id: Some(id),
                    number: message.number,
                },
                Resend::PubRel { id } => Packet::PubRel(id),
            });
        }
        for packet in sent {
            self.send(packet, step);
        }
        while let Some(&message) = self.queue.front() {
            let Message { number, qos } = message;
            let begun = match qos {
                QoS::AtMostOnce => {
                    self.send(
                        Packet::Publish {
                            dup: false,
                            qos,
                            id: None,
                            number,
                        },
                        step,
                    );
                    Ok(None)
                }
                QoS::ExactlyOnce if self.durable => {
                    self.outbound.begin_unsent(qos, message).map(Some)
                }
                _ => self.outbound.begin(qos, message).map(Some),
            };
            let Ok(id) = begun else {
                assert!(!self.outbound.window_open());
                return;
            };
            self.queue.pop_front();
            match id {
                Some(id) if qos == QoS::ExactlyOnce && self.durable => {
                    self.store(Then::Publish(id), step);
                }
                Some(id) => self.send(
                    Packet::Publish {
                        dup: false,
                        qos,
                        id: Some(id),
                        number,
                    },
                    step,
                ),
                None => {}
            }
        }
    }

    pub(crate) fn receive(&mut self, packet: Packet, step: &mut Step<'_>) {
        match packet {
            Packet::Publish {
                qos,
                id: None,
                number,
                ..
            } => {
                self.delivered.push(Message { number, qos });
            }
            Packet::Publish {
                qos,
                id: Some(id),
                number,
                ..
            } => {
                self.receive_publish(id, Message { number, qos }, step);
            }
            Packet::PubAck(id) => {
                self.outbound
                    .handle_puback(id)
                    .expect("every PUBACK answers a PUBLISH");
                self.open.remove(&id);
            }
            Packet::PubRec { id, refused } => {
                match self
                    .outbound
                    .handle_pubrec(id, refused)
                    .expect("PUBREC answers a PUBLISH")
                {
                    PubRec::SendPubRel(_) => self.store(Then::Send(Packet::PubRel(id)), step),
                    PubRec::Ended(message) => {
                        assert!(refused && message.is_refused());
                        self.open.remove(&id);
                    }
                }
            }
            Packet::PubRel(id) => {
                // Not known if PUBCOMP was lost with its connection.
                self.inbound.handle_pubrel(id);
                self.store(Then::Send(Packet::PubComp(id)), step);
            }
            Packet::PubComp(id) => {
                self.outbound
                    .handle_pubcomp(id)
                    .expect("PUBCOMP answers a PUBREL");
                self.open.remove(&id);
            }
            Packet::Connect { .. } | Packet::ConnAck { .. } => unreachable!("the world's business"),
        }
    }

    fn receive_publish(&mut self, id: PacketId, message: Message, step: &mut Step<'_>) {
        let arrival = self.inbound.handle_publish(message.qos, id);
        match arrival.expect("the other side keeps to the window") {
            Arrival::New | Arrival::Instead if message.is_refused() => {
                self.inbound.acknowledged(id);
                self.store(Then::Send(Packet::PubRec { id, refused: true }), step);
            }
            Arrival::New | Arrival::Instead => {
                self.delivered.push(message);
                let answer = match message.qos {
                    QoS::ExactlyOnce => Packet::PubRec { id, refused: false },
                    _ => Packet::PubAck(id),
                };
                self.store(Then::Send(answer), step);
            }
            Arrival::Duplicate => self.send(Packet::PubRec { id, refused: false }, step),
            Arrival::InProgress => {}
        }
    }

    /// Puts the present state on its way to the disk.
    fn store(&mut self, then: Then, step: &mut Step<'_>) {
        let on = self.connection;
        if !self.durable {
            return self.stored(on, then, step);
        }
        let image = self.image();
        let done_at = step.now + step.disk_ms;
        let done_at = self
            .storing
            .back()
            .map_or(done_at, |earlier| done_at.max(earlier.done_at));
        self.storing.push_back(Storing {
            done_at,
            image,
            on,
            then,
        });
    }

    fn image(&self) -> Image {
        let entries = self.outbound.iter().map(|entry| match entry {
            Entry::Publish { id, qos, message } => Entry::Publish {
                id,
                qos,
                message: *message,
            },
            Entry::PubRel { id } => Entry::PubRel { id },
        });
        let kept = self
            .queue
            .iter()
            .filter(|message| message.qos != QoS::AtMostOnce);
        Image {
            outbound: entries.collect(),
            inbound: self.inbound.iter().collect(),
            queue: kept.copied().collect(),
            delivered: self.delivered.len(),
        }
    }

    /// What the disk has finished by now.
    pub(crate) fn poll_disk(&mut self, step: &mut Step<'_>) {
        while let Some(done) = self
            .storing
            .pop_front_if(|storing| storing.done_at <= step.now)
        {
            self.disk = done.image;
            self.stored(done.on, done.then, step);
        }
    }

    /// Nothing waits for the disk; new messages in the queue are not waited for.
    pub(crate) fn disk_is_idle(&self) -> bool {
        self.storing
            .iter()
            .all(|storing| matches!(storing.then, Then::Nothing))
    }

    fn stored(&mut self, on: Option<Connection>, then: Then, step: &mut Step<'_>) {
        match then {
            Then::Nothing => {}
            Then::Publish(id) => {
                let message = self.outbound.mark_sent(id).copied();
                assert_eq!(message.is_some(), on == self.connection);
                if let Some(Message { number, qos }) = message {
                    self.send(
                        Packet::Publish {
                            dup: false,
                            qos,
                            id: Some(id),
                            number,
                        },
                        step,
                    );
                }
            }
            Then::Send(_) if on != self.connection => {}
            Then::Send(packet) => {
                match packet {
                    Packet::PubAck(id) => self.inbound.acknowledged(id),
                    Packet::PubRec { id, refused: false } => self.inbound.received(id),
                    _ => {}
                }
                self.send(packet, step);
            }
        }
    }

    /// Everything leaves here, and is held against what it must be.
    fn send(&mut self, packet: Packet, step: &mut Step<'_>) {
        match packet {
            Packet::Publish {
                dup,
                id: Some(id),
                number,
                ..
            } => {
                let repeated = !self.seen.insert(number);
                assert!(
                    dup == repeated || self.crashed,
                    "DUP is {dup} on {packet:?}"
                );
                assert!(self.open.insert(id), "{id} is in use");
            }
            Packet::PubRel(id) => {
                self.open.insert(id);
            }
            _ => {}
        }
        assert!(
            self.open.len() <= self.window,
            "{:?} exceed {}",
            self.open,
            self.window
        );
        step.out.push(packet);
    }

    /// All messages that this side still wants to send, or to have received.
    pub(crate) fn unfinished(&self) -> BTreeSet<u32> {
        let begun = self.outbound.iter().filter_map(|entry| match entry {
            Entry::Publish { message, .. } => Some(message.number),
            Entry::PubRel { .. } => None,
        });
        begun
            .chain(self.queue.iter().map(|message| message.number))
            .collect()
    }

    /// The session ends, also on disk, and gives up its messages.
    pub(crate) fn end_session(&mut self) -> BTreeSet<u32> {
        assert!(self.connection.is_none());
        let begun = self.outbound.drain().map(|drained| drained.message);
        let given_up = begun
            .chain(self.queue.drain(..))
            .map(|message| message.number)
            .collect();
        self.inbound = Inbound::new();
        self.seen.clear();
        self.storing.clear();
        self.disk = self.image();
        given_up
    }

    /// Stops, and starts with what is on disk.
    pub(crate) fn crash(&mut self) {
        assert!(self.durable);
        self.crashed = true;
        self.connection = None;
        self.storing.clear();
        let Image {
            outbound,
            inbound,
            queue,
            delivered,
        } = self.disk.clone();
        self.outbound = Outbound::restore(outbound).expect("no id is on disk twice");
        self.inbound = Inbound::restore(inbound);
        self.queue = queue;
        self.delivered.truncate(delivered);
    }

    pub(crate) fn is_at_rest(&self) -> bool {
        self.connection.is_some()
            && self.queue.is_empty()
            && self.storing.is_empty()
            && self.outbound.inflight() == 0
            && self.inbound.inflight() == 0
    }
}
