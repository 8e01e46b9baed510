//! Lanes of publishers that stamp themselves: judged here, before anybody receives them.
//!
//! A message with the user property `audit` is judged by the ledger of its lane: does it fit its
//! digest, is its number missing, a repetition, out of order? Checkpoints, which pass through on
//! `<prefix>/checkpoint/<lane>`, prove windows. Only lanes of algorithm 1 are judged: the others
//! need a key that the broker does not have, and are *unverifiable*, which is counted and told.
//!
//! Invariants:
//! - A lane is opened by a message that is judged here, and belongs to the client that sent this
//!   message: [`super::owners`]. What another client sends of it is not judged, and its sender is
//!   named, as is a client that speaks of the lane in its owner's place. What processors pass on,
//!   with `audit-through`, is left to its receivers.
//! - A number that may have come is never called lost. Of a lane of which the rules leave out
//!   messages the others are judged one by one, and a window with holes is unproven.
//! - A message that is refused is named with its reason, and is not lost; it may still come.
//! - Nothing that the ledger finds goes unnamed. What it could find out only by asking is told as
//!   what it is: of a root that differs, the window.
//! - Whatever is found, the message is delivered unchanged: its consumers judge for themselves.
//! - A lane's clock stands while its publisher is not connected, so what it sends again after a
//!   reconnect is not lost meanwhile.
//! - A lane is forgotten with its publisher's session; with one that stays it outlives a broker
//!   that stops in good order, and with what it knew a second before one that is killed: the disk
//!   learns of it a second after it was opened, whatever becomes of its messages.
//! - At most [`VERIFIED_LANES_MAX`] lanes a shard, and a share of them a client: [`shares`].

mod announced;
mod shares;
mod words;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Bound, Range, RangeInclusive};
use std::sync::Arc;
use std::time::{Duration, Instant};

use shares::Refusals;
use unbroken_merkle_log::ledger::limits::WINDOW;
use unbroken_merkle_log::ledger::{
    Account, Arrival, Event as Found, LaneLedger, LedgerLimits, State, Verdict,
};
use unbroken_merkle_log::{Algorithm, Epoch, LaneId, Property, Xxh3};

use super::json::Object;
use super::known::Origin;
use super::owners::{Intrusion, LaneOwners, Sender, Spot, User};
use crate::clients::Clients;
use crate::durability::{LaneState, Record};
use crate::limits::VERIFIED_LANES_MAX;
use crate::message::Publication;
use crate::reason::{DropReason, FaultKind, Sent};
use crate::session::Session;
use crate::shard::Shard;
use crate::telemetry::{Event, PublishersTotals};
use crate::timers::Timer;

/// The lanes of the publishers of one shard.
#[derive(Debug, Default)]
pub(crate) struct Publishers {
    lanes: BTreeMap<(LaneId, Epoch), Lane>,
    /// How many of them each client has.
    counts: BTreeMap<Arc<str>, usize>,
    /// What clients sent of lanes of others, within the last second or two.
    pub(super) intrusions: BTreeMap<(LaneId, Sent, Sender), Intrusion>,
    /// Messages of lanes that were not opened, by client, within the last second or two.
    refusals: BTreeMap<Arc<str>, Refusals>,
    /// Limits of each ledger.
    limits: Limits,
    /// When the clocks of the lanes were last moved on.
    ticked: Option<Instant>,
    /// Up to which lane the disk was told at the last tick, if there was too much for one.
    told_through: Option<(LaneId, Epoch)>,
}

#[derive(Debug)]
struct Limits(LedgerLimits);

impl Default for Limits {
    fn default() -> Self {
        let mut limits = LedgerLimits::default();
        limits.lanes_max = VERIFIED_LANES_MAX;
        limits.open_windows_max = 4;
        limits.gaps_max = 1_024;
        limits.suspects_max = 256;
        Self(limits)
    }
}

