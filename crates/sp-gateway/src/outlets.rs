//! Bounded queues of frames, one for each connected peer.
//!
//! Invariant: each frame is counted once, as sent or as dropped, wherever it ends.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;
use unbroken_client::Received;

use crate::counts::Drop;
use crate::limits::{PEER_BYTES_MAX, PEER_MESSAGES_MAX};
use crate::shared::Shared;

/// A frame for one peer. Dropped before it is sent, it counts as lost with its peer.
#[derive(Debug)]
pub(crate) struct Outgoing {
    frame: Arc<[u8]>,
    /// To be acknowledged when this is sent or dropped.
    response: Option<Received>,
    shared: Arc<Shared>,
    bytes: Arc<AtomicUsize>,
    is_counted: bool,
}

/// The queues of all peers.
#[derive(Debug)]
pub(crate) struct Outlets {
    shared: Arc<Shared>,
    next: AtomicU64,
    /// Of the frames that wait or are written.
    bytes: Arc<AtomicUsize>,
    queues: Mutex<HashMap<u64, mpsc::Sender<Outgoing>>>,
}

/// The queue of one peer, for as long as it is connected.
pub(crate) struct Outlet<'a> {
    pub(crate) serial: u64,
    pub(crate) queue: mpsc::Receiver<Outgoing>,
    outlets: &'a Outlets,
}

impl Outgoing {
    pub(crate) fn frame(&self) -> &[u8] {
        &self.frame
    }

    /// The socket has it.
    pub(crate) fn sent(mut self) {
        self.is_counted = true;
        self.shared.counts.add_sent();
    }

    fn dropped(mut self, why: Drop) {
        self.is_counted = true;
        self.shared.counts.add_drop(why);
    }
}

impl std::ops::Drop for Outgoing {
    fn drop(&mut self) {
        self.bytes.fetch_sub(self.frame.len(), Ordering::Relaxed);
        if !self.is_counted {
            self.shared.counts.add_drop(Drop::PeerGone);
        }
        if let Some(response) = self.response.take() {
            response.acknowledge();
        }
    }
}

impl Outlets {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            next: AtomicU64::new(0),
            bytes: Arc::default(),
            queues: Mutex::default(),
        }
    }

    pub(crate) fn open(&self) -> Outlet<'_> {
        let (sender, queue) = mpsc::channel(PEER_MESSAGES_MAX);
        let serial = self.next.fetch_add(1, Ordering::Relaxed);
        self.lock().insert(serial, sender);
        Outlet {
            serial,
            queue,
            outlets: self,
        }
    }

    /// To one peer.
    pub(crate) fn send(&self, serial: u64, frame: Vec<u8>, response: Received) {
        let outgoing = self.outgoing(frame.into(), Some(response));
        match self.lock().get(&serial) {
            Some(queue) => put(queue, outgoing),
            None => drop(outgoing),
        }
    }

    /// To all peers.
    pub(crate) fn send_all(&self, frame: &Arc<[u8]>) {
        let queues = self.lock();
        if queues.is_empty() {
            self.shared.counts.add_drop(Drop::NoPeer);
        }
        for queue in queues.values() {
            put(queue, self.outgoing(Arc::clone(frame), None));
        }
    }

    fn outgoing(&self, frame: Arc<[u8]>, response: Option<Received>) -> Outgoing {
        self.bytes.fetch_add(frame.len(), Ordering::Relaxed);
        Outgoing {
            bytes: Arc::clone(&self.bytes),
            frame,
            response,
            shared: Arc::clone(&self.shared),
            is_counted: false,
        }
    }

    /// No code that can panic runs under the lock.
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, mpsc::Sender<Outgoing>>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn put(queue: &mpsc::Sender<Outgoing>, outgoing: Outgoing) {
    if outgoing.bytes.load(Ordering::Relaxed) > PEER_BYTES_MAX {
        return outgoing.dropped(Drop::SlowPeer);
    }
    match queue.try_send(outgoing) {
        Ok(()) => {}
        Err(TrySendError::Full(outgoing)) => outgoing.dropped(Drop::SlowPeer),
        Err(TrySendError::Closed(outgoing)) => drop(outgoing),
    }
}

impl std::ops::Drop for Outlet<'_> {
    fn drop(&mut self) {
        self.outlets.lock().remove(&self.serial);
    }
}
