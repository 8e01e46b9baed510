//! The retained index beside its reference model: all topics, each asked in turn.

use std::collections::BTreeMap;

use unbroken_mqtt_proto::{TopicFilter, TopicName};

use super::index::RetainedIndex;

/// Small, fast, and the same everywhere (xorshift64).
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        u32::try_from((self.0 >> 33) % u64::from(limit)).unwrap()
    }

    fn levels(&mut self, words: &[&str]) -> String {
        let mut pick = || words[self.below(u32::try_from(words.len()).unwrap()) as usize];
        let mut text = pick().to_owned();
        for _ in 0..self.below(5) {
            let word = words[self.below(u32::try_from(words.len()).unwrap()) as usize];
            text.push('/');
            text.push_str(word);
        }
        text
    }

    fn topic(&mut self) -> String {
        loop {
            // `-` and U+0001 sort below `/`, which is where an order by bytes goes wrong.
            let text = self.levels(&["a", "b", "", "a-", "a\u{1}", "$", "$a", "é"]);
            if TopicName::parse(&text).is_ok() {
                return text;
            }
        }
    }

    fn filter(&mut self) -> String {
        loop {
            let text = self.levels(&[
                "a", "b", "", "a-", "a\u{1}", "$", "$a", "é", "+", "+", "+", "#",
            ]);
            if TopicFilter::parse(&text).is_ok() {
                return text;
            }
        }
    }
}

fn topic(text: &str) -> TopicName<'_> {
    TopicName::parse(text).unwrap()
}

fn filter(text: &str) -> TopicFilter<'_> {
    TopicFilter::parse(text).unwrap()
}

/// Values are the topics themselves, so that the order of an answer can be checked.
fn in_pieces(index: &RetainedIndex<String>, filter: TopicFilter<'_>, max: usize) -> Vec<String> {
    let mut found = Vec::new();
    let mut after: Option<Box<str>> = None;
    loop {
        let before = found.len();
        let scanned = index.scan(filter, after.as_deref(), max, |value| {
            found.push(value.clone());
            true
        });
        after = scanned.next;
        assert!(found.len() - before <= max, "a piece has at most {max}");
        if after.is_none() {
            return found;
        }
    }
}

// [MQTT-3.3.1-9] finds the messages; [MQTT-4.7.1-1] [MQTT-4.7.2-1] [MQTT-4.7.3-4] say which
#[test]
fn the_retained_index_agrees_with_a_list_of_topics() {
    let mut cases = 0;
    for seed in 1..=SEEDS {
        let mut dice = Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        let mut index = RetainedIndex::default();
        // In the same order: level by level.
        let mut naive: BTreeMap<Vec<String>, String> = BTreeMap::new();
        let wanted = 1 << (seed % 10);
        for step in 0..400 {
            let text = dice.topic();
            let levels: Vec<_> = text.split('/').map(str::to_owned).collect();
            let context = || format!("seed {seed}, step {step}, topic {text:?}");
            if naive.len() < wanted || dice.below(2) == 0 {
                let old = index.set(topic(&text), text.clone());
                assert_eq!(old, naive.insert(levels, text.clone()), "{}", context());
            } else {
                assert_eq!(
                    index.remove(topic(&text)),
                    naive.remove(&levels),
                    "{}",
                    context()
                );
            }
            assert_eq!(index.len(), naive.len(), "{}", context());
            let asked = dice.topic();
            let known =
                naive.contains_key(&asked.split('/').map(str::to_owned).collect::<Vec<_>>());
            assert_eq!(index.get(topic(&asked)).is_some(), known, "{}", context());

            let wanted = dice.filter();
            let wanted = filter(&wanted);
            let expected: Vec<_> = naive
                .values()
                .filter(|text| wanted.matches(topic(text)))
                .cloned()
                .collect();
            cases += naive.len();
            let context = || format!("seed {seed}, step {step}, filter {wanted:?}");
            let at_once = in_pieces(&index, wanted, usize::MAX);
            assert_eq!(at_once, expected, "{}", context());
            let max = 1 + dice.below(4) as usize;
            assert_eq!(in_pieces(&index, wanted, max), expected, "{}", context());
        }
    }
    assert!(cases >= 1_000_000, "only {cases} pairs of filter and topic");
}

