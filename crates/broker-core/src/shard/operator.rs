//! What an operator asks of a running shard: who is connected, which sessions and subscriptions
//! there are, to end a connection, to remove a session or a retained message, to publish.
//!
//! Each question is answered with a page, and costs a look at [`LOOKS_MAX`] places at most, however
//! many clients there are. Pages are not of one moment: what is there from the first page to the
//! last is in exactly one of them.
//!
//! What an offline session holds on disk from before the broker started was not counted; its
//! figures then say so.
//!
//! Deliberately absent: sums of counters ([`Shard::stats`]).

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use unbroken_mqtt_proto::session::Entry as InFlight;
use unbroken_mqtt_proto::{Properties, QoS, ReasonCode, TopicName, Version};

use crate::connection::Connection;
use crate::delivery::{Item, Storing};
use crate::input::{Forget, Operation, OwnMessage};
use crate::limits::Limits;
use crate::message::Publication;
use crate::policy::is_reserved;
use crate::position::Frontier;
use crate::reason::{DropReason, Fault};
use crate::session::{Backlog, Session};
use crate::shard::Shard;
use crate::telemetry::SleepingTotals;

/// Places of a table that one page looks at; some are empty.
const LOOKS_MAX: usize = 1_024;

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
    /// Subscriptions of the session there that were listed before.
    offset: usize,
}

/// A client that is connected.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ClientInfo {
    /// Its id.
    pub client_id: Arc<str>,
    /// As whom it was let in; `None` is anonymous.
    pub user: Option<Arc<str>>,
    /// From where.
    pub address: Option<SocketAddr>,
    /// Position of the listener in the configuration.
    pub listener: u16,
    /// The protocol it speaks.
    pub version: Version,
    /// Bytes that wait to be written to it.
    pub output_bytes: u64,
}

/// A session, connected or not.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct SessionInfo {
    /// Whose.
    pub client_id: Arc<str>,
    /// Whether its client is connected.
    pub is_connected: bool,
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
}

/// A subscription.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct SubscriptionInfo {
    /// Whose.
    pub client_id: Arc<str>,
    /// As the client wrote it, with `$share/` if it is shared.
    pub filter: Box<str>,
    /// The most a message is delivered with.
    pub qos: QoS,
    /// Nothing that the client itself published.
    pub no_local: bool,
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

impl Shard {
    /// Clients that are connected to this shard.
    pub fn connected_clients(&self, from: Place, most: usize) -> Page<ClientInfo> {
        let all = self.clients.connections.end();
        let info = |index: usize| {
            let index = u32::try_from(index).ok()?;
            let connection = self.clients.connections.at(index)?;
            let session = self.clients.sessions.get(connection.session()?)?;
            Some(ClientInfo {
                client_id: Arc::clone(&session.client_id),
                user: connection.user().cloned(),
                address: connection.peer().address,
                listener: connection.peer().listener,
                version: connection.version(),
                output_bytes: connection.unwritten() as u64,
            })
        };
        page(from, all, most, info)
    }

    /// Sessions of this shard.
    pub fn sessions(&self, from: Place, most: usize) -> Page<SessionInfo> {
        let info = |index| {
            let session = self.clients.sessions.at(index)?;
            let kept = session.kept.as_deref();
            let backlog = kept.and_then(|kept| kept.backlog.as_deref());
            Some(SessionInfo {
                client_id: Arc::clone(&session.client_id),
                is_connected: session.connection.is_some(),
                expiry_s: session.expiry_s,
                subscriptions: session.subscriptions.len() as u64,
                queued: session.queue.len() as u64 + backlog.map_or(0, |it| it.messages),
                queued_bytes: session.queue_bytes + backlog.map_or(0, |it| it.bytes),
                is_counted: backlog.is_none_or(Backlog::is_counted),
            })
        };
        page(from, self.clients.sessions.end(), most, info)
    }

    /// Subscriptions of this shard's sessions, or of one client's.
    pub fn subscriptions(
        &self,
        of: Option<&str>,
        from: Place,
        most: usize,
    ) -> Page<SubscriptionInfo> {
        let all = self.clients.sessions.end();
        let (mut place, end) = match of {
            None => (from, all),
            Some(client_id) => match self.clients.sessions.find(client_id) {
                Some(id) => {
                    let index = id.index();
                    (Place { index, ..from }, index + 1)
                }
                None => (from, 0),
            },
        };
        let mut entries = Vec::new();
        let until = place.index.saturating_add(LOOKS_MAX).min(end);
        while place.index < until && entries.len() < most {
            if let Some(session) = self.clients.sessions.at(place.index) {
                let room = most - entries.len();
                entries.extend(subscriptions_of(session, place.offset).take(room));
                place.offset += room;
                if place.offset < session.subscriptions.len() {
                    break;
                }
            }
            place = Place {
                index: place.index + 1,
                offset: 0,
            };
        }
        let next = (place.index < end).then_some(place);
        Page { entries, next }
    }

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

