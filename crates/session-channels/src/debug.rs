//! Reports for those who look for a mistake: an endpoint dropped before the protocol's end.

use std::sync::atomic::{AtomicU8, Ordering};

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

/// Sets what is done about early drops, for the whole process. Endpoints dropped while their thread
/// panics are never reported.
pub fn on_drop(what: OnDrop) {
    ON_DROP.store(what as u8, Ordering::Relaxed);
}

#[inline]
pub(crate) fn dropped(protocol: &'static str, state: &'static str) {
    let what = ON_DROP.load(Ordering::Relaxed);
    if what != OnDrop::Ignore as u8 {
        report(what, protocol, state);
    }
}

#[cold]
#[allow(clippy::print_stderr, reason = "asked for by the program's author")]
fn report(what: u8, protocol: &'static str, state: &'static str) {
    let thread = std::thread::current();
    let thread = thread.name().unwrap_or("unnamed");
    let words = format!(
        "an endpoint of `{protocol}` was dropped in state `{state}`, before the protocol's end, \
         by thread `{thread}`"
    );
    assert!(what != OnDrop::Panic as u8, "{words}");
    eprintln!("{words}");
}
