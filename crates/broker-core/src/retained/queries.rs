//! Walks of a session's subscriptions through what is retained.
//!
//! Most sessions subscribe when they begin and never again: between scans there is no room for any.
//! Some have thousands at once, so that none is looked for among all, and a live message is noted
//! once for all of them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::{Range, RangeInclusive};
use std::sync::Arc;
use std::time::Instant;

use crate::ids::ShardId;
use crate::limits::RETAINED_RACE_TOPICS_MAX;
use crate::message::Message;
use crate::option_box::OptionBox;
use crate::routing::Grant;

/// Retained messages still to be sent for subscriptions, in the order these were made, which is
/// that of the tokens.
#[derive(Debug, Default)]
pub(crate) struct Scans(OptionBox<Line>);

#[derive(Debug, Default)]
struct Line {
    by_token: BTreeMap<u64, Box<RetainedScan>>,
    /// The same. One filter has several if it was subscribed to again.
    by_filter: BTreeSet<(Arc<str>, u64)>,
    overtaken: Overtaken,
}

/// A subscription's walk through the retained messages of all shards, in slices, as the connection
/// takes them.
#[derive(Debug)]
pub(crate) struct RetainedScan {
    /// Its place among the others.
    pub(crate) token: u64,
    pub(crate) filter: Arc<str>,
    pub(crate) grant: Grant,
    /// The shard being asked.
    pub(crate) shard: ShardId,
    /// The last shard to ask.
    pub(crate) last: ShardId,
    /// Where in that shard's topics to go on.
    pub(crate) after: Option<Box<str>>,
    /// The last question to a shard. Before the first, `found` is what the broker itself has to
    /// say.
    pub(crate) asked: Option<Asked>,
    /// What was found and is still to be sent, in the order of the topics.
    pub(crate) found: VecDeque<Arc<Message>>,
    /// `after` is set: this shard has more behind what was found.
    pub(crate) more: bool,
    /// For its SUBACK, or for the answer to a question that is on its way.
    pub(crate) waits: bool,
}

/// A question to a shard, and what was sent of its answer.
#[derive(Debug)]
pub(crate) struct Asked {
    /// Names it in mail.
    pub(crate) token: u64,
    /// Behind which topic it began.
    pub(crate) after: Option<Box<str>>,
    pub(crate) is_answered: bool,
    /// The last that was taken off `found`.
    pub(crate) last: Option<Arc<Message>>,
}

impl RetainedScan {
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

/// Live messages that the session was given since its first scan began, by topic: of an older
/// retained copy a scan that was there is to leave out.
///
/// A message concerns all scans of its moment, and none that begins later. Their tokens only grow,
/// so one number says which these are.
#[derive(Debug, Default)]
struct Overtaken {
    by_topic: BTreeMap<Box<str>, Vec<Given>>,
    /// No scan before this one had notes when it was last looked for such.
    swept_to: u64,
}

/// A live message of a topic.
#[derive(Clone, Copy, Debug)]
struct Given {
    /// The last scan of its moment.
    last: u64,
    stamp: Instant,
    /// At QoS 1 or 2, which a lost connection does not take along.
    kept: bool,
}

impl Overtaken {
    /// `first` and `last`: the scans that there are.
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

impl Scans {
    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.get().map_or(0, |line| line.by_token.len())
    }

    /// Whether there is one for this filter.
    pub(crate) fn has(&self, filter: &Arc<str>) -> bool {
        let of_filter = self
            .0
            .get()
            .map(|line| line.by_filter.range(all_of(filter)));
        of_filter.is_some_and(|mut found| found.next().is_some())
    }

    /// Those with these tokens.
    pub(crate) fn range_mut(
        &mut self,
        tokens: Range<u64>,
    ) -> impl Iterator<Item = &mut RetainedScan> {
        let line = self.0.get_mut().into_iter();
        let scans = line.flat_map(move |line| line.by_token.range_mut(tokens.clone()));
        scans.map(|(_, scan)| &mut **scan)
    }

    pub(crate) fn front_mut(&mut self) -> Option<&mut RetainedScan> {
        Some(self.0.get_mut()?.by_token.first_entry()?.into_mut())
    }

    pub(crate) fn back_mut(&mut self) -> Option<&mut RetainedScan> {
        Some(self.0.get_mut()?.by_token.last_entry()?.into_mut())
    }

    /// Its token is greater than those of all before.
    pub(crate) fn push_back(&mut self, scan: RetainedScan) {
        let line = self.0.get_or_insert_default();
        line.by_filter
            .insert((Arc::clone(&scan.filter), scan.token));
        line.by_token.insert(scan.token, Box::new(scan));
    }

    pub(crate) fn pop_front(&mut self) -> Option<Box<RetainedScan>> {
        let line = self.0.get_mut()?;
        let (token, scan) = line.by_token.pop_first()?;
        line.by_filter.remove(&(Arc::clone(&scan.filter), token));
        self.0.clear_if(|line| line.by_token.is_empty());
        Some(scan)
    }

    /// The session was given a live message that is to be retained, `kept` at QoS 1 or 2.
    #[cold]
    pub(crate) fn note_given(&mut self, topic: &str, stamp: Instant, kept: bool) {
        let Some(line) = self.0.get_mut() else {
            return;
        };
        let mut tokens = line.by_token.keys();
        if let Some(first) = tokens.next() {
            let last = tokens.next_back().unwrap_or(first);
            line.overtaken.note(*first, *last, topic, stamp, kept);
        }
    }

