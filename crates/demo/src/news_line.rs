//! News as lines of JSON: how B tells the demonstration what it found.

use std::ops::Range;
use std::time::Duration;

use serde_json::{Value, json};
use unbroken_client::audit::Absence;
use unbroken_merkle_log::ledger::{Presence, State};
use unbroken_merkle_log::{Epoch, LaneId};

use crate::contradiction::Contradiction;
use crate::doubt::Doubt;
use crate::fault::{Fault, Kind, Place};
use crate::news::{Behind, News};

impl News {
    /// One JSON object, without an end of line.
    pub fn to_json(&self) -> String {
        let value = match self {
            Self::Listening => json!({ "listening": true }),
            Self::Fault { fault, own } => json!({
                "fault": fault.kind.participle(), "own": own, "lane": fault.place.lane.to_string(),
                "epoch": fault.place.epoch.0, "number": fault.place.number,
            }),
            Self::Overtaken { place, by, own } => json!({
                "overtaken_by": by, "own": own, "lane": place.lane.to_string(),
                "epoch": place.epoch.0, "number": place.number,
            }),
            Self::Doubt { lane, doubt, own } => {
                let mut members = doubt.to_json();
                members.insert("own".to_owned(), json!(own));
                members.insert("lane".to_owned(), json!(lane.to_string()));
                Value::Object(members)
            }
            Self::ManyFaults { .. }
            | Self::Undelivered { .. }
            | Self::RootDiffers { .. }
            | Self::Conflict(_)
            | Self::Decided { .. }
            | Self::Away(_) => self.to_value(),
            Self::Contradiction {
                lane,
                contradiction,
                own,
            } => {
                let mut members = contradiction.to_json();
                members.insert("own".to_owned(), json!(own));
                members.insert("lane".to_owned(), json!(lane.to_string()));
                Value::Object(members)
            }
            Self::Expected { lane, presence } => {
                let (word, after) = match presence {
                    Presence::Absent(after) => ("absent", after),
                    Presence::Come(after) => ("come", after),
                    Presence::Unannounced(after) => ("unannounced", after),
                };
                let after_ms = millis(*after);
                json!({ "expected": word, "lane": lane.to_string(), "after_ms": after_ms })
            }
            Self::Forgotten { lane, numbers } => json!({
                "forgotten": true, "lane": lane.to_string(), "first": numbers.start,
                "end": numbers.end,
            }),
            Self::Repaired(place) => json!({
                "repaired": true, "lane": place.lane.to_string(), "epoch": place.epoch.0,
                "number": place.number,
            }),
            Self::Window {
                lane,
                numbers,
                state,
            } => json!({
                "window": word(*state), "lane": lane.to_string(), "first": numbers.start,
                "end": numbers.end,
            }),
            Self::LeftAlone { topic, why } => json!({ "left_alone": topic, "why": why }),
            Self::Dropped { topic, why } => json!({ "dropped": topic, "why": why }),
            Self::NoRoom { lane, why } => {
                json!({ "no_room": true, "lane": lane.to_string(), "why": why })
            }
            Self::OtherKey { lane, why } => {
                json!({ "other_key": true, "lane": lane.to_string(), "why": why })
            }
        };
        value.to_string()
    }

    /// Those of several messages, and of a stage itself.
    fn to_value(&self) -> Value {
        match self {
            Self::ManyFaults {
                kind,
                first,
                end,
                own,
                behind,
            } => {
                let mut members = json!({
                    "many": kind.participle(), "own": own, "lane": first.lane.to_string(),
                    "epoch": first.epoch.0, "first": first.number, "end": end,
                });
                if behind.may_be_forged {
                    members["may_be_forged"] = json!(true);
                }
                if let Some(absence) = &behind.absence {
                    members["away_from_ms"] = json!(millis(absence.from));
                    members["away_until_ms"] = json!(millis(absence.until));
                }
                members
            }
            Self::Undelivered {
                first,
                end,
                reason,
                by_broker,
            } => json!({
                "undelivered": reason, "by": if *by_broker { "broker" } else { "processor" },
                "lane": first.lane.to_string(), "epoch": first.epoch.0, "first": first.number,
                "end": end,
            }),
            Self::RootDiffers { first, end, own } => json!({
                "root_differs": true, "own": own, "lane": first.lane.to_string(),
                "epoch": first.epoch.0, "first": first.number, "end": end,
            }),
            Self::Conflict(place) => json!({
                "conflict": true, "lane": place.lane.to_string(), "epoch": place.epoch.0,
                "number": place.number,
            }),
            Self::Decided {
                place,
                second_is_real,
            } => json!({
                "real": if *second_is_real { "second" } else { "first" },
                "lane": place.lane.to_string(), "epoch": place.epoch.0, "number": place.number,
            }),
            Self::Away(absence) => json!({
                "away_from_ms": millis(absence.from), "away_until_ms": millis(absence.until),
            }),
            _ => Value::Null,
        }
    }

