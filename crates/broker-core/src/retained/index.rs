//! Retained messages of this shard's topics, found by topic or by filter.
//!
//! Invariants:
//! - Topics are in the order of their levels: `a`, then all of `a/…`, then `a-b`. What lies beneath
//!   a level is therefore one range, and a filter is answered by leaping from range to range.
//! - An answer can be taken in pieces. A topic that is there from the first piece to the last is in
//!   it once, whatever comes and goes between.
//!
//! Memory: about 70 bytes a topic, plus the topic and the value.
//!
//! Deliberately absent: bytes held, expiry and limits; the caller counts, looks and refuses.

use std::collections::BTreeMap;
use std::ops::Bound;

use smallvec::SmallVec;
use unbroken_mqtt_proto::{TopicFilter, TopicName};

/// The value of each topic that has one.
#[derive(Debug)]
pub(super) struct RetainedIndex<V> {
    /// By topic, with [`SEPARATOR`] for `/`: then the order of the bytes is that of the levels.
    by_key: BTreeMap<Box<[u8]>, V>,
}

impl<V> Default for RetainedIndex<V> {
    fn default() -> Self {
        Self {
            by_key: BTreeMap::new(),
        }
    }
}

impl<V> RetainedIndex<V> {
    /// Keeps a value and gives back the one it replaces.
    pub(super) fn set(&mut self, topic: TopicName<'_>, value: V) -> Option<V> {
        let key = key(topic.as_str());
        if let Some(held) = self.by_key.get_mut(&*key) {
            return Some(std::mem::replace(held, value));
        }
        self.by_key.insert(Box::from(&*key), value)
    }

    /// Forgets the value of a topic and gives it back.
    pub(super) fn remove(&mut self, topic: TopicName<'_>) -> Option<V> {
        self.by_key.remove(&*key(topic.as_str()))
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.by_key.len()
    }

    /// The value of a topic.
    pub(super) fn get(&self, topic: TopicName<'_>) -> Option<&V> {
        self.by_key.get(&*key(topic.as_str()))
    }

    // The scan. Each topic looked at is a match, or tells where the next candidate can be:
    //
    //   filter a/+/c, topics   a/1/b   too small in the last level: leap to  a/1/c
    //                          a/1/c   match
    //                          a/1/d   too large: leap over all of a/1
    //                          a/2     ends too early: leap to  a/2/c
    //                          b/…     no wildcard before the difference: end
    //
    // Most leaps are short, so the neighbour is tried before the tree is descended again; an answer
    // to `#` never descends twice.
    //
    /// Calls `f` for the matches behind the topic `after`, until it has taken `max` (at least 1).
    /// Looking ends after a bounded number of steps even if none of them is a match.
    #[must_use = "there may be more"]
    pub(super) fn scan(
        &self,
        filter: TopicFilter<'_>,
        after: Option<&str>,
        max: usize,
        mut f: impl FnMut(&V) -> bool,
    ) -> Scanned {
        let pattern = Pattern::new(filter);
        let mut target = pattern.first_candidate();
        if let Some(after) = after {
            let mut next = key(after);
            next.push(SEPARATOR);
            target = target.max(next);
        }
        let mut matches = 0;
        let mut steps = 0;
        let mut topics = self.topics_from(&target);
        let mut topic = topics.next();
        while let Some((key, value)) = topic {
            steps += 1 + key.len() / STEP_BYTES;
            match pattern.judge(key, &mut target) {
                Verdict::Match => {
                    matches += usize::from(f(value));
                    topic = topics.next();
                }
                Verdict::Leap => {
                    topic = topics.next();
                    if topic.is_some_and(|(key, _)| **key < *target) {
                        topics = self.topics_from(&target);
                        topic = topics.next();
                    }
                }
                Verdict::End => return Scanned { steps, next: None },
            }
            if (matches >= max || steps >= STEPS_MAX) && topic.is_some() {
                let next = Some(topic_of(key));
                return Scanned { steps, next };
            }
        }
        Scanned { steps, next: None }
    }

    /// The levels right beneath a topic, or the first levels of all topics, behind the level
    /// `after`, at most `max` of them: each with its value, and whether there are topics beneath.
    /// Answers whether there are more.
    pub(super) fn children(
        &self,
        parent: Option<&str>,
        after: Option<&str>,
        max: usize,
        mut f: impl FnMut(&str, Option<&V>, bool),
    ) -> bool {
        let mut prefix = parent.map(key).unwrap_or_default();
        if parent.is_some() {
            prefix.push(SEPARATOR);
        }
        let mut target = prefix.clone();
        if let Some(after) = after {
            let _ = leap_to(&mut target, &prefix, after.as_bytes());
            target.push(SEPARATOR + 1);
        }
        let mut found = 0;
        loop {
            let mut topics = self.topics_from(&target);
            let Some((key, value)) = topics.next() else {
                return false;
            };
            let Some(beneath) = key.strip_prefix(&*prefix) else {
                return false;
            };
            if found == max {
                return true;
            }
            let length = memchr::memchr(SEPARATOR, beneath);
            let level = &beneath[..length.unwrap_or(beneath.len())];
            let _ = leap_to(&mut target, &prefix, level);
            let value = length.is_none().then_some(value);
            target.push(SEPARATOR);
            let has_beneath = value.is_none()
                || topics
                    .next()
                    .is_some_and(|(key, _)| key.starts_with(&target));
            target.pop();
            target.push(SEPARATOR + 1);
            f(&topic_of(level), value, has_beneath);
            found += 1;
        }
    }

