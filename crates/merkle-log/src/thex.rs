//! Tiger trees, for interchange with those who name files by their roots (THEX).
//!
//! Blocks of 1,024 bytes; leaf = Tiger(00 ‖ block), node = Tiger(01 ‖ left ‖ right), an odd last
//! node rises as it is. No bytes are one empty block. As text a root is 39 characters of base32.
//!
//! A serialised tree is every digest breadth-first, root first, left before right, and nothing
//! else; a node that rises stands in each level that it passes. Reading is strict: the number of
//! digests must be that of a tree, and each inner one is computed again. Upper levels alone are the
//! tree of larger segments with the same root, so a tree that was cut behind a level is read as
//! that.
//!
//! Deliberately absent: THEX's container around a serialised tree (DIME and XML).

use core::fmt;

use tiger::{Digest as _, Tiger};

use crate::levels::{height_of, node_count, size_of, width_of};
use crate::limits::MAX_THEX_LEAVES;

/// Hashes bytes as they come, in O(log n) memory.
#[derive(Clone, Debug, Default)]
pub struct TigerTree {
    /// Roots of complete subtrees, as many as there are bits set in `blocks`.
    peaks: Vec<TigerRoot>,
    /// Complete blocks so far.
    blocks: u64,
    /// The block that is being filled, never full.
    block: Vec<u8>,
}

/// The root of a Tiger tree.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TigerRoot(pub [u8; 24]);

/// Text that is not a root.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TigerRootError {
    /// Too short or too long.
    #[error("a Tiger tree root has 39 characters of base32, this one has {0} bytes")]
    Length(usize),
    /// Not base32, or a last character with bits that belong to no byte.
    #[error("character {at} of a Tiger tree root must not be {found:?} there")]
    Character {
        /// Counted from 0.
        at: usize,
        /// What there is.
        found: char,
    },
}

/// A serialised tree that was read and checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThexTree<'a> {
    /// From the root on.
    nodes: &'a [[u8; 24]],
    size: u32,
}

/// Why leaves cannot be written, or bytes are not a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ThexError {
    /// None, or too many.
    #[error("{0} leaves; a THEX tree has 1 to {MAX_THEX_LEAVES}")]
    Leaves(usize),
    /// The input ends within a digest.
    #[error("{0} bytes; a THEX tree is digests of 24 bytes each")]
    Length(usize),
    /// No tree has so many nodes.
    #[error("no tree of 1 to {MAX_THEX_LEAVES} leaves has {0} digests")]
    Nodes(usize),
    /// A node that is not the hash of its children.
    #[error("the digest at byte {at} is not that of its children")]
    Node {
        /// Where it begins.
        at: usize,
    },
}

impl<'a> ThexTree<'a> {
    /// Writes the tree of these leaves.
    pub fn encode(leaves: &[TigerRoot]) -> Result<Vec<u8>, ThexError> {
        let size = u32::try_from(leaves.len())
            .ok()
            .filter(|size| (1..=MAX_THEX_LEAVES).contains(size));
        let size = size.ok_or(ThexError::Leaves(leaves.len()))?;
        let mut nodes = vec![[0; 24]; node_count(size) as usize];
        let mut begin = nodes.len() - leaves.len();
        for (node, leaf) in nodes[begin..].iter_mut().zip(leaves) {
            *node = leaf.0;
        }
        // From the leaves up: each level lies in front of the one below it.
        for level in 1..=height_of(size) {
            let (above, below) = nodes.split_at_mut(begin);
            begin -= width_of(size, level) as usize;
            let children = &below[..width_of(size, level - 1) as usize];
            for (node, children) in above[begin..].iter_mut().zip(children.chunks(2)) {
                *node = parent(children);
            }
        }
        Ok(nodes.into_flattened())
    }

    /// Reads what [`ThexTree::encode`] writes, and nothing else.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, ThexError> {
        let (nodes, rest) = bytes.as_chunks();
        if !rest.is_empty() {
            return Err(ThexError::Length(bytes.len()));
        }
        let count = u32::try_from(nodes.len()).ok();
        let size = count.and_then(|count| size_of(count, 1, MAX_THEX_LEAVES));
        let size = size.ok_or(ThexError::Nodes(nodes.len()))?;
        let tree = Self { nodes, size };
        for level in (1..=tree.height()).rev() {
            let families = tree
                .level(level)
                .iter()
                .zip(tree.level(level - 1).chunks(2));
            for (index, (node, children)) in families.enumerate() {
                if *node != parent(children) {
                    let at = (tree.begin(level) + index) * size_of_val(node);
                    return Err(ThexError::Node { at });
                }
            }
        }
        Ok(tree)
    }

    /// The root.
    pub fn root(&self) -> TigerRoot {
        TigerRoot(self.nodes[0])
    }

    /// How many leaves.
    pub const fn size(&self) -> u32 {
        self.size
    }

    /// Levels above the leaves.
    pub const fn height(&self) -> u32 {
        height_of(self.size)
    }

    /// The leaves in order.
    pub fn leaves(&self) -> impl Iterator<Item = TigerRoot> + use<'a> {
        self.level(0).iter().map(|leaf| TigerRoot(*leaf))
    }

    /// A node by its place in its level, from the left; level 0 is the leaves'. `None` where no
    /// node is.
    pub fn node(&self, level: u32, index: u32) -> Option<&'a [u8; 24]> {
        let is_level = level <= self.height();
        is_level.then(|| self.level(level).get(index as usize))?
    }

    fn level(&self, level: u32) -> &'a [[u8; 24]] {
        let begin = self.begin(level);
        &self.nodes[begin..begin + width_of(self.size, level) as usize]
    }

    /// The place of a level's first node among all nodes.
    fn begin(&self, level: u32) -> usize {
        let above = level + 1..=self.height();
        above.map(|above| width_of(self.size, above) as usize).sum()
    }
}

