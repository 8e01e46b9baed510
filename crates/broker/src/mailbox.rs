//! Feeds between threads: streams of [`Parcel`]s, and the bell that wakes a thread from its poll.
//!
//! A feed carries parcels in the order they were pushed and loses none. It is bounded, in letters
//! and in bytes, and a full feed never blocks a shard: what does not fit stays with the sender,
//! which is then *behind*. A shard that is behind stops reading its clients but goes on draining
//! its own incoming feeds, so that two shards that flood each other both make progress: each
//! empties the feed that the other waits for. What mail leads to is therefore not held up: what
//! that may come to is said at [`FEED_BYTES`].
//!
//! Waking: a thread that is about to sleep says so with [`Doorbell::fall_asleep`], then arms each
//! feed with its bell, which looks once more whether something has come ([`Incoming::arm`]) or room
//! has been made ([`Outgoing::arm`]). A bell that is rung while its thread is awake makes no system
//! call: whoever rings has published before, and the thread looks into all feeds before it sleeps.
//! A feed that was found empty and is armed need not be looked into until the bell has been rung
//! ([`Doorbell::was_rung`]), however often its thread sleeps meanwhile.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, OnceLock};
use std::task::{Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use mio::{Registry, Token};
use session_channels::stream::{self, TrySendError, stream};
use unbroken_broker_core::{Admission, ConnectionId, Mail, Peer, ReadAnswer, StoreId, StoreSize};
use unbroken_store::Batch;

use crate::authenticator::Doors;
use crate::bounds::{FEED_BYTES, FEED_OTHERS};
use crate::listener::Seat;
use crate::request::Request;
use crate::transport::Transport;

/// What a shard thread is brought.
#[derive(Debug)]
pub(crate) enum Parcel {
    /// A letter from another shard.
    Mail(Mail),
    /// A connection, accepted or moved here by another shard.
    Connection(Box<Arrival>),
    /// The authenticator's answer.
    Admission {
        connection: ConnectionId,
        admission: Admission,
    },
    /// Everything that was asked for up to here is on disk. Here are the batches, to be freed by
    /// the thread that made them.
    Stored(StoreId, Vec<Batch>),
    /// What was asked for of a log.
    Read(Box<ReadAnswer>),
    StoreSize(StoreSize),
    /// The store takes nothing any more.
    StoreFailed {
        cause: Arc<str>,
    },
    /// What some thread asks through a handle.
    Request(Box<Request>),
    /// The configuration was read again. Dropping `applied` says that it is in force.
    Reconfigured {
        limits: Box<unbroken_broker_core::Limits>,
        doors: Arc<Doors>,
        applied: Sender<Infallible>,
    },
    /// Say goodbye to everybody and end, by this time at the latest.
    Drain {
        until: Instant,
    },
}

impl Parcel {
    /// What it counts for in a feed: [`bytes`](Self::bytes), and small messages for more.
    pub(crate) fn cost(&self) -> u64 {
        match self {
            Self::Mail(mail) => mail.cost(),
            Self::Connection(arrival) => arrival.unread.len() as u64,
            // From threads that wait for room: what they say is bounded by what was asked.
            Self::Admission { .. }
            | Self::Stored(..)
            | Self::Read(_)
            | Self::StoreSize(_)
            | Self::StoreFailed { .. }
            | Self::Request(_)
            | Self::Reconfigured { .. }
            | Self::Drain { .. } => 0,
        }
    }

    /// Bytes that are kept as long as it is on its way, beside the parcel itself.
    pub(crate) fn bytes(&self) -> u64 {
        match self {
            Self::Mail(mail) => mail.bytes(),
            _ => self.cost(),
        }
    }
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
    waker: mio::Waker,
    /// How its thread sleeps.
    sleep: AtomicU8,
    rung: AtomicBool,
    /// Its thread, since it has first napped.
    napper: OnceLock<Thread>,
}

/// Values of [`Doorbell::sleep`].
const AWAKE: u8 = 0;
const POLLING: u8 = 1;
const NAPPING: u8 = 2;

impl Doorbell {
    pub(crate) fn new(registry: &Registry, token: Token) -> io::Result<Arc<Self>> {
        Ok(Arc::new(Self {
            waker: mio::Waker::new(registry, token)?,
            sleep: AtomicU8::new(AWAKE),
            rung: AtomicBool::new(false),
            napper: OnceLock::new(),
        }))
    }

    /// From here on a ring is heard. Look into the feeds once more before sleeping, or, if they are
    /// armed, whether the bell was rung.
    pub(crate) fn fall_asleep(&self) {
        self.sleep.store(POLLING, Ordering::SeqCst);
    }

    pub(crate) fn wake_up(&self) {
        self.sleep.store(AWAKE, Ordering::Relaxed);
    }

    /// Sleeps for so long, or until it is rung, and hears nothing else. Feeds are armed.
    pub(crate) fn nap(&self, most: Duration) {
        self.napper.get_or_init(thread::current);
        self.sleep.store(NAPPING, Ordering::SeqCst);
        if !self.was_rung() {
            thread::park_timeout(most);
        }
        self.wake_up();
    }

    /// Whether it was rung since [`answer`](Self::answer): some feed has something, or room.
    pub(crate) fn was_rung(&self) -> bool {
        self.rung.load(Ordering::SeqCst)
    }

    /// Forgets that it was rung; what was published before is seen by whoever looks now.
    pub(crate) fn answer(&self) {
        self.rung.swap(false, Ordering::SeqCst);
    }

    pub(crate) fn ring(&self) {
        self.rung.store(true, Ordering::SeqCst);
        match self.sleep.swap(AWAKE, Ordering::SeqCst) {
            POLLING => {
                // An eventfd takes a write unless its counter is at its end, and then the sleeper
                // wakes anyway.
                let _ = self.waker.wake();
            }
            NAPPING => self.napper.get().into_iter().for_each(Thread::unpark),
            _ => {}
        }
    }
}

impl Wake for Doorbell {
    fn wake(self: Arc<Self>) {
        self.ring();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.ring();
    }
}

/// A feed from one shard to another, which holds so many letters.
pub(crate) fn feed(letters: u32) -> (Outgoing, Incoming) {
    let (sender, receiver) = stream(letters);
    let outgoing = Outgoing {
        sender,
        unsent: VecDeque::new(),
        unsent_bytes: 0,
        costs: VecDeque::new(),
        bytes: 0,
    };
    (outgoing, receiver)
}

/// A feed to a shard from a thread that may wait for it.
pub(crate) fn outside_feed() -> (Outside, Incoming) {
    outside_feed_for(FEED_OTHERS)
}

/// A feed to a shard from threads that are no shards, for so many parcels.
pub(crate) fn outside_feed_for(parcels: u32) -> (Outside, Incoming) {
    let (sender, receiver) = stream(parcels);
    (Outside(sender), receiver)
}

/// The sender's end of a thread that is not a shard's.
#[derive(Debug)]
pub(crate) struct Outside(stream::Sender<Parcel>);

impl Outside {
    /// Hands over a parcel, waiting for room if need be.
    pub(crate) fn send(&mut self, parcel: Parcel) {
        // A shard that has ended needs nothing more: dropping a connection closes it.
        let _ = self.0.send_blocking(parcel);
    }

    /// Hands over a parcel if there is room.
    pub(crate) fn try_send(&mut self, parcel: Parcel) -> Result<(), TryFeedError> {
        self.0.try_send(parcel).map_err(|error| match error {
            TrySendError::Full(_) => TryFeedError::Full,
            TrySendError::Closed(_) => TryFeedError::Ended,
        })
    }

    /// Whether there is room, or the shard has ended.
    pub(crate) fn has_room(&self) -> bool {
        self.0.len() < self.0.capacity() || self.0.is_closed()
    }
}

/// Why a parcel was not handed over; it was dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TryFeedError {
    Full,
    /// The shard has ended.
    Ended,
}

