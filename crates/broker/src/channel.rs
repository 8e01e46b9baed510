//! Bounded channels between threads: streams of [`DriverEvent`]s, and the waker that ends a
//! thread's poll.
//!
//! A channel keeps the order of its events and loses none. It is bounded in events and in bytes. A
//! full channel never blocks a shard: what does not fit stays with the sender, which is then
//! *behind*. A shard that is behind stops reading its clients but still drains its own receivers.
//! So two shards that flood each other both make progress: each empties the channel that the other
//! waits for. The bound for messages that cross two shards is described at [`CHANNEL_BYTES`].
//!
//! Waking: a thread that is about to sleep calls [`ThreadWaker::begin_wait`], then arms each
//! channel with its waker. Arming checks once more for events ([`EventReceiver::arm`]) or room
//! ([`ShardSender::arm`]). Notifying a thread that is awake makes no system call: the notifier has
//! published before, and the thread checks all channels before it sleeps. An armed channel that was
//! empty need not be checked again until its thread was notified ([`ThreadWaker::was_notified`]),
//! however often the thread sleeps meanwhile.

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
use unbroken_broker_core::{
    Admission, ConnectionId, Peer, Policy, ReadAnswer, ShardMessage, StoreId, StoreSize,
};
use unbroken_store::Batch;

use crate::authenticator::AuthRules;
use crate::bounds::{CHANNEL_BYTES, CHANNEL_EVENTS};
use crate::listener::ConnectionPermit;
use crate::request::Request;
use crate::transport::Transport;

/// What other threads send to a shard thread.
#[derive(Debug)]
pub(crate) enum DriverEvent {
    /// From another shard.
    ShardMessage(ShardMessage),
    /// A connection, accepted or moved here by another shard.
    Connection(Box<IncomingConnection>),
    /// The authenticator's answer.
    Admission {
        connection: ConnectionId,
        admission: Admission,
    },
    /// All requests up to this one are on disk. The batches go back to the thread that made them,
    /// which frees them.
    Stored(StoreId, Vec<Batch>),
    /// The answer to a read of a log.
    Read(Box<ReadAnswer>),
    StoreSize(StoreSize),
    /// The store has failed; nothing is stored after this.
    StoreFailed {
        cause: Arc<str>,
    },
    /// A request of a [`crate::BrokerHandle`].
    Request(Box<Request>),
    /// The configuration was read again. Dropping `applied` reports that it is in force.
    Reconfigured {
        limits: Box<unbroken_broker_core::Limits>,
        auth_rules: Arc<AuthRules>,
        /// `None`: clients may do what they could.
        policy: Option<NewPolicy>,
        applied: Sender<Infallible>,
    },
    /// Disconnect all clients and end, by this time at the latest.
    Drain {
        until: Instant,
    },
}

/// What clients may do from now on; `None`: everything.
#[derive(Clone, Debug)]
pub(crate) struct NewPolicy(pub(crate) Option<Arc<Policy>>);

