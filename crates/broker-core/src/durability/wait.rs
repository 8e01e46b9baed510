//! What a packet waits for.

use crate::ids::StoreId;

/// What a packet waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct WaitFor {
    /// This request and all before it are on disk.
    pub(crate) stored: StoreId,
    /// The letters that were sent to other shards with this token are answered.
    pub(crate) settled: Option<u64>,
}

impl WaitFor {
    /// Nothing of its own; it may stand behind others.
    pub(crate) const NOW: Self = Self {
        stored: StoreId::NOTHING,
        settled: None,
    };

    pub(crate) const fn stored(stored: StoreId) -> Self {
        Self {
            stored,
            settled: None,
        }
    }
}
