//! How fields lie in the bytes of a record, and what can be wrong with them.
//!
//! Numbers are base-128 varints with the low bits first, in their shortest form; text and byte
//! strings have their length before them as a varint. So there is one way to write each value, and
//! what reads is byte for byte what would be written again.

use unbroken_mqtt_proto::{DecodeError, InvalidQoS, SubscriptionFilter, TopicError};

/// The version in the first byte of every record.
pub(crate) const VERSION: u8 = 1;

/// Why bytes are not a record.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// Made by a version that this one does not know.
    #[error("record version {0}; this one knows up to {VERSION}")]
    Version(u8),
    /// It ends within a field.
    #[error("ends within its {0}")]
    Short(&'static str),
    /// Something follows its end.
    #[error("{0} bytes follow its end")]
    Trailing(usize),
    /// A number that is too large, or not in its shortest form.
    #[error("its {0} is too large or not in its shortest form")]
    Number(&'static str),
    /// Text that is not UTF-8.
    #[error("its {0} is not text")]
    Text(&'static str),
    /// A bit or a value that has no meaning.
    #[error("its {field} has the invalid value {value}")]
    Meaningless {
        /// The field.
        field: &'static str,
        /// Its value.
        value: u64,
    },
    /// The topic or filter is none.
    #[error("its topic is wrong: {0}")]
    Topic(#[from] TopicError),
    /// The filter of a group is not a shared one.
    #[error("its group is not that of a shared subscription")]
    Group,
    /// The QoS is none.
    #[error("its QoS is wrong: {0}")]
    QoS(#[from] InvalidQoS),
    /// The properties are none of a PUBLISH, or of those that are not kept.
    #[error("its properties are wrong: {0}")]
    Properties(#[from] DecodeError),
}

pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Begins behind the version byte.
    pub(crate) fn versioned(bytes: &'a [u8]) -> Result<Self, RecordError> {
        Self::of_version(VERSION, bytes)
    }

    /// The same for a record whose version is another than that of most.
    pub(crate) fn of_version(version: u8, bytes: &'a [u8]) -> Result<Self, RecordError> {
        match bytes.split_first() {
            Some((&found, rest)) if found == version => Ok(Self { rest }),
            Some((&other, _)) => Err(RecordError::Version(other)),
            None => Err(RecordError::Short("version")),
        }
    }

    /// Begins at the first byte.
    pub(crate) const fn plain(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(crate) fn byte(&mut self, field: &'static str) -> Result<u8, RecordError> {
        let (&byte, rest) = self.rest.split_first().ok_or(RecordError::Short(field))?;
        self.rest = rest;
        Ok(byte)
    }

    pub(crate) fn bytes(
        &mut self,
        count: usize,
        field: &'static str,
    ) -> Result<&'a [u8], RecordError> {
        let (bytes, rest) = self
            .rest
            .split_at_checked(count)
            .ok_or(RecordError::Short(field))?;
        self.rest = rest;
        Ok(bytes)
    }

    pub(crate) fn array<const N: usize>(
        &mut self,
        field: &'static str,
    ) -> Result<[u8; N], RecordError> {
        let (array, rest) = self
            .rest
            .split_first_chunk()
            .ok_or(RecordError::Short(field))?;
        self.rest = rest;
        Ok(*array)
    }

    pub(crate) fn number(&mut self, field: &'static str) -> Result<u64, RecordError> {
        let mut value = 0;
        for shift in (0..u64::BITS).step_by(7) {
            let byte = self.byte(field)?;
            let bits = u64::from(byte & 0x7f);
            if bits << shift >> shift != bits {
                break;
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                if byte == 0 && shift > 0 {
                    break;
                }
                return Ok(value);
            }
        }
        Err(RecordError::Number(field))
    }

    pub(crate) fn small<T: TryFrom<u64>>(&mut self, field: &'static str) -> Result<T, RecordError> {
        T::try_from(self.number(field)?).map_err(|_| RecordError::Number(field))
    }

    pub(crate) fn string(&mut self, field: &'static str) -> Result<&'a [u8], RecordError> {
        let count = self.small(field)?;
        self.bytes(count, field)
    }

    pub(crate) fn text(&mut self, field: &'static str) -> Result<&'a str, RecordError> {
        str::from_utf8(self.string(field)?).map_err(|_| RecordError::Text(field))
    }

    /// A shared group, `$share/…`.
    pub(crate) fn group(&mut self) -> Result<&'a str, RecordError> {
        let group = self.text("group")?;
        match SubscriptionFilter::parse(group)? {
            SubscriptionFilter::Shared { .. } => Ok(group),
            SubscriptionFilter::Plain(_) => Err(RecordError::Group),
        }
    }

    pub(crate) const fn len(&self) -> usize {
        self.rest.len()
    }

    pub(crate) fn rest(self) -> &'a [u8] {
        self.rest
    }

    pub(crate) fn end(self) -> Result<(), RecordError> {
        match self.rest.len() {
            0 => Ok(()),
            count => Err(RecordError::Trailing(count)),
        }
    }
}

pub(crate) fn put_number(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    out.push(value.to_le_bytes()[0]);
}

pub(crate) fn put_string(out: &mut Vec<u8>, bytes: &[u8]) {
    put_number(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_reads_as_it_was_written() {
        for value in [0, 1, 127, 128, 16_383, 16_384, u64::MAX - 1, u64::MAX] {
            let mut out = Vec::new();
            put_number(&mut out, value);
            let mut reader = Reader::plain(&out);
            assert_eq!(reader.number("n"), Ok(value));
            assert_eq!(reader.end(), Ok(()));
        }
    }

    #[test]
    fn a_number_in_a_longer_form_is_refused() {
        for bytes in [
            &[0x80, 0x00][..],
            &[0xff, 0x80, 0x00],
            &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02],
            &[0xff; 11],
        ] {
            let read = Reader::plain(bytes).number("n");
            assert_eq!(read, Err(RecordError::Number("n")), "{bytes:x?}");
        }
    }

    #[test]
    fn a_length_beyond_the_end_is_refused_before_anything_is_taken() {
        let read = Reader::plain(&[0xff, 0xff, 0xff, 0xff, 0x0f, 1]).string("s");
        assert_eq!(read, Err(RecordError::Short("s")));
    }
}
