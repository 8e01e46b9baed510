//! What is known of the line at this moment: what the views show, and what decides how it ends.
//!
//! A value: whoever learns something tells it, with the time since the start. It holds the counts,
//! the windows of each lane, the faults that still stand, and every incident with when it was named
//! and when it was repaired.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::ops::Range;
use std::time::Duration;

use unbroken_merkle_log::ledger::State;

use crate::doubt::{Doubt, Doubts};
use crate::fault::{Fault, Kind, Place};
use crate::injection::Injected;
use crate::limits::{FAULTS_SHOWN, RATES_SHOWN, TOLD_WITHIN, WINDOWS_SHOWN};

/// The line at this moment.
#[derive(Clone, Debug, Default)]
pub struct Board {
    /// Messages that A has numbered.
    pub sent: u64,
    /// Messages of A that C has handed on: each once, unaltered, in A's order.
    pub delivered: u64,
    /// Times that C has handed on a message of A again.
    pub duplicated: u64,
    /// Messages of A that C has handed on behind later ones.
    pub reordered: u64,
    /// The parts of the line, and how they are.
    pub parts: Vec<Part>,
    /// The windows that B and C check.
    pub strips: Vec<Strip>,
    /// Every incident, oldest first.
    pub incidents: Vec<Incident>,
    /// Faults that no injection explains, oldest first.
    pub unexplained: VecDeque<Fault>,
    /// Faults that are no injected fault's own name, though they are of a message that one changed.
    pub secondary: VecDeque<Fault>,
    /// What is in doubt on the ways where something is or was, by their names.
    pub doubts: BTreeMap<&'static str, Doubts>,
    /// Messages delivered in each stretch of time between two looks.
    pub rates: VecDeque<u64>,
    standing: BTreeMap<Place, Kind>,
    named: BTreeMap<Kind, u64>,
    next_incident: u64,
}

/// A part of the line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Who.
    pub name: &'static str,
    /// How it is.
    pub state: String,
    /// Whether it does what it should.
    pub is_well: bool,
}

/// The windows of one lane.
#[derive(Clone, Debug)]
pub struct Strip {
    /// From whom to whom.
    pub name: &'static str,
    windows: BTreeMap<u64, State>,
}

/// Something done to the line.
#[derive(Clone, Debug)]
pub struct Incident {
    /// Counted from 0; some of those before it may be gone.
    pub id: u64,
    /// What.
    pub what: What,
    /// When.
    pub given: Duration,
    /// When a receiver named it, and how.
    pub named: Option<(Duration, String)>,
    /// When all was well again.
    pub repaired: Option<Duration>,
    /// It was named while the disorder lasted, at whose end it is named for good.
    is_early: bool,
}

/// What was done.
#[derive(Clone, Debug)]
pub enum What {
    /// To a message.
    Message(Box<Injected>),
    /// To a part of the line.
    Part(String),
}

impl Board {
    /// An incident began.
    pub fn begin_incident(&mut self, what: What, now: Duration) {
        let id = self.next_incident;
        self.next_incident += 1;
        self.incidents.push(Incident {
            id,
            what,
            given: now,
            named: None,
            repaired: None,
            is_early: false,
        });
        // A fast receiver may have named it before the relay was asked what it did.
        let waiting: Vec<Fault> = self.unexplained.drain(..).collect();
        for fault in waiting {
            self.attribute(fault, now);
        }
    }

    /// No receiver saw an injected fault: its message was sent again before. One that was named was
    /// seen.
    pub fn unchanged(&mut self, injected: &Injected) {
        self.incidents.retain(|incident| match &incident.what {
            What::Message(known) => **known != *injected || incident.named.is_some(),
            What::Part(_) => true,
        });
    }

    /// A receiver has named a fault. `standing`: a good copy is still to come.
    pub fn fault(&mut self, fault: Fault, now: Duration) {
        *self.named.entry(fault.kind).or_default() += 1;
        if fault.kind.needs_repair() {
            self.standing.insert(fault.place, fault.kind);
        }
        self.attribute(fault, now);
    }

    /// A message came late, and others are still missing: so its incident is named, and all is well
    /// when it is told what moved.
    pub fn overtaken(&mut self, place: Place, by: u64, now: Duration) {
        let kind = Kind::Reordered;
        if let Some(incident) = self.incident_named_by(&Fault { kind, place }) {
            let how = format!("number {} behind {by} with higher numbers", place.number);
            incident.named.get_or_insert((now, how));
            incident.is_early = true;
        }
    }

