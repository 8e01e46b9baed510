//! One sender, one receiver, messages of one type, as many as come: `proto!`'s
//! `open: send(n) { Item(T) -> open }` for which no endpoint has to be carried on by hand.
//!
//! Messages arrive in order. The sender waits while `capacity` messages are on their way. When one
//! side is dropped the other hears of it: the receiver after it has taken everything, the sender at
//! its next send, which gives the message back.

use std::fmt;
use std::future::{Future, poll_fn};
use std::marker::PhantomData;
use std::pin::Pin;
use std::ptr::NonNull;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
use std::{alloc::Layout, thread};

use crate::closed::{At, Closed, Unsent, Why};
use crate::debug::Held;
use crate::ring::{Receiving, Ring, Sending};
use crate::timer::Deadline;
use crate::wait_graph::{self, End, Wait};

/// Opens a stream on which `capacity` messages can be on their way.
///
/// # Panics
/// If `capacity` is 0 or more than 65,536, or the memory cannot be had.
///
/// ```
/// let (mut sender, mut receiver) = session_channels::stream(8);
/// std::thread::spawn(move || {
///     for n in 1..=100 {
///         sender.send_blocking(n).expect("the receiver takes everything");
///     }
/// });
/// let mut sum = 0;
/// while let Ok(n) = receiver.recv_blocking() {
///     sum += n;
/// }
/// assert_eq!(sum, 5050);
/// ```
pub fn stream<T>(capacity: u32) -> (Sender<T>, Receiver<T>) {
    let ring = Ring::of_capacity(capacity, Layout::new::<T>());
    // SAFETY: a new ring, whose sides are made once.
    let sides = unsafe { (Sending::at(ring), Receiving::at(ring)) };
    (
        Sender {
            ring: sides.0,
            limit: capacity,
            at: PhantomData,
        },
        Receiver {
            ring: sides.1,
            at: PhantomData,
        },
    )
}

/// The sending side.
///
/// It sends `T` and nothing that lives shorter, as the receiver would go on with it:
///
/// ```compile_fail,E0597
/// let (mut sender, mut receiver) = session_channels::stream::<&'static str>(1);
/// {
///     let local = String::from("gone");
///     let mut sender: session_channels::stream::Sender<&str> = sender;
///     sender.try_send(&local);
/// }
/// receiver.try_recv();
/// ```
pub struct Sender<T> {
    ring: Sending,
    limit: u32,
    at: PhantomData<fn(T) -> T>,
}

/// The receiving side.
pub struct Receiver<T> {
    ring: Receiving,
    at: PhantomData<NonNull<T>>,
}

// SAFETY: a side is one end of a queue of `T`, and is used through `&mut` or by looking only.
unsafe impl<T: Send> Send for Sender<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Sender<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Send for Receiver<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Receiver<T> {}

const SEND: &At = &At {
    protocol: "stream",
    state: "send",
};
const RECEIVE: &At = &At {
    protocol: "stream",
    state: "receive",
};

/// Why a message was not sent at once.
#[derive(Clone, PartialEq, Eq)]
pub enum TrySendError<T> {
    /// `capacity` messages are on their way.
    Full(T),
    /// The receiver is gone.
    Closed(Unsent<T>),
}

impl<T> fmt::Debug for TrySendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full(_) => f.write_str("Full"),
            Self::Closed(unsent) => fmt::Debug::fmt(unsent, f),
        }
    }
}

impl<T> fmt::Display for TrySendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full(_) => f.write_str("as many messages as may be are on their way"),
            Self::Closed(unsent) => fmt::Display::fmt(unsent, f),
        }
    }
}

impl<T> std::error::Error for TrySendError<T> {}

/// Why nothing was received.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TryRecvError {
    /// Nothing has come yet.
    Empty,
    /// The sender is gone and everything it sent was taken.
    Closed(Closed),
}

impl fmt::Display for TryRecvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("nothing has come yet"),
            Self::Closed(closed) => fmt::Display::fmt(closed, f),
        }
    }
}

impl std::error::Error for TryRecvError {}

impl<T> Sender<T> {
    /// Messages sent and not yet taken, at most `capacity`.
    pub fn len(&self) -> usize {
        self.ring.len() as usize
    }

    /// Whether everything sent was taken.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many messages can be on their way.
    pub fn capacity(&self) -> usize {
        self.limit as usize
    }

