//! Reports for those who look for a mistake: an endpoint dropped before the protocol's end, and
//! threads that wait for each other.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

/// What to do about an endpoint that is dropped in a state that is not its protocol's end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum OnDrop {
    /// Nothing: the other side is told, which is often all that is wanted.
    Ignore = 0,
    /// Write protocol, state and thread to standard error.
    Report = 1,
    /// Panic with the same words, to find the place by its backtrace.
    Panic = 2,
}

static ON_DROP: AtomicU8 = AtomicU8::new(OnDrop::Ignore as u8);
static WAIT_GRAPH: AtomicBool = AtomicBool::new(false);

/// Sets what is done about early drops, for the whole process. Endpoints dropped while their thread
/// panics are never reported.
pub fn on_drop(what: OnDrop) {
    ON_DROP.store(what as u8, Ordering::Relaxed);
}

/// Has threads say whom they wait for, in the whole process, so that the one that closes a circle
/// of waits can name it: `thread `a` waits in `bank.login_response` for thread `b`, which waits in
/// …`. It panics if [`on_drop`] is set to [`OnDrop::Panic`], which frees the others; else it writes
/// to standard error and waits on.
///
/// Recorded are the blocking waits of sessions that [`proto!`](crate::proto) describes. A circle is
/// one of waits without a deadline. An endpoint counts as held by the thread that last waited with
/// it: one that has never been waited with is not found, and one that was handed on since may be
/// reported wrongly. Costs a lock for each wait while it is on, and one relaxed load for each wait
/// and end of a session while it is off.
pub fn wait_graph(is_wanted: bool) {
    WAIT_GRAPH.store(is_wanted, Ordering::Relaxed);
}

#[inline]
pub(crate) fn wants_wait_graph() -> bool {
    WAIT_GRAPH.load(Ordering::Relaxed)
}

/// Reports, or panics where that is asked for.
#[cold]
#[allow(clippy::print_stderr, reason = "asked for by the program's author")]
pub(crate) fn tell(words: &str) {
    let panics = ON_DROP.load(Ordering::Relaxed) == OnDrop::Panic as u8;
    assert!(!panics, "{words}");
    eprintln!("{words}");
}

#[inline]
pub(crate) fn dropped(protocol: &'static str, state: &'static str) {
    let what = ON_DROP.load(Ordering::Relaxed);
    if what != OnDrop::Ignore as u8 {
        report(protocol, state);
    }
}

#[cold]
fn report(protocol: &'static str, state: &'static str) {
    let thread = std::thread::current();
    let thread = thread.name().unwrap_or("unnamed");
    tell(&format!(
        "an endpoint of `{protocol}` was dropped in state `{state}`, before the protocol's end, \
         by thread `{thread}`"
    ));
}
