//! Kernel 2: breadth-first search by several threads, direction-optimising (Beamer, Asanović and
//! Patterson, "Direction-Optimizing Breadth-First Search", 2012).
//!
//! ```text
//! for each level:
//!     while the frontier has few edges, top down: each of its vertices claims its unvisited
//!         neighbours in the bitmap of the visited; the frontier is a list
//!     else bottom up: each unvisited vertex looks for a neighbour in the frontier and stops at
//!         the first; the frontier is a bitmap
//! ```
//!
//! Bottom up, a word of the bitmaps belongs to one thread for the level, so nothing is written by
//! two. Top down, the thread that sets the bit of a vertex owns it. Between levels the team of
//! threads waits; what a level wrote is read in the next.
//!
//! Vertices without a neighbour count as visited from the start, so no level looks at them.

use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};

use session_channels::par::{Parallel, Team};
use thiserror::Error;

use super::graph::{Graph, WORD};
use super::limits::{LEVEL_MAX, Vertex};
use super::tree::Tree;

/// The search goes bottom up when the frontier has more than this part of the edges that are not
/// yet looked at. Value of the paper.
const ALPHA: usize = 15;
/// And top down again when the frontier shrinks and has less than this part of the vertices. Value
/// of the paper.
const BETA: usize = 18;
/// Vertices of a frontier that make another thread worth while, top down.
const TOP_DOWN_MIN: usize = 64;
/// Words of a bitmap that make another thread worth while, bottom up.
const BOTTOM_UP_MIN: usize = 64;

/// Why there is no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SearchError {
    /// The root is no vertex of the graph.
    #[error("there is no vertex {root}: the graph has {vertices}, numbered from 0")]
    NoSuchRoot {
        /// The root.
        root: Vertex,
        /// How many vertices the graph has.
        vertices: usize,
    },
    /// A vertex is too far from the root.
    #[error("from vertex {root} there are more than {LEVEL_MAX} levels")]
    TooDeep {
        /// The root.
        root: Vertex,
    },
}

/// Searches in one graph, one after the other, in the same memory.
#[derive(Debug)]
pub struct Search<'a> {
    team: &'a Team,
    state: State<'a>,
}

/// What the threads share.
#[derive(Debug)]
struct State<'a> {
    graph: &'a Graph,
    tree: Tree,
    visited: Vec<AtomicU64>,
    /// The frontier, bottom up.
    front: Vec<AtomicU64>,
    /// The frontier of the next level, bottom up.
    next: Vec<AtomicU64>,
}

/// A frontier as a list, and how many neighbours its vertices have.
#[derive(Default)]
struct Frontier {
    vertices: Vec<Vertex>,
    neighbours: usize,
}

impl<'a> Search<'a> {
    /// Takes the memory for searches.
    pub fn new(graph: &'a Graph, team: &'a Team) -> Self {
        let words = graph.isolated().len();
        let bitmap = || (0..words).map(|_| AtomicU64::new(0)).collect();
        let state = State {
            graph,
            tree: Tree::new(graph.vertices()),
            visited: bitmap(),
            front: bitmap(),
            next: bitmap(),
        };
        Self { team, state }
    }

    /// The last result.
    pub fn tree(&self) -> &Tree {
        &self.state.tree
    }

    /// Searches from `root`.
    pub fn run(&mut self, root: Vertex) -> Result<&Tree, SearchError> {
        let Self { team, state } = self;
        let graph = state.graph;
        let vertices = graph.vertices();
        if root as usize >= vertices {
            return Err(SearchError::NoSuchRoot { root, vertices });
        }
        state.begin(root, team);
        let mut frontier = Frontier {
            vertices: vec![root],
            neighbours: graph.degree(root),
        };
        let mut unseen = graph.neighbours_of_all();
        let mut level = 0;
        let deeper = |level: u16| match level {
            LEVEL_MAX => Err(SearchError::TooDeep { root }),
            level => Ok(level + 1),
        };
        while !frontier.vertices.is_empty() {
            if frontier.neighbours > unseen / ALPHA {
                state.list_to_bitmap(&frontier.vertices);
                let mut awake = frontier.vertices.len();
                loop {
                    let before = awake;
                    level = deeper(level)?;
                    awake = state.bottom_up(level, team);
                    mem::swap(&mut state.front, &mut state.next);
                    if awake < before && awake <= vertices / BETA {
                        break;
                    }
                }
                frontier.vertices = state.bitmap_to_list();
                frontier.neighbours = 1;
            } else {
                unseen = unseen.saturating_sub(frontier.neighbours);
                level = deeper(level)?;
                frontier = state.top_down(&frontier.vertices, level, team);
            }
        }
        Ok(&state.tree)
    }
}

