//! The retained messages of one shard's topics, and what sessions still wait to be sent of those of
//! all shards.
//!
//! Invariants:
//! - A client's message counts towards the limits of the broker while it is retained. The broker's
//!   own (`$SYS`) are few, and must not fill a small store: they do not count.
//! - A query waits for its SUBACK, then asks one shard after another for slices, and never for the
//!   next before all of the last was sent.
//!
//! Deliberately absent: records, timers and messages to other shards; the caller carries out what
//! a change answers.

mod index;
mod queries;
#[cfg(test)]
mod reference;

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use foldhash::fast::FixedState;
use unbroken_mqtt_proto::{QoS, TopicFilter, TopicName};

use self::index::RetainedIndex;
use self::queries::{Query, SessionQueries};
use crate::ids::{SessionId, ShardId};
use crate::limits::{Limits, RETAINED_SLICE};
use crate::message::Message;
use crate::reason::DropReason;
use crate::routing::Grant;
use crate::settings::Totals;

pub(crate) use self::queries::QueryStart;

/// The retained messages and queries of a shard.
#[derive(Debug)]
pub(crate) struct Retained {
    /// Of the shard and not of a session, so that they do not end with one [MQTT311-3.1.2-7].
    messages: RetainedIndex<Arc<Message>>,
    /// What all shards retain.
    totals: Arc<Totals>,
    /// Of the sessions of this shard that have any.
    queries: HashMap<SessionId, SessionQueries, FixedState>,
    /// Topics that were looked at, ever, as [`RetainedIndex::scan`] counts them.
    looked_at: u64,
}

/// What became of a message that was to be retained. Sizes are those of publications.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RetainedChange {
    /// It is retained, in place of one of this size.
    Set { old: Option<u64> },
    /// Its topic has none any more, and had one of this size. It was empty, or there is no room.
    Removed {
        old: Option<u64>,
        refused: Option<DropReason>,
    },
}

/// A slice of what is retained, in the order of the topics.
#[derive(Debug)]
pub(crate) struct Slice {
    pub(crate) messages: Vec<Arc<Message>>,
    /// The topic to go on after, if there is more.
    pub(crate) next: Option<Box<str>>,
}

/// What a session's first query needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NextStep {
    /// Nothing, or there is none.
    Wait,
    /// The next slice is to be asked for.
    Ask,
    /// What was found is to be sent.
    Send,
}

/// A question for a slice.
#[derive(Debug)]
pub(crate) struct Question {
    pub(crate) shard: ShardId,
    pub(crate) filter: Arc<str>,
    pub(crate) after: Option<Box<str>>,
}

/// A retained message for one subscription.
#[derive(Debug)]
pub(crate) struct RetainedCopy {
    pub(crate) message: Arc<Message>,
    pub(crate) grant: Grant,
    /// The session was given a newer one meanwhile.
    pub(crate) is_overtaken: bool,
}

/// Messages.
impl Retained {
    pub(crate) fn new(totals: Arc<Totals>) -> Self {
        Self {
            messages: RetainedIndex::default(),
            totals,
            queries: HashMap::with_hasher(FixedState::with_seed(0)),
            looked_at: 0,
        }
    }

    pub(crate) fn get(&self, topic: TopicName<'_>) -> Option<&Arc<Message>> {
        self.messages.get(topic)
    }

    /// Keeps the message of a topic, or forgets it if the payload is empty. `refused`: why the
    /// store takes no more.
    pub(crate) fn set(
        &mut self,
        topic: TopicName<'_>,
        message: &Arc<Message>,
        refused: Option<DropReason>,
        limits: &Limits,
    ) -> RetainedChange {
        if message.payload().is_empty() {
            // [MQTT-3.3.1-6, MQTT311-3.3.1-10] [MQTT-3.3.1-7, MQTT311-3.3.1-11]
            let (old, refused) = (self.remove(topic), None);
            return RetainedChange::Removed { old, refused };
        }
        // The old message makes room for the new one, in one step, since other shards want that
        // room too. If it is not enough neither is kept: a full store must not go on showing an old
        // value as the current one.
        let old = self.messages.remove(topic);
        let size = old.as_ref().map(|old| old.publication().cost());
        if refused.is_none() && self.count(message, old.as_deref(), limits) {
            // [MQTT-3.3.1-5, MQTT311-3.3.1-5, MQTT311-3.3.1-7]
            self.messages.set(topic, Arc::clone(message));
            return RetainedChange::Set { old: size };
        }
        if let Some(old) = old {
            self.uncount(&old);
        }
        RetainedChange::Removed {
            old: size,
            refused: refused.or(Some(DropReason::RetainedFull)),
        }
    }

