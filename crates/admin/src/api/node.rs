//! The broker as a whole.

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;

use crate::broker::Broker;

/// The broker.
#[derive(Serialize, ToSchema)]
pub(crate) struct Node {
    /// Of the program.
    version: String,
    /// Process id.
    process_id: u32,
}

/// The broker as a whole
#[utoipa::path(get, path = "/node", responses((status = 200, body = Node)))]
pub(crate) async fn show(State(broker): State<Broker>) -> Json<Node> {
    Json(Node {
        version: broker.version.to_string(),
        process_id: std::process::id(),
    })
}
