//! What has waited for too long, and sessions that keep too much of the logs.
//!
//! ```text
//! every log:  ... let go | waits for a laggard ........ waits for others ... tail
//!                        ^ needed: nothing above it can be trimmed
//! ```
//!
//! A log is trimmed up to what the slowest session needs, so one device that never comes back would
//! keep everything that came since. Three limits end that: what a session is owed beyond its count
//! and bytes is dropped, and what is older than `queue_age_max_s`, and when the store is at
//! `store_bytes_max` the oldest eighth of what waits is let go, if that is the configured answer
//! and not values alone fill it.
//!
//! Sessions that have something to drop are *laggards*. Each drops what waits in memory, then reads
//! its logs from where it is to the first message that it may keep, and drops those before by name.
//! So it costs what is dropped, and nothing is dropped that was not looked at.
//!
//! Invariants:
//! - At most [`ADVANCING_MAX`] laggards read at a time.
//! - What is dropped is a [`DropReason`], counted and told, as everywhere.
//! - What a client was sent is its own until its connection ends [MQTT-4.4.0-1]. So a client that
//!   does not acknowledge what is let go is disconnected, if the store is still full when the
//!   driver says so the next time.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use unbroken_mqtt_proto::ReasonCode;
use unbroken_mqtt_proto::session::Entry as InFlight;

use crate::clients::Clients;
use crate::connection::Connection;
use crate::durability::ReadAnswer;
use crate::ids::{ConnectionId, SessionId};
use crate::input::StoreSize;
use crate::item::Item;
use crate::limits::{Limits, StoreFull};
use crate::message::Message;
use crate::position::{Frontier, Position};
use crate::reason::{DropReason, Fault};
use crate::routing::Terms;
use crate::session::{Delivery, Session};
use crate::shard::Shard;
use crate::timers::Timer;

/// Who is to drop something, and what makes it.
#[derive(Debug, Default)]
pub(crate) struct Laggards {
    waiting: VecDeque<SessionId>,
    /// The reads under way.
    reading: Vec<u64>,
    /// The store is at its limit.
    store_is_full: bool,
    /// Letting go of messages would not help: its values alone are at the limit, or what would be
    /// let go stays on a disk that has no room.
    nothing_is_gained: bool,
    /// What is within is let go, to make room.
    let_go: Frontier,
    /// Over these some of that was under way when it was let go.
    holders: Vec<ConnectionId>,
    /// [`Timer::Laggards`] is set.
    looking: bool,
}

/// What waits for a session.
#[derive(Clone, Copy)]
pub(crate) struct Waiting<'a> {
    pub(crate) message: &'a Message,
    /// It is sent as retained: it has not waited here since it was published.
    pub(crate) retain: bool,
    /// Its session stays, so that it holds on to the log.
    pub(crate) durable: bool,
}

impl<'a> Waiting<'a> {
    pub(crate) fn of(delivery: &'a Delivery, durable: bool) -> Self {
        Self {
            message: &delivery.message,
            retain: delivery.retain,
            durable,
        }
    }
}

impl Laggards {
    /// The store is at its limit, and publishers are told: so the limits say, or nothing else
    /// helps.
    pub(crate) fn store_refuses(&self, limits: &Limits) -> bool {
        let is_told = limits.store_full == StoreFull::Refuse || self.nothing_is_gained;
        self.store_is_full && is_told
    }

    /// Something is let go of, to make room.
    fn lets_go(&self) -> bool {
        self.let_go.iter().next().is_some()
    }

    /// The number of the delivery that is about to leave this session, beyond all if none waits.
    /// `None`: the next one will not leave.
    #[cold]
    pub(crate) fn next_to_leave(
        &self,
        limits: &Limits,
        now: Instant,
        session: &Session,
    ) -> Option<u64> {
        let Some((_, next)) = session.queue.front() else {
            return Some(u64::MAX);
        };
        let waiting = Waiting::of(next, session.is_durable());
        let stays = self.outstayed(limits, now, waiting).is_none();
        (stays && !next.message.publication().expired(now)).then_some(next.number)
    }

    /// Why this may not wait any longer, if so.
    pub(crate) fn outstayed(
        &self,
        limits: &Limits,
        now: Instant,
        waiting: Waiting<'_>,
    ) -> Option<DropReason> {
        let message = waiting.message;
        let stamp = message.publication().stamp;
        if !waiting.retain && is_too_old(limits, now, stamp) {
            Some(DropReason::TooOld)
        } else if waiting.durable
            && message
                .position()
                .is_some_and(|position| self.let_go.covers(position))
        {
            Some(DropReason::StoreFull)
        } else {
            None
        }
    }
}