    /// Whether this client is connected to this shard.
    pub fn is_connected(&self, client_id: &str) -> bool {
        let id = self.clients.sessions.find(client_id);
        id.is_some_and(|id| self.clients.connection_of(id).is_some())
    }

    /// Why an operator's message is not taken in, if so. While the store takes nothing, that is
    /// every message that might have to be stored.
    pub fn refuses(&self, message: &OwnMessage) -> Option<DropReason> {
        let limits = &self.clients.limits;
        let levels_max = usize::from(limits.topic_levels_max);
        let is_allowed = match TopicName::parse(&message.topic) {
            Ok(topic) => {
                message.topic.len() <= usize::from(limits.topic_bytes_max)
                    && topic.levels().count() <= levels_max
                    && !is_reserved(&message.topic)
            }
            Err(_) => false,
        };
        if !is_allowed {
            return Some(DropReason::NotAuthorized);
        }
        let may_be_stored = message.retain || message.qos > QoS::AtMostOnce;
        (self.options.settings.durable && may_be_stored)
            .then(|| self.store_refuses())
            .flatten()
    }

    pub(crate) fn operate(&mut self, now: Instant, operation: &Operation) {
        match operation {
            Operation::Forget(Forget::Session { client_id }) => self.forget_session(now, client_id),
            Operation::Forget(Forget::Retained { topic }) => self.forget_retained(topic),
            Operation::Disconnect { client_id } => self.disconnect_for_operator(now, client_id),
            Operation::Publish(message) => self.publish_own(now, message),
        }
    }

    /// Puts other limits in force.
    pub(crate) fn reconfigure(&mut self, now: Instant, limits: Limits) {
        let before = self.clients.limits.session_expiry_max_s;
        self.clients.limits.clone_from(&limits);
        self.options.limits = limits;
        self.clients.sessions.note_limits(&self.options.limits);
        if self.clients.limits.session_expiry_max_s < before {
            self.shorten_absences(now);
        }
    }

    fn disconnect_for_operator(&mut self, now: Instant, client_id: &str) {
        let id = self.clients.sessions.find(client_id);
        if let Some(id) = id.and_then(|id| self.clients.connection_of(id)) {
            let detail = "an operator ended the connection";
            let fault = Fault::new(ReasonCode::AdministrativeAction, detail);
            self.disconnect(now, id, fault);
        }
    }

    fn publish_own(&mut self, now: Instant, message: &OwnMessage) {
        if self.refuses(message).is_some() {
            return;
        }
        let publication = Publication {
            topic: &message.topic,
            properties: Properties::EMPTY,
            payload: &message.payload,
            qos: message.qos,
            retain: message.retain,
            expires: None,
            stamp: now,
            mark: None,
        };
        let publisher = PUBLISHER.into();
        let mut item = Item::borrowed(publication, Some(&publisher));
        if message.retain {
            self.retain(now, &mut item, QoS::AtMostOnce);
        }
        if self.options.settings.durable && message.qos > QoS::AtMostOnce {
            item.storing = Storing::IfWanted(None);
        }
        self.route(now, &mut item, None);
        item.finish(&mut self.clients.deliveries);
    }

    /// The session ends as by a Clean Start, with its will and with a name for all that waited.
    fn forget_session(&mut self, now: Instant, client_id: &Arc<str>) {
        let session = |shard: &Self| shard.clients.sessions.find(client_id);
        let connection = session(self)
            .and_then(|id| self.clients.sessions.get(id))
            .and_then(|session| session.connection)
            .and_then(|index| self.clients.connections.at(index))
            .map(Connection::id);
        if let Some(id) = connection {
            let detail = "its session was removed";
            self.disconnect(
                now,
                id,
                Fault::new(ReasonCode::AdministrativeAction, detail),
            );
        }
        // Without its connection it may have ended.
        if let Some(id) = session(self) {
            self.end_session(now, id, DropReason::SessionEnded);
        }
    }
}

/// Who publishes for an operator, where a client id is kept: unlike what the broker makes anew at
/// each start, it may be retained on disk.
const PUBLISHER: &str = "$operator";

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

fn subscriptions_of(session: &Session, offset: usize) -> impl Iterator<Item = SubscriptionInfo> {
    let all = session.subscriptions.iter().skip(offset);
    all.map(|(filter, grant)| SubscriptionInfo {
        client_id: Arc::clone(&session.client_id),
        filter: filter.into(),
        qos: grant.qos,
        no_local: grant.no_local,
    })
}

fn earliest(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    one.into_iter().chain(other).min()
}
