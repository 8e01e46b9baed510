//! What is hashed and how wide: the trait every algorithm implements, hashes and tags.
//!
//! The tree is that of RFC 9162, section 2.1: leaf = H(00 ‖ data), node = H(01 ‖ left ‖ right), cut
//! to the algorithm's width. Algorithms 1 and 2 put a seed or a second key in the place of the
//! byte 01, so that a pair fits one block.
//!
//! Deliberately absent: signatures. A checkpoint of algorithm 3 may be signed beside this crate.

use core::fmt;

use crate::{Epoch, LaneId};

/// Hashes leaves and nodes of a lane's tree, and tags its checkpoints.
///
/// Slices of slices are hashed as if they were one.
pub trait Digest {
    /// Which one this is.
    fn algorithm(&self) -> Algorithm;

    /// H(00 ‖ data), as wide as the algorithm says of leaves.
    fn leaf(&self, data: &[&[u8]]) -> Hash;

    /// H(01 ‖ left ‖ right). The order counts.
    fn node(&self, left: &Hash, right: &Hash) -> Hash;

    /// The root of no leaves: H of nothing, neither leaf nor node.
    fn empty(&self) -> Hash;

    /// What ends a checkpoint: a MAC where the algorithm has a key, a checksum otherwise.
    fn tag(&self, data: &[&[u8]]) -> Tag;
}

/// The digest of a message, which is its leaf: H(00 ‖ epoch ‖ lane ‖ sequence ‖ u32 topic length ‖
/// topic ‖ payload).
///
/// The first three are bytes 4 to 23 of its [`Property`](crate::Property). Flags and part are not
/// covered, nor is anything else that an intermediary may rewrite.
#[inline]
pub fn message_digest(
    digest: &impl Digest,
    lane: LaneId,
    epoch: Epoch,
    sequence: u64,
    topic: &[u8],
    payload: &[u8],
) -> Hash {
    // A longer topic does not exist in any carrier; its bytes are hashed all the same.
    let topic_length = u32::try_from(topic.len()).unwrap_or(u32::MAX);
    let mut head = [0; 24];
    head[..4].copy_from_slice(&epoch.0.to_be_bytes());
    head[4..12].copy_from_slice(&lane.value().to_be_bytes());
    head[12..20].copy_from_slice(&sequence.to_be_bytes());
    head[20..].copy_from_slice(&topic_length.to_be_bytes());
    digest.leaf(&[&head, topic, payload])
}

/// Which hash a lane uses; the number is what properties and checkpoints carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Algorithm {
    /// 1: XXH3-128, 16 bytes. Against accidents only: anyone can make another message that fits.
    Xxh3 = 1,
    /// 2: BLAKE3 with a key, cut to 16 bytes. Against tampering by whoever lacks the key.
    Blake3 = 2,
    /// 3: SHA-256, 32 bytes. The plain RFC 9162 tree, which any transparency log's tool verifies.
    Sha256 = 3,
    /// 8: SHA-1 leaves as hexadecimal text, Adler-32 nodes. For interchange; see
    /// [`Heritage`](crate::Heritage).
    Heritage = 8,
}

impl Algorithm {
    /// Every one there is.
    pub const ALL: [Self; 4] = [Self::Xxh3, Self::Blake3, Self::Sha256, Self::Heritage];

    /// `None` for a number that names none.
    pub fn new(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|known| *known as u8 == number)
    }

    /// Bytes of a hash over `leaves` leaves. Only the heritage has leaves wider than its nodes.
    pub const fn width_over(self, leaves: u64) -> usize {
        match self {
            Self::Xxh3 | Self::Blake3 => 16,
            Self::Sha256 => 32,
            Self::Heritage if leaves == 1 => 20,
            Self::Heritage => 8,
        }
    }

    /// Bytes of a leaf, and so of the digest in a property.
    pub const fn leaf_width(self) -> usize {
        self.width_over(1)
    }

    /// Whether leaves or tags need a key.
    pub const fn is_keyed(self) -> bool {
        matches!(self, Self::Blake3 | Self::Sha256)
    }
}

/// A hash of 1 to 32 bytes: a leaf, a node or a root.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hash {
    /// Left-aligned; zero behind `width`.
    bytes: [u8; Self::MAX_WIDTH],
    width: u8,
}

impl Hash {
    /// The widest.
    pub const MAX_WIDTH: usize = 32;

    /// `None` unless there are 1 to 32 bytes.
    pub fn new(hash: &[u8]) -> Option<Self> {
        let mut bytes = [0; Self::MAX_WIDTH];
        bytes.get_mut(..hash.len())?.copy_from_slice(hash);
        let width = u8::try_from(hash.len()).ok().filter(|width| *width > 0)?;
        Some(Self { bytes, width })
    }

