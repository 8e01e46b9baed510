//! The programs of the rows, each written once over a trait that the peers implement.
//!
//! A program returns how many messages it received in order and intact, and how long it took.

pub(crate) mod idle;
pub(crate) mod tasks;
pub(crate) mod threads;
pub(crate) mod whispers;

use crate::rows::{Size, Work};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// What a run found out.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Measured {
    /// Received in order and intact.
    pub(crate) messages: u64,
    pub(crate) nanoseconds: u64,
    /// Of all pipes together, in the row about memory.
    pub(crate) bytes: Option<u64>,
}

impl Measured {
    pub(crate) fn new(messages: u64, elapsed: Duration) -> Self {
        Self {
            messages,
            nanoseconds: u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX),
            bytes: None,
        }
    }
}

/// A program for a row, of one peer.
pub(crate) type Program = (Work, fn(Size) -> Measured);