impl State<'_> {
    fn begin(&mut self, root: Vertex, team: &Team) {
        self.tree.begin(root, team);
        for (visited, isolated) in self.visited.iter_mut().zip(self.graph.isolated()) {
            *visited.get_mut() = *isolated;
        }
        let (word, bit) = place(root);
        *self.visited[word].get_mut() |= bit;
    }

    /// The vertices of the next level.
    fn top_down(&self, frontier: &[Vertex], level: u16, team: &Team) -> Frontier {
        let visit = |_, vertices: &[Vertex]| {
            let mut found = Frontier::default();
            for &vertex in vertices {
                for &neighbour in self.graph.neighbours(vertex) {
                    let (word, bit) = place(neighbour);
                    let word = &self.visited[word];
                    if word.load(Ordering::Relaxed) & bit == 0
                        && word.fetch_or(bit, Ordering::Relaxed) & bit == 0
                    {
                        self.tree.put(neighbour, vertex, level);
                        found.vertices.push(neighbour);
                        found.neighbours += self.graph.degree(neighbour);
                    }
                }
            }
            found
        };
        let team = team.items_per_task_min(TOP_DOWN_MIN);
        let found = team.reduce_blocks(frontier, visit, |mut one, other| {
            one.vertices.extend(other.vertices);
            one.neighbours += other.neighbours;
            one
        });
        found.unwrap_or_default()
    }

    /// Writes the next level to `next`, and says how many vertices it has.
    fn bottom_up(&self, level: u16, team: &Team) -> usize {
        let team = team.items_per_task_min(BOTTOM_UP_MIN);
        let part = |first: usize, next: &[AtomicU64]| {
            let mut awake = 0;
            for (word, next) in (first..).zip(next) {
                let visited = self.visited[word].load(Ordering::Relaxed);
                let found = self.bottom_up_word(word, !visited, level);
                next.store(found, Ordering::Relaxed);
                if found != 0 {
                    self.visited[word].store(visited | found, Ordering::Relaxed);
                    awake += found.count_ones() as usize;
                }
            }
            awake
        };
        let awake = team.reduce_blocks(&self.next, part, |one, other| one + other);
        awake.unwrap_or(0)
    }

    /// Those of the unvisited vertices of a word that have a neighbour in the frontier.
    #[inline]
    fn bottom_up_word(&self, word: usize, mut unvisited: u64, level: u16) -> u64 {
        let mut found = 0;
        let base = Vertex::try_from(word * WORD).expect("there are at most `VERTICES_MAX`");
        while unvisited != 0 {
            let offset = unvisited.trailing_zeros();
            unvisited &= unvisited - 1;
            let vertex = base + offset;
            let first = self.graph.first()[vertex as usize];
            let parent = if self.is_in_front(first) {
                Some(first)
            } else {
                let others = self.graph.neighbours(vertex).iter().skip(1);
                others.copied().find(|other| self.is_in_front(*other))
            };
            if let Some(parent) = parent {
                self.tree.put(vertex, parent, level);
                found |= 1 << offset;
            }
        }
        found
    }

    #[inline]
    fn is_in_front(&self, vertex: Vertex) -> bool {
        let (word, bit) = place(vertex);
        self.front[word].load(Ordering::Relaxed) & bit != 0
    }

    fn list_to_bitmap(&mut self, vertices: &[Vertex]) {
        for word in &mut self.front {
            *word.get_mut() = 0;
        }
        for vertex in vertices {
            let (word, bit) = place(*vertex);
            *self.front[word].get_mut() |= bit;
        }
    }

    fn bitmap_to_list(&mut self) -> Vec<Vertex> {
        let mut vertices = Vec::new();
        for (word, base) in self.front.iter_mut().zip((0..).step_by(WORD)) {
            let mut left = *word.get_mut();
            while left != 0 {
                vertices.push(base + left.trailing_zeros());
                left &= left - 1;
            }
        }
        vertices
    }
}

/// The word of a vertex in a bitmap, and its bit.
#[inline]
fn place(vertex: Vertex) -> (usize, u64) {
    (vertex as usize / WORD, 1 << (vertex as usize % WORD))
}
