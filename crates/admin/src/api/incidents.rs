//! Incidents: which message did not arrive as it was sent, where, and why.

use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use unbroken_broker::handle::LaneInfo;
use utoipa::{IntoParams, ToSchema};

use super::extract::{Json, Path, Query};
use super::lanes::{Lane, find};
use super::listing::{Page, cursor_of, limit};
use crate::broker::Broker;
use crate::delivery::incident::State as IncidentState;
use crate::delivery::incidents::Counts;
use crate::delivery::{Incident, Incidents, repair as repairs};
use crate::identity::Caller;
use crate::problem::Problem;
use crate::recorder::Recorder;
use crate::time::Moment;

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListParams {
    /// Of this kind.
    kind: Option<String>,
    /// `open`, `repaired` or `ignored`.
    state: Option<String>,
    /// Named last at or after this time.
    since: Option<String>,
    /// Items of a page, 1 to 1,000
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u16>,
    /// `next` of the page before.
    cursor: Option<String>,
}

/// Incidents, the newest first.
#[derive(Serialize, ToSchema)]
pub(crate) struct IncidentPage {
    #[serde(flatten)]
    page: Page<Incident>,
    counts: Counts,
}

/// Incidents, the newest first
#[utoipa::path(
    get,
    path = "/incidents",
    params(ListParams),
    responses((status = 200, body = IncidentPage))
)]
pub(crate) async fn list(
    State(recorder): State<Recorder>,
    Query(params): Query<ListParams>,
) -> Result<Json<IncidentPage>, Problem> {
    let most = limit(params.limit)?;
    let below = cursor_of(params.cursor.as_deref())?;
    let since = params.since.as_deref().map(|text| {
        Moment::parse(text)
            .ok_or_else(|| Problem::bad("`since` is no time: write 2026-11-30T09:30:00Z"))
    });
    let since = since.transpose()?.unwrap_or_default();
    let state = match params.state.as_deref() {
        None => None,
        Some("open") => Some(IncidentState::Open),
        Some("repaired") => Some(IncidentState::Repaired),
        Some("ignored") => Some(IncidentState::Ignored),
        Some(_) => return Err(Problem::bad("`state` is open, repaired or ignored")),
    };
    let wanted = |incident: &&Incident| {
        params
            .kind
            .as_ref()
            .is_none_or(|kind| *kind == incident.kind)
            && state.is_none_or(|state| state == incident.state)
            && incident.last_at >= since
    };
    let (items, next, counts) = recorder.with_incidents(|all| {
        let mut found = all.newest_first(below).filter(wanted);
        let items: Vec<Incident> = found.by_ref().take(most).cloned().collect();
        let more = found.next().and(items.last());
        let next = more.map(|last| last.id.to_string());
        (items, next, all.counts())
    });
    let page = Page::new(items, next);
    Ok(Json(IncidentPage { page, counts }))
}

/// The message before or behind those of an incident.
#[derive(Serialize, ToSchema)]
pub(crate) struct Neighbour {
    number: u64,
    /// `named`: an incident names it. `arrived`: it came, and no incident names it. `not_named`:
    /// the broker numbered it, and no incident names it. `unknown`.
    outcome: &'static str,
    /// The incident that names it.
    incident: Option<u64>,
}

/// An incident with what is known around it.
#[derive(Serialize, ToSchema)]
pub(crate) struct Detail {
    incident: Incident,
    previous: Option<Neighbour>,
    next: Option<Neighbour>,
    /// The lane, if it is open.
    lane: Option<Lane>,
    /// Whether its publisher can be asked to send it again, and why not.
    is_repairable: bool,
    not_repairable_because: Option<&'static str>,
    #[schema(value_type = String)]
    as_of: Moment,
}

/// One incident with its neighbours
#[utoipa::path(
    get,
    path = "/incidents/{id}",
    params(("id" = String, Path, description = "of the incident")),
    responses((status = 200, body = Detail))
)]
pub(crate) async fn show(
    State(recorder): State<Recorder>,
    State(broker): State<Broker>,
    Path(id): Path<String>,
) -> Result<Json<Detail>, Problem> {
    let incident = of(&recorder, &id)?;
    let lane = lane_of(&broker, &incident).await?;
    Ok(Json(detail(&recorder, incident, lane.as_ref())))
}

/// The evidence: what the broker counted of the lane, and the messages around.
#[derive(Serialize, ToSchema)]
pub(crate) struct Proof {
    /// The version of this format.
    unbroken_incident: u32,
    broker: String,
    /// Since when the broker counts.
    #[schema(value_type = String)]
    since: Moment,
    after_crash: bool,
    evidence: Detail,
    /// What to run beside the broker for the proof of each message of the lane.
    verify: Vec<String>,
}

/// The evidence of an incident
#[utoipa::path(
    get,
    path = "/incidents/{id}/proof",
    params(("id" = String, Path, description = "of the incident")),
    responses((status = 200, body = Proof))
)]
pub(crate) async fn proof(
    State(recorder): State<Recorder>,
    State(broker): State<Broker>,
    Path(id): Path<String>,
) -> Result<Json<Proof>, Problem> {
    let incident = of(&recorder, &id)?;
    let lane = lane_of(&broker, &incident).await?;
    let began = broker.handle().began();
    let verify = incident.lane.iter().flat_map(|lane| {
        let topic = incident.topic.as_deref().unwrap_or("#");
        [
            format!("unbroken audit watch -t '{topic}'"),
            format!("mosquitto_sub -t '$audit/{lane}/#'"),
        ]
    });
    Ok(Json(Proof {
        unbroken_incident: 1,
        broker: broker.version.to_string(),
        since: began.at.into(),
        after_crash: began.after_crash,
        verify: verify.collect(),
        evidence: detail(&recorder, incident, lane.as_ref()),
    }))
}

