//! Time without a runtime: one thread that wakes tasks when their time has come.
//!
//! It is started by the first deadline that is waited for, sleeps until the earliest one, and is
//! told only when an earlier one comes. A deadline that is dropped is taken out.
//!
//! Wakers are cloned, woken and dropped outside the lock: the last one of a task drops the task,
//! and with it whatever deadlines that waits for.

use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// A time to be woken at. Nothing is registered before it is waited for.
#[derive(Debug)]
pub(crate) struct Deadline {
    /// `None`: never.
    at: Option<Instant>,
    entry: Option<u64>,
}

impl Deadline {
    /// No time is never.
    pub(crate) fn new(at: impl Into<Option<Instant>>) -> Self {
        Self {
            at: at.into(),
            entry: None,
        }
    }

    pub(crate) fn at(&self) -> Option<Instant> {
        self.at
    }

    /// A time that the clock cannot count is never.
    pub(crate) fn after(timeout: Duration) -> Self {
        Self {
            at: Instant::now().checked_add(timeout),
            entry: None,
        }
    }

    /// Ready when the time has come.
    pub(crate) fn poll(&mut self, context: &Context<'_>) -> Poll<()> {
        let Some(at) = self.at else {
            return Poll::Pending;
        };
        if Instant::now() >= at {
            return Poll::Ready(());
        }
        let waker = context.waker().clone();
        let clock = Clock::get();
        let mut table = clock.lock();
        let entry = *self.entry.get_or_insert_with(|| {
            table.entries += 1;
            table.entries
        });
        let before = table.wakers.insert((at, entry), waker);
        let is_first = table.wakers.keys().next() == Some(&(at, entry));
        drop(table);
        drop(before);
        if is_first {
            clock.earlier.notify_one();
        }
        Poll::Pending
    }
}

impl Drop for Deadline {
    fn drop(&mut self) {
        if let (Some(at), Some(entry)) = (self.at, self.entry) {
            let mut table = Clock::get().lock();
            let waker = table.wakers.remove(&(at, entry));
            drop(table);
            drop(waker);
        }
    }
}

#[derive(Default)]
struct Table {
    /// How many deadlines have been waited for; numbers those of one time.
    entries: u64,
    wakers: BTreeMap<(Instant, u64), Waker>,
}

struct Clock {
    table: Mutex<Table>,
    earlier: Condvar,
}

impl Clock {
    fn get() -> &'static Self {
        static CLOCK: OnceLock<&'static Clock> = OnceLock::new();
        CLOCK.get_or_init(|| {
            let clock: &'static Self = Box::leak(Box::new(Self {
                table: Mutex::new(Table::default()),
                earlier: Condvar::new(),
            }));
            std::thread::Builder::new()
                .name("session-channels timer".into())
                .spawn(move || clock.run())
                .expect("a program that may have no thread more cannot wait for a time either");
            clock
        })
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        // Nothing of others runs under the lock, so a poisoned table is whole.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        let mut table = self.lock();
        loop {
            let now = Instant::now();
            let wait = match table.wakers.first_key_value() {
                None => None,
                Some((&(at, _), _)) if at > now => Some(at - now),
                Some(_) => {
                    let waker = table.wakers.pop_first().map(|(_, waker)| waker);
                    drop(table);
                    if let Some(waker) = waker {
                        waker.wake();
                    }
                    table = self.lock();
                    continue;
                }
            };
            table = match wait {
                None => self
                    .earlier
                    .wait(table)
                    .unwrap_or_else(PoisonError::into_inner),
                Some(wait) => {
                    self.earlier
                        .wait_timeout(table, wait)
                        .unwrap_or_else(PoisonError::into_inner)
                        .0
                }
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, mpsc};
    use std::task::Wake;
    use std::thread;

    use super::*;

    const LONG: Duration = Duration::from_hours(1);

    /// The last waker of a task: the task goes with it, and the deadline it waits for.
    struct Task(#[allow(dead_code, reason = "dropped with it")] Mutex<Deadline>);

    impl Wake for Task {
        fn wake(self: Arc<Self>) {}
    }

    fn waited_for() -> Deadline {
        let mut other = Deadline::after(LONG);
        let context = &Context::from_waker(Waker::noop());
        assert!(other.poll(context).is_pending());
        let task = Waker::from(Arc::new(Task(Mutex::new(other))));
        let mut deadline = Deadline::after(LONG);
        assert!(deadline.poll(&Context::from_waker(&task)).is_pending());
        deadline
    }

    /// Ends, or is given up after a time that is far longer than it takes.
    fn ends(work: impl FnOnce() + Send + 'static) -> bool {
        let (done, is_done) = mpsc::channel();
        thread::spawn(move || {
            work();
            let _ = done.send(());
        });
        is_done.recv_timeout(Duration::from_secs(20)).is_ok()
    }

    #[test]
    fn a_waker_that_is_dropped_may_drop_deadlines() {
        assert!(ends(|| drop(waited_for())));
    }

    #[test]
    fn a_waker_that_is_replaced_may_drop_deadlines() {
        assert!(ends(|| {
            let mut deadline = waited_for();
            let _ = deadline.poll(&Context::from_waker(Waker::noop()));
        }));
    }
}
