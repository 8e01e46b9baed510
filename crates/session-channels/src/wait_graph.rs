//! Who waits for whom, for [`debug::wait_graph`](crate::debug::wait_graph): a table beside the
//! channels, used only in that mode.
//!
//! ```text
//! party ── waits with an end ──▶ the other end ── is held by ──▶ party
//! ```
//!
//! A party is a thread that waits or drives a future ([`on_thread`]), or a task that was given a
//! name ([`Task`]). It is polled with a waker of its own, by which it is known which waits are its,
//! and whether there are any that are not of this crate. A party that waits with several ends goes
//! on as soon as one of them has something; so it is stuck only if all of them are.
//!
//! Invariants:
//! - An end belongs to the party that last waited with it, or has said that it holds it. An end
//!   that is left takes its entries along, so that an address used again starts afresh.
//! - A party is on record from the end of a poll that found nothing to the beginning of its next,
//!   and only if nobody but the other ends it waits for can wake it: no deadline, no waker that it
//!   has given elsewhere, none that has rung meanwhile.
//! - What a party has sent before it waits can be seen by whoever reads its record under the lock.
//!   So of parties that wait for each other's ends only, and have found nothing, none goes on.
//! - Each wait on record is with an end that its party holds, so forgetting an end forgets all that
//!   would look at it; and looking changes nothing, whatever its owner does meanwhile.
//!
//! Absent: tasks without a name, whose other reasons to wake nobody knows.

use std::cell::RefCell;
use std::collections::HashSet;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, ThreadId};
use std::time::Instant;

use crate::closed::At;
use crate::debug;
use crate::packet::Packet;
use crate::ring::{Receiving, Sending};

mod table;

use table::{Holder, Table, table};

/// One of the two ends of a channel: where its memory is, and which side.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct End {
    address: usize,
    side: usize,
}

impl End {
    pub(crate) fn new<T>(at: NonNull<T>, side: usize) -> Self {
        let address = at.addr().get();
        Self { address, side }
    }

    fn other(self) -> Self {
        let (address, side) = (self.address, 1 - self.side);
        Self { address, side }
    }
}

/// A wait with an end.
#[derive(Clone, Copy, Debug)]
pub struct Wait {
    pub(crate) end: End,
    pub(crate) at: &'static At,
    pub(crate) what: What,
}

/// What is waited for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum What {
    Turn(Packet),
    Message(Receiving),
    Room(Sending, u32),
}

// SAFETY: it is only looked at, by atomics, and under the table's lock; an end that is left takes
// its waits out of the table before.
unsafe impl Send for What {}

impl What {
    fn is_there(self) -> bool {
        match self {
            Self::Turn(packet) => packet.look().is_some(),
            Self::Message(ring) => ring.has_something(),
            Self::Room(ring, limit) => ring.has_room(limit),
        }
    }
}

/// What a port of a set waits for.
#[derive(Clone, Copy, Debug)]
pub enum Awaited {
    /// What this wait waits for.
    Wait(Wait),
    /// Nothing that other ports do not wait for.
    Nothing,
    /// Something that this crate knows nothing of.
    Unknown,
}