#[derive(Debug)]
pub(super) struct Lane {
    /// Who publishes it here. The user is not on disk: after a restart the first one that goes on
    /// with the lane is.
    owner: Sender,
    ledger: LaneLedger,
    /// Time in which the client was connected.
    clock: Duration,
    /// Messages of it that the rules have left out.
    left_out: u64,
    /// Numbers that were refused, and have not come again.
    refused: BTreeSet<u64>,
    /// Where the window begins of which it was told last that its root differs.
    differs: Option<u64>,
    /// Numbers below this may have come before the broker was killed, and the ledger does not know
    /// of it. [`ALL`] until the publisher has said how far it is.
    may_have_come: u64,
    /// It was opened, or a message of it was stored, since the disk was told.
    is_untold: bool,
    /// Its publisher has said that it is over.
    is_closed: bool,
    /// One more than the highest number that was seen.
    seen: u64,
}

/// A fault of a publisher's lane.
struct Fault {
    kind: FaultKind,
    first: u64,
    count: u64,
}

impl Shard {
    /// Looks at what a publisher says about its message. `again`: it came with DUP. Answers in
    /// which ledger the message is.
    #[cold]
    pub(crate) fn verify(
        &mut self,
        now: Instant,
        sender: &Sender,
        again: bool,
        publication: &Publication<'_>,
    ) -> Option<(LaneId, Epoch)> {
        if self.verify_word(now, sender, again, publication) {
            return None;
        }
        let mut stamps = values(publication, Property::NAME);
        let text = stamps.next()?;
        let totals = &mut self.clients.telemetry.audit().publishers;
        let property = match Property::parse_text(text) {
            Ok(property) if stamps.next().is_none() => property,
            // Unreadable, or more than one.
            _ => {
                totals.injected += 1;
                return None;
            }
        };
        if property.algorithm != Algorithm::Xxh3 {
            totals.unverifiable += 1;
            return None;
        }
        let (topic, payload) = (publication.topic.as_bytes(), publication.payload);
        let key = (property.lane, property.epoch);
        let fits = property.fits(&Xxh3, topic, payload);
        let spot = Spot {
            lane: key.0,
            epoch: key.1,
            number: property.sequence,
        };
        if self.intrudes(sender, spot, publication.topic) {
            return None;
        }
        let own = own(&mut self.publishers.lanes, key, sender).filter(|_| fits);
        let was_refused = own.is_some_and(|lane| lane.refused.remove(&property.sequence));
        let arrival = Arrival {
            number: property.sequence,
            leaf: property.digest,
            fits,
            // One that comes with DUP is sent again by the rules, as is one that was refused.
            resent: property.flags.resent || again || was_refused,
            part: property.part.map(|part| (part.index(), part.of())),
        };
        if !arrival.fits && !self.publishers.lanes.contains_key(&key) {
            // A lane is not opened for a message whose very lane may be what was altered.
            self.clients.telemetry.audit().publishers.altered += 1;
            return None;
        }
        let origin = match self.owners.known.origin(key) {
            Origin::Unknown if property.sequence == 0 => Origin::Begins,
            origin => origin,
        };
        if !self.open_lane(key, sender, origin) {
            // It may have turned out to be another's.
            self.intrudes(sender, spot, publication.topic);
            self.start_ticking(now);
            return None;
        }
        let lane = self.publishers.lanes.get_mut(&key)?;
        if lane.owner.user == User::Unknown {
            lane.owner.user.clone_from(&sender.user);
        }
        let limits = &self.publishers.limits.0;
        let lane_now = lane.clock;
        let verdict = lane.ledger.observe(&arrival, lane_now, limits, &Xxh3);
        if fits {
            lane.seen = lane.seen.max(property.sequence.saturating_add(1));
        }
        let totals = &mut self.clients.telemetry.audit().publishers;
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
            let fault = Fault::new(kind, property.sequence, 1);
            lane.tell(key, &fault, Some(publication.topic), &mut self.clients);
        }
        lane.take_events(key, &mut self.clients);
        self.start_ticking(now);
        Some(key)
    }

    /// Notes that the rules leave out this message: of its lane, where that is open, a part is
    /// judged from now on.
    #[cold]
    pub(super) fn leave_out(&mut self, sender: &Sender, publication: &Publication<'_>) {
        let topics = &self.clients.home.topics;
        if self.publishers.lanes.is_empty() || publication.topic.starts_with(&topics.answers) {
            return;
        }
        let stamp = values(publication, Property::NAME).next();
        let Some(Ok(property)) = stamp.map(Property::parse_text) else {
            return;
        };
        let key = (property.lane, property.epoch);
        let Some(lane) = own(&mut self.publishers.lanes, key, sender) else {
            return;
        };
        lane.left_out += 1;
        if lane.left_out == 1 {
            lane.tell_part(key, &mut self.clients);
        }
    }

    /// Notes that this message is refused: its publisher hears so, and it is not lost. One of a
    /// lane that is not open opens none.
    #[cold]
    pub(super) fn refused(
        &mut self,
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
        let Some(lane) = own(&mut self.publishers.lanes, key, sender) else {
            return;
        };
        if !is_whole || !property.fits(&Xxh3, topic, payload) {
            return;
        }
        let (number, leaves) = (property.sequence, [property.digest]);
        let limits = &self.publishers.limits.0;
        let taken = lane
            .ledger
            .dropped(number, &leaves, lane.clock, limits, &Xxh3);
        if taken > 0 {
            if lane.refused.len() >= REFUSED_MAX {
                lane.refused.pop_first();
            }
            lane.refused.insert(number);
            lane.tell_refused(key, number, reason, &mut self.clients);
        }
        lane.take_events(key, &mut self.clients);
    }

    pub(super) fn start_ticking(&mut self, now: Instant) {
        if self.publishers.ticked.is_none() {
            self.publishers.ticked = Some(now);
            self.timers.set(now + TICK, Timer::Publishers);
        }
    }

    /// Moves the clocks of the lanes on whose publishers are connected: what is later than the
    /// bound is lost.
    pub(crate) fn tick_publishers(&mut self, now: Instant) {
        self.tell_strangers();
        let Publishers {
            lanes,
            limits,
            ticked,
            counts,
            ..
        } = &mut self.publishers;
        let since = ticked.map_or(Duration::ZERO, |at| now.saturating_duration_since(at));
        *ticked = Some(now);
        let clients = &mut self.clients;
        let mut ended = BTreeSet::new();
        lanes.retain(|key, lane| {
            let session = clients.by_client_id.get(&lane.owner.client_id);
            let Some(session) = session.and_then(|id| clients.sessions.get(id.index())) else {
                ended.insert(key.0);
                counts.remove(&lane.owner.client_id);
                return false; // it ends with the session of its publisher
            };
            if session.connection.is_some() {
                lane.clock += since;
                lane.ledger.poll(lane.clock, &limits.0, &Xxh3);
                lane.take_events(*key, clients);
            }
            true
        });
        for lane in ended {
            self.release_lane(lane);
        }
        self.tell_ledgers();
        if self.publishers.is_at_rest() {
            self.publishers.ticked = None;
        } else {
            self.timers.set(now + TICK, Timer::Publishers);
        }
    }

    /// Tells the disk how far the ledgers are of sessions that stay, where messages were stored.
    pub(super) fn tell_ledgers(&mut self) {
        let after = self.publishers.told_through.take();
        let lanes = (
            after.map_or(Bound::Unbounded, Bound::Excluded),
            Bound::Unbounded,
        );
        let mut bytes = 0;
        for (key, lane) in self.publishers.lanes.range_mut(lanes) {
            if !lane.is_untold {
                continue;
            }
            let session = self.clients.by_client_id.get(&lane.owner.client_id);
            let session = session.and_then(|id| self.clients.sessions.get(id.index()));
            if session.is_some_and(Session::is_durable) {
                let (state, length) = lane.state(*key);
                self.clients.ask(Record::LaneSoFar(state));
                bytes += length;
            }
            lane.is_untold = false;
            if bytes >= LEDGER_BYTES_A_TICK {
                self.publishers.told_through = Some(*key);
                return;
            }
        }
    }
}

