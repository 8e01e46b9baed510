//! Requests of a handle to one shard.
//!
//! Invariant: no request can make a shard wait. An answer has room before it is requested, and an
//! event without room is counted.

use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, TrySendError};
use std::sync::{Arc, Weak};

use unbroken_broker_core::{
    Clients, DropReason, Event, Forget, LaneFilter, LaneInfo, OwnMessage, Page, Place, Policy,
    Shard, Stats, TraceFilter,
};

use crate::trace::TraceWatch;

/// Where an answer goes. It has room for all answers.
pub(crate) type Answer<T> = SyncSender<T>;

/// A request to one shard.
#[derive(Debug)]
pub(crate) enum Request {
    Look(Look),
    Lanes {
        filter: LaneFilter,
        page: PageRequest,
        answer: Answer<Page<LaneInfo>>,
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
    Trace {
        filter: TraceFilter,
        watch: TraceWatch,
    },
    EndTrace(u64),
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

/// A question that changes nothing, asked of the shard itself.
pub(crate) struct Look(Box<dyn FnOnce(&Shard) + Send>);

impl Look {
    /// `question` must cost a bounded number of looks.
    pub(crate) fn new<T: Send + 'static>(
        answer: Answer<T>,
        question: impl FnOnce(&Shard) -> T + Send + 'static,
    ) -> Self {
        Self(Box::new(move |shard| {
            let _ = answer.try_send(question(shard)); // the requesting thread may have given up
        }))
    }

    pub(crate) fn carry_out(self, shard: &Shard) {
        (self.0)(shard);
    }
}

impl fmt::Debug for Look {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Look").finish_non_exhaustive()
    }
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
    wanted: fn(&Event) -> bool,
    missed: Arc<AtomicU64>,
    /// Of the receiver, whose end is otherwise known by a wanted event only.
    permit: Weak<Permit>,
}

impl Watch {
    pub(crate) const fn new(
        sender: SyncSender<Event>,
        wanted: fn(&Event) -> bool,
        missed: Arc<AtomicU64>,
        permit: Weak<Permit>,
    ) -> Self {
        Self {
            sender,
            wanted,
            missed,
            permit,
        }
    }

    /// Sends an event, if it is wanted and there is room. Returns whether the receiver still
    /// exists.
    pub(crate) fn offer(&self, event: &Event) -> bool {
        if !(self.wanted)(event) {
            return self.permit.strong_count() > 0;
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
