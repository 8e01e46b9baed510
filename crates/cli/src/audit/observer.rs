//! What somebody who only listens can say of the lanes that pass: a value that takes what an
//! audited subscriber delivers, and gives what became known; beside it what the broker says.
//!
//! It sends no requests, so a message that is lost here is named and not repaired. It joins
//! each lane where it happens to be, and claims nothing of what came before the next window.
//!
//! **Absent:** lanes of another algorithm or key than the observer's, which are named and left
//! alone; the stamps of the messages that a processor made its output from, which the processor's
//! consumer checks.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::Duration;

use unbroken_client::audit::{Absence, AuditedMessage, Delivery, NoStamp};
use unbroken_demo::{Contradiction, Doubt};
use unbroken_merkle_log::ledger::{Event, Moved, Presence, State, Verdict};
use unbroken_merkle_log::{Checkpoint, Digest as _, EpochEnd, Hasher, LaneId, Property};

use super::away::Away;
use super::broker_side::{BrokerSide, MAY_BE_FORGED};
use super::declared::By;
use super::news::{Fault, LaneKey, News, Note, numbers as spelled, verdict_fault};
use super::proof_file::ProofFile;
use super::strays::{Strays, on};
use super::topics::Topics;
use super::wall::{Wall, date, span};
use super::watched::Watched;

/// After so long every producer that is connected has sent a checkpoint: twice the time between two
/// of an idle one.
const EVERY_LANE_SPOKE: Duration = Duration::from_secs(20);
/// The first checkpoint of an epoch follows its first message within one heartbeat, which is half
/// of this. So a listener that hears that checkpoint, and was there for so long, was there before
/// the epoch began.
const FIRST_CHECKPOINT: Duration = Duration::from_secs(2);
/// Epochs of lanes that are remembered for which there was no room; about 30 bytes each.
const NO_ROOM_MAX: usize = 1_024;

/// What is known of all lanes.
#[derive(Debug)]
pub(crate) struct Observer {
    hasher: Hasher,
    /// What the broker says of itself.
    pub(crate) broker: BrokerSide,
    lanes: BTreeMap<LaneKey, Watched>,
    news: Vec<News>,
    /// Messages without a stamp, on topics on which none has one.
    pub(crate) unstamped: u64,
    /// Retained copies, which are older than this listener's subscription.
    pub(crate) retained: u64,
    /// Messages of lanes for which there was no room, and some of these lanes.
    no_room: (u64, BTreeSet<LaneKey>),
    /// As many producers are known as may be, and directories of more came: how many are known.
    pub(crate) producers_max: Option<usize>,
    /// Every lane that comes must be in a directory.
    all_lanes: bool,
    /// The topics are some of those that the lanes go to.
    part: bool,
    pub(crate) strays: Strays,
    pub(crate) away: Away,
    pub(crate) wall: Wall,
    /// Lanes whose producers have another key or algorithm, in words.
    pub(crate) other_keys: Vec<String>,
    /// Lanes that are to come and of which there was no sign yet.
    awaited: BTreeSet<LaneId>,
    /// When it was subscribed.
    pub(crate) there_since: Duration,
    /// The time since the beginning, as of the last input.
    now: Duration,
}

