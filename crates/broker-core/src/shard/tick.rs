//! What a shard does when the time has come that it asked for.

use std::sync::Arc;
use std::time::{Duration, Instant};

use unbroken_mqtt_proto::ReasonCode;

use crate::audit::account::Fate;
use crate::ids::{ConnectionId, SessionId};
use crate::position::Frontier;
use crate::reason::{DropReason, Fault};
use crate::shard::{Clients, Shard};
use crate::timers::Timer;

impl Shard {
    pub(crate) fn handle_timeout(&mut self, now: Instant, heard: Instant) {
        while let Some(timer) = self.timers.take_due(now) {
            match timer {
                Timer::Connect(id) => self.check_admission(now, heard, id),
                Timer::KeepAlive(id) => self.check_keep_alive(now, heard, id),
                // Both are on disk; after the restart they go on.
                Timer::Will { .. } | Timer::SessionExpiry { .. } if self.is_stopping_to_go_on() => {
                }
                Timer::Will { session, absence } => self.publish_due_will(now, session, absence),
                Timer::SessionExpiry { session, absence } => {
                    self.expire_session(now, session, absence);
                }
                Timer::Retained(message) => self.expire_retained(now, &message),
                Timer::Query(session) => self.pump_retained(now, session),
                Timer::FanOut => self.continue_fan_outs(now),
                Timer::TellDrops => self.report_drops(now),
                Timer::Progress => self.save_progress(),
                Timer::Tail => self.send_log_end(),
                Timer::Retention => self.drop_outstayed(now),
                Timer::RecoveryScan => self.begin_scan(),
                Timer::Sys => self.publish_sys(now),
                Timer::Audit => self.tick_audit(now),
                Timer::Publishers => self.tick_publishers(now),
                Timer::Revive => self.begin_revived(now),
                Timer::Ask => {}
            }
        }
    }

    /// The broker stops, and what it has is there when it begins again.
    fn is_stopping_to_go_on(&self) -> bool {
        self.clients.stopping && self.options.settings.durable
    }

    /// Gives up on a connection that has not come in by its time.
    fn check_admission(&mut self, now: Instant, heard: Instant, id: ConnectionId) {
        let Some(connection) = self.clients.connections.get(id) else {
            return;
        };
        let Some(deadline) = connection.is_to_be_in_by() else {
            return;
        };
        if deadline > now {
            return self.timers.set(deadline, Timer::Connect(id));
        }
        if deadline > heard {
            return self.timers.set(now + NOT_HEARD, Timer::Connect(id));
        }
        let caller = connection.caller();
        let fault = match caller {
            None => Fault::new(ReasonCode::KeepAliveTimeout, "no CONNECT in time"),
            Some(_) => Fault::new(
                ReasonCode::ServerBusy,
                "its password was not checked in time",
            ),
        };
        self.refuse(now, id, caller.unwrap_or_default(), fault);
    }

    fn check_keep_alive(&mut self, now: Instant, heard: Instant, id: ConnectionId) {
        let Some(connection) = self.clients.connections.get(id) else {
            return;
        };
        let Some(keep_alive) = connection.keep_alive() else {
            return;
        };
        let deadline = connection.last_received() + keep_alive;
        if deadline > now {
            self.timers.set(deadline, Timer::KeepAlive(id));
        } else if connection.keeps_waiting(&self.clients.gate, &self.clients.limits) {
            self.timers.set(now + keep_alive, Timer::KeepAlive(id));
        } else if deadline > heard {
            self.timers.set(now + NOT_HEARD, Timer::KeepAlive(id));
        } else {
            let detail = if connection.may_consume(&self.clients.gate, &self.clients.limits) {
                "nothing came within 1.5 times the keep alive"
            } else {
                "it took none of the answers behind which it is not read within 1.5 times the keep alive"
            };
            // [MQTT-3.1.2-22]
            self.disconnect(now, id, Fault::new(ReasonCode::KeepAliveTimeout, detail));
        }
    }

