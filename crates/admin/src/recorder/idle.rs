//! Readings while no one looks: asked for at one tick and taken at the next, so that no thread
//! waits for an answer; and seldom while nothing changes, so that an idle broker sleeps.

use std::time::Instant;

use unbroken_broker::handle::{CountersAsked, Stats};

use super::series::Reading;
use crate::broker::Broker;
use crate::limits::IDLE_TICKS_MAX;
use crate::process::Process;

#[derive(Debug, Default)]
pub(super) struct Idle {
    asked: Option<(CountersAsked, Reading)>,
    /// Ticks until the next question, and how many that were the last time.
    left: u32,
    pause: u32,
}

impl Idle {
    /// What was asked for, if it was answered.
    pub(super) fn take(&mut self) -> Option<Reading> {
        let (mut asked, reading) = self.asked.take()?;
        match asked.take() {
            Ok(Some(stats)) => Some(Reading { stats, ..reading }),
            Ok(None) => {
                self.asked = Some((asked, reading));
                None
            }
            Err(_) => None, // a gap
        }
    }

    /// Nothing has changed for a while.
    pub(super) fn is_resting(&self) -> bool {
        self.pause >= IDLE_TICKS_MAX
    }

    /// Asks, unless an answer is due, or nothing has changed for a while. `is_quiet`: the last
    /// reading was like the one before.
    pub(super) fn ask(&mut self, broker: &Broker, is_quiet: bool) {
        if !is_quiet {
            (self.left, self.pause) = (0, 0);
        }
        if self.asked.is_some() {
            return;
        }
        if self.left > 0 {
            self.left -= 1;
            return;
        }
        self.left = self.pause;
        self.pause = (self.pause * 2).clamp(1, IDLE_TICKS_MAX);
        let handle = broker.handle();
        let reading = Reading {
            stats: Stats::default(),
            connections: handle.connections(),
            process: Process::load(),
            at: Instant::now(),
        };
        let asked = handle.ask_counters();
        self.asked = asked.ok().map(|asked| (asked, reading));
    }
}
