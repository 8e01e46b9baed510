//! The generator of the benchmark's graphs: Kronecker, by recursion into four quadrants.
//!
//! Each tuple has random numbers of its own, by its place in the list, so several threads generate
//! the list that one would. As the text requires, vertex numbers are permuted, the tuples
//! shuffled, and self-loops and repeated tuples left in.

use session_channels::par::{Parallel, Team};

use super::edges::Edge;
use super::limits::{EDGES_MAX, SCALE_MAX, Vertex};
use super::random::Random;

/// The chances of the quadrants: start and end both in the lower half, the start alone, the end
/// alone. The rest, 0.05, is for neither.
const A: f64 = 0.57;
const B: f64 = 0.19;
const C: f64 = 0.19;

/// What is generated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kronecker {
    /// Logarithm to base 2 of the number of vertices, 1 to [`SCALE_MAX`].
    pub scale: u32,
    /// Tuples for each vertex, 1 or more; [`EDGE_FACTOR`](super::limits::EDGE_FACTOR) in the text.
    /// There are [`EDGES_MAX`] tuples at most.
    pub edge_factor: u32,
    /// The same seed gives the same graph.
    pub seed: u64,
}

impl Kronecker {
    /// How many tuples it gives; `None` if it is out of bounds.
    pub fn count(&self) -> Option<usize> {
        let is_right = (1..=SCALE_MAX).contains(&self.scale) && self.edge_factor >= 1;
        let count = (self.edge_factor as usize).checked_shl(self.scale)?;
        (is_right && count <= EDGES_MAX).then_some(count)
    }

    /// The list of edges; empty if it is out of bounds.
    pub fn generate(&self, team: &Team) -> Vec<Edge> {
        let Some(count) = self.count() else {
            return Vec::new();
        };
        let mut random = Random::new(self.seed);
        let [edges, labels, order] = [0; 3].map(|_| random.next());
        let mut names: Vec<Vertex> = (0..1 << self.scale).collect();
        let vertices = names.len();
        Random::new(labels).shuffle(&mut names, vertices);
        let edges = Random::new(edges);
        let mut edges = team.map_indexed(&vec![(); count], |place, ()| {
            let own = edges.skipped(place as u64 * u64::from(self.scale));
            let Edge { start, end } = edge(self.scale, own);
            Edge {
                start: names[start as usize],
                end: names[end as usize],
            }
        });
        Random::new(order).shuffle(&mut edges, count);
        edges
    }
}

/// One random number for each bit of the vertices: its halves decide about start and end.
fn edge(scale: u32, mut random: Random) -> Edge {
    const START: u32 = chance(A + B);
    const END_OF_LOWER: u32 = chance(A / (A + B));
    const END_OF_UPPER: u32 = chance(C / (1.0 - (A + B)));
    let (mut start, mut end) = (0, 0);
    for _ in 0..scale {
        let number = random.next();
        let (for_start, for_end) = ((number >> 32) as u32, (number & 0xffff_ffff) as u32);
        let upper = for_start >= START;
        let limit = if upper { END_OF_UPPER } else { END_OF_LOWER };
        start = start << 1 | Vertex::from(upper);
        end = end << 1 | Vertex::from(for_end >= limit);
    }
    Edge { start, end }
}

/// So many of 2^32.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a chance is from 0 to 1"
)]
const fn chance(chance: f64) -> u32 {
    (chance * 4_294_967_296.0) as u32
}

#[cfg(test)]
mod tests {
    use session_channels::par::Limits;

    use super::*;

    fn team(tasks_max: usize) -> Team {
        Team::new(Limits {
            tasks_max,
            items_per_task_min: 64,
        })
    }

    fn generate(scale: u32, seed: u64, tasks_max: usize) -> Vec<Edge> {
        let graph = Kronecker {
            scale,
            edge_factor: 16,
            seed,
        };
        graph.generate(&team(tasks_max))
    }

    #[test]
    fn threads_make_no_difference_and_the_seed_does() {
        assert_eq!(generate(10, 1, 1), generate(10, 1, 3));
        assert_ne!(generate(10, 1, 1), generate(10, 2, 1));
    }

    #[test]
    fn quadrants_have_their_chances() {
        let count = 100_000_u32;
        let mut quadrants = [0_u32; 4];
        for seed in 0..count {
            let Edge { start, end } = edge(1, Random::new(u64::from(seed)));
            quadrants[(start * 2 + end) as usize] += 1;
        }
        for (found, expect) in quadrants.into_iter().zip([A, B, C, 0.05]) {
            let share = f64::from(found) / f64::from(count);
            assert!((share - expect).abs() < 0.01, "{quadrants:?}");
        }
    }

    #[test]
    fn numbers_are_below_two_to_the_scale_and_few_vertices_have_most_edges() {
        let edges = generate(12, 7, 2);
        assert_eq!(edges.len(), 16 << 12);
        let mut degrees = vec![0_usize; 1 << 12];
        for edge in &edges {
            degrees[edge.start as usize] += 1;
            degrees[edge.end as usize] += 1;
        }
        degrees.sort_unstable_by(|a, b| b.cmp(a));
        let first: usize = degrees[..1 << 8].iter().sum();
        assert!(first > edges.len(), "a sixteenth has half of all ends");
        assert!(degrees.contains(&0), "some have none");
    }

    #[test]
    fn what_is_out_of_bounds_gives_nothing() {
        for (scale, edge_factor) in [(0, 16), (27, 16), (26, 32), (4, 0), (100, 1)] {
            let graph = Kronecker {
                scale,
                edge_factor,
                seed: 1,
            };
            assert_eq!(graph.count(), None);
            assert!(graph.generate(&team(1)).is_empty());
        }
    }
}
