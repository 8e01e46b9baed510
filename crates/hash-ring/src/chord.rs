//! Chord (Stoica and others, 2001): a ring in which each place knows few others, its fingers, and
//! hands a search on to the finger that comes closest.
//!
//! Finger i of a place is the successor of the point 2^i behind it. The simulation has the whole
//! ring, so it looks a finger up when it needs it, and keeps no table; what is counted is the same.
//!
//! Deliberately absent: the protocol that keeps fingers right while nodes come and go. The
//! published one is incorrect (Zave, 2012).

use crate::node::{Node, NodeId};
use crate::ring::Ring;
use crate::scheme::{Refused, Scheme};

/// Whose fingers a search may use at a node with several places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fingers {
    /// Those of the place that the search has reached, as if each virtual node were a node.
    OfThePlace,
    /// Those of all places of the node.
    OfTheNode,
}

/// A ring that is searched through fingers.
#[derive(Clone, Debug)]
pub struct Chord {
    ring: Ring,
    fingers: Fingers,
    /// The places of each node, if a search uses all of them.
    places: Vec<Vec<usize>>,
}

impl Chord {
    /// Over this ring.
    pub fn new(ring: Ring, fingers: Fingers) -> Self {
        let mut chord = Self {
            ring,
            fingers,
            places: Vec::new(),
        };
        chord.note_places();
        chord
    }

    /// The ring under it.
    pub fn ring(&self) -> &Ring {
        &self.ring
    }

    /// How many messages a search for a key takes from a place to the key's owner.
    pub fn hops(&self, start: usize, key: u64) -> u32 {
        let target = self.ring.successor(key);
        match self.fingers {
            Fingers::OfThePlace => self.hops_by_place(start, target, key),
            Fingers::OfTheNode => self.hops_by_node(start, target, key),
        }
    }

    /// How many different fingers a place has.
    pub fn distinct_fingers(&self, place: usize) -> usize {
        let mut fingers: Vec<_> = (0..64).map(|level| self.finger(place, level)).collect();
        fingers.sort_unstable();
        fingers.dedup();
        fingers.len()
    }

    fn finger(&self, place: usize, level: u32) -> usize {
        self.ring
            .successor(self.ring.point(place).wrapping_add(1 << level))
    }

    fn hops_by_place(&self, start: usize, target: usize, key: u64) -> u32 {
        let mut place = start;
        let mut hops = 0;
        while place != target {
            // Without a finger before the key the successor is the owner.
            place = self.closest_preceding(place, key).unwrap_or(target);
            hops += 1;
        }
        hops
    }

    fn hops_by_node(&self, start: usize, target: usize, key: u64) -> u32 {
        let owner = self.ring.holder(target);
        let mut node = self.ring.holder(start);
        let mut hops = 0;
        while node != owner {
            let own = self.places[node].iter();
            let best = own.map(|place| {
                let next = self.closest_preceding(*place, key).unwrap_or(*place);
                (key.wrapping_sub(self.ring.point(next)), next)
            });
            let next = best.min().map_or(target, |(_, next)| next);
            // The closest place that the node knows is its own: the owner comes right behind it.
            let is_own = self.ring.holder(next) == node;
            node = if is_own {
                owner
            } else {
                self.ring.holder(next)
            };
            hops += 1;
        }
        hops
    }

    /// The finger of this place that comes closest to the key and is before it.
    fn closest_preceding(&self, place: usize, key: u64) -> Option<usize> {
        let from = self.ring.point(place);
        let distance = key.wrapping_sub(from);
        let highest = distance.checked_ilog2()?;
        for level in (0..=highest).rev() {
            let finger = self.finger(place, level);
            let reached = self.ring.point(finger).wrapping_sub(from);
            if 0 < reached && reached < distance {
                return Some(finger);
            }
            // Nothing is between this finger's start and the key; lower fingers may be before it,
            // unless there is nothing at all.
            if level == 0 || self.ring.successor(from.wrapping_add(1)) == self.ring.successor(key) {
                return None;
            }
        }
        None
    }

    fn note_places(&mut self) {
        self.places.clear();
        if self.fingers == Fingers::OfTheNode {
            self.places.resize(self.ring.nodes().len(), Vec::new());
            for place in 0..self.ring.len() {
                self.places[self.ring.holder(place)].push(place);
            }
        }
    }
}

impl Scheme for Chord {
    fn owner(&self, key: u64) -> Option<NodeId> {
        self.ring.owner(key)
    }

    fn join(&mut self, node: Node) -> Result<(), Refused> {
        self.ring.join(node)?;
        self.note_places();
        Ok(())
    }

    fn leave(&mut self, id: NodeId) -> Result<(), Refused> {
        self.ring.leave(id)?;
        self.note_places();
        Ok(())
    }

    fn nodes(&self) -> Vec<Node> {
        self.ring.nodes()
    }

    fn table_bytes(&self) -> usize {
        self.ring.table_bytes()
    }
}
