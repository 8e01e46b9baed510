//! What a handle asks of one shard, and what it carries there.
//!
//! Invariant: nothing in a request can make a shard wait. An answer has its place before it is
//! asked for, and an event without room is counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, TrySendError};

use unbroken_broker_core::{
    ClientInfo, DropReason, Event, Forget, OwnMessage, Page, Place, SessionInfo, Stats,
    SubscriptionInfo,
};

/// Where an answer goes. It has room for all that are asked.
pub(crate) type Answer<T> = SyncSender<T>;

/// What one shard is asked.
#[derive(Debug)]
pub(crate) enum Request {
    Clients {
        page: Asked,
        answer: Answer<Page<ClientInfo>>,
    },
    Sessions {
        page: Asked,
        answer: Answer<Page<SessionInfo>>,
    },
    Subscriptions {
        of: Option<Arc<str>>,
        page: Asked,
        answer: Answer<Page<SubscriptionInfo>>,
    },
    Counters(Answer<Stats>),
    Disconnect {
        client_id: Arc<str>,
        answer: Answer<bool>,
    },
    /// The answer waits until it is stored.
    Publish(OwnMessage, Charge, Answer<Result<Receiver<()>, DropReason>>),
    /// `done` gets the answer when it is gone, on disk too.
    Forget {
        what: Forget,
        done: Sender<()>,
    },
    Watch(Watch),
}

/// Part of a listing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    pub(crate) from: Place,
    pub(crate) most: usize,
}

/// What counts against a limit until it is dropped.
#[derive(Debug)]
pub(crate) struct Charge {
    bytes: u64,
    sum: Arc<AtomicU64>,
}

impl Charge {
    /// That is in the sum already.
    pub(crate) const fn new(bytes: u64, sum: Arc<AtomicU64>) -> Self {
        Self { bytes, sum }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.sum.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// One receiver of events, until it is dropped.
#[derive(Debug)]
pub(crate) struct Permit(Arc<AtomicUsize>);

impl Permit {
    /// That is counted already.
    pub(crate) const fn new(count: Arc<AtomicUsize>) -> Self {
        Self(count)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A shard's end of a receiver of events.
#[derive(Clone, Debug)]
pub(crate) struct Watch {
    sender: SyncSender<Event>,
    missed: Arc<AtomicU64>,
}

impl Watch {
    pub(crate) const fn new(sender: SyncSender<Event>, missed: Arc<AtomicU64>) -> Self {
        Self { sender, missed }
    }

    /// Hands over an event, if there is room. Answers whether the receiver is still there.
    pub(crate) fn offer(&self, event: &Event) -> bool {
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
