//! Packets that come from the broker.

use std::sync::Arc;
use std::time::Instant;

use unbroken_mqtt_proto::session::{Arrival, Inbound};
use unbroken_mqtt_proto::{
    ConnAck, Disconnect, Packet, PropertyBuf, Publish, QoS, ReasonCode, Version, next_frame,
};

use super::Engine;
use super::routes::Route;
use crate::inbox::{Acknowledgement, Pushed};
use crate::{BrokerFault, ConnectError, Direction, Event, Received};

impl Engine {
    /// Works on all whole packets that have come.
    pub(crate) fn handle_input(&mut self, now: Instant) -> Result<(), ConnectError> {
        let input = std::mem::take(&mut self.input);
        let limit = self.options.limits.packet_bytes_max.max(1);
        let mut used = 0;
        let result = loop {
            let rest = input.get(used..).unwrap_or_default();
            match next_frame(rest, limit) {
                Ok(Some(frame)) => {
                    used += frame.bytes.len();
                    let handled = Packet::decode(frame, self.wire.version())
                        .map_err(|error| ConnectError::Broker(error.into()))
                        .and_then(|packet| self.handle_packet(packet, now));
                    if handled.is_err() {
                        break handled;
                    }
                }
                Ok(None) => break Ok(()),
                Err(error) => break Err(ConnectError::Broker(error.into())),
            }
        };
        self.input = input;
        self.input.drain(..used);
        if let Err(ConnectError::Broker(fault)) = &result {
            self.report_fault(fault);
        }
        result
    }

    fn handle_packet(&mut self, packet: Packet<'_>, now: Instant) -> Result<(), ConnectError> {
        let version = self.wire.version();
        let expected = self.phase.expect(packet.packet_type(), version);
        expected.map_err(|error| ConnectError::Broker(error.into()))?;
        // The topic of a PUBLISH is not known yet.
        if !matches!(packet, Packet::Publish(_)) {
            self.observe(&packet);
        }
        let wire = &mut self.wire;
        let acknowledged = match packet {
            Packet::ConnAck(connack) => return self.handle_connack(&connack),
            Packet::Publish(publish) => return self.handle_publish(&publish),
            Packet::PubAck(ack) => self.sending.handle_puback(&ack, wire),
            Packet::PubRec(ack) => self.sending.handle_pubrec(&ack, wire),
            Packet::PubComp(ack) => self.sending.handle_pubcomp(&ack, wire),
            Packet::PubRel(ack) => {
                let reason = if self.inbound.handle_pubrel(ack.packet_id) {
                    ReasonCode::Success
                } else {
                    ReasonCode::PacketIdentifierNotFound
                };
                wire.complete(ack.packet_id, reason);
                Ok(())
            }
            Packet::SubAck(suback) => {
                if let Some(event) = self.routes.handle_suback(&suback, wire, &self.sending) {
                    self.report(event);
                }
                Ok(())
            }
            Packet::UnsubAck(unsuback) => {
                self.routes
                    .handle_unsuback(unsuback.packet_id, unsuback.reasons);
                Ok(())
            }
            Packet::PingResp => {
                let waiting = self.pings.pop_front().map(|(_, waiting)| waiting);
                for wish in waiting.into_iter().flatten() {
                    // Whoever asked may have stopped waiting.
                    let _ = wish.send(());
                }
                // The others were asked for after that; they count from now on.
                if let Some((asked, _)) = self.pings.front_mut() {
                    *asked = now;
                }
                Ok(())
            }
            Packet::Disconnect(disconnect) => {
                return Err(disconnected(&disconnect));
            }
            Packet::Auth(_) => return Err(ConnectError::Broker(BrokerFault::Authentication)),
            // `Phase::expect` lets no packet through that only a client sends.
            Packet::Connect(_)
            | Packet::Subscribe(_)
            | Packet::Unsubscribe(_)
            | Packet::PingReq => Ok(()),
        };
        acknowledged.map_err(|error| ConnectError::Broker(error.into()))
    }

    fn handle_connack(&mut self, connack: &ConnAck<'_>) -> Result<(), ConnectError> {
        self.phase = self.phase.handle_connack(connack.reason);
        if connack.reason.is_error() {
            return Err(ConnectError::Refused {
                to: self.options.to.clone(),
                reason: connack.reason,
                text: connack.properties.reason_string().map(Arc::from),
            });
        }
        let session_present = connack.session_present;
        // [MQTT-3.2.2-4]
        if session_present && self.starts_new_session() {
            return Err(ConnectError::UnknownSession);
        }
        let limits = &self.options.limits;
        let (keep_alive_s, aliases_max) = (self.options.keep_alive_s, limits.topic_aliases_max);
        self.wire.handle_connack(connack, keep_alive_s, aliases_max);
        // CONNACK of 3.1 does not say it, so messages of an earlier start may come.
        let may_be_present =
            session_present || self.options.version == Version::V3_1 && !self.starts_new_session();
        self.is_resumed = may_be_present && (self.is_resumed || !self.was_connected);
        self.was_connected = true;
        if session_present {
            self.forget_repeatable();
        } else {
            self.forget_session();
        }
        self.report(Event::Connected { session_present });
        let theirs = match self.options.version {
            Version::V5 => connack.properties.receive_maximum().unwrap_or(u16::MAX),
            Version::V3_1 | Version::V3_1_1 => self.options.limits.inflight_max_3x.max(1),
        };
        let receive_maximum = theirs.min(self.options.limits.inflight_max.max(1));
        // Subscriptions first: an answer to what is published next then finds its way.
        let (wire, sending) = (&mut self.wire, &mut self.sending);
        self.routes.handle_connected(session_present, wire, sending);
        sending.handle_connected(session_present, receive_maximum, wire);
        Ok(())
    }

