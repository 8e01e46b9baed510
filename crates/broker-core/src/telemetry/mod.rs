//! What a shard counts and reports: counters that can be added up over shards, events, and the
//! values of `$SYS`.
//!
//! Invariants:
//! - A counter only grows: what may still be put back is counted when it is dealt with. What is
//!   there now (clients, subscriptions, bytes that wait) goes up and down.
//! - Every message that is not delivered is counted by its reason, and reported as an event: the
//!   first of a session and reason at once, those behind it together within a second, and at the
//!   latest when the session ends or the broker stops.
//!
//! Deliberately absent: what a value means for a session, and the way of `$SYS` to its subscribers.

mod audit_totals;
mod audit_values;
mod drops;
mod event;
mod histogram;
mod latency;
mod stats;
mod sys;
mod trace;

pub use audit_totals::{Aside, AuditTotals, PublishersTotals};
pub use event::{Event, Numbers};
pub use histogram::Histogram;
pub use latency::Latencies;
pub use stats::{CommitTimes, SleepingTotals, Stats, Work};
pub use trace::{TraceFilter, TraceStep, Traced};

pub(crate) use audit_totals::Again;
pub(crate) use audit_values::{VERDICT, rfc3339, sentence};
pub(crate) use drops::{DropTallies, Dropped};
pub(crate) use sys::{About, STORE};
pub(crate) use trace::{Parties, Tracer};

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use unbroken_mqtt_proto::{PacketId, ReasonCode};

use self::drops::TELL_DROPS_EVERY;
use self::latency::Meter;
use self::sys::Sys;
use crate::ids::{ConnectionId, SessionId, ShardId};
use crate::reason::{DropPlace, DropReason};

/// The counters and events of one shard.
#[derive(Debug, Default)]
pub(crate) struct Telemetry {
    stats: Stats,
    /// What the driver has not taken yet.
    events: VecDeque<Event>,
    /// Of messages that had no receiver to be reported of.
    drops: DropTallies,
    /// Sessions that may have drops to report; some may have ended since.
    unreported: Vec<SessionId>,
    /// A report of these is due, and the time is set.
    is_report_due: bool,
    sys: Sys,
    meter: Meter,
    pub(crate) tracer: Tracer,
}

/// Reading, events.
impl Telemetry {
    pub(crate) fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Packets since the shard started.
    pub(crate) fn work(&self) -> Work {
        self.stats.work()
    }

    /// Whether a message waits in a session, or is in flight.
    pub(crate) fn has_waiting(&self) -> bool {
        self.stats.messages_waiting > 0
    }

    /// The totals of the audit, which counts in them itself.
    #[inline]
    pub(crate) fn audit(&mut self) -> &mut AuditTotals {
        &mut self.stats.audit
    }

    pub(crate) fn report(&mut self, event: Event) {
        if self.tracer.is_on() {
            self.tracer.event(&event);
        }
        self.events.push_back(event);
    }

    pub(crate) fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    pub(crate) fn take_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }
}

/// Bytes, packets and messages.
impl Telemetry {
    #[inline]
    pub(crate) fn received_bytes(&mut self, bytes: usize) {
        self.stats.bytes_received += bytes as u64;
    }

    /// A packet was dealt with.
    #[inline]
    pub(crate) fn received_packet(&mut self) {
        self.stats.packets_received += 1;
    }

    /// It was a PUBLISH with so many bytes of payload.
    #[inline]
    pub(crate) fn received_publish(&mut self, bytes: usize) {
        self.stats.publishes_received += 1;
        self.stats.publish_bytes_received += bytes as u64;
    }

    /// A message was received that its client had sent before.
    pub(crate) fn received_again(&mut self, again: Again) {
        match again {
            Again::OnOneConnection => self.stats.audit.retransmitted += 1,
            Again::AfterReconnect => self.stats.audit.redelivered_in += 1,
        }
    }

    /// A message had no subscriber.
    pub(crate) fn unrouted(&mut self, is_aside: bool) {
        self.stats.publishes_unrouted += 1;
        self.stats.audit.aside.unrouted += u64::from(is_aside);
    }

