//! What is saved and read back by the same program: big-endian fields with a tag at the end.
//!
//! The form is private: its version changes with the program, and whoever cannot read it begins
//! anew. Reading refuses what does not fit with the place, and allocates in proportion to the
//! input, never by a count alone.

use std::time::Duration;

use crate::reader::Reader;
use crate::{Digest, Hash, Tag};

/// Why bytes are no saved state. A receiver then joins as a late one, a producer begins a new
/// epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StateError {
    /// Written by another version.
    #[error("saved state: version {0}, which this reader does not know")]
    Version(u8),
    /// Changed since it was saved, or saved with another key.
    #[error("saved state: the tag does not fit: damaged, or saved with another key")]
    Tag,
    /// It ends too early, or a field has no meaning.
    #[error("saved state: no {what} at byte {at}")]
    Field {
        /// Which.
        what: &'static str,
        /// Where.
        at: usize,
    },
}

/// Ends what was written from `from` on with a tag over it.
pub(crate) fn seal(digest: &impl Digest, from: usize, out: &mut Vec<u8>) {
    let tag = digest.tag(&[&out[from..]]);
    out.extend_from_slice(&tag.0);
}

/// What stands in front of its tag.
pub(crate) fn check<'a>(digest: &impl Digest, bytes: &'a [u8]) -> Result<&'a [u8], StateError> {
    let (body, tag) = bytes.split_last_chunk().ok_or(StateError::Tag)?;
    if digest.tag(&[body]) == Tag(*tag) {
        return Ok(body);
    }
    Err(StateError::Tag)
}

pub(crate) struct Writer<'a>(pub(crate) &'a mut Vec<u8>);

impl Writer<'_> {
    pub(crate) fn u8(&mut self, value: u8) {
        self.0.push(value);
    }

    pub(crate) fn u16(&mut self, value: u16) {
        self.0.extend_from_slice(&value.to_be_bytes());
    }

    pub(crate) fn u32(&mut self, value: u32) {
        self.0.extend_from_slice(&value.to_be_bytes());
    }

    pub(crate) fn u64(&mut self, value: u64) {
        self.0.extend_from_slice(&value.to_be_bytes());
    }

    pub(crate) fn time(&mut self, time: Duration) {
        self.u64(time.as_secs());
        self.u32(time.subsec_nanos());
    }

    pub(crate) fn hash(&mut self, hash: &Hash) {
        self.u8(u8::try_from(hash.width()).expect("a hash has at most 32 bytes"));
        self.0.extend_from_slice(hash.as_bytes());
    }

    /// Their number, then the bytes; at most 4 GiB.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.u32(u32::try_from(bytes.len()).expect("what is saved is far below 4 GiB"));
        self.0.extend_from_slice(bytes);
    }

    pub(crate) fn option<T>(&mut self, value: Option<&T>, write: impl FnOnce(&mut Self, &T)) {
        self.u8(u8::from(value.is_some()));
        if let Some(value) = value {
            write(self, value);
        }
    }

    pub(crate) fn list<T>(
        &mut self,
        items: impl Iterator<Item = T>,
        mut write: impl FnMut(&mut Self, T),
    ) {
        let count_at = self.0.len();
        self.u32(0);
        let mut count = 0_u32;
        for item in items {
            write(self, item);
            count += 1;
        }
        self.0[count_at..count_at + 4].copy_from_slice(&count.to_be_bytes());
    }
}

pub(crate) struct Fields<'a> {
    reader: Reader<'a>,
    total: usize,
}

impl<'a> Fields<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self {
            reader: Reader::new(bytes),
            total: bytes.len(),
        }
    }

    /// Refuses what is left over.
    pub(crate) fn end(&self) -> Result<(), StateError> {
        if self.reader.rest().is_empty() {
            return Ok(());
        }
        Err(self.refuse("end"))
    }

    /// Bytes behind their number.
    pub(crate) fn bytes(&mut self, what: &'static str) -> Result<&'a [u8], StateError> {
        let length = self.u32(what)?;
        let bytes = usize::try_from(length).ok();
        let bytes = bytes.and_then(|length| self.reader.bytes(length));
        bytes.ok_or_else(|| self.refuse(what))
    }

    pub(crate) fn refuse(&self, what: &'static str) -> StateError {
        let at = self.total - self.reader.rest().len();
        StateError::Field { what, at }
    }

    pub(crate) fn array<const N: usize>(
        &mut self,
        what: &'static str,
    ) -> Result<[u8; N], StateError> {
        let field = self.reader.array();
        field.ok_or_else(|| self.refuse(what))
    }

    pub(crate) fn u8(&mut self, what: &'static str) -> Result<u8, StateError> {
        self.array::<1>(what).map(|[byte]| byte)
    }

    pub(crate) fn bool(&mut self, what: &'static str) -> Result<bool, StateError> {
        match self.u8(what)? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(self.refuse(what)),
        }
    }

    pub(crate) fn u16(&mut self, what: &'static str) -> Result<u16, StateError> {
        self.array(what).map(u16::from_be_bytes)
    }

    pub(crate) fn u32(&mut self, what: &'static str) -> Result<u32, StateError> {
        self.array(what).map(u32::from_be_bytes)
    }

    pub(crate) fn u64(&mut self, what: &'static str) -> Result<u64, StateError> {
        self.array(what).map(u64::from_be_bytes)
    }

    pub(crate) fn time(&mut self, what: &'static str) -> Result<Duration, StateError> {
        let (seconds, nanos) = (self.u64(what)?, self.u32(what)?);
        if nanos >= 1_000_000_000 {
            return Err(self.refuse(what));
        }
        Ok(Duration::new(seconds, nanos))
    }

    pub(crate) fn hash(&mut self, what: &'static str) -> Result<Hash, StateError> {
        let width = self.u8(what)?;
        let bytes = self.reader.bytes(usize::from(width));
        bytes.and_then(Hash::new).ok_or_else(|| self.refuse(what))
    }

    pub(crate) fn option<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, StateError>,
    ) -> Result<Option<T>, StateError> {
        if self.bool("mark of presence")? {
            read(self).map(Some)
        } else {
            Ok(None)
        }
    }

    /// Grows with what is read, never by the count alone.
    pub(crate) fn list<T>(
        &mut self,
        mut read: impl FnMut(&mut Self) -> Result<T, StateError>,
    ) -> Result<Vec<T>, StateError> {
        let count = self.u32("count")?;
        let mut items = Vec::new();
        for _ in 0..count {
            items.push(read(self)?);
        }
        Ok(items)
    }
}
