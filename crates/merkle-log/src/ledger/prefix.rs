//! The leaves that fill a window from its start, each in its turn, folded.
//!
//! A receiver needs the leaves of a window for one thing only: to say which of them is forged when
//! the root differs. It compares the hash of each group of 32 with the producer's, then the leaves
//! of a group that differs. So of each group two hashes are kept: its *hash*, and the exclusive or
//! of its leaves, its *sum*. Once the producer has told the group's leaves, the sum gives what ours
//! must have been if only one differs, for each place it may be in; and the hash says in which
//! place that is true. A full window takes 1 KiB in the place of 32 KiB.
//!
//! **Absent:** the leaves themselves. Two copies of one number are not compared, and of two forged
//! messages in one group it is known only that the group has some. A lane in which any root has
//! differed is no longer folded: [`super::windows`].

use super::window::{GROUP, Node, Peaks};
use crate::hash_list::HashList;
use crate::{Digest, Hash};

const GROUP_LOG2: usize = 5;

const _: () = assert!(GROUP == 1 << GROUP_LOG2);

/// A window's first leaves.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Prefix {
    len: u16,
    /// The hash of each whole group.
    hashes: HashList,
    /// The sum of each whole group.
    sums: HashList,
    /// Subtrees of the group that is not whole: at k the one of 2^k leaves.
    peaks: [Option<Hash>; GROUP_LOG2],
    /// The sum of that group's leaves.
    sum: Option<Hash>,
}

/// The exclusive or of the first `count` leaves from `start` on, which begins a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sum {
    pub(crate) start: u16,
    pub(crate) count: u16,
    pub(crate) value: Hash,
}

impl Prefix {
    /// How many leaves.
    #[inline]
    pub(crate) const fn len(&self) -> u16 {
        self.len
    }

    /// Folds the next leaf. False, and nothing has changed, when it is not as wide as the others.
    #[inline]
    pub(crate) fn push(&mut self, leaf: &Hash, digest: &impl Digest) -> bool {
        if !self.sums.takes(leaf) {
            return false;
        }
        let sum = match &self.sum {
            Some(sum) if sum.width() != leaf.width() => return false,
            Some(sum) => sum.xor(leaf),
            None => *leaf,
        };
        self.sum = Some(sum);
        self.len += 1;
        let mut hash = *leaf;
        for peak in &mut self.peaks {
            let Some(left) = peak.take() else {
                *peak = Some(hash);
                return true;
            };
            hash = digest.node(&left, &hash);
        }
        self.close_group(&hash, &sum);
        true
    }

    /// The subtrees, in order: a node for each whole group, then those of the last one.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = Node> {
        let peaks = self.peaks.iter().enumerate().rev();
        let peaks = peaks.filter_map(|(level, hash)| Some((level, (*hash)?)));
        let groups = self.hashes.iter().map(|hash| (GROUP_LOG2, hash));
        groups.chain(peaks).scan(0, |start, (level, hash)| {
            let level = u8::try_from(level).expect("at most 5");
            let node = Node {
                start: *start,
                level,
                hash,
            };
            *start = node.end();
            Some(node)
        })
    }

    /// The sums, in order.
    pub(crate) fn sums(&self) -> impl Iterator<Item = Sum> {
        let groups = self.sums.iter().chain(self.sum);
        (0..self.len)
            .step_by(usize::from(GROUP))
            .zip(groups)
            .map(|(start, value)| Sum {
                start,
                count: GROUP.min(self.len - start),
                value,
            })
    }

    /// What [`Prefix::nodes`] and [`Prefix::sums`] gave; `None` if they are not of one prefix.
    pub(crate) fn of(nodes: &[Node], sums: &[Sum]) -> Option<Self> {
        let mut prefix = Self::default();
        for node in nodes {
            if node.start != prefix.len {
                return None;
            }
            prefix.len = node.end();
            if usize::from(node.level) == GROUP_LOG2 {
                let sum = sums.get(prefix.hashes.len())?.value;
                if !prefix.hashes.takes(&node.hash) || !prefix.sums.takes(&sum) {
                    return None;
                }
                prefix.close_group(&node.hash, &sum);
            } else {
                *prefix.peaks.get_mut(usize::from(node.level))? = Some(node.hash);
            }
        }
        let whole = prefix.hashes.len();
        prefix.sum = sums.get(whole).map(|sum| sum.value);
        let same = sums.len() == usize::from(prefix.len.div_ceil(GROUP))
            && prefix.nodes().eq(nodes.iter().copied())
            && prefix.sums().eq(sums.iter().copied());
        same.then_some(prefix)
    }

    /// Bytes on the heap.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.hashes.memory_bytes() + self.sums.memory_bytes()
    }

    fn close_group(&mut self, hash: &Hash, sum: &Hash) {
        if self.hashes.len() == 0 {
            self.hashes.reserve(usize::from(GROUP), hash);
            self.sums.reserve(usize::from(GROUP), sum);
        }
        self.hashes.push(hash);
        self.sums.push(sum);
        self.sum = None;
    }
}

impl Sum {
    /// Which leaf of a node that covers leaves of this sum is not the producer's, if it is the only
    /// one of them all. `real` are the producer's leaves, from `start` on.
    pub(crate) fn odd_one(&self, node: &Node, real: &[Hash], digest: &impl Digest) -> Option<u16> {
        let covered = real.get(..usize::from(self.count))?;
        let difference = covered.iter().fold(self.value, |sum, leaf| sum.xor(leaf));
        let within = usize::from(node.start.checked_sub(self.start)?);
        let mut leaves = covered.get(within..within + (1 << node.level))?.to_vec();
        (node.start..node.end()).find(|slot| {
            let at = usize::from(slot - node.start);
            let real = leaves[at];
            leaves[at] = real.xor(&difference);
            let is_odd = Peaks::of_all(leaves.clone(), digest).root(digest) == Some(node.hash);
            leaves[at] = real;
            is_odd
        })
    }

