//! Feeds between threads: one sender, one receiver, whole batches, and one wake for a batch.
//!
//! A feed carries [`Parcel`]s in the order they were pushed and loses none. It is bounded, by
//! parcels and by their bytes (the sender counts both: it sees under the lock whether its last
//! batch was taken), and a full feed never blocks its sender: what does not fit stays with the
//! sender, which is then *behind*. A shard that is behind stops reading its clients but goes on
//! draining its own incoming feeds, so that two shards that flood each other both make progress:
//! each empties the feed that the other waits for.
//!
//! Waking: a thread that is about to sleep says so with [`Doorbell::fall_asleep`], then looks once
//! more whether something has come ([`Incoming::is_empty`]) or room has been made
//! ([`Outgoing::can_go_on`]); only a sleeper's bell is rung, once. The four accesses are
//! sequentially consistent: either that last look sees the batch, or the sender sees the sleeper.
//!
//! Deliberately simple: a batch is swapped under a lock that is taken once a turn and held for a
//! few instructions (a `memcpy` only while the receiver has not yet taken the batch before).
//! `session-channels` takes the place of this file; nothing outside it knows how a parcel travels.

use std::io;
use std::mem;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use mio::{Registry, Token, Waker};
use unbroken_broker_core::{Admission, ConnectionId, Mail, Peer};

use crate::authenticator::Doors;
use crate::listener::Seat;
use crate::transport::Transport;

/// What a shard thread is brought.
#[derive(Debug)]
pub(crate) enum Parcel {
    /// A letter from another shard.
    Mail(Mail),
    /// A connection, new from the acceptor or moved here by another shard.
    Connection(Box<Arrival>),
    /// The authenticator's answer.
    Admission {
        connection: ConnectionId,
        admission: Admission,
    },
    /// The configuration was read again.
    Reconfigured {
        limits: Box<unbroken_broker_core::Limits>,
        doors: Arc<Doors>,
    },
    /// Say goodbye to everybody and end, by this time at the latest.
    Drain { until: Instant },
}

/// A connection on its way to a shard.
#[derive(Debug)]
pub(crate) struct Arrival {
    pub(crate) transport: Transport,
    pub(crate) peer: Peer,
    /// Its place among the connections that are counted.
    pub(crate) seat: Seat,
    /// What the shard it comes from had read and not used.
    pub(crate) unread: Vec<u8>,
}

/// How a thread is woken from its poll.
#[derive(Debug)]
pub(crate) struct Doorbell {
    waker: Waker,
    asleep: AtomicBool,
}

impl Doorbell {
    pub(crate) fn new(registry: &Registry, token: Token) -> io::Result<Arc<Self>> {
        Ok(Arc::new(Self {
            waker: Waker::new(registry, token)?,
            asleep: AtomicBool::new(false),
        }))
    }

    /// From here on a sender rings. Look into the feeds once more before sleeping.
    pub(crate) fn fall_asleep(&self) {
        self.asleep.store(true, Ordering::SeqCst);
    }

    pub(crate) fn wake_up(&self) {
        self.asleep.store(false, Ordering::Relaxed);
    }

    pub(crate) fn ring(&self) {
        if self.asleep.swap(false, Ordering::SeqCst) {
            // An eventfd takes a write unless its counter is at its end, and then the sleeper wakes
            // anyway.
            let _ = self.waker.wake();
        }
    }
}

/// What a parcel holds in memory while it waits, beyond its own size.
pub(crate) trait Weigh {
    /// Bytes, as far as their number is up to clients.
    fn bytes(&self) -> u64;
}

impl Weigh for Parcel {
    fn bytes(&self) -> u64 {
        match self {
            Self::Mail(mail) => mail.bytes(),
            Self::Connection(arrival) => arrival.unread.len() as u64,
            Self::Admission { .. } | Self::Reconfigured { .. } | Self::Drain { .. } => 0,
        }
    }
}

/// What a feed holds: no parcel more than so many, and none behind so many bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Capacity {
    pub(crate) parcels: usize,
    pub(crate) bytes: u64,
}

impl Capacity {
    /// For a feed whose parcels are counted elsewhere.
    pub(crate) const UNBOUNDED: Self = Self {
        parcels: usize::MAX,
        bytes: u64::MAX,
    };
}

/// A feed of this capacity, to the thread with the bell `receiver`. A sender that can fall behind
/// gives its own bell, which is rung when there is room again.
pub(crate) fn feed<T>(
    capacity: Capacity,
    receiver: Arc<Doorbell>,
    sender: Option<Arc<Doorbell>>,
) -> (Outgoing<T>, Incoming<T>) {
    let shared = Arc::new(Shared {
        batch: Mutex::new(Vec::new()),
        length: AtomicUsize::new(0),
        sender_waits: AtomicBool::new(false),
    });
    let outgoing = Outgoing {
        shared: Arc::clone(&shared),
        capacity,
        receiver,
        unsent: Vec::new(),
        unsent_bytes: 0,
        batch_bytes: 0,
    };
    (outgoing, Incoming { shared, sender })
}

