//! What became of all messages, and the strip of what was proven when.

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::input::{Params, limit, unavailable};
use crate::delivery::Delivery;
use crate::delivery::strip::Cell;
use crate::moment::Moment;
use crate::problem::Problem;
use crate::recorder::Recorder;

/// What became of all messages
#[utoipa::path(get, path = "/delivery", responses((status = 200, body = Delivery)))]
pub(crate) async fn show(State(recorder): State<Recorder>) -> Result<Json<Delivery>, Problem> {
    recorder.delivery().await.map(Json).map_err(unavailable)
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(crate) struct StripParams {
    /// Cells, from 1 to 1,000.
    limit: Option<u64>,
}

/// Seconds with traffic, the newest last.
#[derive(Serialize, ToSchema)]
pub(crate) struct Cells {
    items: Vec<Cell>,
    next: Option<String>,
    #[schema(value_type = String)]
    as_of: Moment,
}

/// What was proven in each second that had traffic, the newest last
#[utoipa::path(
    get,
    path = "/delivery/checkpoints",
    params(StripParams),
    responses((status = 200, body = Cells))
)]
pub(crate) async fn checkpoints(
    State(recorder): State<Recorder>,
    Params(params): Params<StripParams>,
) -> Result<Json<Cells>, Problem> {
    Ok(Json(Cells {
        items: recorder.cells(limit(params.limit)?),
        next: None,
        as_of: Moment::now(),
    }))
}
