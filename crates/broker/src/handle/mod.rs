//! A running broker from any thread: queries, commands and events.
//!
//! ```text
//! any thread ─▶ BrokerHandle ── one bounded queue for each shard ─▶ shard thread
//!                    ▲                                                   │
//!                    └────────── a channel for each request ◀────────────┘
//! ```
//!
//! Invariants:
//! - Requests wait for shards, never a shard for a request: an answer has room before it is
//!   requested, and an event without room at its receiver is counted.
//! - The work of a shard for one request is bounded ([`Shard`](unbroken_broker_core::Shard) answers
//!   in pages); so are waiting requests, the bytes of their messages, and event receivers.
//! - A request ends by its timeout. A full queue is an error ([`HandleError::Busy`]), and so is a
//!   broker that has ended or ends meanwhile ([`HandleError::Stopped`]).
//!
//! Deliberately absent: rights of whoever has a handle; it may do everything.

mod access;
mod around;
mod delivery;
mod events;
mod listing;
mod questions;
mod reload;
mod requests;
mod topics;
mod trace;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use unbroken_broker_core::ShardId;
pub use unbroken_broker_core::{
    Action, Actions, AuditTotals, Ceiling, ClientInfo, Denial, Disconnection, DropPlace,
    DropReason, Effect, Event, FaultKind, FaultPlace, Forget, Histogram, LaneCheckpoint,
    LaneFilter, LaneInfo, LaneRefusal, Latencies, Member, Message, Numbers, OwnMessage,
    PublishersTotals, Role, Rule, RuleSet, SessionInfo, Stats, SubscriptionInfo, TopicLevel,
    TopicLevels, Wanted, WantedRetained, WantedSubscriptions,
};
use unbroken_mqtt_proto::TopicName;
pub use unbroken_mqtt_proto::{QoS, ReasonCode, Version};

use crate::access::{AccessError, Explanation, Question};
use crate::bounds::{HANDLE_BYTES, HANDLE_EVENTS};
use crate::config::{Change, Config};
use crate::request::Request;
use crate::stored_access::{Change as AccessChange, StoredAccess};
use crate::tls::{Expiry, ServerTls, TlsError};
pub use access::ChangeAccessError;
pub(crate) use access::{AccessInForce, WriteBatch};
pub(crate) use around::Around;
pub use around::ConfigValue;
pub use delivery::{Began, CountersAsked, LaneCursor, LaneListing};
pub use events::{Events, EventsError};
pub use listing::{Cursor, CursorError, Listing};
pub use questions::{GroupMember, SharedGroup};
pub use reload::ReloadError;
pub(crate) use reload::{InForce, first_auth_rules, layers_of, listener_limits};
pub(crate) use requests::Requests;
use requests::receive;
pub use topics::{RetainedCursor, RetainedListing, is_filter, is_topic};

/// A running broker. Clones are the same broker, which stops when its [`Server`](crate::Server)
/// does.
#[derive(Clone, Debug)]
pub struct BrokerHandle {
    requests: Requests,
    in_force: Arc<InForce>,
    around: Arc<Around>,
}

/// How much a query may return, and how long it may take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Within {
    /// Entries in the answer.
    pub entries: usize,
    /// Time until the whole answer is there.
    pub timeout: Duration,
}

impl Default for Within {
    /// 1,000 entries and 5 s.
    fn default() -> Self {
        Self {
            entries: 1_000,
            timeout: Duration::from_secs(5),
        }
    }
}

/// Why a request failed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HandleError {
    /// The broker has ended, or ends or loses its store before it can answer.
    #[error("the broker has stopped, or its store has failed")]
    Stopped,
    /// Too many requests wait; none was added.
    #[error("{0}; try again when some of them are answered")]
    Busy(&'static str),
    /// No answer came in time. The request may still be carried out.
    #[error("the broker did not answer within {}", seconds(*.0))]
    Timeout(Duration),
    /// The message is not valid.
    #[error("the message cannot be published: {0}")]
    Message(String),
    /// A trace cannot be begun.
    #[error("the trace cannot begin: {0}")]
    Trace(String),
    /// The broker did not publish it: the topic is beyond the limits or reserved
    /// ([`DropReason::NotAuthorized`]), or the store has failed.
    #[error("the message was not published: {}", .0.name())]
    Refused(DropReason),
}

impl BrokerHandle {
    pub(crate) fn new(requests: Requests, in_force: InForce, around: Around) -> Self {
        Self {
            requests,
            in_force: Arc::new(in_force),
            around: Arc::new(around),
        }
    }

    pub(crate) fn requests(&self) -> Requests {
        self.requests.clone()
    }

    pub(crate) fn access(&self) -> &Arc<AccessInForce> {
        self.in_force.access()
    }

    /// The sum of all shards' counters. `sleeping` is as of the last update of `$SYS`, and
    /// `clients_maximum` is the sum of the shards' maxima.
    pub fn counters(&self, timeout: Duration) -> Result<Stats, HandleError> {
        let all = self.requests.ask_all(timeout, Request::Counters)?;
        let mut sum = Stats::default();
        for stats in &all {
            sum.add(stats);
        }
        Ok(sum)
    }

