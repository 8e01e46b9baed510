//! Many senders, one receiver.
//!
//! Each clone of the sender has a queue of its own, so that senders never meet: what one sends
//! arrives in order, and a sender waits only for its own queue. The receiver takes from all of
//! them in turn, as a [`PortSet`] does; making a clone is the only thing that takes a lock.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use crate::closed::{At, Closed, Unsent, Why};
use crate::debug::Held;
use crate::port_set::{Port, PortSet, Taken};
use crate::stream::{self, TryRecvError, TrySendError, stream};
use crate::wait_graph::{Awaited, End};

/// Opens a channel whose sender can be cloned; each clone can have `capacity` messages on their
/// way.
///
/// # Panics
/// If `capacity` is 0 or more than 65,536, or the memory cannot be had.
///
/// ```
/// let (sender, mut receiver) = session_channels::shared(8);
/// for worker in 0..4 {
///     let mut sender = sender.clone();
///     std::thread::spawn(move || sender.send_blocking(worker).expect("somebody receives"));
/// }
/// drop(sender);
/// let mut sum = 0;
/// while let Ok(worker) = receiver.recv_blocking() {
///     sum += worker;
/// }
/// assert_eq!(sum, 6);
/// ```
pub fn shared<T>(capacity: u32) -> (Sender<T>, Receiver<T>) {
    let (sender, receiver) = stream(capacity);
    let entrance = Arc::new(Entrance(Mutex::new(Lobby {
        arrived: Vec::new(),
        senders: 1,
        closed: false,
        waker: None,
    })));
    let mut set = PortSet::new();
    set.insert(Door::Entrance(Arc::clone(&entrance)));
    set.insert(Door::Stream(receiver));
    let receiver = Receiver {
        set,
        entrance: Arc::clone(&entrance),
    };
    (Sender { sender, entrance }, receiver)
}

/// Where the queues of new clones wait to be taken into the set.
struct Entrance<T>(Mutex<Lobby<T>>);

struct Lobby<T> {
    arrived: Vec<stream::Receiver<T>>,
    senders: usize,
    /// The receiver is gone.
    closed: bool,
    waker: Option<Waker>,
}

impl<T> Entrance<T> {
    fn lock(&self) -> MutexGuard<'_, Lobby<T>> {
        // Nothing panics while holding it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the set finds here. The queues are fetched by who gets to know of them.
    #[cold]
    fn look(&self) -> Taken<Came<T>> {
        let lobby = self.lock();
        if !lobby.arrived.is_empty() {
            Taken::Item(None)
        } else if lobby.senders == 0 {
            Taken::Closed(finished())
        } else {
            Taken::Nothing
        }
    }

    fn change(&self, change: impl FnOnce(&mut Lobby<T>)) {
        let mut lobby = self.lock();
        change(&mut lobby);
        let waker = lobby.waker.take();
        drop(lobby);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// The sending side, one of many.
pub struct Sender<T> {
    sender: stream::Sender<T>,
    entrance: Arc<Entrance<T>>,
}

impl<T> Sender<T> {
    /// Sends if there is room.
    #[inline]
    pub fn try_send(&mut self, message: T) -> Result<(), TrySendError<T>> {
        self.sender.try_send(message)
    }

    /// Sends when there is room. Dropped before, it has sent nothing; the message goes with it.
    #[inline]
    pub fn send(&mut self, message: T) -> stream::SendFuture<'_, T> {
        self.sender.send(message)
    }

    /// Sends when there is room; the thread waits.
    #[inline]
    pub fn send_blocking(&mut self, message: T) -> Result<(), Unsent<T>> {
        self.sender.send_blocking(message)
    }

    /// For a readiness loop: see [`stream::Sender::arm`].
    pub fn arm(&mut self, waker: &Waker) -> bool {
        self.sender.arm(waker)
    }

    /// Whether the receiver is gone.
    pub fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        let capacity = u32::try_from(self.sender.capacity()).expect("it was a u32");
        let (sender, receiver) = stream(capacity);
        self.entrance.change(|lobby| {
            lobby.senders += 1;
            if !lobby.closed {
                lobby.arrived.push(receiver);
            }
        });
        Self {
            sender,
            entrance: Arc::clone(&self.entrance),
        }
    }
}

impl<T> Held for Sender<T> {
    fn ends(&self) -> [Option<End>; 2] {
        self.sender.ends()
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.entrance.change(|lobby| lobby.senders -= 1);
    }
}

enum Door<T> {
    Entrance(Arc<Entrance<T>>),
    Stream(stream::Receiver<T>),
}

/// A message; or nothing, when it is queues that wait at the entrance.
type Came<T> = Option<T>;

impl<T> Port for Door<T> {
    type Item = Came<T>;

