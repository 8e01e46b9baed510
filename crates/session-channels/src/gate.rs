//! What a side that may sleep shows to those who wake it: a sign that it waits, and its waker.
//!
//! Invariant: of those who find the sign raised, the one that takes it down rings, and rings once.

use std::task::{Context, Poll};

use crate::barrier;
use crate::sync::{AtomicU8, AtomicU32, Ordering, exchanged};
use crate::waker_cell::{Rings, WakerCell, come_back};

/// This side sleeps, or is about to.
pub(crate) const WAITING: u32 = 1;
/// The others may publish by a plain store: this side pays for the barrier when it lies down.
pub(crate) const PLAIN: u32 = 1 << 1;
// Further bits are the user's.

#[derive(Debug)]
pub(crate) struct Gate {
    pub(crate) flags: AtomicU32,
    rings: Rings,
    /// How long this side's thread looks before it sleeps, see [`crate::park`].
    pub(crate) patience: AtomicU8,
    waker: WakerCell,
}

impl Gate {
    pub(crate) fn new() -> Self {
        Self {
            flags: AtomicU32::new(0),
            rings: Rings::new(),
            patience: AtomicU8::new(0),
            waker: WakerCell::new(),
        }
    }

    /// Another side: wake this one if it sleeps.
    #[cold]
    pub(crate) fn wake(&self) {
        if self.flags.fetch_and(!WAITING, Ordering::SeqCst) & WAITING != 0 {
            self.ring();
        }
    }

    /// One of several other sides: the same.
    #[cold]
    pub(crate) fn wake_as_one_of_many(&self) {
        if self.flags.fetch_and(!WAITING, Ordering::SeqCst) & WAITING != 0 {
            self.waker.ring_as_one_of_many(&self.rings);
        }
    }

    /// Another side, which has taken the sign down, wherever it was: wake this one.
    pub(crate) fn ring(&self) {
        self.waker.ring(&self.rings);
    }

    /// This side: whether this context's task would be woken.
    pub(crate) fn would_wake(&self, context: &Context<'_>) -> bool {
        self.waker.holds(context.waker())
    }

    /// This side, before it raises the sign: wake this task. `Pending` as long as an earlier ring
    /// is on its way, which is over soon.
    pub(crate) fn expect_ring(&self, context: &Context<'_>) -> Poll<()> {
        if !self.waker.set(&self.rings, context.waker()) {
            return come_back(context);
        }
        self.rings.arm();
        Poll::Ready(())
    }

    /// This side: it took the sign down itself.
    pub(crate) fn expect_none(&self) {
        self.rings.disarm();
    }

    /// This side: raise the sign, and look once more afterwards. `Pending` as for
    /// [`expect_ring`](Self::expect_ring).
    pub(crate) fn lie_down(&self, context: &Context<'_>) -> Poll<()> {
        if self.flags.load(Ordering::Relaxed) & WAITING != 0 {
            if self.would_wake(context) {
                return Poll::Ready(());
            }
            self.get_up();
        }
        if self.expect_ring(context).is_pending() {
            return Poll::Pending;
        }
        let before = self.flags.fetch_or(WAITING, Ordering::SeqCst);
        exchanged();
        if before & PLAIN != 0 {
            barrier::everywhere();
        }
        Poll::Ready(())
    }

    /// This side: take the sign down, unless somebody has seen it.
    pub(crate) fn get_up(&self) {
        if self.flags.load(Ordering::Relaxed) & WAITING != 0
            && self.flags.fetch_and(!WAITING, Ordering::SeqCst) & WAITING != 0
        {
            self.expect_none();
        }
    }
}
