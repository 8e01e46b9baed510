//! PUBLISH: an application message, in either direction.

use super::{PacketType, PropertySection, read_properties};
use crate::{
    deframer::{self, Frame},
    error::{DecodeError, EncodeError, Field},
    primitive::{self, Reader},
    property::Properties,
    qos::{PacketId, QoS},
    version::Version,
};

const PACKET: PacketType = PacketType::Publish;
const SECTION: PropertySection = PropertySection::Packet(PACKET);

// Flags of the first byte.
const DUP: u8 = 0b1000;
const QOS: u8 = 0b0110;
const QOS_SHIFT: u32 = QOS.trailing_zeros();
const RETAIN: u8 = 0b0001;

/// An application message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Publish<'a> {
    /// Sent before, possibly.
    pub dup: bool,
    /// The level of this transfer.
    pub qos: QoS,
    /// To be kept (towards the server), or kept before (towards a client).
    pub retain: bool,
    /// Empty in 5.0 when a topic alias stands for it.
    pub topic: &'a str,
    /// Present exactly above QoS 0.
    pub packet_id: Option<PacketId>,
    /// Empty in 3.x.
    pub properties: Properties<'a>,
    /// Any bytes.
    pub payload: &'a [u8],
}

/// Everything of a PUBLISH before its properties, for a sender that appends properties and payload
/// itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "as in Publish")]
pub struct PublishHeader<'a> {
    pub dup: bool,
    pub qos: QoS,
    pub retain: bool,
    pub topic: &'a str,
    pub packet_id: Option<PacketId>,
    /// Of the encoded properties, without their length field; 0 in 3.x, which has none.
    pub property_len: usize,
    pub payload_len: usize,
}

impl<'a> Publish<'a> {
    /// One pass over header and properties; the payload is not looked at. For callers that know the
    /// frame is a PUBLISH.
    #[inline]
    pub fn decode(frame: Frame<'a>, version: Version) -> Result<Self, DecodeError> {
        match frame.packet_type() {
            Some(PACKET) => {
                let mut reader = Reader::new(PACKET, frame.body);
                Self::decode_body(frame.flags(), &mut reader, version)
            }
            Some(packet) => Err(DecodeError::UnexpectedPacket {
                packet,
                expected: PACKET,
            }),
            None => Err(DecodeError::UnknownPacketType {
                first_byte: frame.first_byte,
            }),
        }
    }

    #[inline]
    pub(super) fn decode_body(
        flags: u8,
        reader: &mut Reader<'a>,
        version: Version,
    ) -> Result<Self, DecodeError> {
        let Ok(qos) = QoS::try_from((flags & QOS) >> QOS_SHIFT) else {
            // [MQTT-3.3.1-4, MQTT311-3.3.1-4]
            return Err(DecodeError::InvalidQoS {
                packet: PACKET,
                field: Field::FixedHeader,
            });
        };
        let dup = flags & DUP != 0;
        check_dup(dup, qos)?;
        Ok(Self {
            dup,
            qos,
            retain: flags & RETAIN != 0,
            topic: reader.string(Field::TopicName)?, // [MQTT-3.3.2-1, MQTT311-3.3.2-1]
            packet_id: match qos {
                QoS::AtMostOnce => None, // [MQTT-2.2.1-2, MQTT311-2.3.1-5]
                QoS::AtLeastOnce | QoS::ExactlyOnce => Some(reader.packet_id()?),
            },
            properties: read_properties(reader, version, SECTION)?,
            payload: reader.take_rest(),
        })
    }

    pub(super) fn encode(&self, version: Version, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let mut properties = Properties::EMPTY;
        if version.has_properties() {
            properties = Properties::parse(self.properties.as_bytes(), SECTION)
                .map_err(EncodeError::Invalid)?;
        }
        let header = PublishHeader {
            dup: self.dup,
            qos: self.qos,
            retain: self.retain,
            topic: self.topic,
            packet_id: self.packet_id,
            property_len: properties.len(),
            payload_len: self.payload.len(),
        };
        encode_header(out, version, &header)?;
        out.extend_from_slice(properties.as_bytes());
        out.extend_from_slice(self.payload);
        Ok(())
    }
}

