//! Bounded queues of frames, one for each connected peer.
//!
//! Invariants: each frame is counted once, as sent or as dropped, wherever it ends. A queue has no
//! more bytes than were free when it got the last of them (a dynamic threshold), so peers that do
//! not read leave some for the others.

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
    /// Of all peers, and of this one.
    bytes: [Arc<AtomicUsize>; 2],
    is_counted: bool,
}

/// The queues of all peers.
#[derive(Debug)]
pub(crate) struct Outlets {
    shared: Arc<Shared>,
    next: AtomicU64,
    /// Of the frames that wait or are written.
    bytes: Arc<AtomicUsize>,
    queues: Mutex<HashMap<u64, Queue>>,
}

#[derive(Debug)]
struct Queue {
    sender: mpsc::Sender<Outgoing>,
    /// Of its frames that wait or are written.
    bytes: Arc<AtomicUsize>,
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
        for bytes in &self.bytes {
            bytes.fetch_sub(self.frame.len(), Ordering::Relaxed);
        }
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
        let bytes = Arc::default();
        self.lock().insert(serial, Queue { sender, bytes });
        Outlet {
            serial,
            queue,
            outlets: self,
        }
    }

    /// To one peer.
    pub(crate) fn send(&self, serial: u64, frame: Vec<u8>, response: Received) {
        if let Some(queue) = self.lock().get(&serial) {
            return self.put(queue, frame.into(), Some(response));
        }
        self.shared.counts.add_drop(Drop::PeerGone);
        response.acknowledge();
    }

    /// To all peers.
    pub(crate) fn send_all(&self, frame: &Arc<[u8]>) {
        let queues = self.lock();
        if queues.is_empty() {
            self.shared.counts.add_drop(Drop::NoPeer);
        }
        for queue in queues.values() {
            self.put(queue, Arc::clone(frame), None);
        }
    }

    /// Callers hold the lock, so no other adds bytes meanwhile.
    fn put(&self, queue: &Queue, frame: Arc<[u8]>, response: Option<Received>) {
        let bytes = [&self.bytes, &queue.bytes];
        let [all, own] = bytes.map(|bytes| bytes.fetch_add(frame.len(), Ordering::Relaxed));
        let is_within = own + frame.len() <= PEER_BYTES_MAX.saturating_sub(all);
        let outgoing = Outgoing {
            frame,
            response,
            shared: Arc::clone(&self.shared),
            bytes: bytes.map(Arc::clone),
            is_counted: false,
        };
        if !is_within {
            return outgoing.dropped(Drop::SlowPeer);
        }
        match queue.sender.try_send(outgoing) {
            Ok(()) => {}
            Err(TrySendError::Full(outgoing)) => outgoing.dropped(Drop::SlowPeer),
            Err(TrySendError::Closed(outgoing)) => drop(outgoing),
        }
    }

    /// No code that can panic runs under the lock.
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Queue>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::ops::Drop for Outlet<'_> {
    fn drop(&mut self) {
        self.outlets.lock().remove(&self.serial);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Protocol;

    const FRAME_BYTES: usize = 256 << 10;

    #[test]
    fn a_peer_that_takes_nothing_leaves_half_to_the_others() {
        let shared = Arc::new(Shared::new("it".into(), Protocol::Pub, FRAME_BYTES));
        let outlets = Outlets::new(Arc::clone(&shared));
        let (_slow, mut fast) = (outlets.open(), outlets.open());
        let frame: Arc<[u8]> = vec![0; FRAME_BYTES].into();
        let messages = 2 * PEER_BYTES_MAX / FRAME_BYTES;
        for number in 0..messages {
            outlets.send_all(&frame);
            let outgoing = fast.queue.try_recv();
            outgoing
                .unwrap_or_else(|_| panic!("{number} is there"))
                .sent();
        }
        let dropped = shared.counts.dropped(Drop::SlowPeer);
        let kept = PEER_BYTES_MAX / 2 / FRAME_BYTES;
        assert!(dropped >= (messages - kept) as u64, "{dropped}");
        assert_eq!(shared.counts.sent(), messages as u64);
    }

    #[test]
    fn what_a_peer_has_is_free_again_when_it_leaves() {
        let shared = Arc::new(Shared::new("it".into(), Protocol::Pub, FRAME_BYTES));
        let outlets = Outlets::new(Arc::clone(&shared));
        let frame: Arc<[u8]> = vec![0; FRAME_BYTES].into();
        for left in 1..=3 {
            let peer = outlets.open();
            outlets.send_all(&frame);
            drop(peer);
            assert_eq!(shared.counts.dropped(Drop::PeerGone), left);
            assert_eq!(outlets.bytes.load(Ordering::Relaxed), 0);
        }
    }
}
