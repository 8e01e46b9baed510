//! Who has a core first, where the load and the broker share them.
//!
//! What is asked is how long a broker keeps the quiet pair, and not how long the pair's threads
//! wait for a core: on a machine of its own they would not. Beside a broker that is busy they
//! waited for up to 4 ms though the other of two cores was idle: the kernel wakes a thread on the
//! core of the one that wakes it, takes an idle core of a virtual machine for one that is not to be
//! had, and looks for a better one at the next tick. So they come before all of ordinary priority,
//! and the flood's own thread behind them, for the fastest broker gives it the most to do. A `nice`
//! value is not enough for either: who is woken waits for the end of the other's slice all the
//! same. Who comes first also sleeps without slack, which is 50 µs for others.
//!
//! Brokers have the priority that every program has, so a latency holds what they wait for a core.

use std::{io, panic, thread};

/// Runs this in a thread of its own that comes, with all that it starts, before those of ordinary
/// priority; where that is not [allowed](is_allowed), as they do.
pub(super) fn first<T: Send>(run: impl FnOnce() -> T + Send) -> T {
    let ran = thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let _ = scheduled::ahead();
            run()
        });
        thread.join()
    });
    ran.unwrap_or_else(|panicked| panic::resume_unwind(panicked))
}

/// Lets all others have a core before this thread and those that it starts, if that is
/// [allowed](is_allowed).
pub(super) fn last() {
    let _ = scheduled::behind();
}

/// Whether the system lets this process have threads that come first, which on Linux takes
/// `CAP_SYS_NICE` or `RLIMIT_RTPRIO`, and last.
pub(super) fn is_allowed() -> bool {
    let may = |set: fn() -> io::Result<()>| thread::spawn(set).join().is_ok_and(|set| set.is_ok());
    may(scheduled::ahead) && may(scheduled::behind)
}

#[cfg(target_os = "linux")]
mod scheduled {
    use std::io;

    use thread_priority::{
        Error, NormalThreadSchedulePolicy, RealtimeThreadSchedulePolicy, ThreadPriority,
        ThreadSchedulePolicy, set_thread_priority_and_policy, thread_native_id,
        thread_schedule_policy,
    };

    pub(super) fn ahead() -> io::Result<()> {
        let fifo = RealtimeThreadSchedulePolicy::Fifo;
        set(ThreadSchedulePolicy::Realtime(fifo))
    }

    pub(super) fn behind() -> io::Result<()> {
        let idle = ThreadSchedulePolicy::Normal(NormalThreadSchedulePolicy::Idle);
        // A process with a nice value may not give it up, and need not.
        set(idle).or_else(|error| match thread_schedule_policy() {
            Ok(policy) if policy == idle => Ok(()),
            _ => Err(error),
        })
    }

    /// Sets how this thread is scheduled, at the least priority of the policy.
    fn set(policy: ThreadSchedulePolicy) -> io::Result<()> {
        let set = set_thread_priority_and_policy(thread_native_id(), ThreadPriority::Min, policy);
        set.map_err(|error| match error {
            Error::OS(number) => io::Error::from_raw_os_error(number),
            other => io::Error::other(other),
        })
    }
}

/// Elsewhere the same names mean other things.
#[cfg(not(target_os = "linux"))]
mod scheduled {
    use std::io;

    pub(super) fn ahead() -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(super) fn behind() -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use thread_priority::{
        NormalThreadSchedulePolicy, ThreadSchedulePolicy, thread_schedule_policy,
    };

    #[test]
    fn who_comes_first_or_last_does_so_alone() {
        let may = |set: fn() -> io::Result<()>| thread::spawn(set).join().unwrap().is_ok();
        let before = thread_schedule_policy().unwrap();
        let first = first(|| thread_schedule_policy().unwrap());
        assert_eq!(first != before, may(scheduled::ahead));
        let last = thread::spawn(|| {
            last();
            thread_schedule_policy().unwrap()
        });
        let idle = ThreadSchedulePolicy::Normal(NormalThreadSchedulePolicy::Idle);
        assert_eq!(last.join().unwrap() == idle, may(scheduled::behind));
        assert_eq!(thread_schedule_policy().unwrap(), before);
    }
}
