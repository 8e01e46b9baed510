//! Many receivers as one.
//!
//! A set waits for all its ports and gives the messages as they come, each with the handle of its
//! port. Receiving costs the same however many ports there are: a port is looked at only when its
//! waker has put it into the list of those that have something, and is left there until it was
//! found empty. A port that always has something gives way to the others after 64 messages.

use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use crate::closed::Closed;
use crate::park;
use crate::ready_list::{Member, ReadyList, waker};
use crate::receive::{Receive, poll_ready, try_recv};
use crate::timer::Deadline;
use crate::wait_graph::{self, Awaited};
use crate::{Unreceived, debug, stream};

/// Messages taken from one port before the others are looked at.
const IN_A_ROW: u32 = 64;

/// Something that a set can hold: any receiving endpoint, and a [`stream::Receiver`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be in a set",
    label = "not an endpoint that receives, a stream's receiver, a time, or a `Port` of your own"
)]
pub trait Port: Sized {
    /// What it gives.
    type Item;
    /// Waits until something can be taken, and takes nothing.
    fn poll_port(&mut self, context: &Context<'_>) -> Poll<()>;
    /// Whom it waits for, where this crate knows.
    #[doc(hidden)]
    fn awaited(&self) -> Awaited {
        Awaited::Unknown
    }
    /// Takes it if it is there, out of a place that holds the port; and empties the place if the
    /// port is used up by that.
    fn take_port(place: &mut Option<Self>) -> Taken<Self::Item>;
}

/// What [`Port::take_port`] found.
#[derive(Debug)]
pub enum Taken<T> {
    /// Nothing was there.
    Nothing,
    /// This.
    Item(T),
    /// The other side is gone.
    Closed(Closed),
}

impl<E: Receive> Port for E {
    type Item = E::Message;

    #[inline]
    fn poll_port(&mut self, context: &Context<'_>) -> Poll<()> {
        poll_ready(self, context)
    }

    fn awaited(&self) -> Awaited {
        Awaited::Wait(self.link().awaited())
    }

    #[inline]
    fn take_port(place: &mut Option<Self>) -> Taken<E::Message> {
        let Some(endpoint) = place.take() else {
            return Taken::Nothing;
        };
        match try_recv(endpoint) {
            Ok(message) => Taken::Item(message),
            Err(Unreceived::Pending(endpoint)) => {
                *place = Some(endpoint);
                Taken::Nothing
            }
            Err(Unreceived::Closed(closed)) => Taken::Closed(closed),
        }
    }
}

impl<T> Port for stream::Receiver<T> {
    type Item = T;

    #[inline]
    fn poll_port(&mut self, context: &Context<'_>) -> Poll<()> {
        self.poll_ready(context)
    }

    fn awaited(&self) -> Awaited {
        Awaited::Wait(Self::awaited(self))
    }

    #[inline]
    fn take_port(place: &mut Option<Self>) -> Taken<T> {
        match place.as_mut().map(Self::try_recv) {
            Some(Ok(item)) => Taken::Item(item),
            None | Some(Err(stream::TryRecvError::Empty)) => Taken::Nothing,
            Some(Err(stream::TryRecvError::Closed(closed))) => Taken::Closed(closed),
        }
    }
}

/// What comes next out of a set, with the handle of its port: a message, or that the port's other
/// side is gone. Nothing if the set is empty.
pub type Next<P> = Option<(Handle, Result<<P as Port>::Item, Closed>)>;

/// Names a port of a set. Not used again for another port.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Handle {
    index: u32,
    generation: u32,
}

/// Free with neither port nor pass; without a port its next endpoint is not back.
struct Slot<P> {
    generation: u32,
    port: Option<P>,
    pass: Option<Pass>,
    /// Of a port that was removed while its member was in the list.
    leaving: Option<Arc<Member>>,
}

/// A port that is being looked at. Should it be gone afterwards it is not counted any more, also
/// when it panics.
struct Place<'a, P> {
    port: &'a mut Option<P>,
    here: &'a mut usize,
}

impl<P> Drop for Place<'_, P> {
    fn drop(&mut self) {
        *self.here -= usize::from(self.port.is_none());
    }
}

/// What a port waits with.
struct Pass {
    member: Arc<Member>,
    waker: Waker,
}