    /// The driver has written so much.
    #[inline]
    pub(crate) fn wrote(&mut self, bytes: usize) {
        self.stats.bytes_sent += bytes as u64;
    }

    /// A packet other than PUBLISH was given to the driver.
    #[inline]
    pub(crate) fn sent_packet(&mut self) {
        self.stats.packets_sent += 1;
    }

    /// A PUBLISH was.
    #[inline]
    pub(crate) fn sent_publish(&mut self) {
        self.stats.publishes_sent += 1;
        self.stats.packets_sent += 1;
    }

    /// So many bytes of payload were in it.
    #[inline]
    pub(crate) fn sent_payload(&mut self, bytes: usize) {
        self.stats.publish_bytes_sent += bytes as u64;
    }

    /// A message was sent again after its receiver came back.
    pub(crate) fn redelivered(&mut self, is_shown: bool) {
        self.stats.audit.redelivered += u64::from(is_shown);
    }

    /// The receiver of a message says that it has processed it.
    pub(crate) fn processed(&mut self) {
        self.stats.audit.processed += 1;
    }
}

/// How long it takes.
impl Telemetry {
    /// A message that was received at `stamp` has gone to the output of a receiver.
    #[inline]
    pub(crate) fn sent_after(&mut self, now: Instant, stamp: Instant) {
        self.meter.sent(&mut self.stats.latencies, now, stamp);
    }

    /// A message was acknowledged in the turn that took it in.
    #[inline]
    pub(crate) fn acknowledged(&mut self) {
        self.meter.acknowledged();
    }

    /// The acknowledgement of a message is held.
    #[inline]
    pub(crate) fn held_acknowledgement(
        &mut self,
        now: Instant,
        connection: ConnectionId,
        packet_id: PacketId,
    ) {
        self.meter.held(now, connection, packet_id);
    }

    /// A connection has ended.
    pub(crate) fn closed(&mut self, connection: ConnectionId) {
        self.meter.closed(connection);
    }

    /// One that was held has left.
    #[inline]
    pub(crate) fn released_acknowledgement(
        &mut self,
        now: Instant,
        connection: ConnectionId,
        packet_id: PacketId,
    ) {
        let latencies = &mut self.stats.latencies;
        self.meter.released(latencies, now, (connection, packet_id));
    }

    /// A message was put into a queue, behind so many.
    #[inline]
    pub(crate) fn queued_behind(&mut self, messages: usize) {
        self.stats.latencies.queues.observe(messages as u64, 1);
    }

    /// A turn of the event loop has taken so long.
    pub(crate) fn turn_ended(&mut self, took: Duration) {
        self.meter.turn_ended(&mut self.stats.latencies, took);
    }
}

/// What waits in sessions now.
impl Telemetry {
    /// A session has accepted a message of QoS 1 or 2.
    #[inline]
    pub(crate) fn accepted(&mut self) {
        self.stats.messages_waiting += 1;
    }

    /// Messages that were accepted have come to their end.
    #[inline]
    pub(crate) fn ended(&mut self, messages: u64) {
        self.stats.messages_waiting = self.stats.messages_waiting.saturating_sub(messages);
    }

    /// Messages that were accepted and had to wait have come to their end.
    pub(crate) fn uncount(&mut self, messages: u64, bytes: u64) {
        self.ended(messages);
        self.unqueued(bytes);
    }

    /// A message that was accepted has to wait.
    #[inline]
    pub(crate) fn queued(&mut self, bytes: u64) {
        self.stats.messages_waiting_bytes += bytes;
    }

    /// So much waits no more.
    #[inline]
    pub(crate) fn unqueued(&mut self, bytes: u64) {
        let waiting = &mut self.stats.messages_waiting_bytes;
        *waiting = waiting.saturating_sub(bytes);
    }
}

/// Clients, subscriptions, retained messages and the store.
impl Telemetry {
    /// A client was let in; `sessions` are there now.
    pub(crate) fn connected(&mut self, sessions: usize) {
        let stats = &mut self.stats;
        stats.connects_admitted += 1;
        stats.clients_connected += 1;
        stats.clients_maximum = stats.clients_maximum.max(stats.clients_connected);
        self.note_sessions(sessions);
    }

