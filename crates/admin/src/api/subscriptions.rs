//! Subscriptions, and shared groups with their members.

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use unbroken_broker::handle::{Cursor, SharedGroup, SubscriptionInfo, WantedSubscriptions};
use utoipa::{IntoParams, ToSchema};

use super::extract::{Query, text};
use super::listing::{Page, parsed_cursor, within};
use super::topics::valid_topic;
use crate::broker::Broker;
use crate::problem::Problem;

/// Which subscriptions.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Search {
    /// Those of this client
    client: Option<String>,
    /// Those with exactly this filter, `$share/GROUP/` included
    filter: Option<String>,
    /// Those that a message with this topic matches: who receives it, if the access rules allow it
    topic: Option<String>,
    /// Items of a page, 1 to 1,000
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u16>,
    /// The `next` of the page before
    cursor: Option<String>,
}

/// A part of the groups.
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

/// A subscription
#[derive(Serialize, ToSchema)]
pub(crate) struct Subscription {
    client_id: String,
    /// As the client wrote it, with its mount, and with `$share/GROUP/` if it is shared
    filter: String,
    /// The most a message is delivered with
    qos: u8,
    /// Nothing that the client itself published
    no_local: bool,
    retain_as_published: bool,
    /// The client's number for it
    identifier: Option<u32>,
}

/// A shared group
#[derive(Serialize, ToSchema)]
pub(crate) struct Group {
    /// Its name
    group: String,
    /// What it is subscribed to
    filter: String,
    /// How many members it has
    members: u32,
    /// Some of them, up to 32: those whose turn is next
    member_list: Vec<Member>,
}

/// A member of a shared group
#[derive(Serialize, ToSchema)]
pub(crate) struct Member {
    client_id: String,
    /// The most a message is delivered with
    qos: u8,
    /// `ready`; `away`, but its session keeps messages; `full`; or `absent`: it is away, and keeps
    /// nothing
    state: &'static str,
}

impl Subscription {
    pub(super) fn new(info: &SubscriptionInfo) -> Self {
        Self {
            client_id: info.client_id.to_string(),
            filter: info.filter.to_string(),
            qos: info.qos.into(),
            no_local: info.no_local,
            retain_as_published: info.retain_as_published,
            identifier: info.identifier,
        }
    }
}

impl Group {
    fn new(group: &SharedGroup) -> Self {
        let text = group
            .filter
            .strip_prefix("$share/")
            .unwrap_or(&group.filter);
        let (name, filter) = text.split_once('/').unwrap_or((text, ""));
        let member = |member: &unbroken_broker::handle::GroupMember| Member {
            client_id: member.client_id.to_string(),
            qos: member.qos.into(),
            state: member.state,
        };
        Self {
            group: name.to_owned(),
            filter: filter.to_owned(),
            members: group.members,
            member_list: group.listed.iter().map(member).collect(),
        }
    }
}

/// Subscriptions of all clients, of one client, or to a topic
#[utoipa::path(
    get, path = "/subscriptions", tag = "subscriptions", params(Search),
    responses((status = 200, body = Page<Subscription>))
)]
pub(crate) async fn list(
    State(broker): State<Broker>,
    Query(search): Query<Search>,
) -> Result<Json<Page<Subscription>>, Problem> {
    let within = within(search.limit)?;
    let from: Cursor = parsed_cursor(search.cursor.as_deref())?;
    let topic = text("topic", search.topic)?;
    if let Some(topic) = &topic {
        valid_topic(topic)?;
    }
    let wanted = WantedSubscriptions {
        client_id: text("client", search.client)?.map(Into::into),
        filter: text("filter", search.filter)?.map(Into::into),
        topic: topic.map(Into::into),
    };
    let found = broker.answer(move |handle| handle.find_subscriptions(wanted, from, within));
    let found = found.await?;
    let next = found.next.map(|next| next.to_text());
    let items = found.entries.iter().map(Subscription::new);
    Ok(Json(Page::new(items.collect(), next)))
}

/// Shared groups and their members
#[utoipa::path(
    get, path = "/groups", tag = "subscriptions", params(Part),
    responses((status = 200, body = Page<Group>))
)]
pub(crate) async fn groups(
    State(broker): State<Broker>,
    Query(part): Query<Part>,
) -> Result<Json<Page<Group>>, Problem> {
    let within = within(part.limit)?;
    let from: Cursor = parsed_cursor(part.cursor.as_deref())?;
    let found = broker.answer(move |handle| handle.groups(from, within));
    let found = found.await?;
    let next = found.next.map(|next| next.to_text());
    let items = found.entries.iter().map(Group::new);
    Ok(Json(Page::new(items.collect(), next)))
}