const SEEDS: u64 = 120;

/// A level, its value, and whether there is something beneath.
type Child = (String, Option<String>, bool);

fn children(index: &RetainedIndex<String>, parent: Option<&str>, max: usize) -> Vec<Child> {
    let mut found: Vec<Child> = Vec::new();
    loop {
        let after = found.last().map(|(level, ..)| level.clone());
        let before = found.len();
        let has_more = index.children(parent, after.as_deref(), max, |level, value, beneath| {
            found.push((level.to_owned(), value.cloned(), beneath));
        });
        assert!(found.len() - before <= max, "a page has at most {max}");
        if !has_more {
            return found;
        }
    }
}

#[test]
fn the_levels_of_the_tree_are_those_of_a_list_of_topics() {
    for seed in 1..=SEEDS {
        let mut dice = Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        let mut index = RetainedIndex::default();
        let topics: Vec<_> = (0..40).map(|_| dice.topic()).collect();
        for text in &topics {
            index.set(topic(text), text.clone());
        }
        let parents = topics.iter().map(|text| Some(text.as_str()));
        for parent in parents.chain([None, Some("none")]) {
            let prefix = parent.map(|parent| format!("{parent}/"));
            let mut naive: BTreeMap<String, (Option<String>, bool)> = BTreeMap::new();
            for text in &topics {
                let prefix = prefix.as_deref().unwrap_or_default();
                let Some(beneath) = text.strip_prefix(prefix) else {
                    continue;
                };
                let (level, deeper) = beneath
                    .split_once('/')
                    .map_or((beneath, false), |(level, _)| (level, true));
                let child = naive.entry(level.to_owned()).or_default();
                if deeper {
                    child.1 = true;
                } else {
                    child.0 = Some(text.clone());
                }
            }
            let naive: Vec<_> = naive
                .into_iter()
                .map(|(name, (v, b))| (name, v, b))
                .collect();
            for max in [1, 2, 100] {
                assert_eq!(
                    children(&index, parent, max),
                    naive,
                    "{parent:?} of {topics:?}"
                );
            }
        }
    }
}

#[test]
fn a_piece_ends_although_nothing_matches() {
    let mut index = RetainedIndex::default();
    for n in 0..10_000 {
        index.set(topic(&format!("site/{n}/state")), n);
    }
    let mut pieces = 1;
    let scan = |after: Option<&str>| {
        let absent = filter("+/+/absent");
        index.scan(absent, after, 10, |n| panic!("{n} does not match"))
    };
    let mut scanned = scan(None);
    let mut steps = scanned.steps;
    while let Some(place) = scanned.next {
        pieces += 1;
        scanned = scan(Some(&place));
        steps += scanned.steps;
    }
    assert!(steps >= 10_000, "{steps} steps for ten thousand topics");
    assert!(pieces > 2, "{pieces} pieces for ten thousand topics");
}

#[test]
fn what_stays_is_in_a_piecewise_answer_once_whatever_comes_and_goes() {
    let mut index = RetainedIndex::default();
    for n in 0..100 {
        index.set(topic(&format!("stays/{n}")), format!("stays/{n}"));
    }
    let mut found = Vec::new();
    let mut after: Option<Box<str>> = None;
    for n in 0.. {
        let scanned = index.scan(filter("stays/#"), after.as_deref(), 7, |value| {
            found.push(value.clone());
            true
        });
        after = scanned.next;
        let Some(place) = &after else { break };
        let extra = format!("stays/{n}/guest");
        index.set(topic(&extra), extra.clone());
        if place.ends_with("/guest") {
            index.remove(topic(place));
        }
    }
    found.retain(|text| !text.ends_with("/guest"));
    assert_eq!(found.len(), 100);
    found.sort_unstable();
    found.dedup();
    assert_eq!(found.len(), 100);
}
