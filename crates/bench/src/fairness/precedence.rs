//! Who has a core first, where the load and the broker share them.
//!
//! What is asked is how long a broker keeps the quiet pair, and not how long the pair's threads
//! wait for a core: on a machine of its own they would not. Beside a broker that is busy they
//! waited for up to 4 ms though the other of two cores was idle: the kernel wakes a thread on the
//! core of the one that wakes it, takes an idle core of a virtual machine for one that is not to be
//! had, and looks for a better one at the next tick. So they come before everybody, and the flood's
//! own thread behind everybody, for the fastest broker gives it the most to do. A `nice` value is
//! not enough for either: who is woken waits for the end of the other's slice all the same.
//!
//! Brokers have the priority that every program has.

use std::{io, panic, thread};

use thread_priority::{
    NormalThreadSchedulePolicy, RealtimeThreadSchedulePolicy, ThreadPriority, ThreadSchedulePolicy,
    set_thread_priority_and_policy, thread_native_id,
};

/// Runs this in a thread of its own that comes, with all that it starts, before those of ordinary
/// priority; where that is not [allowed](is_allowed), as they do.
pub(super) fn first<T: Send>(run: impl FnOnce() -> T + Send) -> T {
    let ran = thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let _ = ahead();
            run()
        });
        thread.join()
    });
    ran.unwrap_or_else(|panicked| panic::resume_unwind(panicked))
}

/// Whether the system lets this process have threads that come first: root's, or with
/// `CAP_SYS_NICE`.
pub(super) fn is_allowed() -> bool {
    thread::scope(|scope| scope.spawn(ahead).join().is_ok_and(|set| set.is_ok()))
}

/// Lets all others have a core before this thread and those that it starts.
pub(super) fn last() -> io::Result<()> {
    set(ThreadSchedulePolicy::Normal(
        NormalThreadSchedulePolicy::Idle,
    ))
}

fn ahead() -> io::Result<()> {
    set(ThreadSchedulePolicy::Realtime(
        RealtimeThreadSchedulePolicy::Fifo,
    ))
}

/// Sets how this thread is scheduled, at the least priority of the policy.
fn set(policy: ThreadSchedulePolicy) -> io::Result<()> {
    let set = set_thread_priority_and_policy(thread_native_id(), ThreadPriority::Min, policy);
    set.map_err(|error| match error {
        thread_priority::Error::OS(number) => io::Error::from_raw_os_error(number),
        other => io::Error::other(other),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use thread_priority::thread_schedule_policy;

    #[test]
    fn who_comes_first_or_last_does_so_alone() {
        let before = thread_schedule_policy().unwrap();
        let first = first(|| thread_schedule_policy().unwrap());
        assert_eq!(first != before, is_allowed());
        let last = thread::spawn(|| last().map(|()| thread_schedule_policy().unwrap()));
        assert_eq!(
            last.join().unwrap().unwrap(),
            ThreadSchedulePolicy::Normal(NormalThreadSchedulePolicy::Idle)
        );
        assert_eq!(thread_schedule_policy().unwrap(), before);
    }
}