#[derive(Debug)]
struct Shared<T> {
    batch: Mutex<Vec<T>>,
    /// The batch's length, written under its lock, so that an empty feed costs its receiver no
    /// lock.
    length: AtomicUsize,
    /// Written under the lock too: parcels stayed behind when the sender last flushed, and nothing
    /// has been taken since.
    sender_waits: AtomicBool,
}

impl<T> Shared<T> {
    fn lock(&self) -> MutexGuard<'_, Vec<T>> {
        // Nothing panics while holding it, and a panicking shard ends the process.
        self.batch.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The sender's end.
#[derive(Debug)]
pub(crate) struct Outgoing<T> {
    shared: Arc<Shared<T>>,
    capacity: Capacity,
    receiver: Arc<Doorbell>,
    unsent: Vec<T>,
    unsent_bytes: u64,
    /// Of what was handed over since the receiver last took it.
    batch_bytes: u64,
}

impl<T: Weigh> Outgoing<T> {
    /// Puts a parcel behind all others. It leaves with the next [`flush`](Self::flush).
    pub(crate) fn push(&mut self, parcel: T) {
        self.unsent_bytes += parcel.bytes();
        self.unsent.push(parcel);
    }

    /// Whether so much waits here that no more should be made.
    pub(crate) fn is_behind(&self) -> bool {
        self.unsent.len() >= self.capacity.parcels || self.unsent_bytes >= self.capacity.bytes
    }

    /// Whether a [`flush`](Self::flush) would get something across: asked before falling asleep,
    /// like [`Incoming::is_empty`], because a bell that rang while we were awake made no sound.
    pub(crate) fn can_go_on(&self) -> bool {
        !self.unsent.is_empty() && !self.shared.sender_waits.load(Ordering::SeqCst)
    }

    /// Whether nothing waits here any more.
    pub(crate) fn is_flushed(&self) -> bool {
        self.unsent.is_empty()
    }

    /// Hands over what fits, with one wake at most.
    pub(crate) fn flush(&mut self) {
        if self.unsent.is_empty() {
            return;
        }
        let mut batch = self.shared.lock();
        if batch.is_empty() {
            self.batch_bytes = 0;
        }
        if batch.is_empty() && !self.is_behind() {
            mem::swap(&mut *batch, &mut self.unsent);
            self.batch_bytes = mem::take(&mut self.unsent_bytes);
        } else {
            let room = self.capacity.parcels - batch.len();
            let mut fitting = 0;
            while fitting < room.min(self.unsent.len()) && self.batch_bytes < self.capacity.bytes {
                let bytes = self.unsent[fitting].bytes();
                self.batch_bytes += bytes;
                self.unsent_bytes -= bytes;
                fitting += 1;
            }
            batch.extend(self.unsent.drain(..fitting));
        }
        self.shared.length.store(batch.len(), Ordering::SeqCst);
        if !self.unsent.is_empty() {
            self.shared.sender_waits.store(true, Ordering::SeqCst);
        }
        drop(batch);
        self.receiver.ring();
    }
}

/// The receiver's end.
#[derive(Debug)]
pub(crate) struct Incoming<T> {
    shared: Arc<Shared<T>>,
    sender: Option<Arc<Doorbell>>,
}

impl<T> Incoming<T> {
    pub(crate) fn is_empty(&self) -> bool {
        self.shared.length.load(Ordering::SeqCst) == 0
    }

