//! One connection in the table of sockets.

use std::io::ErrorKind;

use slab::Slab;
use unbroken_broker_core::{CloseCause, ConnectionId, LastWords, Peer};

use crate::listener::ConnectionPermit;
use crate::transport::{Scratch, Transport, WriteOutcome};

#[derive(Debug)]
pub(super) struct Socket {
    pub(super) serial: u32,
    pub(super) transport: Transport,
    pub(super) peer: Peer,
    pub(super) permit: ConnectionPermit,
    /// Memory of its transforms, as the shard counts it.
    pub(super) held: usize,
    /// An edge came and no read has found the end yet.
    pub(super) readable: bool,
    /// In `ready`.
    pub(super) queued: bool,
    pub(super) writable: bool,
    /// The peer will send no more. Only a read finds the end, so a short read is not the last.
    pub(super) hung_up: bool,
    /// Bytes were written since bytes were read, so the next ones may be an answer; or nothing was
    /// read yet.
    pub(super) written_since_read: bool,
    /// Missing bytes of a packet that has begun.
    pub(super) missing: usize,
    /// The length of the last packet in which a read ended.
    pub(super) packet: usize,
    pub(super) state: State,
}

#[derive(Debug)]
pub(super) enum State {
    Open,
    /// Nothing is read: authentication is pending, or the client does not take its answers, or the
    /// connection is about to move.
    Paused,
    /// A write failed. Bytes that the peer sent before are still read, so that a DISCONNECT is not
    /// missed; then the connection ends with this error.
    Broken(ErrorKind),
    /// The shard has released it. Pending: the final bytes, if any, and the end of each transform.
    /// `finished`: these are written, and the peer got a FIN.
    Closing {
        final_bytes: Option<Box<LastWords>>,
        finished: bool,
    },
}

/// The result of a read, for the shard.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum SocketRead {
    /// This many bytes. `written_since_read`: something was written to the peer since it last sent
    /// something, or it has sent nothing before. `more`: there may be more to read.
    Bytes {
        connection: ConnectionId,
        count: usize,
        written_since_read: bool,
        more: bool,
    },
    /// Nothing, or nothing for the shard.
    Nothing,
    /// The connection has ended; close it with `Sockets::close_ended`.
    Ended {
        connection: ConnectionId,
        cause: CloseCause,
    },
}

impl Socket {
    /// Whether its peer has its last bytes.
    pub(super) const fn is_finished(&self) -> bool {
        matches!(self.state, State::Closing { finished: true, .. })
    }

    /// Whether it is open only until its peer has its last bytes.
    pub(super) const fn is_closing(&self) -> bool {
        matches!(self.state, State::Closing { .. })
    }

    /// Its transforms have opened bytes: sends what they have for the peer. Answers whether they
    /// know more of the other side than before, which is noted.
    pub(super) fn opened_more(&mut self, was_handshaking: bool) -> bool {
        if self.transport.wants_write() {
            self.flush();
        }
        if !was_handshaking || self.transport.is_handshaking() {
            return false;
        }
        let before = self.peer.clone();
        self.transport.identify(&mut self.peer);
        self.peer != before
    }

    /// Writes pending bytes of the transforms. Where some are the shard's, they leave with its next
    /// write, which counts them: the socket is full, or its write edge has come.
    pub(super) fn flush(&mut self) {
        if !self.writable || self.transport.sealed() > 0 {
            return;
        }
        match self.transport.flush() {
            WriteOutcome::Bytes { count, full } => {
                debug_assert_eq!(count, 0, "the shard must know of these");
                self.writable = !full;
            }
            WriteOutcome::Broken(kind) => self.broken(kind),
        }
    }

    /// A write has failed. Bytes that the peer sent before are still read.
    pub(super) fn broken(&mut self, kind: ErrorKind) {
        self.writable = false;
        self.readable = true;
        self.hung_up = true;
        if !matches!(self.state, State::Closing { .. }) {
            self.state = State::Broken(kind);
        }
    }

    /// Writes the end of each transform as far as the peer takes it now. Returns how many bytes of
    /// the shard count as sent with it.
    pub(super) fn write_end(&mut self, scratch: &mut Scratch) -> usize {
        if self.transport.is_plain() || !self.writable {
            return 0;
        }
        self.transport.close(scratch);
        match self.transport.flush() {
            WriteOutcome::Bytes { count, .. } => count,
            WriteOutcome::Broken(_) => 0,
        }
    }
}

/// The connection of this name, if it is open still.
pub(super) fn find(table: &mut Slab<Socket>, id: ConnectionId) -> Option<&mut Socket> {
    table
        .get_mut(id.index as usize)
        .filter(|socket| socket.serial == id.serial)
}
