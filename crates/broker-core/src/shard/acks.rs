//! Acknowledgements: what a client answers to messages that it was sent, and its PUBREL to those it
//! sent; and what the broker answers, as soon as that is true.
//!
//! ```text
//! answer, hold ---> queue of the connection ------------------> release ---> output
//!                   what is first waits for: CommitGate ---> wake
//! ```
//!
//! The queue of packets is the connection's, whether a packet may leave is asked of the
//! [`CommitGate`](crate::durability). A queue is looked at from its front when something it waits
//! for comes true, and only as far as that goes.

use std::sync::Arc;
use std::time::Instant;

use unbroken_mqtt_proto::session::{AckError, PubRec};
use unbroken_mqtt_proto::{Ack, Properties, Property, QoS, ReasonCode, Version};

use crate::audit::account::Fate;
use crate::audit::receipt::News;
use crate::connection::{Answer, Connection, Held, HeldCopy, Leaving};
use crate::durability::{Record, WaitFor, Waiter};
use crate::ids::{ConnectionId, SessionId, StoreId};
use crate::mesh::MeshMessage;
use crate::reason::{DropReason, Fault};
use crate::session::{Delivery, Session};
use crate::shard::Clients;
use crate::shard::Shard;

impl Shard {
    pub(crate) fn handle_puback(
        &mut self,
        now: Instant,
        session_id: SessionId,
        ack: Ack<'_>,
    ) -> Result<(), Fault> {
        let Clients {
            sessions, unsaved, ..
        } = &mut self.clients;
        let Some(session) = sessions.get_mut(session_id.index()) else {
            return Ok(());
        };
        match session.outbound.handle_puback(ack.packet_id) {
            Ok(delivery) if ack.reason.is_error() => {
                session.landed(&delivery);
                let number = delivery.number;
                session.land(session_id, ack.packet_id, unsaved);
                // [MQTT-4.8.2-6]
                self.clients
                    .drop_waiting(now, session_id, delivery, DropReason::RefusedByReceiver);
                self.clients
                    .settle_delivery(session_id, number, Fate::GivenUp);
            }
            Ok(delivery) => {
                session.landed(&delivery);
                session.land(session_id, ack.packet_id, unsaved);
                self.acknowledged(session_id, &delivery, ack.properties);
                self.clients.delivered(delivery);
            }
            Err(AckError::Unknown) => {}
            Err(AckError::WrongQoS | AckError::TooEarly) => {
                return Err(Fault::new(
                    ReasonCode::ProtocolError,
                    "PUBACK for a message that was not QoS 1",
                ));
            }
        }
        self.pump(now, session_id);
        Ok(())
    }

    /// A receiver has the message; if it says so, it has also done with it what it is for.
    fn acknowledged(&mut self, id: SessionId, delivery: &Delivery, properties: Properties<'_>) {
        let processed = !properties.is_empty() && says_processed(properties);
        let Clients {
            sessions,
            audit,
            telemetry,
            ..
        } = &mut self.clients;
        let findings = audit.findings();
        if let Some(session) = sessions.get_mut(id.index()) {
            let (number, fate) = (delivery.number, Fate::Acknowledged);
            session.settle(number, fate, telemetry.audit(), findings);
            session.ledger.note_heard(number);
            if processed && delivery.counting.is_shown() {
                session.ledger.note_processed();
                telemetry.processed();
            }
        }
        delivery.news(News::Acknowledged { processed }, findings);
    }