/// The values of the user properties with this name.
fn values<'a>(publication: &Publication<'a>, name: &str) -> impl Iterator<Item = &'a str> {
    let properties = publication.properties.user_properties();
    properties.filter_map(move |(key, value)| (key == name).then_some(value))
}

/// A lane that is open here, and is this client's.
fn own<'a>(
    lanes: &'a mut BTreeMap<(LaneId, Epoch), Lane>,
    key: (LaneId, Epoch),
    sender: &Sender,
) -> Option<&'a mut Lane> {
    let lane = lanes.get_mut(&key);
    lane.filter(|lane| lane.owner.is_same(sender))
}

/// All epochs of a lane.
pub(super) fn epochs_of(lane: LaneId) -> RangeInclusive<(LaneId, Epoch)> {
    (lane, Epoch(0))..=(lane, Epoch(u32::MAX))
}

impl Publishers {
    /// The lanes of these clients, as they are. One of which messages were left out begins anew.
    pub(super) fn at_rest(
        &self,
        stays: impl Fn(&Arc<str>) -> bool,
    ) -> impl Iterator<Item = LaneState> {
        let staying = self.lanes.iter();
        let staying =
            staying.filter(move |(_, lane)| lane.is_exact() && stays(&lane.owner.client_id));
        staying.map(|(key, lane)| lane.state(*key).0)
    }

