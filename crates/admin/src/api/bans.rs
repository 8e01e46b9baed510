//! Who may not connect: bans of the store, and addresses whose logins have failed too often.

use std::net::IpAddr;
use std::ops::Bound;
use std::time::{Duration, SystemTime};

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use unbroken_broker::BrokerHandle;
use unbroken_broker::stored_access::{Ban, BanTarget, Banned, Change};
use utoipa::{IntoParams, ToSchema};

use super::access::change;
use super::extract::{self, Query};
use super::listing::{Page, Part, cursor, limit, wrong_cursor};
use crate::broker::Broker;
use crate::problem::Problem;
use crate::time;

/// Which ban: exactly one of the three.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Which {
    /// A client id
    client: Option<String>,
    /// A user
    user: Option<String>,
    /// An address, or a network such as `10.0.0.0/8`
    address: Option<String>,
}

/// A ban to make; exactly one of `client`, `user` and `address` is given
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewBan {
    /// A client id
    client: Option<String>,
    /// A user, of whichever source
    user: Option<String>,
    /// An address, or a network such as `10.0.0.0/8`
    address: Option<String>,
    /// When it ends; without this and `for_s` it is in force until it is removed
    #[schema(format = DateTime)]
    until: Option<String>,
    /// How long it is in force, instead of `until`
    for_s: Option<u32>,
    /// For people
    #[serde(default)]
    reason: String,
}

/// A ban
#[derive(Serialize, ToSchema)]
pub(crate) struct BanItem {
    /// `client`, `user` or `address`
    kind: &'static str,
    /// The client id, the user, or the address or network
    target: String,
    /// Null: it is automatic
    #[schema(format = DateTime)]
    since: Option<String>,
    /// Null: it is in force until it is removed
    #[schema(format = DateTime)]
    until: Option<String>,
    reason: String,
    /// Whether the broker made it because logins from the address have failed; such bans end with
    /// the broker
    is_automatic: bool,
}

impl BanItem {
    fn stored(banned: &Banned, ban: &Ban) -> Self {
        Self {
            kind: banned.kind(),
            target: banned.name().to_owned(),
            since: Some(time::of_ms(ban.since_ms)),
            until: ban.until_ms.map(time::of_ms),
            reason: ban.reason.clone(),
            is_automatic: false,
        }
    }

    fn automatic((address, left): (IpAddr, Duration)) -> Self {
        Self {
            kind: "address",
            target: address.to_string(),
            since: None,
            until: Some(time::of_system(SystemTime::now() + left)),
            reason: "too many logins from it have failed".to_owned(),
            is_automatic: true,
        }
    }
}

/// Bans, automatic ones behind the others
#[utoipa::path(
    get, path = "/bans", tag = "bans", params(Part),
    responses((status = 200, body = Page<BanItem>))
)]
pub(crate) async fn list(
    State(broker): State<Broker>,
    Query(part): Query<Part>,
) -> Result<Json<Page<BanItem>>, Problem> {
    let limit = limit(part.limit)?;
    let from = From::read(cursor(part.cursor.as_deref())?)?;
    let found = broker.answer(move |handle| Ok(page(handle, from, limit)));
    let (items, next) = found.await?;
    Ok(Json(Page::new(items, next)))
}

