//! Roots of Tiger trees, for interchange with those who name files by them (THEX).
//!
//! Blocks of 1,024 bytes; leaf = Tiger(00 ‖ block), node = Tiger(01 ‖ left ‖ right), an odd last
//! node rises as it is. No bytes are one empty block. As text a root is 39 characters of base32.
//!
//! Deliberately absent: THEX's container of tree levels, which nobody exchanges any more.

use core::fmt;

use tiger::{Digest as _, Tiger};

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

impl TigerTree {
    const BLOCK: usize = 1024;

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
        let mut root = hash(&[&[0], &self.block]);
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
