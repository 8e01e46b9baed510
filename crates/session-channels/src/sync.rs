//! The atomics and cells of the lock-free files, exchanged for a model checker's when it runs.
//!
//! Under `cfg(loom)` every access below is a point where the checker may switch threads, and an
//! [`UnsafeCell`] that two threads use at once fails the model. Under `cfg(shuttle)` a scheduler
//! switches there as chance will have it, for longer runs of the whole crate than a model can try.

#[cfg(not(any(loom, shuttle)))]
pub(crate) use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, Ordering};

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, Ordering};

#[cfg(shuttle)]
pub(crate) use shuttle::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, Ordering};

/// What waiting threads are made of.
#[cfg(not(shuttle))]
pub(crate) use std::{thread, thread_local};

#[cfg(shuttle)]
pub(crate) use shuttle::{thread, thread_local};

/// A number on which no order hangs, so that a model is spared it.
pub(crate) use std::sync::atomic::AtomicU32 as UnwatchedU32;

/// A cell whose users say when they look into it, so that a model can see two at once.
#[derive(Debug)]
pub(crate) struct UnsafeCell<T>(
    #[cfg(not(loom))] std::cell::UnsafeCell<T>,
    #[cfg(loom)] loom::cell::UnsafeCell<T>,
);

impl<T> UnsafeCell<T> {
    #[cfg(not(loom))]
    pub(crate) const fn new(value: T) -> Self {
        Self(std::cell::UnsafeCell::new(value))
    }

    #[cfg(loom)]
    pub(crate) fn new(value: T) -> Self {
        Self(loom::cell::UnsafeCell::new(value))
    }

    /// For reading: nobody may write meanwhile.
    #[inline]
    pub(crate) fn with<R>(&self, look: impl FnOnce(*const T) -> R) -> R {
        #[cfg(not(loom))]
        return look(self.0.get());
        #[cfg(loom)]
        return self.0.with(look);
    }

    /// For writing: nobody else may look meanwhile.
    #[inline]
    pub(crate) fn with_mut<R>(&self, change: impl FnOnce(*mut T) -> R) -> R {
        #[cfg(not(loom))]
        return change(self.0.get());
        #[cfg(loom)]
        return self.0.with_mut(change);
    }
}

/// Stands behind an exchange that must come before the next load in everybody's eyes. A
/// sequentially consistent one does; the model checker takes only a fence for that.
#[inline]
pub(crate) fn exchanged() {
    #[cfg(loom)]
    loom::sync::atomic::fence(Ordering::SeqCst);
}

/// What a waiting thread does between two looks.
#[inline]
pub(crate) fn relax() {
    #[cfg(not(any(loom, shuttle)))]
    std::hint::spin_loop();
    #[cfg(shuttle)]
    thread::yield_now();
    #[cfg(loom)]
    loom::thread::yield_now();
}
