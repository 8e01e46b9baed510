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
//! - A broker that began with another number of shards than the one before has other homes for
//!   publishers, and their messages since then are in other logs. So what all logs had at that
//!   start is read before anything beyond it: the order of each publisher is kept.
//! - A session becomes live between two inputs, when it has read up to the last message that this
//!   shard has had of each log. So there is neither a gap nor a repetition.
//! - All that waits is counted, messages and bytes. While that is more than `queue_messages_max` or
//!   `queue_bytes_max` allow, what is read is dropped, by name: by a client that comes, or by
//!   [`crate::laggards`]. So it is the oldest. What waits from before the broker started is counted
//!   by [`crate::census`]. Where publishers are refused instead ([`crate::full`]) nothing is.
//! - At most one read of a session is under way, and none of a client's while anything waits in its
//!   queue.
//!
//! Deliberately absent: reading. The driver does it, and answers what is on disk.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU64;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use unbroken_mqtt_proto::{QoS, TopicName};

use crate::clients::Clients;
use crate::deliver::note_given;
use crate::durability::{ReadAnswer, ReadRequest};
use crate::held::Promises;
use crate::ids::{LogId, SessionId};
use crate::item::{Item, Terms};
use crate::limits::EARLY_MAX;
use crate::message::{Message, Publication};
use crate::option_box::OptionBox;
use crate::output::Output;
use crate::position::{Frontier, Position};
use crate::reason::{DropReason, FaultKind};
use crate::routing::Receiver;
use crate::session::{Identifiers, Kept};
use crate::shard::Shard;

/// What waits for a session on disk.
#[derive(Debug)]
pub(crate) struct Backlog {
    /// All up to here was read, or came before the session fell behind.
    pub(crate) read: Frontier,
    /// Messages and bytes that were routed to the session since, and not read.
    pub(crate) messages: u64,
    pub(crate) bytes: u64,
    /// Where the first of those is, if all are counted.
    first: Option<Frontier>,
    /// What waits from before the broker started, while not all of it is counted.
    pub(crate) uncounted: Option<Box<Uncounted>>,
    /// Counted, and found.
    counted: u64,
    found: u64,
    /// What was under way when the broker stopped, if anything was: it lies beyond what is read,
    /// and is an entry.
    under_way: OptionBox<BTreeSet<Position>>,
    /// What came before its time, if anything did.
    early: Option<Box<Early>>,
    /// Names the read that is under way.
    reading: Option<NonZeroU64>,
    /// What to read, until a subscription changes.
    filters: Option<Arc<[Box<str>]>>,
    /// When the oldest message that waits came; not later.
    pub(crate) oldest: Option<Instant>,
    /// What may not wait any longer is being dropped.
    pub(crate) advance: Option<Box<Advance>>,
}

/// What waits from before the broker started, as far as somebody has looked.
#[derive(Debug)]
pub(crate) struct Uncounted {
    /// All up to here is counted, or was read.
    pub(crate) through: Frontier,
    /// When the oldest message came of all that are counted.
    pub(crate) oldest: Option<Instant>,
    /// It is to be counted by [`crate::census`].
    pub(crate) is_listed: bool,
}

/// What was routed to the session by subscriptions before they were in force where it came in. The
/// log has more from then that they match, and that was not routed here.
#[derive(Debug, Default)]
struct Early {
    messages: BTreeMap<Position, TermsThen>,
}

/// How far it is known, of each log, what may stay.
#[derive(Debug, Default)]
pub(crate) struct Advance {
    /// Logs whose first message for the session may stay.
    pub(crate) settled: Vec<LogId>,
    /// When the oldest of those came.
    pub(crate) oldest: Option<Instant>,
}