    /// A receiver at the end of the line has named a fault of a message that its own was made from:
    /// counted where it happened, so here it only has to have a reason.
    pub fn echo(&mut self, fault: Fault, now: Duration) {
        if !self.part_explains(&fault, now) && self.injection_of(&fault).is_none() {
            self.unexplain(fault);
        }
    }

    /// The receiver at the end of the way with this name is in doubt, or is no longer.
    pub fn doubt(&mut self, way: &'static str, doubt: &Doubt, now: Duration) {
        self.doubts.entry(way).or_default().take(doubt, now);
    }

    /// What is in doubt now, a sentence for each way.
    pub fn in_doubt(&self, now: Duration) -> impl Iterator<Item = (&'static str, String)> {
        let doubts = self.doubts.iter();
        doubts.filter_map(move |(way, doubts)| Some((*way, doubts.sentence(now)?)))
    }

    /// A good copy of a message has come.
    pub fn repaired(&mut self, place: Place, now: Duration) {
        self.standing.remove(&place);
        for incident in &mut self.incidents {
            if let What::Message(injected) = &incident.what
                && Place::from(&injected.message.audit) == place
                && incident.named.is_some()
            {
                incident.repaired.get_or_insert(now);
            }
        }
    }

    /// The latest incident of a part was noticed by the pipeline itself.
    pub fn part_named(&mut self, by: &str, now: Duration) {
        if let Some(incident) = self.open_part() {
            incident.named.get_or_insert_with(|| (now, by.to_owned()));
        }
    }

    /// A part works again and nothing of what it cost is missing any more.
    pub fn part_repaired(&mut self, now: Duration) {
        if self.standing.is_empty()
            && let Some(incident) = self.open_part()
            && incident.named.is_some()
        {
            incident.repaired = Some(now);
        }
    }

    /// Whether an incident of a part is open.
    pub fn has_open_part(&self) -> bool {
        let mut incidents = self.incidents.iter();
        incidents
            .any(|incident| matches!(incident.what, What::Part(_)) && incident.repaired.is_none())
    }

    /// A window ended, or ended differently, on the way with this name.
    pub fn window(&mut self, way: &'static str, numbers: &Range<u64>, state: State) {
        let known = self.strips.iter().position(|strip| strip.name == way);
        let at = known.unwrap_or_else(|| {
            self.strips.push(Strip::new(way));
            self.strips.len() - 1
        });
        let strip = &mut self.strips[at];
        strip.windows.insert(numbers.start, state);
        while strip.windows.len() > WINDOWS_SHOWN {
            strip.windows.pop_first();
        }
    }

    /// How a part is now.
    pub fn part(&mut self, name: &'static str, state: impl Into<String>, is_well: bool) {
        let state = state.into();
        let part = Part {
            name,
            state,
            is_well,
        };
        match self.parts.iter_mut().find(|part| part.name == name) {
            Some(known) => *known = part,
            None => self.parts.push(part),
        }
    }

    /// One more rate.
    pub fn rate(&mut self, per_second: u64) {
        self.rates.push_back(per_second);
        while self.rates.len() > RATES_SHOWN {
            self.rates.pop_front();
        }
    }

    /// Faults of a kind that still stand.
    pub fn standing(&self, kind: Kind) -> usize {
        self.standing.values().filter(|its| **its == kind).count()
    }

    /// Faults of a kind named so far.
    pub fn named(&self, kind: Kind) -> u64 {
        self.named.get(&kind).copied().unwrap_or_default()
    }

    /// The incident whose name took longest, and how long.
    pub fn slowest(&self) -> Option<(&Incident, Duration)> {
        let named = self.incidents.iter().filter_map(|incident| {
            let (at, _) = incident.named.as_ref()?;
            Some((incident, at.saturating_sub(incident.given)))
        });
        named.max_by_key(|(_, time)| *time)
    }

    /// The faults named so far, as in "3 lost, 0 duplicated, 0 reordered, 1 forged".
    pub fn all_named(&self) -> String {
        let named = counts(|kind| self.named(kind));
        named.collect::<Vec<_>>().join(", ")
    }

    /// It is green, nothing was named by another name, and all that was sent is delivered.
    pub fn is_exact(&self) -> bool {
        self.is_green() && self.secondary.is_empty() && self.sent == self.delivered
    }

    /// No fault stands, no incident is open, nothing was named without a reason, and C has handed
    /// on nothing again or out of its place.
    pub fn is_green(&self) -> bool {
        self.standing.is_empty()
            && self.duplicated == 0
            && self.reordered == 0
            && self.unexplained.is_empty()
            && self
                .incidents
                .iter()
                .all(|incident| incident.repaired.is_some())
    }

