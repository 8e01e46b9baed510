//! One stream of server-sent events for all that changes.
//!
//! Each event is made once and shared by all streams. A stream that is slow misses the oldest. Its
//! client connects again when it ends, and begins with the next snapshot. A stream ends soon after
//! its caller has lost credentials or role.

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
use tokio::time::timeout;

use crate::identity::guard::Proof;
use crate::identity::{Identity, Role, Standing};
use crate::limits::{STREAM_CHECK_EVERY, STREAM_KEEP_ALIVE, STREAMS_MAX};
use crate::problem::Problem;
use crate::recorder::{Live, Recorder};

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
    State(identity): State<Identity>,
    Extension(proof): Extension<Proof>,
) -> Response {
    let standing = Standing::new(identity, proof, Role::Viewer);
    let Ok(permit) = Arc::clone(&ROOM).try_acquire_owned() else {
        let detail = format!("{STREAMS_MAX} streams are open, the most that may be; close one");
        return Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail).into_response();
    };
    let events = Sse::new(events(recorder.subscribe(), standing, permit));
    let events = events.keep_alive(KeepAlive::new().interval(STREAM_KEEP_ALIVE));
    let unbuffered = [(header::HeaderName::from_static("x-accel-buffering"), "no")];
    (unbuffered, events).into_response()
}

fn events(
    live: broadcast::Receiver<Live>,
    standing: Standing,
    permit: OwnedSemaphorePermit,
) -> impl Stream<Item = Result<Event, Infallible>> {
    let retry = Event::default().retry(RETRY).comment("unbroken");
    let begin = (Some(retry), live, (standing, permit));
    stream::unfold(begin, async move |(first, mut live, held)| {
        if let Some(first) = first {
            return Some((Ok(first), (None, live, held)));
        }
        loop {
            let next = timeout(STREAM_CHECK_EVERY, live.recv()).await;
            if !held.0.holds() {
                return None;
            }
            match next {
                Ok(Ok(next)) => return Some((Ok(next.into()), (None, live, held))),
                Ok(Err(RecvError::Lagged(_))) | Err(_) => {}
                Ok(Err(RecvError::Closed)) => return None,
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
