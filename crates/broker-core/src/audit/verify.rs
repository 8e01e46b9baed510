//! Lanes of publishers that stamp themselves: judged here, before anybody receives them.
//!
//! A message with the user property `audit` is judged by the ledger of its lane: does it fit its
//! digest, is its number missing, a repetition, out of order? Checkpoints, which pass through on
//! `<prefix>/checkpoint/<lane>`, prove windows. Only lanes of algorithm 1 are judged: the others
//! need a key that the broker does not have, and are *unverifiable*, which is counted and told.
//!
//! Invariants:
//! - Whatever is found, the message is delivered unchanged: its consumers judge for themselves.
//! - A lane's clock stands while its publisher is not connected, so what it sends again after a
//!   reconnect is not lost meanwhile.
//! - A lane is forgotten with its publisher's session; with one that stays it outlives a broker
//!   that stops in good order.
//! - At most [`VERIFIED_LANES_MAX`] lanes a shard; a message of one more is counted as unaudited.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use unbroken_merkle_log::ledger::{
    Account, Arrival, Event as Found, Join, LaneLedger, LedgerLimits, State, Verdict,
};
use unbroken_merkle_log::{Algorithm, Checkpoint, Epoch, LaneId, Property, Xxh3};

use super::fault::FaultKind;
use super::json::Object;
use super::rest::LaneAtRest;
use super::totals::PublishersTotals;
use crate::clients::Clients;
use crate::limits::VERIFIED_LANES_MAX;
use crate::message::Publication;
use crate::output::{Event, Output};
use crate::shard::Shard;
use crate::timers::Timer;

/// The lanes of the publishers of one shard.
#[derive(Debug, Default)]
pub(crate) struct Publishers {
    lanes: BTreeMap<(LaneId, Epoch), Lane>,
    /// Limits of each ledger.
    limits: Limits,
    /// When the clocks of the lanes were last moved on.
    ticked: Option<Instant>,
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
    /// Who publishes it here.
    client_id: Arc<str>,
    ledger: LaneLedger,
    /// Time in which the client was connected.
    clock: Duration,
}

/// A fault of a publisher's lane.
struct Fault {
    kind: FaultKind,
    first: u64,
    count: u64,
}

impl Shard {
    /// Looks at what a publisher says about its message. `again`: it came with DUP.
    #[cold]
    pub(crate) fn verify(
        &mut self,
        now: Instant,
        client_id: &Arc<str>,
        again: bool,
        publication: &Publication<'_>,
    ) {
        if let Some(lane) = publication
            .topic
            .strip_prefix(&*self.clients.home.topics.checkpoints)
        {
            return self.verify_checkpoint(now, client_id, lane, publication.payload);
        }
        if publication
            .topic
            .starts_with(&self.clients.home.topics.answers)
        {
            return; // a message sent again on request, under a topic that its digest does not cover
        }
        let properties = publication.properties.user_properties();
        let mut stamps = properties.filter(|(name, _)| *name == Property::NAME);
        let Some((_, text)) = stamps.next() else {
            return;
        };
        let totals = &mut self.clients.stats.audit.publishers;
        let property = match Property::parse_text(text) {
            Ok(property) if stamps.next().is_none() => property,
            // Unreadable, or more than one.
            _ => {
                totals.injected += 1;
                return;
            }
        };
        if property.algorithm != Algorithm::Xxh3 {
            totals.unverifiable += 1;
            return;
        }
        let (topic, payload) = (publication.topic.as_bytes(), publication.payload);
        let arrival = Arrival {
            number: property.sequence,
            leaf: property.digest,
            fits: property.part.is_some() || property.fits(&Xxh3, topic, payload),
            resent: property.flags.resent,
            part: property.part.map(|part| (part.index(), part.of())),
        };
        let key = (property.lane, property.epoch);
        if !arrival.fits && !self.publishers.lanes.contains_key(&key) {
            // A lane is not opened for a message whose very lane may be what was altered.
            totals.altered += 1;
            return;
        }
        let join = if property.sequence == 0 {
            Join::Beginning
        } else {
            Join::Late
        };
        let Some(lane) = open(&mut self.publishers.lanes, key, client_id, join) else {
            totals.unaudited += 1;
            return;
        };
        totals.verified += 1;
        let limits = &self.publishers.limits.0;
        let lane_now = lane.clock;
        let verdict = lane.ledger.observe(&arrival, lane_now, limits, &Xxh3);
        let kind = match verdict {
            Verdict::Altered => Some(FaultKind::Altered),
            Verdict::Injected | Verdict::Conflict => Some(FaultKind::Injected),
            // One that comes with DUP is sent again by the rules.
            Verdict::Duplicate if !again => Some(FaultKind::Duplicated),
            _ => None,
        };
        if let Some(kind) = kind {
            let fault = Fault {
                kind,
                first: property.sequence,
                count: 1,
            };
            lane.tell(key, &fault, &mut self.clients);
        }
        lane.take_events(key, &mut self.clients);
        self.start_ticking(now);
    }

