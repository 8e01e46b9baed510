//! The ledgers of many lanes, and the clock that stands still while messages wait elsewhere.
//!
//! Each epoch of a lane has a ledger of its own. What is late is late by the time in which the
//! receiver was connected and had nothing left to read: the caller says when that begins and ends.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Range;
use std::time::Duration;

use super::descent::{Answer, Refused, Request};
use super::directories::Directories;
use super::expected::Expected;
use super::joining::Joining;
use super::limits::LedgerLimits;
use super::receiver::{Arrival, Join, LaneLedger};
use super::verdict::{Event, Verdict};
use crate::saved::{Fields, StateError, Writer, check, seal};
use crate::{
    Checkpoint, Digest, DropRecord, Epoch, EpochEnd, LaneId, LaneParents, Parents, Property,
};

/// What a receiver knows of all lanes that use one digest.
#[derive(Clone, Debug)]
pub struct Ledger<D> {
    pub(super) digest: D,
    pub(super) limits: LedgerLimits,
    pub(super) joining: Joining,
    /// In boxes, since a map leaves about half of its room empty.
    pub(super) lanes: BTreeMap<(LaneId, Epoch), Box<LaneLedger>>,
    pub(super) clock: Clock,
    pub(super) directories: Directories,
    pub(super) expected: Expected,
}

/// Time that passed while it ran.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Clock {
    elapsed: Duration,
    running_since: Option<Duration>,
}

impl<D: Digest> Ledger<D> {
    /// No lane is known yet; the clock stands. `join` is for lanes that turn up from now on.
    pub fn new(digest: D, limits: LedgerLimits, join: Join) -> Self {
        Self {
            digest,
            limits,
            joining: Joining::new(join),
            lanes: BTreeMap::new(),
            clock: Clock::default(),
            directories: Directories::default(),
            expected: Expected::default(),
        }
    }

    /// The same ledger, from now on with these limits, and `join` for lanes that turn up.
    #[must_use]
    pub fn with(mut self, limits: LedgerLimits, join: Join) -> Self {
        self.limits = limits;
        self.joining.join = join;
        self
    }

    /// The receiver is connected and has read everything: the lateness clock runs.
    pub fn resume(&mut self, now: Duration) {
        self.clock.running_since.get_or_insert(now);
    }

    /// The connection is gone, or there is a backlog: the lateness clock stands.
    pub fn pause(&mut self, now: Duration) {
        self.clock.elapsed = self.clock.at(now);
        self.clock.running_since = None;
    }

    /// Judges a message against its own topic and payload.
    pub fn message(
        &mut self,
        property: &Property,
        topic: &[u8],
        payload: &[u8],
        now: Duration,
    ) -> Verdict {
        let fits = property.fits(&self.digest, topic, payload);
        self.observe(property, fits, now)
    }

    /// Judges a message by the property that it bore when a processor took it in. The payload is
    /// the processor's by now, whose own lane covers it, so the leaf alone counts. One of another
    /// algorithm than this ledger's is not audited here.
    pub fn origin(&mut self, property: &Property, now: Duration) -> Verdict {
        if property.algorithm != self.digest.algorithm() {
            return Verdict::NotAudited;
        }
        self.observe(property, true, now)
    }

    /// Takes a drop record whose tag has been checked. How many of its messages had not been seen;
    /// `None` when there is no room for their lane.
    pub fn dropped(&mut self, record: &DropRecord, now: Duration) -> Option<u64> {
        let now = self.clock.at(now);
        let lane = (record.lane, record.epoch);
        if !self.allows(lane) {
            return Some(0);
        }
        let ledger = Self::place(&mut self.lanes, &mut self.joining, lane, now, &self.limits)?;
        let runs = record.runs.iter();
        let taken =
            runs.map(|run| ledger.dropped(run.first, &run.leaves, now, &self.limits, &self.digest));
        Some(taken.sum())
    }

    /// The same for messages that this receiver itself leaves out: no copy of them is wanted any
    /// more, so one that comes again is known.
    pub fn left_out(&mut self, record: &DropRecord, now: Duration) -> Option<u64> {
        let taken = self.dropped(record, now);
        if let Some(ledger) = self.lanes.get_mut(&(record.lane, record.epoch)) {
            ledger.forget_declared();
        }
        taken
    }

