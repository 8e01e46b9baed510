//! What somebody who only listens can say of the lanes that pass: a value that takes what an
//! audited subscriber delivers, and gives what became known; beside it what the broker says.
//!
//! It asks nobody for anything, so a message that is lost here is named and not repaired. It joins
//! each lane where it happens to be, and claims nothing of what came before the next window.
//!
//! **Absent:** lanes of another algorithm or key than the observer's, which are named and left
//! alone; the stamps of the messages that a processor made its output from, which the processor's
//! consumer checks.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::Duration;

use unbroken_client::audit::{Delivery, NoStamp};
use unbroken_demo::{Contradiction, Doubt};
use unbroken_merkle_log::ledger::{Event, Moved, Presence, State, Verdict};
use unbroken_merkle_log::{Checkpoint, Digest as _, Epoch, Hash, Hasher, LaneId, Property};

use super::broker_side::{BrokerSide, MAY_BE_FORGED};
use super::proof_file::ProofFile;
use super::topics::Topics;
use super::watched::{Fault, Watched};

/// After so long every producer that is connected has sent a checkpoint: twice the time between two
/// of an idle one.
const EVERY_LANE_SPOKE: Duration = Duration::from_secs(20);
/// An epoch of a lane.
pub(crate) type LaneKey = (LaneId, Epoch);

/// What is known of all lanes.
#[derive(Debug)]
pub(crate) struct Observer {
    hasher: Hasher,
    /// What the broker says of itself.
    pub(crate) broker: BrokerSide,
    lanes: BTreeMap<LaneKey, Watched>,
    news: Vec<News>,
    /// Messages without a stamp, or with one that cannot be judged here.
    pub(crate) not_audited: u64,
    /// Every lane that comes must be in a directory.
    all_lanes: bool,
    topics: Topics,
    /// Faults of no lane: messages whose stamps name none.
    strays: u64,
    /// Lanes whose producers have another key or algorithm, in words.
    pub(crate) other_keys: Vec<String>,
    /// Lanes that are to come and of which there was no sign yet.
    awaited: BTreeSet<LaneId>,
    /// The time since the beginning, as far as it was told.
    now: Duration,
}

/// What became known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum News {
    Fault(LaneKey, Fault),
    /// A message that belongs to no lane and should.
    Stray {
        topic: String,
        why: String,
    },
    /// They will not come, and that is no fault: why, and by whom.
    Dropped {
        lane: LaneKey,
        numbers: Range<u64>,
        reason: String,
        by_broker: bool,
    },
    /// A late message, while others are missing. What moved is a fault when they have come.
    Overtaken {
        lane: LaneKey,
        number: u64,
        by: u64,
    },
    /// Something is in doubt, or is no longer. No fault: messages may be late, and a producer that
    /// is gone without a word may come back.
    Doubt(LaneKey, Doubt),
    /// These were lost long ago, and there is no room to remember them: a copy that still comes
    /// will be called a duplicate.
    Forgotten(LaneKey, Range<u64>),
    /// An expected lane is not there, or is.
    Expected(LaneId, Presence),
    /// Nothing can be said of a lane, and why.
    OtherKey(String),
    Window {
        lane: LaneKey,
        numbers: Range<u64>,
        state: State,
        /// Its root, and that of the lane to its end, as the producer's checkpoint has them.
        roots: Option<(Hash, Hash)>,
    },
}

impl Observer {
    /// For lanes of this algorithm and key.
    pub(crate) fn new(hasher: Hasher) -> Self {
        Self {
            hasher,
            broker: BrokerSide::default(),
            lanes: BTreeMap::new(),
            news: Vec::new(),
            not_audited: 0,
            all_lanes: false,
            topics: Topics::default(),
            strays: 0,
            other_keys: Vec::new(),
            awaited: BTreeSet::new(),
            now: Duration::ZERO,
        }
    }

    /// These lanes are to come.
    pub(crate) fn expect(&mut self, lanes: &[LaneId]) {
        self.awaited.extend(lanes);
        for lane in lanes {
            self.broker.hear(*lane);
        }
    }