    /// Takes out of the heap what no longer matters.
    #[cold]
    pub(crate) fn compact_timers(&mut self) {
        let clients = &self.clients;
        let connection = |id| clients.connections.get(id);
        let is_away = |session: SessionId, absence: u64| {
            let found = clients.sessions.get(session);
            found.is_some_and(|session| session.absence == absence)
        };
        self.timers.compact(|timer| match timer {
            Timer::Connect(id) => {
                connection(*id).is_some_and(|found| found.is_to_be_in_by().is_some())
            }
            Timer::KeepAlive(id) => connection(*id).is_some(),
            Timer::Will { session, absence } | Timer::SessionExpiry { session, absence } => {
                is_away(*session, *absence)
            }
            Timer::Retained(message) => message.strong_count() > 0,
            Timer::Query(_)
            | Timer::FanOut
            | Timer::TellDrops
            | Timer::Progress
            | Timer::Tail
            | Timer::Retention
            | Timer::RecoveryScan
            | Timer::Sys
            | Timer::Audit
            | Timer::Publishers
            | Timer::Revive
            | Timer::Ask => true,
        });
    }
}

impl Shard {
    /// Sees to it that progress of sessions is stored: soon, and at once if much has been appended
    /// since.
    pub(crate) fn schedule_progress(&mut self, now: Instant) {
        if self.clients.gate.appended_bytes() > self.options.settings.hasten_bytes {
            self.save_cursors();
        }
        if self.clients.sessions.unsaved() > 0 && !self.progress_is_due {
            self.progress_is_due = true;
            self.timers.set(now + SAVE_PROGRESS_EVERY, Timer::Progress);
        }
    }

    /// Asks for the progress of sessions to be stored, of all that have made some.
    pub(crate) fn save_progress(&mut self) {
        self.progress_is_due = false;
        let Clients { sessions, gate, .. } = &mut self.clients;
        gate.note_progress();
        sessions.each_unsaved(|session| session.persist_progress(gate));
        sessions.clear_unsaved();
        self.trim_logs();
    }

    /// Asks for as much to be stored as lets the store trim the log, unless too little has been
    /// appended for so many sessions.
    #[cold]
    fn save_cursors(&mut self) {
        let more = self.clients.sessions.unsaved() as u64 / SAVED_TOGETHER;
        let much = self.options.settings.hasten_bytes.saturating_mul(1 + more);
        if self.clients.gate.appended_bytes() <= much {
            return;
        }
        self.clients.gate.note_progress();
        if !self.knows_what_is_needed() {
            return;
        }
        let Clients { sessions, gate, .. } = &mut self.clients;
        // There is more to store of most, which stay unsaved.
        sessions.each_unsaved(|session| session.persist_cursor(gate));
        self.trim_logs();
    }

    /// Has trimmed what no session needs as soon as their progress is on disk.
    fn trim_logs(&mut self) {
        if self.knows_what_is_needed() && !self.clients.gate.has_failed() {
            let needed = self.needed();
            self.clients.gate.trim(needed);
        }
    }

    /// With other shards it takes more than one of them to know, and with many sessions it takes
    /// long to find out: then it is only known when the shard is [asked](Self::needed).
    fn knows_what_is_needed(&self) -> bool {
        self.options.shards == 1 && self.clients.sessions.len() <= SESSIONS_LOOKED_AT
    }

    /// Up to where this shard needs no log, for a session or for what one has left to a group: what
    /// is within may be trimmed. Costs a look at all sessions.
    pub fn needed(&self) -> Frontier {
        let ends = self.clients.gate.log_ends().all();
        let mut needed = ends.clone();
        for (_, session) in self.clients.sessions.iter() {
            session.lower_to_needs(&mut needed, ends);
        }
        let sent = self.clients.gate.unsettled_positions();
        for position in self.groups.positions().chain(sent) {
            needed.lower(position);
        }
        needed
    }

