//! Hashes of one width, without the room that the widest would take.

use crate::Hash;

/// A list of hashes. The first one sets the width that all of them have.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct HashList {
    width: u8,
    bytes: Vec<u8>,
}

impl HashList {
    /// These, with no room left over; `None` unless all have one width.
    pub(crate) fn of<'a>(hashes: impl ExactSizeIterator<Item = &'a Hash>) -> Option<Self> {
        let mut list = Self::default();
        let count = hashes.len();
        for hash in hashes {
            if !list.takes(hash) {
                return None;
            }
            if list.bytes.is_empty() {
                list.reserve(count, hash);
            }
            list.push(hash);
        }
        Some(list)
    }

    /// Makes room for so many hashes as wide as this one, and no more.
    pub(crate) fn reserve(&mut self, count: usize, hash: &Hash) {
        self.bytes.reserve_exact(count * hash.width());
    }

    /// Whether the list can take a hash of this width.
    #[inline]
    pub(crate) fn takes(&self, hash: &Hash) -> bool {
        self.bytes.is_empty() || hash.width() == usize::from(self.width)
    }

    /// Appends a hash that the list takes.
    #[inline]
    pub(crate) fn push(&mut self, hash: &Hash) {
        debug_assert!(self.takes(hash), "another width");
        self.width = u8::try_from(hash.width()).expect("a hash has at most 32 bytes");
        self.bytes.extend_from_slice(hash.as_bytes());
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len().checked_div(self.width()).unwrap_or(0)
    }

    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = Hash> {
        let hashes = self.bytes.chunks_exact(self.width().max(1));
        hashes.map(|hash| Hash::new(hash).expect("1 to 32 bytes were put in"))
    }

    /// Bytes on the heap.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.bytes.capacity()
    }

    fn width(&self) -> usize {
        usize::from(self.width)
    }
}
