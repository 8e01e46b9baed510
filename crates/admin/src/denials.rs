//! The newest attempts that the broker has denied, found among its events.
//!
//! Shards send denials only, so that other events cost nothing. They wait in a bounded queue until
//! the recorder's next tick, or a request, takes them; those without room are counted as missed. A
//! bounded number is remembered.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use unbroken_broker::BrokerHandle;
use unbroken_broker::handle::{Disconnection, DropReason, Event, Events, ReasonCode};

use crate::limits::{DENIALS_MAX, EVENTS_WAITING};

/// What was denied.
#[derive(Clone, Debug)]
pub(crate) struct Denied {
    pub(crate) at: SystemTime,
    /// `connect`, `subscribe`, `message` or `connection`.
    pub(crate) what: &'static str,
    pub(crate) client_id: Option<Arc<str>>,
    pub(crate) user: Option<Box<str>>,
    pub(crate) address: Option<String>,
    /// The topic, or the filter of a subscription.
    pub(crate) topic: Option<Box<str>>,
    pub(crate) reason: String,
    /// How often, as far as it was told at once.
    pub(crate) count: u64,
}

/// The newest ones.
#[derive(Clone, Debug, Default)]
pub(crate) struct Denials(Arc<Mutex<Kept>>);

#[derive(Debug, Default)]
struct Kept {
    /// The oldest first.
    denied: VecDeque<Arc<Denied>>,
    missed: u64,
    /// `None` if the broker could not be asked for them.
    events: Option<Events>,
}

impl Denials {
    /// Watches the broker from now on.
    pub(crate) fn start(broker: &BrokerHandle) -> Self {
        let events = broker.events_of(EVENTS_WAITING, is_denied);
        let events = events.inspect_err(|error| {
            tracing::warn!(%error, "the admin server shows no denied attempts");
        });
        Self(Arc::new(Mutex::new(Kept {
            events: events.ok(),
            ..Kept::default()
        })))
    }

    /// Remembers what has come.
    pub(crate) fn take(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    /// The newest first, and how many were missed.
    pub(crate) fn newest(&self) -> (Vec<Arc<Denied>>, u64) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.take();
        (kept.denied.iter().rev().cloned().collect(), kept.missed)
    }
}

impl Kept {
    fn take(&mut self) {
        let Some(events) = &self.events else {
            return;
        };
        for _ in 0..EVENTS_WAITING {
            let Ok(event) = events.next(Duration::ZERO) else {
                break;
            };
            if let Some(denied) = denied(event) {
                if self.denied.len() >= DENIALS_MAX {
                    self.denied.pop_front();
                }
                self.denied.push_back(Arc::new(denied));
            }
        }
        self.missed += events.take_missed();
    }
}

/// Whether an event is about a denied attempt; [`denied`] reads these.
fn is_denied(event: &Event) -> bool {
    match event {
        Event::Refused { reason, .. }
        | Event::Subscribed { reason, .. }
        | Event::Disconnected {
            why: Disconnection::ByBroker { reason, .. },
            ..
        } => is_denial(*reason),
        Event::SubscriptionRevoked { .. } => true,
        Event::Dropped { reason, .. } => *reason == DropReason::NotAuthorized,
        _ => false,
    }
}

/// What an event says of a denied attempt.
fn denied(event: Event) -> Option<Denied> {
    let of = |what, client_id, reason| Denied {
        at: SystemTime::now(),
        what,
        client_id,
        user: None,
        address: None,
        topic: None,
        reason,
        count: 1,
    };
    Some(match event {
        Event::Refused {
            client_id,
            user_name,
            address,
            reason,
            detail,
            ..
        } => Denied {
            user: user_name,
            address: address.map(|address| address.to_string()),
            ..of("connect", client_id, format!("{}: {detail}", reason.name()))
        },
        Event::Disconnected {
            client_id,
            why: Disconnection::ByBroker { reason, detail, .. },
        } => {
            let reason = format!("{}: {detail}", reason.name());
            of("connection", Some(client_id), reason)
        }
        Event::Subscribed {
            client_id,
            filter,
            reason,
            ..
        } => Denied {
            topic: Some(filter),
            ..of("subscribe", Some(client_id), reason.name().to_owned())
        },
        Event::SubscriptionRevoked {
            client_id,
            filter,
            why,
        } => Denied {
            topic: Some(filter),
            ..of("subscribe", Some(client_id), why.detail().to_owned())
        },
        Event::Dropped {
            client_id,
            topic,
            reason,
            count,
            ..
        } => Denied {
            topic: (!topic.is_empty()).then_some(topic),
            count,
            ..of("message", Some(client_id), reason.name().to_owned())
        },
        _ => return None,
    })
}

const fn is_denial(reason: ReasonCode) -> bool {
    matches!(
        reason,
        ReasonCode::NotAuthorized
            | ReasonCode::BadUserNameOrPassword
            | ReasonCode::Banned
            | ReasonCode::BadAuthenticationMethod
            | ReasonCode::ClientIdentifierNotValid
    )
}
