//! TLS and WebSocket of one connection, between its packets and its socket.
//!
//! Invariants: bytes go through in their order; nothing here knows a socket. What is given before
//! the handshakes have ended waits for that. Deliberately absent: closing. A connection of a load
//! ends with its socket.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::sync::Arc;

use rustls::ClientConnection;
use unbroken_websocket::{End, Frames, upgrade};

use crate::transport::Transport;

pub(super) struct Layers {
    tls: Option<ClientConnection>,
    websocket: Option<WebSocket>,
    /// Packets that were given and are not sealed.
    given: Vec<u8>,
    /// Bytes that came and were not taken, from `taken` on.
    opened: Vec<u8>,
    taken: usize,
    /// The last read was short. What was opened may be taken in several steps before the next one.
    pub(super) is_socket_empty: bool,
}

struct WebSocket {
    /// The request that has no answer yet.
    request: Option<Request>,
    frames: Frames,
    /// The beginning of a frame, or of the answer.
    wire: Vec<u8>,
}

struct Request {
    bytes: Vec<u8>,
    nonce: [u8; 16],
}

impl Layers {
    /// `None` if there are none.
    pub(super) fn new(transport: &Transport, number: usize) -> io::Result<Option<Box<Self>>> {
        if transport.tls.is_none() && transport.websocket.is_none() {
            return Ok(None);
        }
        let tls = match &transport.tls {
            Some((config, name)) => {
                let connection = ClientConnection::new(Arc::clone(config), name.clone());
                let mut connection = connection.map_err(io::Error::other)?;
                connection.set_buffer_limit(None);
                Some(connection)
            }
            None => None,
        };
        let websocket = transport.websocket.as_ref().map(|(authority, path)| {
            // A nonce that tells connections apart is enough for a load.
            let nonce = (number as u128).to_be_bytes();
            let bytes = upgrade::request(authority, path, nonce);
            WebSocket {
                request: Some(Request { bytes, nonce }),
                frames: Frames::client(mask),
                wire: Vec::new(),
            }
        });
        Ok(Some(Box::new(Self {
            tls,
            websocket,
            given: Vec::new(),
            opened: Vec::new(),
            taken: 0,
            is_socket_empty: true,
        })))
    }

    /// Appends to `wire` what begins the handshakes.
    pub(super) fn begin(&mut self, wire: &mut Vec<u8>) -> io::Result<()> {
        let request = self.websocket.as_ref().and_then(|it| it.request.as_ref());
        let request = request.map(|it| it.bytes.clone()).unwrap_or_default();
        self.encrypt(&request, wire)
    }

    pub(super) fn give(&mut self, bytes: &[u8]) {
        self.given.extend_from_slice(bytes);
    }

    pub(super) fn given(&self) -> usize {
        self.given.len()
    }

    /// Appends to `wire` what was given, as one record and frame where it fits, once the handshakes
    /// have ended.
    pub(super) fn seal(&mut self, wire: &mut Vec<u8>) -> io::Result<()> {
        let is_upgrading = matches!(&self.websocket, Some(it) if it.request.is_some());
        let is_handshaking = self.tls.as_ref().is_some_and(|it| it.is_handshaking());
        if self.given.is_empty() || is_upgrading || is_handshaking {
            return Ok(());
        }
        let given = std::mem::take(&mut self.given);
        let sealed = match &mut self.websocket {
            Some(websocket) => {
                let mut framed = Vec::with_capacity(given.len() + 14);
                websocket.frames.seal(&given, &mut framed);
                self.encrypt(&framed, wire)
            }
            None => self.encrypt(&given, wire),
        };
        self.given = given;
        self.given.clear();
        sealed
    }

    /// Takes bytes of the socket, and appends to `wire` what they are answered with.
    pub(super) fn open(&mut self, bytes: &mut [u8], wire: &mut Vec<u8>) -> io::Result<()> {
        let mut replies = Vec::new();
        match (&mut self.tls, &mut self.websocket) {
            (Some(tls), None) => decrypt(tls, bytes, &mut self.opened)?,
            (None, Some(websocket)) => websocket.open(bytes, &mut self.opened, &mut replies)?,
            (Some(tls), Some(websocket)) => {
                let mut framed = Vec::new();
                decrypt(tls, bytes, &mut framed)?;
                websocket.open(&framed, &mut self.opened, &mut replies)?;
            }
            (None, None) => self.opened.extend_from_slice(bytes),
        }
        self.encrypt(&replies, wire)
    }

    /// Moves opened bytes to `buffer`, as many as fit.
    pub(super) fn take(&mut self, buffer: &mut [u8]) -> usize {
        let left = &self.opened[self.taken..];
        let count = left.len().min(buffer.len());
        buffer[..count].copy_from_slice(&left[..count]);
        self.taken += count;
        if self.taken == self.opened.len() {
            self.opened.clear();
            self.taken = 0;
        }
        count
    }

    pub(super) fn has_opened(&self) -> bool {
        self.taken < self.opened.len()
    }

    /// The bytes as a record, and what TLS has to say itself.
    fn encrypt(&mut self, bytes: &[u8], wire: &mut Vec<u8>) -> io::Result<()> {
        let Some(tls) = &mut self.tls else {
            wire.extend_from_slice(bytes);
            return Ok(());
        };
        tls.writer().write_all(bytes)?;
        while tls.wants_write() {
            tls.write_tls(wire)?;
        }
        Ok(())
    }
}

fn decrypt(tls: &mut ClientConnection, mut bytes: &[u8], plain: &mut Vec<u8>) -> io::Result<()> {
    while !bytes.is_empty() {
        tls.read_tls(&mut bytes)?;
        let processed = tls.process_new_packets();
        processed.map_err(|error| io::Error::new(ErrorKind::InvalidData, error))?;
        match tls.reader().read_to_end(plain) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
            Ok(_) => return Err(ErrorKind::ConnectionReset.into()), // close_notify
        }
    }
    Ok(())
}

impl WebSocket {
    fn open(
        &mut self,
        bytes: &[u8],
        opened: &mut Vec<u8>,
        replies: &mut Vec<u8>,
    ) -> io::Result<()> {
        let invalid = |what: String| io::Error::new(ErrorKind::InvalidData, what);
        self.wire.extend_from_slice(bytes);
        if let Some(request) = &self.request {
            let answer = upgrade::check_answer(&self.wire, request.nonce);
            let Some(used) = answer.map_err(|why| invalid(why.to_string()))? else {
                return Ok(());
            };
            self.wire.drain(..used);
            self.request = None;
        }
        let found = self.frames.open(&mut self.wire, opened, replies);
        self.wire.drain(..found.used);
        match found.end {
            None => Ok(()),
            Some(End::Closed) => Err(ErrorKind::ConnectionReset.into()),
            Some(End::Broken(violation)) => Err(invalid(format!("the broker sent {violation}"))),
        }
    }
}

/// Bytes are masked, which is what it costs; nobody has to be kept from guessing the mask.
const fn mask() -> [u8; 4] {
    [0x5A, 0xC3, 0x96, 0x0F]
}

impl std::fmt::Debug for Layers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Layers") // keys
    }
}
