//! PUBLISH as bytes: encoded once per layout, shared, patched per receiver.
//!
//! A layout is what most receivers of one message have in common: with or without properties, the
//! QoS and the retain flag. The first receiver of a layout has it encoded; every later one copies
//! the bytes and, for QoS 1 and 2, gets its packet id written over the two bytes that hold it. A
//! receiver with subscription identifiers, a topic alias or a mount has a packet of its own, and so
//! has the only receiver of a message: it is encoded straight into its buffer, which saves a copy
//! of the payload.
//!
//! HOT: `write_publish` puts one receiver's copy at the end of its connection's output.
//!
//! Tried and lost: `writev` of the bytes that were read, without this copy. It gains nothing
//! between pairs, be messages of 16 bytes or of 64 KiB; it halves what a large message to 100
//! subscribers takes in most runs and doubles it in some, and small ones take one more allocation
//! for each write. The figures are in `docs/scaling.md`.

use std::num::NonZeroU32;
use std::time::Instant;

use unbroken_mqtt_proto::connection::alias;
use unbroken_mqtt_proto::packet::publish::{self, PublishHeader};
use unbroken_mqtt_proto::{PacketId, Properties, Property, PropertyBuf, QoS, Version};

use crate::connection::{NextPacket, Writer};
use crate::message::{Publication, add};
use crate::policy::Mount;
use crate::reason::DropReason;

/// One receiver's copy.
#[derive(Clone, Copy)]
pub(super) struct ReceiverCopy<'a> {
    pub(crate) publication: &'a Publication<'a>,
    pub(crate) qos: QoS,
    pub(crate) retain: bool,
    pub(crate) identifiers: &'a [NonZeroU32],
}

/// Appends the PUBLISH, with a placeholder for the packet id; answers where it begins.
#[inline]
pub(super) fn write_publish(
    frames: &mut Frames,
    writer: &mut Writer<'_>,
    copy: ReceiverCopy<'_>,
    now: Instant,
) -> Result<usize, DropReason> {
    let publication = copy.publication;
    let next = writer.next_packet(publication.topic.len() + publication.payload.len());
    if let Some(mount) = next.mount {
        return write_mounted(frames, mount, next, copy, now);
    }
    let layout = Layout::of(next.version, &copy);
    let has_identifiers = layout.version.has_properties() && !copy.identifiers.is_empty();
    if frames.are_shared() && !has_identifiers && next.aliases.is_none() {
        let (output, limit) = (next.bytes, next.bytes_max);
        let start = output.len();
        return if frames.append(publication, layout, now, limit, output) {
            Ok(start)
        } else {
            Err(DropReason::TooLargeForReceiver) // [MQTT-3.1.2-24]
        };
    }
    write_own(frames, next, copy, now)
}

/// The same for a client with a mount, which knows the message by another topic. One for which it
/// has no name it may not have: its filter is that of an earlier mount, or asks for what begins
/// with `$` in its tree.
#[inline(never)]
fn write_mounted(
    frames: &mut Frames,
    mount: &Mount,
    next: NextPacket<'_>,
    copy: ReceiverCopy<'_>,
    now: Instant,
) -> Result<usize, DropReason> {
    let publication = copy.publication;
    let Some(topic) = mount.own(publication.topic) else {
        return Err(DropReason::NotAuthorized);
    };
    let mut scratch = std::mem::take(&mut frames.mounted);
    scratch.clear();
    if next.version.has_properties() {
        mount.push_own_properties(publication.properties, publication.topic, &mut scratch);
    }
    let publication = &Publication {
        topic,
        properties: scratch.as_properties(),
        ..*publication
    };
    let written = write_own(
        frames,
        next,
        ReceiverCopy {
            publication,
            ..copy
        },
        now,
    );
    frames.mounted = scratch;
    written
}

/// Appends a packet that is this receiver's alone.
#[inline]
fn write_own(
    frames: &mut Frames,
    next: NextPacket<'_>,
    copy: ReceiverCopy<'_>,
    now: Instant,
) -> Result<usize, DropReason> {
    let NextPacket {
        bytes: output,
        aliases,
        version,
        bytes_max: limit,
        ..
    } = next;
    let publication = copy.publication;
    let layout = Layout::of(version, &copy);
    let start = output.len();
    let identifiers = if layout.version.has_properties() {
        copy.identifiers
    } else {
        &[]
    };
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
    let own = OwnParts {
        topic,
        alias,
        identifiers,
    };
    frames.append_own(publication, layout, own, now, output);
    let length = output.len() - start;
    if length == 0 || length > limit {
        output.truncate(start);
        return Err(DropReason::TooLargeForReceiver); // [MQTT-3.1.2-24]
    }
    Ok(start)
}

/// What a receiver's copy looks like.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Layout {
    version: Version,
    qos: QoS,
    retain: bool,
}

impl Layout {
    fn of(version: Version, copy: &ReceiverCopy<'_>) -> Self {
        Self {
            version,
            qos: copy.qos,
            retain: copy.retain,
        }
    }

