//! What waits on disk from before the broker started, counted in the background.
//!
//! ```text
//! log:  ... read | counted ........ uncounted | since the start ... tail
//!                                             ^ tails
//! ```
//!
//! A session that is restored may be owed anything behind the place where it was, so it holds on to
//! all of that, and no limit can be applied to it. Its part of each log is therefore read once, as
//! if its client had come, and only counted. From then on the session is as if the broker had never
//! stopped: logs are trimmed up to the first message that waits for it, limits apply, and what it
//! holds is known.
//!
//! Invariants:
//! - Sessions are read one after the other, [`COUNTING_MAX`] at a time, each a piece at a time. The
//!   driver reads for those that have a client first.
//! - Each message is counted once: by this, or when it is found, whichever comes first.
//!
//! Deliberately absent: a session whose client is here. It reads for itself, and if it goes before
//! it has read everything the rest is counted.

use std::collections::VecDeque;
use std::time::Instant;

use crate::clients::Clients;
use crate::durability::ReadAnswer;
use crate::ids::{LogId, SessionId};
use crate::limits::{COUNTING_BYTES_MAX, COUNTING_MAX};
use crate::position::{Frontier, Position};
use crate::shard::Shard;
use crate::timers::Timer;

/// Who is to be counted.
#[derive(Debug, Default)]
pub(crate) struct Census {
    /// Some may have ended since, or been counted.
    waiting: VecDeque<SessionId>,
    /// The reads under way.
    reading: Vec<u64>,
    /// [`Timer::Count`] is set.
    scheduled: bool,
    /// The last message of each log when the broker started.
    pub(crate) tails: Frontier,
}

impl Census {
    /// Whether this token is that of a read for it.
    pub(crate) fn reads(&self, token: u64) -> bool {
        self.reading.contains(&token)
    }
}

impl Clients {
    /// Something may wait for this session from before the broker started, and nobody reads it.
    pub(crate) fn count_later(&mut self, id: SessionId) {
        let backlog = self.backlog_of(id);
        if let Some(uncounted) = backlog.and_then(|backlog| backlog.uncounted.as_deref_mut())
            && !std::mem::replace(&mut uncounted.is_listed, true)
        {
            self.census.waiting.push_back(id);
        }
    }

    /// It goes on before others begin: so it is done with sooner.
    fn count_next(&mut self, id: SessionId) {
        self.count_later(id);
        if self.census.waiting.back() == Some(&id) {
            self.census.waiting.rotate_right(1);
        }
    }
}

impl Shard {
    /// Sees to it that somebody begins to count.
    pub(crate) fn schedule_count(&mut self, now: Instant) {
        let census = &mut self.clients.census;
        if !census.waiting.is_empty() && census.reading.is_empty() && !census.scheduled {
            census.scheduled = true;
            self.timers.set(now, Timer::Count);
        }
    }

    /// Goes on with those who are next.
    pub(crate) fn count_on(&mut self) {
        self.clients.census.scheduled = false;
        while self.clients.census.reading.len() < COUNTING_MAX
            && let Some(id) = self.clients.census.waiting.pop_front()
        {
            self.count_session(id);
        }
    }

    fn count_session(&mut self, id: SessionId) {
        let session = self.clients.sessions.get(id.index());
        let is_away = session.is_some_and(|session| session.connection.is_none());
        let Some(backlog) = self.clients.backlog_of(id) else {
            return;
        };
        let is_idle = backlog.is_idle();
        let Some(uncounted) = backlog.uncounted.as_deref_mut() else {
            return;
        };
        uncounted.is_listed = false;
        // Whoever reads for it now lists it again, if something is left.
        if !is_away || !is_idle {
            return;
        }
        let Some((log, after, last)) = self.next_uncounted(id) else {
            return self.end_count(id);
        };
        if let Some(mut request) = self.read_request(id, log, after..last, COUNTING_BYTES_MAX) {
            request.in_background = true;
            self.clients.census.reading.push(request.token);
            self.clients.gate.read(request);
        }
    }

    /// A log that is not counted, and what of it.
    fn next_uncounted(&mut self, id: SessionId) -> Option<(LogId, u64, u64)> {
        let session = self.clients.sessions.get(id.index())?;
        let backlog = session.kept.as_deref()?.backlog.as_deref()?;
        let counted = &backlog.uncounted.as_deref()?.through;
        let mut tails = self.clients.census.tails.iter();
        tails.find_map(|(log, last)| {
            let after = counted.of(log).max(backlog.read.of(log));
            (after < last).then_some((log, after, last))
        })
    }

    /// A part of a log has been read, to count what of it waits.
    pub(crate) fn handle_count(&mut self, now: Instant, answer: &ReadAnswer) {
        let id = answer.session;
        for message in &answer.messages {
            let session = self.clients.sessions.get(id.index());
            let is_owed = session.is_some_and(|session| {
                let kept = session.kept.as_deref();
                kept.is_some_and(|kept| kept.is_owed_uncounted(&session.client_id, message))
            });
            if let Some(position) = message.position().filter(|_| is_owed) {
                self.clients
                    .count_behind(id, position, &message.publication());
            }
        }
        let backlog = self.clients.backlog_of(id);
        if let Some(uncounted) = backlog.and_then(|backlog| backlog.uncounted.as_deref_mut()) {
            uncounted.through.raise(Position {
                log: answer.log,
                number: answer.through,
            });
        }
        self.clients.count_next(id);
        // Its client may have come meanwhile.
        self.pump(now, id);
    }

    fn end_count(&mut self, id: SessionId) {
        let Clients {
            sessions,
            census,
            unsaved,
            ..
        } = &mut self.clients;
        let Some(session) = sessions.get_mut(id.index()) else {
            return;
        };
        let kept = session.kept.as_deref_mut();
        let backlog = kept.and_then(|kept| kept.backlog.as_deref_mut());
        if backlog.is_some_and(|backlog| backlog.end_count(&census.tails)) {
            session.touch(id, unsaved);
        }
    }

    /// The answer to a read came, whether or not anybody waits for it.
    pub(crate) fn forget_count(&mut self, token: u64) {
        let reading = &mut self.clients.census.reading;
        if let Some(at) = reading.iter().position(|other| *other == token) {
            reading.swap_remove(at);
            self.count_on();
        }
    }
}
