//! What the store answers: that something is on disk, what is in a log, how large it is, and that
//! it has failed.
//!
//! ```text
//! Input::Stored      ---> what waited for it leaves
//! Input::Read        ---> a session catches up, drops what may not stay, or counts what waits
//! Input::StoreSize   ---> what may not wait any longer is dropped
//! Input::StoreFailed ---> who needs the disk is disconnected ---> who would need it is refused
//! ```
//!
//! For what is on disk a failure is as if the broker had been killed at that moment: sessions that
//! stay, retained messages and wills are there again, as they were, when the broker is started
//! again. Until then it serves who needs none of that: sessions that end with their connections,
//! QoS 0, and QoS 1 and 2 between them.
//!
//! Invariants:
//! - Nothing that waited for a store that has failed is ever answered: whose client waits for it is
//!   disconnected.
//! - Nothing that is on disk changes in memory where a client would see it: it cannot be kept.
//!
//! Deliberately absent: a way back. What is on disk after an error is known at the next start only.

use std::sync::Arc;
use std::time::Instant;

use unbroken_mqtt_proto::ReasonCode;

use super::Shard;
use crate::connection::{ConnectRequest, Connection};
use crate::durability::{Purpose, ReadAnswer, Record, StoreSize, WaitFor, Waiter};
use crate::ids::{SessionId, StoreId};
use crate::mesh::MeshMessage;
use crate::policy::Identity;
use crate::reason::{DropReason, Fault, FaultKind};
use crate::session::Session;
use crate::settings::ShardOptions;
use crate::timers::Timer;

/// The reason code in the answer to a publisher of MQTT 5.0, and in DISCONNECT.
pub(crate) const REFUSED: ReasonCode = ReasonCode::ImplementationSpecificError;
/// The reason in words.
pub(crate) const DETAIL: &str = "the broker's store has failed, and takes nothing any more";

/// What is on disk now.
impl Shard {
    /// Everything up to this request is on disk.
    pub(crate) fn handle_stored(&mut self, now: Instant, stored: StoreId) {
        self.gate.on_stored(stored);
        while let Some(waiter) = self.gate.pop_woken() {
            self.wake(now, waiter);
        }
    }

    /// A message with this token is answered.
    pub(crate) fn handle_settled(&mut self, now: Instant, token: u64) {
        if let Some(waiter) = self.gate.on_settled(token) {
            self.wake(now, waiter);
        }
    }

    /// Wakes this when it is true: at once, if it is.
    pub(crate) fn wake_when(&mut self, now: Instant, until: WaitFor, waiter: Waiter) {
        if let Some(waiter) = self.gate.wake_when(until, waiter) {
            self.wake(now, waiter);
        }
    }

    fn wake(&mut self, now: Instant, waiter: Waiter) {
        match waiter {
            Waiter::Packets(id) => self.deliverer(now).release(id),
            Waiter::Output(id) => self.connections.relieve(now, id),
            Waiter::Shard(shard, token) if shard == self.options.id => {
                self.handle_settled(now, token);
            }
            Waiter::Shard(shard, token) => self.mesh.send(shard, MeshMessage::Settled { token }),
            Waiter::Will(client_id) => self.end_stored_will(&client_id),
        }
    }

    /// The will of this client was published, or will not be. On disk it may be another by now.
    pub(crate) fn end_stored_will(&mut self, client_id: &Arc<str>) {
        let session = self.sessions.find_mut(client_id);
        if session.is_some_and(|session| session.has_stored_will()) {
            return;
        }
        let record = Record::WillOver {
            client_id: Arc::clone(client_id),
        };
        self.gate.ask(record);
        self.note_will_over(client_id);
    }

    /// What says so was asked for last. Before that is stored its client is not answered that it is
    /// let in again: a restart must not publish a will that is not of its last connection.
    pub(crate) fn note_will_over(&mut self, client_id: &Arc<str>) {
        let asked = self.gate.end_client(Arc::clone(client_id));
        if let Some(session) = self.sessions.find_mut(client_id) {
            session.note_asked(asked);
        }
    }
}

