//! What the ledger holds of one window: the hashes that have come, in their places.
//!
//! Leaves that come in their turn from the start are folded into the *prefix*. From where that ends
//! on, what fills the window without a hole is the *run*; what lies behind a hole waits on an
//! *island*, and joins when the hole is filled. What a root has proven collapses into the fewest
//! subtrees, so that a proven window is one hash, and a proven part of one at most ten.
//!
//! **Invariants.** Nodes are aligned to their size and do not overlap; the run begins where the
//! prefix ends, has no hole, and no island touches its end.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::limits::WINDOW;
use super::prefix::{Prefix, Sum};
use crate::{Digest, Hash};

/// Slots of a window, which is [`WINDOW`] as a place in it.
pub(crate) const SLOTS: u16 = 1_024;

/// Slots of a group, the step of a descent.
pub(crate) const GROUP: u16 = 32;

const _: () = assert!(SLOTS as u64 == WINDOW && GROUP as u64 == super::limits::FANOUT);

/// A subtree with all its leaves: 2^level of them from `start` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Node {
    pub(crate) start: u16,
    pub(crate) level: u8,
    pub(crate) hash: Hash,
}

/// The hashes of one window.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Slots {
    prefix: Prefix,
    run: Vec<Node>,
    islands: BTreeMap<u16, Node>,
}

impl Node {
    /// A leaf in the slot that this number has in its window.
    #[inline]
    pub(crate) fn leaf(number: u64, hash: Hash) -> Self {
        Self {
            start: slot(number),
            level: 0,
            hash,
        }
    }

    #[inline]
    pub(crate) fn end(&self) -> u16 {
        self.start + (1 << self.level)
    }
}

/// The place of a number in its window.
#[inline]
pub(crate) fn slot(number: u64) -> u16 {
    u16::try_from(number % WINDOW).expect("a window has 1,024 slots")
}

impl Slots {
    /// Fills a slot with a leaf, folded if that is its turn.
    #[inline]
    pub(crate) fn fold(&mut self, leaf: Node, digest: &impl Digest) {
        if leaf.start != self.prefix.len() || !self.run.is_empty() {
            return self.put(leaf);
        }
        if !self.prefix.push(&leaf.hash, digest) {
            return self.put(leaf);
        }
        if !self.islands.is_empty() {
            self.fold_islands(digest);
        }
    }

    /// Folds a leaf into the prefix where nothing but that is there; false where it is not so.
    #[inline]
    pub(crate) fn fold_due(&mut self, slot: u16, leaf: &Hash, digest: &impl Digest) -> bool {
        let is_due = self.prefix.len() == slot && self.run.is_empty() && self.islands.is_empty();
        is_due && self.prefix.push(leaf, digest)
    }

    /// Fills slots. A subtree takes the place of the leaves it covers.
    #[inline]
    pub(crate) fn put(&mut self, node: Node) {
        if node.level > 0 {
            self.clear(node);
        }
        if node.start != self.run_end() {
            self.islands.insert(node.start, node);
            return;
        }
        self.run.push(node);
        if !self.islands.is_empty() {
            self.join_islands();
        }
    }

    /// Folds the leaves that the prefix has reached; from a subtree on it is a run.
    fn fold_islands(&mut self, digest: &impl Digest) {
        while let Some(node) = self.islands.first_entry()
            && *node.key() == self.prefix.len()
            && node.get().level == 0
            && self.prefix.push(&node.get().hash, digest)
        {
            node.remove();
        }
        self.join_islands();
    }

    /// Moves to the run what it has reached.
    fn join_islands(&mut self) {
        while let Some(node) = self.islands.first_entry()
            && *node.key() == self.run.last().map_or(self.prefix.len(), Node::end)
        {
            self.run.push(node.remove());
        }
    }

    /// Makes a run of the prefix, and returns the sums by which one leaf of it can be told.
    pub(crate) fn unfold(&mut self) -> Vec<Sum> {
        let prefix = std::mem::take(&mut self.prefix);
        self.run.splice(0..0, prefix.nodes());
        prefix.sums().collect()
    }

    /// What is folded.
    pub(crate) const fn prefix(&self) -> &Prefix {
        &self.prefix
    }

    /// These slots, of which the first are folded.
    pub(crate) fn behind(prefix: Prefix, nodes: impl IntoIterator<Item = Node>) -> Self {
        let mut slots = Self {
            prefix,
            ..Self::default()
        };
        nodes.into_iter().for_each(|node| slots.put(node));
        slots
    }