    /// Every lane that comes must be in a directory.
    pub(crate) fn expect_only_listed(&mut self) {
        self.all_lanes = true;
    }

    /// Lanes that were to come and of which there was no sign.
    pub(crate) fn unheard(&self) -> impl Iterator<Item = LaneId> {
        self.awaited.iter().copied()
    }

    /// Takes whatever was delivered.
    pub(crate) fn take(&mut self, delivery: &Delivery, now: Duration) {
        self.pass(now);
        match delivery {
            Delivery::Message(message) => {
                let algorithm = self.hasher.algorithm();
                let property = message.property();
                let property = property.filter(|property| property.algorithm == algorithm);
                if let Some(property) = property.filter(|_| message.is_unjudged()) {
                    self.awaited.remove(&property.lane);
                }
                if let Some(why) = message.no_stamp() {
                    return self.without_stamp(message.topic(), why);
                }
                match (property, message.verdict()) {
                    // Of another algorithm, or of a lane for which there is no room.
                    (None, _) | (Some(_), Some(Verdict::NotAudited)) => self.not_audited += 1,
                    (Some(property), Some(verdict)) => {
                        let (topic, payload) = (message.topic(), message.payload());
                        self.message(topic, payload, *property, verdict, now);
                    }
                    // A copy that was kept for whoever comes later is judged by nobody.
                    (Some(_), None) => {}
                }
            }
            Delivery::Event { lane, epoch, event } => self.event((*lane, *epoch), event),
            Delivery::Checkpoint { checkpoint, .. } => self.checkpoint(checkpoint),
            Delivery::Dropped { record, by_broker } => {
                self.news
                    .extend(record.runs.iter().map(|run| News::Dropped {
                        lane: (record.lane, record.epoch),
                        numbers: run.numbers(),
                        reason: record.reason.to_string(),
                        by_broker: *by_broker,
                    }));
            }
            Delivery::Expected { lane, presence } => {
                match presence {
                    Presence::Come(_) => {
                        self.awaited.remove(lane);
                    }
                    Presence::Unannounced(_) if self.all_lanes => self.strays += 1,
                    Presence::Absent(_) | Presence::Unannounced(_) => {}
                }
                self.news.push(News::Expected(*lane, *presence));
            }
            Delivery::Refused { .. } => self.not_audited += 1,
            // Said once for a lane, of as many lanes as the subscriber remembers.
            Delivery::OtherKey { lane, why } => {
                self.awaited.remove(lane); // there is a sign of it
                self.other_keys.push(why.clone());
                self.news.push(News::OtherKey(why.clone()));
            }
            _ => {}
        }
    }

    /// Takes it that so much time has passed since the beginning.
    pub(crate) fn pass(&mut self, now: Duration) {
        self.now = now;
    }

    /// Whether only the holders of a key can make checkpoints that fit.
    pub(crate) fn has_key(&self) -> bool {
        self.hasher.algorithm().is_keyed()
    }

    /// How long a lane has been silent.
    pub(crate) fn silent_for(&self, watched: &Watched) -> Option<Duration> {
        watched.doubts.silent_for(self.now)
    }

    /// What is in doubt of a lane, in words.
    pub(crate) fn in_doubt(&self, watched: &Watched) -> Option<String> {
        watched.doubts.sentence(self.now)
    }

    /// What became known since the last call.
    pub(crate) fn take_news(&mut self) -> Vec<News> {
        std::mem::take(&mut self.news)
    }

    pub(crate) fn lanes(&self) -> impl Iterator<Item = (LaneKey, &Watched)> {
        self.lanes.iter().map(|(key, watched)| (*key, watched))
    }

    /// Whether anything was wrong, by what the messages prove or by what the broker says.
    pub(crate) fn found_faults(&self) -> bool {
        let mut lanes = self.lanes.values();
        lanes.any(|watched| watched.faults_named > 0)
            || self.strays > 0
            || self.broker.found_faults()
            || !self.awaited.is_empty()
    }

