//! What a shard does when the time has come that it asked for, and the `$SYS` tree, which is
//! published then: Mosquitto's names, ours under `$SYS/broker/unbroken/`, and what the audit has
//! come to under `$SYS/audit/`.
//!
//! Every shard sends its counters to shard 0, which adds them up and publishes what has changed,
//! retained. The messages take the way of any other, so they are matched, limited and cleared like
//! those of clients.

use std::sync::Arc;
use std::time::{Duration, Instant};

use unbroken_mqtt_proto::connection::server::Phase;
use unbroken_mqtt_proto::{Properties, QoS, ReasonCode};

use crate::audit::account::Fate;
use crate::audit::verdict::Asking;
use crate::connection::Connection;
use crate::delivery::Item;
use crate::ids::{ConnectionId, SessionId, ShardId};
use crate::mesh::MeshMessage;
use crate::message::{Message, Publication};
use crate::position::Frontier;
use crate::reason::{DropReason, Fault, GRANT_IS_OVER};
use crate::shard::Shard;
use crate::shard::turn::NEXT_TURN;
use crate::telemetry::{About, STORE, Stats, VERDICT, sentence};
use crate::timers::Timer;

/// Times.
impl Shard {
    pub(crate) fn handle_timeout(&mut self, now: Instant, heard: Instant) {
        while let Some(timer) = self.timers.take_due(now) {
            match timer {
                Timer::Connect(id) => self.check_admission(now, heard, id),
                // Where a will goes may take long to find: the others follow in the next turn.
                Timer::KeepAlive(_)
                | Timer::Grant(_)
                | Timer::Rate(_)
                | Timer::Reauthentication(_)
                | Timer::Will { .. }
                | Timer::SessionExpiry { .. }
                    if self.has_used_turn(now) =>
                {
                    self.timers.set(now + NEXT_TURN, timer);
                }
                Timer::KeepAlive(id) => self.check_keep_alive(now, heard, id),
                Timer::Grant(id) => self.check_grant(now, id),
                Timer::Rate(id) => self.check_rate(now, id),
                Timer::Reauthentication(id) => self.check_reauthentication(now, heard, id),
                // Both are on disk; after the restart they go on.
                Timer::Will { .. } | Timer::SessionExpiry { .. } if self.is_stopping_to_go_on() => {
                }
                Timer::Will { session, absence } => self.publish_due_will(now, session, absence),
                Timer::SessionExpiry { session, absence } => {
                    self.expire_session(now, session, absence);
                }
                Timer::Retained(message) => self.expire_retained(now, &message),
                Timer::Turn => self.serve_line(now),
                Timer::FanOut => self.continue_fan_outs(now),
                Timer::TellDrops => self.report_drops(now),
                Timer::Progress => self.save_progress(),
                Timer::Tail => self.send_log_end(),
                Timer::Retention => self.drop_outstayed(now),
                Timer::RecoveryScan => self.begin_scan(),
                Timer::Sys => self.publish_sys(now),
                Timer::Audit => self.auditor(now).tick_audit(),
                Timer::Publishers => self.auditor(now).tick_publishers(),
                Timer::Revive => self.begin_revived(now),
                Timer::Memory => self.look_at_memory_again(now),
                Timer::Ask => {}
            }
        }
    }

    /// The broker stops, and what it has is there when it begins again.
    fn is_stopping_to_go_on(&self) -> bool {
        self.stopping && self.options.settings.durable
    }

