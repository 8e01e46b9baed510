//! One connection's TLS, as a transform over caller's buffers. The only file that drives rustls'
//! state machine: its unbuffered API ends with 0.23, and the next one has two functions of the
//! shape of `open` and `seal` here.
//!
//! Invariants:
//! - rustls is always given the bytes that it has not used, in front of any new ones: it remembers
//!   positions in them. So they are kept here and not with the stack.
//! - A call goes on until rustls waits for bytes, or would write: what it has decrypted and what it
//!   wants to send is never left in it.

use std::fmt;
use std::sync::Arc;

use rustls::HandshakeKind;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{
    ConnectionState, EncodeError, EncodeTlsData, EncryptError, UnbufferedStatus,
};

use unbroken_broker_core::Peer;

use super::HandshakePermit;
use super::rules::TlsRules;
use crate::bounds::{TLS_SESSION_BYTES, UNOPENED_BYTES};
use crate::config::Protocol;
use crate::transport::{End, Guess, Opened, Transform, guess};

type ServerData = rustls::server::ServerConnectionData;

/// One connection.
pub(super) struct TlsSession {
    connection: UnbufferedServerConnection,
    /// Not used yet: the beginning of a record, or of a message of the handshake.
    pending: Vec<u8>,
    state: State,
    /// The name in the client's certificate, until it is taken.
    name: Option<Arc<str>>,
    refusal: Option<Box<str>>,
    needs: &'static [Protocol],
}

enum State {
    Handshake {
        /// Those that it began with.
        rules: Arc<TlsRules>,
        permit: Arc<HandshakePermit>,
    },
    Open,
    Ended,
}

/// What the peer's bytes led to.
#[derive(Default)]
struct Progress {
    /// Bytes that were used.
    used: usize,
    end: Option<End>,
}

impl TlsSession {
    pub(super) fn new(
        rules: Arc<TlsRules>,
        permit: Arc<HandshakePermit>,
    ) -> Result<Self, rustls::Error> {
        Ok(Self {
            connection: UnbufferedServerConnection::new(Arc::clone(&rules.config))?,
            pending: Vec::new(),
            state: State::Handshake { rules, permit },
            name: None,
            refusal: None,
            needs: &[],
        })
    }

    /// Feeds rustls until it waits for more.
    fn process(&mut self, wire: &mut [u8], plain: &mut Vec<u8>, reply: &mut Vec<u8>) -> Progress {
        let mut progress = Progress::default();
        loop {
            let rest = &mut wire[progress.used..];
            let UnbufferedStatus { mut discard, state } = self.connection.process_tls_records(rest);
            let mut is_waiting = false;
            match state {
                Ok(ConnectionState::ReadTraffic(mut records)) => {
                    while let Some(Ok(record)) = records.next_record() {
                        plain.extend_from_slice(record.payload);
                        discard += record.discard;
                    }
                }
                Ok(ConnectionState::EncodeTlsData(data)) => encode(data, reply),
                Ok(ConnectionState::TransmitTlsData(data)) => data.done(),
                Ok(ConnectionState::PeerClosed | ConnectionState::Closed) => {
                    progress.end = Some(End::Closed);
                    is_waiting = true;
                }
                // Early data is never accepted, so there is none to read.
                Ok(_) => is_waiting = true,
                Err(error) => {
                    let seen = if progress.used == 0 {
                        guess(wire)
                    } else {
                        None
                    };
                    let seen = seen.filter(|_| self.connection.is_handshaking());
                    let seen = seen.and_then(Guess::on_tls);
                    self.needs = seen.map_or(&[], |seen| seen.needs);
                    self.refusal = Some(match seen {
                        Some(seen) => seen.speaks.into(),
                        None => error.to_string().into(),
                    });
                    progress.end = Some(End::Invalid);
                    progress.used += discard;
                    self.take_alert(&mut wire[progress.used..], reply);
                    return progress;
                }
            }
            progress.used += discard;
            if is_waiting {
                return progress;
            }
        }
    }

    /// After an error rustls has an alert that says why.
    fn take_alert(&mut self, rest: &mut [u8], reply: &mut Vec<u8>) {
        // Not once more than that: it would look at the rest, and find the error again.
        while self.connection.wants_write()
            && let Ok(ConnectionState::EncodeTlsData(data)) =
                self.connection.process_tls_records(rest).state
        {
            encode(data, reply);
        }
    }

    /// The handshake may be done. Answers why the client may not connect, if so.
    fn finish_handshake(&mut self) -> Result<(), Box<str>> {
        let State::Handshake { rules, permit } = &self.state else {
            return Ok(());
        };
        if self.connection.is_handshaking() {
            return Ok(());
        }
        let in_force = permit.listener.rules();
        if let Some(chain) = self.connection.peer_certificates() {
            // A ticket brings a chain back that was verified when it was given out.
            let was_resumed = self.connection.handshake_kind() == Some(HandshakeKind::Resumed);
            if was_resumed || !Arc::ptr_eq(rules, &in_force) {
                in_force.verify(chain).map_err(|error| error.to_string())?;
            }
            self.name = in_force.user(chain)?.map(Arc::from);
        } else if in_force.requires_certificate() {
            return Err("it has no certificate, and the listener requires one by now".into());
        }
        self.state = State::Open;
        Ok(())
    }

