//! Work on slices by several threads: [`map`], [`reduce`], [`for_each`], [`any`], [`all`] and their
//! kin.
//!
//! Everything borrows: items are not copied, closures may use the caller's locals, no `Arc` is
//! needed. [`Limits`] says how many tasks there are at most and how many items make one worth
//! while; a slice too short for two is worked on by the caller alone. The functions are those of
//! [`Parallel`], which [`Limits`] and [`Team`] implement: [`Limits`] starts its helpers for each
//! call, a [`Team`] has helpers that stay, for work in many short steps.
//!
//! The caller begins alone. Only when it has worked for as long as a thread takes to start and end,
//! and something is left, does it get helpers; so a call costs at most about twice what it would
//! have cost had the better way been known before. From then on a task takes a block of
//! neighbouring items, and another when it is done, which evens out uneven work; the caller goes on
//! as one of the tasks.
//!
//! Invariants: an item is given to the closure exactly once (by [`any`] and [`all`] at most once),
//! and results are in the order of the items. A panic of the closure reaches the caller after all
//! tasks have ended; the other tasks finish what is left. No lock is held while the closure runs.
//! [`reduce`] combines neighbouring parts only, so its operation must be associative and need not
//! be commutative.
//!
//! Scoped threads rather than a pool such as rayon's, which was measured beside it on two cores
//! that others used too. 2,048 items of a nanosecond are 2 µs of work; they take 3 µs so, because
//! the caller is done before it would ask for help, and 13 µs with a pool that has to be woken. At
//! a hundred thousand such items the pool is ahead by what a thread costs; at ten million, and with
//! uneven work, neither is. `docs/graph500.md` has figures of larger work beside rayon.
//!
//! Deliberately absent: a pool of threads for the whole process, stealing from within a block, and
//! items that wait for one another, since one task may have to do them all.

#[allow(unsafe_code, reason = "helpers that stay borrow what a call borrows")]
mod board;
mod items;
mod parallel;
mod team;

pub use parallel::Parallel;
pub use team::Team;

use std::{num::NonZero, panic, sync::OnceLock, thread, time::Duration};

use items::Items;
use parallel::{HandOut, cut};

/// About what it costs to start a helper and to end it.
const ALONE: Duration = Duration::from_micros(30);

/// How the work is cut. The functions of this module use the default.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Tasks at most, the caller included; 0 is taken as 1. The default is 32, or the number of
    /// threads the machine runs at once where that is less.
    pub tasks_max: usize,
    /// Items that make a task worth while; 0 is taken as 1. The default, 1,024, is for closures of
    /// a few nanoseconds: give less where an item takes microseconds.
    pub items_per_task_min: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            tasks_max: threads_of_the_machine().min(32),
            items_per_task_min: 1_024,
        }
    }
}

/// The results of `f` for all items, in their order. See [`Parallel::map`].
pub fn map<T: Sync, R: Send>(items: &[T], f: impl Fn(&T) -> R + Sync) -> Vec<R> {
    Limits::default().map(items, f)
}

/// [`map`] whose closure is told each item's index.
pub fn map_indexed<T: Sync, R: Send>(items: &[T], f: impl Fn(usize, &T) -> R + Sync) -> Vec<R> {
    Limits::default().map_indexed(items, f)
}

/// Writes the results of `f` to `results`. See [`Parallel::map_into`].
pub fn map_into<T: Sync, R: Send>(items: &[T], results: &mut [R], f: impl Fn(&T) -> R + Sync) {
    Limits::default().map_into(items, results, f);
}

/// Lets `f` change each item where it is. See [`Parallel::map_in_place`].
pub fn map_in_place<T: Send>(items: &mut [T], f: impl Fn(&mut T) + Sync) {
    Limits::default().map_in_place(items, f);
}

/// Shows `f` each item, in no particular order. See [`Parallel::for_each`].
pub fn for_each<T: Sync>(items: &[T], f: impl Fn(&T) + Sync) {
    Limits::default().for_each(items, f);
}

/// [`for_each`] whose closure is told each item's index.
pub fn for_each_indexed<T: Sync>(items: &[T], f: impl Fn(usize, &T) + Sync) {
    Limits::default().for_each_indexed(items, f);
}

/// All items folded into one value. See [`Parallel::reduce`].
pub fn reduce<T: Sync, A: Send>(
    items: &[T],
    identity: impl Fn() -> A + Sync,
    fold: impl Fn(A, &T) -> A + Sync,
    combine: impl Fn(A, A) -> A,
) -> A {
    Limits::default().reduce(items, identity, fold, combine)
}

/// Whether `f` holds for at least one item. See [`Parallel::any`].
pub fn any<T: Sync>(items: &[T], f: impl Fn(&T) -> bool + Sync) -> bool {
    Limits::default().any(items, f)
}

/// Whether `f` holds for every item. See [`Parallel::all`].
pub fn all<T: Sync>(items: &[T], f: impl Fn(&T) -> bool + Sync) -> bool {
    Limits::default().all(items, f)
}

impl HandOut for Limits {
    /// Where the system grants no thread, those that there are do the work.
    fn hand_out<I: Items>(&self, all: I, work: impl Fn(usize, I) + Sync) {
        cut(*self, ALONE, all, work, |tasks, task| {
            thread::scope(|scope| {
                let helper = |_| thread::Builder::new().spawn_scoped(scope, task).ok();
                let helpers: Vec<_> = (1..tasks).filter_map(helper).collect();
                // If this panics, the scope waits for the helpers before the panic goes on.
                task();
                for helper in helpers {
                    if let Err(payload) = helper.join() {
                        panic::resume_unwind(payload);
                    }
                }
            });
        });
    }
}

impl Parallel for Limits {}

/// Asking the system takes longer than a short slice's work.
fn threads_of_the_machine() -> usize {
    static THREADS: OnceLock<usize> = OnceLock::new();
    *THREADS.get_or_init(|| thread::available_parallelism().map_or(1, NonZero::get))
}
