//! A message in the store's bytes.

use std::sync::Arc;

use unbroken_broker_core::{LogId, MarkParts, Message, MessageParts, Position};
use unbroken_store::{self as store, LaneMark, MessageBytes, MessageRecord};

use crate::times::Times;

pub(crate) fn bytes_of(message: &Message, times: &Times) -> MessageBytes {
    let parts = message.parts();
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
    let record = bytes.record();
    let mark = record.mark.map(|mark| MarkParts {
        lane: mark.lane,
        epoch: mark.epoch,
        number: mark.number,
        leaf: mark.leaf,
    });
    let parts = MessageParts {
        topic: record.topic,
        properties: record.properties,
        payload: record.payload,
        qos: record.qos,
        retain: record.retain,
        stamp: times.instant(record.stamp_ms),
        expires: record.expires_ms.map(|ms| times.instant(ms)),
        publisher: record.publisher.map(Arc::from),
        mark,
    };
    Message::restore(parts, position)
}

pub(crate) fn stored(position: Position) -> store::Position {
    store::Position {
        log: store::LogId(position.log.0),
        sequence: store::Sequence(position.number),
    }
}

/// `None` for 0, which is before the first.
pub(crate) fn position_of(log: store::LogId, sequence: store::Sequence) -> Option<Position> {
    (sequence > store::Sequence::BEFORE_ALL).then_some(Position {
        log: LogId(log.0),
        number: sequence.0,
    })
}
