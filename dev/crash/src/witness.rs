//! The messages of one subscriber, verified by the audit.
//!
//! It must have every message of every lane, in order; at QoS 2 each once. At QoS 1, and for a
//! subscriber that loses its state, a message may be repeated after a crash. No message is
//! requested again, so nothing is repaired.

use std::collections::BTreeMap;

use unbroken_client::audit::{AuditedMessage, Delivery};
use unbroken_merkle_log::ledger::{Event, State, Verdict};
use unbroken_merkle_log::{EpochEnd, LaneId};

use crate::others::END;

/// Faults that are told; more are only counted.
const TOLD_MAX: usize = 20;

/// The findings of one subscriber.
#[derive(Debug)]
pub(crate) struct Witness {
    name: &'static str,
    /// Whether a message may come twice.
    may_repeat: bool,
    lanes: BTreeMap<LaneId, Lane>,
    /// Messages, each once.
    pub(crate) messages: u64,
    /// Messages that came again.
    pub(crate) repeated: u64,
    /// What was published last has come, behind everything.
    pub(crate) has_ended: bool,
    faults: Vec<String>,
    unnamed_faults: u64,
}

#[derive(Debug, Default)]
struct Lane {
    /// The number that is due.
    next: u64,
    /// By the first number: messages issued, and whether they are proven to have come.
    windows: BTreeMap<u64, (u64, bool)>,
    /// The length of the lane, once its producer has ended it.
    closed: Option<u64>,
}

impl Witness {
    pub(crate) fn new(name: &'static str, may_repeat: bool) -> Self {
        Self {
            name,
            may_repeat,
            lanes: BTreeMap::new(),
            messages: 0,
            repeated: 0,
            has_ended: false,
            faults: Vec::new(),
            unnamed_faults: 0,
        }
    }

    /// Judges what came; `round` is when. Gives whether it is a message that is new.
    pub(crate) fn take(&mut self, delivery: Delivery, round: u64) -> bool {
        let before = self.messages;
        let fault = match delivery {
            Delivery::Message(message) => self.message(&message),
            Delivery::Event { lane, event, .. } => self.event(lane, &event),
            Delivery::Checkpoint { checkpoint, .. } => {
                if checkpoint.end == EpochEnd::Closed {
                    let lane = self.lanes.entry(checkpoint.lane).or_default();
                    lane.closed = Some(checkpoint.size);
                }
                None
            }
            other => Some(format!("{other:?}")),
        };
        if let Some(fault) = fault {
            if self.faults.len() < TOLD_MAX {
                let name = self.name;
                self.faults.push(format!("{name}, round {round}: {fault}"));
            } else {
                self.unnamed_faults += 1;
            }
        }
        self.messages > before
    }

    /// Whether each of so many lanes has ended and is proven whole.
    pub(crate) fn has_all(&self, lanes: usize) -> bool {
        self.lanes.len() == lanes && self.lanes.values().all(Lane::is_whole)
    }

    /// What is wrong, a sentence each.
    pub(crate) fn faults(&self) -> Vec<String> {
        let mut faults = self.faults.clone();
        if self.unnamed_faults > 0 {
            faults.push(format!("{}: and {} more", self.name, self.unnamed_faults));
        }
        if !self.has_ended {
            faults.push(format!("{}: what was published last never came", self.name));
        }
        for (lane, seen) in self.lanes.iter().filter(|(_, lane)| !lane.is_whole()) {
            faults.push(format!(
                "{}: of lane {lane} {} messages have come, {} are proven and {} were issued",
                self.name,
                seen.next,
                seen.proven(),
                seen.closed
                    .map_or_else(|| "?".to_owned(), |size| size.to_string())
            ));
        }
        faults
    }

    fn message(&mut self, message: &AuditedMessage) -> Option<String> {
        let Some(property) = message.property() else {
            if message.topic().split('/').any(|level| level == END) {
                self.has_ended = true;
                return None;
            }
            return Some(format!("a message on {} is not stamped", message.topic()));
        };
        self.judge(property.lane, property.sequence, message.verdict())
    }

