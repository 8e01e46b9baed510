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
mod listing;
mod queries;
#[cfg(test)]
mod reference;
mod room;

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use foldhash::fast::FixedState;
use unbroken_mqtt_proto::{QoS, TopicFilter, TopicName};

use self::index::RetainedIndex;
use self::queries::{Query, SessionQueries};
use self::room::RetainedRoom;
use crate::ids::{SessionId, ShardId};
use crate::limits::{Limits, RETAINED_SLICE};
use crate::message::Message;
use crate::reason::DropReason;
use crate::routing::Grant;
use crate::settings::ShardOptions;
use crate::shares::{Full, Network, Reserved, Taker};

pub use self::listing::{RetainedPage, TopicLevel, TopicLevels, WantedRetained};
pub(crate) use self::queries::QueryStart;

/// The retained messages and queries of a shard.
#[derive(Debug)]
pub(crate) struct Retained {
    /// Of the shard and not of a session, so that they do not end with one [MQTT311-3.1.2-7].
    messages: RetainedIndex<Kept>,
    room: RetainedRoom,
    /// Of the sessions of this shard that have any.
    queries: HashMap<SessionId, SessionQueries, FixedState>,
    /// Topics that were looked at, ever, as [`RetainedIndex::scan`] counts them.
    looked_at: u64,
}

/// A retained message, and in whose share it is.
#[derive(Debug)]
pub(crate) struct Kept {
    pub(crate) message: Arc<Message>,
    /// From where it was published.
    pub(crate) address: Option<Network>,
}

/// How a message comes to be retained.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Claim {
    /// It takes room if there is some: its publisher was promised nothing.
    IfRoom,
    /// It has this room.
    Reserved(Reserved),
    /// It is not, for this reason of the store.
    Refused(DropReason),
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
        /// What is used up, if it is that.
        full: Option<Full>,
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
    pub(crate) fn new(options: &ShardOptions) -> Self {
        let totals = Arc::clone(&options.totals);
        Self {
            messages: RetainedIndex::default(),
            room: RetainedRoom::new(totals, options.seed, options.shards),
            queries: HashMap::with_hasher(FixedState::with_seed(0)),
            looked_at: 0,
        }
    }

    pub(crate) fn get(&self, topic: TopicName<'_>) -> Option<&Arc<Message>> {
        self.messages.get(topic).map(|kept| &kept.message)
    }

    /// Promises room for a message of so many bytes to its topic, which is of this shard.
    pub(crate) fn reserve(
        &self,
        topic: TopicName<'_>,
        bytes: u64,
        taker: Taker<'_>,
        limits: &Limits,
    ) -> Result<Reserved, Full> {
        let old = self.messages.get(topic);
        self.room.reserve(bytes, old, taker, limits)
    }

    /// The same for a topic of any shard, while there is room for everybody.
    pub(crate) fn reserve_for_any(&self, bytes: u64, limits: &Limits) -> Option<Reserved> {
        self.room.reserve_for_any(bytes, limits)
    }

    /// Gives back what was promised to a message that does not come.
    pub(crate) fn release(&self, reserved: Reserved) {
        self.room.release(reserved);
    }

    /// Keeps the message of a topic, or forgets it if the payload is empty.
    pub(crate) fn set(
        &mut self,
        topic: TopicName<'_>,
        kept: Kept,
        claim: Claim,
        limits: &Limits,
    ) -> RetainedChange {
        if kept.message.payload().is_empty() {
            // [MQTT-3.3.1-6, MQTT311-3.3.1-10] [MQTT-3.3.1-7, MQTT311-3.3.1-11]
            return RetainedChange::Removed {
                old: self.remove(topic),
                refused: None,
                full: None,
            };
        }
        let (refused, full) = match self.claim(topic, &kept, claim, limits) {
            Ok(reserved) => {
                // [MQTT-3.3.1-5, MQTT311-3.3.1-5, MQTT311-3.3.1-7]
                let old = self.messages.remove(topic);
                self.room.replace(old.as_ref(), Some(&kept), reserved);
                self.messages.set(topic, kept);
                let old = old.map(|old| old.message.publication().cost());
                return RetainedChange::Set { old };
            }
            Err(refused) => refused,
        };
        // The topic must not go on showing an old value as the current one.
        RetainedChange::Removed {
            old: self.remove(topic),
            refused: Some(refused),
            full,
        }
    }

    /// The room that a message has, or why there is none.
    fn claim(
        &self,
        topic: TopicName<'_>,
        kept: &Kept,
        claim: Claim,
        limits: &Limits,
    ) -> Result<Reserved, (DropReason, Option<Full>)> {
        let taker = kept.taker();
        match claim {
            Claim::Refused(why) => Err((why, None)),
            Claim::Reserved(reserved) => Ok(reserved),
            Claim::IfRoom if taker.client.is_none() => Ok(Reserved::default()),
            Claim::IfRoom => {
                let bytes = kept.message.publication().cost();
                let room = self.reserve(topic, bytes, taker, limits);
                room.map_err(|full| (DropReason::RetainedFull, Some(full)))
            }
        }
    }

    /// Forgets the message of a topic; answers its size.
    pub(crate) fn remove(&mut self, topic: TopicName<'_>) -> Option<u64> {
        let removed = self.messages.remove(topic)?;
        self.room.replace(Some(&removed), None, Reserved::default());
        Some(removed.message.publication().cost())
    }

    /// Forgets this message, if its topic still has it.
    pub(crate) fn expire(&mut self, message: &Arc<Message>) -> bool {
        let Ok(topic) = TopicName::parse(message.topic()) else {
            return false;
        };
        let kept = self.messages.get(topic);
        let is_kept = kept.is_some_and(|kept| Arc::ptr_eq(&kept.message, message));
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
        let keep = |kept: &Kept| {
            messages.push(Arc::clone(&kept.message));
            true
        };
        let scanned = self.messages.scan(filter, after, RETAINED_SLICE, keep);
        self.looked_at += scanned.steps as u64;
        let next = scanned.next;
        Slice { messages, next }
    }
}

impl Kept {
    /// In whose share it is.
    fn taker(&self) -> Taker<'_> {
        Taker {
            client: self.message.publisher(),
            address: self.address,
        }
    }
}

/// Queries.
impl Retained {
    /// Topics that were looked at, ever; a long one counts more.
    pub(crate) fn looked_at(&self) -> u64 {
        self.looked_at
    }

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
