//! The traces that were begun through the API.
//!
//! Invariants:
//! - A trace ends with its time, or when it is ended, whether it is read or not; its steps wait in
//!   a bounded queue.
//! - One stream at a time reads a trace.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use unbroken_broker::trace::Trace;
use utoipa::ToSchema;

use crate::problem::Problem;

/// The traces that were begun here.
#[derive(Clone, Debug, Default)]
pub(crate) struct Traces(Arc<Mutex<BTreeMap<u64, Arc<Open>>>>);

#[derive(Debug)]
pub(crate) struct Open {
    pub(crate) asked: NewTrace,
    pub(crate) until: Instant,
    pub(crate) is_read: AtomicBool,
    /// `None`: it was ended.
    pub(crate) trace: Mutex<Option<Trace>>,
}

/// What to trace: everything for which all of these hold.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewTrace {
    /// The client with this id sends or receives it.
    #[serde(default)]
    pub(crate) client: Option<String>,
    /// A client of this user does.
    #[serde(default)]
    pub(crate) user: Option<String>,
    /// Its topic matches this filter.
    #[serde(default)]
    pub(crate) topic: Option<String>,
    /// For how long; at most 3,600.
    #[serde(default = "half_a_minute")]
    pub(crate) for_s: u32,
    /// Bytes of each payload that are shown; at most 1,024.
    #[serde(default)]
    pub(crate) payload_bytes: u16,
}

const fn half_a_minute() -> u32 {
    30
}

/// A trace that goes on.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Running {
    /// Its number, in the paths of its events.
    id: u64,
    /// Seconds that are left.
    left_s: u64,
    #[serde(flatten)]
    asked: NewTrace,
}

impl Traces {
    /// Those whose time is not over.
    pub(crate) fn open(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<Open>>> {
        let mut traces = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        traces.retain(|_, open| open.until > now || open.is_read.load(Ordering::Acquire));
        traces
    }

    pub(crate) fn find(&self, id: u64) -> Result<Arc<Open>, Problem> {
        let found = self.open().get(&id).cloned();
        found.ok_or_else(|| {
            let detail = format!("there is no trace {id}, or its time is over: begin another one");
            Problem::new(StatusCode::NOT_FOUND, detail)
        })
    }
}

impl Open {
    pub(crate) fn trace(&self) -> MutexGuard<'_, Option<Trace>> {
        self.trace.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The broker traces no more, though a stream may still read.
    pub(crate) fn end(&self) {
        *self.trace() = None;
    }

    pub(crate) fn running(&self, id: u64) -> Running {
        let left = self.until.saturating_duration_since(Instant::now());
        Running {
            id,
            left_s: left.as_secs(),
            asked: self.asked.clone(),
        }
    }
}
