//! Logins that wait for a thread: the queue, shared between shards and threads.
//!
//! Invariants:
//! - The lock of the queue is held only for a look; what takes long is done without it.
//! - No login is dropped under the lock: it may own the queue itself, whose drop locks it.
//! - When the last owner of the queue is dropped, its threads end behind what can still be done.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::login_queue::{LoginQueue, Next, Refusal};
use crate::source::Source;

/// The owner's side of the queue.
#[derive(Debug)]
pub(super) struct PendingLogins<T>(Arc<Pending<T>>);

/// The threads' side.
#[derive(Debug)]
pub(super) struct Pending<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
}

#[derive(Debug)]
struct State<T> {
    queue: LoginQueue<T>,
    is_closed: bool,
}

impl<T> PendingLogins<T> {
    /// For so many threads.
    pub(super) fn new(threads: usize) -> Self {
        let state = State {
            queue: LoginQueue::new(threads),
            is_closed: false,
        };
        Self(Arc::new(Pending {
            state: Mutex::new(state),
            changed: Condvar::new(),
        }))
    }

    /// What a thread takes from.
    pub(super) fn of_threads(&self) -> Arc<Pending<T>> {
        Arc::clone(&self.0)
    }

    /// Queues a login of so many bytes.
    pub(super) fn push(
        &self,
        now: Instant,
        source: Source,
        login: (T, usize),
        timeout: Duration,
    ) -> Result<(), Refusal> {
        let mut state = self.0.lock();
        let pushed = state.queue.push(now, source, login, timeout);
        let removed = state.queue.take_removed();
        drop(state);
        drop(removed);
        pushed?;
        self.0.changed.notify_one();
        Ok(())
    }

    /// Whether this address may be wrong once more, where that is decided at once.
    pub(super) fn may_fail(&self, now: Instant, source: Source) -> bool {
        self.0.lock().queue.may_fail(now, source)
    }

    /// It was wrong.
    pub(super) fn note_failure(&self, now: Instant, source: Source) {
        self.0.lock().queue.note_failure(now, source);
    }

    pub(super) fn remove(&self, source: Source, is_it: impl Fn(&T) -> bool) {
        // Dropped behind the lock: it may own the queue itself.
        let removed = self.0.lock().queue.remove(source, is_it);
        drop(removed);
    }
}

impl<T> Drop for PendingLogins<T> {
    fn drop(&mut self) {
        self.0.lock().is_closed = true;
        self.0.changed.notify_all();
    }
}

impl<T> Pending<T> {
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the next login; `None`: no owner is left, and nothing waits that can be done now.
    pub(super) fn next(&self) -> Option<(Source, T)> {
        let mut state = self.lock();
        loop {
            let now = Instant::now();
            let next = state.queue.pop(now);
            let removed = state.queue.take_removed();
            if !removed.is_empty() {
                drop(state);
                drop(removed);
                if let Next::Verify(source, login) = next {
                    return Some((source, login));
                }
                state = self.lock();
                continue;
            }
            let until = match next {
                Next::Verify(source, login) => return Some((source, login)),
                Next::Wait(_) if state.is_closed => return None,
                Next::Wait(until) => until,
            };
            state = match until {
                None => self
                    .changed
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner),
                Some(until) => {
                    let timeout = until.saturating_duration_since(now);
                    let waited = self.changed.wait_timeout(state, timeout);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }

    /// What can be done now.
    #[cfg(test)]
    pub(super) fn next_now(&self) -> Option<(Source, T)> {
        let mut state = self.lock();
        let next = state.queue.pop(Instant::now());
        let removed = state.queue.take_removed();
        drop(state);
        drop(removed);
        match next {
            Next::Verify(source, login) => Some((source, login)),
            Next::Wait(_) => None,
        }
    }

    /// A login that was taken is decided. `took`: how long it took, if it was long.
    pub(super) fn finish(&self, source: Source, is_right: bool, took: Option<Duration>) {
        let now = Instant::now();
        self.lock().queue.finish(now, source, is_right, took);
        // A token that came back may let others go on; this thread takes the next login itself.
        self.changed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A login that owns the queue in which it waits.
    struct Owner(#[expect(dead_code, reason = "it is owned")] Arc<PendingLogins<Self>>);

    #[test]
    fn a_login_that_owns_the_queue_is_dropped_behind_its_lock() {
        let source = Source::of(None);
        let push = |timeout| {
            let pending = Arc::new(PendingLogins::new(1));
            let of_threads = pending.of_threads();
            let login = (Owner(Arc::clone(&pending)), 1);
            assert_eq!(pending.push(Instant::now(), source, login, timeout), Ok(()));
            of_threads
        };
        assert!(push(Duration::ZERO).next().is_none(), "past its deadline");
        assert!(push(Duration::ZERO).next_now().is_none());
        let (_, owner) = push(Duration::from_hours(1)).next().unwrap();
        drop(owner);
    }
}
