//! How long a thread has been ready to run and had no core: what the kernel counts for it.
//!
//! Deliberately absent: systems that do not tell. There it is no time at all, and a loop that
//! shares its core seems idler than it is.

use std::time::Duration;

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

    /// In all so far. One system call.
    #[cfg(target_os = "linux")]
    pub(crate) fn unserved(&self) -> Duration {
        use std::os::unix::fs::FileExt;

        let mut text = [0; 64];
        let read = self.counts.as_ref().map(|file| file.read_at(&mut text, 0));
        let Some(Ok(count)) = read else {
            return Duration::ZERO;
        };
        second_number(&text[..count]).map_or(Duration::ZERO, Duration::from_nanos)
    }

    #[cfg(not(target_os = "linux"))]
    pub(crate) fn unserved(&self) -> Duration {
        Duration::ZERO
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
    fn whoever_asked_for_nothing_is_told_of_no_time() {
        assert_eq!(Core::default().unserved(), Duration::ZERO);
        // Never less than before.
        let core = Core::of_this_thread();
        assert!(core.unserved() <= core.unserved());
    }
}
