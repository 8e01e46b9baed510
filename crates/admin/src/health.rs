//! `/healthz` and `/readyz`, for probes.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};

use crate::broker::Broker;
use crate::problem::Problem;

/// The process serves: a probe that restarts it on failure asks this.
pub(crate) async fn alive() -> &'static str {
    "ok\n"
}

/// The broker answers, and its store takes what clients send: a probe that sends it clients asks
/// this.
pub(crate) async fn ready(State(broker): State<Broker>) -> Response {
    match broker.counters().await {
        Ok(stats) if stats.disk_lacks_space > 0 => {
            let why =
                "the disk lacks the space that the store needs; messages that need it are refused";
            Problem::new(StatusCode::SERVICE_UNAVAILABLE, why).into_response()
        }
        Ok(stats) if stats.store_failed > 0 => {
            let why = "the store has failed, so clients that need it are refused; the log and \
                       $SYS/broker/unbroken/store have the error: mend the disk, and restart the \
                       broker";
            Problem::new(StatusCode::SERVICE_UNAVAILABLE, why).into_response()
        }
        Ok(_) => "ready\n".into_response(),
        Err(why) => Problem::new(StatusCode::SERVICE_UNAVAILABLE, why).into_response(),
    }
}
