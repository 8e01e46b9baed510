//! Consistent hashing (Karger and others, 1997): nodes and keys are on a circle, and a node holds
//! the keys between its predecessor and itself.
//!
//! A node of weight w has w · k places, its virtual nodes. With n nodes of equal weight the load of
//! each, in units of the mean, is Beta(k, k(n-1)) · n: close to the gamma law with mean 1 and
//! standard deviation 1/√k.
//!
//! Invariants: places are in order of their points; `index` names, for each value of the highest
//! bits, the first place that is not below it.

mod places;

use crate::hash::pair_hash;
use crate::node::{Node, NodeId};
use crate::scheme::{Refused, Scheme};
use places::Place;

/// Nodes on a circle of 2^64 points, each with the same number of virtual nodes per weight.
#[derive(Clone, Debug)]
pub struct Ring {
    virtual_nodes: u32,
    nodes: Vec<Node>,
    places: Vec<Place>,
    index: Vec<u32>,
    shift: u32,
}

impl Ring {
    /// Without nodes; a node that joins gets so many places for each unit of its weight, at least
    /// one.
    pub fn new(virtual_nodes: u32) -> Self {
        Self::with_nodes(virtual_nodes, Vec::new())
    }

    /// With these nodes, whose ids differ.
    pub fn with_nodes(virtual_nodes: u32, nodes: Vec<Node>) -> Self {
        let mut ring = Self {
            virtual_nodes: virtual_nodes.max(1),
            nodes,
            places: Vec::new(),
            index: Vec::new(),
            shift: 63,
        };
        for position in 0..ring.nodes.len() {
            ring.add_places(position);
        }
        ring.arrange();
        ring
    }

    /// How many of the 2^64 points each node holds, in the order of [`Scheme::nodes`].
    pub fn loads(&self) -> Vec<u128> {
        let mut loads = vec![0; self.nodes.len()];
        if let [only] = &mut *loads {
            *only = 1 << 64;
            return loads;
        }
        let mut before = self.places.last().map_or(0, |place| place.point);
        for place in &self.places {
            loads[place.owner as usize] += u128::from(place.point.wrapping_sub(before));
            before = place.point;
        }
        loads
    }

    /// How many places there are.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether there is no place.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Where a place is on the circle; places are numbered from 0, clockwise.
    pub fn point(&self, place: usize) -> u64 {
        self.places[place].point
    }

    /// Whose place it is, as a position in [`Scheme::nodes`].
    pub fn holder(&self, place: usize) -> usize {
        self.places[place].owner as usize
    }

    /// The first place at this point or behind it; 0 of none.
    pub fn successor(&self, point: u64) -> usize {
        let bucket = usize::try_from(point >> self.shift).ok();
        let Some(start) = bucket.and_then(|bucket| self.index.get(bucket)) else {
            return 0;
        };
        let start = *start as usize;
        let below = self.places[start..]
            .iter()
            .take_while(|place| place.point < point)
            .count();
        if start + below == self.places.len() {
            0
        } else {
            start + below
        }
    }

    fn add_places(&mut self, position: usize) {
        let node = self.nodes[position];
        let owner = u32::try_from(position).expect("there are fewer nodes than places");
        let count = u64::from(self.virtual_nodes) * u64::from(node.weight.get());
        let points = (0..count).map(|number| pair_hash(node.id, number));
        self.places
            .extend(points.map(|point| Place { point, owner }));
    }

    /// Sorts the places and makes the index over about as many of their highest bits as tell them
    /// apart.
    fn arrange(&mut self) {
        let nodes = &self.nodes;
        places::sort(&mut self.places, |place| nodes[place.owner as usize].id);
        let bits = self.places.len().max(2).ilog2();
        self.shift = 64 - bits;
        self.index.clear();
        if self.places.is_empty() {
            return;
        }
        let mut place = 0;
        for bucket in 0..1_u64 << bits {
            while place < self.places.len() && self.places[place].point >> self.shift < bucket {
                place += 1;
            }
            self.index
                .push(u32::try_from(place).expect("fewer than 2^32 places fit in memory"));
        }
    }

    fn position(&self, id: NodeId) -> Option<usize> {
        self.nodes.iter().position(|node| node.id == id)
    }
}

impl Scheme for Ring {
    fn owner(&self, key: u64) -> Option<NodeId> {
        let place = self.places.get(self.successor(key))?;
        Some(self.nodes[place.owner as usize].id)
    }

    fn join(&mut self, node: Node) -> Result<(), Refused> {
        if self.position(node.id).is_some() {
            return Err(Refused::Present);
        }
        self.nodes.push(node);
        self.add_places(self.nodes.len() - 1);
        self.arrange();
        Ok(())
    }

    fn leave(&mut self, id: NodeId) -> Result<(), Refused> {
        let position = self.position(id).ok_or(Refused::Absent)?;
        self.nodes.swap_remove(position);
        let [gone, moved] = [position, self.nodes.len()]
            .map(|position| u32::try_from(position).expect("there are fewer nodes than places"));
        self.places.retain_mut(|place| {
            let stays = place.owner != gone;
            if place.owner == moved {
                place.owner = gone;
            }
            stays
        });
        self.arrange();
        Ok(())
    }

    fn nodes(&self) -> Vec<Node> {
        self.nodes.clone()
    }

    fn table_bytes(&self) -> usize {
        size_of_val(&*self.places) + size_of_val(&*self.index)
    }
}
