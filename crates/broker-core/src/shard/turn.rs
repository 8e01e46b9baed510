//! What matching may cost in one turn of the event loop, and what goes on in a later one.
//!
//! ```text
//! a step:      a node that a topic visits, a level of a filter that comes or goes, a retained
//!              topic that is looked at
//! connection:  behind CONNECTION_STEPS it stands in line
//! turn:        behind TURN_STEPS queries stand in line, too, and so do deep topics, also while
//!              other connections stand there; so do CONNECT and DISCONNECT, as wills and ends of
//!              sessions may follow; everything else is served as ever
//! line:        the first goes on in each turn, and others while the turn has steps left
//! ```
//!
//! All inputs of one turn have the same `now`.
//!
//! Invariants:
//! - A PUBLISH is routed whole or stays where it was received, and what its client sent behind it
//!   waits too: the order of one publisher does not change.
//! - A topic of few levels, which visits few nodes whatever is subscribed to, never waits for the
//!   topics of others.
//!
//! Deliberately absent: a walk that stops on its way. What one topic visits is bounded by the
//! limits of filters ([`crate::filter_size`]).

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use unbroken_mqtt_proto::TopicName;

use crate::filter_size::is_deep;
use crate::ids::{ConnectionId, SessionId};
use crate::limits::{CONNECTION_STEPS, TURN_STEPS};
use crate::shard::Shard;
use crate::timers::Timer;

/// The turn that is going on, and the line.
#[derive(Debug)]
pub(super) struct Turn {
    now: Instant,
    /// Steps before it.
    before: u64,
    /// Levels of filters that were subscribed to, and of those that ended, ever.
    levels: u64,
    line: VecDeque<Waiting>,
    /// Connections in it.
    connections: usize,
    /// [`Timer::Turn`] is set.
    is_due: bool,
    /// It is the turn of the first in line.
    is_serving: bool,
}

/// What stands in line, at most once each.
#[derive(Clone, Copy, Debug)]
enum Waiting {
    /// Packets that were received.
    Connection(ConnectionId),
    /// The queries of a session for retained messages.
    Queries(SessionId),
}

impl Turn {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            now,
            before: 0,
            levels: 0,
            line: VecDeque::new(),
            connections: 0,
            is_due: false,
            is_serving: false,
        }
    }

    /// Filters with so many levels were subscribed to, or are not any more.
    pub(super) fn note_levels(&mut self, levels: u32) {
        self.levels += u64::from(levels);
    }
}

impl Shard {
    /// Whether so much was matched in the turn of this time that other work comes first. What other
    /// shards have sent may then wait for the next turn.
    pub fn has_used_turn(&self, now: Instant) -> bool {
        self.turn.now == now && self.steps() - self.turn.before >= TURN_STEPS
    }

    /// Steps since the shard started.
    pub(super) fn steps(&self) -> u64 {
        self.router.visited() + self.retained.looked_at() + self.turn.levels
    }

    pub(super) fn begin_turn(&mut self, now: Instant) {
        if self.turn.now != now {
            self.turn.now = now;
            self.turn.before = self.steps();
        }
    }

    /// Whether a message on this topic is to wait for a later turn; then its connection stands in
    /// line.
    pub(super) fn must_wait(
        &mut self,
        now: Instant,
        id: ConnectionId,
        topic: TopicName<'_>,
    ) -> bool {
        let is_busy = self.turn.connections > 0 || self.has_used_turn(now);
        let waits = is_busy && !self.turn.is_serving && is_deep(topic) && !self.router.knows(topic);
        if waits {
            self.stand_in_line(now, id);
        }
        waits
    }

    /// Whether a packet after which sessions may end, and wills be published, is to wait for a
    /// later turn; then its connection stands in line.
    pub(super) fn must_end_later(&mut self, now: Instant, id: ConnectionId) -> bool {
        let waits = !self.turn.is_serving && self.has_used_turn(now);
        if waits {
            self.stand_in_line(now, id);
        }
        waits
    }

    /// A connection that has had its share goes on in a later turn. `before`: the steps when its
    /// packets were begun.
    #[inline]
    pub(super) fn yield_turn(&mut self, now: Instant, id: ConnectionId, before: u64) {
        if self.steps() - before >= CONNECTION_STEPS {
            self.stand_in_line(now, id);
        }
    }

    #[cold]
    fn stand_in_line(&mut self, now: Instant, id: ConnectionId) {
        if let Some(connection) = self.connections.get_mut(id)
            && !connection.is_in_line()
        {
            connection.set_in_line(true);
            self.turn.connections += 1;
            self.push_waiting(now, Waiting::Connection(id));
        }
    }

    /// Whether the queries of this session have to stand in line; they do.
    pub(super) fn must_query_later(&mut self, now: Instant, session: SessionId) -> bool {
        let waits =
            !self.turn.is_serving && (self.has_used_turn(now) || self.retained.is_in_line(session));
        if waits {
            self.query_later(now, session);
        }
        waits
    }

    /// The queries of this session go on in a later turn.
    pub(super) fn query_later(&mut self, now: Instant, session: SessionId) {
        if self.retained.stand_in_line(session) {
            self.push_waiting(now, Waiting::Queries(session));
        }
    }

    fn push_waiting(&mut self, now: Instant, waiting: Waiting) {
        self.turn.line.push_back(waiting);
        self.schedule_line(now);
    }

    fn schedule_line(&mut self, now: Instant) {
        if !self.turn.line.is_empty() && !std::mem::replace(&mut self.turn.is_due, true) {
            self.timers.set(now + NEXT_TURN, Timer::Turn);
        }
    }

    /// The line goes on: with the first, and with others as far as the turn has steps.
    pub(super) fn serve_line(&mut self, now: Instant) {
        self.turn.is_due = false;
        self.turn.is_serving = true;
        for _ in 0..self.turn.line.len() {
            match self.turn.line.pop_front() {
                Some(Waiting::Connection(id)) => {
                    self.turn.connections -= 1;
                    self.go_on(now, id);
                }
                Some(Waiting::Queries(session)) => {
                    self.retained.leave_line(session);
                    self.pump_retained(now, session);
                }
                None => break,
            }
            if self.has_used_turn(now) {
                break;
            }
        }
        self.turn.is_serving = false;
        self.schedule_line(now);
    }

    fn go_on(&mut self, now: Instant, id: ConnectionId) {
        if let Some(connection) = self.connections.get_mut(id) {
            connection.set_in_line(false);
            self.connections.relieve(now, id);
            self.consume_unread(now, id);
        }
    }
}

/// Later than now, so that a turn of the loop comes between.
pub(super) const NEXT_TURN: Duration = Duration::from_nanos(1);
