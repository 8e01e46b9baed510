//! Steps of traces on their way from a shard to their reader, and as lines.

mod line;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError};
use std::time::{Instant, SystemTime};

pub use unbroken_broker_core::{TraceFilter, TraceStep, Traced};

pub use self::line::TraceLine;
pub use crate::bounds::TRACE_PAYLOAD_MAX;
use crate::driver::Driver;
use unbroken_broker_core::Shard;

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
    number: u64,
    until: Instant,
    sender: SyncSender<TraceRecord>,
    missed: Arc<AtomicU64>,
}

impl TraceWatch {
    pub(crate) const fn new(
        number: u64,
        until: Instant,
        sender: SyncSender<TraceRecord>,
        missed: Arc<AtomicU64>,
    ) -> Self {
        Self {
            number,
            until,
            sender,
            missed,
        }
    }

    /// Sends a step, if there is room. Returns whether the receiver still exists.
    fn offer(&self, record: TraceRecord) -> bool {
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

/// Begins a trace at a shard.
pub(crate) fn begin(
    shard: &mut Shard,
    driver: &mut Driver,
    filter: TraceFilter,
    watch: TraceWatch,
) {
    shard.begin_trace(watch.number, filter);
    driver.traces.push(watch);
}

/// Ends a trace at a shard.
pub(crate) fn end(shard: &mut Shard, driver: &mut Driver, number: u64) {
    shard.end_trace(number);
    driver.traces.retain(|watch| watch.number != number);
}

/// Passes on the steps of a turn that has ended, and ends what has had its time, or has no reader
/// any more.
#[cold]
pub(crate) fn pass_on(shard: &mut Shard, driver: &mut Driver, now: Instant) {
    let (steps, missed) = shard.take_traced();
    let (at, number) = (SystemTime::now(), shard.id().0);
    let mut ended: Vec<u64> = Vec::new();
    for traced in steps {
        let watch = driver.traces.iter();
        let Some(watch) = watch.clone().find(|watch| watch.number == traced.trace) else {
            continue;
        };
        let record = TraceRecord {
            at,
            shard: number,
            traced,
        };
        if !watch.offer(record) {
            ended.push(watch.number);
        }
    }
    for watch in &driver.traces {
        watch.missed.fetch_add(missed, Ordering::Relaxed);
        if watch.until <= now {
            ended.push(watch.number);
        }
    }
    for number in ended {
        end(shard, driver, number);
    }
}
