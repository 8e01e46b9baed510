//! One sender and one receiver that meet at every message: a send is done when the message was
//! taken.
//!
//! Invariants:
//! - The packet's turn is the receiver's exactly while a message is on offer. The receiver gives it
//!   back in the moment it takes the message.
//! - A message on offer cannot be withdrawn: the receiver may be taking it. So a send that is given
//!   up leaves its message on offer, the next send waits until that was taken, and a sender that is
//!   dropped leaves it for the receiver.
//! - What the receiver has not taken when it goes is the sender's again.
//!
//! Absent: room for messages that nobody has asked for (that is a [`stream`](crate::stream())).

use std::alloc::Layout;
use std::fmt;
use std::future::poll_fn;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use crate::closed::{At, Closed, Unsent, Why};
use crate::debug::Held;
use crate::packet::Packet;
use crate::port_set::{Port, Taken};
use crate::select::{Found, Place, TakeHeld};
use crate::stream::{TryRecvError, TrySendError};
use crate::timer::Deadline;
use crate::wait_graph::{self, Awaited, End};

const SENDER: usize = 0;
const RECEIVER: usize = 1;

/// Opens a channel on which sender and receiver meet.
///
/// ```
/// use std::sync::atomic::{AtomicBool, Ordering};
/// static LOOKED: AtomicBool = AtomicBool::new(false);
///
/// let (mut sender, mut receiver) = session_channels::rendezvous();
/// let sending = std::thread::spawn(move || {
///     sender.send_blocking("parcel").expect("somebody is at home");
///     assert!(LOOKED.load(Ordering::Relaxed)); // not before it was taken
/// });
/// LOOKED.store(true, Ordering::Relaxed);
/// assert_eq!(receiver.recv_blocking(), Ok("parcel"));
/// sending.join().expect("it was taken");
/// ```
pub fn rendezvous<T>() -> (Sender<T>, Receiver<T>) {
    let at = Packet::allocate(Layout::new::<T>(), SENDER, true);
    let sender = Sender {
        at,
        stage: Stage::Free,
        message: PhantomData,
    };
    let receiver = Receiver {
        at,
        message: PhantomData,
    };
    (sender, receiver)
}

/// The sending side.
pub struct Sender<T> {
    at: NonNull<()>,
    stage: Stage<T>,
    message: PhantomData<fn(T) -> T>,
}

enum Stage<T> {
    /// Nothing is on offer.
    Free,
    /// A message is.
    Offered,
    /// The receiver is gone; perhaps there is a message that it has not taken.
    Closed(Why, Option<T>),
}

/// The receiving side.
pub struct Receiver<T> {
    at: NonNull<()>,
    message: PhantomData<T>,
}

// SAFETY: a side is one end of a way for messages, and is used through `&mut`.
unsafe impl<T: Send> Send for Sender<T> {}
// SAFETY: as above; shared, it does nothing.
unsafe impl<T: Send> Sync for Sender<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Send for Receiver<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Receiver<T> {}

/// Why a send did not end in time.
pub enum SendTimeoutError<T> {
    /// The message of an earlier send is still on offer; this one was not offered and is given
    /// back.
    Waiting(T),
    /// The message is on offer and was not taken yet. See [`Sender::taken`].
    Offered,
    /// The receiver is gone.
    Closed(Unsent<T>),
}

impl<T> fmt::Debug for SendTimeoutError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Waiting(_) => f.write_str("Waiting"),
            Self::Offered => f.write_str("Offered"),
            Self::Closed(unsent) => fmt::Debug::fmt(unsent, f),
        }
    }
}

impl<T> fmt::Display for SendTimeoutError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Waiting(_) => f.write_str("an earlier message was not taken in time"),
            Self::Offered => f.write_str("the message was not taken in time and stays on offer"),
            Self::Closed(unsent) => fmt::Display::fmt(unsent, f),
        }
    }
}

impl<T> std::error::Error for SendTimeoutError<T> {}

const fn at(state: &'static str) -> At {
    At {
        protocol: "rendezvous",
        state,
    }
}

const TAKEN: &At = &at("taken");
const OFFER: &At = &at("offer");
const RECEIVE: &At = &at("receive");

impl<T> Sender<T> {
    fn packet(&self) -> Packet {
        // SAFETY: this side has not left.
        unsafe { Packet::at(self.at, SENDER, true) }
    }

    /// What is known of the message on offer, if the packet was asked.
    fn learn(&mut self, found: Result<(), Why>) {
        self.stage = match found {
            Ok(()) => Stage::Free,
            // SAFETY: the receiver left without taking it, and leaves it to this side.
            Err(why) => Stage::Closed(why, Some(unsafe { self.packet().take() })),
        };
    }

    fn look(&mut self) {
        if matches!(self.stage, Stage::Offered)
            && let Some(found) = self.packet().look()
        {
            self.learn(found);
        }
    }

