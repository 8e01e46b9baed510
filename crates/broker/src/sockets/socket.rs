//! One connection of a shard thread, as its sockets know it.

use std::io::ErrorKind;

use unbroken_broker_core::{LastWords, Peer};

use crate::listener::Seat;
use crate::transport::{Scratch, Transport, WriteOutcome};

#[derive(Debug)]
pub(super) struct Socket {
    pub(super) serial: u32,
    pub(super) transport: Transport,
    pub(super) peer: Peer,
    pub(super) seat: Seat,
    /// An edge came and no read has found the end yet.
    pub(super) readable: bool,
    /// In `ready`.
    pub(super) queued: bool,
    pub(super) writable: bool,
    /// The peer will send no more: only a read that finds the end tells, so a short read is not
    /// the last.
    pub(super) hung_up: bool,
    /// Bytes were written since bytes were read, so the next ones may be an answer; or nothing was
    /// read yet, and who comes waits to be let in.
    pub(super) spoken_to: bool,
    /// Bytes of the packet that has begun which are still to come.
    pub(super) missing: usize,
    /// The length of the last packet in which a read ended.
    pub(super) packet: usize,
    pub(super) state: State,
}

#[derive(Debug)]
pub(super) enum State {
    Open,
    /// Somebody decides whether it may come in, or it does not take its answers, or is about to
    /// move; until then nothing is read.
    Paused,
    /// A write failed. What the peer sent before it went is still read, so that a DISCONNECT is not
    /// missed; then it ends with this.
    Broken(ErrorKind),
    /// The shard has forgotten it; these are still to be written, if there are any, and the end of
    /// each transform. `finished`: that was done, and the peer knows.
    Leaving {
        words: Option<Box<LastWords>>,
        finished: bool,
    },
}

impl Socket {
    /// Writes what the transforms have to say, which holds nothing of the shard's: while such bytes
    /// are unsent, the socket is full.
    pub(super) fn flush(&mut self) {
        if !self.writable {
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

    /// A write has failed. What the peer sent before is still read.
    pub(super) fn broken(&mut self, kind: ErrorKind) {
        self.writable = false;
        self.readable = true;
        self.hung_up = true;
        if !matches!(self.state, State::Leaving { .. }) {
            self.state = State::Broken(kind);
        }
    }

    /// Writes the end of each transform as far as the peer takes it now. Answers how many bytes of
    /// the shard count as sent with it.
    pub(super) fn say_end(&mut self, scratch: &mut Scratch) -> usize {
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
