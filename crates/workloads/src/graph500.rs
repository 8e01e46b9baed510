//! The Graph500 benchmark, kernels 1 and 2: build a graph from an edge list, and search it breadth
//! first from 64 keys, each result validated.
//!
//! Source: "Graph 500 Benchmarks 1 and 2", version 2.0 of the specification (below: the text).
//!
//! The parts, in the order in which they may import each other: [`limits`], [`edges`] with the
//! random numbers and the generator, [`graph`] (kernel 1), [`tree`] and [`search`] (kernel 2),
//! [`validation`], [`statistics`], and [`run`], which is the whole benchmark.
//!
//! Deviation from the text: a vertex takes 32 bits and not 48, see [`limits`]. Absent: kernel 3.

pub mod edges;
pub mod graph;
mod grouped;
pub mod keys;
pub mod kronecker;
pub mod limits;
mod random;
pub mod run;
pub mod search;
pub mod statistics;
pub mod tree;
pub mod validation;
