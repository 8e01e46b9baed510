//! What was received from a connection and not used yet.

use std::time::Instant;

use unbroken_mqtt_proto::connection::alias;
use unbroken_mqtt_proto::frame_length;

use super::buffers::BufferPool;
use crate::limits::SMALL_BUFFER_BYTES_MAX;

#[derive(Debug)]
pub(crate) struct ReadBuffer {
    /// An incomplete packet, or everything behind CONNECT while the client is being authenticated.
    /// Empty, without capacity, for an idle connection.
    unread: Vec<u8>,
    last_received: Instant,
    /// Boxed and absent until used: most connections never see an alias.
    aliases: Option<Box<alias::Inbound>>,
}

impl ReadBuffer {
    pub(super) const fn new(now: Instant) -> Self {
        Self {
            unread: Vec::new(),
            last_received: now,
            aliases: None,
        }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.unread.is_empty()
    }

    pub(super) const fn len(&self) -> usize {
        self.unread.len()
    }

    /// Bytes that it keeps from the allocator.
    pub(super) const fn memory(&self) -> usize {
        self.unread.capacity()
    }

    pub(super) const fn last_received(&self) -> Instant {
        self.last_received
    }

    /// The client has shown that it is there.
    pub(super) fn heard(&mut self, now: Instant) {
        self.last_received = now;
    }

    /// The length of the packet that has begun, and how many bytes of it are still to come.
    pub(super) fn begun_packet(&self, packet_bytes_max: u32) -> Option<(usize, usize)> {
        let length = frame_length(&self.unread, packet_bytes_max)
            .ok()
            .flatten()?;
        Some((length, length.saturating_sub(self.unread.len())))
    }

    /// Adds what completes the packet that has begun, if one has, or all of it; answers what stands
    /// behind.
    pub(super) fn complete<'a>(
        &mut self,
        bytes: &'a [u8],
        packet_bytes_max: u32,
        takes_all: bool,
    ) -> &'a [u8] {
        if self.unread.is_empty() {
            return bytes;
        }
        let length = frame_length(&self.unread, packet_bytes_max).ok().flatten();
        let missing = length.and_then(|length| length.checked_sub(self.unread.len()));
        let (front, behind) = match missing {
            Some(missing @ 1..) if missing < bytes.len() && !takes_all => bytes.split_at(missing),
            _ => (bytes, &[][..]),
        };
        if let Some(length) = length {
            grow(&mut self.unread, front.len(), length);
        }
        self.unread.extend_from_slice(front);
        behind
    }

    /// Keeps what cannot be used yet, behind what was kept before.
    pub(super) fn keep(&mut self, buffers: &mut BufferPool, bytes: &[u8], packet_bytes_max: u32) {
        // A length is believed as far as some of it has come.
        let length = frame_length(bytes, packet_bytes_max).ok().flatten();
        let room = length.unwrap_or(0).min(bytes.len() * BELIEVED_PARTS);
        buffers.provide(&mut self.unread, room);
        self.unread.extend_from_slice(bytes);
    }

    /// Lends the bytes out while they are used.
    pub(super) fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.unread)
    }

    /// Takes them back.
    pub(super) fn restore(&mut self, unread: Vec<u8>) {
        self.unread = unread;
    }

    /// Lends the table of topic aliases out while it lends a topic.
    pub(super) fn take_aliases(&mut self) -> Option<Box<alias::Inbound>> {
        self.aliases.take()
    }

    /// Takes it back.
    pub(super) fn restore_aliases(&mut self, aliases: Option<Box<alias::Inbound>>) {
        self.aliases = aliases;
    }
}

/// Makes room for so many bytes more. A small buffer, which goes round, grows as `Vec` does; a
/// large one does not grow beyond what its packet has.
fn grow(unread: &mut Vec<u8>, more: usize, length: usize) {
    let needed = unread.len() + more;
    if needed > unread.capacity().max(SMALL_BUFFER_BYTES_MAX) {
        let room = length.min(2 * unread.capacity()).max(needed);
        unread.reserve_exact(room - unread.len());
    }
}

/// Of a packet that has begun, the buffer is for at most so many times what has come.
const BELIEVED_PARTS: usize = 16;

#[cfg(test)]
mod tests {
    #![allow(clippy::disallowed_methods, reason = "a test's epoch")]

    use super::*;

    /// PINGREQ, twice.
    const PINGS: [u8; 4] = [0xC0, 0, 0xC0, 0];

    fn begun(bytes: &[u8]) -> ReadBuffer {
        let mut buffer = ReadBuffer::new(Instant::now());
        buffer.keep(&mut BufferPool::default(), bytes, u32::MAX);
        buffer
    }

    #[test]
    fn only_what_completes_a_packet_is_copied() {
        let mut buffer = begun(&[0x30, 5, 0]);
        assert_eq!(buffer.begun_packet(u32::MAX), Some((7, 4)));
        let bytes = [&[1, b't', b'x', b'y'], &PINGS[..]].concat();
        assert_eq!(buffer.complete(&bytes, u32::MAX, false), PINGS);
        assert_eq!(buffer.begun_packet(u32::MAX), Some((7, 0)));
    }

    #[test]
    fn before_a_client_is_in_everything_is_kept_together() {
        let mut buffer = begun(&[0xC0]);
        assert_eq!(buffer.complete(&PINGS[1..], u32::MAX, true), []);
        assert_eq!(buffer.take(), PINGS);
        assert!(buffer.is_empty());
    }

    #[test]
    fn what_completes_no_packet_is_kept_wholly() {
        let mut buffer = begun(&[0x30, 5, 0]);
        assert_eq!(buffer.complete(&[1, b't'], u32::MAX, false), []);
        assert_eq!(buffer.begun_packet(u32::MAX), Some((7, 2)));
    }
}