    /// Whether the receiver is gone.
    pub fn is_closed(&self) -> bool {
        self.ring.closed().is_some()
    }

    #[allow(
        clippy::inline_always,
        reason = "a result that goes through memory costs more than the rest"
    )]
    #[inline(always)]
    fn push(&mut self, message: T) -> Result<(), Unsent<T>> {
        // SAFETY: called when there is room; the receiver takes `T`.
        unsafe { self.ring.push(message, size_of::<T>()) }.map_err(|(message, why)| Unsent {
            message,
            closed: Closed::new(SEND, why),
        })
    }

    /// Sends if there is room.
    #[inline]
    pub fn try_send(&mut self, message: T) -> Result<(), TrySendError<T>> {
        match self.ring.look(self.limit) {
            Some(Ok(())) => self.push(message).map_err(TrySendError::Closed),
            Some(Err(why)) => Err(TrySendError::Closed(Unsent {
                message,
                closed: Closed::new(SEND, why),
            })),
            None => Err(TrySendError::Full(message)),
        }
    }

    /// Waits for room, and takes none. Ready also when the receiver is gone.
    #[inline]
    pub fn poll_room(&mut self, context: &Context<'_>) -> Poll<()> {
        let polled = self.ring.poll(self.limit, context).map(|_| ());
        wait_graph::noted(polled, context, || self.ring.awaited(self.limit, SEND))
    }

    /// For a readiness loop: answers whether a send would be taken or refused at once, and if not,
    /// has this waker woken once when it would.
    pub fn arm(&mut self, waker: &Waker) -> bool {
        self.arm_below(self.limit, waker)
    }

    /// The same for one who does not want to send before fewer than `count` messages are on their
    /// way.
    pub fn arm_below(&mut self, count: u32, waker: &Waker) -> bool {
        let context = Context::from_waker(waker);
        let limit = count.min(self.limit);
        self.ring.poll_at_once(limit, &context).is_ready()
    }

    /// Sends when there is room. Dropped before, it has sent nothing; the message goes with it.
    #[inline]
    pub fn send(&mut self, message: T) -> SendFuture<'_, T> {
        SendFuture {
            sender: self,
            message: Some(message),
        }
    }

    #[allow(
        clippy::inline_always,
        reason = "a result that goes through memory costs more than the rest"
    )]
    #[inline(always)]
    fn send_now(&mut self, message: T) -> Result<(), Unsent<T>> {
        match self.ring.look(self.limit) {
            Some(Err(why)) => Err(Unsent {
                message,
                closed: Closed::new(SEND, why),
            }),
            _ => self.push(message),
        }
    }

    /// Sends when there is room; the thread waits.
    #[inline]
    pub fn send_blocking(&mut self, message: T) -> Result<(), Unsent<T>> {
        if self.ring.look(self.limit).is_none() {
            let wait = self.ring.awaited(self.limit, SEND);
            self.ring.wait(self.limit, wait);
        }
        self.send_now(message)
    }
}

impl<T> Receiver<T> {
    /// Messages that can be taken now, at least.
    pub fn len(&self) -> usize {
        self.ring.len() as usize
    }

    /// Whether none can.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    #[inline]
    pub(crate) fn take_found(&mut self, found: Result<(), Why>) -> Result<T, Closed> {
        match found {
            // SAFETY: a message was found, and the sender sends `T`.
            Ok(()) => Ok(unsafe { self.ring.pop(size_of::<T>()) }),
            Err(why) => Err(Closed::new(RECEIVE, why)),
        }
    }

    /// Takes the oldest message, if there is one.
    #[inline]
    pub fn try_recv(&mut self) -> Result<T, TryRecvError> {
        match self.ring.look() {
            Some(found) => self.take_found(found).map_err(TryRecvError::Closed),
            None => Err(TryRecvError::Empty),
        }
    }

    /// Takes the oldest message when there is one.
    #[inline]
    pub fn poll_recv(&mut self, context: &Context<'_>) -> Poll<Result<T, Closed>> {
        self.poll_found(context).map(|found| self.take_found(found))
    }

    /// Looks what there is; with a context, also has the task woken when there is something.
    #[inline]
    pub(crate) fn find(&mut self, context: Option<&Context<'_>>) -> Poll<Result<(), Why>> {
        match context {
            Some(context) => self.poll_found(context),
            None => self.ring.look().map_or(Poll::Pending, Poll::Ready),
        }
    }

