//! Sessions, connected or not.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use unbroken_broker::handle::{Cursor, Forget, SessionInfo, Wanted, Within};
use utoipa::{IntoParams, ToSchema};

use super::extract::{Path, Query, text};
use super::listing::{Page, parsed_cursor, within};
use super::subscriptions::Subscription;
use crate::broker::Broker;
use crate::limits::{ANSWER_TIMEOUT, CHANGE_TIMEOUT, SUBSCRIPTIONS_SHOWN};
use crate::problem::Problem;
use crate::time;

/// Which sessions.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Search {
    /// Client ids that contain this
    search: Option<String>,
    /// Sessions of this user
    user: Option<String>,
    /// Whether their clients are connected
    connected: Option<bool>,
    /// Items of a page, 1 to 1,000
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u16>,
    /// The `next` of the page before
    cursor: Option<String>,
}

/// A session
#[derive(Serialize, ToSchema)]
pub(crate) struct Session {
    client_id: String,
    /// Null: its clients had no user name
    user: Option<String>,
    is_connected: bool,
    /// When its last connection ended, while it has none
    #[schema(format = DateTime)]
    away_since: Option<String>,
    /// How long it outlives a connection; null: without end
    expiry_s: Option<u32>,
    /// What its topics begin with for others
    mount: Option<String>,
    subscriptions: u64,
    /// Messages that wait for it and were not sent
    queued: u64,
    queued_bytes: u64,
    /// Whether these two are exact; otherwise more may wait on disk, from before the broker started
    is_counted: bool,
    /// Messages that were sent and not acknowledged
    in_flight: u64,
    will_topic: Option<String>,
}

/// A session with its subscriptions
#[derive(Serialize, ToSchema)]
pub(crate) struct SessionDetail {
    #[serde(flatten)]
    session: Session,
    /// The first 100; `/subscriptions?client=` has all
    subscription_list: Vec<Subscription>,
    #[schema(format = DateTime)]
    as_of: String,
}

impl Session {
    fn new(info: &SessionInfo) -> Self {
        Self {
            client_id: info.client_id.to_string(),
            user: info.user.as_deref().map(str::to_owned),
            is_connected: info.is_connected,
            away_since: info.away_since.map(time::of_instant),
            expiry_s: expiry(info.expiry_s),
            mount: info.mount.as_deref().map(str::to_owned),
            subscriptions: info.subscriptions,
            queued: info.queued,
            queued_bytes: info.queued_bytes,
            is_counted: info.is_counted,
            in_flight: info.in_flight,
            will_topic: info.will_topic.as_deref().map(str::to_owned),
        }
    }
}

/// Sessions, connected or not
#[utoipa::path(
    get, path = "/sessions", tag = "sessions", params(Search),
    responses((status = 200, body = Page<Session>))
)]
pub(crate) async fn list(
    State(broker): State<Broker>,
    Query(search): Query<Search>,
) -> Result<Json<Page<Session>>, Problem> {
    let within = within(search.limit)?;
    let from: Cursor = parsed_cursor(search.cursor.as_deref())?;
    let wanted = Wanted {
        search: text("search", search.search)?.map(Into::into),
        user: text("user", search.user)?.map(Into::into),
        is_connected: search.connected,
        listener: None,
    };
    let found = broker.answer(move |handle| handle.find_sessions(wanted, from, within));
    let found = found.await?;
    let next = found.next.map(|next| next.to_string());
    let items = found.entries.iter().map(Session::new);
    Ok(Json(Page::new(items.collect(), next)))
}

/// A session, with its subscriptions
#[utoipa::path(
    get, path = "/sessions/{id}", tag = "sessions",
    params(("id" = String, Path, description = "Its client id, percent-encoded")),
    responses((status = 200, body = SessionDetail))
)]
pub(crate) async fn show(
    State(broker): State<Broker>,
    Path(id): Path<String>,
) -> Result<Json<SessionDetail>, Problem> {
    let asked = id.clone();
    let within = Within {
        entries: SUBSCRIPTIONS_SHOWN,
        timeout: ANSWER_TIMEOUT,
    };
    let found = broker.answer(move |handle| {
        let Some(info) = handle.session(&asked, ANSWER_TIMEOUT)? else {
            return Ok(None);
        };
        let subscriptions = handle.subscriptions(Some(&asked), Cursor::default(), within)?;
        Ok(Some((info, subscriptions.entries)))
    });
    let (info, subscriptions) = found.await?.ok_or_else(|| missing(&id))?;
    Ok(Json(SessionDetail {
        session: Session::new(&info),
        subscription_list: subscriptions.iter().map(Subscription::new).collect(),
        as_of: time::now_text(),
    }))
}

/// Removes a session
///
/// Its client is disconnected, its will is published, and what waits for it is dropped and counted
/// as `session-ended`.
#[utoipa::path(
    delete, path = "/sessions/{id}", tag = "sessions",
    params(("id" = String, Path, description = "Its client id, percent-encoded")),
    responses((status = 204, description = "It is removed, on disk too"))
)]
pub(crate) async fn remove(
    State(broker): State<Broker>,
    Path(id): Path<String>,
) -> Result<StatusCode, Problem> {
    let client_id: Arc<str> = id.as_str().into();
    let removed = broker.change(move |handle| {
        if handle.session(&client_id, ANSWER_TIMEOUT)?.is_none() {
            return Ok(false);
        }
        handle.forget(&Forget::Session { client_id }, CHANGE_TIMEOUT)?;
        Ok(true)
    });
    if removed.await? {
        Ok(StatusCode::NO_CONTENT)
    } else {
        Err(missing(&id))
    }
}

/// `None`: a session never expires.
pub(super) fn expiry(seconds: u32) -> Option<u32> {
    (seconds != u32::MAX).then_some(seconds)
}

fn missing(id: &str) -> Problem {
    Problem::missing(format!(
        "there is no session of a client with the id {id:?}"
    ))
}
