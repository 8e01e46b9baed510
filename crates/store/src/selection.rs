//! Which topics a reader of a log wants.

use std::collections::HashSet;

use unbroken_mqtt_proto::{TopicFilter, TopicName};

/// Topics named one by one, and filters with wildcards. Shared subscriptions select by the filter
/// in them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    topics: HashSet<String>,
    filters: Vec<String>,
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
        if !filter.has_wildcard() {
            self.topics.insert(filter.as_str().to_owned());
        } else if !self.filters.iter().any(|known| known == filter.as_str()) {
            self.filters.push(filter.as_str().to_owned());
        }
    }

    /// Whether a message on this topic is wanted. For many topics, see [`Selection::matcher`].
    pub fn matches(&self, topic: &str) -> bool {
        self.matcher().matches(topic)
    }

    /// The selection, ready to look at many topics.
    pub fn matcher(&self) -> Matcher<'_> {
        Matcher {
            topics: &self.topics,
            filters: self.filters().collect(),
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

    /// Nothing is wanted.
    pub fn is_empty(&self) -> bool {
        self.topics.is_empty() && self.filters.is_empty()
    }
}

/// A [`Selection`] that looks at topics.
#[derive(Clone, Debug)]
pub struct Matcher<'a> {
    topics: &'a HashSet<String>,
    filters: Vec<TopicFilter<'a>>,
}

impl<'a> Matcher<'a> {
    /// Whether a message on this topic is wanted.
    pub fn matches(&self, topic: &str) -> bool {
        self.topics.contains(topic) || self.matches_by_wildcard(topic)
    }

    /// Everything is wanted, but for topics that begin with `$`.
    pub(crate) fn wants_all(&self) -> bool {
        self.filters.iter().any(|filter| filter.as_str() == "#")
    }

    pub(crate) fn matches_by_wildcard(&self, topic: &str) -> bool {
        let Ok(topic) = TopicName::parse(topic) else {
            return false;
        };
        self.filters.iter().any(|filter| filter.matches(topic))
    }

    pub(crate) fn topics(&self) -> impl Iterator<Item = &'a str> {
        self.topics.iter().map(String::as_str)
    }

    /// What the topics begin with that wildcards can match, none of them the beginning of another.
    pub(crate) fn prefixes(&self) -> impl Iterator<Item = &'a str> {
        let mut prefixes: Vec<&str> = self.filters.iter().map(|filter| prefix(*filter)).collect();
        prefixes.sort_unstable();
        prefixes.dedup_by(|longer, shorter| longer.starts_with(*shorter));
        prefixes.into_iter()
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
