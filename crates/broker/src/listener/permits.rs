//! Counts of open connections, of the whole broker and of each listener.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use unbroken_broker_core::{Limits, Room};

/// Counts the connections of the whole broker and of each listener.
#[derive(Debug)]
pub(crate) struct ConnectionPermits {
    room: Room,
    all: Arc<Count>,
    listeners: Vec<Arc<Count>>,
}

#[derive(Debug)]
struct Count {
    taken: AtomicU32,
    /// Admitted connections, and the reserve beside them.
    limit: AtomicU32,
    /// Above this count, connections that only wait for their peer to close are closed.
    reserve_from: AtomicU32,
}

/// Counts one open connection, until it is dropped.
#[derive(Debug)]
pub(crate) struct ConnectionPermit {
    all: Arc<Count>,
    listener: Arc<Count>,
}

/// Which limit was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LimitReached {
    /// `limits.connections_max`, or the limit of open files, and the reserve.
    Broker,
    /// `listeners.max_connections` and the reserve.
    Listener,
}

impl ConnectionPermits {
    pub(crate) fn new(room: Room, limits: &Limits, listener_limits: &[Option<u32>]) -> Self {
        let permits = Self {
            room,
            all: Arc::new(Count::new()),
            listeners: listener_limits
                .iter()
                .map(|_| Arc::new(Count::new()))
                .collect(),
        };
        permits.set_limits(limits, listener_limits);
        permits
    }

    /// Connections above a lowered limit stay.
    pub(crate) fn set_limits(&self, limits: &Limits, listener_limits: &[Option<u32>]) {
        let Room { places, reserve } = self.room;
        self.all
            .set_limit(limits.connections_max.min(places), reserve);
        for (count, limit) in self.listeners.iter().zip(listener_limits) {
            count.set_limit(limit.unwrap_or(u32::MAX), reserve);
        }
    }

    /// The limit that applies when a listener's own does not.
    pub(super) fn broker_limit(&self) -> &'static str {
        let limit = self.all.limit.load(Ordering::Relaxed);
        if limit < self.room.places.saturating_add(self.room.reserve) {
            "limits.connections_max"
        } else {
            "open files of the system (raise it: ulimit -Hn, LimitNOFILE=)"
        }
    }

    /// Open connections.
    pub(crate) fn taken(&self) -> u32 {
        self.all.taken.load(Ordering::Relaxed)
    }

    /// The same of each listener, in the order of the configuration.
    pub(crate) fn taken_by_listener(&self) -> impl Iterator<Item = u32> + '_ {
        let listeners = self.listeners.iter();
        listeners.map(|count| count.taken.load(Ordering::Relaxed))
    }

    pub(super) fn is_full(&self, listener: usize) -> bool {
        let of_listener = self.listeners.get(listener);
        self.all.is_full() || of_listener.is_none_or(|count| count.is_full())
    }

    pub(super) fn take(&self, listener: usize) -> Result<ConnectionPermit, LimitReached> {
        let of_listener = self.listeners.get(listener).ok_or(LimitReached::Listener)?;
        if !self.all.take() {
            return Err(LimitReached::Broker);
        }
        if !of_listener.take() {
            self.all.release();
            return Err(LimitReached::Listener);
        }
        Ok(ConnectionPermit {
            all: Arc::clone(&self.all),
            listener: Arc::clone(of_listener),
        })
    }
}

impl Count {
    fn new() -> Self {
        Self {
            taken: AtomicU32::new(0),
            limit: AtomicU32::new(0),
            reserve_from: AtomicU32::new(0),
        }
    }

    fn set_limit(&self, places: u32, reserve: u32) {
        let limit = places.saturating_add(reserve);
        self.limit.store(limit, Ordering::Relaxed);
        let reserve_from = places.saturating_add(reserve / 4);
        self.reserve_from.store(reserve_from, Ordering::Relaxed);
    }

    fn is_reserve_used(&self) -> bool {
        self.taken.load(Ordering::Relaxed) > self.reserve_from.load(Ordering::Relaxed)
    }

    fn is_full(&self) -> bool {
        self.taken.load(Ordering::Relaxed) >= self.limit.load(Ordering::Relaxed)
    }

    fn take(&self) -> bool {
        // Only the acceptor takes, so nothing changes between the check and the addition.
        if self.is_full() {
            return false;
        }
        self.taken.fetch_add(1, Ordering::Relaxed);
        true
    }

    fn release(&self) {
        self.taken.fetch_sub(1, Ordering::Relaxed);
    }
}

impl ConnectionPermit {
    /// Whether the reserve is needed for connections other than one that only waits for its peer to
    /// close.
    pub(crate) fn is_needed_elsewhere(&self) -> bool {
        self.all.is_reserve_used() || self.listener.is_reserve_used()
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.all.release();
        self.listener.release();
    }
}
