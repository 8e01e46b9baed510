//! Lanes of publishers that stamp themselves: judged here, before a receiver has them.
//!
//! A message with the user property `audit` is judged by the ledger of its lane: does it fit its
//! digest, is its number missing, a repetition, out of order? Checkpoints, which pass through on
//! `<prefix>/checkpoint/<lane>`, prove windows. Only lanes of algorithm 1 are judged: the others
//! need a key that the broker does not have, and are *unverifiable*, which is counted and reported.
//!
//! Invariants:
//! - A lane is opened by a message that is judged here, and belongs to the client that sent this
//!   message: [`super::owners`]. What another client sends of it is not judged, and its sender is
//!   named, as is a client that speaks of the lane in its owner's place; of another user it is
//!   refused ([`bound`]). What processors pass on, with `audit-through`, is left to its receivers.
//! - A number that may have come is never called lost. Of a lane of which the rules leave out
//!   messages the others are judged one by one, and a window with holes is unproven.
//! - A message that is refused is named with its reason, and is not lost; it may still come.
//! - Nothing that the ledger finds goes unnamed. What it could find out only by asking is
//!   reported as it is: of a root that differs, the window.
//! - Whatever is found, the message is delivered unchanged: its consumers judge for themselves.
//! - A lane's clock stands while its publisher is not connected, so what it sends again after a
//!   reconnect is not lost meanwhile.
//! - A lane is forgotten with its publisher's session; with one that stays it outlives a broker
//!   that stops in good order, and with what it knew a second before one that is killed: the disk
//!   learns of it a second after it was opened, whatever becomes of its messages.
//! - At most [`VERIFIED_LANES_MAX`] lanes a shard, and a share of them a client: [`shares`].

mod announced;
mod bound;
mod lane;
mod publishers;
mod shares;
mod words;

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::{Duration, Instant};

use unbroken_merkle_log::ledger::{Arrival, Verdict};
use unbroken_merkle_log::{Algorithm, Epoch, LaneId, Property, Xxh3};

use self::lane::Fault;
pub(super) use self::lane::Lane;
pub use self::lane::{LaneCheckpoint, LaneInfo};
pub(crate) use self::publishers::Publishers;
use super::Audit;
use super::known::Origin;
use super::owners::{Sender, Spot};
use crate::durability::{LaneState, Record};
use crate::message::Publication;
use crate::reason::{DropReason, FaultKind};
use crate::telemetry::Telemetry;

/// The session that a lane belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LaneSession {
    pub(crate) is_connected: bool,
    pub(crate) is_durable: bool,
}

impl Audit {
    /// Judges what a publisher says about its message. `again`: it came with DUP. Answers in which
    /// ledger the message is.
    #[cold]
    pub(super) fn verify(
        &mut self,
        telemetry: &mut Telemetry,
        sender: &Sender,
        again: bool,
        publication: &Publication<'_>,
        said_on: &str,
    ) -> Option<(LaneId, Epoch)> {
        if self.verify_word(telemetry, sender, again, &publication.on(said_on)) {
            return None;
        }
        let property = stamp(telemetry, publication)?;
        let key = (property.lane, property.epoch);
        let (topic, payload) = (said_on.as_bytes(), publication.payload);
        let fits = property.fits(&Xxh3, topic, payload);
        let spot = Spot {
            lane: key.0,
            epoch: key.1,
            number: property.sequence,
        };
        if self.intrudes(telemetry, sender, spot, publication.topic) {
            return None;
        }
        let own = self.publishers.own(key, sender).filter(|_| fits);
        let was_refused = own.is_some_and(|(lane, _)| lane.refused.remove(&property.sequence));
        if !fits && !self.publishers.lanes.contains_key(&key) {
            // A lane is not opened for a message whose very lane may be what was altered.
            telemetry.audit().publishers.altered += 1;
            return None;
        }
        let origin = match self.owners.known.origin(key) {
            Origin::Unknown if property.sequence == 0 => Origin::Begins,
            origin => origin,
        };
        if !self.open_lane(telemetry, publication.stamp, key, sender, origin) {
            // It may have turned out to be another's.
            self.intrudes(telemetry, sender, spot, publication.topic);
            return None;
        }
        let arrival = Arrival {
            number: property.sequence,
            leaf: property.digest,
            fits,
            // One that comes with DUP is sent again by the rules, as is one that was refused.
            resent: property.flags.resent || again || was_refused,
            part: property.part.map(|part| (part.index(), part.of())),
        };
        self.observe(telemetry, key, sender, &arrival, publication)
    }

