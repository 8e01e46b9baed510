//! Two programs of the Computer Language Benchmarks Game: `fasta`, which writes DNA, and
//! k-nucleotide, which counts in it.

pub mod code;
pub mod count;
pub mod fasta;
pub mod input;
pub mod pipeline;
