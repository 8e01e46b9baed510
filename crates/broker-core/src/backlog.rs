//! How a session falls behind what is routed, and is read back from the disk until it is live
//! again. What waits is in [`crate::session::Backlog`].

use std::num::NonZeroU64;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use unbroken_mqtt_proto::{QoS, TopicName};

use crate::clients::Clients;
use crate::deliver::note_given;
use crate::durability::{ReadAnswer, ReadRequest};
use crate::ids::{LogId, SessionId};
use crate::item::Item;
use crate::message::{Message, Publication};
use crate::position::Position;
use crate::reason::{DropReason, FaultKind};
use crate::routing::{Receiver, Terms};
use crate::session::{Backlog, TermsThen};
use crate::shard::Shard;

impl Clients {
    /// The session has no client, or one that does not keep up: what is routed to it from now on is
    /// read from the disk when it can take it.
    pub(crate) fn fall_behind(&mut self, id: SessionId) {
        let ends = self.gate.log_ends().all();
        if let Some(session) = self.sessions.get_mut(id.index())
            && let Some(kept) = session.kept.as_deref_mut()
            && kept.backlog.is_none()
        {
            kept.backlog = Some(Box::new(Backlog::from(ends.clone())));
        }
        self.count_later(id);
    }

    /// Counts a message that the session will read from the disk. False if it is not there.
    pub(crate) fn leave_on_disk(
        &mut self,
        now: Instant,
        id: SessionId,
        terms: Terms<'_>,
        item: &mut Item<'_>,
    ) -> bool {
        if terms.group.is_some() {
            return false;
        }
        item.store(&mut self.pool, &mut self.gate);
        let Some(position) = item.position() else {
            return false;
        };
        let message = item.message(&mut self.pool);
        let session = self.sessions.get(id.index());
        let is_early = session.is_some_and(|session| {
            let kept = session.kept.as_deref();
            kept.is_some_and(|kept| !kept.finds(&session.client_id, position, &message))
        });
        if is_early && self.backlog_of(id).is_some_and(|b| b.has_many_early()) {
            self.refuse_entry(now, id, terms, item, DropReason::QueueFull);
            return true;
        }
        note_given(&mut self.retained, id, item, QoS::AtLeastOnce);
        self.count_behind(id, position, &item.publication);
        if is_early && let Some(backlog) = self.backlog_of(id) {
            let early = backlog.early.get_or_insert_default();
            let terms = TermsThen::of(terms, item.publication.qos);
            early.messages.insert(position, terms);
        }
        true
    }

    /// The QoS at which a message that is in no log is for this receiver, if it is. Where it came
    /// in, nobody knew of the subscription of QoS 1 or 2 that it matches here, which is not
    /// acknowledged. What is for the session by earlier ones may wait on disk, and this would
    /// overtake it: so it is only for what is in force, maybe at QoS 0.
    pub(crate) fn qos_in_no_log(&self, to: &Receiver, topic: TopicName<'_>) -> Option<QoS> {
        if to.qos == QoS::AtMostOnce {
            return Some(to.qos); // waits for nothing, and is most of what gets here
        }
        let session = self.sessions.get(to.session.index());
        let kept = session.and_then(|session| session.kept.as_deref());
        let Some(kept) = kept.filter(|kept| kept.backlog.is_some()) else {
            return Some(to.qos);
        };
        let mut in_force = None;
        kept.subscriptions.on(topic, |held| {
            if held.is_current() && held.is_in_force() {
                in_force = in_force.max(Some(held.options.qos));
            }
        });
        match in_force {
            Some(QoS::AtMostOnce) => Some(QoS::AtMostOnce),
            Some(_) => Some(to.qos),
            None => None,
        }
    }

    /// Counts a message that a session will read from the disk. It is asked to be stored.
    pub(crate) fn count_behind(
        &mut self,
        id: SessionId,
        position: Position,
        publication: &Publication<'_>,
    ) {
        let bytes = publication.cost();
        let ends = self.gate.log_ends().all();
        if let Some(session) = self.sessions.get_mut(id.index())
            && let Some(kept) = session.kept.as_deref_mut()
        {
            // The session falls behind with this message.
            let backlog = kept.backlog.get_or_insert_with(|| {
                let mut before = ends.clone();
                before.lower(position);
                Box::new(Backlog::from(before))
            });
            backlog.count(position, ends, publication.stamp, bytes);
            self.telemetry.accepted();
            self.telemetry.queued(bytes);
            self.note_fill(id);
        }
    }

