//! Traces: steps on their way from a shard to their reader, and as lines.
//!
//! Invariants:
//! - The steps that wait for a reader are bounded. A step without room is counted.
//! - A trace ends at every shard when it is dropped, or with its time.

mod line;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{
    Receiver, RecvTimeoutError, SyncSender, TryRecvError, TrySendError, sync_channel,
};
use std::time::{Duration, Instant, SystemTime};

pub use unbroken_broker_core::{TraceFilter, TraceStep, Traced};

pub use self::line::TraceLine;
pub use crate::bounds::TRACE_PAYLOAD_MAX;
use crate::bounds::TRACE_STEPS;

/// A step, and where and when it happened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TraceRecord {
    /// The end of the turn of the event loop in which it did.
    pub at: SystemTime,
    /// The number of the shard.
    pub shard: u8,
    /// The step.
    pub traced: Traced,
}

/// A shard's sender of the steps of one trace.
#[derive(Clone, Debug)]
pub(crate) struct TraceWatch {
    pub(crate) number: u64,
    pub(crate) until: Instant,
    sender: SyncSender<TraceRecord>,
    pub(crate) missed: Arc<AtomicU64>,
}

impl TraceWatch {
    /// Sends a step, if there is room. Returns whether the receiver still exists.
    pub(crate) fn offer(&self, record: TraceRecord) -> bool {
        match self.sender.try_send(record) {
            Ok(()) => true,
            Err(TrySendError::Full(_)) => {
                self.missed.fetch_add(1, Ordering::Relaxed);
                true
            }
            Err(TrySendError::Disconnected(_)) => false,
        }
    }
}

/// A trace that is going on, until it is dropped or its time is over.
pub struct Trace {
    number: u64,
    until: Instant,
    receiver: Receiver<TraceRecord>,
    missed: Arc<AtomicU64>,
    /// Ends it at the shards.
    end: Box<dyn Fn() + Send>,
}

/// Why there is no step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TraceEnd {
    /// None came in time.
    NotYet,
    /// The trace has ended, and all its steps were received.
    Over,
}

impl Trace {
    /// With the end for its shards. `end` is called when it is dropped.
    pub(crate) fn new(
        number: u64,
        until: Instant,
        end: Box<dyn Fn() + Send>,
    ) -> (Self, TraceWatch) {
        let (sender, receiver) = sync_channel(TRACE_STEPS);
        let missed = Arc::<AtomicU64>::default();
        let watch = TraceWatch {
            number,
            until,
            sender,
            missed: Arc::clone(&missed),
        };
        let trace = Self {
            number,
            until,
            receiver,
            missed,
            end,
        };
        (trace, watch)
    }

    /// Its number, of all traces since the start.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// When it ends.
    pub fn until(&self) -> Instant {
        self.until
    }

    /// The next step; waits for at most `timeout`.
    pub fn next(&self, timeout: Duration) -> Result<TraceRecord, TraceEnd> {
        let left = self.until.saturating_duration_since(Instant::now());
        match self.receiver.recv_timeout(timeout.min(left)) {
            Ok(record) => Ok(record),
            Err(RecvTimeoutError::Timeout) if timeout < left => Err(TraceEnd::NotYet),
            Err(_) => Err(TraceEnd::Over),
        }
    }

    /// The next step that is there already.
    pub fn try_next(&self) -> Result<TraceRecord, TraceEnd> {
        self.receiver.try_recv().map_err(|error| match error {
            TryRecvError::Empty if self.until > Instant::now() => TraceEnd::NotYet,
            _ => TraceEnd::Over,
        })
    }

    /// Steps missed for lack of room since the last call.
    pub fn take_missed(&self) -> u64 {
        self.missed.swap(0, Ordering::Relaxed)
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        (self.end)();
    }
}

impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trace")
            .field("number", &self.number)
            .field("until", &self.until)
            .finish_non_exhaustive()
    }
}
