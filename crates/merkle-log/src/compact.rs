//! Compact ranges: the hash of any run of leaves in O(log n) memory.
//!
//! A range [begin, end) is held as the roots of the largest perfect subtrees that fill it, left to
//! right. A range that begins at 0 is the list of peaks of an RFC 9162 tree: one hash for each bit
//! that is set in its size. Neighbouring ranges merge, so a run can be hashed in pieces, by
//! different processes, in any order.
//!
//! Invariants: the subtrees are a function of `begin` and `end` alone, so the same leaves give the
//! same range whichever way it was put together; at most two hashes a level.

use core::iter;

use crate::{Algorithm, Digest, Hash, limits::MAX_SIZE, reader::Reader};

/// The leaves [begin, end), as O(log n) hashes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompactRange {
    begin: u64,
    end: u64,
    hashes: Vec<Hash>,
}

/// Why ranges cannot be joined or read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RangeError {
    /// The second range does not begin where the first ends.
    #[error("a range that begins at leaf {begin} cannot follow one that ends before leaf {end}")]
    NotAdjacent {
        /// Where the first ends.
        end: u64,
        /// Where the second begins.
        begin: u64,
    },
    /// A subtree can only stand at a multiple of its leaves.
    #[error("a subtree of 2^{level} leaves cannot begin at leaf {at}: not a multiple of its size")]
    Unaligned {
        /// Its height.
        level: u32,
        /// Where it was to begin.
        at: u64,
    },
    /// The end lies before the beginning, or beyond [`MAX_SIZE`].
    #[error(
        "leaves {begin} to {end} are not a range: it ends at 2^63 at most, and not before it begins"
    )]
    Bounds {
        /// As given.
        begin: u64,
        /// As given.
        end: u64,
    },
    /// The bytes are not as long as the range's bounds say.
    #[error("a range of these bounds takes {expected} bytes, there are {found}")]
    Length {
        /// What `begin` and `end` call for.
        expected: usize,
        /// What there is.
        found: usize,
    },
}

impl CompactRange {
    /// The range of no leaves before leaf `begin`.
    pub const fn new(begin: u64) -> Self {
        let hashes = Vec::new();
        let end = begin;
        Self { begin, end, hashes }
    }

    /// The index of its first leaf.
    pub const fn begin(&self) -> u64 {
        self.begin
    }

    /// The index after its last leaf. For a range that begins at 0 this is the size of the tree.
    pub const fn end(&self) -> u64 {
        self.end
    }

    /// How many leaves.
    pub const fn len(&self) -> u64 {
        self.end - self.begin
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.begin == self.end
    }

    /// Roots of the subtrees, left to right.
    pub fn hashes(&self) -> &[Hash] {
        &self.hashes
    }

    /// The subtrees, left to right, as (level, index, root): one of level l and index i covers the
    /// leaves from i·2^l to (i + 1)·2^l − 1.
    pub fn subtrees(&self) -> impl Iterator<Item = (u32, u64, Hash)> {
        let places = subtrees(self.begin, self.end);
        places
            .zip(&self.hashes)
            .map(|((level, index), hash)| (level, index, *hash))
    }

    /// Adds the leaf with index [`CompactRange::end`]. Costs one node hash on average.
    #[inline]
    pub fn append(&mut self, digest: &impl Digest, leaf: Hash) {
        self.push(digest, 0, leaf);
    }

    /// Adds the 2^`level` leaves from [`CompactRange::end`] on, of which only the root is known:
    /// another's window, in place of one's own that has holes.
    pub fn append_subtree(
        &mut self,
        digest: &impl Digest,
        level: u32,
        root: Hash,
    ) -> Result<(), RangeError> {
        let (begin, at) = (self.begin, self.end);
        if at.trailing_zeros() < level {
            return Err(RangeError::Unaligned { level, at });
        }
        let leaves = 1_u64.checked_shl(level).unwrap_or(u64::MAX);
        check_bounds(begin, at.saturating_add(leaves))?;
        self.push(digest, level, root);
        Ok(())
    }

    /// Adds all leaves of `next`, which begins where this ends. Costs O(log n).
    pub fn merge(&mut self, digest: &impl Digest, next: &Self) -> Result<(), RangeError> {
        let (end, begin) = (self.end, next.begin);
        if end != begin {
            return Err(RangeError::NotAdjacent { end, begin });
        }
        for ((level, _), hash) in subtrees(next.begin, next.end).zip(&next.hashes) {
            self.push(digest, level, *hash);
        }
        Ok(())
    }

