//! Requests of a handle to one shard.
//!
//! Invariant: no request can make a shard wait. An answer has room before it is requested, and an
//! event without room is counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, TrySendError};

use unbroken_broker_core::{
    ClientInfo, Clients, DropReason, Event, Forget, LaneFilter, LanePage, LanePlace, OwnMessage,
    Page, Place, Policy, SessionInfo, Stats, SubscriptionInfo,
};

/// Where an answer goes. It has room for all answers.
pub(crate) type Answer<T> = SyncSender<T>;

/// A request to one shard.
#[derive(Debug)]
pub(crate) enum Request {
    Clients {
        page: PageRequest,
        answer: Answer<Page<ClientInfo>>,
    },
    Sessions {
        page: PageRequest,
        answer: Answer<Page<SessionInfo>>,
    },
    Subscriptions {
        of: Option<Arc<str>>,
        page: PageRequest,
        answer: Answer<Page<SubscriptionInfo>>,
    },
    Lanes {
        filter: LaneFilter,
        from: LanePlace,
        most: usize,
        answer: Answer<LanePage>,
    },
    Counters(Answer<Stats>),
    Disconnect {
        client_id: Arc<str>,
        answer: Answer<bool>,
    },
    /// The answer comes when it is stored.
    Publish(OwnMessage, Charge, Answer<Result<Receiver<()>, DropReason>>),
    /// `done` is called when it is removed, on disk too.
    Forget {
        what: Forget,
        done: Sender<()>,
    },
    /// Ends the connections of these clients.
    Ban {
        clients: Clients,
        answer: Answer<()>,
    },
    Watch(Watch),
    /// What clients may do from now on.
    SetAccess {
        policy: Option<Arc<Policy>>,
        answer: Answer<()>,
    },
}

/// A part of a listing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PageRequest {
    pub(crate) from: Place,
    pub(crate) most: usize,
}

/// An amount that counts against a limit until it is dropped.
#[derive(Debug)]
pub(crate) struct Charge {
    bytes: u64,
    sum: Arc<AtomicU64>,
}

impl Charge {
    /// For an amount that is in the sum already.
    pub(crate) const fn new(bytes: u64, sum: Arc<AtomicU64>) -> Self {
        Self { bytes, sum }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.sum.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Counts one event receiver, until it is dropped.
#[derive(Debug)]
pub(crate) struct Permit(Arc<AtomicUsize>);

impl Permit {
    /// For a receiver that is counted already.
    pub(crate) const fn new(count: Arc<AtomicUsize>) -> Self {
        Self(count)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A shard's sender of events.
#[derive(Clone, Debug)]
pub(crate) struct Watch {
    sender: SyncSender<Event>,
    missed: Arc<AtomicU64>,
    wants: fn(&Event) -> bool,
}

impl Watch {
    pub(crate) const fn new(
        sender: SyncSender<Event>,
        missed: Arc<AtomicU64>,
        wants: fn(&Event) -> bool,
    ) -> Self {
        Self {
            sender,
            missed,
            wants,
        }
    }

    /// Sends an event that is wanted, if there is room. Returns whether the receiver still exists,
    /// as far as that is known.
    pub(crate) fn offer(&self, event: &Event) -> bool {
        if !(self.wants)(event) {
            return true;
        }
        match self.sender.try_send(event.clone()) {
            Ok(()) => true,
            Err(TrySendError::Full(_)) => {
                self.missed.fetch_add(1, Ordering::Relaxed);
                true
            }
            Err(TrySendError::Disconnected(_)) => false,
        }
    }
}
