//! What is to be written to a connection.
//!
//! Invariant: a packet begins at `first`, of which the front may be written already. So the packets
//! that are not wholly written can be told from those that are.

use unbroken_mqtt_proto::connection::alias;
use unbroken_mqtt_proto::packet::publish;
use unbroken_mqtt_proto::{Frame, Packet, PacketId, Version, next_frame};

use super::buffers::BufferPool;
use crate::limits::WRITTEN_BYTES_MIN;
use crate::policy::Mount;

#[derive(Debug, Default)]
pub(crate) struct WriteBuffer {
    /// Encoded packets, from `first` on. Without capacity when nothing is pending.
    bytes: Vec<u8>,
    /// A packet begins here; nothing before it is needed. `0 <= first <= written`.
    first: usize,
    /// So many bytes, from the front, are gone. `first <= written <= bytes.len()`.
    written: usize,
    /// Where the last PUBLISH begins if there is one; another packet, or none, if there is none.
    last_publish: usize,
    /// So many of those that are not gone leave as they are: the driver has sealed them.
    sealed: usize,
    /// The socket has not taken all of what was written last.
    is_stalled: bool,
    /// Answers to pings that leave behind the packet that is being written.
    pongs: usize,
    /// Boxed and absent until used: most connections never see an alias.
    aliases: Option<Box<alias::Outbound>>,
    /// The client's mount: topics are written without it.
    mount: Option<Mount>,
}

/// Where the next packet of a connection goes.
pub(crate) struct NextPacket<'a> {
    pub(crate) bytes: &'a mut Vec<u8>,
    /// Topic aliases that the client allows.
    pub(crate) aliases: Option<&'a mut alias::Outbound>,
    pub(crate) version: Version,
    /// The client takes no longer packet [MQTT-3.1.2-24].
    pub(crate) bytes_max: usize,
    /// The client's mount, without which topics are written.
    pub(crate) mount: Option<&'a Mount>,
}

impl WriteBuffer {
    /// Bytes waiting for the socket.
    pub(super) fn pending(&self) -> usize {
        self.bytes.len() - self.written
    }

    /// Whether the socket has not taken all of what was written last.
    #[inline]
    pub(super) const fn is_stalled(&self) -> bool {
        self.is_stalled
    }

    /// Bytes that it keeps from the allocator.
    #[inline]
    pub(super) const fn memory(&self) -> usize {
        self.bytes.capacity()
    }

    /// Whether no packet is half written or sealed.
    pub(super) fn is_between_packets(&mut self) -> bool {
        self.pass_written();
        self.sealed == 0 && self.first == self.written
    }

    /// Whether an answer to a ping would wait for what the client is slow to take.
    pub(super) fn is_long(&self) -> bool {
        self.is_stalled || self.pending() > PONG_BEHIND
    }

    /// So many bytes, from the front, leave as they are: nothing comes between them.
    pub(super) fn seal(&mut self, bytes: usize) {
        self.sealed = bytes;
    }

    /// Has a PINGRESP leave in front of the packets that wait, once the socket takes something.
    pub(super) fn owe_pong(&mut self) {
        self.pongs = self.pongs.saturating_add(1);
    }

    /// Bytes behind the last PUBLISH: they answer what the client has sent.
    pub(super) fn answers(&self) -> usize {
        let last = next_frame(&self.bytes[self.last_publish..], u32::MAX);
        let publish = last.ok().flatten().filter(Frame::is_publish);
        let end = self.last_publish + publish.map_or(0, |frame| frame.bytes.len());
        self.bytes.len() - end.max(self.written)
    }

    pub(super) fn unwritten(&self) -> &[u8] {
        &self.bytes[self.written..]
    }

    /// The client allows topic aliases, or none.
    pub(super) fn allow_aliases(&mut self, aliases: Option<Box<alias::Outbound>>) {
        self.aliases = aliases;
    }

    /// The client has this mount, or none.
    pub(super) fn set_mount(&mut self, mount: Option<Mount>) {
        self.mount = mount;
    }