    /// Reads what [`News::to_json`] writes; `None` for everything else.
    pub fn parse_json(line: &str) -> Option<Self> {
        let value: Value = serde_json::from_str(line).ok()?;
        if value["listening"] == true {
            return Some(Self::Listening);
        }
        if let Some(topic) = value["left_alone"].as_str() {
            return Some(Self::LeftAlone {
                topic: topic.to_owned(),
                why: value["why"].as_str()?.to_owned(),
            });
        }
        if let Some(topic) = value["dropped"].as_str() {
            return Some(Self::Dropped {
                topic: topic.to_owned(),
                why: value["why"].as_str()?.to_owned(),
            });
        }
        let absence = absence_of(&value);
        if let (Some(absence), Value::Null) = (absence, &value["lane"]) {
            return Some(Self::Away(absence));
        }
        let lane = u64::from_str_radix(value["lane"].as_str()?, 16).ok()?;
        let lane = LaneId::new(lane)?;
        if value["other_key"] == true {
            let why = value["why"].as_str()?.to_owned();
            return Some(Self::OtherKey { lane, why });
        }
        if value["forgotten"] == true {
            let numbers = value["first"].as_u64()?..value["end"].as_u64()?;
            return Some(Self::Forgotten { lane, numbers });
        }
        if let Some(word) = value["expected"].as_str() {
            return Self::parse_expected(&value, lane, word);
        }
        if value["no_room"] == true {
            let why = value["why"].as_str()?.to_owned();
            return Some(Self::NoRoom { lane, why });
        }
        if let Some(doubt) = Doubt::parse_json(&value) {
            let own = value["own"].as_bool()?;
            return Some(Self::Doubt { lane, doubt, own });
        }
        if let Some(contradiction) = Contradiction::parse_json(&value) {
            let own = value["own"].as_bool()?;
            return Some(Self::Contradiction {
                lane,
                contradiction,
                own,
            });
        }
        if let Some(state) = value["window"].as_str() {
            return Self::parse_window(&value, lane, state);
        }
        let epoch = Epoch(u32::try_from(value["epoch"].as_u64()?).ok()?);
        if let (Some(number), Some(end)) = (value["first"].as_u64(), value["end"].as_u64()) {
            let first = Place {
                lane,
                epoch,
                number,
            };
            return Self::parse_range(&value, first, end);
        }
        let place = Place {
            lane,
            epoch,
            number: value["number"].as_u64()?,
        };
        if let Some(by) = value["overtaken_by"].as_u64() {
            let own = value["own"].as_bool()?;
            return Some(Self::Overtaken { place, by, own });
        }
        Self::parse_place(&value, place)
    }

    fn parse_expected(value: &Value, lane: LaneId, word: &str) -> Option<Self> {
        let after = Duration::from_millis(value["after_ms"].as_u64()?);
        let presence = match word {
            "absent" => Presence::Absent(after),
            "come" => Presence::Come(after),
            "unannounced" => Presence::Unannounced(after),
            _ => return None,
        };
        Some(Self::Expected { lane, presence })
    }

    fn parse_window(value: &Value, lane: LaneId, state: &str) -> Option<Self> {
        let states = [State::Proven, State::Faulty, State::Unproven];
        let numbers: Range<u64> = value["first"].as_u64()?..value["end"].as_u64()?;
        let state = states.into_iter().find(|its| word(*its) == state)?;
        Some(Self::Window {
            lane,
            numbers,
            state,
        })
    }

    /// Those of one message.
    fn parse_place(value: &Value, place: Place) -> Option<Self> {
        if value["conflict"] == true {
            return Some(Self::Conflict(place));
        }
        if let Some(which) = value["real"].as_str() {
            return Some(Self::Decided {
                place,
                second_is_real: which == "second",
            });
        }
        let Some(fault) = value["fault"].as_str() else {
            return value["repaired"]
                .as_bool()?
                .then_some(Self::Repaired(place));
        };
        let mut kinds = Kind::ALL.into_iter();
        let kind = kinds.find(|kind| kind.participle() == fault)?;
        Some(Self::Fault {
            fault: Fault { kind, place },
            own: value["own"].as_bool()?,
        })
    }

