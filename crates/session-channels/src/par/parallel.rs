//! The functions over slices, for whatever can hand out items to threads, and how items are cut.

use std::{
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use super::Limits;
use super::items::{Items, Rest};

/// Blocks for each task, so that one slow block holds up little.
const BLOCKS_PER_TASK: usize = 16;

/// Gives items to threads. Other crates cannot implement it: results are taken as written where
/// every item was given out.
#[expect(unnameable_types, reason = "seals `Parallel`")]
pub trait HandOut {
    /// Gives all items to `work`, some at a time, with the index of the first.
    fn hand_out<I: Items>(&self, all: I, work: impl Fn(usize, I) + Sync);
}

/// Work on slices by several threads.
pub trait Parallel: HandOut {
    /// The results of `f` for all items, in their order.
    ///
    /// If `f` panics, the results there are by then are forgotten, not dropped.
    fn map<T: Sync, R: Send>(&self, items: &[T], f: impl Fn(&T) -> R + Sync) -> Vec<R> {
        self.map_indexed(items, |_, item| f(item))
    }

    /// [`map`](Self::map) whose closure is told each item's index.
    fn map_indexed<T: Sync, R: Send>(
        &self,
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
    fn map_into<T: Sync, R: Send>(
        &self,
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
    fn map_in_place<T: Send>(&self, items: &mut [T], f: impl Fn(&mut T) + Sync) {
        self.hand_out(items, |_, items| items.iter_mut().for_each(&f));
    }

    /// Shows `f` each item, in no particular order.
    fn for_each<T: Sync>(&self, items: &[T], f: impl Fn(&T) + Sync) {
        self.hand_out(items, |_, items| items.iter().for_each(&f));
    }

    /// [`for_each`](Self::for_each) whose closure is told each item's index.
    fn for_each_indexed<T: Sync>(&self, items: &[T], f: impl Fn(usize, &T) + Sync) {
        self.hand_out(items, |first, items| {
            for (offset, item) in items.iter().enumerate() {
                f(first + offset, item);
            }
        });
    }

    /// All items folded into one value: blocks of neighbours each from `identity`, and the values
    /// of the blocks, in the order of the items, by `combine`. No items give `identity`.
    ///
    /// How the items are cut into blocks differs from call to call, so `combine` must be
    /// associative, `identity` neutral to it, and `combine(a, fold(identity, b))` the same as
    /// `fold(a, b)`. Sums of floating-point numbers come out the same to within rounding.
    fn reduce<T: Sync, A: Send>(
        &self,
        items: &[T],
        identity: impl Fn() -> A + Sync,
        fold: impl Fn(A, &T) -> A + Sync,
        combine: impl Fn(A, A) -> A,
    ) -> A {
        let part = |_, items: &[T]| items.iter().fold(identity(), &fold);
        self.reduce_blocks(items, part, combine)
            .unwrap_or_else(identity)
    }

    /// [`reduce`](Self::reduce) whose closure gets whole blocks of neighbouring items, with the
    /// index of the first, and may keep what it likes while it works on one. `None` if there are
    /// no items.
    fn reduce_blocks<T: Sync, A: Send>(
        &self,
        items: &[T],
        part: impl Fn(usize, &[T]) -> A + Sync,
        combine: impl Fn(A, A) -> A,
    ) -> Option<A> {
        let parts = Mutex::new(Vec::new());
        self.hand_out(items, |first, items| {
            if !items.is_empty() {
                let part = part(first, items);
                locked(&parts).push((first, part));
            }
        });
        let mut parts = parts.into_inner().unwrap_or_else(PoisonError::into_inner);
        parts.sort_unstable_by_key(|(first, _)| *first);
        parts.into_iter().map(|(_, part)| part).reduce(combine)
    }

    /// Whether `f` holds for at least one item. Once it is found, no task looks at another item.
    fn any<T: Sync>(&self, items: &[T], f: impl Fn(&T) -> bool + Sync) -> bool {
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
    fn all<T: Sync>(&self, items: &[T], f: impl Fn(&T) -> bool + Sync) -> bool {
        !self.any(items, |item| !f(item))
    }
}

/// Gives all items to `work`: those that take less than `alone` at once, the rest in blocks, by a
/// task that `run` lets so many threads execute.
pub(super) fn cut<I: Items>(
    limits: Limits,
    alone: Duration,
    all: I,
    work: impl Fn(usize, I) + Sync,
    run: impl FnOnce(usize, &(dyn Fn() + Sync)),
) {
    let items_min = limits.items_per_task_min.max(1);
    let tasks = (all.count() / items_min).clamp(1, limits.tasks_max.max(1));
    if tasks == 1 {
        return work(0, all);
    }
    let Some(rest) = work_alone(alone, all, &work) else {
        return;
    };
    let block = rest.count().div_ceil(tasks * BLOCKS_PER_TASK);
    let block = block.max(items_min);
    let rest = Mutex::new(rest);
    let next = || locked(&rest).take(block);
    run(tasks, &|| {
        while let Some((first, items)) = next() {
            work(first, items);
        }
    });
}

/// Works for so long, on ever more items between two looks at the clock. What is left, if
/// anything.
fn work_alone<I: Items>(duration: Duration, all: I, work: impl Fn(usize, I)) -> Option<Rest<I>> {
    let begin = Instant::now();
    let mut rest = Rest::new(all);
    let mut count = 1;
    while begin.elapsed() < duration {
        let (first, items) = rest.take(count)?;
        work(first, items);
        count *= 2;
    }
    Some(rest)
}

/// What a lock holds is whole at any time: no closure runs under it.
pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
