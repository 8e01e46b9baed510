//! The demonstration behind `unbroken demo`: a line of producer, broker, processor and consumer
//! that anybody may wound, and that names and repairs each wound.
//!
//! From the line's pieces up:
//!
//! - A [`Relay`] stands between MQTT peers and gives a [`Wound`] on order; it writes down which
//!   message it hurt.
//! - The producer plays the [`plant`]'s recording, or any file line by line.
//!
//! Invariants: what a relay says it did is what it did, so that a test can compare it with what was
//! named; nothing that the demonstration starts outlives it.

mod limits;
pub mod plant;
mod readings;
mod relay;
mod wound;

pub use self::{
    readings::{Readings, ReadingsError},
    relay::{Relay, TooManyOrders, Towards},
    wound::{Wound, Wounded},
};