    /// Lanes of which something is out of scope although the listener was there: every producer
    /// that is connected speaks within 20 seconds.
    pub(crate) fn partly_judged(&self) -> impl Iterator<Item = (LaneKey, &Watched)> {
        let lanes = self.lanes();
        lanes.filter(|(_, watched)| {
            watched.doubts.out_of_scope() > 0 && watched.begun() >= EVERY_LANE_SPOKE
        })
    }

    /// Whether anything was judged from end to end: a message or a window here. What the broker
    /// says of its own lanes ends at the broker.
    pub(crate) fn has_judged(&self) -> bool {
        self.lanes.values().any(Watched::is_judged)
    }

    /// The proof of a message, once its window is proven and while it is remembered. Without a
    /// number: of the first that there is.
    pub(crate) fn proof(&self, lane: Option<LaneId>, number: Option<u64>) -> Option<ProofFile> {
        let lanes = self.lanes.iter();
        let mut wanted = lanes.filter(|((id, _), _)| lane.is_none_or(|lane| lane == *id));
        wanted.find_map(|(_, watched)| watched.proof(number, &self.hasher))
    }

    /// Why there is no proof of this message, or of any.
    pub(crate) fn why_no_proof(&self, lane: Option<LaneId>, number: Option<u64>) -> String {
        let mut lanes = self.lanes.iter();
        let heard = lanes.find(|((id, _), _)| lane.is_none_or(|lane| lane == *id));
        match heard {
            None => "no stamped message of the lane came".to_owned(),
            Some(((lane, _), watched)) => {
                format!("of lane {lane}: {}", watched.why_no_proof(number))
            }
        }
    }

    fn message(
        &mut self,
        topic: &str,
        payload: &[u8],
        property: Property,
        verdict: Verdict,
        now: Duration,
    ) {
        let lane = (property.lane, property.epoch);
        let number = property.sequence;
        let unstamped = self.topics.stamped(topic);
        if unstamped > 0 {
            self.strays += unstamped;
            let why = format!("{unstamped} came without a stamp before the first one that has one");
            self.stray(topic, why);
        }
        let watched = self.watched(lane);
        let verdict = watched.refine(verdict, &property);
        watched.take_message(topic, payload, property, verdict, now);
        let is_copied = watched.shows_two_producers(verdict);
        if let Some((kind, reason)) = told(verdict) {
            self.fault(lane, number..number + 1, kind, reason.to_owned());
        }
        if is_copied {
            self.contradiction(lane, Contradiction::TwoProducers);
        }
    }

    /// What is known of this epoch of a lane, of which a sign has come.
    fn watched(&mut self, lane: LaneKey) -> &mut Watched {
        self.awaited.remove(&lane.0);
        self.broker.hear(lane.0);
        let begun = self.now;
        self.lanes
            .entry(lane)
            .or_insert_with(|| Watched::new(begun))
    }

    fn without_stamp(&mut self, topic: &str, why: NoStamp) {
        let why = match why {
            NoStamp::Absent if !self.topics.unstamped(topic) => {
                self.not_audited += 1;
                return;
            }
            NoStamp::Absent => "it has no stamp, and others on this topic have one".to_owned(),
            why => why.to_string(),
        };
        self.strays += 1;
        self.stray(topic, why);
    }

    fn stray(&mut self, topic: &str, why: String) {
        let topic = topic.to_owned();
        self.news.push(News::Stray { topic, why });
    }

    fn checkpoint(&mut self, checkpoint: &Checkpoint) {
        let watched = self.watched((checkpoint.lane, checkpoint.epoch));
        watched.take_checkpoint(checkpoint);
    }