impl Clients {
    fn outstayed(
        &self,
        now: Instant,
        session: &Session,
        delivery: &Delivery,
    ) -> Option<DropReason> {
        let waiting = Waiting::of(delivery, session.is_durable());
        self.laggards.outstayed(&self.limits, now, waiting)
    }

    /// Whether any of these is to be dropped. What may stay does not hide what is behind it; but
    /// what was not sent as retained has come in order, so that the first tells how old it is.
    fn any_outstayed<'a>(
        &self,
        now: Instant,
        session: &Session,
        mut deliveries: impl Iterator<Item = &'a Delivery>,
    ) -> bool {
        let lets_go = session.is_durable() && self.laggards.lets_go();
        deliveries
            .find_map(|delivery| {
                let outstayed = self.outstayed(now, session, delivery).is_some();
                let is_oldest = !delivery.retain && !lets_go;
                (outstayed || is_oldest).then_some(outstayed)
            })
            .unwrap_or(false)
    }

    /// Whether some of what was let go is under way over this connection.
    fn holds_on(&self, connection: &Connection) -> bool {
        let session = connection
            .session()
            .and_then(|id| self.sessions.get(id.index()));
        session.is_some_and(|session| {
            let mut positions = in_flight(session).filter_map(|sent| sent.message.position());
            session.is_durable() && positions.any(|at| self.laggards.let_go.covers(at))
        })
    }

    /// Finds the connections that hold on to what was let go. Costs a look at all that is in
    /// flight.
    fn note_holders(&mut self) {
        let (connections, stored) = (self.connections.iter(), self.gate.stored());
        let holders = connections.filter(|it| it.gate_open(stored) && self.holds_on(it));
        self.laggards.holders = holders.map(Connection::id).collect();
    }

    /// Whether something is to be dropped of what waits for this session. Costs a look at the
    /// oldest of each kind, and at all that is in memory when the store is full.
    fn lags(&self, now: Instant, session: &Session) -> bool {
        if self.gate.has_failed() && session.is_durable() {
            return false; // what it has is on disk, and stays there
        }
        let queued = session.queue.iter().map(|(_, delivery)| delivery);
        if self.any_outstayed(now, session, queued)
            || session.connection.is_none() && self.any_outstayed(now, session, in_flight(session))
        {
            return true;
        }
        let backlog = session
            .kept
            .as_deref()
            .and_then(|kept| kept.backlog.as_deref());
        backlog.is_some_and(|backlog| {
            let needs = backlog.needs(self.gate.log_ends().all());
            let mut let_go = self.laggards.let_go.iter();
            let too_old = |oldest| is_too_old(&self.limits, now, oldest);
            backlog.is_idle()
                && (session.holds_far_too_much(&self.limits)
                    || backlog.oldest.is_some_and(too_old)
                    || let_go.any(|(log, number)| needs.of(log) < number))
        })
    }
}

impl Shard {
    /// Says how large the store is, and up to where no shard needs its logs.
    pub(crate) fn handle_store_size(&mut self, now: Instant, size: &StoreSize) {
        self.clients.telemetry.note_store(size.bytes, size.commits);
        let Clients {
            limits, laggards, ..
        } = &mut self.clients;
        let (most, room) = (limits.store_bytes_max, size.room);
        laggards.store_is_full = size.bytes >= most.min(room);
        laggards.nothing_is_gained =
            size.values >= most || size.bytes >= room && size.staying >= room;
        if !laggards.store_is_full || laggards.store_refuses(limits) {
            laggards.holders.clear();
            laggards.let_go = Frontier::new();
            return;
        }
        self.disconnect_holders(now);
        let Clients { gate, laggards, .. } = &mut self.clients;
        for (log, tail) in gate.log_ends().all().iter() {
            let left_out = size.left_out.iter().filter(|(of, _)| *of == log);
            let waiting = size.needed.of(log) + 1..tail + 1;
            let number = oldest_part(waiting, left_out.map(|(_, range)| range));
            laggards.let_go.raise(Position { log, number });
        }
        self.clients.note_holders();
        self.look_for_laggards(now);
    }

    /// Ends the connections of clients that have not acknowledged what was let go the last time.
    fn disconnect_holders(&mut self, now: Instant) {
        for id in std::mem::take(&mut self.clients.laggards.holders) {
            let connection = self.clients.connections.get(id);
            if connection.is_some_and(|found| self.clients.holds_on(found)) {
                let detail = "the store is full, and it does not acknowledge what it was sent";
                self.disconnect(now, id, Fault::new(ReasonCode::QuotaExceeded, detail));
            }
        }
    }

