//! The heritage's serialised trees (magic `cdaace99`), written and read byte for byte.
//!
//! Big-endian: magic, number of nodes (i32), then every node breadth-first, root first, left before
//! right: type (00 leaf, 01 inner), length (i32), signature. Leaves are any bytes, usually text.
//! The signature of an inner node is the Adler-32 of its children's, as 8 bytes of which the upper
//! four are 0. Levels are paired left to right; an odd last node gets a parent of its own with its
//! own signature, so all leaves lie equally deep.
//!
//! Reading is strict where the heritage's was not: the number of nodes must be that of a tree, no
//! length may exceed the input, types must fit the level, each signature is computed again, nothing
//! may follow. The height is the true one, which the heritage's reader gets wrong by one for about
//! half of all sizes. Reading allocates nothing.
//!
//! Adler-32 does not see one in about five hundred swaps of two neighbours in a pair. Two equal
//! roots say little about order: compare the leaves, since they are there.

use crate::levels::{self, height_of, node_count, width_of};
use crate::{limits::MAX_HERITAGE_LEAVES, reader::Reader};

/// A serialised tree that was read and checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeritageTree<'a> {
    /// Of inner nodes, from the root on.
    nodes: &'a [u8],
    root: &'a [u8],
    leaves: &'a [u8],
    size: u32,
}

/// Why leaves cannot be written, or bytes are not a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeritageError {
    /// A tree has two leaves or more.
    #[error("{0} leaves; a heritage tree has 2 to {MAX_HERITAGE_LEAVES}")]
    Leaves(usize),
    /// A signature's length does not fit its field.
    #[error("leaf {leaf} has {length} bytes; 2^31 - 1 is the most")]
    LongLeaf {
        /// Counted from 0.
        leaf: usize,
        /// Its bytes.
        length: usize,
    },
    /// The input ends within the node, or the header, that begins at `at`.
    #[error("the input ends within what begins at byte {at}")]
    Truncated {
        /// Where it begins.
        at: usize,
    },
    /// Something else.
    #[error("bytes 0 to 3: {0:08x} is not the magic cdaace99 of a heritage tree")]
    Magic(u32),
    /// No tree has so many nodes.
    #[error("bytes 4 to 7: no tree of 2 to {MAX_HERITAGE_LEAVES} leaves has {0} nodes")]
    Nodes(i32),
    /// An inner node among leaves, a leaf among inner nodes, or neither.
    #[error("byte {at}: node of type {found:02x} where one of {expected:02x} belongs")]
    Kind {
        /// Where the node begins.
        at: usize,
        /// 0 for a leaf, 1 for an inner node.
        expected: u8,
        /// What there is.
        found: u8,
    },
    /// A negative length.
    #[error("the node at byte {at} has a signature of {length} bytes")]
    Length {
        /// Where the node begins.
        at: usize,
        /// As read.
        length: i32,
    },
    /// A node that is not the hash of its children.
    #[error("the signature of the node at byte {at} is not that of its children")]
    Signature {
        /// Where the node begins.
        at: usize,
    },
    /// More than a tree.
    #[error("{0} bytes follow the last leaf")]
    Trailing(usize),
}

impl<'a> HeritageTree<'a> {
    /// Writes the tree of these leaves.
    pub fn encode(leaves: &[impl AsRef<[u8]>]) -> Result<Vec<u8>, HeritageError> {
        let mut out = Vec::new();
        Self::encode_into(leaves, &mut out)?;
        Ok(out)
    }

    /// Writes the tree of these leaves in place of what `out` holds, into the memory that it has.
    ///
    /// A tree of a million leaves lies in 14,000 pages, and getting them from the system takes as
    /// long as the writing: who writes many trees does it once.
    pub fn encode_into(
        leaves: &[impl AsRef<[u8]>],
        out: &mut Vec<u8>,
    ) -> Result<(), HeritageError> {
        let size = u32::try_from(leaves.len())
            .ok()
            .filter(|size| is_size(*size));
        let size = size.ok_or(HeritageError::Leaves(leaves.len()))?;
        let lengths = level_lengths(leaves)?;
        // What was there is overwritten, so it need not be made zero first.
        out.resize(HEADER + lengths.iter().sum::<usize>(), 0);
        let (header, above) = out.split_at_mut(HEADER);
        header[..4].copy_from_slice(&MAGIC.to_be_bytes());
        header[4..].copy_from_slice(&node_count(size).to_be_bytes());

        // From the leaves up: each level is the end of what is left above the one below it.
        let (leaf_length, inner_lengths) = lengths.split_first().expect("there are leaves");
        let (mut above, level) = above.split_at_mut(above.len() - leaf_length);
        let mut nodes = Level::above(leaves, &mut Writer(level));
        for length in inner_lengths {
            let (rest, level) = above.split_at_mut(above.len() - length);
            nodes.write(&mut Writer(level));
            nodes.ascend();
            above = rest;
        }
        Ok(())
    }

