//! Roles of the store, with their rules and holders.

use std::collections::BTreeSet;
use std::ops::Bound;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use unbroken_broker::stored_access::{self, Change, Holder, RoleRule, StoredAccess};
use utoipa::{IntoParams, ToSchema};

use super::access::change;
use super::extract::{self, Path, Query};
use super::listing::{Page, cursor, limit};
use crate::broker::Broker;
use crate::limits::ROLE_CHANGES_MAX;
use crate::problem::Problem;

/// A part of the roles.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Part {
    /// Items of a page, 1 to 1,000
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u16>,
    /// The `next` of the page before
    cursor: Option<String>,
}

/// A role of the store
#[derive(Serialize, ToSchema)]
#[schema(as = StoredRole)]
pub(crate) struct Role {
    name: String,
    /// Whether every client has it
    everyone: bool,
    /// Whether clients without a user name have it
    anonymous: bool,
    /// Users that have it themselves: the first 1,000
    users: Vec<String>,
    /// How many users have it themselves
    user_count: usize,
    rules: Vec<Rule>,
}

/// A rule of a role
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Rule {
    effect: Effect,
    /// Actions, a blank, and a topic filter: `publish,subscribe plant/{user}/#`
    rule: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Effect {
    Allow,
    Deny,
}

/// What a role is to be; what is left out stays, or is empty in a new role
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PutRole {
    everyone: Option<bool>,
    anonymous: Option<bool>,
    /// All users that are to have it themselves
    users: Option<Vec<String>>,
    /// All its rules
    rules: Option<Vec<Rule>>,
}

/// Changes of a role
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PatchRole {
    #[serde(default)]
    add_rules: Vec<Rule>,
    #[serde(default)]
    remove_rules: Vec<Rule>,
    /// Users that are to have it
    #[serde(default)]
    grant: Vec<String>,
    /// Users that are not to have it any more
    #[serde(default)]
    revoke: Vec<String>,
}

impl From<&RoleRule> for Rule {
    fn from(rule: &RoleRule) -> Self {
        Self {
            effect: if rule.denies {
                Effect::Deny
            } else {
                Effect::Allow
            },
            rule: rule.text.clone(),
        }
    }
}

impl Role {
    fn new(name: &str, role: &stored_access::Role) -> Self {
        Self {
            name: name.to_owned(),
            everyone: role.everyone,
            anonymous: role.anonymous,
            users: role.users.iter().take(ROLE_CHANGES_MAX).cloned().collect(),
            user_count: role.users.len(),
            rules: role.rules.iter().map(Rule::from).collect(),
        }
    }
}

/// Roles of the store, by their names; those of the configuration are in `/config`
#[utoipa::path(
    get, path = "/roles", tag = "access", params(Part),
    responses((status = 200, body = Page<Role>))
)]
pub(crate) async fn list(
    State(broker): State<Broker>,
    Query(part): Query<Part>,
) -> Result<Json<Page<Role>>, Problem> {
    let limit = limit(part.limit)?;
    let after = cursor(part.cursor.as_deref())?;
    let found = broker.answer(move |handle| {
        Ok(handle.stored_access(|stored| {
            let start = after.map_or(Bound::Unbounded, Bound::Excluded);
            let mut roles = stored.roles().range((start, Bound::Unbounded));
            let page = roles.by_ref().take(limit);
            let items: Vec<_> = page.map(|(name, role)| Role::new(name, role)).collect();
            let last = items.last().map(|role| role.name.clone());
            (items, last.filter(|_| roles.next().is_some()))
        }))
    });
    let (items, next) = found.await?;
    Ok(Json(Page::new(items, next)))
}

