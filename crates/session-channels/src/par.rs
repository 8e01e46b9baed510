//! Work on slices by several threads: [`map`], [`for_each`], [`any`], [`all`] and their kin.
//!
//! Everything borrows: items are not copied, closures may use the caller's locals, no `Arc` is
//! needed. [`Limits`] says how many tasks there are at most and how many items make one worth
//! while; a slice too short for two is worked on by the caller alone.
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
//!
//! Scoped threads rather than a pool such as rayon's, which was measured beside it on two cores
//! that others used too. 2,048 items of a nanosecond are 2 µs of work; they take 3 µs so, because
//! the caller is done before it would ask for help, and 13 µs with a pool that has to be woken. At
//! a hundred thousand such items the pool is ahead by what a thread costs; at ten million, and with
//! uneven work, neither is.
//!
//! Deliberately absent: a pool of threads that outlives the call, stealing from within a block, and
//! items that wait for one another, since one task may have to do them all.

use std::{
    num::NonZero,
    panic,
    sync::{
        Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

/// About what a helper costs.
const ALONE: Duration = Duration::from_micros(30);
/// Blocks for each task, so that one slow block holds up little.
const BLOCKS_PER_TASK: usize = 16;

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

/// The results of `f` for all items, in their order. See [`Limits::map`].
pub fn map<T: Sync, R: Send>(items: &[T], f: impl Fn(&T) -> R + Sync) -> Vec<R> {
    Limits::default().map(items, f)
}

/// [`map`] whose closure is told each item's index.
pub fn map_indexed<T: Sync, R: Send>(items: &[T], f: impl Fn(usize, &T) -> R + Sync) -> Vec<R> {
    Limits::default().map_indexed(items, f)
}

/// Writes the results of `f` to `results`. See [`Limits::map_into`].
pub fn map_into<T: Sync, R: Send>(items: &[T], results: &mut [R], f: impl Fn(&T) -> R + Sync) {
    Limits::default().map_into(items, results, f);
}

/// Lets `f` change each item where it is. See [`Limits::map_in_place`].
pub fn map_in_place<T: Send>(items: &mut [T], f: impl Fn(&mut T) + Sync) {
    Limits::default().map_in_place(items, f);
}

/// Shows `f` each item, in no particular order. See [`Limits::for_each`].
pub fn for_each<T: Sync>(items: &[T], f: impl Fn(&T) + Sync) {
    Limits::default().for_each(items, f);
}

/// [`for_each`] whose closure is told each item's index.
pub fn for_each_indexed<T: Sync>(items: &[T], f: impl Fn(usize, &T) + Sync) {
    Limits::default().for_each_indexed(items, f);
}

/// Whether `f` holds for at least one item. See [`Limits::any`].
pub fn any<T: Sync>(items: &[T], f: impl Fn(&T) -> bool + Sync) -> bool {
    Limits::default().any(items, f)
}

/// Whether `f` holds for every item. See [`Limits::all`].
pub fn all<T: Sync>(items: &[T], f: impl Fn(&T) -> bool + Sync) -> bool {
    Limits::default().all(items, f)
}

impl Limits {
    /// The results of `f` for all items, in their order.
    ///
    /// If `f` panics, the results there are by then are forgotten, not dropped.
    pub fn map<T: Sync, R: Send>(self, items: &[T], f: impl Fn(&T) -> R + Sync) -> Vec<R> {
        self.map_indexed(items, |_, item| f(item))
    }

    /// [`map`](Self::map) whose closure is told each item's index.
    pub fn map_indexed<T: Sync, R: Send>(
        self,
        items: &[T],
        f: impl Fn(usize, &T) -> R + Sync,
    ) -> Vec<R> {
        let mut results = Vec::with_capacity(items.len());
        let places = &mut results.spare_capacity_mut()[..items.len()];
        self.hand_out((items, places), |first, (items, places)| {
            for (offset, (item, place)) in items.iter().zip(places).enumerate() {
                place.write(f(first + offset, item));
            }
        });
        #[expect(unsafe_code, reason = "joining blocks of results takes twice the time")]
        // SAFETY: `hand_out` returned, so every block was worked on to its end: each of the first
        // `items.len()` places was written. Had `f` panicked, this would not be reached.
        unsafe {
            results.set_len(items.len());
        }
        results
    }

    /// Writes the result of `f` for each item to the same place of `results`; what was there is
    /// dropped.
    ///
    /// # Panics
    ///
    /// If there are not as many places as items.
    pub fn map_into<T: Sync, R: Send>(
        self,
        items: &[T],
        results: &mut [R],
        f: impl Fn(&T) -> R + Sync,
    ) {
        assert_eq!(
            results.len(),
            items.len(),
            "map_into: results must have one place for each item"
        );
        self.hand_out((items, results), |_, (items, results)| {
            for (item, result) in items.iter().zip(results) {
                *result = f(item);
            }
        });
    }

    /// Lets `f` change each item where it is.
    pub fn map_in_place<T: Send>(self, items: &mut [T], f: impl Fn(&mut T) + Sync) {
        self.hand_out(items, |_, items| items.iter_mut().for_each(&f));
    }

    /// Shows `f` each item, in no particular order.
    pub fn for_each<T: Sync>(self, items: &[T], f: impl Fn(&T) + Sync) {
        self.hand_out(items, |_, items| items.iter().for_each(&f));
    }

    /// [`for_each`](Self::for_each) whose closure is told each item's index.
    pub fn for_each_indexed<T: Sync>(self, items: &[T], f: impl Fn(usize, &T) + Sync) {
        self.hand_out(items, |first, items| {
            for (offset, item) in items.iter().enumerate() {
                f(first + offset, item);
            }
        });
    }

    /// Whether `f` holds for at least one item. Once it is found, no task looks at another item.
    pub fn any<T: Sync>(self, items: &[T], f: impl Fn(&T) -> bool + Sync) -> bool {
        let found = AtomicBool::new(false);
        self.hand_out(items, |_, items| {
            for item in items {
                if found.load(Ordering::Relaxed) {
                    return;
                }
                if f(item) {
                    found.store(true, Ordering::Relaxed);
                }
            }
        });
        found.into_inner()
    }

    /// Whether `f` holds for every item. Once one is found for which it does not, no task looks at
    /// another.
    pub fn all<T: Sync>(self, items: &[T], f: impl Fn(&T) -> bool + Sync) -> bool {
        !self.any(items, |item| !f(item))
    }

    /// Gives all items to `work`, some at a time, with the index of the first.
    ///
    /// Where the system grants no thread, those that there are do the work.
    fn hand_out<I: Items>(self, all: I, work: impl Fn(usize, I) + Sync) {
        let items_min = self.items_per_task_min.max(1);
        let tasks = (all.count() / items_min).clamp(1, self.tasks_max.max(1));
        if tasks == 1 {
            return work(0, all);
        }
        let Some(rest) = alone(all, &work) else {
            return;
        };
        let block = rest.items.count().div_ceil(tasks * BLOCKS_PER_TASK);
        let block = block.max(items_min);
        let rest = Mutex::new(rest);
        let next = || {
            let mut rest = rest.lock().unwrap_or_else(PoisonError::into_inner);
            rest.take(block)
        };
        let task = || {
            while let Some((first, items)) = next() {
                work(first, items);
            }
        };
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
    }
}

/// Works for [`ALONE`], on ever more items between two looks at the clock. What is left, if
/// anything.
fn alone<I: Items>(all: I, work: impl Fn(usize, I)) -> Option<Rest<I>> {
    let begin = Instant::now();
    let mut rest = Rest {
        first: 0,
        items: all,
    };
    let mut count = 1;
    while begin.elapsed() < ALONE {
        let (first, items) = rest.take(count)?;
        work(first, items);
        count *= 2;
    }
    Some(rest)
}

/// Items that nobody has taken yet.
struct Rest<I> {
    /// The index of the first.
    first: usize,
    items: I,
}

impl<I: Items> Rest<I> {
    /// The next items, at most so many, and the index of the first.
    fn take(&mut self, count: usize) -> Option<(usize, I)> {
        let count = count.min(self.items.count());
        if count == 0 {
            return None;
        }
        let first = self.first;
        self.first += count;
        Some((first, self.items.take(count)))
    }
}

/// A slice, or slices side by side, that can be cut.
trait Items: Send {
    fn count(&self) -> usize;

    /// Cuts off the first so many, of which there must be enough.
    fn take(&mut self, count: usize) -> Self;
}

impl<T: Sync> Items for &[T] {
    fn count(&self) -> usize {
        self.len()
    }

    fn take(&mut self, count: usize) -> Self {
        let (taken, rest) = self.split_at(count);
        *self = rest;
        taken
    }
}

impl<T: Send> Items for &mut [T] {
    fn count(&self) -> usize {
        self.len()
    }

    fn take(&mut self, count: usize) -> Self {
        let (taken, rest) = std::mem::take(self).split_at_mut(count);
        *self = rest;
        taken
    }
}

impl<A: Items, B: Items> Items for (A, B) {
    fn count(&self) -> usize {
        self.0.count()
    }

    fn take(&mut self, count: usize) -> Self {
        (self.0.take(count), self.1.take(count))
    }
}

/// Asking the system takes longer than a short slice's work.
fn threads_of_the_machine() -> usize {
    static THREADS: OnceLock<usize> = OnceLock::new();
    *THREADS.get_or_init(|| thread::available_parallelism().map_or(1, NonZero::get))
}