    /// Ready when no message is on offer.
    fn poll_free(&mut self, context: &Context<'_>) -> Poll<()> {
        if matches!(self.stage, Stage::Offered) {
            match self.packet().poll_at(context, TAKEN) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(found) => self.learn(found),
            }
        }
        Poll::Ready(())
    }

    /// False when the time was over.
    fn wait_free(&mut self, deadline: Option<Instant>) -> bool {
        if matches!(self.stage, Stage::Offered) {
            match self.packet().wait(deadline, TAKEN) {
                None => return false,
                Some(found) => self.learn(found),
            }
        }
        true
    }

    /// The end of a send whose message was on offer and is no more.
    fn outcome(&mut self) -> Result<(), Unsent<T>> {
        if let Stage::Closed(why, untaken) = &mut self.stage
            && let Some(message) = untaken.take()
        {
            let closed = Closed::new(TAKEN, *why);
            return Err(Unsent { message, closed });
        }
        Ok(())
    }

    /// Puts a message on offer and does not wait until it is taken; see [`taken`](Self::taken).
    /// `Full` if an earlier one is still on offer.
    pub fn offer(&mut self, message: T) -> Result<(), TrySendError<T>> {
        self.look();
        let unsent = |message, why| {
            let closed = Closed::new(OFFER, why);
            TrySendError::Closed(Unsent { message, closed })
        };
        match self.stage {
            Stage::Offered => return Err(TrySendError::Full(message)),
            Stage::Closed(why, _) => return Err(unsent(message, why)),
            Stage::Free => {}
        }
        // SAFETY: nothing is on offer, so it is this side's turn; the receiver takes a `T`.
        match unsafe { self.packet().send(message) } {
            Ok(()) => {
                self.stage = Stage::Offered;
                Ok(())
            }
            Err((message, why)) => {
                self.stage = Stage::Closed(why, None);
                Err(unsent(message, why))
            }
        }
    }

    /// Offers a message when none is on offer any more.
    fn offer_next(&mut self, message: T) -> Result<(), Unsent<T>> {
        match self.offer(message) {
            Ok(()) => Ok(()),
            Err(TrySendError::Closed(unsent)) => Err(unsent),
            Err(TrySendError::Full(_)) => unreachable!("it was waited for"),
        }
    }

    /// Waits until the message on offer was taken; done at once if there is none. A message that
    /// the receiver has not taken when it goes is given back, once.
    pub fn poll_taken(&mut self, context: &Context<'_>) -> Poll<Result<(), Unsent<T>>> {
        self.poll_free(context).map(|()| self.outcome())
    }

    /// [`poll_taken`](Self::poll_taken) as a future. Dropped before it is done, the message stays
    /// on offer.
    pub async fn taken(&mut self) -> Result<(), Unsent<T>> {
        poll_fn(|context| self.poll_taken(context)).await
    }

    /// Sends, and is done when the message was taken. Dropped before, it has either not begun, and
    /// the message goes with it, or the message stays on offer.
    ///
    /// A send first waits until the message of an earlier, abandoned one was taken. If the receiver
    /// goes without taking that, [`taken`](Self::taken) gives it back.
    pub async fn send(&mut self, message: T) -> Result<(), Unsent<T>> {
        poll_fn(|context| self.poll_free(context)).await;
        self.offer_next(message)?;
        self.taken().await
    }

    /// Sends, and waits so long at the most until the message was taken.
    pub async fn send_timeout(
        &mut self,
        message: T,
        timeout: Duration,
    ) -> Result<(), SendTimeoutError<T>> {
        let mut deadline = Deadline::after(timeout);
        if !self.free_before(&mut deadline).await {
            return Err(SendTimeoutError::Waiting(message));
        }
        self.offer_next(message).map_err(SendTimeoutError::Closed)?;
        if !self.free_before(&mut deadline).await {
            return Err(SendTimeoutError::Offered);
        }
        self.outcome().map_err(SendTimeoutError::Closed)
    }

    async fn free_before(&mut self, deadline: &mut Deadline) -> bool {
        poll_fn(|context| match self.poll_free(context) {
            Poll::Ready(()) => Poll::Ready(true),
            Poll::Pending => deadline.poll(context).map(|()| false),
        })
        .await
    }

    /// Sends, and the thread waits until the message was taken.
    pub fn send_blocking(&mut self, message: T) -> Result<(), Unsent<T>> {
        self.wait_free(None);
        self.offer_next(message)?;
        self.wait_free(None);
        self.outcome()
    }

    /// Sends, and the thread waits until this time at the most until the message was taken.
    pub fn send_deadline_blocking(
        &mut self,
        message: T,
        deadline: Instant,
    ) -> Result<(), SendTimeoutError<T>> {
        if !self.wait_free(Some(deadline)) {
            return Err(SendTimeoutError::Waiting(message));
        }
        self.offer_next(message).map_err(SendTimeoutError::Closed)?;
        if !self.wait_free(Some(deadline)) {
            return Err(SendTimeoutError::Offered);
        }
        self.outcome().map_err(SendTimeoutError::Closed)
    }

    /// For a readiness loop: answers whether nothing is on offer, and if something is, has this
    /// waker woken once when that has changed.
    pub fn arm(&mut self, waker: &Waker) -> bool {
        self.poll_free(&Context::from_waker(waker)).is_ready()
    }
}

