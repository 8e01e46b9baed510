//! The transforms of one connection, and the bytes that are between them and the socket.
//!
//! ```text
//! socket ──▶ unopened ─▶ layer 0 ──▶ unopened ─▶ layer 1 ──▶ unread ──▶ shard
//!   ▲                      │ reply                │ reply
//!   └─ unsent ◀────────────┴──── layer 0 seals ◀──┴──── layer 1 seals ◀─ shard
//! ```
//!
//! A connection keeps bytes only while they are incomplete: the beginning of a record, or what the
//! kernel did not take. All else is in the [`Scratch`] of its thread.
//!
//! Invariants:
//! - A message counts as written when the kernel has taken the whole record that holds it. Bytes
//!   that are sealed and not yet taken come first in the next [`Stack::write`], and are not sealed
//!   again.
//! - What is sealed is written at once, or the socket is full: so a write edge will come.
//! - While [`SEALED_BYTES`] of replies are unsent, nothing is read that could ask for more. Bytes
//!   of the shard stop no reading: what the peer sends may acknowledge them.
//!
//! Deliberately absent: output before the handshake is done. A server has none.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::mem;

use unbroken_broker_core::{CloseCause, Peer};

use super::socket::Socket;
use super::transform::{End, Transform};
use super::{ReadOutcome, WriteOutcome};
use crate::bounds::{SEALED_BYTES, UNOPENED_BYTES};
use crate::config::Protocol;
use crate::tuning::WRITE_QUANTUM;

/// Bytes of the shard that are sealed together, so that one record of TLS holds them, with the
/// header of a WebSocket frame.
const PIECE_BYTES: usize = 16 * 1024 - 16;

// The bytes that are sealed already are always among those that are offered.
const _: () = assert!(SEALED_BYTES + PIECE_BYTES <= WRITE_QUANTUM);

#[derive(Debug)]
pub(crate) struct Stack {
    /// From the socket upwards.
    layers: Vec<Layer>,
    unsent: Sealed,
    /// Opened, and taken by no read yet.
    unread: Vec<u8>,
    /// The peer's stream has ended behind what is `unread`.
    end: Option<CloseCause>,
    /// All layers were open once.
    has_opened: bool,
    /// Our end was sealed: nothing is opened or sealed any more.
    is_closed: bool,
    /// A write has failed: nothing is written any more, and what the peer sent before is read.
    is_broken: bool,
}

#[derive(Debug)]
struct Layer {
    transform: Box<dyn Transform>,
    /// The beginning of something longer.
    unopened: Vec<u8>,
}

/// Bytes for the peer, and which of the shard's bytes they hold.
#[derive(Debug, Default)]
struct Sealed {
    bytes: Vec<u8>,
    /// So many of `bytes` were taken.
    taken: usize,
    /// In order; the lengths of their wire sides add up to the rest of `bytes`.
    records: VecDeque<Record>,
}

/// Bytes that mean something to the peer only when all of them have come.
#[derive(Debug)]
struct Record {
    /// Bytes of it that were not taken.
    wire: usize,
    /// The shard's bytes in it; none in a reply.
    plain: usize,
}

/// The buffers of one thread, which all its connections with transforms use in turn.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    /// As long as the longest read so far.
    input: Vec<u8>,
    wire: Vec<u8>,
    plain: Vec<u8>,
    reply: Vec<u8>,
    sealed: Sealed,
}

impl Stack {
    /// From the socket upwards.
    pub(super) fn new(transforms: Vec<Box<dyn Transform>>) -> Self {
        let layer = |transform| Layer {
            transform,
            unopened: Vec::new(),
        };
        Self {
            layers: transforms.into_iter().map(layer).collect(),
            unsent: Sealed::default(),
            unread: Vec::new(),
            end: None,
            has_opened: false,
            is_closed: false,
            is_broken: false,
        }
    }

