//! The queries of new subscriptions for retained messages: each walks through the messages that
//! match, shard by shard and slice by slice.
//!
//! Most sessions subscribe when they begin and never again: a session without queries has nothing
//! here. Some have thousands at once, so that none is looked for among all, and a live message is
//! noted once for all of them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::{Range, RangeInclusive};
use std::sync::Arc;
use std::time::Instant;

use super::Slice;
use crate::ids::ShardId;
use crate::limits::RETAINED_RACE_TOPICS_MAX;
use crate::message::Message;
use crate::routing::Grant;

/// The queries of one session, in the order in which they were made, which is that of the tokens.
#[derive(Debug, Default)]
pub(super) struct SessionQueries {
    by_token: BTreeMap<u64, Box<Query>>,
    /// The same. One filter has several if it was subscribed to again.
    by_filter: BTreeSet<(Arc<str>, u64)>,
    overtaken: Overtaken,
    /// They go on in a later turn.
    pub(super) in_line: bool,
}

/// What a new subscription is to be sent of the retained messages.
#[derive(Debug)]
pub(crate) struct QueryStart {
    /// Its place among the queries of its session.
    pub(crate) token: u64,
    pub(crate) filter: Arc<str>,
    pub(crate) grant: Grant,
    /// The shards to ask, from the first to the last.
    pub(crate) shards: (ShardId, ShardId),
    /// What the broker itself has to say.
    pub(crate) found: Option<Arc<Message>>,
    /// It waits for its SUBACK.
    pub(crate) waits: bool,
    /// Once it begins it waits for a message of the broker's own.
    pub(crate) waits_for_verdict: bool,
}

/// A subscription's walk through the retained messages of all shards, in slices, as the connection
/// takes them.
#[derive(Debug)]
pub(super) struct Query {
    /// Its place among the others.
    pub(super) token: u64,
    pub(super) filter: Arc<str>,
    pub(super) grant: Grant,
    /// The shard being asked.
    pub(super) shard: ShardId,
    /// The last shard to ask.
    pub(super) last: ShardId,
    /// Where in that shard's topics to go on.
    pub(super) after: Option<Box<str>>,
    /// The last question to a shard. Before the first, `found` is what the broker itself has to
    /// say.
    pub(super) asked: Option<Asked>,
    /// What was found and is still to be sent, in the order of the topics.
    pub(super) found: VecDeque<Arc<Message>>,
    /// `after` is set: this shard has more behind what was found.
    pub(super) more: bool,
    /// For its SUBACK, or for the answer to a question that is on its way.
    pub(super) waits: bool,
    /// Once it begins it waits for a message of the broker's own.
    pub(super) waits_for_verdict: bool,
}

/// A question to a shard, and what was sent of its answer.
#[derive(Debug)]
pub(super) struct Asked {
    /// Names it in messages between shards.
    token: u64,
    /// Behind which topic it began.
    after: Option<Box<str>>,
    is_answered: bool,
    /// The last that was taken off `found`.
    last: Option<Arc<Message>>,
}

impl Query {
    pub(super) fn new(start: QueryStart) -> Self {
        Self {
            token: start.token,
            filter: start.filter,
            grant: start.grant,
            shard: start.shards.0,
            last: start.shards.1,
            after: None,
            asked: None,
            more: start.found.is_none(),
            found: VecDeque::from_iter(start.found),
            waits: start.waits,
            waits_for_verdict: start.waits_for_verdict,
        }
    }

    /// Begins a question for the next slice, and waits for its answer. Answers behind which topic
    /// it begins.
    pub(super) fn ask(&mut self, token: u64) -> Option<Box<str>> {
        let after = self.after.take();
        self.asked = Some(Asked {
            token,
            after: after.clone(),
            is_answered: false,
            last: None,
        });
        self.waits = true;
        after
    }

    /// Takes the answer to the question of this name, if that is the last one.
    pub(super) fn take_answer(&mut self, token: u64, slice: Slice) {
        if let Some(asked) = self.asked.as_mut().filter(|asked| asked.token == token) {
            asked.is_answered = true;
            self.waits = false;
            self.more = slice.next.is_some();
            self.after = slice.next;
            self.found = slice.messages.into();
        }
    }

    /// Moves on to the next shard if this one has no more. Answers whether there is none either.
    pub(super) fn move_on(&mut self) -> bool {
        if self.more || self.shard == self.last {
            return !self.more;
        }
        self.shard = ShardId(self.shard.0 + 1);
        self.more = true;
        false
    }

    /// Takes the next message that is to be sent.
    pub(super) fn pop_found(&mut self) -> Option<Arc<Message>> {
        let message = self.found.pop_front()?;
        if let Some(asked) = &mut self.asked {
            asked.last = Some(Arc::clone(&message));
        }
        Some(message)
    }

    /// What was not sent is asked for again.
    fn forget_found(&mut self) {
        let Some(asked) = self.asked.take() else {
            return;
        };
        if asked.is_answered && self.found.is_empty() {
            return;
        }
        let last = asked.last.map(|message| message.topic().into());
        self.after = last.or(asked.after);
        self.found.clear();
        self.more = true;
        if !asked.is_answered {
            self.waits = false;
        }
    }
}

