//! The shape of trees whose levels are paired from the left, and in which the odd last node of a
//! level gets a parent of its own: the heritage's and THEX's. All leaves lie equally deep, and the
//! number of nodes determines the number of leaves.

/// Levels above the leaves.
pub(crate) const fn height_of(leaves: u32) -> u32 {
    leaves.next_power_of_two().ilog2()
}

/// Nodes of a level, of which 0 is the leaves'.
pub(crate) const fn width_of(leaves: u32, level: u32) -> u32 {
    leaves.div_ceil(1 << level)
}

/// Leaves and all nodes above them.
pub(crate) fn node_count(leaves: u32) -> u32 {
    (0..=height_of(leaves))
        .map(|level| width_of(leaves, level))
        .sum()
}

/// How many leaves a tree of so many nodes has, if it has from `low` to `high`: the count grows
/// with the leaves, so there is at most one answer.
pub(crate) fn size_of(nodes: u32, mut low: u32, mut high: u32) -> Option<u32> {
    while low < high {
        let middle = low.midpoint(high);
        if node_count(middle) < nodes {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    (node_count(low) == nodes).then_some(low)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::{MAX_HERITAGE_LEAVES, MAX_THEX_LEAVES};

    #[test]
    fn the_number_of_nodes_tells_the_number_of_leaves() {
        let known = [
            (1, 1),
            (2, 3),
            (3, 6),
            (4, 7),
            (5, 11),
            (9, 20),
            (1000, 2001),
        ];
        for (leaves, nodes) in known {
            assert_eq!(node_count(leaves), nodes);
        }
        for least in [1, 2] {
            let mut sizes = (0..10_000).filter_map(|nodes| size_of(nodes, least, 1 << 24));
            assert!((least..4990).all(|leaves| sizes.next() == Some(leaves)));
            for none in [0, 2, 4, 5, 8, u32::MAX] {
                assert_eq!(size_of(none, least, 1 << 24), None, "{none}");
            }
        }
        for most in [MAX_HERITAGE_LEAVES, MAX_THEX_LEAVES] {
            let nodes = node_count(most);
            assert!(
                i32::try_from(nodes).is_ok(),
                "it fits the field of a heritage tree"
            );
            assert_eq!(size_of(nodes, 1, most), Some(most));
            assert_eq!(size_of(nodes + 1, 1, most), None);
        }
    }
}
