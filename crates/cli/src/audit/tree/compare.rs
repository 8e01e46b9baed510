//! The first leaf in which two trees of one format differ, by descent from their roots.

use super::file::TreeFile;

/// Two trees are not the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Difference {
    /// The first leaf that differs, or that only one of them has.
    pub(super) leaf: u32,
}

/// `None`: all leaves are the same.
///
/// Where two nodes differ, the left children decide into which half to go; a child that only one
/// tree has differs. A heritage's nodes are Adler-32, which may be the same over other leaves: the
/// descent names a leaf that differs, perhaps not the first. So the leaves before that are compared
/// one by one. A Tiger tree's nodes are the same only over the same leaves.
pub(super) fn first_difference(a: &TreeFile<'_>, b: &TreeFile<'_>) -> Option<Difference> {
    let found = descend(a, b);
    let first = match a {
        TreeFile::Heritage(_) => {
            let before = found.unwrap_or(u32::MAX);
            let mut leaves = a.leaves().zip(b.leaves()).take(before as usize);
            let overlooked = leaves.position(|(a, b)| a != b);
            let overlooked = overlooked.and_then(|leaf| u32::try_from(leaf).ok());
            overlooked.or(found)
        }
        TreeFile::Thex(_) => found,
    };
    first.map(|leaf| Difference { leaf })
}

fn descend(a: &TreeFile<'_>, b: &TreeFile<'_>) -> Option<u32> {
    // The lower tree is compared with as many levels of the other: that node is over the leaves
    // from the first on, as its root is.
    let height = a.height().min(b.height());
    let differs = |level, index| a.node(level, index) != b.node(level, index);
    if !differs(height, 0) {
        // One may go on behind the other.
        return (a.size() != b.size()).then(|| a.size().min(b.size()));
    }
    let below = (0..height).rev().fold(0, |parent, level| {
        let left = 2 * parent;
        if differs(level, left) { left } else { left + 1 }
    });
    Some(below)
}

#[cfg(test)]
mod tests {
    use super::*;
    use unbroken_merkle_log::{HeritageTree, ThexTree, TigerRoot};

    fn heritage(leaves: &[String]) -> Vec<u8> {
        HeritageTree::encode(leaves).unwrap()
    }

    fn thex(leaves: &[String]) -> Vec<u8> {
        let leaves = leaves
            .iter()
            .map(|leaf| TigerRoot::of_block(leaf.as_bytes()));
        ThexTree::encode(&leaves.collect::<Vec<_>>()).unwrap()
    }

    fn check(a: &[String], b: &[String]) {
        let differ = a.iter().zip(b).position(|(a, b)| a != b);
        let expect = differ.or((a.len() != b.len()).then(|| a.len().min(b.len())));
        let expect = expect.map(|leaf| Difference {
            leaf: u32::try_from(leaf).unwrap(),
        });
        for encode in [heritage, thex] {
            let (a, b) = (encode(a), encode(b));
            let [first, second] = [&a, &b].map(|bytes| TreeFile::parse(bytes).unwrap());
            assert_eq!(first_difference(&first, &second), expect);
            assert_eq!(first_difference(&second, &first), expect);
        }
    }

    fn leaves(count: usize) -> Vec<String> {
        (0..count).map(|leaf| format!("leaf {leaf}")).collect()
    }

    #[test]
    fn the_first_leaf_that_differs_is_found_in_trees_of_all_sizes() {
        for size in 2..34 {
            let good = leaves(size);
            for other in 2..34 {
                check(&good, &leaves(other));
            }
            for leaf in 0..size {
                let mut bad = good.clone();
                bad[leaf].push('x');
                check(&good, &bad);
                bad[size - 1].push('y');
                check(&good, &bad);
                bad.remove(leaf);
                if bad.len() > 1 {
                    check(&good, &bad);
                }
            }
        }
    }

    #[test]
    fn leaves_with_the_same_adler_32_are_distinguished() {
        // The sums of both are the same, and so is their order's.
        let swapped = |a: &str, b: &str| [a, b, "c", "d"].map(str::to_owned);
        let (one, other) = (swapped("ad", "bc"), swapped("bc", "ad"));
        let [a, b] = [heritage(&one), heritage(&other)];
        let [a, b] = [&a, &b].map(|bytes| TreeFile::parse(bytes).unwrap());
        assert_eq!(a.root(), b.root());
        assert_eq!(descend(&a, &b), None);
        check(&one, &other);
        // The descent goes by what it sees, which lies behind it.
        let mut behind = other;
        behind[3].push('x');
        check(&one, &behind);
    }
}