    /// Whether a leaf differs from those of which these are the fingerprints.
    pub(crate) fn differs(&self, prints: &[[u8; 4]]) -> bool {
        let covered = usize::from(self.start)..usize::from(self.start + self.count);
        prints.get(covered).is_some_and(|prints| {
            let ours = u32::from_be_bytes(self.value.fingerprint());
            let theirs = prints.iter().map(|print| u32::from_be_bytes(*print));
            theirs.fold(ours, |sum, print| sum ^ print) != 0
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{Algorithm, Hasher, Key};

    fn leaves(hasher: &Hasher, count: u16) -> Vec<Hash> {
        (0..count)
            .map(|slot| hasher.leaf(&[&slot.to_be_bytes()]))
            .collect()
    }

    fn folded(leaves: &[Hash], hasher: &Hasher) -> Prefix {
        let mut prefix = Prefix::default();
        for leaf in leaves {
            assert!(prefix.push(leaf, hasher));
        }
        prefix
    }

    fn hashers() -> Vec<Hasher> {
        let hasher = |algorithm| Hasher::new(algorithm, Some(&Key([1; 32])));
        let all = Algorithm::ALL.into_iter();
        all.map(|algorithm| hasher(algorithm).expect("there is a key"))
            .collect()
    }

    proptest! {
        #[test]
        fn of_a_group_the_one_leaf_that_is_not_the_producers_is_found(
            count in 1..=1_024_u16,
            forged in 0..1_024_u16,
        ) {
            let forged = forged % count;
            for hasher in hashers() {
                let real = leaves(&hasher, count);
                let mut ours = real.clone();
                ours[usize::from(forged)] = hasher.leaf(&[b"forged"]);
                let prefix = folded(&ours, &hasher);
                let sum = prefix.sums().find(|sum| sum.start == forged / GROUP * GROUP);
                let sum = sum.expect("each leaf is in one");
                let node = prefix.nodes().find(|node| (node.start..node.end()).contains(&forged));
                let real = &real[usize::from(sum.start)..usize::from(sum.start + sum.count)];
                let found = sum.odd_one(&node.expect("each leaf is in one"), real, &hasher);
                prop_assert_eq!(found, Some(forged));
            }
        }

        #[test]
        fn a_prefix_is_that_of_its_nodes_and_sums(count in 0..=1_024_u16) {
            for hasher in hashers() {
                let prefix = folded(&leaves(&hasher, count), &hasher);
                let nodes: Vec<Node> = prefix.nodes().collect();
                let sums: Vec<Sum> = prefix.sums().collect();
                prop_assert_eq!(nodes.last().map_or(0, Node::end), count);
                prop_assert_eq!(Prefix::of(&nodes, &sums), Some(prefix));
                prop_assert!(count == 0 || Prefix::of(&nodes, &sums[1..]).is_none());
            }
        }
    }

    #[test]
    fn two_that_differ_in_one_group_are_not_told_from_the_rest() {
        let hasher = Hasher::xxh3();
        let real = leaves(&hasher, 32);
        let mut ours = real.clone();
        ours[3] = hasher.leaf(&[b"forged"]);
        ours[9] = hasher.leaf(&[b"forged too"]);
        let prefix = folded(&ours, &hasher);
        let (node, sum) = (prefix.nodes().next(), prefix.sums().next());
        let (node, sum) = (node.expect("a group"), sum.expect("a group"));
        assert_eq!(sum.odd_one(&node, &real, &hasher), None);
    }

    #[test]
    fn a_leaf_of_another_width_is_not_folded() {
        let hasher = Hasher::xxh3();
        for count in [1, 31, 33, 64] {
            let mut prefix = folded(&leaves(&hasher, count), &hasher);
            let before = prefix.clone();
            assert!(!prefix.push(&Hash::from([1; 32]), &hasher), "{count}");
            assert_eq!(prefix, before);
        }
    }

    #[test]
    fn nodes_and_sums_of_two_widths_are_of_no_prefix() {
        let hasher = Hasher::xxh3();
        let prefix = folded(&leaves(&hasher, 64), &hasher);
        let nodes: Vec<Node> = prefix.nodes().collect();
        let sums: Vec<Sum> = prefix.sums().collect();
        let mut other = (nodes.clone(), sums.clone());
        other.0[1].hash = Hash::from([1; 32]);
        other.1[1].value = Hash::from([1; 32]);
        assert_eq!(Prefix::of(&other.0, &sums), None);
        assert_eq!(Prefix::of(&nodes, &other.1), None);
    }

    #[test]
    fn the_sum_of_the_last_group_counts_the_leaves_that_are_there() {
        let hasher = Hasher::xxh3();
        let prefix = folded(&leaves(&hasher, 40), &hasher);
        let sums: Vec<_> = prefix.sums().map(|sum| (sum.start, sum.count)).collect();
        assert_eq!(sums, [(0, 32), (32, 8)]);
    }

    #[test]
    fn a_folded_window_takes_two_hashes_for_each_group() {
        let hasher = Hasher::xxh3();
        let prefix = folded(&leaves(&hasher, 1_024), &hasher);
        let bytes = prefix.memory_bytes();
        assert!((1_024..2_048).contains(&bytes), "{bytes}");
    }
}
