//! Drops what may not wait any longer, or is too much: in memory, in flight, and when it is read.
//! The rules are [`crate::durability`]'s.

use std::sync::Arc;

use super::Deliverer;
use super::item::Item;
use crate::audit::account::Fate;
use crate::durability::Waiting;
use crate::ids::SessionId;
use crate::message::Message;
use crate::reason::DropReason;
use crate::routing::Terms;
use crate::session::{Rules, Session};

impl Deliverer<'_> {
    /// Of what waits in memory, and of what was sent over a connection that has ended.
    pub(crate) fn drop_outstayed(&mut self, id: SessionId) {
        self.drop_outstayed_queue(id);
        self.drop_outstayed_in_flight(id);
        self.sessions.note_room(self.limits, id);
    }

    fn drop_outstayed_queue(&mut self, id: SessionId) {
        let Self {
            sessions,
            gate,
            limits,
            now,
            ..
        } = self;
        let Some(session) = sessions.get_mut(id) else {
            return;
        };
        let outstayed = session.take_outstayed(Rules::new(*now, limits, gate));
        let mut numbers = Vec::with_capacity(outstayed.len());
        for (delivery, why) in outstayed {
            self.telemetry.unqueued(delivery.cost());
            numbers.push(delivery.number);
            self.drop_waiting(id, delivery, why);
        }
        if let Some(session) = self.sessions.get_mut(id) {
            let totals = self.telemetry.audit();
            session.settle_dropped(&numbers, totals, self.audit.findings());
        }
    }

    /// What waits in memory for a session that is away, and was in flight to it: memory is short.
    #[cold]
    pub(crate) fn drop_for_memory(&mut self, id: SessionId) {
        let Some(session) = self.sessions.get_mut(id) else {
            return;
        };
        let in_flight = session.outbox.in_flight();
        let in_flight: Vec<_> = in_flight.map(|(packet_id, ..)| packet_id).collect();
        let queued = session.outbox.take_queued(|_, _| Some(()));
        for (delivery, ()) in queued {
            self.telemetry.unqueued(delivery.cost());
            self.drop_settled(id, delivery, DropReason::QueueFull, Fate::Dropped);
        }
        for packet_id in in_flight {
            let session = self.sessions.get(id);
            let was_sent = session.is_some_and(|found| found.outbox.was_sent(packet_id));
            self.give_up(id, packet_id, was_sent, DropReason::QueueFull);
        }
        self.sessions.note_room(self.limits, id);
    }

    /// A session has lost its connection: what was in flight over it may be what was released, and
    /// is not sent again. A client that comes back all the time, and acknowledges nothing, would
    /// hold on to it.
    pub(crate) fn release_of_absent(&mut self, id: SessionId) {
        let gate = &*self.gate;
        if gate.retention().releases() && !gate.has_failed() {
            self.drop_outstayed_in_flight(id);
            self.sessions.note_room(self.limits, id);
        }
    }

    /// Of what was sent over a connection that has ended: as if that part of the session had ended
    /// [MQTT-4.1.0-1]. A message of QoS 2 that the receiver has is done with in any case.
    fn drop_outstayed_in_flight(&mut self, id: SessionId) {
        let Self {
            sessions,
            gate,
            limits,
            now,
            ..
        } = &*self;
        let rules = Rules::new(*now, limits, gate);
        let session = sessions.get(id);
        let outstayed = session.map(|session| session.outstayed_in_flight(rules));
        for (packet_id, why) in outstayed.into_iter().flatten() {
            let session = self.sessions.get(id);
            let was_sent = session.is_some_and(|found| found.outbox.was_sent(packet_id));
            // PUBREL is sent when the client comes back, after all that was asked for.
            self.give_up(id, packet_id, was_sent, why);
        }
    }

    /// Drops a message that was read, if it may not stay. False: it stays.
    pub(crate) fn take_outstayed(&mut self, id: SessionId, message: &Arc<Message>) -> bool {
        let Some(session) = self.sessions.get_mut(id) else {
            return true;
        };
        let Some(kept) = session.kept.as_deref_mut() else {
            return true;
        };
        let Some(terms) = kept.terms_of_read(&session.client_id, message) else {
            return true;
        };
        if self.drop_read(id, terms.terms(), message) {
            return true;
        }
        let backlog = self.sessions.backlog_mut(id);
        if let Some(advance) = backlog.and_then(|backlog| backlog.advance.as_mut()) {
            let stamp = message.publication().stamp;
            let oldest = advance.oldest.get_or_insert(stamp);
            *oldest = stamp.min(*oldest);
        }
        false
    }

    /// Drops a message that was read for a session and is for it, by name, if it is too much or may
    /// not wait any longer.
    pub(super) fn drop_read(
        &mut self,
        id: SessionId,
        terms: Terms<'_>,
        message: &Arc<Message>,
    ) -> bool {
        let item = Item::kept(message);
        let waiting = Waiting {
            message,
            retain: false,
            durable: true,
        };
        let Self {
            sessions,
            gate,
            limits,
            now,
            ..
        } = &*self;
        let is_too_much = |session: &Session| session.holds_too_much(limits);
        let why = if sessions.get(id).is_some_and(is_too_much) {
            Some(DropReason::QueueFull)
        } else {
            gate.retention().outstayed(limits, *now, waiting)
        };
        let (Some(why), Some(position)) = (why, message.position()) else {
            return false;
        };
        let bytes = item.publication.cost();
        self.count_found(id, position, bytes);
        let Some(backlog) = self.sessions.backlog_mut(id) else {
            return false;
        };
        if backlog.take(bytes) {
            self.telemetry.uncount(1, bytes);
        }
        self.refuse_entry(id, terms, &item, why);
        true
    }
}
