//! The admin history.

use axum::Json;
use axum::extract::State;

use super::extract::Query;
use super::listing::{Page, Part, cursor_of, limit};
use crate::identity::Identity;
use crate::identity::history::Entry;
use crate::problem::Problem;

/// What was changed by whom, the newest first
#[utoipa::path(
    get, path = "/history", params(Part), responses((status = 200, body = Page<Entry>))
)]
pub(crate) async fn list(
    State(identity): State<Identity>,
    Query(asked): Query<Part>,
) -> Result<Json<Page<Entry>>, Problem> {
    let (limit, before) = (limit(asked.limit)?, cursor_of(asked.cursor.as_deref())?);
    let (items, has_more) = identity.history().page(before, limit);
    let next = items.last().filter(|_| has_more);
    let next = next.map(|entry| entry.id().to_string());
    Ok(Json(Page::new(items, next)))
}