/// Many receivers as one: see the [module](self).
///
/// ```
/// use session_channels::{PortSet, stream};
///
/// let mut set = PortSet::new();
/// for worker in 0..4 {
///     let (mut sender, receiver) = stream(8);
///     set.insert(receiver);
///     std::thread::spawn(move || {
///         for n in 0..10 {
///             sender.send_blocking(worker * 10 + n).expect("the set takes everything");
///         }
///     });
/// }
/// let mut sum = 0;
/// while let Some((_, message)) = set.next_blocking() {
///     if let Ok(n) = message {
///         sum += n;
///     }
/// }
/// assert_eq!(sum, (0..40).sum());
/// ```
pub struct PortSet<P: Port> {
    slots: Vec<Slot<P>>,
    free: Vec<u32>,
    here: usize,
    ready: ReadyList,
    /// The port messages are being taken from, and how many more.
    current: Option<(u32, u32)>,
}

impl<P: Port> Default for PortSet<P> {
    fn default() -> Self {
        Self::new()
    }
}

impl<P: Port> PortSet<P> {
    /// An empty set.
    pub fn new() -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            here: 0,
            ready: ReadyList::new(),
            current: None,
        }
    }

    /// How many ports can give something.
    pub fn len(&self) -> usize {
        self.here
    }

    /// Whether none can.
    pub fn is_empty(&self) -> bool {
        self.here == 0
    }

    /// Adds a port.
    ///
    /// # Panics
    /// If there are 2^32 ports.
    pub fn insert(&mut self, port: P) -> Handle {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot {
                generation: 0,
                port: None,
                pass: None,
                leaving: None,
            });
            u32::try_from(self.slots.len() - 1).expect("fewer than 2^32 ports")
        });
        let member = self.ready.enlist(index);
        let waker = waker(&member);
        let slot = &mut self.slots[index as usize];
        slot.port = Some(port);
        slot.pass = Some(Pass { member, waker });
        self.here += 1;
        Handle {
            index,
            generation: slot.generation,
        }
    }

    /// Puts the endpoint back that followed the message of this handle. Gives it back if the handle
    /// is not one whose endpoint is away.
    pub fn put_back(&mut self, handle: Handle, port: P) -> Result<(), P> {
        let slot = self.slots.get_mut(handle.index as usize);
        match slot.filter(|slot| slot.generation == handle.generation) {
            Some(Slot {
                port: place @ None,
                pass: Some(pass),
                ..
            }) => {
                *place = Some(port);
                self.here += 1;
                self.ready.again(&pass.member);
                Ok(())
            }
            _ => Err(port),
        }
    }

    /// Takes a port out. `None` if the handle has none, or its endpoint is away, which then cannot
    /// be put back any more.
    pub fn remove(&mut self, handle: Handle) -> Option<P> {
        let slot = self.slots.get_mut(handle.index as usize)?;
        if slot.generation != handle.generation {
            return None;
        }
        let port = slot.port.take();
        self.here -= usize::from(port.is_some());
        self.vacate(handle.index);
        port
    }

    /// The port of a handle.
    pub fn get(&self, handle: Handle) -> Option<&P> {
        let slot = self.slots.get(handle.index as usize)?;
        slot.port
            .as_ref()
            .filter(|_| slot.generation == handle.generation)
    }

    fn vacate(&mut self, index: u32) {
        let slot = &mut self.slots[index as usize];
        let Some(pass) = slot.pass.take() else {
            return;
        };
        slot.generation = slot.generation.wrapping_add(1);
        if ReadyList::discharge(&pass.member) {
            self.free.push(index);
        } else {
            slot.leaving = Some(pass.member);
        }
        if self.current.is_some_and(|(current, _)| current == index) {
            self.current = None;
        }
    }

    /// Takes a message that is there.
    #[inline]
    pub fn try_next(&mut self) -> Next<P> {
        loop {
            let (index, left) = match self.current.take() {
                Some(current) => current,
                None => (self.ready.next()?, IN_A_ROW),
            };
            if let Some(found) = self.look_at(index, left) {
                return Some(found);
            }
        }
    }

    /// Looks at a port that was in the list.
    #[inline]
    fn look_at(&mut self, index: u32, left: u32) -> Next<P> {
        let slot = &mut self.slots[index as usize];
        let handle = Handle {
            index,
            generation: slot.generation,
        };
        let Some(pass) = &slot.pass else {
            self.has_left(index);
            return None;
        };
        slot.port.as_ref()?; // else its next endpoint is not back
        let place = Place {
            port: &mut slot.port,
            here: &mut self.here,
        };
        loop {
            match P::take_port(place.port) {
                Taken::Item(item) => {
                    if place.port.is_some() {
                        if left > 1 {
                            self.current = Some((index, left - 1));
                        } else {
                            self.ready.again(&pass.member);
                        }
                    }
                    return Some((handle, Ok(item)));
                }
                Taken::Closed(closed) => {
                    *place.port = None;
                    drop(place);
                    self.vacate(index);
                    return Some((handle, Err(closed)));
                }
                Taken::Nothing => {
                    let port = place.port.as_mut()?;
                    let waits = port.poll_port(&Context::from_waker(&pass.waker));
                    if waits.is_pending() {
                        return None;
                    }
                }
            }
        }
    }

    /// A member that leaves is out of the list.
    #[cold]
    fn has_left(&mut self, index: u32) {
        let slot = &mut self.slots[index as usize];
        if let Some(member) = slot.leaving.take() {
            // A waker that is still about may have put it into the list once more.
            if ReadyList::discharge(&member) {
                self.free.push(index);
            } else {
                slot.leaving = Some(member);
            }
        }
    }

    /// Takes the next message, or waits for it. `None` when the set is empty. An endpoint whose
    /// message was given is out of the set until it is [put back](Self::put_back); a port whose
    /// other side is gone is given as that and removed.
    #[inline]
    pub fn poll_next(&mut self, context: &Context<'_>) -> Poll<Next<P>> {
        loop {
            if let Some(found) = self.try_next() {
                return Poll::Ready(Some(found));
            }
            if self.here == 0 {
                return Poll::Ready(None);
            }
            if self.poll_list(context).is_pending() {
                return Poll::Pending;
            }
        }
    }

    /// Waits for the next message. Dropped before it is done, it has taken nothing.
    #[inline]
    pub async fn next(&mut self) -> Next<P> {
        poll_fn(|context| self.poll_next(context)).await
    }

    /// Waits for the next message for so long. `Err` when nothing came.
    pub async fn next_timeout(&mut self, timeout: Duration) -> Result<Next<P>, NothingCame> {
        let mut deadline = Deadline::after(timeout);
        poll_fn(|context| match self.poll_next(context) {
            Poll::Ready(found) => Poll::Ready(Ok(found)),
            Poll::Pending => deadline.poll(context).map(|()| Err(NothingCame)),
        })
        .await
    }

    /// Waits for the next message, the thread sleeping if need be.
    pub fn next_blocking(&mut self) -> Next<P> {
        self.next_deadline_blocking(None)
            .expect("without a deadline something comes")
    }

    /// Waits for the next message until this time, the thread sleeping if need be.
    pub fn next_deadline_blocking(
        &mut self,
        deadline: impl Into<Option<Instant>>,
    ) -> Result<Next<P>, NothingCame> {
        let deadline = deadline.into();
        loop {
            if let Some(found) = self.try_next() {
                return Ok(Some(found));
            }
            if self.here == 0 {
                return Ok(None);
            }
            park::wait(
                self.ready.patience(),
                0,
                deadline,
                || self.ready.look().then_some(()),
                |context| {
                    wait_graph::on_thread(context, deadline, |context| self.poll_list(context))
                },
            )
            .ok_or(NothingCame)?;
        }
    }

    /// Ready when there may be a message to take, or the set is empty; takes nothing.
    pub fn poll_ready(&mut self, context: &Context<'_>) -> Poll<()> {
        if self.current.is_some() || self.here == 0 {
            return Poll::Ready(());
        }
        self.poll_list(context)
    }

    fn poll_list(&self, context: &Context<'_>) -> Poll<()> {
        let polled = self.ready.poll(context);
        if polled.is_pending() && debug::wants_wait_graph() {
            let ports = self.slots.iter().filter_map(|slot| slot.port.as_ref());
            wait_graph::note_all(context, self.ready.end(), ports.map(P::awaited));
        }
        polled
    }
}

/// The time was over and nothing had come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NothingCame;

impl fmt::Display for NothingCame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the time was over and nothing had come")
    }
}

impl std::error::Error for NothingCame {}

impl<P: Port> Drop for PortSet<P> {
    fn drop(&mut self) {
        // Wakers may outlive the set: none of them may put a member into the list that the set
        // holds alive no more.
        for slot in &mut self.slots {
            if let Some(pass) = &slot.pass {
                ReadyList::discharge(&pass.member);
            }
        }
    }
}

impl<P: Port> fmt::Debug for PortSet<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PortSet")
            .field("len", &self.here)
            .finish_non_exhaustive()
    }
}
