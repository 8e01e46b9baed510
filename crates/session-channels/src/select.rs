//! Waiting for whichever of several receivers has something first, of any protocols.
//!
//! [`select!`](crate::select!) and [`select_blocking!`](crate::select_blocking!) are the usual way.
//! [`Select`] is for receivers whose number is known only when the program runs; a
//! [`PortSet`](crate::PortSet) is better still for many that stay.
//!
//! What holds:
//! - Waiting takes nothing. Only from the place that was chosen something is taken, so an endpoint
//!   that was not chosen is as it was.
//! - A place that is `None` is left out. So is one whose other side is gone, where the caller has
//!   said that it does not want to hear of it.
//! - Of several that have something each is chosen equally often, whatever the rhythm of the calls
//!   and however many others have nothing, unless it is asked to go from top to bottom.
//!
//! Absent: waiting for room to send. An endpoint that waits for room is in a state of its own, and
//! `room` is a future like any other.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::poll_fn;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use crate::closed::{Closed, Unreceived, Why};
use crate::park;
use crate::receive::{Receive, try_recv};
use crate::stream;
use crate::sync::AtomicU8;
use crate::timer::Deadline;
use crate::wait_graph;

/// Something to wait for: an endpoint that receives, a [`stream::Receiver`], a time, or an `Option`
/// of one, which is left out while it is `None`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be waited for",
    label = "not an endpoint that receives, a stream's receiver, a time, or an `Option` of one"
)]
pub trait Place {
    /// Looks what there is; with a context, also has the task woken when there is something.
    #[doc(hidden)]
    fn find(&mut self, context: Option<&Context<'_>>) -> Poll<Found>;
}

/// What a look at a place has found.
#[doc(hidden)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Found {
    /// A message.
    Message,
    /// That the other side is gone.
    Closed,
    /// That nothing will come, because nothing is waited for.
    Disabled,
}

impl Found {
    /// What a look at a channel says.
    #[inline]
    pub(crate) fn of(look: Poll<Result<(), Why>>) -> Poll<Self> {
        look.map(|found| match found {
            Ok(()) => Self::Message,
            Err(_) => Self::Closed,
        })
    }
}

impl<E: Receive> Place for E {
    #[inline]
    fn find(&mut self, context: Option<&Context<'_>>) -> Poll<Found> {
        Found::of(match context {
            Some(context) => self.link_mut().poll(context),
            None => self.link().look().map_or(Poll::Pending, Poll::Ready),
        })
    }
}

impl<T> Place for stream::Receiver<T> {
    #[inline]
    fn find(&mut self, context: Option<&Context<'_>>) -> Poll<Found> {
        Found::of(self.find(context))
    }
}

impl<P: Place> Place for Option<P> {
    #[inline]
    fn find(&mut self, context: Option<&Context<'_>>) -> Poll<Found> {
        match self {
            Some(place) => place.find(context),
            None => Poll::Ready(Found::Disabled),
        }
    }
}

/// What came first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Selected<H> {
    /// This place has something, or its other side is gone.
    Place(H),
    /// The time that was given is over.
    TimedOut,
    /// Nothing can come any more.
    Nothing,
}

/// Names a place of a [`Select`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Handle(usize);

impl Handle {
    /// How many places were added before.
    pub fn index(self) -> usize {
        self.0
    }
}

/// Waits for places whose number is known only when the program runs.
///
/// It borrows them while it waits and takes nothing: what has come is received from the place
/// itself.
///
/// ```
/// use session_channels::{Select, Selected, stream};
///
/// let (mut senders, mut receivers): (Vec<_>, Vec<_>) = (0..3).map(|_| stream::<u32>(4)).unzip();
/// senders[1].send_blocking(7).expect("there is room");
///
/// let mut select = Select::new();
/// for receiver in &mut receivers {
///     select.add(receiver);
/// }
/// let Selected::Place(handle) = select.ready_blocking() else { unreachable!("all are open") };
/// assert_eq!(receivers[handle.index()].try_recv(), Ok(7));
/// ```
#[derive(Default)]
#[must_use = "nothing is waited for until `ready`"]
pub struct Select<'a> {
    places: Vec<&'a mut (dyn Place + Send)>,
    order: Order,
}

