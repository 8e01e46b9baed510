//! What an operator is shown of clients, sessions and subscriptions.
//!
//! Each question is answered with a page, and costs a look at [`LOOKS_MAX`] places at most, however
//! many clients there are. Pages are not of one moment: what is there from the first page to the
//! last is in exactly one of them.
//!
//! What an offline session holds on disk from before the broker started was not counted; its
//! figures then say so.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use unbroken_mqtt_proto::{QoS, Version};

use super::wanted::{Wanted, WantedSubscriptions};
use super::{Backlog, Session, Sessions};
use crate::connection::{Connection, Connections};
use crate::limits::Limits;
use crate::position::Frontier;
use crate::routing::Grant;
use crate::telemetry::SleepingTotals;

/// Places of a table that one page looks at; some are empty.
pub(crate) const LOOKS_MAX: usize = 1_024;
/// Subscriptions that one page looks at; some are not wanted.
const SUBSCRIPTION_LOOKS_MAX: usize = 4_096;

/// A part of the answer to a question.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Page<T> {
    /// At most as many as were asked for.
    pub entries: Vec<T>,
    /// Where the next page begins; `None` behind the last.
    pub next: Option<Place>,
}

/// Where a page begins. The first one at the default.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Place {
    index: usize,
    /// Subscriptions of the session there that were looked at before.
    offset: usize,
}

impl Place {
    /// The place that these numbers named in an earlier page. One that names nothing is behind the
    /// last entry, or in front of another one.
    pub const fn from_parts((index, offset): (u32, u32)) -> Self {
        Self {
            index: index as usize,
            offset: offset as usize,
        }
    }

    /// Two numbers that name it.
    pub fn parts(self) -> (u32, u32) {
        let narrow = |number| u32::try_from(number).unwrap_or(u32::MAX);
        (narrow(self.index), narrow(self.offset))
    }
}

/// A client that is connected.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ClientInfo {
    /// Its id.
    pub client_id: Arc<str>,
    /// As whom it was let in; `None` is anonymous.
    pub user: Option<Arc<str>>,
    /// Its mount: what its topics begin with for others; `None`: it has none.
    pub mount: Option<Box<str>>,
    /// From where.
    pub address: Option<SocketAddr>,
    /// Position of the listener in the configuration.
    pub listener: u16,
    /// The protocol it speaks.
    pub version: Version,
    /// Bytes that wait to be written to it.
    pub output_bytes: u64,
    /// Whether it is not read for now, because it is over its rate.
    pub is_over_rate: bool,
    /// When it was let in.
    pub since: Option<Instant>,
    /// For how long it may send nothing; `None` is without end.
    pub patience: Option<Duration>,
    /// Whether its CONNECT is that of a bridge.
    pub is_bridge: bool,
    /// Its session.
    pub session: SessionInfo,
}

/// A session, connected or not.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct SessionInfo {
    /// Whose.
    pub client_id: Arc<str>,
    /// Whether its client is connected.
    pub is_connected: bool,
    /// The user whose it is; `None`: its clients had no name.
    pub user: Option<Arc<str>>,
    /// When its last connection ended, while it has none.
    pub away_since: Option<Instant>,
    /// The mount that it is of; `None`: it has none.
    pub mount: Option<Box<str>>,
    /// Seconds it outlives its connection; `u32::MAX` is without end.
    pub expiry_s: u32,
    /// Its subscriptions.
    pub subscriptions: u64,
    /// Messages that wait for it and were not sent.
    pub queued: u64,
    /// Bytes of their topics, properties and payloads.
    pub queued_bytes: u64,
    /// The two before are exact. Otherwise more may wait, from before the broker started.
    pub is_counted: bool,
    /// Messages that were sent and not acknowledged.
    pub in_flight: u64,
    /// Where its will is published, if it has one.
    pub will_topic: Option<Box<str>>,
}

/// A subscription.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct SubscriptionInfo {
    /// Whose.
    pub client_id: Arc<str>,
    /// As the client wrote it, with its mount, and with `$share/` if it is shared.
    pub filter: Box<str>,
    /// The most a message is delivered with.
    pub qos: QoS,
    /// Nothing that the client itself published.
    pub no_local: bool,
    /// A message says whether it was published as retained.
    pub retain_as_published: bool,
    /// The client's name for it.
    pub identifier: Option<u32>,
}

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

