//! What requests say, each part with a [`Problem`] where it is wrong.

use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::limits::TEXT_BYTES_MAX;
use crate::problem::Problem;

/// The query of a request.
pub(crate) struct Query<T>(pub(crate) T);

/// The variable parts of its path.
pub(crate) struct Path<T>(pub(crate) T);

/// Its body; an empty one is `{}`.
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
        let kind = request.headers().get(header::CONTENT_TYPE).cloned();
        let bytes = Bytes::from_request(request, state).await;
        let bytes = bytes.map_err(|error| Problem::new(error.status(), error.body_text()))?;
        if bytes.is_empty() {
            return Self::read(b"{}");
        }
        if !kind.is_some_and(|kind| is_json(kind.as_bytes())) {
            let detail = "a body is JSON, with the header `Content-Type: application/json`";
            return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail));
        }
        Self::read(&bytes)
    }
}

impl<T: DeserializeOwned> Json<T> {
    fn read(bytes: &[u8]) -> Result<Self, Problem> {
        let body = axum::Json::from_bytes(bytes);
        body.map(|axum::Json(body)| Self(body))
            .map_err(|error| Problem::bad(error.body_text()))
    }
}

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        axum::Json(self.0).into_response()
    }
}

fn is_json(kind: &[u8]) -> bool {
    let kind = kind.split(|byte| *byte == b';').next().unwrap_or_default();
    kind.trim_ascii().eq_ignore_ascii_case(b"application/json")
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