    /// Takes the parents of a batch: each of them arrives with it. What they are, run by run.
    pub fn parents(
        &mut self,
        parents: &Parents,
        now: Duration,
    ) -> Vec<(LaneId, Epoch, Range<u64>, Verdict)> {
        let lanes = parents.lanes().iter();
        let verdicts = lanes.flat_map(|parents| {
            let runs = self.parents_of(parents, now).into_iter();
            runs.map(|(run, is)| (parents.lane, parents.epoch, run, is))
        });
        verdicts.collect()
    }

    /// The same for the parents in one epoch of a lane.
    pub fn parents_of(
        &mut self,
        parents: &LaneParents,
        now: Duration,
    ) -> Vec<(Range<u64>, Verdict)> {
        let now = self.clock.at(now);
        let lane = (parents.lane, parents.epoch);
        let refused = |verdict| {
            let ranges = parents.ranges.iter();
            let numbers = ranges.map(|range| (range.begin()..range.end(), verdict));
            numbers.collect()
        };
        if parents.algorithm != self.digest.algorithm() {
            return refused(Verdict::NotAudited);
        }
        if !self.allows(lane) {
            return refused(Verdict::Injected);
        }
        let ledger = Self::place(&mut self.lanes, &mut self.joining, lane, now, &self.limits);
        let Some(ledger) = ledger else {
            return refused(Verdict::NotAudited);
        };
        if ledger.begins_to_come() {
            self.joining.hear(lane);
        }
        let ranges = parents.ranges.iter();
        let runs = ranges.flat_map(|range| ledger.parents(range, now, &self.limits, &self.digest));
        runs.collect()
    }

    /// Takes it that a lane is heard itself from now on. What was known of it by what others were
    /// made of says nothing of how its own messages come, so it is forgotten. Whether this number
    /// had come in that way.
    pub fn hear_itself(&mut self, lane: LaneId, epoch: Epoch, number: u64) -> bool {
        let known = self.lanes.get(&(lane, epoch));
        let had_come = known
            .is_some_and(|ledger| number >= ledger.scope_start() && !ledger.is_missing(number));
        let epochs = (lane, Epoch(0))..=(lane, Epoch(u32::MAX));
        self.lanes.extract_if(epochs, |_, _| true).for_each(drop);
        had_come
    }

    /// Whether this epoch of a lane may be: one that a directory has listed stays one.
    fn allows(&self, lane: (LaneId, Epoch)) -> bool {
        self.lanes.contains_key(&lane) || self.directories.allow(lane)
    }

    fn observe(&mut self, property: &Property, fits: bool, now: Duration) -> Verdict {
        let arrival = Arrival {
            number: property.sequence,
            leaf: property.digest,
            fits,
            resent: property.flags.resent,
            part: property.part.map(|part| (part.index(), part.of())),
        };
        let now = self.clock.at(now);
        let lane = (property.lane, property.epoch);
        // A lane is not opened for a message whose very lane may be what was altered.
        let is_foreign = !arrival.fits && !self.lanes.contains_key(&lane);
        if is_foreign || !self.allows(lane) {
            return Verdict::Injected;
        }
        match Self::place(&mut self.lanes, &mut self.joining, lane, now, &self.limits) {
            Some(ledger) => {
                if arrival.fits && ledger.begins_to_come() {
                    self.joining.hear(lane);
                }
                ledger.observe(&arrival, now, &self.limits, &self.digest)
            }
            None => Verdict::NotAudited,
        }
    }

    /// Takes a checkpoint whose tag has been checked. False when there is no room for its lane. Of
    /// an epoch that was cut, and of which nothing came, nothing is claimed: it may have been over
    /// before anybody listened. One of a lane that a directory would have to list is ignored.
    pub fn checkpoint(&mut self, checkpoint: &Checkpoint, now: Duration) -> bool {
        let now = self.clock.at(now);
        let lane = (checkpoint.lane, checkpoint.epoch);
        let is_over = checkpoint.end == EpochEnd::Cut && !self.lanes.contains_key(&lane);
        if is_over || !self.allows(lane) {
            return true;
        }
        let Some(ledger) = Self::place(&mut self.lanes, &mut self.joining, lane, now, &self.limits)
        else {
            return false;
        };
        ledger.checkpoint(checkpoint, now, &self.limits, &self.digest);
        true
    }