    fn slot(self) -> usize {
        let properties = usize::from(self.version.has_properties());
        (properties * 3 + self.qos as usize) * 2 + usize::from(self.retain)
    }
}

/// The layouts of the message that is being delivered. Buffers are kept from message to message.
#[derive(Debug, Default)]
pub(crate) struct Frames {
    slots: [Vec<u8>; 12],
    properties: PropertyBuf,
    /// Of the packet of a receiver with a mount.
    mounted: PropertyBuf,
    /// Several may receive the message, so its layouts are worth keeping.
    shared: bool,
}

impl Frames {
    /// Begins another message. `shared`: several may receive it.
    #[inline]
    pub(crate) fn begin(&mut self, shared: bool) {
        if self.shared {
            for slot in &mut self.slots {
                slot.clear();
            }
        }
        self.shared = shared;
    }

    /// Whether a receiver without anything of its own gets the bytes of its layout.
    fn are_shared(&self) -> bool {
        self.shared
    }

    /// Appends the packet of this layout, with a placeholder for the packet id, encoding it if
    /// nobody has yet. `false`: it has more bytes than `limit`, or cannot be expressed.
    #[inline]
    fn append(
        &mut self,
        publication: &Publication<'_>,
        layout: Layout,
        now: Instant,
        limit: usize,
        out: &mut Vec<u8>,
    ) -> bool {
        let bytes = self.slot(publication, layout, now);
        let fits = (1..=limit).contains(&bytes.len());
        if fits {
            out.extend_from_slice(bytes);
        }
        fits
    }

    /// Appends a packet that is this receiver's alone, with a placeholder for the packet id.
    fn append_own(
        &mut self,
        publication: &Publication<'_>,
        layout: Layout,
        own: OwnParts<'_>,
        now: Instant,
        out: &mut Vec<u8>,
    ) {
        let properties = properties(&mut self.properties, publication, layout, own, now);
        encode(out, publication, layout, own.topic, properties);
    }

    fn slot(&mut self, publication: &Publication<'_>, layout: Layout, now: Instant) -> &[u8] {
        let slot = &mut self.slots[layout.slot()];
        if slot.is_empty() {
            let own = OwnParts {
                topic: publication.topic,
                ..OwnParts::default()
            };
            let properties = properties(&mut self.properties, publication, layout, own, now);
            encode(slot, publication, layout, own.topic, properties);
        }
        slot
    }
}

/// What of a packet may be one receiver's own.
#[derive(Clone, Copy, Debug, Default)]
struct OwnParts<'a> {
    /// Empty if the alias stands for it.
    topic: &'a str,
    alias: Option<u16>,
    identifiers: &'a [NonZeroU32],
}

/// What a PUBLISH takes in an output, at most, in bytes: without what is its receiver's own.
pub(crate) fn encoded_bytes(publication: &Publication<'_>) -> u64 {
    publication.cost() + (HEADER_BYTES + EXPIRY_BYTES) as u64
}

/// The publisher's properties, then what the broker adds, if this layout has any. User properties
/// keep their order [MQTT-3.3.2-18].
#[inline]
fn properties<'a>(
    scratch: &'a mut PropertyBuf,
    publication: &Publication<'a>,
    layout: Layout,
    own: OwnParts<'_>,
    now: Instant,
) -> Properties<'a> {
    if !layout.version.has_properties() {
        Properties::EMPTY
    } else if publication.expires.is_none() && own.alias.is_none() && own.identifiers.is_empty() {
        publication.properties
    } else {
        collect(scratch, publication, own, now)
    }
}

fn collect<'a>(
    scratch: &'a mut PropertyBuf,
    publication: &Publication<'_>,
    own: OwnParts<'_>,
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
    topic: &str,
    properties: Properties<'_>,
) {
    let start = out.len();
    let (properties_len, payload_len) = (properties.as_bytes().len(), publication.payload.len());
    out.reserve(HEADER_BYTES + topic.len() + properties_len + payload_len);
    let header = PublishHeader {
        // Whatever the publisher's was: this is a first copy. [MQTT-3.3.1-3, MQTT311-3.3.1-3]
        // [MQTT-4.3.1-1, MQTT311-4.3.1-1]
        dup: false,
        qos: layout.qos,
        retain: layout.retain,
        topic,
        // A placeholder, which is written over.
        packet_id: (layout.qos > QoS::AtMostOnce).then_some(PacketId::FIRST),
        property_len: properties_len,
        payload_len,
    };
    // A message grows by a few bytes on its way through; one of almost 256 MiB may not be
    // expressible any more. It is left out here and found too large by its length of zero.
    let _ = publish::encode_header(out, layout.version, &header);
    if out.len() > start {
        out.extend_from_slice(properties.as_bytes());
        out.extend_from_slice(publication.payload);
    }
}

/// What a PUBLISH has beside topic, properties and payload, at most: the fixed header, the topic's
/// length, a packet id, and the length of the properties.
const HEADER_BYTES: usize = 5 + 2 + 2 + 4;
/// The Message Expiry Interval, which is none of the publication's properties.
const EXPIRY_BYTES: usize = 1 + 4;