    /// Gives a message to the ledger of its lane.
    fn observe(
        &mut self,
        telemetry: &mut Telemetry,
        key: (LaneId, Epoch),
        sender: &Sender,
        arrival: &Arrival,
        publication: &Publication<'_>,
    ) -> Option<(LaneId, Epoch)> {
        let lane = self.publishers.lanes.get_mut(&key)?;
        if lane.owner.user != sender.user && lane.owner.user.passes_to(&sender.user) {
            lane.owner.user.clone_from(&sender.user);
        }
        let limits = &self.publishers.limits.0;
        let verdict = lane.ledger.observe(arrival, lane.clock, limits, &Xxh3);
        if arrival.fits {
            lane.seen = lane.seen.max(arrival.number.saturating_add(1));
            lane.proof.note_arrival(arrival.number, publication.stamp);
        }
        let totals = &mut telemetry.audit().publishers;
        match verdict {
            Verdict::OutOfScope => totals.unaudited += 1,
            _ => totals.verified += 1,
        }
        let kind = match verdict {
            Verdict::Altered => Some(FaultKind::Altered),
            Verdict::Injected | Verdict::Conflict => Some(FaultKind::Injected),
            Verdict::Duplicate => Some(FaultKind::Duplicated),
            Verdict::Repeated => Some(FaultKind::Repeated),
            _ => None,
        };
        if let Some(kind) = kind {
            let fault = Fault::new(kind, arrival.number, 1);
            let topic = Some(publication.topic);
            lane.report_fault(key, &fault, topic, &mut self.watch, telemetry);
        }
        lane.take_events(key, &mut self.watch, telemetry);
        Some(key)
    }

    /// Notes that the rules leave out this message: of its lane, where that is open, a part is
    /// judged from now on.
    #[cold]
    pub(super) fn leave_out(
        &mut self,
        sender: &Sender,
        publication: &Publication<'_>,
        said_on: &str,
    ) {
        let topics = &self.watch.topics;
        if self.publishers.lanes.is_empty() || said_on.starts_with(&topics.answers) {
            return;
        }
        let stamp = values(publication, Property::NAME).next();
        let Some(Ok(property)) = stamp.map(Property::parse_text) else {
            return;
        };
        let key = (property.lane, property.epoch);
        let Some((lane, _)) = self.publishers.own(key, sender) else {
            return;
        };
        lane.left_out += 1;
        if lane.left_out == 1 {
            lane.report_part(key, &mut self.watch);
        }
    }

    /// Notes that this message is refused: its publisher hears so, and it is not lost. One of a
    /// lane that is not open opens none.
    #[cold]
    pub(super) fn refused(
        &mut self,
        telemetry: &mut Telemetry,
        sender: &Sender,
        publication: &Publication<'_>,
        reason: DropReason,
    ) {
        let mut stamps = values(publication, Property::NAME);
        let (Some(Ok(property)), None) = (stamps.next().map(Property::parse_text), stamps.next())
        else {
            return;
        };
        let (topic, payload) = (publication.topic.as_bytes(), publication.payload);
        let is_whole = property.part.is_none() && property.algorithm == Algorithm::Xxh3;
        let key = (property.lane, property.epoch);
        let Some((lane, limits)) = self.publishers.own(key, sender) else {
            return;
        };
        if !is_whole || !property.fits(&Xxh3, topic, payload) {
            return;
        }
        let (number, leaves) = (property.sequence, [property.digest]);
        let taken = lane
            .ledger
            .dropped(number, &leaves, lane.clock, limits, &Xxh3);
        if taken > 0 {
            if lane.refused.len() >= REFUSED_MAX {
                lane.refused.pop_first();
            }
            lane.refused.insert(number);
            lane.report_refused(key, number, reason, &mut self.watch, telemetry);
        }
        lane.take_events(key, &mut self.watch, telemetry);
    }

    /// When the lanes are to be looked at, if that was not asked for before.
    pub(crate) fn next_lanes_tick(&mut self, now: Instant) -> Option<Instant> {
        if self.publishers.ticked.is_some() || self.publishers.is_at_rest() {
            return None;
        }
        self.publishers.ticked = Some(now);
        Some(now + TICK)
    }

    /// The time has come to look at the lanes. Answers how far the clocks go on of those whose
    /// publishers are connected.
    pub(crate) fn begin_lanes_tick(&mut self, now: Instant, telemetry: &mut Telemetry) -> Duration {
        self.report_strangers(telemetry);
        let ticked = self.publishers.ticked.replace(now);
        ticked.map_or(Duration::ZERO, |at| now.saturating_duration_since(at))
    }

    /// The lane behind this one, or the first, and the client whose it is.
    pub(crate) fn next_lane(
        &self,
        after: Option<(LaneId, Epoch)>,
    ) -> Option<((LaneId, Epoch), &Arc<str>)> {
        self.publishers.next(after)
    }

