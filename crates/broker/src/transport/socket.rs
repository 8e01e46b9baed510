//! What carries a connection's bytes: a socket of the kernel (TCP, unix), or memory in tests.
//!
//! Invariant: a socket never blocks; it reports itself when it has no more, or takes no more.

#[cfg(test)]
pub(crate) mod memory;

use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;

use mio::net::TcpStream;
#[cfg(unix)]
use mio::net::UnixStream;
use mio::{Interest, Registry, Token};
use unbroken_broker_core::CloseCause;

use super::{ReadOutcome, WriteOutcome};

/// Carries bytes in both directions, in order and without loss [MQTT-4.2-1, MQTT311-7.1.1-1].
#[derive(Debug)]
pub(crate) enum Socket {
    Tcp(TcpStream),
    #[cfg(unix)]
    Unix(UnixStream),
    #[cfg(test)]
    Memory(memory::Memory),
}

/// Whether fewer bytes than asked for prove that the kernel's buffer is empty (or full): so on
/// every Unix (epoll(7), question 9); on Windows `mio` wants to see `WouldBlock` before it reports
/// a new edge.
const SHORT_MEANS_DONE: bool = cfg!(unix);

impl Socket {
    /// Reads once.
    pub(super) fn read(&mut self, into: &mut [u8]) -> ReadOutcome {
        loop {
            let read = match self {
                Self::Tcp(socket) => socket.read(into),
                #[cfg(unix)]
                Self::Unix(socket) => socket.read(into),
                #[cfg(test)]
                Self::Memory(memory) => memory.read(into),
            };
            return match read {
                Ok(0) => ReadOutcome::Ended(CloseCause::Peer),
                Ok(count) => ReadOutcome::Bytes {
                    count,
                    drained: SHORT_MEANS_DONE && count < into.len(),
                },
                Err(error) => match error.kind() {
                    ErrorKind::Interrupted => continue,
                    ErrorKind::WouldBlock => ReadOutcome::Nothing,
                    kind => ReadOutcome::Ended(CloseCause::Transport(kind)),
                },
            };
        }
    }

    /// Whether a read would find the end and nothing before it.
    pub(super) fn is_at_end(&self) -> bool {
        match self {
            Self::Tcp(socket) => match socket.peek(&mut [0]) {
                Ok(count) => count == 0,
                Err(error) => {
                    !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
                }
            },
            // The standard library cannot peek into these: only a read finds the end.
            #[cfg(unix)]
            Self::Unix(_) => false,
            #[cfg(test)]
            Self::Memory(_) => false,
        }
    }

    /// Writes once.
    pub(super) fn write(&mut self, bytes: &[u8]) -> WriteOutcome {
        loop {
            let written = match self {
                Self::Tcp(socket) => socket.write(bytes),
                #[cfg(unix)]
                Self::Unix(socket) => socket.write(bytes),
                #[cfg(test)]
                Self::Memory(memory) => memory.write(bytes),
            };
            return match written {
                Ok(count) => WriteOutcome::Bytes {
                    count,
                    full: SHORT_MEANS_DONE && count < bytes.len(),
                },
                Err(error) => match error.kind() {
                    ErrorKind::Interrupted => continue,
                    ErrorKind::WouldBlock => WriteOutcome::Bytes {
                        count: 0,
                        full: true,
                    },
                    kind => WriteOutcome::Broken(kind),
                },
            };
        }
    }

    /// Reports to the peer that nothing more will come. A failure means that the peer has gone
    /// first.
    pub(super) fn shut_down(&mut self) {
        match self {
            Self::Tcp(socket) => drop(socket.shutdown(Shutdown::Write)),
            #[cfg(unix)]
            Self::Unix(socket) => drop(socket.shutdown(Shutdown::Write)),
            #[cfg(test)]
            Self::Memory(memory) => memory.shut_down(),
        }
    }

    /// Registers for edges of both directions, once for as long as it stays on this thread.
    pub(super) fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        let edges = Interest::READABLE | Interest::WRITABLE;
        match self {
            Self::Tcp(socket) => registry.register(socket, token, edges),
            #[cfg(unix)]
            Self::Unix(socket) => registry.register(socket, token, edges),
            #[cfg(test)]
            Self::Memory(_) => Ok(()),
        }
    }

    /// Takes it off this thread.
    pub(super) fn deregister(&mut self, registry: &Registry) -> io::Result<()> {
        match self {
            Self::Tcp(socket) => registry.deregister(socket),
            #[cfg(unix)]
            Self::Unix(socket) => registry.deregister(socket),
            #[cfg(test)]
            Self::Memory(_) => Ok(()),
        }
    }
}