    fn event(&mut self, lane: LaneKey, event: &Event) {
        match event {
            Event::Lost { numbers, tail } => {
                let reason = if *tail {
                    "only a checkpoint tells of it, and no drop record: the end was cut off"
                } else {
                    "it was issued and did not come, and no drop record names it"
                };
                let reason = if self.has_key() {
                    reason.to_owned()
                } else {
                    format!("{reason}; {MAY_BE_FORGED}")
                };
                self.fault(lane, numbers.clone(), "lost", reason);
            }
            Event::Moved(Moved {
                numbers,
                displacement,
            }) => {
                let when = if *displacement < 0 { "early" } else { "late" };
                let places = displacement.unsigned_abs();
                let reason = format!("it came {places} places too {when}");
                self.fault(lane, numbers.clone(), "reordered", reason);
            }
            Event::Overtaken { number, by } => self.news.push(News::Overtaken {
                lane,
                number: *number,
                by: *by,
            }),
            Event::Injected { number, copies } => {
                let reason = format!("{copies} came under its number that were not the real one");
                self.fault(lane, *number..*number + 1, "injected", reason);
            }
            Event::Forged(numbers) => {
                let reason = "it fits its stamp, and the producer issued another".to_owned();
                self.fault(lane, numbers.clone(), "forged", reason);
            }
            Event::RootDiffers(numbers) => {
                let reason = format!(
                    "at least one of these {} was forged with its stamp: all fit, and their root \
                     is not the producer's",
                    numbers.end - numbers.start
                );
                self.fault(lane, numbers.clone(), "root differs", reason);
            }
            Event::Window { numbers, state, .. } => self.window(lane, numbers.clone(), *state),
            Event::Forgotten(numbers) => {
                let watched = self.watched(lane);
                watched.forgotten += numbers.end - numbers.start;
                self.news.push(News::Forgotten(lane, numbers.clone()));
            }
            other => {
                if let Some(doubt) = Doubt::of(other) {
                    self.doubt(lane, doubt);
                }
                if let Some(contradiction) = Contradiction::of(other) {
                    self.contradiction(lane, contradiction);
                }
            }
        }
    }

    fn doubt(&mut self, lane: LaneKey, doubt: Doubt) {
        let now = self.now;
        let watched = self.watched(lane);
        watched.doubts.take(&doubt, now);
        if let Doubt::Suspected(numbers) = &doubt {
            watched.remember_neighbours(numbers);
        }
        self.news.push(News::Doubt(lane, doubt));
    }

    fn contradiction(&mut self, lane: LaneKey, contradiction: Contradiction) {
        let (numbers, kind) = match contradiction {
            Contradiction::End { number, .. } => (number..number + 1, "contradicted"),
            Contradiction::Checkpoint(_) => (0..0, "contradicted"),
            Contradiction::TwoProducers => (0..0, "two producers"),
        };
        self.fault(lane, numbers, kind, contradiction.to_string());
    }

    fn window(&mut self, lane: LaneKey, numbers: Range<u64>, state: State) {
        let roots = self.watched(lane).take_window(numbers.clone(), state);
        self.news.push(News::Window {
            lane,
            numbers,
            state,
            roots,
        });
    }

    fn fault(&mut self, lane: LaneKey, numbers: Range<u64>, kind: &'static str, reason: String) {
        let fault = Fault {
            numbers,
            kind,
            reason,
        };
        self.watched(lane).take_fault(&fault);
        self.news.push(News::Fault(lane, fault));
    }
}