impl<T> Receiver<T> {
    fn packet(&self) -> Packet {
        // SAFETY: this side has not left.
        unsafe { Packet::at(self.at, RECEIVER, true) }
    }

    fn take(&mut self, found: Result<(), Why>) -> Result<T, Closed> {
        found.map_err(|why| Closed::new(RECEIVE, why))?;
        let packet = self.packet();
        // SAFETY: a message was found, and the sender sends `T`.
        let message = unsafe { packet.take() };
        // A sender that is gone need not know.
        // SAFETY: it is this side's turn, and the sender takes nothing but the turn.
        let _ = unsafe { packet.send(()) };
        Ok(message)
    }

    /// Takes the message on offer, if there is one.
    pub fn try_recv(&mut self) -> Result<T, TryRecvError> {
        match self.packet().look() {
            Some(found) => self.take(found).map_err(TryRecvError::Closed),
            None => Err(TryRecvError::Empty),
        }
    }

    /// Takes a message when one is on offer.
    pub fn poll_recv(&mut self, context: &Context<'_>) -> Poll<Result<T, Closed>> {
        self.packet()
            .poll_at(context, RECEIVE)
            .map(|found| self.take(found))
    }

    /// Waits until a receive would not wait, and takes nothing.
    pub fn poll_ready(&mut self, context: &Context<'_>) -> Poll<()> {
        self.packet().poll_at(context, RECEIVE).map(|_| ())
    }

    /// For a readiness loop: answers whether there is something to receive, and if not, has this
    /// waker woken once when there is.
    pub fn arm(&mut self, waker: &Waker) -> bool {
        self.poll_ready(&Context::from_waker(waker)).is_ready()
    }

    /// Waits for a message. Dropped before it is done, it has taken nothing.
    pub async fn recv(&mut self) -> Result<T, Closed> {
        poll_fn(|context| self.poll_recv(context)).await
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
    pub fn recv_blocking(&mut self) -> Result<T, Closed> {
        let found = self.packet().wait(None, RECEIVE);
        self.take(found.expect("without a deadline the wait ends with a message"))
    }

    /// Waits for a message until this time, the thread sleeping if need be.
    pub fn recv_deadline_blocking(&mut self, deadline: Instant) -> Result<T, TryRecvError> {
        match self.packet().wait(Some(deadline), RECEIVE) {
            Some(found) => self.take(found).map_err(TryRecvError::Closed),
            None => Err(TryRecvError::Empty),
        }
    }
}

impl<T> Port for Receiver<T> {
    type Item = T;

    fn poll_port(&mut self, context: &Context<'_>) -> Poll<()> {
        self.poll_ready(context)
    }

    fn awaited(&self) -> Awaited {
        Awaited::Wait(self.packet().awaited(RECEIVE))
    }

    fn take_port(place: &mut Option<Self>) -> Taken<T> {
        match place.as_mut().map(Self::try_recv) {
            Some(Ok(message)) => Taken::Item(message),
            None | Some(Err(TryRecvError::Empty)) => Taken::Nothing,
            Some(Err(TryRecvError::Closed(closed))) => Taken::Closed(closed),
        }
    }
}

impl<T> Place for Receiver<T> {
    fn find(&mut self, context: Option<&Context<'_>>) -> Poll<Found> {
        Found::of(match context {
            Some(context) => self.packet().poll_at(context, RECEIVE),
            None => self.packet().look().map_or(Poll::Pending, Poll::Ready),
        })
    }
}

impl<T> TakeHeld for Receiver<T> {
    type Message = T;

    fn take_selected(&mut self) -> Result<T, Closed> {
        self.try_recv().map_err(|error| match error {
            TryRecvError::Closed(closed) => closed,
            TryRecvError::Empty => unreachable!("what was found stays until it is taken"),
        })
    }
}

/// # Safety
/// A `T` lies there, and nobody uses it afterwards.
unsafe fn discard<T>(slot: *mut u8) {
    // SAFETY: the caller's promise.
    unsafe { slot.cast::<T>().drop_in_place() };
}

impl<T> Held for Sender<T> {
    fn ends(&self) -> [Option<End>; 2] {
        [Some(self.packet().end()), None]
    }
}

impl<T> Held for Receiver<T> {
    fn ends(&self) -> [Option<End>; 2] {
        [Some(self.packet().end()), None]
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        let (packet, panicked) = (self.packet(), thread::panicking());
        wait_graph::forget(|| packet.end());
        // SAFETY: the last that is done with this side. Only a message on offer lies in the slot.
        unsafe {
            match self.stage {
                Stage::Offered => packet.leave_behind(RECEIVER, discard::<T>, panicked),
                Stage::Free | Stage::Closed(..) => packet.leave(None, panicked),
            }
        }
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        wait_graph::forget(|| self.packet().end());
        // SAFETY: the last that is done with this side; what lies in the slot is a `T`.
        unsafe {
            self.packet()
                .leave_behind(RECEIVER, discard::<T>, thread::panicking());
        }
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
