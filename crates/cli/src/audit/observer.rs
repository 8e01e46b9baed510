//! What somebody who only listens can say of the lanes that pass: a value that takes messages and
//! checkpoints, and gives what became known.
//!
//! It asks nobody for anything, so a message that is lost here is named and not repaired. It joins
//! each lane where it happens to be, and claims nothing of what came before the next window.
//!
//! **Absent:** lanes whose algorithm needs a key, which are counted and left alone; the stamps of
//! the messages that a processor made its output from, which the processor's consumer checks.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use unbroken_merkle_log::ledger::{Event, Join, Ledger, LedgerLimits, Moved, State, Verdict};
use unbroken_merkle_log::{
    Algorithm, Checkpoint, DropRecord, Epoch, Hash, Hasher, LaneId, Property,
};

use super::proof_file::ProofFile;

/// Messages of a lane that are remembered as neighbours, and for proofs: two windows.
const RECENT_MAX: usize = 2 * 1_024;
/// Bytes of their payloads, each lane.
const RECENT_BYTES_MAX: usize = 16 << 20;
/// Faults of a lane that are remembered; about 100 bytes each. All are counted.
const FAULTS_MAX: usize = 10_000;
/// Bad windows and checkpoints of a lane that are remembered; at most 200 bytes each.
const WINDOWS_MAX: usize = 4_096;

/// An epoch of a lane.
pub(crate) type LaneKey = (LaneId, Epoch);

/// What is known of all lanes.
#[derive(Debug)]
pub(crate) struct Observer {
    prefix: String,
    ledger: Ledger<Hasher>,
    lanes: BTreeMap<LaneKey, Watched>,
    news: Vec<News>,
    /// Messages without a stamp, or with one that cannot be judged here.
    pub(crate) not_audited: u64,
}

/// One epoch of a lane, as far as it was watched.
#[derive(Debug, Default)]
pub(crate) struct Watched {
    /// Messages that arrived, copies and all.
    pub(crate) arrived: u64,
    /// One more than the highest number seen.
    pub(crate) next: u64,
    /// The last word on each window, by its first number.
    pub(crate) windows: BTreeMap<u64, (Range<u64>, State)>,
    /// What is wrong, oldest first.
    pub(crate) faults: Vec<Fault>,
    /// How many faults there were.
    pub(crate) faults_named: u64,
    pub(crate) recent: BTreeMap<u64, Remembered>,
    recent_bytes: usize,
    checkpoints: BTreeMap<u64, Checkpoint>,
}

/// Something wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) numbers: Range<u64>,
    /// One word.
    pub(crate) kind: &'static str,
    /// What is known beyond it.
    pub(crate) reason: String,
}

/// A message that arrived.
#[derive(Clone, Debug)]
pub(crate) struct Remembered {
    pub(crate) at: Duration,
    pub(crate) topic: String,
    pub(crate) payload: Vec<u8>,
    property: Property,
}

/// What became known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum News {
    Fault(LaneKey, Fault),
    Window {
        lane: LaneKey,
        numbers: Range<u64>,
        state: State,
        /// The window's root, as the producer's checkpoint has it.
        root: Option<Hash>,
    },
}

impl Observer {
    /// For lanes whose checkpoints come under this topic prefix.
    pub(crate) fn new(prefix: &str) -> Self {
        let ledger = Ledger::new(Hasher::xxh3(), LedgerLimits::default(), Join::Late);
        Self {
            prefix: prefix.to_owned(),
            ledger,
            lanes: BTreeMap::new(),
            news: Vec::new(),
            not_audited: 0,
        }
    }

    /// The connection is there and nothing waits to be read.
    pub(crate) fn resume(&mut self, now: Duration) {
        self.ledger.resume(now);
    }

    /// The connection is gone, or something waits to be read.
    pub(crate) fn pause(&mut self, now: Duration) {
        self.ledger.pause(now);
    }

