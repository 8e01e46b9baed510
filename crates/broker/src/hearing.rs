//! Up to when a shard has heard its clients: all that had come from them by then was read.
//!
//! ```text
//! poll begins at T ─> all that the kernel knew by T is told ─> all of that is read: heard up to T
//!                     one full list of events, or several       one turn, or several
//! ```
//!
//! A client is silent if it was by then. The clock alone does not say so: the thread may be behind
//! with its reading, or not have run for a while, and what a client has sent waits in the kernel.
//!
//! Invariant: each socket is read no later than its place says in the order in which they became
//! readable, see [`crate::sockets::Sockets`].

use std::time::Instant;

use crate::bounds::EVENTS;

#[derive(Debug)]
pub(crate) struct Hearing {
    heard: Instant,
    /// What is being heard now.
    look: Option<Look>,
}

#[derive(Debug)]
struct Look {
    /// When its first poll began.
    since: Instant,
    /// Full polls after which the kernel has told of every socket, since it does so in turn.
    polls: usize,
    /// The sockets that it has found are read when so many have been.
    reads: Option<u64>,
}

impl Hearing {
    pub(crate) const fn new(now: Instant) -> Self {
        Self {
            heard: now,
            look: None,
        }
    }

    /// A poll that began at `began` has told of so many events, of so many sockets in all; when
    /// `reads` have been taken off the list of those that are readable, what it told of is read.
    pub(crate) fn polled(&mut self, began: Instant, events: usize, sockets: usize, reads: u64) {
        let look = self.look.get_or_insert(Look {
            since: began,
            polls: sockets / EVENTS,
            reads: None,
        });
        if look.reads.is_some() {
            return;
        }
        if events < EVENTS || look.polls == 0 {
            look.reads = Some(reads);
        } else {
            look.polls -= 1;
        }
    }

    /// So many were taken off the list, ever. Answers up to when everybody was heard.
    pub(crate) fn heard(&mut self, reads: u64) -> Instant {
        if let Some(look) = &self.look
            && look.reads.is_some_and(|needed| needed <= reads)
        {
            self.heard = look.since;
            self.look = None;
        }
        self.heard
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_a_poll_has_told_of_is_heard_when_it_is_read() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut hearing = Hearing::new(start);
        // The thread stood still in this poll: what came meanwhile is not in it.
        hearing.polled(at(1), 3, 10, 3);
        assert_eq!(hearing.heard(2), start);
        // One that begins before the last was read is not waited for.
        hearing.polled(at(60), 3, 10, 6);
        assert_eq!(hearing.heard(3), at(1));
        hearing.polled(at(61), 0, 10, 6);
        assert_eq!(hearing.heard(5), at(1));
        assert_eq!(hearing.heard(6), at(61));
    }

    #[test]
    fn full_polls_are_heard_when_the_kernel_has_told_of_every_socket() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut hearing = Hearing::new(start);
        for poll in 1..=3 {
            assert_eq!(hearing.heard(poll * 1_024), start);
            hearing.polled(at(poll), EVENTS, 2 * EVENTS + 1, poll * 1_024);
        }
        assert_eq!(hearing.heard(3 * 1_024), at(1));
        hearing.polled(at(4), EVENTS, 2 * EVENTS + 1, 4 * 1_024);
        hearing.polled(at(5), EVENTS - 1, 2 * EVENTS + 1, 4_100);
        assert_eq!(hearing.heard(4_100), at(4));
    }
}