impl Backlog {
    /// From here on nothing is kept in memory.
    pub(crate) fn from(read: Frontier) -> Self {
        Self {
            read,
            messages: 0,
            bytes: 0,
            first: None,
            uncounted: None,
            counted: 0,
            found: 0,
            under_way: OptionBox::default(),
            early: None,
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
        backlog.uncounted = Some(Box::new(Uncounted {
            through: backlog.read.clone(),
            oldest: None,
            is_listed: false,
        }));
        backlog.oldest = Some(oldest);
        let under_way: BTreeSet<_> = under_way.into_iter().collect();
        if !under_way.is_empty() {
            backlog.under_way = under_way.into();
        }
        backlog
    }

    pub(crate) fn forget_filters(&mut self) {
        self.filters = None;
    }

    /// Up to where it does not need any log.
    pub(crate) fn needs<'a>(&'a self, tails: &'a Frontier) -> &'a Frontier {
        match &self.first {
            _ if self.uncounted.is_some() || self.reading.is_some() => &self.read,
            Some(first) => first,
            None => tails,
        }
    }

    /// A message was routed to the session.
    fn count(&mut self, position: Position, tails: &Frontier, stamp: Instant, bytes: u64) {
        let first = self.first.get_or_insert_with(|| tails.clone());
        first.lower(position);
        let oldest = match &mut self.uncounted {
            Some(uncounted) => &mut uncounted.oldest,
            None => &mut self.oldest,
        };
        *oldest = Some(oldest.map_or(stamp, |other| other.min(stamp)));
        self.counted += 1;
        self.messages += 1;
        self.bytes += bytes;
    }

    /// Nobody reads for it.
    pub(crate) fn is_idle(&self) -> bool {
        self.reading.is_none() && self.advance.is_none()
    }

    fn has_many_early(&self) -> bool {
        let early = self.early.as_deref();
        early.is_some_and(|early| early.messages.len() >= EARLY_MAX)
    }

    /// All that waits was counted.
    pub(crate) fn is_counted(&self) -> bool {
        self.uncounted.is_none()
    }

    /// Among how many messages it is not known which wait, where the broker started with those up
    /// to `tails`.
    fn uncounted_of(&self, tails: &Frontier) -> u64 {
        let Some(uncounted) = &self.uncounted else {
            return 0;
        };
        let logs = tails.iter();
        let of = logs.map(|(log, last)| {
            let known = uncounted.through.of(log).max(self.read.of(log));
            last.saturating_sub(known)
        });
        of.sum()
    }

    /// All up to here was read.
    pub(crate) fn read_through(&mut self, log: LogId, number: u64) {
        let through = Position { log, number };
        self.read.raise(through);
        if let Some(first) = &mut self.first {
            first.raise(through);
        }
        if let Some(early) = &mut self.early {
            let messages = &mut early.messages;
            messages.retain(|position, _| !self.read.covers(*position));
            self.early.take_if(|early| early.messages.is_empty());
        }
    }

    /// A message was found that came before the broker started, if it is within `tails`: true if
    /// it is counted only now.
    fn count_found(&mut self, position: Position, tails: &Frontier, bytes: u64) -> bool {
        let uncounted = self.uncounted.as_ref();
        let is_new = uncounted.is_some_and(|uncounted| !uncounted.through.covers(position))
            && tails.covers(position);
        if is_new {
            self.counted += 1;
            self.messages += 1;
            self.bytes += bytes;
        }
        is_new
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
        if settled.is_empty() {
            self.uncounted = None;
        }
        if let Some(uncounted) = &mut self.uncounted {
            uncounted.oldest = oldest;
        }
    }

    /// All is counted that waits from before the broker started, and came up to `tails`. Answers
    /// whether that says more than was known of how far the session is.
    pub(crate) fn end_count(&mut self, tails: &Frontier) -> bool {
        let Some(uncounted) = self.uncounted.take() else {
            return false;
        };
        self.oldest = uncounted.oldest;
        let before = self.read.clone();
        // What is not counted is not for it.
        let nothing_before = self.first.as_ref().unwrap_or(tails);
        for (log, number) in nothing_before.iter() {
            self.read.raise(Position { log, number });
        }
        let read = &self.read;
        self.under_way.clear_if(|under_way| {
            under_way.retain(|position| !read.covers(*position));
            under_way.is_empty()
        });
        self.forget_filters();
        self.read != before
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
        item.store_with(&mut self.pool, &mut self.promises, &mut self.outputs);
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
        if let Some(session) = self.sessions.get_mut(id.index()) {
            note_given(session, &item.publication, QoS::AtLeastOnce);
        }
        self.count_behind(id, position, &item.publication);
        if is_early && let Some(backlog) = self.backlog_of(id) {
            let early = backlog.early.get_or_insert_default();
            let terms = TermsThen::of(terms, item);
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
        let tails = &self.promises.tails;
        if let Some(session) = self.sessions.get_mut(id.index())
            && let Some(kept) = session.kept.as_deref_mut()
        {
            // The session falls behind with this message.
            let backlog = kept.backlog.get_or_insert_with(|| {
                let mut before = tails.clone();
                before.lower(position);
                Box::new(Backlog::from(before))
            });
            backlog.count(position, tails, publication.stamp, bytes);
            self.stats.messages_waiting += 1;
            self.stats.messages_waiting_bytes += bytes;
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
            stats,
            ..
        } = self;
        if let Some(session) = sessions.get_mut(id.index())
            && let Some(kept) = session.kept.as_deref_mut()
            && let Some(backlog) = kept.backlog.as_deref_mut()
            && backlog.count_found(position, &census.tails, bytes)
        {
            stats.messages_waiting += 1;
            stats.messages_waiting_bytes += bytes;
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
        if takes {
            self.clients.stop_counting(id);
        }
        let is_idle = self.clients.backlog_of(id).is_some_and(|b| b.is_idle());
        if !takes || !is_idle {
            return;
        }
        match self.next_read(id, READ_BYTES_MAX) {
            Some(request) => self.clients.outputs.push_back(Output::Read(request)),
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
        let Promises { tails, moves, .. } = &self.clients.promises;
        // Each is within the next.
        let passed = moves.partition_point(|within| backlog.read.reaches(within));
        let moves = moves.iter().skip(passed);
        let (log, numbers) = moves.chain([tails]).find_map(|within| {
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
        if found < counted {
            self.clients
                .fault_of_session(id, FaultKind::Lost, found, counted - found);
        } else if found > counted {
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
            self.clients.stats.messages_waiting += 1;
            self.clients.stats.messages_waiting_bytes += bytes;
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
        delivery.tracked = self.clients.home.watching > 0;
        let is_aside = self.clients.home.topics.is_aside(item.publication.topic);
        let totals = &mut self.clients.stats.audit;
        delivery.number = session.account.accept(totals, is_aside);
        session.queue_bytes += bytes;
        session.queue.push_back((terms.qos, delivery));
    }
}

/// What a session is to get of a message that was stored.
#[derive(Clone, Debug)]
pub(crate) struct TermsThen {
    qos: QoS,
    retain: bool,
    identifiers: Identifiers,
}

impl TermsThen {
    fn of(terms: Terms<'_>, item: &Item<'_>) -> Self {
        Self {
            qos: terms.qos.min(item.publication.qos),
            retain: terms.retain,
            identifiers: Identifiers::from_slice(terms.identifiers),
        }
    }

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
        self.subscriptions.all_in_force() || self.terms(client_id, position, message).is_some()
    }

    /// How a message that was read is owed to the session: not if it was given to it before.
    pub(crate) fn owed(&mut self, client_id: &str, message: &Message) -> Option<TermsThen> {
        let position = message.position()?;
        let early = self.backlog.as_deref()?.early.as_deref();
        let early = early.and_then(|early| early.messages.get(&position));
        let early = early.cloned();
        let terms = early.or_else(|| self.terms(client_id, position, message))?;
        let backlog = self.backlog.as_deref_mut()?;
        let is_read = backlog.read.covers(position);
        let under_way = backlog.under_way.get_mut().filter(|_| !is_read);
        let was_under_way = under_way.is_some_and(|all| all.remove(&position));
        (!is_read && !was_under_way).then_some(terms)
    }

    /// Whether a message waits for the session that is neither read nor counted.
    pub(crate) fn is_owed_uncounted(&self, client_id: &str, message: &Message) -> bool {
        let (Some(position), Some(backlog)) = (message.position(), self.backlog.as_deref()) else {
            return false;
        };
        let uncounted = backlog.uncounted.as_ref();
        let under_way = backlog.under_way.get();
        !backlog.read.covers(position)
            && !under_way.is_some_and(|all| all.contains(&position))
            && uncounted.is_some_and(|uncounted| !uncounted.through.covers(position))
            && self.terms(client_id, position, message).is_some()
    }

    /// By the subscriptions that held when it came: as it was routed then [MQTT-3.3.4-2].
    fn terms(&self, client_id: &str, position: Position, message: &Message) -> Option<TermsThen> {
        let publication = message.publication();
        let topic = TopicName::parse(publication.topic).ok()?;
        let own = message
            .publisher()
            .is_some_and(|publisher| **publisher == *client_id);
        let mut found: Option<TermsThen> = None;
        self.subscriptions.on(topic, |held| {
            if !held.holds_at(position) || own && held.options.no_local {
                return;
            }
            let terms = found.get_or_insert(TermsThen {
                qos: QoS::AtMostOnce,
                retain: false,
                identifiers: Identifiers::new(),
            });
            terms.qos = terms.qos.max(held.options.qos);
            terms.retain |= held.options.retain_as_published;
            terms.identifiers.extend(held.identifier);
        });
        let mut terms = found?;
        terms.qos = terms.qos.min(publication.qos);
        terms.retain &= publication.retain;
        (terms.qos > QoS::AtMostOnce).then_some(terms)
    }
}

/// About so much of a log is read at a time.
const READ_BYTES_MAX: usize = 256 * 1024;
