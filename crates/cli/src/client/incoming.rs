//! What comes from the broker: each packet checked against the phase, worked into the session,
//! answered.

use std::time::Duration;

use unbroken_mqtt_proto::connection::client::Phase;
use unbroken_mqtt_proto::session::{AckError, PubRec};
use unbroken_mqtt_proto::{
    Ack, ConnAck, Disconnect, Packet, PacketType, Properties, PropertyBuf, Publish, QoS,
    ReasonCode, Version, next_frame,
};

use super::{Client, ClientError, Event, Message, PACKET_BYTES_MAX, Received, Server, link};

impl Client {
    /// Handles packets that are complete until one is worth returning.
    pub(super) fn handle_input(&mut self) -> Result<Option<Event>, ClientError> {
        let input = std::mem::take(&mut self.input);
        let mut used = 0;
        let result = loop {
            let rest = input.get(used..).unwrap_or_default();
            match next_frame(rest, PACKET_BYTES_MAX) {
                Ok(Some(frame)) => {
                    used += frame.bytes.len();
                    let handled = Packet::decode(frame, self.options.version)
                        .map_err(ClientError::Malformed)
                        .and_then(|packet| self.handle_packet(packet));
                    match handled {
                        Ok(None) => {}
                        other => break other,
                    }
                }
                Ok(None) => break Ok(None),
                Err(error) => break Err(ClientError::Malformed(error)),
            }
        };
        self.input = input;
        self.input.drain(..used);
        if let Err(error) = &result {
            self.complain(error);
        }
        result
    }

    fn handle_packet(&mut self, packet: Packet<'_>) -> Result<Option<Event>, ClientError> {
        self.phase
            .expect(packet.packet_type(), self.options.version)?;
        match packet {
            Packet::ConnAck(connack) => self
                .handle_connack(&connack)
                .map(|()| Some(Event::Connected)),
            Packet::Publish(publish) => self.handle_publish(&publish),
            Packet::PubAck(ack) => {
                self.trace().acknowledged(PacketType::PubAck, &ack);
                let known = self.session.outbound.handle_puback(ack.packet_id);
                self.finished(known.map(|_| ()), &ack)
            }
            Packet::PubRec(ack) => {
                self.trace().acknowledged(PacketType::PubRec, &ack);
                let is_error = ack.reason.is_error();
                match self.session.outbound.handle_pubrec(ack.packet_id, is_error) {
                    Ok(PubRec::SendPubRel(_)) => {
                        self.send_pubrel(ack.packet_id, ReasonCode::Success)
                    }
                    Ok(PubRec::Ended(_)) => return self.finished(Ok(()), &ack),
                    Err(AckError::Unknown) => {
                        self.send_pubrel(ack.packet_id, ReasonCode::PacketIdentifierNotFound)
                    }
                    Err(error) => Err(ClientError::Acknowledgement(error)),
                }
                .map(|()| None)
            }
            Packet::PubComp(ack) => {
                self.trace().acknowledged(PacketType::PubComp, &ack);
                let known = self.session.outbound.handle_pubcomp(ack.packet_id);
                self.finished(known, &ack)
            }
            Packet::PubRel(ack) => {
                self.trace().acknowledged(PacketType::PubRel, &ack);
                let reason = if self.session.inbound.handle_pubrel(ack.packet_id) {
                    ReasonCode::Success
                } else {
                    ReasonCode::PacketIdentifierNotFound
                };
                self.trace().answering("PUBCOMP", ack.packet_id);
                let properties = Properties::EMPTY;
                self.send(&Packet::PubComp(Ack {
                    packet_id: ack.packet_id,
                    reason,
                    properties,
                }))?;
                Ok(None)
            }
            Packet::SubAck(suback) => {
                self.trace().subscribed(suback.packet_id, suback.reasons);
                let codes = suback.reasons.to_vec();
                Ok(Some(Event::Subscribed { codes }))
            }
            Packet::UnsubAck(_) => {
                self.trace().received("UNSUBACK");
                Ok(Some(Event::Unsubscribed))
            }
            Packet::PingResp => {
                self.trace().received("PINGRESP");
                self.pinged = None;
                Ok(None)
            }
            Packet::Disconnect(disconnect) => {
                self.trace().disconnected(disconnect.reason);
                self.phase = Phase::Closed;
                Err(ClientError::Disconnected {
                    reason: disconnect.reason,
                    text: disconnect.properties.reason_string().map(str::to_owned),
                })
            }
            Packet::Auth(_) => Err(ClientError::AuthenticationContinues),
            // `Phase::expect` lets no packet through that only a client sends.
            Packet::Connect(_)
            | Packet::Subscribe(_)
            | Packet::Unsubscribe(_)
            | Packet::PingReq => Ok(None),
        }
    }

