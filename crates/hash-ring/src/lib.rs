//! Which node holds a key. Five schemes behind one trait, and experiments that measure them. No
//! I/O, no clock.
//!
//! - [`SlotTable`] is the scheme for a cluster: a fixed number of slots, each with a primary and
//!   replicas, in a table that changes as little as possible when nodes join or leave. It has a
//!   format of bytes, as a whole and as a difference.
//! - [`Ring`] (consistent hashing with virtual nodes), [`Chord`] (a ring searched through finger
//!   tables), [`Rendezvous`] and [`Jump`] are for comparison and for teaching.
//! - [`simulation`] measures loads, hops and movement, with the tests of [`statistics`].
//!
//! Invariants: an owner is a function of the nodes (for [`SlotTable`] and [`Jump`] also of their
//! history) and of nothing else; hashes and the table's bytes are the same on every platform, which
//! the golden vectors in `testdata/` hold; what cannot be read is refused.
//!
//! Deliberately absent: moving data, and deciding who is a member.

#![forbid(unsafe_code)]

mod chord;
mod hash;
mod jump;
mod limits;
mod node;
mod rendezvous;
mod ring;
mod scheme;
pub mod simulation;
mod slot_table;
pub mod statistics;

pub use self::{
    chord::{Chord, Fingers},
    hash::key_hash,
    jump::Jump,
    limits::{COPIES_MAX, NODES_MAX, SLOTS_MAX, WEIGHT_MAX},
    node::{InvalidWeight, Node, NodeId, Weight, Zone},
    rendezvous::Rendezvous,
    ring::Ring,
    scheme::{Refused, Scheme},
    slot_table::{Change, DecodeError, Move, Shape, SlotTable, StaleChange, TableError},
};