    /// Goes on with a lane, if there is room for it and it does not go on already. Answers whether
    /// it does for the first time.
    pub(super) fn restore(&mut self, key: (LaneId, Epoch), lane: Lane) -> bool {
        let goes_on = self.lanes.len() < VERIFIED_LANES_MAX && !self.lanes.contains_key(&key);
        if goes_on {
            self.insert(key, lane);
        }
        goes_on
    }

    fn insert(&mut self, key: (LaneId, Epoch), lane: Lane) {
        let client_id = Arc::clone(&lane.owner.client_id);
        *self.counts.entry(client_id).or_default() += 1;
        self.lanes.insert(key, lane);
    }

    /// Whose lane this is, if it is not this sender's.
    pub(super) fn other_owner(
        &self,
        lane: LaneId,
        sender: &Sender,
        owners: &LaneOwners,
    ) -> Option<Arc<str>> {
        let open = self.lanes.range(epochs_of(lane)).next();
        let owner = match (owners.forwarded(lane), open) {
            (None, Some((_, lane))) if lane.owner.is_same(sender) => return None,
            (None, Some((_, lane))) => return Some(Arc::clone(&lane.owner.client_id)),
            _ => owners.owner(lane)?,
        };
        (*owner != sender.client_id).then(|| Arc::clone(owner))
    }

    /// An epoch is over: those of its lane that were over before it take no room any more.
    fn forget_before(&mut self, (lane, epoch): (LaneId, Epoch)) {
        let before = self.lanes.range((lane, Epoch(0))..(lane, epoch));
        let over = before.filter(|(_, lane)| lane.is_over());
        let over: Vec<_> = over.map(|(key, _)| *key).collect();
        for key in over {
            self.remove(key);
        }
    }

    fn remove(&mut self, key: (LaneId, Epoch)) -> Option<Lane> {
        let lane = self.lanes.remove(&key)?;
        if let Some(count) = self.counts.get_mut(&lane.owner.client_id) {
            *count = count.saturating_sub(1);
        }
        Some(lane)
    }

    /// Whether a publisher here has opened this lane.
    pub(super) fn is_open(&self, lane: LaneId) -> bool {
        self.lanes.range(epochs_of(lane)).next().is_some()
    }

    /// A lane that was opened here is another's. Answers who sent messages of it, and how far it
    /// came.
    pub(super) fn drop_lane(&mut self, lane: LaneId) -> Option<(Sender, Spot)> {
        let mut opened = None;
        while let Some((key, _)) = self.lanes.range(epochs_of(lane)).next() {
            let key = *key;
            let lane = self.remove(key)?;
            let spot = Spot {
                lane: key.0,
                epoch: key.1,
                number: lane.seen.saturating_sub(1),
            };
            if lane.seen > 0 {
                opened = Some((lane.owner, spot));
            }
        }
        opened
    }

