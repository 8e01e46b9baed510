//! The order in which connections are read, and the work budget of a turn for handshakes.

use std::collections::VecDeque;

use crate::tuning::TURN_HANDSHAKES;

/// Connections to read: readable, open and not paused when they were queued, each once. A round
/// robin: a connection that has more to read goes to the end.
///
/// Each has a ticket, greater than those before it: what was readable at some time is read when no
/// ticket up to then is left, also not of a handshake that was put off.
#[derive(Debug)]
pub(super) struct ReadQueue {
    ready: VecDeque<Ticket>,
    /// In the middle of a handshake: they go on in a later turn, in order. Their tickets are less
    /// than all in `ready`.
    deferred: VecDeque<Ticket>,
    /// The one that was taken last.
    current: u64,
    /// Steps of handshakes that this turn may take still.
    steps_left: usize,
    /// Tickets that were ever given out.
    issued: u64,
}

#[derive(Clone, Copy, Debug)]
struct Ticket {
    number: u64,
    index: u32,
}

impl Default for ReadQueue {
    fn default() -> Self {
        Self {
            ready: VecDeque::new(),
            deferred: VecDeque::new(),
            current: 0,
            steps_left: TURN_HANDSHAKES,
            issued: 0,
        }
    }
}

impl ReadQueue {
    /// A turn begins: those handshakes go on that were put off first, as many as it has steps for.
    pub(super) fn begin_turn(&mut self) {
        self.steps_left = TURN_HANDSHAKES;
        let count = self.deferred.len().min(TURN_HANDSHAKES);
        for ticket in self.deferred.drain(..count).rev() {
            self.ready.push_front(ticket);
        }
    }

    pub(super) fn push(&mut self, index: u32) {
        self.issued += 1;
        let number = self.issued;
        self.ready.push_back(Ticket { number, index });
    }

    /// The one that has waited longest.
    pub(super) fn take(&mut self) -> Option<u32> {
        let Ticket { number, index } = self.ready.pop_front()?;
        self.current = number;
        Some(index)
    }

    /// Takes a step of a handshake, for the one that was taken last; or none, and it is put off.
    pub(super) fn take_step(&mut self, index: u32) -> bool {
        let may_go_on = self.steps_left > 0;
        if may_go_on {
            self.steps_left -= 1;
        } else {
            let number = self.current;
            self.deferred.push_back(Ticket { number, index });
        }
        may_go_on
    }

    /// How many may be taken in this turn.
    pub(super) fn len(&self) -> usize {
        self.ready.len()
    }

    pub(super) fn has_deferred(&self) -> bool {
        !self.deferred.is_empty()
    }

    /// All up to this ticket are read.
    pub(super) fn read(&self) -> u64 {
        let next = self.deferred.front().or_else(|| self.ready.front());
        next.map_or(self.issued, |next| next.number - 1)
    }

    /// The last ticket of all that are to be read.
    pub(super) const fn issued(&self) -> u64 {
        self.issued
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handshake_that_is_put_off_is_not_read_before_it_has_taken_its_step() {
        let mut queue = ReadQueue::default();
        let count = u32::try_from(TURN_HANDSHAKES).unwrap() + 2;
        for index in 0..count {
            queue.push(index);
        }
        let all = queue.issued();
        let mut order = Vec::new();
        queue.begin_turn();
        for turn in 0..2 {
            while let Some(index) = queue.take() {
                // Others come meanwhile, and shake no hands.
                if index < count && queue.take_step(index) {
                    order.push(index);
                }
            }
            assert_eq!(queue.read() >= all, turn == 1);
            queue.push(count + turn);
            queue.begin_turn();
        }
        assert_eq!(order, (0..count).collect::<Vec<_>>());
        assert_eq!(queue.take(), Some(count + 1));
        assert_eq!(queue.read(), queue.issued());
    }
}