/// Live messages that the session was given since its first query began, by topic: of an older
/// retained copy a query that was there is to leave out.
///
/// A message concerns all queries of its moment, and none that begins later. Their tokens only
/// grow, so one number says which these are.
#[derive(Debug, Default)]
struct Overtaken {
    by_topic: BTreeMap<Box<str>, Vec<Given>>,
    /// No query before this one had notes when it was last looked for such.
    swept_to: u64,
}

/// A live message of a topic.
#[derive(Clone, Copy, Debug)]
struct Given {
    /// The last query of its moment.
    last: u64,
    stamp: Instant,
    /// At QoS 1 or 2, which a lost connection does not take along.
    kept: bool,
}

impl Overtaken {
    /// `first` and `last`: the queries that there are.
    fn note(&mut self, first: u64, last: u64, topic: &str, stamp: Instant, kept: bool) {
        let given = Given { last, stamp, kept };
        if let Some(notes) = self.by_topic.get_mut(topic) {
            // What says no more than the new one. Stamps of one shard never fall, so what stays is
            // no more than two of each shard.
            notes.retain(|older| older.stamp > stamp || older.kept && !kept);
            notes.push(given);
            return;
        }
        if self.by_topic.len() >= RETAINED_RACE_TOPICS_MAX && self.swept_to < first {
            self.swept_to = first;
            self.retain(|given| given.last >= first);
        }
        if self.by_topic.len() < RETAINED_RACE_TOPICS_MAX {
            self.by_topic.insert(topic.into(), vec![given]);
        }
    }

    fn retain(&mut self, stays: impl Fn(&Given) -> bool) {
        self.by_topic.retain(|_, notes| {
            notes.retain(&stays);
            !notes.is_empty()
        });
    }
}

impl SessionQueries {
    pub(super) fn is_empty(&self) -> bool {
        self.by_token.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.by_token.len()
    }

    /// Whether there is one for this filter.
    pub(super) fn has(&self, filter: &Arc<str>) -> bool {
        self.by_filter.range(all_of(filter)).next().is_some()
    }

    /// Those with these tokens.
    pub(super) fn range_mut(&mut self, tokens: Range<u64>) -> impl Iterator<Item = &mut Query> {
        let queries = self.by_token.range_mut(tokens);
        queries.map(|(_, query)| &mut **query)
    }

    pub(super) fn front(&self) -> Option<&Query> {
        let (_, query) = self.by_token.first_key_value()?;
        Some(query)
    }

    pub(super) fn front_mut(&mut self) -> Option<&mut Query> {
        Some(self.by_token.first_entry()?.into_mut())
    }

    /// Its token is greater than those of all before.
    pub(super) fn push_back(&mut self, query: Query) {
        self.by_filter
            .insert((Arc::clone(&query.filter), query.token));
        self.by_token.insert(query.token, Box::new(query));
    }

    pub(super) fn pop_front(&mut self) -> Option<Box<Query>> {
        let (token, query) = self.by_token.pop_first()?;
        self.by_filter.remove(&(Arc::clone(&query.filter), token));
        Some(query)
    }

    /// The session was given a live message that is to be retained, `kept` at QoS 1 or 2.
    pub(super) fn note_live(&mut self, topic: &str, stamp: Instant, kept: bool) {
        let mut tokens = self.by_token.keys();
        if let Some(first) = tokens.next() {
            let last = tokens.next_back().unwrap_or(first);
            self.overtaken.note(*first, *last, topic, stamp, kept);
        }
    }

    /// Whether the session was given a live message of this topic that is not older than the stamp,
    /// since this query began.
    pub(super) fn is_overtaken(&self, token: u64, topic: &str, stamp: Instant) -> bool {
        let notes = self.overtaken.by_topic.get(topic);
        let mut notes = notes.into_iter().flatten();
        notes.any(|given| given.last >= token && given.stamp >= stamp)
    }

    /// The client has gone: what overtook a retained message at QoS 0 may be lost with the
    /// connection, and what was found may not be retained any more when it comes back.
    pub(super) fn handle_disconnected(&mut self) {
        self.overtaken.retain(|given| given.kept);
        let queries = self.by_token.values_mut();
        queries.for_each(|query| query.forget_found());
    }

    /// Leaves out those for this filter.
    pub(super) fn remove(&mut self, filter: &str) {
        let of_filter = self.by_filter.range(all_of(&filter.into())).cloned();
        for query in of_filter.collect::<Vec<_>>() {
            self.by_token.remove(&query.1);
            self.by_filter.remove(&query);
        }
    }
}