    /// Takes whatever was received, with its stamps.
    pub(crate) fn take(&mut self, topic: &str, payload: &[u8], stamps: &[&str], now: Duration) {
        let beneath = topic.strip_prefix(&self.prefix);
        match beneath.and_then(|rest| rest.strip_prefix('/')?.split_once('/')) {
            Some(("checkpoint", _)) => self.checkpoint(payload, now),
            Some(("drop", _)) => self.drop_record(payload, now),
            Some(_) => {}
            None => self.message(topic, payload, stamps, now),
        }
        self.collect();
    }

    /// Lets time pass.
    pub(crate) fn poll(&mut self, now: Duration) {
        self.ledger.poll(now);
        self.collect();
    }

    /// What became known since the last call.
    pub(crate) fn take_news(&mut self) -> Vec<News> {
        std::mem::take(&mut self.news)
    }

    pub(crate) fn lanes(&self) -> impl Iterator<Item = (LaneKey, &Watched)> {
        self.lanes.iter().map(|(key, watched)| (*key, watched))
    }

    /// Whether anything was wrong.
    pub(crate) fn found_faults(&self) -> bool {
        self.lanes.values().any(|watched| watched.faults_named > 0)
    }

    /// The proof of a message, once its window is proven and while it is remembered. Without a
    /// number: of the first that there is.
    pub(crate) fn proof(&self, lane: Option<LaneId>, number: Option<u64>) -> Option<ProofFile> {
        let lanes = self.lanes.iter();
        let mut wanted = lanes.filter(|((id, _), _)| lane.is_none_or(|lane| lane == *id));
        wanted.find_map(|(_, watched)| match number {
            Some(number) => watched.proof(number),
            None => watched.recent.keys().find_map(|at| watched.proof(*at)),
        })
    }

    fn message(&mut self, topic: &str, payload: &[u8], stamps: &[&str], now: Duration) {
        let property = match stamps {
            [stamp] => Property::parse_text(stamp).ok(),
            _ => None,
        };
        let Some(property) = property.filter(|its| its.algorithm == Algorithm::Xxh3) else {
            self.not_audited += 1;
            return;
        };
        let verdict = self
            .ledger
            .message(&property, topic.as_bytes(), payload, now);
        let lane = (property.lane, property.epoch);
        let number = property.sequence;
        let watched = self.lanes.entry(lane).or_default();
        watched.arrived += 1;
        let is_good = matches!(
            verdict,
            Verdict::InOrder | Verdict::Ahead | Verdict::Late | Verdict::Found | Verdict::Repaired
        );
        if is_good {
            watched.next = watched.next.max(number + 1);
            watched.remember(topic, payload, property, now);
        }
        if let Some((kind, reason)) = told(verdict) {
            self.fault(lane, number..number + 1, kind, reason.to_owned());
        }
    }

    fn checkpoint(&mut self, payload: &[u8], now: Duration) {
        let opened = Checkpoint::parse(payload).and_then(|sealed| sealed.open(&Hasher::xxh3()));
        let Ok(checkpoint) = opened else {
            self.not_audited += 1;
            return;
        };
        let lane = (checkpoint.lane, checkpoint.epoch);
        self.ledger.checkpoint(&checkpoint, now);
        let watched = self.lanes.entry(lane).or_default();
        watched.checkpoints.insert(checkpoint.first, checkpoint);
        while watched.checkpoints.len() > WINDOWS_MAX {
            watched.checkpoints.pop_first();
        }
    }

    fn drop_record(&mut self, payload: &[u8], now: Duration) {
        let opened = DropRecord::parse(payload).and_then(|sealed| sealed.open(&Hasher::xxh3()));
        match opened {
            Ok(record) => drop(self.ledger.dropped(&record, now)),
            Err(_) => self.not_audited += 1,
        }
    }

