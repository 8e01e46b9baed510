//! What waits for a session on disk and not in memory, and how it is read back.
//!
//! ```text
//!   live:    routed -> queue in memory -> client          a client that keeps up
//!   behind:  routed -> counted                            away, or too much waits
//!            log -> read -> matched again -> queue -> client
//!   live again once it has read all that this shard has routed
//! ```
//!
//! Nothing is kept in memory for a session that is behind but a place in each log. A log is read
//! through all subscriptions that the session had at the time, so a message is found exactly if it
//! was routed to the session then; what was counted and what is found are compared.
//!
//! Invariants:
//! - A session becomes live between two inputs, when it has read up to the last message that this
//!   shard has had of each log. So there is neither a gap nor a repetition.
//! - No more is owed than `queue_messages_max` and `queue_bytes_max` allow: beyond it the oldest
//!   are skipped, and named when they are read: by a client that comes, or by [`crate::laggards`].
//! - At most one read of a session is under way, and none of a client's while anything waits in its
//!   queue.
//!
//! Deliberately absent: reading. The driver does it, and answers what is on disk.

use std::collections::BTreeSet;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Instant;

use unbroken_mqtt_proto::{QoS, TopicName};

use crate::audit::fault::FaultKind;
use crate::clients::Clients;
use crate::ids::SessionId;
use crate::item::{Item, Terms};
use crate::kept::{Holding, Kept};
use crate::message::{Message, Publication};
use crate::output::Output;
use crate::position::{Frontier, LogId, Position};
use crate::session::Identifiers;
use crate::shard::Shard;

/// What waits for a session on disk.
#[derive(Debug)]
pub(crate) struct Backlog {
    /// All up to here was read, or came before the session fell behind.
    pub(crate) read: Frontier,
    /// Messages and bytes that were routed to the session since, and not read.
    pub(crate) messages: u64,
    pub(crate) bytes: u64,
    /// The oldest of those that were routed are more than may wait: so many are dropped, by name,
    /// when they are read.
    skipped: u64,
    /// Where the first of those is, if all are counted.
    first: Option<Frontier>,
    /// Something waits from before the broker started, and nobody counted it.
    uncounted: bool,
    /// Counted, and found.
    counted: u64,
    found: u64,
    /// What was under way when the broker stopped: it lies beyond what is read, and is an entry.
    under_way: BTreeSet<Position>,
    /// Names the read that is under way.
    reading: Option<NonZeroU64>,
    /// What to read, until a subscription changes.
    filters: Option<Arc<[Box<str>]>>,
    /// When the oldest message that waits came; not later.
    pub(crate) oldest: Option<Instant>,
    /// What may not wait any longer is being dropped.
    pub(crate) advance: Option<Box<Advance>>,
}

/// How far it is known, of each log, what may stay.
#[derive(Debug, Default)]
pub(crate) struct Advance {
    /// Logs whose first message for the session may stay.
    pub(crate) settled: Vec<LogId>,
    /// When the oldest of those came.
    pub(crate) oldest: Option<Instant>,
}

/// A part of a log that a shard wants to read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReadRequest {
    /// For whom.
    pub session: SessionId,
    /// Names the request.
    pub token: u64,
    /// Which log.
    pub log: LogId,
    /// From the message after this one on.
    pub after: u64,
    /// The last one: what is behind it this shard will hear of by itself.
    pub last: u64,
    /// Only messages whose topic matches one of these; others may be in the answer too.
    pub filters: Arc<[Box<str>]>,
    /// About so many bytes of messages, at least one message if there is one.
    pub bytes_max: usize,
}

/// What was read.
#[derive(Clone, Debug)]
pub struct ReadAnswer {
    /// For whom.
    pub session: SessionId,
    /// Of which request.
    pub token: u64,
    /// Which log.
    pub log: LogId,
    /// What is there, in ascending order, each with its position.
    pub messages: Vec<Arc<Message>>,
    /// All that was asked for up to here is in the answer: to the last one, unless `messages` has
    /// as much as was wanted.
    pub through: u64,
}