impl Observer {
    /// For lanes of this algorithm and key.
    pub(crate) fn new(hasher: Hasher) -> Self {
        Self {
            hasher,
            broker: BrokerSide::default(),
            lanes: BTreeMap::new(),
            news: Vec::new(),
            unstamped: 0,
            retained: 0,
            no_room: (0, BTreeSet::new()),
            producers_max: None,
            all_lanes: false,
            part: false,
            strays: Strays::default(),
            away: Away::default(),
            wall: Wall::default(),
            other_keys: Vec::new(),
            awaited: BTreeSet::new(),
            there_since: Duration::ZERO,
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

    /// The topics are some of those that the lanes go to.
    pub(crate) fn expect_part(&mut self) {
        self.part = true;
        self.broker.expect_part();
    }

    /// It listens to these topics and no others.
    pub(crate) fn only_of(&mut self, topics: &[String]) {
        self.strays.some_topics = true;
        self.broker.only_of(topics);
    }

    /// Whether the topics are some of those that the lanes go to.
    pub(crate) fn hears_part(&self) -> bool {
        self.part
    }

    /// Lanes that were to come and of which there was no sign.
    pub(crate) fn unheard(&self) -> impl Iterator<Item = LaneId> {
        self.awaited.iter().copied()
    }

    /// Takes whatever was delivered; of a loss with the absence of this listener that explains it.
    pub(crate) fn take(&mut self, delivery: &Delivery, absence: Option<Absence>, now: Duration) {
        self.pass(now);
        match delivery {
            Delivery::Message(message) => self.audited(message),
            Delivery::Event { lane, epoch, event } => match event {
                Event::Lost { numbers, tail } => {
                    self.lost((*lane, *epoch), numbers, *tail, absence);
                }
                event => self.event((*lane, *epoch), event),
            },
            Delivery::InputContradicted {
                lane,
                epoch,
                number,
            } => self.contradiction((*lane, *epoch), Contradiction::Input(*number)),
            Delivery::Away(absence) => self.note("away", None, absence.to_string()),
            Delivery::Checkpoint { checkpoint, .. } => self.checkpoint(checkpoint),
            Delivery::Dropped { record, by_broker } => {
                let lane = (record.lane, record.epoch);
                let (by, reason) = (By::is_broker(*by_broker), record.reason.to_string());
                for run in &record.runs {
                    self.declared(lane, by, &reason, run.numbers());
                }
            }
            Delivery::Expected { lane, presence } => {
                match presence {
                    Presence::Come(_) => {
                        self.awaited.remove(lane);
                    }
                    Presence::Unannounced(_) if self.all_lanes => {
                        let why = "injected: its messages come, and no directory lists it";
                        self.strays.add(format!("lane {lane}"), why, 1);
                    }
                    Presence::Absent(_) | Presence::Unannounced(_) => {}
                }
                self.news.push(News::Expected(*lane, *presence));
            }
            Delivery::Refused { topic, why, lanes } => {
                let heard = self.lanes.keys().map(|key| key.0).chain(self.unheard());
                if self.strays.concerns(topic, lanes, heard) {
                    self.stray(topic, format!("refused: {why}"), 1);
                } else {
                    self.strays.elsewhere += 1;
                }
            }
            Delivery::NoRoom {
                lane,
                epoch,
                lanes_max,
            } => {
                let text = format!(
                    "not judged: this listener follows {lanes_max} epochs of lanes, and there is no \
                     room for this one: listen to fewer topics (-t)"
                );
                self.note("no room", Some((*lane, *epoch)), text);
            }
            Delivery::NoRoomForProducers { producers_max } => {
                self.producers_max = Some(*producers_max);
                self.note("no room", None, no_room_for_producers(*producers_max));
            }
            // Said once for a lane, of as many lanes as the subscriber remembers.
            Delivery::OtherKey { lane, why } => {
                self.awaited.remove(lane); // there is a sign of it
                self.strays.other(*lane);
                self.other_keys.push(why.clone());
                self.news.push(News::OtherKey(why.clone()));
            }
            _ => {}
        }
    }

    fn audited(&mut self, message: &AuditedMessage) {
        if message.received().is_retained() {
            self.retained += 1;
            return;
        }
        let property = message.property();
        if let Some(property) = property.filter(|_| message.is_unjudged()) {
            self.awaited.remove(&property.lane);
        }
        if let Some(why) = message.no_stamp() {
            return self.without_stamp(message.topic(), why);
        }
        let (Some(property), Some(verdict)) = (property, message.verdict()) else {
            return;
        };
        let algorithms = (property.algorithm, self.hasher.algorithm());
        if algorithms.0 != algorithms.1 {
            let news = self
                .strays
                .foreign(message.topic(), property.lane, algorithms);
            if let Some(text) = news {
                self.note("other algorithm", None, text);
            }
        } else if verdict == Verdict::NotAudited {
            let (messages, lanes) = &mut self.no_room;
            *messages += 1;
            if lanes.len() < NO_ROOM_MAX {
                lanes.insert((property.lane, property.epoch));
            }
        } else {
            let (topic, payload) = (message.topic(), message.payload());
            self.message(topic, payload, *property, verdict, self.now);
        }
    }

    /// The connection ended, or is there again.
    pub(crate) fn connection(&mut self, is_there: bool, now: Duration) {
        self.pass(now);
        let (what, sentence) = if is_there {
            ("connected", self.away.connected(now, self.wall))
        } else {
            ("disconnected", self.away.disconnected(now, self.wall))
        };
        if let Some(sentence) = sentence {
            self.note(what, None, sentence);
        }
    }

    /// The client dropped a message of QoS 0, since this listener was too slow.
    pub(crate) fn fell_behind(&mut self, now: Duration) {
        self.pass(now);
        if let Some(sentence) = self.away.behind(now, self.wall) {
            self.note("behind", None, sentence);
        }
    }

    fn declared(&mut self, lane: LaneKey, by: By, reason: &str, numbers: Range<u64>) {
        self.watched(lane).declared.take(by, reason, &numbers);
        self.news.push(News::Dropped {
            lane,
            numbers,
            reason: reason.to_owned(),
            by,
        });
    }

    fn note(&mut self, what: &'static str, lane: Option<LaneKey>, text: String) {
        self.news.push(News::Note(Note { what, lane, text }));
    }

    /// Takes it that so much time has passed since the beginning.
    pub(crate) fn pass(&mut self, now: Duration) {
        self.now = now;
    }

    /// The time since the beginning.
    pub(crate) fn now(&self) -> Duration {
        self.now
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
        lanes.any(|watched| watched.faults_of_others() > 0)
            || !self.strays.is_empty()
            || self.broker.found_faults()
            || !self.awaited.is_empty()
    }

    /// Lanes of which something is out of scope although the listener was there: every producer
    /// that is connected speaks within 20 seconds, and an epoch begins with its first checkpoint.
    pub(crate) fn partly_judged(&self) -> impl Iterator<Item = (LaneKey, &Watched)> {
        let lanes = self.lanes();
        lanes.filter(|(_, watched)| {
            let was_there = watched.began_here || watched.begun() >= EVERY_LANE_SPOKE;
            watched.doubts.out_of_scope() > 0 && was_there
        })
    }

    /// These numbers of an epoch were announced, have not come, and are not given up.
    pub(crate) fn outstanding(&mut self, lane: LaneKey, numbers: Range<u64>) {
        self.watched(lane).outstanding = Some(numbers);
    }

    /// Messages of lanes for which there was no room, and some of these lanes.
    pub(crate) fn no_room(&self) -> Option<(u64, &BTreeSet<LaneKey>)> {
        let (messages, lanes) = &self.no_room;
        (*messages > 0).then_some((*messages, lanes))
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
        let unstamped = self.strays.topics.stamped(topic);
        if unstamped > 0 {
            let why =
                format!("injected: {unstamped} came without a stamp before the first one with one");
            self.stray(topic, why, unstamped);
        }
        let watched = self.watched(lane);
        let verdict = watched.refine(verdict, &property);
        watched.take_message(topic, payload, property, verdict, now);
        let is_copied = watched.shows_two_producers(verdict);
        if let Some((kind, reason)) = verdict_fault(verdict) {
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
            NoStamp::Absent => {
                let was_full = self.strays.topics.is_full();
                if !self.strays.topics.unstamped(topic) {
                    self.unstamped += 1;
                    if !was_full && self.strays.topics.is_full() {
                        self.note("topics", None, Topics::FULL.to_owned());
                    }
                    return;
                }
                "injected: it has no stamp, and others on this topic have one".to_owned()
            }
            why => format!("injected: {why}"),
        };
        self.stray(topic, why, 1);
    }

    /// Something came on a topic that belongs to no lane, so many times.
    fn stray(&mut self, topic: &str, why: String, times: u64) {
        self.strays.add(on(topic), &why, times);
        let topic = topic.to_owned();
        self.news.push(News::Stray { topic, why });
    }

    fn checkpoint(&mut self, checkpoint: &Checkpoint) {
        let lane = (checkpoint.lane, checkpoint.epoch);
        let age = self.wall.age(checkpoint.time_us, self.now);
        let is_first = checkpoint.number == 0 && checkpoint.end != EpochEnd::Cut && age < Wall::OLD;
        let began_here = is_first && self.now >= self.there_since + FIRST_CHECKPOINT;
        let watched = self.watched(lane);
        watched.began_here |= began_here;
        let was_old = watched.newest_us().map(|_| watched.old().is_some());
        watched.take_checkpoint(checkpoint, age);
        let text = match (was_old, watched.old()) {
            (None, Some(old)) => old_sentence(old),
            (Some(true), None) => "its checkpoints are of this time again".to_owned(),
            _ => return,
        };
        self.note("old", Some(lane), text);
    }

    fn event(&mut self, lane: LaneKey, event: &Event) {
        match event {
            Event::Lost { numbers, tail } => self.lost(lane, numbers, *tail, None),
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
            Event::ForgedAmong(numbers) => {
                let reason = format!(
                    "at least one of the {} is forged: all fit their stamps, and the producer \
                     issued another; which one is not known, so all are asked for again",
                    spelled(numbers)
                );
                self.fault(lane, numbers.clone(), "forged among", reason);
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
            Event::Decided {
                number,
                second_is_real,
            } => {
                let text = self.watched(lane).decide(*number, *second_is_real);
                self.note("decided", Some(lane), text);
            }
            Event::OtherWindows(number) => {
                self.watched(lane).other_windows += 1;
                let text = format!("checkpoint {number} {OTHER_WINDOWS}");
                self.note("other windows", Some(lane), text);
            }
            Event::Unnamed(count) => {
                self.watched(lane).unnamed += count;
                let text = format!("{count} {UNNAMED}");
                self.note("unnamed", Some(lane), text);
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

    fn lost(&mut self, lane: LaneKey, numbers: &Range<u64>, tail: bool, absence: Option<Absence>) {
        let reason = if tail {
            "only a checkpoint contains it, and no drop record: the end was cut off"
        } else {
            "it was issued and did not come, and no drop record names it"
        };
        let now = self.now;
        let watched = self.watched(lane);
        let (before, after) = watched.neighbours(numbers);
        let from = before.map_or(watched.begun(), |message| message.at);
        let to = after.map_or(now, |message| message.at);
        let absence = absence.map(|absence| absence.to_string());
        let away = absence.or_else(|| self.away.why(&(from..to), self.wall));
        let forged = (!self.has_key()).then_some(MAY_BE_FORGED);
        let parts = [Some(reason), away.as_deref(), forged];
        let reason = parts.into_iter().flatten().collect::<Vec<_>>().join("; ");
        self.watched(lane).lost_while_away += u64::from(away.is_some());
        self.fault(lane, numbers.clone(), "lost", reason);
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
        let (numbers, kind) = contradiction.numbers();
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

/// What is said of a lane of which all checkpoints that came were old.
pub(super) fn old_sentence((made_us, age): (u64, Duration)) -> String {
    format!(
        "old: checkpoints of {}, {} before they were received: they are replayed, or the \
         producer was offline, or this listener is behind, or a clock is wrong",
        date(made_us),
        span(age)
    )
}

/// What is said when directories of more producers come than are remembered.
pub(super) fn no_room_for_producers(producers_max: usize) -> String {
    format!(
        "this listener knows directories of {producers_max} producers and takes none of one more: \
         what only such a directory lists is not missed"
    )
}

/// What is said of checkpoints of windows that are not of 1,024 messages.
pub(super) const OTHER_WINDOWS: &str =
    "counts in windows of another size, and is not used: it proves nothing here";
/// What is said of events for which there was no room.
pub(super) const UNNAMED: &str = "more events occurred at once and are not listed";

#[cfg(test)]
mod tests;
