//! What clients may do: questions to the access rules, denied attempts, and how rules are changed.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::{SystemTime, UNIX_EPOCH};

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use unbroken_broker::access::{Action, Question};
use unbroken_broker::handle::ChangeAccessError;
use unbroken_broker::stored_access::{Change, ChangeError};
use utoipa::{IntoParams, ToSchema};

use super::clients::listener_of;
use super::extract::{self, Query, text};
use super::listing::{Page, behind_named, part};
use crate::broker::Broker;
use crate::denials::{Denials, Denied};
use crate::problem::Problem;
use crate::time;

/// A question: may a client do something?
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Explain {
    /// Without it the client has no user name
    user: Option<String>,
    /// The client id
    #[serde(default)]
    client: String,
    action: Asked,
    /// The topic, or the filter for `subscribe`; whole, with the client's mount
    #[serde(default)]
    topic: String,
    /// The QoS of what it publishes or subscribes to
    #[serde(default)]
    #[schema(maximum = 2)]
    qos: u8,
    /// Whether it publishes a retained message
    #[serde(default)]
    retain: bool,
    /// The listener's name, or its number; without it the first one
    listener: Option<String>,
    /// The client's IP address, for rules about addresses
    address: Option<String>,
    /// Roles that the client's token vouches for
    #[serde(default)]
    roles: Vec<String>,
    /// Values that the client's token vouches for
    #[serde(default)]
    claims: BTreeMap<String, String>,
}

#[derive(Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Asked {
    Connect,
    Publish,
    Subscribe,
    Receive,
}

/// What the access rules in force say
#[derive(Serialize, ToSchema)]
pub(crate) struct Explained {
    allowed: bool,
    /// Why, in a few words
    reason: String,
    /// Where the rule is written that decided
    rule: Option<String>,
    /// The role that decided
    role: Option<String>,
    /// What the client's topics begin with for others
    mount: Option<String>,
    /// The highest QoS of what is allowed
    max_qos: u8,
    /// Whether what is allowed may be retained
    retain: bool,
}

/// Which denied attempts.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Search {
    /// Client ids, users, addresses or topics that contain this
    search: Option<String>,
    /// Items of a page, 1 to 1,000
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u16>,
    /// The `next` of the page before
    cursor: Option<String>,
}

/// A denied attempt
#[derive(Serialize, ToSchema)]
pub(crate) struct Denial {
    #[schema(format = DateTime)]
    at: String,
    /// `connect`; `subscribe`; `message`: it was not published, or not received; `connection`: it
    /// was ended
    what: &'static str,
    /// Null: it did not say
    client_id: Option<String>,
    /// The user name that its CONNECT claims
    user: Option<String>,
    address: Option<String>,
    /// The topic, or the filter of a subscription
    topic: Option<String>,
    reason: String,
    /// How often since it was last told: at most once a second for a client
    count: u64,
}

/// Denied attempts, the newest first
#[derive(Serialize, ToSchema)]
pub(crate) struct DenialPage {
    #[serde(flatten)]
    page: Page<Denial>,
    /// Denials that came too fast to be remembered
    missed: u64,
}

impl Explain {
    fn question(self, listener: u16) -> Result<Question, Problem> {
        let action = match self.action {
            Asked::Connect => None,
            Asked::Publish => Some(Action::Publish),
            Asked::Subscribe => Some(Action::Subscribe),
            Asked::Receive => Some(Action::Receive),
        };
        if self.qos > 2 {
            return Err(Problem::bad(format!(
                "`qos` is {}; it is 0, 1 or 2",
                self.qos
            )));
        }
        let address = self
            .address
            .as_deref()
            .map(str::parse::<IpAddr>)
            .transpose();
        let wrong_address = |_| Problem::bad("`address` is no IP address");
        let question = Question {
            user: self.user,
            client_id: self.client,
            roles: self.roles,
            values: self.claims.into_iter().collect(),
            listener,
            address: address
                .map_err(wrong_address)?
                .map(|it| SocketAddr::new(it, 0)),
            action,
            qos: self.qos,
            retain: self.retain,
            topic: self.topic,
        };
        match question.mistake() {
            Some(mistake) => Err(Problem::bad(mistake)),
            None => Ok(question),
        }
    }
}

