//! What a group chose a session for, and its client no longer takes: it came back with a smaller
//! Maximum Packet Size.
//!
//! Invariant: each such message is given back once, when the client connects. If the group chooses
//! the same session again, since no member takes it, it is dropped by name.

use unbroken_mqtt_proto::{PacketId, QoS};

use super::Deliverer;
use crate::audit::account::Fate;
use crate::ids::SessionId;
use crate::session::{Delivery, Memberships, Session};
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
            let sent = session.outbox.was_sent(packet_id);
            if let Some(delivery) = session.outbox.forget(packet_id) {
                session.end_entry(packet_id);
                fates.push((delivery.number, Fate::at_the_end(sent, true)));
                taken.push(delivery);
            }
        }
        for delivery in session.take_too_large(limit) {
            self.telemetry.unqueued(delivery.cost());
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
        let too_large = self.outbox.in_flight().filter(|(id, qos, delivery)| {
            let may_go_on = *qos != QoS::ExactlyOnce || !self.outbox.was_sent(*id);
            may_go_on && is_too_large(&self.memberships, limit, *qos, delivery)
        });
        too_large.map(|(id, _, _)| id).collect()
    }

    /// Takes out of the queue what is too large.
    fn take_too_large(&mut self, limit: &PacketLimit) -> impl Iterator<Item = Delivery> + use<> {
        let memberships = &self.memberships;
        let taken = self.outbox.take_queued(|qos, delivery| {
            is_too_large(memberships, limit, qos, delivery).then_some(())
        });
        taken.into_iter().map(|(delivery, ())| delivery)
    }
}

/// Whether a group that a session is in gave it a message that is larger than its client takes.
fn is_too_large(
    memberships: &Memberships,
    limit: &PacketLimit,
    qos: QoS,
    delivery: &Delivery,
) -> bool {
    let group = delivery.group.as_ref();
    let is_member = group.is_some_and(|text| memberships.serial(text).is_some());
    let identifier = delivery.identifiers.first().copied();
    is_member && !limit.takes(&delivery.message.publication(), qos, identifier)
}
