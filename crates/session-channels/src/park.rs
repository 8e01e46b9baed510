//! How a thread waits: it looks for a while, gives its core away a few times, then sleeps.
//!
//! No fixed time of looking is right. Two threads on two cores answer each other in less than a
//! tenth of a microsecond while both look, and in tens of microseconds once one sleeps; a hundred
//! threads on two cores only take each other's time by looking. So each side of a channel has its
//! *patience*. It grows when looking was only just enough, and when a sleep was hardly longer than
//! it takes to fall asleep and wake: two sides that wake each other would never get out of that by
//! themselves. It shrinks when the wait was long. And however patient, a thread gives its core away
//! every few looks: alone it has it back at once; where it does not, others want it, and it looks
//! no longer than it must.
//!
//! Tried and lost: all looks first and then the yields (eight threads that send to one looked for
//! two thirds of their time, 130 ns a message where 36 will do); a thousand looks at once (a crowd
//! on two cores takes twice the time); patience that only counts how looking ended (two threads
//! that stream stay with sleeping: 140 ns a message where 40 will do); sleeping after 4 yields (a
//! ring of a hundred threads loses a fifth); shrinking whenever one core came back late (streams
//! fall asleep by noise).

use std::cell::OnceCell;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use crate::sync::{AtomicU8, Ordering, relax, thread, thread_local};
use crate::wait_graph;

/// Looks before the first sleep: 2 to this power. Patience is stored one higher, 0 meaning unset.
const FIRST: u8 = 5;
/// Patience is at most 2 to this power looks.
const MOST: u8 = if cfg!(shuttle) { 2 } else { 13 };
/// After so many looks others get the chance to run: about 2 µs.
const IN_A_ROW: u32 = 32;
/// So often at least a thread lets others run before it sleeps, and so often at most if they do.
const YIELDS: u32 = 16;
/// A core that comes back so soon was not wanted by another thread. (Under shuttle a schedule that
/// is repeated must not depend on time.)
const ALONE: Duration = Duration::from_micros(if cfg!(shuttle) { 0 } else { 2 });
/// A wait so short, sleep and all, was hardly more than what it takes to fall asleep and wake.
const SHORT: Duration = Duration::from_micros(if cfg!(shuttle) { 0 } else { 100 });

/// Waits until `look` finds something, or until the time is over (`None`). `poll` is `look` that
/// also has the thread woken. `head_start` is how many pauses it makes before the first look.
pub(crate) fn wait<T>(
    patience: &AtomicU8,
    head_start: u32,
    deadline: Option<Instant>,
    look: impl Fn() -> Option<T>,
    poll: impl Fn(&Context<'_>) -> Poll<T>,
) -> Option<T> {
    let power = match patience.load(Ordering::Relaxed) {
        0 => FIRST.min(MOST),
        stored => stored - 1,
    };
    for _ in 0..head_start {
        relax();
    }
    let looks = 1_u32 << power;
    let (mut made, mut yields, mut taken) = (0, 0, 0);
    let mut begin = None;
    loop {
        for _ in 0..looks.min(IN_A_ROW) {
            if let Some(found) = look() {
                if taken * 2 > yields {
                    set(patience, power.saturating_sub(1));
                } else if made > looks / 2 {
                    set(patience, power + 1);
                }
                return Some(found);
            }
            made += 1;
            relax();
        }
        if made >= looks && yields >= YIELDS || taken >= YIELDS {
            break;
        }
        let before = Instant::now();
        begin.get_or_insert(before);
        thread::yield_now();
        yields += 1;
        taken += u32::from(before.elapsed() >= ALONE);
    }
    let found = sleep(deadline, poll);
    if taken * 2 <= yields && begin.is_some_and(|begin| begin.elapsed() < SHORT) {
        set(patience, power + 3);
    } else {
        set(patience, power.saturating_sub(2));
    }
    found
}

/// The patience lies beside what the other side reads, so it is written only when it changes.
fn set(patience: &AtomicU8, power: u8) {
    let stored = power.min(MOST) + 1;
    if patience.load(Ordering::Relaxed) != stored {
        patience.store(stored, Ordering::Relaxed);
    }
}

fn sleep<T>(deadline: Option<Instant>, poll: impl Fn(&Context<'_>) -> Poll<T>) -> Option<T> {
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
