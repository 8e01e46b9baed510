//! The receiver's half of the acknowledgements: what a client says to messages it was sent, and its
//! PUBREL to those it sent.

use std::time::Instant;

use unbroken_mqtt_proto::session::{AckError, PubRec};
use unbroken_mqtt_proto::{Ack, Properties, Property, ReasonCode, Version};

use crate::audit::account::Fate;
use crate::audit::receipt::News;
use crate::clients::Clients;
use crate::connection::Answer;
use crate::durability::WaitFor;
use crate::ids::{ConnectionId, SessionId, StoreId};
use crate::reason::{DropReason, Fault};
use crate::session::Delivery;
use crate::shard::Shard;

impl Shard {
    pub(crate) fn handle_puback(
        &mut self,
        now: Instant,
        session_id: SessionId,
        ack: Ack<'_>,
    ) -> Result<(), Fault> {
        let Some(session) = self.clients.session_mut(session_id) else {
            return Ok(());
        };
        match session.outbound.handle_puback(ack.packet_id) {
            Ok(delivery) if ack.reason.is_error() => {
                session.landed(&delivery);
                let number = delivery.number;
                self.clients.land(session_id, ack.packet_id);
                // [MQTT-4.8.2-6]
                self.clients
                    .drop_waiting(now, session_id, delivery, DropReason::RefusedByReceiver);
                self.clients
                    .settle_delivery(session_id, number, Fate::GivenUp);
            }
            Ok(delivery) => {
                session.landed(&delivery);
                self.clients.land(session_id, ack.packet_id);
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
        let Some(session) = self.clients.session_mut(session_id) else {
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
                    self.acknowledged(session_id, &delivery, ack.properties);
                    // [MQTT-4.3.3-6]
                    until.stored = self.clients.ask_received(session_id, packet_id, &delivery);
                    self.clients.delivered(delivery);
                    self.clients.look_ahead(now, session_id);
                }
                let pubrel = Answer::PubRel(packet_id, ReasonCode::Success);
                self.clients.answer(id, until, pubrel);
            }
            Ok(PubRec::Ended(delivery)) => {
                session.landed(&delivery);
                let number = delivery.number;
                self.clients.land(session_id, packet_id);
                self.clients
                    .drop_waiting(now, session_id, delivery, DropReason::RefusedByReceiver);
                self.clients
                    .settle_delivery(session_id, number, Fate::GivenUp);
                self.pump(now, session_id);
            }
            // It ends an exchange that nobody knows: there is nothing to release [MQTT-4.3.3-4].
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
        let Some(session) = self.clients.session_mut(session_id) else {
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
            self.clients.ask_to_release(session_id, packet_id)
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
        let Some(session) = self.clients.session_mut(session_id) else {
            return Ok(());
        };
        match session.outbound.handle_pubcomp(ack.packet_id) {
            Ok(()) => self.clients.land(session_id, ack.packet_id),
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

/// User property `audit` = `processed`, in PUBACK or PUBREC: the receiver acknowledges after it has
/// processed, and says so.
#[cold]
fn says_processed(properties: Properties<'_>) -> bool {
    properties
        .into_iter()
        .any(|property| matches!(property, Property::UserProperty("audit", "processed")))
}
