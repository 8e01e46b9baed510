//! Acknowledgements: what a client answers to messages that it was sent, and its PUBREL to those it
//! sent, and what comes true when something is stored.
//!
use std::sync::Arc;
use std::time::Instant;

use unbroken_mqtt_proto::session::{AckError, PubRec};
use unbroken_mqtt_proto::{Ack, Properties, Property, ReasonCode, Version};

use crate::audit::account::Fate;
use crate::audit::receipt::News;
use crate::connection::{Answer, HeldCopy, Outgoing, PendingPacket};
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
            sessions,
            connections,
            ..
        } = &mut self.clients;
        let Some(session) = sessions.get_mut(session_id) else {
            return Ok(());
        };
        match session.outbound.handle_puback(ack.packet_id) {
            Ok(delivery) if ack.reason.is_error() => {
                session.end_flight(&delivery);
                sessions.end_entry(session_id, ack.packet_id);
                // [MQTT-4.8.2-6]
                let (why, fate) = (DropReason::RefusedByReceiver, Fate::GivenUp);
                self.deliverer(now)
                    .drop_settled(session_id, delivery, why, fate);
            }
            Ok(delivery) => {
                session.widen(connections);
                session.end_flight(&delivery);
                sessions.end_entry(session_id, ack.packet_id);
                self.acknowledged(session_id, delivery, ack.properties);
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
    fn acknowledged(&mut self, id: SessionId, delivery: Delivery, properties: Properties<'_>) {
        let processed = !properties.is_empty() && says_processed(properties);
        let Clients {
            sessions,
            audit,
            telemetry,
            deliveries,
            ..
        } = &mut self.clients;
        let findings = audit.findings();
        if let Some(session) = sessions.get_mut(id) {
            let (number, fate) = (delivery.number, Fate::Acknowledged);
            session.settle(number, fate, telemetry.audit(), findings);
            session.ledger.note_heard(number);
            if processed && delivery.counting.is_shown() {
                session.ledger.note_processed();
                telemetry.processed();
            }
        }
        delivery.news(News::Acknowledged { processed }, findings);
        telemetry.ended(1);
        deliveries.release(delivery.message);
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
        let Clients { sessions, gate, .. } = &mut self.clients;
        let Some(session) = sessions.get_mut(session_id) else {
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
                    session.end_flight(&delivery);
                    // [MQTT-4.3.3-6]
                    until.stored = session.persist_received(gate, packet_id, &delivery);
                    self.acknowledged(session_id, delivery, ack.properties);
                    self.deliverer(now).look_ahead(session_id);
                }
                let pubrel = Answer::PubRel(packet_id, ReasonCode::Success);
                self.deliverer(now).answer(id, until, pubrel);
            }
            Ok(PubRec::Ended(delivery)) => {
                session.end_flight(&delivery);
                sessions.end_entry(session_id, packet_id);
                let (why, fate) = (DropReason::RefusedByReceiver, Fate::GivenUp);
                self.deliverer(now)
                    .drop_settled(session_id, delivery, why, fate);
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
                self.deliverer(now).answer(id, WaitFor::NOW, pubrel);
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
        now: Instant,
        id: ConnectionId,
        session_id: SessionId,
        version: Version,
        ack: Ack<'_>,
    ) {
        let Clients { sessions, gate, .. } = &mut self.clients;
        let Some(session) = sessions.get_mut(session_id) else {
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
        self.deliverer(now)
            .answer(id, WaitFor::stored(stored), pubcomp); // [MQTT-4.3.3-11]
    }

    pub(crate) fn handle_pubcomp(
        &mut self,
        now: Instant,
        session_id: SessionId,
        ack: Ack<'_>,
    ) -> Result<(), Fault> {
        let Clients {
            sessions,
            connections,
            ..
        } = &mut self.clients;
        let Some(session) = sessions.get_mut(session_id) else {
            return Ok(());
        };
        match session.outbound.handle_pubcomp(ack.packet_id) {
            Ok(()) => {
                session.widen(connections);
                sessions.end_entry(session_id, ack.packet_id);
            }
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

    /// Whether nothing waits for this session, and something might leave.
    #[inline]
    pub(crate) fn has_room_and_nothing(&self, id: SessionId) -> bool {
        let Clients {
            sessions,
            connections,
            limits,
            ..
        } = &self.clients;
        let Some(session) = sessions.get(id) else {
            return false;
        };
        let connection = session.connection.and_then(|index| connections.at(index));
        connection.is_some_and(|connection| session.has_room_and_nothing(connection, limits))
    }

    /// Whether more room in its output changes nothing for this connection or its session, and
    /// nothing is left to report: so it is behind nearly every write.
    #[inline]
    pub(crate) fn is_at_rest(&self, id: ConnectionId, session_id: SessionId) -> bool {
        let clients = &self.clients;
        let Some(connection) = clients.connections.get(id) else {
            return false;
        };
        let session = clients.sessions.get(session_id);
        session.is_some_and(|session| {
            session.has_room_and_nothing(connection, &clients.limits) && !session.is_durable()
        }) && !clients.retained.has_queries(session_id)
            && connection.has_used_all()
            && !clients.deliveries.has_fan_outs()
            && clients.sessions.all_have_room()
            && clients.audit.is_at_rest()
    }

    /// Everything up to this request is on disk.
    pub(crate) fn handle_stored(&mut self, now: Instant, stored: StoreId) {
        self.clients.gate.on_stored(stored);
        while let Some(waiter) = self.clients.gate.pop_woken() {
            self.wake(now, waiter);
        }
    }

    /// A message with this token is answered.
    pub(crate) fn handle_settled(&mut self, now: Instant, token: u64) {
        if let Some(waiter) = self.clients.gate.on_settled(token) {
            self.wake(now, waiter);
        }
    }

    /// Wakes this when it is true: at once, if it is.
    pub(crate) fn wake_when(&mut self, now: Instant, until: WaitFor, waiter: Waiter) {
        if let Some(waiter) = self.clients.gate.wake_when(until, waiter) {
            self.wake(now, waiter);
        }
    }

    fn wake(&mut self, now: Instant, waiter: Waiter) {
        match waiter {
            Waiter::Packets(id) => self.deliverer(now).release(id),
            Waiter::Output(id) => self.clients.connections.relieve(now, id),
            Waiter::Shard(shard, token) if shard == self.options.id => {
                self.handle_settled(now, token);
            }
            Waiter::Shard(shard, token) => self
                .clients
                .mesh
                .send(shard, MeshMessage::Settled { token }),
            Waiter::Will(client_id) => self.end_stored_will(&client_id),
        }
    }

    /// The will of this client was published, or will not be. On disk it may be another by now.
    pub(crate) fn end_stored_will(&mut self, client_id: &Arc<str>) {
        let session = self.clients.sessions.find_mut(client_id);
        if session.is_some_and(|session| session.will_on_disk) {
            return;
        }
        let record = Record::WillOver {
            client_id: Arc::clone(client_id),
        };
        self.clients.gate.ask(record);
        self.note_will_over(client_id);
    }

    /// What says so was asked for last. Before that is stored its client is not answered that it is
    /// let in again: a restart must not publish a will that is not of its last connection.
    pub(crate) fn note_will_over(&mut self, client_id: &Arc<str>) {
        let asked = self.clients.gate.end_client(Arc::clone(client_id));
        if let Some(session) = self.clients.sessions.find_mut(client_id) {
            session.asked = asked;
        }
    }
}

/// The connection of this session has gone with packets that had to wait. Answers the messages of
/// QoS 0 among them.
pub(crate) fn keep_unanswered(
    session: &mut Session,
    held: impl IntoIterator<Item = PendingPacket>,
) -> Vec<HeldCopy> {
    let mut copies = Vec::new();
    for PendingPacket { until, what } in held {
        match what {
            Outgoing::Answer(Answer::PubRec(id, reason)) if reason.is_error() => {
                session.inbound.acknowledged(id);
            }
            Outgoing::Answer(Answer::PubRec(id, _)) => session.defer_pubrec(id, until),
            Outgoing::Copy(copy) => copies.push(*copy),
            // What other answers are for comes again, as new, or is sent again by what is in
            // flight; of messages the session knows.
            Outgoing::Answer(_) | Outgoing::Publish(..) | Outgoing::Reserved => {}
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
