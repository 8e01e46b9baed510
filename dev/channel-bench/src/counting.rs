//! An allocator that counts the bytes which are in use, while it is asked to.
//!
//! It counts what is asked for, not what the system's allocator adds. While nobody counts it costs
//! one load of a flag for each call, the same for all peers.

#![expect(unsafe_code, reason = "GlobalAlloc is an unsafe trait")]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    sync::atomic::{AtomicBool, AtomicI64, Ordering},
};

static COUNTS: AtomicBool = AtomicBool::new(false);
static IN_USE: AtomicI64 = AtomicI64::new(0);

/// The system's allocator, counted.
#[derive(Debug)]
pub struct Counting;

/// Counts from here on, from zero.
pub(crate) fn begin() {
    IN_USE.store(0, Ordering::SeqCst);
    COUNTS.store(true, Ordering::SeqCst);
}

/// How many more bytes are in use than at the beginning; none if nobody installed the allocator.
pub(crate) fn end() -> u64 {
    COUNTS.store(false, Ordering::SeqCst);
    u64::try_from(IN_USE.load(Ordering::SeqCst)).unwrap_or(0)
}

fn count(bytes: usize, sign: i64) {
    if COUNTS.load(Ordering::Relaxed) {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        IN_USE.fetch_add(sign * bytes, Ordering::Relaxed);
    }
}

// SAFETY: every call goes to the system's allocator unchanged; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 1);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 1);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(layout.size(), -1);
        count(size, 1);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.realloc(block, layout, size) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        count(layout.size(), -1);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(block, layout) }
    }
}
