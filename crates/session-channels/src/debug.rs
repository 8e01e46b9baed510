//! Reports for those who look for a mistake: an endpoint dropped before the protocol's end, and
//! threads and tasks that wait for each other.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use crate::receive::Endpoint;
use crate::wait_graph::{self, End};

/// What to do about an endpoint that is dropped in a state that is not its protocol's end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum OnDrop {
    /// Nothing: the other side is told, which is often all that is wanted.
    Ignore = 0,
    /// Write protocol, state and thread to standard error.
    Report = 1,
    /// Panic with the same words, to find the place by its backtrace.
    Panic = 2,
}

static ON_DROP: AtomicU8 = AtomicU8::new(OnDrop::Ignore as u8);
static WAIT_GRAPH: AtomicBool = AtomicBool::new(false);

/// Sets what is done about early drops, for the whole process. Endpoints dropped while their thread
/// panics are never reported.
pub fn on_drop(what: OnDrop) {
    ON_DROP.store(what as u8, Ordering::Relaxed);
}

/// Has those who wait say whom they wait for, in the whole process, so that the one that closes a
/// circle of waits can name it: ``thread `a` waits in `bank.login_response` for task `b`, which
/// waits in …``. It panics if [`on_drop`] is set to [`OnDrop::Panic`], which frees the others; else
/// it writes to standard error and waits on.
///
/// Seen are threads that wait, for one thing or with [`select_blocking!`](crate::select_blocking!),
/// a [`PortSet`](crate::PortSet) or [`block_on`](crate::block_on), and tasks that were given a name
/// by [`task`]; with everything in this crate that can be waited for. Whoever waits for several
/// things is part of a circle only if none of them can come, and never while a deadline or
/// something that is not of this crate can wake it.
///
/// An end of a channel counts as held by whoever last waited with it, or has said so by [`holds`]:
/// one of which neither is true is not found, and one that was handed on since may be reported
/// wrongly. Costs a lock or two for each wait while it is on. While it is off: one relaxed load for
/// each wait that has to sleep and for each end that is dropped.
pub fn wait_graph(is_wanted: bool) {
    wait_graph::switch(&WAIT_GRAPH, is_wanted);
}

/// Gives a task a name, by which [`wait_graph`](fn@wait_graph) knows it.
///
/// ```
/// # session_channels::block_on(async {
/// use session_channels::{debug, oneshot};
///
/// let (sender, receiver) = oneshot();
/// let cook = debug::task("cook", async { receiver.await.expect("an order comes") });
/// sender.send("soup").expect("the cook waits");
/// assert_eq!(cook.await, "soup");
/// # });
/// ```
pub fn task<F: Future>(name: &str, future: F) -> impl Future<Output = F::Output> + use<F> {
    let task = wait_graph::Task::new(name.to_owned());
    async move {
        let mut future = pin!(future);
        poll_fn(|context| task.poll(context, |context| future.as_mut().poll(context))).await
    }
}

/// Says that this thread, or the task with a name that runs on it, holds this end of a channel, for
/// [`wait_graph`](fn@wait_graph): worth while where it does not wait with it before it waits for
/// something else.
pub fn holds(end: &impl Held) {
    if wants_wait_graph() {
        end.ends().into_iter().flatten().for_each(wait_graph::hold);
    }
}

/// What can be waited for at its other end: an endpoint, or an end of a stream or rendezvous.
pub trait Held {
    #[doc(hidden)]
    fn ends(&self) -> [Option<End>; 2];
}

impl<E: Endpoint> Held for E {
    fn ends(&self) -> [Option<End>; 2] {
        [self.end(), None]
    }
}

#[inline]
pub(crate) fn wants_wait_graph() -> bool {
    WAIT_GRAPH.load(Ordering::Relaxed)
}

/// Reports, or panics where that is asked for.
#[cold]
#[allow(clippy::print_stderr, reason = "asked for by the program's author")]
pub(crate) fn tell(words: &str) {
    let panics = ON_DROP.load(Ordering::Relaxed) == OnDrop::Panic as u8;
    assert!(!panics, "{words}");
    eprintln!("{words}");
}

#[inline]
pub(crate) fn dropped(protocol: &'static str, state: &'static str) {
    let what = ON_DROP.load(Ordering::Relaxed);
    if what != OnDrop::Ignore as u8 {
        report(protocol, state);
    }
}

#[cold]
fn report(protocol: &'static str, state: &'static str) {
    let thread = std::thread::current();
    let thread = thread.name().unwrap_or("unnamed");
    tell(&format!(
        "an endpoint of `{protocol}` was dropped in state `{state}`, before the protocol's end, \
         by thread `{thread}`"
    ));
}