    fn topics_from(&self, target: &[u8]) -> std::collections::btree_map::Range<'_, Box<[u8]>, V> {
        self.by_key
            .range::<[u8], _>((Bound::Included(target), Bound::Unbounded))
    }
}

/// How far a scan has come.
#[derive(Debug)]
pub(super) struct Scanned {
    /// Topics looked at; a long one counts for several.
    pub(super) steps: usize,
    /// The topic to go on after, which need not be a match; `None`: that was all.
    pub(super) next: Option<Box<str>>,
}

/// A topic as it is ordered here.
type Key = SmallVec<[u8; KEY_INLINE]>;

/// A filter, cut into levels.
struct Pattern<'f> {
    levels: SmallVec<[&'f [u8]; 16]>,
}

/// What a topic says about a filter.
enum Verdict {
    /// It matches; the next one behind it may, too.
    Match,
    /// It does not, nor does any before the target.
    Leap,
    /// Neither it nor any behind it does.
    End,
}

impl<'f> Pattern<'f> {
    fn new(filter: TopicFilter<'f>) -> Self {
        Self {
            levels: filter.levels().map(str::as_bytes).collect(),
        }
    }

    /// Not behind any match: the levels before the first wildcard.
    fn first_candidate(&self) -> Key {
        let mut candidate = Key::new();
        for (depth, level) in self
            .levels
            .iter()
            .take_while(|level| !is_wildcard(level))
            .enumerate()
        {
            if depth > 0 {
                candidate.push(SEPARATOR);
            }
            candidate.extend_from_slice(level);
        }
        candidate
    }

    /// Compares level by level. On [`Verdict::Leap`] the target is behind `topic`.
    fn judge(&self, topic: &[u8], target: &mut Key) -> Verdict {
        // Neither `+` nor `#` in the first place matches `$…` [MQTT-4.7.2-1]. `%` follows `$`.
        if topic.first() == Some(&b'$')
            && self.levels.first().is_some_and(|level| is_wildcard(level))
        {
            return leap_to(target, b"%", b"");
        }
        // Where the last level ends that `+` stands for: behind all beneath it is the next chance.
        let mut plus_end = None;
        let mut rest = Some(topic);
        for wanted in &self.levels {
            if *wanted == b"#" {
                return Verdict::Match;
            }
            let Some(unread) = rest else {
                // It ends where the filter goes on.
                let wanted: &[u8] = if *wanted == b"+" { b"" } else { wanted };
                target.clear();
                target.extend_from_slice(topic);
                target.push(SEPARATOR);
                target.extend_from_slice(wanted);
                return Verdict::Leap;
            };
            let begin = topic.len() - unread.len();
            let length = memchr::memchr(SEPARATOR, unread).unwrap_or(unread.len());
            let (level, beneath) = unread.split_at(length);
            if *wanted == b"+" {
                plus_end = Some(begin + length);
            } else if level < *wanted {
                return leap_to(target, &topic[..begin], wanted);
            } else if level > *wanted {
                return leap_over(target, topic, plus_end);
            }
            rest = beneath.split_first().map(|(_, deeper)| deeper);
        }
        match rest {
            None => Verdict::Match,
            Some(_) => leap_over(target, topic, plus_end),
        }
    }
}

fn leap_to(target: &mut Key, parent: &[u8], level: &[u8]) -> Verdict {
    target.clear();
    target.extend_from_slice(parent);
    target.extend_from_slice(level);
    Verdict::Leap
}

/// Over everything beneath the levels that end at `plus_end`.
fn leap_over(target: &mut Key, topic: &[u8], plus_end: Option<usize>) -> Verdict {
    match plus_end {
        Some(end) => leap_to(target, &topic[..end], &[SEPARATOR + 1]),
        None => Verdict::End,
    }
}

fn is_wildcard(level: &[u8]) -> bool {
    matches!(level, b"+" | b"#")
}

fn key(topic: &str) -> Key {
    topic
        .bytes()
        .map(|byte| if byte == b'/' { SEPARATOR } else { byte })
        .collect()
}

fn topic_of(key: &[u8]) -> Box<str> {
    let bytes = key
        .iter()
        .map(|byte| if *byte == SEPARATOR { b'/' } else { *byte })
        .collect();
    String::from_utf8(bytes)
        .expect("a key is a topic with one ASCII letter for another")
        .into()
}

/// Sorts before everything a level may contain, and is the one letter that no topic has
/// [MQTT-4.7.3-2].
const SEPARATOR: u8 = 0;

/// Length of a topic that is looked up without allocating.
const KEY_INLINE: usize = 128;

/// Topics that a piece of an answer looks at: about a millisecond.
const STEPS_MAX: usize = 4_096;

/// Bytes of a topic that cost as much as another topic to look at.
const STEP_BYTES: usize = 64;
