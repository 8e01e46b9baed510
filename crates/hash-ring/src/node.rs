//! Nodes: who they are, where they stand, and how much they take.

use xxhash_rust::xxh3::xxh3_64;

use crate::limits::WEIGHT_MAX;

/// Names a node in every hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u64);

impl NodeId {
    /// The id of a node with this name: XXH3-64 of its bytes.
    pub fn of(name: &str) -> Self {
        Self(xxh3_64(name.as_bytes()))
    }
}

/// What fails together: a rack, a room, a site.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Zone(pub u64);

impl Zone {
    /// The zone with this name: XXH3-64 of its bytes.
    pub fn of(name: &str) -> Self {
        Self(xxh3_64(name.as_bytes()))
    }
}

/// How much a node takes, in relation to the others: 1 to [`WEIGHT_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Weight(u16);

impl Weight {
    /// The weight of nodes that are all equal.
    pub const ONE: Self = Self(1);

    /// As a number.
    pub const fn get(self) -> u16 {
        self.0
    }
}

/// A weight of 0, or too large a weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a weight is from 1 to {WEIGHT_MAX}, not {0}")]
pub struct InvalidWeight(pub u16);

impl TryFrom<u16> for Weight {
    type Error = InvalidWeight;

    fn try_from(weight: u16) -> Result<Self, InvalidWeight> {
        match weight {
            1..=WEIGHT_MAX => Ok(Self(weight)),
            _ => Err(InvalidWeight(weight)),
        }
    }
}

/// A node of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node {
    /// Who.
    pub id: NodeId,
    /// Where.
    pub zone: Zone,
    /// How much.
    pub weight: Weight,
}

impl Node {
    /// A node of weight 1 in a zone of its own.
    pub fn new(id: NodeId) -> Self {
        Self {
            id,
            zone: Zone(id.0),
            weight: Weight::ONE,
        }
    }
}
