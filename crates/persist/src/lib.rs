//! Between the shards of the broker, which ask for records, and a store, which keeps bytes.
//!
//! - [`batch_of`]: what a record changes in the store, whole or not at all.
//! - [`read`]: part of a log as a session that is behind wants it; [`left_out`]: numbers that no
//!   message has.
//! - [`restore`]: all shards as the store had them.
//! - [`Needs`]: up to where logs may be trimmed.
//! - [`log_of`], [`behind`]: a shard's positions as the store's; the only conversion is in
//!   `position`.
//! - [`Times`]: the broker's clock, which begins anew with it, as time of day.
//!
//! Invariant: what is restored from the batches of some records is what the shard that asked for
//! them had, up to what [`Record`](unbroken_broker_core::Record) says may be late.
//!
//! Deliberately absent: threads, and when something is written.

#![forbid(unsafe_code)]

mod lane;
mod message;
mod needs;
mod owed;
mod position;
mod read;
mod restore;
mod times;
mod under_way;
mod write;

pub use self::{
    needs::Needs,
    position::{behind, log_of},
    read::{left_out, read},
    restore::{Restored, restore},
    times::Times,
    write::batch_of,
};