    /// The first epoch of a lane behind this one, as an operator is shown it.
    pub(crate) fn lane_info(
        &self,
        after: Option<(LaneId, Epoch)>,
        now: Instant,
    ) -> Option<((LaneId, Epoch), LaneInfo)> {
        let (key, _) = self.publishers.next(after)?;
        Some((key, self.publishers.lanes.get(&key)?.info(key, now)))
    }

    /// Moves the clock of a lane on, if its publisher is connected: what is later than the bound is
    /// lost. A lane ends with the session of its publisher.
    pub(crate) fn tick_lane(
        &mut self,
        key: (LaneId, Epoch),
        session: Option<LaneSession>,
        since: Duration,
        telemetry: &mut Telemetry,
    ) {
        let Some(session) = session else {
            self.publishers.remove(key);
            if !self.publishers.is_open(key.0) {
                self.release_lane(key.0);
            }
            return;
        };
        let limits = &self.publishers.limits.0;
        if let Some(lane) = self.publishers.lanes.get_mut(&key)
            && session.is_connected
        {
            lane.clock += since;
            lane.ledger.poll(lane.clock, limits, &Xxh3);
            lane.take_events(key, &mut self.watch, telemetry);
        }
    }

    /// All lanes were looked at. Answers when that is due again.
    pub(crate) fn end_lanes_tick(&mut self, now: Instant) -> Option<Instant> {
        self.publishers.ticked = None;
        self.next_lanes_tick(now)
    }

    /// The next lane whose ledger is to be stored, and the client whose it is. `None` where there
    /// is none, or enough was stored for now.
    pub(crate) fn next_unstored_lane(&mut self) -> Option<((LaneId, Epoch), Arc<str>)> {
        let publishers = &mut self.publishers;
        if publishers.stored_bytes >= LEDGER_BYTES_A_TICK {
            publishers.stored_bytes = 0;
            return None;
        }
        let mut after = publishers.stored_through.take();
        while let Some((key, client_id)) = publishers.next(after) {
            if publishers
                .lanes
                .get(&key)
                .is_some_and(|lane| lane.is_unstored)
            {
                let client_id = Arc::clone(client_id);
                publishers.stored_through = Some(key);
                return Some((key, client_id));
            }
            after = Some(key);
        }
        publishers.stored_bytes = 0;
        None
    }

    /// The ledger of this lane as it is stored, if its session is persistent.
    pub(crate) fn lane_so_far(&mut self, key: (LaneId, Epoch), is_durable: bool) -> Option<Record> {
        let lane = self.publishers.lanes.get_mut(&key)?;
        lane.is_unstored = false;
        if !is_durable {
            return None;
        }
        let (state, bytes) = lane.state(key);
        self.publishers.stored_bytes += bytes;
        Some(Record::LaneSnapshot(state))
    }

    /// A message of this lane is stored.
    pub(crate) fn note_stored(&mut self, key: (LaneId, Epoch)) {
        self.publishers.note_stored(key);
    }

    /// A lane as it is when the broker stops, if it can go on. One of which messages were left out
    /// begins anew.
    pub(crate) fn lane_at_rest(&self, key: (LaneId, Epoch)) -> Option<LaneState> {
        let lane = self.publishers.lanes.get(&key);
        Some(lane.filter(|lane| lane.is_exact())?.state(key).0)
    }
}

/// The stamp of a message, if it has one that can be judged. Counts one that cannot.
fn stamp(telemetry: &mut Telemetry, publication: &Publication<'_>) -> Option<Property> {
    let mut stamps = values(publication, Property::NAME);
    let text = stamps.next()?;
    let totals = &mut telemetry.audit().publishers;
    match Property::parse_text(text) {
        Ok(property) if stamps.next().is_none() => {
            if property.algorithm == Algorithm::Xxh3 {
                return Some(property);
            }
            totals.unverifiable += 1;
        }
        // Unreadable, or more than one.
        _ => totals.injected += 1,
    }
    None
}

/// The values of the user properties with this name.
fn values<'a>(publication: &Publication<'a>, name: &str) -> impl Iterator<Item = &'a str> {
    let properties = publication.properties.user_properties();
    properties.filter_map(move |(key, value)| (key == name).then_some(value))
}

/// All epochs of a lane.
pub(super) fn epochs_of(lane: LaneId) -> RangeInclusive<(LaneId, Epoch)> {
    (lane, Epoch(0))..=(lane, Epoch(u32::MAX))
}

/// Numbers of a lane that were refused and may come again, 8 bytes each. Of more the lowest are
/// forgotten: one that still comes, and not with DUP, is called a duplicate.
const REFUSED_MAX: usize = 1_024;

/// Bytes of ledgers that are stored in one tick, and one ledger more. With more the others come in
/// the next.
const LEDGER_BYTES_A_TICK: usize = 1024 * 1024;

/// Between two looks at what has become late, and at what is to be stored.
const TICK: Duration = Duration::from_secs(1);
