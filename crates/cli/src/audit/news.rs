//! What became known, piece by piece, as a line of text or of JSON.

use std::fmt;
use std::ops::Range;

use serde_json::{Map, Value, json};
use unbroken_demo::Doubt;
use unbroken_merkle_log::ledger::{Presence, State, Verdict};
use unbroken_merkle_log::{Epoch, Hash, LaneId};

use super::declared::By;
use super::strays::on;
use super::wall::date;

/// An epoch of a lane.
pub(crate) type LaneKey = (LaneId, Epoch);

/// Something wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    /// With these; none, if it is the lane as such.
    pub(crate) numbers: Range<u64>,
    /// One word.
    pub(crate) kind: &'static str,
    /// What is known beyond it.
    pub(crate) reason: String,
}

/// What became known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum News {
    Fault(LaneKey, Fault),
    /// A message that belongs to no lane and should.
    Stray {
        topic: String,
        why: String,
    },
    /// They will not come, and that is no fault: why, and who says so.
    Dropped {
        lane: LaneKey,
        numbers: Range<u64>,
        reason: String,
        by: By,
    },
    /// A late message, while others are missing. What moved is a fault when they have come.
    Overtaken {
        lane: LaneKey,
        number: u64,
        by: u64,
    },
    /// Something is in doubt, or is no longer. No fault: messages may be late, and a producer that
    /// is gone without a word may come back.
    Doubt(LaneKey, Doubt),
    /// These were lost long ago, and there is no room to remember them: a copy that still comes
    /// will be called a duplicate.
    Forgotten(LaneKey, Range<u64>),
    /// An expected lane is not there, or is.
    Expected(LaneId, Presence),
    /// Nothing can be said of a lane, and why.
    OtherKey(String),
    /// Anything else that is no fault, and changes what can be judged.
    Note(Note),
    Window {
        lane: LaneKey,
        numbers: Range<u64>,
        state: State,
        roots: Option<Roots>,
    },
}

/// What the producer's checkpoint says of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Roots {
    /// Its root.
    pub(crate) window: Hash,
    /// That of the lane to its end.
    pub(crate) lane: Hash,
    /// When, in µs since 1970.
    pub(crate) made_us: u64,
}

/// A sentence, of a lane or of the listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Note {
    /// One word, for programs.
    pub(crate) what: &'static str,
    pub(crate) lane: Option<LaneKey>,
    pub(crate) text: String,
}

impl News {
    pub(crate) fn to_json(&self) -> Value {
        let (lane, mut members) = self.members();
        if let Some((lane, epoch)) = lane {
            members.insert("lane".to_owned(), json!(lane.to_string()));
            members.insert("epoch".to_owned(), json!(epoch.0));
        }
        Value::Object(members)
    }

    fn members(&self) -> (Option<LaneKey>, Map<String, Value>) {
        let (lane, value) = match self {
            Self::Fault(lane, fault) => (
                Some(*lane),
                json!({
                    "fault": fault.kind, "first": fault.numbers.start, "end": fault.numbers.end,
                    "reason": fault.reason,
                }),
            ),
            Self::Stray { topic, why } => {
                let (fault, reason) = why.split_once(": ").unwrap_or(("injected", why));
                let value = json!({ "fault": fault, "topic": topic, "reason": reason });
                (None, value)
            }
            Self::Dropped {
                lane,
                numbers,
                reason,
                by,
            } => (
                Some(*lane),
                json!({
                    "dropped": reason, "by": by.word(), "first": numbers.start, "end": numbers.end,
                }),
            ),
            Self::Overtaken { lane, number, by } => {
                (Some(*lane), json!({ "overtaken": number, "by": by }))
            }
            Self::Doubt(lane, doubt) => return (Some(*lane), doubt.to_json()),
            Self::Forgotten(lane, of) => (
                Some(*lane),
                json!({ "forgotten": true, "first": of.start, "end": of.end }),
            ),
            Self::Expected(lane, presence) => (None, expected(*lane, *presence)),
            Self::OtherKey(why) => (None, json!({ "other_key": why })),
            Self::Note(Note { what, lane, text }) => (*lane, json!({ "note": what, "text": text })),
            Self::Window {
                lane,
                numbers,
                state,
                roots,
            } => {
                let root = roots.map(|roots| roots.window.to_string());
                let of_lane = roots.map(|roots| roots.lane.to_string());
                let value = json!({
                    "window": word(*state), "first": numbers.start, "end": numbers.end,
                    "root": root, "lane_root": of_lane,
                    "checkpoint_at": roots.map(|roots| date(roots.made_us)),
                });
                (Some(*lane), value)
            }
        };
        match value {
            Value::Object(members) => (lane, members),
            _ => (lane, Map::new()),
        }
    }
}

