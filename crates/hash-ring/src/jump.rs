//! Jump consistent hashing (Lamping and Veach, 2014): a key jumps from bucket to bucket, and its
//! last jump below the number of buckets is its own.
//!
//! Fair to the noise of its keys, and without a table. Only the last bucket can go, and there are
//! no weights.

use crate::node::{Node, NodeId, Weight};
use crate::scheme::{Refused, Scheme};

/// Nodes in the order in which they joined.
#[derive(Clone, Debug, Default)]
pub struct Jump {
    nodes: Vec<Node>,
}

impl Jump {
    /// Without nodes.
    pub fn new() -> Self {
        Self::default()
    }

    /// The bucket of a key, of so many; 0 of none.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the published algorithm: an exact 31-bit division, rounded down"
    )]
    pub fn bucket(mut key: u64, buckets: u32) -> u32 {
        let mut bucket = 0;
        let mut next = 0_u64;
        while next < u64::from(buckets) {
            bucket = next;
            key = key.wrapping_mul(2_862_933_555_777_941_757).wrapping_add(1);
            let scale = (1_u64 << 31) as f64 / ((key >> 33) + 1) as f64;
            next = ((bucket + 1) as f64 * scale) as u64;
        }
        u32::try_from(bucket).expect("a bucket is below the number of buckets, which has 32 bits")
    }
}

impl Scheme for Jump {
    fn owner(&self, key: u64) -> Option<NodeId> {
        let buckets = u32::try_from(self.nodes.len()).unwrap_or(u32::MAX);
        let node = self.nodes.get(Self::bucket(key, buckets) as usize)?;
        Some(node.id)
    }

    fn join(&mut self, node: Node) -> Result<(), Refused> {
        if node.weight != Weight::ONE {
            return Err(Refused::Weighted);
        }
        if self.nodes.iter().any(|other| other.id == node.id) {
            return Err(Refused::Present);
        }
        self.nodes.push(node);
        Ok(())
    }

    fn leave(&mut self, id: NodeId) -> Result<(), Refused> {
        match self.nodes.iter().position(|node| node.id == id) {
            None => Err(Refused::Absent),
            Some(position) if position + 1 == self.nodes.len() => {
                self.nodes.pop();
                Ok(())
            }
            Some(_) => Err(Refused::NotLast),
        }
    }

    fn nodes(&self) -> Vec<Node> {
        self.nodes.clone()
    }

    fn table_bytes(&self) -> usize {
        size_of::<u32>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_those_of_other_implementations() {
        for (key, buckets, expected) in [
            (1, 1, 0),
            (42, 57, 43),
            (0xDEAD_10CC, 1, 0),
            (0xDEAD_10CC, 666, 361),
            (256, 1_024, 520),
        ] {
            assert_eq!(Jump::bucket(key, buckets), expected);
        }
        assert_eq!(Jump::bucket(42, 0), 0);
    }
}
