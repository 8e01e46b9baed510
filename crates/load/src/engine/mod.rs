//! One thread's share of the connections: a readiness loop that publishes, receives and keeps the
//! ledger.
//!
//! A turn is: wait for readiness, read every readable socket once, let each publisher that may
//! write send one batch, write what was queued. So many independent publishers are seen as such:
//! their messages arrive interleaved, one write each, and a window is refilled only as deliveries
//! come back.
//!
//! Invariants: every loop ends by itself, by count, by time, or when nothing has moved for
//! [`QUIET`]; the steady state allocates nothing. Deliberately absent: reconnecting. A connection
//! that the broker closes is a finding.

mod connection;
mod core;
mod layers;
mod publisher;
mod schedule;
mod socket;
#[cfg(target_os = "linux")]
mod source;

use self::core::{Core, Stage};
use crate::{
    error::LoadError,
    plan::Plan,
    settings::{Extent, Settings},
    tally::{Live, Tally},
};
use hdrhistogram::Histogram;
use mio::{Events, Poll};
use std::{
    sync::{Arc, atomic::AtomicBool},
    time::{Duration, Instant},
};

/// A phase in which nothing moves for so long has ended.
const QUIET: Duration = Duration::from_secs(2);
/// Connecting and subscribing wait longer: a broker may think about a large SUBSCRIBE.
const GREETING_QUIET: Duration = Duration::from_secs(10);
/// How long a turn waits when there is nothing to do.
const IDLE_TURN: Duration = Duration::from_millis(20);

/// What all workers of a run share.
#[derive(Debug, Clone)]
pub(crate) struct Common {
    pub(crate) settings: Arc<Settings>,
    pub(crate) epoch: Instant,
    pub(crate) stop: Arc<AtomicBool>,
}

/// What one phase brought.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) tally: Tally,
    pub(crate) latency: Histogram<u64>,
    /// From the time a message was to be sent to its PUBACK or PUBCOMP.
    pub(crate) acknowledged: Histogram<u64>,
    /// From the first message to the last delivery or acknowledgement.
    pub(crate) elapsed: Duration,
}

/// A worker.
#[derive(Debug)]
pub(crate) struct Engine {
    poll: Poll,
    events: Events,
    core: Core,
}

impl Engine {
    pub(crate) fn new(common: Common, plan: Plan, live: Arc<Live>) -> Result<Self, LoadError> {
        let poll = Poll::new()?;
        let core = Core::new(poll.registry().try_clone()?, common, plan, live)?;
        Ok(Self {
            poll,
            events: Events::with_capacity(1024),
            core,
        })
    }

    /// Opens every connection, a few at a time, until all are accepted.
    pub(crate) fn connect(&mut self) -> Result<(), LoadError> {
        let all = self.core.len();
        let at_a_time = self.core.settings().connecting as usize;
        let mut started = 0;
        self.until_all("connecting", all, |core| {
            while started < all && started < core.count(Stage::Up) + at_a_time {
                core.open(started)?;
                started += 1;
            }
            Ok(core.count(Stage::Up))
        })
    }

    /// Subscribes every client that has filters, until all are granted.
    pub(crate) fn subscribe(&mut self) -> Result<(), LoadError> {
        let all = self.core.len();
        for index in 0..all {
            self.core.subscribe(index)?;
        }
        self.until_all("subscribing", all, |core| Ok(core.count(Stage::Up)))
    }

    fn until_all(
        &mut self,
        doing: &'static str,
        all: usize,
        mut progress: impl FnMut(&mut Core) -> Result<usize, LoadError>,
    ) -> Result<(), LoadError> {
        let mut last = (0, Instant::now());
        loop {
            let done = progress(&mut self.core)?;
            if done == all {
                self.core.show();
                return Ok(());
            }
            if done != last.0 {
                last = (done, Instant::now());
            } else if last.1.elapsed() > GREETING_QUIET {
                return Err(LoadError::TimedOut {
                    doing,
                    done,
                    of: all,
                    after: GREETING_QUIET,
                });
            }
            self.turn(IDLE_TURN)?;
            self.core.refuse_closed(doing)?;
            self.core.refuse_stop()?;
        }
    }

    /// Publishes for the extent, then waits until everything came or nothing moves any more.
    pub(crate) fn run(&mut self, extent: Extent) -> Result<Outcome, LoadError> {
        let began = Instant::now();
        self.core.begin(extent);
        loop {
            if self.core.is_publishing() && extent_is_over(extent, began) {
                self.core.stop_publishing();
            }
            if self.core.is_settled() || self.core.idle_for() > QUIET {
                break;
            }
            let wait = self.core.may_wait(IDLE_TURN)?;
            self.turn(wait)?;
            self.core.refuse_stop()?;
        }
        Ok(self.core.end())
    }

    /// What came meanwhile to connections to which nothing was to come.
    pub(crate) fn look(&mut self) -> Outcome {
        self.core.read_all();
        self.core.end()
    }

    /// Answers whatever comes in, once.
    pub(crate) fn turn(&mut self, wait: Duration) -> Result<(), LoadError> {
        match self.poll.poll(&mut self.events, Some(wait)) {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => return Ok(()),
            other => other?,
        }
        self.core.resume_reading()?;
        for event in &self.events {
            self.core.on_ready(event)?;
        }
        self.core.publish();
        self.core.flush_acknowledgements();
        self.core.show_sometimes();
        Ok(())
    }

    /// Leaves as clients should.
    pub(crate) fn disconnect(&mut self) {
        self.core.disconnect();
    }
}

fn extent_is_over(extent: Extent, began: Instant) -> bool {
    match extent {
        Extent::Time(limit) => began.elapsed() >= limit,
        // Ends by itself when every publisher has sent its share.
        Extent::Messages(_) => false,
    }
}
