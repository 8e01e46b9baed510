//! The tree of RFC 9162 with every node kept, for whoever answers questions about its past.
//!
//! A tree that only needs its root is a [`CompactRange`] from 0; it costs O(log n) memory, this one
//! two hashes a leaf. Only complete subtrees are kept: what they are does not change when the tree
//! grows, so the root of each prefix, the hash of each window and each proof come from them.

use crate::{CompactRange, Digest, Hash, compact::subtrees};

/// All leaves from 0 on, and the nodes above them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tree {
    /// Level l holds the roots of the complete subtrees of 2^l leaves; level 0 the leaves.
    levels: Vec<Vec<Hash>>,
}

impl Tree {
    /// The tree of no leaves.
    pub const fn new() -> Self {
        Self { levels: Vec::new() }
    }

    /// How many leaves.
    pub fn size(&self) -> u64 {
        self.levels.first().map_or(0, |leaves| leaves.len() as u64)
    }

    /// Adds a leaf at the end. O(log n), one node hash on average.
    pub fn append(&mut self, digest: &impl Digest, leaf: Hash) {
        let mut node = leaf;
        for level in 0.. {
            if self.levels.len() == level {
                self.levels.push(Vec::new());
            }
            let row = &mut self.levels[level];
            row.push(node);
            match row.as_chunks() {
                (pairs, []) => {
                    let [left, right] = pairs.last().expect("a node was pushed just above");
                    node = digest.node(left, right);
                }
                _ => return,
            }
        }
    }

    /// The leaf with this index; `None` from [`Tree::size`] on.
    pub fn leaf(&self, index: u64) -> Option<Hash> {
        self.node(0, index)
    }

    /// The root of the subtree of the leaves from `index`·2^`level` to (`index` + 1)·2^`level` − 1;
    /// `None` while it is not complete.
    pub fn node(&self, level: u32, index: u64) -> Option<Hash> {
        let row = self.levels.get(usize::try_from(level).ok()?)?;
        row.get(usize::try_from(index).ok()?).copied()
    }

    /// The root of all leaves.
    pub fn root(&self, digest: &impl Digest) -> Hash {
        self.root_at(digest, self.size())
            .expect("the tree is a prefix of itself")
    }

    /// The root as it was when there were `size` leaves; `None` beyond [`Tree::size`].
    pub fn root_at(&self, digest: &impl Digest, size: u64) -> Option<Hash> {
        self.range(0, size)?.root(digest)
    }

    /// The RFC 9162 hash of the leaves from `first` to `end` − 1 as a tree of their own. `None` if
    /// they are not all there, or `first` is not a multiple of a power of two that is at least
    /// their number.
    pub fn window_root(&self, digest: &impl Digest, first: u64, end: u64) -> Option<Hash> {
        self.range(first, end)?.root(digest)
    }

    /// The leaves from `begin` to `end` − 1 as a compact range; `None` unless they are all there.
    pub fn range(&self, begin: u64, end: u64) -> Option<CompactRange> {
        if begin > end || end > self.size() {
            return None;
        }
        let hashes: Option<_> = subtrees(begin, end)
            .map(|(level, index)| self.node(level, index))
            .collect();
        Some(CompactRange::from_subtrees(begin, end, hashes?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Xxh3;

    fn leaf(index: u64) -> Hash {
        Xxh3.leaf(&[&index.to_be_bytes()])
    }

    fn tree(size: u64) -> Tree {
        let mut tree = Tree::new();
        (0..size).for_each(|index| tree.append(&Xxh3, leaf(index)));
        tree
    }

    #[test]
    fn a_grown_tree_still_has_every_root_it_had() {
        let grown = tree(100);
        for size in 0..=100 {
            let root = tree(size).root(&Xxh3);
            assert_eq!(grown.root_at(&Xxh3, size), Some(root));
            let mut peaks = CompactRange::new(0);
            (0..size).for_each(|index| peaks.append(&Xxh3, leaf(index)));
            assert_eq!(peaks.root(&Xxh3), Some(root));
        }
        assert_eq!(grown.root_at(&Xxh3, 101), None);
        assert_eq!(Tree::new().root(&Xxh3), Xxh3.empty());
    }

    #[test]
    fn the_root_of_a_full_window_is_a_node_of_the_tree() {
        let tree = tree(64);
        for window in 0..4 {
            let root = tree.window_root(&Xxh3, window * 16, window * 16 + 16);
            assert_eq!(root, tree.node(4, window));
            assert!(root.is_some());
        }
        assert_eq!(tree.node(7, 0), None);
        assert_eq!(tree.leaf(63), Some(leaf(63)));
        assert_eq!(tree.leaf(64), None);
    }

    #[test]
    fn a_range_of_the_tree_is_the_range_of_its_leaves() {
        let tree = tree(40);
        for begin in 0..40 {
            for end in begin..=40 {
                let mut range = CompactRange::new(begin);
                (begin..end).for_each(|index| range.append(&Xxh3, leaf(index)));
                assert_eq!(tree.range(begin, end), Some(range));
            }
        }
        assert_eq!(tree.range(0, 41), None);
        assert_eq!(tree.range(2, 1), None);
    }
}