    /// Reads what [`HeritageTree::encode`] and the heritage itself write, and nothing else.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, HeritageError> {
        let mut header = Reader::new(bytes);
        let short = HeritageError::Truncated { at: 0 };
        let magic = header.u32().ok_or(short)?;
        if magic != MAGIC {
            return Err(HeritageError::Magic(magic));
        }
        let nodes = i32::from_be_bytes(header.array().ok_or(short)?);
        let size = size_of(nodes).ok_or(HeritageError::Nodes(nodes))?;

        // Parents are read a second time while their children are read for the first.
        let nodes = header.rest();
        let mut parents = Checked::new(bytes, nodes);
        let mut children = parents;
        let root = children.node(INNER)?.signature;
        let mut leaves = children.rest.rest();
        for level in (0..height_of(size)).rev() {
            let count = width_of(size, level);
            let kind = if level == 0 { LEAF } else { INNER };
            leaves = children.rest.rest();
            for _ in 0..count / 2 {
                let parent = parents.node(INNER)?;
                let (left, right) = (children.node(kind)?, children.node(kind)?);
                parent.check(&pair_signature(left.signature, right.signature))?;
            }
            if count % 2 == 1 {
                parents.node(INNER)?.check(children.node(kind)?.signature)?;
            }
        }
        match children.rest.rest().len() {
            0 => Ok(Self {
                nodes,
                root,
                leaves,
                size,
            }),
            more => Err(HeritageError::Trailing(more)),
        }
    }

    /// The root's signature.
    pub const fn root(&self) -> &'a [u8] {
        self.root
    }

    /// How many leaves.
    pub const fn size(&self) -> u32 {
        self.size
    }

    /// Levels above the leaves.
    pub const fn height(&self) -> u32 {
        height_of(self.size)
    }

    /// The leaves' signatures in order.
    pub fn leaves(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        Nodes::new(self.leaves)
    }

    /// The signature of a node by its place in its level, from the left; level 0 is the leaves'.
    /// `None` where no node is.
    pub fn node(&self, level: u32, index: u32) -> Option<&'a [u8]> {
        if level == 0 {
            return self.leaves().nth(index as usize);
        }
        if level > self.height() || index >= width_of(self.size, level) {
            return None;
        }
        let mut nodes = self.nodes;
        for above in (level + 1..=self.height()).rev() {
            nodes = Nodes::from(nodes, width_of(self.size, above) - 1).last_of_level()?;
        }
        Nodes::from(nodes, index).next()
    }
}

/// Adler-32 (RFC 1950) of `left` followed by `right`.
pub(crate) fn adler32(left: &[u8], right: &[u8]) -> u32 {
    Sums::of(left).then(&Sums::of(right))
}

const MODULUS: u32 = 65_521;

/// What Adler-32 needs of some bytes: their sum, and the sum of all sums from their beginning to
/// each of them, both modulo 65,521.
#[derive(Clone, Copy)]
struct Sums {
    length: u64,
    low: u32,
    high: u32,
}

impl Sums {
    fn of(bytes: &[u8]) -> Self {
        /// The longest run whose sums fit 32 bits.
        const RUN: usize = 5552;
        let (mut low, mut high) = (0_u32, 0_u32);
        for run in bytes.chunks(RUN) {
            let (groups, rest) = run.as_chunks::<8>();
            for group in groups {
                let (sum, sums) = sums_of_8(*group);
                high += 8 * low + sums;
                low += sum;
            }
            for byte in rest {
                low += u32::from(*byte);
                high += low;
            }
            low %= MODULUS;
            high %= MODULUS;
        }
        let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        Self { length, low, high }
    }

    /// Those of an inner node's signature: eight bytes, of which the upper four are 0.
    #[inline]
    fn of_signature(signature: u32) -> Self {
        let [a, b, c, d] = signature.to_be_bytes().map(u32::from);
        Self {
            length: 8,
            low: a + b + c + d,
            high: 4 * a + 3 * b + 2 * c + d,
        }
    }