impl<'a> Select<'a> {
    /// Nothing to wait for yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Prefers what was added first.
    pub fn biased(mut self) -> Self {
        self.order = Order::Biased;
        self
    }

    /// One more place to wait for.
    pub fn add(&mut self, place: &'a mut (impl Place + Send)) -> Handle {
        self.places.push(place);
        Handle(self.places.len() - 1)
    }

    /// Waits until a place has something or its other side is gone. [`Selected::Nothing`] if there
    /// is no place, or all are `None`. Dropping it loses nothing.
    pub async fn ready(self) -> Selected<Handle> {
        self.wait(None).await
    }

    /// The same until this time.
    pub async fn ready_deadline(self, deadline: Instant) -> Selected<Handle> {
        self.wait(Some(deadline)).await
    }

    /// Like [`ready`](Self::ready); the thread waits.
    pub fn ready_blocking(self) -> Selected<Handle> {
        self.wait_blocking(None)
    }

    /// The same until this time.
    pub fn ready_deadline_blocking(self, deadline: Instant) -> Selected<Handle> {
        self.wait_blocking(Some(deadline))
    }

    async fn wait(mut self, deadline: Option<Instant>) -> Selected<Handle> {
        let (count, order) = (self.places.len(), self.order);
        let look = |place: usize, context: Option<&Context<'_>>| {
            candidate(self.places[place].find(context), true)
        };
        select_wait(count, look, order, deadline, true)
            .await
            .named()
    }

    fn wait_blocking(mut self, deadline: Option<Instant>) -> Selected<Handle> {
        let (count, order) = (self.places.len(), self.order);
        let look = |place: usize, context: Option<&Context<'_>>| {
            candidate(self.places[place].find(context), true)
        };
        select_wait_blocking(count, look, order, deadline, true).named()
    }
}

impl fmt::Debug for Select<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Select")
            .field("places", &self.places.len())
            .field("order", &self.order)
            .finish()
    }
}

impl Selected<usize> {
    fn named(self) -> Selected<Handle> {
        match self {
            Self::Place(index) => Selected::Place(Handle(index)),
            Self::TimedOut => Selected::TimedOut,
            Self::Nothing => Selected::Nothing,
        }
    }
}

/// Which of several places that have something is chosen.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Order {
    /// Each equally often.
    #[default]
    Fair,
    /// The one nearest the top.
    Biased,
}

/// One of so many, each of them equally often: steps by the golden ratio, so that it is so for each
/// of several loops of a thread, whatever the rhythm of their turns.
fn one_of(count: usize) -> usize {
    thread_local! {
        static CHOICES: Cell<u32> = const { Cell::new(0) };
    }
    const GOLDEN: u32 = 0x9E37_79B9;
    let choices = CHOICES.with(|choices| choices.replace(choices.get().wrapping_add(1)));
    let fraction = u64::from(choices.wrapping_mul(GOLDEN));
    usize::try_from((fraction * count as u64) >> 32).unwrap_or(0)
}

/// Whether to choose a place: yes, never, or not yet.
#[inline]
pub fn candidate(found: Poll<Found>, hears_of_closing: bool) -> Poll<bool> {
    found.map(|found| match found {
        Found::Message => true,
        Found::Closed => hears_of_closing,
        Found::Disabled => false,
    })
}

/// When so much time has passed; `None` if the clock cannot count so far, which is never.
pub fn deadline(after: Duration) -> Option<Instant> {
    Instant::now().checked_add(after)
}