/// May a client do something, and which rule decides?
#[utoipa::path(
    post, path = "/access/explain", tag = "access", request_body = Explain,
    responses((status = 200, body = Explained))
)]
pub(crate) async fn explain(
    State(broker): State<Broker>,
    extract::Json(asked): extract::Json<Explain>,
) -> Result<Json<Explained>, Problem> {
    let explained = broker.answer(move |handle| {
        let listener = match &asked.listener {
            None => Some(0),
            Some(name) => listener_of(&handle.config(), name),
        };
        let unknown = || Problem::bad("`listener`: no listener has this name or number");
        let question = listener
            .ok_or_else(unknown)
            .and_then(|it| asked.question(it));
        Ok(question.and_then(|question| {
            let conflict = |why: String| Problem::new(StatusCode::CONFLICT, why);
            handle
                .explain(&question)
                .map_err(|error| conflict(error.to_string()))
        }))
    });
    let explained = explained.await??;
    Ok(Json(Explained {
        allowed: explained.is_allowed,
        reason: explained.reason,
        rule: explained.rule,
        role: explained.role,
        mount: explained.mount,
        max_qos: explained.max_qos,
        retain: explained.retain,
    }))
}

/// The newest denied attempts
///
/// The broker remembers the last 1,000 since it started. A client that tries again and again is in
/// the list once a second, with how often.
#[utoipa::path(
    get, path = "/access/denied", tag = "access", params(Search),
    responses((status = 200, body = DenialPage))
)]
pub(crate) async fn denied(
    State(denials): State<Denials>,
    Query(search): Query<Search>,
) -> Result<Json<DenialPage>, Problem> {
    let wanted = text("search", search.search)?;
    let (newest, missed) = denials.newest();
    let newest = newest.iter().map(|denied| (denied.at, Denial::new(denied)));
    let found = newest.filter(|(_, it)| wanted.as_deref().is_none_or(|part| it.has(part)));
    // A clock may be set back, so the list's own order counts.
    let page = part(
        found,
        (search.limit, search.cursor.as_deref()),
        |(at, _)| nanoseconds(*at),
        behind_named(|(at, _): &(SystemTime, Denial), last| nanoseconds(*at) == *last),
    )?;
    let page = page.map(|(_, denial)| denial);
    Ok(Json(DenialPage { page, missed }))
}

/// The name of a denial: no two are of the same nanosecond, as one thread remembers them.
fn nanoseconds(at: SystemTime) -> u128 {
    at.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos()
}

impl Denial {
    fn new(denied: &Denied) -> Self {
        Self {
            at: time::of_system(denied.at),
            what: denied.what,
            client_id: denied.client_id.as_deref().map(str::to_owned),
            user: denied.user.as_deref().map(str::to_owned),
            address: denied.address.clone(),
            topic: denied.topic.as_deref().map(str::to_owned),
            reason: denied.reason.clone(),
            count: denied.count,
        }
    }

    fn has(&self, part: &str) -> bool {
        let texts = [&self.client_id, &self.user, &self.address, &self.topic];
        texts.into_iter().flatten().any(|text| text.contains(part))
    }
}

/// Makes changes one after another; the first that cannot be made ends it.
pub(super) async fn change(broker: &Broker, changes: Vec<Change>) -> Result<(), Problem> {
    let count = changes.len();
    let made = broker.change(move |handle| {
        for (done, change) in changes.iter().enumerate() {
            if let Err(error) = handle.change_access(change) {
                return Ok(Err((done, error)));
            }
        }
        Ok(Ok(()))
    });
    let Err((done, error)) = made.await? else {
        return Ok(());
    };
    let status = match &error {
        ChangeAccessError::Change(ChangeError::Missing { .. }) => StatusCode::NOT_FOUND,
        ChangeAccessError::Change(ChangeError::Exists { .. } | ChangeError::Full { .. }) => {
            StatusCode::CONFLICT
        }
        ChangeAccessError::Change(_) | ChangeAccessError::Access(_) => StatusCode::BAD_REQUEST,
        _ => StatusCode::SERVICE_UNAVAILABLE,
    };
    let before = match (done, count) {
        (0, _) => String::new(),
        (done, count) => format!("; the first {done} of {count} changes were made"),
    };
    Err(Problem::new(status, format!("{error}{before}")))
}
