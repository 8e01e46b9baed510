//! Frames: their headers, masks and order (RFC 6455, section 5).

#[cfg(test)]
mod tests;

/// Bytes of the longest header: two, a length of eight, and a mask.
pub const HEADER_BYTES: usize = 14;
/// Bytes of payload of a control frame, at most (5.5).
pub const CONTROL_BYTES: usize = 125;

/// Status codes of a close frame (7.4.1).
pub mod status {
    /// The connection has done its work.
    pub const NORMAL: u16 = 1000;
    /// The peer broke the protocol.
    pub const PROTOCOL_ERROR: u16 = 1002;
    /// The peer sent a kind of message that is not accepted.
    pub const UNSUPPORTED: u16 = 1003;
    /// A text is not UTF-8.
    pub const INVALID_TEXT: u16 = 1007;
}

/// Chooses the mask of a frame; not to be foreseen by the code that chooses its payload (10.3).
pub type Masks = fn() -> [u8; 4];

/// One side of a connection after its opening handshake.
#[derive(Debug)]
pub struct Frames {
    /// A client masks what it sends, and a server nothing.
    masks: Option<Masks>,
    /// The payload of the data frame that is being read.
    payload: Payload,
    /// A message has begun, and its last frame has not come.
    in_message: bool,
}

/// What is left of a data frame.
#[derive(Clone, Copy, Default, Debug)]
struct Payload {
    left: u64,
    mask: [u8; 4],
}

/// What [`Frames::open`] found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Opened {
    /// So many bytes, from the front, were used. Those behind them are the beginning of a frame, or
    /// follow the end.
    pub used: usize,
    /// Nothing follows.
    pub end: Option<End>,
}

/// How a stream ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// By a close frame.
    Closed,
    /// By a frame that is not allowed.
    Broken(Violation),
}

/// How a frame breaks the protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Violation {
    /// A bit that only extensions use (5.2).
    #[error("a frame with a reserved bit")]
    ReservedBit,
    /// A kind of frame that does not exist (5.2).
    #[error("a frame of an unknown kind")]
    UnknownKind,
    /// From a client without a mask, or from a server with one (5.1).
    #[error("a frame whose mask is missing, or should be")]
    Mask,
    /// In more bytes than needed, or above 2^63 (5.2).
    #[error("a frame whose length is in too many bytes")]
    Length,
    /// A control frame that is too long or in pieces (5.5).
    #[error("a control frame that is too long or fragmented")]
    Control,
    /// A continuation without a beginning, or a beginning in the middle of a message (5.4).
    #[error("a frame that is out of order")]
    Order,
    /// A text message [MQTT-6.0.0-1].
    #[error("a text message; MQTT uses binary ones")]
    Text,
    /// A close frame with half a status code, or one that is not to be sent (7.4).
    #[error("a close frame with a status code that is not to be sent")]
    CloseCode,
    /// A close frame whose reason is not UTF-8 (5.5.1).
    #[error("a close frame whose reason is not UTF-8")]
    CloseReason,
}

