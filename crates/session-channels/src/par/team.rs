//! Helpers that stay: threads that serve one caller call after call, by a [`Board`].

use std::{
    cell::Cell,
    marker::PhantomData,
    sync::Arc,
    thread::{self, JoinHandle},
    time::Duration,
};

use super::Limits;
use super::board::Board;
use super::items::Items;
use super::parallel::{HandOut, Parallel, cut};

/// About what it costs to call helpers that are awake.
const ALONE: Duration = Duration::from_micros(3);

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
        let board = Arc::new(Board::new());
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
        self.board.close();
        for helper in self.helpers.drain(..) {
            // Panics of jobs were reported to their calls; a helper has none of its own.
            let _ = helper.join();
        }
    }
}
