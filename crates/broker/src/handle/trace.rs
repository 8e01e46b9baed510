//! Begins traces of a running broker.

use std::time::{Duration, Instant};

use unbroken_broker_core::TraceFilter;
use unbroken_mqtt_proto::TopicFilter;

use super::{BrokerHandle, HandleError, Requests};
use crate::bounds::TRACE_TIME_MAX;
use crate::request::Request;
use crate::trace::Trace;

impl BrokerHandle {
    /// Traces what the filter is about, for so long at most.
    pub fn trace(&self, filter: &TraceFilter, time: Duration) -> Result<Trace, HandleError> {
        self.requests.trace(filter, time)
    }
}

impl Requests {
    /// Begins a trace at all shards.
    pub(crate) fn trace(&self, filter: &TraceFilter, time: Duration) -> Result<Trace, HandleError> {
        check(filter, time).map_err(HandleError::Trace)?;
        let (number, permit) = self.permit_trace()?;
        let requests = self.clone();
        let end = move || {
            let _held = &permit;
            // A shard without room for this ends the trace with its next step, or with its time.
            let _ = requests.send_request_to_all(|| Request::EndTrace(number));
        };
        let (trace, watch) = Trace::new(number, Instant::now() + time, Box::new(end));
        self.send_request_to_all(|| Request::Trace {
            filter: filter.clone(),
            watch: watch.clone(),
        })?;
        Ok(trace)
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
