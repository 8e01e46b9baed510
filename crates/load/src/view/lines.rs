//! One line a second, for pipes and logs.

use crate::{
    report::grouped,
    run::{Observer, Phase, Progress},
};
use std::{
    io::Write,
    ops::ControlFlow,
    time::{Duration, Instant},
};

const EVERY: Duration = Duration::from_secs(1);

/// Writes to any writer.
#[derive(Debug)]
pub(crate) struct Lines<W> {
    out: W,
    phase: Option<Phase>,
    last: Instant,
    delivered: u64,
}

impl<W: Write> Lines<W> {
    pub(crate) fn new(out: W) -> Self {
        Self {
            out,
            phase: None,
            last: Instant::now(),
            delivered: 0,
        }
    }
}

impl<W: Write> Observer for Lines<W> {
    fn observe(&mut self, progress: &Progress) -> ControlFlow<()> {
        let since = self.last.elapsed();
        if self.phase == Some(progress.phase) && since < EVERY {
            return ControlFlow::Continue(());
        }
        let rate = progress.delivered.saturating_sub(self.delivered);
        let per_second = Duration::from_secs(1).div_duration_f64(since);
        #[expect(clippy::cast_precision_loss, reason = "a rate is small")]
        let rate = rate as f64 * per_second;
        let written = writeln!(
            self.out,
            "{:>6.1} s  {:<13} {} clients, {}/s delivered, {} faults",
            progress.in_phase.as_secs_f64(),
            progress.phase.name(),
            progress.clients,
            grouped(rate),
            progress.faults,
        );
        self.phase = Some(progress.phase);
        self.last = Instant::now();
        self.delivered = progress.delivered;
        // A closed pipe ends the run: nobody is left to read the report.
        if written.is_ok() {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    }
}

impl Phase {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Connecting => "connecting",
            Self::Subscribing => "subscribing",
            Self::WarmingUp => "warming up",
            Self::Measuring => "measuring",
            Self::Idling => "idle",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tally::CLASSES;

    #[test]
    fn a_new_phase_is_printed_at_once() {
        let mut out = Vec::new();
        let mut lines = Lines::new(&mut out);
        let mut progress = Progress {
            phase: Phase::Connecting,
            in_phase: Duration::ZERO,
            planned: None,
            clients: 3,
            published: 0,
            delivered: 0,
            faults: 0,
            latency_classes: [0; CLASSES],
        };
        assert!(lines.observe(&progress).is_continue());
        assert!(lines.observe(&progress).is_continue());
        progress.phase = Phase::Measuring;
        assert!(lines.observe(&progress).is_continue());
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text.lines().count(), 2);
        assert!(text.contains("connecting") && text.contains("measuring"));
    }
}