fn all_of(filter: &Arc<str>) -> RangeInclusive<(Arc<str>, u64)> {
    (Arc::clone(filter), 0)..=(Arc::clone(filter), u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use unbroken_mqtt_proto::QoS;

    use super::*;

    fn query(token: u64, filter: &str) -> Query {
        Query {
            token,
            filter: filter.into(),
            grant: Grant {
                qos: QoS::AtMostOnce,
                no_local: false,
                retain_as_published: false,
                identifier: None,
            },
            shard: ShardId(0),
            last: ShardId(0),
            after: None,
            asked: None,
            found: VecDeque::new(),
            more: true,
            waits: true,
            waits_for_verdict: false,
        }
    }

    /// The twin is a plain queue.
    #[test]
    fn they_behave_like_a_queue_that_is_searched() {
        let (mut queries, mut twin) = (SessionQueries::default(), VecDeque::<(u64, String)>::new());
        let mut random = 1_u64;
        for token in 1..4_000 {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let filter = format!("a/{}", (random >> 40) % 12);
            match random >> 61 {
                0..4 => {
                    queries.push_back(query(token, &filter));
                    twin.push_back((token, filter.clone()));
                    let newest = queries.by_token.keys().next_back().copied();
                    assert_eq!(newest, Some(token));
                }
                4 | 5 => {
                    let first = queries.pop_front();
                    let first = first.map(|query| (query.token, query.filter.to_string()));
                    assert_eq!(first, twin.pop_front());
                }
                _ => {
                    queries.remove(&filter);
                    twin.retain(|(_, of)| *of != filter);
                }
            }
            assert_eq!(queries.len(), twin.len());
            assert_eq!(queries.is_empty(), twin.is_empty());
            let has = twin.iter().any(|(_, of)| *of == filter);
            assert_eq!(queries.has(&filter.as_str().into()), has);
            let first = queries.front_mut().map(|query| query.token);
            assert_eq!(first, twin.front().map(|(token, _)| *token));
            let (from, to) = (token.saturating_sub(9), token);
            let some = queries.range_mut(from..to).map(|query| query.token);
            let some: Vec<_> = some.collect();
            let mut expected: Vec<_> = twin.iter().map(|(token, _)| *token).collect();
            let all = queries.range_mut(0..u64::MAX).map(|query| query.token);
            assert!(all.eq(expected.iter().copied()));
            expected.retain(|token| (from..to).contains(token));
            assert_eq!(some, expected);
        }
    }

    /// The twin notes each message with each query. Stamps fall now and then, as those of several
    /// shards do.
    #[test]
    #[expect(clippy::disallowed_methods, reason = "a test's epoch")]
    fn what_was_given_live_concerns_the_scans_that_were_there() {
        type Given = (usize, Instant, bool);
        let topics = ["a", "b", "c"];
        let begin = Instant::now();
        let (mut queries, mut twin) = (
            SessionQueries::default(),
            VecDeque::<(u64, Vec<Given>)>::new(),
        );
        let mut random = 7_u64;
        for token in 1..1_000 {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let stamp = begin + Duration::from_millis(token + (random >> 44) % 3 * 5);
            let (topic, kept) = (
                (random >> 40) as usize % topics.len(),
                random >> 50 & 1 == 0,
            );
            match random >> 60 {
                0..3 => {
                    queries.push_back(query(token, "a/+"));
                    twin.push_back((token, Vec::new()));
                }
                3..6 => {
                    queries.pop_front();
                    twin.pop_front();
                }
                6 => {
                    queries.handle_disconnected();
                    let notes = twin.iter_mut();
                    notes.for_each(|(_, given)| given.retain(|(_, _, kept)| *kept));
                }
                _ => {
                    queries.note_live(topics[topic], stamp, kept);
                    let notes = twin.iter_mut();
                    notes.for_each(|(_, given)| given.push((topic, stamp, kept)));
                }
            }
            let near_ms = token.saturating_sub(20)..token + 15;
            for (token, given) in &twin {
                for (at, topic) in topics.iter().enumerate() {
                    for at_ms in near_ms.clone() {
                        let stamp = begin + Duration::from_millis(at_ms);
                        let mut given = given.iter();
                        let expected = given.any(|(of, newer, _)| *of == at && *newer >= stamp);
                        assert_eq!(queries.is_overtaken(*token, topic, stamp), expected);
                    }
                }
            }
            let notes = queries.overtaken.by_topic.values();
            assert!(notes.map(Vec::len).max() <= Some(6), "two of each shard");
        }
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a test's epoch")]
    fn topics_of_scans_that_are_over_make_room_for_others() {
        let stamp = Instant::now();
        let mut queries = SessionQueries::default();
        queries.push_back(query(1, "a/+"));
        for n in 0..=RETAINED_RACE_TOPICS_MAX {
            queries.note_live(&n.to_string(), stamp, true);
        }
        let last = RETAINED_RACE_TOPICS_MAX.to_string();
        assert!(queries.is_overtaken(1, "0", stamp) && !queries.is_overtaken(1, &last, stamp));
        queries.push_back(query(2, "b/+"));
        queries.note_live("0", stamp, true);
        queries.pop_front();
        queries.note_live(&last, stamp, true);
        assert!(queries.is_overtaken(2, "0", stamp) && queries.is_overtaken(2, &last, stamp));
        assert!(!queries.is_overtaken(2, "1", stamp));
    }
}
