//! What requests say, each part with a [`Problem`] where it is wrong.

use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::request::Parts;
use serde::de::DeserializeOwned;

use crate::limits::TEXT_BYTES_MAX;
use crate::problem::Problem;

/// The query of a request.
pub(crate) struct Query<T>(pub(crate) T);

/// The variable parts of its path.
pub(crate) struct Path<T>(pub(crate) T);

/// Its body.
pub(crate) struct Json<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let query = axum::extract::Query::from_request_parts(parts, state).await;
        query
            .map(|axum::extract::Query(query)| Self(query))
            .map_err(|error| Problem::new(error.status(), error.body_text()))
    }
}

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for Path<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let path = axum::extract::Path::from_request_parts(parts, state).await;
        path.map(|axum::extract::Path(path)| Self(path))
            .map_err(|error| Problem::new(error.status(), error.body_text()))
    }
}

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Json<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        let body = axum::Json::from_request(request, state).await;
        body.map(|axum::Json(body)| Self(body))
            .map_err(|error| Problem::new(error.status(), error.body_text()))
    }
}

/// A text of a request that is not too long to be looked for; an empty one asks for nothing.
pub(crate) fn text(name: &str, text: Option<String>) -> Result<Option<String>, Problem> {
    match text {
        Some(text) if text.len() > TEXT_BYTES_MAX => Err(Problem::bad(format!(
            "`{name}` has {} bytes; at most {TEXT_BYTES_MAX} are allowed",
            text.len()
        ))),
        text => Ok(text.filter(|text| !text.is_empty())),
    }
}