    /// Removes the nodes below one that takes their place.
    fn clear(&mut self, node: Node) {
        if node.start < self.prefix.len() {
            self.unfold();
        }
        let at = self.run.partition_point(|old| old.start < node.start);
        let behind = self.run.split_off(at);
        self.islands
            .extend(behind.into_iter().map(|node| (node.start, node)));
        self.islands
            .retain(|start, _| !(node.start..node.end()).contains(start));
    }

    /// Empties a slot that holds a leaf, or the slots of the subtree that begins there. What is
    /// folded must have been unfolded.
    pub(crate) fn take(&mut self, slot: u16) {
        if let Ok(at) = self.run.binary_search_by_key(&slot, |node| node.start) {
            let behind = self.run.split_off(at);
            self.islands
                .extend(behind.into_iter().skip(1).map(|node| (node.start, node)));
        } else {
            self.islands.remove(&slot);
        }
    }

    /// The leaf in this slot, while it is still held on its own.
    pub(crate) fn leaf(&self, slot: u16) -> Option<Hash> {
        let node = match self.run.binary_search_by_key(&slot, |node| node.start) {
            Ok(at) => &self.run[at],
            Err(_) => self.islands.get(&slot)?,
        };
        (node.level == 0).then_some(node.hash)
    }

    /// Puts another leaf in the place of one.
    pub(crate) fn replace(&mut self, slot: u16, leaf: Hash) {
        if let Ok(at) = self.run.binary_search_by_key(&slot, |node| node.start) {
            self.run[at].hash = leaf;
        } else if let Some(node) = self.islands.get_mut(&slot) {
            node.hash = leaf;
        }
    }

    /// Slots filled from the start without a hole.
    #[inline]
    pub(crate) fn run_end(&self) -> u16 {
        self.run.last().map_or(self.prefix.len(), Node::end)
    }

    /// Slots filled among the first `size`.
    pub(crate) fn filled_below(&self, size: u16) -> u16 {
        let islands = self.islands.range(..size);
        self.run_end().min(size)
            + islands
                .map(|(_, node)| node.end().min(size) - node.start)
                .sum::<u16>()
    }

    /// The hash over `from..to`, where `from` is aligned to the height of the range. `None` when
    /// a slot is empty or a border lies within a collapsed subtree.
    pub(crate) fn hash_over(&self, from: u16, to: u16, digest: &impl Digest) -> Option<Hash> {
        let mut peaks = Peaks::default();
        let mut at = from;
        for node in self.nodes_from(from) {
            if node.start >= to {
                break;
            }
            if node.start != at || node.end() > to {
                return None;
            }
            peaks.push(node.level, node.hash, digest);
            at = node.end();
        }
        if at == to { peaks.root(digest) } else { None }
    }

    /// Nodes with their start at `from` or behind it, in order.
    pub(crate) fn nodes_from(&self, from: u16) -> impl Iterator<Item = Node> {
        let folded = self
            .prefix
            .nodes()
            .skip_while(move |node| node.start < from);
        let first = self.run.partition_point(|node| node.start < from);
        folded
            .chain(self.run[first..].iter().copied())
            .chain(self.islands.range(from..).map(|(_, node)| *node))
    }

    /// The subtrees over the first `to` slots, as [`Slots::hash_over`] folds them to their root.
    pub(crate) fn peaks_below(&self, to: u16, digest: &impl Digest) -> Option<Peaks> {
        let leaves = self.run.get(..usize::from(to));
        let leaves = leaves.filter(|leaves| self.prefix.len() == 0 && is_power_of_leaves(leaves));
        if let Some(leaves) = leaves {
            return Some(Peaks::of_all(
                leaves.iter().map(|leaf| leaf.hash).collect(),
                digest,
            ));
        }
        let mut peaks = Peaks::default();
        let mut at = 0;
        let run = self.prefix.nodes().chain(self.run.iter().copied());
        for node in run.take_while(|node| node.start < to) {
            peaks.push(node.level, node.hash, digest);
            at = node.end();
        }
        (at == to).then_some(peaks)
    }

    /// Puts the subtrees over the first slots in the place of what is there. What is folded takes
    /// little already.
    pub(crate) fn collapse(&mut self, peaks: Peaks) {
        if peaks.size() <= u64::from(self.prefix.len()) {
            return;
        }
        self.unfold();
        let mut start = 0;
        let mut run = Vec::with_capacity(peaks.peaks.len());
        for (level, hash) in peaks.peaks {
            run.push(Node { start, level, hash });
            start += 1 << level;
        }
        let proven = self.run.partition_point(|node| node.end() <= start);
        run.extend_from_slice(&self.run[proven..]);
        run.shrink_to_fit();
        self.run = run;
    }

