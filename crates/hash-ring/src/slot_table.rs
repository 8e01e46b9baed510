//! The slot table: a key belongs to a slot for ever, and a table says which nodes hold the slot.
//!
//! A look-up is one hash and one read of an array. The table is state, not a function of the
//! members: it is changed from one epoch to the next, and moves as little as its bounds allow.
//!
//! Invariants, for every table that this module makes:
//!
//! - A node of weight w is the primary of at most ⌈slots · w / W⌉ slots, W the sum of the weights.
//! - A slot has as many copies as the shape says, or one on each node if there are fewer nodes. No
//!   two are on one node; no two are in one zone, if there are as many zones as copies, and
//!   otherwise there is one in every zone.
//! - A slot's primary moves between two nodes that both stay only if the quotas demand it: a quota
//!   is the node's share, rounded down or up. If all weights are the same, it never does.
//! - The table is a function of the table before it and the new members. The first one is a
//!   function of the members alone.
//!
//! Deliberately absent: measured load. Slots count the same.

mod balance;
mod format;
mod quota;

use std::collections::BTreeSet;

use crate::limits::{COPIES_MAX, NODES_MAX, SLOTS_MAX};
use crate::node::{Node, NodeId};
use crate::scheme::{Refused, Scheme};

pub use format::{Change, DecodeError, StaleChange};

/// In a row: there is no node for this copy.
const NONE: u16 = u16::MAX;

/// What never changes about a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// How many slots: 1 to [`SLOTS_MAX`]. A hundred for each node keep all loads within 1 %.
    pub slots: u32,
    /// How many nodes hold each slot, the primary among them: 1 to [`COPIES_MAX`].
    pub copies: u8,
}

/// Which nodes hold which slots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotTable {
    epoch: u64,
    shape: Shape,
    /// A node keeps its seat until it leaves, so that a change of the members changes few rows.
    seats: Vec<Option<Node>>,
    /// For each slot, the seats of its primary and its replicas.
    rows: Vec<u16>,
}

/// A slot whose primary is another node than before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// The slot.
    pub slot: u32,
    /// Its primary before.
    pub from: NodeId,
    /// Its primary now.
    pub to: NodeId,
}

/// Why there can be no such table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TableError {
    /// No or too many slots.
    #[error("a slot table has 1 to {SLOTS_MAX} slots, not {0}")]
    Slots(u32),
    /// No or too many copies.
    #[error("a slot has 1 to {COPIES_MAX} copies, not {0}")]
    Copies(u8),
    /// No or too many nodes.
    #[error("a slot table has 1 to {NODES_MAX} nodes, not {0}")]
    Nodes(usize),
    /// Two nodes with one id.
    #[error("two nodes have the id {:016x}", .0.0)]
    Repeated(NodeId),
}

impl SlotTable {
    /// The first table of these members, in whatever order they are given.
    pub fn new(shape: Shape, members: &[Node]) -> Result<Self, TableError> {
        shape.check()?;
        let rows = shape.slots as usize * usize::from(shape.copies);
        let nothing = Self {
            epoch: 0,
            shape,
            seats: Vec::new(),
            rows: vec![NONE; rows],
        };
        nothing.rebalanced(members)
    }

    /// The next table, for these members.
    pub fn rebalanced(&self, members: &[Node]) -> Result<Self, TableError> {
        if members.is_empty() || members.len() > NODES_MAX {
            return Err(TableError::Nodes(members.len()));
        }
        let mut ids = BTreeSet::new();
        if let Some(node) = members.iter().find(|node| !ids.insert(node.id)) {
            return Err(TableError::Repeated(node.id));
        }
        let mut next = Self {
            epoch: self.epoch + 1,
            shape: self.shape,
            seats: self.seated(members),
            rows: self.rows.clone(),
        };
        for (seat, before) in self.seats.iter().enumerate() {
            let stays = next.seats.get(seat).copied().flatten();
            if stays.map(|node| node.id) != before.map(|node| node.id) {
                next.vacate(seat);
            }
        }
        balance::balance(&mut next.rows, self.shape.copies, &next.seats);
        Ok(next)
    }

    /// Counts the changes from the first table, which is 1.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// What never changes.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// The slot of a key with this [hash](crate::key_hash).
    pub fn slot(&self, key: u64) -> u32 {
        let slot = (u128::from(key) * u128::from(self.shape.slots)) >> 64;
        u32::try_from(slot).expect("it is below the number of slots, which has 32 bits")
    }