    fn verify_checkpoint(&mut self, now: Instant, client: &Arc<str>, lane: &str, payload: &[u8]) {
        let parsed = Checkpoint::parse(payload).ok();
        let named = parsed.filter(|sealed| sealed.lane().to_string() == lane);
        if let Some(sealed) = &named
            && sealed.algorithm() != Algorithm::Xxh3
        {
            return self.tell_unverifiable(client, sealed.lane());
        }
        let Some(checkpoint) = named.and_then(|sealed| sealed.open(&Xxh3).ok()) else {
            // Damaged, or of another lane than its topic says: nothing is claimed.
            self.clients.stats.audit.publishers.unaudited += 1;
            return;
        };
        let key = (checkpoint.lane, checkpoint.epoch);
        if let Some(lane) = open(&mut self.publishers.lanes, key, client, Join::Late) {
            let limits = &self.publishers.limits.0;
            let lane_now = lane.clock;
            lane.ledger.checkpoint(&checkpoint, lane_now, limits, &Xxh3);
            lane.take_events(key, &mut self.clients);
            self.start_ticking(now);
        }
    }

    /// A lane whose algorithm needs a key: the broker does not have it, and says so instead of
    /// saying nothing.
    fn tell_unverifiable(&mut self, client: &Arc<str>, lane: LaneId) {
        self.clients.stats.audit.publishers.unverifiable += 1;
        let object = Object::new()
            .text("lane", &lane.to_string())
            .text("client", client)
            .text("state", "unverifiable")
            .text(
                "words",
                "its algorithm needs a key, which the broker does not have",
            );
        self.clients.home.tell_if_watched(lane, "state", object);
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
        let Publishers {
            lanes,
            limits,
            ticked,
        } = &mut self.publishers;
        let since = ticked.map_or(Duration::ZERO, |at| now.saturating_duration_since(at));
        *ticked = Some(now);
        let clients = &mut self.clients;
        lanes.retain(|key, lane| {
            let session = clients.by_client_id.get(&lane.client_id);
            let Some(session) = session.and_then(|id| clients.sessions.get(id.index())) else {
                return false; // it ends with the session of its publisher
            };
            if session.connection.is_some() {
                lane.clock += since;
                lane.ledger.poll(lane.clock, &limits.0, &Xxh3);
                lane.take_events(*key, clients);
            }
            true
        });
        if lanes.is_empty() {
            *ticked = None;
        } else {
            self.timers.set(now + TICK, Timer::Publishers);
        }
    }
}

/// The ledger of a lane, if there is room for it.
fn open<'a>(
    lanes: &'a mut BTreeMap<(LaneId, Epoch), Lane>,
    key: (LaneId, Epoch),
    client_id: &Arc<str>,
    join: Join,
) -> Option<&'a mut Lane> {
    let full = lanes.len() >= VERIFIED_LANES_MAX;
    match lanes.entry(key) {
        Entry::Occupied(lane) => Some(lane.into_mut()),
        Entry::Vacant(place) => (!full).then(|| {
            place.insert(Lane {
                client_id: Arc::clone(client_id),
                ledger: LaneLedger::new(join),
                clock: Duration::ZERO,
            })
        }),
    }
}

