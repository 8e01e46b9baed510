//! Sessions of which it is not known what waits for them from before the broker started.
//!
//! ```text
//! log:  ... read | counted ........ uncounted | since the start ... end
//!                                             ^ ends
//! ```
//!
//! A session that is restored may have to get anything behind the place where it was, so it holds
//! on to all of that, and no limit can be applied to it. Its part of each log is therefore read
//! once, as if its client had come, and only counted. From then on the session is as if the broker
//! had never stopped: logs are trimmed up to the first message that waits for it, limits apply, and
//! what it holds is known.
//!
//! Invariants:
//! - Sessions are read one after the other, a limited number at a time, each a piece at a time. The
//!   driver reads for those that have a client first.
//! - Each message is counted once: by this, or when it is found, whichever comes first.
//!
//! Deliberately absent: a session whose client is here. It reads for itself, and if it goes before
//! it has read everything the rest is counted.

use std::collections::VecDeque;

use crate::ids::SessionId;
use crate::position::Frontier;

#[derive(Debug, Default)]
pub(crate) struct RecoveryScan {
    /// Some may have ended since, or been counted.
    waiting: VecDeque<SessionId>,
    /// [`Timer::RecoveryScan`](crate::timers::Timer) is set.
    is_scheduled: bool,
    /// The last message of each log when the broker started.
    ends: Frontier,
}

impl RecoveryScan {
    /// The last message of each log when the broker started.
    pub(crate) fn ends(&self) -> &Frontier {
        &self.ends
    }

    pub(super) fn restore(&mut self, ends: Frontier) {
        self.ends = ends;
    }

    /// This session is to be scanned, after the others.
    pub(crate) fn list(&mut self, id: SessionId) {
        self.waiting.push_back(id);
    }

    /// It goes on before others begin: so it is done with sooner.
    pub(crate) fn put_first(&mut self, id: SessionId) {
        if self.waiting.back() == Some(&id) {
            self.waiting.rotate_right(1);
        }
    }

    pub(super) fn take_next(&mut self) -> Option<SessionId> {
        self.waiting.pop_front()
    }

    /// Whether a scan is to be scheduled, where none is under way.
    pub(super) fn schedule(&mut self) -> bool {
        !self.waiting.is_empty() && !std::mem::replace(&mut self.is_scheduled, true)
    }

    /// The time has come that was scheduled.
    pub(crate) fn begin(&mut self) {
        self.is_scheduled = false;
    }
}
