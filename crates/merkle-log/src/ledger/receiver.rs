//! One lane of one epoch, as its receiver sees it: from numbers and leaves to verdicts.
//!
//! A message is judged by its number alone, against the next one due and the gaps: that names what
//! is lost, late, duplicated and out of order. Its digest names what is altered. The windows
//! ([`super::windows`]) then show, with the producer's checkpoints, that the list is complete.
//!
//! **Invariants.** Every number from `start` to `next` has been seen or is in a gap. A message that
//! does not fit its digest moves nothing but the memory of itself, since its number may be what was
//! altered. Time is the lane's clock, an argument: it stands still while the receiver is not
//! connected or works off a backlog, and so does the lateness bound.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use super::declared::Declared;
use super::descent::{Answer, Refused, Request};
use super::gaps::Gaps;
use super::limits::{LedgerLimits, WINDOW};
use super::order::{Moved, Order};
use super::verdict::{Event, Events, Verdict};
use super::windows::Windows;
use crate::{Digest, Hash};

/// Where in the life of a lane its receiver began.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Join {
    /// From number 0 on: it was there before the lane.
    Beginning,
    /// At some time: the first window that begins after the first sign of the lane is in scope.
    Late,
    /// As a member of a shared group, which sees only its share: nothing is missing and nothing is
    /// out of order until the members' ledgers are merged.
    Member,
}

/// A message, as far as the ledger needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Its sequence number.
    pub number: u64,
    /// The digest in its property.
    pub leaf: Hash,
    /// Whether topic and payload give that digest. A message transformed on its way is taken by
    /// its property: true.
    pub fits: bool,
    /// Flagged re-sent.
    pub resent: bool,
    /// Part i of n, from 1, where a processor split the message.
    pub part: Option<(u8, u8)>,
}

/// What a receiver knows of one lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneLedger {
    pub(super) join: Join,
    pub(super) start: Option<u64>,
    pub(super) next: u64,
    pub(super) gaps: Gaps,
    pub(super) order: Order,
    pub(super) moved: u64,
    /// Sizes that checkpoints told beyond what came, with the time of each.
    pub(super) tails: Vec<(u64, Duration)>,
    pub(super) covered: u64,
    pub(super) closed: Option<u64>,
    pub(super) checkpoints: u32,
    pub(super) heard: Duration,
    pub(super) idle: bool,
    pub(super) silent: bool,
    /// Something is suspected.
    pub(super) doubted: bool,
    /// No directory lists it any more, or it was cut off.
    pub(super) over: bool,
    /// How often a message or a checkpoint contradicted another one.
    pub(super) contradictions: u32,
    pub(super) altered: BTreeMap<u64, u32>,
    pub(super) parts: BTreeMap<u64, Parts>,
    /// In a box, since of most epochs no drop record tells.
    pub(super) declared: Option<Box<Declared>>,
    pub(super) windows: Windows,
    pub(super) events: Events,
}

/// Which parts of a split message came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Parts {
    pub(super) of: u8,
    pub(super) seen: [u64; 4],
}

impl LaneLedger {
    /// A lane of which nothing came yet, known since `now`: until then it is not silent.
    pub fn begin(join: Join, now: Duration) -> Self {
        Self {
            heard: now,
            ..Self::new(join)
        }
    }

    /// A lane of which nothing came yet, known since the lane's clock began.
    pub fn new(join: Join) -> Self {
        let start = (join != Join::Late).then_some(0);
        let mut windows = Windows::new(start);
        windows.keep_proven = join == Join::Member;
        // What members saw is put together leaf by leaf.
        windows.hold_leaves = join == Join::Member;
        Self {
            join,
            start,
            next: 0,
            gaps: Gaps::default(),
            order: Order::default(),
            moved: 0,
            tails: Vec::new(),
            covered: 0,
            closed: None,
            checkpoints: 0,
            heard: Duration::ZERO,
            idle: false,
            silent: false,
            doubted: false,
            over: false,
            contradictions: 0,
            altered: BTreeMap::new(),
            parts: BTreeMap::new(),
            declared: None,
            windows,
            events: Events::default(),
        }
    }