    /// A client has gone.
    pub(crate) fn disconnected(&mut self) {
        self.stats.clients_connected -= 1;
    }

    /// So many sessions are there now.
    pub(crate) fn note_sessions(&mut self, sessions: usize) {
        let stats = &mut self.stats;
        stats.clients_disconnected = (sessions as u64).saturating_sub(stats.clients_connected);
    }

    pub(crate) fn session_expired(&mut self) {
        self.stats.sessions_expired += 1;
    }

    /// A client was refused something.
    pub(crate) fn refused(&mut self, reason: ReasonCode) {
        *self.stats.refused.entry(reason).or_default() += 1;
    }

    /// A connection was refused.
    pub(crate) fn refused_connect(&mut self, reason: ReasonCode) {
        self.stats.connects_refused += 1;
        self.refused(reason);
    }

    /// A client is over its rate, and is not read for a while.
    pub(crate) fn paused_for_rate(&mut self) {
        self.stats.rate_pauses += 1;
    }

    pub(crate) fn subscribed(&mut self) {
        self.stats.subscriptions += 1;
    }

    pub(crate) fn unsubscribed(&mut self) {
        self.stats.subscriptions -= 1;
    }

    /// One of the subscriptions is shared.
    pub(crate) fn joined_group(&mut self) {
        self.stats.shared_subscriptions += 1;
    }

    pub(crate) fn left_group(&mut self) {
        self.stats.shared_subscriptions -= 1;
    }

    /// A message of so many bytes is retained, in place of one that had `old`.
    pub(crate) fn retained(&mut self, bytes: u64, old: Option<u64>) {
        let stats = &mut self.stats;
        stats.retained_messages += u64::from(old.is_none());
        stats.retained_bytes -= old.unwrap_or(0);
        stats.retained_bytes += bytes;
    }

    /// A message of so many bytes is retained no more.
    pub(crate) fn unretained(&mut self, bytes: u64) {
        self.stats.retained_messages -= 1;
        self.stats.retained_bytes -= bytes;
    }

    /// As the driver says.
    pub(crate) fn note_store(&mut self, bytes: u64, commits: Option<CommitTimes>) {
        self.stats.store_bytes = bytes;
        if let Some(commits) = commits {
            self.stats.commits = commits;
        }
    }

    /// As the driver says.
    pub(crate) fn note_disk_space(&mut self, lacks: bool) {
        self.stats.disk_lacks_space = lacks.into();
    }

    /// As the driver says.
    pub(crate) fn note_heap(&mut self, current: u64, maximum: u64) {
        self.stats.heap = [current, maximum];
    }

    /// Nothing is stored any more.
    pub(crate) fn note_store_failed(&mut self) {
        self.stats.store_failed = 1;
    }
}

/// Messages that are not delivered.
impl Telemetry {
    /// A session does not get a message. `tallies` are its own. Its caller also sees to the trace.
    pub(crate) fn dropped(
        &mut self,
        now: Instant,
        session: SessionId,
        tallies: &mut DropTallies,
        drop: &Dropped<'_>,
    ) {
        let was_listed = tallies.has_unreported();
        if let Some(event) = tallies.count(now, drop) {
            self.events.push_back(event);
        } else if !was_listed {
            self.unreported.push(session);
        }
    }

    /// A message that was dropped has no receiver to be reported of: its publisher is named.
    pub(crate) fn dropped_of_publisher(&mut self, now: Instant, drop: &Dropped<'_>) {
        let parties = Parties {
            client_id: Some(drop.client_id),
            user: None,
            publisher: drop.publisher,
        };
        self.trace_dropped(parties, drop.message.topic, drop.reason);
        if let Some(event) = self.drops.count(now, drop) {
            self.events.push_back(event);
        }
    }

    /// A message was dropped. Its caller also sees to the report.
    #[inline]
    pub(crate) fn count_drop(&mut self, reason: DropReason, is_aside: bool) {
        self.stats.drop(reason, 1, is_aside);
    }