    pub(super) const fn mount(&self) -> Option<&Mount> {
        self.mount.as_ref()
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
        self.last_publish = self.bytes.len();
        NextPacket {
            bytes: &mut self.bytes,
            aliases: self.aliases.as_deref_mut(),
            version,
            bytes_max: bytes_max as usize,
            mount: self.mount.as_ref(),
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
        self.sealed = self.sealed.saturating_sub(bytes);
        self.is_stalled = self.pending() > 0;
        if self.pongs > 0 && bytes > 0 {
            self.place_pongs();
        }
        if self.pending() == 0 {
            buffers.release(std::mem::take(&mut self.bytes));
            (self.first, self.written, self.last_publish) = (0, 0, 0);
        } else if self.written >= much.max(WRITTEN_BYTES_MIN) {
            self.forget_written();
        }
    }

    /// Puts the answers to pings behind the packet that is being written or sealed, once little of
    /// it is left: they cannot leave before. What stands in front of them moves to where written
    /// packets stood, and not all that waits.
    #[cold]
    fn place_pongs(&mut self) {
        self.pass_written();
        let fixed = self.written + self.sealed;
        let mut end = self.first;
        while end < fixed {
            end += length_of_first(&self.bytes[end..]);
        }
        if end - fixed > WRITTEN_BYTES_MIN {
            return;
        }
        let most = match self.first / PINGRESP.len() {
            0 => PONGS_TOGETHER,
            places => places.min(PONGS_TOGETHER),
        };
        let count = most.min(self.pongs);
        self.pongs -= count;
        let pongs = PINGRESP.repeat(count);
        if pongs.len() > self.first {
            if self.last_publish >= end {
                self.last_publish += pongs.len();
            }
            self.bytes.splice(end..end, pongs);
            return;
        }
        let places = end - pongs.len()..end;
        self.bytes
            .copy_within(self.first..end, self.first - pongs.len());
        self.bytes[places].copy_from_slice(&pongs);
        self.first -= pongs.len();
        self.written -= pongs.len();
        if self.last_publish < end {
            self.last_publish -= pongs.len();
        }
    }

    /// Goes on to the first packet that is not wholly written.
    fn pass_written(&mut self) {
        while self.first < self.written {
            let end = self.first + length_of_first(&self.bytes[self.first..]);
            if end > self.written {
                break;
            }
            self.first = end;
        }
        self.last_publish = self.last_publish.max(self.first);
    }

    fn forget_written(&mut self) {
        self.pass_written();
        self.bytes.drain(..self.first);
        self.written -= self.first;
        self.last_publish -= self.first;
        self.first = 0;
    }

    /// Takes everything out: the bytes, how many of them are written, and the aliases in them.
    pub(super) fn take_all(&mut self) -> (Vec<u8>, usize, Option<Box<alias::Outbound>>) {
        self.forget_written();
        let Self {
            bytes,
            written,
            aliases,
            ..
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

/// The length of the first packet; of all bytes if that is none.
fn length_of_first(packets: &[u8]) -> usize {
    let first = next_frame(packets, u32::MAX).ok().flatten();
    first.map_or(packets.len(), |frame| frame.bytes.len())
}

/// Bytes that the answer to a ping may stand behind.
const PONG_BEHIND: usize = 1_024;

const PINGRESP: [u8; 2] = [0xD0, 0];

/// So many answers to pings are put into an output at a time.
const PONGS_TOGETHER: usize = 256;

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
    fn answers_to_pings_stand_behind_the_packet_that_is_being_written() {
        // Where nothing was written before, where little was, and where more was than they need.
        for packets_before in [0, 1, 3] {
            let (mut buffer, mut buffers) = (WriteBuffer::default(), BufferPool::default());
            fill(&mut buffer);
            let mut sent = buffer.unwritten()[..=6 * packets_before].to_vec();
            buffer.wrote(&mut buffers, sent.len(), 0);
            buffer.owe_pong();
            buffer.owe_pong();
            write_all(&mut buffer, &mut sent);
            assert_eq!(kinds(&sent), with_pongs(packets_before + 1));
        }
    }

    #[test]
    fn answers_to_pings_stand_behind_what_is_sealed() {
        for packets_before in [0, 3] {
            let (mut buffer, mut buffers) = (WriteBuffer::default(), BufferPool::default());
            fill(&mut buffer);
            let mut sent = buffer.unwritten()[..=6 * packets_before].to_vec();
            let sealed = buffer.unwritten()[..6 * packets_before + 9].to_vec();
            buffer.seal(sealed.len());
            buffer.wrote(&mut buffers, sent.len(), 0);
            buffer.owe_pong();
            buffer.owe_pong();
            write_all(&mut buffer, &mut sent);
            assert_eq!(&sent[..sealed.len()], sealed);
            assert_eq!(kinds(&sent), with_pongs(packets_before + 2));
        }
    }

    /// Six messages.
    fn fill(buffer: &mut WriteBuffer) {
        for id in 0..6 {
            let next = buffer.next_packet(&mut BufferPool::default(), 6, Version::V5, u32::MAX);
            next.bytes.extend([0x30, 4, 0, 1, b't', id]);
        }
    }

    /// Byte by byte.
    fn write_all(buffer: &mut WriteBuffer, sent: &mut Vec<u8>) {
        while buffer.pending() > 0 {
            sent.extend_from_slice(&buffer.unwritten()[..1]);
            buffer.wrote(&mut BufferPool::default(), 1, 0);
        }
    }

    fn kinds(sent: &[u8]) -> Vec<u8> {
        let packets = not_wholly_written(sent, 0);
        packets.map(|frame| frame.bytes[0]).collect()
    }

    /// Six messages, and two answers behind so many of them.
    fn with_pongs(at: usize) -> Vec<u8> {
        let mut kinds = vec![0x30; 6];
        kinds.splice(at..at, [0xD0, 0xD0]);
        kinds
    }

    #[test]
    fn answers_are_what_stands_behind_the_last_message() {
        let (mut buffer, mut buffers) = (WriteBuffer::default(), BufferPool::default());
        assert!(append(&mut buffer, 2));
        let next = buffer.next_packet(&mut buffers, 6, Version::V5, u32::MAX);
        next.bytes.extend([0x30, 4, 0, 1, b't', 0]);
        assert_eq!(buffer.answers(), 0);
        assert!(append(&mut buffer, 2) && append(&mut buffer, 2));
        assert_eq!(buffer.answers(), 4);
        buffer.wrote(&mut buffers, 9, 0);
        assert_eq!(buffer.answers(), 3);
        buffer.forget_written();
        assert_eq!((buffer.pending(), buffer.answers()), (3, 3));
    }

    #[test]
    fn when_all_is_written_no_memory_stays() {
        let mut buffer = WriteBuffer::default();
        assert!(append(&mut buffer, 2));
        buffer.wrote(&mut BufferPool::default(), 2, 0);
        assert_eq!(buffer.take_all().0.capacity(), 0);
    }
}
