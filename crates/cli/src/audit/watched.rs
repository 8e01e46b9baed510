//! One epoch of a lane, as far as it was watched: what came, what was wrong, and what is remembered
//! for proofs and as neighbours of faults.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use unbroken_demo::Doubts;
use unbroken_merkle_log::ledger::{State, Verdict};
use unbroken_merkle_log::{Checkpoint, Hash, Hasher, Property};

use super::proof_file::{Issued, ProofFile};

/// Messages of a lane that are remembered as neighbours, and for proofs: two windows.
const RECENT_MAX: usize = 2 * 1_024;
/// Bytes of their payloads, each lane.
const RECENT_BYTES_MAX: usize = 16 << 20;
/// Faults of a lane that are remembered; about 100 bytes each. All are counted.
const FAULTS_MAX: usize = 10_000;
/// Bytes of a payload that are remembered of a fault's neighbour.
const NEIGHBOUR_BYTES: usize = 256;
/// Bad windows and checkpoints of a lane that are remembered; at most 200 bytes each.
const WINDOWS_MAX: usize = 4_096;

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
    /// Lost messages that are no longer remembered.
    pub(crate) forgotten: u64,
    /// When the first sign of it came.
    begun: Duration,
    /// Repetitions whose content differs from what is remembered, where the ledger had folded it.
    conflicts: u64,
    /// What may be wrong, and settles by itself.
    pub(crate) doubts: Doubts,
    recent: BTreeMap<u64, Remembered>,
    recent_bytes: usize,
    /// One more than the highest number that had to make room in `recent`.
    trimmed: u64,
    /// What came before and after the numbers that were suspected, by the first of them: when a
    /// loss is named, a burst may have pushed the neighbours out of `recent`.
    neighbours: BTreeMap<u64, Neighbours>,
    checkpoints: BTreeMap<u64, Checkpoint>,
}

/// Something wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    /// With these; none, if it is the lane as such.
    pub(crate) numbers: Range<u64>,
    /// One word.
    pub(crate) kind: &'static str,
    /// What is known beyond it.
    pub(crate) reason: String,
}

/// A message that arrived.
#[derive(Clone, Debug)]
pub(crate) struct Remembered {
    pub(crate) number: u64,
    pub(crate) at: Duration,
    pub(crate) topic: String,
    pub(crate) payload: Vec<u8>,
    property: Property,
}

/// What came beside numbers that were suspected, at that time.
#[derive(Debug)]
struct Neighbours {
    /// One more than the last of the numbers.
    suspected_to: u64,
    before: Option<Remembered>,
    after: Option<Remembered>,
}

/// A message that arrived beside one that did not.
pub(crate) type Neighbour<'a> = Option<&'a Remembered>;

impl Watched {
    /// Of which the first sign has come.
    pub(crate) fn new(begun: Duration) -> Self {
        Self {
            begun,
            ..Self::default()
        }
    }

    /// When the first sign of it came.
    pub(crate) fn begun(&self) -> Duration {
        self.begun
    }

    /// The first window that is not proven.
    pub(crate) fn first_bad(&self) -> Option<&(Range<u64>, State)> {
        let mut windows = self.windows.values();
        windows.find(|(_, state)| *state != State::Proven)
    }

    /// Whether something of it came to more than "before the first window that was seen to begin".
    pub(crate) fn is_judged(&self) -> bool {
        self.next > 0 || self.faults_named > 0 || !self.windows.is_empty()
    }

    pub(crate) fn count(&self, state: State) -> usize {
        let windows = self.windows.values();
        windows.filter(|(_, its)| *its == state).count()
    }

    /// What a repetition is: the ledger may have folded the leaf of the first copy.
    pub(crate) fn refine(&mut self, verdict: Verdict, property: &Property) -> Verdict {
        let first = self.recent.get(&property.sequence);
        match (verdict, first.map(|first| first.property.digest)) {
            (Verdict::Repeated, Some(first)) if first == property.digest => Verdict::Duplicate,
            (Verdict::Repeated, Some(_)) => {
                self.conflicts += 1;
                Verdict::Conflict
            }
            _ => verdict,
        }
    }

    /// Whether the conflicts that only this listener saw have just become two.
    pub(crate) fn shows_two_producers(&self, verdict: Verdict) -> bool {
        verdict == Verdict::Conflict && self.conflicts == 2
    }

    pub(crate) fn take_message(
        &mut self,
        topic: &str,
        payload: &[u8],
        property: Property,
        verdict: Verdict,
        now: Duration,
    ) {
        self.arrived += 1;
        let is_good = matches!(
            verdict,
            Verdict::InOrder | Verdict::Ahead | Verdict::Late | Verdict::Found | Verdict::Repaired
        );
        if is_good {
            self.next = self.next.max(property.sequence + 1);
            self.remember(topic, payload, property, now);
        }
    }

    pub(crate) fn take_checkpoint(&mut self, checkpoint: &Checkpoint) {
        self.checkpoints
            .insert(checkpoint.first, checkpoint.clone());
        while self.checkpoints.len() > WINDOWS_MAX {
            self.checkpoints.pop_first();
        }
    }

    /// Its root and the lane's, as its checkpoint has them.
    pub(crate) fn take_window(
        &mut self,
        numbers: Range<u64>,
        state: State,
    ) -> Option<(Hash, Hash)> {
        let first = numbers.start;
        self.windows.insert(first, (numbers, state));
        while self.windows.len() > WINDOWS_MAX {
            self.windows.pop_first();
        }
        let checkpoint = self.checkpoints.get(&first)?;
        Some((checkpoint.window_root, checkpoint.lane_root))
    }