    /// Those of neighbouring messages of one epoch.
    fn parse_range(value: &Value, first: Place, end: u64) -> Option<Self> {
        if let Some(reason) = value["undelivered"].as_str() {
            return Some(Self::Undelivered {
                first,
                end,
                reason: reason.to_owned(),
                by_broker: value["by"] == "broker",
            });
        }
        let own = value["own"].as_bool()?;
        if value["root_differs"] == true {
            return Some(Self::RootDiffers { first, end, own });
        }
        let many = value["many"].as_str()?;
        Some(Self::ManyFaults {
            kind: Kind::ALL
                .into_iter()
                .find(|kind| kind.participle() == many)?,
            first,
            end,
            own,
            behind: Behind {
                may_be_forged: value["may_be_forged"] == true,
                absence: absence_of(value),
            },
        })
    }
}

fn absence_of(value: &Value) -> Option<Absence> {
    let time = |name: &str| value[name].as_u64().map(Duration::from_millis);
    Some(Absence {
        from: time("away_from_ms")?,
        until: time("away_until_ms")?,
    })
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

const fn word(state: State) -> &'static str {
    match state {
        State::Proven => "proven",
        State::Faulty => "faulty",
        State::Unproven => "unproven",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn news_are_read_back_the_same() {
        let lane = LaneId::new(u64::MAX).unwrap();
        let place = Place {
            lane,
            epoch: Epoch(3),
            number: 1 << 60,
        };
        let kinds = Kind::ALL.into_iter();
        let faults = kinds.map(|kind| News::Fault {
            fault: Fault { kind, place },
            own: kind == Kind::Lost,
        });
        let windows = [State::Proven, State::Faulty, State::Unproven].map(|state| News::Window {
            lane,
            numbers: 1_024..2_048,
            state,
        });
        let left_alone = News::LeftAlone {
            topic: "plant/raw".to_owned(),
            why: "no stamp".to_owned(),
        };
        let dropped = News::Dropped {
            topic: "plant/clean".to_owned(),
            why: "too long".to_owned(),
        };
        let overtaken = News::Overtaken {
            place,
            by: 3,
            own: true,
        };
        let doubt = News::Doubt {
            lane,
            doubt: Doubt::Suspected(17..19),
            own: true,
        };
        let other_key = News::OtherKey {
            lane,
            why: "another key".to_owned(),
        };
        let presences = [Presence::Absent, Presence::Come, Presence::Unannounced];
        let expected = presences.map(|presence| News::Expected {
            lane,
            presence: presence(Duration::from_millis(20_050)),
        });
        let absence = Absence {
            from: Duration::from_secs(3),
            until: Duration::from_secs(5),
        };
        let behind = |may_be_forged, absence| Behind {
            may_be_forged,
            absence,
        };
        let many =
            [behind(false, None), behind(true, Some(absence))].map(|behind| News::ManyFaults {
                kind: Kind::Lost,
                first: place,
                end: 1 << 63,
                own: true,
                behind,
            });
        let undelivered = [true, false].map(|by_broker| News::Undelivered {
            first: place,
            end: 1 << 63,
            reason: "queue-full".to_owned(),
            by_broker,
        });
        let root_differs = News::RootDiffers {
            first: place,
            end: 1 << 61,
            own: true,
        };
        let decided = [true, false].map(|second_is_real| News::Decided {
            place,
            second_is_real,
        });
        let contradiction = News::Contradiction {
            lane,
            contradiction: Contradiction::TwoProducers,
            own: true,
        };
        let forgotten = News::Forgotten {
            lane,
            numbers: 3..9,
        };
        let no_room = News::NoRoom {
            lane,
            why: "65536 lanes".to_owned(),
        };
        let others = [
            doubt,
            root_differs,
            News::Conflict(place),
            News::Away(absence),
            contradiction,
            forgotten,
            no_room,
            other_key,
            News::Listening,
            News::Repaired(place),
            overtaken,
            left_alone,
            dropped,
        ];
        let several = many.into_iter().chain(undelivered).chain(decided);
        for news in faults
            .chain(windows)
            .chain(expected)
            .chain(others)
            .chain(several)
        {
            assert_eq!(News::parse_json(&news.to_json()), Some(news));
        }
        for other in ["", "{}", "WARN no subscriber", r#"{"lane":"1"}"#] {
            assert_eq!(News::parse_json(other), None);
        }
    }
}
