//! Rendezvous hashing: each node draws a number for each key, and the best draw wins.
//!
//! Fair to the noise of its keys, with exact weights, and it moves only what it must. A look-up
//! asks every node.

use crate::hash::Scorer;
use crate::node::{Node, NodeId};
use crate::scheme::{Refused, Scheme};

/// Nodes that draw for each key.
#[derive(Clone, Debug, Default)]
pub struct Rendezvous {
    members: Vec<(Node, Scorer)>,
}

impl Rendezvous {
    /// Without nodes.
    pub fn new() -> Self {
        Self::default()
    }

    /// All nodes, the first choice for this key first. Its first r hold r replicas.
    pub fn ranked(&self, key: u64) -> Vec<NodeId> {
        let mut scores: Vec<_> = self.scores(key).collect();
        scores.sort_unstable();
        scores.into_iter().map(|(_, id)| id).collect()
    }

    fn scores(&self, key: u64) -> impl Iterator<Item = (u64, NodeId)> {
        self.members
            .iter()
            .map(move |(_, scorer)| scorer.score(key))
    }

    fn position(&self, id: NodeId) -> Option<usize> {
        self.members.iter().position(|(node, _)| node.id == id)
    }
}

impl Scheme for Rendezvous {
    fn owner(&self, key: u64) -> Option<NodeId> {
        self.scores(key).min().map(|(_, id)| id)
    }

    fn join(&mut self, node: Node) -> Result<(), Refused> {
        if self.position(node.id).is_some() {
            return Err(Refused::Present);
        }
        self.members.push((node, Scorer::new(&node)));
        Ok(())
    }

    fn leave(&mut self, id: NodeId) -> Result<(), Refused> {
        let position = self.position(id).ok_or(Refused::Absent)?;
        self.members.swap_remove(position);
        Ok(())
    }

    fn nodes(&self) -> Vec<Node> {
        self.members.iter().map(|(node, _)| *node).collect()
    }

    fn table_bytes(&self) -> usize {
        self.members.len() * size_of::<Scorer>()
    }
}
