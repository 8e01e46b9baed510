//! Bytes to frames: finds where one packet ends, and nothing more.
//!
//! The size limit is checked as soon as the header tells the length, so that a peer cannot make
//! anyone wait for, or allocate room for, a packet that will be refused. There is no buffer here:
//! the caller keeps the bytes.

use crate::{error::DecodeError, packet::PacketType};

/// One whole packet in a caller's buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Packet type and flags.
    pub first_byte: u8,
    /// The whole packet with its fixed header.
    pub bytes: &'a [u8],
    /// What follows the fixed header.
    pub body: &'a [u8],
}

impl Frame<'_> {
    /// The type in the upper half of the first byte; `None` for the reserved 0, which
    /// [`next_frame`] refuses.
    #[inline]
    pub const fn packet_type(&self) -> Option<PacketType> {
        PacketType::from_first_byte(self.first_byte)
    }

    /// The lower half of the first byte.
    #[inline]
    pub const fn flags(&self) -> u8 {
        self.first_byte & 0x0F
    }

    /// A PUBLISH at QoS 0 that is not retained: the one packet that is forwarded as it came.
    #[inline]
    pub const fn is_plain_publish(&self) -> bool {
        self.first_byte == 0x30
    }

    /// A PUBLISH of any QoS.
    pub const fn is_publish(&self) -> bool {
        self.first_byte & 0xF0 == 0x30
    }
}

/// The frame at the front of `bytes`, or `None` while it is incomplete. The next one starts at
/// `frame.bytes.len()`.
///
/// `limit` holds for the whole packet, header included, as Maximum Packet Size does.
#[inline]
pub fn next_frame(bytes: &[u8], limit: u32) -> Result<Option<Frame<'_>>, DecodeError> {
    let Some(header) = header(bytes, limit)? else {
        return Ok(None);
    };
    let Some(frame) = bytes.get(..header.frame_length) else {
        return Ok(None);
    };
    let (Some(&first_byte), Some(body)) = (frame.first(), frame.get(header.length..)) else {
        return Ok(None);
    };
    Ok(Some(Frame {
        first_byte,
        bytes: frame,
        body,
    }))
}

/// How long the frame at the front of `bytes` is, header included, once enough of it is there to
/// tell: what a buffer must hold.
pub fn frame_length(bytes: &[u8], limit: u32) -> Result<Option<usize>, DecodeError> {
    Ok(header(bytes, limit)?.map(|header| header.frame_length))
}

struct Header {
    /// Of the fixed header: 2 to 5.
    length: usize,
    /// Of the whole packet.
    frame_length: usize,
}

#[inline]
fn header(bytes: &[u8], limit: u32) -> Result<Option<Header>, DecodeError> {
    let Some((&first_byte, rest)) = bytes.split_first() else {
        return Ok(None);
    };
    // Type 0 is forbidden. Said at once: a peer that speaks something else may never send a length.
    let Some(packet) = PacketType::from_first_byte(first_byte) else {
        return Err(DecodeError::UnknownPacketType { first_byte });
    };
    let mut remaining: u32 = 0;
    for (digits, &byte) in (0u32..4).zip(rest) {
        remaining |= u32::from(byte & 0x7F) << (7 * digits);
        if byte & 0x80 != 0 {
            continue;
        }
        if byte == 0 && digits > 0 {
            return Err(DecodeError::NonMinimalLength { packet }); // [MQTT-1.5.5-1]
        }
        let length = 2 + digits;
        let frame_length = remaining + length; // at most 2^28 + 4
        if frame_length > limit {
            return Err(DecodeError::PacketTooLarge {
                packet,
                length: frame_length,
                limit,
            });
        }
        return Ok(Some(Header {
            length: length as usize,
            frame_length: frame_length as usize,
        }));
    }
    if rest.len() >= 4 {
        return Err(DecodeError::OverlongLength { packet });
    }
    Ok(None)
}
