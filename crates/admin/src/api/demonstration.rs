//! The demonstration inside the broker.

use axum::extract::State;
use axum::http::StatusCode;
use serde::Deserialize;
use utoipa::ToSchema;

use super::extract::Json;
use crate::demonstration::{Demonstration, FaultKind, Progress};
use crate::problem::Problem;

/// What to begin with.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Start {
    /// A fault to inject at once.
    fault: Option<FaultKind>,
}

/// A fault to inject.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Order {
    kind: FaultKind,
}

/// Starts the demonstration; one that runs goes on
#[utoipa::path(
    post,
    path = "/demonstration",
    request_body = Start,
    responses((status = 200, body = Progress), (status = 409, description = "it cannot start"))
)]
pub(crate) async fn start(
    State(demonstration): State<Demonstration>,
    Json(start): Json<Start>,
) -> Result<Json<Progress>, Problem> {
    let progress = demonstration.start().await?;
    match start.fault {
        Some(kind) => demonstration.inject(kind).map(Json),
        None => Ok(Json(progress)),
    }
}

/// How far the demonstration is
#[utoipa::path(get, path = "/demonstration", responses((status = 200, body = Progress)))]
pub(crate) async fn show(State(demonstration): State<Demonstration>) -> Json<Progress> {
    Json(demonstration.progress())
}

/// Ends the demonstration
#[utoipa::path(
    delete,
    path = "/demonstration",
    responses((status = 200, body = Progress), (status = 404, description = "there was none"))
)]
pub(crate) async fn stop(
    State(demonstration): State<Demonstration>,
) -> Result<Json<Progress>, Problem> {
    demonstration.stop().await.map(Json).ok_or_else(none)
}

/// Injects a fault into the next message of the demonstration
#[utoipa::path(
    post,
    path = "/demonstration/fault",
    request_body = Order,
    responses((status = 200, body = Progress), (status = 409, description = "none runs"))
)]
pub(crate) async fn inject(
    State(demonstration): State<Demonstration>,
    Json(order): Json<Order>,
) -> Result<Json<Progress>, Problem> {
    demonstration.inject(order.kind).map(Json)
}

fn none() -> Problem {
    let detail = "no demonstration was started: POST /api/v1/demonstration starts one";
    Problem::new(StatusCode::NOT_FOUND, detail)
}