    /// The node that decides for a slot. Slots are numbered from 0.
    pub fn primary(&self, slot: u32) -> Option<Node> {
        self.holders(slot).next()
    }

    /// The nodes that hold a slot, its primary first; none of a slot that is not there.
    pub fn holders(&self, slot: u32) -> impl Iterator<Item = Node> {
        let copies = usize::from(self.shape.copies);
        let start = slot as usize * copies;
        let row = self.rows.get(start..start + copies).unwrap_or_default();
        row.iter().filter_map(|seat| self.node(*seat))
    }

    /// The slots whose primary is another node in the next table.
    pub fn moves(&self, next: &Self) -> Vec<Move> {
        let slots = 0..self.shape.slots.min(next.shape.slots);
        let moved = slots.filter_map(|slot| {
            let (from, to) = (self.primary(slot)?.id, next.primary(slot)?.id);
            (from != to).then_some(Move { slot, from, to })
        });
        moved.collect()
    }

    /// The nodes that get a copy of a slot in the next table which they did not have.
    pub fn new_copies(&self, next: &Self) -> Vec<(u32, NodeId)> {
        let mut copies = Vec::new();
        for slot in 0..next.shape.slots {
            let had: Vec<_> = self.holders(slot).map(|node| node.id).collect();
            let now = next.holders(slot).map(|node| node.id);
            copies.extend(now.filter(|id| !had.contains(id)).map(|id| (slot, id)));
        }
        copies
    }

    fn node(&self, seat: u16) -> Option<Node> {
        self.seats.get(usize::from(seat)).copied().flatten()
    }

    /// Members who stay keep their seats; new ones take the lowest empty seats, by id.
    fn seated(&self, members: &[Node]) -> Vec<Option<Node>> {
        let find = |id| members.iter().find(|node| node.id == id).copied();
        let mut seats: Vec<_> = self.seats.iter().map(|seat| find((*seat)?.id)).collect();
        let seated: BTreeSet<_> = seats.iter().flatten().map(|node| node.id).collect();
        let mut others: Vec<_> = members
            .iter()
            .filter(|node| !seated.contains(&node.id))
            .collect();
        others.sort_unstable_by_key(|node| node.id);
        let mut empty = 0;
        for node in others {
            while seats.get(empty).is_some_and(Option::is_some) {
                empty += 1;
            }
            if empty == seats.len() {
                seats.push(None);
            }
            seats[empty] = Some(*node);
        }
        while seats.last().is_some_and(Option::is_none) {
            seats.pop();
        }
        seats
    }

    fn vacate(&mut self, seat: usize) {
        for held in &mut self.rows {
            if usize::from(*held) == seat {
                *held = NONE;
            }
        }
    }
}

impl Shape {
    fn check(self) -> Result<(), TableError> {
        if self.slots == 0 || self.slots > SLOTS_MAX {
            return Err(TableError::Slots(self.slots));
        }
        if self.copies == 0 || self.copies > COPIES_MAX {
            return Err(TableError::Copies(self.copies));
        }
        Ok(())
    }
}

impl Scheme for SlotTable {
    fn owner(&self, key: u64) -> Option<NodeId> {
        let row = self.slot(key) as usize * usize::from(self.shape.copies);
        let seat = *self.rows.get(row)?;
        self.node(seat).map(|node| node.id)
    }

    fn join(&mut self, node: Node) -> Result<(), Refused> {
        let mut members = self.nodes();
        if members.iter().any(|other| other.id == node.id) {
            return Err(Refused::Present);
        }
        members.push(node);
        *self = self.rebalanced(&members).map_err(|_| Refused::Full)?;
        Ok(())
    }

    fn leave(&mut self, id: NodeId) -> Result<(), Refused> {
        let mut members = self.nodes();
        let position = members.iter().position(|node| node.id == id);
        members.remove(position.ok_or(Refused::Absent)?);
        *self = self.rebalanced(&members).map_err(|_| Refused::Last)?;
        Ok(())
    }

    fn nodes(&self) -> Vec<Node> {
        self.seats.iter().flatten().copied().collect()
    }

    fn table_bytes(&self) -> usize {
        size_of_val(&*self.rows)
    }
}