    fn is_at_rest(&self) -> bool {
        self.lanes.is_empty() && self.intrusions.is_empty() && self.refusals.is_empty()
    }

    /// A message of this lane is stored.
    pub(super) fn note_stored(&mut self, key: (LaneId, Epoch)) {
        if let Some(lane) = self.lanes.get_mut(&key) {
            lane.is_untold = true;
        }
    }
}

impl Lane {
    pub(super) fn new(owner: Sender, ledger: LaneLedger, clock: Duration) -> Self {
        // What a lane that was joined late begins with was not seen.
        let seen = Some(ledger.next()).filter(|next| *next > ledger.scope_start());
        Self {
            owner,
            clock,
            left_out: 0,
            refused: BTreeSet::new(),
            differs: None,
            may_have_come: 0,
            is_untold: false,
            is_closed: false,
            seen: seen.unwrap_or(0),
            ledger,
        }
    }

    /// Messages may have come since it was put on disk, and these were refused before.
    pub(super) fn cut_off(mut self, refused: &[u64]) -> Self {
        self.may_have_come = ALL;
        self.refused.extend(refused);
        self
    }

    /// As it is put on disk, and the bytes of its ledger.
    fn state(&self, (lane, epoch): (LaneId, Epoch)) -> (LaneState, usize) {
        let mut ledger = Vec::new();
        self.ledger.save(&Xxh3, &mut ledger);
        let length = ledger.len();
        let state = LaneState::Own {
            client_id: Arc::clone(&self.owner.client_id),
            lane: lane.value(),
            epoch: epoch.0,
            connected: self.clock,
            refused: self.refused.iter().copied().collect(),
            ledger,
        };
        (state, length)
    }

    /// Its publisher says how far it is. What it says again it may have said before the broker was
    /// killed, and before what it sent last.
    fn hear(&mut self, size: u64, again: bool) {
        if self.may_have_come == ALL && !again && size >= self.ledger.next() {
            self.may_have_come = size;
        }
    }

    /// Whether nothing more of it is expected.
    fn is_over(&self) -> bool {
        self.is_closed && self.ledger.is_settled_below(self.ledger.next())
    }

    fn is_in_part(&self) -> bool {
        self.left_out > 0
    }

    /// Whether it can go on after a restart: what was refused may come yet.
    fn is_exact(&self) -> bool {
        let may_have_come = self.may_have_come;
        let knows_all = may_have_come == 0
            || may_have_come < ALL && self.ledger.is_settled_below(may_have_come);
        !self.is_in_part() && self.refused.is_empty() && knows_all
    }

    /// Says that a part of it is judged, and how much that is.
    fn tell_part(&self, (lane, epoch): (LaneId, Epoch), clients: &mut Clients) {
        let out_of_scope = self.ledger.scope_start();
        let by_rules = "rules leave out some of its messages, so nothing of it is called lost";
        let late = format!(
            "numbers below {out_of_scope} are out of scope: the lane was under way before this \
             broker"
        );
        let words = match (self.is_in_part(), out_of_scope) {
            (true, 0) => by_rules.to_owned(),
            (true, _) => format!("{by_rules}; {late}"),
            (false, _) => late,
        };
        let object = Object::new()
            .text("lane", &lane.to_string())
            .number("epoch", epoch.0)
            .text("client", &self.owner.client_id)
            .text("state", "part")
            .number("messages", self.seen)
            .number("left_out", self.left_out)
            .number("out_of_scope", out_of_scope)
            .text("words", &words);
        clients.home.tell_if_watched(lane, "state", object);
    }

