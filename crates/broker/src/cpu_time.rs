//! CPU time of the calling thread, as the kernel counts it.

use std::time::Duration;

/// The total so far; zero where the system does not report it.
#[cfg(target_os = "linux")]
pub(crate) fn of_this_thread() -> Duration {
    let time = nix::time::ClockId::CLOCK_THREAD_CPUTIME_ID.now();
    time.map_or(Duration::ZERO, Duration::from)
}

/// The total so far; zero where the system does not report it.
#[cfg(not(target_os = "linux"))]
pub(crate) fn of_this_thread() -> Duration {
    Duration::ZERO
}
