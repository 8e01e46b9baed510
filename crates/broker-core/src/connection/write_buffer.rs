//! What is to be written to a connection.
//!
//! Invariant: the bytes begin with the beginning of a packet, of which the front may be written
//! already. So the packets that are not wholly written can be told from those that are.

use unbroken_mqtt_proto::connection::alias;
use unbroken_mqtt_proto::packet::publish;
use unbroken_mqtt_proto::{Frame, Packet, PacketId, Version, next_frame};

use super::buffers::BufferPool;
use crate::limits::WRITTEN_BYTES_MIN;

#[derive(Debug, Default)]
pub(crate) struct WriteBuffer {
    /// Encoded packets. Without capacity when nothing is pending.
    bytes: Vec<u8>,
    /// So many of them, from the front, are gone. `0 <= written <= bytes.len()`.
    written: usize,
    /// Boxed and absent until used: most connections never see an alias.
    aliases: Option<Box<alias::Outbound>>,
}

/// Where the next packet of a connection goes.
pub(crate) struct NextPacket<'a> {
    pub(crate) bytes: &'a mut Vec<u8>,
    /// Topic aliases that the client allows.
    pub(crate) aliases: Option<&'a mut alias::Outbound>,
    pub(crate) version: Version,
    /// The client takes no longer packet [MQTT-3.1.2-24].
    pub(crate) bytes_max: usize,
}

impl WriteBuffer {
    /// Bytes waiting for the socket.
    pub(super) fn pending(&self) -> usize {
        self.bytes.len() - self.written
    }

    pub(super) fn unwritten(&self) -> &[u8] {
        &self.bytes[self.written..]
    }

    /// The client allows topic aliases, or none.
    pub(super) fn allow_aliases(&mut self, aliases: Option<Box<alias::Outbound>>) {
        self.aliases = aliases;
    }

    /// For a PUBLISH of so many bytes at least.
    #[inline]
    pub(super) fn next_packet(
        &mut self,
        buffers: &mut BufferPool,
        bytes: usize,
        version: Version,
        bytes_max: u32,
    ) -> NextPacket<'_> {
        buffers.provide_output(&mut self.bytes, bytes);
        NextPacket {
            bytes: &mut self.bytes,
            aliases: self.aliases.as_deref_mut(),
            version,
            bytes_max: bytes_max as usize,
        }
    }

    /// Appends a packet that is not a PUBLISH, unless it is longer than `limit`. Answers whether it
    /// is not.
    pub(super) fn append(
        &mut self,
        buffers: &mut BufferPool,
        packet: &Packet<'_>,
        version: Version,
        limit: u32,
    ) -> bool {
        buffers.provide_output(&mut self.bytes, 0);
        let start = self.bytes.len();
        let encoded = packet.encode(version, &mut self.bytes);
        debug_assert!(encoded.is_ok(), "{packet:?}: {encoded:?}");
        let fits = encoded.is_ok() && self.bytes.len() - start <= limit as usize;
        if !fits {
            self.bytes.truncate(start);
        }
        fits
    }

    /// Writes the packet id over the placeholder of the PUBLISH that begins at `start` and is the
    /// last.
    #[inline]
    pub(super) fn patch(&mut self, start: usize, packet_id: PacketId) {
        let frame = &mut self.bytes[start..];
        let patched = publish::packet_id_offset(frame)
            .is_some_and(|at| publish::patch_packet_id(frame, at, packet_id));
        debug_assert!(patched, "a PUBLISH with QoS 1 or 2 has a packet id");
    }

    /// Sets the DUP flag of the PUBLISH that begins at `start`.
    pub(super) fn set_dup(&mut self, start: usize) {
        self.bytes[start] |= DUP;
    }

    /// Takes the packet back that begins at `start` and is the last.
    pub(super) fn take_back(&mut self, start: usize) {
        self.bytes.truncate(start);
    }

    /// So many more bytes were written. Gives the memory back when nothing is pending, and makes
    /// room where the packets that are wholly written stand when these are `much`.
    pub(super) fn wrote(&mut self, buffers: &mut BufferPool, bytes: usize, much: usize) {
        self.written = self.bytes.len().min(self.written + bytes);
        if self.pending() == 0 {
            buffers.release(std::mem::take(&mut self.bytes));
            self.written = 0;
        } else if self.written >= much.max(WRITTEN_BYTES_MIN) {
            self.forget_written();
        }
    }

    fn forget_written(&mut self) {
        let unwritten = not_wholly_written(&self.bytes, self.written);
        let rest: usize = unwritten.map(|frame| frame.bytes.len()).sum();
        let gone = self.bytes.len() - rest;
        self.bytes.drain(..gone);
        self.written -= gone;
    }

    /// Takes everything out: the bytes, how many of them are written, and the aliases in them.
    pub(super) fn take_all(&mut self) -> (Vec<u8>, usize, Option<Box<alias::Outbound>>) {
        let Self {
            bytes,
            written,
            aliases,
        } = std::mem::take(self);
        (bytes, written, aliases)
    }
}

/// The packets of an output that are not wholly written, if so many bytes from its front are.
pub(super) fn not_wholly_written(output: &[u8], written: usize) -> impl Iterator<Item = Frame<'_>> {
    let mut end = 0;
    std::iter::from_fn(move || {
        let frame = next_frame(&output[end..], u32::MAX).ok()??;
        end += frame.bytes.len();
        Some((end, frame))
    })
    .skip_while(move |(end, _)| *end <= written)
    .map(|(_, frame)| frame)
}

/// The DUP flag in the first byte of a PUBLISH.
const DUP: u8 = 0b1000;

#[cfg(test)]
mod tests {
    use super::*;

    fn append(buffer: &mut WriteBuffer, limit: u32) -> bool {
        let packet = Packet::PingResp;
        buffer.append(&mut BufferPool::default(), &packet, Version::V5, limit)
    }

    #[test]
    fn a_packet_that_is_too_long_leaves_nothing_behind() {
        let mut buffer = WriteBuffer::default();
        assert!(append(&mut buffer, 2));
        assert!(!append(&mut buffer, 1));
        assert_eq!(buffer.pending(), 2);
    }

    #[test]
    fn the_buffer_begins_with_a_packet_that_is_not_wholly_written() {
        let mut buffer = WriteBuffer::default();
        let count = WRITTEN_BYTES_MIN;
        for _ in 0..count {
            assert!(append(&mut buffer, 2));
        }
        let written = WRITTEN_BYTES_MIN + 1 - WRITTEN_BYTES_MIN % 2;
        buffer.wrote(&mut BufferPool::default(), written, 0);
        assert_eq!(buffer.pending(), 2 * count - written);
        let (bytes, gone, _) = buffer.take_all();
        assert_eq!((bytes.len() - gone, gone), (2 * count - written, 1));
    }

    #[test]
    fn when_all_is_written_no_memory_stays() {
        let mut buffer = WriteBuffer::default();
        assert!(append(&mut buffer, 2));
        buffer.wrote(&mut BufferPool::default(), 2, 0);
        assert_eq!(buffer.take_all().0.capacity(), 0);
    }
}
