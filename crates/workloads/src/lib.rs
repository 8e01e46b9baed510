//! Programs that show what `session-channels` is for: work that several threads share.
//!
//! - [`graph500`]: the Graph500 benchmark. Threads search one borrowed graph with
//!   [`par`](session_channels::par); no `unsafe` and no `Arc` is needed to share it.
//! - [`nucleotide`]: k-nucleotide of the Benchmarks Game, a pipeline of threads over channels of a
//!   protocol, and `fasta`, which writes its input.
//!
//! Each is a library and a command, and computes the same with any number of threads.
//!
//! Deliberately absent: programs to compare with. The commands take the path of one (`--peer`).

#![forbid(unsafe_code)]

pub mod graph500;
pub mod nucleotide;