    /// Takes the ledger's events.
    fn collect(&mut self) {
        let events: Vec<_> = self.ledger.take_events().collect();
        for (lane, epoch, event) in events {
            let lane = (lane, epoch);
            match event {
                Event::Lost { numbers, tail } => {
                    let reason = if tail {
                        "only a checkpoint tells of it, and no drop record: the end was cut off"
                    } else {
                        "it was issued and did not come, and no drop record names it"
                    };
                    self.fault(lane, numbers, "lost", reason.to_owned());
                }
                Event::Moved(Moved {
                    numbers,
                    displacement,
                }) => {
                    let when = if displacement < 0 { "early" } else { "late" };
                    let places = displacement.unsigned_abs();
                    let reason = format!("it came {places} places too {when}");
                    self.fault(lane, numbers, "reordered", reason);
                }
                Event::Injected { number, copies } => {
                    let reason =
                        format!("{copies} came under its number that were not the real one");
                    self.fault(lane, number..number + 1, "injected", reason);
                }
                Event::Forged(numbers) => {
                    let reason = "it fits its stamp, and the producer issued another".to_owned();
                    self.fault(lane, numbers, "forged", reason);
                }
                Event::RootDiffers(numbers) => {
                    let reason = "all came and fit their stamps, and the root differs: at least \
                                  one of them was forged with its stamp";
                    self.fault(lane, numbers, "root differs", reason.to_owned());
                }
                Event::Window { numbers, state, .. } => self.window(lane, numbers, state),
                // Suspicions settle, and what happens to checkpoints shows in the windows.
                _ => {}
            }
        }
    }

    fn window(&mut self, lane: LaneKey, numbers: Range<u64>, state: State) {
        let watched = self.lanes.entry(lane).or_default();
        watched
            .windows
            .insert(numbers.start, (numbers.clone(), state));
        while watched.windows.len() > WINDOWS_MAX {
            watched.windows.pop_first();
        }
        let checkpoint = watched.checkpoints.get(&numbers.start);
        let root = checkpoint.map(|checkpoint| checkpoint.window_root);
        self.news.push(News::Window {
            lane,
            numbers,
            state,
            root,
        });
    }

    fn fault(&mut self, lane: LaneKey, numbers: Range<u64>, kind: &'static str, reason: String) {
        let fault = Fault {
            numbers,
            kind,
            reason,
        };
        let watched = self.lanes.entry(lane).or_default();
        watched.faults_named += 1;
        if watched.faults.len() < FAULTS_MAX {
            watched.faults.push(fault.clone());
        }
        self.news.push(News::Fault(lane, fault));
    }
}

impl Watched {
    /// The first window that is not proven.
    pub(crate) fn first_bad(&self) -> Option<&(Range<u64>, State)> {
        let mut windows = self.windows.values();
        windows.find(|(_, state)| *state != State::Proven)
    }

    pub(crate) fn count(&self, state: State) -> usize {
        let windows = self.windows.values();
        windows.filter(|(_, its)| *its == state).count()
    }

    fn remember(&mut self, topic: &str, payload: &[u8], property: Property, at: Duration) {
        self.recent_bytes += payload.len();
        let remembered = Remembered {
            at,
            topic: topic.to_owned(),
            payload: payload.to_vec(),
            property,
        };
        if let Some(before) = self.recent.insert(property.sequence, remembered) {
            self.recent_bytes -= before.payload.len();
        }
        while self.recent.len() > RECENT_MAX || self.recent_bytes > RECENT_BYTES_MAX {
            let Some((_, oldest)) = self.recent.pop_first() else {
                break;
            };
            self.recent_bytes -= oldest.payload.len();
        }
    }

    fn proof(&self, number: u64) -> Option<ProofFile> {
        let message = self.recent.get(&number)?;
        let (_, checkpoint) = self.checkpoints.range(..=number).next_back()?;
        let window = checkpoint.first..checkpoint.size;
        let leaves: Vec<Hash> = self
            .recent
            .range(window)
            .map(|(_, message)| message.property.digest)
            .collect();
        let Remembered {
            topic,
            payload,
            property,
            ..
        } = message;
        ProofFile::new(topic, payload, property, checkpoint, &leaves)
    }
}

