//! One socket with the bytes that wait on either side of it.
//!
//! Invariants: bytes leave in the order in which they were given; a read ends when the socket has
//! no more or the buffer is full. Edge-triggered readiness is registered once: a short read or
//! write means that the next edge will tell.

use mio::{Registry, Token};
use std::io::{self, Read, Write};

use super::{layers::Layers, socket::Socket};
use crate::transport::{Target, Transport};

/// A connection to the broker.
#[derive(Debug)]
pub(super) struct Connection {
    socket: Socket,
    layers: Option<Box<Layers>>,
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
    pub(super) fn open(
        (target, transport): (&Target, &Transport),
        registry: &Registry,
        token: Token,
    ) -> io::Result<Self> {
        let mut outbox = Vec::new();
        let mut layers = Layers::new(transport, token.0)?;
        if let Some(layers) = &mut layers {
            layers.begin(&mut outbox)?;
        }
        // Writable for the first time means connected; until then everything waits.
        Ok(Self {
            socket: Socket::connect(target, registry, token)?,
            layers,
            inbox: Vec::new(),
            outbox,
            sent: 0,
            blocked: true,
        })
    }

    /// To be called at the first writable edge: whether the connection came about.
    pub(super) fn finish_opening(&self) -> io::Result<bool> {
        self.socket.finish_opening()
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
        let (filled, more) = match &mut self.layers {
            None => match read(&mut self.socket, rest)? {
                None => return Ok(Received::Nothing),
                Some(filled) => (filled, filled == rest.len()),
            },
            Some(layers) => {
                let received = receive(&mut self.socket, layers, &mut self.outbox, rest)?;
                self.flush()?;
                match received {
                    None => return Ok(Received::Nothing),
                    Some(received) => received,
                }
            }
        };
        front.copy_from_slice(&self.inbox);
        self.inbox.clear();
        Ok(if filled == 0 {
            Received::End
        } else {
            Received::Bytes {
                filled: kept + filled,
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
        let given = self.layers.as_ref().map_or(0, |layers| layers.given());
        self.outbox.len() - self.sent + given
    }

    /// The socket takes no more until an edge tells.
    pub(super) fn is_blocked(&self) -> bool {
        self.blocked
    }

    /// Appends without writing, for packets that may share a write.
    pub(super) fn queue(&mut self, bytes: &[u8]) {
        match &mut self.layers {
            None => self.outbox.extend_from_slice(bytes),
            Some(layers) => layers.give(bytes),
        }
    }

    /// Writes at once if nothing is waiting; what the socket does not take waits.
    pub(super) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.blocked || self.layers.is_some() || self.pending() > 0 {
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
        if let Some(layers) = &mut self.layers {
            layers.seal(&mut self.outbox)?;
            if self.outbox.len() == self.sent {
                return Ok(()); // it waits for the end of a handshake
            }
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

/// Reads once: `None` if there is nothing, 0 at the end.
fn read(socket: &mut Socket, buffer: &mut [u8]) -> io::Result<Option<usize>> {
    loop {
        match socket.read(buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            other => return other.map(Some),
        }
    }
}

/// The same through layers, reading until they have opened something or there is nothing; and
/// whether there may be more.
fn receive(
    socket: &mut Socket,
    layers: &mut Layers,
    outbox: &mut Vec<u8>,
    buffer: &mut [u8],
) -> io::Result<Option<(usize, bool)>> {
    while !layers.has_opened() {
        match read(socket, buffer)? {
            None => {
                layers.is_socket_empty = true;
                return Ok(None);
            }
            Some(0) => return Ok(Some((0, false))),
            Some(count) => {
                layers.is_socket_empty = count < buffer.len();
                layers.open(&mut buffer[..count], outbox)?;
            }
        }
    }
    let taken = layers.take(buffer);
    Ok(Some((
        taken,
        layers.has_opened() || !layers.is_socket_empty,
    )))
}
