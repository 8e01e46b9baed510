//! Errors, as `application/problem+json` (RFC 9457).

use std::fmt;

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;
use utoipa::ToSchema;

/// What is wrong, for the caller.
#[derive(Debug)]
pub(crate) struct Problem {
    pub(crate) status: StatusCode,
    /// What happened, to which thing, why, and what to do.
    pub(crate) detail: String,
}

impl Problem {
    pub(crate) fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self {
            status,
            detail: detail.into(),
        }
    }

    /// The request is wrong.
    pub(crate) fn bad(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, detail)
    }

    /// The broker gives no answer.
    pub(crate) fn unavailable(why: impl fmt::Display) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, why.to_string())
    }

    /// There is no such thing.
    pub(crate) fn missing(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, detail)
    }
}

/// What went wrong, as RFC 9457 has it
#[derive(ToSchema)]
#[schema(as = Problem)]
#[expect(dead_code, reason = "it describes the answer, which is written below")]
pub(crate) struct ProblemBody {
    /// The status in words
    title: String,
    /// The status of the answer
    status: u16,
    /// What happened, to which thing, why, and what to do
    detail: String,
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let body = json!({
            "title": self.status.canonical_reason(),
            "status": self.status.as_u16(),
            "detail": self.detail,
        });
        let kind = [(header::CONTENT_TYPE, "application/problem+json")];
        (self.status, kind, format!("{body}\n")).into_response()
    }
}
