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

mod review;

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use self::review::joined;
use super::declared::Declared;
use super::gaps::{Gaps, Hole};
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
    /// As a member of a shared group: nothing is missing or out of order until ledgers are merged.
    Member,
}

/// A message, as far as the ledger needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Its sequence number.
    pub number: u64,
    /// The digest in its property.
    pub leaf: Hash,
    /// Whether topic and payload give that digest; true of a message transformed on its way.
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
    pub(super) come: bool, // a message that fits, or what was made of one
    pub(super) heard: Duration,
    pub(super) idle: bool,
    pub(super) silent: bool,
    /// Something is suspected.
    pub(super) doubted: bool,
    /// It was cut off.
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
            come: false,
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
                self.reach(size - 1, limits);
                self.gaps.open(tail.clone(), noticed, true);
                self.next = size;
                given_up.push(tail);
            }
        }
        if given_up.is_empty() {
            return;
        }
        let tails = joined(given_up.split_off(holes));
        let given_up = given_up.into_iter().map(|numbers| (numbers, false));
        for (numbers, tail) in given_up.chain(tails.into_iter().map(|numbers| (numbers, true))) {
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
            self.settle();
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
        let is_worth_review = self.put(arrival, limits, digest);
        if verdict == Verdict::Late && self.gaps.waiting() > 0 {
            let by = self.order.above(number);
            self.events.push(Event::Overtaken { number, by });
        }
        self.cut_if_whole();
        if is_worth_review {
            self.review(digest);
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
    fn place(&mut self, arrival: &Arrival, limits: &LedgerLimits, digest: &impl Digest) {
        if self.put(arrival, limits, digest) {
            self.review(digest);
        }
    }

    /// Puts a leaf in its slot. True when that makes its window worth a review.
    #[inline]
    fn put(&mut self, arrival: &Arrival, limits: &LedgerLimits, digest: &impl Digest) -> bool {
        let number = arrival.number;
        self.revise(number, arrival.resent);
        self.parts.remove(&number);
        self.reach(number, limits);
        let hold = limits.hold_leaves;
        self.windows.put(number, arrival.leaf, hold, digest)
    }

    /// The good copy of a number is here: what was taken for it altered is injected.
    #[inline]
    pub(super) fn revise(&mut self, number: u64, resent: bool) {
        if let Some(copies) = self.altered.remove(&number)
            && !resent
        {
            self.events.push(Event::Injected { number, copies });
        }
    }

    /// Opens the windows up to the one of this number.
    #[inline]
    pub(super) fn reach(&mut self, number: u64, limits: &LedgerLimits) {
        self.windows
            .reach(number, limits, &self.gaps, &self.altered, &mut self.events);
    }

    /// Suspects what lies below this number, each from when it was first told of: by a checkpoint,
    /// by a directory, or now.
    pub(super) fn suspect_told(&mut self, number: u64, now: Duration, limits: &LedgerLimits) {
        let mut at = self.next;
        for (size, noticed) in self.tails.iter().copied().chain([(number, now)]) {
            let end = size.min(number).max(at);
            self.gaps.open(at..end, noticed, false);
            at = end;
        }
        if self.join == Join::Member {
            return;
        }
        for suspected in without(self.next..number, &self.altered) {
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
            self.cut();
        }
        self.settle();
    }

    /// Notes that nothing is suspected any more, if so. Of what came altered it is known.
    fn settle(&mut self) {
        let (gaps, altered) = (&self.gaps, &self.altered);
        let is_known = |(start, hole): (u64, Hole)| {
            hole.lost || without(start..hole.end, altered).next().is_none()
        };
        let suspects_nothing =
            gaps.waiting() == 0 || !altered.is_empty() && gaps.iter().all(is_known);
        if self.doubted && suspects_nothing {
            self.doubted = false;
            self.events.push(Event::Settled);
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

    /// No more messages come: it is closed, or was cut and nothing is known beyond what was told.
    fn is_over(&self) -> bool {
        let is_cut = self.windows.cut.is_some();
        self.closed.is_some() || is_cut && self.next <= self.windows.told()
    }
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
mod tests;
