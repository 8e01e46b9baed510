//! HOT: how long messages and turns of the event loop take.
//!
//! No clock is read for a message. Its time begins with the turn that received it, whose time it
//! has as its stamp, and ends with the turn that acknowledged or sent it:
//!
//! ```text
//! in the same turn:   counted; when the turn ends all of these get the length of the turn
//! in a later turn:    from the beginning of the one to the beginning of the other
//! ```
//!
//! Messages that follow each other mostly have one stamp, and are counted as a run. Of
//! acknowledgements that are held until something is stored, one at a time is followed, and stands
//! for those that were held with it.

use std::time::{Duration, Instant};

use unbroken_mqtt_proto::PacketId;

use super::Histogram;
use crate::ids::ConnectionId;

/// Times of one shard, in microseconds, and the lengths of queues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Latencies {
    /// From PUBLISH to PUBACK or PUBREC.
    pub acknowledged: Histogram,
    /// From PUBLISH to the output of a receiver that the message did not have to wait for.
    pub sent: Histogram,
    /// Turns of the event loop.
    pub turns: Histogram,
    /// Messages in the queue of a session, when another was put behind them.
    pub queues: Histogram,
}

impl Latencies {
    pub(super) fn add(&mut self, other: &Self) {
        let Self {
            acknowledged,
            sent,
            turns,
            queues,
        } = other;
        self.acknowledged += *acknowledged;
        self.sent += *sent;
        self.turns += *turns;
        self.queues += *queues;
    }
}

/// What is measured in the turn that is going on.
#[derive(Debug, Default)]
pub(super) struct Meter {
    /// Messages with one stamp that were sent last.
    run: Option<Run>,
    /// Of this turn's own messages.
    sent: u64,
    acknowledged: u64,
    /// The acknowledgement that is followed.
    followed: Option<Followed>,
    /// Held acknowledgements that have left since the last one that was followed.
    released: u64,
}

#[derive(Clone, Copy, Debug)]
struct Run {
    stamp: Instant,
    took: Duration,
    count: u64,
}

#[derive(Clone, Copy, Debug)]
struct Followed {
    connection: ConnectionId,
    packet_id: PacketId,
    since: Instant,
}

impl Meter {
    /// A message was sent that was received at `stamp`.
    #[inline]
    pub(super) fn sent(&mut self, latencies: &mut Latencies, now: Instant, stamp: Instant) {
        match &mut self.run {
            Some(run) if run.stamp == stamp => run.count += 1,
            _ => self.begin_run(latencies, now, stamp),
        }
    }

    fn begin_run(&mut self, latencies: &mut Latencies, now: Instant, stamp: Instant) {
        let run = Run {
            stamp,
            took: now.saturating_duration_since(stamp),
            count: 1,
        };
        if let Some(run) = self.run.replace(run) {
            self.end_run(latencies, run);
        }
    }

    fn end_run(&mut self, latencies: &mut Latencies, run: Run) {
        if run.took.is_zero() {
            self.sent += run.count;
        } else {
            latencies.sent.observe(micros(run.took), run.count);
        }
    }

    /// A message of this turn was acknowledged.
    #[inline]
    pub(super) fn acknowledged(&mut self) {
        self.acknowledged += 1;
    }

    /// An acknowledgement is held.
    #[inline]
    pub(super) fn held(&mut self, now: Instant, connection: ConnectionId, packet_id: PacketId) {
        // What is not stored for so long is not waited for.
        let is_lost = |followed: &Followed| now.duration_since(followed.since) > FOLLOWED_MAX;
        if self.followed.as_ref().is_none_or(is_lost) {
            self.followed = Some(Followed {
                connection,
                packet_id,
                since: now,
            });
        }
    }

    /// A connection has ended: what it was held for does not leave.
    pub(super) fn closed(&mut self, connection: ConnectionId) {
        self.followed.take_if(|one| one.connection == connection);
    }

    /// One that was held has left.
    #[inline]
    pub(super) fn released(
        &mut self,
        latencies: &mut Latencies,
        now: Instant,
        (connection, packet_id): (ConnectionId, PacketId),
    ) {
        self.released += 1;
        let is_it = |one: &mut Followed| one.connection == connection && one.packet_id == packet_id;
        let Some(followed) = self.followed.take_if(is_it) else {
            return;
        };
        let released = std::mem::take(&mut self.released);
        let took = now.saturating_duration_since(followed.since);
        if took.is_zero() {
            self.acknowledged += released;
        } else {
            latencies.acknowledged.observe(micros(took), released);
        }
    }

