//! What a protocol is to the channels, and one side's hold on a session of it.
//!
//! [`proto!`](crate::proto) writes the implementations; nobody else does. They are safe to name and
//! not safe to get wrong: that two endpoints of one session always agree on the state is what the
//! macro guarantees and everything here relies on.
//!
//! A session is one of two things in memory, decided by the protocol's shape at compile time: a
//! [packet](crate::packet) when the sides take turns, [rings](crate::ring) when one side may send
//! several messages in a row.

use std::alloc::Layout;
use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::task::{Context, Poll};
use std::thread;
use std::time::Instant;

use crate::closed::{At, Closed, Why};
use crate::packet::Packet;
use crate::ring::{Receiving, Ring, Sending};
use crate::wait_graph::{self, End, Wait, What};

/// A side of a session.
pub trait Side: sealed::Side + 'static {
    /// The side it talks to.
    type Other: Side;
    #[doc(hidden)]
    const INDEX: usize;
}

/// The side that a protocol is written from.
#[derive(Debug)]
pub enum Client {}

/// The side that answers.
#[derive(Debug)]
pub enum Server {}

impl Side for Client {
    type Other = Server;
    const INDEX: usize = 0;
}

impl Side for Server {
    type Other = Client;
    const INDEX: usize = 1;
}

mod sending;

pub use sending::TrySendLink;

mod sealed {
    #[allow(unnameable_types, reason = "there are two sides and no more")]
    pub trait Side {}
    impl Side for super::Client {}
    impl Side for super::Server {}
}

/// How many messages of a protocol can be on their way, and so what its sessions are made of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shape {
    /// One at a time.
    Packet {
        /// 1 if only one message is ever sent, 2 if both sides send.
        sides_waiting: u8,
    },
    /// Several in a row: slots for each direction, 0 where nothing goes.
    Rings {
        /// From client to server.
        to_server: u32,
        /// From server to client.
        to_client: u32,
    },
}

/// One state of a protocol.
pub trait State: Sized {
    /// Its messages, without the endpoints that come behind.
    type Wire;
    /// The side that sends in it.
    type Sender: Side;
    /// The protocol's name.
    const PROTOCOL: &'static str;
    /// The state's name.
    const NAME: &'static str;
    /// The protocol's shape.
    const SHAPE: Shape;
    /// How many messages may be on their way before a send of this state waits.
    const CAPACITY: Option<u32>;
    /// What follows a message in the same direction.
    fn next(wire: &Self::Wire) -> Next;
}

/// The state whose messages follow one in the same direction, if any do.
#[derive(Clone, Copy)]
pub struct Next(Option<unsafe fn(*mut u8) -> Self>);

impl Next {
    /// The other side's turn, or the end.
    pub const TURN: Self = Self(None);

    /// This state.
    pub fn new<S: State>() -> Self {
        Self(Some(discard::<S>))
    }
}

impl fmt::Debug for Next {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Next").field(&self.0.is_some()).finish()
    }
}

/// Drops a message where it lies.
///
/// # Safety
/// A message of state `S` lies there, and nobody uses it afterwards.
unsafe fn discard<S: State>(slot: *mut u8) -> Next {
    // SAFETY: the caller's promise.
    let wire = unsafe { slot.cast::<S::Wire>().read() };
    S::next(&wire)
}

/// # Safety
/// As for [`discard`].
unsafe fn discard_only<S: State>(slot: *mut u8) {
    // SAFETY: the caller's promise.
    unsafe { slot.cast::<S::Wire>().drop_in_place() };
}

/// Opens a session: both sides' links to its first state. `Slots` is as large and as aligned as the
/// largest message of any state.
pub fn open<S: State, Slots>() -> (Link<S, Client>, Link<S, Server>) {
    let message = Layout::new::<Slots>();
    let at = match S::SHAPE {
        Shape::Packet { sides_waiting } => {
            Packet::allocate(message, S::Sender::INDEX, sides_waiting == 2)
        }
        Shape::Rings {
            to_server,
            to_client,
        } => {
            let ring = |slots| (slots > 0).then(|| Ring::allocate(slots, message));
            match (ring(to_server), ring(to_client)) {
                (Some(first), Some(second)) => {
                    // SAFETY: the client sends into the first; nobody has left.
                    unsafe { Sending::at(first) }.set_partner(second);
                    first.cast()
                }
                (Some(only), None) | (None, Some(only)) => only.cast(),
                (None, None) => unreachable!("messages go in one direction at least"),
            }
        }
    };
    (Link::new(at), Link::new(at))
}