    /// So many messages were dropped together, `aside` of them of the audit's own traffic and of
    /// `$SYS`; the last one's topic is named. Which they are is not known.
    pub(crate) fn dropped_together(
        &mut self,
        client_id: &Arc<str>,
        last_topic: &str,
        reason: DropReason,
        (count, aside): (u64, u64),
    ) {
        if count > 0 && self.tracer.is_on() {
            let parties = Parties {
                client_id: Some(client_id),
                ..Parties::default()
            };
            self.tracer.dropped(parties, last_topic, (reason, count));
        }
        self.report_together(client_id, last_topic, reason, (count, aside), None);
    }

    /// The same for messages whose numbers are known. Its caller also sees to the trace of each.
    pub(crate) fn report_together(
        &mut self,
        client_id: &Arc<str>,
        last_topic: &str,
        reason: DropReason,
        (count, aside): (u64, u64),
        numbers: Option<Numbers>,
    ) {
        self.stats.dropped[reason as usize] += count;
        self.stats.dropped_aside[reason as usize] += aside;
        if count > 0 {
            self.events.push_back(Event::Dropped {
                client_id: Arc::clone(client_id),
                topic: last_topic.into(),
                reason,
                count,
                full: None,
                place: DropPlace::Receiver,
                numbers: numbers.map(Box::new),
            });
        }
    }

    /// A message was dropped.
    #[inline]
    pub(crate) fn trace_dropped(&mut self, parties: Parties<'_>, topic: &str, reason: DropReason) {
        if self.tracer.is_on() {
            self.tracer.dropped(parties, topic, (reason, 1));
        }
    }

    /// Of messages of QoS 0 given to the driver, so many were not written, with so many bytes of
    /// payload.
    pub(crate) fn unsaid(&mut self, messages: u64, aside: u64, bytes: u64) {
        let stats = &mut self.stats;
        stats.publishes_unsaid += messages;
        stats.publish_bytes_unsaid += bytes;
        stats.audit.unsaid += messages - aside;
    }

    /// When [`take_unreported`](Self::take_unreported) is to be called, if that is not known yet.
    pub(crate) fn next_report(&mut self, now: Instant) -> Option<Instant> {
        let is_due = !self.unreported.is_empty() || self.drops.has_unreported();
        if !is_due || std::mem::replace(&mut self.is_report_due, true) {
            return None;
        }
        Some(now + TELL_DROPS_EVERY)
    }

    /// Reports what had no receiver. Answers the sessions that have something to report as well; a
    /// session with the number of one that has ended may report early.
    pub(crate) fn take_unreported(&mut self, now: Instant) -> Vec<SessionId> {
        self.is_report_due = false;
        self.events.extend(self.drops.take_unreported(now));
        std::mem::take(&mut self.unreported)
    }

    /// Reports what a session did not get.
    pub(crate) fn report_drops(&mut self, now: Instant, tallies: &mut DropTallies) {
        self.events.extend(tallies.take_unreported(now));
    }
}

/// `$SYS`.
impl Telemetry {
    /// Notes what is only known by a look at everything; answers all counters.
    pub(crate) fn bring_up_to_date(&mut self, sleeping: SleepingTotals, unstored: u64) -> Stats {
        self.stats.sleeping = sleeping;
        self.stats.audit.unstored = unstored;
        self.stats.clone()
    }

    /// The counters of a shard, on shard 0.
    pub(crate) fn note_shard(&mut self, shard: ShardId, stats: Stats) {
        self.sys.note(shard, stats);
    }

    /// Every value of all shards together, by its topic.
    pub(crate) fn sample(&mut self, about: &About<'_>) -> Vec<(String, String)> {
        let sum = self.sys.sum();
        let mut values = self.sys.values(about, &sum);
        values.push((VERDICT.to_owned(), sentence(&sum, about.audit)));
        values
    }

    /// Whether this differs from what was last published, which it is from now on.
    pub(crate) fn is_news(&mut self, topic: &str, value: &str) -> bool {
        self.sys.is_news(topic, value)
    }
}