fn expected(lane: LaneId, presence: Presence) -> Value {
    let (word, after) = match presence {
        Presence::Absent(after) => ("absent", after),
        Presence::Come(after) => ("come", after),
        Presence::Unannounced(after) => ("unannounced", after),
    };
    json!({ "lane": lane.to_string(), "expected": word, "after_s": after.as_secs() })
}

impl fmt::Display for News {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let (Some((lane, epoch)), _) = self.members() {
            write!(f, "lane {lane} epoch {epoch}: ")?;
        }
        match self {
            Self::Fault(_, fault) => write!(f, "{fault}"),
            Self::Stray { topic, why } => write!(f, "{}: {why}", on(topic)),
            Self::Dropped {
                numbers: of,
                reason,
                by,
                ..
            } => write!(f, "{} not delivered: {reason}, by {by}", numbers(of)),
            Self::Overtaken { number, by, .. } => write!(
                f,
                "number {number} came after {by} with higher numbers; which of them moved is \
                 reported when nothing before them is missing"
            ),
            Self::Doubt(_, doubt) => write!(f, "{doubt}"),
            Self::Forgotten(_, of) => write!(
                f,
                "{} lost long ago and no longer remembered: a later copy is reported as repeated",
                numbers(of)
            ),
            Self::Expected(lane, presence) => {
                let expected = match presence {
                    Presence::Unannounced(_) => "lane",
                    Presence::Absent(_) | Presence::Come(_) => "expected lane",
                };
                write!(f, "{expected} {lane}: {presence}")
            }
            Self::OtherKey(text) | Self::Note(Note { text, .. }) => f.write_str(text),
            Self::Window {
                numbers: of,
                state,
                roots,
                ..
            } => {
                write!(f, "{} {}", numbers(of), word(*state))?;
                match roots {
                    Some(Roots {
                        window,
                        lane,
                        made_us,
                    }) => {
                        let made = date(*made_us);
                        write!(f, ", checkpoint of {made}, root {window}, lane root {lane}")
                    }
                    None => Ok(()),
                }
            }
        }
    }
}

/// "number 5 lost: it was issued and did not come".
impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.numbers.is_empty() {
            write!(f, "{} ", numbers(&self.numbers))?;
        }
        write!(f, "{}: {}", self.kind, self.reason)
    }
}

pub(crate) const fn word(state: State) -> &'static str {
    match state {
        State::Proven => "proven",
        State::Faulty => "faulty",
        State::Unproven => "unproven",
    }
}

/// "number 5", "numbers 5 to 7".
pub(crate) fn numbers(numbers: &Range<u64>) -> String {
    match numbers.end - numbers.start {
        1 => format!("number {}", numbers.start),
        _ => format!("numbers {} to {}", numbers.start, numbers.end - 1),
    }
}

/// The kind and the reason of the fault that a verdict names, if it names one.
pub(super) fn verdict_fault(verdict: Verdict) -> Option<(&'static str, &'static str)> {
    Some(match verdict {
        Verdict::Duplicate => ("duplicated", "it had come before, identical in every byte"),
        Verdict::Repeated => (
            "repeated",
            "its number had come before; the content of the first is no longer known, so this one \
             may differ",
        ),
        Verdict::Conflict => (
            "conflict",
            "two different messages came under its number, and both fit their stamps: two producers \
             use the lane, or one of the two is forged",
        ),
        Verdict::Altered => ("altered", "topic or payload does not fit its stamp"),
        Verdict::Injected => (
            "injected",
            "a message came under its number that was not issued",
        ),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_delivered_has_a_reason_and_somebody_who_says_so() {
        let dropped = News::Dropped {
            lane: (LaneId::new(7).unwrap(), Epoch(2)),
            numbers: 5..8,
            reason: "queue-full".to_owned(),
            by: By::Broker,
        };
        let words = "numbers 5 to 7 not delivered: queue-full, by the broker";
        let lane = "lane 0000000000000007 epoch 2";
        assert_eq!(dropped.to_string(), format!("{lane}: {words}"));
        assert_eq!(dropped.to_json()["dropped"], "queue-full");
        assert_eq!(dropped.to_json()["lane"], "0000000000000007");
    }

    #[test]
    fn one_number_and_several_are_distinguished() {
        assert_eq!(numbers(&(5..6)), "number 5");
        assert_eq!(numbers(&(5..8)), "numbers 5 to 7");
    }
}
