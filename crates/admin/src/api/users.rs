//! Users of the store.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::Bound;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use unbroken_broker::passwords::{Scheme, make_hash};
use unbroken_broker::stored_access::{Change, Hash, Holder, StoredAccess};
use utoipa::{IntoParams, ToSchema};

use super::access::change;
use super::extract::{self, Path, Query, text};
use super::listing::{Page, cursor, limit};
use crate::broker::Broker;
use crate::limits::ROLE_CHANGES_MAX;
use crate::problem::Problem;

/// Which users.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Search {
    /// Names that begin with this
    search: Option<String>,
    /// Items of a page, 1 to 1,000
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u16>,
    /// The `next` of the page before
    cursor: Option<String>,
}

/// A user of the store
#[derive(Serialize, ToSchema)]
#[schema(as = StoredUser)]
pub(crate) struct User {
    name: String,
    /// Roles of the store that it has itself; `everyone` and those of the configuration are not
    /// listed
    roles: Vec<String>,
}

/// What a user is to have
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PutUser {
    /// Required for a new user; without it the password stays
    password: Option<Password>,
    /// All roles that it is to have itself; without it they stay
    roles: Option<Vec<String>>,
}

/// No `Debug` of it: it is a secret.
#[derive(Deserialize, ToSchema)]
#[serde(transparent)]
#[schema(value_type = String, format = Password)]
pub(crate) struct Password(String);

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Password").finish_non_exhaustive()
    }
}

/// Users of the store, by their names
#[utoipa::path(
    get, path = "/users", tag = "access", params(Search),
    responses((status = 200, body = Page<User>))
)]
pub(crate) async fn list(
    State(broker): State<Broker>,
    Query(search): Query<Search>,
) -> Result<Json<Page<User>>, Problem> {
    let limit = limit(search.limit)?;
    let prefix = text("search", search.search)?.unwrap_or_default();
    let after = cursor(search.cursor.as_deref())?;
    let found = broker.answer(move |handle| {
        Ok(handle.stored_access(|stored| {
            let start = match after {
                Some(after) => Bound::Excluded(after),
                None => Bound::Included(prefix.clone()),
            };
            let users = stored.users().range((start, Bound::Unbounded));
            let mut names = users
                .map(|(name, _)| name)
                .take_while(|name| name.starts_with(&*prefix));
            let items: Vec<_> = names
                .by_ref()
                .take(limit)
                .map(|it| user(stored, it))
                .collect();
            let last = items.last().map(|user| user.name.clone());
            (items, last.filter(|_| names.next().is_some()))
        }))
    });
    let (items, next) = found.await?;
    Ok(Json(Page::new(items, next)))
}

/// Adds a user, or changes its password or its roles
///
/// Clients that are connected stay.
#[utoipa::path(
    put, path = "/users/{name}", tag = "access", request_body = PutUser,
    params(("name" = String, Path, description = "Its name, percent-encoded")),
    responses((status = 204, description = "The user is as asked, on disk and in force"))
)]
pub(crate) async fn put(
    State(broker): State<Broker>,
    Path(name): Path<String>,
    extract::Json(wanted): extract::Json<PutUser>,
) -> Result<StatusCode, Problem> {
    if wanted
        .roles
        .as_ref()
        .is_some_and(|roles| roles.len() > ROLE_CHANGES_MAX)
    {
        let detail = format!("`roles`: one request can give {ROLE_CHANGES_MAX} roles at most");
        return Err(Problem::bad(detail));
    }
    let planned = broker.answer(move |handle| {
        let hash = wanted
            .password
            .map(|Password(text)| make_hash(text.as_bytes(), Scheme::Argon2idAndScram).map(Hash));
        let planned = hash
            .transpose()
            .map_err(|error| Problem::bad(error.to_string()));
        Ok(planned.and_then(|hash| {
            handle.stored_access(|stored| plan(stored, &name, hash, wanted.roles))
        }))
    });
    change(&broker, planned.await??).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Removes a user, and takes its roles from it
///
/// Its clients cannot connect again; those that are connected stay, without these roles.
#[utoipa::path(
    delete, path = "/users/{name}", tag = "access",
    params(("name" = String, Path, description = "Its name, percent-encoded")),
    responses((status = 204, description = "There is no such user any more"))
)]
pub(crate) async fn remove(
    State(broker): State<Broker>,
    Path(name): Path<String>,
) -> Result<StatusCode, Problem> {
    change(&broker, vec![Change::RemoveUser { name }]).await?;
    Ok(StatusCode::NO_CONTENT)
}

fn user(stored: &StoredAccess, name: &str) -> User {
    let has = |role: &unbroken_broker::stored_access::Role| {
        let place = role.users.binary_search_by(|it| it.as_str().cmp(name));
        place.is_ok()
    };
    let roles = stored.roles().iter().filter(|(_, role)| has(role));
    User {
        name: name.to_owned(),
        roles: roles.map(|(name, _)| name.clone()).collect(),
    }
}

/// The changes that make a user what it is to be.
fn plan(
    stored: &StoredAccess,
    name: &str,
    hash: Option<Hash>,
    roles: Option<Vec<String>>,
) -> Result<Vec<Change>, Problem> {
    let mut changes = Vec::new();
    let is_there = stored.users().contains_key(name);
    let owned = || name.to_owned();
    match hash {
        Some(hash) if is_there => changes.push(Change::SetPassword {
            name: owned(),
            hash,
        }),
        Some(hash) => changes.push(Change::AddUser {
            name: owned(),
            hash,
        }),
        None if is_there => {}
        None => return Err(Problem::bad("`password`: a new user needs one")),
    }
    let Some(roles) = roles else {
        return Ok(changes);
    };
    let wanted: BTreeSet<_> = roles.into_iter().collect();
    if let Some(unknown) = wanted
        .iter()
        .find(|role| !stored.roles().contains_key(*role))
    {
        return Err(Problem::bad(format!(
            "`roles`: there is no role `{unknown}` in the store"
        )));
    }
    let has: BTreeSet<_> = user(stored, name).roles.into_iter().collect();
    let to = || Holder::User(owned());
    let granted = wanted.difference(&has).cloned();
    changes.extend(granted.map(|role| Change::Grant { role, to: to() }));
    let revoked = has.difference(&wanted).cloned();
    changes.extend(revoked.map(|role| Change::Revoke { role, from: to() }));
    Ok(changes)
}
