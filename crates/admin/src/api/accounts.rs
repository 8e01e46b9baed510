//! Accounts of the admin server. They are not users of MQTT.

use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::extract::{Json, Path, Query};
use super::listing::{Page, Part, part};
use crate::identity::book;
use crate::identity::history::Target;
use crate::identity::{AccountChange, Identity, Role};
use crate::peer::Peer;
use crate::problem::Problem;
use crate::time;

/// An account.
#[derive(Serialize, ToSchema)]
pub(crate) struct Account {
    name: String,
    role: Role,
    created: String,
}

/// A new account.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewAccount {
    /// 1 to 64 of the characters `A-Z a-z 0-9 . _ @ -`.
    name: String,
    role: Role,
    /// 8 characters or more.
    password: String,
}

/// What is to be changed.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Change {
    role: Option<Role>,
    /// Ends the sessions of the account.
    password: Option<String>,
}

impl From<&book::Account> for Account {
    fn from(account: &book::Account) -> Self {
        Self {
            name: account.name.clone(),
            role: account.role,
            created: time::text(account.created_ms),
        }
    }
}

/// List accounts
#[utoipa::path(get, path = "/accounts", params(Part), responses((status = 200, body = Page<Account>)))]
pub(crate) async fn list(
    State(identity): State<Identity>,
    Query(asked): Query<Part>,
) -> Result<Json<Page<Account>>, Problem> {
    let book = identity.store().book();
    let page = part(
        &book.accounts,
        (asked.limit, asked.cursor.as_deref()),
        |account| account.name.clone(),
        |account, last| account.name > *last,
    )?;
    Ok(Json(page.map(Account::from)))
}

/// Add an account
#[utoipa::path(
    post, path = "/accounts", request_body = NewAccount,
    responses(
        (status = 201, body = Account),
        (status = 409, description = "There is such an account already, or too many"),
        (status = 422, description = "Name or password are not as they must be"),
    )
)]
pub(crate) async fn add(State(identity): State<Identity>, Json(new): Json<NewAccount>) -> Response {
    let target = Target(format!("{} ({})", new.name, new.role));
    let added = identity.add_account(new.name, new.role, new.password).await;
    let answer = added.map(|account| (StatusCode::CREATED, Json(Account::from(&account))));
    (Extension(target), answer).into_response()
}

/// Change the role or the password of an account
#[utoipa::path(
    patch, path = "/accounts/{name}", request_body = Change, params(("name" = String, Path)),
    responses(
        (status = 200, body = Account),
        (status = 404, description = "There is no such account"),
        (status = 409, description = "It is the only one with the role admin"),
        (status = 422, description = "The password is not as it must be"),
    )
)]
pub(crate) async fn change(
    State(identity): State<Identity>,
    Path(name): Path<String>,
    Json(Change { role, password }): Json<Change>,
) -> Response {
    let mut target = name.clone();
    if let Some(role) = role {
        target = format!("{target}: role {role}");
    }
    if password.is_some() {
        target = format!("{target}: a new password");
    }
    let changed = identity.change_account(&name, AccountChange { role, password });
    let answer = changed.await.map(|account| Json(Account::from(&account)));
    (Extension(Target(target)), answer).into_response()
}

/// Remove an account
#[utoipa::path(
    delete, path = "/accounts/{name}", params(("name" = String, Path)),
    responses(
        (status = 204, description = "It is removed"),
        (status = 404, description = "There is no such account"),
        (status = 409, description = "It is the only one with the role admin"),
    )
)]
pub(crate) async fn remove(
    State(identity): State<Identity>,
    Extension(peer): Extension<Peer>,
    Path(name): Path<String>,
) -> Result<StatusCode, Problem> {
    let may_be_last = peer.user().is_some();
    identity.remove_account(&name, may_be_last).await?;
    Ok(StatusCode::NO_CONTENT)
}
