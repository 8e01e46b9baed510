//! Headers of all answers, and the form of errors.

use axum::body::to_bytes;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};

use crate::problem::Problem;

/// A page runs only what this server has; the page that tries MQTT connects to listeners on other
/// ports. Nothing is sent or framed elsewhere.
const HEADERS: [(HeaderName, &str); 6] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'self'; connect-src 'self' ws: wss:; object-src 'none'; base-uri 'none'; \
         form-action 'self'; frame-ancestors 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
    (
        HeaderName::from_static("cross-origin-opener-policy"),
        "same-origin",
    ),
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        "same-origin",
    ),
];

/// Adds them, and no browser keeps what is below `/api`.
pub(crate) async fn add(request: Request, next: Next) -> Response {
    let is_api = request.uri().path().starts_with("/api/");
    let mut response = as_problem(next.run(request).await).await;
    let headers = response.headers_mut();
    for (name, value) in HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    if is_api {
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }
    response
}

/// What extractors say of a wrong request, as a problem.
async fn as_problem(response: Response) -> Response {
    let status = response.status();
    let is_error = status.is_client_error() || status.is_server_error();
    if !is_error || !is_text(response.headers()) {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    let text = to_bytes(body, ERROR_BYTES_MAX).await.unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let detail = match text.trim() {
        "" => status.canonical_reason().unwrap_or_default(),
        text => text,
    };
    let (problem, body) = Problem::new(status, detail).into_response().into_parts();
    parts.headers.remove(header::CONTENT_LENGTH);
    parts.headers.extend(problem.headers);
    Response::from_parts(parts, body)
}

fn is_text(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE);
    kind.is_none_or(|kind| kind.as_bytes().starts_with(b"text/plain"))
}

const ERROR_BYTES_MAX: usize = 16 * 1024;
