//! Whether a thread that has caught up with the other side should give it a head start.
//!
//! Two threads that stream at the same speed meet at every message: the one behind looks at the
//! index while the other writes it, and each look takes the line away from the writer. If the one
//! behind looks a little later it finds many messages at once, for one such line. Where a message
//! waits for its answer, that would be lateness for nothing. So a side now and then tries whether
//! waiting brings more at a time, and waits only as long as it does.
//!
//! Invariant: no memory but its own, and nothing that others see, depends on it.

use std::cell::Cell;

/// Pauses before the first look: about a microsecond.
const HEAD_START: u32 = if cfg!(any(loom, shuttle)) { 0 } else { 32 };
/// What came in so many waits is compared.
const WINDOW: u16 = 16;
/// With fewer at a time there is something to win.
const FEW: u32 = 8;
/// A head start is worth it if it brings so many times more.
const GAIN: u32 = 4;
/// After a try that did not: so many windows without another.
const CONTENT: u16 = 1_024;

#[derive(Debug, Default)]
pub(crate) struct Coalesce {
    mode: Cell<Mode>,
    waits: Cell<u16>,
    came: Cell<u32>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Mode {
    #[default]
    Eager,
    /// With a head start, for one window. Before, so many came in one.
    Trying(u32),
    Patient,
    /// No try for so many windows.
    Content(u16),
}

impl Coalesce {
    /// The side waits, `came` messages after it last did. Answers how many pauses to make before
    /// the first look.
    pub(crate) fn head_start(&self, came: u32) -> u32 {
        let all = self.came.get().saturating_add(came);
        let waits = self.waits.get() + 1;
        if waits < WINDOW {
            self.came.set(all);
            self.waits.set(waits);
        } else {
            self.came.set(0);
            self.waits.set(0);
            self.mode.set(self.mode.get().after(all));
        }
        match self.mode.get() {
            Mode::Trying(_) | Mode::Patient => HEAD_START,
            Mode::Eager | Mode::Content(_) => 0,
        }
    }
}

impl Mode {
    /// After a window in which so many came.
    fn after(self, came: u32) -> Self {
        let few = came < FEW * u32::from(WINDOW);
        match self {
            Self::Eager if few => Self::Trying(came),
            Self::Trying(before) if came >= GAIN.saturating_mul(before) => Self::Patient,
            Self::Trying(_) => Self::Content(CONTENT),
            Self::Patient if !few => Self::Patient,
            Self::Content(windows) if windows > 1 => Self::Content(windows - 1),
            Self::Eager | Self::Patient | Self::Content(_) => Self::Eager,
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    /// The pauses of so many waits, each of which brings `came(pauses before)`.
    fn pauses(waits: u32, came: impl Fn(u32) -> u32) -> Vec<u32> {
        let side = Coalesce::default();
        let mut last = 0;
        (0..waits)
            .map(|_| {
                last = side.head_start(came(last));
                last
            })
            .collect()
    }

    #[test]
    fn a_stream_that_comes_in_heaps_after_a_head_start_is_given_one() {
        let pauses = pauses(1_000, |pauses| 1 + pauses);
        assert!(pauses[100..].iter().all(|&pauses| pauses == HEAD_START));
    }

    #[test]
    fn questions_and_answers_are_hardly_ever_kept_waiting() {
        let pauses = pauses(100_000, |_| 1);
        let waited = pauses.iter().filter(|&&pauses| pauses > 0).count();
        assert!((1..=100_000 / 500).contains(&waited), "{waited}");
    }

    #[test]
    fn one_who_gets_many_at_a_time_does_not_try() {
        assert!(pauses(1_000, |_| 100).iter().all(|&pauses| pauses == 0));
    }
}
