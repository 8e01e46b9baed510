//! One message, once: `proto!`'s `oneshot: send { Value(T) -> ! }` without a name for it.

use std::alloc::Layout;
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::pin::Pin;
use std::ptr::NonNull;
use std::task::{Context, Poll};
use std::thread;
use std::time::{Duration, Instant};

use crate::closed::{At, Closed, Unreceived, Unsent, Why};
use crate::packet::Packet;
use crate::receive::Endpoint;
use crate::timer::Deadline;
use crate::wait_graph::{self, End};

const SENDER: usize = 0;
const RECEIVER: usize = 1;

/// Opens a channel for one message.
///
/// ```
/// let (sender, receiver) = session_channels::oneshot();
/// std::thread::spawn(move || sender.send("done").expect("somebody waits"));
/// assert_eq!(receiver.recv_blocking(), Ok("done"));
/// ```
///
/// A message that is to be aligned to more than 16 bytes goes in a box:
///
/// ```compile_fail,E0080
/// #[repr(align(64))]
/// struct Line([u8; 64]);
///
/// let (sender, _receiver) = session_channels::oneshot();
/// sender.send(Line([0; 64]));
/// ```
pub fn oneshot<T>() -> (Sender<T>, Receiver<T>) {
    let at = Packet::allocate(Layout::new::<T>(), SENDER, false);
    let sender = Sender {
        at,
        ends: PhantomData,
    };
    let receiver = Receiver {
        at: Some(at),
        ends: PhantomData,
    };
    (sender, receiver)
}

/// Sends the message: a `T` and nothing that lives shorter, as the receiver would go on with it.
///
/// ```compile_fail,E0597
/// let (sender, receiver) = session_channels::oneshot::<&'static str>();
/// {
///     let local = String::from("gone");
///     let sender: session_channels::oneshot::Sender<&str> = sender;
///     sender.send(&local);
/// }
/// receiver.recv_blocking();
/// ```
#[must_use = "dropping it tells the receiver that nothing will come"]
pub struct Sender<T> {
    at: NonNull<()>,
    ends: PhantomData<fn(T) -> T>,
}

/// Receives the message: a future of it, and all the other ways to wait.
#[must_use = "dropping it gives the message back to the sender"]
pub struct Receiver<T> {
    /// `None` once the message was taken.
    at: Option<NonNull<()>>,
    ends: PhantomData<T>,
}

// SAFETY: a side is one end of a way for one `T`.
unsafe impl<T: Send> Send for Sender<T> {}
// SAFETY: as above; shared, it only looks.
unsafe impl<T: Send> Sync for Sender<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Send for Receiver<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Receiver<T> {}

impl<T> Endpoint for Sender<T> {
    type Dual = Receiver<T>;
    const PROTOCOL: &'static str = "oneshot";
    const STATE: &'static str = "value";
    fn end(&self) -> Option<End> {
        Some(self.packet().end())
    }
}

impl<T> Endpoint for Receiver<T> {
    type Dual = Sender<T>;
    const PROTOCOL: &'static str = "oneshot";
    const STATE: &'static str = "value";
    fn end(&self) -> Option<End> {
        self.packet().map(|packet| packet.end())
    }
}

const AT: &At = &At {
    protocol: "oneshot",
    state: "value",
};

fn closed(why: Why) -> Closed {
    Closed::new(AT, why)
}

impl<T> Sender<T> {
    #[inline]
    fn packet(&self) -> Packet {
        // SAFETY: this side has not left.
        unsafe { Packet::at(self.at, SENDER, false) }
    }

    /// Sends; a receiver that is gone gives the message back.
    #[inline]
    pub fn send(self, message: T) -> Result<(), Unsent<T>> {
        let packet = ManuallyDrop::new(self).packet();
        wait_graph::forget(|| packet.end());
        // SAFETY: the turn is the sender's, and this side is not used again.
        unsafe { packet.send_last(message) }.map_err(|(message, why)| Unsent {
            message,
            closed: closed(why),
        })
    }

