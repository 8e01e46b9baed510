//! What of a lane cannot be true together, although every part of it fits.
//!
//! Without a key anybody can make what fits, so a contradiction names both sides and accuses
//! neither.

use std::fmt;
use std::ops::Range;

use serde_json::{Map, Value, json};
use unbroken_merkle_log::ledger::Event;

/// A contradiction within one epoch of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contradiction {
    /// The checkpoint with this number contradicts one before it.
    Checkpoint(u32),
    /// A checkpoint said that the epoch ended at this size, and the message with this number came.
    End {
        /// The size.
        size: u64,
        /// The number.
        number: u64,
    },
    /// A drop record names this message and perhaps those that follow, and it came.
    Drop(u64),
    /// Another message said that it was made of this one, before any of the lane came itself.
    Input(u64),
    /// Several contradictions, each of which fits: two producers use the lane.
    TwoProducers,
}

impl Contradiction {
    /// The contradiction that an event is.
    pub fn of(event: &Event) -> Option<Self> {
        Some(match *event {
            Event::CheckpointContradicts(number) => Self::Checkpoint(number),
            Event::EndContradicted { size, number } => Self::End { size, number },
            Event::DropContradicted(number) => Self::Drop(number),
            Event::TwoProducers => Self::TwoProducers,
            _ => return None,
        })
    }

    /// The messages that it is about, as far as it is about some, and what is said of them.
    pub fn numbers(&self) -> (Range<u64>, &'static str) {
        match *self {
            Self::End { number, .. } | Self::Drop(number) | Self::Input(number) => {
                (number..number + 1, "contradicted")
            }
            Self::Checkpoint(_) => (0..0, "contradicted"),
            Self::TwoProducers => (0..0, "two producers"),
        }
    }

    /// The members of a JSON object, to which its owner adds the lane.
    pub fn to_json(&self) -> Map<String, Value> {
        let value = match self {
            Self::Checkpoint(number) => json!({ "contradiction": "checkpoint", "number": number }),
            Self::End { size, number } => {
                json!({ "contradiction": "end", "size": size, "number": number })
            }
            Self::Drop(number) => json!({ "contradiction": "drop", "number": number }),
            Self::Input(number) => json!({ "contradiction": "input", "number": number }),
            Self::TwoProducers => json!({ "contradiction": "two-producers" }),
        };
        match value {
            Value::Object(members) => members,
            _ => Map::new(),
        }
    }

    /// Reads what [`Contradiction::to_json`] gives.
    pub fn parse_json(value: &Value) -> Option<Self> {
        Some(match value["contradiction"].as_str()? {
            "checkpoint" => Self::Checkpoint(u32::try_from(value["number"].as_u64()?).ok()?),
            "end" => Self::End {
                size: value["size"].as_u64()?,
                number: value["number"].as_u64()?,
            },
            "drop" => Self::Drop(value["number"].as_u64()?),
            "input" => Self::Input(value["number"].as_u64()?),
            "two-producers" => Self::TwoProducers,
            _ => return None,
        })
    }
}

impl fmt::Display for Contradiction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Checkpoint(number) => write!(
                f,
                "checkpoint {number} contradicts one before it: one of the two is not the producer's"
            ),
            Self::End { size, number } => write!(
                f,
                "a checkpoint says that the lane ended with {size} messages, and number {number} \
                 came and fits its stamp: one of the two is not the producer's"
            ),
            Self::Drop(number) => write!(
                f,
                "a drop record says that number {number} does not come, and it came and fits its stamp: one of the \
                 two is not what it says"
            ),
            Self::Input(number) => write!(
                f,
                "another message said that it was made of number {number}, and number {number} came itself only \
                 then: statements of others about their inputs prove nothing about this lane"
            ),
            Self::TwoProducers => f.write_str(
                "two producers use this lane: their messages or checkpoints contradict each other, \
                 and fit. A machine or its spool was copied, or one of the two is forged: give \
                 each \
                 producer a lane of its own, and a key",
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_contradiction_is_read_back_the_same() {
        let all = [
            Contradiction::Checkpoint(7),
            Contradiction::End {
                size: 100,
                number: 120,
            },
            Contradiction::Drop(5),
            Contradiction::Input(1 << 60),
            Contradiction::TwoProducers,
        ];
        for one in all {
            let value = Value::Object(one.to_json());
            assert_eq!(Contradiction::parse_json(&value), Some(one));
        }
        for other in [json!({}), json!({ "contradiction": "else" }), json!(1)] {
            assert_eq!(Contradiction::parse_json(&other), None);
        }
    }
}