/// What became of a request for a repair.
#[derive(Serialize, ToSchema)]
pub(crate) struct Repair {
    /// Messages that their publisher has sent again.
    sent_again: u64,
    /// Messages that their publisher does not have any more.
    gone: u64,
    incident: Incident,
}

/// Asks the publisher to send the messages again
#[utoipa::path(
    post,
    path = "/incidents/{id}/repair",
    params(("id" = String, Path, description = "of the incident")),
    responses((status = 200, body = Repair), (status = 409, description = "it cannot be asked"))
)]
pub(crate) async fn repair(
    State(recorder): State<Recorder>,
    State(broker): State<Broker>,
    Path(id): Path<String>,
) -> Result<Json<Repair>, Problem> {
    let incident = of(&recorder, &id)?;
    if let Some(why) = not_repairable(&incident) {
        return Err(Problem::new(StatusCode::CONFLICT, why));
    }
    let lane = lane_of(&broker, &incident).await?;
    if lane.is_none() {
        let detail = "the publisher has no session any more, so it cannot be asked";
        return Err(Problem::new(StatusCode::CONFLICT, detail));
    }
    let (sent_again, gone) = repairs::ask(&broker, &incident).await?;
    let incident = of(&recorder, &id)?;
    Ok(Json(Repair {
        sent_again,
        gone,
        incident,
    }))
}

/// A note about an incident.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Note {
    text: Option<String>,
    /// True: it counts no more. False: it does again.
    ignore: Option<bool>,
}

/// Writes a note, and ignores the incident or looks at it again
#[utoipa::path(
    post,
    path = "/incidents/{id}/note",
    params(("id" = String, Path, description = "of the incident")),
    request_body = Note,
    responses((status = 200, body = Incident))
)]
pub(crate) async fn note(
    State(recorder): State<Recorder>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    Json(note): Json<Note>,
) -> Result<Json<Incident>, Problem> {
    if note.ignore == Some(true) && note.text.as_deref().is_none_or(str::is_empty) {
        return Err(Problem::bad(
            "an incident is ignored with a note: say why in `text`",
        ));
    }
    let number = number(&id)?;
    let text = note.text.as_deref().filter(|text| !text.is_empty());
    let noted = recorder.with_incidents(|all: &mut Incidents| {
        all.note(number, text, &caller.name, note.ignore).cloned()
    });
    let incident = noted.ok_or_else(|| missing(&id))?;
    Ok(Json(incident))
}

fn number(id: &str) -> Result<u64, Problem> {
    id.parse().map_err(|_| missing(id))
}

fn of(recorder: &Recorder, id: &str) -> Result<Incident, Problem> {
    let number = number(id)?;
    let found = recorder.with_incidents(|all| all.get(number).cloned());
    found.ok_or_else(|| missing(id))
}

fn missing(id: &str) -> Problem {
    let detail = format!("there is no incident {id:?}; the oldest are forgotten first");
    Problem::new(StatusCode::NOT_FOUND, detail)
}

fn not_repairable(incident: &Incident) -> Option<&'static str> {
    match () {
        () if !incident.is_stamped => Some(
            "its publisher does not stamp its messages, so it cannot be asked to send one again",
        ),
        () if !incident.is_repairable() => {
            Some("nothing is missing: to send it again would not change it")
        }
        () if incident.state == IncidentState::Repaired => Some("it is repaired"),
        () => None,
    }
}

async fn lane_of(broker: &Broker, incident: &Incident) -> Result<Option<LaneInfo>, Problem> {
    let lane = incident
        .lane
        .as_deref()
        .and_then(|lane| u64::from_str_radix(lane, 16).ok());
    let Some(lane) = lane else {
        return Ok(None);
    };
    let epochs = find(broker, lane).await?;
    Ok(epochs
        .into_iter()
        .find(|info| Some(info.epoch) == incident.epoch))
}

fn detail(recorder: &Recorder, incident: Incident, lane: Option<&LaneInfo>) -> Detail {
    let as_of = Moment::now();
    let neighbour = |number: Option<u64>| {
        let number = number?;
        let (id, epoch) = (incident.lane.as_deref()?, incident.epoch?);
        let named = recorder.with_incidents(|all| all.covering(id, epoch, number).map(|it| it.id));
        let is_known = lane.is_some_and(|lane| (lane.scope_start..lane.next).contains(&number));
        let outcome = match (named, is_known) {
            (Some(_), _) => "named",
            (None, true) if incident.is_stamped => "arrived",
            (None, true) => "not_named",
            (None, false) => "unknown",
        };
        Some(Neighbour {
            number,
            outcome,
            incident: named,
        })
    };
    let why_not = not_repairable(&incident);
    Detail {
        previous: neighbour(incident.first.and_then(|first| first.checked_sub(1))),
        next: neighbour(incident.last.and_then(|last| last.checked_add(1))),
        lane: lane.map(|lane| Lane::of(lane, as_of)),
        is_repairable: why_not.is_none(),
        not_repairable_because: why_not,
        as_of,
        incident,
    }
}
