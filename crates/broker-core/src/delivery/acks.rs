//! What a client answers to the messages that it was sent, and its PUBREL to those it sent.
//!
//! Deliberately absent: what may leave now that a place in the window is free; that is for the
//! caller to send.

use unbroken_mqtt_proto::session::{AckError, PubRec};
use unbroken_mqtt_proto::{Ack, Properties, Property, ReasonCode, Version};

use super::Deliverer;
use crate::audit::account::Fate;
use crate::audit::receipt::News;
use crate::connection::Answer;
use crate::durability::WaitFor;
use crate::ids::{ConnectionId, SessionId, StoreId};
use crate::reason::{DropReason, Fault};
use crate::session::Delivery;

impl Deliverer<'_> {
    pub(crate) fn handle_puback(
        &mut self,
        session_id: SessionId,
        ack: Ack<'_>,
    ) -> Result<(), Fault> {
        let Self {
            sessions,
            connections,
            ..
        } = self;
        let Some(session) = sessions.get_mut(session_id) else {
            return Ok(());
        };
        match session.outbox.handle_puback(ack.packet_id) {
            Ok(delivery) if ack.reason.is_error() => {
                sessions.end_entry(session_id, ack.packet_id);
                // [MQTT-4.8.2-6]
                let (why, fate) = (DropReason::RefusedByReceiver, Fate::GivenUp);
                self.drop_settled(session_id, delivery, why, fate);
            }
            Ok(delivery) => {
                session.widen(connections);
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
        Ok(())
    }

    /// A receiver has the message; if it says so, it has also done with it what it is for.
    fn acknowledged(&mut self, id: SessionId, delivery: Delivery, properties: Properties<'_>) {
        let processed = !properties.is_empty() && says_processed(properties);
        let Self {
            sessions,
            audit,
            telemetry,
            deliveries,
            ..
        } = self;
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

    /// Answers whether the exchange is over, so that its place in the window is free.
    pub(crate) fn handle_pubrec(
        &mut self,
        id: ConnectionId,
        session_id: SessionId,
        version: Version,
        ack: Ack<'_>,
    ) -> Result<bool, Fault> {
        let packet_id = ack.packet_id;
        let Self { sessions, gate, .. } = self;
        let Some(session) = sessions.get_mut(session_id) else {
            return Ok(false);
        };
        // A PUBREC with an error ends the exchange and frees the packet id [MQTT-4.3.3-4]
        // [MQTT-4.4.0-2].
        match session
            .outbox
            .handle_pubrec(packet_id, ack.reason.is_error())
        {
            Ok(PubRec::SendPubRel(delivery)) => {
                let mut until = WaitFor::NOW;
                if let Some(delivery) = delivery {
                    // [MQTT-4.3.3-6]
                    until.stored = session.persist_received(gate, packet_id, &delivery);
                    self.acknowledged(session_id, delivery, ack.properties);
                    self.look_ahead(session_id);
                }
                let pubrel = Answer::PubRel(packet_id, ReasonCode::Success);
                self.answer(id, until, pubrel);
            }
            Ok(PubRec::Ended(delivery)) => {
                sessions.end_entry(session_id, packet_id);
                let (why, fate) = (DropReason::RefusedByReceiver, Fate::GivenUp);
                self.drop_settled(session_id, delivery, why, fate);
                return Ok(true);
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
                self.answer(id, WaitFor::NOW, pubrel);
            }
            Err(AckError::WrongQoS | AckError::TooEarly) => {
                return Err(Fault::new(
                    ReasonCode::ProtocolError,
                    "PUBREC for a message that was not QoS 2",
                ));
            }
        }
        Ok(false)
    }

    pub(crate) fn handle_pubrel(
        &mut self,
        id: ConnectionId,
        session_id: SessionId,
        version: Version,
        ack: Ack<'_>,
    ) {
        let Self { sessions, gate, .. } = self;
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
        self.answer(id, WaitFor::stored(stored), pubcomp); // [MQTT-4.3.3-11]
    }

    pub(crate) fn handle_pubcomp(
        &mut self,
        session_id: SessionId,
        ack: Ack<'_>,
    ) -> Result<(), Fault> {
        let Self {
            sessions,
            connections,
            ..
        } = self;
        let Some(session) = sessions.get_mut(session_id) else {
            return Ok(());
        };
        match session.outbox.handle_pubcomp(ack.packet_id) {
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
        Ok(())
    }
}

/// User property `audit` = `processed`, in PUBACK or PUBREC: the receiver acknowledges after it has
/// processed, and says so.
#[cold]
fn says_processed(properties: Properties<'_>) -> bool {
    properties
        .into_iter()
        .any(|property| matches!(property, Property::UserProperty("audit", "processed")))
}