    /// Everything that either holds: of nodes that cover one another the largest, of two in one
    /// place the smaller hash. Returned are the other leaves of places that have two.
    pub(crate) fn union(&self, other: &Self) -> (Self, Vec<(u16, Hash)>) {
        let mut nodes: Vec<Node> = self.nodes_from(0).chain(other.nodes_from(0)).collect();
        nodes.sort_unstable_by_key(|node| (node.start, Reverse(node.level), node.hash));
        let mut union = Self::default();
        let mut seconds = Vec::new();
        let mut last: Option<Node> = None;
        for node in nodes {
            match last {
                Some(last) if node.start < last.end() => {
                    if last.level == 0 && node.hash != last.hash {
                        seconds.push((node.start, node.hash));
                    }
                }
                _ => {
                    union.put(node);
                    last = Some(node);
                }
            }
        }
        (union, seconds)
    }

    /// Whether this slot lies in a subtree, where single leaves are not told apart.
    pub(crate) fn is_collapsed(&self, slot: u16) -> bool {
        if slot < self.prefix.len() {
            return true;
        }
        let islands = self
            .islands
            .range(..=slot)
            .next_back()
            .map(|(_, node)| node);
        let at = self.run.partition_point(|node| node.start <= slot);
        let run = at.checked_sub(1).map(|at| &self.run[at]);
        run.into_iter()
            .chain(islands)
            .any(|node| node.level > 0 && slot < node.end())
    }

    /// Bytes on the heap.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.prefix.memory_bytes()
            + self.run.capacity() * size_of::<Node>()
            + self.islands.len() * (size_of::<Node>() + 8)
    }
}

/// Complete subtrees from the left, as a tree of that many leaves has them: one for each bit of
/// its size, the highest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Peaks {
    pub(crate) peaks: Vec<(u8, Hash)>,
}

/// Whether these are single leaves, as many as a subtree has.
fn is_power_of_leaves(nodes: &[Node]) -> bool {
    // Nodes that fill as many slots as they are have one each.
    nodes.len().is_power_of_two() && nodes.last().map(Node::end) == u16::try_from(nodes.len()).ok()
}

impl Peaks {
    /// The one peak over 2^n leaves: level by level, where no hash waits for the one before it.
    pub(crate) fn of_all(mut hashes: Vec<Hash>, digest: &impl Digest) -> Self {
        let mut level = 0;
        while hashes.len() > 1 {
            let pairs = hashes.len() / 2;
            for pair in 0..pairs {
                hashes[pair] = digest.node(&hashes[2 * pair], &hashes[2 * pair + 1]);
            }
            hashes.truncate(pairs);
            level += 1;
        }
        let peaks = hashes.into_iter().map(|root| (level, root)).collect();
        Self { peaks }
    }

    /// Appends a subtree. The size so far must be a multiple of its own.
    pub(crate) fn push(&mut self, mut level: u8, mut hash: Hash, digest: &impl Digest) {
        while let Some((top, left)) = self.peaks.last()
            && *top == level
        {
            hash = digest.node(left, &hash);
            level += 1;
            self.peaks.pop();
        }
        self.peaks.push((level, hash));
    }

    /// How many leaves.
    pub(crate) fn size(&self) -> u64 {
        self.peaks.iter().map(|(level, _)| 1 << level).sum()
    }

    /// The root over all of it; `None` when it is empty.
    pub(crate) fn root(&self, digest: &impl Digest) -> Option<Hash> {
        self.root_with(None, digest)
    }

    /// The root over all of it and `tail`, the root of fewer leaves than any subtree here has.
    pub(crate) fn root_with(&self, tail: Option<Hash>, digest: &impl Digest) -> Option<Hash> {
        let mut hashes = self.peaks.iter().rev().map(|(_, hash)| *hash);
        let last = tail.or_else(|| hashes.next())?;
        Some(hashes.fold(last, |right, left| digest.node(&left, &right)))
    }
}

