//! Converts between the records of shards and the values of a store.
//!
//! - [`batch_of`]: the changes of a record, stored whole or not at all.
//! - [`read`]: a part of a log for a session that catches up; [`left_out`]: numbers without a
//!   message.
//! - [`restore`]: the state of all shards.
//! - [`Needs`]: the position up to which logs may be trimmed.
//! - [`log_of`], [`behind`]: a shard's positions as the store's; the only conversion is in
//!   `position`.
//! - [`Times`]: the broker's monotonic clock as time of day.
//!
//! Invariant: restoring the batches of some records yields the state of the shard that requested
//! them, up to the delay that [`Record`](unbroken_broker_core::Record) allows.
//!
//! Deliberately absent: threads, and the time of a write.

#![forbid(unsafe_code)]

mod expected_deliveries;
mod in_flight;
mod lane;
mod message;
mod needs;
mod position;
mod read;
mod restore;
mod times;
mod write;

pub use self::{
    needs::Needs,
    position::{behind, log_of},
    read::{left_out, read},
    restore::{Restored, restore},
    times::Times,
    write::batch_of,
};
