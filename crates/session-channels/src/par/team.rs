//! Helpers that stay: threads that serve one caller call after call.
//!
//! A call posts a job on a board that all helpers look at, works on the job itself, takes it off
//! the board, and waits for those helpers that are at it. A helper that comes late finds nothing
//! and has held up no call. Between calls helpers look at the board for [`PATIENCE`], then sleep.
//!
//! Invariant: a job borrows from the call that posted it, and is executed by a helper only between
//! the moment when it was found on the board and the moment when the helper signs out, both under
//! the board's lock; the call ends only after it took the job down and saw nobody signed in.

use std::{
    any::Any,
    cell::Cell,
    fmt, hint,
    marker::PhantomData,
    mem,
    panic::{self, AssertUnwindSafe},
    ptr,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use super::Limits;
use super::items::Items;
use super::parallel::{HandOut, Parallel, cut, locked};

/// About what it costs to call helpers that are awake.
const ALONE: Duration = Duration::from_micros(3);
/// How long a thread looks before it sleeps: about what it costs to be woken.
const PATIENCE: Duration = Duration::from_micros(50);

/// Helper threads that stay between calls, for work in many short steps, such as the levels of a
/// breadth-first search. The functions are those of [`Parallel`].
///
/// Helpers end when the team is dropped. A team serves one caller at a time; work that is handed
/// out cannot hand out work to the same team.
///
/// ```
/// use session_channels::par::{Limits, Parallel, Team};
///
/// let team = Team::new(Limits::default());
/// let mut numbers: Vec<u64> = (0..100_000).collect();
/// for _ in 0..10 {
///     team.map_in_place(&mut numbers, |number| *number += 1);
/// }
/// let sum = team.reduce(&numbers, || 0, |sum, number| sum + number, |a, b| a + b);
/// assert_eq!(sum, 5_000_950_000);
/// ```
#[derive(Debug)]
pub struct Team {
    board: Arc<Board>,
    helpers: Vec<JoinHandle<()>>,
    limits: Limits,
    /// One caller at a time.
    _not_sync: PhantomData<Cell<()>>,
}

impl Team {
    /// Starts the helpers, one fewer than [`Limits::tasks_max`]; fewer where the system grants no
    /// thread.
    pub fn new(limits: Limits) -> Self {
        let board = Arc::new(Board::default());
        let helper = |_| {
            let board = Arc::clone(&board);
            thread::Builder::new().spawn(move || board.serve()).ok()
        };
        let helpers = (1..limits.tasks_max.max(1)).filter_map(helper).collect();
        Self {
            board,
            helpers,
            limits,
            _not_sync: PhantomData,
        }
    }

    /// The most threads that work on a call, the caller included.
    pub fn tasks_max(&self) -> usize {
        1 + self.helpers.len()
    }

    /// The same team, for items of which so many make a task worth while.
    pub fn items_per_task_min(&self, items: usize) -> impl Parallel {
        Cut {
            team: self,
            limits: Limits {
                items_per_task_min: items,
                ..self.limits
            },
        }
    }
}

impl HandOut for Team {
    fn hand_out<I: Items>(&self, all: I, work: impl Fn(usize, I) + Sync) {
        let limits = self.limits;
        Cut { team: self, limits }.hand_out(all, work);
    }
}

impl Parallel for Team {}

/// A team with limits for a call.
struct Cut<'team> {
    team: &'team Team,
    limits: Limits,
}

impl HandOut for Cut<'_> {
    fn hand_out<I: Items>(&self, all: I, work: impl Fn(usize, I) + Sync) {
        let limits = Limits {
            tasks_max: self.team.tasks_max(),
            ..self.limits
        };
        cut(limits, ALONE, all, work, |tasks, task| {
            self.team.board.call(tasks - 1, task);
        });
    }
}

impl Parallel for Cut<'_> {}

impl Drop for Team {
    fn drop(&mut self) {
        self.board.post(None, 0);
        for helper in self.helpers.drain(..) {
            // Panics of jobs were reported to their calls; a helper has none of its own.
            let _ = helper.join();
        }
    }
}

/// A job whose borrows are not known to the compiler.
#[derive(Clone, Copy, Debug)]
struct Job(*const (dyn Fn() + Sync));

// SAFETY: what it points to may be called from any thread at once.
unsafe impl Send for Job {}

#[derive(Debug, Default)]
struct Board {
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
    /// Executes a job with at most so many helpers; after it, nobody does.
    fn call(&self, helpers: usize, job: &(dyn Fn() + Sync)) {
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
        let mut state = locked(&self.state);
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
        locked(&self.state).job = None;
        look(|| self.at_it.load(Ordering::Acquire) == 0);
        let mut state = locked(&self.state);
        while self.at_it.load(Ordering::Relaxed) > 0 {
            state = wait(&self.idle, state);
        }
        state.panic.take()
    }

    /// A helper's life.
    fn serve(&self) {
        let mut seen = 0;
        loop {
            look(|| self.posted.load(Ordering::Acquire) != seen);
            let mut state = locked(&self.state);
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
            let mut state = locked(&self.state);
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
    let begin = Instant::now();
    while !is_so() && begin.elapsed() < PATIENCE {
        hint::spin_loop();
    }
}

fn wait<'a, T>(condvar: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    condvar.wait(guard).unwrap_or_else(PoisonError::into_inner)
}
