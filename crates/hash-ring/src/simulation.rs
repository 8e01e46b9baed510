//! Experiments with the schemes: how fair they are, how many hops a search takes, and what moves
//! when nodes come and go.
//!
//! Invariant: everything follows from a seed. Nodes are the hashes of the seed and their number, so
//! that another program can make the same rings.

#![expect(
    clippy::cast_precision_loss,
    reason = "counts are far below 2^52, and loads need no more than 52 bits"
)]

use std::collections::BTreeMap;

use crate::chord::Chord;
use crate::hash::pair_hash;
use crate::node::{Node, NodeId};
use crate::ring::Ring;
use crate::scheme::Scheme;

/// Node number `number` of a seed, with weight 1 and a zone of its own.
pub fn node(seed: u64, number: u64) -> Node {
    Node::new(NodeId(pair_hash(NodeId(seed), number)))
}

/// Hashes of `count` keys.
pub fn keys(seed: u64, count: usize) -> Vec<u64> {
    // Another seed than that of the nodes, so that keys do not lie on them.
    let seed = NodeId(!seed);
    (0..count as u64)
        .map(|number| pair_hash(seed, number))
        .collect()
}

/// The loads of the nodes of a ring, in units of the mean, ascending.
pub fn loads(seed: u64, nodes: u32, virtual_nodes: u32) -> Vec<f64> {
    let members = (0..nodes.into()).map(|number| node(seed, number)).collect();
    let ring = Ring::with_nodes(virtual_nodes, members);
    let unit = f64::from(nodes) / 2f64.powi(64);
    let mut loads: Vec<_> = ring
        .loads()
        .into_iter()
        .map(|load| load as f64 * unit)
        .collect();
    loads.sort_unstable_by(f64::total_cmp);
    loads
}

/// How many hops searches took.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hops {
    /// On average.
    pub mean: f64,
    /// 99 % took no more.
    pub p99: u32,
    /// The most.
    pub max: u32,
}

/// Searches for random keys from random places. Hops are counted to the owner.
pub fn hops(chord: &Chord, seed: u64, searches: usize) -> Hops {
    let places = chord.ring().len().max(1) as u64;
    let starts = keys(seed ^ 1, searches)
        .into_iter()
        .map(|hash| hash % places);
    let mut hops: Vec<_> = keys(seed, searches)
        .into_iter()
        .zip(starts)
        .map(|(key, start)| {
            let start = usize::try_from(start).expect("it is below a number of places");
            chord.hops(start, key)
        })
        .collect();
    hops.sort_unstable();
    let last = hops.len().saturating_sub(1);
    let at = |hundredths: usize| hops.get(last * hundredths / 100).copied().unwrap_or(0);
    Hops {
        mean: hops.iter().copied().map(f64::from).sum::<f64>() / hops.len().max(1) as f64,
        p99: at(99),
        max: at(100),
    }
}

/// The law of hops to the owner, in a ring of so many places.
pub fn expected_hops(places: f64) -> f64 {
    places.log2() / 2.0 + 0.86
}

/// The owners of keys; nothing for a scheme without nodes.
pub fn owners(scheme: &dyn Scheme, keys: &[u64]) -> Vec<NodeId> {
    keys.iter().filter_map(|key| scheme.owner(*key)).collect()
}

/// The load of each node in units of what it should have by its weight, ascending.
pub fn shares(nodes: &[Node], owners: &[NodeId]) -> Vec<f64> {
    let mut counts: BTreeMap<NodeId, u64> = nodes.iter().map(|node| (node.id, 0)).collect();
    for owner in owners {
        *counts.entry(*owner).or_default() += 1;
    }
    let weight = |node: &Node| f64::from(node.weight.get());
    let weights: f64 = nodes.iter().map(weight).sum();
    let unit = owners.len() as f64 / weights;
    let share = |node: &Node| counts[&node.id] as f64 / (weight(node) * unit);
    let mut shares: Vec<_> = nodes.iter().map(share).collect();
    shares.sort_unstable_by(f64::total_cmp);
    shares
}

/// What a join or a leave moved.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Movement {
    /// Keys that have another owner.
    pub moved: u64,
    /// Those of them that neither came from the node that left nor went to the one that joined.
    pub needless: u64,
}

/// Compares owners before and behind the join or leave of a node.
pub fn movement(before: &[NodeId], after: &[NodeId], node: NodeId) -> Movement {
    let mut movement = Movement::default();
    for (before, after) in before
        .iter()
        .zip(after)
        .filter(|(before, after)| before != after)
    {
        movement.moved += 1;
        movement.needless += u64::from(*before != node && *after != node);
    }
    movement
}
