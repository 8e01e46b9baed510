//! One side's waker, kept from sleep to sleep and rung by the other side.
//!
//! Invariants:
//! - Only the owner writes the cell; the other side only reads it, between the moment it has taken
//!   the owner's sign that it waits and [`WakerCell::rang`].
//! - The owner writes only while no ring is on its way: every sleep that was ended by a ring is
//!   counted by the owner when it lies down (`armed`) and by the ringer when it is done (`rung`).
//!   The numbers differ as long as the ringer may still look into the cell, also when the owner has
//!   long gone on. Freeing the cell under a ringer is ruled out by whoever owns the memory: a side
//!   leaves only after its last ring.
//!
//! The sign itself (a bit in some word) belongs to the user of the cell, because a packet and a
//! ring keep it in different places.

use std::task::{Context, Poll, Waker};

use crate::sync::{AtomicU8, Ordering, UnsafeCell, relax};

/// The counters of one cell; apart from it so that they lie in the line that is touched anyway.
#[derive(Debug)]
pub(crate) struct Rings {
    /// Written by the owner alone.
    armed: AtomicU8,
    /// Written by ringers alone.
    rung: AtomicU8,
}

impl Rings {
    pub(crate) fn new() -> Self {
        Self {
            armed: AtomicU8::new(0),
            rung: AtomicU8::new(0),
        }
    }

    /// The owner: one more ring is to come.
    #[inline]
    pub(crate) fn arm(&self) {
        let armed = self.armed.load(Ordering::Relaxed);
        self.armed.store(armed.wrapping_add(1), Ordering::Relaxed);
    }

    /// The owner: it took its sign back before anybody saw it; no ring will come.
    #[inline]
    pub(crate) fn disarm(&self) {
        let armed = self.armed.load(Ordering::Relaxed);
        self.armed.store(armed.wrapping_sub(1), Ordering::Relaxed);
    }

    /// The owner: no ring is on its way.
    #[inline]
    fn quiet(&self) -> bool {
        self.armed.load(Ordering::Relaxed) == self.rung.load(Ordering::Acquire)
    }

    /// The owner: as many rings are on their way as can be counted. With one ringer there is one at
    /// the most; of many, all could have been stopped in the middle.
    #[inline]
    fn are_full(&self) -> bool {
        let (armed, rung) = (
            self.armed.load(Ordering::Relaxed),
            self.rung.load(Ordering::Relaxed),
        );
        armed.wrapping_sub(rung) == u8::MAX
    }

    /// The only ringer there is: it will not look again.
    #[inline]
    fn rang(&self) {
        let rung = self.rung.load(Ordering::Relaxed);
        self.rung.store(rung.wrapping_add(1), Ordering::Release);
    }

    /// One of several ringers, of whom another may be late with an earlier ring.
    #[inline]
    fn one_rang(&self) {
        self.rung.fetch_add(1, Ordering::Release);
    }
}

#[derive(Debug)]
pub(crate) struct WakerCell(UnsafeCell<Option<Waker>>);

impl WakerCell {
    pub(crate) fn new() -> Self {
        Self(UnsafeCell::new(None))
    }

    /// The owner: whether it would be this one that is woken.
    #[inline]
    pub(crate) fn holds(&self, waker: &Waker) -> bool {
        self.0.with(|cell| {
            // SAFETY: only the owner writes, and this is the owner.
            unsafe { (*cell).as_ref() }.is_some_and(|held| held.will_wake(waker))
        })
    }

    /// The owner: from the next sign on, wake this one. Answers false if a ring is on its way that
    /// has to be waited for, which is over soon; then nothing was changed.
    #[inline]
    pub(crate) fn set(&self, rings: &Rings, waker: &Waker) -> bool {
        if self.holds(waker) {
            return !rings.are_full();
        }
        if !rings.quiet() {
            return false;
        }
        let waker = waker.clone();
        let before = self.0.with_mut(|cell| {
            // SAFETY: the owner's sign is down and no ring is on its way, so the other side does
            // not look.
            unsafe { (*cell).replace(waker) }
        });
        drop(before);
        true
    }

    /// The other side, which has taken the owner's sign: wake it.
    #[inline]
    pub(crate) fn ring(&self, rings: &Rings) {
        self.wake();
        rings.rang();
    }

    /// The same for one of several sides, of which one at a time can have taken the sign.
    #[inline]
    pub(crate) fn ring_as_one_of_many(&self, rings: &Rings) {
        self.wake();
        rings.one_rang();
    }

    #[inline]
    fn wake(&self) {
        self.0.with(|cell| {
            // SAFETY: the owner does not write before `rang`, and the memory stays as long as this
            // side has not left.
            if let Some(waker) = unsafe { (*cell).as_ref() } {
                waker.wake_by_ref();
            }
        });
    }
}

/// What a side answers that cannot lie down yet, because a ring is on its way.
#[cold]
pub(crate) fn come_back<T>(context: &Context<'_>) -> Poll<T> {
    context.waker().wake_by_ref();
    relax();
    Poll::Pending
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn a_waker_is_not_exchanged_while_rings_are_on_their_way_however_many() {
        let (cell, rings) = (WakerCell::new(), Rings::new());
        let [one, other] = [(); 2].map(|()| Waker::from(std::sync::Arc::new(Sleeper)));
        let mut lain_down = 0;
        while lain_down < 1000 && cell.set(&rings, &one) {
            rings.arm();
            lain_down += 1;
            assert!(!cell.set(&rings, &other), "after {lain_down}");
        }
        assert!(lain_down > 200, "the same waker need not be exchanged");
        for _ in 0..lain_down {
            cell.ring_as_one_of_many(&rings);
        }
        assert!(cell.set(&rings, &other));
    }

    struct Sleeper;

    impl std::task::Wake for Sleeper {
        fn wake(self: std::sync::Arc<Self>) {}
    }
}