/// Polls for the thread, which sleeps if it finds nothing, until `deadline` at the latest.
#[inline]
pub(crate) fn on_thread<T>(
    context: &Context<'_>,
    deadline: Option<Instant>,
    poll: impl FnOnce(&mut Context<'_>) -> Poll<T>,
) -> Poll<T> {
    if !debug::wants_wait_graph() {
        return poll(&mut Context::from_waker(context.waker()));
    }
    let thread = thread::current();
    let name = thread.name().unwrap_or("unnamed");
    let party = Party::Thread(thread.id());
    in_scope(party, "thread", name, deadline.is_some(), context, poll)
}

/// A task with a name.
#[derive(Debug)]
pub(crate) struct Task {
    party: Party,
    name: String,
}

impl Task {
    pub(crate) fn new(name: String) -> Self {
        static TASKS: AtomicU64 = AtomicU64::new(0);
        let party = Party::Task(TASKS.fetch_add(1, Ordering::Relaxed));
        Self { party, name }
    }

    /// Polls for the task.
    pub(crate) fn poll<T>(
        &self,
        context: &mut Context<'_>,
        poll: impl FnOnce(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        if debug::wants_wait_graph() {
            in_scope(self.party, "task", &self.name, false, context, poll)
        } else {
            poll(context)
        }
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        if debug::wants_wait_graph() {
            table().get_up(self.party);
        }
    }
}

/// Notes a wait that has found nothing.
#[inline]
pub(crate) fn noted<T>(
    polled: Poll<T>,
    context: &Context<'_>,
    wait: impl FnOnce() -> Wait,
) -> Poll<T> {
    if polled.is_pending() && debug::wants_wait_graph() {
        note(context, wait());
    }
    polled
}

/// Notes that a set has found nothing in its ports. `set` is where its own waker is.
pub(crate) fn note_all(context: &Context<'_>, set: End, ports: impl Iterator<Item = Awaited>) {
    SCOPE.with_borrow_mut(|scope| {
        let Some(scope) = scope.as_mut().filter(|scope| scope.is_its(context)) else {
            return;
        };
        scope.cells.insert(set);
        let mut table = table();
        for port in ports {
            match port {
                Awaited::Wait(wait) => scope.note(wait, &mut table),
                Awaited::Nothing => {}
                Awaited::Unknown => scope.is_open = true,
            }
        }
    });
}

/// The party that runs on this thread holds this end.
pub(crate) fn hold(end: End) {
    if debug::wants_wait_graph() {
        let party = SCOPE.with_borrow(|scope| scope.as_ref().map(|scope| scope.party));
        let party = party.unwrap_or_else(|| Party::Thread(thread::current().id()));
        table().hold(end, party);
    }
}

/// This end is left.
#[inline]
pub(crate) fn forget(end: impl FnOnce() -> End) {
    if debug::wants_wait_graph() {
        forget_now(end());
    }
}

/// Begins or ends. What is on record is so only while it is on.
pub(crate) fn switch(is_on: &AtomicBool, is_wanted: bool) {
    let mut table = table();
    is_on.store(is_wanted, Ordering::Relaxed);
    if !is_wanted {
        table.clear();
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Party {
    Thread(ThreadId),
    Task(u64),
}

/// The poll of a party on this thread.
struct Scope {
    party: Party,
    /// By which its waker is known.
    waker: *const (),
    /// Each with what the table says of its end.
    waits: Vec<(Wait, Holder)>,
    /// Where this crate keeps a clone of its waker, by the ends it is kept for.
    cells: HashSet<End>,
    /// Something else can wake it.
    is_open: bool,
}

thread_local! {
    static SCOPE: RefCell<Option<Scope>> = const { RefCell::new(None) };
}

impl Scope {
    fn note(&mut self, wait: Wait, table: &mut Table) {
        self.waits.retain(|(before, _)| before.end != wait.end);
        self.waits.push((wait, table.hold(wait.end, self.party)));
    }

    fn is_its(&self, context: &Context<'_>) -> bool {
        self.waker == context.waker().data()
    }
}

/// Puts back the scope that was there before, also when the poll panics.
struct Before(Option<Scope>);

impl Drop for Before {
    fn drop(&mut self) {
        SCOPE.set(self.0.take());
    }
}

/// A party's waker for one poll.
struct Relay {
    waker: Waker,
    has_rung: AtomicBool,
}

impl Wake for Relay {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.has_rung.store(true, Ordering::Release);
        self.waker.wake_by_ref();
    }
}

#[cold]
fn in_scope<T>(
    party: Party,
    kind: &'static str,
    name: &str,
    is_open: bool,
    context: &Context<'_>,
    poll: impl FnOnce(&mut Context<'_>) -> Poll<T>,
) -> Poll<T> {
    table().get_up(party);
    let relay = Arc::new(Relay {
        waker: context.waker().clone(),
        has_rung: AtomicBool::new(false),
    });
    let waker = Waker::from(Arc::clone(&relay));
    let before = Before(SCOPE.replace(Some(Scope {
        party,
        waker: waker.data(),
        waits: Vec::new(),
        cells: HashSet::new(),
        is_open,
    })));
    let polled = poll(&mut Context::from_waker(&waker));
    let scope = SCOPE.take();
    drop(before);
    if let (Poll::Pending, Some(scope)) = (&polled, scope) {
        let known = 2 + scope.cells.len(); // these two here, and those that were noted
        let is_open = scope.is_open
            || relay.has_rung.load(Ordering::Acquire)
            || Arc::strong_count(&relay) != known;
        lie_down(scope, format!("{kind} `{name}`"), is_open);
    }
    polled
}

/// Puts a party on record, and tells of the circle it closes.
fn lie_down(scope: Scope, name: String, is_open: bool) {
    let Scope { party, waits, .. } = scope;
    let mut table = table();
    let is_its = |(wait, holder): &(Wait, Holder)| table.holder(wait.end) == Some(*holder);
    if is_open || waits.is_empty() || !waits.iter().all(is_its) {
        return; // or it has given away an end since it was noted
    }
    let waits = waits.into_iter().map(|(wait, _)| wait).collect();
    let circle = table.lie_down(party, name, waits);
    drop(table);
    if let Some(circle) = circle {
        let up = GetUp(party);
        debug::tell(&format!("nobody will go on: {circle}"));
        std::mem::forget(up);
    }
}

/// A party that is told of by a panic waits no more.
struct GetUp(Party);

impl Drop for GetUp {
    fn drop(&mut self) {
        table().get_up(self.0);
    }
}

#[cold]
fn note(context: &Context<'_>, wait: Wait) {
    SCOPE.with_borrow_mut(|scope| {
        let Some(scope) = scope else { return };
        let mut table = table();
        if scope.is_its(context) {
            scope.cells.insert(wait.end);
            scope.note(wait, &mut table);
        } else {
            table.hold(wait.end, scope.party); // it waits in a way of its own
        }
    });
}

#[cold]
fn forget_now(end: End) {
    // A thread that is ending has lost its scope.
    let _ = SCOPE.try_with(|scope| {
        if let Some(scope) = scope.borrow_mut().as_mut() {
            scope.cells.remove(&end);
            scope.waits.retain(|(wait, _)| wait.end != end);
        }
    });
    table().forget(end);
}
