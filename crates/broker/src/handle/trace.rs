//! Traces of a running broker: what happens to the packets of some clients, as it happens.
//!
//! Invariants:
//! - Traces, their time, and the steps that wait for a reader are bounded. A step without room is
//!   counted.
//! - A trace ends at every shard when it is dropped, or with its time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError, sync_channel};
use std::time::{Duration, Instant};

use unbroken_broker_core::TraceFilter;
use unbroken_mqtt_proto::TopicFilter;

use super::{BrokerHandle, EventsError, HandleError, Requests};
use crate::bounds::{TRACE_STEPS, TRACE_TIME_MAX};
use crate::request::{Permit, Request};
use crate::trace::{TraceRecord, TraceWatch};

/// A trace that is going on, until it is dropped or its time is over.
#[derive(Debug)]
pub struct Trace {
    number: u64,
    until: Instant,
    receiver: Receiver<TraceRecord>,
    missed: Arc<AtomicU64>,
    requests: Requests,
    _permit: Permit,
}

impl Trace {
    /// Begins one at all shards.
    pub(crate) fn begin(
        requests: &Requests,
        filter: &TraceFilter,
        time: Duration,
    ) -> Result<Self, HandleError> {
        check(filter, time).map_err(HandleError::Trace)?;
        let (number, permit) = requests.permit_trace()?;
        let until = Instant::now() + time;
        let (sender, receiver) = sync_channel(TRACE_STEPS);
        let missed = Arc::<AtomicU64>::default();
        let watch = TraceWatch::new(number, until, sender, Arc::clone(&missed));
        requests.send_request_to_all(|| Request::Trace {
            filter: filter.clone(),
            watch: watch.clone(),
        })?;
        Ok(Self {
            number,
            until,
            receiver,
            missed,
            requests: requests.clone(),
            _permit: permit,
        })
    }

    /// Its number, of all traces since the start.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// When it ends.
    pub fn until(&self) -> Instant {
        self.until
    }

    /// The next step; waits for at most `timeout`. `Stopped`: there are no more.
    pub fn next(&self, timeout: Duration) -> Result<TraceRecord, EventsError> {
        let left = self.until.saturating_duration_since(Instant::now());
        match self.receiver.recv_timeout(timeout.min(left)) {
            Ok(record) => Ok(record),
            Err(RecvTimeoutError::Timeout) if timeout < left => Err(EventsError::Timeout),
            Err(_) => Err(EventsError::Stopped),
        }
    }

    /// The next step that is there already.
    pub fn try_next(&self) -> Result<TraceRecord, EventsError> {
        self.receiver.try_recv().map_err(|error| match error {
            TryRecvError::Empty if self.until > Instant::now() => EventsError::Timeout,
            _ => EventsError::Stopped,
        })
    }

    /// Steps missed for lack of room since the last call.
    pub fn take_missed(&self) -> u64 {
        self.missed.swap(0, Ordering::Relaxed)
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        let number = self.number;
        // A shard without room for this ends the trace with its next step, or with its time.
        let _ = self
            .requests
            .send_request_to_all(|| Request::EndTrace(number));
    }
}

/// What is wrong with a trace, if anything.
fn check(filter: &TraceFilter, time: Duration) -> Result<(), String> {
    let TraceFilter {
        client_id,
        user,
        topic,
        ..
    } = filter;
    if client_id.is_none() && user.is_none() && topic.is_none() {
        return Err("it needs a client, a user or a topic filter".to_owned());
    }
    if time.is_zero() || time > TRACE_TIME_MAX {
        return Err(format!(
            "it may take up to {} seconds, and not {}",
            TRACE_TIME_MAX.as_secs(),
            time.as_secs()
        ));
    }
    if let Some(topic) = topic {
        let parsed = TopicFilter::parse(topic);
        parsed.map_err(|error| format!("its topic filter {topic:?}: {error}"))?;
    }
    Ok(())
}

impl BrokerHandle {
    /// Traces what the filter is about, for so long at most.
    pub fn trace(&self, filter: &TraceFilter, time: Duration) -> Result<Trace, HandleError> {
        Trace::begin(&self.requests, filter, time)
    }
}
