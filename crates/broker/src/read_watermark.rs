//! The read watermark: all that clients had sent by this time was read.
//!
//! ```text
//! poll begins at T ─> it reports all that the kernel had at T ─> all of that is read: watermark T
//!                     one full list of events, or several        one turn, or several
//! ```
//!
//! Keep-alive counts a client as silent up to the watermark. The clock alone does not show silence:
//! the thread may be late with its reads, or may not have run for a while, and the client's bytes
//! wait in the kernel.
//!
//! Invariant: sockets are read in the order in which they became readable, see
//! [`crate::sockets::Sockets`].

use std::time::Instant;

use crate::bounds::EVENTS;

#[derive(Debug)]
pub(crate) struct ReadWatermark {
    read_up_to: Instant,
    /// The pass in progress.
    pass: Option<ScanPass>,
}

#[derive(Debug)]
struct ScanPass {
    /// When its first poll began.
    since: Instant,
    /// Full polls left until the kernel has reported every socket, since it does so in turn.
    polls: usize,
    /// The sockets of the pass are read when the reads have come to this number.
    reads: Option<u64>,
}

impl ReadWatermark {
    pub(crate) const fn new(now: Instant) -> Self {
        Self {
            read_up_to: now,
            pass: None,
        }
    }

    /// A poll that began at `began` has reported so many events, of so many sockets in all. They
    /// are read when [`read_up_to`](Self::read_up_to) is called with `reads` or more.
    pub(crate) fn polled(&mut self, began: Instant, events: usize, sockets: usize, reads: u64) {
        let pass = self.pass.get_or_insert(ScanPass {
            since: began,
            polls: sockets / EVENTS,
            reads: None,
        });
        if pass.reads.is_some() {
            return;
        }
        if events < EVENTS || pass.polls == 0 {
            pass.reads = Some(reads);
        } else {
            pass.polls -= 1;
        }
    }

    /// The reads have come to this number. Returns the watermark.
    pub(crate) fn read_up_to(&mut self, reads: u64) -> Instant {
        if let Some(pass) = &self.pass
            && pass.reads.is_some_and(|needed| needed <= reads)
        {
            self.read_up_to = pass.since;
            self.pass = None;
        }
        self.read_up_to
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_watermark_is_the_poll_whose_sockets_were_read() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut read_watermark = ReadWatermark::new(start);
        // The thread stood still in this poll: later bytes are not in it.
        read_watermark.polled(at(1), 3, 10, 3);
        assert_eq!(read_watermark.read_up_to(2), start);
        // A poll that begins before the last read is not waited for.
        read_watermark.polled(at(60), 3, 10, 6);
        assert_eq!(read_watermark.read_up_to(3), at(1));
        read_watermark.polled(at(61), 0, 10, 6);
        assert_eq!(read_watermark.read_up_to(5), at(1));
        assert_eq!(read_watermark.read_up_to(6), at(61));
    }

    #[test]
    fn the_watermark_waits_until_full_polls_have_reported_every_socket() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut read_watermark = ReadWatermark::new(start);
        for poll in 1..=3 {
            assert_eq!(read_watermark.read_up_to(poll * 1_024), start);
            read_watermark.polled(at(poll), EVENTS, 2 * EVENTS + 1, poll * 1_024);
        }
        assert_eq!(read_watermark.read_up_to(3 * 1_024), at(1));
        read_watermark.polled(at(4), EVENTS, 2 * EVENTS + 1, 4 * 1_024);
        read_watermark.polled(at(5), EVENTS - 1, 2 * EVENTS + 1, 4_100);
        assert_eq!(read_watermark.read_up_to(4_100), at(4));
    }
}