    /// Whether a read would find something without a word from the kernel.
    pub(super) const fn has_unread(&self) -> bool {
        !self.unread.is_empty() || self.end.is_some()
    }

    pub(super) const fn wants_write(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// The shard's bytes in what is sealed and not taken.
    pub(super) fn sealed(&self) -> usize {
        self.unsent.records.iter().map(|record| record.plain).sum()
    }

    /// Memory of the layers, and of the bytes that are kept.
    pub(super) fn held_bytes(&self) -> usize {
        let layers = self.layers.iter();
        let layers = layers.map(|it| it.unopened.capacity() + it.transform.held_bytes());
        layers.sum::<usize>() + self.unread.capacity() + self.unsent.held_bytes()
    }

    #[cfg(test)]
    pub(super) const fn sealed_bytes(&self) -> usize {
        self.unsent.len()
    }

    /// Whether the peer has broken the protocol of a layer, and may be reading why.
    pub(super) fn has_refused(&self) -> bool {
        self.end == Some(INVALID)
    }

    /// Whether its handshakes are unfinished, and may go on.
    pub(super) const fn is_handshaking(&self) -> bool {
        !self.has_opened && self.end.is_none() && !self.is_closed
    }

    /// Has the layers note what they know of the other side.
    pub(super) fn identify(&mut self, peer: &mut Peer) {
        for layer in &mut self.layers {
            layer.transform.identify(peer);
        }
    }

    /// Why the peer has broken the protocol of a layer, if the layer says it, and which protocols
    /// it may have meant.
    pub(super) fn refusal(&self) -> Option<(&str, &'static [Protocol])> {
        let mut layers = self.layers.iter();
        layers.find_map(|layer| Some((layer.transform.refusal()?, layer.transform.needs())))
    }

    /// Lets a protocol speak that speaks first. [`flush`](Self::flush) sends it.
    pub(super) fn begin(&mut self, scratch: &mut Scratch) {
        if !self.is_closed && self.end.is_none() {
            self.open(0, scratch);
            self.unread.append(&mut scratch.wire);
        }
    }

    /// Reads once, and opens what came. [`flush`](Self::flush) sends the replies.
    pub(super) fn read(
        &mut self,
        socket: &mut Socket,
        into: &mut [u8],
        scratch: &mut Scratch,
    ) -> ReadOutcome {
        if self.is_closed {
            return socket.read(into);
        }
        if !self.unread.is_empty() {
            let count = self.unread.len().min(into.len());
            into[..count].copy_from_slice(&self.unread[..count]);
            self.unread.drain(..count);
            if self.unread.is_empty() {
                self.unread = Vec::new();
            }
            return ReadOutcome::Bytes {
                count,
                drained: false,
            };
        }
        if let Some(cause) = self.end {
            return ReadOutcome::Ended(cause);
        }
        if self.unsent.len() >= SEALED_BYTES && self.unsent.replies() >= SEALED_BYTES {
            return ReadOutcome::Blocked;
        }
        if scratch.input.len() < into.len() {
            scratch.input.resize(into.len(), 0);
        }
        let (count, drained) = match socket.read(&mut scratch.input[..into.len()]) {
            ReadOutcome::Bytes { count, drained } => (count, drained),
            other => return other,
        };
        self.open(count, scratch);
        let plain = &scratch.wire;
        let count = plain.len().min(into.len());
        into[..count].copy_from_slice(&plain[..count]);
        self.unread = plain[count..].to_vec();
        ReadOutcome::Bytes {
            count,
            drained: drained && !self.has_unread(),
        }
    }

    /// Opens so many bytes of `scratch.input`. What they mean to the shard is in `scratch.wire`.
    fn open(&mut self, count: usize, scratch: &mut Scratch) {
        let Scratch {
            input,
            wire,
            plain,
            reply,
            ..
        } = scratch;
        wire.clear();
        for index in 0..self.layers.len() {
            let (below, rest) = self.layers.split_at_mut(index);
            let layer = &mut rest[0];
            let bytes = if index == 0 {
                &mut input[..count]
            } else {
                &mut wire[..]
            };
            plain.clear();
            reply.clear();
            let end = layer.open(bytes, plain, reply);
            mem::swap(wire, plain);
            // One below that has ended carries no answer any more.
            if !reply.is_empty() && !self.is_broken && below.iter().all(Layer::is_open) {
                seal(below, reply, plain);
                self.unsent.push(reply, 0);
            }
            self.end = self.end.or(end);
            if !layer.is_open() && wire.is_empty() {
                return;
            }
        }
        self.has_opened |= self.is_open();
    }

    /// Writes what is sealed, and then the rest of `bytes`, which begin with those that are sealed
    /// and not taken, as far as the socket takes it.
    pub(super) fn write(
        &mut self,
        socket: &mut Socket,
        bytes: &[u8],
        scratch: &mut Scratch,
    ) -> WriteOutcome {
        let mut written = match self.flush(socket) {
            WriteOutcome::Bytes { count, full: false } => count,
            other => return other,
        };
        if self.is_closed || !self.is_open() {
            return WriteOutcome::Bytes {
                count: written,
                full: true,
            };
        }
        while let Some(rest @ [_, ..]) = bytes.get(written..) {
            self.seal(rest, scratch);
            if scratch.sealed.is_empty() {
                self.is_broken = true;
                return WriteOutcome::Broken(ErrorKind::InvalidData);
            }
            match scratch.sealed.write_to(socket) {
                WriteOutcome::Bytes { count, full } => {
                    written += count;
                    if full {
                        self.unsent = scratch.sealed.take();
                        let count = written;
                        return WriteOutcome::Bytes { count, full };
                    }
                    scratch.sealed.clear();
                }
                broken @ WriteOutcome::Broken(_) => {
                    scratch.sealed.clear();
                    self.is_broken = true;
                    return broken;
                }
            }
        }
        WriteOutcome::Bytes {
            count: written,
            full: false,
        }
    }

    /// Writes what is sealed. Afterwards nothing of it is left, or the socket is full.
    pub(super) fn flush(&mut self, socket: &mut Socket) -> WriteOutcome {
        let outcome = self.unsent.write_to(socket);
        self.is_broken |= matches!(outcome, WriteOutcome::Broken(_));
        if self.unsent.is_empty() || self.is_broken {
            self.unsent = Sealed::default();
        }
        outcome
    }

    /// Seals the end of each protocol that has begun, the uppermost first.
    pub(super) fn close(&mut self, scratch: &mut Scratch) {
        if mem::replace(&mut self.is_closed, true) {
            return;
        }
        // None of it is looked at any more.
        self.unread = Vec::new();
        for layer in &mut self.layers {
            layer.unopened = Vec::new();
        }
        if self.is_broken {
            return;
        }
        let open = self.layers.iter().take_while(|it| it.is_open()).count();
        let begun = self.layers.len().min(open + 1);
        for index in (0..begun).rev() {
            let (below, rest) = self.layers.split_at_mut(index);
            scratch.reply.clear();
            rest[0].transform.close(&mut scratch.reply);
            if !scratch.reply.is_empty() {
                seal(below, &mut scratch.reply, &mut scratch.plain);
                self.unsent.push(&scratch.reply, 0);
            }
        }
    }

    fn is_open(&self) -> bool {
        self.layers.iter().all(Layer::is_open)
    }

    /// Seals the first of these bytes, in pieces, into `scratch.sealed`.
    fn seal(&mut self, bytes: &[u8], scratch: &mut Scratch) {
        for piece in bytes.chunks(PIECE_BYTES) {
            scratch.wire.clear();
            scratch.wire.extend_from_slice(piece);
            seal(&mut self.layers, &mut scratch.wire, &mut scratch.plain);
            if scratch.wire.is_empty() {
                return; // a layer cannot seal any more
            }
            scratch.sealed.push(&scratch.wire, piece.len());
            if scratch.sealed.len() >= SEALED_BYTES {
                return;
            }
        }
    }
}

const INVALID: CloseCause = CloseCause::Transport(ErrorKind::InvalidData);

/// Passes bytes through the layers, the uppermost first.
fn seal(layers: &mut [Layer], bytes: &mut Vec<u8>, spare: &mut Vec<u8>) {
    for layer in layers.iter_mut().rev() {
        spare.clear();
        layer.transform.seal(bytes, spare);
        mem::swap(bytes, spare);
    }
}

impl Layer {
    fn is_open(&self) -> bool {
        self.transform.is_open()
    }

