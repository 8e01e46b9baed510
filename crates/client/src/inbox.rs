//! Where the messages of one subscription wait for its owner.
//!
//! Invariant: messages of QoS 1 and 2 always find room, because the broker may send no more than
//! our Receive Maximum before they are acknowledged, and those that will come again are taken out
//! ([`Inbox::forget_repeatable`]). QoS 0 has a limit of its own. So the connection is always read,
//! and an owner that waits for its own publish in between waits for nothing that waits for it.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, mpsc};
use unbroken_mqtt_proto::QoS;

use crate::{Received, SubscribeError};

/// What handles tell the client's task without waiting. Bounded by what they stand for: messages
/// that are not acknowledged, and subscriptions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Notice {
    /// Every owner of this message is done with it.
    Done(u64, Done),
    /// The owner has dropped this subscription.
    Dropped(u64),
    /// The owner wants this subscription to end at the broker, and does not wait for it.
    Ended(u64),
}

/// How far the owners have come with a message; of several, who has come least far decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Done {
    /// Somebody has dropped it without a word: nobody may say that it is safe here.
    LeftOpen,
    /// It is safe here.
    Taken,
    /// What it was sent for is done.
    Processed,
}

/// The right to acknowledge one message. Dropped without being given, the message is left open: it
/// comes again on the next connection, and those behind it are acknowledged meanwhile.
pub struct Acknowledgement {
    serial: u64,
    /// What is said when it is dropped.
    done: Done,
    owners: Arc<Owners>,
    notices: mpsc::UnboundedSender<Notice>,
}

#[derive(Debug)]
struct Owners {
    /// Subscriptions of this client that are not done with it.
    left: AtomicUsize,
    /// One of them has dropped it without a word.
    left_open: AtomicBool,
    /// One of them has only taken it.
    only_taken: AtomicBool,
}

impl Acknowledgement {
    pub(crate) fn new(serial: u64, notices: mpsc::UnboundedSender<Notice>) -> Self {
        Self {
            serial,
            done: Done::LeftOpen,
            owners: Arc::new(Owners {
                left: AtomicUsize::new(1),
                left_open: AtomicBool::new(false),
                only_taken: AtomicBool::new(false),
            }),
            notices,
        }
    }

    /// For one more owner.
    pub(crate) fn share(&self) -> Self {
        self.owners.left.fetch_add(1, Ordering::Relaxed);
        Self {
            serial: self.serial,
            done: Done::LeftOpen,
            owners: Arc::clone(&self.owners),
            notices: self.notices.clone(),
        }
    }

    /// Tells the broker that the message is safe here, once all before it are.
    pub fn give(mut self) {
        self.done = Done::Taken;
    }

    /// The same, and that it is processed, if it is so for every owner. A 5.0 broker is told by the
    /// user property `audit` = `processed`; others learn only that it is safe.
    pub fn give_processed(mut self) {
        self.done = Done::Processed;
    }
}

impl Drop for Acknowledgement {
    fn drop(&mut self) {
        let owners = &self.owners;
        match self.done {
            Done::LeftOpen => owners.left_open.store(true, Ordering::Relaxed),
            Done::Taken => owners.only_taken.store(true, Ordering::Relaxed),
            Done::Processed => {}
        }
        // What the others stored before they left is seen by the last one.
        if owners.left.fetch_sub(1, Ordering::AcqRel) > 1 {
            return;
        }
        let done = if owners.left_open.load(Ordering::Relaxed) {
            Done::LeftOpen
        } else if owners.only_taken.load(Ordering::Relaxed) {
            Done::Taken
        } else {
            Done::Processed
        };
        // The client may have ended; then the message comes again to whoever follows.
        let _ = self.notices.send(Notice::Done(self.serial, done));
    }
}

impl fmt::Debug for Acknowledgement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Acknowledgement")
            .field(&self.serial)
            .finish()
    }
}

#[derive(Debug)]
pub(crate) struct Inbox {
    state: Mutex<State>,
    changed: Notify,
    qos0_waiting_max: usize,
}

