//! The benchmark from list to report: kernel 1 once, kernel 2 and the validation for each key.

use std::time::{Duration, Instant};

use session_channels::par::Team;
use thiserror::Error;

use super::edges::Edge;
use super::graph::Graph;
use super::keys;
use super::limits::Vertex;
use super::search::{Search, SearchError};
use super::statistics::{Measured, Report};
use super::validation::{Fault, Validator};

/// Why a run has no result.
#[derive(Debug, Error)]
pub enum RunError {
    /// A search had no result.
    #[error(transparent)]
    Search(#[from] SearchError),
    /// A result is wrong.
    #[error("the search from key {key} is wrong: {fault}")]
    Invalid {
        /// The search key.
        key: Vertex,
        /// The rule it breaks.
        fault: Fault,
    },
}

/// A list of edges and the graph built of it.
#[derive(Debug)]
pub struct Benchmark<'a> {
    team: &'a Team,
    edges: usize,
    graph: Graph,
    validator: Validator,
    construction: Duration,
    keys: Vec<Vertex>,
}

impl<'a> Benchmark<'a> {
    /// Runs kernel 1, and draws the keys: `keys_max` of them, or as many as there are.
    pub fn new(edges: &[Edge], keys_max: usize, seed: u64, team: &'a Team) -> Self {
        let begin = Instant::now();
        let graph = Graph::new(edges, team);
        let construction = begin.elapsed();
        Self {
            team,
            edges: edges.len(),
            keys: keys::draw(&graph, keys_max, seed),
            graph,
            validator: Validator::new(edges, team),
            construction,
        }
    }

    /// Searches from each key, and validates each result.
    ///
    /// `generation` is for the report: how long the list took to generate or to read.
    pub fn run(&self, generation: Duration) -> Result<Report, RunError> {
        let mut search = Search::new(&self.graph, self.team);
        let mut searches = Vec::with_capacity(self.keys.len());
        for &key in &self.keys {
            let begin = Instant::now();
            search.run(key)?;
            let time = begin.elapsed();
            let begin = Instant::now();
            let checked = self.validator.check(search.tree(), self.team);
            let edges = checked.map_err(|fault| RunError::Invalid { key, fault })?;
            searches.push(Measured {
                time,
                edges,
                validation: begin.elapsed(),
            });
        }
        let vertices = self.graph.vertices().next_power_of_two();
        Ok(Report {
            scale: vertices.ilog2(),
            edge_factor: (self.edges / vertices) as u64,
            threads: self.team.tasks_max(),
            generation,
            construction: self.construction,
            searches,
        })
    }
}