    pub(crate) fn handle_pubrec(
        &mut self,
        now: Instant,
        id: ConnectionId,
        session_id: SessionId,
        version: Version,
        ack: Ack<'_>,
    ) -> Result<(), Fault> {
        let packet_id = ack.packet_id;
        let Clients {
            sessions,
            gate,
            unsaved,
            ..
        } = &mut self.clients;
        let Some(session) = sessions.get_mut(session_id.index()) else {
            return Ok(());
        };
        // A PUBREC with an error ends the exchange and frees the packet id [MQTT-4.3.3-4]
        // [MQTT-4.4.0-2].
        match session
            .outbound
            .handle_pubrec(packet_id, ack.reason.is_error())
        {
            Ok(PubRec::SendPubRel(delivery)) => {
                let mut until = WaitFor::NOW;
                if let Some(delivery) = delivery {
                    session.landed(&delivery);
                    // [MQTT-4.3.3-6]
                    until.stored = session.persist_received(gate, packet_id, &delivery);
                    self.acknowledged(session_id, &delivery, ack.properties);
                    self.clients.delivered(delivery);
                    self.clients.look_ahead(now, session_id);
                }
                let pubrel = Answer::PubRel(packet_id, ReasonCode::Success);
                self.clients.answer(id, until, pubrel);
            }
            Ok(PubRec::Ended(delivery)) => {
                session.landed(&delivery);
                let number = delivery.number;
                session.land(session_id, packet_id, unsaved);
                self.clients
                    .drop_waiting(now, session_id, delivery, DropReason::RefusedByReceiver);
                self.clients
                    .settle_delivery(session_id, number, Fate::GivenUp);
                self.pump(now, session_id);
            }
            // It ends an exchange that is unknown here: there is nothing to release [MQTT-4.3.3-4].
            Err(AckError::Unknown) if ack.reason.is_error() => {}
            Err(AckError::Unknown) => {
                let reason = if version.has_properties() {
                    ReasonCode::PacketIdentifierNotFound
                } else {
                    ReasonCode::Success
                };
                let pubrel = Answer::PubRel(packet_id, reason);
                self.clients.answer(id, WaitFor::NOW, pubrel);
            }
            Err(AckError::WrongQoS | AckError::TooEarly) => {
                return Err(Fault::new(
                    ReasonCode::ProtocolError,
                    "PUBREC for a message that was not QoS 2",
                ));
            }
        }
        Ok(())
    }

    pub(crate) fn handle_pubrel(
        &mut self,
        id: ConnectionId,
        session_id: SessionId,
        version: Version,
        ack: Ack<'_>,
    ) {
        let Clients { sessions, gate, .. } = &mut self.clients;
        let Some(session) = sessions.get_mut(session_id.index()) else {
            return;
        };
        let packet_id = ack.packet_id;
        let known = session.inbound.handle_pubrel(packet_id);
        let reason = if known || !version.has_properties() {
            ReasonCode::Success
        } else {
            ReasonCode::PacketIdentifierNotFound
        };
        let stored = if known {
            session.release(session_id, gate, packet_id)
        } else {
            StoreId::NOTHING
        };
        let pubcomp = Answer::PubComp(packet_id, reason);
        self.clients.answer(id, WaitFor::stored(stored), pubcomp); // [MQTT-4.3.3-11]
    }

    pub(crate) fn handle_pubcomp(
        &mut self,
        now: Instant,
        session_id: SessionId,
        ack: Ack<'_>,
    ) -> Result<(), Fault> {
        let Clients {
            sessions, unsaved, ..
        } = &mut self.clients;
        let Some(session) = sessions.get_mut(session_id.index()) else {
            return Ok(());
        };
        match session.outbound.handle_pubcomp(ack.packet_id) {
            Ok(()) => session.land(session_id, ack.packet_id, unsaved),
            Err(AckError::Unknown) => {}
            Err(AckError::WrongQoS | AckError::TooEarly) => {
                return Err(Fault::new(
                    ReasonCode::ProtocolError,
                    "PUBCOMP before PUBREC, or for a message that was not QoS 2",
                ));
            }
        }
        self.pump(now, session_id);
        Ok(())
    }
}

impl Clients {
    /// Sends an answer, or holds it until what it promises is true; later ones stand behind it.
    pub(crate) fn answer(&mut self, id: ConnectionId, until: WaitFor, what: Answer) {
        let Some(connection) = self.connections.get_mut(id) else {
            return;
        };
        if connection.holds_nothing() && self.gate.is_met(until) {
            return self.send_answer(id.index, &what);
        }
        let what = Leaving::Answer(what);
        self.connections.hold(&mut self.gate, id, until, what);
    }

