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
//!   are skipped, and named when they are read.
//! - At most one read of a session is under way, and none while anything waits in its queue.
//!
//! Deliberately absent: reading. The driver does it, and answers what is on disk.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

use foldhash::fast::FixedState;
use unbroken_mqtt_proto::{QoS, TopicName};

use crate::audit::fault::FaultKind;
use crate::clients::Clients;
use crate::ids::SessionId;
use crate::item::{Item, Terms};
use crate::kept::{Holding, Kept};
use crate::message::Message;
use crate::output::{DropReason, Output};
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
    under_way: HashSet<Position, FixedState>,
    /// Names the read that is under way.
    reading: Option<u64>,
    /// What to read, until a subscription changes.
    filters: Option<Arc<[Box<str>]>>,
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
            under_way: HashSet::with_hasher(FixedState::with_seed(0)),
            reading: None,
            filters: None,
        }
    }

    /// As the disk has it.
    pub(crate) fn restored(read: Frontier, under_way: impl IntoIterator<Item = Position>) -> Self {
        let mut backlog = Self::from(read);
        backlog.uncounted = true;
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
    fn count(&mut self, before: impl FnOnce() -> Frontier, bytes: u64, is_full: bool) {
        self.first.get_or_insert_with(before);
        self.counted += 1;
        if is_full {
            self.skipped += 1;
        } else {
            self.messages += 1;
            self.bytes += bytes;
        }
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
        self.count_behind(id, position, item.publication.cost());
        true
    }

    /// Counts a message that a session will read from the disk. It is asked to be stored.
    fn count_behind(&mut self, id: SessionId, position: Position, bytes: u64) {
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
            backlog.count(before, bytes, is_full);
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

    fn uncount(&mut self, messages: u64, bytes: u64) {
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
        let is_idle = session.connection.is_some() && session.queue.is_empty();
        let Some(kept) = session.kept.as_deref_mut() else {
            return;
        };
        let Some(backlog) = kept.backlog.as_deref_mut() else {
            return;
        };
        if !is_idle || backlog.reading.is_some() {
            return;
        }
        let tails = &self.clients.promises.tails;
        let unread = tails
            .iter()
            .find(|(log, number)| backlog.read.of(*log) < *number);
        let Some((log, last)) = unread else {
            return self.become_live(id);
        };
        let filters = backlog.filters.get_or_insert_with(|| {
            let plain = kept.holdings.iter().filter(|held| held.plain().is_some());
            plain.map(|held| held.filter.clone()).collect()
        });
        let filters = Arc::clone(filters);
        self.tokens += 1;
        backlog.reading = Some(self.tokens);
        let request = ReadRequest {
            session: id,
            token: self.tokens,
            log,
            after: backlog.read.of(log),
            last,
            filters,
            bytes_max: READ_BYTES_MAX,
        };
        self.clients.outputs.push_back(Output::Read(request));
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
    pub(crate) fn handle_read(&mut self, now: Instant, answer: ReadAnswer) {
        let id = answer.session;
        let waits_for_it = |kept: &Kept| {
            kept.backlog
                .as_ref()
                .is_some_and(|backlog| backlog.reading == Some(answer.token))
        };
        let session = self.clients.sessions.get(id.index());
        if !session
            .and_then(|session| session.kept.as_deref())
            .is_some_and(waits_for_it)
        {
            return;
        }
        for message in &answer.messages {
            self.take_read(now, id, message);
        }
        if let Some(session) = self.clients.sessions.get_mut(id.index())
            && let Some(kept) = session.kept.as_deref_mut()
            && let Some(backlog) = kept.backlog.as_deref_mut()
        {
            backlog.reading = None;
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
        let Some(position) = message.position() else {
            return;
        };
        let Some(terms) = kept.terms(&session.client_id, position, message) else {
            return;
        };
        let Some(backlog) = kept.backlog.as_deref_mut() else {
            return;
        };
        if backlog.read.covers(position) || backlog.under_way.remove(&position) {
            return;
        }
        backlog.found += 1;
        let mut item = Item::kept(message);
        if backlog.skipped > 0 {
            backlog.skipped -= 1;
            return self
                .clients
                .refuse_entry(now, id, &item, DropReason::QueueFull);
        }
        let bytes = item.publication.cost();
        if backlog.messages > 0 {
            backlog.messages -= 1;
            backlog.bytes = backlog.bytes.saturating_sub(bytes);
        } else {
            self.clients.stats.messages_waiting += 1;
            self.clients.stats.messages_waiting_bytes += bytes;
        }
        let terms = Terms {
            qos: terms.qos,
            retain: terms.retain,
            identifiers: &terms.identifiers,
            group: None,
        };
        let mut delivery = item.delivery(terms, &mut self.clients.pool);
        delivery.tracked = self.clients.home.watching > 0;
        delivery.number = session.account.accept(&mut self.clients.stats.audit);
        session.queue_bytes += bytes;
        session.queue.push_back((terms.qos, delivery));
    }
}

/// What a session is to get of a message that was stored.
struct TermsThen {
    qos: QoS,
    retain: bool,
    identifiers: Identifiers,
}

impl Kept {
    /// Whether the session will find this message, which was routed to it.
    pub(crate) fn finds(&self, client_id: &str, position: Position, message: &Message) -> bool {
        self.holdings.iter().all(Holding::is_in_force)
            || self.terms(client_id, position, message).is_some()
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
