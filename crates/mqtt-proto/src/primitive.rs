//! The data types that packets are made of, read and written.
//!
//! [`Reader`] is the only place that takes slices of received bytes; everything above it asks for
//! values and gets them or a [`DecodeError`] that names packet and field.

use crate::{
    error::{DecodeError, EncodeError, Field},
    packet::PacketType,
    qos::PacketId,
};

/// The greatest value of a variable byte integer, and so of the remaining length.
pub const MAX_VARINT: u32 = 268_435_455;

/// Received bytes of one packet, consumed from the front.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a> {
    packet: PacketType,
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) const fn new(packet: PacketType, bytes: &'a [u8]) -> Self {
        Self {
            packet,
            rest: bytes,
        }
    }

    /// The packet the bytes are of.
    pub(crate) const fn packet(&self) -> PacketType {
        self.packet
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// All that is left.
    pub(crate) const fn take_rest(&mut self) -> &'a [u8] {
        let rest = self.rest;
        self.rest = &[];
        rest
    }

    /// Says that the packet ends here.
    pub(crate) const fn finish(&self) -> Result<(), DecodeError> {
        match self.rest.len() {
            0 => Ok(()),
            count => Err(DecodeError::TrailingBytes {
                packet: self.packet,
                count,
            }),
        }
    }

    #[inline]
    pub(crate) const fn u8(&mut self, field: Field) -> Result<u8, DecodeError> {
        match self.rest.split_first() {
            Some((&byte, rest)) => {
                self.rest = rest;
                Ok(byte)
            }
            None => Err(self.truncated(field)),
        }
    }

    #[inline]
    pub(crate) fn u16(&mut self, field: Field) -> Result<u16, DecodeError> {
        self.array(field).map(u16::from_be_bytes)
    }

    #[inline]
    pub(crate) fn u32(&mut self, field: Field) -> Result<u32, DecodeError> {
        self.array(field).map(u32::from_be_bytes)
    }

    pub(crate) fn varint(&mut self, field: Field) -> Result<u32, DecodeError> {
        let mut value: u32 = 0;
        for shift in [0, 7, 14, 21] {
            let byte = self.u8(field)?;
            value |= u32::from(byte & 0x7F) << shift;
            if byte & 0x80 == 0 {
                return if byte == 0 && shift > 0 {
                    Err(DecodeError::NonMinimalInteger {
                        packet: self.packet,
                        field,
                    }) // [MQTT-1.5.5-1]
                } else {
                    Ok(value)
                };
            }
        }
        Err(DecodeError::OverlongInteger {
            packet: self.packet,
            field,
        })
    }

    /// Binary data: two bytes of length, then as many bytes.
    #[inline]
    pub(crate) fn binary(&mut self, field: Field) -> Result<&'a [u8], DecodeError> {
        let length = self.u16(field)?;
        self.slice(usize::from(length), field)
    }

    /// A string. A byte order mark is a character like any other and stays.
    ///
    /// [MQTT-1.5.4-3, MQTT311-1.5.3-3]
    #[inline]
    pub(crate) fn string(&mut self, field: Field) -> Result<&'a str, DecodeError> {
        let bytes = self.binary(field)?;
        let packet = self.packet;
        // Refuses surrogates as well. // [MQTT-1.5.4-1, MQTT311-1.5.3-1]
        let text = core::str::from_utf8(bytes)
            .map_err(|_| DecodeError::IllFormedUtf8 { packet, field })?;
        if has_null(bytes) {
            // [MQTT-1.5.4-2, MQTT311-1.5.3-2]
            return Err(DecodeError::NullCharacter { packet, field });
        }
        Ok(text)
    }

    #[inline]
    pub(crate) fn packet_id(&mut self) -> Result<PacketId, DecodeError> {
        let id = self.u16(Field::PacketId)?;
        PacketId::new(id).ok_or(DecodeError::PacketIdZero {
            packet: self.packet,
        }) // [MQTT-2.2.1-3, MQTT311-2.3.1-1]
    }

    #[inline]
    pub(crate) fn slice(&mut self, length: usize, field: Field) -> Result<&'a [u8], DecodeError> {
        let Some((taken, rest)) = self.rest.split_at_checked(length) else {
            return Err(self.truncated(field));
        };
        self.rest = rest;
        Ok(taken)
    }

    #[inline]
    fn array<const N: usize>(&mut self, field: Field) -> Result<[u8; N], DecodeError> {
        let Some((taken, rest)) = self.rest.split_first_chunk::<N>() else {
            return Err(self.truncated(field));
        };
        self.rest = rest;
        Ok(*taken)
    }

    #[cold]
    const fn truncated(&self, field: Field) -> DecodeError {
        DecodeError::Truncated {
            packet: self.packet,
            field,
        }
    }
}

/// Writes `value` in its shortest form and says how many bytes that took; `None` if it is over
/// [`MAX_VARINT`].
///
/// [MQTT-1.5.5-1]
#[inline]
pub(crate) fn varint(value: usize, bytes: &mut [u8; 4]) -> Option<usize> {
    let mut rest = u32::try_from(value).ok()?;
    for (length, byte) in (1..).zip(bytes) {
        *byte = (rest & 0x7F) as u8;
        rest >>= 7;
        if rest == 0 {
            return Some(length);
        }
        *byte |= 0x80;
    }
    None
}

/// Appends `value` in its shortest form.
pub(crate) fn put_varint(out: &mut Vec<u8>, value: usize) -> Result<(), EncodeError> {
    let mut bytes = [0; 4];
    let length = varint(value, &mut bytes).ok_or(EncodeError::IntegerTooLarge { value })?;
    out.extend(bytes.into_iter().take(length));
    Ok(())
}

/// How many bytes [`put_varint`] appends for a value in range.
pub(crate) const fn varint_len(value: usize) -> usize {
    match value {
        0..=0x7F => 1,
        0x80..=0x3FFF => 2,
        0x4000..=0x1F_FFFF => 3,
        _ => 4,
    }
}

/// Appends binary data with its two bytes of length.
#[inline]
pub(crate) fn put_binary(out: &mut Vec<u8>, bytes: &[u8]) -> Result<(), EncodeError> {
    let Ok(length) = u16::try_from(bytes.len()) else {
        return Err(EncodeError::ValueTooLong {
            length: bytes.len(),
        });
    };
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(bytes);
    Ok(())
}

/// One pass that does not stop early: most strings are shorter than what `contains` needs before
/// it begins.
#[inline]
fn has_null(bytes: &[u8]) -> bool {
    let null = |byte: &u8| *byte == 0;
    bytes.iter().fold(false, |found, byte| found | null(byte))
}

/// Appends a string with its two bytes of length.
#[inline]
pub(crate) fn put_string(out: &mut Vec<u8>, text: &str) -> Result<(), EncodeError> {
    if has_null(text.as_bytes()) {
        return Err(EncodeError::NullCharacter); // [MQTT-1.5.4-2]
    }
    put_binary(out, text.as_bytes())
}
