//! What a group chose a session for, and its client no longer takes: it came back with a smaller
//! Maximum Packet Size.
//!
//! Invariant: each such message is given back once, when the client connects. If the group chooses
//! the same session again, since no member takes it, it is dropped by name.

use unbroken_mqtt_proto::session::Entry;
use unbroken_mqtt_proto::{PacketId, QoS};

use super::Deliverer;
use crate::audit::account::Fate;
use crate::ids::SessionId;
use crate::session::{Delivery, Session};
use crate::shared::PacketLimit;

impl Deliverer<'_> {
    /// Takes what groups have given this session and is larger than its client takes, in order. A
    /// message of QoS 2 that has left may have arrived: no other member may get it [MQTT-4.8.2-5].
    pub(crate) fn take_too_large(&mut self, id: SessionId, limit: &PacketLimit) -> Vec<Delivery> {
        let Some(session) = self.sessions.get_mut(id) else {
            return Vec::new();
        };
        let (mut taken, mut fates) = (Vec::new(), Vec::new());
        for packet_id in session.in_flight_too_large(limit) {
            let sent = session.outbound.was_sent(packet_id);
            if let Some(delivery) = session.outbound.forget(packet_id) {
                session.end_flight(&delivery);
                session.end_entry(packet_id);
                fates.push((delivery.number, Fate::at_the_end(sent, true)));
                taken.push(delivery);
            }
        }
        for (qos, delivery) in std::mem::take(&mut session.queue) {
            if !session.is_too_large(limit, qos, &delivery) {
                session.queue.push_back((qos, delivery));
                continue;
            }
            let cost = delivery.message.publication().cost();
            session.queue_bytes = session.queue_bytes.saturating_sub(cost);
            self.telemetry.unqueued(cost);
            session.end_waiting_entry(&delivery);
            fates.push((delivery.number, Fate::HandedOn));
            taken.push(delivery);
        }
        if !taken.is_empty() {
            self.sessions.touch(id);
        }
        for (number, fate) in fates {
            self.settle(id, number, fate);
        }
        taken
    }
}

impl Session {
    fn in_flight_too_large(&self, limit: &PacketLimit) -> Vec<PacketId> {
        let too_large = self.outbound.iter().filter_map(|entry| match entry {
            Entry::Publish { id, qos, message } => {
                let may_go_on = qos != QoS::ExactlyOnce || !self.outbound.was_sent(id);
                (may_go_on && self.is_too_large(limit, qos, message)).then_some(id)
            }
            Entry::PubRel { .. } => None,
        });
        too_large.collect()
    }

    /// Whether a group that this session is in gave it a message that is larger than its client
    /// takes.
    fn is_too_large(&self, limit: &PacketLimit, qos: QoS, delivery: &Delivery) -> bool {
        let group = delivery.group.as_ref();
        let is_member = group.is_some_and(|text| self.memberships.serial(text).is_some());
        let identifier = delivery.identifiers.first().copied();
        is_member && !limit.takes(&delivery.message.publication(), qos, identifier)
    }
}
