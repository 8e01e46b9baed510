//! Questions about retained messages, and the tree of their topics.

use std::sync::Arc;
use std::time::{Duration, Instant};

use unbroken_broker_core::{Message, ShardId, TopicLevel, TopicLevels, WantedRetained};
use unbroken_mqtt_proto::{TopicFilter, TopicName};

use super::{BrokerHandle, HandleError, Within};
use crate::bounds::{HANDLE_PAGE, HANDLE_PAGES};
use crate::request::{Look, Request};

/// Retained messages, or a part of them. It is not a snapshot: a topic that has one throughout is
/// in it once.
#[derive(Clone, Debug)]
pub struct RetainedListing {
    /// In no particular order.
    pub messages: Vec<Arc<Message>>,
    /// Where the next part begins; `None` after the last.
    pub next: Option<RetainedCursor>,
}

/// Where a part of the retained messages begins; the default is the beginning.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct RetainedCursor {
    /// The shard that is asked.
    pub shard: u8,
    /// Behind this topic of it.
    pub after: Option<Box<str>>,
}

impl BrokerHandle {
    /// Some of the retained messages; none if the filter is not valid.
    pub fn retained(
        &self,
        wanted: &WantedRetained,
        mut from: RetainedCursor,
        within: Within,
    ) -> Result<RetainedListing, HandleError> {
        let deadline = Instant::now() + within.timeout;
        let most = within.entries.max(1);
        let (mut messages, mut pages) = (Vec::new(), 0);
        while from.shard < self.requests.shards() && messages.len() < most && pages < HANDLE_PAGES {
            pages += 1;
            let (wanted, after) = (wanted.clone(), from.after.take());
            let most = HANDLE_PAGE.min(most - messages.len());
            let left = deadline.saturating_duration_since(Instant::now());
            let page = self.requests.ask(ShardId(from.shard), left, |answer| {
                Request::Look(Look::new(answer, move |shard| {
                    shard.retained(&wanted, after.as_deref(), most)
                }))
            })?;
            messages.extend(page.messages);
            from.after = page.next;
            from.shard += u8::from(from.after.is_none());
        }
        let next = (from.shard < self.requests.shards()).then_some(from);
        Ok(RetainedListing { messages, next })
    }

    /// The retained message of a topic.
    pub fn retained_message(
        &self,
        topic: &str,
        timeout: Duration,
    ) -> Result<Option<Arc<Message>>, HandleError> {
        let topic: Arc<str> = topic.into();
        self.ask_each(timeout, move |shard| shard.retained_message(&topic))
    }

    /// Levels of the tree of topics with retained messages, in the order of their names: those
    /// right beneath `parent`, or the first levels, behind the level `after`.
    pub fn topic_levels(
        &self,
        parent: Option<&str>,
        after: Option<&str>,
        within: Within,
    ) -> Result<TopicLevels, HandleError> {
        let most = within.entries.clamp(1, HANDLE_PAGE);
        let (parent, after): (Option<Arc<str>>, Option<Arc<str>>) =
            (parent.map(Into::into), after.map(Into::into));
        let pages = self.requests.ask_all(within.timeout, |answer| {
            let (parent, after) = (parent.clone(), after.clone());
            Request::Look(Look::new(answer, move |shard| {
                shard.topic_levels(parent.as_deref(), after.as_deref(), most)
            }))
        })?;
        Ok(merged(pages, most))
    }
}

/// Whether a message may have this topic.
pub fn is_topic(text: &str) -> bool {
    TopicName::parse(text).is_ok()
}

/// Whether this is a topic filter, of no shared subscription.
pub fn is_filter(text: &str) -> bool {
    TopicFilter::parse(text).is_ok()
}

/// The first levels of all shards together.
fn merged(pages: Vec<TopicLevels>, most: usize) -> TopicLevels {
    // Behind the last level of a page that has more, another shard's may not be known.
    let unfinished = pages.iter().filter(|page| page.has_more);
    let last = unfinished.filter_map(|page| page.levels.last());
    let known_to = last.map(|level| level.name.clone()).min();
    let mut levels: Vec<TopicLevel> = pages.into_iter().flat_map(|page| page.levels).collect();
    levels.sort_by(|one, other| one.name.cmp(&other.name));
    levels.dedup_by(|next, kept| {
        let is_same = next.name == kept.name;
        if is_same {
            kept.has_beneath |= next.has_beneath;
            kept.message = kept.message.take().or_else(|| next.message.take());
        }
        is_same
    });
    let is_known = |level: &TopicLevel| known_to.as_ref().is_none_or(|last| level.name <= *last);
    let known = levels
        .iter()
        .take_while(|level| is_known(level))
        .count()
        .min(most);
    let has_more = known < levels.len() || known_to.is_some();
    levels.truncate(known);
    TopicLevels { levels, has_more }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(names: &[&str], has_more: bool) -> TopicLevels {
        let level = |name: &&str| TopicLevel {
            name: (*name).into(),
            message: None,
            has_beneath: false,
        };
        TopicLevels {
            levels: names.iter().map(level).collect(),
            has_more,
        }
    }

    #[test]
    fn levels_of_shards_are_merged_as_far_as_all_are_known() {
        for (pages, most, expected, more) in [
            (
                vec![page(&["a", "c"], false), page(&["b"], false)],
                9,
                vec!["a", "b", "c"],
                false,
            ),
            (
                vec![page(&["a", "c"], true), page(&["b", "d"], false)],
                9,
                vec!["a", "b", "c"],
                true,
            ),
            (
                vec![page(&["a", "b"], true), page(&["a", "b"], true)],
                2,
                vec!["a", "b"],
                true,
            ),
            (
                vec![page(&["a", "b"], false), page(&["c"], false)],
                2,
                vec!["a", "b"],
                true,
            ),
            (vec![page(&[], false)], 2, vec![], false),
        ] {
            let all = merged(pages, most);
            let names: Vec<_> = all.levels.iter().map(|level| &*level.name).collect();
            assert_eq!((names, all.has_more), (expected, more));
        }
    }
}