    /// Takes in what another member of the same group has seen, lane by lane; returns the lanes for
    /// which there is no room. Both ledgers must be those of members. Take the events first.
    pub fn merge(&mut self, other: &Self) -> Vec<(LaneId, Epoch)> {
        let mut no_room = Vec::new();
        for (lane, member) in &other.lanes {
            match Self::place(
                &mut self.lanes,
                &mut self.joining,
                *lane,
                Duration::ZERO,
                &self.limits,
            ) {
                Some(ledger) => ledger.merge(member, &self.limits),
                None => no_room.push(*lane),
            }
        }
        no_room
    }

    /// Takes in what members of a group have seen, into a ledger that judges whole lanes; returns
    /// the lanes for which there is no room.
    pub fn absorb(&mut self, members: &Self, now: Duration) -> Vec<(LaneId, Epoch)> {
        let now = self.clock.at(now);
        let mut no_room = Vec::new();
        for (lane, member) in &members.lanes {
            match Self::place(&mut self.lanes, &mut self.joining, *lane, now, &self.limits) {
                Some(ledger) => {
                    ledger.absorb(member, now, &self.limits, &self.digest);
                    if member.come && ledger.begins_to_come() {
                        self.joining.hear(*lane);
                    }
                }
                None => no_room.push(*lane),
            }
        }
        no_room
    }

    /// Lets time pass in every lane.
    pub fn poll(&mut self, now: Duration) {
        let now = self.clock.at(now);
        for ledger in self.lanes.values_mut() {
            ledger.poll(now, &self.limits, &self.digest);
        }
        self.look_for_expected(now);
    }

    /// What became known since the last call, lane by lane.
    pub fn take_events(&mut self) -> impl Iterator<Item = (LaneId, Epoch, Event)> {
        self.lanes.iter_mut().flat_map(|(&(lane, epoch), ledger)| {
            let events = ledger.take_events().into_iter();
            events.map(move |event| (lane, epoch, event))
        })
    }

    /// What to ask the producers now: [`LaneLedger::requests`], lane by lane.
    pub fn requests(&self) -> impl Iterator<Item = (LaneId, Epoch, Request)> {
        self.lanes.iter().flat_map(|(&(lane, epoch), ledger)| {
            let requests = ledger.requests().into_iter();
            requests.map(move |request| (lane, epoch, request))
        })
    }

    /// Takes a producer's answer about one epoch of its lane.
    pub fn answer(&mut self, lane: LaneId, epoch: Epoch, answer: &Answer) -> Result<(), Refused> {
        let ledger = self.lanes.get_mut(&(lane, epoch));
        let ledger = ledger.ok_or(Refused::UnknownLane(lane))?;
        ledger.answer(answer, &self.digest)
    }

    /// When [`Ledger::poll`] has something to do next, if the clock runs; `None` while it stands
    /// or nothing waits.
    pub fn timeout(&self) -> Option<Duration> {
        let since = self.clock.running_since?;
        let ledgers = self.lanes.values();
        let due = ledgers
            .filter_map(|ledger| ledger.timeout(&self.limits))
            .min()?;
        Some(since + due.saturating_sub(self.clock.elapsed))
    }

    /// What is known, epoch by epoch of each lane.
    pub fn lanes(&self) -> impl Iterator<Item = (LaneId, Epoch, &LaneLedger)> {
        let lanes = self.lanes.iter();
        lanes.map(|(&(lane, epoch), ledger)| (lane, epoch, &**ledger))
    }

    /// The ledger of one epoch of a lane.
    pub fn lane(&self, lane: LaneId, epoch: Epoch) -> Option<&LaneLedger> {
        self.lanes.get(&(lane, epoch)).map(Box::as_ref)
    }

    /// Whether this epoch of a lane is not followed because as many are as may be.
    pub fn is_full_for(&self, lane: LaneId, epoch: Epoch) -> bool {
        self.lanes.len() >= self.limits.lanes_max && !self.lanes.contains_key(&(lane, epoch))
    }

