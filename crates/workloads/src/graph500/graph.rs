//! Kernel 1: the graph of a list of edges, as compressed sparse rows.
//!
//! Self-loops and repeated tuples are left out, which changes no search. The neighbours of a vertex
//! are in descending order of degree: a search from the unvisited side finds a visited neighbour
//! soonest among those that have most edges. The first of them stands in an array of its own, so
//! that most vertices are decided by reading memory in order.

use session_channels::par::{Parallel, Team};

use super::edges::Edge;
use super::grouped::{Grouped, Ranking, by_vertex};
use super::limits::{NONE, Vertex};

/// Vertices of one word of a bitmap.
pub(super) const WORD: usize = u64::BITS as usize;

/// An undirected graph that no search changes.
#[derive(Debug)]
pub struct Graph {
    /// Where the neighbours of each vertex begin; one more at the end.
    offsets: Vec<u32>,
    neighbours: Vec<Vertex>,
    /// The first neighbour of each vertex, or [`NONE`].
    first: Vec<Vertex>,
    /// A bit for each vertex without a neighbour, and for the numbers behind the last vertex.
    isolated: Vec<u64>,
}

impl Graph {
    /// Builds the graph. It has a vertex for each number up to the largest in the list.
    pub fn new(edges: &[Edge], team: &Team) -> Self {
        let Grouped { offsets, mut ends } = Grouped::both_ways(edges, team);
        let degrees = offsets.windows(2).map(|ends| ends[1] - ends[0]);
        let Ranking { by_rank, rank } = Ranking::new(degrees);
        let mut lists: Vec<_> = by_vertex(&mut ends, &offsets).enumerate().collect();
        team.map_in_place(&mut lists, |(vertex, list)| {
            let own = rank[*vertex];
            for end in list.iter_mut() {
                *end = rank[*end as usize];
            }
            list.sort_unstable();
            let kept = without_repeats(list, own);
            *list = &mut std::mem::take(list)[..kept];
        });
        let mut offsets = vec![0];
        let mut sum = 0;
        for (_, list) in &lists {
            sum += u32::try_from(list.len()).expect("it was counted in 32 bits before");
            offsets.push(sum);
        }
        let mut neighbours = vec![0; sum as usize];
        let mut pairs: Vec<_> = by_vertex(&mut neighbours, &offsets).zip(lists).collect();
        team.map_in_place(&mut pairs, |(places, (_, list))| {
            for (place, rank) in places.iter_mut().zip(&**list) {
                *place = by_rank[*rank as usize];
            }
        });
        drop(pairs);
        let first = offsets.windows(2).map(|ends| {
            let list = &neighbours[ends[0] as usize..ends[1] as usize];
            list.first().copied().unwrap_or(NONE)
        });
        let first: Vec<_> = first.collect();
        let isolated = first.chunks(WORD).map(|first| {
            let with_neighbours = (0..).zip(first).filter(|(_, first)| **first != NONE);
            !with_neighbours.fold(0, |word, (bit, _)| word | 1 << bit)
        });
        Self {
            isolated: isolated.collect(),
            first,
            offsets,
            neighbours,
        }
    }

    /// How many vertices there are, those without an edge among them.
    pub fn vertices(&self) -> usize {
        self.first.len()
    }

    /// How many neighbours all vertices have together: twice the number of edges.
    pub fn neighbours_of_all(&self) -> usize {
        self.neighbours.len()
    }

    /// The vertices that an edge leads to, those of highest degree first.
    #[inline]
    pub fn neighbours(&self, vertex: Vertex) -> &[Vertex] {
        let vertex = vertex as usize;
        &self.neighbours[self.offsets[vertex] as usize..self.offsets[vertex + 1] as usize]
    }

    /// How many neighbours a vertex has.
    #[inline]
    pub fn degree(&self, vertex: Vertex) -> usize {
        let vertex = vertex as usize;
        (self.offsets[vertex + 1] - self.offsets[vertex]) as usize
    }

    /// The first neighbour of each vertex, or [`NONE`].
    pub(super) fn first(&self) -> &[Vertex] {
        &self.first
    }

    pub(super) fn isolated(&self) -> &[u64] {
        &self.isolated
    }
}

/// Moves one of each number but `own` to the front of a sorted list; how many these are.
fn without_repeats(list: &mut [u32], own: u32) -> usize {
    let mut kept = 0;
    for place in 0..list.len() {
        let number = list[place];
        if number != own && (kept == 0 || list[kept - 1] != number) {
            list[kept] = number;
            kept += 1;
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use session_channels::par::Limits;

    use super::*;
    use crate::graph500::kronecker::Kronecker;

    fn team() -> Team {
        Team::new(Limits {
            tasks_max: 3,
            items_per_task_min: 16,
        })
    }

    #[test]
    fn neighbours_are_those_of_the_list_in_order_of_degree() {
        let team = team();
        for scale in [1, 5, 6, 7, 10] {
            let edges = Kronecker {
                scale,
                edge_factor: 4,
                seed: 3,
            };
            let edges = edges.generate(&team);
            let graph = Graph::new(&edges, &team);
            let mut expect = vec![BTreeSet::new(); graph.vertices()];
            let mut tuples = vec![0; graph.vertices()];
            for &Edge { start, end } in &edges {
                tuples[start as usize] += 1;
                tuples[end as usize] += 1;
                if start != end {
                    expect[start as usize].insert(end);
                    expect[end as usize].insert(start);
                }
            }
            for (vertex, expect) in (0..).zip(&expect) {
                let found = graph.neighbours(vertex);
                assert_eq!(graph.degree(vertex), expect.len());
                assert_eq!(found.iter().copied().collect::<BTreeSet<_>>(), *expect);
                assert!(found.is_sorted_by_key(|end| std::cmp::Reverse(tuples[*end as usize])));
            }
        }
    }

    #[test]
    fn vertices_without_an_edge_and_numbers_behind_the_last_are_isolated() {
        let edges = [(0, 0), (1, 70), (70, 1)];
        let edges = edges.map(|(start, end)| Edge { start, end });
        let graph = Graph::new(&edges, &team());
        assert_eq!(graph.vertices(), 71);
        assert_eq!(graph.neighbours_of_all(), 2);
        assert_eq!(graph.isolated(), [!0b10, !(1 << 6)]);
        assert_eq!((graph.first()[0], graph.first()[70]), (NONE, 1));
    }
}
