//! Benchmarks of Unbroken beside its peers, interleaved in one run.
//!
//! `unbroken-bench brokers` starts every peer anew for every row and round, puts the same load on
//! each in turn, and records medians, ratios to Mosquitto and everything needed to repeat the run.
//! A round visits all peers before any is visited again, so a machine that gets slower gets slower
//! for all. Every row has its bar, which the record holds ours against.
//!
//! `unbroken-bench audit` holds what the proof costs against its bars, beside only hashing;
//! `unbroken-bench durability` what it costs to keep messages, beside a peer that keeps them too;
//! `unbroken-bench fairness` what one client's flood or silence does to the others;
//! `unbroken-bench logins` what a password costs and what floods of logins do to others;
//! `unbroken-bench doors` what TLS, WebSocket, access rules and passwords cost beside peers;
//! `unbroken-bench shards` what a second shard costs in each row, and brings;
//! `unbroken-bench scaling` what more cores and more clients would take.
//!
//! Invariants: peers listen on the loopback only, live in a directory of their own and are ended by
//! their process number; a figure is printed with the number of rounds, the load of others and
//! whether everything arrived. Deliberately absent: installing peers.

mod arguments;
mod audit;
mod bars;
pub mod cli;
mod client;
mod cross_check;
mod doors;
mod durability;
mod error;
mod fairness;
mod figure;
mod logins;
pub mod machine;
mod outcome;
mod peer;
pub mod plot;
mod record;
pub mod relay;
mod results;
mod rounds;
mod rows;
mod scaling;
mod shards;
mod verdict;

pub use self::error::BenchError;
pub use unbroken_load::grouped;
