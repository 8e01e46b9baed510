//! What became of all messages, and the strip of what was proven when.

use axum::extract::State;
use serde::Deserialize;
use utoipa::IntoParams;

use super::extract::{Json, Query};
use super::listing::{Page, limit};
use crate::delivery::Delivery;
use crate::delivery::strip::Cell;
use crate::problem::Problem;
use crate::recorder::Recorder;

/// What became of all messages
#[utoipa::path(get, path = "/delivery", responses((status = 200, body = Delivery)))]
pub(crate) async fn show(State(recorder): State<Recorder>) -> Result<Json<Delivery>, Problem> {
    let delivery = recorder.delivery().await;
    delivery.map(Json).map_err(Problem::unavailable)
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(crate) struct StripParams {
    /// Cells, 1 to 1,000
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u16>,
}

/// What was proven in each second that had traffic, the newest last
#[utoipa::path(
    get,
    path = "/delivery/checkpoints",
    params(StripParams),
    responses((status = 200, body = Page<Cell>))
)]
pub(crate) async fn checkpoints(
    State(recorder): State<Recorder>,
    Query(params): Query<StripParams>,
) -> Result<Json<Page<Cell>>, Problem> {
    let cells = recorder.cells(limit(params.limit)?);
    Ok(Json(Page::new(cells, None)))
}