    fn tell_refused(
        &self,
        (lane, epoch): (LaneId, Epoch),
        number: u64,
        reason: DropReason,
        clients: &mut Clients,
    ) {
        clients.telemetry.audit().publishers.refused += 1;
        let object = Object::new()
            .text("lane", &lane.to_string())
            .number("epoch", epoch.0)
            .text("client", &self.owner.client_id)
            .number("first", number)
            .number("count", 1_u64)
            .text("reason", reason.name())
            .text(
                "words",
                &format!("number {number}: refused, {}", reason.name()),
            );
        clients.home.tell_if_watched(lane, "refused", object);
    }

    /// Counts and tells what the ledger has found.
    fn take_events(&mut self, key: (LaneId, Epoch), clients: &mut Clients) {
        for event in self.ledger.take_events() {
            let totals = &mut clients.telemetry.audit().publishers;
            let fault = match event {
                Found::Lost { .. } if self.is_in_part() => continue,
                Found::Lost { numbers, .. } if numbers.end <= self.may_have_come => continue,
                Found::Lost { numbers, .. } => {
                    let first = numbers.start.max(self.may_have_come);
                    Fault::of(FaultKind::Lost, &(first..numbers.end))
                }
                Found::Moved(moved) if moved.numbers.start < self.may_have_come => continue,
                Found::Moved(moved) => Fault::of(FaultKind::Reordered, &moved.numbers),
                Found::Injected { number, copies } => {
                    Fault::new(FaultKind::Injected, number, copies.into())
                }
                Found::Forged(numbers) => Fault::of(FaultKind::Forged, &numbers),
                // Each window once, not with each of its checkpoints.
                Found::RootDiffers(numbers) if self.differs == Some(numbers.start) => continue,
                Found::RootDiffers(numbers) => {
                    self.differs = Some(numbers.start);
                    Fault::of(FaultKind::RootDiffers, &numbers)
                }
                Found::CheckpointContradicts(number) => {
                    Fault::new(FaultKind::Contradicted, number.into(), 1)
                }
                Found::EndContradicted { number, .. } => {
                    Fault::new(FaultKind::EndContradicted, number, 1)
                }
                Found::TwoProducers => Fault::new(FaultKind::TwoProducers, 0, 1),
                Found::Window {
                    numbers,
                    state,
                    account,
                } => {
                    self.tell_window(key, &numbers, state, account, clients);
                    continue;
                }
                Found::OutOfScope(_) => {
                    totals.lanes_joined_late += 1;
                    self.tell_part(key, clients);
                    continue;
                }
                Found::OtherWindows(_) => {
                    totals.unaudited += 1;
                    continue;
                }
                Found::Unnamed(count) => {
                    totals.unaudited = totals.unaudited.saturating_add(count);
                    continue;
                }
                // No fault, not yet one, or named already: of two copies the second as injected.
                Found::Suspected(_)
                | Found::Settled
                | Found::Overtaken { .. }
                | Found::Decided { .. }
                | Found::DropContradicted(_)
                | Found::CheckpointsMissed(_)
                | Found::Silent(_)
                | Found::Heard(_)
                | Found::Forgotten(_)
                | Found::Unlisted => continue,
            };
            self.tell(key, &fault, None, clients);
        }
    }

    /// `topic`: of the message that shows the fault, if there is one.
    fn tell(
        &self,
        (lane, epoch): (LaneId, Epoch),
        fault: &Fault,
        topic: Option<&str>,
        clients: &mut Clients,
    ) {
        let Fault { kind, first, count } = *fault;
        clients.telemetry.audit().publishers.count(kind, count);
        let object = Object::new()
            .text("lane", &lane.to_string())
            .number("epoch", epoch.0)
            .text("kind", kind.name())
            .text("place", "before the broker")
            .text("client", &self.owner.client_id)
            .number("first", first)
            .number("count", count)
            .text_if("topic", topic)
            .text("words", &fault.words());
        clients.home.tell_if_watched(lane, "fault", object);
        clients.telemetry.report(Event::PublisherFault {
            client_id: Arc::clone(&self.owner.client_id),
            lane: lane.value(),
            kind,
            first,
            count,
        });
    }