impl Backlog {
    /// From here on nothing is kept in memory.
    pub(crate) fn from(read: Frontier) -> Self {
        Self {
            read,
            messages: 0,
            bytes: 0,
            skipped: 0,
            first: None,
            uncounted: false,
            counted: 0,
            found: 0,
            under_way: BTreeSet::new(),
            reading: None,
            filters: None,
            oldest: None,
            advance: None,
        }
    }

    /// As the disk has it, of a session that may have waited since then.
    pub(crate) fn restored(
        read: Frontier,
        under_way: impl IntoIterator<Item = Position>,
        oldest: Instant,
    ) -> Self {
        let mut backlog = Self::from(read);
        backlog.uncounted = true;
        backlog.oldest = Some(oldest);
        backlog.under_way.extend(under_way);
        backlog
    }

    pub(crate) fn forget_filters(&mut self) {
        self.filters = None;
    }

    /// Up to where it does not need any log.
    pub(crate) fn needs<'a>(&'a self, tails: &'a Frontier) -> &'a Frontier {
        match &self.first {
            _ if self.uncounted || self.reading.is_some() => &self.read,
            Some(first) => first,
            None => tails,
        }
    }

    /// A message was routed to the session. If that is one too many the oldest is skipped.
    fn count(
        &mut self,
        before: impl FnOnce() -> Frontier,
        stamp: Instant,
        bytes: u64,
        is_full: bool,
    ) {
        self.first.get_or_insert_with(before);
        self.oldest.get_or_insert(stamp);
        self.counted += 1;
        if is_full {
            self.skipped += 1;
        } else {
            self.messages += 1;
            self.bytes += bytes;
        }
    }

    /// Nobody reads for it.
    pub(crate) fn is_idle(&self) -> bool {
        self.reading.is_none() && self.advance.is_none()
    }

    /// It is worth reading what is to be skipped.
    pub(crate) fn skips_many(&self) -> bool {
        self.skipped > 0 && self.skipped * SKIP_PARTS >= self.messages
    }

    /// All that waits was counted.
    pub(crate) fn is_counted(&self) -> bool {
        !self.uncounted
    }

    /// A message was found; true if it is one too many.
    pub(crate) fn skip(&mut self) -> bool {
        let skips = self.skipped > 0;
        if skips {
            self.skipped -= 1;
            self.found += 1;
        }
        skips
    }

    /// A message was found that does not wait here any more; true if it was counted.
    pub(crate) fn take(&mut self, bytes: u64) -> bool {
        self.found += 1;
        let was_counted = self.messages > 0;
        if was_counted {
            self.messages -= 1;
            self.bytes = self.bytes.saturating_sub(bytes);
        }
        was_counted
    }

    /// What is left in all logs may stay.
    pub(crate) fn end_advance(&mut self) {
        let Some(advance) = self.advance.take() else {
            return;
        };
        let Advance { settled, oldest } = *advance;
        self.oldest = oldest;
        self.first = (!settled.is_empty()).then(|| self.read.clone());
        self.uncounted &= !settled.is_empty();
    }
}

impl Clients {
    /// The session has no client, or one that does not keep up: what is routed to it from now on is
    /// read from the disk when it can take it.
    pub(crate) fn fall_behind(&mut self, id: SessionId) {
        let tails = &self.promises.tails;
        if let Some(session) = self.sessions.get_mut(id.index())
            && let Some(kept) = session.kept.as_deref_mut()
            && kept.backlog.is_none()
        {
            kept.backlog = Some(Box::new(Backlog::from(tails.clone())));
        }
    }

    /// Counts a message that the session will read from the disk. False if it is not there.
    pub(crate) fn leave_on_disk(
        &mut self,
        id: SessionId,
        terms: Terms<'_>,
        item: &mut Item<'_>,
    ) -> bool {
        if terms.group.is_some() {
            return false;
        }
        item.store_with(&mut self.pool, &mut self.promises, &mut self.outputs);
        let Some(position) = item.position() else {
            return false;
        };
        let message = item.message(&mut self.pool);
        if let Some(session) = self.sessions.get(id.index())
            && let Some(kept) = session.kept.as_deref()
            && !kept.finds(&session.client_id, position, &message)
        {
            // Its shard does not know of the subscription yet, and SUBACK has not left.
            return false;
        }
        self.count_behind(id, position, &item.publication);
        true
    }