    /// What a session would have read is over with it. Answers how many messages that were, as far
    /// as they were counted, and among how many it was not known.
    pub(crate) fn drop_backlog(&mut self, id: SessionId) -> (u64, u64) {
        let session = self.sessions.get_mut(id.index());
        let kept = session.and_then(|session| session.kept.as_deref_mut());
        let backlog = kept.and_then(|kept| kept.backlog.take());
        let Some(backlog) = backlog else {
            return (0, 0);
        };
        self.uncount(backlog.messages, backlog.bytes);
        (backlog.messages, backlog.uncounted_of(&self.census.tails))
    }

    /// A message was found that a session will not find again. If nobody has counted it, that is
    /// done now.
    pub(crate) fn count_found(&mut self, id: SessionId, position: Position, bytes: u64) {
        let Self {
            sessions,
            census,
            telemetry,
            ..
        } = self;
        if let Some(session) = sessions.get_mut(id.index())
            && let Some(kept) = session.kept.as_deref_mut()
            && let Some(backlog) = kept.backlog.as_deref_mut()
            && backlog.count_found(position, &census.tails, bytes)
        {
            telemetry.accepted();
            telemetry.queued(bytes);
            self.note_fill(id);
        }
    }

    pub(crate) fn backlog_of(&mut self, id: SessionId) -> Option<&mut Backlog> {
        let session = self.sessions.get_mut(id.index())?;
        session.kept.as_deref_mut()?.backlog.as_deref_mut()
    }

    /// The client of this session is here, and does not wait until the driver has time for the
    /// count: that answer is nobody's when it comes.
    fn stop_counting(&mut self, id: SessionId) {
        let Self {
            sessions, census, ..
        } = self;
        if let Some(session) = sessions.get_mut(id.index())
            && let Some(kept) = session.kept.as_deref_mut()
            && let Some(backlog) = kept.backlog.as_deref_mut()
        {
            backlog.reading.take_if(|token| census.reads(token.get()));
        }
    }

    pub(crate) fn uncount(&mut self, messages: u64, bytes: u64) {
        self.telemetry.ended(messages);
        self.telemetry.unqueued(bytes);
    }
}

impl Shard {
    /// Goes on reading for a session that is behind, has a client, and nothing in memory for it.
    pub(crate) fn read_on(&mut self, id: SessionId) {
        let Some(session) = self.clients.sessions.get_mut(id.index()) else {
            return;
        };
        let takes = session.connection.is_some() && session.queue.is_empty();
        if takes {
            self.clients.stop_counting(id);
        }
        let is_idle = self.clients.backlog_of(id).is_some_and(|b| b.is_idle());
        if !takes || !is_idle {
            return;
        }
        match self.next_read(id, READ_BYTES_MAX) {
            Some(request) => self.clients.gate.read(request),
            None => self.become_live(id),
        }
    }

    /// What is to be read next for a session that is behind: of each log up to where publishers
    /// moved to others, and then what is beyond. None: it has read all that it has to.
    pub(crate) fn next_read(&mut self, id: SessionId, bytes_max: usize) -> Option<ReadRequest> {
        let session = self.clients.sessions.get_mut(id.index())?;
        let kept = session.kept.as_deref_mut()?;
        let backlog = kept.backlog.as_deref_mut()?;
        let advance = backlog.advance.as_ref();
        let settled = |log| advance.is_some_and(|advance| advance.settled.contains(&log));
        let log_ends = self.clients.gate.log_ends();
        let (log, numbers) = log_ends.behind(&backlog.read).find_map(|within| {
            within.iter().find_map(|(log, last)| {
                let after = backlog.read.of(log);
                (after < last && !settled(log)).then_some((log, after..last))
            })
        })?;
        self.read_request(id, log, numbers, bytes_max)
    }

