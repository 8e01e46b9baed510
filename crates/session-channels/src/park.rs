//! How a thread waits: it looks for a while, gives its core away a few times, then sleeps.
//!
//! No fixed time of looking is right. Two threads on two cores answer each other in less than a
//! tenth of a microsecond while both look, and in tens of microseconds once one sleeps; a hundred
//! threads on two cores only take each other's time by looking. So each side of a session has its
//! *patience*: doubled each time that looking was enough, quartered each time that it was not.

use std::cell::OnceCell;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use crate::sync::{AtomicU8, Ordering, relax, thread, thread_local};
use crate::wait_graph;

/// Looks before the first sleep: 2 to this power. Patience is stored one higher, 0 meaning unset.
const FIRST: u8 = 2;
/// Patience is at most 2 to this power looks.
const MOST: u8 = if cfg!(shuttle) { 2 } else { 13 };
/// A core that comes back so soon was not wanted by another thread. (Under shuttle a schedule that
/// is repeated must not depend on time.)
const ALONE: Duration = Duration::from_micros(if cfg!(shuttle) { 0 } else { 2 });
/// So often a thread that looked in vain lets others run before it sleeps.
const YIELDS: u32 = 4;

/// Waits until `look` finds something, or until the time is over (`None`). `poll` is `look` that
/// also has the thread woken.
pub(crate) fn wait<T>(
    patience: &AtomicU8,
    deadline: Option<Instant>,
    look: impl Fn() -> Option<T>,
    poll: impl Fn(&Context<'_>) -> Poll<T>,
) -> Option<T> {
    let power = match patience.load(Ordering::Relaxed) {
        0 => FIRST,
        stored => stored - 1,
    };
    for _ in 0..1_u32 << power {
        if let Some(found) = look() {
            patience.store(power.min(MOST - 1) + 2, Ordering::Relaxed);
            return Some(found);
        }
        relax();
    }
    for _ in 0..YIELDS {
        let before = Instant::now();
        thread::yield_now();
        if let Some(found) = look() {
            if before.elapsed() < ALONE {
                // Nobody else wanted the core: to look a little longer would have been enough.
                patience.store(power.min(MOST - 1) + 2, Ordering::Relaxed);
            }
            return Some(found);
        }
    }
    patience.store(power.saturating_sub(2) + 1, Ordering::Relaxed);
    with_waker(|waker| {
        let context = Context::from_waker(waker);
        loop {
            if let Poll::Ready(found) = poll(&context) {
                return Some(found);
            }
            match deadline {
                None => thread::park(),
                Some(deadline) => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return None;
                    }
                    thread::park_timeout(left);
                }
            }
        }
    })
}

/// Drives a future on this thread, which sleeps in between. Any executor will do as well.
pub fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    with_waker(|waker| {
        let context = Context::from_waker(waker);
        loop {
            let poll = |context: &mut Context<'_>| future.as_mut().poll(context);
            if let Poll::Ready(output) = wait_graph::on_thread(&context, None, poll) {
                return output;
            }
            thread::park();
        }
    })
}

struct Unpark(thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.unpark();
    }
}

/// This thread's waker: one, so that a side that waits again need not change what is kept for it.
fn with_waker<T>(use_it: impl FnOnce(&Waker) -> T) -> T {
    thread_local! {
        static WAKER: OnceCell<Waker> = const { OnceCell::new() };
    }
    let fresh = || Waker::from(Arc::new(Unpark(thread::current())));
    let waker = WAKER.try_with(|waker| waker.get_or_init(fresh).clone());
    // A thread that is ending has lost its locals and makes one for this time.
    use_it(&waker.unwrap_or_else(|_| fresh()))
}