    pub(crate) fn take_fault(&mut self, fault: &Fault) {
        self.faults_named += 1;
        if self.faults.len() < FAULTS_MAX {
            self.faults.push(fault.clone());
        }
    }

    fn remember(&mut self, topic: &str, payload: &[u8], property: Property, at: Duration) {
        self.recent_bytes += payload.len();
        let number = property.sequence;
        let remembered = Remembered {
            number,
            at,
            topic: topic.to_owned(),
            payload: payload.to_vec(),
            property,
        };
        if let Some(before) = self.recent.insert(number, remembered) {
            self.recent_bytes -= before.payload.len();
        }
        while self.recent.len() > RECENT_MAX || self.recent_bytes > RECENT_BYTES_MAX {
            let Some((number, oldest)) = self.recent.pop_first() else {
                break;
            };
            self.trimmed = self.trimmed.max(number + 1);
            self.recent_bytes -= oldest.payload.len();
        }
    }

    pub(crate) fn remember_neighbours(&mut self, numbers: &Range<u64>) {
        if self.neighbours.len() >= FAULTS_MAX {
            return;
        }
        let short = |message: &Remembered| {
            let mut payload = message.payload.clone();
            payload.truncate(NEIGHBOUR_BYTES);
            Remembered {
                payload,
                topic: message.topic.clone(),
                ..*message
            }
        };
        let (before, after) = self.recent_neighbours(numbers);
        let neighbours = Neighbours {
            suspected_to: numbers.end,
            before: before.map(short),
            after: after.map(short),
        };
        self.neighbours.insert(numbers.start, neighbours);
    }

    /// What came before and after these numbers, as far as it is remembered.
    pub(crate) fn neighbours(&self, numbers: &Range<u64>) -> (Neighbour<'_>, Neighbour<'_>) {
        let (before, after) = self.recent_neighbours(numbers);
        let noted = self.neighbours.range(..=numbers.start).next_back();
        let Some((_, noted)) = noted.filter(|(_, noted)| numbers.end <= noted.suspected_to) else {
            return (before, after);
        };
        let before = before.into_iter().chain(&noted.before);
        let after = after.into_iter().chain(&noted.after);
        (
            before.max_by_key(|message| message.number),
            after.min_by_key(|message| message.number),
        )
    }

    fn recent_neighbours(&self, numbers: &Range<u64>) -> (Neighbour<'_>, Neighbour<'_>) {
        let before = self.recent.range(..numbers.start).next_back();
        let after = self.recent.range(numbers.end..).next();
        // One that had to make room may have been nearer.
        let before = before.filter(|(number, _)| **number + 1 >= self.trimmed.min(numbers.start));
        let after = after.filter(|(number, _)| self.trimmed.min(**number) <= numbers.end);
        (before.map(|(_, it)| it), after.map(|(_, it)| it))
    }

    /// Numbers that are missing in the window of this one, as far as a checkpoint tells of them.
    fn missing_beside(&self, number: u64) -> Option<u64> {
        let (_, checkpoint) = self.checkpoints.range(..=number).next_back()?;
        let window = checkpoint.first..checkpoint.size;
        let held = self.recent.range(window.clone()).count();
        let held = u64::try_from(held).unwrap_or(u64::MAX);
        window
            .contains(&number)
            .then(|| (window.end - window.start).saturating_sub(held))
    }

    /// The proof of a message, once its window is proven and while it is remembered. Without a
    /// number: of the first that there is.
    pub(crate) fn proof(&self, number: Option<u64>, hasher: &Hasher) -> Option<ProofFile> {
        match number {
            Some(number) => self.proof_of(number, hasher),
            None => self.recent.keys().find_map(|at| self.proof_of(*at, hasher)),
        }
    }

    /// Why there is none.
    pub(crate) fn why_no_proof(&self, number: Option<u64>) -> String {
        let number = number.or_else(|| self.recent.keys().next().copied());
        let out_of_scope = self.doubts.out_of_scope();
        let Some(number) = number.filter(|number| *number >= out_of_scope) else {
            return format!(
                "it was under way before, and is judged from number {out_of_scope} on: wait longer \
                 (-W), or listen before it begins"
            );
        };
        if !self.recent.contains_key(&number) {
            return format!("number {number} has not come, or is no longer remembered");
        }
        match self.missing_beside(number) {
            Some(0) => format!(
                "number {number} came, and the root of its window is not the producer's: see \
                 `unbroken audit explain`"
            ),
            Some(missing) => {
                let others = match missing {
                    1 => "1 other message".to_owned(),
                    _ => format!("{missing} other messages"),
                };
                format!(
                    "number {number} came, but {others} of its window did not, and its producer has \
                     not sent them again: the proof needs the hash of each"
                )
            }
            None => format!(
                "number {number} came, and no checkpoint has covered it yet: wait longer (-W)"
            ),
        }
    }

    fn proof_of(&self, number: u64, hasher: &Hasher) -> Option<ProofFile> {
        let message = self.recent.get(&number)?;
        let (_, checkpoint) = self.checkpoints.range(..=number).next_back()?;
        let window = checkpoint.first..checkpoint.size;
        let leaves: Vec<Hash> = self
            .recent
            .range(window)
            .map(|(_, message)| message.property.digest)
            .collect();
        // Those of the windows before it, as far as they were heard.
        let before: Vec<Hash> = self
            .checkpoints
            .range(..checkpoint.first)
            .map(|(_, checkpoint)| checkpoint.window_root)
            .collect();
        let issued = Issued {
            topic: &message.topic,
            payload: &message.payload,
            property: &message.property,
            checkpoint,
            leaves: &leaves,
            before: &before,
        };
        ProofFile::new(&issued, hasher)
    }
}
