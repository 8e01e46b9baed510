//! HOT: one receiver's copy of a message, at the end of its connection's output.
//!
//! Tried and lost: `writev` of the bytes that were read, without this copy. It gains nothing
//! between pairs, be messages of 16 bytes or of 64 KiB; it halves what a large message to 100
//! subscribers takes in most runs and doubles it in some, and small ones take one more allocation
//! for each write. The figures are in `docs/scaling.md`.

use std::num::NonZeroU32;
use std::time::Instant;

use unbroken_mqtt_proto::connection::alias;
use unbroken_mqtt_proto::packet::publish;
use unbroken_mqtt_proto::{PacketId, QoS};

use crate::buffers::BufferPool;
use crate::connection::Connection;
use crate::frames::{Frames, Layout, OwnProperties};
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
    buffers: &mut BufferPool,
    connection: &mut Connection,
    copy: ReceiverCopy<'_>,
    now: Instant,
) -> Result<usize, DropReason> {
    let ReceiverCopy {
        publication,
        qos,
        retain,
        identifiers,
    } = copy;
    let cost = publication.topic.len() + publication.payload.len();
    buffers.provide_output(&mut connection.output, cost);
    let layout = Layout {
        version: connection.version,
        qos,
        retain,
    };
    let packet_id = (qos > QoS::AtMostOnce).then_some(PacketId::FIRST);
    let start = connection.output.len();
    let limit = connection.packet_bytes_max as usize;
    let identifiers = if layout.version.has_properties() {
        identifiers
    } else {
        &[]
    };
    if frames.are_shared() && identifiers.is_empty() && connection.aliases_out.is_none() {
        let output = &mut connection.output;
        return if frames.append(publication, layout, now, limit, output) {
            Ok(start)
        } else {
            Err(DropReason::TooLargeForReceiver) // [MQTT-3.1.2-24]
        };
    }
    // An alias is used only where the packet fits even with the whole topic: a packet that is not
    // sent must not have set one.
    let roomy = publication.cost() + 32 + 5 * identifiers.len() as u64 <= limit as u64;
    let choice = match connection.aliases_out.as_deref_mut() {
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
        &mut connection.output,
    );
    let length = connection.output.len() - start;
    if length == 0 || length > limit {
        connection.output.truncate(start);
        return Err(DropReason::TooLargeForReceiver); // [MQTT-3.1.2-24]
    }
    Ok(start)
}

/// Writes the packet id over the placeholder of the PUBLISH that begins at `start` and ends the
/// output.
#[inline]
pub(crate) fn patch(connection: &mut Connection, start: usize, packet_id: PacketId) {
    let frame = &mut connection.output[start..];
    let patched = publish::packet_id_offset(frame)
        .is_some_and(|at| publish::patch_packet_id(frame, at, packet_id));
    debug_assert!(patched, "a PUBLISH with QoS 1 or 2 has a packet id");
}
