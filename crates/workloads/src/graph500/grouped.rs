//! Edge tuples grouped by vertex, a counting sort by several threads; and vertices in order of
//! degree.

use std::sync::atomic::{AtomicU32, Ordering};

use session_channels::par::{Parallel, Team};

use super::edges::Edge;
use super::limits::Vertex;

/// For each vertex other ends of its tuples, in no order, repeated ones as often as they are in the
/// list.
#[derive(Debug)]
pub(super) struct Grouped {
    /// Where the ends of each vertex begin; one more at the end.
    pub(super) offsets: Vec<u32>,
    /// Other ends.
    pub(super) ends: Vec<Vertex>,
}

impl Grouped {
    /// Each tuple from both ends; a self-loop is there twice.
    pub(super) fn both_ways(edges: &[Edge], team: &Team) -> Self {
        let degrees = degrees(edges, team);
        let reversed = |edge: &Edge| {
            [
                *edge,
                Edge {
                    start: edge.end,
                    end: edge.start,
                },
            ]
        };
        Self::new(edges, &reversed, degrees, team)
    }

    /// Each tuple at its start, in a graph of so many vertices.
    pub(super) fn at_starts(edges: &[Edge], vertices: usize, team: &Team) -> Self {
        let degrees = atomics(vertices);
        team.for_each(edges, |edge| {
            degrees[edge.start as usize].fetch_add(1, Ordering::Relaxed);
        });
        Self::new(edges, &|edge| [*edge], degrees, team)
    }

    /// `places` are the numbers of ends at first, and where the next one goes from then on.
    fn new<const N: usize>(
        edges: &[Edge],
        directed: &(impl Fn(&Edge) -> [Edge; N] + Sync),
        places: Vec<AtomicU32>,
        team: &Team,
    ) -> Self {
        let mut offsets = Vec::with_capacity(places.len() + 1);
        let mut sum = 0;
        for place in &places {
            offsets.push(sum);
            sum += place.swap(sum, Ordering::Relaxed);
        }
        offsets.push(sum);
        let ends = atomics(sum as usize);
        team.for_each(edges, |edge| {
            for Edge { start, end } in directed(edge) {
                let place = places[start as usize].fetch_add(1, Ordering::Relaxed);
                ends[place as usize].store(end, Ordering::Relaxed);
            }
        });
        let ends = plain(ends);
        Self { offsets, ends }
    }

    /// Sorts the ends of each vertex.
    pub(super) fn sort(&mut self, team: &Team) {
        let mut lists: Vec<_> = by_vertex(&mut self.ends, &self.offsets).collect();
        team.map_in_place(&mut lists, |list| list.sort_unstable());
    }

    pub(super) fn of(&self, vertex: usize) -> &[Vertex] {
        &self.ends[self.offsets[vertex] as usize..self.offsets[vertex + 1] as usize]
    }
}

/// The part of each vertex.
pub(super) fn by_vertex<'a>(
    mut rest: &'a mut [Vertex],
    offsets: &'a [u32],
) -> impl Iterator<Item = &'a mut [Vertex]> {
    offsets.windows(2).map(move |ends| {
        let count = (ends[1] - ends[0]) as usize;
        let (part, behind) = std::mem::take(&mut rest).split_at_mut(count);
        rest = behind;
        part
    })
}

/// Vertices in descending order of degree.
#[derive(Debug)]
pub(super) struct Ranking {
    pub(super) by_rank: Vec<Vertex>,
    /// The place of each vertex in that order.
    pub(super) rank: Vec<u32>,
}

impl Ranking {
    /// Of degrees in the list, self-loops and repeated tuples counted.
    pub(super) fn of_list(edges: &[Edge], team: &Team) -> Self {
        Self::new(plain(degrees(edges, team)).into_iter())
    }

    pub(super) fn new(degrees: impl Iterator<Item = u32>) -> Self {
        let mut order: Vec<(u32, Vertex)> = degrees.map(|degree| !degree).zip(0..).collect();
        order.sort_unstable();
        let by_rank: Vec<_> = order.into_iter().map(|(_, vertex)| vertex).collect();
        let mut rank = vec![0; by_rank.len()];
        for (place, vertex) in (0..).zip(&by_rank) {
            rank[*vertex as usize] = place;
        }
        Self { by_rank, rank }
    }
}

/// How many ends of tuples each vertex is, up to the largest number in the list.
fn degrees(edges: &[Edge], team: &Team) -> Vec<AtomicU32> {
    let largest = |largest: Vertex, edge: &Edge| largest.max(edge.start).max(edge.end);
    let largest = team.reduce(edges, || 0, largest, Vertex::max);
    let degrees = atomics(largest as usize + 1);
    team.for_each(edges, |edge| {
        degrees[edge.start as usize].fetch_add(1, Ordering::Relaxed);
        degrees[edge.end as usize].fetch_add(1, Ordering::Relaxed);
    });
    degrees
}

fn plain(atomics: Vec<AtomicU32>) -> Vec<u32> {
    atomics.into_iter().map(AtomicU32::into_inner).collect()
}

fn atomics(count: usize) -> Vec<AtomicU32> {
    std::iter::repeat_with(AtomicU32::default)
        .take(count)
        .collect()
}

#[cfg(test)]
mod tests {
    use session_channels::par::Limits;

    use super::*;
    use crate::graph500::kronecker::Kronecker;

    #[test]
    fn each_tuple_is_there_from_both_ends() {
        let team = Team::new(Limits {
            tasks_max: 3,
            items_per_task_min: 16,
        });
        let graph = Kronecker {
            scale: 8,
            edge_factor: 16,
            seed: 5,
        };
        let edges = graph.generate(&team);
        let grouped = Grouped::both_ways(&edges, &team);
        let mut expect = vec![Vec::new(); grouped.offsets.len() - 1];
        for edge in &edges {
            expect[edge.start as usize].push(edge.end);
            expect[edge.end as usize].push(edge.start);
        }
        for (vertex, expect) in expect.iter_mut().enumerate() {
            let mut found = grouped.of(vertex).to_vec();
            found.sort_unstable();
            expect.sort_unstable();
            assert_eq!(found, *expect);
        }
        let edges = [Edge { start: 2, end: 2 }];
        let grouped = Grouped::both_ways(&edges, &team);
        assert_eq!(grouped.offsets, [0, 0, 0, 2]);
        assert_eq!(grouped.ends, [2, 2]);
    }

    #[test]
    fn at_starts_each_tuple_is_there_once() {
        let edges = [(3, 1), (0, 2), (3, 3), (3, 1)];
        let edges = edges.map(|(start, end)| Edge { start, end });
        let team = Team::new(Limits::default());
        let grouped = Grouped::at_starts(&edges, 5, &team);
        assert_eq!(grouped.offsets, [0, 1, 1, 1, 4, 4]);
        assert_eq!(grouped.ends, [2, 1, 3, 1]);
        let ranking = Ranking::of_list(&edges, &team);
        assert_eq!(ranking.by_rank, [3, 1, 0, 2]);
        assert_eq!(ranking.rank, [2, 1, 3, 0]);
    }
}