    /// Sees to it that somebody looks whether anything has waited for too long.
    pub(crate) fn schedule_look(&mut self, now: Instant) {
        let waits = self.options.settings.durable || self.clients.telemetry.has_waiting();
        if waits && !self.clients.laggards.looking {
            self.clients.laggards.looking = true;
            let age_max = age_max(&self.clients.limits);
            let every = (age_max / LOOKS).clamp(LOOK_AT_MOST_EVERY, LOOK_AT_LEAST_EVERY);
            self.timers.set(now + every, Timer::Laggards);
        }
    }

    /// Finds sessions that have something to drop, and begins with the first of them. Costs a look
    /// at all sessions.
    pub(crate) fn look_for_laggards(&mut self, now: Instant) {
        self.clients.laggards.looking = false;
        if self.clients.laggards.waiting.is_empty() {
            let clients = &self.clients;
            let lagging = clients
                .sessions
                .iter()
                .filter(|(_, session)| clients.lags(now, session));
            let lagging = lagging.filter_map(|(key, _)| u32::try_from(key).ok());
            let lagging: VecDeque<_> = lagging.map(SessionId).collect();
            self.clients.laggards.waiting = lagging;
        }
        self.advance_laggards(now);
    }

    fn advance_laggards(&mut self, now: Instant) {
        while self.clients.laggards.reading.len() < ADVANCING_MAX
            && let Some(id) = self.clients.laggards.waiting.pop_front()
        {
            self.drop_outstayed_queue(now, id);
            self.drop_outstayed_in_flight(now, id);
            self.clients.note_room(id);
            self.begin_advance(id);
        }
    }

    /// Of what waits in memory.
    fn drop_outstayed_queue(&mut self, now: Instant, id: SessionId) {
        let Clients {
            sessions,
            laggards,
            limits,
            ..
        } = &mut self.clients;
        let Some(session) = sessions.get_mut(id.index()) else {
            return;
        };
        let durable = session.is_durable();
        let mut outstayed = Vec::new();
        for (qos, delivery) in std::mem::take(&mut session.queue) {
            match laggards.outstayed(limits, now, Waiting::of(&delivery, durable)) {
                Some(why) => outstayed.push((delivery, why)),
                None => session.queue.push_back((qos, delivery)),
            }
        }
        let mut numbers = Vec::with_capacity(outstayed.len());
        for (delivery, why) in outstayed {
            let Some(session) = self.clients.session_mut(id) else {
                return;
            };
            let cost = delivery.message.publication().cost();
            session.queue_bytes = session.queue_bytes.saturating_sub(cost);
            self.clients.telemetry.unqueued(cost);
            numbers.push(delivery.number);
            self.clients.drop_waiting(now, id, delivery, why);
        }
        if let Some(session) = self.clients.sessions.get_mut(id.index()) {
            let totals = self.clients.telemetry.audit();
            session.settle_dropped(&numbers, totals, self.clients.audit.findings());
        }
    }

    /// A session has lost its connection: what was under way over it may be what was let go, and is
    /// not sent again. A client that comes back all the time, and acknowledges nothing, would hold
    /// on to it.
    pub(crate) fn let_go_of_absent(&mut self, now: Instant, id: SessionId) {
        if self.clients.laggards.lets_go() && !self.clients.gate.has_failed() {
            self.drop_outstayed_in_flight(now, id);
            self.clients.note_room(id);
        }
    }

    /// Of what was sent over a connection that has ended: as if that part of the session had ended
    /// [MQTT-4.1.0-1]. A message of QoS 2 that the receiver has is done with in any case.
    fn drop_outstayed_in_flight(&mut self, now: Instant, id: SessionId) {
        let clients = &self.clients;
        let Some(session) = clients.sessions.get(id.index()) else {
            return;
        };
        if session.connection.is_some() {
            return;
        }
        let outstayed = session.outbound.iter().filter_map(|entry| match entry {
            InFlight::Publish { id, message, .. } => {
                let why = clients.outstayed(now, session, message)?;
                Some((id, why))
            }
            InFlight::PubRel { .. } => None,
        });
        for (packet_id, why) in outstayed.collect::<Vec<_>>() {
            let session = self.clients.sessions.get(id.index());
            let was_sent = session.is_some_and(|found| found.outbound.was_sent(packet_id));
            // PUBREL is sent when the client comes back, after all that was asked for.
            self.clients.give_up(now, id, packet_id, was_sent, why);
        }
    }

    /// Reads from where the session is, if it is behind and nobody reads for it.
    fn begin_advance(&mut self, id: SessionId) {
        let backlog = self.clients.backlog_of(id);
        if let Some(backlog) = backlog.filter(|backlog| backlog.is_idle()) {
            backlog.advance = Some(Box::default());
            self.advance_on(id);
        }
    }

