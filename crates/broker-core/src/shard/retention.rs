//! Drops what may not wait any longer: see [`crate::durability`].

use std::sync::Arc;
use std::time::Instant;

use unbroken_mqtt_proto::ReasonCode;

use super::Shard;
use crate::connection::Connection;
use crate::delivery::Item;
use crate::durability::{Purpose, ReadAnswer, StoreSize, Waiting};
use crate::ids::SessionId;
use crate::message::Message;
use crate::reason::{DropReason, Fault};
use crate::routing::Terms;
use crate::session::{Rules, Session};
use crate::shard::Clients;
use crate::timers::Timer;

impl Shard {
    /// The driver says how large the store is, and up to where no shard needs its logs.
    pub(crate) fn handle_store_size(&mut self, now: Instant, size: &StoreSize) {
        self.clients.telemetry.note_store(size.bytes, size.commits);
        let Clients { limits, gate, .. } = &mut self.clients;
        if gate.retention_mut().note_size(limits, size) {
            self.disconnect_holders(now);
            self.clients.gate.release_oldest(size);
            self.note_holders();
            self.drop_outstayed(now);
        }
    }

    /// The driver says whether the disk lacks the space to take in more.
    pub(crate) fn handle_disk_space(&mut self, lacks: bool) {
        self.clients.telemetry.note_disk_space(lacks);
        self.clients.gate.retention_mut().note_disk_space(lacks);
    }

    /// Ends the connections of clients that have not acknowledged what was released the last time.
    fn disconnect_holders(&mut self, now: Instant) {
        for id in self.clients.gate.retention_mut().take_holders() {
            let connection = self.clients.connections.get(id);
            if connection.is_some_and(|found| self.holds_released(found)) {
                let detail = "the store is full, and it does not acknowledge what it was sent";
                self.disconnect(now, id, Fault::new(ReasonCode::QuotaExceeded, detail));
            }
        }
    }

    /// Finds the connections that hold on to what was released. Costs a look at all that is in
    /// flight.
    fn note_holders(&mut self) {
        let stored = self.clients.gate.stored();
        let connections = self.clients.connections.iter();
        let holders = connections.filter(|it| it.gate_open(stored) && self.holds_released(it));
        let holders = holders.map(Connection::id).collect();
        self.clients.gate.retention_mut().set_holders(holders);
    }

    /// Whether some of what was released is in flight over this connection.
    fn holds_released(&self, connection: &Connection) -> bool {
        let id = connection.session();
        let session = id.and_then(|id| self.clients.sessions.get(id));
        session.is_some_and(|session| session.holds_released(self.clients.gate.retention()))
    }

    /// Sees to it that sessions are looked at for what has waited for too long.
    pub(crate) fn schedule_retention(&mut self, now: Instant) {
        let waits = self.options.settings.durable || self.clients.telemetry.has_waiting();
        let Clients { limits, gate, .. } = &mut self.clients;
        if waits && let Some(every) = gate.retention_mut().schedule(limits) {
            self.timers.set(now + every, Timer::Retention);
        }
    }

    /// Finds sessions that have something to drop, and begins with the first of them. Costs a look
    /// at all sessions.
    pub(crate) fn drop_outstayed(&mut self, now: Instant) {
        let Clients {
            sessions,
            limits,
            gate,
            ..
        } = &mut self.clients;
        if gate.retention_mut().begin() {
            let overdue = sessions
                .iter()
                .filter(|(_, session)| session.is_overdue(now, limits, gate));
            let overdue = overdue.map(|(id, _)| id).collect();
            gate.retention_mut().set_overdue(overdue);
        }
        self.go_on_dropping(now);
    }

    pub(super) fn go_on_dropping(&mut self, now: Instant) {
        while let Some(id) = self.clients.gate.next_overdue() {
            self.drop_outstayed_queue(now, id);
            self.drop_outstayed_in_flight(now, id);
            self.clients.sessions.note_room(&self.clients.limits, id);
            self.begin_advance(id);
        }
    }

    /// Of what waits in memory.
    fn drop_outstayed_queue(&mut self, now: Instant, id: SessionId) {
        let Clients {
            sessions,
            gate,
            limits,
            ..
        } = &mut self.clients;
        let Some(session) = sessions.get_mut(id) else {
            return;
        };
        let outstayed = session.take_outstayed(Rules::new(now, limits, gate));
        let mut numbers = Vec::with_capacity(outstayed.len());
        for (delivery, why) in outstayed {
            let Some(session) = self.clients.sessions.get_mut(id) else {
                return;
            };
            let cost = delivery.message.publication().cost();
            session.queue_bytes = session.queue_bytes.saturating_sub(cost);
            self.clients.telemetry.unqueued(cost);
            numbers.push(delivery.number);
            self.deliverer(now).drop_waiting(id, delivery, why);
        }
        if let Some(session) = self.clients.sessions.get_mut(id) {
            let totals = self.clients.telemetry.audit();
            session.settle_dropped(&numbers, totals, self.clients.audit.findings());
        }
    }

