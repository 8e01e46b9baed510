//! Finds the caller of a request by its credentials, and refuses those that have none.
//!
//! Open without credentials are only: what is not below `/api` (probes, metrics unless they need a
//! token, and the page's files), the API's document, and the two ways to sign in.
//!
//! A write that shows a cookie must also repeat the session's secret in `X-CSRF-Token` and come
//! from a page of this server: a browser sends cookies with requests of other sites' pages too.

use std::time::Instant;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};

use super::book::Token;
use super::secret::digest;
use super::sessions::Session;
use super::{Caller, Identity, Role, history};
use crate::peer::Peer;
use crate::problem::Problem;
use crate::time::now_ms;

/// The credentials that a caller has shown.
#[derive(Clone, Debug)]
pub(crate) enum Proof {
    /// A cookie.
    Session(Session),
    /// A bearer token.
    Token(Token),
    /// The permission to connect to the unix socket.
    Socket,
    /// None, where that is enough to read.
    Nothing,
}

/// Why a request has no caller.
struct Refused {
    /// Who it would be, if its credentials were enough.
    caller: Option<String>,
    problem: Problem,
}

/// Adds [`Caller`] and [`Proof`] to a request, or answers 401.
pub(crate) async fn check(
    State(identity): State<Identity>,
    mut request: Request,
    next: Next,
) -> Response {
    if identity.is_open(request.uri().path()) {
        return next.run(request).await;
    }
    let (caller, proof) = match identity.caller(&request) {
        Ok(found) => found,
        Err(Refused { caller, problem }) => {
            if let Some(caller) = caller {
                history::record_refusal(&identity, &caller, &request, problem.status);
            }
            let mut response = problem.into_response();
            if response.status() == StatusCode::UNAUTHORIZED {
                let bearer = HeaderValue::from_static("Bearer");
                response
                    .headers_mut()
                    .insert(header::WWW_AUTHENTICATE, bearer);
            }
            return response;
        }
    };
    if let Some(peer) = request.extensions().get::<Peer>() {
        peer.note_caller();
    }
    request.extensions_mut().insert(caller);
    request.extensions_mut().insert(proof);
    next.run(request).await
}

impl Identity {
    fn is_open(&self, path: &str) -> bool {
        match path {
            "/metrics" => !self.rules().metrics_need_caller,
            "/api/v1/openapi.json" | "/api/v1/sign-in" | "/api/v1/sign-in/link" => true,
            _ => path != "/api" && !path.starts_with("/api/"),
        }
    }

    fn caller(&self, request: &Request) -> Result<(Caller, Proof), Refused> {
        let refused = |detail: &str| {
            let problem = Problem::new(StatusCode::UNAUTHORIZED, detail);
            Err(Refused {
                caller: None,
                problem,
            })
        };
        if let Some(user) = request.extensions().get::<Peer>().and_then(Peer::user) {
            let role = Role::Admin;
            return Ok((Caller { name: user, role }, Proof::Socket));
        }
        if let Some(shown) = request.headers().get(header::AUTHORIZATION) {
            let token = shown.to_str().ok().and_then(bearer);
            let Some(token) = token else {
                return refused("the Authorization header has no `Bearer` token");
            };
            let book = self.store().book();
            let Some(token) = book.token(&digest(token), now_ms()) else {
                return refused("the token is unknown, revoked or expired");
            };
            return self.of_token(token, request);
        }
        if let Some(secret) = self.cookie(request.headers()) {
            let session = self.0.sessions.find(secret, Instant::now());
            let book = self.store().book();
            let account = session.as_ref().and_then(|it| book.account(&it.account));
            if let Some((session, account)) = session.as_ref().zip(account) {
                check_origin(session, request).map_err(|problem| Refused {
                    caller: Some(account.name.clone()),
                    problem,
                })?;
                let caller = Caller {
                    name: account.name.as_str().into(),
                    role: account.role,
                };
                return Ok((caller, Proof::Session(session.clone())));
            }
        }
        if self.rules().anonymous_reads {
            let (name, role) = ("anonymous".into(), Role::Viewer);
            return Ok((Caller { name, role }, Proof::Nothing));
        }
        refused("sign in, or send a token: `Authorization: Bearer TOKEN`")
    }

