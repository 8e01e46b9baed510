//! The result of a search: a parent and a level for each vertex that was reached.

use std::sync::atomic::{AtomicU16, AtomicU32, Ordering};

use session_channels::par::{Parallel, Team};

use super::limits::{LEVEL_MAX, NONE, Vertex};

/// In the place of a level where there is none.
pub(super) const NO_LEVEL: u16 = u16::MAX;

// The level of a vertex outside the tree differs by more than one from that of one inside.
const _: () = assert!(LEVEL_MAX + 1 < NO_LEVEL);

/// A tree of breadth-first search.
///
/// Threads that find the same vertex at once may write its parent: any of them is right, and the
/// level is the same. So the arrays are of atomics, without an order among them.
#[derive(Debug)]
pub struct Tree {
    root: Vertex,
    parents: Vec<AtomicU32>,
    levels: Vec<AtomicU16>,
}

impl Tree {
    /// A tree for so many vertices; all are outside.
    pub fn new(vertices: usize) -> Self {
        let none = (0..vertices).map(|_| (AtomicU32::new(NONE), AtomicU16::new(NO_LEVEL)));
        let (parents, levels) = none.unzip();
        Self {
            root: NONE,
            parents,
            levels,
        }
    }

    /// Takes all vertices out, and puts the root in.
    pub(super) fn begin(&mut self, root: Vertex, team: &Team) {
        self.root = root;
        team.map_in_place(&mut self.parents, |parent| *parent.get_mut() = NONE);
        team.map_in_place(&mut self.levels, |level| *level.get_mut() = NO_LEVEL);
        self.put(root, root, 0);
    }

    /// How many vertices there are, those outside among them.
    pub fn vertices(&self) -> usize {
        self.parents.len()
    }

    /// The search key.
    pub fn root(&self) -> Vertex {
        self.root
    }

    /// The parent of a vertex, the root's is itself; `None` outside the tree.
    pub fn parent(&self, vertex: Vertex) -> Option<Vertex> {
        let parent = self.parents[vertex as usize].load(Ordering::Relaxed);
        (parent != NONE).then_some(parent)
    }

    /// How many edges lead from the root to a vertex; `None` outside the tree.
    pub fn level(&self, vertex: Vertex) -> Option<u16> {
        let level = self.levels[vertex as usize].load(Ordering::Relaxed);
        (level != NO_LEVEL).then_some(level)
    }

    /// Puts a vertex in, at most [`LEVEL_MAX`] below the root.
    #[inline]
    pub fn put(&self, vertex: Vertex, parent: Vertex, level: u16) {
        self.parents[vertex as usize].store(parent, Ordering::Relaxed);
        self.levels[vertex as usize].store(level, Ordering::Relaxed);
    }

    /// Takes a vertex out.
    pub fn take_out(&self, vertex: Vertex) {
        self.put(vertex, NONE, NO_LEVEL);
    }

    pub(super) fn parents(&self) -> &[AtomicU32] {
        &self.parents
    }

    pub(super) fn levels(&self) -> &[AtomicU16] {
        &self.levels
    }
}