    /// The RFC 9162 hash of the leaves, as if they were a tree of their own.
    ///
    /// `None` for a range that straddles the border of the subtree it begins: those have no such
    /// hash within the tree. Ranges from 0 and windows always have one.
    pub fn root(&self, digest: &impl Digest) -> Option<Hash> {
        let room = 1_u64.checked_shl(self.begin.trailing_zeros());
        if room.is_some_and(|room| self.len() > room) {
            return None;
        }
        let nodes = self.hashes.iter().rev().copied();
        let root = nodes.reduce(|right, left| digest.node(&left, &right));
        Some(root.unwrap_or_else(|| digest.empty()))
    }

    /// Writes begin and end (8 bytes each, big-endian), then the hashes, left to right.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.begin.to_be_bytes());
        out.extend_from_slice(&self.end.to_be_bytes());
        for hash in &self.hashes {
            out.extend_from_slice(hash.as_bytes());
        }
    }

    /// Reads what [`CompactRange::encode`] writes, and nothing else.
    pub fn parse(algorithm: Algorithm, bytes: &[u8]) -> Result<Self, RangeError> {
        let length = |expected| RangeError::Length {
            expected,
            found: bytes.len(),
        };
        let mut reader = Reader::new(bytes);
        let begin = reader.u64().ok_or(length(16))?;
        let end = reader.u64().ok_or(length(16))?;
        check_bounds(begin, end)?;
        let width = |(level, _): (u32, u64)| algorithm.width_over(1_u64 << level);
        let expected = 16 + subtrees(begin, end).map(width).sum::<usize>();
        if bytes.len() != expected {
            return Err(length(expected));
        }
        let hashes = subtrees(begin, end)
            .map_while(|subtree| reader.bytes(width(subtree)).and_then(Hash::new))
            .collect();
        Ok(Self { begin, end, hashes })
    }

    /// Of the range's subtrees, as [`subtrees`] tells them.
    pub(crate) fn from_subtrees(begin: u64, end: u64, hashes: Vec<Hash>) -> Self {
        debug_assert_eq!(hashes.len(), subtrees(begin, end).count());
        Self { begin, end, hashes }
    }

    /// Adds a subtree, whose place is a multiple of its size. As long as its left sibling is in the
    /// range, that one is the last of the list, and the two become their parent.
    #[inline]
    fn push(&mut self, digest: &impl Digest, mut level: u32, mut node: Hash) {
        let mut index = self.end >> level;
        self.end += 1 << level;
        while index & 1 == 1 && (index - 1) << level >= self.begin {
            let Some(left) = self.hashes.pop() else { break };
            node = digest.node(&left, &node);
            index >>= 1;
            level += 1;
        }
        self.hashes.push(node);
    }
}

/// The largest perfect subtrees that fill [begin, end), left to right, as (level, index). A subtree
/// of level l and index i covers the leaves from i·2^l to (i + 1)·2^l − 1.
pub(crate) fn subtrees(begin: u64, end: u64) -> impl Iterator<Item = (u32, u64)> {
    let mut at = begin;
    iter::from_fn(move || {
        let level = (end - at).checked_ilog2()?.min(at.trailing_zeros());
        let subtree = (level, at >> level);
        at += 1 << level;
        Some(subtree)
    })
}