    fn open(
        &mut self,
        wire: &mut [u8],
        plain: &mut Vec<u8>,
        reply: &mut Vec<u8>,
    ) -> Option<CloseCause> {
        let end = if self.unopened.is_empty() {
            let opened = self.transform.open(wire, plain, reply);
            self.unopened.extend_from_slice(&wire[opened.used..]);
            opened.end
        } else {
            self.unopened.extend_from_slice(wire);
            let opened = self.transform.open(&mut self.unopened, plain, reply);
            self.unopened.drain(..opened.used);
            opened.end
        };
        if end.is_some() || self.unopened.is_empty() {
            self.unopened = Vec::new();
        }
        match end {
            Some(End::Closed) => Some(CloseCause::Peer),
            Some(End::Invalid) => Some(INVALID),
            None => (self.unopened.len() > UNOPENED_BYTES).then_some(INVALID),
        }
    }
}

impl Sealed {
    const fn len(&self) -> usize {
        self.bytes.len() - self.taken
    }

    const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn held_bytes(&self) -> usize {
        self.bytes.capacity() + self.records.capacity() * size_of::<Record>()
    }

    /// Bytes of records that hold none of the shard's.
    fn replies(&self) -> usize {
        let records = self.records.iter();
        let replies = records.filter(|record| record.plain == 0);
        replies.map(|record| record.wire).sum()
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.taken = 0;
        self.records.clear();
    }

