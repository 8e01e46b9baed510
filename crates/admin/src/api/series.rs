//! Series of the last seven days.

use axum::extract::State;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::{IntoParams, ToSchema};

use super::extract::{Json, Query};
use crate::limits::{POINTS_MAX, SERIES_MAX};
use crate::problem::Problem;
use crate::recorder::Recorder;
use crate::recorder::rings::Point;
use crate::recorder::series::SERIES;
use crate::time::Moment;

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(crate) struct SeriesParams {
    /// Names with commas between them; all if it is left out.
    names: Option<String>,
    /// RFC 3339; 5 minutes before `to` if it is left out.
    from: Option<String>,
    /// RFC 3339; now if it is left out.
    to: Option<String>,
    /// From 1 to 2,000.
    points: Option<u64>,
}

/// Series with a common step.
#[derive(Serialize, ToSchema)]
#[expect(clippy::struct_field_names, reason = "it is the word of the API")]
pub(crate) struct Series {
    /// The beginning of the first point.
    #[schema(value_type = String)]
    from: Moment,
    step_s: u64,
    series: BTreeMap<&'static str, Points>,
    /// All names.
    names: &'static [&'static str],
    #[schema(value_type = String)]
    as_of: Moment,
}

/// One series: a value for each step, null where nothing is known.
#[derive(Serialize, ToSchema)]
pub(crate) struct Points {
    avg: Vec<Option<f32>>,
    min: Vec<Option<f32>>,
    max: Vec<Option<f32>>,
}

/// Series of the last seven days
#[utoipa::path(
    get,
    path = "/series",
    params(SeriesParams),
    responses((status = 200, body = Series))
)]
pub(crate) async fn show(
    State(recorder): State<Recorder>,
    Query(params): Query<SeriesParams>,
) -> Result<Json<Series>, Problem> {
    let as_of = Moment::now();
    let to = time("to", params.to.as_deref())?
        .unwrap_or(as_of)
        .min(as_of);
    let from = time("from", params.from.as_deref())?;
    let from = from.unwrap_or(Moment(to.0.saturating_sub(DEFAULT_MS)));
    if from > to {
        return Err(Problem::bad("`from` is after `to`, or in the future"));
    }
    let from = from.max(Moment(as_of.0.saturating_sub(KEPT_MS)));
    let points = params.points.unwrap_or(300);
    if points == 0 || points > POINTS_MAX {
        return Err(Problem::bad(format!("`points` is from 1 to {POINTS_MAX}")));
    }
    let wanted = wanted(params.names.as_deref())?;
    let part = recorder.series(&wanted, (from.seconds(), to.seconds()), points);
    let series = wanted.iter().zip(&part.points);
    Ok(Json(Series {
        from: Moment(part.from * 1_000),
        step_s: part.step,
        series: series
            .map(|(at, points)| (SERIES[*at], Points::of(points)))
            .collect(),
        names: &SERIES,
        as_of,
    }))
}

fn time(name: &str, text: Option<&str>) -> Result<Option<Moment>, Problem> {
    let parse = |text: &str| {
        let detail = || format!("`{name}` is no time: write it as 2026-11-30T09:30:00Z");
        Moment::parse(text).ok_or_else(|| Problem::bad(detail()))
    };
    text.map(parse).transpose()
}

fn wanted(names: Option<&str>) -> Result<Vec<usize>, Problem> {
    let Some(names) = names.filter(|names| !names.is_empty()) else {
        return Ok((0..SERIES.len()).collect());
    };
    let find = |name: &str| {
        let at = SERIES.iter().position(|known| *known == name);
        at.ok_or_else(|| {
            Problem::bad(format!(
                "there is no series {name:?}; `names` of an answer has all"
            ))
        })
    };
    let mut found: Vec<usize> = names
        .split(',')
        .take(SERIES_MAX)
        .map(find)
        .collect::<Result<_, _>>()?;
    found.sort_unstable();
    found.dedup();
    Ok(found)
}

impl Points {
    fn of(points: &[Option<Point>]) -> Self {
        let each = |value: fn(&Point) -> f32| {
            let values = points.iter().map(|point| point.as_ref().map(value));
            values.collect()
        };
        Self {
            avg: each(|point| point.avg),
            min: each(|point| point.min),
            max: each(|point| point.max),
        }
    }
}

const DEFAULT_MS: u64 = 5 * 60_000;
const KEPT_MS: u64 = 7 * 24 * 3_600_000;
