//! Records of a store as JSON, in the form that docs/cli.md describes.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};
use unbroken_mqtt_proto::{Properties, Property};
use unbroken_store::MessageRecord;
use unbroken_store::session::{Carried, Head, Outbound, Subscription};

use super::human_format::time;
use crate::properties::hyphenated;

/// A message. Its payload is a string if it is text, otherwise `payload_base64`: nothing is lost.
pub(crate) fn message(record: &MessageRecord<'_>) -> Map<String, Value> {
    let mut object = Map::new();
    let mut put = |name: &str, value: Value| {
        object.insert(name.to_owned(), value);
    };
    put("topic", json!(record.topic));
    put("qos", json!(u8::from(record.qos)));
    put("retain", json!(record.retain));
    put("received", json!(time(record.stamp_ms)));
    if let Some(at) = record.expires_ms {
        put("expires", json!(time(at)));
    }
    if let Some(publisher) = record.publisher {
        put("publisher", json!(publisher));
    }
    if let Some(mark) = &record.mark {
        let lane = format!("{:016x}", mark.lane);
        let leaf = STANDARD.encode(mark.leaf);
        let mark = json!({
            "lane": lane, "epoch": mark.epoch, "number": mark.number, "leaf_base64": leaf,
        });
        put("mark", mark);
    }
    if !record.properties.is_empty() {
        put("properties", properties(record.properties));
    }
    let (name, text) = bytes("payload", record.payload);
    put(&name, text);
    object
}

/// A value of bytes under its name: text as it is, anything else in base64.
pub(crate) fn bytes(name: &str, bytes: &[u8]) -> (String, Value) {
    match str::from_utf8(bytes) {
        Ok(text) => (name.to_owned(), json!(text)),
        Err(_) => (format!("{name}_base64"), json!(STANDARD.encode(bytes))),
    }
}

/// The session itself.
pub(crate) fn head(head: &Head) -> Map<String, Value> {
    object(json!({
        "expiry_s": expiry_s(head),
        "away_since": head.offline_since_ms.map(time),
        "user": head.user,
        "mount": head.mount,
    }))
}

/// Seconds that a session outlives its connection; none if it has no end.
pub(crate) fn expiry_s(head: &Head) -> Option<u32> {
    Some(head.expiry_s.get()).filter(|seconds| *seconds != u32::MAX)
}

pub(crate) fn subscription(subscription: &Subscription) -> Map<String, Value> {
    let options = &subscription.options;
    let holds: Vec<_> = subscription
        .ranges
        .iter()
        .map(|holding| {
            let until = holding.until.map(|until| until.0);
            json!({ "log": holding.log.0, "from": holding.from.0, "until": until })
        })
        .collect();
    object(json!({
        "filter": subscription.filter,
        "qos": u8::from(options.qos),
        "no_local": options.no_local,
        "retain_as_published": options.retain_as_published,
        "retain_handling": options.retain_handling as u8,
        "identifier": subscription.identifier,
        "ended": subscription.ended,
        "retained_due": subscription.retained_due,
        "holds": holds,
    }))
}

pub(crate) fn outbound(outbound: &Outbound) -> Map<String, Value> {
    let mut entry = object(json!({
        "packet_id": outbound.packet_id.map(unbroken_mqtt_proto::PacketId::get),
        "qos": u8::from(outbound.qos),
        "pubrec": outbound.received,
        "retain": outbound.retain,
        "by_group": outbound.by_group,
        "group": outbound.group,
        "identifiers": outbound.identifiers,
    }));
    let (name, value) = match &outbound.what {
        Carried::Log(at) => ("at", json!({ "log": at.log.0, "number": at.sequence.0 })),
        Carried::Own(bytes) => ("message", Value::Object(message(&bytes.record()))),
    };
    entry.insert(name.to_owned(), value);
    entry
}

fn properties(properties: Properties<'_>) -> Value {
    let mut object = Map::new();
    let mut users = Vec::new();
    for property in &properties {
        let value = match property {
            Property::UserProperty(name, value) => {
                users.push(json!([name, value]));
                continue;
            }
            Property::PayloadFormatIndicator(flag) => json!(u8::from(flag)),
            Property::ContentType(text) | Property::ResponseTopic(text) => json!(text),
            Property::CorrelationData(data) => {
                let (name, value) = bytes("correlation-data", data);
                object.insert(name, value);
                continue;
            }
            // The record keeps no other.
            _ => continue,
        };
        object.insert(hyphenated(property.id()), value);
    }
    if !users.is_empty() {
        object.insert("user-properties".to_owned(), Value::Array(users));
    }
    Value::Object(object)
}

/// What `json!` makes of braces.
fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(object) => object,
        _ => Map::new(),
    }
}