    /// The whole of it in one sentence.
    pub fn sentence(&self) -> Sentence<'_> {
        Sentence(self)
    }

    /// The first injection into the message of this fault, by whatever name.
    pub(crate) fn injection_of(&self, fault: &Fault) -> Option<&Incident> {
        self.incidents.iter().find(|incident| match &incident.what {
            What::Message(injected) => injected.explains(fault),
            What::Part(_) => false,
        })
    }

    /// Finds the incident that a fault is a sign of.
    fn attribute(&mut self, fault: Fault, now: Duration) {
        let stands = self.standing.contains_key(&fault.place);
        if let Some(incident) = self.incident_named_by(&fault) {
            incident.is_early = false;
            incident
                .named
                .get_or_insert_with(|| (now, fault.to_string()));
            if !fault.kind.needs_repair() || !stands {
                incident.repaired = Some(now);
            }
            return;
        }
        // What a broken connection costs is expected, and counted in what was named.
        if self.part_explains(&fault, now) {
            return;
        }
        let is_second_name = self.incidents.iter().any(|incident| match &incident.what {
            What::Message(injected) => injected.has_second_name(&fault),
            What::Part(_) => false,
        });
        if is_second_name {
            return;
        }
        if self.injection_of(&fault).is_some() {
            self.secondary.push_back(fault);
            while self.secondary.len() > FAULTS_SHOWN {
                self.secondary.pop_front();
            }
        } else {
            self.unexplain(fault);
        }
    }

    /// The first incident of which this fault is the right name, and that has not got it yet.
    fn incident_named_by(&mut self, fault: &Fault) -> Option<&mut Incident> {
        let mut incidents = self.incidents.iter_mut();
        incidents.find(|incident| match &incident.what {
            What::Message(injected) => {
                injected.is_named_by(fault) && (incident.named.is_none() || incident.is_early)
            }
            What::Part(_) => false,
        })
    }

    fn unexplain(&mut self, fault: Fault) {
        self.unexplained.push_back(fault);
        while self.unexplained.len() > FAULTS_SHOWN {
            self.unexplained.pop_front();
        }
    }

    /// Whether a part is broken, or was a little earlier, and this is a kind that it can cause. Of
    /// which messages is not known beforehand.
    fn part_explains(&self, fault: &Fault, now: Duration) -> bool {
        fault.kind.comes_of_a_break()
            && self.incidents.iter().any(|incident| {
                matches!(incident.what, What::Part(_))
                    && incident.given <= now
                    && incident.repaired.is_none_or(|at| now <= at + TOLD_WITHIN)
            })
    }

    fn open_part(&mut self) -> Option<&mut Incident> {
        let mut incidents = self.incidents.iter_mut();
        incidents
            .find(|incident| matches!(incident.what, What::Part(_)) && incident.repaired.is_none())
    }
}

impl Strip {
    /// Nothing is known yet.
    pub fn new(name: &'static str) -> Self {
        Self {
            name,
            windows: BTreeMap::new(),
        }
    }

    /// The states of its last windows, oldest first.
    pub fn windows(&self) -> impl DoubleEndedIterator<Item = State> {
        self.windows.values().copied()
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Message(injected) => fmt::Display::fmt(injected, f),
            Self::Part(text) => f.write_str(text),
        }
    }
}

/// "12,040 sent, 12,040 delivered, 0 lost, 0 duplicated, 0 reordered". What is duplicated or
/// reordered here is so in what C has handed on; what is lost, altered or forged has not come again
/// yet.
#[derive(Clone, Copy, Debug)]
pub struct Sentence<'a>(&'a Board);

impl fmt::Display for Sentence<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let board = self.0;
        let (sent, delivered) = (grouped(board.sent), grouped(board.delivered));
        write!(f, "{sent} sent, {delivered} delivered")?;
        let mut counts = counts(|kind| match kind {
            Kind::Duplicated => board.duplicated,
            Kind::Reordered => board.reordered,
            // C has seen both copies whole.
            Kind::Repeated => 0,
            Kind::Lost | Kind::Altered | Kind::Forged | Kind::Injected => {
                board.standing(kind) as u64
            }
        });
        counts.try_for_each(|count| write!(f, ", {count}"))
    }
}

/// How many there are of each kind, in words: always of the usual ones, of others if there are any.
fn counts(of: impl Fn(Kind) -> u64) -> impl Iterator<Item = String> {
    Kind::ALL.into_iter().filter_map(move |kind| {
        let count = of(kind);
        let is_usual = matches!(kind, Kind::Lost | Kind::Duplicated | Kind::Reordered);
        let is_told = is_usual || count > 0;
        is_told.then(|| format!("{} {}", grouped(count), kind.participle()))
    })
}

/// A count with a comma before every three digits.
pub(crate) fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests;
