//! What routing a message has come to, on the shard that does it.

/// What became of a routed message.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Routed {
    /// It has a receiver in the broker.
    pub(crate) wanted: bool,
    /// Other shards that want it: bit `n` is shard `n`.
    pub(crate) shards: u64,
    /// Of those, the ones where a session keeps it, and the ones with a group of such sessions.
    pub(crate) staying: u64,
    pub(crate) sharing: u64,
    /// Deliveries expected here: sessions and groups.
    pub(crate) expected: u32,
}