/// The fault that a verdict names, if it does.
fn told(verdict: Verdict) -> Option<(&'static str, &'static str)> {
    Some(match verdict {
        Verdict::Duplicate => ("duplicated", "it had come before, the same in every byte"),
        Verdict::Conflict => (
            "conflict",
            "two different messages came under its number, and both fit their stamps",
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
    use unbroken_merkle_log::{Lane, LaneLimits};

    const SECOND: Duration = Duration::from_secs(1);

    /// A producer, and somebody who listens.
    struct Scene {
        lane: Lane,
        observer: Observer,
    }

    impl Scene {
        fn new() -> Self {
            let id = LaneId::new(7).unwrap();
            let mut observer = Observer::new("audit");
            observer.resume(Duration::ZERO);
            Self {
                lane: Lane::new(id, Epoch(0), LaneLimits::default(), Duration::ZERO),
                observer,
            }
        }

        fn issue(&mut self, payload: &[u8]) -> Property {
            self.lane.issue(*b"t", payload, &Hasher::xxh3())
        }

        fn hear(&mut self, property: &Property, payload: &[u8]) {
            let stamp = property.to_text();
            self.observer.take("t", payload, &[&stamp], Duration::ZERO);
        }

        fn speak(&mut self) {
            let checkpoint = self.lane.poll_checkpoint(SECOND, 0, &Hasher::xxh3());
            let mut bytes = Vec::new();
            checkpoint.unwrap().encode(&Hasher::xxh3(), &mut bytes);
            self.observer
                .take("audit/checkpoint/0000000000000007", &bytes, &[], SECOND);
            self.observer.poll(SECOND * 2);
        }

        fn faults(&self) -> Vec<(Range<u64>, &'static str)> {
            let lanes = self.observer.lanes();
            lanes
                .flat_map(|(_, watched)| &watched.faults)
                .map(|fault| (fault.numbers.clone(), fault.kind))
                .collect()
        }
    }

    #[test]
    fn what_is_lost_duplicated_and_altered_is_named() {
        let mut scene = Scene::new();
        for number in 0..10_u8 {
            let property = scene.issue(&[number]);
            match number {
                3 => {}
                5 => {
                    scene.hear(&property, &[number]);
                    scene.hear(&property, &[number]);
                }
                7 => scene.hear(&property, b"other"),
                _ => scene.hear(&property, &[number]),
            }
        }
        scene.speak();
        let expect = [(5..6, "duplicated"), (7..8, "altered"), (3..4, "lost")];
        assert_eq!(scene.faults(), expect);
        assert!(scene.observer.found_faults());
        let (_, watched) = scene.observer.lanes().next().unwrap();
        assert_eq!(watched.first_bad(), Some(&(0..10, State::Faulty)));
    }

    #[test]
    fn a_proven_message_can_be_exported_and_the_root_to_save_is_in_the_news() {
        let mut scene = Scene::new();
        for number in 0..10_u8 {
            let property = scene.issue(&[number]);
            scene.hear(&property, &[number]);
        }
        assert_eq!(scene.observer.proof(None, None), None);
        scene.speak();
        assert!(!scene.observer.found_faults());
        let roots: Vec<_> = scene
            .observer
            .take_news()
            .into_iter()
            .filter_map(|news| match news {
                News::Window {
                    state: State::Proven,
                    root,
                    ..
                } => root,
                _ => None,
            })
            .collect();
        let proof = scene.observer.proof(LaneId::new(7), Some(4)).unwrap();
        assert_eq!(
            proof
                .verify(roots.last().copied())
                .unwrap()
                .property
                .sequence,
            4
        );
        assert_eq!(scene.observer.proof(LaneId::new(8), Some(4)), None);
        assert_eq!(scene.observer.proof(None, Some(10)), None);
    }

    #[test]
    fn a_message_without_a_stamp_or_with_two_is_counted_and_not_judged() {
        let mut scene = Scene::new();
        let stamp = scene.issue(b"p").to_text();
        let stamp = stamp.as_str();
        for stamps in [&[][..], &[stamp, stamp], &["?"]] {
            scene.observer.take("t", b"p", stamps, SECOND);
        }
        assert_eq!(scene.observer.not_audited, 3);
        assert_eq!(scene.observer.lanes().count(), 0);
    }
}