    /// Whether the receiver is gone.
    pub fn is_closed(&self) -> bool {
        self.packet().is_peer_closed()
    }
}

impl<T> Receiver<T> {
    #[inline]
    fn packet(&self) -> Option<Packet> {
        // SAFETY: this side has not left.
        self.at.map(|at| unsafe { Packet::at(at, RECEIVER, false) })
    }

    #[inline]
    fn take(&mut self, found: Result<(), Why>) -> Result<T, Closed> {
        let Some(at) = self.at.take() else {
            return Err(closed(Why::Finished));
        };
        // SAFETY: this side leaves here.
        let packet = unsafe { Packet::at(at, RECEIVER, false) };
        wait_graph::forget(|| packet.end());
        let message = match found {
            // SAFETY: it was found, and the sender sends `T`.
            Ok(()) => Ok(unsafe { packet.take::<T>() }),
            Err(why) => Err(closed(why)),
        };
        // SAFETY: this side is not used again; the message was taken.
        unsafe { packet.leave(None, false) };
        message
    }

    #[inline]
    fn look(&self) -> Option<Result<(), Why>> {
        self.packet()
            .map_or(Some(Err(Why::Finished)), |packet| packet.look())
    }

    #[inline]
    fn poll_found(&self, context: &Context<'_>) -> Poll<Result<(), Why>> {
        match self.packet() {
            Some(packet) => packet.poll_at(context, AT),
            None => Poll::Ready(Err(Why::Finished)),
        }
    }

    /// Takes the message if it has come.
    pub fn try_recv(mut self) -> Result<T, Unreceived<Self>> {
        match self.look() {
            Some(found) => self.take(found).map_err(Unreceived::Closed),
            None => Err(Unreceived::Pending(self)),
        }
    }

    /// Waits for the message, the thread sleeping if need be.
    pub fn recv_blocking(mut self) -> Result<T, Closed> {
        let found = self
            .wait(None)
            .expect("without a deadline the wait ends with a message");
        self.take(found)
    }

    /// Waits for the message until this time, the thread sleeping if need be.
    pub fn recv_deadline_blocking(mut self, deadline: Instant) -> Result<T, Unreceived<Self>> {
        match self.wait(Some(deadline)) {
            Some(found) => self.take(found).map_err(Unreceived::Closed),
            None => Err(Unreceived::Pending(self)),
        }
    }

    /// Waits for the message for so long; the receiver is given back if it does not come.
    pub async fn recv_timeout(self, timeout: Duration) -> Result<T, Unreceived<Self>> {
        let mut deadline = Deadline::after(timeout);
        std::future::poll_fn(|context| {
            if self.poll_found(context).is_ready() {
                Poll::Ready(())
            } else {
                deadline.poll(context)
            }
        })
        .await;
        self.try_recv()
    }

    fn wait(&self, deadline: Option<Instant>) -> Option<Result<(), Why>> {
        let Some(packet) = self.packet() else {
            return Some(Err(Why::Finished));
        };
        packet.wait(deadline, AT)
    }
}

impl<T> Unpin for Receiver<T> {}

impl<T> Future for Receiver<T> {
    type Output = Result<T, Closed>;

    /// Polled again after it was ready, it says that the session has finished.
    #[inline]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match self.poll_found(context) {
            Poll::Ready(found) => Poll::Ready(self.take(found)),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        wait_graph::forget(|| self.packet().end());
        // SAFETY: the last that is done with this side; nothing comes for it.
        unsafe { self.packet().leave(None, thread::panicking()) };
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        if let Some(packet) = self.packet() {
            wait_graph::forget(|| packet.end());
            // SAFETY: the last that is done with this side; what has come is a `T`.
            unsafe {
                let discard: unsafe fn(*mut u8) = |slot| slot.cast::<T>().drop_in_place();
                packet.leave(Some(discard), thread::panicking());
            }
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
