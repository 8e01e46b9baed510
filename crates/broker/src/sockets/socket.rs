//! One connection in the table of sockets.

use std::io::ErrorKind;

use unbroken_broker_core::{LastWords, Peer};

use crate::listener::ConnectionPermit;
use crate::transport::{Scratch, Transport, WriteOutcome};

#[derive(Debug)]
pub(super) struct Socket {
    pub(super) serial: u32,
    pub(super) transport: Transport,
    pub(super) peer: Peer,
    pub(super) permit: ConnectionPermit,
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

impl Socket {
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