    /// Forgets the message of a topic; answers its size.
    pub(crate) fn remove(&mut self, topic: TopicName<'_>) -> Option<u64> {
        let removed = self.messages.remove(topic)?;
        self.uncount(&removed);
        Some(removed.publication().cost())
    }

    /// Forgets this message, if its topic still has it.
    pub(crate) fn expire(&mut self, message: &Arc<Message>) -> bool {
        let Ok(topic) = TopicName::parse(message.topic()) else {
            return false;
        };
        let kept = self.messages.get(topic);
        let is_kept = kept.is_some_and(|kept| Arc::ptr_eq(kept, message));
        is_kept && self.remove(topic).is_some()
    }

    /// What matches a filter, from behind this topic on.
    pub(crate) fn slice(&mut self, filter: &str, after: Option<&str>) -> Slice {
        let mut messages = Vec::new();
        let Ok(filter) = TopicFilter::parse(filter) else {
            return Slice {
                messages,
                next: None,
            };
        };
        let keep = |message: &Arc<Message>| messages.push(Arc::clone(message));
        let scanned = self.messages.scan(filter, after, RETAINED_SLICE, keep);
        self.looked_at += scanned.steps as u64;
        let next = scanned.next;
        Slice { messages, next }
    }

    /// Topics that were looked at, ever; a long one counts more.
    pub(crate) fn looked_at(&self) -> u64 {
        self.looked_at
    }

    /// Counts a message towards the limits in place of the one that it replaces, which stays
    /// counted if there is no room.
    fn count(&self, message: &Message, old: Option<&Message>, limits: &Limits) -> bool {
        let limited = |message: &Message| match message.publisher() {
            Some(_) => (1, message.publication().cost()),
            None => (0, 0),
        };
        let (new_count, new_bytes) = limited(message);
        let (old_count, old_bytes) = old.map_or((0, 0), limited);
        let messages_max = limits.retained_messages_max.into();
        let messages = &self.totals.retained_messages;
        if !messages.try_replace(old_count, new_count, messages_max) {
            return false;
        }
        let bytes = &self.totals.retained_bytes;
        if !bytes.try_replace(old_bytes, new_bytes, limits.retained_bytes_max) {
            messages.try_replace(new_count, old_count, u64::MAX);
            return false;
        }
        true
    }

    fn uncount(&self, message: &Message) {
        if message.publisher().is_some() {
            self.totals.retained_messages.subtract(1);
            let cost = message.publication().cost();
            self.totals.retained_bytes.subtract(cost);
        }
    }
}

/// Queries.
impl Retained {
    #[inline]
    pub(crate) fn has_queries(&self, session: SessionId) -> bool {
        !self.queries.is_empty() && self.queries.contains_key(&session)
    }

    /// The queries of this session go on in a later turn. Answers whether that is news.
    pub(crate) fn stand_in_line(&mut self, session: SessionId) -> bool {
        let queries = self.queries.get_mut(&session);
        queries.is_some_and(|queries| !std::mem::replace(&mut queries.in_line, true))
    }

    pub(crate) fn is_in_line(&self, session: SessionId) -> bool {
        let queries = self.queries.get(&session);
        queries.is_some_and(|queries| queries.in_line)
    }

    pub(crate) fn leave_line(&mut self, session: SessionId) {
        if let Some(queries) = self.queries.get_mut(&session) {
            queries.in_line = false;
        }
    }

    /// A new subscription is to be sent what is retained for it. With `most` queries those for the
    /// same filter are left out.
    pub(crate) fn add_query(&mut self, session: SessionId, start: QueryStart, most: usize) {
        let queries = self.queries.entry(session).or_default();
        if queries.len() >= most {
            // Only by subscribing to the same again, faster than it is answered: once is enough.
            queries.remove(&start.filter);
        }
        queries.push_back(Query::new(start));
    }

    /// Leaves out the queries for this filter.
    pub(crate) fn remove_queries(&mut self, session: SessionId, filter: &str) {
        if let Some(queries) = self.queries.get_mut(&session) {
            queries.remove(filter);
            self.clear_if_empty(session);
        }
    }

    /// The session has ended.
    pub(crate) fn end_session(&mut self, session: SessionId) {
        self.queries.remove(&session);
    }