    /// Judges a message.
    #[inline]
    pub fn observe(
        &mut self,
        arrival: &Arrival,
        now: Duration,
        limits: &LedgerLimits,
        digest: &impl Digest,
    ) -> Verdict {
        let may_fold = self.is_usual(arrival) && !limits.hold_leaves;
        if may_fold && self.windows.fold_due(arrival.number, &arrival.leaf, digest) {
            self.next += 1;
            return Verdict::InOrder;
        }
        self.observe_any(arrival, now, limits, digest)
    }

    fn observe_any(
        &mut self,
        arrival: &Arrival,
        now: Duration,
        limits: &LedgerLimits,
        digest: &impl Digest,
    ) -> Verdict {
        let number = arrival.number;
        if number < self.scope(number) {
            return Verdict::OutOfScope;
        }
        if !arrival.fits {
            return self.misfit(number, limits);
        }
        self.reopen_for(number);
        if let Some((part, of)) = arrival.part
            && (self.is_missing(number) || self.is_declared(number))
            && let Some(verdict) = self.part(number, part, of, arrival.resent, limits)
        {
            return verdict;
        }
        if number < self.next {
            return self.below_next(arrival, limits, digest);
        }
        let verdict = self.at_or_above_next(number, arrival.resent, now, limits);
        self.place(arrival, limits, digest);
        verdict
    }

    /// Lets time pass: what is later than the bound is lost.
    pub fn poll(&mut self, now: Duration, limits: &LedgerLimits, digest: &impl Digest) {
        let heartbeat = if self.idle {
            limits.idle_heartbeat
        } else {
            limits.heartbeat
        };
        // Where nothing is issued there are no checkpoints.
        let has_begun = self.next > 0 || self.covered > 0;
        let may_speak = has_begun && self.closed.is_none() && !self.over;
        if may_speak && !self.silent && now >= self.heard + heartbeat * 2 {
            self.silent = true;
            self.events
                .push(Event::Silent(now.saturating_sub(self.heard)));
        }
        let Some(noticed_by) = now.checked_sub(limits.lateness) else {
            return;
        };
        if self.join == Join::Member {
            return;
        }
        let mut given_up = self.gaps.give_up(noticed_by, self.covered);
        let holes = given_up.len();
        while let Some(&(size, noticed)) = self.tails.first()
            && noticed <= noticed_by
        {
            self.tails.remove(0);
            let tail = self.next..size;
            if !tail.is_empty() {
                self.windows.reach(
                    size - 1,
                    limits,
                    &self.gaps,
                    &self.altered,
                    &mut self.events,
                );
                self.gaps.open(tail.clone(), noticed, true);
                self.next = size;
                given_up.push(tail);
            }
        }
        if given_up.is_empty() {
            return;
        }
        for (at, numbers) in given_up.into_iter().enumerate() {
            let tail = at >= holes;
            let altered = &self.altered;
            let lost = without(numbers, altered);
            self.events
                .extend(lost.map(|numbers| Event::Lost { numbers, tail }));
        }
        self.cut_if_whole();
        self.bound(limits);
        self.review(digest);
    }

    /// When [`LaneLedger::poll`] has something to do next.
    pub fn timeout(&self, limits: &LedgerLimits) -> Option<Duration> {
        let hole = self.gaps.earliest_waiting(self.covered);
        let tail = self.tails.first().map(|(_, noticed)| *noticed);
        hole.into_iter()
            .chain(tail)
            .min()
            .map(|noticed| noticed + limits.lateness)
    }

    /// What to ask the producer now, in full: asking again after a lost answer is asking the same.
    pub fn requests(&self) -> Vec<Request> {
        let lost = self.gaps.iter().filter(|(_, hole)| hole.lost && !hole.gone);
        let mut missing: Vec<Range<u64>> = Vec::new();
        for (start, hole) in lost {
            match missing.last_mut() {
                Some(last) if last.end == start => last.end = hole.end,
                _ => missing.push(start..hole.end),
            }
        }
        let numbers = (!missing.is_empty()).then_some(Request::Numbers(missing));
        numbers.into_iter().chain(self.windows.requests()).collect()
    }