    fn handle_connack(&mut self, connack: &ConnAck<'_>) -> Result<(), ClientError> {
        let properties = connack.properties;
        self.phase = self.phase.handle_connack(connack.reason);
        self.server = Server {
            session_present: connack.session_present,
            // [MQTT-3.1.2-21]
            keep_alive: Some(
                properties
                    .server_keep_alive()
                    .unwrap_or(self.options.keep_alive_s),
            )
            .filter(|seconds| *seconds > 0)
            .map(|seconds| Duration::from_secs(seconds.into())),
            packet_bytes_max: properties.maximum_packet_size().unwrap_or(u32::MAX),
            qos_max: properties.maximum_qos(),
            retain_available: properties.retain_available(),
            topic_alias_max: properties.topic_alias_maximum().unwrap_or(0),
            client_id: properties.assigned_client_identifier().map(str::to_owned),
        };
        let receive_maximum = properties.receive_maximum().unwrap_or(u16::MAX);
        self.session
            .outbound
            .set_receive_maximum(receive_maximum.min(self.options.inflight_max));
        self.trace().connack(self.options.version, connack.reason);
        if connack.reason.is_error() {
            return Err(ClientError::Refused {
                version: self.options.version,
                reason: connack.reason,
                text: properties.reason_string().map(str::to_owned),
            });
        }
        // [MQTT-3.2.2-4]
        if connack.session_present && self.options.clean_start {
            return Err(ClientError::UnknownSession);
        }
        Ok(())
    }

    fn handle_publish(&mut self, publish: &Publish<'_>) -> Result<Option<Event>, ClientError> {
        let topic = self
            .aliases
            .resolve(publish.topic, publish.properties.topic_alias())?;
        let topic = topic.as_str().to_owned();
        self.trace().publish("received", publish, &topic);
        if let Some(id) = publish.packet_id {
            // Before anybody has looked at the message. [MQTT-4.5.0-2, MQTT311-4.5.0-2]
            let arrival = self.session.inbound.handle_publish(publish.qos, id)?;
            let (reason, properties) = (ReasonCode::Success, Properties::EMPTY);
            let ack = Ack {
                packet_id: id,
                reason,
                properties,
            };
            if publish.qos == QoS::AtLeastOnce {
                self.session.inbound.acknowledged(id);
                self.trace().answering("PUBACK", id);
                self.send(&Packet::PubAck(ack))?;
            } else {
                self.session.inbound.received(id);
                self.trace().answering("PUBREC", id);
                self.send(&Packet::PubRec(ack))?;
            }
            if !arrival.is_new() {
                return Ok(None);
            }
        }
        let mut properties = PropertyBuf::new();
        properties.extend(publish.properties);
        Ok(Some(Event::Message(Received {
            message: Message {
                topic,
                payload: publish.payload.to_vec(),
                qos: publish.qos,
                retain: publish.retain,
                properties,
            },
            dup: publish.dup,
            packet_id: publish.packet_id,
        })))
    }

    /// An acknowledgement ended a message, which makes room for another.
    fn finished(
        &mut self,
        known: Result<(), AckError>,
        ack: &Ack<'_>,
    ) -> Result<Option<Event>, ClientError> {
        match known {
            Ok(()) => {
                self.send_waiting()?;
                Ok(Some(Event::Published {
                    id: ack.packet_id,
                    reason: ack.reason,
                }))
            }
            // An answer to what an earlier connection carried.
            Err(AckError::Unknown) => Ok(None),
            Err(error) => Err(ClientError::Acknowledgement(error)),
        }
    }

    /// Tells a 5.0 broker what it did wrong, if that is what happened.
    fn complain(&mut self, error: &ClientError) {
        if let Some(reason) = error.broker_fault()
            && self.phase.is_connected()
            && self.options.version == Version::V5
        {
            let properties = Properties::EMPTY;
            // The connection ends with the error that is being reported.
            let _ = self.send(&Packet::Disconnect(Disconnect { reason, properties }));
            let _ = link::write(&mut self.stream, &self.output);
        }
        self.phase = Phase::Closed;
    }
}