impl Violation {
    /// The status code for the peer.
    pub const fn status(self) -> u16 {
        match self {
            Self::Text => status::UNSUPPORTED,
            Self::CloseReason => status::INVALID_TEXT,
            _ => status::PROTOCOL_ERROR,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Continuation,
    Binary,
    Close,
    Ping,
    Pong,
}

struct Header {
    kind: Kind,
    is_last: bool,
    length: u64,
    mask: [u8; 4],
    /// Bytes of the header itself.
    bytes: usize,
}

const FIN: u8 = 0x80;
const MASKED: u8 = 0x80;
/// The length follows in so many bytes.
const LENGTH_IN_2: u8 = 0x7e;
const LENGTH_IN_8: u8 = 0x7f;
const BINARY: u8 = 2;
const CLOSE: u8 = 8;
const PONG: u8 = 10;

impl Frames {
    /// The side of a server.
    pub const fn server() -> Self {
        Self::new(None)
    }

    /// The side of a client.
    pub const fn client(masks: Masks) -> Self {
        Self::new(Some(masks))
    }

    const fn new(masks: Option<Masks>) -> Self {
        Self {
            masks,
            payload: Payload {
                left: 0,
                mask: [0; 4],
            },
            in_message: false,
        }
    }

    /// Takes the peer's bytes: appends the payload of data frames to `payload`, and to `reply` what
    /// the peer is to be sent: a pong, a close frame. Bytes that were not used come again, with
    /// more behind them.
    pub fn open(&mut self, wire: &mut [u8], payload: &mut Vec<u8>, reply: &mut Vec<u8>) -> Opened {
        let mut used = 0;
        loop {
            used += self.take_payload(&mut wire[used..], payload);
            match self.take_header(&mut wire[used..], reply) {
                Ok(Step::Took(bytes)) => used += bytes,
                Ok(Step::Wait) => return Opened { used, end: None },
                Ok(Step::Closed(bytes)) => {
                    used += bytes;
                    let end = Some(End::Closed);
                    return Opened { used, end };
                }
                Err(violation) => {
                    self.close(violation.status(), reply);
                    let end = Some(End::Broken(violation));
                    return Opened { used, end };
                }
            }
        }
    }

    /// The rest of a data frame, as far as it has come: frames are no packets [MQTT-6.0.0-2].
    fn take_payload(&mut self, wire: &mut [u8], payload: &mut Vec<u8>) -> usize {
        let left = usize::try_from(self.payload.left).unwrap_or(usize::MAX);
        let count = left.min(wire.len());
        let bytes = &mut wire[..count];
        apply(self.payload.mask, bytes);
        payload.extend_from_slice(bytes);
        self.payload.left -= count as u64;
        self.payload.mask.rotate_left(count % 4);
        count
    }

    /// A header, and the whole frame if it is a control frame.
    fn take_header(&mut self, wire: &mut [u8], reply: &mut Vec<u8>) -> Result<Step, Violation> {
        if self.payload.left > 0 {
            return Ok(Step::Wait);
        }
        let Some(header) = Header::parse(wire, self.masks.is_none())? else {
            return Ok(Step::Wait);
        };
        let bytes = header.bytes;
        match header.kind {
            Kind::Continuation | Kind::Binary => {
                if self.in_message != (header.kind == Kind::Continuation) {
                    return Err(Violation::Order);
                }
                self.in_message = !header.is_last;
                self.payload = Payload {
                    left: header.length,
                    mask: header.mask,
                };
                Ok(Step::Took(bytes))
            }
            Kind::Close | Kind::Ping | Kind::Pong => {
                let length = usize::try_from(header.length).unwrap_or(usize::MAX);
                if !header.is_last || length > CONTROL_BYTES {
                    return Err(Violation::Control);
                }
                let Some(body) = wire.get_mut(bytes..bytes + length) else {
                    return Ok(Step::Wait);
                };
                apply(header.mask, body);
                if header.kind == Kind::Close {
                    let code = close_code(body)?;
                    self.close(code, reply);
                    return Ok(Step::Closed(bytes + length));
                }
                if header.kind == Kind::Ping {
                    self.frame(PONG, body, reply);
                }
                Ok(Step::Took(bytes + length))
            }
        }
    }

    /// Appends these bytes as one binary message to `wire`.
    pub fn seal(&self, payload: &[u8], wire: &mut Vec<u8>) {
        self.frame(BINARY, payload, wire);
    }

    /// Appends a close frame; nothing is sealed after it.
    pub fn close(&self, code: u16, wire: &mut Vec<u8>) {
        self.frame(CLOSE, &code.to_be_bytes(), wire);
    }

    fn frame(&self, kind: u8, payload: &[u8], wire: &mut Vec<u8>) {
        let mask_bit = if self.masks.is_some() { MASKED } else { 0 };
        wire.push(FIN | kind);
        match (u8::try_from(payload.len()), u16::try_from(payload.len())) {
            (Ok(length @ ..126), _) => wire.push(mask_bit | length),
            (_, Ok(length)) => {
                wire.push(mask_bit | LENGTH_IN_2);
                wire.extend_from_slice(&length.to_be_bytes());
            }
            _ => {
                wire.push(mask_bit | LENGTH_IN_8);
                wire.extend_from_slice(&(payload.len() as u64).to_be_bytes());
            }
        }
        let mask = self.masks.map(|masks| masks());
        wire.extend_from_slice(mask.as_ref().map_or(&[][..], |mask| mask));
        let start = wire.len();
        wire.extend_from_slice(payload);
        if let Some(mask) = mask {
            apply(mask, &mut wire[start..]);
        }
    }
}

enum Step {
    /// So many bytes were used.
    Took(usize),
    /// More bytes are needed.
    Wait,
    /// A close frame of so many bytes.
    Closed(usize),
}

impl Header {
    /// `None`: it is incomplete. A frame that is not allowed is found as early as it can be.
    fn parse(wire: &[u8], is_masked: bool) -> Result<Option<Self>, Violation> {
        let Some((&first, rest)) = wire.split_first() else {
            return Ok(None);
        };
        if first & 0x70 != 0 {
            return Err(Violation::ReservedBit);
        }
        let kind = match first & 0x0f {
            0 => Kind::Continuation,
            1 => return Err(Violation::Text), // [MQTT-6.0.0-1]
            BINARY => Kind::Binary,
            CLOSE => Kind::Close,
            9 => Kind::Ping,
            PONG => Kind::Pong,
            _ => return Err(Violation::UnknownKind),
        };
        let Some((&second, rest)) = rest.split_first() else {
            return Ok(None);
        };
        if (second & MASKED != 0) != is_masked {
            return Err(Violation::Mask);
        }
        let length_bytes = match second & !MASKED {
            LENGTH_IN_2 => 2,
            LENGTH_IN_8 => 8,
            _ => 0,
        };
        let Some((long, rest)) = rest.split_at_checked(length_bytes) else {
            return Ok(None);
        };
        let long_length = long.iter().fold(0, |n, byte| n << 8 | u64::from(*byte));
        let length = match length_bytes {
            2 if long_length >= 126 => long_length,
            8 if long_length > u64::from(u16::MAX) && long_length >> 63 == 0 => long_length,
            0 => u64::from(second & !MASKED),
            _ => return Err(Violation::Length),
        };
        let mask_bytes = if is_masked { 4 } else { 0 };
        let Some(mask) = rest.get(..mask_bytes) else {
            return Ok(None);
        };
        Ok(Some(Self {
            kind,
            is_last: first & FIN != 0,
            length,
            mask: mask.try_into().unwrap_or_default(),
            bytes: 2 + length_bytes + mask_bytes,
        }))
    }
}

/// The code to answer a close frame with.
fn close_code(body: &[u8]) -> Result<u16, Violation> {
    match body {
        [] => Ok(status::NORMAL),
        [_] => Err(Violation::CloseCode),
        [high, low, reason @ ..] => {
            let code = u16::from_be_bytes([*high, *low]);
            if !matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999) {
                return Err(Violation::CloseCode);
            }
            let text = std::str::from_utf8(reason);
            text.map(|_| code).map_err(|_| Violation::CloseReason)
        }
    }
}

/// Masks or unmasks bytes; the first one with the first byte of the mask (5.3).
fn apply(mask: [u8; 4], bytes: &mut [u8]) {
    if mask == [0; 4] {
        return;
    }
    let word = u64::from_ne_bytes([
        mask[0], mask[1], mask[2], mask[3], mask[0], mask[1], mask[2], mask[3],
    ]);
    let (words, rest) = bytes.as_chunks_mut::<8>();
    for chunk in words {
        *chunk = (u64::from_ne_bytes(*chunk) ^ word).to_ne_bytes();
    }
    for (byte, mask) in rest.iter_mut().zip(mask.iter().cycle()) {
        *byte ^= mask;
    }
}
