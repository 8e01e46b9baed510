//! A step of a trace as a line: of JSON, or for people.

use std::fmt::{self, Display, Write as _};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use unbroken_broker_core::{Disconnection, Event, TraceStep};
use unbroken_mqtt_proto::Escaped;

use super::TraceRecord;

/// A step of a trace. What a step does not have is left out.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TraceLine {
    /// When, in UTC with milliseconds.
    pub at: String,
    /// The number of the shard.
    pub shard: u8,
    /// What happened: `received`, `matched`, `sent`, `queued`, `stored`, `dropped`, `answered`,
    /// `connected` and others.
    pub step: String,
    /// Whose packet, copy or event it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    /// The user of that client.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Whose message it is, if it is another client's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub publisher: Option<String>,
    /// The type of the packet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub packet: Option<String>,
    /// Its packet id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub packet_id: Option<u16>,
    /// The topic of the message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topic: Option<String>,
    /// The filter that was subscribed to or not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filter: Option<String>,
    /// As sent, or as granted to the receiver.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub qos: Option<u8>,
    /// As sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retain: Option<bool>,
    /// As sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dup: Option<bool>,
    /// Bytes of the payload, or of a packet that is no PUBLISH.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// The first bytes of the payload, in base64, if the trace shows any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payload_base64: Option<String>,
    /// The verdict of the access rules.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub access: Option<String>,
    /// Sessions of this shard that get the message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receivers: Option<u64>,
    /// The first of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receiver_names: Option<Vec<String>>,
    /// Shared groups of this shard that do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub groups: Option<u64>,
    /// Other shards that do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub other_shards: Option<u32>,
    /// Messages in front of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub behind: Option<u64>,
    /// How many messages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// Of a drop or an answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// More, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

impl TraceLine {
    /// A line that says how many steps are missing.
    pub fn missed(count: u64) -> Self {
        Self {
            at: time(Timestamp::now()),
            step: "missed".to_owned(),
            count: Some(count),
            detail: Some("there was no room for them: trace less, or read faster".to_owned()),
            ..Self::default()
        }
    }

    fn fill(&mut self, step: &TraceStep) {
        match step {
            TraceStep::Received {
                packet,
                bytes,
                packet_id,
            } => {
                "received".clone_into(&mut self.step);
                self.packet = Some(packet.name().to_owned());
                self.bytes = Some(*bytes as u64);
                self.packet_id = *packet_id;
            }
            TraceStep::Published {
                qos,
                retain,
                dup,
                packet_id,
                payload_bytes,
                payload,
            } => {
                "received".clone_into(&mut self.step);
                self.packet = Some("PUBLISH".to_owned());
                self.bytes = Some(*payload_bytes as u64);
                self.packet_id = *packet_id;
                self.qos = Some(*qos as u8);
                (self.retain, self.dup) = (Some(*retain), Some(*dup));
                self.payload_base64 = (!payload.is_empty()).then(|| STANDARD.encode(payload));
            }
            TraceStep::Matched {
                receivers,
                names,
                groups,
                shards,
            } => {
                "matched".clone_into(&mut self.step);
                self.access = Some("allowed".to_owned());
                self.receivers = Some(*receivers as u64);
                let names = names.iter().map(ToString::to_string);
                self.receiver_names = Some(names.collect());
                self.groups = Some(*groups as u64);
                self.other_shards = Some(*shards);
            }
            TraceStep::Sent { qos } => {
                "sent".clone_into(&mut self.step);
                self.qos = Some(*qos as u8);
            }
            TraceStep::Queued { qos, behind } => {
                "queued".clone_into(&mut self.step);
                self.qos = Some(*qos as u8);
                self.behind = Some(*behind as u64);
            }
            TraceStep::Stored { qos } => {
                "stored".clone_into(&mut self.step);
                self.qos = Some(*qos as u8);
            }
            TraceStep::Dropped { reason, count } => {
                "dropped".clone_into(&mut self.step);
                self.reason = Some(reason.name().to_owned());
                self.count = Some(*count);
            }
            TraceStep::Answered {
                packet,
                packet_id,
                reason,
            } => {
                "answered".clone_into(&mut self.step);
                self.packet = Some(packet.name().to_owned());
                self.packet_id = Some(*packet_id);
                self.reason = reason.map(|reason| reason.name().to_owned());
            }
            TraceStep::Event(event) => self.fill_event(event),
            _ => "unknown".clone_into(&mut self.step),
        }
    }

    fn fill_event(&mut self, event: &Event) {
        let (step, detail) = match event {
            Event::Connected {
                address,
                version,
                session_present,
                keep_alive_s,
                ..
            } => {
                let address = address.map_or_else(|| "?".to_owned(), |it| it.to_string());
                let detail = format!(
                    "MQTT {version} from {address}, keep alive {keep_alive_s} s, session {}",
                    if *session_present { "resumed" } else { "new" }
                );
                ("connected", Some(detail))
            }
            Event::Refused { reason, detail, .. } => {
                self.reason = Some(reason.name().to_owned());
                ("refused", Some(detail.to_string()))
            }
            Event::Disconnected { why, .. } => ("disconnected", Some(self.end(why))),
            Event::Slowed { rate, .. } => ("slowed", Some(rate.clone())),
            Event::SessionEnded { undelivered, .. } => {
                self.count = Some(*undelivered);
                (
                    "session ended",
                    Some("the count is of messages that still waited in it".to_owned()),
                )
            }
            Event::Subscribed { filter, reason, .. } => {
                self.filter = Some(filter.to_string());
                self.reason = Some(reason.name().to_owned());
                let is_refused = reason.is_error();
                let access = if is_refused { "refused" } else { "granted" };
                self.access = Some(access.to_owned());
                ("subscribed", None)
            }
            Event::Unsubscribed { filter, .. } => {
                self.filter = Some(filter.to_string());
                ("unsubscribed", None)
            }
            Event::SubscriptionRevoked { filter, why, .. } => {
                self.filter = Some(filter.to_string());
                self.reason = Some(why.name().to_owned());
                ("subscription ended", None)
            }
            Event::WillPublished { topic, .. } => {
                self.topic = Some(topic.to_string());
                ("will published", None)
            }
            other => ("audit", Some(format!("{other:?}"))),
        };
        step.clone_into(&mut self.step);
        self.detail = detail;
    }

