//! One incident: messages of one publisher that did not arrive as they were sent, for one reason.

use serde::{Deserialize, Serialize};
use unbroken_broker::handle::{DropPlace, DropReason, Event, FaultPlace, Numbers};
use utoipa::ToSchema;

use super::missing::Missing;
use crate::limits::INCIDENT_TEXT_MAX;
use crate::time::Moment;

/// How bad it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Severity {
    /// Dropped by a configured policy, or something is not known.
    Amber,
    /// A fault, or a message that should have arrived and did not.
    Red,
}

/// What has become of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum State {
    Open,
    /// Every message of it was sent again.
    Repaired,
    /// Somebody has looked at it.
    Ignored,
}

/// Where it happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Hop {
    PublisherToBroker,
    InBroker,
    BrokerToSubscriber,
}

/// Messages that did not arrive as they were sent.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct Incident {
    pub(crate) id: u64,
    /// `dropped`, `lost`, `duplicated`, `repeated`, `reordered`, `altered`, `injected`, `forged`,
    /// `root-differs`, `contradicted`, `end-contradicted`, `two-producers`, `intruded`,
    /// `unbalanced`, `not-judged`, `crash` or `not-known`.
    pub(crate) kind: String,
    pub(crate) severity: Severity,
    pub(crate) state: State,
    pub(crate) hop: Hop,
    /// Why, by its name in the documentation.
    pub(crate) reason: String,
    /// The number of the reason in drop records.
    pub(crate) reason_code: Option<u8>,
    /// All of it in a sentence.
    pub(crate) words: String,
    /// Messages.
    pub(crate) count: u64,
    /// When the first and the last of them were named.
    #[schema(value_type = String)]
    pub(crate) first_at: Moment,
    #[schema(value_type = String)]
    pub(crate) last_at: Moment,
    /// When the broker received the last one, if it did.
    #[schema(value_type = Option<String>)]
    pub(crate) received_at: Option<Moment>,
    pub(crate) publisher: Option<String>,
    pub(crate) subscriber: Option<String>,
    pub(crate) topic: Option<String>,
    pub(crate) qos: Option<u8>,
    /// 16 hexadecimal digits.
    pub(crate) lane: Option<String>,
    pub(crate) epoch: Option<u32>,
    /// Whether the publisher numbers the lane. Otherwise the broker does.
    pub(crate) is_stamped: bool,
    /// The lowest and the highest number in the lane.
    pub(crate) first: Option<u64>,
    pub(crate) last: Option<u64>,
    /// Messages that their publisher has sent again for a receiver, each counted once.
    pub(crate) sent_again: u64,
    /// What was not sent again.
    #[serde(default)]
    pub(crate) missing: Missing,
    #[schema(value_type = Option<String>)]
    pub(crate) repaired_at: Option<Moment>,
    pub(crate) note: Option<String>,
    /// Who wrote the note.
    pub(crate) note_by: Option<String>,
}

impl Incident {
    fn new(kind: &str, severity: Severity, hop: Hop, now: Moment) -> Self {
        Self {
            id: 0,
            kind: kind.to_owned(),
            severity,
            state: State::Open,
            hop,
            reason: kind.to_owned(),
            reason_code: None,
            words: String::new(),
            count: 1,
            first_at: now,
            last_at: now,
            received_at: None,
            publisher: None,
            subscriber: None,
            topic: None,
            qos: None,
            lane: None,
            epoch: None,
            is_stamped: false,
            first: None,
            last: None,
            sent_again: 0,
            missing: Missing::default(),
            repaired_at: None,
            note: None,
            note_by: None,
        }
    }

    /// What an event says; `None` if it names no message.
    pub(crate) fn of(event: &Event, now: Moment) -> Option<Self> {
        let mut incident = match event {
            Event::Dropped { topic, .. } if topic.starts_with('$') => return None,
            Event::Dropped { .. } => Self::of_drop(event, now)?,
            Event::PublisherFault { .. }
            | Event::LaneIntruded { .. }
            | Event::LaneRefused { .. } => Self::of_lane(event, now)?,
            Event::Fault {
                place,
                kind,
                first,
                count,
            } => {
                let fault = Self::new(kind.name(), Severity::Red, Hop::InBroker, now);
                let mut fault = fault.among(*first, *count);
                match place {
                    FaultPlace::Session(client) => fault.subscriber = Some(text(client)),
                    FaultPlace::Lane(client) => fault.publisher = Some(text(client)),
                    _ => {}
                }
                fault
            }
            _ => return None,
        };
        incident.describe();
        Some(incident)
    }