/// Waits for the first of `count` places. With `ends` it also ends when nothing can come; without,
/// it waits on, for the deadline or for ever.
pub async fn select_wait(
    count: usize,
    mut look: impl FnMut(usize, Option<&Context<'_>>) -> Poll<bool>,
    order: Order,
    deadline: Option<Instant>,
    ends: bool,
) -> Selected<usize> {
    let mut deadline = deadline.map(Deadline::new);
    poll_fn(|context| {
        let found = look_at_all(count, order, ends, Some(context), &mut look);
        match (found, &mut deadline) {
            (Poll::Pending, Some(deadline)) => deadline.poll(context).map(|()| Selected::TimedOut),
            (found, _) => found,
        }
    })
    .await
}

/// The same; the thread waits.
pub fn select_wait_blocking(
    count: usize,
    look: impl FnMut(usize, Option<&Context<'_>>) -> Poll<bool>,
    order: Order,
    deadline: Option<Instant>,
    ends: bool,
) -> Selected<usize> {
    thread_local! {
        #[allow(clippy::missing_const_for_thread_local, reason = "under loom it is not const")]
        static PATIENCE: AtomicU8 = AtomicU8::new(0);
    }
    let look = RefCell::new(look);
    let all = |context: Option<&Context<'_>>| {
        look_at_all(count, order, ends, context, &mut *look.borrow_mut())
    };
    let seen = || match all(None) {
        Poll::Ready(selected) => Some(selected),
        Poll::Pending => None,
    };
    let selected = PATIENCE.with(|patience| {
        park::wait(patience, 0, deadline, seen, |context| {
            wait_graph::on_thread(context, deadline, |context| all(Some(context)))
        })
    });
    selected.unwrap_or(Selected::TimedOut)
}

/// Looks at all places before it chooses, and only if there is nothing has the task woken.
fn look_at_all(
    count: usize,
    order: Order,
    ends: bool,
    context: Option<&Context<'_>>,
    look: &mut impl FnMut(usize, Option<&Context<'_>>) -> Poll<bool>,
) -> Poll<Selected<usize>> {
    let (mut ready, mut may_come) = (0, false);
    for place in 0..count {
        match look(place, None) {
            Poll::Ready(true) if order == Order::Biased => {
                return Poll::Ready(Selected::Place(place));
            }
            Poll::Ready(true) => ready += 1,
            Poll::Ready(false) => {}
            Poll::Pending => may_come = true,
        }
    }
    if ready > 0 {
        // Nothing is taken meanwhile, so there are as many as there were, or more.
        let mut places = (0..count).filter(|place| look(*place, None) == Poll::Ready(true));
        if let Some(place) = places.nth(one_of(ready)) {
            return Poll::Ready(Selected::Place(place));
        }
    }
    if let Some(context) = context {
        may_come = false;
        for place in 0..count {
            match look(place, Some(context)) {
                Poll::Ready(true) => return Poll::Ready(Selected::Place(place)),
                Poll::Ready(false) => {}
                Poll::Pending => may_come = true,
            }
        }
    }
    if ends && !may_come {
        Poll::Ready(Selected::Nothing)
    } else {
        Poll::Pending
    }
}

/// Taking what was found from an endpoint, which is used up.
pub trait TakeLocal {
    /// What is taken.
    type Message;
    /// Called after something was found.
    fn take_selected(self) -> Result<Self::Message, Closed>;
}

/// Taking what was found from where it stays or leaves `None`.
pub trait TakeHeld {
    /// What is taken.
    type Message;
    /// Called after something was found.
    fn take_selected(&mut self) -> Result<Self::Message, Closed>;
}

impl<E: Receive> TakeLocal for E {
    type Message = E::Message;

    #[inline]
    fn take_selected(self) -> Result<E::Message, Closed> {
        try_recv(self).map_err(|unreceived| match unreceived {
            Unreceived::Closed(closed) => closed,
            Unreceived::Pending(_) => unreachable!("what was found stays until it is taken"),
        })
    }
}

impl<E: Receive> TakeHeld for Option<E> {
    type Message = E::Message;

    #[inline]
    fn take_selected(&mut self) -> Result<E::Message, Closed> {
        self.take()
            .expect("a place that is `None` is not chosen")
            .take_selected()
    }
}

impl<T> TakeHeld for stream::Receiver<T> {
    type Message = T;

    #[inline]
    fn take_selected(&mut self) -> Result<T, Closed> {
        self.try_recv().map_err(|error| match error {
            stream::TryRecvError::Closed(closed) => closed,
            stream::TryRecvError::Empty => unreachable!("what was found stays until it is taken"),
        })
    }
}

impl<T> TakeHeld for Option<stream::Receiver<T>> {
    type Message = T;

    /// A stream goes on after a message; once it is closed, `None` is left.
    #[inline]
    fn take_selected(&mut self) -> Result<T, Closed> {
        let receiver = self.as_mut().expect("a place that is `None` is not chosen");
        let taken = receiver.take_selected();
        if taken.is_err() {
            *self = None;
        }
        taken
    }
}
