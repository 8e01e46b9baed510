//! The seam between a socket and a shard: plain bytes on the shard's side, whatever the listener
//! speaks on the other.
//!
//! TLS and WebSocket become variants here: byte transforms that hold their own state and move with
//! the connection from shard to shard. The rest of the driver knows only [`Taken`] and [`Given`].
//!
//! Invariant: a transport never blocks, and says itself whether it could do more at once, because
//! only it knows what lies decrypted in its buffers.

use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;

use mio::net::TcpStream;
use mio::{Interest, Registry, Token};
use unbroken_broker_core::CloseCause;

/// One connection's way of carrying bytes.
#[derive(Debug)]
pub(crate) enum Transport {
    /// The socket's bytes are the packets' bytes; TCP loses none and keeps their order
    /// [MQTT-4.2-1, MQTT311-7.1.1-1].
    Plain(TcpStream),
}

/// The result of one read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Taken {
    /// This many bytes of plain text. `drained`: there were no more; an edge will tell when there
    /// are.
    Bytes { count: usize, drained: bool },
    /// Nothing now; an edge will tell.
    Nothing,
    /// No more bytes will come.
    Ended(CloseCause),
}

/// The result of one write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Given {
    /// This many bytes of plain text were taken. `full`: no more fit; an edge will tell when they
    /// do.
    Bytes { count: usize, full: bool },
    /// The connection is broken.
    Broken(ErrorKind),
}

/// Whether fewer bytes than asked for prove that the kernel's buffer is empty (or full): so on
/// every Unix (epoll(7), question 9); on Windows `mio` wants to see `WouldBlock` before it tells of
/// a new edge.
const SHORT_MEANS_DONE: bool = cfg!(unix);

impl Transport {
    /// Reads once.
    pub(crate) fn take(&mut self, into: &mut [u8]) -> Taken {
        let Self::Plain(socket) = self;
        loop {
            return match socket.read(into) {
                Ok(0) => Taken::Ended(CloseCause::Peer),
                Ok(count) => Taken::Bytes {
                    count,
                    drained: SHORT_MEANS_DONE && count < into.len(),
                },
                Err(error) => match error.kind() {
                    ErrorKind::Interrupted => continue,
                    ErrorKind::WouldBlock => Taken::Nothing,
                    kind => Taken::Ended(CloseCause::Transport(kind)),
                },
            };
        }
    }

    /// Writes once.
    pub(crate) fn give(&mut self, bytes: &[u8]) -> Given {
        let Self::Plain(socket) = self;
        loop {
            return match socket.write(bytes) {
                Ok(count) => Given::Bytes {
                    count,
                    full: SHORT_MEANS_DONE && count < bytes.len(),
                },
                Err(error) => match error.kind() {
                    ErrorKind::Interrupted => continue,
                    ErrorKind::WouldBlock => Given::Bytes {
                        count: 0,
                        full: true,
                    },
                    kind => Given::Broken(kind),
                },
            };
        }
    }

    /// Tells the peer that nothing more will come. Failing is no news: then the peer has gone
    /// first.
    pub(crate) fn finish(&mut self) {
        let Self::Plain(socket) = self;
        let _ = socket.shutdown(Shutdown::Write);
    }

    /// Registers for edges of both directions, once for as long as it stays on this thread.
    pub(crate) fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        let Self::Plain(socket) = self;
        registry.register(socket, token, Interest::READABLE | Interest::WRITABLE)
    }

    /// Takes it off this thread.
    pub(crate) fn deregister(&mut self, registry: &Registry) -> io::Result<()> {
        let Self::Plain(socket) = self;
        registry.deregister(socket)
    }
}