/// The fault that a verdict names, if it does.
fn told(verdict: Verdict) -> Option<(&'static str, &'static str)> {
    Some(match verdict {
        Verdict::Duplicate => ("duplicated", "it had come before, the same in every byte"),
        Verdict::Repeated => (
            "repeated",
            "its number had come before; the content of the first is no longer known, so this one \
             may differ",
        ),
        Verdict::Conflict => (
            "conflict",
            "two different messages came under its number, and both fit their stamps: two producers \
             use the lane, or one of the two is forged",
        ),
        Verdict::Altered => ("altered", "topic or payload does not fit its stamp"),
        Verdict::Injected => (
            "injected",
            "a message came under its number that nobody issued",
        ),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use unbroken_merkle_log::{Key, Lane, LaneLimits};

    const SECOND: Duration = Duration::from_secs(1);

    /// A producer, and somebody who listens. Verdicts and events are the subscriber's.
    struct Scene {
        lane: Lane,
        observer: Observer,
    }

    impl Scene {
        fn new() -> Self {
            let id = LaneId::new(7).unwrap();
            Self {
                lane: Lane::new(id, Epoch(0), LaneLimits::default(), Duration::ZERO),
                observer: Observer::new(Hasher::xxh3()),
            }
        }

        fn key(&self) -> LaneKey {
            (self.lane.id(), self.lane.epoch())
        }

        fn hear(&mut self, payload: &[u8], verdict: Verdict) {
            let property = self.lane.issue(*b"t", payload, &Hasher::xxh3());
            self.observer
                .message("t", payload, property, verdict, SECOND);
        }

        /// A window and its checkpoint, which is due.
        fn close_window(&mut self, state: State) {
            let due = self.lane.checkpoint_due();
            let checkpoint = self.lane.poll_checkpoint(due, 0, &Hasher::xxh3()).unwrap();
            self.observer.checkpoint(&checkpoint);
            let key = self.key();
            let window = checkpoint.first..checkpoint.size;
            self.observer.window(key, window, state);
        }

        fn watched(&self) -> &Watched {
            self.observer.lanes().next().unwrap().1
        }
    }

    #[test]
    fn what_is_duplicated_altered_and_lost_is_named_with_its_reason() {
        let mut scene = Scene::new();
        scene.hear(b"a", Verdict::InOrder);
        scene.hear(b"b", Verdict::Duplicate);
        scene.hear(b"c", Verdict::Altered);
        let lost = Event::Lost {
            numbers: 3..5,
            tail: true,
        };
        let key = scene.key();
        scene.observer.event(key, &lost);
        scene.close_window(State::Faulty);
        let faults = scene.watched().faults.iter();
        let faults: Vec<_> = faults
            .map(|fault| (fault.numbers.clone(), fault.kind))
            .collect();
        let expect = [(1..2, "duplicated"), (2..3, "altered"), (3..5, "lost")];
        assert_eq!(faults, expect);
        assert!(
            scene.watched().faults[2]
                .reason
                .contains("the end was cut off")
        );
        assert!(scene.observer.found_faults());
        assert_eq!(scene.watched().first_bad(), Some(&(0..3, State::Faulty)));
    }

    #[test]
    fn what_came_before_the_first_whole_window_is_not_judged() {
        let mut scene = Scene::new();
        assert!(!scene.observer.has_judged());
        scene.hear(b"a", Verdict::OutOfScope);
        assert!(!scene.observer.has_judged());
        scene.hear(b"b", Verdict::InOrder);
        assert!(scene.observer.has_judged());
    }

    #[test]
    fn the_brokers_word_alone_is_no_judgement_from_end_to_end() {
        let mut scene = Scene::new();
        let observer = &mut scene.observer;
        let state = br#"{"epoch":1,"state":"proven","messages":3,"expected":3,"acknowledged":3}"#;
        observer.broker.take("$audit/0000000000000007/state", state);
        observer.broker.take("$SYS/audit/verdict", b"all is well");
        assert!(!observer.has_judged());
        assert!(observer.broker.has_judged());
    }

    #[test]
    fn a_loss_in_a_lane_without_a_key_may_be_forged() {
        for (hasher, may_be_forged) in [(Hasher::xxh3(), true), (keyed(), false)] {
            let mut scene = Scene::new();
            scene.observer = Observer::new(hasher);
            let key = scene.key();
            for tail in [true, false] {
                let numbers = 3..5;
                scene.observer.event(key, &Event::Lost { numbers, tail });
            }
            let mut faults = scene.watched().faults.iter();
            let is_said = |fault: &Fault| fault.reason.ends_with(MAY_BE_FORGED);
            assert!(faults.all(|fault| is_said(fault) == may_be_forged));
        }
    }

    fn keyed() -> Hasher {
        Hasher::blake3(&Key([7; 32]))
    }

    #[test]
    fn a_late_message_is_told_at_once_and_is_no_fault_yet() {
        let mut scene = Scene::new();
        let key = scene.key();
        let overtaken = Event::Overtaken { number: 5, by: 3 };
        scene.observer.event(key, &overtaken);
        let told = News::Overtaken {
            lane: key,
            number: 5,
            by: 3,
        };
        assert_eq!(scene.observer.take_news(), [told]);
        assert!(!scene.observer.found_faults());
    }

    #[test]
    fn the_neighbours_of_a_loss_are_known_behind_a_burst() {
        let mut scene = Scene::new();
        let key = scene.key();
        for number in 0..6_000_u32 {
            let payload = number.to_be_bytes();
            if number == 100 {
                scene.lane.issue(*b"t", payload, &Hasher::xxh3());
                continue;
            }
            let verdict = if number == 101 {
                Verdict::Ahead
            } else {
                Verdict::InOrder
            };
            scene.hear(&payload, verdict);
            if number == 101 {
                scene.observer.event(key, &Event::Suspected(100..101));
            }
        }
        let lost = |numbers| Event::Lost {
            numbers,
            tail: false,
        };
        scene.observer.event(key, &lost(100..101));
        let neighbours = |numbers: Range<u64>| {
            let (before, after) = scene.watched().neighbours(&numbers);
            (before.map(|it| it.number), after.map(|it| it.number))
        };
        assert_eq!(neighbours(100..101), (Some(99), Some(101)));
        // Nothing was noted of these, and what was near them is no longer remembered.
        assert_eq!(neighbours(2_000..2_001), (None, None));
        assert_eq!(neighbours(5_000..5_001), (Some(4_999), Some(5_001)));
    }

    #[test]
    fn a_repetition_is_compared_with_what_is_remembered() {
        let mut scene = Scene::new();
        scene.hear(b"a", Verdict::InOrder);
        scene.hear(b"b", Verdict::InOrder);
        let stamp = |number, payload: &[u8]| {
            let (lane, epoch) = (LaneId::new(7).unwrap(), Epoch(0));
            Property::stamp(&Hasher::xxh3(), lane, epoch, number, b"t", payload)
        };
        for (number, payload) in [(0, &b"a"[..]), (1, b"other"), (9, b"long gone")] {
            let property = stamp(number, payload);
            let verdict = Verdict::Repeated;
            scene
                .observer
                .message("t", payload, property, verdict, SECOND);
        }
        let faults = scene.watched().faults.iter();
        let faults: Vec<_> = faults.map(|fault| (fault.kind, &*fault.reason)).collect();
        assert_eq!(faults[0].1, "it had come before, the same in every byte");
        assert_eq!(faults[1].0, "conflict");
        assert!(
            faults[2]
                .1
                .contains("the content of the first is no longer known")
        );
    }

    #[test]
    fn a_lane_that_turns_up_late_and_out_of_scope_was_not_wholly_judged() {
        for (begun, is_whole) in [(SECOND * 3, true), (SECOND * 20, false)] {
            let mut scene = Scene::new();
            let key = scene.key();
            scene.observer.pass(begun);
            scene.hear(b"a", Verdict::OutOfScope);
            scene.observer.event(key, &Event::OutOfScope(1_024));
            assert_eq!(scene.observer.partly_judged().next().is_none(), is_whole);
        }
    }

    #[test]
    fn contradictions_are_faults_of_the_lane() {
        let mut scene = Scene::new();
        let key = scene.key();
        let end = Event::EndContradicted { size: 3, number: 5 };
        for event in [Event::CheckpointContradicts(4), end, Event::TwoProducers] {
            scene.observer.event(key, &event);
        }
        let faults = scene.watched().faults.iter();
        let faults: Vec<_> = faults
            .map(|fault| (fault.kind, fault.numbers.clone()))
            .collect();
        let expect = [
            ("contradicted", 0..0),
            ("contradicted", 5..6),
            ("two producers", 0..0),
        ];
        assert_eq!(faults, expect);
        assert!(scene.observer.found_faults());
    }

    #[test]
    fn what_is_forgotten_is_counted_and_told() {
        let mut scene = Scene::new();
        let key = scene.key();
        for numbers in [3..5, 9..10] {
            scene.observer.event(key, &Event::Forgotten(numbers));
        }
        assert_eq!(scene.watched().forgotten, 3);
        let told = [3..5, 9..10].map(|numbers| News::Forgotten(key, numbers));
        assert_eq!(scene.observer.take_news(), told);
    }

    #[test]
    fn what_may_be_missing_and_who_is_silent_is_told_with_its_end_and_is_no_fault() {
        let mut scene = Scene::new();
        let key = scene.key();
        let tell = |scene: &mut Scene, events: &[Event]| {
            for event in events {
                scene.observer.event(key, event);
            }
            scene.observer.take_news()
        };
        scene.observer.pass(SECOND * 3);
        let begun = [Event::Suspected(17..18), Event::Silent(SECOND * 2)];
        let expect = [Doubt::Suspected(17..18), Doubt::Silent(SECOND * 2)];
        assert_eq!(
            tell(&mut scene, &begun),
            expect.map(|doubt| News::Doubt(key, doubt))
        );
        scene.observer.pass(SECOND * 5);
        let in_doubt = |scene: &Scene| scene.observer.in_doubt(scene.watched());
        assert_eq!(
            in_doubt(&scene).as_deref(),
            Some("number 17 may be missing; no checkpoint for 4 s, its producer may be gone")
        );
        let ended = [Event::Settled, Event::Heard(SECOND * 4)];
        let expect = [Doubt::Settled, Doubt::Heard(SECOND * 4)];
        assert_eq!(
            tell(&mut scene, &ended),
            expect.map(|doubt| News::Doubt(key, doubt))
        );
        assert_eq!(in_doubt(&scene), None);
        assert!(!scene.observer.found_faults());
    }

    #[test]
    fn a_message_is_proven_to_the_root_of_its_lane_which_is_in_the_news() {
        let mut scene = Scene::new();
        for number in 0..1_024 + 10_u32 {
            scene.hear(&number.to_be_bytes(), Verdict::InOrder);
            if number == 5 {
                assert_eq!(scene.observer.proof(None, None), None);
            }
            if number == 1_023 {
                scene.close_window(State::Proven);
            }
        }
        scene.close_window(State::Proven);
        let roots: Vec<_> = scene
            .observer
            .take_news()
            .into_iter()
            .filter_map(|news| match news {
                News::Window { roots, .. } => roots,
                _ => None,
            })
            .collect();
        for (number, window) in [(4, 0), (1_023, 0), (1_024, 1), (1_033, 1)] {
            let proof = scene.observer.proof(LaneId::new(7), Some(number)).unwrap();
            let (window_root, lane_root) = roots[window];
            for root in [window_root, lane_root] {
                let proven = proof.verify(Some(root), None).unwrap();
                assert_eq!(proven.property.sequence, number);
                assert!(proven.leads_to_lane);
            }
        }
        assert_eq!(scene.observer.proof(LaneId::new(8), Some(4)), None);
        assert_eq!(scene.observer.proof(None, Some(1_034)), None);
    }

    #[test]
    fn a_message_of_a_lane_that_was_there_before_is_proven_to_the_root_of_its_window() {
        let mut scene = Scene::new();
        for number in 0..1_024_u32 {
            let payload = number.to_be_bytes();
            scene.lane.issue(*b"t", payload, &Hasher::xxh3());
        }
        let earlier = scene.lane.poll_checkpoint(SECOND, 0, &Hasher::xxh3());
        assert!(earlier.is_some());
        scene.hear(b"a", Verdict::InOrder);
        scene.hear(b"b", Verdict::InOrder);
        let last = scene.lane.clone().close(0, &Hasher::xxh3()).unwrap();
        scene.observer.checkpoint(&last);
        let proof = scene.observer.proof(None, None).unwrap();
        assert!(
            !proof
                .verify(Some(last.window_root), None)
                .unwrap()
                .leads_to_lane
        );
        assert!(proof.verify(Some(last.lane_root), None).is_err());
    }
}
