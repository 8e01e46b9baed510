//! Benchmarks of channels beside each other, interleaved in one run.
//!
//! `unbroken-channel-bench channels` runs every row on every peer that can do it, each in a process
//! of its own, in rounds: a round visits everything once, and every other round goes backwards, so
//! that a machine that gets slower gets slower for all. It records medians and minima, ratios, and
//! whether each bar was passed.
//!
//! Invariants: a peer is used as its own documentation shows it; every message is a `u64`; each
//! program counts what it received, and a count that is wrong is a failure, not a figure; starting
//! and joining tasks and threads is part of the time.
//!
//! `unbroken-channel-bench lexer` compares lexers in the same manner, within one process.
//!
//! A crate of its own, so that the many peers are no burden to the benchmarks of brokers.
//! Deliberately absent: a quiet machine. The record shows the load; judge by it.

mod bars;
pub mod cli;
pub mod counting;
mod error;
mod go;
mod lexer;
mod peers;
mod record;
mod results;
mod rounds;
mod rows;
mod work;

pub use self::error::ChannelBenchError;