/// Adds a role, or makes one as asked
#[utoipa::path(
    put, path = "/roles/{name}", tag = "access", request_body = PutRole,
    params(("name" = String, Path, description = "Its name, percent-encoded")),
    responses((status = 204, description = "The role is as asked, on disk and in force"))
)]
pub(crate) async fn put(
    State(broker): State<Broker>,
    Path(name): Path<String>,
    extract::Json(wanted): extract::Json<PutRole>,
) -> Result<StatusCode, Problem> {
    let count = |list: Option<usize>| list.unwrap_or_default();
    bounded(
        count(wanted.users.as_ref().map(Vec::len)) + count(wanted.rules.as_ref().map(Vec::len)),
    )?;
    let planned =
        broker.answer(move |handle| Ok(handle.stored_access(|stored| plan(stored, &name, wanted))));
    change(&broker, planned.await?).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Adds and removes rules and holders of a role
///
/// The changes are made one after another; the first that cannot be made ends the request.
#[utoipa::path(
    patch, path = "/roles/{name}", tag = "access", request_body = PatchRole,
    params(("name" = String, Path, description = "Its name, percent-encoded")),
    responses((status = 204, description = "The role is changed, on disk and in force"))
)]
pub(crate) async fn patch(
    State(broker): State<Broker>,
    Path(name): Path<String>,
    extract::Json(asked): extract::Json<PatchRole>,
) -> Result<StatusCode, Problem> {
    bounded(
        asked.add_rules.len() + asked.remove_rules.len() + asked.grant.len() + asked.revoke.len(),
    )?;
    let role = || name.clone();
    let removed = asked
        .remove_rules
        .into_iter()
        .map(|rule| remove_rule(role(), rule));
    let added = asked
        .add_rules
        .into_iter()
        .map(|rule| add_rule(role(), rule));
    let granted = asked.grant.into_iter().map(|user| Change::Grant {
        role: role(),
        to: Holder::User(user),
    });
    let revoked = asked.revoke.into_iter().map(|user| Change::Revoke {
        role: role(),
        from: Holder::User(user),
    });
    let changes: Vec<_> = removed.chain(added).chain(granted).chain(revoked).collect();
    let asked = name.clone();
    let exists = broker.answer(move |handle| {
        Ok(handle.stored_access(|stored| stored.roles().contains_key(&asked)))
    });
    if !exists.await? {
        return Err(Problem::missing(format!("there is no role `{name}`")));
    }
    change(&broker, changes).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Removes a role
#[utoipa::path(
    delete, path = "/roles/{name}", tag = "access",
    params(("name" = String, Path, description = "Its name, percent-encoded")),
    responses((status = 204, description = "There is no such role any more"))
)]
pub(crate) async fn remove(
    State(broker): State<Broker>,
    Path(name): Path<String>,
) -> Result<StatusCode, Problem> {
    change(&broker, vec![Change::RemoveRole { name }]).await?;
    Ok(StatusCode::NO_CONTENT)
}

fn bounded(changes: usize) -> Result<(), Problem> {
    if changes <= ROLE_CHANGES_MAX {
        return Ok(());
    }
    Err(Problem::bad(format!(
        "one request can have {ROLE_CHANGES_MAX} rules and users at most, and this has {changes}"
    )))
}

fn add_rule(role: String, Rule { effect, rule }: Rule) -> Change {
    let denies = effect == Effect::Deny;
    Change::AddRule {
        role,
        denies,
        text: rule,
    }
}

fn remove_rule(role: String, Rule { effect, rule }: Rule) -> Change {
    let denies = effect == Effect::Deny;
    Change::RemoveRule {
        role,
        denies,
        text: rule,
    }
}

/// The changes that make a role what it is to be.
fn plan(stored: &StoredAccess, name: &str, wanted: PutRole) -> Vec<Change> {
    let role = || name.to_owned();
    let mut changes = Vec::new();
    let new = stored_access::Role::default();
    let now = stored.roles().get(name).unwrap_or_else(|| {
        changes.push(Change::AddRole { name: role() });
        &new
    });
    // Rules first: no user has the role without what it denies.
    if let Some(rules) = wanted.rules {
        let has: Vec<_> = now.rules.iter().map(Rule::from).collect();
        let added = rules.iter().filter(|rule| !has.contains(rule)).cloned();
        changes.extend(added.map(|rule| add_rule(role(), rule)));
        let removed = has.into_iter().filter(|rule| !rules.contains(rule));
        changes.extend(removed.map(|rule| remove_rule(role(), rule)));
    }
    let mut hold = |has: bool, wants: Option<bool>, holder: Holder| match wants {
        Some(true) if !has => changes.push(Change::Grant {
            role: role(),
            to: holder,
        }),
        Some(false) if has => changes.push(Change::Revoke {
            role: role(),
            from: holder,
        }),
        _ => {}
    };
    hold(now.everyone, wanted.everyone, Holder::Everyone);
    hold(now.anonymous, wanted.anonymous, Holder::Anonymous);
    if let Some(users) = wanted.users {
        let wanted: BTreeSet<_> = users.into_iter().collect();
        let has: BTreeSet<_> = now.users.iter().cloned().collect();
        for user in has.symmetric_difference(&wanted) {
            let wants = Some(wanted.contains(user));
            hold(has.contains(user), wants, Holder::User(user.clone()));
        }
    }
    changes
}
