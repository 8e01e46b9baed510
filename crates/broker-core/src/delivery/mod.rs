//! What leaves to a client: the way of a message to one session, to very many, and what becomes of
//! those that are not delivered.
//!
//! ```text
//! Item:      one message in delivery, whoever receives it: copied once, stored once
//! deliver:   to one session now, or behind what waits        fan_out: to very many, over turns
//! pump:      what waits, as the window and the output allow  backlog: counted, read from the log
//! frames:    the bytes, encoded once per layout              drops:   what is not delivered
//! ```
//!
//! Deliberately absent: who receives a message, which is [`crate::routing`]'s.

mod backlog;
mod copy;
mod deliver;
mod drops;
mod fan_out;
mod frames;
mod item;
mod pump;

pub(crate) use fan_out::Spreads;
pub(crate) use frames::Frames;
pub(crate) use item::{Item, Storing};
