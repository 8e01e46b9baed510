//! Reads of the logs: for a session that catches up, and to count what waits from before the broker
//! started. Those that drop something are in [`super::retention`].

use std::sync::Arc;
use std::time::Instant;

use unbroken_mqtt_proto::QoS;

use super::Shard;
use crate::delivery::Item;
use crate::durability::{Purpose, ReadAnswer};
use crate::ids::SessionId;
use crate::message::Message;
use crate::reason::FaultKind;
use crate::shard::Clients;
use crate::timers::Timer;

impl Shard {
    /// Goes on reading for a session that is behind, has a client, and nothing in memory for it.
    pub(crate) fn read_on(&mut self, id: SessionId) {
        let Clients { sessions, gate, .. } = &mut self.clients;
        let Some(session) = sessions.get_mut(id) else {
            return;
        };
        if session.connection.is_none() || !session.queue.is_empty() {
            return;
        }
        session.leave_scan(gate);
        if !session.backlog_mut().is_some_and(|b| b.is_idle()) {
            return;
        }
        match session.next_read(gate) {
            Some(part) => session.read(id, part, gate, &mut self.numbers, Purpose::CatchUp),
            None => self.become_live(id),
        }
    }

    /// All that was routed to the session has been read.
    fn become_live(&mut self, id: SessionId) {
        let Some(session) = self.clients.sessions.get_mut(id) else {
            return;
        };
        let backlog = session
            .kept
            .as_deref_mut()
            .and_then(|kept| kept.backlog.take());
        let Some(backlog) = backlog else { return };
        self.clients
            .telemetry
            .uncount(backlog.messages, backlog.bytes);
        let (counted, found) = (backlog.counted, backlog.found);
        let Some(session) = self.clients.sessions.get_mut(id) else {
            return;
        };
        let findings = self.clients.audit.findings();
        if found < counted {
            session.fault(FaultKind::Lost, found, counted - found, findings);
        } else if found > counted {
            session.fault(FaultKind::Duplicated, counted, found - counted, findings);
        }
    }

    /// A part of a log has been read.
    pub(crate) fn handle_read(&mut self, now: Instant, answer: &ReadAnswer) {
        let session = self.clients.sessions.get_mut(answer.session);
        if session.is_some_and(|session| session.end_read(answer.token)) {
            match self.clients.gate.reads().purpose(answer.token) {
                Purpose::CatchUp => self.take_answer(now, answer),
                Purpose::Retention => self.handle_advance(now, answer),
                Purpose::RecoveryScan => self.handle_scan(now, answer),
            }
        }
        // The others have their turn, whether or not the session has waited for this.
        match self.clients.gate.finish_read(answer.token) {
            Purpose::CatchUp => {}
            Purpose::Retention => self.go_on_dropping(now),
            Purpose::RecoveryScan => self.scan_on(),
        }
    }

    fn take_answer(&mut self, now: Instant, answer: &ReadAnswer) {
        let id = answer.session;
        for message in &answer.messages {
            self.take_read(now, id, message);
        }
        if let Some(backlog) = self.clients.sessions.backlog_mut(id) {
            backlog.read_through(answer.log, answer.through);
        }
        let Clients { sessions, gate, .. } = &mut self.clients;
        if let Some(session) = sessions.get_mut(id)
            && session.connection.is_none()
        {
            // Its client has gone meanwhile, and what it did not get is to be counted.
            session.list_for_scan(id, gate.scan_mut());
        }
        self.pump(now, id);
    }

    /// Puts a message into the queue of a session, if it was routed to it.
    fn take_read(&mut self, now: Instant, id: SessionId, message: &Arc<Message>) {
        let Some(session) = self.clients.sessions.get_mut(id) else {
            return;
        };
        let Some(kept) = session.kept.as_deref_mut() else {
            return;
        };
        let Some(terms) = kept.terms_of_read(&session.client_id, message) else {
            return;
        };
        if self.drop_read(now, id, terms.terms(), message) {
            return;
        }
        let mut item = Item::kept(message);
        let bytes = item.publication.cost();
        if let Some(position) = item.position() {
            self.deliverer(now).count_found(id, position, bytes);
        }
        let backlog = self.clients.sessions.backlog_mut(id);
        if !backlog.is_some_and(|backlog| backlog.take(bytes)) {
            self.clients.telemetry.accepted();
            self.clients.telemetry.queued(bytes);
        }
        let Some(session) = self.clients.sessions.get_mut(id) else {
            return;
        };
        let (kept, position) = (session.kept.as_ref(), item.position());
        let maybe_sent = kept
            .zip(position)
            .is_some_and(|(kept, at)| kept.redelivery.covers(at));
        let mut delivery = item.delivery(terms.terms(), &mut self.clients.deliveries);
        // One of QoS 2 has not left before the disk had its packet id.
        delivery.again = maybe_sent && terms.qos == QoS::AtLeastOnce;
        delivery.tracked = self.clients.audit.is_watched();
        let totals = self.clients.telemetry.audit();
        session.accept(self.clients.audit.topics(), totals, &mut delivery);
        session.queue_bytes += bytes;
        session.queue.push_back((terms.qos, delivery));
    }

    /// Sees to it that the scan of what waits from before the broker started begins.
    pub(crate) fn schedule_scan(&mut self, now: Instant) {
        if self.clients.gate.schedule_scan() {
            self.timers.set(now, Timer::RecoveryScan);
        }
    }

    pub(super) fn begin_scan(&mut self) {
        self.clients.gate.scan_mut().begin();
        self.scan_on();
    }

    /// Goes on with the sessions that are next.
    fn scan_on(&mut self) {
        while let Some(id) = self.clients.gate.next_to_scan() {
            self.scan_session(id);
        }
    }

    fn scan_session(&mut self, id: SessionId) {
        let Clients { sessions, gate, .. } = &mut self.clients;
        let Some(session) = sessions.get_mut(id) else {
            return;
        };
        if !session.begin_scan_of_log() {
            return;
        }
        if let Some(part) = session.next_to_scan(gate.scan()) {
            session.read(id, part, gate, &mut self.numbers, Purpose::RecoveryScan);
        } else if let Some(backlog) = session.backlog_mut()
            && backlog.end_count(gate.scan().ends())
        {
            sessions.touch(id);
        }
    }

    /// A part of a log has been read, to count what of it waits.
    fn handle_scan(&mut self, now: Instant, answer: &ReadAnswer) {
        let id = answer.session;
        for message in &answer.messages {
            let session = self.clients.sessions.get(id);
            let is_expected = session.is_some_and(|session| {
                let kept = session.kept.as_deref();
                kept.is_some_and(|kept| kept.waits_uncounted(&session.client_id, message))
            });
            if let Some(position) = message.position().filter(|_| is_expected) {
                self.deliverer(now)
                    .count_behind(id, position, &message.publication());
            }
        }
        let Clients { sessions, gate, .. } = &mut self.clients;
        if let Some(session) = sessions.get_mut(id) {
            session.scanned(answer.log, answer.through);
            session.list_for_scan(id, gate.scan_mut());
            gate.scan_mut().put_first(id);
        }
        // Its client may have come meanwhile.
        self.pump(now, id);
    }
}
