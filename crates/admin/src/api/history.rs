//! The admin history.

use axum::Json;
use axum::extract::{Query, State};
use serde::Serialize;
use utoipa::ToSchema;

use super::short_list::Asked;
use crate::identity::Identity;
use crate::identity::history::Entry;
use crate::problem::Problem;
use crate::time;

/// A page of the admin history.
#[derive(Serialize, ToSchema)]
pub(crate) struct History {
    /// The newest first.
    items: Vec<Entry>,
    /// The cursor of the next page.
    next: Option<String>,
    as_of: String,
}

/// What was changed by whom, the newest first
#[utoipa::path(get, path = "/history", params(Asked), responses((status = 200, body = History)))]
pub(crate) async fn list(
    State(identity): State<Identity>,
    Query(asked): Query<Asked>,
) -> Result<Json<History>, Problem> {
    let (limit, before) = (asked.limit()?, asked.place()?);
    let (items, has_more) = identity.history().page(before, limit);
    let next = items.last().filter(|_| has_more);
    Ok(Json(History {
        next: next.map(|entry| entry.id().to_string()),
        items,
        as_of: time::now_text(),
    }))
}