impl DriverEvent {
    /// The bytes that it counts for in a channel: [`bytes`](Self::bytes), and more for small
    /// messages.
    pub(crate) fn cost(&self) -> u64 {
        match self {
            Self::ShardMessage(message) => message.cost(),
            Self::Connection(incoming) => incoming.unread.len() as u64,
            // From threads that wait for room; the size of an answer is bounded by its request.
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

    /// Bytes in memory while it is in the channel, beside the event itself.
    pub(crate) fn bytes(&self) -> u64 {
        match self {
            Self::ShardMessage(message) => message.bytes(),
            _ => self.cost(),
        }
    }
}

/// A connection on its way to a shard.
#[derive(Debug)]
pub(crate) struct IncomingConnection {
    pub(crate) transport: Transport,
    pub(crate) peer: Peer,
    /// Counts it against the limits of connections.
    pub(crate) permit: ConnectionPermit,
    /// Bytes that the previous shard has read and not used.
    pub(crate) unread: Vec<u8>,
}

/// Wakes a thread from its poll.
#[derive(Debug)]
pub(crate) struct ThreadWaker {
    waker: mio::Waker,
    /// How the thread waits.
    sleep: AtomicU8,
    notified: AtomicBool,
    /// The thread, once it has parked.
    thread: OnceLock<Thread>,
}

/// Values of [`ThreadWaker::sleep`].
const AWAKE: u8 = 0;
const POLLING: u8 = 1;
const PARKED: u8 = 2;

impl ThreadWaker {
    pub(crate) fn new(registry: &Registry, token: Token) -> io::Result<Arc<Self>> {
        Ok(Arc::new(Self {
            waker: mio::Waker::new(registry, token)?,
            sleep: AtomicU8::new(AWAKE),
            notified: AtomicBool::new(false),
            thread: OnceLock::new(),
        }))
    }

    /// From here on a notification ends the wait. Check the channels once more before sleeping, or,
    /// if they are armed, [`was_notified`](Self::was_notified).
    pub(crate) fn begin_wait(&self) {
        self.sleep.store(POLLING, Ordering::SeqCst);
    }

    pub(crate) fn end_wait(&self) {
        self.sleep.store(AWAKE, Ordering::Relaxed);
    }

    /// Sleeps for at most so long, or until notified; the thread's poll is not served. Channels are
    /// armed.
    pub(crate) fn park(&self, most: Duration) {
        self.thread.get_or_init(thread::current);
        self.sleep.store(PARKED, Ordering::SeqCst);
        if !self.was_notified() {
            thread::park_timeout(most);
        }
        self.end_wait();
    }

    /// Whether it was notified since [`clear_notified`](Self::clear_notified): a channel has an
    /// event, or room.
    pub(crate) fn was_notified(&self) -> bool {
        self.notified.load(Ordering::SeqCst)
    }

    /// Forgets the notification. A check that follows sees all that was published before.
    pub(crate) fn clear_notified(&self) {
        self.notified.swap(false, Ordering::SeqCst);
    }

    pub(crate) fn notify(&self) {
        self.notified.store(true, Ordering::SeqCst);
        match self.sleep.swap(AWAKE, Ordering::SeqCst) {
            POLLING => {
                // An eventfd takes a write unless its counter is at its maximum, and then the
                // thread wakes anyway.
                let _ = self.waker.wake();
            }
            PARKED => self.thread.get().into_iter().for_each(Thread::unpark),
            _ => {}
        }
    }
}

impl Wake for ThreadWaker {
    fn wake(self: Arc<Self>) {
        self.notify();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.notify();
    }
}

/// A channel from one shard to another, for so many events.
pub(crate) fn shard_channel(messages: u32) -> (ShardSender, EventReceiver) {
    let (sender, receiver) = stream(messages);
    let sender = ShardSender {
        sender,
        unsent: VecDeque::new(),
        unsent_bytes: 0,
        costs: VecDeque::new(),
        bytes: 0,
    };
    (sender, receiver)
}

/// A channel to a shard from a thread that may block.
pub(crate) fn event_channel() -> (EventSender, EventReceiver) {
    event_channel_of(CHANNEL_EVENTS)
}

/// A channel to a shard from threads that are not shards, for so many events.
pub(crate) fn event_channel_of(events: u32) -> (EventSender, EventReceiver) {
    let (sender, receiver) = stream(events);
    (EventSender(sender), receiver)
}

/// The sender of a thread that is not a shard.
#[derive(Debug)]
pub(crate) struct EventSender(stream::Sender<DriverEvent>);

impl EventSender {
    /// Sends an event; blocks while the channel is full.
    pub(crate) fn send(&mut self, event: DriverEvent) {
        // A shard that has ended needs no more events: dropping a connection closes it.
        let _ = self.0.send_blocking(event);
    }

    /// Sends an event if there is room.
    pub(crate) fn try_send(&mut self, event: DriverEvent) -> Result<(), SendError> {
        self.0.try_send(event).map_err(|error| match error {
            TrySendError::Full(_) => SendError::Full,
            TrySendError::Closed(_) => SendError::Ended,
        })
    }

    /// Whether there is room, or the shard has ended.
    pub(crate) fn has_room(&self) -> bool {
        self.0.len() < self.0.capacity() || self.0.is_closed()
    }
}

/// Why an event was not sent; it was dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SendError {
    Full,
    /// The shard has ended.
    Ended,
}

/// The sender between shards.
#[derive(Debug)]
pub(crate) struct ShardSender {
    sender: stream::Sender<DriverEvent>,
    /// Not sent yet, or without room.
    unsent: VecDeque<DriverEvent>,
    /// The cost of these.
    unsent_bytes: u64,
    /// The cost of each event that is in the channel, as far as known.
    costs: VecDeque<u64>,
    /// The sum of `costs`.
    bytes: u64,
}

impl ShardSender {
    /// Queues an event. It is sent by the next [`flush`](Self::flush).
    pub(crate) fn push(&mut self, event: DriverEvent) {
        self.unsent_bytes += event.cost();
        self.unsent.push_back(event);
        if self.is_byte_limit_reached() {
            self.forget_received();
        }
    }

