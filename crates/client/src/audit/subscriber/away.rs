//! When this subscriber was not connected, and which losses that explains.
//!
//! What is published while a subscriber is away does not come to it, unless the broker keeps its
//! session. The lane's numbers show that like any loss, and neither the producer nor the broker has
//! failed.
//!
//! Invariants: a loss is ascribed to an absence only where it is the first gap of its epoch behind
//! it, and of an epoch that was not known before only from its first number on and soon; what is
//! remembered has a limit.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::ops::Range;
use std::time::Duration;

use unbroken_merkle_log::ledger::{Event as Found, Ledger};
use unbroken_merkle_log::{Epoch, Hasher, LaneId};

use super::{AuditedSubscriber, Delivery, Running};
use crate::audit::Clock;
use crate::{Client, Event, Events};

/// A time in which a subscriber was not connected and the broker kept no session for it. Both ends
/// are wall time since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Absence {
    /// When the end of the connection was seen.
    pub from: Duration,
    /// When the next connection was.
    pub until: Duration,
}

/// What is known of absences.
#[derive(Debug)]
pub(super) struct Away {
    events: Events,
    /// The connection of which all events were seen.
    connection: Option<u64>,
    since: Option<Duration>,
    last: Option<Absence>,
    /// The next number of each epoch at the end of the last absence, until something shows what
    /// was missed of it.
    next: BTreeMap<(LaneId, Epoch), u64>,
    /// Epochs that were known then, or of which it was shown since.
    known: BTreeSet<(LaneId, Epoch)>,
    missed: VecDeque<((LaneId, Epoch), Range<u64>, Absence)>,
}

impl Away {
    pub(super) fn new(client: &Client) -> Self {
        Self {
            events: client.events(),
            connection: client.connection(),
            since: None,
            last: None,
            next: BTreeMap::new(),
            known: BTreeSet::new(),
            missed: VecDeque::new(),
        }
    }

    /// Takes what has happened to the connection; an absence that has ended.
    fn take_events(&mut self, ledger: &Ledger<Hasher>) -> Option<Absence> {
        let mut ended = None;
        while let Some(event) = self.events.take() {
            match event {
                Event::Disconnected { .. } => {
                    self.since.get_or_insert_with(wall);
                }
                Event::Connected { session_present } => {
                    if let Some(from) = self.since.take()
                        && !session_present
                    {
                        let until = wall();
                        ended = Some(Absence { from, until });
                        let lanes = ledger.lanes();
                        self.next = lanes
                            .map(|(lane, epoch, known)| ((lane, epoch), known.next()))
                            .collect();
                        self.known = self.next.keys().copied().collect();
                    }
                }
                _ => {}
            }
        }
        self.last = ended.or(self.last);
        ended
    }

    /// Takes what became known of a lane: its first gap behind an absence is what was missed.
    pub(super) fn note(&mut self, lane: (LaneId, Epoch), found: &Found) {
        let (Found::Suspected(numbers) | Found::Lost { numbers, .. }) = found else {
            return;
        };
        let Some(absence) = self.last else {
            return;
        };
        let is_missed = if self.known.contains(&lane) {
            let next = self.next.get(&lane);
            next.is_some_and(|next| numbers.start >= *next)
        } else {
            // It may have begun meanwhile.
            numbers.start == 0 && wall() < absence.until + BEGAN_WITHIN
        };
        if !is_missed {
            return;
        }
        self.next.remove(&lane);
        self.known.insert(lane);
        if self.missed.len() >= MISSED_MAX {
            self.missed.pop_front();
        }
        self.missed.push_back((lane, numbers.clone(), absence));
    }
}

impl AuditedSubscriber {
    /// When this subscriber was away, if this delivery is of a loss that is explained by that.
    pub fn absence_behind(&self, delivery: &Delivery) -> Option<Absence> {
        match delivery {
            Delivery::Event {
                lane,
                epoch,
                event: Found::Lost { numbers, .. },
            } => self.absence(*lane, *epoch, numbers),
            _ => None,
        }
    }

    /// When this subscriber was away, if some of these numbers were first missed behind that: in a
    /// session that the broker does not keep they went to no connection of its.
    pub fn absence(&self, lane: LaneId, epoch: Epoch, numbers: &Range<u64>) -> Option<Absence> {
        let is_of = |(of, missed, _): &&((LaneId, Epoch), Range<u64>, Absence)| {
            *of == (lane, epoch) && missed.start < numbers.end && numbers.start < missed.end
        };
        self.away
            .missed
            .iter()
            .rev()
            .find(is_of)
            .map(|(.., absence)| *absence)
    }

    /// Looks whether the connection has ended or another has begun.
    pub(super) fn watch_absence(&mut self) {
        let connection = self.client.connection();
        if connection == self.away.connection {
            return;
        }
        self.away.connection = connection;
        if let Some(absence) = self.away.take_events(&self.ledger) {
            self.ready.push_back(Delivery::Away(absence));
        }
    }

    /// A message came in its turn on a connection of which everything was read: nothing of its
    /// lane was missed before.
    pub(super) fn note_in_order(&mut self, lane: (LaneId, Epoch)) {
        let present = self.client.connection();
        if !self.away.next.is_empty()
            && let Running::Runs(on) = self.running
            && present == Some(on)
        {
            self.away.next.remove(&lane);
        }
    }
}

impl fmt::Display for Absence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of_day = |time: Duration| {
            let seconds = time.as_secs() % 86_400;
            let (minutes, seconds) = (seconds / 60, seconds % 60);
            format!("{:02}:{:02}:{seconds:02}", minutes / 60, minutes % 60)
        };
        write!(
            f,
            "this listener was not connected from {} to {} UTC",
            of_day(self.from),
            of_day(self.until)
        )
    }
}

fn wall() -> Duration {
    Duration::from_millis(Clock::time_us() / 1_000)
}

/// So long after an absence every producer that is connected has sent a checkpoint: what an epoch
/// that began meanwhile has lost is known.
const BEGAN_WITHIN: Duration = Duration::from_secs(20);
/// Gaps remembered that an absence explains; about 70 bytes each.
const MISSED_MAX: usize = 1_024;
