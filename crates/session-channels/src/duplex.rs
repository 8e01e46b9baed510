//! Two streams, one in each direction, as one value.

use std::time::{Duration, Instant};

use crate::closed::{Closed, Unsent};
use crate::debug::Held;
use crate::stream::{Receiver, Sender, TryRecvError, TrySendError, stream};
use crate::wait_graph::End;

/// Opens two streams against each other. Each side can have `capacity` messages on their way.
///
/// # Panics
/// If `capacity` is 0 or more than 65,536, or the memory cannot be had.
///
/// ```
/// let (mut here, mut there) = session_channels::duplex::<u32, String>(8);
/// std::thread::spawn(move || {
///     while let Ok(n) = there.recv_blocking() {
///         there.send_blocking(n.to_string()).expect("who asks wants to know");
///     }
/// });
/// here.send_blocking(7).expect("somebody answers");
/// assert_eq!(here.recv_blocking().as_deref(), Ok("7"));
/// ```
pub fn duplex<S, R>(capacity: u32) -> (Duplex<S, R>, Duplex<R, S>) {
    let ((to_there, at_there), (to_here, at_here)) = (stream(capacity), stream(capacity));
    (
        Duplex::join(to_there, at_here),
        Duplex::join(to_here, at_there),
    )
}

/// One side: sends `S`, receives `R`.
#[derive(Debug)]
pub struct Duplex<S, R> {
    sender: Sender<S>,
    receiver: Receiver<R>,
}

impl<S, R> Duplex<S, R> {
    /// One side of any two streams.
    pub fn join(sender: Sender<S>, receiver: Receiver<R>) -> Self {
        Self { sender, receiver }
    }

    /// The two directions, for two tasks.
    pub fn split(self) -> (Sender<S>, Receiver<R>) {
        (self.sender, self.receiver)
    }

    /// The two directions, for two things at once.
    pub fn both(&mut self) -> (&mut Sender<S>, &mut Receiver<R>) {
        (&mut self.sender, &mut self.receiver)
    }

    /// See [`Sender::try_send`].
    pub fn try_send(&mut self, message: S) -> Result<(), TrySendError<S>> {
        self.sender.try_send(message)
    }

    /// See [`Sender::send`].
    pub async fn send(&mut self, message: S) -> Result<(), Unsent<S>> {
        self.sender.send(message).await
    }

    /// See [`Sender::send_blocking`].
    pub fn send_blocking(&mut self, message: S) -> Result<(), Unsent<S>> {
        self.sender.send_blocking(message)
    }

    /// See [`Receiver::try_recv`].
    pub fn try_recv(&mut self) -> Result<R, TryRecvError> {
        self.receiver.try_recv()
    }

    /// See [`Receiver::recv`].
    pub async fn recv(&mut self) -> Result<R, Closed> {
        self.receiver.recv().await
    }

    /// See [`Receiver::recv_timeout`].
    pub async fn recv_timeout(&mut self, timeout: Duration) -> Result<R, TryRecvError> {
        self.receiver.recv_timeout(timeout).await
    }

    /// See [`Receiver::recv_blocking`].
    pub fn recv_blocking(&mut self) -> Result<R, Closed> {
        self.receiver.recv_blocking()
    }

    /// See [`Receiver::recv_deadline_blocking`].
    pub fn recv_deadline_blocking(&mut self, deadline: Instant) -> Result<R, TryRecvError> {
        self.receiver.recv_deadline_blocking(deadline)
    }
}

impl<S, R> Held for Duplex<S, R> {
    fn ends(&self) -> [Option<End>; 2] {
        let ([sender, _], [receiver, _]) = (self.sender.ends(), self.receiver.ends());
        [sender, receiver]
    }
}
