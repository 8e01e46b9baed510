//! Who asks, and what they may do.
//!
//! [`identify`] finds the [`Caller`] of each request below `/api`, and [`require`] compares the
//! caller's role with the one that a route needs.

use std::sync::Arc;

use axum::Extension;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::problem::Problem;

/// What a caller may do; each role may do what those before it may.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Role {
    /// Read.
    Viewer,
    /// Change what clients and messages do: disconnect, remove, publish, trace.
    Operator,
    /// Change who may do what: users, roles, bans, accounts, tokens, configuration.
    Admin,
}

/// Who makes a request.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    /// Name of the account or token.
    pub(crate) name: Arc<str>,
    pub(crate) role: Role,
}

/// Finds the caller of a request.
pub(crate) async fn identify(mut request: Request, next: Next) -> Response {
    request.extensions_mut().insert(Caller {
        name: "local".into(),
        role: Role::Admin,
    });
    next.run(request).await
}

/// Refuses callers whose role is below the one that the route needs.
pub(crate) async fn require(
    role: Role,
    Extension(caller): Extension<Caller>,
    request: Request,
    next: Next,
) -> Response {
    if caller.role < role {
        let detail = format!(
            "{} has the role {:?}, and this needs {role:?}",
            caller.name, caller.role
        );
        return Problem::new(StatusCode::FORBIDDEN, detail).into_response();
    }
    next.run(request).await
}
