//! What the broker needs of a store beside the traits of `unbroken-store`: how its files grow and
//! shrink.

use std::fmt::Debug;

use unbroken_store::{Embedded, FreeSpace, LogId, Memory, Sequence, Store, StoreError};

/// A store for a broker.
pub trait BrokerStore: Store + Debug {
    /// No session needs messages below this one: those that are in memory only need not reach the
    /// disk.
    fn release_below(&self, log: LogId, below: Sequence);

    /// Lets [`trim`](Store::trim) free the newest part of a log too; no shard appends to it any
    /// more. False if there is nothing to gain.
    fn retire(&self, log: LogId) -> Result<bool, StoreError>;

    /// The first number of each part of a log that is freed as a whole, oldest first.
    fn generations(&self, log: LogId) -> Vec<Sequence>;

    /// Looks whether the store is still where it was opened. A store that is not has failed. Also
    /// has space reserved for the next start, if the disk has some.
    fn check_place(&self) -> Result<(), StoreError>;

    /// The free space of the disk, and what the store will take of it by itself; none if it is
    /// unknown.
    fn free_space(&self) -> Option<FreeSpace>;

    /// Has the store write to tables what it has in memory, so that journals can be deleted and it
    /// owes less. Returns before that is done.
    fn write_out(&self) -> Result<(), StoreError>;

    /// Bytes that so many logs may take on disk beside the stored data.
    fn overhead_bytes_max(&self, logs: u64) -> u64;
}

impl BrokerStore for Embedded {
    fn release_below(&self, log: LogId, below: Sequence) {
        self.release_below(log, below);
    }

    fn retire(&self, log: LogId) -> Result<bool, StoreError> {
        self.retire(log)
    }

    fn generations(&self, log: LogId) -> Vec<Sequence> {
        self.generations(log)
    }

    fn check_place(&self) -> Result<(), StoreError> {
        self.check_place()
    }

    fn free_space(&self) -> Option<FreeSpace> {
        self.free_space()
    }

    fn write_out(&self) -> Result<(), StoreError> {
        self.write_out()
    }

    fn overhead_bytes_max(&self, logs: u64) -> u64 {
        self.overhead_bytes_max(logs)
    }
}

/// Has no files.
impl BrokerStore for Memory {
    fn release_below(&self, _: LogId, _: Sequence) {}

    fn retire(&self, _: LogId) -> Result<bool, StoreError> {
        Ok(false)
    }

    fn generations(&self, _: LogId) -> Vec<Sequence> {
        Vec::new()
    }

    fn check_place(&self) -> Result<(), StoreError> {
        Ok(())
    }

    fn free_space(&self) -> Option<FreeSpace> {
        None
    }

    fn write_out(&self) -> Result<(), StoreError> {
        Ok(())
    }

    fn overhead_bytes_max(&self, _: u64) -> u64 {
        0
    }
}