    /// Gives up on a connection that has not come in by its time.
    fn check_admission(&mut self, now: Instant, heard: Instant, id: ConnectionId) {
        let Some(connection) = self.connections.get(id) else {
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
        let is_challenged = connection.phase() == Phase::Authenticating;
        let fault = match caller {
            Some(_) if is_challenged => Fault::new(
                ReasonCode::NotAuthorized,
                "it did not go on with its authentication in time",
            ),
            None => Fault::new(ReasonCode::KeepAliveTimeout, "no CONNECT in time"),
            Some(_) => Fault::new(
                ReasonCode::ServerBusy,
                "its password was not checked in time",
            ),
        };
        self.refuse(now, id, caller.unwrap_or_default(), fault);
    }

    fn check_keep_alive(&mut self, now: Instant, heard: Instant, id: ConnectionId) {
        let Some(connection) = self.connections.get(id) else {
            return;
        };
        let Some(keep_alive) = connection.keep_alive() else {
            return;
        };
        let deadline = connection.last_received() + keep_alive;
        if deadline > now {
            self.timers.set(deadline, Timer::KeepAlive(id));
        } else if connection.keeps_waiting(&self.gate, &self.options.limits) {
            self.timers.set(now + keep_alive, Timer::KeepAlive(id));
        } else if deadline > heard {
            self.timers.set(now + NOT_HEARD, Timer::KeepAlive(id));
        } else {
            let detail = if connection.may_consume(&self.gate, &self.options.limits) {
                "nothing came within 1.5 times the keep alive"
            } else {
                "it took none of the answers behind which it is not read within 1.5 times the keep alive"
            };
            // [MQTT-3.1.2-22]
            self.disconnect(now, id, Fault::new(ReasonCode::KeepAliveTimeout, detail));
        }
    }

    /// Ends a connection whose client has authenticated for a time that is over. One that has
    /// authenticated again since has another timer.
    fn check_grant(&mut self, now: Instant, id: ConnectionId) {
        let until = self.connections.get(id).and_then(Connection::vouched_until);
        if until.is_some_and(|until| until <= now) {
            let fault = Fault::new(ReasonCode::NotAuthorized, GRANT_IS_OVER);
            self.disconnect(now, id, fault);
        }
    }

    /// Takes out of the heap what no longer matters.
    #[cold]
    pub(crate) fn compact_timers(&mut self) {
        let connection = |id| self.connections.get(id);
        let is_away = |session: SessionId, absence: u64| {
            let found = self.sessions.get(session);
            found.is_some_and(|session| session.absence() == absence)
        };
        self.timers.compact(|timer| match timer {
            Timer::Connect(id) => {
                connection(*id).is_some_and(|found| found.is_to_be_in_by().is_some())
            }
            // A connection has one of each at most, and knows that the latter is set.
            Timer::KeepAlive(id) | Timer::Reauthentication(id) => connection(*id).is_some(),
            Timer::Rate(id) => connection(*id).is_some_and(Connection::is_over_rate),
            Timer::Grant(id) => connection(*id).is_some_and(|it| it.vouched_until().is_some()),
            Timer::Will { session, absence } | Timer::SessionExpiry { session, absence } => {
                is_away(*session, *absence)
            }
            Timer::Retained(message) => message.strong_count() > 0,
            Timer::Turn
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
            | Timer::Memory
            | Timer::Ask => true,
        });
    }
}

/// The `$SYS` tree.
impl Shard {
    pub(crate) fn start_sys(&mut self) {
        if self.options.settings.sys_interval.is_some() {
            // At once, so that the tree is there for the first client that looks.
            self.timers.set(self.options.start, Timer::Sys);
        }
    }

    pub(crate) fn publish_sys(&mut self, now: Instant) {
        let Some(interval) = self.options.settings.sys_interval else {
            return;
        };
        self.timers.set(now + interval, Timer::Sys);
        let mine = self.stats_now(now);
        if self.options.id != ShardId(0) {
            return self
                .mesh
                .send(ShardId(0), MeshMessage::Stats(Box::new(mine)));
        }
        self.telemetry.note_shard(ShardId(0), mine);
        let about = About {
            version: &self.options.settings.version,
            uptime_s: now.saturating_duration_since(self.options.start).as_secs(),
            interval,
            shards: self.options.shards,
            store: &self.store_state(),
            audit: &self.options.settings.audit,
            memory: self.options.totals.memory_in_use(),
        };
        for (topic, value) in self.telemetry.sample(&about) {
            self.publish_sys_value(now, &topic, &value);
        }
    }

    /// What has been counted up to now, brought up to date.
    pub(crate) fn stats_now(&mut self, now: Instant) -> Stats {
        let sleeping = self.sleeping_totals(now);
        let unstored = self.sessions.unstored(self.gate.log_ends().on_disk());
        self.telemetry.bring_up_to_date(sleeping, unstored)
    }