    /// The broker was killed before this run.
    pub(crate) fn of_crash(began: Moment) -> Self {
        Self {
            reason: "after-crash".to_owned(),
            words: format!(
                "The broker was killed, or lost power, before it started at {}: what it had not \
                 stored then, and QoS 0 in transit, is not known",
                began.text()
            ),
            count: 0,
            ..Self::new("crash", Severity::Amber, Hop::InBroker, began)
        }
    }

    /// Something of an earlier time cannot be known any more.
    pub(crate) fn of_gap(reason: &str, words: String, now: Moment) -> Self {
        Self {
            reason: reason.to_owned(),
            words,
            count: 0,
            ..Self::new("not-known", Severity::Amber, Hop::InBroker, now)
        }
    }

    fn of_drop(event: &Event, now: Moment) -> Option<Self> {
        let Event::Dropped {
            client_id,
            topic,
            reason,
            count,
            place,
            numbers,
            ..
        } = event
        else {
            return None;
        };
        let hop = match place {
            DropPlace::Publisher => Hop::PublisherToBroker,
            DropPlace::Receiver => Hop::BrokerToSubscriber,
            _ => Hop::InBroker,
        };
        let has_receiver = *place == DropPlace::Receiver;
        // Of messages of several lanes the event names one publisher, and it is not the only one.
        let is_told = |numbers: &&Numbers| numbers.count == *count;
        let numbers = numbers.as_deref().filter(is_told);
        let is_one = *place != DropPlace::Broker || *count == 1 || numbers.is_some();
        let client = is_one.then(|| text(client_id));
        let publisher = numbers.and_then(|numbers| numbers.publisher.as_deref());
        Some(Self {
            reason: reason.name().to_owned(),
            reason_code: Some(reason.declared().0),
            count: *count,
            received_at: numbers.map(|numbers| now.before(numbers.waited)),
            publisher: if has_receiver {
                publisher.map(text)
            } else {
                client.clone()
            },
            subscriber: client.filter(|_| has_receiver),
            topic: (!topic.is_empty()).then(|| text(topic)),
            qos: numbers.map(|numbers| numbers.qos as u8),
            lane: numbers.map(|numbers| hex(numbers.lane)),
            epoch: numbers.map(|numbers| numbers.epoch),
            first: numbers.map(|numbers: &Numbers| numbers.first),
            last: numbers.map(|numbers| numbers.last),
            ..Self::new("dropped", severity(*reason, has_receiver), hop, now)
        })
    }

    fn of_lane(event: &Event, now: Moment) -> Option<Self> {
        let hop = Hop::PublisherToBroker;
        let (client_id, lane, incident) = match event {
            Event::PublisherFault {
                client_id,
                lane,
                epoch,
                kind,
                first,
                count,
                topic,
            } => {
                let fault = Self {
                    epoch: Some(*epoch),
                    topic: topic.as_deref().map(text),
                    ..Self::new(kind.name(), Severity::Red, hop, now)
                };
                (client_id, lane, fault.among(*first, *count))
            }
            Event::LaneIntruded {
                client_id,
                lane,
                number,
                count,
                ..
            } => {
                let intruded = Self::new("intruded", Severity::Red, hop, now);
                (client_id, lane, intruded.among(*number, 1).times(*count))
            }
            Event::LaneRefused {
                client_id,
                lane,
                why,
                count,
            } => {
                let refused = Self {
                    reason: why.name().to_owned(),
                    ..Self::new("not-judged", Severity::Amber, hop, now)
                };
                (client_id, lane, refused.times(*count))
            }
            _ => return None,
        };
        Some(Self {
            publisher: Some(text(client_id)),
            lane: Some(hex(*lane)),
            is_stamped: true,
            ..incident
        })
    }

