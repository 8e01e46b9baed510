//! The incidents that are known, of this run and of those before.
//!
//! Invariants: at most [`INCIDENTS_MAX`]; of more the quiet ones go first, those that are repaired
//! or ignored and then amber before red, the oldest first, and are counted. Events that had no room
//! on the way here are counted too.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};
use unbroken_broker::handle::Event;
use utoipa::ToSchema;

use super::incident::{Incident, Severity, State, hex, text};
use crate::limits::{INCIDENT_GROUP_MS, INCIDENTS_MAX};
use crate::time::Moment;

/// All of them, by id.
#[derive(Debug, Default)]
pub(crate) struct Incidents {
    all: BTreeMap<u64, Incident>,
    /// The newest of each kind, publisher, subscriber and reason.
    newest: HashMap<String, u64>,
    next: u64,
    evicted: u64,
    evicted_open: u64,
    missed: u64,
    /// Not on disk as they are.
    pub(crate) is_changed: bool,
    /// New or not as before, since streams were last sent such ones; with whether something was
    /// named.
    changed: BTreeMap<u64, bool>,
}

/// How many there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct Counts {
    pub(crate) red: u64,
    pub(crate) amber: u64,
    pub(crate) repaired: u64,
    pub(crate) ignored: u64,
    /// Older ones that there was no room for.
    pub(crate) evicted: u64,
    /// Of those, the ones that were open.
    pub(crate) evicted_open: u64,
    /// Events that there was no room for on their way: some incidents may not be known.
    pub(crate) missed: u64,
}

/// As they are on disk.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Saved {
    pub(crate) version: u32,
    next: u64,
    evicted: u64,
    #[serde(default)]
    evicted_open: u64,
    #[serde(default)]
    missed: u64,
    incidents: Vec<Incident>,
}

impl Saved {
    pub(crate) const VERSION: u32 = 1;
}

impl Incidents {
    pub(crate) fn restore(saved: Saved) -> Self {
        let kept = saved.incidents.into_iter().take(INCIDENTS_MAX);
        let all: BTreeMap<_, _> = kept.map(|incident| (incident.id, incident)).collect();
        let last = all.keys().next_back().map_or(0, |id| id + 1);
        Self {
            newest: HashMap::new(), // those of another run are not added to
            next: saved.next.max(last),
            evicted: saved.evicted,
            evicted_open: saved.evicted_open,
            missed: saved.missed,
            is_changed: false,
            changed: BTreeMap::new(),
            all,
        }
    }

    pub(crate) fn saved(&self) -> Saved {
        Saved {
            version: Saved::VERSION,
            next: self.next,
            evicted: self.evicted,
            evicted_open: self.evicted_open,
            missed: self.missed,
            incidents: self.all.values().cloned().collect(),
        }
    }

    pub(crate) fn miss(&mut self, events: u64) {
        self.missed += events;
        self.is_changed |= events > 0;
    }

    /// Those that are new or not as before, since the last call; with whether something was named.
    pub(crate) fn take_changed(&mut self) -> BTreeMap<u64, bool> {
        std::mem::take(&mut self.changed)
    }

    fn change(&mut self, id: u64, is_named: bool) {
        self.is_changed = true;
        *self.changed.entry(id).or_default() |= is_named;
    }

    /// Takes what an event says. Answers the incident that is new or has grown.
    pub(crate) fn take(&mut self, event: &Event, now: Moment) -> Option<u64> {
        if let Event::SentAgain {
            lane,
            epoch,
            number,
            ..
        } = event
        {
            return self.sent_again(*lane, *epoch, *number, now);
        }
        Incident::of(event, now).map(|incident| self.add(incident))
    }