    /// Reads on in the first log of which it is not known what may stay; or ends.
    fn advance_on(&mut self, id: SessionId) {
        if let Some(request) = self.next_read(id, ADVANCE_BYTES_MAX) {
            self.clients.laggards.reading.push(request.token);
            self.clients.gate.read(request);
        } else if let Some(backlog) = self.clients.backlog_of(id) {
            backlog.end_advance();
            self.clients.count_later(id);
        }
    }

    /// A part of a log has been read, to drop of it what may not stay.
    pub(crate) fn handle_advance(&mut self, now: Instant, answer: &ReadAnswer) {
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
        let clients = &mut self.clients;
        if let Some(session) = clients.sessions.get_mut(id.index()) {
            session.touch(id, &mut clients.unsaved);
        }
        if let Some(backlog) = self.clients.backlog_of(id) {
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
        let Some(session) = self.clients.sessions.get_mut(id.index()) else {
            return true;
        };
        let Some(kept) = session.kept.as_deref_mut() else {
            return true;
        };
        let Some(terms) = kept.owed(&session.client_id, message) else {
            return true;
        };
        if self.drop_read(now, id, terms.terms(), message) {
            return true;
        }
        let backlog = self.clients.backlog_of(id);
        if let Some(advance) = backlog.and_then(|backlog| backlog.advance.as_mut()) {
            let stamp = message.publication().stamp;
            let oldest = advance.oldest.get_or_insert(stamp);
            *oldest = stamp.min(*oldest);
        }
        false
    }

    /// Drops a message that was read for a session and owed to it, by name, if it is too much or
    /// may not wait any longer.
    pub(crate) fn drop_read(
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
            laggards,
            limits,
            ..
        } = &self.clients;
        let session = sessions.get(id.index());
        let why = if session.is_some_and(|session| session.holds_too_much(limits)) {
            Some(DropReason::QueueFull)
        } else {
            laggards.outstayed(limits, now, waiting)
        };
        let (Some(why), Some(position)) = (why, message.position()) else {
            return false;
        };
        let bytes = item.publication.cost();
        self.clients.count_found(id, position, bytes);
        let Some(backlog) = self.clients.backlog_of(id) else {
            return false;
        };
        if backlog.take(bytes) {
            self.clients.uncount(1, bytes);
        }
        self.clients.refuse_entry(now, id, terms, &item, why);
        true
    }

    /// The answer to a read came, whether or not anybody waits for it.
    pub(crate) fn forget_advance(&mut self, now: Instant, token: u64) {
        let reading = &mut self.clients.laggards.reading;
        if let Some(at) = reading.iter().position(|other| *other == token) {
            reading.swap_remove(at);
            self.advance_laggards(now);
        }
    }
}

/// Messages that were sent and are not acknowledged.
fn in_flight(session: &Session) -> impl Iterator<Item = &Delivery> {
    session.outbound.iter().filter_map(|entry| match entry {
        InFlight::Publish { message, .. } => Some(message),
        InFlight::PubRel { .. } => None,
    })
}

/// The last number of the oldest part of these, by how many messages there are. Where numbers are
/// left out there are none, and there may be far more of those than of messages.
fn oldest_part<'a>(
    numbers: Range<u64>,
    left_out: impl Iterator<Item = &'a Range<u64>> + Clone,
) -> u64 {
    let without = left_out.map(|range| {
        let within = range.start.max(numbers.start)..range.end.min(numbers.end);
        (within.start, within.end.saturating_sub(within.start))
    });
    let missing: u64 = without.clone().map(|(_, count)| count).sum();
    let messages = numbers.end.saturating_sub(numbers.start + missing);
    let mut last = numbers.start - 1 + messages.div_ceil(LET_GO_PARTS);
    for (start, count) in without {
        if start <= last {
            last += count;
        }
    }
    last
}

fn is_too_old(limits: &Limits, now: Instant, stamp: Instant) -> bool {
    now.saturating_duration_since(stamp) > age_max(limits)
}

fn age_max(limits: &Limits) -> Duration {
    match limits.queue_age_max_s {
        u32::MAX => Duration::MAX,
        seconds => Duration::from_secs(seconds.into()),
    }
}

/// Laggards whose logs are read at the same time.
const ADVANCING_MAX: usize = 16;
/// About so much is read at a time for a laggard: most often its first message may stay.
const ADVANCE_BYTES_MAX: usize = 64 * 1024;
/// At the limit of the store one part in so many of what waits is let go, each time that the driver
/// says that it is still there.
const LET_GO_PARTS: u64 = 8;
/// How often somebody looks in the time that messages may wait, within bounds.
const LOOKS: u32 = 16;
const LOOK_AT_MOST_EVERY: Duration = Duration::from_secs(1);
const LOOK_AT_LEAST_EVERY: Duration = Duration::from_secs(10);