    /// Ends the connection of a client, if it is connected, and returns whether it was. Session and
    /// will are treated as after any connection that the broker ends.
    pub fn disconnect(&self, client_id: &str, timeout: Duration) -> Result<bool, HandleError> {
        let client_id: Arc<str> = client_id.into();
        let ended = self
            .requests
            .ask_all(timeout, |answer| Request::Disconnect {
                client_id: Arc::clone(&client_id),
                answer,
            })?;
        Ok(ended.contains(&true))
    }

    /// Publishes a message as the broker itself. Returns when it is routed and, where necessary,
    /// stored. Messages of one thread arrive in order.
    pub fn publish(&self, message: OwnMessage, timeout: Duration) -> Result<(), HandleError> {
        if let Err(error) = TopicName::parse(&message.topic) {
            return Err(HandleError::Message(format!("its topic: {error}")));
        }
        let bytes = message.topic.len() as u64 + message.payload.len() as u64;
        let most = self.in_force.packet_bytes_max().min(HANDLE_BYTES);
        if bytes > most {
            let what = format!("it has {bytes} bytes; at most {most} are allowed");
            return Err(HandleError::Message(what));
        }
        let charge = self.requests.charge(bytes)?;
        let deadline = Instant::now() + timeout;
        let publish = |answer| Request::Publish(message, charge, answer);
        match self.requests.ask(PUBLISH_SHARD, timeout, publish)? {
            Ok(stored) => receive(&stored, deadline, timeout),
            Err(reason) => Err(HandleError::Refused(reason)),
        }
    }

    /// Removes a session or a retained message. Returns when it is removed, on disk too.
    pub fn forget(&self, what: &Forget, timeout: Duration) -> Result<(), HandleError> {
        self.requests.forget(what, timeout)
    }

    /// Events from now on. At most `waiting` of them, up to 10,000, wait to be received; later ones
    /// are counted as missed.
    pub fn events(&self, waiting: usize) -> Result<Events, HandleError> {
        self.events_of(waiting, |_| true)
    }

    /// The same, of wanted events only. Shards ask `wanted` for each event, so it must cost little.
    pub fn events_of(
        &self,
        waiting: usize,
        wanted: fn(&Event) -> bool,
    ) -> Result<Events, HandleError> {
        let permit = self.requests.permit_events()?;
        let (watch, events) = events::watch(waiting.clamp(1, HANDLE_EVENTS), wanted, permit);
        self.requests
            .send_request_to_all(|| Request::Watch(watch.clone()))?;
        Ok(events)
    }

    /// Applies the parts that can change at run time: limits, passwords, access. Returns the
    /// changes relative to the configuration in force, and which of them need a restart. New
    /// connections are subject to the new configuration, unless a shard is busy for more than 5 s.
    pub fn reload(&self, config: Config) -> Result<Vec<Change>, ReloadError> {
        self.in_force.reload(config, &self.requests)
    }

    /// Puts access rules in force beside those of the configuration, in place of those of the last
    /// call. A client must be allowed by each set that is about it. Clients that may not connect
    /// any more are disconnected, and subscriptions that are not allowed any more end. What clients
    /// do after it returns is judged by the new rules.
    pub fn set_access(&self, sets: Vec<RuleSet>, timeout: Duration) -> Result<(), ReloadError> {
        let access = self.in_force.access();
        access.set_of_program(sets, &self.requests, timeout)
    }

    /// Changes users, roles or bans of the store. Returns when that is on disk and in force; if all
    /// data is in memory, it ends with the broker.
    pub fn change_access(&self, change: &AccessChange) -> Result<(), ChangeAccessError> {
        self.in_force.access().change(change, &self.requests)
    }

    /// Looks at users, roles and bans of the store. Changes wait meanwhile.
    pub fn stored_access<T>(&self, look: impl FnOnce(&StoredAccess) -> T) -> T {
        self.in_force.access().look(look)
    }

    /// Addresses that are banned because their logins have failed, and for how long from now.
    pub fn automatic_bans(&self) -> Vec<(IpAddr, Duration)> {
        let bans = self.in_force.access().bans().automatic(Instant::now());
        bans.into_iter()
            .map(|ban| (ban.address, ban.left))
            .collect()
    }

    /// What the access rules in force say of a question.
    pub fn explain(&self, question: &Question) -> Result<Explanation, AccessError> {
        let config = self.config();
        self.in_force.access().explain(question, &config.listeners)
    }

    /// The configuration in force: values that need a restart are as at the start. Its listeners
    /// are the open ones.
    pub fn config(&self) -> Arc<Config> {
        self.in_force.config()
    }

    /// When certificates, authorities and revocation lists in force expire, the earliest first.
    pub fn expiries(&self) -> Vec<Expiry> {
        self.in_force.expiries()
    }

    /// TLS of the admin server; `None`: it is configured without. A reload reads its files again.
    pub fn admin_tls(&self) -> Result<Option<ServerTls>, TlsError> {
        self.in_force.admin_tls()
    }

    /// Open connections.
    pub fn connections(&self) -> u32 {
        self.in_force.connections()
    }

    /// The same of each listener, in the order of the configuration.
    pub(crate) fn connections_by_listener(&self) -> Vec<u32> {
        self.in_force.connections_by_listener().collect()
    }
}

/// The shard that publishes; always the same, so that messages keep their order.
const PUBLISH_SHARD: ShardId = ShardId(0);

fn seconds(timeout: Duration) -> String {
    format!("{} s", timeout.as_secs_f64())
}