/// What was read.
impl Shard {
    /// Goes on reading for a session that is behind, has a client, and nothing in memory for it.
    pub(crate) fn read_on(&mut self, id: SessionId) {
        let Self { sessions, gate, .. } = self;
        let Some(session) = sessions.get_mut(id) else {
            return;
        };
        if !session.is_connected() || !session.outbox.is_empty() {
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
        let Some(session) = self.sessions.get_mut(id) else {
            return;
        };
        let backlog = session
            .kept
            .as_deref_mut()
            .and_then(|kept| kept.backlog.take());
        let Some(backlog) = backlog else { return };
        self.telemetry.uncount(backlog.messages, backlog.bytes);
        let (counted, found) = (backlog.counted, backlog.found);
        let Some(session) = self.sessions.get_mut(id) else {
            return;
        };
        let findings = self.audit.findings();
        if found < counted {
            session.fault(FaultKind::Lost, found, counted - found, findings);
        } else if found > counted {
            session.fault(FaultKind::Duplicated, counted, found - counted, findings);
        }
    }

    /// A part of a log has been read.
    pub(crate) fn handle_read(&mut self, now: Instant, mut answer: ReadAnswer) {
        for message in &mut answer.messages {
            // It was made for this answer.
            if let Some(message) = Arc::get_mut(message) {
                message.count(&self.options.totals.memory);
            }
        }
        let answer = &answer;
        let session = self.sessions.get_mut(answer.session);
        if session.is_some_and(|session| session.end_read(answer.token)) {
            match self.gate.reads().purpose(answer.token) {
                Purpose::CatchUp => self.take_answer(now, answer),
                Purpose::Retention => self.handle_advance(now, answer),
                Purpose::RecoveryScan => self.handle_scan(now, answer),
            }
        }
        // The others have their turn, whether or not the session has waited for this.
        match self.gate.finish_read(answer.token) {
            Purpose::CatchUp => {}
            Purpose::Retention => self.go_on_dropping(now),
            Purpose::RecoveryScan => self.scan_on(),
        }
    }

    fn take_answer(&mut self, now: Instant, answer: &ReadAnswer) {
        let id = answer.session;
        for message in &answer.messages {
            self.deliverer(now).take_read(id, message);
        }
        if let Some(backlog) = self.sessions.backlog_mut(id) {
            backlog.read_through(answer.log, answer.through);
        }
        let Self { sessions, gate, .. } = self;
        if let Some(session) = sessions.get_mut(id)
            && !session.is_connected()
        {
            // Its client has gone meanwhile, and what it did not get is to be counted.
            session.list_for_scan(id, gate.scan_mut());
        }
        self.pump(now, id);
    }

    /// Sees to it that the scan of what waits from before the broker started begins.
    pub(crate) fn schedule_scan(&mut self, now: Instant) {
        if self.gate.schedule_scan() {
            self.timers.set(now, Timer::RecoveryScan);
        }
    }

    pub(super) fn begin_scan(&mut self) {
        self.gate.scan_mut().begin();
        self.scan_on();
    }

    /// Goes on with the sessions that are next.
    fn scan_on(&mut self) {
        while let Some(id) = self.gate.next_to_scan() {
            self.scan_session(id);
        }
    }

    fn scan_session(&mut self, id: SessionId) {
        let Self { sessions, gate, .. } = self;
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
            let session = self.sessions.get(id);
            let is_expected = session.is_some_and(|session| {
                let kept = session.kept.as_deref();
                kept.is_some_and(|kept| kept.waits_uncounted(&session.client_id, message))
            });
            if let Some(position) = message.position().filter(|_| is_expected) {
                self.deliverer(now)
                    .count_behind(id, position, &message.publication());
            }
        }
        let Self { sessions, gate, .. } = self;
        if let Some(session) = sessions.get_mut(id) {
            session.scanned(answer.log, answer.through);
            session.list_for_scan(id, gate.scan_mut());
            gate.scan_mut().put_first(id);
        }
        // Its client may have come meanwhile.
        self.pump(now, id);
    }
}

/// What may not wait any longer.
impl Shard {
    /// The driver says how large the store is, and up to where no shard needs its logs.
    pub(crate) fn handle_store_size(&mut self, now: Instant, size: &StoreSize) {
        self.telemetry
            .note_store(size.bytes, size.commits.as_deref().copied());
        let Self {
            options: ShardOptions { limits, .. },
            gate,
            ..
        } = self;
        if gate.retention_mut().note_size(limits, size) {
            self.disconnect_holders(now);
            self.gate.release_oldest(size);
            self.note_holders();
            self.drop_outstayed(now);
        }
    }

    /// The driver says whether the disk lacks the space to take in more.
    pub(crate) fn handle_disk_space(&mut self, lacks: bool) {
        self.telemetry.note_disk_space(lacks);
        self.gate.retention_mut().note_disk_space(lacks);
    }

    /// Ends the connections of clients that have not acknowledged what was released the last time.
    fn disconnect_holders(&mut self, now: Instant) {
        for id in self.gate.retention_mut().take_holders() {
            let connection = self.connections.get(id);
            if connection.is_some_and(|found| self.holds_released(found)) {
                let detail = "the store is full, and it does not acknowledge what it was sent";
                self.disconnect(now, id, Fault::new(ReasonCode::QuotaExceeded, detail));
            }
        }
    }

    /// Finds the connections that hold on to what was released. Costs a look at all that is in
    /// flight.
    fn note_holders(&mut self) {
        let stored = self.gate.stored();
        let connections = self.connections.iter();
        let holders = connections.filter(|it| it.gate_open(stored) && self.holds_released(it));
        let holders = holders.map(Connection::id).collect();
        self.gate.retention_mut().set_holders(holders);
    }

    /// Whether some of what was released is in flight over this connection.
    fn holds_released(&self, connection: &Connection) -> bool {
        let id = connection.session();
        let session = id.and_then(|id| self.sessions.get(id));
        session.is_some_and(|session| session.holds_released(self.gate.retention()))
    }

