//! The few bytes that make up the steady state: cutting frames, reading a PUBLISH, writing PUBLISH
//! and acknowledgements.
//!
//! Invariants: nothing here allocates per message once buffers have grown, and nothing trusts a
//! length before the bytes are there. It shares no code with the broker's codec on purpose: what
//! both sides got wrong in the same way would not show. Deliberately absent: CONNECT and SUBSCRIBE,
//! which are rare and come from `unbroken-mqtt-proto`, and properties, which are skipped.

use crate::stamp::{Payloads, Stamp};

pub(crate) const CONNACK: u8 = 2;
pub(crate) const PUBLISH: u8 = 3;
pub(crate) const PUBACK: u8 = 4;
pub(crate) const PUBREC: u8 = 5;
pub(crate) const PUBREL: u8 = 6;
pub(crate) const PUBCOMP: u8 = 7;
pub(crate) const SUBACK: u8 = 9;
pub(crate) const DISCONNECT: u8 = 14;

/// A complete packet at the front of some bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Frame<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) body: &'a [u8],
}

impl Frame<'_> {
    pub(crate) fn kind(self) -> u8 {
        self.flags() >> 4
    }

    fn flags(self) -> u8 {
        self.bytes.first().copied().unwrap_or_default()
    }

    /// The packet identifier of an acknowledgement.
    pub(crate) fn packet_id(self) -> Option<u16> {
        self.body.first_chunk().map(|id| u16::from_be_bytes(*id))
    }

    /// Whether a 5.0 acknowledgement carries a refusal. 3.1.1 has no such byte.
    pub(crate) fn is_refusal(self) -> bool {
        self.body.get(2).is_some_and(|reason| *reason >= 0x80)
    }
}

/// A length that no MQTT packet can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NotMqtt;

/// The frame at the front, or `None` while it is incomplete.
pub(crate) fn cut(bytes: &[u8]) -> Result<Option<Frame<'_>>, NotMqtt> {
    let Some((length, used)) = varint(bytes.get(1..).unwrap_or_default())? else {
        return Ok(None);
    };
    let header = 1 + used;
    Ok(bytes.get(..header + length).map(|bytes| Frame {
        bytes,
        body: &bytes[header..],
    }))
}

/// A variable byte integer and how many bytes it takes.
fn varint(bytes: &[u8]) -> Result<Option<(usize, usize)>, NotMqtt> {
    let mut value = 0;
    for (index, byte) in bytes.iter().take(4).enumerate() {
        value |= usize::from(byte & 0x7F) << (7 * index);
        if byte & 0x80 == 0 {
            return Ok(Some((value, index + 1)));
        }
    }
    if bytes.len() < 4 {
        Ok(None)
    } else {
        Err(NotMqtt)
    }
}

/// A received PUBLISH.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Delivery<'a> {
    pub(crate) qos: u8,
    /// 0 at QoS 0.
    pub(crate) packet_id: u16,
    pub(crate) topic: &'a [u8],
    pub(crate) payload: &'a [u8],
}

/// Reads a PUBLISH; `None` if its body is shorter than it says.
pub(crate) fn delivery(frame: Frame<'_>, properties: bool) -> Option<Delivery<'_>> {
    let qos = frame.flags() >> 1 & 3;
    let (topic_len, rest) = frame.body.split_first_chunk()?;
    let (topic, mut rest) = rest.split_at_checked(usize::from(u16::from_be_bytes(*topic_len)))?;
    let mut packet_id = 0;
    if qos > 0 {
        let (id, after) = rest.split_first_chunk()?;
        packet_id = u16::from_be_bytes(*id);
        rest = after;
    }
    if properties {
        let (length, used) = varint(rest).ok()??;
        rest = rest.get(used + length..)?;
    }
    Some(Delivery {
        qos,
        packet_id,
        topic,
        payload: rest,
    })
}

/// PUBACK, PUBREC, PUBREL or PUBCOMP with the reason left out, which means success in every
/// version.
pub(crate) const fn acknowledgement(kind: u8, packet_id: u16) -> [u8; 4] {
    let [high, low] = packet_id.to_be_bytes();
    // PUBREL alone has a reserved bit set. [MQTT-3.6.1-1]
    let flags = if kind == PUBREL { 2 } else { 0 };
    [kind << 4 | flags, 2, high, low]
}

/// A run of PUBLISH packets of one flow, encoded once and then only patched: stamp, packet
/// identifier, and the filling where that is of each message.
#[derive(Debug, Default)]
pub(crate) struct Stencil {
    bytes: Vec<u8>,
    /// Length of one packet.
    stride: usize,
    id_at: Option<usize>,
    payload_at: usize,
}

impl Stencil {
    /// Encodes `count` packets to `topic`. Keeps its memory.
    pub(crate) fn engrave(&mut self, shape: Shape<'_>, payloads: &Payloads, count: usize) {
        self.bytes.clear();
        for _ in 0..count {
            self.append(shape, payloads);
        }
        self.stride = self.bytes.len().checked_div(count).unwrap_or_default();
    }

    fn append(&mut self, shape: Shape<'_>, payloads: &Payloads) {
        let start = self.bytes.len();
        let id_len = if shape.qos > 0 { 2 } else { 0 };
        let properties_len = usize::from(shape.properties);
        self.bytes.push(PUBLISH << 4 | shape.qos << 1);
        let body = 2 + shape.topic.len() + id_len + properties_len + payloads.len();
        push_varint(body, &mut self.bytes);
        push_string(shape.topic, &mut self.bytes);
        self.id_at = (shape.qos > 0).then(|| self.bytes.len() - start);
        // Identifier and property length: both zero for now, and the latter for good.
        self.bytes
            .resize(self.bytes.len() + id_len + properties_len, 0);
        self.payload_at = self.bytes.len() - start;
        let stamp = Stamp {
            flow: shape.flow,
            sequence: 0,
            time_ns: 0,
        };
        payloads.append(stamp, &mut self.bytes);
    }

    /// Puts number, time and identifier into packet `index`.
    pub(crate) fn patch(
        &mut self,
        payloads: &Payloads,
        index: usize,
        stamp: Stamp,
        packet_id: u16,
    ) {
        let packet = self.bytes.chunks_exact_mut(self.stride.max(1)).nth(index);
        let Some(packet) = packet else { return };
        if let Some(id) = self.id_at.and_then(|at| packet.get_mut(at..at + 2)) {
            id.copy_from_slice(&packet_id.to_be_bytes());
        }
        payloads.restamp(stamp, &mut packet[self.payload_at..]);
    }

    /// The first `count` packets.
    pub(crate) fn packets(&self, count: usize) -> &[u8] {
        &self.bytes[..self.bytes.len().min(self.stride * count)]
    }
}

/// What the packets of a stencil have in common.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape<'a> {
    pub(crate) flow: u32,
    pub(crate) topic: &'a str,
    pub(crate) qos: u8,
    /// Whether the version has a property length to fill (5.0).
    pub(crate) properties: bool,
}