    /// Counts a message that a session will read from the disk. It is asked to be stored.
    fn count_behind(&mut self, id: SessionId, position: Position, publication: &Publication<'_>) {
        let bytes = publication.cost();
        let tails = &self.promises.tails;
        if let Some(session) = self.sessions.get_mut(id.index())
            && let Some(kept) = session.kept.as_deref_mut()
        {
            let before = || {
                let mut before = tails.clone();
                before.lower(position);
                before
            };
            // The session falls behind with this message.
            let backlog = kept
                .backlog
                .get_or_insert_with(|| Box::new(Backlog::from(before())));
            let messages = session.queue.len() as u64 + backlog.messages;
            let is_full = messages >= self.limits.queue_messages_max.into()
                || session.queue_bytes + backlog.bytes + bytes > self.limits.queue_bytes_max
                    && messages > 0;
            backlog.count(before, publication.stamp, bytes, is_full);
            if !is_full {
                self.stats.messages_waiting += 1;
                self.stats.messages_waiting_bytes += bytes;
            }
        }
    }

    /// What a session would have read is over with it. Answers how many messages that were, as far
    /// as they were counted.
    pub(crate) fn drop_backlog(&mut self, id: SessionId) -> u64 {
        let session = self.sessions.get_mut(id.index());
        let kept = session.and_then(|session| session.kept.as_deref_mut());
        let backlog = kept.and_then(|kept| kept.backlog.take());
        let Some(backlog) = backlog else { return 0 };
        self.uncount(backlog.messages, backlog.bytes);
        backlog.messages + backlog.skipped
    }

    pub(crate) fn backlog_of(&mut self, id: SessionId) -> Option<&mut Backlog> {
        let session = self.sessions.get_mut(id.index())?;
        session.kept.as_deref_mut()?.backlog.as_deref_mut()
    }

    pub(crate) fn uncount(&mut self, messages: u64, bytes: u64) {
        let stats = &mut self.stats;
        stats.messages_waiting = stats.messages_waiting.saturating_sub(messages);
        stats.messages_waiting_bytes = stats.messages_waiting_bytes.saturating_sub(bytes);
    }
}

impl Shard {
    /// Goes on reading for a session that is behind, has a client, and nothing in memory for it.
    pub(crate) fn read_on(&mut self, id: SessionId) {
        let Some(session) = self.clients.sessions.get_mut(id.index()) else {
            return;
        };
        let takes = session.connection.is_some() && session.queue.is_empty();
        let is_idle = self.clients.backlog_of(id).is_some_and(|b| b.is_idle());
        if !takes || !is_idle {
            return;
        }
        match self.next_read(id, READ_BYTES_MAX) {
            Some(request) => self.clients.outputs.push_back(Output::Read(request)),
            None => self.become_live(id),
        }
    }