    /// Takes everything that has come, into an empty vector whose capacity serves the next batch.
    pub(crate) fn take(&self, into: &mut Vec<T>) {
        debug_assert!(into.is_empty(), "the batch before was used up");
        if self.is_empty() {
            return;
        }
        let mut batch = self.shared.lock();
        mem::swap(&mut *batch, into);
        self.shared.length.store(0, Ordering::SeqCst);
        let sender_waits = self.shared.sender_waits.swap(false, Ordering::SeqCst);
        drop(batch);
        if sender_waits && let Some(sender) = &self.sender {
            sender.ring();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::Duration;

    use mio::{Events, Poll};

    use super::*;

    const BELL: Token = Token(0);

    /// A number weighs itself.
    impl Weigh for u32 {
        fn bytes(&self) -> u64 {
            u64::from(*self)
        }
    }

    fn parcels(parcels: usize) -> Capacity {
        Capacity {
            parcels,
            ..Capacity::UNBOUNDED
        }
    }

    fn thread_with_bell() -> (Poll, Arc<Doorbell>) {
        let poll = Poll::new().unwrap();
        let bell = Doorbell::new(poll.registry(), BELL).unwrap();
        (poll, bell)
    }

    fn rang(poll: &mut Poll) -> bool {
        let mut events = Events::with_capacity(4);
        poll.poll(&mut events, Some(Duration::ZERO)).unwrap();
        !events.is_empty()
    }

    #[test]
    fn a_batch_arrives_whole_and_in_order() {
        let (_poll, bell) = thread_with_bell();
        let (mut outgoing, incoming) = feed(parcels(10), bell, None);
        (0..5_u32).for_each(|n| outgoing.push(n));
        assert!(incoming.is_empty(), "nothing leaves before the flush");
        outgoing.flush();
        outgoing.push(5);
        outgoing.flush();
        let mut taken = Vec::new();
        incoming.take(&mut taken);
        assert_eq!(taken, [0, 1, 2, 3, 4, 5]);
        assert!(incoming.is_empty());
    }

    #[test]
    fn a_sleeper_is_woken_once_and_a_waking_one_never() {
        let (mut poll, bell) = thread_with_bell();
        let (mut outgoing, _incoming) = feed(parcels(10), Arc::clone(&bell), None);
        outgoing.push(1_u32);
        outgoing.flush();
        assert!(!rang(&mut poll), "it was awake");
        bell.fall_asleep();
        outgoing.push(2);
        outgoing.flush();
        assert!(rang(&mut poll));
        outgoing.push(3);
        outgoing.flush();
        assert!(!rang(&mut poll), "it has been woken already");
    }

    #[test]
    fn what_does_not_fit_stays_and_the_sender_hears_when_there_is_room() {
        let (_poll, bell) = thread_with_bell();
        let (mut sender_poll, sender_bell) = thread_with_bell();
        let (mut outgoing, incoming) = feed(parcels(4), bell, Some(Arc::clone(&sender_bell)));
        (0..10_u32).for_each(|n| outgoing.push(n));
        assert!(outgoing.is_behind());
        outgoing.flush();
        sender_bell.fall_asleep();
        let (mut all, mut taken) = (Vec::new(), Vec::new());
        while !incoming.is_empty() {
            incoming.take(&mut taken);
            assert!(taken.len() <= 4, "the feed holds no more than its capacity");
            all.append(&mut taken);
            let waited = !outgoing.unsent.is_empty();
            assert_eq!(
                rang(&mut sender_poll),
                waited,
                "the bell is rung if somebody waits for it"
            );
            outgoing.flush();
            sender_bell.fall_asleep();
        }
        assert_eq!(all, (0..10).collect::<Vec<_>>());
        assert!(!outgoing.is_behind());
    }

    #[test]
    fn a_feed_holds_no_more_bytes_than_its_capacity_and_one_parcel() {
        let (_poll, bell) = thread_with_bell();
        let bytes = 100;
        let capacity = Capacity {
            bytes,
            ..Capacity::UNBOUNDED
        };
        let (mut outgoing, incoming) = feed(capacity, bell, None);
        let mut taken = Vec::new();
        for parcel in [60, 30, 500, 1, 98, 0, 1, 70, 40] {
            outgoing.push(parcel);
        }
        assert!(outgoing.is_behind());
        for expect in [&[60, 30, 500][..], &[1, 98, 0, 1], &[70, 40]] {
            outgoing.flush();
            outgoing.flush(); // the batch before is still there
            incoming.take(&mut taken);
            assert_eq!(taken, expect);
            taken.clear();
        }
        assert!(outgoing.is_flushed());
        assert!(!outgoing.is_behind());
        outgoing.push(99);
        assert!(!outgoing.is_behind(), "what was taken counts no more");
        outgoing.push(1);
        assert!(outgoing.is_behind());
    }

    #[test]
    fn two_threads_that_flood_each_other_both_come_to_the_end() {
        const EACH: u32 = 200_000;
        let (left_poll, left_bell) = thread_with_bell();
        let (right_poll, right_bell) = thread_with_bell();
        let (to_right, from_left) = feed(
            parcels(64),
            Arc::clone(&right_bell),
            Some(Arc::clone(&left_bell)),
        );
        let (to_left, from_right) = feed(
            parcels(64),
            Arc::clone(&left_bell),
            Some(Arc::clone(&right_bell)),
        );
        let left = thread::spawn(move || flood(left_poll, &left_bell, to_right, &from_right, EACH));
        let right =
            thread::spawn(move || flood(right_poll, &right_bell, to_left, &from_left, EACH));
        assert_eq!(left.join().unwrap(), EACH);
        assert_eq!(right.join().unwrap(), EACH);
    }

    /// The loop of a shard thread in small: make more only while not behind, always drain, sleep
    /// when there is neither.
    fn flood(
        mut poll: Poll,
        bell: &Doorbell,
        mut outgoing: Outgoing<u32>,
        incoming: &Incoming<u32>,
        each: u32,
    ) -> u32 {
        let mut events = Events::with_capacity(4);
        let (mut sent, mut received, mut taken) = (0, 0, Vec::new());
        while sent < each || received < each || !outgoing.unsent.is_empty() {
            incoming.take(&mut taken);
            for number in taken.drain(..) {
                assert_eq!(number, received, "in order, none lost");
                received += 1;
            }
            while sent < each && !outgoing.is_behind() {
                outgoing.push(sent);
                sent += 1;
            }
            outgoing.flush();
            if outgoing.is_behind() || sent == each {
                bell.fall_asleep();
                let idle = incoming.is_empty()
                    && !outgoing.can_go_on()
                    && (received < each || !outgoing.unsent.is_empty());
                let timeout = if idle { None } else { Some(Duration::ZERO) };
                poll.poll(&mut events, timeout).unwrap();
                bell.wake_up();
            }
        }
        received
    }
}
