//! The five rules that a result must keep, on the list of edges and not on the graph of kernel 1.
//!
//! The list is grouped once: vertices are numbered in descending order of degree (their *rank*),
//! and each tuple, none left out, stands at its end of lower degree. So the levels of the other
//! ends, which are looked up in no order, are mostly those of few vertices, and stay in the cache.
//! Then each result is checked in one pass of all threads over vertices and tuples. If something
//! is wrong, a second, simple pass finds the rule and where it is broken.
//!
//! Level and parent of the search are checked together: if levels grow by one along each parent,
//! there can be no cycle; if in addition they differ by at most one along each tuple and the root
//! has level 0, they are the distances.

use std::sync::atomic::Ordering;

use session_channels::par::{Parallel, Team};
use thiserror::Error;

use super::edges::Edge;
use super::grouped::{Grouped, Ranking};
use super::limits::{LEVEL_MAX, NONE, Vertex};
use super::tree::{NO_LEVEL, Tree};

/// Vertices that make another thread worth while.
pub const VERTICES_MIN: usize = 4_096;

/// Which rule a result breaks, in the order of the text, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Fault {
    /// The result is of another graph.
    #[error("the result has {found} vertices and the list {expected}")]
    Vertices {
        /// In the list.
        expected: usize,
        /// In the result.
        found: usize,
    },
    /// Rule 1: the result is a tree, without cycles.
    #[error("rule 1, no cycle: the parents of vertex {vertex} do not lead to the root {root}")]
    Cycle {
        /// One of those that do not.
        vertex: Vertex,
        /// The search key.
        root: Vertex,
    },
    /// Rule 2: an edge of the tree joins levels that differ by one.
    #[error("rule 2, tree edge: vertex {vertex} has level {level:?}, its parent {parent_level:?}")]
    TreeEdge {
        /// The vertex.
        vertex: Vertex,
        /// Its level, if it has one.
        level: Option<u16>,
        /// The level of its parent, if it has one.
        parent_level: Option<u16>,
    },
    /// Rule 3: an edge of the list joins levels that differ by one at most.
    #[error("rule 3, list edge: {start} and {end} are joined and differ by more than one level")]
    ListEdge {
        /// One end.
        start: Vertex,
        /// The other end.
        end: Vertex,
    },
    /// Rule 4: the tree spans the component of the root.
    #[error("rule 4, whole component: {start} is in the tree and {end}, joined to it, is not")]
    Component {
        /// The end inside.
        start: Vertex,
        /// The end outside.
        end: Vertex,
    },
    /// Rule 5: a vertex and its parent are joined by an edge of the list.
    #[error("rule 5, real edge: no edge joins {vertex} and its parent {parent}")]
    NoEdge {
        /// The vertex.
        vertex: Vertex,
        /// Its parent.
        parent: Vertex,
    },
}

impl Fault {
    /// The rule's number in the text; 0 if the result is of another graph.
    pub const fn rule(&self) -> u8 {
        match self {
            Self::Vertices { .. } => 0,
            Self::Cycle { .. } => 1,
            Self::TreeEdge { .. } => 2,
            Self::ListEdge { .. } => 3,
            Self::Component { .. } => 4,
            Self::NoEdge { .. } => 5,
        }
    }
}

/// What a check needs of threads. [`Parallel`] has it; another pool can be given it, to compare.
pub trait Threads {
    /// The results of `f` for all items, in their order.
    fn map_slice<T: Sync, R: Send>(&self, items: &[T], f: impl Fn(&T) -> R + Sync) -> Vec<R>;

    /// Blocks of neighbours, each with the index of its first item, and their results combined.
    fn reduce_slice<T: Sync, A: Send>(
        &self,
        items: &[T],
        part: impl Fn(usize, &[T]) -> A + Sync,
        combine: impl Fn(A, A) -> A,
    ) -> Option<A>;
}

impl<P: Parallel> Threads for P {
    fn map_slice<T: Sync, R: Send>(&self, items: &[T], f: impl Fn(&T) -> R + Sync) -> Vec<R> {
        Parallel::map(self, items, f)
    }