    /// Its bytes, without padding.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.width)]
    }

    /// Left-aligned, zero behind, as roots stand in a checkpoint.
    pub const fn padded(&self) -> &[u8; Self::MAX_WIDTH] {
        &self.bytes
    }

    /// How many bytes.
    pub const fn width(&self) -> usize {
        self.width as usize
    }

    /// The first 4 bytes, by which a checkpoint names a leaf in short.
    pub const fn fingerprint(&self) -> [u8; 4] {
        let [a, b, c, d, ..] = self.bytes;
        [a, b, c, d]
    }

    /// The exclusive or with another of the same width.
    #[inline]
    pub(crate) fn xor(&self, other: &Self) -> Self {
        debug_assert_eq!(self.width, other.width);
        let mut bytes = self.bytes;
        for (byte, other) in bytes.iter_mut().zip(&other.bytes) {
            *byte ^= other;
        }
        Self { bytes, ..*self }
    }

    /// Reads [`Hash::padded`]; `None` if `width` is not 1 to 32 or anything behind it is not zero.
    pub(crate) fn from_padded(bytes: [u8; Self::MAX_WIDTH], width: usize) -> Option<Self> {
        let hash = Self::new(bytes.get(..width)?)?;
        (hash.bytes == bytes).then_some(hash)
    }
}

impl From<[u8; 32]> for Hash {
    fn from(bytes: [u8; 32]) -> Self {
        Self { bytes, width: 32 }
    }
}

impl From<[u8; 16]> for Hash {
    #[inline]
    fn from(hash: [u8; 16]) -> Self {
        let mut bytes = [0; Self::MAX_WIDTH];
        bytes[..16].copy_from_slice(&hash);
        Self { bytes, width: 16 }
    }
}

/// Lower-case hexadecimal.
impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_bytes()
            .iter()
            .try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Hash({self})")
    }
}

/// The 16 bytes that end a checkpoint.
#[derive(Clone, Copy, Debug)]
pub struct Tag(pub [u8; 16]);

/// Takes the same time wherever two tags differ, so that nobody can guess one byte by byte.
impl PartialEq for Tag {
    fn eq(&self, other: &Self) -> bool {
        let widen = |tag: &Self| {
            let mut bytes = [0; 32];
            bytes[..16].copy_from_slice(&tag.0);
            blake3::Hash::from_bytes(bytes)
        };
        widen(self) == widen(other)
    }
}

impl Eq for Tag {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Hasher;

    #[test]
    fn a_hash_has_1_to_32_bytes_and_keeps_them() {
        assert_eq!(Hash::new(&[]), None);
        assert_eq!(Hash::new(&[1; 33]), None);
        for width in 1..=32 {
            let hash = Hash::new(&[7; 32][..width]).expect("the width is allowed");
            assert_eq!(hash.as_bytes(), &[7; 32][..width]);
            assert_eq!(Hash::from_padded(*hash.padded(), width), Some(hash));
            if width > 1 {
                assert_eq!(Hash::from_padded(*hash.padded(), width - 1), None);
            }
        }
        assert_ne!(Hash::new(&[0; 8]), Hash::new(&[0; 9]));
    }

    #[test]
    fn the_digest_of_a_message_covers_every_part_and_the_border_of_topic_and_payload() {
        let lane = LaneId::new(1).expect("1 is a lane");
        let other = LaneId::new(2).expect("2 is a lane");
        let hasher = Hasher::xxh3();
        let of = |lane, epoch, sequence, topic: &str, payload: &str| {
            let (topic, payload) = (topic.as_bytes(), payload.as_bytes());
            message_digest(&hasher, lane, Epoch(epoch), sequence, topic, payload)
        };
        let all = [
            of(lane, 0, 0, "ab", "c"),
            of(lane, 0, 0, "a", "bc"),
            of(lane, 0, 0, "ab", "d"),
            of(lane, 0, 1, "ab", "c"),
            of(lane, 1, 0, "ab", "c"),
            of(other, 0, 0, "ab", "c"),
        ];
        for (i, a) in all.iter().enumerate() {
            assert!(all[i + 1..].iter().all(|b| a != b), "{i}");
        }
    }

    #[test]
    fn tags_differ_by_any_byte() {
        let tag = Tag([9; 16]);
        assert_eq!(tag, Tag([9; 16]));
        for at in 0..16 {
            let mut other = tag;
            other.0[at] ^= 1;
            assert_ne!(tag, other);
        }
    }
}