/// Appends fixed header, topic, packet id and (5.0) property length. The caller appends exactly
/// `property_len` bytes of properties and `payload_len` of payload. After an error `out` is as it
/// was.
///
/// Returns where in `out` the packet id went, so that a copy of the bytes can be patched
/// ([`patch_packet_id`]).
#[inline]
pub fn encode_header(
    out: &mut Vec<u8>,
    version: Version,
    header: &PublishHeader<'_>,
) -> Result<Option<usize>, EncodeError> {
    if header.packet_id.is_some() != (header.qos > QoS::AtMostOnce) {
        return Err(EncodeError::PacketIdMismatch);
    }
    check_dup(header.dup, header.qos).map_err(EncodeError::Invalid)?;
    debug_assert!(
        version.has_properties() || header.property_len == 0,
        "3.x has no properties"
    );
    let start = out.len();
    let mut length = [0; 4];
    let Some(length_len) = primitive::varint(header.remaining_length(version), &mut length) else {
        return Err(EncodeError::PacketTooLong { packet: PACKET });
    };
    out.push(header.first_byte());
    out.extend(length.into_iter().take(length_len));
    if let Err(error) = primitive::put_string(out, header.topic) {
        out.truncate(start);
        return Err(error);
    }
    let packet_id_at = header.packet_id.map(|packet_id| {
        let at = out.len();
        out.extend_from_slice(&packet_id.get().to_be_bytes());
        at
    });
    if version.has_properties() {
        // It fits: the remaining length, which contains it, does.
        primitive::put_varint(out, header.property_len)?;
    }
    Ok(packet_id_at)
}

impl PublishHeader<'_> {
    /// How long the whole packet will be, fixed header included: what a receiver's Maximum Packet
    /// Size is compared with.
    pub fn packet_len(&self, version: Version) -> usize {
        let remaining = self.remaining_length(version);
        remaining.saturating_add(1 + primitive::varint_len(remaining))
    }

    fn remaining_length(&self, version: Version) -> usize {
        let mut length = 2 + self.topic.len();
        if self.packet_id.is_some() {
            length += 2;
        }
        if version.has_properties() {
            length += primitive::varint_len(self.property_len);
        }
        length
            .saturating_add(self.property_len)
            .saturating_add(self.payload_len)
    }

    fn first_byte(&self) -> u8 {
        let mut byte = PACKET.first_byte() | u8::from(self.qos) << QOS_SHIFT;
        if self.dup {
            byte |= DUP;
        }
        if self.retain {
            byte |= RETAIN;
        }
        byte
    }
}

/// The offset of the packet id within an encoded PUBLISH; `None` at QoS 0, or if the bytes are not
/// a whole PUBLISH.
pub fn packet_id_offset(frame: &[u8]) -> Option<usize> {
    let frame = deframer::next_frame(frame, u32::MAX).ok()??;
    if !frame.is_publish() || frame.flags() & QOS == 0 {
        return None;
    }
    let mut reader = Reader::new(PACKET, frame.body);
    let topic_len = usize::from(reader.u16(Field::TopicName).ok()?);
    let header_len = frame.bytes.len() - frame.body.len();
    let offset = header_len + 2 + topic_len;
    (offset + 2 <= frame.bytes.len()).then_some(offset)
}

/// Overwrites the packet id at an offset that [`encode_header`] or [`packet_id_offset`] gave;
/// `false` if it is out of range.
pub fn patch_packet_id(frame: &mut [u8], offset: usize, packet_id: PacketId) -> bool {
    match frame.get_mut(offset..).and_then(<[u8]>::first_chunk_mut) {
        Some(bytes) => {
            *bytes = packet_id.get().to_be_bytes();
            true
        }
        None => false,
    }
}

// [MQTT-3.3.1-2, MQTT311-3.3.1-2]
fn check_dup(dup: bool, qos: QoS) -> Result<(), DecodeError> {
    if dup && qos == QoS::AtMostOnce {
        return Err(DecodeError::DupAtQoS0 { packet: PACKET });
    }
    Ok(())
}
