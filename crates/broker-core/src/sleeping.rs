//! Sessions whose clients are away, and what they hold.
//!
//! For an operator: who has not come for long, how much waits for it, and since when. What waits on
//! disk from before the broker started was not counted; the figure then says so.

use std::sync::Arc;
use std::time::{Duration, Instant};

use unbroken_mqtt_proto::session::Entry as InFlight;

use crate::position::Frontier;
use crate::session::{Backlog, Session};
use crate::shard::Shard;
use crate::telemetry::SleepingTotals;

/// A session whose client is away.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SleepingSession {
    /// Whose.
    pub client_id: Arc<str>,
    /// For how long its client has been away.
    pub away: Duration,
    /// Seconds for which it may be; `u32::MAX` is without end.
    pub expiry_s: u32,
    /// Its subscriptions.
    pub subscriptions: u32,
    /// Messages that wait for it and were not sent.
    pub messages: u64,
    /// Bytes of their topics, properties and payloads.
    pub bytes: u64,
    /// The two before are exact. Otherwise more may wait, from before the broker started.
    pub is_counted: bool,
    /// Messages that were sent and not acknowledged.
    pub in_flight: u32,
    /// For how long the oldest of all these has waited, at most; `None` if there is none.
    pub oldest: Option<Duration>,
    /// It holds on to all of the logs that is not within; `None` if it is not on disk.
    pub through: Option<Frontier>,
}

impl Shard {
    /// Sessions of this shard whose clients are away, in no order. Costs a look at all sessions.
    pub fn sleeping(&self, now: Instant) -> impl Iterator<Item = SleepingSession> + '_ {
        let sessions = self.clients.sessions.iter();
        sessions.filter_map(move |(_, session)| self.sleeper(now, session))
    }

    fn sleeper(&self, now: Instant, session: &Session) -> Option<SleepingSession> {
        let away = now.saturating_duration_since(session.away_since?);
        let kept = session.kept.as_deref();
        let backlog = kept.and_then(|kept| kept.backlog.as_deref());
        let in_flight = session.outbound.iter().filter_map(|entry| match entry {
            InFlight::Publish { message, .. } => Some(message.message.publication().stamp),
            InFlight::PubRel { .. } => None,
        });
        let queued = session.queue.front();
        let queued = queued.map(|(_, delivery)| delivery.message.publication().stamp);
        let on_disk = backlog.and_then(|backlog| backlog.oldest);
        let (in_flight, sent) = in_flight.fold((0, None), |(count, oldest), stamp| {
            (count + 1, earliest(oldest, Some(stamp)))
        });
        let oldest = earliest(sent, earliest(queued, on_disk));
        Some(SleepingSession {
            client_id: Arc::clone(&session.client_id),
            away,
            expiry_s: self.clients.limits.expiry_s(session.expiry_s),
            subscriptions: u32::try_from(session.subscriptions.len()).unwrap_or(u32::MAX),
            messages: session.queue.len() as u64 + backlog.map_or(0, |backlog| backlog.messages),
            bytes: session.queue_bytes + backlog.map_or(0, |backlog| backlog.bytes),
            is_counted: backlog.is_none_or(Backlog::is_counted),
            in_flight,
            oldest: oldest.map(|stamp| now.saturating_duration_since(stamp)),
            through: kept.map(|_| session.holds_from(self.clients.gate.log_ends().all())),
        })
    }

    pub(crate) fn sleeping_totals(&self, now: Instant) -> SleepingTotals {
        let persistent = self.clients.sessions.iter();
        let persistent = persistent.filter(|(_, session)| session.expiry_s > 0);
        let mut totals = SleepingTotals {
            persistent: persistent.count() as u64,
            ..SleepingTotals::default()
        };
        for sleeper in self.sleeping(now) {
            let Some(oldest) = sleeper.oldest else {
                continue;
            };
            totals += SleepingTotals {
                persistent: 0,
                holding: 1,
                messages: sleeper.messages + u64::from(sleeper.in_flight),
                bytes: sleeper.bytes,
                oldest_s: oldest.as_secs(),
            };
        }
        totals
    }
}

fn earliest(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    one.into_iter().chain(other).min()
}