    /// Answers in the place that was reserved.
    pub(crate) fn answer_reserved(
        &mut self,
        now: Instant,
        id: ConnectionId,
        until: WaitFor,
        what: Answer,
    ) {
        let Self {
            connections, gate, ..
        } = self;
        match connections.answer_reserved(gate, id, until, what) {
            Ok(true) => self.release(now, id),
            Ok(false) => {}
            Err(what) => {
                debug_assert!(false, "a place was reserved");
                self.answer(id, until, what);
            }
        }
    }

    /// Gives a message the packet id that it will be sent with. It leaves when that is stored, and
    /// when the window has a place for it; one of QoS 1 stands behind those of QoS 2. The message
    /// comes back if there is no id; otherwise says what its being given is stored with, if that is
    /// asked for by itself.
    pub(crate) fn hold_publish(
        &mut self,
        id: ConnectionId,
        session_id: SessionId,
        qos: QoS,
        delivery: Delivery,
    ) -> Result<StoreId, (QoS, Delivery)> {
        let Self {
            connections,
            sessions,
            gate,
            unsaved,
            ..
        } = self;
        let Some(session) = sessions.get_mut(session_id.index()) else {
            return Err((qos, delivery));
        };
        // No subscription of the session finds it in the log.
        let is_shared = delivery.group.is_some() && delivery.entry == 0;
        let (packet_id, is_ahead) = session.begin_held(qos, delivery)?;
        let stored = if qos == QoS::ExactlyOnce || is_shared {
            session.persist_sent(gate, packet_id, qos)
        } else {
            session.touch_sent(session_id, packet_id, unsaved);
            StoreId::NOTHING
        };
        if is_ahead {
            session.note_ahead(packet_id, stored);
        } else {
            let what = Leaving::Publish(qos, packet_id);
            connections.hold(gate, id, WaitFor::stored(stored), what);
        }
        Ok(stored)
    }

    /// Gives the places that are free in the window to those that have their packet ids already.
    pub(crate) fn start_ahead(&mut self, id: ConnectionId, session_id: SessionId) {
        let Self {
            connections,
            sessions,
            gate,
            ..
        } = self;
        let Some(session) = sessions.get_mut(session_id.index()) else {
            return;
        };
        while let Some((packet_id, stored)) = session.start_ahead() {
            let until = gate.still_open(WaitFor::stored(stored));
            let what = Leaving::Publish(QoS::ExactlyOnce, packet_id);
            connections.hold(gate, id, until, what);
        }
    }

    /// Everything up to this request is on disk.
    pub(crate) fn handle_stored(&mut self, now: Instant, stored: StoreId) {
        self.gate.on_stored(stored);
        while let Some(waiter) = self.gate.pop_woken() {
            self.wake(now, waiter);
        }
    }

    /// A message with this token is answered.
    pub(crate) fn handle_settled(&mut self, now: Instant, token: u64) {
        if let Some(waiter) = self.gate.on_settled(token) {
            self.wake(now, waiter);
        }
    }

    /// Wakes this when it is true: at once, if it is.
    pub(crate) fn wake_when(&mut self, now: Instant, until: WaitFor, waiter: Waiter) {
        if let Some(waiter) = self.gate.wake_when(until, waiter) {
            self.wake(now, waiter);
        }
    }

    fn wake(&mut self, now: Instant, waiter: Waiter) {
        match waiter {
            Waiter::Packets(id) => self.release(now, id),
            Waiter::Output(id) => self.connections.relieve(now, id),
            Waiter::Shard(shard, token) if shard == self.shard => {
                self.handle_settled(now, token);
            }
            Waiter::Shard(shard, token) => self.send(shard, MeshMessage::Settled { token }),
            Waiter::Will(client_id) => self.end_stored_will(&client_id),
        }
    }