/// Bans a client, a user, or an address or network
///
/// It replaces a ban of the same. Connections of those whom it is about end.
#[utoipa::path(
    post, path = "/bans", tag = "bans", request_body = NewBan,
    responses((status = 204, description = "The ban is in force"))
)]
pub(crate) async fn add(
    State(broker): State<Broker>,
    extract::Json(ban): extract::Json<NewBan>,
) -> Result<StatusCode, Problem> {
    let since_ms = time::now_ms().unsigned_abs();
    let until_ms = match (ban.until, ban.for_s) {
        (Some(_), Some(_)) => {
            return Err(Problem::bad(
                "`until` and `for_s` are both given; leave one out",
            ));
        }
        (Some(until), None) => {
            Some(time::to_ms(&until).map_err(|why| Problem::bad(format!("`until`: {why}")))?)
        }
        (None, seconds) => seconds.map(|seconds| since_ms + u64::from(seconds) * 1_000),
    };
    if until_ms.is_some_and(|until| until <= since_ms) {
        return Err(Problem::bad("the ban would have ended already"));
    }
    let made = Change::Ban {
        target: target(ban.client, ban.user, ban.address)?,
        since_ms,
        until_ms,
        reason: extract::text("reason", Some(ban.reason))?.unwrap_or_default(),
    };
    change(&broker, vec![made]).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Removes a ban, also an automatic one
#[utoipa::path(
    delete, path = "/bans", tag = "bans", params(Which),
    responses((status = 204, description = "There is no such ban any more"))
)]
pub(crate) async fn remove(
    State(broker): State<Broker>,
    Query(which): Query<Which>,
) -> Result<StatusCode, Problem> {
    let target = target(which.client, which.user, which.address)?;
    change(&broker, vec![Change::Unban { target }]).await?;
    Ok(StatusCode::NO_CONTENT)
}

fn target(
    client: Option<String>,
    user: Option<String>,
    address: Option<String>,
) -> Result<BanTarget, Problem> {
    match (client, user, address) {
        (Some(client), None, None) => Ok(BanTarget::Client(client)),
        (None, Some(user), None) => Ok(BanTarget::User(user)),
        (None, None, Some(address)) => Ok(BanTarget::Address(address)),
        _ => Err(Problem::bad(
            "a ban is about exactly one of `client`, `user` and `address`",
        )),
    }
}

/// Where a page begins.
enum From {
    Start,
    /// Behind this ban of the store.
    Behind(Banned),
    /// Behind the automatic ban of this address, or with `None` all stored ones.
    Automatic(Option<IpAddr>),
}

impl From {
    fn read(cursor: Option<String>) -> Result<Self, Problem> {
        let Some(cursor) = cursor else {
            return Ok(Self::Start);
        };
        let (kind, name) = cursor.split_once(' ').ok_or_else(wrong_cursor)?;
        let name = name.to_owned();
        Ok(match kind {
            "client" => Self::Behind(Banned::Client(name)),
            "user" => Self::Behind(Banned::User(name)),
            "address" => Self::Behind(Banned::Address(name)),
            "automatic" if name.is_empty() => Self::Automatic(None),
            "automatic" => Self::Automatic(Some(name.parse().map_err(|_| wrong_cursor())?)),
            _ => return Err(wrong_cursor()),
        })
    }
}

fn page(handle: &BrokerHandle, from: From, limit: usize) -> (Vec<BanItem>, Option<String>) {
    let start = match &from {
        From::Behind(banned) => Bound::Excluded(banned.clone()),
        From::Start | From::Automatic(_) => Bound::Unbounded,
    };
    let mut items = Vec::new();
    let mut behind = None;
    if let From::Automatic(address) = from {
        behind = address;
    } else {
        let (stored, last) = handle.stored_access(|stored| {
            let mut bans = stored.bans().range((start, Bound::Unbounded));
            let mut last = None;
            let stored: Vec<_> = bans
                .by_ref()
                .take(limit)
                .map(|(banned, ban)| {
                    last = Some(format!("{} {}", banned.kind(), banned.name()));
                    BanItem::stored(banned, ban)
                })
                .collect();
            (stored, last.filter(|_| bans.next().is_some()))
        });
        items = stored;
        if last.is_some() {
            return (items, last);
        }
    }
    let mut automatic = handle.automatic_bans();
    automatic.sort_unstable();
    automatic.retain(|(address, _)| Some(*address) > behind);
    let room = limit - items.len();
    let has_more = automatic.len() > room;
    automatic.truncate(room);
    if let Some((last, _)) = automatic.last() {
        behind = Some(*last);
    }
    items.extend(automatic.into_iter().map(BanItem::automatic));
    let name = behind.map_or_else(String::new, |address| address.to_string());
    (items, has_more.then(|| format!("automatic {name}")))
}
