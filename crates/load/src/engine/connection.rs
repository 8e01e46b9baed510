//! One socket with the bytes that wait on either side of it.
//!
//! Invariants: bytes leave in the order in which they were given; a read ends when the socket has
//! no more or the buffer is full. Edge-triggered readiness is registered once: a short read or
//! write means that the next edge will tell.

use mio::{Interest, Registry, Token, net::TcpStream};
use std::{
    io::{self, Read, Write},
    net::SocketAddr,
};

#[cfg(target_os = "linux")]
use crate::engine::source;

/// A connection to the broker.
#[derive(Debug)]
pub(super) struct Connection {
    socket: TcpStream,
    /// The front of an incomplete frame.
    inbox: Vec<u8>,
    outbox: Vec<u8>,
    /// How much of the outbox has left.
    sent: usize,
    /// The socket took less than it was offered; the next writable edge continues.
    blocked: bool,
}

/// What a read brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Received {
    /// The buffer holds so many bytes, counted from its front.
    Bytes { filled: usize, more: bool },
    /// Nothing for now.
    Nothing,
    /// The broker closed.
    End,
}

impl Connection {
    pub(super) fn open(target: SocketAddr, registry: &Registry, token: Token) -> io::Result<Self> {
        #[cfg(target_os = "linux")]
        let mut socket = source::connect(target, token.0)?;
        #[cfg(not(target_os = "linux"))]
        let mut socket = TcpStream::connect(target)?;
        registry.register(&mut socket, token, Interest::READABLE | Interest::WRITABLE)?;
        // Writable for the first time means connected; until then everything waits.
        Ok(Self {
            socket,
            inbox: Vec::new(),
            outbox: Vec::new(),
            sent: 0,
            blocked: true,
        })
    }

    /// To be called at the first writable edge: whether the connection came about.
    pub(super) fn finish_opening(&self) -> io::Result<bool> {
        if let Some(error) = self.socket.take_error()? {
            return Err(error);
        }
        match self.socket.peer_addr() {
            Ok(_) => self.socket.set_nodelay(true).map(|()| true),
            Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Reads once into `buffer`, behind what was kept of an incomplete frame.
    pub(super) fn receive(&mut self, buffer: &mut [u8]) -> io::Result<Received> {
        let kept = self.inbox.len();
        let Some((front, rest)) = buffer
            .split_at_mut_checked(kept)
            .filter(|(_, rest)| !rest.is_empty())
        else {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "a frame larger than any we sent",
            ));
        };
        let read = loop {
            match self.socket.read(rest) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Ok(Received::Nothing);
                }
                other => break other?,
            }
        };
        front.copy_from_slice(&self.inbox);
        self.inbox.clear();
        let more = read == rest.len();
        Ok(if read == 0 {
            Received::End
        } else {
            Received::Bytes {
                filled: kept + read,
                more,
            }
        })
    }

    /// Keeps the front of an incomplete frame for the next read.
    pub(super) fn keep(&mut self, bytes: &[u8]) {
        self.inbox.extend_from_slice(bytes);
    }

    /// Bytes that have not left.
    pub(super) fn pending(&self) -> usize {
        self.outbox.len() - self.sent
    }

    /// The socket takes no more until an edge tells.
    pub(super) fn is_blocked(&self) -> bool {
        self.blocked
    }

    /// Appends without writing, for packets that may share a write.
    pub(super) fn queue(&mut self, bytes: &[u8]) {
        self.outbox.extend_from_slice(bytes);
    }

    /// Writes at once if nothing is waiting; what the socket does not take waits.
    pub(super) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.blocked || self.pending() > 0 {
            self.queue(bytes);
            return if self.blocked { Ok(()) } else { self.flush() };
        }
        let taken = self.write(bytes)?;
        self.queue(&bytes[taken..]);
        Ok(())
    }

    /// Offers everything that waits.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        if self.blocked || self.pending() == 0 {
            return Ok(());
        }
        let outbox = std::mem::take(&mut self.outbox);
        let taken = self.write(&outbox[self.sent..]);
        self.outbox = outbox;
        self.sent += taken?;
        if self.sent == self.outbox.len() {
            self.outbox.clear();
            self.sent = 0;
        }
        Ok(())
    }

    /// The socket has room again.
    pub(super) fn unblock(&mut self) -> io::Result<()> {
        self.blocked = false;
        self.flush()
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match self.socket.write(bytes) {
                Ok(taken) => {
                    self.blocked = taken < bytes.len();
                    return Ok(taken);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.blocked = true;
                    return Ok(0);
                }
                Err(error) => return Err(error),
            }
        }
    }
}