    fn reduce_slice<T: Sync, A: Send>(
        &self,
        items: &[T],
        part: impl Fn(usize, &[T]) -> A + Sync,
        combine: impl Fn(A, A) -> A,
    ) -> Option<A> {
        Parallel::reduce_blocks(self, items, part, combine)
    }
}

/// A list of edges, ready to check results against it.
#[derive(Debug)]
pub struct Validator {
    ranking: Ranking,
    /// By rank: tuples with their end of lower degree first.
    list: Grouped,
}

/// A result by rank. Gathered first, with misses of the cache that do not wait for each other.
struct Ranked {
    root: u32,
    levels: Vec<u16>,
    /// [`NONE`] outside the tree, [`NO_VERTEX`] for what is no vertex.
    parents: Vec<u32>,
}

/// In the place of a parent that is no vertex.
const NO_VERTEX: Vertex = NONE - 1;

/// What the first pass counts.
#[derive(Clone, Copy)]
struct Pass {
    is_right: bool,
    /// Tuples whose end of lower degree is in the tree.
    edges: u64,
}

impl Validator {
    /// Groups the list.
    pub fn new(edges: &[Edge], team: &Team) -> Self {
        let ranking = Ranking::of_list(edges, team);
        let ranked = team.map(edges, |edge| {
            let ranks = [edge.start, edge.end].map(|end| ranking.rank[end as usize]);
            Edge {
                start: ranks[0].max(ranks[1]),
                end: ranks[0].min(ranks[1]),
            }
        });
        let mut list = Grouped::at_starts(&ranked, ranking.rank.len(), team);
        list.sort(team);
        Self { ranking, list }
    }

    /// Checks all five rules. How many tuples of the list are in the component, self-loops and
    /// repeated ones among them.
    pub fn check(&self, tree: &Tree, team: &Team) -> Result<u64, Fault> {
        self.check_by(tree, &team.items_per_task_min(VERTICES_MIN))
    }

    /// [`check`](Self::check) by any threads.
    pub fn check_by(&self, tree: &Tree, threads: &impl Threads) -> Result<u64, Fault> {
        let (expected, found) = (self.ranking.rank.len(), tree.vertices());
        if expected != found || tree.root() as usize >= found {
            return Err(Fault::Vertices { expected, found });
        }
        let ranked = Ranked {
            root: self.ranking.rank[tree.root() as usize],
            levels: threads.map_slice(&self.ranking.by_rank, |vertex| {
                tree.levels()[*vertex as usize].load(Ordering::Relaxed)
            }),
            parents: threads.map_slice(&self.ranking.by_rank, |vertex| {
                let parent = tree.parents()[*vertex as usize].load(Ordering::Relaxed);
                let rank = self.ranking.rank.get(parent as usize);
                rank.map_or(if parent == NONE { NONE } else { NO_VERTEX }, |rank| *rank)
            }),
        };
        let part = |first: usize, levels: &[u16]| self.pass(&ranked, first, levels);
        let whole = threads.reduce_slice(&ranked.levels, part, |one, other| Pass {
            is_right: one.is_right && other.is_right,
            edges: one.edges + other.edges,
        });
        match whole {
            Some(pass) if pass.is_right => Ok(pass.edges),
            _ => Err(self.find(tree)),
        }
    }

    /// Whether all rules hold for the vertices of these levels, the first of which has this rank,
    /// and for their tuples.
    fn pass(&self, tree: &Ranked, first: usize, levels: &[u16]) -> Pass {
        let mut pass = Pass {
            is_right: true,
            edges: 0,
        };
        let first_rank = u32::try_from(first).expect("there are at most `VERTICES_MAX`");
        for (rank, &level) in (first_rank..).zip(levels) {
            let parent = tree.parents[rank as usize];
            let ends = self.list.of(rank as usize);
            let (mut low, mut high) = (level, level);
            for &end in ends {
                let level = tree.levels[end as usize];
                low = low.min(level);
                high = high.max(level);
            }
            // Far is also an end on the other side of the tree's border.
            let is_far = level - low > 1 || high - level > 1;
            let is_right = if rank == tree.root {
                parent == tree.root && level == 0
            } else if parent == NONE {
                level == NO_LEVEL
            } else if let Some(parent_level) = tree.levels.get(parent as usize) {
                let is_child = level <= LEVEL_MAX && parent_level.checked_add(1) == Some(level);
                is_child && self.are_joined(parent, rank)
            } else {
                false
            };
            pass.is_right &= is_right && !is_far;
            if level != NO_LEVEL {
                pass.edges += ends.len() as u64;
            }
        }
        pass
    }

