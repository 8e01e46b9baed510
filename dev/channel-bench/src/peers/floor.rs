//! What no channel can be faster than: the runtime's own wake, and a cache line's own way.

use super::{FLOOR, Peer};
use crate::{
    rows::{Size, Work},
    work::{
        Measured,
        tasks::{joined, timed},
        threads,
    },
};
use std::{
    future::poll_fn,
    hint,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    task::{Poll, Waker},
};

pub(super) fn peer() -> Peer {
    let note = "no channel: one flag and two wakers cached for ever; one cache line";
    Peer::new(FLOOR, None, note).with([
        (Work::TaskPingPong, wakes as fn(Size) -> Measured),
        (Work::ThreadPingPong, line),
    ])
}

/// Counts the messages of both sides; who waits for an odd number has sent an even one.
#[derive(Default)]
struct Flag {
    count: AtomicU64,
    wakers: [OnceLock<Waker>; 2],
}

impl Flag {
    /// Keeps this task's waker as the one of `side`.
    async fn introduce(&self, side: usize) {
        poll_fn(|context| {
            // A second introduction would change nothing: a task's waker stays its waker.
            let _ = self.wakers[side].set(context.waker().clone());
            Poll::Ready(())
        })
        .await;
    }

    fn tell(&self, count: u64, other_side: usize) {
        self.count.store(count, Ordering::Release);
        if let Some(waker) = self.wakers[other_side].get() {
            waker.wake_by_ref();
        }
    }

    async fn wait(&self, count: u64) {
        poll_fn(|_| {
            if self.count.load(Ordering::Acquire) >= count {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
    }
}

/// The two tasks know each other's waker from the start and wake without asking whether to.
fn wakes(size: Size) -> Measured {
    timed(size.workers, async move {
        let flag = Arc::new(Flag::default());
        flag.introduce(0).await;
        let its = Arc::clone(&flag);
        let echo = tokio::spawn(async move {
            its.introduce(1).await;
            its.tell(1, 0);
            for round in 1..=size.rounds {
                its.wait(2 * round).await;
                its.tell(2 * round + 1, 0);
            }
        });
        flag.wait(1).await;
        for round in 1..=size.rounds {
            flag.tell(2 * round, 1);
            flag.wait(2 * round + 1).await;
        }
        joined(echo).await;
        flag.count.load(Ordering::Acquire) / 2
    })
}

/// One line there and back, with nothing but loads and stores.
fn line(size: Size) -> Measured {
    #[repr(align(128))]
    struct Line(AtomicU64);

    fn wait(line: &Line, count: u64) {
        while line.0.load(Ordering::Acquire) < count {
            hint::spin_loop();
        }
    }

    threads::timed(|| {
        let line = Arc::new(Line(AtomicU64::new(0)));
        let its = Arc::clone(&line);
        let echo = threads::spawned(move || {
            for round in 0..size.rounds {
                wait(&its, 2 * round + 1);
                its.0.store(2 * round + 2, Ordering::Release);
            }
            0
        });
        for round in 0..size.rounds {
            line.0.store(2 * round + 1, Ordering::Release);
            wait(&line, 2 * round + 2);
        }
        line.0.load(Ordering::Acquire) / 2 + threads::all_joined([echo])
    })
}