    /// Whether so much is queued that the shard should produce no more.
    pub(crate) fn is_behind(&self) -> bool {
        self.unsent.len() >= self.sender.capacity()
            || !self.is_flushed() && self.is_byte_limit_reached()
    }

    /// Whether nothing is queued.
    pub(crate) fn is_flushed(&self) -> bool {
        self.unsent.is_empty()
    }

    /// Sends what fits. Once the receiver has ended, the queue is cleared.
    pub(crate) fn flush(&mut self) {
        while let Some(event) = self.unsent.pop_front() {
            if self.bytes >= CHANNEL_BYTES {
                self.forget_received();
                // A receiver that has ended takes nothing; `try_send` below finds out.
                if self.bytes >= CHANNEL_BYTES && !self.sender.is_closed() {
                    self.unsent.push_front(event);
                    return;
                }
            }
            let cost = event.cost();
            match self.sender.try_send(event) {
                Ok(()) => {
                    self.unsent_bytes -= cost;
                    self.costs.push_back(cost);
                    self.bytes += cost;
                    if self.costs.len() > 2 * self.sender.capacity() {
                        self.forget_received();
                    }
                }
                Err(TrySendError::Full(event)) => {
                    self.unsent.push_front(event);
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

    /// Counts events that may have been received meanwhile.
    fn is_byte_limit_reached(&self) -> bool {
        self.bytes + self.unsent_bytes >= CHANNEL_BYTES
    }

    fn forget_received(&mut self) {
        let taken = self.costs.len().saturating_sub(self.sender.len());
        self.bytes -= self.costs.drain(..taken).sum::<u64>();
    }

    /// Before a wait: whether a flush would send something. If not, the waker is called when it
    /// would.
    pub(crate) fn arm(&mut self, waker: &Waker) -> bool {
        if self.is_flushed() {
            return false;
        }
        // Where the bytes are the limit, one received event may make enough room.
        let on_their_way = u32::try_from(self.sender.len()).unwrap_or(u32::MAX);
        self.sender.arm_below(on_their_way.max(1), waker)
    }
}

/// The receiving end.
pub(crate) type EventReceiver = stream::Receiver<DriverEvent>;

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::thread;
    use std::time::Duration;

    use mio::{Events, Poll};

    use super::*;
    use crate::listener::tests::any_incoming;

    const WAKER: Token = Token(0);

    fn new_thread() -> (Poll, Arc<ThreadWaker>, Waker) {
        let poll = Poll::new().unwrap();
        let thread_waker = ThreadWaker::new(poll.registry(), WAKER).unwrap();
        let waker = Waker::from(Arc::clone(&thread_waker));
        (poll, thread_waker, waker)
    }

    fn was_woken(poll: &mut Poll) -> bool {
        let mut events = Events::with_capacity(4);
        poll.poll(&mut events, Some(Duration::ZERO)).unwrap();
        !events.is_empty()
    }

    /// An event with a number, and so many bytes.
    fn event(number: u32, bytes: usize) -> DriverEvent {
        let mut unread = vec![0; bytes.max(4)];
        unread[..4].copy_from_slice(&number.to_be_bytes());
        DriverEvent::Connection(Box::new(any_incoming(unread)))
    }

    #[test]
    fn a_sender_is_behind_by_bytes_that_it_has_made_and_not_handed_over() {
        let (mut sender, mut receiver) = shard_channel(100);
        let half = usize::try_from(CHANNEL_BYTES / 2).unwrap();
        sender.push(event(0, half));
        assert!(!sender.is_behind());
        sender.push(event(1, half));
        assert!(sender.is_behind());
        sender.flush();
        assert!(!sender.is_behind(), "all of it is handed over");
        sender.push(event(2, 4));
        assert!(sender.is_behind(), "and nothing taken");
        assert_eq!(number(receiver.try_recv().unwrap()), 0);
        sender.push(event(3, 4));
        assert!(!sender.is_behind(), "what was taken is room");
    }

    #[test]
    fn a_receiver_that_ends_with_a_full_channel_blocks_no_sender() {
        let (_poll, _bell, waker) = new_thread();
        let (mut sender, receiver) = shard_channel(100);
        sender.push(event(0, usize::try_from(CHANNEL_BYTES).unwrap()));
        sender.flush();
        sender.push(event(1, 4));
        sender.flush();
        assert!(sender.is_behind());
        drop(receiver);
        sender.flush();
        assert!(sender.is_flushed() && !sender.is_behind());
        assert!(!sender.arm(&waker), "nobody waits for it");
    }

    fn number(event: DriverEvent) -> u32 {
        match event {
            DriverEvent::Connection(incoming) => {
                u32::from_be_bytes(incoming.unread[..4].try_into().unwrap())
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn events_leave_with_the_flush_and_arrive_in_order() {
        let (mut sender, mut receiver) = shard_channel(8);
        (0..5).for_each(|n| sender.push(event(n, 0)));
        assert!(receiver.is_empty(), "nothing leaves before the flush");
        sender.flush();
        sender.push(event(5, 0));
        sender.flush();
        for n in 0..6 {
            assert_eq!(number(receiver.try_recv().unwrap()), n);
        }
        assert!(receiver.is_empty());
    }

    #[test]
    fn a_waiting_thread_is_woken_once_per_batch_and_an_awake_one_never() {
        let (mut poll, thread_waker, waker) = new_thread();
        let (mut sender, mut receiver) = shard_channel(8);
        assert!(!receiver.arm(&waker));
        sender.push(event(1, 0));
        sender.flush();
        assert!(!was_woken(&mut poll), "it was awake");
        thread_waker.begin_wait();
        assert!(receiver.arm(&waker), "the last look sees it");
        while receiver.try_recv().is_ok() {}
        assert!(!receiver.arm(&waker));
        (2..5).for_each(|n| sender.push(event(n, 0)));
        sender.flush();
        assert!(was_woken(&mut poll));
        sender.push(event(5, 0));
        sender.flush();
        assert!(!was_woken(&mut poll), "it has been woken already");
    }

    #[test]
    fn park_ends_at_a_notification_and_does_not_begin_after_one() {
        const HOUR: Duration = Duration::from_hours(1);
        let (mut poll, thread_waker, _waker) = new_thread();
        thread_waker.notify();
        let napping = thread::spawn({
            let thread_waker = Arc::clone(&thread_waker);
            move || {
                thread_waker.park(HOUR);
                thread_waker.clear_notified();
                thread_waker.park(HOUR);
            }
        });
        while thread_waker.was_notified() || thread_waker.sleep.load(Ordering::SeqCst) != PARKED {
            thread::yield_now();
        }
        thread_waker.notify();
        napping.join().unwrap();
        assert!(thread_waker.was_notified());
        assert!(!was_woken(&mut poll), "there was no need");
    }

    #[test]
    fn an_armed_channel_notifies_an_awake_thread() {
        let (mut poll, thread_waker, waker) = new_thread();
        let (mut sender, mut receiver) = shard_channel(8);
        assert!(!receiver.arm(&waker));
        for n in 1..3 {
            sender.push(event(n, 0));
            sender.flush();
            assert_eq!(
                thread_waker.was_notified(),
                n == 1,
                "one ring until it looks"
            );
            assert!(!was_woken(&mut poll), "it was awake");
            thread_waker.clear_notified();
        }
        assert_eq!(receiver.len(), 2);
    }

    #[test]
    fn unsent_events_stay_and_the_sender_is_woken_when_there_is_room() {
        let (mut poll, thread_waker, waker) = new_thread();
        let (mut sender, mut receiver) = shard_channel(4);
        (0..10).for_each(|n| sender.push(event(n, 0)));
        assert!(sender.is_behind());
        sender.flush();
        for n in 0..10 {
            thread_waker.begin_wait();
            let waits = !sender.is_flushed();
            assert!(!sender.arm(&waker), "no room as long as none was taken");
            assert_eq!(number(receiver.try_recv().unwrap()), n);
            assert_eq!(
                was_woken(&mut poll),
                waits,
                "the bell is rung if somebody waits"
            );
            sender.flush();
        }
        assert!(!sender.is_behind());
        assert!(sender.is_flushed());
    }

    #[test]
    fn a_channel_is_bounded_in_bytes() {
        let (mut poll, thread_waker, waker) = new_thread();
        let (mut sender, mut receiver) = shard_channel(64);
        let half = usize::try_from(CHANNEL_BYTES / 2).unwrap();
        (0..4).for_each(|n| sender.push(event(n, half)));
        sender.flush();
        assert_eq!(receiver.len(), 2, "no more than the bytes allow");
        assert!(sender.is_behind());
        thread_waker.begin_wait();
        assert!(!sender.arm(&waker));
        assert_eq!(number(receiver.try_recv().unwrap()), 0);
        assert!(was_woken(&mut poll), "one taken makes room for one");
        sender.flush();
        assert_eq!(receiver.len(), 2);
        for n in 1..4 {
            assert_eq!(number(receiver.try_recv().unwrap()), n);
            sender.flush();
        }
        assert!(!sender.is_behind());
    }

    #[test]
    fn two_threads_that_flood_each_other_both_come_to_the_end() {
        const EACH: u32 = 20_000;
        let (to_right, from_left) = shard_channel(64);
        let (to_left, from_right) = shard_channel(64);
        let left = thread::spawn(move || flood(to_right, from_right, EACH));
        let right = thread::spawn(move || flood(to_left, from_left, EACH));
        assert_eq!(left.join().unwrap(), EACH);
        assert_eq!(right.join().unwrap(), EACH);
    }

    /// A small shard thread: produces only while it is not behind, always drains, and sleeps when
    /// there is nothing to do.
    fn flood(mut sender: ShardSender, mut receiver: EventReceiver, each: u32) -> u32 {
        let (mut poll, thread_waker, waker) = new_thread();
        let mut events = Events::with_capacity(4);
        let (mut sent, mut received) = (0, 0);
        while sent < each || received < each || !sender.is_flushed() {
            for _ in 0..receiver.len() {
                let DriverEvent::Reconfigured { .. } = receiver.try_recv().unwrap() else {
                    panic!("that was not sent");
                };
                received += 1;
            }
            while sent < each && !sender.is_behind() {
                sender.push(DriverEvent::Reconfigured {
                    limits: Box::default(),
                    auth_rules: Arc::default(),
                    policy: None,
                    applied: channel().0,
                });
                sent += 1;
            }
            sender.flush();
            if sender.is_behind() || sent == each {
                thread_waker.begin_wait();
                let something = receiver.arm(&waker) | sender.arm(&waker);
                let done = received == each && sender.is_flushed();
                let timeout = (something || done).then_some(Duration::ZERO);
                poll.poll(&mut events, timeout).unwrap();
                thread_waker.end_wait();
            }
        }
        received
    }
}
