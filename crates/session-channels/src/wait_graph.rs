//! Who waits for whom, for [`debug::wait_graph`](crate::debug::wait_graph): a table beside the
//! sessions, used only in that mode and only by threads that wait.
//!
//! Invariants:
//! - An end of a session belongs to the thread that last waited with it. A session that is left
//!   takes its entries along, so that an address used again starts afresh.
//! - A thread is on record for one wait at a time, and from the moment it begins: what it has sent
//!   before can be seen by whoever reads the record under the lock. It takes the record out before
//!   it touches the session again. So a circle of waits in which none has found anything is one
//!   that nobody leaves.
//!
//! - Waits with a deadline end by themselves; they only tell whose the end is.
//!
//! Absent: tasks. A task that waits does not hold its thread, and executors have tools of their
//! own. Waits for several things at once; streams, which have no states to name.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, Thread, ThreadId};
use std::time::Instant;

use crate::debug;

/// An end of a session: where its memory is, and which side.
pub(crate) type End = (NonNull<()>, usize);

/// The wait of this thread, on record until this is dropped.
pub(crate) struct Waiting(ThreadId);

/// Records the wait of a thread, if anybody asked for it. `is_idle` tells whether the wait has
/// still found nothing. `place` is the protocol's and the state's name.
#[inline]
pub(crate) fn enter(
    deadline: Option<Instant>,
    end: End,
    place: (&'static str, &'static str),
    is_idle: impl Fn() -> bool + 'static,
) -> Option<Waiting> {
    if !debug::wants_wait_graph() {
        return None;
    }
    let (session, side) = end;
    let session = session.addr().get();
    let me = thread::current();
    table().holders.insert((session, side), me.id());
    if deadline.is_some() {
        return None;
    }
    Some(record(Wait {
        thread: me,
        other: (session, 1 - side),
        place,
        is_idle: IsIdle(Box::new(is_idle)),
    }))
}

/// This end of a session is left.
#[inline]
pub(crate) fn forget((session, side): End) {
    if debug::wants_wait_graph() {
        table().holders.remove(&(session.addr().get(), side));
    }
}

struct IsIdle(Box<dyn Fn() -> bool>);

// SAFETY: it looks at a session by atomics only, and is called under the table's lock, while the
// thread whose wait it is waits with it or for the lock; so the session is there.
unsafe impl Send for IsIdle {}

/// A session's address and a side.
type Key = (usize, usize);

struct Wait {
    thread: Thread,
    /// The end whose holder is to do something.
    other: Key,
    place: (&'static str, &'static str),
    is_idle: IsIdle,
}

#[derive(Default)]
struct Table {
    holders: HashMap<Key, ThreadId>,
    waits: HashMap<ThreadId, Wait>,
}

impl Table {
    /// The circle that the wait of this thread closes, in words.
    fn circle(&self, begin: ThreadId) -> Option<String> {
        let mut words = String::new();
        let mut at = begin;
        // Each step leads to another thread that waits, or round.
        for _ in 0..self.waits.len() {
            let wait = self.waits.get(&at)?;
            if !(wait.is_idle.0)() {
                return None;
            }
            let name = wait.thread.name().unwrap_or("unnamed");
            let (protocol, state) = wait.place;
            if words.is_empty() {
                let _ = write!(words, "thread `{name}`");
            }
            at = *self.holders.get(&wait.other)?;
            let next = self.waits.get(&at)?.thread.name().unwrap_or("unnamed");
            let _ = write!(words, " waits in `{protocol}.{state}` for thread `{next}`");
            if at == begin {
                return Some(words);
            }
            words.push_str(", which");
        }
        None
    }
}

fn table() -> MutexGuard<'static, Table> {
    static TABLE: OnceLock<Mutex<Table>> = OnceLock::new();
    let table = TABLE.get_or_init(Mutex::default);
    // Nothing panics under the lock.
    table.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cold]
fn record(wait: Wait) -> Waiting {
    let me = wait.thread.id();
    let mut table = table();
    table.waits.insert(me, wait);
    let circle = table.circle(me);
    drop(table);
    let waiting = Waiting(me);
    if let Some(circle) = circle {
        debug::tell(&format!("nobody will go on: {circle}"));
    }
    waiting
}

impl Drop for Waiting {
    fn drop(&mut self) {
        table().waits.remove(&self.0);
    }
}