    /// The session has lost its connection.
    pub(crate) fn handle_disconnected(&mut self, session: SessionId) {
        if let Some(queries) = self.queries.get_mut(&session) {
            queries.handle_disconnected();
        }
    }

    /// A live message was written to a session, or waits for it, `kept` at QoS 1 or 2: a retained
    /// copy that is older, and that a query still has to send, is left out.
    #[cold]
    pub(crate) fn note_live(
        &mut self,
        session: SessionId,
        topic: &str,
        stamp: Instant,
        kept: bool,
    ) {
        if !self.queries.is_empty()
            && let Some(queries) = self.queries.get_mut(&session)
        {
            queries.note_live(topic, stamp, kept);
        }
    }

    /// The SUBACK of the queries with these tokens leaves. Answers the tokens of those that now
    /// wait for the verdict.
    pub(crate) fn begin_queries(&mut self, session: SessionId, tokens: Range<u64>) -> Vec<u64> {
        let mut asking = Vec::new();
        if let Some(queries) = self.queries.get_mut(&session) {
            for query in queries.range_mut(tokens) {
                query.waits = query.waits_for_verdict;
                if query.waits {
                    asking.push(query.token);
                }
            }
        }
        asking
    }

    /// A query waits no more for a message of the broker's own, which it is to send if there is
    /// one.
    pub(crate) fn end_wait(
        &mut self,
        session: SessionId,
        token: u64,
        found: Option<&Arc<Message>>,
    ) {
        if let Some(queries) = self.queries.get_mut(&session) {
            for query in queries.range_mut(token..token + 1) {
                query.found.extend(found.cloned());
                query.waits = false;
            }
        }
    }

    /// What the first query of this session needs.
    pub(crate) fn next_step(&self, session: SessionId) -> NextStep {
        let queries = self.queries.get(&session);
        match queries.and_then(SessionQueries::front) {
            Some(query) if query.waits => NextStep::Wait,
            Some(query) if query.found.is_empty() && query.more => NextStep::Ask,
            Some(_) => NextStep::Send,
            None => NextStep::Wait,
        }
    }

    /// Begins a question of this name for the next slice of the first query, which waits for the
    /// answer.
    pub(crate) fn ask(&mut self, session: SessionId, token: u64) -> Option<Question> {
        let query = self.front_mut(session)?;
        Some(Question {
            shard: query.shard,
            filter: Arc::clone(&query.filter),
            after: query.ask(token),
        })
    }

    /// Takes the answer to a question, if the first query still waits for it.
    pub(crate) fn take_answer(&mut self, session: SessionId, token: u64, slice: Slice) {
        if let Some(query) = self.front_mut(session) {
            query.take_answer(token, slice);
        }
    }

    /// The QoS of the next message that the first query has found.
    pub(crate) fn next_qos(&self, session: SessionId) -> Option<QoS> {
        let query = self.queries.get(&session)?.front()?;
        let message = query.found.front()?;
        Some(query.grant.qos.min(message.publication().qos))
    }

    /// Takes that message.
    pub(crate) fn take_copy(&mut self, session: SessionId) -> Option<RetainedCopy> {
        let queries = self.queries.get_mut(&session)?;
        let query = queries.front_mut()?;
        let (token, grant) = (query.token, query.grant);
        let message = query.pop_found()?;
        let publication = message.publication();
        let is_overtaken = queries.is_overtaken(token, publication.topic, publication.stamp);
        Some(RetainedCopy {
            message,
            grant,
            is_overtaken,
        })
    }

    /// All that the first query had found was sent: it moves on, or ends. Answers its filter if it
    /// has ended, and no other query has the same.
    pub(crate) fn finish_slice(&mut self, session: SessionId) -> Option<Arc<str>> {
        let queries = self.queries.get_mut(&session)?;
        if !queries.front_mut()?.move_on() {
            return None;
        }
        let filter = queries.pop_front()?.filter;
        let has_more = queries.has(&filter);
        self.clear_if_empty(session);
        (!has_more).then_some(filter)
    }

    fn front_mut(&mut self, session: SessionId) -> Option<&mut Query> {
        self.queries.get_mut(&session)?.front_mut()
    }

    fn clear_if_empty(&mut self, session: SessionId) {
        let queries = self.queries.get(&session);
        if queries.is_some_and(SessionQueries::is_empty) {
            self.queries.remove(&session);
        }
    }
}
