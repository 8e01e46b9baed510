//! The seam between a socket and a shard: plain bytes on the shard's side, whatever the listener
//! speaks on the other.
//!
//! ```text
//! socket (TCP, unix) ──▶ transforms, none or several ──▶ the bytes of MQTT packets
//! ```
//!
//! TLS and WebSocket are [`Transform`]s. They hold their own state, know no socket, and move with
//! the connection from shard to shard. The rest of the driver knows [`Transport`] and its outcomes.
//!
//! Invariants:
//! - A transport never blocks, and reports itself whether it could do more at once, because only it
//!   knows what lies opened or sealed in its buffers.
//! - A connection without transforms goes through none of their code: one branch for each call, no
//!   copy, no buffer.
//! - A handshake, a pong or a close needs no byte of the shard: after each read, and at each write
//!   edge, what the transforms have for the peer is flushed.

#[cfg(test)]
pub(crate) mod envelope;
mod guess;
mod socket;
mod stack;
#[cfg(test)]
mod tests;
mod transform;

use std::io::{self, ErrorKind};

#[cfg(test)]
use mio::net::TcpStream;
use mio::{Registry, Token};
use unbroken_broker_core::{CloseCause, Peer};

use crate::config::Protocol;
pub(crate) use guess::{Guess, guess};
pub(crate) use socket::Socket;
#[cfg(test)]
pub(crate) use socket::memory;
pub(crate) use stack::Scratch;
use stack::Stack;
pub(crate) use transform::{End, Opened, Transform};

/// One connection's way of carrying bytes.
#[derive(Debug)]
pub(crate) struct Transport {
    socket: Socket,
    /// `None`: the socket's bytes are the packets' bytes.
    stack: Option<Box<Stack>>,
}

/// The result of one read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ReadOutcome {
    /// This many bytes for the shard; with transforms there may be none. `drained`: there were no
    /// more; an edge will report when there are.
    Bytes { count: usize, drained: bool },
    /// Nothing now; an edge will report.
    Nothing,
    /// Nothing is read before the peer takes what it was sent; a write edge will report that.
    Blocked,
    /// No more bytes will come.
    Ended(CloseCause),
}

/// The result of one write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WriteOutcome {
    /// This many bytes, from the front, count as sent: the kernel has taken them, with transforms
    /// the whole records that hold them. `full`: no more fit; an edge will report when they do.
    Bytes { count: usize, full: bool },
    /// The connection is broken.
    Broken(ErrorKind),
}

impl Transport {
    /// A connection over TCP alone.
    #[cfg(test)]
    pub(crate) fn tcp(socket: TcpStream, transforms: Vec<Box<dyn Transform>>) -> Self {
        Self::new(Socket::Tcp(socket), transforms)
    }

    /// A connection, and what its listener speaks above the socket, from there upwards.
    pub(crate) fn new(socket: Socket, transforms: Vec<Box<dyn Transform>>) -> Self {
        let stack = (!transforms.is_empty()).then(|| Box::new(Stack::new(transforms)));
        Self { socket, stack }
    }

    /// Whether it has no transforms: then it keeps no bytes.
    pub(crate) const fn is_plain(&self) -> bool {
        self.stack.is_none()
    }

    /// Reads once.
    #[inline]
    pub(crate) fn read(&mut self, into: &mut [u8], scratch: &mut Scratch) -> ReadOutcome {
        match &mut self.stack {
            None => self.socket.read(into),
            Some(stack) => stack.read(&mut self.socket, into, scratch),
        }
    }

    /// Writes once; with transforms, until the socket is full or nothing is left. Until bytes count
    /// as sent, they are offered again, at the front.
    #[inline]
    pub(crate) fn write(&mut self, bytes: &[u8], scratch: &mut Scratch) -> WriteOutcome {
        match &mut self.stack {
            None => self.socket.write(bytes),
            Some(stack) => stack.write(&mut self.socket, bytes, scratch),
        }
    }

    /// Writes what the transforms have for the peer.
    pub(crate) fn flush(&mut self) -> WriteOutcome {
        match &mut self.stack {
            None => WriteOutcome::Bytes {
                count: 0,
                full: false,
            },
            Some(stack) => stack.flush(&mut self.socket),
        }
    }

    /// Whether something for the peer is sealed and not written.
    pub(crate) fn wants_write(&self) -> bool {
        self.stack.as_ref().is_some_and(|stack| stack.wants_write())
    }

    /// Bytes of those that were offered that are sealed and do not count as sent yet.
    pub(crate) fn sealed(&self) -> usize {
        self.stack.as_ref().map_or(0, |stack| stack.sealed())
    }

    /// Memory that the transforms and the bytes between them take.
    pub(crate) fn held_bytes(&self) -> usize {
        self.stack.as_ref().map_or(0, |stack| stack.held_bytes())
    }

    /// Whether a read would find something without an edge.
    pub(crate) fn has_unread(&self) -> bool {
        self.stack.as_ref().is_some_and(|stack| stack.has_unread())
    }

    /// Whether a read would find the end of the stream and nothing before it. With transforms it is
    /// not known before the read.
    pub(crate) fn is_at_end(&self) -> bool {
        self.is_plain() && self.socket.is_at_end()
    }

    /// Whether the peer broke the protocol of a transform, and may be reading why.
    pub(crate) fn has_refused(&self) -> bool {
        self.stack.as_ref().is_some_and(|stack| stack.has_refused())
    }

    /// Whether its handshakes are unfinished, so that a read may cost much.
    pub(crate) fn is_handshaking(&self) -> bool {
        self.stack
            .as_ref()
            .is_some_and(|stack| stack.is_handshaking())
    }

    /// Has the transforms note what they know of the other side.
    pub(crate) fn identify(&mut self, peer: &mut Peer) {
        if let Some(stack) = &mut self.stack {
            stack.identify(peer);
        }
    }

    /// Why the peer broke the protocol of a transform, and which protocols it may have meant.
    pub(crate) fn refusal(&self) -> Option<(&str, &'static [Protocol])> {
        self.stack.as_ref().and_then(|stack| stack.refusal())
    }

    /// Lets a transform speak that speaks first. [`flush`](Self::flush) sends it.
    pub(crate) fn begin(&mut self, scratch: &mut Scratch) {
        if let Some(stack) = &mut self.stack {
            stack.begin(scratch);
        }
    }

    /// Seals the end of each transform, behind all that was written. [`flush`](Self::flush) sends
    /// it. Nothing is written afterwards, and what is read has no meaning.
    pub(crate) fn close(&mut self, scratch: &mut Scratch) {
        if let Some(stack) = &mut self.stack {
            stack.close(scratch);
        }
    }

    /// Reports to the peer that nothing more will come.
    pub(crate) fn shut_down(&mut self) {
        self.socket.shut_down();
    }

    #[cfg(test)]
    pub(crate) fn tcp_stream(&self) -> &TcpStream {
        match &self.socket {
            Socket::Tcp(socket) => socket,
            other => panic!("{other:?}"),
        }
    }

    /// Registers for edges of both directions, once for as long as it stays on this thread.
    pub(crate) fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        self.socket.register(registry, token)
    }

    /// Takes it off this thread.
    pub(crate) fn deregister(&mut self, registry: &Registry) -> io::Result<()> {
        self.socket.deregister(registry)
    }
}
