//! Who numbers messages: lanes and their epochs.

use core::{fmt, num::NonZeroU64};

/// One producer on one topic or declared stream: random, or a hash of the producer's name and
/// stream. 0 is not a lane: it is where a producer's [`Directory`](crate::Directory) goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LaneId(NonZeroU64);

impl LaneId {
    /// `None` for 0.
    pub const fn new(id: u64) -> Option<Self> {
        match NonZeroU64::new(id) {
            Some(id) => Some(Self(id)),
            None => None,
        }
    }

    /// The number.
    pub const fn value(self) -> u64 {
        self.0.get()
    }
}

/// 16 lower-case hexadecimal digits, as in topics and reports.
impl fmt::Display for LaneId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// A stretch of a lane within which numbers run from 0 without a hole. A producer that cannot
/// remember its number, or changes its key, begins the next one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u32);

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}