impl Sessions {
    /// Clients that are connected.
    pub(crate) fn connected(
        &self,
        connections: &Connections,
        wanted: &Wanted,
        from: Place,
        most: usize,
    ) -> Page<ClientInfo> {
        let info = |index: usize| {
            let connection = connections.at(u32::try_from(index).ok()?)?;
            let session = self.get(connection.session()?)?;
            let is_wanted = wanted.has(&session.client_id, connection.user(), true)
                && wanted.has_listener(connection.peer().listener);
            is_wanted.then(|| client_info(connection, session))
        };
        page(from, connections.end(), most, info)
    }

    /// A client that is connected.
    pub(crate) fn client(&self, connections: &Connections, client_id: &str) -> Option<ClientInfo> {
        let session = self.get(self.find(client_id)?)?;
        let connection = connections.at(session.connection?)?;
        Some(client_info(connection, session))
    }

    /// A part of all sessions.
    pub(crate) fn list(&self, wanted: &Wanted, from: Place, most: usize) -> Page<SessionInfo> {
        let info = |index| {
            let session = self.at(index)?;
            let is_connected = session.connection.is_some();
            let is_wanted = wanted.has(&session.client_id, session.user.as_ref(), is_connected);
            is_wanted.then(|| session.info())
        };
        page(from, self.end(), most, info)
    }

    /// The session of a client.
    pub(crate) fn session(&self, client_id: &str) -> Option<SessionInfo> {
        Some(self.get(self.find(client_id)?)?.info())
    }

    /// Subscriptions of all sessions, or of one client's.
    pub(crate) fn subscriptions(
        &self,
        wanted: &WantedSubscriptions,
        from: Place,
        most: usize,
    ) -> Page<SubscriptionInfo> {
        let all = self.end();
        let (mut place, end) = match &wanted.client_id {
            None => (from, all),
            Some(client_id) => match self.find(client_id) {
                Some(id) => {
                    let index = id.index();
                    (Place { index, ..from }, index + 1)
                }
                None => (from, 0),
            },
        };
        let mut entries = Vec::new();
        let mut looks = 0;
        let until = place.index.saturating_add(LOOKS_MAX).min(end);
        while place.index < until && entries.len() < most && looks < SUBSCRIPTION_LOOKS_MAX {
            let Some(session) = self.at(place.index) else {
                place = Place::behind(place);
                continue;
            };
            let rest = session.subscriptions.iter().skip(place.offset);
            for (filter, grant) in rest {
                if entries.len() == most || looks == SUBSCRIPTION_LOOKS_MAX {
                    break;
                }
                looks += 1;
                place.offset += 1;
                if wanted.has(filter) {
                    entries.push(subscription_info(session, filter, *grant));
                }
            }
            if place.offset >= session.subscriptions.len() {
                place = Place::behind(place);
            }
        }
        let next = (place.index < end).then_some(place);
        Page { entries, next }
    }

