//! A message in the store's bytes.

use std::sync::Arc;
use std::time::Duration;

use unbroken_broker_core::{
    Claims, Identity, MarkParts, Message, MessageParts, Peer, Position, Will,
};
use unbroken_store::session::WillAuthor;
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
        author: will.author.as_deref().map(author_value),
        message: encode(&parts, times),
    }
}

fn author_value(author: &Identity) -> WillAuthor {
    let claims = author.claims.as_deref();
    WillAuthor {
        user: author.user.as_deref().map(str::to_owned),
        certificate: author.peer.certificate.as_deref().map(str::to_owned),
        address: author.peer.address,
        listener: author.peer.listener,
        roles: claims
            .map(|it| it.roles().map(str::to_owned).collect())
            .unwrap_or_default(),
        claims: claims
            .map(|it| {
                it.values()
                    .map(|(name, value)| (name.to_owned(), value.to_owned()))
                    .collect()
            })
            .unwrap_or_default(),
    }
}

fn author_of(author: &WillAuthor, client_id: Option<&Arc<str>>) -> Identity {
    let shared = |text: &Option<String>| text.as_deref().map(Arc::from);
    Identity {
        user: shared(&author.user),
        claims: claims_of(author).map(Arc::new),
        client_id: client_id.cloned().unwrap_or_default(),
        peer: Peer {
            address: author.address,
            listener: author.listener,
            certificate: shared(&author.certificate),
        },
    }
}

/// As they were: what was stored had been within the limit.
fn claims_of(author: &WillAuthor) -> Option<Claims> {
    let roles = author.roles.iter().map(|role| Arc::from(role.as_str()));
    let values = author.claims.iter();
    let values = values.map(|(name, value)| (name.as_str().into(), value.as_str().into()));
    let claims = Claims::new(roles.collect(), values.collect()).ok()?;
    (!claims.is_empty()).then_some(claims)
}

pub(crate) fn will_of(value: &store::session::Will, times: &Times) -> Will {
    let record = value.message.record();
    let lifetime_ms = record.expires_ms.map(|at| at - record.stamp_ms);
    let mut parts = parts_of(&record, times);
    parts.expires = None;
    let message = Arc::new(Message::restore(parts, None));
    let author = value.author.as_ref();
    let author = author.map(|author| author_of(author, message.publisher()));
    Will {
        message,
        expiry: lifetime_ms.map(Duration::from_millis),
        delay_s: value.delay_s,
        author: author.map(Arc::new),
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
