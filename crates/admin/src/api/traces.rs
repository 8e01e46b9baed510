//! Traces: what the broker does with the packets of some clients, as it does it.
//!
//! When a stream ends before its trace, the next one goes on with the steps that wait.

use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use futures_util::stream::{self, Stream};
use tokio::time::sleep;
use unbroken_broker::handle::HandleError;
use unbroken_broker::trace::{TRACE_PAYLOAD_MAX, TraceEnd, TraceFilter, TraceLine};

use super::extract::{Json, Path};
use super::listing::Page;
use crate::app::App;
use crate::broker::Broker;
use crate::identity::guard::Proof;
use crate::identity::{Role, Standing};
use crate::limits::{STREAM_KEEP_ALIVE, TRACE_STEPS_AT_ONCE};
use crate::problem::Problem;
use crate::traces::{NewTrace, Open, Running};

/// Begin a trace of a client, a user or a topic filter
#[utoipa::path(
    post,
    path = "/traces",
    request_body = NewTrace,
    responses(
        (status = 201, body = Running),
        (status = 400, description = "there is no such trace"),
        (status = 503, description = "8 traces go on")
    )
)]
pub(crate) async fn begin(
    State(app): State<App>,
    Json(asked): Json<NewTrace>,
) -> Result<Response, Problem> {
    if asked.payload_bytes > TRACE_PAYLOAD_MAX {
        let detail = format!("payload_bytes is at most {TRACE_PAYLOAD_MAX}");
        return Err(Problem::bad(detail));
    }
    let text = |text: &Option<String>| text.as_deref().map(Into::into);
    let filter = TraceFilter {
        client_id: text(&asked.client),
        user: text(&asked.user),
        topic: text(&asked.topic),
        payload_bytes: asked.payload_bytes,
    };
    let time = Duration::from_secs(asked.for_s.into());
    let broker: &Broker = &app.broker;
    let begun = broker.ask(move |handle| handle.trace(&filter, time)).await;
    let begun = begun.map_err(|why| Problem::new(StatusCode::SERVICE_UNAVAILABLE, why))?;
    let trace = begun.map_err(|error| match error {
        HandleError::Trace(_) => Problem::bad(error.to_string()),
        other => Problem::new(StatusCode::SERVICE_UNAVAILABLE, other.to_string()),
    })?;
    let (id, until) = (trace.number(), trace.until());
    let open = Arc::new(Open {
        asked,
        until,
        is_read: AtomicBool::new(false),
        trace: Mutex::new(Some(trace)),
    });
    let running = open.running(id);
    app.traces.open().insert(id, open);
    Ok((StatusCode::CREATED, Json(running)).into_response())
}

/// The traces that go on
#[utoipa::path(get, path = "/traces", responses((status = 200, body = Page<Running>)))]
pub(crate) async fn list(State(app): State<App>) -> Json<Page<Running>> {
    let traces = app.traces.open();
    let items = traces.iter().map(|(id, open)| open.running(*id));
    Json(Page::new(items.collect(), None))
}

/// End a trace
#[utoipa::path(
    delete,
    path = "/traces/{id}",
    params(("id" = u64, Path, description = "its number")),
    responses((status = 204), (status = 404, description = "there is no such trace"))
)]
pub(crate) async fn end(
    State(app): State<App>,
    Path(id): Path<String>,
) -> Result<StatusCode, Problem> {
    let id = number(&id)?;
    app.traces.find(id)?.end();
    app.traces.open().remove(&id);
    Ok(StatusCode::NO_CONTENT)
}

/// The steps of a trace, as server-sent events
///
/// Each event `step` is a step as JSON; `end` comes last. A stream whose caller has lost
/// credentials or role ends without it.
#[utoipa::path(
    get,
    path = "/traces/{id}/events",
    params(("id" = u64, Path, description = "its number")),
    responses(
        (status = 200, description = "events `step` and `end`", body = String,
         content_type = "text/event-stream"),
        (status = 404, description = "there is no such trace"),
        (status = 409, description = "another stream reads it")
    )
)]
pub(crate) async fn events(
    State(app): State<App>,
    Extension(proof): Extension<Proof>,
    Path(id): Path<String>,
) -> Result<Response, Problem> {
    let id = number(&id)?;
    let open = app.traces.find(id)?;
    if open.is_read.swap(true, Ordering::AcqRel) {
        let detail = format!("another stream reads trace {id}: end it, or begin another trace");
        return Err(Problem::new(StatusCode::CONFLICT, detail));
    }
    let reader = Reader {
        open,
        standing: Standing::new(app.identity, proof, Role::Operator),
        is_over: false,
    };
    let events = Sse::new(steps(reader));
    let events = events.keep_alive(KeepAlive::new().interval(STREAM_KEEP_ALIVE));
    Ok(events.into_response())
}

fn number(id: &str) -> Result<u64, Problem> {
    id.parse().map_err(|_| {
        let detail = format!("{id:?} is not the number of a trace");
        Problem::new(StatusCode::NOT_FOUND, detail)
    })
}

/// The only one of its trace, until it is dropped.
struct Reader {
    open: Arc<Open>,
    standing: Standing,
    is_over: bool,
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.open.is_read.store(false, Ordering::Release);
    }
}

impl Reader {
    /// The steps that are there, as far as some are sent at once, and whether more may come.
    fn take(&self) -> (Vec<TraceLine>, bool) {
        let trace = self.open.trace();
        let Some(trace) = &*trace else {
            return (Vec::new(), false);
        };
        let mut lines = Vec::new();
        let missed = trace.take_missed();
        if missed > 0 {
            lines.push(TraceLine::missed(missed));
        }
        while lines.len() < TRACE_STEPS_AT_ONCE {
            match trace.try_next() {
                Ok(record) => lines.push(TraceLine::from(&record)),
                Err(error) => return (lines, error != TraceEnd::Over),
            }
        }
        (lines, true)
    }
}

fn steps(reader: Reader) -> impl Stream<Item = Result<Event, Infallible>> {
    let begin = (Some(reader), Vec::new().into_iter());
    stream::unfold(begin, async move |(reader, mut waiting)| {
        let mut reader: Reader = reader?;
        loop {
            if !reader.standing.holds() {
                return None;
            }
            if let Some(line) = waiting.next() {
                return Some((Ok(step(&line)), (Some(reader), waiting)));
            }
            if reader.is_over {
                let end = Event::default().event("end").data("{}");
                return Some((Ok(end), (None, waiting)));
            }
            let (lines, goes_on) = reader.take();
            reader.is_over = !goes_on;
            waiting = lines.into_iter();
            if goes_on && waiting.len() == 0 {
                sleep(LOOK_EVERY).await;
            }
        }
    })
}

fn step(line: &TraceLine) -> Event {
    let json = serde_json::to_string(line).unwrap_or_default();
    Event::default().event("step").data(json)
}

/// How often a stream looks for steps.
const LOOK_EVERY: Duration = Duration::from_millis(100);