    /// Waits until a receive would not wait, and takes nothing.
    #[inline]
    pub fn poll_ready(&mut self, context: &Context<'_>) -> Poll<()> {
        self.poll_found(context).map(|_| ())
    }

    #[inline]
    fn poll_found(&mut self, context: &Context<'_>) -> Poll<Result<(), Why>> {
        wait_graph::noted(self.ring.poll(context), context, || self.awaited())
    }

    pub(crate) fn awaited(&self) -> Wait {
        self.ring.awaited(RECEIVE)
    }

    /// As a thread does that got much done since it last slept.
    #[cfg(all(test, loom))]
    pub(crate) fn seldom_sleeps(&mut self) {
        self.ring.seldom_sleeps();
    }

    fn wait(&mut self, deadline: Option<Instant>) -> Option<Result<(), Why>> {
        self.ring.wait(deadline, self.awaited())
    }

    /// For a readiness loop: answers whether there is something to receive, and if not, has this
    /// waker woken once when there is.
    pub fn arm(&mut self, waker: &Waker) -> bool {
        self.poll_ready(&Context::from_waker(waker)).is_ready()
    }

    /// Waits for a message. Dropped before it is done, it has taken nothing.
    #[inline]
    pub fn recv(&mut self) -> RecvFuture<'_, T> {
        RecvFuture(self)
    }

    /// Waits for a message for so long.
    pub async fn recv_timeout(&mut self, timeout: Duration) -> Result<T, TryRecvError> {
        let mut deadline = Deadline::after(timeout);
        poll_fn(|context| match self.poll_recv(context) {
            Poll::Ready(received) => Poll::Ready(received.map_err(TryRecvError::Closed)),
            Poll::Pending => deadline.poll(context).map(|()| Err(TryRecvError::Empty)),
        })
        .await
    }

    /// Waits for a message, the thread sleeping if need be.
    #[inline]
    pub fn recv_blocking(&mut self) -> Result<T, Closed> {
        let found = match self.ring.look() {
            Some(found) => found,
            None => self
                .wait(None)
                .expect("without a deadline the wait ends with a message"),
        };
        self.take_found(found)
    }

    /// Waits for a message until this time, the thread sleeping if need be.
    pub fn recv_deadline_blocking(&mut self, deadline: Instant) -> Result<T, TryRecvError> {
        match self.ring.look().or_else(|| self.wait(Some(deadline))) {
            Some(found) => self.take_found(found).map_err(TryRecvError::Closed),
            None => Err(TryRecvError::Empty),
        }
    }
}

/// The future of [`Sender::send`].
#[must_use = "futures do nothing unless awaited"]
pub struct SendFuture<'a, T> {
    sender: &'a mut Sender<T>,
    message: Option<T>,
}

// A message is moved, never pinned.
impl<T> Unpin for SendFuture<'_, T> {}

impl<T> Future for SendFuture<'_, T> {
    type Output = Result<(), Unsent<T>>;

    #[allow(
        clippy::inline_always,
        reason = "a result that goes through memory costs more than the rest"
    )]
    #[inline(always)]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if self.sender.poll_room(context).is_pending() {
            return Poll::Pending;
        }
        let message = self.message.take().expect("polled after it was done");
        Poll::Ready(self.sender.send_now(message))
    }
}

impl<T> fmt::Debug for SendFuture<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SendFuture").finish_non_exhaustive()
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

impl<T> Held for Sender<T> {
    fn ends(&self) -> [Option<End>; 2] {
        [Some(self.ring.end()), None]
    }
}

impl<T> Held for Receiver<T> {
    fn ends(&self) -> [Option<End>; 2] {
        [Some(self.ring.end()), None]
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        wait_graph::forget(|| self.ring.end());
        // SAFETY: the last that is done with this side.
        unsafe { self.ring.leave(why_now()) };
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        wait_graph::forget(|| self.ring.end());
        // SAFETY: the last that is done with this side; the messages are `T`.
        unsafe {
            self.ring.leave(why_now(), size_of::<T>(), |slot| {
                slot.cast::<T>().drop_in_place();
            });
        }
    }
}

/// A stream has no end but that a side is dropped, so that is how it finishes.
fn why_now() -> Why {
    if thread::panicking() {
        Why::Panicked
    } else {
        Why::Finished
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
