//! Clients that are connected.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use unbroken_broker::config::Config;
use unbroken_broker::handle::{ClientInfo, Cursor, Wanted};
use utoipa::{IntoParams, ToSchema};

use super::extract::{Path, Query, text};
use super::listing::{Page, parsed_cursor, within};
use super::sessions::expiry;
use crate::broker::Broker;
use crate::limits::ANSWER_TIMEOUT;
use crate::problem::Problem;
use crate::time;

/// Which clients.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Search {
    /// Client ids that contain this
    search: Option<String>,
    /// Clients of this user
    user: Option<String>,
    /// Clients of this listener: its name, or its number
    listener: Option<String>,
    /// Items of a page, 1 to 1,000
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u16>,
    /// The `next` of the page before
    cursor: Option<String>,
}

/// A client that is connected
#[derive(Serialize, ToSchema)]
pub(crate) struct Client {
    client_id: String,
    /// Null: it has no user name
    user: Option<String>,
    /// Null: it is connected by a unix socket
    address: Option<String>,
    /// The listener's position in the configuration
    listener: u16,
    listener_name: Option<String>,
    /// The version of MQTT: `3.1`, `3.1.1` or `5.0`
    protocol: String,
    #[schema(format = DateTime)]
    connected_since: Option<String>,
    /// Null: it need not send anything
    keep_alive_s: Option<u64>,
    /// Whether its CONNECT is that of a bridge
    is_bridge: bool,
    /// What its topics begin with for others
    mount: Option<String>,
    /// Bytes that wait for its socket
    output_bytes: u64,
    /// Whether it is read slowly for now, because it is over its rate
    is_over_rate: bool,
    subscriptions: u64,
    /// Messages that wait for it and were not sent
    queued: u64,
    queued_bytes: u64,
    /// Messages that were sent and not acknowledged
    in_flight: u64,
    /// How long its session outlives the connection; null: without end
    session_expiry_s: Option<u32>,
    will_topic: Option<String>,
}

impl Client {
    fn new(info: &ClientInfo, config: &Config) -> Self {
        let listener = config.listeners.get(usize::from(info.listener));
        let session = &info.session;
        Self {
            client_id: info.client_id.to_string(),
            user: info.user.as_deref().map(str::to_owned),
            address: info.address.map(|address| address.to_string()),
            listener: info.listener,
            listener_name: listener.and_then(|listener| listener.name.clone()),
            protocol: info.version.to_string(),
            connected_since: info.since.map(time::of_instant),
            // Its patience is one and a half times as long [MQTT-3.1.2-22].
            keep_alive_s: info.patience.map(keep_alive_s),
            is_bridge: info.is_bridge,
            mount: info.mount.as_deref().map(str::to_owned),
            output_bytes: info.output_bytes,
            is_over_rate: info.is_over_rate,
            subscriptions: session.subscriptions,
            queued: session.queued,
            queued_bytes: session.queued_bytes,
            in_flight: session.in_flight,
            session_expiry_s: expiry(session.expiry_s),
            will_topic: session.will_topic.as_deref().map(str::to_owned),
        }
    }
}

/// Whole seconds, as CONNECT has them.
fn keep_alive_s(patience: Duration) -> u64 {
    let twice_ms = 2 * u64::try_from(patience.as_millis()).unwrap_or(u64::MAX / 4);
    (twice_ms + 1_500) / 3_000
}

/// Clients that are connected
#[utoipa::path(
    get, path = "/clients", tag = "clients", params(Search),
    responses((status = 200, body = Page<Client>))
)]
pub(crate) async fn list(
    State(broker): State<Broker>,
    Query(search): Query<Search>,
) -> Result<Json<Page<Client>>, Problem> {
    let within = within(search.limit)?;
    let from: Cursor = parsed_cursor(search.cursor.as_deref())?;
    let (part, user) = (text("search", search.search)?, text("user", search.user)?);
    let name = text("listener", search.listener)?;
    let found = broker.answer(move |handle| {
        let config = handle.config();
        let mut wanted = Wanted {
            search: part.map(Into::into),
            user: user.map(Into::into),
            ..Wanted::default()
        };
        if let Some(name) = name {
            let listener = listener_of(&config, &name);
            let Some(listener) = listener else {
                return Ok(Err(Problem::bad(format!(
                    "`listener`: no listener has the name or number {name:?}; /listeners has them"
                ))));
            };
            wanted.listener = Some(listener);
        }
        let found = handle.find_clients(wanted, from, within)?;
        let items = found.entries.iter().map(|info| Client::new(info, &config));
        Ok(Ok((items.collect(), found.next)))
    });
    let (items, next) = found.await??;
    Ok(Json(Page::new(items, next.map(|next| next.to_string()))))
}

/// A client that is connected
#[utoipa::path(
    get, path = "/clients/{id}", tag = "clients",
    params(("id" = String, Path, description = "Its client id, percent-encoded")),
    responses((status = 200, body = Client))
)]
pub(crate) async fn show(
    State(broker): State<Broker>,
    Path(id): Path<String>,
) -> Result<Json<Client>, Problem> {
    let asked = id.clone();
    let found = broker.answer(move |handle| {
        let info = handle.client(&asked, ANSWER_TIMEOUT)?;
        Ok(info.map(|info| Client::new(&info, &handle.config())))
    });
    found.await?.map(Json).ok_or_else(|| missing(&id))
}

/// Ends the connection of a client
///
/// Its session and its will are treated as after any connection that the broker ends. The client
/// may connect again; a ban keeps it away.
#[utoipa::path(
    post, path = "/clients/{id}/disconnect", tag = "clients",
    params(("id" = String, Path, description = "Its client id, percent-encoded")),
    responses((status = 204, description = "Its connection has ended"))
)]
pub(crate) async fn disconnect(
    State(broker): State<Broker>,
    Path(id): Path<String>,
) -> Result<StatusCode, Problem> {
    let asked = id.clone();
    let ended = broker.change(move |handle| handle.disconnect(&asked, ANSWER_TIMEOUT));
    if ended.await? {
        Ok(StatusCode::NO_CONTENT)
    } else {
        Err(missing(&id))
    }
}

/// The position of the listener with this name, or this number.
pub(super) fn listener_of(config: &Config, name: &str) -> Option<u16> {
    let mut listeners = (0..).zip(&config.listeners);
    let found = listeners.find(|(number, listener): &(u16, _)| {
        listener.name.as_deref() == Some(name) || number.to_string() == name
    });
    found.map(|(number, _)| number)
}

fn missing(id: &str) -> Problem {
    Problem::missing(format!("no client with the id {id:?} is connected"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_keep_alive_is_as_the_client_said_it() {
        for seconds in [1, 2, 3, 5, 60, 65_535] {
            let patience = Duration::from_millis(seconds * 1_500);
            assert_eq!(keep_alive_s(patience), seconds);
        }
    }
}