    /// Adler-32 of these bytes followed by those.
    #[inline]
    fn then(&self, right: &Self) -> u32 {
        let modulus = u64::from(MODULUS);
        let low = (1 + self.low + right.low) % MODULUS;
        // Each byte counts once for every byte from it on, and so does the 1 in front.
        let ahead = right.length % modulus * u64::from(self.low);
        let ones = (self.length + right.length) % modulus;
        let high = (ones + ahead + u64::from(self.high) + u64::from(right.high)) % modulus;
        u32::try_from(high << 16).expect("it is below 2^32") | low
    }
}

/// The sum of eight bytes, and the sum of their sums so far: eight times the first, seven times the
/// second, to once the last. They stand in the four lanes of two words, and a product's top lane
/// is a sum of products of lanes, none of which reaches 2^16.
#[inline]
fn sums_of_8(bytes: [u8; 8]) -> (u32, u32) {
    const LANES: u64 = 0x00ff_00ff_00ff_00ff;
    let top = |product: u64| (product >> 48) as u32;
    let word = u64::from_le_bytes(bytes);
    let (even, odd) = (word & LANES, word >> 8 & LANES);
    let sum = top((even + odd).wrapping_mul(0x0001_0001_0001_0001));
    let of_even = top(even.wrapping_mul(0x0008_0006_0004_0002));
    let of_odd = top(odd.wrapping_mul(0x0007_0005_0003_0001));
    (sum, of_even + of_odd)
}

/// A level of inner nodes while a tree is written.
///
/// Building is bound by memory: 58 bytes a leaf are written. So leaves are read once, when they
/// are written, and above them only the four bytes of a signature that are not 0 are kept. Tried
/// and lost: levels that are read back from what was written, Adler-32 over the bytes of both
/// children (its sums of one child serve as well).
struct Level<'a> {
    signatures: Vec<u32>,
    /// The last node, while it has the signature of a leaf, since no level below had a pair for
    /// it.
    last: Option<&'a [u8]>,
}

impl<'a> Level<'a> {
    /// Writes the leaves; returns the level above them.
    fn above(leaves: &'a [impl AsRef<[u8]>], writer: &mut Writer<'_>) -> Self {
        let mut signatures = Vec::with_capacity(leaves.len() / 2);
        let (pairs, last) = leaves.as_chunks::<2>();
        for [left, right] in pairs {
            let (left, right) = (left.as_ref(), right.as_ref());
            writer.put(LEAF, left);
            writer.put(LEAF, right);
            signatures.push(adler32(left, right));
        }
        let last = last.first().map(AsRef::as_ref);
        if let Some(last) = last {
            writer.put(LEAF, last);
        }
        Self { signatures, last }
    }

    fn write(&self, writer: &mut Writer<'_>) {
        for signature in &self.signatures {
            writer.put(INNER, &u64::from(*signature).to_be_bytes());
        }
        if let Some(last) = self.last {
            writer.put(INNER, last);
        }
    }

    /// Becomes the level above.
    fn ascend(&mut self) {
        let count = self.signatures.len();
        for pair in 0..count / 2 {
            let left = Sums::of_signature(self.signatures[2 * pair]);
            let right = Sums::of_signature(self.signatures[2 * pair + 1]);
            self.signatures[pair] = left.then(&right);
        }
        if count % 2 == 1 {
            let odd = self.signatures[count - 1];
            // A leaf that had no pair so far has one now.
            self.signatures[count / 2] = match self.last.take() {
                Some(last) => Sums::of_signature(odd).then(&Sums::of(last)),
                None => odd,
            };
        }
        self.signatures.truncate(count.div_ceil(2));
    }
}

const MAGIC: u32 = 0xcdaa_ce99;
/// Bytes of magic and number of nodes.
const HEADER: usize = 8;
/// Bytes of a node in front of its signature.
const NODE: usize = 5;
/// Bytes of an inner node's signature, unless it is that of its only child.
const SIGNATURE: usize = 8;
const MIN_LEAVES: u32 = 2;
const LEAF: u8 = 0;
const INNER: u8 = 1;

fn pair_signature(left: &[u8], right: &[u8]) -> [u8; 8] {
    u64::from(adler32(left, right)).to_be_bytes()
}

fn is_size(leaves: u32) -> bool {
    (MIN_LEAVES..=MAX_HERITAGE_LEAVES).contains(&leaves)
}

/// How many leaves a tree of so many nodes has.
fn size_of(nodes: i32) -> Option<u32> {
    let nodes = u32::try_from(nodes).ok()?;
    levels::size_of(nodes, MIN_LEAVES, MAX_HERITAGE_LEAVES)
}

