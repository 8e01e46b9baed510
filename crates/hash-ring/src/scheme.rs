//! What all schemes have in common.

use crate::node::{Node, NodeId};

/// A scheme that assigns each key to a node.
pub trait Scheme {
    /// The node that holds the key with this [hash](crate::key_hash); none without nodes.
    fn owner(&self, key: u64) -> Option<NodeId>;

    /// Adds a node.
    fn join(&mut self, node: Node) -> Result<(), Refused>;

    /// Removes a node.
    fn leave(&mut self, id: NodeId) -> Result<(), Refused>;

    /// The nodes, in no particular order.
    fn nodes(&self) -> Vec<Node>;

    /// How many bytes of tables a look-up needs.
    fn table_bytes(&self) -> usize;
}

/// Why a node cannot join or leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// It is a member.
    #[error("the node is a member already")]
    Present,
    /// It is no member.
    #[error("the node is not a member")]
    Absent,
    /// Jump hashing numbers nodes, and only the last number can be given up.
    #[error("jump hashing can only remove the node that joined last")]
    NotLast,
    /// Jump hashing has no weights.
    #[error("jump hashing knows no weights")]
    Weighted,
    /// The table has no room for another.
    #[error("the slot table has no room for another node")]
    Full,
    /// A slot table has at least one node.
    #[error("the last node of a slot table cannot leave")]
    Last,
}