    /// Adds one, to another of its kind if that is not long ago.
    pub(crate) fn add(&mut self, incident: Incident) -> u64 {
        let key = incident.key();
        let before = self.newest.get(&key).and_then(|id| self.all.get_mut(id));
        if let Some(before) = before
            && before.state == State::Open
            && incident.last_at.0.saturating_sub(before.last_at.0) < INCIDENT_GROUP_MS
        {
            before.add(incident);
            let id = before.id;
            self.change(id, true);
            return id;
        }
        if self.all.len() >= INCIDENTS_MAX {
            self.evict();
        }
        let id = self.next;
        self.next += 1;
        self.newest.insert(key, id);
        self.all.insert(id, Incident { id, ..incident });
        self.change(id, true);
        id
    }

    fn evict(&mut self) {
        let rank = |incident: &Incident| match (incident.state, incident.severity) {
            (State::Repaired | State::Ignored, _) => 0,
            (State::Open, Severity::Amber) => 1,
            (State::Open, Severity::Red) => 2,
        };
        let quietest = self.all.values();
        let quietest = quietest.min_by_key(|incident| (rank(incident), incident.last_at));
        if let Some(id) = quietest.map(|incident| incident.id) {
            let quietest = self.all.remove(&id);
            self.changed.remove(&id);
            let is_open = quietest.is_some_and(|incident| incident.state == State::Open);
            self.evicted += 1;
            self.evicted_open += u64::from(is_open);
            self.newest.retain(|_, newest| *newest != id);
        }
    }

    /// A publisher has sent a message again.
    fn sent_again(&mut self, lane: u64, epoch: u32, number: u64, now: Moment) -> Option<u64> {
        let lane = hex(lane);
        let mut open = self.all.values_mut().rev();
        let incident = open.find(|incident| {
            incident.state == State::Open
                && incident.is_repairable()
                && incident.has(&lane, epoch, number)
        })?;
        if !incident.repair(number, now) {
            return None; // for another receiver
        }
        incident.sent_again += 1;
        let id = incident.id;
        self.change(id, false);
        Some(id)
    }

    /// Marks a message that is known to have been put right.
    pub(crate) fn repaired(
        &mut self,
        lane: &str,
        epoch: u32,
        number: u64,
        now: Moment,
    ) -> Option<u64> {
        let mut open = self.all.values_mut().rev();
        let incident = open
            .find(|incident| incident.state == State::Open && incident.has(lane, epoch, number))?;
        let (id, was_missing) = (incident.id, incident.repair(number, now));
        if was_missing {
            self.change(id, false);
        }
        Some(id)
    }

    /// Writes a note, and ignores the incident or looks at it again.
    pub(crate) fn note(
        &mut self,
        id: u64,
        note: Option<&str>,
        by: &str,
        ignore: Option<bool>,
    ) -> Option<&Incident> {
        if self.all.contains_key(&id) {
            self.change(id, false);
        }
        let incident = self.all.get_mut(&id)?;
        if let Some(note) = note {
            incident.note = Some(text(note));
            incident.note_by = Some(text(by));
        }
        match (ignore, incident.state) {
            (Some(true), _) => incident.state = State::Ignored,
            (Some(false), State::Ignored) => incident.state = State::Open,
            _ => {}
        }
        Some(incident)
    }

    pub(crate) fn get(&self, id: u64) -> Option<&Incident> {
        self.all.get(&id)
    }

    /// The newest first.
    pub(crate) fn newest_first(&self, below: Option<u64>) -> impl Iterator<Item = &Incident> {
        let below = below.unwrap_or(u64::MAX);
        self.all.range(..below).rev().map(|(_, incident)| incident)
    }

    pub(crate) fn covering(&self, lane: &str, epoch: u32, number: u64) -> Option<&Incident> {
        self.newest_first(None)
            .find(|incident| incident.has(lane, epoch, number))
    }

    pub(crate) fn counts(&self) -> Counts {
        let mut counts = Counts {
            evicted: self.evicted,
            evicted_open: self.evicted_open,
            missed: self.missed,
            ..Counts::default()
        };
        for incident in self.all.values() {
            *match (incident.state, incident.severity) {
                (State::Open, Severity::Red) => &mut counts.red,
                (State::Open, Severity::Amber) => &mut counts.amber,
                (State::Repaired, _) => &mut counts.repaired,
                (State::Ignored, _) => &mut counts.ignored,
            } += 1;
        }
        counts
    }
}

