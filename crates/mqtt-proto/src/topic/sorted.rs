//! Which of many filters match a topic, found where the filters lie in order.
//!
//! ```text
//! topic a/b/c     a/ ──┬─ a/b/ ──┬─ a/b/c
//!                      │         └─ a/b/+      and of each beginning `…/#`;
//!                      └─ a/+/ ──┬─ a/+/c      each only if a filter begins with it
//!                                └─ a/+/+
//! ```
//!
//! The order is tree enough: filters that begin with the same levels lie beside each other. So a
//! sorted list needs no index beside it, and a topic costs a few questions for each beginning that
//! fits it, however many filters there are.
//!
//! Deliberately absent: the filters. Whoever keeps them answers the questions.

use super::TopicName;

/// Finds the filters that match a topic, each once, in an order that depends on nothing else.
/// `at_or_after` answers with the first filter, in the order of bytes, that is this text or comes
/// behind it, and with what is kept of it.
pub fn filters_on<'a, T>(
    topic: TopicName<'_>,
    at_or_after: impl Fn(&str) -> Option<(&'a str, T)>,
    mut found: impl FnMut(T),
) {
    let find = |text: &str| {
        let (filter, kept) = at_or_after(text)?;
        (filter == text).then_some(kept)
    };
    let mut text = String::with_capacity(topic.as_str().len() + "/#".len());
    let mut steps = Vec::new();
    // [MQTT-4.7.2-1] [MQTT311-4.7.2-1]: a leading wildcard does not reach the `$` topics.
    if !topic.is_dollar() {
        find("#").into_iter().for_each(&mut found);
        steps.push(Step::by_plus(0, topic.as_str()));
    }
    steps.push(Step::by_name(0, topic.as_str()));
    while let Some(step) = steps.pop() {
        let (level, rest) = match step.rest.split_once('/') {
            Some((level, rest)) => (level, Some(rest)),
            None => (step.rest, None),
        };
        text.truncate(step.begun);
        text.push_str(if step.by_name { level } else { "+" });
        if rest.is_none() {
            find(&text).into_iter().for_each(&mut found);
        }
        text.push('/');
        if !at_or_after(&text).is_some_and(|(next, _)| next.starts_with(&text)) {
            continue;
        }
        let begun = text.len();
        text.push('#'); // stands for its parent too: `a/#` matches `a`
        find(&text).into_iter().for_each(&mut found);
        if let Some(rest) = rest {
            steps.push(Step::by_plus(begun, rest));
            steps.push(Step::by_name(begun, rest));
        }
    }
}

/// A beginning of filters that is to go on with the next level of the topic.
struct Step<'t> {
    /// Bytes of the beginning, the slash included.
    begun: usize,
    /// The topic from that level on.
    rest: &'t str,
    /// With the level's own text, not `+`.
    by_name: bool,
}

impl<'t> Step<'t> {
    fn by_name(begun: usize, rest: &'t str) -> Self {
        Self {
            begun,
            rest,
            by_name: true,
        }
    }

    fn by_plus(begun: usize, rest: &'t str) -> Self {
        Self {
            begun,
            rest,
            by_name: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::collections::BTreeSet;
    use std::ops::Bound;

    use super::*;
    use crate::TopicFilter;

    /// What matches, and how many questions that took.
    fn on<'a>(filters: &'a BTreeSet<String>, topic: &str) -> (Vec<&'a str>, usize) {
        let asked = Cell::new(0);
        let mut found = Vec::new();
        let at_or_after = |text: &str| {
            asked.set(asked.get() + 1);
            let behind = (Bound::Included(text), Bound::Unbounded);
            let filter = filters.range::<str, _>(behind).next()?;
            Some((filter.as_str(), filter.as_str()))
        };
        let topic = TopicName::parse(topic).unwrap();
        filters_on(topic, at_or_after, |filter| found.push(filter));
        (found, asked.get())
    }

    #[test]
    fn it_finds_what_matches_one_by_one() {
        let levels = ["", "a", "b", "+", "a!", "a0", "$a"];
        let mut filters: BTreeSet<String> = ["#", "/#", "$a/#"].map(String::from).into();
        let mut topics: BTreeSet<String> = BTreeSet::new();
        for one in levels {
            for two in levels {
                for three in levels {
                    let texts = [one.to_owned(), format!("{one}/{two}")];
                    let texts = texts.into_iter().chain([format!("{one}/{two}/{three}")]);
                    for text in texts.filter(|text| !text.is_empty()) {
                        // Of each beginning some filters are left out.
                        if (text.len() + three.len()) % 3 > 0 {
                            filters.insert(format!("{text}/#"));
                        } else if two != "b" {
                            filters.insert(text.clone());
                        }
                        if !text.contains('+') {
                            topics.insert(text);
                        }
                    }
                }
            }
        }
        assert!(topics.len() > 200 && filters.len() > 200);
        for topic in &topics {
            let (mut found, _) = on(&filters, topic);
            found.sort_unstable();
            let name = TopicName::parse(topic).unwrap();
            let matches = |text: &&String| TopicFilter::parse(text).unwrap().matches(name);
            let expected: Vec<_> = filters.iter().filter(matches).collect();
            assert_eq!(found, expected, "{topic}");
        }
    }

    #[test]
    fn a_topic_asks_no_more_of_ten_thousand_filters_than_of_ten() {
        let many = |count: u32| -> BTreeSet<String> {
            let named = (0..count).map(|n| format!("site/{n}/state"));
            named
                .chain((0..count).map(|n| format!("site/{n}/+/#")))
                .collect()
        };
        let ask = |count| on(&many(count), "site/7/state/x").1;
        assert_eq!(ask(10_000), ask(10));
        assert!(ask(10_000) < 20);
    }

    #[test]
    fn a_topic_of_very_many_levels_is_no_harm() {
        let filters = ["+/#", "/+"].map(String::from).into();
        let (found, asked) = on(&filters, &"/".repeat(65_535));
        assert_eq!((found, asked < 20), (vec!["+/#"], true));
    }
}