    /// Takes the producer's answer to a request about hashes.
    pub fn answer(&mut self, answer: &Answer, digest: &impl Digest) -> Result<(), Refused> {
        if let Answer::NotHeld(numbers) = answer {
            for numbers in numbers {
                self.gaps.write_off(numbers);
            }
            return Ok(());
        }
        self.windows.answer(answer, digest, &mut self.events)?;
        self.review(digest);
        Ok(())
    }

    /// What became known since the last call.
    pub fn take_events(&mut self) -> Vec<Event> {
        self.events.take()
    }

    /// The first number in scope; 0 before the first sign of the lane.
    pub fn scope_start(&self) -> u64 {
        self.start.unwrap_or(0)
    }

    /// One more than the highest number seen or given up.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Messages that moved, in the stretches that have ended: n less the longest increasing
    /// subsequence.
    pub fn moved(&self) -> u64 {
        self.moved
    }

    /// Whether this number was never seen.
    pub fn is_missing(&self, number: u64) -> bool {
        number >= self.next || self.gaps.find(number).is_some()
    }

    /// Whether every number below this one has come, as far as it still may: what its producer no
    /// longer holds will not.
    pub fn is_settled_below(&self, size: u64) -> bool {
        let mut open = self.gaps.iter().filter(|(_, hole)| !hole.gone);
        self.next >= size && open.next().is_none_or(|(start, _)| start >= size)
    }