    fn among(mut self, first: u64, count: u64) -> Self {
        let last = first.saturating_add(count.saturating_sub(1));
        self.missing.add(first, last);
        Self {
            count,
            first: Some(first),
            last: Some(last),
            ..self
        }
    }

    fn times(self, count: u64) -> Self {
        Self { count, ..self }
    }

    /// Incidents with the same key within a while are one.
    pub(crate) fn key(&self) -> String {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let parts = [
            self.kind.clone(),
            self.reason.clone(),
            text(&self.publisher),
            text(&self.subscriber),
            text(&self.lane),
            self.epoch.unwrap_or_default().to_string(),
        ];
        parts.join("\0")
    }

    /// Adds what was named later.
    pub(crate) fn add(&mut self, later: Self) {
        self.count = self.count.saturating_add(later.count);
        self.missing.join(&later.missing);
        self.last_at = later.last_at;
        self.severity = self.severity.max(later.severity);
        self.first = self.first.min(later.first).or(later.first);
        self.last = self.last.max(later.last);
        self.received_at = later.received_at.or(self.received_at);
        self.topic = later.topic.or_else(|| self.topic.take());
        self.describe();
    }

    pub(crate) fn has(&self, lane: &str, epoch: u32, number: u64) -> bool {
        let is_lane = self.lane.as_deref() == Some(lane) && self.epoch == Some(epoch);
        is_lane
            && self.first.is_some_and(|first| first <= number)
            && self.last.is_some_and(|last| number <= last)
    }

    /// One of its messages was put right. Answers whether it was missing.
    pub(crate) fn repair(&mut self, number: u64, now: Moment) -> bool {
        let was_missing = self.missing.remove(number);
        if was_missing && self.missing.is_empty() {
            self.state = State::Repaired;
            self.repaired_at = Some(now);
        }
        was_missing
    }

    fn describe(&mut self) {
        let some = |text: &Option<String>, before: &str| {
            let text = text.as_ref().map(|text| format!("{before}{text}"));
            text.unwrap_or_default()
        };
        let numbers = match (&self.lane, self.first, self.last) {
            (Some(lane), Some(first), Some(last)) if first == last => {
                format!(", number {first} of lane {lane},")
            }
            (Some(lane), Some(first), Some(last)) => {
                format!(", numbers {first} to {last} of lane {lane},")
            }
            _ => String::new(),
        };
        let (messages, was) = match self.count {
            1 => ("1 message".to_owned(), "was"),
            count => (format!("{count} messages"), "were"),
        };
        let fate = match (self.kind.as_str(), &self.subscriber) {
            ("dropped", Some(subscriber)) => {
                format!("not delivered to {subscriber}: {}", self.reason)
            }
            ("dropped", None) if self.hop == Hop::InBroker => {
                format!("not kept, and had no receiver: {}", self.reason)
            }
            ("dropped", None) => format!("not accepted: {}", self.reason),
            ("not-judged", _) => format!("not judged: {}", self.reason),
            ("intruded", _) => "sent in a lane of another client".to_owned(),
            (kind, _) if self.hop == Hop::InBroker => format!("{kind} in the broker"),
            (kind, _) => format!("{kind} before the broker"),
        };
        let of = some(&self.publisher, " of ");
        let on = some(&self.topic, " on ");
        self.words = format!("{messages}{of}{on}{numbers} {was} {fate}");
    }
}

/// Red: it was expected, and no policy says that it may be left out.
fn severity(reason: DropReason, has_receiver: bool) -> Severity {
    let is_lack = matches!(
        reason,
        DropReason::QueueFull | DropReason::StoreFull | DropReason::StoreFailed
    );
    if has_receiver && is_lack {
        Severity::Red
    } else {
        // Its publisher knows, or a rule, an expiry or a client's own wish has decided.
        Severity::Amber
    }
}

pub(crate) fn hex(lane: u64) -> String {
    format!("{lane:016x}")
}

/// A bounded copy.
pub(crate) fn text(text: &str) -> String {
    let mut end = text.len().min(INCIDENT_TEXT_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let (kept, rest) = text.split_at(end);
    if rest.is_empty() {
        kept.to_owned()
    } else {
        format!("{kept}…")
    }
}
