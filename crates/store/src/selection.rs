//! Which topics a reader of a log wants.

use std::collections::{BTreeSet, HashSet};
use std::ops::Bound;

use unbroken_mqtt_proto::topic::filters_on;
use unbroken_mqtt_proto::{TopicFilter, TopicName};

/// Topics named one by one, and filters with wildcards. Shared subscriptions select by the filter
/// in them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    topics: HashSet<String>,
    filters: BTreeSet<String>,
}

impl Selection {
    /// What these filters match together.
    pub fn new<'a>(filters: impl IntoIterator<Item = TopicFilter<'a>>) -> Self {
        let mut selection = Self::default();
        for filter in filters {
            selection.add(filter);
        }
        selection
    }

    /// Adds what a filter matches.
    pub fn add(&mut self, filter: TopicFilter<'_>) {
        if filter.has_wildcard() {
            self.filters.insert(filter.as_str().to_owned());
        } else {
            self.topics.insert(filter.as_str().to_owned());
        }
    }

    /// Whether a message on this topic is wanted. For many topics, see [`Selection::matcher`].
    pub fn matches(&self, topic: &str) -> bool {
        self.matcher().matches(topic)
    }

    /// The selection, ready to look at many topics.
    pub fn matcher(&self) -> Matcher<'_> {
        let mut prefixes: Vec<&str> = self.filters().map(prefix).collect();
        prefixes.sort_unstable();
        prefixes.dedup_by(|longer, shorter| longer.starts_with(*shorter));
        Matcher {
            selection: self,
            few: self.filters().take(FEW_MAX + 1).collect(),
            prefixes,
        }
    }

    /// The topics that are named.
    pub fn topics(&self) -> impl Iterator<Item = &str> {
        self.topics.iter().map(String::as_str)
    }

    /// The filters with wildcards.
    pub fn filters(&self) -> impl Iterator<Item = TopicFilter<'_>> {
        self.filters
            .iter()
            .filter_map(|filter| TopicFilter::parse(filter).ok())
    }

    /// How many topics and filters there are.
    pub fn len(&self) -> usize {
        self.topics.len() + self.filters.len()
    }

    /// Nothing is wanted.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A [`Selection`] that looks at topics.
#[derive(Clone, Debug)]
pub struct Matcher<'a> {
    selection: &'a Selection,
    /// The filters with wildcards, if there are few: to try each is then faster. Otherwise more.
    few: Vec<TopicFilter<'a>>,
    prefixes: Vec<&'a str>,
}

impl<'a> Matcher<'a> {
    /// Whether a message on this topic is wanted.
    pub fn matches(&self, topic: &str) -> bool {
        self.selection.topics.contains(topic) || self.matches_by_wildcard(topic)
    }

    /// How many topics and filters there are.
    pub(crate) fn len(&self) -> usize {
        self.selection.len()
    }

    /// Everything is wanted, but for topics that begin with `$`.
    pub(crate) fn wants_all(&self) -> bool {
        self.selection.filters.contains("#")
    }

    pub(crate) fn matches_by_wildcard(&self, topic: &str) -> bool {
        let Ok(topic) = TopicName::parse(topic) else {
            return false;
        };
        if self.few.len() <= FEW_MAX {
            return self.few.iter().any(|filter| filter.matches(topic));
        }
        let at_or_after = |text: &str| {
            let behind = (Bound::Included(text), Bound::Unbounded);
            let filter = self.selection.filters.range::<str, _>(behind).next()?;
            Some((filter.as_str(), ()))
        };
        let mut is_wanted = false;
        filters_on(topic, at_or_after, |()| is_wanted = true);
        is_wanted
    }

    pub(crate) fn topics(&self) -> impl Iterator<Item = &'a str> {
        self.selection.topics()
    }

    /// What the topics begin with that wildcards can match, none of them the beginning of another.
    pub(crate) fn prefixes(&self) -> impl Iterator<Item = &'a str> {
        self.prefixes.iter().copied()
    }
}

/// The part before the first wildcard; without the slash before `#`, which stands for its parent
/// too.
fn prefix(filter: TopicFilter<'_>) -> &str {
    let text = filter.as_str();
    let levels = text.split(['+', '#']).next().unwrap_or(text);
    if text.get(levels.len()..) == Some("#") {
        levels.strip_suffix('/').unwrap_or(levels)
    } else {
        levels
    }
}

/// Filters with wildcards that are tried one by one.
const FEW_MAX: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    fn select(filters: &[&str]) -> Selection {
        Selection::new(filters.iter().map(|text| TopicFilter::parse(text).unwrap()))
    }

    #[test]
    fn a_topic_is_wanted_by_name_or_by_wildcard() {
        let selection = select(&["a/b", "c/+/d", "e/#", "a/b"]);
        for wanted in ["a/b", "c/x/d", "c//d", "e", "e/f/g"] {
            assert!(selection.matches(wanted), "{wanted}");
        }
        for foreign in ["a", "a/b/c", "c/d", "c/x/y/d", "$SYS/e"] {
            assert!(!selection.matches(foreign), "{foreign}");
        }
        assert_eq!(selection.topics().count(), 1);
    }

    #[test]
    fn many_wildcards_match_what_each_of_them_does() {
        let filters: Vec<_> = (0..200)
            .flat_map(|n| [format!("a/{n}/+"), format!("+/{n}/x/#")])
            .collect();
        let filters: Vec<_> = filters.iter().map(String::as_str).collect();
        let selection = select(&filters);
        let matcher = selection.matcher();
        for topic in [
            "a/7/b",
            "b/7/x",
            "b/7/x/y/z",
            "a/7",
            "a/700/b",
            "b/7/y",
            "$a/7/x",
            "a",
        ] {
            let expected = selection
                .filters()
                .any(|filter| filter.matches(TopicName::parse(topic).unwrap()));
            assert_eq!(matcher.matches(topic), expected, "{topic}");
        }
    }

    #[test]
    fn nothing_is_wanted_by_an_empty_selection() {
        assert!(select(&[]).is_empty());
        assert!(!select(&[]).matches("a"));
    }

    #[test]
    fn what_wildcards_can_match_begins_with_one_of_the_prefixes() {
        for (filters, expected) in [
            (&["a/b"][..], &[][..]),
            (&["a/+", "a/b/#", "a/+/c", "b/x/#"], &["a/", "b/x"]),
            (&["a/#", "a/+"], &["a"]),
            (&["+/b", "a/#"], &[""]),
            (&["#"], &[""]),
            (&["/#"], &[""]),
        ] {
            let selection = select(filters);
            let prefixes: Vec<_> = selection.matcher().prefixes().collect();
            assert_eq!(prefixes, expected, "{filters:?}");
        }
    }
}