fn check_bounds(begin: u64, end: u64) -> Result<(), RangeError> {
    if begin <= end && end <= MAX_SIZE {
        return Ok(());
    }
    Err(RangeError::Bounds { begin, end })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Hasher, Key, Xxh3};

    fn leaf(index: u64) -> Hash {
        Xxh3.leaf(&[&index.to_be_bytes()])
    }

    fn range(begin: u64, end: u64) -> CompactRange {
        let mut range = CompactRange::new(begin);
        (begin..end).for_each(|index| range.append(&Xxh3, leaf(index)));
        range
    }

    /// The definition of RFC 9162, section 2.1.1, word for word.
    fn naive(leaves: &[Hash]) -> Hash {
        match leaves {
            [] => Xxh3.empty(),
            [leaf] => *leaf,
            _ => {
                let half = leaves.len().next_power_of_two() / 2;
                let (left, right) = leaves.split_at(half);
                Xxh3.node(&naive(left), &naive(right))
            }
        }
    }

    #[test]
    fn roots_are_those_of_the_definition_wherever_a_window_may_begin() {
        for begin in [0, 32, 64, 96, 128] {
            for length in 0..=32 {
                let leaves: Vec<_> = (begin..begin + length).map(leaf).collect();
                let root = range(begin, begin + length).root(&Xxh3);
                assert_eq!(root, Some(naive(&leaves)), "{begin} {length}");
            }
        }
    }

    #[test]
    fn a_range_that_straddles_has_no_root() {
        assert_eq!(range(3, 5).root(&Xxh3), None);
        assert_eq!(range(4, 9).root(&Xxh3), None);
        assert!(range(4, 8).root(&Xxh3).is_some());
    }

    #[test]
    fn every_way_to_put_a_range_together_gives_the_same() {
        for begin in 0..20 {
            for end in begin..40 {
                let whole = range(begin, end);
                assert_eq!(whole.hashes().len(), subtrees(begin, end).count());
                for middle in begin..=end {
                    let mut merged = range(begin, middle);
                    merged
                        .merge(&Xxh3, &range(middle, end))
                        .expect("they are adjacent");
                    assert_eq!(merged, whole, "{begin} {middle} {end}");
                }
            }
        }
        let mut first = range(0, 3);
        let expect = RangeError::NotAdjacent { end: 3, begin: 4 };
        assert_eq!(first.merge(&Xxh3, &range(4, 5)), Err(expect));
        assert_eq!(first, range(0, 3));
    }

    #[test]
    fn the_root_of_a_window_stands_in_for_its_leaves() {
        let mut lane = range(0, 8);
        let window = range(8, 16).root(&Xxh3).expect("it is aligned");
        lane.append_subtree(&Xxh3, 3, window)
            .expect("8 is a multiple of 8");
        assert_eq!(lane, range(0, 16));
        let at = 17;
        lane.append(&Xxh3, leaf(16));
        let refused = lane.append_subtree(&Xxh3, 1, window);
        assert_eq!(refused, Err(RangeError::Unaligned { level: 1, at }));
        let mut empty = CompactRange::new(0);
        assert!(empty.append_subtree(&Xxh3, 64, window).is_err());
        assert!(empty.append_subtree(&Xxh3, 63, window).is_ok());
        assert!(empty.append_subtree(&Xxh3, 63, window).is_err());
    }

    #[test]
    fn a_thousand_neighbours_take_at_most_20_hashes() {
        let most = (0..2048).map(|begin| subtrees(begin, begin + 1000).count());
        assert!(most.max() <= Some(20));
    }

    #[test]
    fn bytes_are_read_back_the_same_and_nothing_else_is_read() {
        for algorithm in Algorithm::ALL {
            let hasher = Hasher::new(algorithm, Some(&Key([1; 32]))).expect("there is a key");
            for (begin, end) in [(0, 0), (0, 1), (5, 5), (1, 12), (7, 1000)] {
                let mut range = CompactRange::new(begin);
                (begin..end).for_each(|i| {
                    range.append(&hasher, hasher.leaf(&[&i.to_be_bytes()]));
                });
                let mut bytes = Vec::new();
                range.encode(&mut bytes);
                assert_eq!(CompactRange::parse(algorithm, &bytes), Ok(range));
                for cut in 0..bytes.len() {
                    assert!(CompactRange::parse(algorithm, &bytes[..cut]).is_err());
                }
                bytes.push(0);
                assert!(CompactRange::parse(algorithm, &bytes).is_err());
            }
        }
        let bounds = |begin: u64, end: u64| {
            let bytes = [begin.to_be_bytes(), end.to_be_bytes()].concat();
            CompactRange::parse(Algorithm::Xxh3, &bytes)
        };
        assert_eq!(bounds(2, 1), Err(RangeError::Bounds { begin: 2, end: 1 }));
        assert!(matches!(
            bounds(0, u64::MAX),
            Err(RangeError::Bounds { .. })
        ));
        assert!(matches!(
            bounds(0, MAX_SIZE),
            Err(RangeError::Length { expected: 32, .. })
        ));
        assert!(bounds(MAX_SIZE, MAX_SIZE).is_ok());
    }
}