/// The hash of each group of 32 slots over `size` leaves, folded to their root.
pub(crate) fn root_of_groups(groups: &[Hash], size: u16, digest: &impl Digest) -> Option<Hash> {
    if groups.len() != usize::from(size.div_ceil(GROUP)) {
        return None;
    }
    let full = usize::from(size / GROUP);
    let mut peaks = Peaks::default();
    for group in &groups[..full] {
        peaks.push(0, *group, digest);
    }
    peaks.root_with(groups.get(full).copied(), digest)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Hasher;

    fn leaf(number: u64) -> Hash {
        Hasher::xxh3().leaf(&[&number.to_be_bytes()])
    }

    /// The root by the definition of RFC 9162, section 2.1.1.
    fn naive_root(leaves: &[Hash]) -> Hash {
        if let [leaf] = leaves {
            return *leaf;
        }
        let cut = leaves.len().next_power_of_two() / 2;
        let (left, right) = leaves.split_at(cut);
        Hasher::xxh3().node(&naive_root(left), &naive_root(right))
    }

    proptest! {
        #[test]
        fn the_root_does_not_depend_on_the_order_of_arrival(
            order in Just((0..200_u64).collect::<Vec<_>>()).prop_shuffle(),
            size in 1..=200_u16,
            proven in 0..=200_u16,
        ) {
            let hasher = Hasher::xxh3();
            let mut slots = Slots::default();
            for number in &order {
                slots.put(Node::leaf(*number, leaf(*number)));
            }
            prop_assert_eq!(slots.filled_below(SLOTS), 200);
            let leaves: Vec<Hash> = (0..u64::from(size)).map(leaf).collect();
            prop_assert_eq!(slots.hash_over(0, size, &hasher), Some(naive_root(&leaves)));
            let peaks = slots.peaks_below(proven, &hasher);
            slots.collapse(peaks.expect("they are filled"));
            let all: Vec<Hash> = (0..200).map(leaf).collect();
            prop_assert_eq!(slots.hash_over(0, 200, &hasher), Some(naive_root(&all)));
            prop_assert!(slots.leaf(0).is_none() || proven < 2);
        }

        #[test]
        fn groups_fold_to_the_root(size in 1..=1_024_u16) {
            let hasher = Hasher::xxh3();
            let leaves: Vec<Hash> = (0..u64::from(size)).map(leaf).collect();
            let groups: Vec<Hash> = leaves.chunks(32).map(naive_root).collect();
            prop_assert_eq!(root_of_groups(&groups, size, &hasher), Some(naive_root(&leaves)));
        }
    }

    /// Leaves from 0 on that are folded.
    fn folded(count: u64) -> Slots {
        let mut slots = Slots::default();
        for number in 0..count {
            slots.fold(Node::leaf(number, leaf(number)), &Hasher::xxh3());
        }
        slots
    }

    fn pair(start: u16) -> Node {
        let first = u64::from(start);
        let hash = Hasher::xxh3().node(&leaf(first), &leaf(first + 1));
        let level = 1;
        Node { start, level, hash }
    }

    #[test]
    fn a_leaf_is_folded_where_nothing_but_folded_ones_are() {
        let hasher = Hasher::xxh3();
        assert!(folded(2).fold_due(2, &leaf(2), &hasher));
        assert!(!folded(2).fold_due(3, &leaf(3), &hasher));
        let mut with_run = Slots::default();
        with_run.put(pair(0));
        assert!(!with_run.fold_due(2, &leaf(2), &hasher));
        assert!(!with_run.fold_due(0, &leaf(0), &hasher));
        let mut with_island = folded(2);
        with_island.put(Node::leaf(5, leaf(5)));
        assert!(!with_island.fold_due(2, &leaf(2), &hasher));
        let mut slots = folded(2);
        assert!(slots.fold_due(2, &leaf(2), &hasher));
        assert_eq!(slots, folded(3));
    }

    #[test]
    fn leaves_behind_a_hole_are_folded_when_it_is_filled_and_subtrees_are_not() {
        let hasher = Hasher::xxh3();
        let mut slots = folded(1);
        slots.put(pair(4));
        for slot in [2, 3, 1] {
            slots.fold(Node::leaf(slot, leaf(slot)), &hasher);
        }
        assert_eq!((slots.prefix().len(), slots.run_end()), (4, 6));
        let all: Vec<Hash> = (0..6).map(leaf).collect();
        assert_eq!(slots.hash_over(0, 6, &hasher), Some(naive_root(&all)));
    }

    #[test]
    fn a_subtree_takes_the_place_of_folded_leaves_and_leaves_those_before_it() {
        let hasher = Hasher::xxh3();
        let root = pair(0).hash;
        let (start, level) = (0, 2);
        let whole = Node {
            start,
            level,
            hash: hasher.node(&root, &pair(2).hash),
        };
        let mut slots = folded(3);
        slots.put(whole);
        assert_eq!(slots.nodes_from(0).collect::<Vec<_>>(), [whole]);
        assert_eq!(slots.prefix().len(), 0);
        let mut slots = folded(2);
        slots.put(pair(2));
        assert_eq!((slots.prefix().len(), slots.run_end()), (2, 4));
    }

    #[test]
    fn a_slot_is_collapsed_within_a_subtree_and_where_it_is_folded() {
        let collapsed = |slots: &Slots| -> Vec<u16> {
            (0..8).filter(|slot| slots.is_collapsed(*slot)).collect()
        };
        assert_eq!(collapsed(&folded(3)), [0, 1, 2]);
        let mut slots = Slots::default();
        slots.put(pair(0));
        assert_eq!(collapsed(&slots), [0, 1]);
        slots.put(Node::leaf(2, leaf(2)));
        slots.put(pair(4));
        assert_eq!(collapsed(&slots), [0, 1, 4, 5]);
    }

    #[test]
    fn the_memory_of_slots_is_that_of_the_folded_the_run_and_the_islands() {
        let mut slots = folded(32);
        for node in [pair(32), pair(40), Node::leaf(50, leaf(50))] {
            slots.put(node);
        }
        let (prefix, node) = (slots.prefix().memory_bytes(), size_of::<Node>());
        assert!(prefix > 0 && slots.run.capacity() > 1);
        let expected = prefix + slots.run.capacity() * node + 2 * (node + 8);
        assert_eq!(slots.memory_bytes(), expected);
    }

    #[test]
    fn the_peaks_over_subtrees_are_not_those_over_as_many_leaves() {
        let hasher = Hasher::xxh3();
        let mut slots = Slots::default();
        for node in [pair(0), Node::leaf(2, leaf(2)), Node::leaf(3, leaf(3))] {
            slots.put(node);
        }
        let peaks = slots.peaks_below(2, &hasher).map(|peaks| peaks.peaks);
        assert_eq!(peaks, Some(vec![(1, pair(0).hash)]));
        let nodes: Vec<Node> = slots.nodes_from(0).collect();
        assert!(!is_power_of_leaves(&nodes[..2]) && !is_power_of_leaves(&nodes));
        let leaves = [0, 1].map(|slot| Node::leaf(slot, leaf(slot)));
        assert!(is_power_of_leaves(&leaves));
    }

    #[test]
    fn the_nodes_from_a_slot_on_begin_there() {
        let slots = folded(70);
        let starts = |from| -> Vec<u16> { slots.nodes_from(from).map(|node| node.start).collect() };
        assert_eq!(starts(0), [0, 32, 64, 68]);
        assert_eq!(starts(32), [32, 64, 68]);
        assert_eq!(starts(33), [64, 68]);
    }

    #[test]
    fn a_union_tells_the_other_leaf_of_a_slot_and_not_what_a_subtree_covers() {
        let of = |node: Node| {
            let mut slots = Slots::default();
            slots.put(node);
            slots
        };
        let (one, other) = (leaf(1).min(leaf(2)), leaf(1).max(leaf(2)));
        for (first, second, expect) in [
            (Node::leaf(0, one), Node::leaf(0, one), vec![]),
            (Node::leaf(0, one), Node::leaf(0, other), vec![(0, other)]),
            (Node::leaf(0, other), Node::leaf(0, one), vec![(0, other)]),
            (pair(0), Node::leaf(1, other), vec![]),
            (pair(0), Node::leaf(1, one), vec![]),
        ] {
            let (_, seconds) = of(first).union(&of(second));
            assert_eq!(seconds, expect);
        }
    }

    #[test]
    fn a_slot_taken_out_leaves_a_hole_that_can_be_filled_again() {
        let hasher = Hasher::xxh3();
        let mut slots = Slots::default();
        for number in 0..10 {
            slots.put(Node::leaf(number, leaf(number)));
        }
        let whole = slots.hash_over(0, 10, &hasher);
        slots.take(4);
        assert_eq!(slots.run_end(), 4);
        assert_eq!(slots.filled_below(SLOTS), 9);
        assert_eq!(slots.hash_over(0, 10, &hasher), None);
        slots.put(Node::leaf(4, leaf(4)));
        assert_eq!(slots.hash_over(0, 10, &hasher), whole);
    }
}