/// One side's hold on a session in state `S`. Dropping it closes the session.
pub struct Link<S: State, R: Side> {
    at: NonNull<()>,
    /// Neither side may see a type's lifetime as shorter or longer than the other does.
    state: PhantomData<fn(S) -> S>,
    side: PhantomData<R>,
}

// SAFETY: what one side writes into the shared memory is published by release and acquire before
// the other reads it, and each side's own part is only touched through the one link. The state
// carries the auto traits of all messages that can still come.
unsafe impl<S: State + Send, R: Side> Send for Link<S, R> {}

// SAFETY: a shared link only looks whether something has come.
unsafe impl<S: State + Send, R: Side> Sync for Link<S, R> {}

impl<S: State, R: Side> fmt::Debug for Link<S, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", S::PROTOCOL, S::NAME)
    }
}

impl<S: State, R: Side> Link<S, R> {
    const SENDS: bool = S::Sender::INDEX == R::INDEX;

    fn new(at: NonNull<()>) -> Self {
        Self {
            at,
            state: PhantomData,
            side: PhantomData,
        }
    }

    /// The same session in the state that follows.
    #[inline]
    pub fn step<N: State>(self) -> Link<N, R> {
        Link::new(ManuallyDrop::new(self).at)
    }

    const AT: &'static At = &At {
        protocol: S::PROTOCOL,
        state: S::NAME,
    };

    #[inline]
    fn closed(why: Why) -> Closed {
        Closed::new(Self::AT, why)
    }

    #[inline]
    fn packet(&self, sides_waiting: u8) -> Packet {
        // SAFETY: the shape says that it is one, and a link has not left.
        unsafe { Packet::at(self.at, R::INDEX, sides_waiting == 2) }
    }

    /// The ring this side sends into, if the protocol has one.
    #[inline]
    fn sending(&self, to_server: u32, to_client: u32) -> Option<Sending> {
        let slots = if R::INDEX == 0 { to_server } else { to_client };
        let at = self.ring(slots, R::INDEX == 0, to_server)?;
        // SAFETY: of the two sides it is this one that sends there, and a link has not left.
        Some(unsafe { Sending::at(at) })
    }

    /// The ring this side receives from, if the protocol has one.
    #[inline]
    fn receiving(&self, to_server: u32, to_client: u32) -> Option<Receiving> {
        let slots = if R::INDEX == 0 { to_client } else { to_server };
        let at = self.ring(slots, R::INDEX == 1, to_server)?;
        // SAFETY: of the two sides it is this one that receives there, and a link has not left.
        Some(unsafe { Receiving::at(at) })
    }

    #[inline]
    fn ring(&self, slots: u32, is_to_server: bool, to_server: u32) -> Option<NonNull<Ring>> {
        let first = self.at.cast::<Ring>();
        if slots == 0 {
            None
        } else if is_to_server || to_server == 0 {
            Some(first)
        } else {
            // SAFETY: a link has not left.
            unsafe { Receiving::at(first) }.partner()
        }
    }

    #[inline]
    fn outgoing(&self) -> Sending {
        let Shape::Rings {
            to_server,
            to_client,
        } = S::SHAPE
        else {
            unreachable!("asked for rings only")
        };
        self.sending(to_server, to_client)
            .expect("a state that sends has a ring to send into")
    }

    #[inline]
    fn incoming(&self) -> Receiving {
        let Shape::Rings {
            to_server,
            to_client,
        } = S::SHAPE
        else {
            unreachable!("asked for rings only")
        };
        self.receiving(to_server, to_client)
            .expect("a state that receives has a ring to receive from")
    }

    // ---- receiving

    /// Whether there is a message, or an end, to be taken.
    #[inline]
    pub fn look(&self) -> Option<Result<(), Why>> {
        match S::SHAPE {
            Shape::Packet { sides_waiting } => self.packet(sides_waiting).look(),
            Shape::Rings { .. } => self.incoming().look(),
        }
    }

    /// Like [`look`](Self::look), and has the task woken when there is.
    #[inline]
    pub fn poll(&mut self, context: &Context<'_>) -> Poll<Result<(), Why>> {
        match S::SHAPE {
            Shape::Packet { sides_waiting } => {
                self.packet(sides_waiting).poll_at(context, Self::AT)
            }
            Shape::Rings { .. } => {
                let ring = self.incoming();
                wait_graph::noted(ring.poll(context), context, || self.awaited())
            }
        }
    }

    /// Takes the message that [`look`](Self::look) or [`poll`](Self::poll) has found.
    #[inline]
    pub fn take(&mut self) -> S::Wire {
        debug_assert!(!Self::SENDS && self.look() == Some(Ok(())), "it was found");
        match S::SHAPE {
            // SAFETY: it was found, and the two sides agree on the state.
            Shape::Packet { sides_waiting } => unsafe { self.packet(sides_waiting).take() },
            Shape::Rings { .. } => {
                let ring = self.incoming();
                // SAFETY: as above.
                unsafe { ring.pop(ring.stride()) }
            }
        }
    }

    /// Ends a session whose last message was received.
    #[inline]
    pub fn finish(self) {
        let link = ManuallyDrop::new(self);
        wait_graph::forget(|| link.end());
        match S::SHAPE {
            // SAFETY: the link is not used again.
            Shape::Packet { sides_waiting } => unsafe {
                link.packet(sides_waiting).leave(None, false);
            },
            Shape::Rings {
                to_server,
                to_client,
            } => {
                // SAFETY: as above; the message was the last.
                unsafe { link.leave_rings(to_server, to_client, Why::Finished, Next::TURN) };
            }
        }
    }

    pub(crate) fn closed_error(why: Why) -> Closed {
        Self::closed(why)
    }

    /// The thread waits for what [`look`](Self::look) finds, until this time.
    pub fn wait(&mut self, deadline: Option<Instant>) -> Option<Result<(), Why>> {
        match S::SHAPE {
            Shape::Packet { sides_waiting } => self.packet(sides_waiting).wait(deadline, Self::AT),
            Shape::Rings { .. } => self.incoming().wait(deadline, self.awaited()),
        }
    }

    /// The wait for a message.
    pub(crate) fn awaited(&self) -> Wait {
        let what = match S::SHAPE {
            Shape::Packet { sides_waiting } => What::Turn(self.packet(sides_waiting)),
            Shape::Rings { .. } => What::Message(self.incoming()),
        };
        self.wait_for(what)
    }

    fn wait_for(&self, what: What) -> Wait {
        Wait {
            end: self.end(),
            at: Self::AT,
            what,
        }
    }

    /// By what a wait for this side knows it.
    pub fn end(&self) -> End {
        End::new(self.at, R::INDEX)
    }

    // ---- leaving

    fn is_peer_closed(&self) -> bool {
        match S::SHAPE {
            Shape::Packet { sides_waiting } => self.packet(sides_waiting).is_peer_closed(),
            Shape::Rings { .. } if Self::SENDS => self.outgoing().closed().is_some(),
            Shape::Rings { .. } => self.incoming().is_sender_closed(),
        }
    }

    /// # Safety
    /// The link is not used again. `first` is the state of the first message that may have come.
    unsafe fn leave_rings(&self, to_server: u32, to_client: u32, why: Why, first: Next) {
        let (sending, receiving) = (
            self.sending(to_server, to_client),
            self.receiving(to_server, to_client),
        );
        let leave_sending = || {
            if let Some(ring) = sending {
                // SAFETY: the caller's promise.
                unsafe { ring.leave(why) };
            }
        };
        let leave_receiving = || {
            if let Some(ring) = receiving {
                let mut state = first;
                // SAFETY: the caller's promise; each message says which state follows it.
                unsafe {
                    ring.leave(why, ring.stride(), |slot| {
                        if let Some(discard) = state.0 {
                            state = discard(slot);
                        }
                    });
                }
            }
        };
        // The ring that knows the other one goes last, also when a message panics while dropped.
        if R::INDEX == 0 {
            let _last = AtEnd(leave_sending);
            leave_receiving();
        } else {
            leave_sending();
            leave_receiving();
        }
    }
}

struct AtEnd<F: Fn()>(F);

impl<F: Fn()> Drop for AtEnd<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

impl<S: State, R: Side> Drop for Link<S, R> {
    fn drop(&mut self) {
        wait_graph::forget(|| self.end());
        let panicked = thread::panicking();
        let is_to_blame = !panicked && !self.is_peer_closed();
        match S::SHAPE {
            Shape::Packet { sides_waiting } => {
                let discard: Option<unsafe fn(*mut u8)> = if Self::SENDS {
                    None
                } else {
                    Some(discard_only::<S>)
                };
                // SAFETY: the link is not used again; what has come is of this state.
                unsafe { self.packet(sides_waiting).leave(discard, panicked) };
            }
            Shape::Rings {
                to_server,
                to_client,
            } => {
                let why = if panicked {
                    Why::Panicked
                } else {
                    Why::Dropped
                };
                let first = if Self::SENDS {
                    Next::TURN
                } else {
                    Next::new::<S>()
                };
                // SAFETY: as above.
                unsafe { self.leave_rings(to_server, to_client, why, first) };
            }
        }
        if is_to_blame {
            crate::debug::dropped(S::PROTOCOL, S::NAME);
        }
    }
}
