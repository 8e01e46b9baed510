//! A link that sends: at once where there is always room, else when there is.

use std::mem::ManuallyDrop;
use std::task::{Context, Poll, Waker};

use super::{Link, Next, Shape, Side, State};
use crate::closed::{Closed, TrySend, Unsent, Why};
use crate::wait_graph::{self, What};

/// A link that could not send because there was no room, or because nobody is there.
#[derive(Debug)]
pub enum TrySendLink<S: State, R: Side> {
    /// Link and message are given back.
    Full(Link<S, R>, S::Wire),
    /// The message is given back.
    Closed(S::Wire, Closed),
}

impl<S: State, R: Side> Link<S, R> {
    /// Sends without waiting, for which there is always room; a closed peer gives the message back.
    /// The link of the next state then only reports the end.
    #[inline]
    #[allow(
        clippy::type_complexity,
        reason = "taken apart by generated code at once"
    )]
    pub fn send<N: State>(
        self,
        wire: S::Wire,
    ) -> Result<Link<N, R>, (S::Wire, Link<N, R>, Closed)> {
        let sent = match S::SHAPE {
            // SAFETY: it is this side's turn in a state that sends, and the sides agree on it.
            Shape::Packet { sides_waiting } => unsafe { self.packet(sides_waiting).send(wire) },
            Shape::Rings { .. } => self.push(wire),
        };
        match sent {
            Ok(()) => Ok(self.step()),
            Err((wire, why)) => Err((wire, self.step(), Self::closed(why))),
        }
    }

    /// [`send`](Self::send); what a closed peer does not take is dropped, and the next state says
    /// so.
    #[inline]
    pub fn send_anyway<N: State>(self, wire: S::Wire) -> Link<N, R> {
        match self.send(wire) {
            Ok(link) | Err((_, link, _)) => link,
        }
    }

    /// Sends the session's last message.
    #[inline]
    pub fn send_last(self, wire: S::Wire) -> Result<(), (S::Wire, Closed)> {
        wait_graph::forget(|| self.end());
        let sent = match S::SHAPE {
            Shape::Packet { sides_waiting } => {
                let packet = ManuallyDrop::new(self).packet(sides_waiting);
                // SAFETY: as for `send`, and the link is not used again.
                unsafe { packet.send_last(wire) }
            }
            Shape::Rings {
                to_server,
                to_client,
            } => {
                let link = ManuallyDrop::new(self);
                let sent = link.push(wire);
                // SAFETY: the link is not used again; nothing comes for a side that sends.
                unsafe { link.leave_rings(to_server, to_client, Why::Finished, Next::TURN) };
                sent
            }
        };
        sent.map_err(|(wire, why)| (wire, Self::closed(why)))
    }

    #[inline]
    fn push(&self, wire: S::Wire) -> Result<(), (S::Wire, Why)> {
        let ring = self.outgoing();
        // A wait for room ends also when nobody is there, and then there may be none.
        if let Some(capacity) = S::CAPACITY
            && let Some(Err(why)) = ring.look(capacity)
        {
            return Err((wire, why));
        }
        // SAFETY: there is room: a state with a capacity has waited for it, and the protocol has
        // slots for all that can be sent without waiting.
        unsafe { ring.push(wire, ring.stride()) }
    }

    fn limit() -> u32 {
        S::CAPACITY.unwrap_or(u32::MAX)
    }

    /// Whether a send would not wait; an end is no reason to wait.
    #[inline]
    pub fn has_room(&self) -> bool {
        match S::SHAPE {
            Shape::Packet { .. } => true,
            Shape::Rings { .. } => self.outgoing().look(Self::limit()).is_some(),
        }
    }

    /// Like [`has_room`](Self::has_room), and has the task woken when there is.
    #[inline]
    pub fn poll_room(&mut self, context: &Context<'_>) -> Poll<()> {
        match S::SHAPE {
            Shape::Packet { .. } => Poll::Ready(()),
            Shape::Rings { .. } => {
                let ring = self.outgoing();
                let polled = ring.poll(Self::limit(), context).map(|_| ());
                let wait = || self.wait_for(What::Room(ring, Self::limit()));
                wait_graph::noted(polled, context, wait)
            }
        }
    }

    /// For a readiness loop: whether there is room, and if not, this waker is woken once when there
    /// is.
    pub fn arm_room(&mut self, waker: &Waker) -> bool {
        match S::SHAPE {
            Shape::Packet { .. } => true,
            Shape::Rings { .. } => {
                let context = Context::from_waker(waker);
                self.outgoing()
                    .poll_at_once(Self::limit(), &context)
                    .is_ready()
            }
        }
    }

    /// Sends when there is room.
    #[inline]
    pub async fn send_wait<N: State>(
        mut self,
        wire: S::Wire,
    ) -> Result<Link<N, R>, (S::Wire, Closed)> {
        std::future::poll_fn(|context| self.poll_room(context)).await;
        self.send(wire).map_err(|(wire, _, closed)| (wire, closed))
    }

    /// Sends the last message when there is room.
    #[inline]
    pub async fn send_wait_last(mut self, wire: S::Wire) -> Result<(), (S::Wire, Closed)> {
        std::future::poll_fn(|context| self.poll_room(context)).await;
        self.send_last(wire)
    }

    fn wait_for_room(&mut self) {
        if !self.has_room() {
            let (ring, limit) = (self.outgoing(), Self::limit());
            ring.wait(limit, self.wait_for(What::Room(ring, limit)));
        }
    }

    /// Sends when there is room; the thread waits.
    pub fn send_blocking<N: State>(
        mut self,
        wire: S::Wire,
    ) -> Result<Link<N, R>, (S::Wire, Closed)> {
        self.wait_for_room();
        self.send(wire).map_err(|(wire, _, closed)| (wire, closed))
    }

    /// Sends the last message when there is room; the thread waits.
    pub fn send_blocking_last(mut self, wire: S::Wire) -> Result<(), (S::Wire, Closed)> {
        self.wait_for_room();
        self.send_last(wire)
    }

    /// Sends if there is room.
    #[inline]
    pub fn try_send<N: State>(self, wire: S::Wire) -> Result<Link<N, R>, TrySendLink<S, R>> {
        if !self.has_room() {
            return Err(TrySendLink::Full(self, wire));
        }
        self.send(wire)
            .map_err(|(wire, _, closed)| TrySendLink::Closed(wire, closed))
    }

    /// Sends the last message if there is room.
    pub fn try_send_last(self, wire: S::Wire) -> Result<(), TrySendLink<S, R>> {
        if !self.has_room() {
            return Err(TrySendLink::Full(self, wire));
        }
        self.send_last(wire)
            .map_err(|(wire, closed)| TrySendLink::Closed(wire, closed))
    }
}

