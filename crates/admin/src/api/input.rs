//! Parameters and bodies of requests: what is wrong with them is a [`Problem`], never an error of
//! the server.

use axum::Json;
use axum::extract::rejection::{JsonRejection, QueryRejection};
use axum::extract::{FromRequest, FromRequestParts, Query, Request};
use axum::http::StatusCode;
use axum::http::request::Parts;
use serde::de::DeserializeOwned;

use crate::limits::{BODY_BYTES_MAX, PAGE_MAX};
use crate::problem::Problem;

/// The query of a request.
#[derive(Debug)]
pub(crate) struct Params<T>(pub(crate) T);

impl<S: Sync, T: DeserializeOwned> FromRequestParts<S> for Params<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let query = Query::<T>::try_from_uri(&parts.uri);
        let Query(params) = query.map_err(|error: QueryRejection| bad(error.body_text()))?;
        Ok(Self(params))
    }
}

/// The body of a request, as JSON; an empty one is `{}`.
#[derive(Debug)]
pub(crate) struct Body<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Body<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &S) -> Result<Self, Problem> {
        let bytes = axum::body::to_bytes(request.into_body(), BODY_BYTES_MAX).await;
        let bytes = bytes.map_err(|_| {
            let detail =
                format!("the body could not be read, or has more than {BODY_BYTES_MAX} bytes");
            Problem::new(StatusCode::PAYLOAD_TOO_LARGE, detail)
        })?;
        let bytes = if bytes.is_empty() { &b"{}"[..] } else { &bytes };
        let body = Json::from_bytes(bytes);
        let Json(body) = body.map_err(|error: JsonRejection| bad(error.body_text()))?;
        Ok(Self(body))
    }
}

pub(crate) fn bad(detail: impl Into<String>) -> Problem {
    Problem::new(StatusCode::BAD_REQUEST, detail)
}

/// How many entries of a list are wanted.
pub(crate) fn limit(wanted: Option<u64>) -> Result<usize, Problem> {
    let wanted = usize::try_from(wanted.unwrap_or(100)).unwrap_or(usize::MAX);
    match wanted {
        1..=PAGE_MAX => Ok(wanted),
        _ => Err(bad(format!("`limit` is from 1 to {PAGE_MAX}"))),
    }
}

/// The broker gives no answer.
pub(crate) fn unavailable(why: impl std::fmt::Display) -> Problem {
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, why.to_string())
}