    /// Bytes on the heap and in the value.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>()
            + self.gaps.len() * 64
            + self.order.runs.capacity() * 24
            + self.altered.len() * 32
            + self.parts.len() * 80
            + self
                .declared
                .as_ref()
                .map_or(0, |declared| declared.memory_bytes())
            + self.windows.memory_bytes()
    }

    /// The first number in scope; a late joiner learns it from the first sign of the lane.
    #[inline]
    pub(super) fn scope(&mut self, sign: u64) -> u64 {
        match self.start {
            Some(start) => start,
            None => self.begin_at(sign.next_multiple_of(WINDOW)),
        }
    }

    #[cold]
    fn begin_at(&mut self, start: u64) -> u64 {
        self.start = Some(start);
        if start > 0 {
            self.events.push(Event::OutOfScope(start));
        }
        self.next = start;
        self.covered = start;
        self.windows = Windows::new(Some(start));
        start
    }

    /// The next one, whole and good, of a lane in which nothing is waited for: there is nothing to
    /// do but to take its leaf. Nearly all are, which is why they are told first.
    #[inline]
    fn is_usual(&self, arrival: &Arrival) -> bool {
        let is_due = arrival.number == self.next && self.start.is_some() && self.closed.is_none();
        let is_good = arrival.fits && !arrival.resent && arrival.part.is_none();
        let is_calm = self.gaps.waiting() == 0 && self.order.is_calm();
        is_due && is_good && is_calm && self.tails.is_empty() && self.altered.is_empty()
    }

    fn misfit(&mut self, number: u64, limits: &LedgerLimits) -> Verdict {
        let is_beyond_end = self.closed.is_some_and(|size| number >= size);
        if is_beyond_end || !self.is_missing(number) {
            return Verdict::Injected;
        }
        if self.altered.len() < limits.suspects_max || self.altered.contains_key(&number) {
            *self.altered.entry(number).or_default() += 1;
        }
        Verdict::Altered
    }

    /// Takes a part; `None` when it completes its message.
    fn part(
        &mut self,
        number: u64,
        part: u8,
        of: u8,
        resent: bool,
        limits: &LedgerLimits,
    ) -> Option<Verdict> {
        if self.parts.len() >= limits.suspects_max && !self.parts.contains_key(&number) {
            return Some(Verdict::NotAudited);
        }
        let parts = self
            .parts
            .entry(number)
            .or_insert(Parts { of, seen: [0; 4] });
        if part == 0 || part > parts.of || of != parts.of {
            return Some(Verdict::Injected);
        }
        let (word, bit) = (usize::from(part / 64), 1 << (part % 64));
        if parts.seen[word] & bit != 0 {
            let again = if resent {
                Verdict::Replayed
            } else {
                Verdict::Duplicate
            };
            return Some(again);
        }
        parts.seen[word] |= bit;
        let seen: u32 = parts.seen.iter().map(|word| word.count_ones()).sum();
        if seen < u32::from(of) {
            return Some(Verdict::Part);
        }
        self.parts.remove(&number);
        None
    }

    fn below_next(
        &mut self,
        arrival: &Arrival,
        limits: &LedgerLimits,
        digest: &impl Digest,
    ) -> Verdict {
        let number = arrival.number;
        if let Some(verdict) = self.take_declared(arrival, digest) {
            return verdict;
        }
        let Some(verdict) = self.in_gap(number, arrival.resent) else {
            return match self.windows.leaf(number) {
                Some(first) if first != arrival.leaf => {
                    self.windows.contest(number, arrival.leaf, limits);
                    self.note_contradiction();
                    Verdict::Conflict
                }
                _ if arrival.resent => Verdict::Replayed,
                Some(_) => Verdict::Duplicate,
                None => {
                    // From here on repetitions can be compared.
                    self.windows.hold_leaves = true;
                    Verdict::Repeated
                }
            };
        };
        self.place(arrival, limits, digest);
        self.cut_if_whole();
        if verdict == Verdict::Late && !self.order.is_calm() {
            let by = self.order.above(number);
            self.events.push(Event::Overtaken { number, by });
        }
        verdict
    }

    /// Takes a number that was due or is above the one that was.
    #[inline]
    pub(super) fn at_or_above_next(
        &mut self,
        number: u64,
        resent: bool,
        now: Duration,
        limits: &LedgerLimits,
    ) -> Verdict {
        let due = number == self.next;
        if !due {
            self.suspect_told(number, now, limits);
        }
        self.next = number + 1;
        if !self.tails.is_empty() {
            self.tails.retain(|(size, _)| *size > number + 1);
        }
        let unordered = !due || self.gaps.waiting() > 0 || !self.order.is_calm();
        if unordered && !resent && self.join != Join::Member {
            self.in_stretch(number, false);
        }
        match (resent, due) {
            (true, _) => Verdict::Repaired,
            (false, true) => Verdict::InOrder,
            (false, false) => Verdict::Ahead,
        }
    }

    /// Takes a number below the next one; `None` when it was seen.
    pub(super) fn in_gap(&mut self, number: u64, resent: bool) -> Option<Verdict> {
        let hole = self.gaps.fill(number)?;
        Some(if self.join == Join::Member {
            Verdict::InOrder
        } else if resent {
            Verdict::Repaired
        } else if hole.lost {
            self.found(number);
            Verdict::Found
        } else {
            self.in_stretch(number, true);
            Verdict::Late
        })
    }

    /// A lost message came. It moved if a higher number came before it.
    fn found(&mut self, number: u64) {
        let behind = self.gaps.last_outside(self.next);
        let by = behind.map_or(0, |last| last.saturating_sub(number));
        if by == 0 {
            return;
        }
        self.moved += 1;
        self.events.push(Event::Moved(Moved {
            numbers: number..number + 1,
            displacement: i64::try_from(by).unwrap_or(i64::MAX),
        }));
    }

    /// Puts a leaf in its slot, and settles what that completes.
    #[inline]
    pub(super) fn place(&mut self, arrival: &Arrival, limits: &LedgerLimits, digest: &impl Digest) {
        let number = arrival.number;
        self.revise(number, arrival.resent);
        if !self.parts.is_empty() {
            self.parts.remove(&number);
        }
        self.reach(number, limits);
        if self
            .windows
            .put(number, arrival.leaf, limits.hold_leaves, digest)
        {
            self.review(digest);
        }
    }

    /// The good copy of a number is here: what was taken for it altered is injected.
    #[inline]
    pub(super) fn revise(&mut self, number: u64, resent: bool) {
        if !self.altered.is_empty()
            && let Some(copies) = self.altered.remove(&number)
            && !resent
        {
            self.events.push(Event::Injected { number, copies });
        }
    }

    /// Opens the windows up to the one of this number.
    #[inline]
    pub(super) fn reach(&mut self, number: u64, limits: &LedgerLimits) {
        if number / WINDOW >= self.windows.reached {
            self.windows
                .reach(number, limits, &self.gaps, &self.altered, &mut self.events);
        }
    }

    /// Suspects what lies below this number, each from when it was first told of: by a checkpoint,
    /// by a directory, or now.
    fn suspect_told(&mut self, number: u64, now: Duration, limits: &LedgerLimits) {
        let mut at = self.next;
        for (size, noticed) in self.tails.clone() {
            let end = size.min(number);
            if at < end {
                self.suspect(at..end, noticed, limits);
                at = end;
            }
        }
        self.suspect(at..number, now, limits);
    }

    pub(super) fn suspect(&mut self, numbers: Range<u64>, now: Duration, limits: &LedgerLimits) {
        if numbers.is_empty() {
            return;
        }
        self.gaps.open(numbers.clone(), now, false);
        if self.join == Join::Member {
            return;
        }
        for suspected in without(numbers, &self.altered) {
            self.events.push(Event::Suspected(suspected));
            self.doubted = true;
        }
        self.bound(limits);
    }

    fn in_stretch(&mut self, number: u64, late: bool) {
        if !self.order.arrived(number, late) {
            self.cut();
        }
    }

    pub(super) fn cut_if_whole(&mut self) {
        if self.gaps.waiting() == 0 {
            if !self.order.is_calm() {
                self.cut();
            }
            if std::mem::take(&mut self.doubted) {
                self.events.push(Event::Settled);
            }
        }
    }

    fn cut(&mut self) {
        for moved in self.order.cut() {
            self.moved += moved.numbers.end - moved.numbers.start;
            self.events.push(Event::Moved(moved));
        }
    }

    pub(super) fn bound(&mut self, limits: &LedgerLimits) {
        while self.gaps.len() > limits.gaps_max
            && let Some(numbers) = self.gaps.forget_oldest()
        {
            self.events.push(Event::Forgotten(numbers));
        }
    }

    pub(super) fn review(&mut self, digest: &impl Digest) {
        let open = self.windows_declared();
        let Self {
            windows,
            gaps,
            declared,
            altered,
            events,
            ..
        } = self;
        windows.review(gaps, altered, digest, events);
        if let Some(declared) = declared {
            declared.forget_passed(open, windows);
        }
        let found = std::mem::take(&mut windows.found);
        if found.is_empty() {
            return;
        }
        for numbers in joined(found) {
            events.push(Event::Forged(numbers.clone()));
            // The slots are empty again, and what belongs there is worth asking for.
            if let Some(declared) = declared {
                declared.numbers.forget(&numbers);
            }
            gaps.open(numbers, Duration::ZERO, true);
        }
        windows.review(gaps, altered, digest, events);
    }
}

