//! HOT: one receiver's copy of a message, at the end of its connection's output.
//!
//! Tried and lost: `writev` of the bytes that were read, without this copy. It gains nothing
//! between pairs, be messages of 16 bytes or of 64 KiB; it halves what a large message to 100
//! subscribers takes in most runs and doubles it in some, and small ones take one more allocation
//! for each write. The figures are in `docs/scaling.md`.

use std::num::NonZeroU32;
use std::time::Instant;

use unbroken_mqtt_proto::connection::alias;
use unbroken_mqtt_proto::{PacketId, QoS};

use super::frames::{Frames, Layout, OwnProperties};
use crate::connection::{NextPacket, Writer};
use crate::message::Publication;
use crate::reason::DropReason;

/// One receiver's copy.
#[derive(Clone, Copy)]
pub(crate) struct ReceiverCopy<'a> {
    pub(crate) publication: &'a Publication<'a>,
    pub(crate) qos: QoS,
    pub(crate) retain: bool,
    pub(crate) identifiers: &'a [NonZeroU32],
}

/// Appends the PUBLISH, with a placeholder for the packet id; answers where it begins.
#[inline]
pub(crate) fn write_publish(
    frames: &mut Frames,
    writer: &mut Writer<'_>,
    copy: ReceiverCopy<'_>,
    now: Instant,
) -> Result<usize, DropReason> {
    let ReceiverCopy {
        publication,
        qos,
        retain,
        identifiers,
    } = copy;
    let NextPacket {
        bytes: output,
        aliases,
        version,
        bytes_max: limit,
    } = writer.next_packet(publication.topic.len() + publication.payload.len());
    let layout = Layout {
        version,
        qos,
        retain,
    };
    let packet_id = (qos > QoS::AtMostOnce).then_some(PacketId::FIRST);
    let start = output.len();
    let identifiers = if layout.version.has_properties() {
        identifiers
    } else {
        &[]
    };
    if frames.are_shared() && identifiers.is_empty() && aliases.is_none() {
        return if frames.append(publication, layout, now, limit, output) {
            Ok(start)
        } else {
            Err(DropReason::TooLargeForReceiver) // [MQTT-3.1.2-24]
        };
    }
    // An alias is used only where the packet fits even with the whole topic: a packet that is not
    // sent must not have set one.
    let roomy = publication.cost() + 32 + 5 * identifiers.len() as u64 <= limit as u64;
    let choice = match aliases {
        Some(aliases) if roomy => aliases.assign(publication.topic),
        _ => alias::Naming::Full,
    };
    let (topic, alias) = match choice {
        alias::Naming::First(alias) => (publication.topic, Some(alias)),
        alias::Naming::Known(alias) => ("", Some(alias)),
        alias::Naming::Full => (publication.topic, None),
    };
    let own = OwnProperties { alias, identifiers };
    frames.append_own(
        publication,
        layout,
        false,
        packet_id,
        topic,
        own,
        now,
        output,
    );
    let length = output.len() - start;
    if length == 0 || length > limit {
        output.truncate(start);
        return Err(DropReason::TooLargeForReceiver); // [MQTT-3.1.2-24]
    }
    Ok(start)
}