    /// Sessions whose clients are away, in no order. Costs a look at all sessions.
    pub(crate) fn sleeping<'a>(
        &'a self,
        now: Instant,
        limits: &'a Limits,
        log_ends: &'a Frontier,
    ) -> impl Iterator<Item = SleepingSession> + 'a {
        let sessions = self.iter();
        sessions.filter_map(move |(_, session)| session.sleeper(now, limits, log_ends))
    }

    pub(crate) fn sleeping_totals(
        &self,
        now: Instant,
        limits: &Limits,
        log_ends: &Frontier,
    ) -> SleepingTotals {
        let persistent = self.iter();
        let persistent = persistent.filter(|(_, session)| session.expiry_s > 0);
        let mut totals = SleepingTotals {
            persistent: persistent.count() as u64,
            ..SleepingTotals::default()
        };
        for sleeper in self.sleeping(now, limits, log_ends) {
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

impl Place {
    const fn behind(place: Self) -> Self {
        Self {
            index: place.index + 1,
            offset: 0,
        }
    }
}

impl Session {
    fn info(&self) -> SessionInfo {
        let kept = self.kept.as_deref();
        let backlog = kept.and_then(|kept| kept.backlog.as_deref());
        SessionInfo {
            client_id: Arc::clone(&self.client_id),
            is_connected: self.connection.is_some(),
            user: self.user.clone(),
            away_since: self.away_since,
            mount: self.mount_text(),
            expiry_s: self.expiry_s,
            subscriptions: self.subscriptions.len() as u64,
            queued: self.outbox.queue_len() as u64 + backlog.map_or(0, |it| it.messages),
            queued_bytes: self.outbox.queue_bytes() + backlog.map_or(0, |it| it.bytes),
            is_counted: backlog.is_none_or(Backlog::is_counted),
            in_flight: self.outbox.in_flight_len() as u64,
            will_topic: self.will().map(|will| will.message.topic().into()),
        }
    }

    fn mount_text(&self) -> Option<Box<str>> {
        self.mount().map(|mount| mount.as_str().into())
    }

    fn sleeper(
        &self,
        now: Instant,
        limits: &Limits,
        log_ends: &Frontier,
    ) -> Option<SleepingSession> {
        let away = now.saturating_duration_since(self.away_since?);
        let kept = self.kept.as_deref();
        let backlog = kept.and_then(|kept| kept.backlog.as_deref());
        let in_flight = self.outbox.in_flight();
        let in_flight = in_flight.map(|(_, _, delivery)| delivery.message.publication().stamp);
        let queued = self.outbox.front();
        let queued = queued.map(|(_, delivery)| delivery.message.publication().stamp);
        let on_disk = backlog.and_then(|backlog| backlog.oldest);
        let (in_flight, sent) = in_flight.fold((0, None), |(count, oldest), stamp| {
            (count + 1, earliest(oldest, Some(stamp)))
        });
        let oldest = earliest(sent, earliest(queued, on_disk));
        Some(SleepingSession {
            client_id: Arc::clone(&self.client_id),
            away,
            expiry_s: limits.expiry_s(self.expiry_s),
            subscriptions: u32::try_from(self.subscriptions.len()).unwrap_or(u32::MAX),
            messages: self.outbox.queue_len() as u64
                + backlog.map_or(0, |backlog| backlog.messages),
            bytes: self.outbox.queue_bytes() + backlog.map_or(0, |backlog| backlog.bytes),
            is_counted: backlog.is_none_or(Backlog::is_counted),
            in_flight,
            oldest: oldest.map(|stamp| now.saturating_duration_since(stamp)),
            through: kept.map(|_| self.holds_from(log_ends)),
        })
    }
}

/// So many entries, from so many places.
fn page<T>(from: Place, all: usize, most: usize, info: impl Fn(usize) -> Option<T>) -> Page<T> {
    let mut entries = Vec::new();
    let mut index = from.index;
    let until = index.saturating_add(LOOKS_MAX).min(all);
    while index < until && entries.len() < most {
        entries.extend(info(index));
        index += 1;
    }
    let next = (index < all).then_some(Place { index, offset: 0 });
    Page { entries, next }
}

fn client_info(connection: &Connection, session: &Session) -> ClientInfo {
    ClientInfo {
        client_id: Arc::clone(&session.client_id),
        user: connection.user().cloned(),
        mount: session.mount_text(),
        address: connection.peer().address,
        listener: connection.peer().listener,
        version: connection.version(),
        output_bytes: connection.unwritten() as u64,
        is_over_rate: connection.is_over_rate(),
        since: connection.admitted_at(),
        patience: connection.keep_alive(),
        is_bridge: connection.is_bridge(),
        session: session.info(),
    }
}

fn subscription_info(session: &Session, filter: &str, grant: Grant) -> SubscriptionInfo {
    SubscriptionInfo {
        client_id: Arc::clone(&session.client_id),
        filter: filter.into(),
        qos: grant.qos,
        no_local: grant.no_local,
        retain_as_published: grant.retain_as_published,
        identifier: grant.identifier.map(u32::from),
    }
}

fn earliest(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    one.into_iter().chain(other).min()
}
