//! Lanes: the messages of one publisher, numbered without gaps.

use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use unbroken_broker::handle::{LaneCursor, LaneFilter, LaneInfo};
use utoipa::{IntoParams, ToSchema};

use super::extract::{Json, Path, Query, text};
use super::listing::{Page, cursor, within, wrong_cursor};
use crate::broker::Broker;
use crate::limits::ANSWER_TIMEOUT;
use crate::problem::Problem;
use crate::time::Moment;

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListParams {
    /// Lanes whose id, client or user has this in it.
    search: Option<String>,
    /// Items of a page, 1 to 1,000; it may have fewer with more behind it
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u16>,
    /// `next` of the page before.
    cursor: Option<String>,
}

/// An epoch of a lane.
#[derive(Serialize, ToSchema)]
pub(crate) struct Lane {
    /// 16 hexadecimal digits.
    id: String,
    epoch: u32,
    publisher: String,
    user: Option<String>,
    /// Its publisher numbers it. Otherwise the broker does.
    is_stamped: bool,
    /// The number of the next message.
    next: u64,
    /// Numbers below this are not judged.
    scope_start: u64,
    /// `counted`: the broker numbers it, and its accounts balance. `proven`: a checkpoint covers
    /// all of it. `open`: messages wait for a checkpoint. `faulty`: messages are lost.
    state: &'static str,
    checkpoint: Option<Checkpoint>,
    windows: Windows,
    /// Messages that were lost, and not sent again since.
    lost: u64,
    /// For how long the first message has waited that no checkpoint covers.
    open_ms: Option<u64>,
    /// How long the messages that the last checkpoint covered had waited for it, at most.
    time_to_proof_ms: Option<u64>,
}

/// The last checkpoint of a lane.
#[derive(Serialize, ToSchema)]
pub(crate) struct Checkpoint {
    /// The messages that it covers.
    size: u64,
    /// When it came.
    #[schema(value_type = String)]
    at: Moment,
}

/// Windows of a lane.
#[derive(Serialize, ToSchema)]
pub(crate) struct Windows {
    proven: u64,
    faulty: u64,
    unproven: u64,
}

/// Lanes, page by page
#[utoipa::path(
    get,
    path = "/lanes",
    params(ListParams),
    responses((status = 200, body = Page<Lane>))
)]
pub(crate) async fn list(
    State(broker): State<Broker>,
    Query(params): Query<ListParams>,
) -> Result<Json<Page<Lane>>, Problem> {
    let within = within(params.limit)?;
    let from = match cursor(params.cursor.as_deref())? {
        Some(from) => LaneCursor::parse(&from).ok_or_else(wrong_cursor)?,
        None => LaneCursor::default(),
    };
    let filter = LaneFilter {
        lane: None,
        text: text("search", params.search)?.map(Into::into),
    };
    let asked = broker.ask(move |handle| handle.lanes(&filter, from, within));
    let listing = asked
        .await
        .map_err(Problem::unavailable)?
        .map_err(Problem::unavailable)?;
    let as_of = Moment::now();
    let lanes = listing.entries.iter().map(|info| Lane::of(info, as_of));
    let next = listing.next.map(LaneCursor::to_text);
    Ok(Json(Page::new(lanes.collect(), next)))
}

/// The epochs of a lane.
#[derive(Serialize, ToSchema)]
pub(crate) struct LaneDetail {
    id: String,
    /// The newest last.
    epochs: Vec<Lane>,
    #[schema(value_type = String)]
    as_of: Moment,
}

/// One lane with its epochs
#[utoipa::path(
    get,
    path = "/lanes/{id}",
    params(("id" = String, Path, description = "16 hexadecimal digits")),
    responses((status = 200, body = LaneDetail))
)]
pub(crate) async fn show(
    State(broker): State<Broker>,
    Path(id): Path<String>,
) -> Result<Json<LaneDetail>, Problem> {
    let lane = u64::from_str_radix(&id, 16);
    let lane =
        lane.map_err(|_| Problem::bad(format!("{id:?} is no lane: it has 16 hexadecimal digits")))?;
    let epochs = find(&broker, lane).await?;
    if epochs.is_empty() {
        let detail = format!("lane {id} is not open: its publisher has no session, or never came");
        return Err(Problem::new(StatusCode::NOT_FOUND, detail));
    }
    let as_of = Moment::now();
    Ok(Json(LaneDetail {
        id,
        epochs: epochs.iter().map(|info| Lane::of(info, as_of)).collect(),
        as_of,
    }))
}

pub(crate) async fn find(broker: &Broker, lane: u64) -> Result<Vec<LaneInfo>, Problem> {
    let asked = broker.ask(move |handle| handle.lane(lane, ANSWER_TIMEOUT));
    asked
        .await
        .map_err(Problem::unavailable)?
        .map_err(Problem::unavailable)
}

impl Lane {
    pub(crate) fn of(info: &LaneInfo, as_of: Moment) -> Self {
        let [proven, faulty, unproven] = info.windows;
        let ms =
            |duration: std::time::Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        let checkpoint = info.checkpoint.map(|checkpoint| Checkpoint {
            size: checkpoint.size,
            at: as_of.before(checkpoint.age),
        });
        let covered = checkpoint.as_ref().map_or(0, |checkpoint| checkpoint.size);
        Self {
            id: format!("{:016x}", info.lane),
            epoch: info.epoch,
            publisher: info.client_id.to_string(),
            user: info.user.as_deref().map(ToOwned::to_owned),
            is_stamped: info.is_stamped,
            next: info.next,
            scope_start: info.scope_start,
            state: match () {
                () if !info.is_stamped => "counted",
                () if info.lost > 0 => "faulty",
                () if covered >= info.next && info.open_for.is_none() => "proven",
                () => "open",
            },
            checkpoint,
            windows: Windows {
                proven,
                faulty,
                unproven,
            },
            lost: info.lost,
            open_ms: info.open_for.map(ms),
            time_to_proof_ms: info.proof_took.map(ms),
        }
    }
}
