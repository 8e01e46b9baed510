//! One stream of server-sent events for all that changes.
//!
//! Each event is made once and shared by all streams. A stream that is slow misses the oldest. Its
//! client connects again when it ends, and begins with the next snapshot.

use std::convert::Infallible;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream::{self, Stream};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, broadcast};

use crate::limits::{STREAM_KEEP_ALIVE, STREAMS_MAX};
use crate::problem::Problem;
use crate::recorder::{Live, Recorder};
use crate::stays::Stays;

static ROOM: LazyLock<Arc<Semaphore>> = LazyLock::new(|| Arc::new(Semaphore::new(STREAMS_MAX)));

/// Snapshots once a second, and incidents at once, as server-sent events
#[utoipa::path(
    get,
    path = "/live",
    responses(
        (status = 200, description = "events `snapshot` and `incident`", body = String,
         content_type = "text/event-stream"),
        (status = 503, description = "too many streams are open")
    )
)]
pub(crate) async fn stream(
    State(recorder): State<Recorder>,
    Extension(stays): Extension<Stays>,
) -> Response {
    let Ok(permit) = Arc::clone(&ROOM).try_acquire_owned() else {
        let detail = format!("{STREAMS_MAX} streams are open, the most that may be; close one");
        return Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail).into_response();
    };
    stays.stay();
    let events = Sse::new(events(recorder.subscribe(), permit));
    let events = events.keep_alive(KeepAlive::new().interval(STREAM_KEEP_ALIVE));
    let unbuffered = [(header::HeaderName::from_static("x-accel-buffering"), "no")];
    (unbuffered, events).into_response()
}

fn events(
    live: broadcast::Receiver<Live>,
    permit: OwnedSemaphorePermit,
) -> impl Stream<Item = Result<Event, Infallible>> {
    let retry = Event::default().retry(RETRY).comment("unbroken");
    let begin = (Some(retry), live, permit);
    stream::unfold(begin, async move |(first, mut live, permit)| {
        if let Some(first) = first {
            return Some((Ok(first), (None, live, permit)));
        }
        loop {
            match live.recv().await {
                Ok(next) => return Some((Ok(next.into()), (None, live, permit))),
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return None,
            }
        }
    })
}

impl From<Live> for Event {
    fn from(live: Live) -> Self {
        let event = Self::default().event(live.event).data(&*live.data);
        match live.id {
            Some(id) => event.id(id.to_string()),
            None => event,
        }
    }
}

/// After which a browser connects again.
const RETRY: Duration = Duration::from_millis(500);
