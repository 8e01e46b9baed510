//! Search keys: vertices with an edge to another vertex, drawn at random without repetition.

use super::graph::Graph;
use super::limits::Vertex;
use super::random::Random;

/// Draws `count` keys; all that there are if these are fewer. The same seed gives the same keys.
pub fn draw(graph: &Graph, count: usize, seed: u64) -> Vec<Vertex> {
    let vertices = (0..).zip(graph.first());
    let mut keys: Vec<Vertex> = vertices
        .map(|(vertex, _)| vertex)
        .filter(|vertex| graph.degree(*vertex) > 0)
        .collect();
    // Apart from the numbers that made the graph of this seed.
    Random::new(!seed).shuffle(&mut keys, count);
    keys.truncate(count);
    keys
}