    /// Seals into `wire`, if the session may write now. `None`: its end.
    fn write(&mut self, plain: Option<&[u8]>, wire: &mut Vec<u8>) -> bool {
        let bytes = plain.map_or(0, <[u8]>::len);
        let expected = bytes + RECORD_OVERHEAD * (1 + bytes / RECORD_BYTES);
        loop {
            let UnbufferedStatus { discard, state } =
                self.connection.process_tls_records(&mut self.pending);
            let is_written = match state {
                Ok(ConnectionState::EncodeTlsData(data)) => {
                    encode(data, wire);
                    None
                }
                Ok(ConnectionState::TransmitTlsData(data)) => {
                    data.done();
                    None
                }
                Ok(ConnectionState::PeerClosed) => None,
                Ok(ConnectionState::WriteTraffic(mut traffic)) => {
                    Some(append(wire, expected, |out| match plain {
                        Some(plain) => traffic.encrypt(plain, out),
                        None => traffic.queue_close_notify(out),
                    }))
                }
                _ => Some(false),
            };
            self.pending.drain(..discard);
            if let Some(is_written) = is_written {
                return is_written;
            }
        }
    }
}

impl Transform for TlsSession {
    fn open(&mut self, wire: &mut [u8], plain: &mut Vec<u8>, reply: &mut Vec<u8>) -> Opened {
        let before = plain.len();
        let mut progress = if self.pending.is_empty() {
            let progress = self.process(wire, plain, reply);
            self.pending.extend_from_slice(&wire[progress.used..]);
            progress
        } else {
            let mut all = std::mem::take(&mut self.pending);
            all.extend_from_slice(wire);
            let progress = self.process(&mut all, plain, reply);
            all.drain(..progress.used);
            self.pending = all;
            progress
        };
        if self.pending.is_empty() {
            self.pending = Vec::new();
        }
        if progress.end == Some(End::Invalid) && !self.is_open() {
            // What came behind the handshake was not allowed yet.
            plain.truncate(before);
        } else if let Err(why) = self.finish_handshake() {
            self.refusal = Some(why);
            plain.truncate(before);
            self.write(None, reply);
            progress.end = Some(End::Invalid);
        }
        if self.pending.len() > UNOPENED_BYTES {
            self.refusal = Some("a message of its handshake is too long".into());
            progress.end = Some(End::Invalid);
        }
        // A peer that has only ended its own side is still sent what is for it (RFC 8446, 6.1).
        if progress.end == Some(End::Invalid) || progress.end.is_some() && !self.is_open() {
            self.state = State::Ended;
        }
        if progress.end.is_some() {
            self.pending = Vec::new();
        }
        Opened {
            used: wire.len(),
            end: progress.end,
        }
    }

    fn is_open(&self) -> bool {
        matches!(self.state, State::Open)
    }

    fn seal(&mut self, plain: &[u8], wire: &mut Vec<u8>) {
        let is_sealed = self.write(Some(plain), wire);
        if !is_sealed {
            self.state = State::Ended;
        }
    }

    fn close(&mut self, wire: &mut Vec<u8>) {
        if self.is_open() {
            self.write(None, wire);
        }
        self.state = State::Ended;
        self.pending = Vec::new();
    }

    fn held_bytes(&self) -> usize {
        let chain = self.connection.peer_certificates().unwrap_or_default();
        let chain = chain.iter().map(|certificate| certificate.len());
        TLS_SESSION_BYTES + self.pending.capacity() + chain.sum::<usize>()
    }

    fn identify(&mut self, peer: &mut Peer) {
        if let Some(name) = self.name.take() {
            peer.certificate = Some(name);
        }
    }

    fn refusal(&self) -> Option<&str> {
        self.refusal.as_deref()
    }

    fn needs(&self) -> &'static [Protocol] {
        self.needs
    }
}

/// Keys stay out of logs.
impl fmt::Debug for TlsSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsSession")
            .field("is_open", &self.is_open())
            .finish_non_exhaustive()
    }
}

/// Bytes of the shard in one record, at most (RFC 8446, 5.1).
const RECORD_BYTES: usize = 16 * 1024;
/// Bytes around them: header, type, tag, and with TLS 1.2 a nonce.
const RECORD_OVERHEAD: usize = 5 + 1 + 16 + 8;

fn encode(mut data: EncodeTlsData<'_, ServerData>, to: &mut Vec<u8>) {
    append(to, 0, |out| {
        data.encode(out).map_err(|error| match error {
            EncodeError::InsufficientSize(size) => EncryptError::InsufficientSize(size),
            EncodeError::AlreadyEncoded => EncryptError::EncryptExhausted,
        })
    });
}

/// Appends what `write` writes, with as much room as it needs; at first `expected` bytes. False: it
/// cannot write any more, since its keys are used up.
fn append(
    to: &mut Vec<u8>,
    expected: usize,
    mut write: impl FnMut(&mut [u8]) -> Result<usize, EncryptError>,
) -> bool {
    let start = to.len();
    let mut room = expected;
    loop {
        to.resize(start + room, 0);
        match write(&mut to[start..]) {
            Ok(written) => {
                to.truncate(start + written);
                return true;
            }
            Err(EncryptError::InsufficientSize(size)) => room = size.required_size,
            Err(EncryptError::EncryptExhausted) => {
                to.truncate(start);
                return false;
            }
        }
    }
}