impl TigerTree {
    /// Bytes of a block.
    pub const BLOCK: usize = 1024;

    /// Over no bytes yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds bytes at the end, in pieces of any size.
    pub fn update(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let room = Self::BLOCK - self.block.len();
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            self.block.extend_from_slice(now);
            if self.block.len() == Self::BLOCK {
                self.close_block();
            }
            bytes = later;
        }
    }

    /// The root of all bytes.
    pub fn finish(mut self) -> TigerRoot {
        if !self.block.is_empty() || self.blocks == 0 {
            self.close_block();
        }
        let peaks = self.peaks.into_iter().rev();
        peaks
            .reduce(|right, left| node(left, right))
            .expect("there is a block, were it an empty one")
    }

    /// Takes the block as the next leaf. A peak of 2^k blocks stands for bit k of the count, so
    /// each bit that the addition carries joins two.
    fn close_block(&mut self) {
        let mut root = TigerRoot::of_block(&self.block);
        self.block.clear();
        for _ in 0..self.blocks.trailing_ones() {
            let left = self.peaks.pop().expect("a peak stands for each bit");
            root = node(left, root);
        }
        self.blocks += 1;
        self.peaks.push(root);
    }
}

impl TigerRoot {
    const ALPHABET: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
    /// 192 bits, five a character.
    const TEXT: usize = 39;

    /// The root of one block: a leaf.
    pub fn of_block(block: &[u8]) -> Self {
        hash(&[&[0], block])
    }

    /// Reads what its `Display` writes, and nothing else: upper case, no padding.
    pub fn parse(text: &str) -> Result<Self, TigerRootError> {
        if text.len() != Self::TEXT {
            return Err(TigerRootError::Length(text.len()));
        }
        let mut root = [0; 24];
        for (at, found) in text.char_indices() {
            let wrong = TigerRootError::Character { at, found };
            let is_it = |known: &u8| char::from(*known) == found;
            let value = Self::ALPHABET.iter().position(is_it).ok_or(wrong)?;
            for bit in (0..5).filter(|bit| value >> (4 - bit) & 1 == 1) {
                let place = at * 5 + bit;
                *root.get_mut(place / 8).ok_or(wrong)? |= 0x80 >> (place % 8);
            }
        }
        Ok(Self(root))
    }
}

impl fmt::Display for TigerRoot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bit = |place: usize| {
            let byte = self.0.get(place / 8).copied().unwrap_or(0);
            usize::from(byte >> (7 - place % 8) & 1)
        };
        for at in 0..Self::TEXT {
            let value = (0..5).fold(0, |value, i| value << 1 | bit(at * 5 + i));
            write!(f, "{}", char::from(Self::ALPHABET[value]))?;
        }
        Ok(())
    }
}

impl fmt::Debug for TigerRoot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TigerRoot({self})")
    }
}

fn node(left: TigerRoot, right: TigerRoot) -> TigerRoot {
    hash(&[&[1], &left.0, &right.0])
}

/// Of one node or two.
fn parent(children: &[[u8; 24]]) -> [u8; 24] {
    match *children {
        [left, right] => node(TigerRoot(left), TigerRoot(right)).0,
        // The odd last node of a level rises.
        _ => children[0],
    }
}

fn hash(parts: &[&[u8]]) -> TigerRoot {
    let mut state = Tiger::new();
    for part in parts {
        state.update(part);
    }
    TigerRoot(state.finalize().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_of_any_size_give_the_same_root() {
        let bytes: Vec<u8> = (0..5000_u32).map(|i| (i % 251).to_le_bytes()[0]).collect();
        let root = |piece| {
            let mut tree = TigerTree::new();
            bytes.chunks(piece).for_each(|bytes| tree.update(bytes));
            tree.finish()
        };
        for piece in [1, 1023, 1024, 1025, 2048] {
            assert_eq!(root(piece), root(5000), "{piece}");
        }
    }

    #[test]
    fn text_that_is_not_a_root_is_refused() {
        let good = TigerTree::new().finish().to_string();
        assert!(TigerRoot::parse(&good).is_ok());
        let length = TigerRoot::parse(&good[1..]);
        assert_eq!(length, Err(TigerRootError::Length(38)));
        let check = |at: usize, found: char| {
            let bad = format!("{}{found}{}", &good[..at], &good[at + 1..]);
            let error = TigerRootError::Character { at, found };
            assert_eq!(TigerRoot::parse(&bad), Err(error));
        };
        check(0, '1');
        check(5, good.as_bytes()[5].to_ascii_lowercase().into());
        // 39 characters have three bits more than 24 bytes.
        check(38, 'R');
        // As many bytes as a root, but fewer characters.
        let wide = format!("é{}", &good[2..]);
        let (at, found) = (0, 'é');
        assert_eq!(
            TigerRoot::parse(&wide),
            Err(TigerRootError::Character { at, found })
        );
    }
}
