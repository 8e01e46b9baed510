//! The order in which connections are read, and the work budget of a turn for handshakes.

use std::collections::VecDeque;

use crate::tuning::TURN_HANDSHAKES;

/// Connections to read: readable, open and not paused when they were queued, each once. A round
/// robin: a connection that has more to read goes to the end.
#[derive(Debug)]
pub(super) struct ReadQueue {
    ready: VecDeque<u32>,
    /// In the middle of a handshake: they go on in the next turn, in order.
    deferred: Vec<u32>,
    /// Steps of handshakes that this turn may take still.
    steps_left: usize,
    /// How many were ever taken off `ready`.
    taken: u64,
}

impl Default for ReadQueue {
    fn default() -> Self {
        Self {
            ready: VecDeque::new(),
            deferred: Vec::new(),
            steps_left: TURN_HANDSHAKES,
            taken: 0,
        }
    }
}

impl ReadQueue {
    /// A turn begins: handshakes go on.
    pub(super) fn begin_turn(&mut self) {
        self.steps_left = TURN_HANDSHAKES;
        self.ready.extend(self.deferred.drain(..));
    }

    pub(super) fn push(&mut self, index: u32) {
        self.ready.push_back(index);
    }

    /// The one that has waited longest.
    pub(super) fn take(&mut self) -> Option<u32> {
        let index = self.ready.pop_front()?;
        self.taken += 1;
        Some(index)
    }

    /// Takes a step of a handshake; or none, and the connection is deferred.
    pub(super) fn take_step(&mut self, index: u32) -> bool {
        let may_go_on = self.steps_left > 0;
        if may_go_on {
            self.steps_left -= 1;
        } else {
            self.deferred.push(index);
        }
        may_go_on
    }

    /// How many may be taken in this turn.
    pub(super) fn len(&self) -> usize {
        self.ready.len()
    }

    pub(super) const fn has_deferred(&self) -> bool {
        !self.deferred.is_empty()
    }

    pub(super) const fn taken(&self) -> u64 {
        self.taken
    }
}
