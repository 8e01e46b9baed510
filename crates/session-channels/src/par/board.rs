//! Where a caller posts jobs and helpers find them.
//!
//! A call posts a job on the board that all helpers look at, works on the job itself, takes it off
//! the board, and waits for those helpers that are at it. A helper that comes late finds nothing
//! and has held up no call. Between calls helpers look at the board for [`PATIENCE`], then sleep.
//!
//! Invariant: a job borrows from the call that posted it, and is executed by a helper only between
//! the moment when it was found on the board and the moment when the helper signs out, both under
//! the board's lock; the call ends only after it took the job down and saw no helper signed in.

#[cfg(loom)]
use loom::sync::{
    Condvar, Mutex, MutexGuard,
    atomic::{AtomicUsize, Ordering},
};
#[cfg(not(loom))]
use std::sync::{
    Condvar, Mutex, MutexGuard,
    atomic::{AtomicUsize, Ordering},
};
use std::{
    any::Any,
    fmt, hint, mem,
    panic::{self, AssertUnwindSafe},
    ptr,
    sync::PoisonError,
    time::{Duration, Instant},
};

/// How long a thread looks before it sleeps: about what it costs to be woken.
const PATIENCE: Duration = Duration::from_micros(50);

/// A job whose borrows are not known to the compiler.
#[derive(Clone, Copy, Debug)]
struct Job(*const (dyn Fn() + Sync));

// SAFETY: what it points to may be called from any thread at once.
unsafe impl Send for Job {}

#[derive(Debug)]
pub(super) struct Board {
    state: Mutex<State>,
    /// How many jobs were posted, for looking without the lock.
    posted: AtomicUsize,
    /// How many helpers are at the job, for looking without the lock.
    at_it: AtomicUsize,
    /// A job was posted.
    news: Condvar,
    /// The last helper has left the job.
    idle: Condvar,
}

#[derive(Default)]
struct State {
    job: Option<Job>,
    /// Helpers that may still join.
    places: usize,
    is_closed: bool,
    sleepers: usize,
    panic: Option<Box<dyn Any + Send>>,
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State")
            .field("job", &self.job)
            .field("places", &self.places)
            .finish_non_exhaustive()
    }
}

impl Board {
    pub(super) fn new() -> Self {
        Self {
            state: Mutex::new(State::default()),
            posted: AtomicUsize::new(0),
            at_it: AtomicUsize::new(0),
            news: Condvar::new(),
            idle: Condvar::new(),
        }
    }

    /// Ends the helpers' work.
    pub(super) fn close(&self) {
        self.post(None, 0);
    }

    /// Executes a job with at most so many helpers; after it, no helper does.
    pub(super) fn call(&self, helpers: usize, job: &(dyn Fn() + Sync)) {
        // SAFETY: only the lifetime changes. Nothing leaves this function before `withdraw`, and
        // after it the job is off the board and no helper is at it.
        let lent: &'static (dyn Fn() + Sync) =
            unsafe { mem::transmute::<&(dyn Fn() + Sync), &'static (dyn Fn() + Sync)>(job) };
        self.post(Some(Job(ptr::from_ref(lent))), helpers);
        let outcome = panic::catch_unwind(AssertUnwindSafe(job));
        let panic = self.withdraw();
        if let Some(payload) = outcome.err().or(panic) {
            panic::resume_unwind(payload);
        }
    }

    /// Shows a job to the helpers; none is the end of their work.
    fn post(&self, job: Option<Job>, places: usize) {
        let mut state = lock(&self.state);
        state.is_closed = job.is_none();
        state.job = job;
        state.places = places;
        self.posted.fetch_add(1, Ordering::Release);
        if state.sleepers > 0 {
            self.news.notify_all();
        }
    }

    /// Takes the job down, and waits for those at it. The first of their panics, if any.
    fn withdraw(&self) -> Option<Box<dyn Any + Send>> {
        lock(&self.state).job = None;
        look(|| self.at_it.load(Ordering::Acquire) == 0);
        let mut state = lock(&self.state);
        while self.at_it.load(Ordering::Relaxed) > 0 {
            state = wait(&self.idle, state);
        }
        state.panic.take()
    }

    /// A helper's life.
    pub(super) fn serve(&self) {
        let mut seen = 0;
        loop {
            look(|| self.posted.load(Ordering::Acquire) != seen);
            let mut state = lock(&self.state);
            while self.posted.load(Ordering::Relaxed) == seen {
                state.sleepers += 1;
                state = wait(&self.news, state);
                state.sleepers -= 1;
            }
            seen = self.posted.load(Ordering::Relaxed);
            if state.is_closed {
                return;
            }
            let Some(job) = state.job.filter(|_| state.places > 0) else {
                continue;
            };
            state.places -= 1;
            self.at_it.fetch_add(1, Ordering::Relaxed);
            drop(state);
            // SAFETY: it was on the board when this helper signed in, so the call that lent it
            // waits until this helper signs out, below.
            let outcome = panic::catch_unwind(AssertUnwindSafe(|| unsafe { (*job.0)() }));
            let mut state = lock(&self.state);
            if let Err(payload) = outcome {
                state.panic.get_or_insert(payload);
            }
            if self.at_it.fetch_sub(1, Ordering::Release) == 1 {
                self.idle.notify_one();
            }
        }
    }
}

/// Looks for a while whether something has come true.
fn look(is_so: impl Fn() -> bool) {
    // A model tries what comes of sleeping at once as well as of sleeping late.
    if cfg!(loom) {
        return;
    }
    let begin = Instant::now();
    while !is_so() && begin.elapsed() < PATIENCE {
        hint::spin_loop();
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

fn wait<'a>(condvar: &Condvar, guard: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
    condvar.wait(guard).unwrap_or_else(PoisonError::into_inner)
}

/// Every interleaving of a caller and a helper, in small.
///
/// Seen red with: a helper that signs in after it gave up the lock; a call that does not wait.
#[cfg(all(test, loom))]
mod models {
    use std::sync::Arc;

    use loom::cell::UnsafeCell;
    use loom::thread;

    use super::*;

    struct Lent(UnsafeCell<u32>);

    // SAFETY: the model itself fails if two threads use it at once.
    unsafe impl Sync for Lent {}

    /// What a job was lent is the caller's alone again after the call, and helpers end.
    #[test]
    fn a_job_is_over_when_its_call_returns() {
        loom::model(|| {
            let board = Arc::new(Board::new());
            let helping = Arc::clone(&board);
            let helper = thread::spawn(move || helping.serve());
            for call in 0..2 {
                let lent = Lent(UnsafeCell::new(call));
                let lent = &lent;
                board.call(1, &move || {
                    // SAFETY: no thread writes while the job is posted.
                    lent.0.with(|number| assert_eq!(unsafe { *number }, call));
                });
                // SAFETY: the job is over.
                lent.0.with_mut(|number| unsafe { *number = u32::MAX });
            }
            board.close();
            helper.join().expect("a helper does not panic");
        });
    }
}