    #[inline]
    fn poll_port(&mut self, context: &Context<'_>) -> Poll<()> {
        match self {
            Self::Stream(receiver) => receiver.poll_ready(context),
            Self::Entrance(entrance) => {
                let mut lobby = entrance.lock();
                if !lobby.arrived.is_empty() || lobby.senders == 0 {
                    return Poll::Ready(());
                }
                lobby.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }

    fn awaited(&self) -> Awaited {
        match self {
            Self::Stream(receiver) => Awaited::Wait(receiver.awaited()),
            // Only a sender can make another.
            Self::Entrance(_) => Awaited::Nothing,
        }
    }

    #[inline]
    fn take_port(place: &mut Option<Self>) -> Taken<Came<T>> {
        match place {
            Some(Self::Stream(receiver)) => match receiver.try_recv() {
                Ok(message) => Taken::Item(Some(message)),
                Err(TryRecvError::Empty) => Taken::Nothing,
                Err(TryRecvError::Closed(closed)) => Taken::Closed(closed),
            },
            Some(Self::Entrance(entrance)) => entrance.look(),
            None => Taken::Nothing,
        }
    }
}

fn finished() -> Closed {
    const AT: &At = &At {
        protocol: "shared",
        state: "receive",
    };
    Closed::new(AT, Why::Finished)
}

/// The receiving side.
pub struct Receiver<T> {
    set: PortSet<Door<T>>,
    entrance: Arc<Entrance<T>>,
}

impl<T> Receiver<T> {
    /// Takes a message that is there.
    pub fn try_recv(&mut self) -> Result<T, TryRecvError> {
        while let Some((_, came)) = self.set.try_next() {
            if let Some(message) = self.use_it(came) {
                return Ok(message);
            }
        }
        if self.set.is_empty() {
            return Err(TryRecvError::Closed(finished()));
        }
        Err(TryRecvError::Empty)
    }

    #[inline]
    fn use_it(&mut self, came: Result<Came<T>, Closed>) -> Option<T> {
        match came {
            Ok(Some(message)) => Some(message),
            Ok(None) => {
                self.let_in();
                None
            }
            // A queue that has ended is no news: the others go on.
            Err(_) => None,
        }
    }

    #[cold]
    fn let_in(&mut self) {
        let arrived = std::mem::take(&mut self.entrance.lock().arrived);
        for queue in arrived {
            self.set.insert(Door::Stream(queue));
        }
    }

    /// Takes a message when there is one; closed when every sender is gone and all was taken.
    #[inline]
    pub fn poll_recv(&mut self, context: &Context<'_>) -> Poll<Result<T, Closed>> {
        loop {
            match self.set.poll_next(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(None) => return Poll::Ready(Err(finished())),
                Poll::Ready(Some((_, came))) => {
                    if let Some(message) = self.use_it(came) {
                        return Poll::Ready(Ok(message));
                    }
                }
            }
        }
    }

    /// Waits for a message. Dropped before it is done, it has taken nothing.
    #[inline]
    pub fn recv(&mut self) -> RecvFuture<'_, T> {
        RecvFuture(self)
    }

    /// Waits for a message, the thread sleeping if need be.
    pub fn recv_blocking(&mut self) -> Result<T, Closed> {
        while let Some((_, came)) = self.set.next_blocking() {
            if let Some(message) = self.use_it(came) {
                return Ok(message);
            }
        }
        Err(finished())
    }

    /// Waits for a message until this time, the thread sleeping if need be.
    pub fn recv_deadline_blocking(&mut self, deadline: Instant) -> Result<T, TryRecvError> {
        loop {
            match self.set.next_deadline_blocking(deadline) {
                Err(_) => return Err(TryRecvError::Empty),
                Ok(None) => return Err(TryRecvError::Closed(finished())),
                Ok(Some((_, came))) => {
                    if let Some(message) = self.use_it(came) {
                        return Ok(message);
                    }
                }
            }
        }
    }

    /// For a readiness loop: answers whether there is something to receive, and if not, has this
    /// waker woken once when there may be.
    pub fn arm(&mut self, waker: &Waker) -> bool {
        self.set.poll_ready(&Context::from_waker(waker)).is_ready()
    }
}

/// The future of [`Receiver::recv`].
#[derive(Debug)]
#[must_use = "futures do nothing unless awaited"]
pub struct RecvFuture<'a, T>(&'a mut Receiver<T>);

impl<T> Future for RecvFuture<'_, T> {
    type Output = Result<T, Closed>;

    #[allow(
        clippy::inline_always,
        reason = "a result that goes through memory costs more than the rest"
    )]
    #[inline(always)]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.poll_recv(context)
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        let mut arrived = Vec::new();
        self.entrance.change(|lobby| {
            lobby.closed = true;
            arrived = std::mem::take(&mut lobby.arrived);
        });
        // Dropped outside the lock: a message may hold one of the senders.
        drop(arrived);
    }
}

impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver").finish_non_exhaustive()
    }
}