    /// Whether there is a tuple with these ends. It stands at the one of higher rank; a parent is
    /// mostly among the first ends there, since vertices of high degree have most children.
    fn are_joined(&self, one: u32, other: u32) -> bool {
        let ends = self.list.of(one.max(other) as usize).iter();
        ends.copied().any(|end| end == one.min(other))
    }

    /// The first rule that is broken, by one simple loop for each.
    fn find(&self, tree: &Tree) -> Fault {
        let vertices = || (0..).take(tree.vertices());
        let root = tree.root();
        let in_tree = || vertices().filter_map(|vertex| Some((vertex, tree.parent(vertex)?)));
        if let Some(vertex) = away_from_root(tree) {
            return Fault::Cycle { vertex, root };
        }
        for vertex in vertices() {
            let level = tree.level(vertex);
            let parent = tree.parent(vertex);
            let parent_level = parent.and_then(|parent| tree.level(parent));
            let expect = match (vertex == root, parent_level) {
                (true, _) => Some(0),
                (false, Some(level)) => level.checked_add(1).filter(|level| *level <= LEVEL_MAX),
                (false, None) => None,
            };
            if level != expect {
                return Fault::TreeEdge {
                    vertex,
                    level,
                    parent_level,
                };
            }
        }
        let vertex = |rank: u32| self.ranking.by_rank[rank as usize];
        let tuples = || {
            let of = |rank| self.list.of(rank as usize).iter();
            vertices().flat_map(move |rank| of(rank).map(move |end| (vertex(rank), vertex(*end))))
        };
        for (start, end) in tuples() {
            if let (Some(one), Some(other)) = (tree.level(start), tree.level(end))
                && one.abs_diff(other) > 1
            {
                return Fault::ListEdge { start, end };
            }
        }
        for (start, end) in tuples() {
            match (tree.level(start), tree.level(end)) {
                (Some(_), None) => return Fault::Component { start, end },
                (None, Some(_)) => {
                    let (start, end) = (end, start);
                    return Fault::Component { start, end };
                }
                _ => {}
            }
        }
        let not_joined = |(vertex, parent): &(Vertex, Vertex)| {
            let [one, other] = [*vertex, *parent].map(|end| self.ranking.rank[end as usize]);
            *vertex != root && !self.are_joined(one, other)
        };
        let (vertex, parent) = in_tree()
            .find(not_joined)
            .expect("the first pass found what is neither of rules 1 to 4");
        Fault::NoEdge { vertex, parent }
    }
}

/// A vertex of the tree from which the parents do not lead to the root.
fn away_from_root(tree: &Tree) -> Option<Vertex> {
    const UNKNOWN: u8 = 0;
    const ON_THE_WAY: u8 = 1;
    const LEADS_TO_ROOT: u8 = 2;
    let root = tree.root();
    if tree.parent(root) != Some(root) {
        return Some(root);
    }
    let mut known = vec![UNKNOWN; tree.vertices()];
    known[root as usize] = LEADS_TO_ROOT;
    let mut way = Vec::new();
    for start in (0..).take(tree.vertices()) {
        let mut at = start;
        if tree.parent(start).is_none() {
            continue;
        }
        loop {
            match known.get(at as usize) {
                Some(&LEADS_TO_ROOT) => break,
                Some(&UNKNOWN) => {}
                _ => return Some(start),
            }
            known[at as usize] = ON_THE_WAY;
            way.push(at);
            let Some(parent) = tree.parent(at) else {
                return Some(start);
            };
            at = parent;
        }
        for vertex in way.drain(..) {
            known[vertex as usize] = LEADS_TO_ROOT;
        }
    }
    None
}