    /// The broker sends again what we have not acknowledged at QoS 1.
    fn forget_repeatable(&mut self) {
        for inbox in self.routes.inboxes() {
            inbox.forget_repeatable();
        }
        self.unclaimed
            .retain(|message| message.qos != QoS::AtLeastOnce);
    }

    /// Ours ends with the broker's.
    ///
    /// [MQTT-3.2.2-5]
    fn forget_session(&mut self) {
        self.inbound = Inbound::new();
        self.arrivals.forget();
        for inbox in self.routes.inboxes() {
            inbox.keep_as_last_copies();
        }
        for message in self.unclaimed.drain(..).collect::<Vec<_>>() {
            let topic = message.topic;
            self.report(Event::Unclaimed { topic });
        }
    }

    fn handle_publish(&mut self, publish: &Publish<'_>) -> Result<(), ConnectError> {
        let topic = (self.aliases)
            .resolve(publish.topic, publish.properties.topic_alias())
            .map_err(|error| ConnectError::Broker(error.into()))?;
        if let Some(observer) = &self.options.observer {
            let topic = topic.as_str();
            observer(
                Direction::Received,
                &Packet::Publish(Publish { topic, ..*publish }),
            );
        }
        let mut acknowledgement = None;
        if let Some(id) = publish.packet_id {
            let arrival = self.inbound.handle_publish(publish.qos, id);
            match arrival.map_err(|error| ConnectError::Broker(error.into()))? {
                Arrival::Duplicate if self.arrivals.repeated(id) => {
                    self.answer_arrivals();
                    return Ok(());
                }
                Arrival::New | Arrival::Instead | Arrival::Duplicate => {
                    let serial = self.arrivals.arrived(id, publish.qos);
                    let notices = self.notices.clone();
                    acknowledgement = Some(Acknowledgement::new(serial, notices));
                }
                Arrival::InProgress => return Ok(()),
            }
        }
        let identifiers = publish.properties.subscription_identifiers();
        let route = self.routes.route(topic, identifiers);
        let mut properties = PropertyBuf::new();
        properties.extend(publish.properties);
        let received = Received {
            topic: topic.as_str().into(),
            payload: publish.payload.into(),
            qos: publish.qos,
            retain: publish.retain,
            dup: publish.dup,
            packet_id: publish.packet_id,
            properties: Arc::new(properties),
            acknowledgement,
        };
        self.deliver(received, route);
        Ok(())
    }

    fn deliver(&mut self, mut message: Received, route: Route) {
        match route {
            Route::To(inboxes) => {
                let topic = Arc::clone(&message.topic);
                let mut pushed = Vec::with_capacity(inboxes.len());
                for inbox in inboxes.iter().skip(1) {
                    pushed.push(inbox.push(message.share()));
                }
                if let Some(first) = inboxes.first() {
                    pushed.push(first.push(message));
                }
                if pushed.contains(&Pushed::NoRoom) {
                    let topic = Arc::clone(&topic);
                    self.report(Event::Dropped { topic });
                }
                if pushed.contains(&Pushed::LeftOpen) {
                    self.report(Event::Unclaimed { topic });
                }
            }
            Route::Copy => message.acknowledge_now(),
            Route::Unknown if self.is_resumed && self.may_wait(&message) => {
                self.unclaimed.push_back(message);
            }
            Route::GivenUp | Route::Unknown => {
                message.acknowledge_now();
                let topic = message.topic;
                self.report(Event::Unclaimed { topic });
            }
        }
    }

    /// Whether a message of a resumed session may wait for its subscription. What is acknowledged
    /// is limited by Receive Maximum.
    fn may_wait(&self, message: &Received) -> bool {
        let is_at_most_once = |message: &Received| message.qos == QoS::AtMostOnce;
        let others = self.unclaimed.iter().filter(|held| is_at_most_once(held));
        !is_at_most_once(message) || others.count() < AT_MOST_ONCE_WAITING_MAX
    }

    fn observe(&self, packet: &Packet<'_>) {
        if let Some(observer) = &self.options.observer {
            observer(Direction::Received, packet);
        }
    }

    /// What the broker said at last, behind a DISCONNECT of ours: a DISCONNECT that names a fault.
    pub(crate) fn take_last_fault(&mut self) -> Option<ConnectError> {
        let mut rest = &*self.input;
        let mut fault = None;
        while fault.is_none()
            && let Ok(Some(frame)) = next_frame(rest, self.options.limits.packet_bytes_max.max(1))
        {
            rest = rest.get(frame.bytes.len()..).unwrap_or_default();
            if let Ok(Packet::Disconnect(last)) = Packet::decode(frame, self.wire.version())
                && last.reason.is_error()
            {
                fault = Some(disconnected(&last));
            }
        }
        let used = self.input.len() - rest.len();
        self.input.drain(..used);
        fault
    }

    /// Tells a 5.0 broker what it did wrong.
    fn report_fault(&mut self, fault: &BrokerFault) {
        if self.phase.is_connected() && self.wire.version() == Version::V5 {
            let disconnect = Packet::Disconnect(Disconnect::new(fault.reason()));
            // A reason that DISCONNECT cannot carry is not said; the connection ends all the same.
            let _ = self.wire.put(&disconnect);
        }
    }
}

fn disconnected(disconnect: &Disconnect<'_>) -> ConnectError {
    ConnectError::Disconnected {
        reason: disconnect.reason,
        text: disconnect.properties.reason_string().map(Arc::from),
    }
}

/// Messages of QoS 0 of a resumed session that wait for their subscription. What the broker kept
/// from this client comes so.
const AT_MOST_ONCE_WAITING_MAX: usize = 64;