/// The sender's end between shards.
#[derive(Debug)]
pub(crate) struct Outgoing {
    sender: stream::Sender<Parcel>,
    /// What did not fit, or was not handed over yet.
    unsent: VecDeque<Parcel>,
    /// What these cost.
    unsent_bytes: u64,
    /// What each parcel costs that is on its way and not known to be taken.
    costs: VecDeque<u64>,
    /// The sum of `costs`.
    bytes: u64,
}

impl Outgoing {
    /// Puts a parcel behind all others. It leaves with the next [`flush`](Self::flush).
    pub(crate) fn push(&mut self, parcel: Parcel) {
        self.unsent_bytes += parcel.cost();
        self.unsent.push_back(parcel);
        if self.is_full_of_bytes() {
            self.forget_taken();
        }
    }

    /// Whether so much waits here that no more should be made.
    pub(crate) fn is_behind(&self) -> bool {
        self.unsent.len() >= self.sender.capacity() || !self.is_flushed() && self.is_full_of_bytes()
    }

    /// Whether nothing waits here any more.
    pub(crate) fn is_flushed(&self) -> bool {
        self.unsent.is_empty()
    }

    /// Hands over what fits. A receiver that has ended needs nothing more.
    pub(crate) fn flush(&mut self) {
        while let Some(parcel) = self.unsent.pop_front() {
            if self.bytes >= FEED_BYTES {
                self.forget_taken();
                // One that has ended takes nothing any more, and is told below.
                if self.bytes >= FEED_BYTES && !self.sender.is_closed() {
                    self.unsent.push_front(parcel);
                    return;
                }
            }
            let cost = parcel.cost();
            match self.sender.try_send(parcel) {
                Ok(()) => {
                    self.unsent_bytes -= cost;
                    self.costs.push_back(cost);
                    self.bytes += cost;
                    if self.costs.len() > 2 * self.sender.capacity() {
                        self.forget_taken();
                    }
                }
                Err(TrySendError::Full(parcel)) => {
                    self.unsent.push_front(parcel);
                    return;
                }
                Err(TrySendError::Closed(_)) => {
                    self.unsent.clear();
                    self.costs.clear();
                    (self.unsent_bytes, self.bytes) = (0, 0);
                }
            }
        }
    }

