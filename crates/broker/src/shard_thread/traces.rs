//! Traces at a shard: they begin and end, and their steps go to their readers.

use std::sync::atomic::Ordering;
use std::time::{Instant, SystemTime};

use unbroken_broker_core::{Shard, TraceFilter};

use crate::driver::Driver;
use crate::trace::{TraceRecord, TraceWatch};

/// Begins a trace at a shard.
pub(super) fn begin(
    shard: &mut Shard,
    driver: &mut Driver,
    filter: TraceFilter,
    watch: TraceWatch,
) {
    shard.begin_trace(watch.number, filter);
    driver.traces.push(watch);
}

/// Ends a trace at a shard.
pub(super) fn end(shard: &mut Shard, driver: &mut Driver, number: u64) {
    shard.end_trace(number);
    driver.traces.retain(|watch| watch.number != number);
}

/// Passes on the steps of a turn that has ended, and ends what has had its time, or has no reader
/// any more.
#[inline]
pub(super) fn pass_on(shard: &mut Shard, driver: &mut Driver, now: Instant) {
    if !driver.traces.is_empty() {
        pass_on_steps(shard, driver, now);
    }
}

#[cold]
fn pass_on_steps(shard: &mut Shard, driver: &mut Driver, now: Instant) {
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
        let of_it = missed.iter().find(|(number, _)| *number == watch.number);
        let missed = of_it.map_or(0, |(_, missed)| *missed);
        watch.missed.fetch_add(missed, Ordering::Relaxed);
        if watch.until <= now {
            ended.push(watch.number);
        }
    }
    for number in ended {
        end(shard, driver, number);
    }
}