    /// What the socket did not take, to be kept by the connection.
    fn take(&mut self) -> Self {
        let rest = Self {
            bytes: self.bytes[self.taken..].to_vec(),
            taken: 0,
            records: mem::take(&mut self.records),
        };
        self.clear();
        rest
    }

    fn push(&mut self, wire: &[u8], plain: usize) {
        debug_assert!(!wire.is_empty(), "a record of nothing is never taken");
        self.bytes.extend_from_slice(wire);
        self.records.push_back(Record {
            wire: wire.len(),
            plain,
        });
    }

    /// Writes until all is taken or the socket is full. Counts the shard's bytes in the records
    /// that were taken whole.
    fn write_to(&mut self, socket: &mut Socket) -> WriteOutcome {
        let mut plain = 0;
        let mut is_full = false;
        while !self.is_empty() && !is_full {
            match socket.write(&self.bytes[self.taken..]) {
                WriteOutcome::Bytes { count, full } => {
                    plain += self.took(count);
                    is_full = full || count == 0;
                }
                broken @ WriteOutcome::Broken(_) => return broken,
            }
        }
        WriteOutcome::Bytes {
            count: plain,
            full: is_full && !self.is_empty(),
        }
    }

    /// So many bytes were taken. Answers how many of the shard's bytes the records hold that are
    /// whole with them.
    fn took(&mut self, mut wire: usize) -> usize {
        self.taken += wire;
        let mut plain = 0;
        while let Some(record) = self.records.front_mut() {
            let part = record.wire.min(wire);
            record.wire -= part;
            wire -= part;
            if record.wire > 0 {
                break;
            }
            plain += record.plain;
            self.records.pop_front();
        }
        plain
    }
}