    /// Appends everything known by `now` to `out`, with `position`, the caller's own note of how
    /// far it has read (below 4 GiB). To be stored in one transaction with what the messages led
    /// to. Take the events first: those not taken are not saved.
    pub fn save(&self, position: &[u8], now: Duration, out: &mut Vec<u8>) {
        let from = out.len();
        let mut write = Writer(out);
        write.u8(VERSION);
        write.bytes(position);
        write.time(self.clock.at(now));
        self.directories.save(&mut write);
        self.joining.save(&mut write);
        write.list(self.lanes.iter(), |write, ((lane, epoch), ledger)| {
            write.u64(lane.value());
            write.u32(epoch.0);
            let mut saved = Vec::new();
            ledger.save(&self.digest, &mut saved);
            write.bytes(&saved);
        });
        seal(&self.digest, from, out);
    }

    /// Reads what [`Ledger::save`] wrote: the ledger, and the caller's position. The clock stands
    /// until [`Ledger::resume`]. `join` is for lanes that turn up from now on.
    pub fn restore(
        bytes: &[u8],
        digest: D,
        limits: LedgerLimits,
        join: Join,
    ) -> Result<(Self, Vec<u8>), StateError> {
        let mut read = Fields::new(check(&digest, bytes)?);
        let version = read.u8("version")?;
        if !(VERSION_FIRST..=VERSION).contains(&version) {
            return Err(StateError::Version(version));
        }
        let position = read.bytes("position")?.to_vec();
        let elapsed = read.time("time of the clock")?;
        let directories = Directories::restore(&mut read, version > 2)?;
        let mut joining = Joining::new(join);
        if version > 1 {
            joining.restore(&mut read)?;
        }
        let mut lanes = BTreeMap::new();
        read.list(|read| {
            let lane = LaneId::new(read.u64("lane")?).ok_or_else(|| read.refuse("lane"))?;
            let epoch = Epoch(read.u32("epoch")?);
            let mut ledger = Box::new(LaneLedger::restore(read.bytes("lane's ledger")?, &digest)?);
            ledger.windows.holds_all = limits.hold_leaves;
            if ledger.come {
                joining.hear((lane, epoch));
            }
            if lanes.len() >= limits.lanes_max || lanes.insert((lane, epoch), ledger).is_some() {
                return Err(read.refuse("room for the lane"));
            }
            Ok(())
        })?;
        read.end()?;
        let clock = Clock {
            elapsed,
            running_since: None,
        };
        let ledger = Self {
            digest,
            limits,
            joining,
            lanes,
            clock,
            directories,
            expected: Expected::default(),
        };
        Ok((ledger, position))
    }

    /// The ledger of a lane, begun now if it is new; `None` when there is no room.
    pub(super) fn open(&mut self, lane: (LaneId, Epoch), now: Duration) -> Option<&mut LaneLedger> {
        Self::place(&mut self.lanes, &mut self.joining, lane, now, &self.limits)
    }

    fn place<'a>(
        lanes: &'a mut BTreeMap<(LaneId, Epoch), Box<LaneLedger>>,
        joining: &mut Joining,
        lane: (LaneId, Epoch),
        now: Duration,
        limits: &LedgerLimits,
    ) -> Option<&'a mut LaneLedger> {
        let known = lanes.len();
        match lanes.entry(lane) {
            Entry::Occupied(ledger) => Some(ledger.into_mut()),
            Entry::Vacant(place) => (known < limits.lanes_max).then(|| {
                let ledger = LaneLedger::begin(joining.begin(lane, now), now);
                &mut **place.insert(Box::new(ledger))
            }),
        }
    }
}

impl LaneLedger {
    /// Takes it that a message comes that fits. Whether it is the first one.
    #[inline]
    pub(super) fn begins_to_come(&mut self) -> bool {
        let begins = !self.come;
        self.come = true;
        begins
    }
}

/// Announced lanes are saved from version 2 on, directories that were heard from version 3 on.
const VERSION: u8 = 3;
const VERSION_FIRST: u8 = 1;

impl Clock {
    pub(super) fn at(self, now: Duration) -> Duration {
        let running = self.running_since.map(|since| now.saturating_sub(since));
        self.elapsed + running.unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
