//! A connection in memory: its peer decides how many bytes it takes, and when. It has no edges; a
//! test reports them itself.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::sync::{Arc, Mutex};

use super::Socket;

#[derive(Debug)]
pub(crate) struct Memory(Arc<Mutex<Pipe>>);

/// The other end.
#[derive(Debug)]
pub(crate) struct MemoryPeer(Arc<Mutex<Pipe>>);

#[derive(Debug, Default)]
struct Pipe {
    to_broker: VecDeque<u8>,
    has_peer_ended: bool,
    to_peer: Vec<u8>,
    /// Bytes that the peer takes until it makes more room.
    room: usize,
    is_reset: bool,
    is_shut_down: bool,
    is_closed: bool,
}

/// A connection whose peer takes so many bytes.
pub(crate) fn memory(room: usize) -> (Socket, MemoryPeer) {
    let pipe = Pipe {
        room,
        ..Pipe::default()
    };
    let pipe = Arc::new(Mutex::new(pipe));
    (Socket::Memory(Memory(Arc::clone(&pipe))), MemoryPeer(pipe))
}

impl Memory {
    pub(super) fn read(&self, into: &mut [u8]) -> io::Result<usize> {
        let mut pipe = self.0.lock().unwrap();
        if pipe.to_broker.is_empty() && !pipe.has_peer_ended {
            return Err(ErrorKind::WouldBlock.into());
        }
        let count = pipe.to_broker.len().min(into.len());
        for (to, from) in into.iter_mut().zip(pipe.to_broker.drain(..count)) {
            *to = from;
        }
        Ok(count)
    }

    pub(super) fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        let mut pipe = self.0.lock().unwrap();
        assert!(!pipe.is_shut_down, "a write after the end");
        if pipe.is_reset {
            return Err(ErrorKind::ConnectionReset.into());
        }
        let count = bytes.len().min(pipe.room);
        if count == 0 {
            return Err(ErrorKind::WouldBlock.into());
        }
        pipe.room -= count;
        pipe.to_peer.extend_from_slice(&bytes[..count]);
        Ok(count)
    }

    pub(super) fn shut_down(&self) {
        self.0.lock().unwrap().is_shut_down = true;
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.0.lock().unwrap().is_closed = true;
    }
}

impl MemoryPeer {
    pub(crate) fn send(&self, bytes: &[u8]) {
        self.0.lock().unwrap().to_broker.extend(bytes);
    }

    /// Sends nothing more.
    pub(crate) fn end(&self) {
        self.0.lock().unwrap().has_peer_ended = true;
    }

    /// Takes nothing any more; what it has sent can still be read.
    pub(crate) fn reset(&self) {
        let mut pipe = self.0.lock().unwrap();
        (pipe.is_reset, pipe.has_peer_ended) = (true, true);
    }

    pub(crate) fn make_room(&self, bytes: usize) {
        self.0.lock().unwrap().room += bytes;
    }

    pub(crate) fn set_room(&self, bytes: usize) {
        self.0.lock().unwrap().room = bytes;
    }

    /// What has come since the last call.
    pub(crate) fn received(&self) -> Vec<u8> {
        std::mem::take(&mut self.0.lock().unwrap().to_peer)
    }

    /// Bytes that the broker has not read.
    pub(crate) fn unread(&self) -> usize {
        self.0.lock().unwrap().to_broker.len()
    }

    pub(crate) fn is_shut_down(&self) -> bool {
        self.0.lock().unwrap().is_shut_down
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.0.lock().unwrap().is_closed
    }
}
