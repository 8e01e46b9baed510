//! Tokens of programs.

use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::extract::{Json, Path, Query};
use super::listing::{Page, Part, part};
use crate::identity::book;
use crate::identity::guard::Proof;
use crate::identity::history::Target;
use crate::identity::{Caller, Identity, Role, Scope};
use crate::problem::Problem;
use crate::time;

/// A token, without its secret.
#[derive(Serialize, ToSchema)]
pub(crate) struct Token {
    id: String,
    name: String,
    role: Role,
    /// `METHOD PATH` or `PATH`, each the beginning of paths; empty: all that the role may do.
    scope: Vec<String>,
    created: String,
    created_by: String,
    /// None: it does not expire.
    expires: Option<String>,
    is_expired: bool,
    last_used: Option<String>,
}

/// A token to be made.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewToken {
    /// 1 to 64 of the characters `A-Z a-z 0-9 . _ @ -`.
    name: String,
    role: Role,
    /// `METHOD PATH` or `PATH`, each the beginning of paths, such as `GET /api/v1/clients` or
    /// `/metrics`; empty or left out: all that the role may do.
    #[serde(default)]
    scope: Vec<String>,
    /// When it ends, such as `2027-01-01T00:00:00Z`; left out: never.
    expires: Option<String>,
}

/// A token with its secret, which is shown this once.
#[derive(Serialize, ToSchema)]
pub(crate) struct MadeToken {
    /// For the header `Authorization: Bearer SECRET`.
    secret: String,
    #[serde(flatten)]
    token: Token,
}

impl Token {
    fn new(identity: &Identity, token: &book::Token) -> Self {
        let expires_ms = token.expires_ms;
        Self {
            id: token.id.clone(),
            name: token.name.clone(),
            role: token.role,
            scope: token.scope.iter().map(Scope::to_string).collect(),
            created: time::text(token.created_ms),
            created_by: token.created_by.clone(),
            expires: expires_ms.map(time::text),
            is_expired: expires_ms.is_some_and(|expires| expires <= time::now_ms()),
            last_used: identity.store().last_used_ms(token).map(time::text),
        }
    }
}

/// List tokens
#[utoipa::path(get, path = "/tokens", params(Part), responses((status = 200, body = Page<Token>)))]
pub(crate) async fn list(
    State(identity): State<Identity>,
    Query(asked): Query<Part>,
) -> Result<Json<Page<Token>>, Problem> {
    let book = identity.store().book();
    let mut tokens: Vec<_> = book.tokens.iter().collect();
    tokens.sort_by(|a, b| a.name.cmp(&b.name));
    let page = part(
        tokens,
        (asked.limit, asked.cursor.as_deref()),
        |token| token.name.clone(),
        |token, last| token.name > *last,
    )?;
    Ok(Json(page.map(|token| Token::new(&identity, token))))
}

/// Make a token
#[utoipa::path(
    post, path = "/tokens", request_body = NewToken,
    responses(
        (status = 201, body = MadeToken),
        (status = 403, description = "The caller's own scope does not include the token's"),
        (status = 409, description = "There is a token of this name already, or too many"),
        (status = 422, description = "Name, scope or time are not as they must be"),
    )
)]
pub(crate) async fn add(
    State(identity): State<Identity>,
    Extension(caller): Extension<Caller>,
    Extension(proof): Extension<Proof>,
    Json(new): Json<NewToken>,
) -> Response {
    let target = Target(format!("{} ({})", new.name, new.role));
    (
        Extension(target),
        make(&identity, (&caller, &proof), new).await,
    )
        .into_response()
}

async fn make(
    identity: &Identity,
    (caller, proof): (&Caller, &Proof),
    new: NewToken,
) -> Result<(StatusCode, Json<MadeToken>), Problem> {
    let wrong = |detail: String| Problem::new(StatusCode::UNPROCESSABLE_ENTITY, detail);
    let scope = new.scope.iter().map(|text| text.parse());
    let scope = scope.collect::<Result<Vec<Scope>, String>>();
    let scope = scope.map_err(|why| wrong(format!("`scope`: {why}")))?;
    check_scope(&scope, proof)?;
    let expires = new
        .expires
        .map(|text| text.parse::<Timestamp>())
        .transpose();
    let expires = expires.map_err(|why| wrong(format!("`expires`: {why}")))?;
    let expires_ms = expires.map(Timestamp::as_millisecond);
    let by = (&*caller.name, expires_ms);
    let made = identity.add_token(new.name, new.role, scope, by);
    let (token, secret) = made.await?;
    let token = Token::new(identity, &token);
    Ok((StatusCode::CREATED, Json(MadeToken { secret, token })))
}

/// A token whose scope is not whole makes none that is good for more.
fn check_scope(scope: &[Scope], proof: &Proof) -> Result<(), Problem> {
    let Proof::Token(caller) = proof else {
        return Ok(());
    };
    let is_within = |new: &Scope| caller.scope.iter().any(|own| new.is_within(own));
    if caller.scope.is_empty() || (!scope.is_empty() && scope.iter().all(is_within)) {
        return Ok(());
    }
    let detail = format!(
        "token {} has a scope, and makes only tokens with a scope within it",
        caller.name
    );
    Err(Problem::new(StatusCode::FORBIDDEN, detail))
}

/// Revoke a token
#[utoipa::path(
    delete, path = "/tokens/{id}", params(("id" = String, Path)),
    responses(
        (status = 204, description = "It is revoked"),
        (status = 404, description = "There is no such token"),
    )
)]
pub(crate) async fn remove(
    State(identity): State<Identity>,
    Path(id): Path<String>,
) -> Result<Response, Problem> {
    let name = identity.remove_token(&id).await?;
    Ok((StatusCode::NO_CONTENT, Extension(Target(name))).into_response())
}