    /// Whether the session was given a live message of this topic that is not older than the stamp,
    /// since this scan began.
    pub(crate) fn is_overtaken(&self, token: u64, topic: &str, stamp: Instant) -> bool {
        let line = self.0.get();
        let notes = line.and_then(|line| line.overtaken.by_topic.get(topic));
        let mut notes = notes.into_iter().flatten();
        notes.any(|given| given.last >= token && given.stamp >= stamp)
    }

    /// The client has gone: what overtook a retained message at QoS 0 may be lost with the
    /// connection, and what was found may not be retained any more when it comes back.
    pub(crate) fn handle_disconnected(&mut self) {
        if let Some(line) = self.0.get_mut() {
            line.overtaken.retain(|given| given.kept);
            let scans = line.by_token.values_mut();
            scans.for_each(|scan| scan.forget_found());
        }
    }

    /// Leaves out those for this filter.
    pub(crate) fn remove(&mut self, filter: &str) {
        self.0.clear_if(|line| {
            let of_filter = line.by_filter.range(all_of(&filter.into())).cloned();
            for scan in of_filter.collect::<Vec<_>>() {
                line.by_token.remove(&scan.1);
                line.by_filter.remove(&scan);
            }
            line.by_token.is_empty()
        });
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

    fn scan(token: u64, filter: &str) -> RetainedScan {
        RetainedScan {
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
        }
    }

    /// The twin is a plain queue.
    #[test]
    fn they_behave_like_a_queue_that_is_searched() {
        let (mut scans, mut twin) = (Scans::default(), VecDeque::<(u64, String)>::new());
        let mut random = 1_u64;
        for token in 1..4_000 {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let filter = format!("a/{}", (random >> 40) % 12);
            match random >> 61 {
                0..4 => {
                    scans.push_back(scan(token, &filter));
                    twin.push_back((token, filter.clone()));
                    let newest = scans.back_mut().map(|scan| scan.token);
                    assert_eq!(newest, Some(token));
                }
                4 | 5 => {
                    let first = scans.pop_front();
                    let first = first.map(|scan| (scan.token, scan.filter.to_string()));
                    assert_eq!(first, twin.pop_front());
                }
                _ => {
                    scans.remove(&filter);
                    twin.retain(|(_, of)| *of != filter);
                }
            }
            assert_eq!(scans.len(), twin.len());
            assert_eq!(scans.is_empty(), twin.is_empty());
            let has = twin.iter().any(|(_, of)| *of == filter);
            assert_eq!(scans.has(&filter.as_str().into()), has);
            let first = scans.front_mut().map(|scan| scan.token);
            assert_eq!(first, twin.front().map(|(token, _)| *token));
            let (from, to) = (token.saturating_sub(9), token);
            let some = scans.range_mut(from..to).map(|scan| scan.token);
            let some: Vec<_> = some.collect();
            let mut expected: Vec<_> = twin.iter().map(|(token, _)| *token).collect();
            let all = scans.range_mut(0..u64::MAX).map(|scan| scan.token);
            assert!(all.eq(expected.iter().copied()));
            expected.retain(|token| (from..to).contains(token));
            assert_eq!(some, expected);
        }
    }

    /// The twin notes each message with each scan. Stamps fall now and then, as those of several
    /// shards do.
    #[test]
    #[expect(clippy::disallowed_methods, reason = "a test's epoch")]
    fn what_was_given_live_concerns_the_scans_that_were_there() {
        type Given = (usize, Instant, bool);
        let topics = ["a", "b", "c"];
        let begin = Instant::now();
        let (mut scans, mut twin) = (Scans::default(), VecDeque::<(u64, Vec<Given>)>::new());
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
                    scans.push_back(scan(token, "a/+"));
                    twin.push_back((token, Vec::new()));
                }
                3..6 => {
                    scans.pop_front();
                    twin.pop_front();
                }
                6 => {
                    scans.handle_disconnected();
                    let notes = twin.iter_mut();
                    notes.for_each(|(_, given)| given.retain(|(_, _, kept)| *kept));
                }
                _ => {
                    scans.note_given(topics[topic], stamp, kept);
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
                        assert_eq!(scans.is_overtaken(*token, topic, stamp), expected);
                    }
                }
            }
            let notes = scans.0.get().into_iter();
            let notes = notes.flat_map(|line| line.overtaken.by_topic.values());
            assert!(notes.map(Vec::len).max() <= Some(6), "two of each shard");
        }
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a test's epoch")]
    fn topics_of_scans_that_are_over_make_room_for_others() {
        let stamp = Instant::now();
        let mut scans = Scans::default();
        scans.push_back(scan(1, "a/+"));
        for n in 0..=RETAINED_RACE_TOPICS_MAX {
            scans.note_given(&n.to_string(), stamp, true);
        }
        let last = RETAINED_RACE_TOPICS_MAX.to_string();
        assert!(scans.is_overtaken(1, "0", stamp) && !scans.is_overtaken(1, &last, stamp));
        scans.push_back(scan(2, "b/+"));
        scans.note_given("0", stamp, true);
        scans.pop_front();
        scans.note_given(&last, stamp, true);
        assert!(scans.is_overtaken(2, "0", stamp) && scans.is_overtaken(2, &last, stamp));
        assert!(!scans.is_overtaken(2, "1", stamp));
    }
}
