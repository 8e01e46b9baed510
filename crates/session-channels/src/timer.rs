//! Time without a runtime: one thread that wakes tasks when their time has come.
//!
//! It is started by the first deadline that is waited for, sleeps until the earliest one, and is
//! told only when an earlier one comes. A deadline that is dropped is forgotten by the thread when
//! it comes across it.

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
    pub(crate) fn new(at: Instant) -> Self {
        Self {
            at: Some(at),
            entry: None,
        }
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
        let clock = Clock::get();
        let mut table = clock.lock();
        let entry = *self.entry.get_or_insert_with(|| {
            table.entries += 1;
            table.entries
        });
        let waker = table.wakers.entry((at, entry));
        waker
            .and_modify(|held| held.clone_from(context.waker()))
            .or_insert_with(|| context.waker().clone());
        let is_first = table.wakers.keys().next() == Some(&(at, entry));
        drop(table);
        if is_first {
            clock.earlier.notify_one();
        }
        Poll::Pending
    }
}

impl Drop for Deadline {
    fn drop(&mut self) {
        if let (Some(at), Some(entry)) = (self.at, self.entry) {
            Clock::get().lock().wakers.remove(&(at, entry));
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
        // Wakers run outside the lock, so a poisoned table is whole.
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