    /// Asks for what the session may be owed behind the first of these and up to the last.
    pub(crate) fn read_request(
        &mut self,
        id: SessionId,
        log: LogId,
        numbers: Range<u64>,
        bytes_max: usize,
    ) -> Option<ReadRequest> {
        let session = self.clients.sessions.get_mut(id.index())?;
        let kept = session.kept.as_deref_mut()?;
        let backlog = kept.backlog.as_deref_mut()?;
        let filters = backlog.filters.get_or_insert_with(|| {
            let plain = kept
                .subscriptions
                .iter()
                .filter(|held| held.plain().is_some());
            plain.map(|held| held.filter.clone()).collect()
        });
        let filters = Arc::clone(filters);
        self.tokens += 1;
        backlog.reading = NonZeroU64::new(self.tokens);
        Some(ReadRequest {
            session: id,
            token: self.tokens,
            log,
            after: numbers.start,
            last: numbers.end,
            filters,
            bytes_max,
            in_background: false,
        })
    }

    /// All that was routed to the session has been read.
    fn become_live(&mut self, id: SessionId) {
        let Some(session) = self.clients.sessions.get_mut(id.index()) else {
            return;
        };
        let backlog = session
            .kept
            .as_deref_mut()
            .and_then(|kept| kept.backlog.take());
        let Some(backlog) = backlog else { return };
        self.clients.uncount(backlog.messages, backlog.bytes);
        let (counted, found) = (backlog.counted, backlog.found);
        let Some(session) = self.clients.sessions.get_mut(id.index()) else {
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
        let id = answer.session;
        let backlog = self.clients.backlog_of(id);
        if let Some(backlog) = backlog.filter(|other| {
            other
                .reading
                .is_some_and(|token| token.get() == answer.token)
        }) {
            backlog.reading = None;
            if backlog.advance.is_some() {
                self.handle_advance(now, answer);
            } else if self.clients.census.reads(answer.token) {
                self.handle_count(now, answer);
            } else {
                self.take_answer(now, answer);
            }
        }
        self.forget_advance(now, answer.token);
        self.forget_count(answer.token);
    }

    fn take_answer(&mut self, now: Instant, answer: &ReadAnswer) {
        let id = answer.session;
        for message in &answer.messages {
            self.take_read(now, id, message);
        }
        if let Some(backlog) = self.clients.backlog_of(id) {
            backlog.read_through(answer.log, answer.through);
        }
        let session = self.clients.sessions.get(id.index());
        if session.is_some_and(|session| session.connection.is_none()) {
            // Its client has gone meanwhile, and what it did not get is to be counted.
            self.clients.count_later(id);
        }
        self.pump(now, id);
    }

    /// Puts a message into the queue of a session, if it was routed to it.
    fn take_read(&mut self, now: Instant, id: SessionId, message: &Arc<Message>) {
        let Some(session) = self.clients.sessions.get_mut(id.index()) else {
            return;
        };
        let Some(kept) = session.kept.as_deref_mut() else {
            return;
        };
        let Some(terms) = kept.owed(&session.client_id, message) else {
            return;
        };
        if self.drop_read(now, id, terms.terms(), message) {
            return;
        }
        let mut item = Item::kept(message);
        let bytes = item.publication.cost();
        if let Some(position) = item.position() {
            self.clients.count_found(id, position, bytes);
        }
        let backlog = self.clients.backlog_of(id);
        if !backlog.is_some_and(|backlog| backlog.take(bytes)) {
            self.clients.telemetry.accepted();
            self.clients.telemetry.queued(bytes);
        }
        let Some(session) = self.clients.sessions.get_mut(id.index()) else {
            return;
        };
        let (kept, position) = (session.kept.as_ref(), item.position());
        let sent_before = kept
            .zip(position)
            .is_some_and(|(kept, at)| kept.sent_before.covers(at));
        let mut delivery = item.delivery(terms.terms(), &mut self.clients.pool);
        // One of QoS 2 has not left before the disk had its packet id.
        delivery.again = sent_before && terms.qos == QoS::AtLeastOnce;
        delivery.tracked = self.clients.audit.is_watched();
        let totals = self.clients.telemetry.audit();
        session.accept(self.clients.audit.topics(), totals, &mut delivery);
        session.queue_bytes += bytes;
        session.queue.push_back((terms.qos, delivery));
    }
}

/// About so much of a log is read at a time.
const READ_BYTES_MAX: usize = 256 * 1024;
