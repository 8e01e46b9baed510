//! The system's allocator, with what each thread has in use and has ever asked for counted apart.

#![allow(dead_code, reason = "each test binary uses a part")]
#![expect(unsafe_code, reason = "GlobalAlloc is an unsafe trait")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Counting;

#[global_allocator]
static COUNTING: Counting = Counting;

thread_local! {
    static IN_USE: Cell<usize> = const { Cell::new(0) };
    static ASKED_FOR: Cell<usize> = const { Cell::new(0) };
}

/// Bytes that this thread has taken and not given back; wraps where it gives back another's.
pub(crate) fn in_use() -> usize {
    IN_USE.get()
}

/// Bytes that this thread has taken so far, given back or not.
pub(crate) fn asked_for() -> usize {
    ASKED_FOR.get()
}

fn count(counter: &'static std::thread::LocalKey<Cell<usize>>, change: impl Fn(usize) -> usize) {
    // A thread that ends gives back after its counters are gone.
    let _ = counter.try_with(|bytes| bytes.set(change(bytes.get())));
}

// SAFETY: every call goes to the system's allocator unchanged; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(&IN_USE, |bytes| bytes.wrapping_add(layout.size()));
        count(&ASKED_FOR, |bytes| bytes.wrapping_add(layout.size()));
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        count(&IN_USE, |bytes| bytes.wrapping_sub(layout.size()));
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(block, layout) }
    }
}