    /// Publishes it if it is news. The verdict is not retained: it is made for each subscriber.
    fn publish_sys_value(&mut self, now: Instant, topic: &str, value: &str) {
        if !self.telemetry.is_news(topic, value) {
            return;
        }
        let publication = sys_publication(now, topic, value);
        let mut item = Item::borrowed(publication, None);
        if topic != VERDICT {
            self.retain(now, &mut item, QoS::AtMostOnce);
        }
        self.route(now, &mut item, None);
        item.finish(&mut self.deliveries);
    }

    /// Says at once what has become of the store.
    pub(crate) fn publish_store_state(&mut self, now: Instant) {
        if self.options.settings.sys_interval.is_some() && self.options.id == ShardId(0) {
            let topic = format!("$SYS/broker/{STORE}");
            self.publish_sys_value(now, &topic, &self.store_state());
        }
    }

    /// A query of a new subscription waits for the verdict.
    pub(crate) fn ask_for_verdict(&mut self, now: Instant, session: SessionId, query: u64) {
        match self.audit.verdicts().ask(session, query) {
            None => self.end_asking(Asking { session, query }, None),
            Some(true) => self.begin_verdict(now),
            Some(false) => {}
        }
    }

    fn begin_verdict(&mut self, now: Instant) {
        let others = self.options.shards - 1;
        let mine = self.stats_now(now);
        self.audit.verdicts().begin(others, mine);
        self.mesh.broadcast(|| MeshMessage::StatsAsked);
        if others == 0 {
            self.publish_verdict(now);
        }
    }

    /// Another shard's counters, which were asked for.
    pub(crate) fn take_stats(&mut self, now: Instant, stats: &Stats) {
        self.audit.verdicts().add(stats);
        if self.audit.verdicts().is_complete() {
            self.publish_verdict(now);
            if self.audit.verdicts().is_asked_again() {
                self.begin_verdict(now);
            }
        }
    }

    fn publish_verdict(&mut self, now: Instant) {
        let verdicts = self.audit.verdicts();
        let sentence = sentence(verdicts.sum(), &self.options.settings.audit);
        let asking = verdicts.take_asking();
        let publication = sys_publication(now, VERDICT, &sentence);
        let message = Arc::new(Message::new(&publication, None));
        for asking in asking {
            self.end_asking(asking, Some(&message));
            self.pump(now, asking.session);
        }
    }

    fn end_asking(&mut self, asking: Asking, found: Option<&Arc<Message>>) {
        let Asking { session, query } = asking;
        self.retained.end_wait(session, query, found);
    }

    fn store_state(&self) -> String {
        match self.gate.failure() {
            Some(cause) => format!("failed: {cause}"),
            None if self.options.settings.durable => "working".to_owned(),
            None => "in memory".to_owned(),
        }
    }
}

/// The message that says a value.
fn sys_publication<'a>(now: Instant, topic: &'a str, value: &'a str) -> Publication<'a> {
    Publication {
        topic,
        properties: Properties::EMPTY,
        payload: value.as_bytes(),
        qos: QoS::AtMostOnce,
        retain: true,
        expires: None,
        stamp: now,
        mark: None,
    }
}

impl Shard {
    /// Sees to it that progress of sessions is stored: soon, and at once if much has been appended
    /// since.
    pub(crate) fn schedule_progress(&mut self, now: Instant) {
        if self.gate.appended_bytes() > self.options.settings.hasten_bytes {
            self.save_cursors();
        }
        if self.sessions.unsaved() > 0 && !self.progress_is_due {
            self.progress_is_due = true;
            self.timers.set(now + SAVE_PROGRESS_EVERY, Timer::Progress);
        }
    }

    /// Asks for the progress of sessions to be stored, of all that have made some.
    pub(crate) fn save_progress(&mut self) {
        self.progress_is_due = false;
        let Self { sessions, gate, .. } = self;
        gate.note_progress();
        sessions.each_unsaved(|session| session.persist_progress(gate));
        sessions.clear_unsaved();
        self.trim_logs();
    }

    /// Asks for as much to be stored as lets the store trim the log, unless too little has been
    /// appended for so many sessions.
    #[cold]
    fn save_cursors(&mut self) {
        let more = self.sessions.unsaved() as u64 / SAVED_TOGETHER;
        let much = self.options.settings.hasten_bytes.saturating_mul(1 + more);
        if self.gate.appended_bytes() <= much {
            return;
        }
        self.gate.note_progress();
        if !self.knows_what_is_needed() {
            return;
        }
        let Self { sessions, gate, .. } = self;
        // There is more to store of most, which stay unsaved.
        sessions.each_unsaved(|session| session.persist_cursor(gate));
        self.trim_logs();
    }