impl Incident {
    /// Whether sending its messages again puts it right.
    pub(crate) fn is_repairable(&self) -> bool {
        self.is_stamped && matches!(self.kind.as_str(), "lost" | "altered" | "forged")
    }
}

#[cfg(test)]
mod tests {
    use unbroken_broker::handle::FaultKind;

    use super::*;

    fn fault(lane: u64, first: u64) -> Event {
        Event::PublisherFault {
            client_id: "pump".into(),
            lane,
            epoch: 1,
            kind: FaultKind::Lost,
            first,
            count: 1,
            topic: None,
        }
    }

    #[test]
    fn neighbours_are_one_incident_and_a_repair_ends_it() {
        let mut incidents = Incidents::default();
        let first = incidents.take(&fault(7, 4), Moment(1_000)).unwrap();
        let second = incidents.take(&fault(7, 5), Moment(2_000)).unwrap();
        assert_eq!(first, second);
        let incident = incidents.get(first).unwrap();
        assert_eq!(
            (incident.first, incident.last, incident.count),
            (Some(4), Some(5), 2)
        );
        assert_ne!(incidents.take(&fault(8, 4), Moment(2_000)), Some(first));
        let again = |number| Event::SentAgain {
            client_id: "pump".into(),
            lane: 7,
            epoch: 1,
            number,
        };
        // Two receivers ask for the same one, and it was not the only one.
        incidents.take(&again(4), Moment(3_000));
        incidents.take(&again(4), Moment(3_000));
        let lane = hex(7);
        incidents.repaired(&lane, 1, 4, Moment(3_000));
        let incident = incidents.get(first).unwrap();
        assert_eq!((incident.state, incident.sent_again), (State::Open, 1));
        incidents.take(&again(5), Moment(3_000));
        assert_eq!(incidents.get(first).unwrap().state, State::Repaired);
        assert_eq!(incidents.counts().red, 1);
    }

    #[test]
    fn quiet_ones_go_first_and_are_counted() {
        let mut incidents = Incidents::default();
        let kept = incidents.take(&fault(1, 0), Moment(0)).unwrap();
        let ignored = incidents.take(&fault(2, 0), Moment(5_000)).unwrap();
        incidents.note(ignored, Some("a test"), "me", Some(true));
        for lane in 3..=INCIDENTS_MAX as u64 + 1 {
            incidents.take(&fault(lane, 0), Moment(9_000));
        }
        assert!(incidents.get(kept).is_some());
        assert!(incidents.get(ignored).is_none());
        let counts = incidents.counts();
        assert_eq!((counts.evicted, counts.evicted_open), (1, 0));
        incidents.take(&fault(0, 0), Moment(9_000));
        assert_eq!(incidents.counts().evicted_open, 1);
    }

    #[test]
    fn a_stream_gets_what_is_new_and_what_was_repaired() {
        let mut incidents = Incidents::default();
        let id = incidents.take(&fault(1, 7), Moment(1_000)).unwrap();
        assert_eq!(incidents.take_changed(), [(id, true)].into());
        incidents.repaired(&hex(1), 1, 7, Moment(2_000));
        assert_eq!(incidents.take_changed(), [(id, false)].into());
        assert!(incidents.take_changed().is_empty());
    }

    #[test]
    fn they_survive_a_restart() {
        let mut incidents = Incidents::default();
        let id = incidents.take(&fault(1, 7), Moment(1_000)).unwrap();
        incidents.miss(3);
        let text = serde_json::to_string(&incidents.saved()).unwrap();
        let mut restored = Incidents::restore(serde_json::from_str(&text).unwrap());
        assert_eq!(restored.get(id).unwrap().first, Some(7));
        assert_eq!(restored.counts().missed, 3);
        assert_ne!(restored.take(&fault(1, 8), Moment(1_500)), Some(id));
    }
}