impl Publishers {
    /// The lanes of these clients, as they are.
    pub(super) fn at_rest(
        &self,
        stays: impl Fn(&Arc<str>) -> bool,
    ) -> impl Iterator<Item = LaneAtRest> {
        let staying = self.lanes.iter();
        let staying = staying.filter(move |(_, lane)| stays(&lane.client_id));
        staying.map(|((id, epoch), lane)| {
            let mut ledger = Vec::new();
            lane.ledger.save(&Xxh3, &mut ledger);
            LaneAtRest::Own {
                client_id: Arc::clone(&lane.client_id),
                lane: id.value(),
                epoch: epoch.0,
                connected: lane.clock,
                ledger,
            }
        })
    }

    /// Goes on with a lane, if there is room for it.
    pub(super) fn restore(&mut self, key: (LaneId, Epoch), lane: Lane) {
        if self.lanes.len() < VERIFIED_LANES_MAX {
            self.lanes.insert(key, lane);
        }
    }
}

impl Lane {
    pub(super) fn restore(client_id: Arc<str>, ledger: LaneLedger, clock: Duration) -> Self {
        Self {
            client_id,
            ledger,
            clock,
        }
    }

    /// Counts and tells what the ledger has found.
    fn take_events(&mut self, key: (LaneId, Epoch), clients: &mut Clients) {
        for event in self.ledger.take_events() {
            let fault = |kind, numbers: Range<u64>| Fault {
                kind,
                first: numbers.start,
                count: numbers.end - numbers.start,
            };
            match event {
                Found::Lost { numbers, .. } => {
                    self.tell(key, &fault(FaultKind::Lost, numbers), clients);
                }
                Found::Moved(moved) => {
                    self.tell(key, &fault(FaultKind::Reordered, moved.numbers), clients);
                }
                Found::Window {
                    numbers,
                    state,
                    account,
                } => Self::tell_window(key, &numbers, state, &account, clients),
                _ => {}
            }
        }
    }

    fn tell(&self, (lane, epoch): (LaneId, Epoch), fault: &Fault, clients: &mut Clients) {
        let Fault { kind, first, count } = *fault;
        clients.stats.audit.publishers.count(kind, count);
        let object = Object::new()
            .text("lane", &lane.to_string())
            .number("epoch", epoch.0)
            .text("kind", kind.name())
            .text("place", "before the broker")
            .text("client", &self.client_id)
            .number("first", first)
            .number("count", count);
        clients.home.tell_if_watched(lane, "fault", object);
        clients
            .outputs
            .push_back(Output::Event(Event::PublisherFault {
                client_id: Arc::clone(&self.client_id),
                lane: lane.value(),
                kind,
                first,
                count,
            }));
    }

    fn tell_window(
        (lane, epoch): (LaneId, Epoch),
        numbers: &Range<u64>,
        state: State,
        account: &Account,
        clients: &mut Clients,
    ) {
        let totals = &mut clients.stats.audit.publishers;
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
            .number("lost", account.lost)
            .number("altered", account.altered + account.forged);
        clients.home.tell_if_watched(lane, "window", object);
    }
}

impl PublishersTotals {
    fn count(&mut self, kind: FaultKind, count: u64) {
        match kind {
            FaultKind::Lost => self.lost += count,
            FaultKind::Duplicated => self.duplicated += count,
            FaultKind::Reordered => self.reordered += count,
            FaultKind::Altered => self.altered += count,
            FaultKind::Injected | FaultKind::Unbalanced => self.injected += count,
        }
    }
}

/// Between two looks at what has become late.
const TICK: Duration = Duration::from_secs(1);