/// Bytes of each level, the leaves' first. Above them all signatures have 8 bytes, but for the last
/// of a level, which may be that of a leaf.
fn level_lengths(leaves: &[impl AsRef<[u8]>]) -> Result<Vec<usize>, HeritageError> {
    let mut lengths = vec![0];
    let mut last = 0;
    for (leaf, signature) in leaves.iter().enumerate() {
        last = signature.as_ref().len();
        if i32::try_from(last).is_err() {
            return Err(HeritageError::LongLeaf { leaf, length: last });
        }
        lengths[0] += NODE + last;
    }
    let mut count = leaves.len();
    while count > 1 {
        last = if count % 2 == 1 { last } else { SIGNATURE };
        count = count.div_ceil(2);
        lengths.push((count - 1) * (NODE + SIGNATURE) + NODE + last);
    }
    Ok(lengths)
}

/// Writes nodes one after the other.
struct Writer<'a>(&'a mut [u8]);

impl Writer<'_> {
    fn put(&mut self, kind: u8, signature: &[u8]) {
        let node = core::mem::take(&mut self.0);
        let (node, rest) = node.split_at_mut(NODE + signature.len());
        let length = u32::try_from(signature.len()).expect("level_lengths has checked it");
        node[0] = kind;
        node[1..NODE].copy_from_slice(&length.to_be_bytes());
        node[NODE..].copy_from_slice(signature);
        self.0 = rest;
    }
}

/// Signatures of nodes that are known to be whole.
struct Nodes<'a>(Reader<'a>);

impl<'a> Nodes<'a> {
    const fn new(nodes: &'a [u8]) -> Self {
        Self(Reader::new(nodes))
    }

    /// From this place on of a level of inner nodes: of all before the last, the signature has
    /// eight bytes.
    fn from(level: &'a [u8], index: u32) -> Self {
        let at = index as usize * (NODE + SIGNATURE);
        Self::new(level.get(at..).unwrap_or_default())
    }

    /// Reads the last node of a level; returns the level below.
    fn last_of_level(mut self) -> Option<&'a [u8]> {
        self.next()?;
        Some(self.0.rest())
    }
}

impl<'a> Iterator for Nodes<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<Self::Item> {
        let [_kind, length @ ..] = self.0.array::<NODE>()?;
        self.0.bytes(u32::from_be_bytes(length) as usize)
    }
}

/// Nodes of which nothing is known.
#[derive(Clone, Copy)]
struct Checked<'a> {
    rest: Reader<'a>,
    /// Of the whole input.
    length: usize,
}

struct Node<'a> {
    at: usize,
    signature: &'a [u8],
}

impl<'a> Checked<'a> {
    const fn new(input: &[u8], nodes: &'a [u8]) -> Self {
        Self {
            rest: Reader::new(nodes),
            length: input.len(),
        }
    }

    fn node(&mut self, expected: u8) -> Result<Node<'a>, HeritageError> {
        let at = self.length - self.rest.rest().len();
        let short = HeritageError::Truncated { at };
        let found = self.rest.u8().ok_or(short)?;
        if found != expected {
            return Err(HeritageError::Kind {
                at,
                expected,
                found,
            });
        }
        let length = i32::from_be_bytes(self.rest.array().ok_or(short)?);
        let bytes = usize::try_from(length).map_err(|_| HeritageError::Length { at, length })?;
        let signature = self.rest.bytes(bytes).ok_or(short)?;
        Ok(Node { at, signature })
    }
}

impl Node<'_> {
    fn check(&self, expected: &[u8]) -> Result<(), HeritageError> {
        if self.signature == expected {
            return Ok(());
        }
        Err(HeritageError::Signature { at: self.at })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adler32_is_that_of_rfc_1950() {
        assert_eq!(adler32(b"Wiki", b"pedia"), 0x11e6_0398);
        assert_eq!(adler32(b"", b""), 1);
        // Long runs of the largest bytes, where sums come nearest to overflow.
        for length in [5551, 5552, 5553, 11_104, 100_000] {
            let long = vec![255_u8; length];
            let (low, high) = long.iter().fold((1_u64, 0_u64), |(low, high), byte| {
                let low = (low + u64::from(*byte)) % 65_521;
                (low, (high + low) % 65_521)
            });
            assert_eq!(u64::from(adler32(&long, &[])), high << 16 | low);
            assert_eq!(adler32(&long[..9], &long[9..]), adler32(&long, &[]));
        }
    }

    #[test]
    fn only_a_number_of_nodes_that_is_one_is_read() {
        assert_eq!(size_of(3), Some(2));
        for none in [i32::MIN, -5, 0, 1, 2, 4, i32::MAX] {
            assert_eq!(size_of(none), None, "{none}");
        }
    }
}
