//! Walks of a session's subscriptions through what is retained.
//!
//! Most sessions subscribe when they begin and never again: between scans there is no room for any.
//! Some have thousands at once, so that none is looked for among all.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::ops::{Range, RangeInclusive};
use std::sync::Arc;
use std::time::Instant;

use crate::ids::ShardId;
use crate::message::Message;
use crate::seldom::Seldom;
use crate::subscriptions::Grant;

/// Retained messages still to be sent for subscriptions, in the order these were made, which is
/// that of the tokens.
#[derive(Debug, Default)]
pub(crate) struct Scans(Seldom<Line>);

#[derive(Debug, Default)]
struct Line {
    by_token: BTreeMap<u64, Box<RetainedScan>>,
    /// The same. One filter has several if it was subscribed to again.
    by_filter: BTreeSet<(Arc<str>, u64)>,
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
    /// Live messages delivered meanwhile, by topic: an older retained copy is left out.
    pub(crate) overtaken: HashMap<Box<str>, Overtaken, foldhash::fast::FixedState>,
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
    /// The client has gone: what was found may not be retained any more when it comes back, so what
    /// was not sent is asked for again.
    pub(crate) fn forget_found(&mut self) {
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

/// The stamps of the newest live messages of a topic.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Overtaken {
    /// Of all.
    pub(crate) newest: Option<Instant>,
    /// Of those at QoS 1 and 2, which a lost connection does not take along.
    pub(crate) newest_kept: Option<Instant>,
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

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut RetainedScan> {
        self.range_mut(0..u64::MAX)
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
            overtaken: HashMap::default(),
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
            assert!(
                scans
                    .iter_mut()
                    .map(|scan| scan.token)
                    .eq(expected.iter().copied())
            );
            expected.retain(|token| (from..to).contains(token));
            assert_eq!(some, expected);
        }
    }
}