    fn end(&mut self, why: &Disconnection) -> String {
        match why {
            Disconnection::ByClient(reason) => {
                self.reason = reason.map(|reason| reason.name().to_owned());
                "by the client".to_owned()
            }
            Disconnection::Lost(cause) => format!("the connection was lost: {cause:?}"),
            Disconnection::ByBroker { reason, detail, .. } => {
                self.reason = Some(reason.name().to_owned());
                format!("by the broker: {detail}")
            }
            other => format!("{other:?}"),
        }
    }
}

impl From<&TraceRecord> for TraceLine {
    fn from(record: &TraceRecord) -> Self {
        let traced = &record.traced;
        let text = |name: &Option<_>| name.as_ref().map(ToString::to_string);
        let at = Timestamp::try_from(record.at).unwrap_or_default();
        let mut line = Self {
            at: time(at),
            shard: record.shard,
            client: text(&traced.client_id),
            user: text(&traced.user),
            publisher: text(&traced.publisher),
            topic: traced.topic.as_ref().map(ToString::to_string),
            ..Self::default()
        };
        line.fill(&traced.step);
        line
    }
}

fn time(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string()
}

/// For people: time and step, then what there is as `name=value`.
impl Display for TraceLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:<9}", self.at, self.step)?;
        if let Some(packet) = &self.packet {
            write!(f, " {packet}")?;
        }
        let names = self.receiver_names.as_ref().map(|names| names.join(","));
        let number = |number: Option<u64>| number.map(|number| number.to_string());
        let flag = |flag: Option<bool>| flag.filter(|is_set| *is_set).map(|_| "1".to_owned());
        let fields = [
            ("client", self.client.clone()),
            ("user", self.user.clone()),
            ("publisher", self.publisher.clone()),
            ("topic", self.topic.clone()),
            ("filter", self.filter.clone()),
            ("access", self.access.clone()),
            ("qos", number(self.qos.map(Into::into))),
            ("packet_id", number(self.packet_id.map(Into::into))),
            ("retain", flag(self.retain)),
            ("dup", flag(self.dup)),
            ("bytes", number(self.bytes)),
            ("payload", self.payload_text()),
            ("receivers", number(self.receivers)),
            ("names", names.filter(|names| !names.is_empty())),
            ("groups", number(self.groups.filter(|groups| *groups > 0))),
            (
                "other_shards",
                number(
                    self.other_shards
                        .filter(|shards| *shards > 0)
                        .map(Into::into),
                ),
            ),
            ("behind", number(self.behind)),
            ("count", number(self.count)),
            ("reason", self.reason.clone()),
            ("detail", self.detail.clone()),
        ];
        for (name, value) in fields {
            if let Some(value) = value {
                let mut text = String::new();
                write!(text, "{}", Escaped::new(&value))?;
                if text.is_empty() || text.contains([' ', '"', '=']) {
                    text = format!("\"{}\"", text.replace('"', "\\\""));
                }
                write!(f, " {name}={text}")?;
            }
        }
        Ok(())
    }
}

impl TraceLine {
    fn payload_text(&self) -> Option<String> {
        let bytes = STANDARD.decode(self.payload_base64.as_ref()?).ok()?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::{Duration, SystemTime};

    use unbroken_broker_core::Traced;
    use unbroken_mqtt_proto::QoS;

    use super::*;

    #[test]
    fn a_line_has_what_its_step_has_and_cannot_be_forged() {
        let traced = |step| Traced {
            trace: 1,
            client_id: Some(Arc::from("a\nb")),
            user: None,
            publisher: None,
            topic: Some("t/1".into()),
            step,
        };
        let record = |step| TraceRecord {
            at: SystemTime::UNIX_EPOCH + Duration::from_millis(1_500),
            shard: 0,
            traced: traced(step),
        };
        let published = TraceStep::Published {
            qos: QoS::AtLeastOnce,
            retain: true,
            dup: false,
            packet_id: Some(7),
            payload_bytes: 100,
            payload: b"x y".as_slice().into(),
        };
        let line = TraceLine::from(&record(published));
        assert_eq!(
            line.to_string(),
            "1970-01-01T00:00:01.500Z received  PUBLISH client=a\\nb topic=t/1 qos=1 packet_id=7 \
             retain=1 bytes=100 payload=\"x y\""
        );
        let json = serde_json::to_string(&line).unwrap();
        assert!(
            json.contains(r#""step":"received","client":"a\nb","packet":"PUBLISH""#),
            "{json}"
        );
        assert_eq!(serde_json::from_str::<TraceLine>(&json).unwrap(), line);
    }
}
