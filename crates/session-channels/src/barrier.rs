//! A memory barrier that one thread pays for all: `membarrier(2)`, private and expedited.
//!
//! After [`everywhere`] returns, every other running thread of the process has executed a full
//! barrier between two of its instructions; so the fast side of a Dekker pair needs none of its own
//! but must keep the compiler from swapping its store and load ([`here`]). Where the call is
//! missing ([`is_here`] is false) nobody asks the other side to go without.

#[cfg(all(target_os = "linux", not(any(loom, shuttle, miri))))]
mod system {
    use std::sync::atomic::{AtomicU8, Ordering};

    const REGISTER_PRIVATE_EXPEDITED: i64 = 1 << 4;
    const PRIVATE_EXPEDITED: i64 = 1 << 3;

    fn membarrier(command: i64) -> i64 {
        // SAFETY: the call reads and writes no memory of ours.
        #[allow(unsafe_code, reason = "std has no membarrier")]
        unsafe {
            libc::syscall(libc::SYS_membarrier, command, 0_i64, 0_i64)
        }
    }

    pub(crate) fn is_here() -> bool {
        const UNKNOWN: u8 = 0;
        const YES: u8 = 1;
        const NO: u8 = 2;
        static HERE: AtomicU8 = AtomicU8::new(UNKNOWN);
        match HERE.load(Ordering::Relaxed) {
            UNKNOWN => {
                // Two that ask at once both register, which does no harm.
                let here = membarrier(REGISTER_PRIVATE_EXPEDITED) == 0;
                HERE.store(if here { YES } else { NO }, Ordering::Relaxed);
                here
            }
            known => known == YES,
        }
    }

    #[cold]
    pub(crate) fn everywhere() {
        let done = membarrier(PRIVATE_EXPEDITED);
        assert!(done == 0, "membarrier was registered, so it does not fail");
    }
}

/// A barrier on all cores is for either side as if the other had one too, so that is what a model
/// checker is shown. Missing unless a model asks for it.
#[cfg(loom)]
mod system {
    use loom::sync::atomic::{Ordering, fence};
    use std::cell::Cell;

    std::thread_local! {
        static IS_HERE: Cell<bool> = const { Cell::new(false) };
    }

    pub(crate) fn is_here() -> bool {
        IS_HERE.get()
    }

    pub(crate) fn everywhere() {
        fence(Ordering::SeqCst);
    }

    /// Plays with a barrier that is here.
    #[cfg(test)]
    pub(crate) fn with_barrier(play: impl FnOnce()) {
        IS_HERE.set(true);
        play();
        IS_HERE.set(false);
    }
}

#[cfg(not(any(all(target_os = "linux", not(any(shuttle, miri))), loom)))]
mod system {
    pub(crate) fn is_here() -> bool {
        false
    }

    pub(crate) fn everywhere() {
        unreachable!("asked for only where it is here");
    }
}

#[cfg(all(test, loom))]
pub(crate) use system::with_barrier;
pub(crate) use system::{everywhere, is_here};

/// The fast side's part: its store comes before its load in the program that runs.
#[inline]
pub(crate) fn here() {
    #[cfg(not(loom))]
    std::sync::atomic::compiler_fence(std::sync::atomic::Ordering::SeqCst);
    #[cfg(loom)]
    loom::sync::atomic::fence(loom::sync::atomic::Ordering::SeqCst);
}
