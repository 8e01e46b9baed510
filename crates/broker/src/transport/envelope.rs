//! A transform for tests that does what TLS and WebSocket do: a handshake of two steps, records
//! that are not aligned with anything, answers of its own, and an end.
//!
//! ```text
//! peer                 broker
//! HELLO ─────────────▶
//!       ◀───────────── HELLO
//! FINISHED ──────────▶           open
//! DATA, PING ────────▶
//!       ◀───────────── DATA, PONG
//! CLOSE ◀────────────▶ CLOSE     or ALERT, if the peer sends anything else
//! ```
//!
//! A record is its kind, the length of its bytes in two, and the bytes, each xor [`KEY`].

use super::Transform;
use super::transform::{End, Opened};

pub(crate) const HELLO: u8 = 1;
pub(crate) const FINISHED: u8 = 2;
pub(crate) const DATA: u8 = 3;
pub(crate) const PING: u8 = 4;
pub(crate) const PONG: u8 = 5;
pub(crate) const CLOSE: u8 = 6;
pub(crate) const ALERT: u8 = 7;

const HEADER: usize = 3;
const KEY: u8 = 0x5a;
/// Bytes of a record, at most: a message may need several.
const RECORD_MAX: usize = 1_000;

#[derive(Debug, Default)]
pub(crate) struct Envelope {
    state: State,
    /// Sends its HELLO first, as a client does.
    speaks_first: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum State {
    #[default]
    Silent,
    Greeted,
    Open,
    /// The peer has ended its side.
    HalfClosed,
    Ended,
}

impl Envelope {
    pub(crate) fn boxed() -> Box<dyn Transform> {
        Box::<Self>::default()
    }

    pub(crate) fn that_speaks_first() -> Box<dyn Transform> {
        Box::new(Self {
            speaks_first: true,
            ..Self::default()
        })
    }

    /// One record. `None`: it is not allowed now.
    fn record(
        &mut self,
        kind: u8,
        bytes: &[u8],
        plain: &mut Vec<u8>,
        reply: &mut Vec<u8>,
    ) -> Option<()> {
        match (self.state, kind) {
            (State::Silent, HELLO) => {
                reply.extend(sealed(HELLO, b""));
                self.state = State::Greeted;
            }
            (State::Greeted, HELLO) if self.speaks_first => {}
            (State::Greeted, FINISHED) => self.state = State::Open,
            (State::Open, DATA) => plain.extend(bytes.iter().map(|byte| byte ^ KEY)),
            (State::Open, PING) => {
                let bytes: Vec<u8> = bytes.iter().map(|byte| byte ^ KEY).collect();
                reply.extend(sealed(PONG, &bytes));
            }
            (State::Open, CLOSE) => self.state = State::HalfClosed,
            (_, CLOSE) => self.state = State::Ended,
            _ => return None,
        }
        Some(())
    }
}

impl Transform for Envelope {
    fn open(&mut self, wire: &mut [u8], plain: &mut Vec<u8>, reply: &mut Vec<u8>) -> Opened {
        if self.speaks_first && self.state == State::Silent {
            reply.extend(sealed(HELLO, b""));
            self.state = State::Greeted;
        }
        let (mut used, mut end) = (0, None);
        while let Some((kind, bytes)) = first_record(&wire[used..])
            && end.is_none()
        {
            used += HEADER + bytes.len();
            if self.record(kind, bytes, plain, reply).is_none() {
                reply.extend(sealed(ALERT, b""));
                self.state = State::Ended;
                end = Some(End::Invalid);
            } else if matches!(self.state, State::HalfClosed | State::Ended) {
                end = Some(End::Closed);
            }
        }
        Opened { used, end }
    }

    fn is_open(&self) -> bool {
        matches!(self.state, State::Open | State::HalfClosed)
    }

    fn seal(&mut self, plain: &[u8], wire: &mut Vec<u8>) {
        assert!(self.is_open());
        for bytes in plain.chunks(RECORD_MAX) {
            wire.extend(sealed(DATA, bytes));
        }
    }

    fn close(&mut self, wire: &mut Vec<u8>) {
        if self.is_open() || self.state == State::Greeted {
            wire.extend(sealed(CLOSE, b""));
        }
        self.state = State::Ended;
    }
}

fn first_record(wire: &[u8]) -> Option<(u8, &[u8])> {
    let (header, rest) = wire.split_first_chunk::<HEADER>()?;
    let length = usize::from(u16::from_be_bytes([header[1], header[2]]));
    Some((header[0], rest.get(..length)?))
}

/// A record as either side sends it.
pub(crate) fn sealed(kind: u8, bytes: &[u8]) -> Vec<u8> {
    let length = u16::try_from(bytes.len()).unwrap().to_be_bytes();
    let header = [kind, length[0], length[1]];
    let bytes = bytes.iter().map(|byte| byte ^ KEY);
    header.into_iter().chain(bytes).collect()
}

/// What the peer finds in whole records, and how many bytes those have.
pub(crate) fn records(wire: &[u8]) -> (Vec<(u8, Vec<u8>)>, usize) {
    let (mut found, mut used) = (Vec::new(), 0);
    while let Some((kind, bytes)) = first_record(&wire[used..]) {
        used += HEADER + bytes.len();
        found.push((kind, bytes.iter().map(|byte| byte ^ KEY).collect()));
    }
    (found, used)
}

/// A peer's half of the handshake.
pub(crate) fn greeting() -> Vec<u8> {
    [sealed(HELLO, b""), sealed(FINISHED, b"")].concat()
}
