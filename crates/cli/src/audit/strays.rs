//! What came and belongs to no lane that is judged, and must be named all the same: injected
//! messages, what was refused on the audit's topics, and stamps of another algorithm.

use std::collections::{BTreeMap, BTreeSet};

use unbroken_merkle_log::{Algorithm, LaneId};
use unbroken_mqtt_proto::Escaped;

use super::topics::Topics;

/// Pairs of a place and a sentence that are remembered; about 200 bytes each. All are counted.
const NAMED_MAX: usize = 1_024;
/// Lanes of another algorithm or key that are remembered; about 10 bytes each.
const LANES_MAX: usize = 65_536;

/// All of it.
#[derive(Debug, Default)]
pub(crate) struct Strays {
    /// How many times, by the place, which is a topic or a lane, and the sentence.
    named: BTreeMap<(String, String), u64>,
    /// Times beyond those.
    unnamed: u64,
    pub(crate) topics: Topics,
    /// Only some topics are listened to, and the audit's own of every lane.
    pub(crate) some_topics: bool,
    /// What was refused on the audit's topics of lanes that do not come here.
    pub(crate) elsewhere: u64,
    /// Lanes of another algorithm or key.
    others: BTreeSet<LaneId>,
    /// Messages with a stamp of another algorithm, and the first of them in words.
    foreign: Option<(u64, String)>,
}

impl Strays {
    /// So many times something came that should not have.
    pub(crate) fn add(&mut self, place: String, why: &str, times: u64) {
        let key = (place, why.to_owned());
        if self.named.len() < NAMED_MAX || self.named.contains_key(&key) {
            *self.named.entry(key).or_default() += times;
        } else {
            self.unnamed += times;
        }
    }

    /// Whether what comes to a topic of the audit tells of one of the lanes that come here. All of
    /// it does where all topics are listened to. `listed`: the lanes of a directory.
    pub(crate) fn concerns(
        &self,
        topic: &str,
        listed: &[LaneId],
        mut heard: impl Iterator<Item = LaneId>,
    ) -> bool {
        let mut levels = topic.rsplit('/');
        let name = levels.next().unwrap_or_default();
        match levels.next() {
            Some("checkpoint" | "drop") if self.some_topics => {
                heard.any(|lane| lane.to_string() == name)
            }
            Some("directory") if self.some_topics => heard.any(|lane| listed.contains(&lane)),
            _ => true,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.named.is_empty()
    }

    /// A sentence for each place and reason.
    pub(crate) fn sentences(&self) -> impl Iterator<Item = String> {
        let named = self.named.iter().map(|((place, why), times)| match times {
            1 => format!("{place}: {why}"),
            _ => format!("{place}: {why} ({times} times)"),
        });
        let unnamed = (self.unnamed > 0).then(|| {
            let times = self.unnamed;
            format!("{times} more messages that should not have come, on other topics")
        });
        named.chain(unnamed)
    }

    /// A lane has another algorithm or key.
    pub(crate) fn is_other(&self, lane: LaneId) -> bool {
        self.others.contains(&lane)
    }

    pub(crate) fn other(&mut self, lane: LaneId) {
        if self.others.len() < LANES_MAX {
            self.others.insert(lane);
        }
    }

    /// A message came with a stamp of another algorithm. Returns a sentence, if it is the first
    /// one of its lane.
    pub(crate) fn foreign(
        &mut self,
        topic: &str,
        lane: LaneId,
        (theirs, own): (Algorithm, Algorithm),
    ) -> Option<String> {
        let sentence = format!(
            "{}: not judged: a stamp of algorithm {theirs:?} for lane {lane}, and this listener's \
             is {own:?}",
            on(topic)
        );
        let (messages, _) = self.foreign.get_or_insert((0, sentence.clone()));
        *messages += 1;
        let is_news = !self.is_other(lane) && self.others.len() < LANES_MAX;
        self.other(lane);
        is_news.then_some(sentence)
    }

    /// Messages with a stamp of another algorithm.
    pub(crate) fn foreign_messages(&self) -> u64 {
        self.foreign.as_ref().map_or(0, |(messages, _)| *messages)
    }

    /// Why not all could be judged.
    pub(crate) fn unjudged(&self) -> impl Iterator<Item = String> {
        let foreign = self
            .foreign
            .as_ref()
            .map(|(messages, first)| match messages {
                1 => first.clone(),
                _ => format!("{first}; {messages} such messages in all"),
            });
        let is_full = self.topics.is_full().then(|| Topics::FULL.to_owned());
        foreign.into_iter().chain(is_full)
    }
}

/// A topic as a place.
pub(crate) fn on(topic: &str) -> String {
    format!("on {}", Escaped::new(topic))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_topic_and_reason_is_a_sentence() {
        let mut strays = Strays::default();
        assert!(strays.is_empty());
        for topic in ["a", "b", "a"] {
            strays.add(on(topic), "injected: it has no stamp", 1);
        }
        let sentences: Vec<_> = strays.sentences().collect();
        let why = "injected: it has no stamp";
        assert_eq!(
            sentences,
            [format!("on a: {why} (2 times)"), format!("on b: {why}")]
        );
        for number in 0..NAMED_MAX {
            strays.add(on("c"), &number.to_string(), 1);
        }
        let last = strays.sentences().last().unwrap();
        assert!(last.starts_with("2 more messages"), "{last}");
    }

    #[test]
    fn a_stamp_of_another_algorithm_is_named_once_for_a_lane_and_counted() {
        let mut strays = Strays::default();
        let lane = |id| LaneId::new(id).unwrap();
        let algorithms = (Algorithm::Blake3, Algorithm::Xxh3);
        let mut told = |id| strays.foreign("t", lane(id), algorithms).is_some();
        assert_eq!([7, 7, 8].map(&mut told), [true, false, true]);
        let unjudged: Vec<_> = strays.unjudged().collect();
        assert_eq!(unjudged.len(), 1);
        assert!(
            unjudged[0].ends_with("3 such messages in all"),
            "{unjudged:?}"
        );
        assert!(unjudged[0].starts_with("on t: not judged: a stamp of algorithm Blake3 for lane"));
    }
}