    /// What is to be read next for a session that is behind. None: it has read all that it has to.
    pub(crate) fn next_read(&mut self, id: SessionId, bytes_max: usize) -> Option<ReadRequest> {
        let session = self.clients.sessions.get_mut(id.index())?;
        let kept = session.kept.as_deref_mut()?;
        let backlog = kept.backlog.as_deref_mut()?;
        let advance = backlog.advance.as_ref();
        let settled = |log| advance.is_some_and(|advance| advance.settled.contains(&log));
        let mut tails = self.clients.promises.tails.iter();
        let (log, last) =
            tails.find(|(log, number)| backlog.read.of(*log) < *number && !settled(*log))?;
        let filters = backlog.filters.get_or_insert_with(|| {
            let plain = kept.holdings.iter().filter(|held| held.plain().is_some());
            plain.map(|held| held.filter.clone()).collect()
        });
        let filters = Arc::clone(filters);
        self.tokens += 1;
        backlog.reading = NonZeroU64::new(self.tokens);
        Some(ReadRequest {
            session: id,
            token: self.tokens,
            log,
            after: backlog.read.of(log),
            last,
            filters,
            bytes_max,
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
        // Nobody counted what waited from before the broker started.
        if found < counted {
            self.clients
                .fault_of_session(id, FaultKind::Lost, found, counted - found);
        } else if found > counted && !backlog.uncounted {
            self.clients
                .fault_of_session(id, FaultKind::Duplicated, counted, found - counted);
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
            } else {
                self.take_answer(now, answer);
            }
        }
        self.forget_advance(now, answer.token);
    }

    fn take_answer(&mut self, now: Instant, answer: &ReadAnswer) {
        let id = answer.session;
        for message in &answer.messages {
            self.take_read(now, id, message);
        }
        if let Some(backlog) = self.clients.backlog_of(id) {
            backlog.read.raise(Position {
                log: answer.log,
                number: answer.through,
            });
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
        let backlog = self.clients.backlog_of(id);
        if !backlog.is_some_and(|backlog| backlog.take(bytes)) {
            self.clients.stats.messages_waiting += 1;
            self.clients.stats.messages_waiting_bytes += bytes;
        }
        let Some(session) = self.clients.sessions.get_mut(id.index()) else {
            return;
        };
        let mut delivery = item.delivery(terms.terms(), &mut self.clients.pool);
        delivery.tracked = self.clients.home.watching > 0;
        delivery.number = session.account.accept(&mut self.clients.stats.audit);
        session.queue_bytes += bytes;
        session.queue.push_back((terms.qos, delivery));
    }
}

/// What a session is to get of a message that was stored.
pub(crate) struct TermsThen {
    qos: QoS,
    retain: bool,
    identifiers: Identifiers,
}

impl TermsThen {
    pub(crate) fn terms(&self) -> Terms<'_> {
        Terms {
            qos: self.qos,
            retain: self.retain,
            identifiers: &self.identifiers,
            group: None,
        }
    }
}

impl Kept {
    /// Whether the session will find this message, which was routed to it.
    pub(crate) fn finds(&self, client_id: &str, position: Position, message: &Message) -> bool {
        self.holdings.iter().all(Holding::is_in_force)
            || self.terms(client_id, position, message).is_some()
    }

    /// How a message that was read is owed to the session: not if it was given to it before.
    pub(crate) fn owed(&mut self, client_id: &str, message: &Message) -> Option<TermsThen> {
        let position = message.position()?;
        let terms = self.terms(client_id, position, message)?;
        let backlog = self.backlog.as_deref_mut()?;
        let was_given = backlog.read.covers(position) || backlog.under_way.remove(&position);
        (!was_given).then_some(terms)
    }

    /// By the subscriptions that held when it came: as it was routed then [MQTT-3.3.4-2].
    fn terms(&self, client_id: &str, position: Position, message: &Message) -> Option<TermsThen> {
        let publication = message.publication();
        let topic = TopicName::parse(publication.topic).ok()?;
        let own = message
            .publisher()
            .is_some_and(|publisher| **publisher == *client_id);
        let mut found: Option<TermsThen> = None;
        for held in &self.holdings {
            if !held.holds_at(position) || own && held.options.no_local || !held.matches(topic) {
                continue;
            }
            let terms = found.get_or_insert(TermsThen {
                qos: QoS::AtMostOnce,
                retain: false,
                identifiers: Identifiers::new(),
            });
            terms.qos = terms.qos.max(held.options.qos);
            terms.retain |= held.options.retain_as_published;
            terms.identifiers.extend(held.identifier);
        }
        let mut terms = found?;
        terms.qos = terms.qos.min(publication.qos);
        terms.retain &= publication.retain;
        (terms.qos > QoS::AtMostOnce).then_some(terms)
    }
}

/// About so much of a log is read at a time.
const READ_BYTES_MAX: usize = 256 * 1024;
/// What is to be skipped is read when it is one part in so many of what waits.
const SKIP_PARTS: u64 = 8;