    /// Sees to it that the other shards hear how long the log of this one is: a shard that wants
    /// nothing of it gets no message, and would hold on to all.
    pub(crate) fn schedule_log_end(&mut self, now: Instant) {
        let Clients { mesh, gate, .. } = &mut self.clients;
        if mesh.is_news(gate.log_ends().own()) {
            self.timers.set(now + SEND_LOG_END_EVERY, Timer::Tail);
        }
    }

    fn send_log_end(&mut self) {
        let Clients { mesh, gate, .. } = &mut self.clients;
        mesh.send_log_end(gate.log_ends().own());
    }

    /// Has what was begun go on in the next turns.
    #[cold]
    pub(crate) fn schedule_fan_out(&mut self, now: Instant) {
        self.settle_fan_outs(now);
        if self.clients.deliveries.schedule_fan_outs() {
            self.timers.set(now, Timer::FanOut);
        }
    }

    fn continue_fan_outs(&mut self, now: Instant) {
        self.deliverer(now).continue_fan_outs();
        self.settle_fan_outs(now);
        self.schedule_fan_out(now + NEXT_TURN);
    }

    /// Everybody gets at once what is on its way.
    pub(crate) fn finish_fan_outs(&mut self, now: Instant) {
        self.deliverer(now).finish_fan_outs();
        self.settle_fan_outs(now);
    }

    /// What waited until all receivers of a message had it waits no more.
    pub(crate) fn settle_fan_outs(&mut self, now: Instant) {
        while let Some(token) = self.clients.deliveries.pop_settled() {
            self.handle_settled(now, token);
        }
    }

    /// Tells those for whom nothing waits what the present input has made them miss.
    pub(crate) fn tell_missed(&mut self, now: Instant) {
        while let Some(id) = self.clients.audit.take_missing() {
            self.tell_due(now, id);
        }
    }

    #[cold]
    fn tell_due(&mut self, now: Instant, id: SessionId) {
        self.deliverer(now).tell_due(id);
    }

    /// Sees to it that what was counted is reported, even if nothing more is dropped.
    pub(crate) fn schedule_report(&mut self, now: Instant) {
        if let Some(at) = self.clients.telemetry.next_report(now) {
            self.timers.set(at, Timer::TellDrops);
        }
    }

    pub(crate) fn report_drops(&mut self, now: Instant) {
        let Clients {
            sessions,
            telemetry,
            ..
        } = &mut self.clients;
        for id in telemetry.take_unreported(now) {
            if let Some(session) = sessions.get_mut(id) {
                telemetry.report_drops(now, &mut session.drops);
            }
        }
    }

    /// The broker stops, and what its sessions hold is in memory: names all that is lost with them.
    pub(crate) fn drop_sessions(&mut self, now: Instant) {
        self.report_drops(now);
        self.clients.stopping = true;
        let ids: Vec<_> = self.clients.sessions.iter().map(|(id, _)| id).collect();
        for id in ids {
            let Some(session) = self.clients.sessions.get_mut(id) else {
                continue;
            };
            if session.is_durable() {
                continue; // it is on disk
            }
            let client_id = Arc::clone(&session.client_id);
            let bytes = std::mem::take(&mut session.queue_bytes);
            session.inflight_bytes = 0;
            let (mut waiting, mut fates) = (Vec::new(), Vec::new());
            for (_, sent, delivery) in session.drain() {
                fates.push((delivery.number, Fate::at_the_end(sent, false)));
                waiting.push(delivery);
            }
            self.clients.telemetry.unqueued(bytes);
            self.deliverer(now)
                .drop_all(&client_id, waiting, DropReason::SessionEnded);
            if let Some(session) = self.clients.sessions.get_mut(id) {
                let totals = self.clients.telemetry.audit();
                let findings = self.clients.audit.findings();
                session.ledger.close(&client_id, &fates, totals, findings);
            }
        }
    }
}

/// What a restart repeats at most, with DUP, of messages of QoS 1 that were acknowledged.
const SAVE_PROGRESS_EVERY: Duration = Duration::from_millis(500);