    fn judge(&mut self, id: LaneId, number: u64, verdict: Option<Verdict>) -> Option<String> {
        let lane = self.lanes.entry(id).or_default();
        match verdict {
            // What was sent again after a lost connection says so, and may be the first to come.
            Some(Verdict::InOrder | Verdict::Repaired) if number == lane.next => {
                lane.next += 1;
                self.messages += 1;
                return None;
            }
            Some(Verdict::Duplicate | Verdict::Repeated | Verdict::Replayed) => {
                self.repeated += 1;
                if self.may_repeat {
                    return None;
                }
            }
            _ => {}
        }
        Some(format!(
            "message {number} of lane {id} is {verdict:?}, and {} was next",
            lane.next
        ))
    }

    fn event(&mut self, lane: LaneId, event: &Event) -> Option<String> {
        match event {
            Event::Window {
                numbers,
                state,
                account,
            } => {
                let window = (account.issued, *state == State::Proven);
                let lane = self.lanes.entry(lane).or_default();
                lane.windows.insert(numbers.start, window);
                None
            }
            // A checkpoint may come before the messages that it tells of, and silence is what a
            // broker that is dead has.
            Event::Suspected(_) | Event::Settled | Event::Silent(_) | Event::Heard(_) => None,
            fault => Some(format!("lane {lane}: {fault:?}")),
        }
    }
}

impl Lane {
    fn proven(&self) -> u64 {
        let proven = self.windows.values().filter(|(_, is_proven)| *is_proven);
        proven.map(|(issued, _)| issued).sum()
    }

    fn is_whole(&self) -> bool {
        self.closed == Some(self.proven())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Verdict::{Ahead, Duplicate, InOrder, Late, Replayed};

    /// How many of these messages of one lane are faults.
    fn faults(may_repeat: bool, messages: &[(u64, Verdict)]) -> usize {
        let mut witness = Witness::new("w", may_repeat);
        let judged = messages
            .iter()
            .map(|(number, verdict)| witness.judge(lane(), *number, Some(*verdict)));
        judged.flatten().count()
    }

    fn lane() -> LaneId {
        LaneId::new(1).expect("not 0")
    }

    #[test]
    fn each_in_order_is_well_and_a_gap_and_a_swap_are_not() {
        assert_eq!(
            faults(false, &[(0, InOrder), (1, InOrder), (2, InOrder)]),
            0
        );
        assert_eq!(faults(true, &[(0, InOrder), (2, Ahead)]), 1);
        assert_eq!(faults(true, &[(0, InOrder), (2, Ahead), (1, Late)]), 2);
    }

    #[test]
    fn only_who_may_hear_a_message_twice_may() {
        for again in [Duplicate, Replayed] {
            let messages = [(0, InOrder), (0, again), (1, InOrder)];
            assert_eq!(faults(true, &messages), 0);
            assert_eq!(faults(false, &messages), 1);
        }
    }

    #[test]
    fn a_lane_of_which_the_end_has_not_come_is_named() {
        let mut witness = Witness::new("w", true);
        witness.has_ended = true;
        let lane = witness.lanes.entry(lane()).or_default();
        lane.closed = Some(2_048);
        lane.windows.insert(0, (1_024, true));
        lane.windows.insert(1_024, (1_024, false));
        assert!(!witness.has_all(1));
        assert_eq!(witness.faults().len(), 1);
        let lane = witness.lanes.values_mut().next().expect("it is there");
        lane.windows.insert(1_024, (1_024, true));
        assert!(witness.has_all(1));
        assert!(!witness.has_all(2), "one was never heard of");
        assert!(witness.faults().is_empty());
        witness.has_ended = false;
        assert_eq!(witness.faults().len(), 1);
    }
}