    fn tell_window(
        &self,
        (lane, epoch): (LaneId, Epoch),
        numbers: &Range<u64>,
        mut state: State,
        mut account: Account,
        clients: &mut Clients,
    ) {
        let may_have_come = self.is_in_part() || numbers.start < self.may_have_come;
        if may_have_come && account.lost > 0 {
            state = State::Unproven;
            account.open = account
                .open
                .saturating_add(std::mem::take(&mut account.lost));
        }
        let totals = &mut clients.telemetry.audit().publishers;
        let (count, word) = match state {
            State::Proven => (&mut totals.windows_proven, "proven"),
            State::Faulty => (&mut totals.windows_faulty, "faulty"),
            State::Unproven => (&mut totals.windows_unproven, "unproven"),
        };
        *count += 1;
        let object = Object::new()
            .text("lane", &lane.to_string())
            .number("epoch", epoch.0)
            .number("first", numbers.start)
            .number("size", numbers.end)
            .text("state", word)
            .number("issued", account.issued)
            .number("arrived", account.arrived)
            .number("refused", account.dropped)
            .number("lost", account.lost)
            .number("altered", account.altered + account.forged)
            .number("out_of_scope", self.ledger.scope_start());
        clients.home.tell_if_watched(lane, "window", object);
    }
}

impl Fault {
    fn new(kind: FaultKind, first: u64, count: u64) -> Self {
        Self { kind, first, count }
    }

    fn of(kind: FaultKind, numbers: &Range<u64>) -> Self {
        Self::new(kind, numbers.start, numbers.end - numbers.start)
    }

    fn words(&self) -> String {
        let Self { kind, first, count } = self;
        match kind {
            FaultKind::RootDiffers => format!("window {}: root differs", first / WINDOW),
            FaultKind::Contradicted => format!("checkpoint {first}: contradicts another"),
            FaultKind::EndContradicted => {
                format!("number {first}: beyond the end that a checkpoint told")
            }
            FaultKind::TwoProducers => {
                "two producers use the lane, or messages of it are forged".to_owned()
            }
            FaultKind::Repeated => {
                format!("number {first}: repeated, its content was not compared with the first")
            }
            FaultKind::Forged if *count > 1 => {
                format!("one of {count} numbers from {first} on, at least: forged")
            }
            _ if *count == 1 => format!("number {first}: {}", kind.name()),
            _ => format!("{count} numbers from {first} on: {}", kind.name()),
        }
    }
}

impl PublishersTotals {
    fn count(&mut self, kind: FaultKind, count: u64) {
        match kind {
            FaultKind::Lost => self.lost = self.lost.saturating_add(count),
            FaultKind::Duplicated => self.duplicated = self.duplicated.saturating_add(count),
            FaultKind::Repeated => self.repeated = self.repeated.saturating_add(count),
            FaultKind::Reordered => self.reordered = self.reordered.saturating_add(count),
            FaultKind::Altered => self.altered = self.altered.saturating_add(count),
            FaultKind::Injected | FaultKind::Unbalanced => {
                self.injected = self.injected.saturating_add(count);
            }
            FaultKind::Intruded => self.intruded = self.intruded.saturating_add(count),
            FaultKind::Forged => self.forged += 1,
            FaultKind::RootDiffers => self.roots_differing += 1,
            FaultKind::Contradicted | FaultKind::EndContradicted | FaultKind::TwoProducers => {
                self.contradicted += 1;
            }
        }
    }
}

/// Numbers of a lane that were refused and may come again, 8 bytes each. Of more the lowest are
/// forgotten: one that still comes, and not with DUP, is called a duplicate.
const REFUSED_MAX: usize = 1_024;

/// Every number, for all that is known.
const ALL: u64 = u64::MAX;

/// Bytes of ledgers that the disk is told in one tick, and one ledger more. With more the others
/// come in the next.
const LEDGER_BYTES_A_TICK: usize = 1024 * 1024;

/// Between two looks at what has become late, and at what the disk is to be told.
const TICK: Duration = Duration::from_secs(1);