/// Of so many sessions progress is stored while as much is appended as for the first.
const SAVED_TOGETHER: u64 = 128;

/// With more of them a shard does not look at all so often.
const SESSIONS_LOOKED_AT: usize = 1_024;

/// How long another shard holds on to the log of this one at most, without wanting any of it.
const SEND_LOG_END_EVERY: Duration = Duration::from_secs(5);

/// Until somebody is looked at again whose time is over, but who may have sent something that the
/// shard has not been given.
const NOT_HEARD: Duration = Duration::from_millis(100);

/// Later than now, so that a turn of the loop comes between.
const NEXT_TURN: Duration = Duration::from_nanos(1);

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use unbroken_mqtt_proto::{Connect, Packet, Property, PropertyBuf, Publish, QoS, Version};

    use super::*;
    use crate::{
        Admission, CloseCause, Event, Input, Limits, Output, Peer, Settings, ShardId, ShardOptions,
        Totals,
    };

    fn shard(start: Instant) -> Shard {
        Shard::new(ShardOptions {
            id: ShardId(0),
            shards: 1,
            limits: Limits::default(),
            settings: Settings::default(),
            totals: Arc::new(Totals::default()),
            seed: 7,
            start,
        })
    }

    fn send(shard: &mut Shard, now: Instant, connection: ConnectionId, packet: &Packet<'_>) {
        let mut bytes = Vec::new();
        packet.encode(Version::V5, &mut bytes).unwrap();
        let bytes = &bytes;
        for _ in shard.handle(now, Input::Received { connection, bytes }) {}
    }

    /// A client with a keep alive and a session that stays.
    fn join(shard: &mut Shard, now: Instant, serial: u32) -> ConnectionId {
        let connection = ConnectionId { index: 0, serial };
        let peer = Peer::default();
        for _ in shard.handle(now, Input::Opened { connection, peer }) {}
        let mut properties = PropertyBuf::new();
        properties
            .push(Property::SessionExpiryInterval(1_000_000))
            .unwrap();
        let connect = Connect {
            version: Version::V5,
            bridge: false,
            clean_start: false,
            keep_alive: u16::MAX,
            client_id: "a",
            will: None,
            user_name: None,
            password: None,
            properties: properties.as_properties(),
        };
        send(shard, now, connection, &Packet::Connect(connect));
        let admission = Admission::Granted { user: None };
        let input = Input::Authenticated {
            connection,
            admission,
        };
        for _ in shard.handle(now, input) {}
        connection
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a test's epoch")]
    fn retained_updates_with_an_expiry_leave_no_timers_behind() {
        let now = Instant::now();
        let mut shard = shard(now);
        let client = join(&mut shard, now, 1);
        let mut properties = PropertyBuf::new();
        properties
            .push(Property::MessageExpiryInterval(1_000_000))
            .unwrap();
        let update = Packet::Publish(Publish {
            dup: false,
            qos: QoS::AtMostOnce,
            retain: true,
            topic: "t",
            packet_id: None,
            properties: properties.as_properties(),
            payload: b"x",
        });
        for _ in 0..100_000 {
            send(&mut shard, now, client, &update);
        }
        assert!(shard.timers.len() < 2_000, "{}", shard.timers.len());
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a test's epoch")]
    fn a_client_that_comes_and_goes_leaves_no_timers_behind() {
        let now = Instant::now();
        let mut shard = shard(now);
        for serial in 0..10_000 {
            let connection = join(&mut shard, now, serial);
            let cause = CloseCause::Peer;
            for _ in shard.handle(now, Input::Closed { connection, cause }) {}
        }
        assert!(shard.timers.len() < 2_000, "{}", shard.timers.len());
        // What is left still works: the session ends in its time.
        let end = now + Duration::from_secs(1_000_000);
        let ended = shard
            .handle(end, Input::Timeout { heard: end })
            .any(|output| matches!(output, Output::Event(Event::SessionEnded { .. })));
        assert!(ended);
    }
}