    /// The turn has ended, and has taken so long.
    pub(super) fn turn_ended(&mut self, latencies: &mut Latencies, took: Duration) {
        if let Some(run) = self.run.take() {
            self.end_run(latencies, run);
        }
        let took = micros(took);
        latencies.turns.observe(took, 1);
        let sent = std::mem::take(&mut self.sent);
        if sent > 0 {
            latencies.sent.observe(took, sent);
        }
        let acknowledged = std::mem::take(&mut self.acknowledged);
        if acknowledged > 0 {
            latencies.acknowledged.observe(took, acknowledged);
        }
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// For so long an acknowledgement is followed.
const FOLLOWED_MAX: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    const TURN: Duration = Duration::from_micros(100);
    const LATER: Duration = Duration::from_millis(5);

    const CONNECTION: ConnectionId = ConnectionId {
        index: 0,
        serial: 0,
    };

    #[expect(clippy::disallowed_methods, reason = "a test's epoch")]
    fn epoch() -> Instant {
        Instant::now()
    }

    /// Counts by the bucket that they are in.
    fn found(histogram: &Histogram) -> Vec<(usize, u64)> {
        let counts = histogram.counts().iter().copied().enumerate();
        counts.filter(|(_, count)| *count > 0).collect()
    }

    #[test]
    fn messages_of_the_turn_take_as_long_as_the_turn() {
        let (mut meter, mut latencies) = (Meter::default(), Latencies::default());
        let stamp = epoch();
        let now = stamp + LATER;
        for _ in 0..3 {
            meter.sent(&mut latencies, now, now);
        }
        for _ in 0..2 {
            meter.sent(&mut latencies, now, stamp);
        }
        meter.acknowledged();
        assert_eq!(latencies.turns.total(), 0);
        meter.turn_ended(&mut latencies, TURN);
        assert_eq!(found(&latencies.sent), [(7, 3), (13, 2)]);
        assert_eq!(found(&latencies.acknowledged), [(7, 1)]);
        assert_eq!(found(&latencies.turns), [(7, 1)]);
        meter.turn_ended(&mut latencies, TURN);
        assert_eq!((latencies.sent.total(), latencies.turns.total()), (5, 2));
    }

    #[test]
    fn a_held_acknowledgement_stands_for_those_held_with_it() {
        let (mut meter, mut latencies) = (Meter::default(), Latencies::default());
        let connection = CONNECTION;
        let id = |number| PacketId::new(number).expect("not 0");
        let now = epoch();
        for number in 1..=3 {
            meter.held(now, connection, id(number));
        }
        let later = now + LATER;
        for number in 1..=3 {
            meter.released(&mut latencies, later, (connection, id(number)));
        }
        assert_eq!(found(&latencies.acknowledged), [(13, 1)]);
        // The next one that is followed also stands for the two behind the last.
        meter.held(later, connection, id(4));
        let last = later + LATER;
        meter.released(&mut latencies, last, (connection, id(4)));
        assert_eq!(found(&latencies.acknowledged), [(13, 4)]);
    }

    #[test]
    fn one_whose_connection_has_ended_is_not_followed() {
        let (mut meter, mut latencies) = (Meter::default(), Latencies::default());
        let id = |number| PacketId::new(number).expect("not 0");
        let other = ConnectionId {
            index: 1,
            serial: 0,
        };
        let now = epoch();
        meter.held(now, CONNECTION, id(1));
        meter.closed(other);
        meter.closed(CONNECTION);
        meter.held(now, other, id(1));
        meter.released(&mut latencies, now + LATER, (other, id(1)));
        assert_eq!(found(&latencies.acknowledged), [(13, 1)]);
    }

    #[test]
    fn one_that_does_not_leave_is_followed_for_a_while_only() {
        let (mut meter, mut latencies) = (Meter::default(), Latencies::default());
        let connection = CONNECTION;
        let id = |number| PacketId::new(number).expect("not 0");
        let now = epoch();
        meter.held(now, connection, id(1));
        meter.held(now + FOLLOWED_MAX, connection, id(2));
        let later = now + FOLLOWED_MAX + LATER;
        meter.held(later, connection, id(3));
        meter.released(&mut latencies, later + LATER, (connection, id(3)));
        assert_eq!(found(&latencies.acknowledged), [(13, 1)]);
    }
}
