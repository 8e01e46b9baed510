//! What lives as long as one connection: its phase on either side, its topic aliases, its keep
//! alive.
//!
//! Deliberately absent: what outlives a connection (see [`session`](crate::session)), and what a
//! packet that is expected leads to.

pub mod alias;
pub mod client;
pub mod keepalive;
pub mod server;
