//! Adaptive coalescing: whether the loop waits a moment before it looks for more. (First form: never.)

use std::time::Duration;

/// What one turn of the loop was like.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Turn {
    /// Reads that brought bytes.
    pub(crate) reads: u64,
    /// Reads from peers that had been sent nothing since they last sent something.
    pub(crate) unasked: u64,
    /// Packets in those bytes.
    pub(crate) frames: u64,
    /// From its start to its end.
    pub(crate) busy: Duration,
    /// Spent waiting for the kernel before it.
    pub(crate) idle: Duration,
}

/// Decides after each turn.
#[derive(Debug, Default)]
pub(crate) struct Coalescer {}

impl Coalescer {
    /// How long to sleep before the next turn.
    pub(crate) fn turn_ended(&mut self, _turn: &Turn) -> Duration {
        Duration::ZERO
    }
}
