//! What a filter takes of the subscription tree, and of the walk of a topic through it.
//!
//! Each level of a filter is at most one node of the tree; filters with the same beginning share
//! it. A topic visits the nodes that its levels lead to, by their text and by `+`. A tree has at
//! most two ways on from a node, so the first [`FREE_LEVELS`] levels of it are at most 2,047
//! visited nodes whatever clients subscribe to. Without `+` there is one way. What is left are the
//! *deep* levels, which double where nothing bounds them: they are counted over the whole broker,
//! so a walk visits no more of them than the limit.

use memchr::memchr_iter;
use unbroken_mqtt_proto::{TopicFilter, TopicName};

use crate::limits::FREE_LEVELS;

/// Levels of one filter, or of several together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct FilterSize {
    /// All levels.
    pub(crate) levels: u32,
    /// Levels behind the first [`FREE_LEVELS`] of a filter with `+`.
    pub(crate) deep: u32,
}

impl FilterSize {
    pub(crate) fn of(filter: TopicFilter<'_>) -> Self {
        Self::of_checked(filter.as_str())
    }

    /// Of a filter as its client wrote it, `$share/…` or not, that was checked.
    pub(crate) fn of_text(text: &str) -> Self {
        let shared = text.strip_prefix("$share/");
        let behind_group = shared.and_then(|shared| shared.split_once('/'));
        Self::of_checked(behind_group.map_or(text, |(_, filter)| filter))
    }

    /// `+` is always a level of its own.
    fn of_checked(filter: &str) -> Self {
        let levels = levels_of(filter);
        let has_plus = filter.as_bytes().contains(&b'+');
        let deep = if has_plus { levels } else { 0 };
        Self {
            levels,
            deep: deep.saturating_sub(FREE_LEVELS),
        }
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.levels = self.levels.saturating_add(other.levels);
        self.deep = self.deep.saturating_add(other.deep);
    }

    pub(crate) fn subtract(&mut self, other: Self) {
        debug_assert!(
            self.levels >= other.levels && self.deep >= other.deep,
            "only what was added is taken off"
        );
        self.levels = self.levels.saturating_sub(other.levels);
        self.deep = self.deep.saturating_sub(other.deep);
    }
}

/// Whether a topic may visit deep levels.
pub(crate) fn is_deep(topic: TopicName<'_>) -> bool {
    levels_of(topic.as_str()) > FREE_LEVELS
}

/// Slashes are counted, which takes a tenth of the time of cutting at them.
fn levels_of(text: &str) -> u32 {
    let slashes = memchr_iter(b'/', text.as_bytes()).count();
    u32::try_from(slashes + 1).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_levels_that_a_topic_may_reach_by_many_ways_are_deep() {
        let check = |text: &str, levels, deep| {
            let size = FilterSize { levels, deep };
            assert_eq!(FilterSize::of_text(text), size, "{text}");
        };
        check("a", 1, 0);
        check("a/+/#", 3, 0);
        check("+/2/3/4/5/6/7/8/9/10", 10, 0);
        check("+/2/3/4/5/6/7/8/9/10/11/#", 12, 2);
        check("1/2/3/4/5/6/7/8/9/10/11/+", 12, 2);
        check("1/2/3/4/5/6/7/8/9/10/11/12", 12, 0);
        check("$share/g/+/2/3/4/5/6/7/8/9/10/11", 11, 1);
    }
}
