//! The wire of the scalability protocols over TCP, without I/O: header, frames, request ids.
//!
//! ```text
//! connection   header, then frames; the same in both directions
//! header       00 'S' 'P' 00, protocol (16 bits, big endian), 00 00
//! frame        length of the body (64 bits, big endian), body
//! request      words of 32 bits, big endian: one for each device on the way, highest bit clear,
//!              then the requester's id, highest bit set; then the content. A reply begins with
//!              the same words
//! ```
//!
//! Sources: nanomsg's RFCs `sp-tcp-mapping-01` (header and frames), `sp-protocol-ids-01` (numbers)
//! and `sp-request-reply-01` (request ids), and nng's manual.
//!
//! Invariant: an announced length costs no memory until its bytes arrive.

use std::fmt;
use std::ops::Range;

/// Bytes of a header.
pub const HEADER_BYTES: usize = 8;
/// Bytes before the body of a frame.
pub const LENGTH_BYTES: usize = 8;
/// Devices that a request may have passed: what nanomsg and nng allow unless told otherwise.
pub const HOPS_MAX: usize = 8;

/// What one end of a connection does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// Publishes to all.
    Pub,
    /// Receives what is published.
    Sub,
    /// Asks.
    Req,
    /// Answers.
    Rep,
    /// Hands out work, each message to one peer.
    Push,
    /// Takes work.
    Pull,
}

/// Why bytes are not of the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// The first eight bytes are no header.
    #[error(
        "the first eight bytes are {0:02x?}, no header of a scalability protocol: check that the peer is one over TCP"
    )]
    Header([u8; HEADER_BYTES]),
    /// The peer's protocol does not fit ours.
    #[error("the peer has protocol {theirs:#04x}, and {ours} needs {}: check the kind of its socket", .ours.peer())]
    Protocol {
        /// As announced.
        theirs: u16,
        /// Ours.
        ours: Protocol,
    },
    /// A frame is larger than allowed.
    #[error("a message of {bytes} bytes; at most {max} are allowed: raise message_bytes_max")]
    TooLarge {
        /// As announced.
        bytes: u64,
        /// The limit.
        max: usize,
    },
    /// A request, or the reply to one, has no id.
    #[error("a message without a request id behind at most {HOPS_MAX} words of devices")]
    NoRequestId,
}

impl Protocol {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Pub,
        Self::Sub,
        Self::Req,
        Self::Rep,
        Self::Push,
        Self::Pull,
    ];

    /// Its number on the wire: the protocol times 16, and the role.
    pub const fn number(self) -> u16 {
        match self {
            Self::Pub => 0x20,
            Self::Sub => 0x21,
            Self::Req => 0x30,
            Self::Rep => 0x31,
            Self::Push => 0x50,
            Self::Pull => 0x51,
        }
    }

    /// What the other end of a connection must be.
    #[must_use]
    pub const fn peer(self) -> Self {
        match self {
            Self::Pub => Self::Sub,
            Self::Sub => Self::Pub,
            Self::Req => Self::Rep,
            Self::Rep => Self::Req,
            Self::Push => Self::Pull,
            Self::Pull => Self::Push,
        }
    }

    /// Its name, in lower case.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pub => "pub",
            Self::Sub => "sub",
            Self::Req => "req",
            Self::Rep => "rep",
            Self::Push => "push",
            Self::Pull => "pull",
        }
    }

    /// What this end sends first.
    pub const fn header(self) -> [u8; HEADER_BYTES] {
        let [high, low] = self.number().to_be_bytes();
        [0, b'S', b'P', 0, high, low, 0, 0]
    }

    /// Checks what the other end has sent first.
    pub fn check(self, header: [u8; HEADER_BYTES]) -> Result<(), WireError> {
        let [0, b'S', b'P', 0, high, low, 0, 0] = header else {
            return Err(WireError::Header(header));
        };
        let theirs = u16::from_be_bytes([high, low]);
        if theirs == self.peer().number() {
            Ok(())
        } else {
            Err(WireError::Protocol { theirs, ours: self })
        }
    }
}

/// As in the configuration.
impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Received bytes, and the frames in them.
#[derive(Debug)]
pub struct Frames {
    bytes: Vec<u8>,
    /// Before it everything was taken.
    start: usize,
    body_bytes_max: usize,
}

impl Frames {
    /// Frames whose bodies have at most this many bytes.
    pub const fn new(body_bytes_max: usize) -> Self {
        Self {
            bytes: Vec::new(),
            start: 0,
            body_bytes_max,
        }
    }

    /// Where received bytes are appended. What was taken is no longer in it.
    pub fn buffer(&mut self) -> &mut Vec<u8> {
        self.bytes.drain(..self.start);
        self.start = 0;
        if self.bytes.is_empty() {
            // A large message is not paid for after it is gone.
            self.bytes.shrink_to(KEPT_BYTES);
        }
        &mut self.bytes
    }

    /// Whether the whole next frame is there. After an error the connection must end.
    pub fn is_ready(&self) -> Result<bool, WireError> {
        Ok(self.next_range()?.is_some())
    }

    /// The body of the next frame, if all of it is there. After an error the connection must end.
    pub fn next_body(&mut self) -> Result<Option<&[u8]>, WireError> {
        let Some(range) = self.next_range()? else {
            return Ok(None);
        };
        self.start = range.end;
        Ok(Some(&self.bytes[range]))
    }

    fn next_range(&self) -> Result<Option<Range<usize>>, WireError> {
        let waiting = &self.bytes[self.start..];
        let Some((length, rest)) = waiting.split_first_chunk::<LENGTH_BYTES>() else {
            return Ok(None);
        };
        let bytes = u64::from_be_bytes(*length);
        let max = self.body_bytes_max;
        let body = usize::try_from(bytes).ok().filter(|body| *body <= max);
        let body = body.ok_or(WireError::TooLarge { bytes, max })?;
        let from = self.start + LENGTH_BYTES;
        Ok((rest.len() >= body).then_some(from..from + body))
    }
}

