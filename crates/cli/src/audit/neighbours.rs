//! What came beside messages that did not.
//!
//! Invariant: what is given is the nearest that came, also of messages that turned up late among
//! suspected numbers; otherwise nothing is.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use unbroken_merkle_log::Property;

/// Stretches of suspected numbers that are noted; about 50 bytes each.
const STRETCHES_MAX: usize = 10_000;
/// Messages that came in and beside them; about 500 bytes each.
const MESSAGES_MAX: usize = 20_000;
/// Bytes of a payload that are remembered of a neighbour.
const NEIGHBOUR_BYTES: usize = 256;

/// A message that arrived.
#[derive(Clone, Debug)]
pub(crate) struct Remembered {
    pub(crate) number: u64,
    pub(crate) at: Duration,
    pub(crate) topic: String,
    pub(crate) payload: Vec<u8>,
    pub(crate) property: Property,
}

/// A message that arrived beside one that did not.
pub(crate) type Neighbour<'a> = Option<&'a Remembered>;

/// Stretches of suspected numbers, and what came in and beside them.
#[derive(Debug, Default)]
pub(crate) struct Noted {
    /// By the first number of each.
    stretches: BTreeMap<u64, Stretch>,
    messages: BTreeMap<u64, Remembered>,
}

#[derive(Debug)]
struct Stretch {
    /// One more than the last of its numbers.
    end: u64,
    /// Whether the nearest one before it is noted.
    has_before: bool,
}

impl Noted {
    /// Notes numbers that are suspected, with what came beside them so far.
    pub(crate) fn add(
        &mut self,
        numbers: &Range<u64>,
        before: Neighbour<'_>,
        after: Neighbour<'_>,
    ) {
        if self.stretches.len() >= STRETCHES_MAX || self.messages.len() >= MESSAGES_MAX {
            return;
        }
        let stretch = Stretch {
            end: numbers.end,
            has_before: before.is_some(),
        };
        self.stretches.insert(numbers.start, stretch);
        for message in before.into_iter().chain(after) {
            self.messages.insert(message.number, message.short());
        }
    }

    /// What came before and after these numbers, as far as it was noted.
    pub(crate) fn beside(&self, numbers: &Range<u64>) -> (Neighbour<'_>, Neighbour<'_>) {
        let stretch = self.stretches.range(..=numbers.start).next_back();
        let Some((first, stretch)) = stretch.filter(|(_, its)| numbers.end <= its.end) else {
            return (None, None);
        };
        let before = self.messages.range(..numbers.start).next_back();
        let before = before.filter(|(number, _)| stretch.has_before || *number >= first);
        let after = self.messages.range(numbers.end..).next();
        (before.map(|(_, it)| it), after.map(|(_, it)| it))
    }

    /// A message came: within a stretch, or perhaps as the first one behind it.
    pub(crate) fn take(&mut self, message: &Remembered) {
        let number = message.number;
        let Some((first, stretch)) = self.stretches.range(..=number).next_back() else {
            return;
        };
        let is_behind = number >= stretch.end;
        if is_behind && self.messages.range(stretch.end..=number).next().is_some() {
            return;
        }
        let first = *first;
        if self.messages.len() < MESSAGES_MAX {
            self.messages.insert(number, message.short());
        } else if !is_behind {
            // What is noted would no longer be the nearest.
            self.stretches.remove(&first);
        }
    }
}

impl Remembered {
    /// With as much of its payload as is shown.
    fn short(&self) -> Self {
        let payload = self.payload.iter().take(NEIGHBOUR_BYTES);
        Self {
            payload: payload.copied().collect(),
            topic: self.topic.clone(),
            ..*self
        }
    }
}

#[cfg(test)]
mod tests {
    use unbroken_merkle_log::{Epoch, Hasher, LaneId};

    use super::*;

    fn message(number: u64) -> Remembered {
        let lane = LaneId::new(7).unwrap();
        Remembered {
            number,
            at: Duration::ZERO,
            topic: "t".to_owned(),
            payload: Vec::new(),
            property: Property::stamp(&Hasher::xxh3(), lane, Epoch(0), number, b"t", b""),
        }
    }

    #[test]
    fn each_number_of_a_stretch_has_the_nearest_that_came_whatever_the_order() {
        for order in [[100, 101, 104], [104, 101, 100], [101, 100, 104]] {
            let mut noted = Noted::default();
            noted.add(&(100..106), Some(&message(99)), None);
            noted.take(&message(106));
            for number in order {
                noted.take(&message(number));
            }
            for (numbers, expect) in [
                (100..101, (99, 101)),
                (101..102, (100, 104)),
                (102..104, (101, 104)),
                (103..104, (101, 104)),
                (104..105, (101, 106)),
                (105..106, (104, 106)),
            ] {
                let (before, after) = noted.beside(&numbers);
                let beside = (before.unwrap().number, after.unwrap().number);
                assert_eq!(beside, expect, "{numbers:?} of {order:?}");
            }
        }
    }

    #[test]
    fn where_there_is_no_room_nothing_is_said() {
        let mut noted = Noted::default();
        let all = 0..2 * u64::try_from(MESSAGES_MAX).unwrap();
        noted.add(&all, None, None);
        for number in all.clone().step_by(2) {
            noted.take(&message(number));
        }
        assert!(noted.messages.len() <= MESSAGES_MAX);
        noted.take(&message(all.end - 1));
        let (before, after) = noted.beside(&(1..2));
        assert_eq!((before.is_some(), after.is_some()), (false, false));
    }
}
