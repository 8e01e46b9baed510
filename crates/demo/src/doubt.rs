//! What a receiver is not sure of: messages that may be missing, and producers that may be gone.
//! Each of these doubts ends by itself, and its end is told like its beginning. And what it cannot
//! judge, because it joined late.
//!
//! **Absent:** which of the suspected messages have come since. A doubt ends when none is suspected
//! any more.

use std::fmt;
use std::ops::Range;
use std::time::Duration;

use serde_json::{Map, Value, json};
use unbroken_merkle_log::ledger::Event;

/// A doubt of a lane, or the end of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Doubt {
    /// These may be missing, or only late.
    Suspected(Range<u64>),
    /// What may have been missing has come, or is named.
    Settled,
    /// So long ago was the last checkpoint, which is two heartbeats or more.
    Silent(Duration),
    /// A checkpoint came, so long after the one before it.
    Heard(Duration),
    /// Numbers below this one were under way before anything was heard, and are not judged. It does
    /// not end.
    OutOfScope(u64),
}

/// All that is in doubt of one lane at this moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Doubts {
    /// Since nothing was: the first number that was suspected, and how many were.
    suspected: Option<(u64, u64)>,
    /// Silent, and when its last checkpoint was.
    silent: Option<Duration>,
    out_of_scope: u64,
}

impl Doubt {
    /// The doubt that an event is.
    pub fn of(event: &Event) -> Option<Self> {
        Some(match event {
            Event::Suspected(numbers) => Self::Suspected(numbers.clone()),
            Event::Settled => Self::Settled,
            Event::Silent(since) => Self::Silent(*since),
            Event::Heard(since) => Self::Heard(*since),
            Event::OutOfScope(below) => Self::OutOfScope(*below),
            _ => return None,
        })
    }

    /// The members of a JSON object, to which its owner adds the lane.
    pub fn to_json(&self) -> Map<String, Value> {
        let value = match self {
            Self::Suspected(numbers) => {
                json!({ "doubt": "suspected", "first": numbers.start, "end": numbers.end })
            }
            Self::Settled => json!({ "doubt": "settled" }),
            Self::Silent(since) => json!({ "doubt": "silent", "after_ms": millis(*since) }),
            Self::Heard(since) => json!({ "doubt": "heard", "after_ms": millis(*since) }),
            Self::OutOfScope(below) => json!({ "doubt": "out-of-scope", "below": below }),
        };
        match value {
            Value::Object(members) => members,
            _ => Map::new(),
        }
    }

    /// Reads what [`Doubt::to_json`] gives.
    pub fn parse_json(value: &Value) -> Option<Self> {
        let after = || value["after_ms"].as_u64().map(Duration::from_millis);
        Some(match value["doubt"].as_str()? {
            "suspected" => Self::Suspected(value["first"].as_u64()?..value["end"].as_u64()?),
            "settled" => Self::Settled,
            "silent" => Self::Silent(after()?),
            "heard" => Self::Heard(after()?),
            "out-of-scope" => Self::OutOfScope(value["below"].as_u64()?),
            _ => return None,
        })
    }
}

impl Doubts {
    /// Takes what became known now.
    pub fn take(&mut self, doubt: &Doubt, now: Duration) {
        match doubt {
            Doubt::Suspected(numbers) => {
                let (_, count) = self.suspected.get_or_insert((numbers.start, 0));
                *count += numbers.end - numbers.start;
            }
            Doubt::Settled => self.suspected = None,
            Doubt::Silent(since) => self.silent = Some(now.saturating_sub(*since)),
            Doubt::Heard(_) => self.silent = None,
            Doubt::OutOfScope(below) => self.out_of_scope = *below,
        }
    }

    /// Numbers below this one are not judged.
    pub fn out_of_scope(&self) -> u64 {
        self.out_of_scope
    }

    /// How many messages were suspected since none was; some of them may have come.
    pub fn suspected(&self) -> u64 {
        self.suspected.map_or(0, |(_, count)| count)
    }

    /// How long it has been silent.
    pub fn silent_for(&self, now: Duration) -> Option<Duration> {
        self.silent.map(|since| now.saturating_sub(since))
    }

    /// In words; `None` without a doubt.
    pub fn sentence(&self, now: Duration) -> Option<String> {
        let suspected = self.suspected.map(|(first, count)| match count {
            1 => format!("number {first} may be missing"),
            _ => format!(
                "number {first} and up to {} others may be missing",
                count - 1
            ),
        });
        let silent = self.silent_for(now).map(|since| {
            let seconds = since.as_secs();
            format!("no checkpoint for {seconds} s; its producer may have stopped")
        });
        let parts: Vec<String> = suspected.into_iter().chain(silent).collect();
        (!parts.is_empty()).then(|| parts.join("; "))
    }
}

impl fmt::Display for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Suspected(numbers) if numbers.end - numbers.start == 1 => {
                write!(f, "number {} may be missing", numbers.start)
            }
            Self::Suspected(numbers) => {
                let last = numbers.end.saturating_sub(1);
                write!(f, "numbers {} to {last} may be missing", numbers.start)
            }
            Self::Settled => f.write_str("all possibly missing messages have come or are named"),
            Self::Silent(since) => {
                let seconds = since.as_secs_f64();
                write!(
                    f,
                    "no checkpoint for {seconds:.1} s; its producer may have stopped"
                )
            }
            Self::Heard(since) => {
                let seconds = since.as_secs_f64();
                write!(f, "a checkpoint again, after {seconds:.1} s")
            }
            Self::OutOfScope(below) => write!(
                f,
                "numbers below {below} are out of scope: what came first did not begin with number 0"
            ),
        }
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_doubt_is_read_back_the_same() {
        let doubts = [
            Doubt::Suspected(17..20),
            Doubt::Settled,
            Doubt::Silent(SECOND * 2),
            Doubt::Heard(SECOND * 5),
            Doubt::OutOfScope(1_024),
        ];
        for doubt in doubts {
            let value = Value::Object(doubt.to_json());
            assert_eq!(Doubt::parse_json(&value), Some(doubt));
        }
        for other in [json!({}), json!({ "doubt": "else" }), json!(1)] {
            assert_eq!(Doubt::parse_json(&other), None);
        }
    }

    #[test]
    fn what_is_in_doubt_is_one_sentence_until_both_doubts_have_ended() {
        let mut doubts = Doubts::default();
        assert_eq!(doubts.sentence(SECOND), None);
        doubts.take(&Doubt::Suspected(17..18), SECOND);
        let told = |doubts: &Doubts| doubts.sentence(SECOND * 7);
        assert_eq!(told(&doubts).as_deref(), Some("number 17 may be missing"));
        doubts.take(&Doubt::Suspected(20..22), SECOND);
        assert_eq!(
            told(&doubts).as_deref(),
            Some("number 17 and up to 2 others may be missing")
        );
        doubts.take(&Doubt::Silent(SECOND * 2), SECOND * 5);
        assert_eq!(doubts.silent_for(SECOND * 7), Some(SECOND * 4));
        doubts.take(&Doubt::Settled, SECOND * 6);
        assert_eq!(
            told(&doubts).as_deref(),
            Some("no checkpoint for 4 s; its producer may have stopped")
        );
        doubts.take(&Doubt::Heard(SECOND * 5), SECOND * 8);
        assert_eq!(told(&doubts), None);
    }
}