    /// Sees to it that sessions are looked at for what has waited for too long.
    pub(crate) fn schedule_retention(&mut self, now: Instant) {
        let waits = self.options.settings.durable || self.telemetry.has_waiting();
        let Self {
            options: ShardOptions { limits, .. },
            gate,
            ..
        } = self;
        if waits && let Some(every) = gate.retention_mut().schedule(limits) {
            self.timers.set(now + every, Timer::Retention);
        }
    }

    /// Finds sessions that have something to drop, and begins with the first of them. Costs a look
    /// at all sessions.
    pub(crate) fn drop_outstayed(&mut self, now: Instant) {
        let Self {
            sessions,
            options: ShardOptions { limits, .. },
            gate,
            ..
        } = self;
        if gate.retention_mut().begin() {
            let overdue = sessions
                .iter()
                .filter(|(_, session)| session.is_overdue(now, limits, gate));
            let overdue = overdue.map(|(id, _)| id).collect();
            gate.retention_mut().set_overdue(overdue);
        }
        self.go_on_dropping(now);
    }

    fn go_on_dropping(&mut self, now: Instant) {
        while let Some(id) = self.gate.next_overdue() {
            self.deliverer(now).drop_outstayed(id);
            self.begin_advance(id);
        }
    }

    /// Reads from where the session is, if it is behind and nothing reads for it.
    fn begin_advance(&mut self, id: SessionId) {
        let backlog = self.sessions.backlog_mut(id);
        if let Some(backlog) = backlog.filter(|backlog| backlog.is_idle()) {
            backlog.advance = Some(Box::default());
            self.advance_on(id);
        }
    }

    /// Reads on in the first log of which it is not known what may stay; or ends.
    fn advance_on(&mut self, id: SessionId) {
        let Self { sessions, gate, .. } = self;
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
    fn handle_advance(&mut self, now: Instant, answer: &ReadAnswer) {
        let id = answer.session;
        let mut through = answer.through;
        let mut settled = false;
        for message in &answer.messages {
            if let Some(position) = message.position()
                && !self.deliverer(now).take_outstayed(id, message)
            {
                (through, settled) = (position.number - 1, true);
                break;
            }
        }
        let log = answer.log;
        self.sessions.touch(id);
        if let Some(backlog) = self.sessions.backlog_mut(id) {
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
}

/// The store has failed.
impl Shard {
    pub(crate) fn handle_store_failed(&mut self, now: Instant, cause: Arc<str>) {
        if self.gate.has_failed() {
            return; // the first error is the one that counts
        }
        self.gate.fail(cause);
        self.telemetry.note_store_failed();
        let stored = self.gate.stored();
        let connections = self.connections.iter();
        let concerned = connections.filter(|connection| self.needs_store(connection));
        let concerned: Vec<_> = concerned
            .map(|connection| (connection.id(), connection.gate_open(stored)))
            .collect();
        for (id, is_in) in concerned {
            let reason = if is_in {
                REFUSED
            } else {
                ReasonCode::ServerUnavailable
            };
            self.fail(now, id, Fault::new(reason, DETAIL));
        }
        self.publish_store_state(now);
    }

    /// Whether this client waits for the store, or will.
    fn needs_store(&self, connection: &Connection) -> bool {
        let Self { sessions, gate, .. } = self;
        let session = connection.session();
        let session = session.and_then(|session| sessions.get(session));
        !connection.gate_open(gate.stored())
            || session.is_some_and(|session| session.is_durable() || session.has_stored_will())
            || connection.any_waits(gate)
    }

    /// Why nothing can be put on disk, if so: the store has failed, or is full and publishers are
    /// told.
    pub(crate) fn store_refuses(&self) -> Option<DropReason> {
        if self.gate.has_failed() {
            Some(DropReason::StoreFailed)
        } else if self.gate.retention().refuses(&self.options.limits) {
            Some(DropReason::StoreFull)
        } else {
            None
        }
    }

    /// Whether a client cannot be let in because the store has failed: it would have something
    /// there, or has.
    pub(crate) fn store_is_needed(
        &self,
        now: Instant,
        client_id: &Arc<str>,
        request: &ConnectRequest,
        expiry_s: u32,
    ) -> bool {
        if !self.gate.has_failed() {
            return false;
        }
        let existing = self.sessions.find(client_id);
        let existing = existing.and_then(|id| self.sessions.get(id));
        let author = || Identity {
            client_id: Arc::clone(client_id),
            ..Identity::default()
        };
        let will = request.will(now, author);
        expiry_s > 0
            || existing.is_some_and(|session| session.is_durable() || session.has_stored_will())
            || will.is_some_and(|will| will.outlives_broker(expiry_s))
            || self.gate.blocks(client_id)
    }

    /// The store has failed, and has this session: it ends after the restart, if it has to.
    pub(crate) fn is_left_on_disk(&self, id: SessionId) -> bool {
        let session = self.sessions.get(id);
        self.gate.has_failed() && session.is_some_and(Session::is_durable)
    }

    /// The store has failed, and has the will of this session: that is where it stays.
    pub(crate) fn stays_on_disk(&self, id: SessionId) -> bool {
        let session = self.sessions.get(id);
        let on_disk = |session: &Session| session.has_stored_will();
        self.gate.has_failed() && session.is_some_and(on_disk)
    }
}
