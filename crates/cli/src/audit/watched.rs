//! One epoch of a lane, as far as it was watched: what came, what was wrong, and what is remembered
//! for proofs and as neighbours of faults.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::time::Duration;

use unbroken_demo::Doubts;
use unbroken_merkle_log::ledger::{State, Verdict};
use unbroken_merkle_log::{Checkpoint, EpochEnd, Hash, Hasher, Property};

use super::declared::Declared;
use super::neighbours::{Neighbour, Noted, Remembered};
use super::news::{Fault, Roots};
use super::proof_file::{Issued, ProofFile};
use super::wall::Wall;

/// Messages of a lane that are remembered as neighbours, and for proofs: two windows.
const RECENT_MAX: usize = 2 * 1_024;
/// Bytes of their payloads, each lane.
const RECENT_BYTES_MAX: usize = 16 << 20;
/// Faults of a lane that are remembered; about 100 bytes each. All are counted.
const FAULTS_MAX: usize = 10_000;
/// Windows and checkpoints of a lane that are remembered; at most 200 bytes each. Of more windows
/// the first proven ones are only counted.
const WINDOWS_MAX: usize = 4_096;
/// Checkpoints beside those; at most 200 bytes each.
const OTHERS_MAX: usize = 32;

/// One epoch of a lane, as far as it was watched.
#[derive(Debug, Default)]
pub(crate) struct Watched {
    /// Messages that arrived, copies and all.
    pub(crate) arrived: u64,
    /// One more than the highest number seen.
    pub(crate) next: u64,
    /// The last word on each window, by its first number.
    windows: BTreeMap<u64, (Range<u64>, State)>,
    /// Proven windows that had to make room.
    proven_before: usize,
    /// One more than the last number of the proven windows that follow each other from the scope's
    /// beginning on.
    proven_to: u64,
    /// The largest size that a checkpoint has told.
    told: u64,
    /// What the producer knew that it had issued before a crash.
    cut: Option<u64>,
    /// When the newest checkpoint was made, in µs since 1970, and how old it was when it came.
    newest: Option<(u64, Duration)>,
    /// What is wrong, oldest first.
    pub(crate) faults: Vec<Fault>,
    /// How many faults there were.
    pub(crate) faults_named: u64,
    /// Those of them that are losses while this listener was not connected.
    pub(crate) lost_while_away: u64,
    /// What was declared as not delivered.
    pub(crate) declared: Declared,
    /// Checkpoints that count in windows of another size, and are not used.
    pub(crate) other_windows: u64,
    /// Events that are not named one by one.
    pub(crate) unnamed: u64,
    /// Lost messages that are no longer remembered.
    pub(crate) forgotten: u64,
    /// When the first sign of it came.
    begun: Duration,
    /// Repetitions whose content differs from what is remembered, where the ledger had folded it.
    conflicts: u64,
    /// Its first checkpoint came when this listener had been there for long to have heard its
    /// first message.
    pub(crate) began_here: bool,
    /// At the end: what a checkpoint or a directory told and has neither come nor been given up.
    pub(crate) outstanding: Option<Range<u64>>,
    /// What may be wrong, and settles by itself.
    pub(crate) doubts: Doubts,
    recent: BTreeMap<u64, Remembered>,
    recent_bytes: usize,
    /// One more than the highest number that had to make room in `recent`.
    trimmed: u64,
    /// What came beside numbers that were suspected: when a loss is named, a burst may have pushed
    /// the neighbours out of `recent`.
    noted: Noted,
    /// The one that tells most of each window, by its first number.
    checkpoints: BTreeMap<u64, Checkpoint>,
    /// Others of the windows that are remembered, since the first may be forged.
    others: VecDeque<Checkpoint>,
}

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

    /// Windows that are not proven, for want of a checkpoint.
    pub(crate) fn unproven(&self) -> usize {
        self.count(State::Unproven)
    }

    /// The numbers of which it was proven that all of them are here.
    pub(crate) fn proven(&self) -> Range<u64> {
        self.doubts.out_of_scope()..self.proven_to
    }

    /// One more than the highest number that is known of: it came, or a checkpoint told of it.
    pub(crate) fn known_to(&self) -> u64 {
        self.next.max(self.told)
    }

    /// Numbers that came beyond the end of an epoch that was cut: nothing will prove them.
    pub(crate) fn beyond_cut(&self) -> Option<Range<u64>> {
        let size = self.cut?;
        (size < self.next && self.proven_to < self.next).then_some(size..self.next)
    }

    /// Faults that are not the listener's own.
    pub(crate) fn faults_of_others(&self) -> u64 {
        self.faults_named - self.lost_while_away
    }

    /// When the newest checkpoint was made, in µs since 1970.
    pub(crate) fn newest_us(&self) -> Option<u64> {
        self.newest.map(|(made_us, _)| made_us)
    }

    /// The same, if it was old when it came.
    pub(crate) fn old(&self) -> Option<(u64, Duration)> {
        self.newest.filter(|(_, age)| *age >= Wall::OLD)
    }

    /// Whether something of it came to more than "before the first window that was seen to begin".
    pub(crate) fn is_judged(&self) -> bool {
        self.next > 0 || self.faults_named > 0 || !self.windows.is_empty()
    }

    pub(crate) fn count(&self, state: State) -> usize {
        let windows = self.windows.values();
        let before = match state {
            State::Proven => self.proven_before,
            State::Faulty | State::Unproven => 0,
        };
        before + windows.filter(|(_, its)| *its == state).count()
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
            let number = property.sequence;
            self.remember(topic, payload, property, now);
            if let Some(message) = self.recent.get(&number) {
                self.noted.take(message);
            }
        }
    }

    /// Of two checkpoints of a window the one that tells more stays, in whatever order they come.
    /// It is so old, by the clocks of both ends.
    pub(crate) fn take_checkpoint(&mut self, checkpoint: &Checkpoint, age: Duration) {
        let made_us = checkpoint.time_us;
        if self.newest.is_none_or(|(newest_us, _)| made_us > newest_us) {
            self.newest = Some((made_us, age));
        }
        if checkpoint.end == EpochEnd::Cut {
            self.cut = Some(checkpoint.size);
        } else {
            self.told = self.told.max(checkpoint.size);
        }
        let known = self.checkpoints.get(&checkpoint.first);
        let is_larger = known.is_none_or(|known| known.size < checkpoint.size);
        let other = if is_larger {
            let first = checkpoint.first;
            self.checkpoints.insert(first, checkpoint.clone())
        } else {
            Some(checkpoint.clone())
        };
        if let Some(other) = other {
            self.take_other(other);
        }
        while self.checkpoints.len() > WINDOWS_MAX {
            self.checkpoints.pop_first();
        }
    }

    /// A checkpoint that is not the one that tells most of its window. Those that lead to what came
    /// stay longest.
    fn take_other(&mut self, checkpoint: Checkpoint) {
        let oldest = self.recent.keys().next().copied().unwrap_or(u64::MAX);
        self.others.retain(|other| other.size > oldest);
        if self.others.len() >= OTHERS_MAX {
            let at = self.others.iter().position(|other| !self.leads_to(other));
            self.others.remove(at.unwrap_or(0));
        }
        self.others.push_back(checkpoint);
    }

    /// Whether all messages that a checkpoint covers are remembered.
    fn leads_to(&self, checkpoint: &Checkpoint) -> bool {
        let window = checkpoint.first..checkpoint.size;
        let held = self.recent.range(window.clone()).count();
        u64::try_from(held) == Ok(window.end - window.start)
    }

    /// Its roots, if there is the checkpoint that ends where it does.
    pub(crate) fn take_window(&mut self, numbers: Range<u64>, state: State) -> Option<Roots> {
        let Range { start: first, end } = numbers;
        self.windows.insert(first, (numbers, state));
        self.extend_proven();
        while self.windows.len() > WINDOWS_MAX {
            let mut windows = self.windows.iter();
            let proven = windows.find(|(_, (_, state))| *state == State::Proven);
            let Some(first) = proven.map(|(first, _)| *first) else {
                self.windows.pop_first();
                continue;
            };
            self.windows.remove(&first);
            self.proven_before += 1;
        }
        let checkpoint = self.checkpoints.get(&first)?;
        (checkpoint.size == end).then_some(Roots {
            window: checkpoint.window_root,
            lane: checkpoint.lane_root,
            made_us: checkpoint.time_us,
        })
    }

    fn extend_proven(&mut self) {
        self.proven_to = self.proven_to.max(self.doubts.out_of_scope());
        loop {
            let next = self.windows.range(..=self.proven_to).next_back();
            match next {
                Some((_, (numbers, State::Proven))) if numbers.end > self.proven_to => {
                    self.proven_to = numbers.end;
                }
                _ => break,
            }
        }
    }

    pub(crate) fn take_fault(&mut self, fault: &Fault) {
        self.faults_named += 1;
        if self.faults.len() < FAULTS_MAX {
            self.faults.push(fault.clone());
        }
    }

    /// The root tells which of two copies is real: the fault that named them says so from now on.
    pub(crate) fn decide(&mut self, number: u64, second_is_real: bool) -> String {
        let real = if second_is_real { "second" } else { "first" };
        let word = format!("the {real} one that came is the producer's, as the root shows");
        let mut faults = self.faults.iter_mut().rev();
        let of_both =
            faults.find(|fault| fault.kind == "conflict" && fault.numbers.start == number);
        if let Some(fault) = of_both {
            fault.reason = format!("{}; {word}", fault.reason);
        }
        format!("of the two messages under number {number} {word}")
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
        let (before, after) = recent_neighbours(&self.recent, self.trimmed, numbers);
        self.noted.add(numbers, before, after);
    }

    /// What came before and after these numbers, as far as it is remembered.
    pub(crate) fn neighbours(&self, numbers: &Range<u64>) -> (Neighbour<'_>, Neighbour<'_>) {
        let (before, after) = recent_neighbours(&self.recent, self.trimmed, numbers);
        let (noted_before, noted_after) = self.noted.beside(numbers);
        (
            before
                .into_iter()
                .chain(noted_before)
                .max_by_key(|message| message.number),
            after
                .into_iter()
                .chain(noted_after)
                .min_by_key(|message| message.number),
        )
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
                "it had begun before, and is verified from number {out_of_scope} on: wait longer \
                 (-W), or listen before it begins"
            );
        };
        if !self.recent.contains_key(&number) {
            return format!("number {number} has not come, or is no longer remembered");
        }
        match self.missing_beside(number) {
            Some(0) => format!(
                "number {number} came, and the root of its window is not the producer's{}: see \
                 `unbroken audit explain`",
                self.contradicted()
            ),
            Some(missing) => {
                let others = match missing {
                    1 => "1 other message".to_owned(),
                    _ => format!("{missing} other messages"),
                };
                format!(
                    "number {number} came, but {others} of its window did not, as its largest \
                     checkpoint tells, and its producer has not sent them again: the proof needs the \
                     hash of each{}",
                    self.contradicted()
                )
            }
            None => format!(
                "number {number} came, and no checkpoint has covered it yet: wait longer (-W)"
            ),
        }
    }

    /// That it is not known which of the checkpoints is the producer's, if so.
    fn contradicted(&self) -> &'static str {
        let is_contradicted = |fault: &Fault| fault.kind == "contradicted";
        if self.faults.iter().any(is_contradicted) {
            "; its checkpoints contradict each other, and one of them may be forged"
        } else {
            ""
        }
    }

    fn proof_of(&self, number: u64, hasher: &Hasher) -> Option<ProofFile> {
        let largest = self.checkpoints.range(..=number).next_back();
        let largest = largest.map(|(_, checkpoint)| checkpoint);
        let covers = |other: &&Checkpoint| (other.first..other.size).contains(&number);
        // The newest of the others first: it was there when more had come.
        let mut candidates = largest
            .into_iter()
            .chain(self.others.iter().rev().filter(covers));
        candidates.find_map(|checkpoint| self.proof_by(number, checkpoint, hasher))
    }

    fn proof_by(&self, number: u64, checkpoint: &Checkpoint, hasher: &Hasher) -> Option<ProofFile> {
        let message = self.recent.get(&number)?;
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

/// What came beside these numbers, among the messages that are remembered.
fn recent_neighbours<'a>(
    recent: &'a BTreeMap<u64, Remembered>,
    trimmed: u64,
    numbers: &Range<u64>,
) -> (Neighbour<'a>, Neighbour<'a>) {
    let before = recent.range(..numbers.start).next_back();
    let after = recent.range(numbers.end..).next();
    // One that had to make room may have been nearer.
    let before = before.filter(|(number, _)| **number + 1 >= trimmed.min(numbers.start));
    let after = after.filter(|(number, _)| trimmed.min(**number) <= numbers.end);
    (before.map(|(_, it)| it), after.map(|(_, it)| it))
}
