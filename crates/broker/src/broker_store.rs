//! What the broker asks of a store beside the traits of `unbroken-store`: how its files grow and
//! shrink.

use std::fmt::Debug;

use unbroken_store::{Embedded, LogId, Sequence, Store, StoreError};

/// A store that a broker can keep.
pub trait BrokerStore: Store + Debug {
    /// No session needs what is below this message of a log: what the store has of it in memory
    /// only need not reach the disk.
    fn let_go(&self, log: LogId, below: Sequence);

    /// Lets [`trim`](Store::trim) free the newest part of a log too, to which nobody appends any
    /// more. False if there is nothing to gain.
    fn retire(&self, log: LogId) -> Result<bool, StoreError>;

    /// The number with which each part of a log begins that is freed at once, oldest first.
    fn generations(&self, log: LogId) -> Vec<Sequence>;

    /// Bytes that so many logs may take on disk beside what is kept.
    fn overhead_bytes_max(&self, logs: u64) -> u64;
}

impl BrokerStore for Embedded {
    fn let_go(&self, log: LogId, below: Sequence) {
        self.let_go(log, below);
    }

    fn retire(&self, log: LogId) -> Result<bool, StoreError> {
        self.retire(log)
    }

    fn generations(&self, log: LogId) -> Vec<Sequence> {
        self.generations(log)
    }

    fn overhead_bytes_max(&self, logs: u64) -> u64 {
        Self::overhead_bytes_max(logs)
    }
}
