//! PUBLISH as bytes: encoded once per layout, shared, patched per receiver.
//!
//! A layout is what most receivers of one message have in common: with or without properties, the
//! QoS and the retain flag. The first receiver of a layout has it encoded; every later one copies
//! the bytes and, for QoS 1 and 2, gets its packet id written over the two bytes that hold it. A
//! receiver with subscription identifiers or a topic alias has a packet of its own, which is
//! encoded straight into its buffer.

use std::num::NonZeroU32;
use std::time::Instant;

use unbroken_mqtt_proto::packet::publish::{self, PublishHeader};
use unbroken_mqtt_proto::{PacketId, Properties, Property, PropertyBuf, QoS, Version};

use crate::message::Publication;
use crate::publish::add;

/// What a receiver's copy looks like.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Layout {
    pub(crate) version: Version,
    pub(crate) qos: QoS,
    pub(crate) retain: bool,
}

impl Layout {
    fn slot(self) -> usize {
        let properties = usize::from(self.version.has_properties());
        (properties * 3 + self.qos as usize) * 2 + usize::from(self.retain)
    }
}

/// The layouts of the message that is being delivered. Buffers are kept from message to message.
#[derive(Debug, Default)]
pub(crate) struct Frames {
    slots: [Slot; 12],
    properties: PropertyBuf,
}

#[derive(Debug, Default)]
struct Slot {
    bytes: Vec<u8>,
    packet_id_at: usize,
}

impl Frames {
    /// Begins another message.
    pub(crate) fn clear(&mut self) {
        for slot in &mut self.slots {
            slot.bytes.clear();
        }
    }

    /// How many bytes the packet of this layout has, encoding it if nobody has yet.
    pub(crate) fn encoded_len(
        &mut self,
        publication: &Publication<'_>,
        layout: Layout,
        now: Instant,
    ) -> usize {
        self.slot(publication, layout, now).bytes.len()
    }

    /// Appends the packet of this layout. `packet_id` is given exactly for QoS 1 and 2.
    pub(crate) fn append(
        &mut self,
        publication: &Publication<'_>,
        layout: Layout,
        packet_id: Option<PacketId>,
        now: Instant,
        out: &mut Vec<u8>,
    ) {
        debug_assert_eq!(packet_id.is_some(), layout.qos > QoS::AtMostOnce);
        let slot = self.slot(publication, layout, now);
        let start = out.len();
        out.extend_from_slice(&slot.bytes);
        if let Some(packet_id) = packet_id {
            let patched = publish::patch_packet_id(&mut out[start..], slot.packet_id_at, packet_id);
            debug_assert!(patched, "the offset was taken from these bytes");
        }
    }

    /// Appends a packet that is this receiver's alone.
    #[allow(
        clippy::too_many_arguments,
        reason = "the parts of a PUBLISH, each once"
    )]
    pub(crate) fn append_own(
        &mut self,
        publication: &Publication<'_>,
        layout: Layout,
        dup: bool,
        packet_id: Option<PacketId>,
        topic: &str,
        own: OwnProperties<'_>,
        now: Instant,
        out: &mut Vec<u8>,
    ) {
        let properties = if layout.version.has_properties() {
            collect(&mut self.properties, publication, own, now)
        } else {
            Properties::EMPTY
        };
        encode(out, publication, layout, dup, packet_id, topic, properties);
    }

    fn slot(&mut self, publication: &Publication<'_>, layout: Layout, now: Instant) -> &Slot {
        let slot = &mut self.slots[layout.slot()];
        if slot.bytes.is_empty() {
            let properties = if !layout.version.has_properties() {
                Properties::EMPTY
            } else if publication.expires.is_none() {
                publication.properties
            } else {
                collect(
                    &mut self.properties,
                    publication,
                    OwnProperties::default(),
                    now,
                )
            };
            let placeholder = (layout.qos > QoS::AtMostOnce).then_some(PacketId::FIRST);
            // A first copy has DUP 0, whatever the publisher's was. [MQTT-3.3.1-3, MQTT311-3.3.1-3]
            // [MQTT-4.3.1-1, MQTT311-4.3.1-1]
            slot.packet_id_at = encode(
                &mut slot.bytes,
                publication,
                layout,
                false,
                placeholder,
                publication.topic,
                properties,
            )
            .unwrap_or(0);
        }
        slot
    }
}

/// Properties that belong to one receiver.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OwnProperties<'a> {
    pub(crate) alias: Option<u16>,
    pub(crate) identifiers: &'a [NonZeroU32],
}

/// The publisher's properties, then what the broker adds. User properties keep their order
/// [MQTT-3.3.2-18].
fn collect<'a>(
    scratch: &'a mut PropertyBuf,
    publication: &Publication<'_>,
    own: OwnProperties<'_>,
    now: Instant,
) -> Properties<'a> {
    scratch.clear();
    scratch.extend(publication.properties);
    if let Some(left) = publication.seconds_left(now) {
        add(scratch, Property::MessageExpiryInterval(left)); // [MQTT-3.3.2-6]
    }
    if let Some(alias) = own.alias {
        add(scratch, Property::TopicAlias(alias));
    }
    for identifier in own.identifiers {
        add(scratch, Property::SubscriptionIdentifier(identifier.get())); // [MQTT-3.3.4-3]
    }
    scratch.as_properties()
}

fn encode(
    out: &mut Vec<u8>,
    publication: &Publication<'_>,
    layout: Layout,
    dup: bool,
    packet_id: Option<PacketId>,
    topic: &str,
    properties: Properties<'_>,
) -> Option<usize> {
    let start = out.len();
    let header = PublishHeader {
        dup,
        qos: layout.qos,
        retain: layout.retain,
        topic,
        packet_id,
        property_len: properties.as_bytes().len(),
        payload_len: publication.payload.len(),
    };
    // A message grows by a few bytes on its way through; one of almost 256 MiB may not be
    // expressible any more. It is left out here and found too large by its length of zero.
    let packet_id_at = publish::encode_header(out, layout.version, &header)
        .ok()
        .flatten();
    if out.len() > start {
        out.extend_from_slice(properties.as_bytes());
        out.extend_from_slice(publication.payload);
    }
    packet_id_at
}
