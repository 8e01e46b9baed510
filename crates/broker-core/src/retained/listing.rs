//! What an operator is shown of retained messages and of the tree of their topics.
//!
//! A page costs a bounded number of looks, however many messages there are, and holds no copies.

use std::sync::Arc;

use unbroken_mqtt_proto::TopicFilter;

use super::{Kept, Retained};
use crate::message::Message;

/// Which retained messages.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WantedRetained {
    /// Their topics match this filter. A wildcard in the first place matches no topic that begins
    /// with `$`.
    pub filter: Box<str>,
    /// Their topics contain this.
    pub search: Option<Box<str>>,
}

/// A part of a shard's retained messages, in the order of their topics.
#[derive(Clone, Default, Debug)]
pub struct RetainedPage {
    /// At most as many as were asked for.
    pub messages: Vec<Arc<Message>>,
    /// The topic to go on behind; `None`: that was all.
    pub next: Option<Box<str>>,
}

/// A level of the tree of topics with retained messages.
#[derive(Clone, Debug)]
pub struct TopicLevel {
    /// Its name.
    pub name: Box<str>,
    /// The retained message of the topic that ends here.
    pub message: Option<Arc<Message>>,
    /// Whether topics go on beneath.
    pub has_beneath: bool,
}

/// Levels with one parent, in the order of their names.
#[derive(Clone, Default, Debug)]
pub struct TopicLevels {
    /// At most as many as were asked for.
    pub levels: Vec<TopicLevel>,
    /// Whether there are more behind the last.
    pub has_more: bool,
}

impl Retained {
    /// The messages behind the topic `after`; none if the filter is not valid.
    pub(crate) fn page(
        &self,
        wanted: &WantedRetained,
        after: Option<&str>,
        most: usize,
    ) -> RetainedPage {
        let Ok(filter) = TopicFilter::parse(&wanted.filter) else {
            return RetainedPage::default();
        };
        let mut messages = Vec::new();
        let keep = |kept: &Kept| {
            let search = wanted.search.as_deref();
            let is_wanted = search.is_none_or(|part| kept.message.topic().contains(part));
            messages.extend(is_wanted.then(|| Arc::clone(&kept.message)));
            is_wanted
        };
        let next = self.messages.scan(filter, after, most.max(1), keep).next;
        RetainedPage { messages, next }
    }

    /// The levels right beneath a topic, or the first levels, behind the level `after`.
    pub(crate) fn levels(
        &self,
        parent: Option<&str>,
        after: Option<&str>,
        most: usize,
    ) -> TopicLevels {
        let mut levels = Vec::new();
        let keep = |name: &str, kept: Option<&Kept>, has_beneath| {
            levels.push(TopicLevel {
                name: name.into(),
                message: kept.map(|kept| Arc::clone(&kept.message)),
                has_beneath,
            });
        };
        let has_more = self.messages.children(parent, after, most, keep);
        TopicLevels { levels, has_more }
    }
}