    fn of_token(&self, token: &Token, request: &Request) -> Result<(Caller, Proof), Refused> {
        let name = format!("token:{}", token.name);
        let (method, path) = (request.method(), request.uri().path());
        let mut scope = token.scope.iter();
        if !token.scope.is_empty() && !scope.any(|scope| scope.includes(method, path)) {
            let detail = format!("the scope of token {} has not {method} {path}", token.name);
            return Err(Refused {
                caller: Some(name),
                problem: Problem::new(StatusCode::FORBIDDEN, detail),
            });
        }
        self.store().note_use(token, now_ms());
        let caller = Caller {
            name: name.into(),
            role: token.role,
        };
        Ok((caller, Proof::Token(token.clone())))
    }

    /// The value of the session's cookie.
    pub(super) fn cookie<'h>(&self, headers: &'h HeaderMap) -> Option<&'h str> {
        let lines = headers.get_all(header::COOKIE).into_iter();
        let cookies = lines.filter_map(|line| line.to_str().ok());
        let mut cookies = cookies.flat_map(|line| line.split(';'));
        cookies.find_map(|cookie| {
            let (name, value) = cookie.trim().split_once('=')?;
            (name == self.rules().cookie).then_some(value)
        })
    }
}

/// `Bearer TOKEN`, the word in any case [RFC 7235, 2.1].
fn bearer(shown: &str) -> Option<&str> {
    let (scheme, token) = shown.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// Whether a write by cookie comes from a page of this server. That the Origin is this server's is
/// checked for all requests (`hosts`).
fn check_origin(session: &Session, request: &Request) -> Result<(), Problem> {
    if request.method().is_safe() {
        return Ok(());
    }
    let refused = |detail: &str| Err(Problem::new(StatusCode::FORBIDDEN, detail));
    let headers = request.headers();
    let has = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let repeated = has(CSRF).map(digest);
    if repeated != Some(digest(&session.csrf)) {
        return refused(
            "a change by cookie needs the header X-CSRF-Token with `csrf` of /api/v1/me",
        );
    }
    match (has(SITE), headers.contains_key(header::ORIGIN)) {
        (Some("same-origin" | "none"), _) | (None, true) => Ok(()),
        (Some(_), _) => refused("a page of another site asks for a change"),
        (None, false) => refused(
            "a change by cookie needs the header Origin, which browsers send; a program \
                     uses a token",
        ),
    }
}

const CSRF: HeaderName = HeaderName::from_static("x-csrf-token");
const SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::Rules;

    #[test]
    fn only_what_is_named_is_open() {
        let rules = Rules {
            metrics_need_caller: true,
            ..Rules::default()
        };
        let identity = Identity::open(None, rules).unwrap();
        for open in [
            "/",
            "/healthz",
            "/readyz",
            "/app.js",
            "/apis",
            "/api/v1/openapi.json",
            "/api/v1/sign-in",
            "/api/v1/sign-in/link",
        ] {
            assert!(identity.is_open(open), "{open}");
        }
        for closed in [
            "/metrics",
            "/api",
            "/api/",
            "/api/v1/me",
            "/api/v1/sign-in/",
            "/api/v1/sign-in/links",
            "/api/v2/anything",
        ] {
            assert!(!identity.is_open(closed), "{closed}");
        }
    }

    #[test]
    fn a_bearer_token_is_found_in_its_header() {
        for (shown, token) in [
            ("Bearer a", Some("a")),
            ("bearer  a ", Some("a")),
            ("Basic a", None),
            ("Bearer", None),
        ] {
            assert_eq!(bearer(shown), token, "{shown}");
        }
    }
}