    /// Has trimmed what no session needs as soon as their progress is on disk.
    fn trim_logs(&mut self) {
        if self.knows_what_is_needed() && !self.gate.has_failed() {
            let needed = self.needed();
            self.gate.trim(needed);
        }
    }

    /// With other shards it takes more than one of them to know, and with many sessions it takes
    /// long to find out: then it is only known when the shard is [asked](Self::needed).
    fn knows_what_is_needed(&self) -> bool {
        self.options.shards == 1 && self.sessions.len() <= SESSIONS_LOOKED_AT
    }

    /// Up to where this shard needs no log, for a session or for what one has left to a group: what
    /// is within may be trimmed. Costs a look at all sessions.
    pub fn needed(&self) -> Frontier {
        let ends = self.gate.log_ends().all();
        let mut needed = ends.clone();
        for (_, session) in self.sessions.iter() {
            session.lower_to_needs(&mut needed, ends);
        }
        let sent = self.gate.unsettled_positions();
        for position in self.groups.positions().chain(sent) {
            needed.lower(position);
        }
        needed
    }

    /// Sees to it that the other shards hear how long the log of this one is: a shard that wants
    /// nothing of it gets no message, and would hold on to all.
    pub(crate) fn schedule_log_end(&mut self, now: Instant) {
        let Self { mesh, gate, .. } = self;
        if mesh.is_news(gate.log_ends().own()) {
            self.timers.set(now + SEND_LOG_END_EVERY, Timer::Tail);
        }
    }

    fn send_log_end(&mut self) {
        let Self { mesh, gate, .. } = self;
        mesh.send_log_end(gate.log_ends().own());
    }

    /// Has what was begun go on in the next turns.
    #[cold]
    pub(crate) fn schedule_fan_out(&mut self, now: Instant) {
        self.settle_fan_outs(now);
        if self.deliveries.schedule_fan_outs() {
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
        while let Some(token) = self.deliveries.pop_settled() {
            self.handle_settled(now, token);
        }
    }

    /// Tells those for whom nothing waits what the present input has made them miss.
    pub(crate) fn tell_missed(&mut self, now: Instant) {
        while let Some(id) = self.audit.take_missing() {
            self.tell_due(now, id);
        }
    }

    #[cold]
    fn tell_due(&mut self, now: Instant, id: SessionId) {
        self.deliverer(now).tell_due(id);
    }

    /// Sees to it that what was counted is reported, even if nothing more is dropped.
    pub(crate) fn schedule_report(&mut self, now: Instant) {
        if let Some(at) = self.telemetry.next_report(now) {
            self.timers.set(at, Timer::TellDrops);
        }
    }

    pub(crate) fn report_drops(&mut self, now: Instant) {
        let Self {
            sessions,
            telemetry,
            ..
        } = self;
        for id in telemetry.take_unreported(now) {
            if let Some(session) = sessions.get_mut(id) {
                telemetry.report_drops(now, &mut session.drops);
            }
        }
    }

    /// The broker stops, and what its sessions hold is in memory: names all that is lost with them.
    pub(crate) fn drop_sessions(&mut self, now: Instant) {
        self.report_drops(now);
        self.stopping = true;
        let ids: Vec<_> = self.sessions.iter().map(|(id, _)| id).collect();
        for id in ids {
            let Some(session) = self.sessions.get_mut(id) else {
                continue;
            };
            if session.is_durable() {
                continue; // it is on disk
            }
            let client_id = Arc::clone(&session.client_id);
            let bytes = session.outbox.queue_bytes();
            let (mut waiting, mut fates) = (Vec::new(), Vec::new());
            for (_, sent, delivery) in session.outbox.drain() {
                fates.push((delivery.number, Fate::at_the_end(sent, false)));
                waiting.push(delivery);
            }
            self.telemetry.unqueued(bytes);
            self.deliverer(now)
                .drop_all(&client_id, waiting, DropReason::SessionEnded);
            if let Some(session) = self.sessions.get_mut(id) {
                let totals = self.telemetry.audit();
                let findings = self.audit.findings();
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
pub(super) const NOT_HEARD: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests;