fn push_varint(mut value: usize, out: &mut Vec<u8>) {
    loop {
        let low = u8::try_from(value & 0x7F).unwrap_or_default();
        value >>= 7;
        if value == 0 {
            return out.push(low);
        }
        out.push(low | 0x80);
    }
}

fn push_string(text: &str, out: &mut Vec<u8>) {
    // Topics come from our own plans, which keep them short.
    let length = u16::try_from(text.len()).unwrap_or(u16::MAX);
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(&text.as_bytes()[..usize::from(length)]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_cut_only_when_complete() {
        let two = [0xD0, 0, 0x40, 2, 0, 7];
        assert_eq!(cut(&two).unwrap().unwrap().bytes, [0xD0, 0]);
        assert_eq!(cut(&two[2..]).unwrap().unwrap().packet_id(), Some(7));
        for end in 2..6 {
            assert_eq!(cut(&two[2..end]), Ok(None), "{end}");
        }
        assert_eq!(cut(&[]), Ok(None));
        assert_eq!(cut(&[0x30, 0xFF, 0xFF, 0xFF, 0xFF]), Err(NotMqtt));
    }

    #[test]
    fn a_stencil_reads_back_as_what_it_was_patched_with() {
        for (qos, properties, len) in [
            (0, false, 16),
            (1, false, 16),
            (2, true, 20_000),
            (0, true, 300),
        ] {
            let payloads = Payloads::new(len);
            let mut stencil = Stencil::default();
            let shape = Shape {
                flow: 9,
                topic: "a/b",
                qos,
                properties,
            };
            stencil.engrave(shape, &payloads, 3);
            for index in 0..3 {
                let sequence = u32::try_from(index).unwrap() + 40;
                let stamp = Stamp {
                    flow: 9,
                    sequence,
                    time_ns: 5,
                };
                stencil.patch(&payloads, index, stamp, 1000);
            }
            let mut bytes = stencil.packets(3);
            for sequence in 40..43 {
                let frame = cut(bytes).unwrap().unwrap();
                let message = delivery(frame, properties).unwrap();
                assert_eq!((message.qos, message.topic), (qos, "a/b".as_bytes()));
                assert_eq!(message.packet_id, if qos > 0 { 1000 } else { 0 });
                assert_eq!(payloads.verify(message.payload).unwrap().sequence, sequence);
                bytes = &bytes[frame.bytes.len()..];
            }
            assert!(bytes.is_empty());
            assert_eq!(stencil.packets(1).len() * 3, stencil.packets(3).len());
        }
    }

    #[test]
    fn a_publish_shorter_than_it_says_is_refused() {
        let whole = [0x32, 8, 0, 1, b'a', 0, 1, 0, 1, 2];
        for end in 2..7 {
            let frame = Frame {
                bytes: &whole[..end],
                body: &whole[2..end],
            };
            assert_eq!(delivery(frame, false), None, "{end}");
        }
    }

    #[test]
    fn acknowledgements_have_their_reserved_bits() {
        assert_eq!(acknowledgement(PUBACK, 258), [0x40, 2, 1, 2]);
        assert_eq!(acknowledgement(PUBREL, 1), [0x62, 2, 0, 1]);
    }
}
