//! Receiving, in two steps that any executor, a blocking thread or a plain loop can take.
//!
//! *Ready* takes nothing, so a wait that is given up loses nothing. *Taking* consumes the endpoint
//! and gives the message, with the next endpoint in it. [`Recv`] is both in one; dropping it before
//! it is done closes the session, as dropping any endpoint does.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use crate::closed::{Closed, Unreceived};
use crate::session::{Link, Side, State};
use crate::timer::Deadline;
use crate::wait_graph::End;

/// One side of a session in one state.
pub trait Endpoint: Sized {
    /// The other side in the same state.
    type Dual: Endpoint<Dual = Self>;
    /// The protocol's name.
    const PROTOCOL: &'static str;
    /// The state's name.
    const STATE: &'static str;
    #[doc(hidden)]
    fn end(&self) -> Option<End>;
}

/// An endpoint whose side receives next.
pub trait Receive: Endpoint {
    /// What can come: the state's messages, each with the endpoint that follows.
    type Message;
    #[doc(hidden)]
    type State: State;
    #[doc(hidden)]
    type Side: Side;
    #[doc(hidden)]
    fn link(&self) -> &Link<Self::State, Self::Side>;
    #[doc(hidden)]
    fn link_mut(&mut self) -> &mut Link<Self::State, Self::Side>;
    #[doc(hidden)]
    fn into_link(self) -> Link<Self::State, Self::Side>;
    #[doc(hidden)]
    fn message(
        wire: <Self::State as State>::Wire,
        link: Link<Self::State, Self::Side>,
    ) -> Self::Message;
}

/// Takes what was found.
#[inline]
fn take<E: Receive>(endpoint: E) -> E::Message {
    let mut link = endpoint.into_link();
    let wire = link.take();
    E::message(wire, link)
}

/// Takes what there is; an endpoint for which nothing has come is given back.
#[inline]
pub fn try_recv<E: Receive>(endpoint: E) -> Result<E::Message, Unreceived<E>> {
    match endpoint.link().look() {
        Some(Ok(())) => Ok(take(endpoint)),
        Some(Err(why)) => Err(Unreceived::Closed(Link::<E::State, E::Side>::closed_error(
            why,
        ))),
        None => Err(Unreceived::Pending(endpoint)),
    }
}

/// Whether a receive would not wait.
#[inline]
pub fn is_ready<E: Receive>(endpoint: &E) -> bool {
    endpoint.link().look().is_some()
}

/// For a readiness loop: answers whether there is something to receive, and if not, has this waker
/// woken once when there is.
#[inline]
pub fn arm<E: Receive>(endpoint: &mut E, waker: &Waker) -> bool {
    poll_ready(endpoint, &Context::from_waker(waker)).is_ready()
}

/// The same for a poll function.
#[inline]
pub fn poll_ready<E: Receive>(endpoint: &mut E, context: &Context<'_>) -> Poll<()> {
    endpoint.link_mut().poll(context).map(|_| ())
}

/// Waits, the thread sleeping if need be.
#[inline]
pub fn recv_blocking<E: Receive>(endpoint: E) -> Result<E::Message, Closed> {
    wait_blocking(endpoint, None).map_err(|unreceived| match unreceived {
        Unreceived::Closed(closed) => closed,
        Unreceived::Pending(_) => unreachable!("without a deadline the wait ends with a message"),
    })
}

/// Waits until this time at the latest, the thread sleeping if need be.
pub fn recv_deadline_blocking<E: Receive>(
    endpoint: E,
    deadline: Instant,
) -> Result<E::Message, Unreceived<E>> {
    wait_blocking(endpoint, Some(deadline))
}

/// Waits for so long at most, the thread sleeping if need be. A time beyond what the clock can
/// count is no deadline.
pub fn recv_timeout_blocking<E: Receive>(
    endpoint: E,
    timeout: Duration,
) -> Result<E::Message, Unreceived<E>> {
    wait_blocking(endpoint, Instant::now().checked_add(timeout))
}

fn wait_blocking<E: Receive>(
    mut endpoint: E,
    deadline: Option<Instant>,
) -> Result<E::Message, Unreceived<E>> {
    if endpoint.link().look().is_none() {
        endpoint.link_mut().wait(deadline);
    }
    try_recv(endpoint)
}

/// Waits until there is something to receive, and takes nothing. Dropping it loses nothing.
#[derive(Debug)]
#[must_use = "futures do nothing unless awaited"]
pub struct Ready<'a, E: Receive>(&'a mut E);

impl<'a, E: Receive> Ready<'a, E> {
    /// The wait of this endpoint.
    pub fn new(endpoint: &'a mut E) -> Self {
        Self(endpoint)
    }
}

impl<E: Receive> Future for Ready<'_, E> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        poll_ready(self.0, context)
    }
}

/// Waits for a message and takes it. Dropped before, it closes the session: to wait and give up use
/// `ready`, or a deadline.
#[derive(Debug)]
#[must_use = "futures do nothing unless awaited"]
pub struct Recv<E>(Option<E>);

impl<E: Receive> Recv<E> {
    /// The receive of this endpoint.
    #[inline]
    pub fn new(endpoint: E) -> Self {
        Self(Some(endpoint))
    }
}

impl<E: Receive> Unpin for Recv<E> {}

impl<E: Receive> Future for Recv<E> {
    type Output = Result<E::Message, Closed>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let endpoint = self.0.as_mut().expect("polled after it was done");
        match endpoint.link_mut().poll(context) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(found) => {
                let endpoint = self.0.take().expect("it was there");
                Poll::Ready(match found {
                    Ok(()) => Ok(take(endpoint)),
                    Err(why) => Err(Link::<E::State, E::Side>::closed_error(why)),
                })
            }
        }
    }
}

/// Waits for a message until a certain time; when that comes first, the endpoint is given back.
#[derive(Debug)]
#[must_use = "futures do nothing unless awaited"]
pub struct RecvDeadline<E> {
    endpoint: Option<E>,
    deadline: Deadline,
}

impl<E: Receive> RecvDeadline<E> {
    /// Until this time.
    pub fn at(endpoint: E, deadline: Instant) -> Self {
        Self {
            endpoint: Some(endpoint),
            deadline: Deadline::new(deadline),
        }
    }

    /// For so long from now. A time beyond what the clock can count is no deadline.
    pub fn after(endpoint: E, timeout: Duration) -> Self {
        Self {
            endpoint: Some(endpoint),
            deadline: Deadline::after(timeout),
        }
    }
}

impl<E: Receive> Unpin for RecvDeadline<E> {}

impl<E: Receive> Future for RecvDeadline<E> {
    type Output = Result<E::Message, Unreceived<E>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let endpoint = self.endpoint.as_mut().expect("polled after it was done");
        if poll_ready(endpoint, context).is_pending() && self.deadline.poll(context).is_pending() {
            return Poll::Pending;
        }
        let endpoint = self.endpoint.take().expect("it was there");
        Poll::Ready(try_recv(endpoint))
    }
}