/// Ranges that follow one another as one.
fn joined(ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    let mut all: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        match all.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ => all.push(range),
        }
    }
    all
}

/// `numbers` without those that came altered: they are named already.
fn without(numbers: Range<u64>, altered: &BTreeMap<u64, u32>) -> impl Iterator<Item = Range<u64>> {
    let mut at = numbers.start;
    let mut parts = Vec::new();
    for (number, _) in altered.range(numbers.clone()) {
        parts.push(at..*number);
        at = number + 1;
    }
    parts.push(at..numbers.end);
    parts.into_iter().filter(|part| !part.is_empty())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{Checkpoint, Epoch, Hasher, Lane, LaneId, LaneLimits};

    const SECOND: Duration = Duration::from_secs(1);

    fn lane() -> Lane {
        let id = LaneId::new(7).expect("7 is a lane");
        Lane::new(id, Epoch(0), LaneLimits::default(), Duration::ZERO)
    }

    /// The checkpoint of a lane that has issued so many messages.
    fn checkpoint_at(size: u64) -> Checkpoint {
        let (hasher, mut lane) = (Hasher::xxh3(), lane());
        let mut newest = None;
        for number in 0..size.max(1) {
            lane.issue(*b"t", *b"p", &hasher);
            let now = if number + 1 == size.max(1) {
                SECOND
            } else {
                Duration::ZERO
            };
            newest = lane.poll_checkpoint(now, 0, &hasher).or(newest);
        }
        let newest = newest.expect("a second has passed");
        Checkpoint { size, ..newest }
    }

    fn hear(ledger: &mut LaneLedger, checkpoint: &Checkpoint) {
        let (limits, hasher) = (LedgerLimits::default(), Hasher::xxh3());
        ledger.checkpoint(checkpoint, SECOND, &limits, &hasher);
    }

    fn arrive(ledger: &mut LaneLedger, number: u64, leaf: u8, limits: &LedgerLimits) -> Verdict {
        let arrival = Arrival {
            number,
            leaf: Hash::new(&[leaf; 16]).expect("16 bytes are a hash"),
            fits: true,
            resent: false,
            part: None,
        };
        ledger.observe(&arrival, SECOND, limits, &Hasher::xxh3())
    }

    #[test]
    fn leaves_that_are_to_be_held_are_not_folded() {
        for (hold_leaves, again) in [(true, Verdict::Conflict), (false, Verdict::Repeated)] {
            let limits = LedgerLimits {
                hold_leaves,
                ..LedgerLimits::default()
            };
            let mut ledger = LaneLedger::new(Join::Beginning);
            for number in 0..3 {
                arrive(&mut ledger, number, 1, &limits);
            }
            assert_eq!(arrive(&mut ledger, 1, 2, &limits), again);
        }
    }

    #[test]
    fn a_late_joiner_misses_checkpoints_behind_the_first_that_it_heard() {
        let mut ledger = LaneLedger::new(Join::Late);
        for (number, missed) in [(5, None), (8, Some(6..8))] {
            let checkpoint = Checkpoint {
                number,
                ..checkpoint_at(2)
            };
            hear(&mut ledger, &checkpoint);
            let events = ledger.take_events();
            let found = events.into_iter().find_map(|event| match event {
                Event::CheckpointsMissed(missed) => Some(missed),
                _ => None,
            });
            assert_eq!(found, missed, "{number}");
        }
    }

    #[test]
    fn a_checkpoint_opens_the_windows_that_it_covers_and_no_other() {
        for (size, reached) in [(0, 0), (1, 1), (WINDOW, 1), (WINDOW + 1, 2)] {
            let mut ledger = LaneLedger::new(Join::Beginning);
            hear(&mut ledger, &checkpoint_at(size));
            assert_eq!(ledger.windows.reached, reached, "{size}");
        }
    }

    #[test]
    fn a_checkpoint_contradicts_another_one_once() {
        let mut ledger = LaneLedger::new(Join::Beginning);
        let (first, other) = (checkpoint_at(5), Hash::new(&[1; 16]));
        let other = other.expect("16 bytes are a hash");
        let second = Checkpoint {
            window_root: other,
            lane_root: other,
            ..first.clone()
        };
        hear(&mut ledger, &first);
        hear(&mut ledger, &second);
        assert_eq!(ledger.contradictions, 1);
        let events = ledger.take_events();
        let contradicts = Event::CheckpointContradicts(first.number);
        let count = events.iter().filter(|event| **event == contradicts).count();
        assert_eq!(count, 1, "{events:?}");
    }

    #[test]
    fn the_memory_of_a_lane_grows_with_what_it_remembers() {
        let mut ledger = LaneLedger::new(Join::Beginning);
        arrive(&mut ledger, 0, 1, &LedgerLimits::default());
        let windows = ledger.windows.memory_bytes();
        assert!(windows > 0);
        let mut expected = size_of::<LaneLedger>() + windows;
        assert_eq!(ledger.memory_bytes(), expected);
        for number in [3, 5] {
            let seen = [0; 4];
            ledger.gaps.open(number..number + 1, SECOND, false);
            ledger.altered.insert(number, 1);
            ledger.parts.insert(number, Parts { of: 2, seen });
            expected += 64 + 32 + 80;
            assert_eq!(ledger.memory_bytes(), expected);
        }
        ledger.order.runs.reserve_exact(2);
        expected += ledger.order.runs.capacity() * 24;
        assert_eq!(ledger.memory_bytes(), expected);
    }

    #[test]
    fn an_open_epoch_is_unlisted_once() {
        for (closed, over, expected) in [
            (None, false, &[Event::Unlisted][..]),
            (None, true, &[]),
            (Some(3), false, &[]),
            (Some(3), true, &[]),
        ] {
            let mut ledger = LaneLedger::new(Join::Beginning);
            ledger.closed = closed;
            ledger.over = over;
            ledger.unlisted();
            ledger.unlisted();
            assert_eq!(ledger.take_events(), expected, "{closed:?} {over}");
        }
    }

    #[test]
    fn a_lane_that_was_listed_and_lost_whole_is_silent_and_its_windows_are_those_listed() {
        let (limits, hasher) = (LedgerLimits::default(), Hasher::xxh3());
        let mut ledger = LaneLedger::new(Join::Beginning);
        ledger.listed(WINDOW, Duration::ZERO);
        ledger.poll(SECOND * 60, &limits, &hasher);
        assert_eq!((ledger.next(), ledger.windows.reached), (WINDOW, 1));
        let events = ledger.take_events();
        assert!(events.contains(&Event::Silent(SECOND * 60)), "{events:?}");
        let lost = Event::Lost {
            numbers: 0..WINDOW,
            tail: true,
        };
        assert!(events.contains(&lost), "{events:?}");
    }

    #[test]
    fn lost_numbers_that_follow_one_another_are_asked_for_as_one() {
        let mut ledger = LaneLedger::new(Join::Beginning);
        for (numbers, noticed) in [(1..3, SECOND), (3..5, SECOND * 2), (6..7, SECOND)] {
            ledger.gaps.open(numbers, noticed, true);
        }
        assert_eq!(ledger.requests(), [Request::Numbers(vec![1..5, 6..7])]);
    }

    #[test]
    fn a_directory_that_lists_less_than_a_checkpoint_is_no_news() {
        for (closed, size, covered) in [(None, 5, 10), (None, 12, 12), (Some(10), 12, 10)] {
            let mut ledger = LaneLedger::new(Join::Beginning);
            ledger.covered = 10;
            ledger.closed = closed;
            ledger.listed(size, SECOND);
            assert_eq!(ledger.covered, covered, "{closed:?} {size}");
            assert_eq!(ledger.tails.len(), usize::from(covered == 12));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn the_usual_message_is_judged_as_any_other_is(
            steps in prop::collection::vec(0_u8..60, 0..2_600),
        ) {
            let (hasher, limits) = (Hasher::xxh3(), LedgerLimits::default());
            let id = LaneId::new(7).expect("7 is a lane");
            let mut now = Duration::ZERO;
            let mut lane = Lane::new(id, Epoch(0), LaneLimits::default(), now);
            let mut told_apart = LaneLedger::new(Join::Beginning);
            let mut all_alike = told_apart.clone();
            let mut late = None;
            for step in steps {
                now += Duration::from_millis(if step == 4 { 1_000 } else { 1 });
                let property = lane.issue(*b"t", [step], &hasher);
                let arrival = Arrival {
                    number: property.sequence,
                    leaf: property.digest,
                    fits: step != 2,
                    resent: step == 3,
                    part: (step == 5).then_some((1, 2)),
                };
                let arrivals = match step {
                    0 => [late.replace(arrival), None],
                    1 => [Some(arrival), Some(arrival)],
                    6 => [Some(arrival), late.take()],
                    _ => [Some(arrival), None],
                };
                for arrival in arrivals.into_iter().flatten() {
                    let verdict = told_apart.observe(&arrival, now, &limits, &hasher);
                    let expected = all_alike.observe_any(&arrival, now, &limits, &hasher);
                    prop_assert_eq!(verdict, expected);
                }
                let checkpoint = lane.poll_checkpoint(now, 0, &hasher);
                for ledger in [&mut told_apart, &mut all_alike] {
                    if let Some(checkpoint) = &checkpoint {
                        ledger.checkpoint(checkpoint, now, &limits, &hasher);
                    }
                    ledger.poll(now, &limits, &hasher);
                }
            }
            prop_assert_eq!(told_apart, all_alike);
        }
    }
}