/// Sending as endpoints do: `next` makes the endpoint that follows, `back` gives the arguments of a
/// message that was not taken.
impl<S: State, R: Side> Link<S, R> {
    /// [`send`](Self::send).
    #[inline]
    pub fn give<N: State, E, M>(
        self,
        wire: S::Wire,
        next: fn(Link<N, R>) -> E,
        back: fn(S::Wire) -> M,
    ) -> Result<E, Unsent<M>> {
        self.send(wire)
            .map(next)
            .map_err(|(wire, _, closed)| unsent(wire, closed, back))
    }

    /// [`send_last`](Self::send_last).
    #[inline]
    pub fn give_last<M>(self, wire: S::Wire, back: fn(S::Wire) -> M) -> Result<(), Unsent<M>> {
        self.send_last(wire)
            .map_err(|(wire, closed)| unsent(wire, closed, back))
    }

    /// [`send_wait`](Self::send_wait).
    #[inline]
    pub async fn give_wait<N: State, E, M>(
        self,
        wire: S::Wire,
        next: fn(Link<N, R>) -> E,
        back: fn(S::Wire) -> M,
    ) -> Result<E, Unsent<M>> {
        let sent = self.send_wait(wire).await;
        sent.map(next)
            .map_err(|(wire, closed)| unsent(wire, closed, back))
    }

    /// [`send_wait_last`](Self::send_wait_last).
    #[inline]
    pub async fn give_wait_last<M>(
        self,
        wire: S::Wire,
        back: fn(S::Wire) -> M,
    ) -> Result<(), Unsent<M>> {
        let sent = self.send_wait_last(wire).await;
        sent.map_err(|(wire, closed)| unsent(wire, closed, back))
    }

    /// [`send_blocking`](Self::send_blocking).
    #[inline]
    pub fn give_blocking<N: State, E, M>(
        self,
        wire: S::Wire,
        next: fn(Link<N, R>) -> E,
        back: fn(S::Wire) -> M,
    ) -> Result<E, Unsent<M>> {
        self.send_blocking(wire)
            .map(next)
            .map_err(|(wire, closed)| unsent(wire, closed, back))
    }

    /// [`send_blocking_last`](Self::send_blocking_last).
    #[inline]
    pub fn give_blocking_last<M>(
        self,
        wire: S::Wire,
        back: fn(S::Wire) -> M,
    ) -> Result<(), Unsent<M>> {
        self.send_blocking_last(wire)
            .map_err(|(wire, closed)| unsent(wire, closed, back))
    }

    /// [`try_send`](Self::try_send); `same` makes the endpoint that this is.
    #[inline]
    pub fn try_give<N: State, E, F, M>(
        self,
        wire: S::Wire,
        same: fn(Self) -> F,
        next: fn(Link<N, R>) -> E,
        back: fn(S::Wire) -> M,
    ) -> Result<E, TrySend<F, M>> {
        self.try_send(wire)
            .map(next)
            .map_err(|not| not.given(same, back))
    }

    /// [`try_send_last`](Self::try_send_last); `same` makes the endpoint that this is.
    #[inline]
    pub fn try_give_last<F, M>(
        self,
        wire: S::Wire,
        same: fn(Self) -> F,
        back: fn(S::Wire) -> M,
    ) -> Result<(), TrySend<F, M>> {
        self.try_send_last(wire)
            .map_err(|not| not.given(same, back))
    }
}

impl<S: State, R: Side> TrySendLink<S, R> {
    #[inline]
    fn given<F, M>(self, same: fn(Link<S, R>) -> F, back: fn(S::Wire) -> M) -> TrySend<F, M> {
        match self {
            Self::Full(link, wire) => TrySend::Full(same(link), back(wire)),
            Self::Closed(wire, closed) => TrySend::Closed(unsent(wire, closed, back)),
        }
    }
}

#[inline]
fn unsent<W, M>(wire: W, closed: Closed, back: fn(W) -> M) -> Unsent<M> {
    let message = back(wire);
    Unsent { message, closed }
}