    /// A session has lost its connection: what was in flight over it may be what was released, and
    /// is not sent again. A client that comes back all the time, and acknowledges nothing, would
    /// hold on to it.
    pub(crate) fn release_of_absent(&mut self, now: Instant, id: SessionId) {
        let gate = &self.clients.gate;
        if gate.retention().releases() && !gate.has_failed() {
            self.drop_outstayed_in_flight(now, id);
            self.clients.sessions.note_room(&self.clients.limits, id);
        }
    }

    /// Of what was sent over a connection that has ended: as if that part of the session had ended
    /// [MQTT-4.1.0-1]. A message of QoS 2 that the receiver has is done with in any case.
    fn drop_outstayed_in_flight(&mut self, now: Instant, id: SessionId) {
        let Clients {
            sessions,
            gate,
            limits,
            ..
        } = &self.clients;
        let rules = Rules::new(now, limits, gate);
        let session = sessions.get(id);
        let outstayed = session.map(|session| session.outstayed_in_flight(rules));
        for (packet_id, why) in outstayed.into_iter().flatten() {
            let session = self.clients.sessions.get(id);
            let was_sent = session.is_some_and(|found| found.outbound.was_sent(packet_id));
            // PUBREL is sent when the client comes back, after all that was asked for.
            self.deliverer(now).give_up(id, packet_id, was_sent, why);
        }
    }

    /// Reads from where the session is, if it is behind and nothing reads for it.
    fn begin_advance(&mut self, id: SessionId) {
        let backlog = self.clients.sessions.backlog_mut(id);
        if let Some(backlog) = backlog.filter(|backlog| backlog.is_idle()) {
            backlog.advance = Some(Box::default());
            self.advance_on(id);
        }
    }

    /// Reads on in the first log of which it is not known what may stay; or ends.
    fn advance_on(&mut self, id: SessionId) {
        let Clients { sessions, gate, .. } = &mut self.clients;
        let Some(session) = sessions.get_mut(id) else {
            return;
        };
        if let Some(part) = session.next_read(gate) {
            session.read(id, part, gate, &mut self.numbers, Purpose::Retention);
        } else if let Some(backlog) = session.backlog_mut() {
            backlog.end_advance();
            session.list_for_scan(id, gate.scan_mut());
        }
    }

    /// A part of a log has been read, to drop of it what may not stay.
    pub(super) fn handle_advance(&mut self, now: Instant, answer: &ReadAnswer) {
        let id = answer.session;
        let mut through = answer.through;
        let mut settled = false;
        for message in &answer.messages {
            if let Some(position) = message.position()
                && !self.take_outstayed(now, id, message)
            {
                (through, settled) = (position.number - 1, true);
                break;
            }
        }
        let log = answer.log;
        self.clients.sessions.touch(id);
        if let Some(backlog) = self.clients.sessions.backlog_mut(id) {
            backlog.read_through(log, through);
            if let Some(advance) = &mut backlog.advance
                && settled
            {
                advance.settled.push(log);
            }
        }
        self.advance_on(id);
        // Its client may have come meanwhile.
        self.pump(now, id);
    }

    /// Drops a message that was read, if it may not stay. False: it stays.
    fn take_outstayed(&mut self, now: Instant, id: SessionId, message: &Arc<Message>) -> bool {
        let Some(session) = self.clients.sessions.get_mut(id) else {
            return true;
        };
        let Some(kept) = session.kept.as_deref_mut() else {
            return true;
        };
        let Some(terms) = kept.terms_of_read(&session.client_id, message) else {
            return true;
        };
        if self.drop_read(now, id, terms.terms(), message) {
            return true;
        }
        let backlog = self.clients.sessions.backlog_mut(id);
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
        now: Instant,
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
        let Clients {
            sessions,
            gate,
            limits,
            ..
        } = &self.clients;
        let is_too_much = |session: &Session| session.holds_too_much(limits);
        let why = if sessions.get(id).is_some_and(is_too_much) {
            Some(DropReason::QueueFull)
        } else {
            gate.retention().outstayed(limits, now, waiting)
        };
        let (Some(why), Some(position)) = (why, message.position()) else {
            return false;
        };
        let bytes = item.publication.cost();
        self.deliverer(now).count_found(id, position, bytes);
        let Some(backlog) = self.clients.sessions.backlog_mut(id) else {
            return false;
        };
        if backlog.take(bytes) {
            self.clients.telemetry.uncount(1, bytes);
        }
        self.deliverer(now).refuse_entry(id, terms, &item, why);
        true
    }
}
