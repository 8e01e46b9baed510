//! What a thread has had of the cores: what the kernel counts for it.
//!
//! Deliberately absent: systems that do not tell. There it is no time at all, and a loop that
//! shares its core seems idler than it is.

use std::time::Duration;

/// In all so far, or between two moments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Times {
    /// Running.
    pub(crate) served: Duration,
    /// Ready to run, and without a core.
    pub(crate) unserved: Duration,
}

impl Times {
    pub(crate) fn since(self, before: Self) -> Self {
        Self {
            served: self.served.saturating_sub(before.served),
            unserved: self.unserved.saturating_sub(before.unserved),
        }
    }
}

/// What the kernel tells of one thread.
#[derive(Debug, Default)]
pub(crate) struct Core {
    #[cfg(target_os = "linux")]
    counts: Option<std::fs::File>,
}

impl Core {
    /// That of the thread that asks.
    #[cfg(target_os = "linux")]
    pub(crate) fn of_this_thread() -> Self {
        let counts = std::fs::File::open("/proc/thread-self/schedstat").ok();
        Self { counts }
    }

    #[cfg(not(target_os = "linux"))]
    pub(crate) fn of_this_thread() -> Self {
        Self {}
    }

    /// Of the thread that asks, which is to be the same. Two system calls.
    #[cfg(target_os = "linux")]
    pub(crate) fn times(&self) -> Times {
        // The file has this too, as of the last tick of the kernel, some milliseconds ago.
        let served = nix::time::ClockId::CLOCK_THREAD_CPUTIME_ID.now();
        Times {
            served: served.map_or(Duration::ZERO, Duration::from),
            unserved: self.unserved(),
        }
    }

    #[cfg(not(target_os = "linux"))]
    pub(crate) fn times(&self) -> Times {
        Times::default()
    }

    #[cfg(target_os = "linux")]
    fn unserved(&self) -> Duration {
        use std::os::unix::fs::FileExt;

        let mut text = [0; 64];
        let read = self.counts.as_ref().map(|file| file.read_at(&mut text, 0));
        let Some(Ok(count)) = read else {
            return Duration::ZERO;
        };
        second_number(&text[..count]).map_or(Duration::ZERO, Duration::from_nanos)
    }
}

/// Nanoseconds on a core, nanoseconds waiting for one, and how often it had one.
#[cfg(target_os = "linux")]
fn second_number(text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?;
    text.split_ascii_whitespace().nth(1)?.parse().ok()
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn the_second_number_is_what_a_thread_waited() {
        assert_eq!(second_number(b"81 1700 3\n"), Some(1_700));
        for text in [&b""[..], b"81", b"81 x 3", b"\xff 1"] {
            assert_eq!(second_number(text), None);
        }
    }

    #[test]
    fn a_thread_that_works_is_served() {
        let core = Core::of_this_thread();
        let before = core.times();
        while core.times().since(before).served < Duration::from_millis(1) {
            std::hint::spin_loop();
        }
        assert!(core.times().unserved >= before.unserved);
    }

    #[test]
    fn whoever_asked_for_nothing_has_waited_for_nothing() {
        assert_eq!(Core::default().times().unserved, Duration::ZERO);
    }
}
