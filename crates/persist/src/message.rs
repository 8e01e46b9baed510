//! A message in the store's bytes.

use std::sync::Arc;
use std::time::Duration;

use unbroken_broker_core::{MarkParts, Message, MessageParts, Position, Will};
use unbroken_store::{self as store, LaneMark, MessageBytes, MessageRecord};

use crate::times::Times;

pub(crate) fn bytes_of(message: &Message, times: &Times) -> MessageBytes {
    encode(&message.parts(), times)
}

/// The message's lifetime is that of the will.
pub(crate) fn will_value(will: &Will, times: &Times) -> store::session::Will {
    let mut parts = will.message.parts();
    parts.expires = will.expiry.map(|expiry| parts.stamp + expiry);
    store::session::Will {
        delay_s: will.delay_s,
        message: encode(&parts, times),
    }
}

pub(crate) fn will_of(value: &store::session::Will, times: &Times) -> Will {
    let record = value.message.record();
    let lifetime_ms = record.expires_ms.map(|at| at - record.stamp_ms);
    let mut parts = parts_of(&record, times);
    parts.expires = None;
    Will {
        message: Arc::new(Message::restore(parts, None)),
        expiry: lifetime_ms.map(Duration::from_millis),
        delay_s: value.delay_s,
    }
}

fn encode(parts: &MessageParts<'_>, times: &Times) -> MessageBytes {
    let mark = parts.mark.map(|mark| LaneMark {
        lane: mark.lane,
        epoch: mark.epoch,
        number: mark.number,
        leaf: mark.leaf,
    });
    MessageRecord {
        topic: parts.topic,
        qos: parts.qos,
        retain: parts.retain,
        stamp_ms: times.ms(parts.stamp),
        expires_ms: parts.expires.map(|at| times.ms(at)),
        publisher: parts.publisher.as_deref(),
        mark,
        properties: parts.properties,
        payload: parts.payload,
    }
    .encode()
}

pub(crate) fn message_of(
    bytes: &MessageBytes,
    position: Option<Position>,
    times: &Times,
) -> Message {
    Message::restore(parts_of(&bytes.record(), times), position)
}

fn parts_of<'a>(record: &MessageRecord<'a>, times: &Times) -> MessageParts<'a> {
    let mark = record.mark.map(|mark| MarkParts {
        lane: mark.lane,
        epoch: mark.epoch,
        number: mark.number,
        leaf: mark.leaf,
    });
    let (stamp, expires) = times.stay(record.stamp_ms, record.expires_ms);
    MessageParts {
        topic: record.topic,
        properties: record.properties,
        payload: record.payload,
        qos: record.qos,
        retain: record.retain,
        stamp,
        expires,
        publisher: record.publisher.map(Arc::from),
        mark,
    }
}
