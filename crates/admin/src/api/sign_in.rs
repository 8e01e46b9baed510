//! Signing in and out, and the caller's own account.

use axum::Extension;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::extract::Json;
use crate::identity::guard::Proof;
use crate::identity::sessions::Session;
use crate::identity::{Caller, Identity, Refusal, Role};
use crate::peer::Peer;
use crate::problem::Problem;
use crate::time;

/// A name and its password.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SignIn {
    /// Of the account.
    name: String,
    /// Its password.
    password: String,
}

/// The first account.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct UseLink {
    /// What the link has after `#link=`.
    token: String,
    /// Of the new account.
    name: String,
    /// Its password, of 8 characters or more.
    password: String,
}

/// A new password of the caller's own account.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct OwnPassword {
    /// The password until now.
    old: String,
    /// From now on.
    new: String,
}

/// Who asks.
#[derive(Serialize, ToSchema)]
pub(crate) struct Me {
    /// Of the account; `token:NAME`, `unix:USER` or `anonymous` for other callers.
    name: String,
    role: Role,
    /// What changes by cookie repeat in the header X-CSRF-Token; only callers by cookie have it.
    csrf: Option<String>,
    /// When session or token end.
    expires: Option<String>,
}

/// A link for the first account.
#[derive(Serialize, ToSchema)]
pub(crate) struct NewLink {
    /// What `POST /sign-in/link` takes.
    token: String,
    /// The page that takes it; none where the server listens at its unix socket only.
    url: Option<String>,
}

/// Sign in
///
/// The answer sets a cookie, which is good for 12 hours, or until an hour passes without a request.
#[utoipa::path(
    post, path = "/sign-in", request_body = SignIn, security(()),
    responses(
        (status = 200, body = Me),
        (status = 401, description = "The name or the password is wrong"),
        (status = 429, description = "Too many attempts: Retry-After says when to try again"),
    )
)]
pub(crate) async fn sign_in(
    State(identity): State<Identity>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
    Json(body): Json<SignIn>,
) -> Response {
    let begun = identity.sign_in((body.name, body.password), peer.address());
    signed_in(
        begun.await,
        "POST /api/v1/sign-in",
        &identity,
        &peer,
        &headers,
    )
}

/// Make the first account
///
/// With the link that the broker prints at a start without accounts. It is good once.
#[utoipa::path(
    post, path = "/sign-in/link", request_body = UseLink, security(()),
    responses(
        (status = 200, body = Me),
        (status = 403, description = "The link is not good, or there is an account already"),
        (status = 422, description = "Name or password are not as they must be"),
        (status = 429, description = "Too many attempts: Retry-After says when to try again"),
    )
)]
pub(crate) async fn use_link(
    State(identity): State<Identity>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
    Json(body): Json<UseLink>,
) -> Response {
    let account = (body.name, body.password);
    let begun = identity.use_link(&body.token, account, peer.address());
    signed_in(
        begun.await,
        "POST /api/v1/sign-in/link",
        &identity,
        &peer,
        &headers,
    )
}

fn signed_in(
    begun: Result<(Session, Role, String), Refusal>,
    action: &str,
    identity: &Identity,
    peer: &Peer,
    headers: &HeaderMap,
) -> Response {
    let (session, role, secret) = match begun {
        Ok(begun) => begun,
        Err(refusal) => return refusal.into_response(),
    };
    let address = peer.address().map(|address| address.to_string());
    let history = identity.history();
    let by = (&*session.account, address);
    history.record(by, action.to_owned(), &session.account, StatusCode::OK);
    let cookie = identity.new_cookie(&secret, is_secure(peer, headers));
    let me = Me::of_session(&session, role);
    ([(header::SET_COOKIE, cookie)], Json(me)).into_response()
}

/// Whether the browser speaks HTTPS: to this server, or to a proxy before it.
fn is_secure(peer: &Peer, headers: &HeaderMap) -> bool {
    let origin = headers.get(header::ORIGIN);
    peer.has_tls() || origin.is_some_and(|it| it.as_bytes().starts_with(b"https://"))
}

/// Sign out
#[utoipa::path(
    post, path = "/sign-out", responses((status = 204, description = "The session has ended"))
)]
pub(crate) async fn sign_out(State(identity): State<Identity>, request: Request) -> Response {
    identity.sign_out(request.headers());
    let cookie = identity.no_cookie();
    (StatusCode::NO_CONTENT, [(header::SET_COOKIE, cookie)]).into_response()
}

/// Who asks
#[utoipa::path(get, path = "/me", responses((status = 200, body = Me)))]
pub(crate) async fn me(
    Extension(caller): Extension<Caller>,
    Extension(proof): Extension<Proof>,
) -> Json<Me> {
    let expires = match proof {
        Proof::Session(session) => return Json(Me::of_session(&session, caller.role)),
        Proof::Token(token) => token.expires_ms.map(time::text),
        Proof::Socket | Proof::Nothing => None,
    };
    Json(Me {
        name: caller.name.to_string(),
        role: caller.role,
        csrf: None,
        expires,
    })
}

impl Me {
    fn of_session(session: &Session, role: Role) -> Self {
        Self {
            name: session.account.clone(),
            role,
            csrf: Some(session.csrf.clone()),
            expires: Some(time::text(session.expires_ms)),
        }
    }
}

/// Change the password of the own account
///
/// All sessions of the account end, this one included.
#[utoipa::path(
    post, path = "/me/password", request_body = OwnPassword,
    responses(
        (status = 204, description = "It is changed"),
        (status = 403, description = "The old password is wrong"),
        (status = 409, description = "The caller is no account"),
        (status = 422, description = "The new password is not as it must be"),
        (status = 429, description = "Too many attempts: Retry-After says when to try again"),
    )
)]
pub(crate) async fn own_password(
    State(identity): State<Identity>,
    Extension(caller): Extension<Caller>,
    Extension(peer): Extension<Peer>,
    Json(body): Json<OwnPassword>,
) -> Result<StatusCode, Refusal> {
    let passwords = (body.old, body.new);
    let changed = identity.change_own_password(&caller.name, passwords, peer.address());
    changed.await.map(|()| StatusCode::NO_CONTENT)
}

/// Make a new link for the first account
///
/// An older one is not good any more. The unix socket has a caller before there is an account.
#[utoipa::path(
    post, path = "/sign-in/links",
    responses(
        (status = 201, body = NewLink),
        (status = 409, description = "There is an account already"),
    )
)]
pub(crate) async fn new_link(
    State(identity): State<Identity>,
) -> Result<(StatusCode, Json<NewLink>), Problem> {
    let Some(token) = identity.first_link()? else {
        let detail = "there is an account already: `unbroken admin account add` makes another one, \
                      and `unbroken admin account passwd` gives one a new password";
        return Err(Problem::new(StatusCode::CONFLICT, detail));
    };
    let url = identity.link_url(&token);
    Ok((StatusCode::CREATED, Json(NewLink { token, url })))
}