    /// With what is not known to be taken.
    fn is_full_of_bytes(&self) -> bool {
        self.bytes + self.unsent_bytes >= FEED_BYTES
    }

    fn forget_taken(&mut self) {
        let taken = self.costs.len().saturating_sub(self.sender.len());
        self.bytes -= self.costs.drain(..taken).sum::<u64>();
    }

    /// Asked before falling asleep: whether a flush would get something across. If not, this waker
    /// is woken when it would.
    pub(crate) fn arm(&mut self, waker: &Waker) -> bool {
        if self.is_flushed() {
            return false;
        }
        // Where the bytes are the bound, one parcel taken may be enough.
        let on_their_way = u32::try_from(self.sender.len()).unwrap_or(u32::MAX);
        self.sender.arm_below(on_their_way.max(1), waker)
    }
}

/// The receiver's end.
pub(crate) type Incoming = stream::Receiver<Parcel>;

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::thread;
    use std::time::Duration;

    use mio::{Events, Poll};

    use super::*;
    use crate::listener::tests::any_arrival;

    const BELL: Token = Token(0);

    fn thread_with_bell() -> (Poll, Arc<Doorbell>, Waker) {
        let poll = Poll::new().unwrap();
        let bell = Doorbell::new(poll.registry(), BELL).unwrap();
        let waker = Waker::from(Arc::clone(&bell));
        (poll, bell, waker)
    }

    fn rang(poll: &mut Poll) -> bool {
        let mut events = Events::with_capacity(4);
        poll.poll(&mut events, Some(Duration::ZERO)).unwrap();
        !events.is_empty()
    }

    /// A parcel with a number, and so many bytes.
    fn parcel(number: u32, bytes: usize) -> Parcel {
        let mut unread = vec![0; bytes.max(4)];
        unread[..4].copy_from_slice(&number.to_be_bytes());
        Parcel::Connection(Box::new(any_arrival(unread)))
    }

    #[test]
    fn a_sender_is_behind_by_bytes_that_it_has_made_and_not_handed_over() {
        let (mut outgoing, mut incoming) = feed(100);
        let half = usize::try_from(FEED_BYTES / 2).unwrap();
        outgoing.push(parcel(0, half));
        assert!(!outgoing.is_behind());
        outgoing.push(parcel(1, half));
        assert!(outgoing.is_behind());
        outgoing.flush();
        assert!(!outgoing.is_behind(), "all of it is handed over");
        outgoing.push(parcel(2, 4));
        assert!(outgoing.is_behind(), "and nothing taken");
        assert_eq!(number(incoming.try_recv().unwrap()), 0);
        outgoing.push(parcel(3, 4));
        assert!(!outgoing.is_behind(), "what was taken is room");
    }

    #[test]
    fn a_receiver_that_ends_with_its_feed_full_of_bytes_holds_up_nobody() {
        let (_poll, _bell, waker) = thread_with_bell();
        let (mut outgoing, incoming) = feed(100);
        outgoing.push(parcel(0, usize::try_from(FEED_BYTES).unwrap()));
        outgoing.flush();
        outgoing.push(parcel(1, 4));
        outgoing.flush();
        assert!(outgoing.is_behind());
        drop(incoming);
        outgoing.flush();
        assert!(outgoing.is_flushed() && !outgoing.is_behind());
        assert!(!outgoing.arm(&waker), "nobody waits for it");
    }

    fn number(parcel: Parcel) -> u32 {
        match parcel {
            Parcel::Connection(arrival) => {
                u32::from_be_bytes(arrival.unread[..4].try_into().unwrap())
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn parcels_leave_with_the_flush_and_arrive_in_order() {
        let (mut outgoing, mut incoming) = feed(8);
        (0..5).for_each(|n| outgoing.push(parcel(n, 0)));
        assert!(incoming.is_empty(), "nothing leaves before the flush");
        outgoing.flush();
        outgoing.push(parcel(5, 0));
        outgoing.flush();
        for n in 0..6 {
            assert_eq!(number(incoming.try_recv().unwrap()), n);
        }
        assert!(incoming.is_empty());
    }

    #[test]
    fn a_sleeper_is_woken_once_for_a_batch_and_a_waking_one_never() {
        let (mut poll, bell, waker) = thread_with_bell();
        let (mut outgoing, mut incoming) = feed(8);
        assert!(!incoming.arm(&waker));
        outgoing.push(parcel(1, 0));
        outgoing.flush();
        assert!(!rang(&mut poll), "it was awake");
        bell.fall_asleep();
        assert!(incoming.arm(&waker), "the last look sees it");
        while incoming.try_recv().is_ok() {}
        assert!(!incoming.arm(&waker));
        (2..5).for_each(|n| outgoing.push(parcel(n, 0)));
        outgoing.flush();
        assert!(rang(&mut poll));
        outgoing.push(parcel(5, 0));
        outgoing.flush();
        assert!(!rang(&mut poll), "it has been woken already");
    }

    #[test]
    fn a_nap_ends_when_the_bell_is_rung_and_does_not_begin_where_it_was() {
        const HOUR: Duration = Duration::from_hours(1);
        let (mut poll, bell, _waker) = thread_with_bell();
        bell.ring();
        let napping = thread::spawn({
            let bell = Arc::clone(&bell);
            move || {
                bell.nap(HOUR);
                bell.answer();
                bell.nap(HOUR);
            }
        });
        while bell.was_rung() || bell.sleep.load(Ordering::SeqCst) != NAPPING {
            thread::yield_now();
        }
        bell.ring();
        napping.join().unwrap();
        assert!(bell.was_rung());
        assert!(!rang(&mut poll), "there was no need");
    }

    #[test]
    fn an_armed_feed_rings_while_its_thread_is_awake_too() {
        let (mut poll, bell, waker) = thread_with_bell();
        let (mut outgoing, mut incoming) = feed(8);
        assert!(!incoming.arm(&waker));
        for n in 1..3 {
            outgoing.push(parcel(n, 0));
            outgoing.flush();
            assert_eq!(bell.was_rung(), n == 1, "one ring until it looks");
            assert!(!rang(&mut poll), "it was awake");
            bell.answer();
        }
        assert_eq!(incoming.len(), 2);
    }

    #[test]
    fn what_does_not_fit_stays_and_the_sender_hears_when_there_is_room() {
        let (mut poll, bell, waker) = thread_with_bell();
        let (mut outgoing, mut incoming) = feed(4);
        (0..10).for_each(|n| outgoing.push(parcel(n, 0)));
        assert!(outgoing.is_behind());
        outgoing.flush();
        for n in 0..10 {
            bell.fall_asleep();
            let waits = !outgoing.is_flushed();
            assert!(!outgoing.arm(&waker), "no room as long as none was taken");
            assert_eq!(number(incoming.try_recv().unwrap()), n);
            assert_eq!(rang(&mut poll), waits, "the bell is rung if somebody waits");
            outgoing.flush();
        }
        assert!(!outgoing.is_behind());
        assert!(outgoing.is_flushed());
    }

    #[test]
    fn a_feed_is_bounded_in_bytes_too() {
        let (mut poll, bell, waker) = thread_with_bell();
        let (mut outgoing, mut incoming) = feed(64);
        let half = usize::try_from(FEED_BYTES / 2).unwrap();
        (0..4).for_each(|n| outgoing.push(parcel(n, half)));
        outgoing.flush();
        assert_eq!(incoming.len(), 2, "no more than the bytes allow");
        assert!(outgoing.is_behind());
        bell.fall_asleep();
        assert!(!outgoing.arm(&waker));
        assert_eq!(number(incoming.try_recv().unwrap()), 0);
        assert!(rang(&mut poll), "one taken makes room for one");
        outgoing.flush();
        assert_eq!(incoming.len(), 2);
        for n in 1..4 {
            assert_eq!(number(incoming.try_recv().unwrap()), n);
            outgoing.flush();
        }
        assert!(!outgoing.is_behind());
    }

    #[test]
    fn two_threads_that_flood_each_other_both_come_to_the_end() {
        const EACH: u32 = 20_000;
        let (to_right, from_left) = feed(64);
        let (to_left, from_right) = feed(64);
        let left = thread::spawn(move || flood(to_right, from_right, EACH));
        let right = thread::spawn(move || flood(to_left, from_left, EACH));
        assert_eq!(left.join().unwrap(), EACH);
        assert_eq!(right.join().unwrap(), EACH);
    }

    /// The loop of a shard thread in small: make more only while not behind, always drain, sleep
    /// when there is neither.
    fn flood(mut outgoing: Outgoing, mut incoming: Incoming, each: u32) -> u32 {
        let (mut poll, bell, waker) = thread_with_bell();
        let mut events = Events::with_capacity(4);
        let (mut sent, mut received) = (0, 0);
        while sent < each || received < each || !outgoing.is_flushed() {
            for _ in 0..incoming.len() {
                let Parcel::Reconfigured { .. } = incoming.try_recv().unwrap() else {
                    panic!("that was not sent");
                };
                received += 1;
            }
            while sent < each && !outgoing.is_behind() {
                outgoing.push(Parcel::Reconfigured {
                    limits: Box::default(),
                    doors: Arc::default(),
                    applied: channel().0,
                });
                sent += 1;
            }
            outgoing.flush();
            if outgoing.is_behind() || sent == each {
                bell.fall_asleep();
                let something = incoming.arm(&waker) | outgoing.arm(&waker);
                let done = received == each && outgoing.is_flushed();
                let timeout = (something || done).then_some(Duration::ZERO);
                poll.poll(&mut events, timeout).unwrap();
                bell.wake_up();
            }
        }
        received
    }
}