    /// Sends what waits for nothing any more, from the front, while the client takes it.
    pub(crate) fn release(&mut self, now: Instant, id: ConnectionId) {
        let output_bytes_max = self.limits.output_bytes_max as usize;
        let Some(connection) = self.connections.get(id) else {
            return;
        };
        if connection.holds_nothing() {
            return;
        }
        let was_read = connection.may_consume(&self.gate, &self.limits);
        let mut any = false;
        while let Some(connection) = self.connections.get_mut(id)
            && let Some(what) = connection.pop_ready(&self.gate, output_bytes_max)
        {
            any = true;
            match what {
                Leaving::Publish(qos, packet_id) => {
                    self.send_held_publish(now, id, qos, packet_id);
                }
                Leaving::Copy(copy) => self.send_held_copy(now, id, *copy),
                Leaving::Answer(answer) => self.send_answer(id.index, &answer),
                Leaving::Reserved => {}
            }
        }
        if any && !was_read {
            self.connections.relieve(now, id);
        }
    }

    fn send_answer(&mut self, index: u32, answer: &Answer) {
        let session = self.connections.at(index).and_then(Connection::session);
        if let Some(session) = session.and_then(|id| self.sessions.get_mut(id.index())) {
            match answer {
                Answer::PubAck(id, _) => session.inbound.acknowledged(*id),
                Answer::PubRec(id, reason) if reason.is_error() => {
                    session.inbound.acknowledged(*id);
                }
                Answer::PubRec(id, _) => session.inbound.received(*id),
                _ => {}
            }
        }
        self.connections
            .send(&mut self.telemetry, index, &answer.packet());
    }

    /// The will of this client was published, or will not be. On disk it may be another by now.
    pub(crate) fn end_stored_will(&mut self, client_id: &Arc<str>) {
        let session = self.by_client_id.get(client_id);
        let session = session.and_then(|id| self.sessions.get(id.index()));
        if session.is_some_and(|session| session.will_on_disk) {
            return;
        }
        let record = Record::WillOver {
            client_id: Arc::clone(client_id),
        };
        self.gate.ask(record);
        self.note_will_over(client_id);
    }

    /// What says so was asked for last. Before that is stored its client is not answered that it is
    /// let in again: a restart must not publish a will that is not of its last connection.
    pub(crate) fn note_will_over(&mut self, client_id: &Arc<str>) {
        let asked = self.gate.end_client(Arc::clone(client_id));
        let session = self.by_client_id.get(client_id);
        if let Some(session) = session.and_then(|id| self.sessions.get_mut(id.index())) {
            session.asked = asked;
        }
    }
}

/// The connection of this session has gone with packets that had to wait. Answers the messages of
/// QoS 0 among them.
pub(crate) fn keep_unanswered(
    session: &mut Session,
    held: impl IntoIterator<Item = Held>,
) -> Vec<HeldCopy> {
    let mut copies = Vec::new();
    for Held { until, what } in held {
        match what {
            Leaving::Answer(Answer::PubRec(id, reason)) if reason.is_error() => {
                session.inbound.acknowledged(id);
            }
            Leaving::Answer(Answer::PubRec(id, _)) => session.defer_pubrec(id, until),
            Leaving::Copy(copy) => copies.push(*copy),
            // What other answers are for comes again, as new, or is sent again by what is in
            // flight; of messages the session knows.
            Leaving::Answer(_) | Leaving::Publish(..) | Leaving::Reserved => {}
        }
    }
    // They are sent with what is sent again.
    session.forget_held();
    copies
}

/// User property `audit` = `processed`, in PUBACK or PUBREC: the receiver acknowledges after it has
/// processed, and says so.
#[cold]
fn says_processed(properties: Properties<'_>) -> bool {
    properties
        .into_iter()
        .any(|property| matches!(property, Property::UserProperty("audit", "processed")))
}