#[derive(Debug, Default)]
struct State {
    queue: VecDeque<Received>,
    /// Those in the queue that will not come again.
    unrepeatable: usize,
    ended: Option<SubscribeError>,
    /// The owner has dropped the subscription, and the session keeps it.
    has_no_owner: bool,
}

/// What became of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pushed {
    /// It waits for the owner.
    Waits,
    /// There is no room for this message of QoS 0.
    NoRoom,
    /// It is left open, since no owner is there: it comes again on the next connection, unless it
    /// is of QoS 0.
    LeftOpen,
}

impl Inbox {
    pub(crate) fn new(qos0_waiting_max: usize) -> Self {
        Self {
            state: Mutex::default(),
            changed: Notify::new(),
            qos0_waiting_max,
        }
    }

    pub(crate) fn push(&self, message: Received) -> Pushed {
        let mut state = self.lock();
        if state.has_no_owner {
            return Pushed::LeftOpen;
        }
        if message.acknowledgement.is_none() {
            if state.unrepeatable >= self.qos0_waiting_max {
                return Pushed::NoRoom;
            }
            state.unrepeatable += 1;
        }
        state.queue.push_back(message);
        drop(state);
        self.changed.notify_one();
        Pushed::Waits
    }

    pub(crate) fn has_owner(&self) -> bool {
        !self.lock().has_no_owner
    }

    /// The owner has gone: what waits is left open, and so is what comes.
    pub(crate) fn leave_open(&self) {
        let mut state = self.lock();
        state.has_no_owner = true;
        state.unrepeatable = 0;
        let waiting = std::mem::take(&mut state.queue);
        drop(state);
        drop(waiting);
    }

    /// Takes out the messages of QoS 1 that no owner has seen: the broker still has the session,
    /// and so sends them again.
    pub(crate) fn forget_repeatable(&self) {
        let is_repeatable = |message: &Received| {
            message.qos == QoS::AtLeastOnce && message.acknowledgement.is_some()
        };
        self.lock().queue.retain(|message| !is_repeatable(message));
    }

    /// The broker has lost the session: what waits will neither come again nor be acknowledged.
    pub(crate) fn keep_as_last_copies(&self) {
        let mut state = self.lock();
        let mut kept = state.unrepeatable;
        for message in &mut state.queue {
            kept += usize::from(message.take_acknowledgement().is_some());
        }
        state.unrepeatable = kept;
    }

    /// What waits may still be read; then comes this.
    pub(crate) fn end(&self, why: SubscribeError) {
        self.lock().ended.get_or_insert(why);
        self.changed.notify_one();
    }

    /// For one reader at a time.
    pub(crate) async fn recv(&self) -> Result<Received, SubscribeError> {
        loop {
            if let Some(next) = self.try_recv() {
                return next;
            }
            self.changed.notified().await;
        }
    }

    /// `None`: nothing waits.
    pub(crate) fn try_recv(&self) -> Option<Result<Received, SubscribeError>> {
        let mut state = self.lock();
        let Some(message) = state.queue.pop_front() else {
            return state.ended.clone().map(Err);
        };
        state.unrepeatable -= usize::from(message.acknowledgement.is_none());
        Some(Ok(message))
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().queue.len()
    }

    /// No code that can panic runs under the lock, so what it holds is whole.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_owner_who_has_come_least_far_with_a_message_decides() {
        let (notices, mut told) = mpsc::unbounded_channel();
        let all = [Done::LeftOpen, Done::Taken, Done::Processed];
        let pairs = all
            .into_iter()
            .flat_map(|one| all.map(|other| [one, other]));
        for (serial, pair) in (0..).zip(pairs) {
            let first = Acknowledgement::new(serial, notices.clone());
            let owners = [first.share(), first];
            for (owner, done) in owners.into_iter().zip(pair) {
                assert!(told.try_recv().is_err());
                match done {
                    Done::LeftOpen => drop(owner),
                    Done::Taken => owner.give(),
                    Done::Processed => owner.give_processed(),
                }
            }
            let least = pair.into_iter().min().unwrap();
            assert_eq!(told.try_recv().ok(), Some(Notice::Done(serial, least)));
        }
    }
}