/// A frame whose body consists of these parts.
pub fn frame(parts: &[&[u8]]) -> Vec<u8> {
    let body: usize = parts.iter().map(|part| part.len()).sum();
    let mut frame = Vec::with_capacity(LENGTH_BYTES + body);
    frame.extend_from_slice(&(body as u64).to_be_bytes());
    for part in parts {
        frame.extend_from_slice(part);
    }
    frame
}

/// Splits the body of a request or reply behind its id: the words of the way, and the content.
pub fn split_request(body: &[u8]) -> Result<(&[u8], &[u8]), WireError> {
    let mut at = 0;
    for _ in 0..=HOPS_MAX {
        let word = body.get(at..at + ID_BYTES).ok_or(WireError::NoRequestId)?;
        at += ID_BYTES;
        if word[0] & ID_BIT != 0 {
            return Ok(body.split_at(at));
        }
    }
    Err(WireError::NoRequestId)
}

/// The id of our own request with this number, of which the highest bit does not count.
pub const fn request_id(number: u32) -> [u8; ID_BYTES] {
    let mut id = number.to_be_bytes();
    id[0] |= ID_BIT;
    id
}

/// Capacity that an empty buffer keeps.
const KEPT_BYTES: usize = 32 << 10;

/// Bytes of one word.
pub const ID_BYTES: usize = 4;
/// In the first byte of the last word.
const ID_BIT: u8 = 0x80;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// From bytes that come in these pieces.
    fn bodies(max: usize, pieces: &[&[u8]]) -> Result<Vec<Vec<u8>>, WireError> {
        let mut frames = Frames::new(max);
        let mut bodies = Vec::new();
        for piece in pieces {
            frames.buffer().extend_from_slice(piece);
            while let Some(body) = frames.next_body()? {
                bodies.push(body.to_vec());
            }
        }
        Ok(bodies)
    }

    #[test]
    fn headers_are_those_of_nanomsg() {
        assert_eq!(Protocol::Req.header(), *b"\0SP\0\0\x30\0\0");
        assert_eq!(Protocol::Pull.header(), *b"\0SP\0\0\x51\0\0");
        for ours in Protocol::ALL {
            for theirs in Protocol::ALL {
                let fits = ours.check(theirs.header()).is_ok();
                assert_eq!(fits, ours.peer() == theirs, "{ours} {theirs}");
            }
        }
    }

    #[test]
    fn each_changed_byte_of_a_header_is_found() {
        for at in 0..HEADER_BYTES {
            for value in 0..=255 {
                let mut header = Protocol::Push.header();
                let is_same = header[at] == value;
                header[at] = value;
                assert_eq!(
                    Protocol::Pull.check(header).is_ok(),
                    is_same,
                    "{at} {value}"
                );
            }
        }
        let http = Protocol::Pull.check(*b"GET / HT").unwrap_err();
        assert!(http.to_string().contains("no header"), "{http}");
    }

    #[test]
    fn a_body_may_be_as_large_as_the_limit_and_no_larger() {
        for (length, expected) in [
            (4_u64, Ok(vec![b"four".to_vec()])),
            (5, Err(5)),
            (1 << 63, Err(1 << 63)),
            (u64::MAX, Err(u64::MAX)),
        ] {
            let expected = expected.map_err(|bytes| WireError::TooLarge { bytes, max: 4 });
            let found = bodies(4, &[&length.to_be_bytes(), b"four"]);
            assert_eq!(found, expected, "{length}");
        }
    }

    #[test]
    fn an_announced_length_takes_no_memory() {
        let mut frames = Frames::new(1 << 40);
        let announced = (1_u64 << 40).to_be_bytes();
        frames.buffer().extend_from_slice(&announced);
        assert_eq!(frames.next_body(), Ok(None));
        assert!(frames.buffer().capacity() < 1_024);
    }

    #[test]
    fn a_request_has_its_id_behind_the_words_of_devices() {
        let id = request_id(7);
        assert_eq!(id, [0x80, 0, 0, 7]);
        assert_eq!(request_id(u32::MAX), [0xff; 4]);
        for hops in 0..=HOPS_MAX {
            let mut body = [0x7f, 1, 2, 3].repeat(hops);
            body.extend(id);
            let way = body.clone();
            body.extend(b"content");
            assert_eq!(split_request(&body), Ok((&*way, &b"content"[..])), "{hops}");
            for cut in 0..way.len() {
                let cut = split_request(&body[..cut]);
                assert_eq!(cut, Err(WireError::NoRequestId));
            }
        }
        let mut body = [0; 4].repeat(HOPS_MAX + 1);
        body.extend(id);
        assert_eq!(split_request(&body), Err(WireError::NoRequestId));
    }

    proptest! {
        #[test]
        fn frames_come_out_as_they_went_in_wherever_they_are_cut(
            sent in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..6),
            cuts in prop::collection::vec(0_usize..300, 0..8),
        ) {
            let bytes: Vec<u8> = sent.iter().flat_map(|body| frame(&[body])).collect();
            let mut cuts: Vec<_> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let pieces: Vec<_> = cuts.windows(2).map(|cut| &bytes[cut[0]..cut[1]]).collect();
            prop_assert_eq!(bodies(40, &pieces), Ok(sent));
        }

        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..64), max in 0_usize..64) {
            // What comes of them does not matter.
            let _ = bodies(max, &[&bytes]);
            let _ = split_request(&bytes);
        }
    }
}
