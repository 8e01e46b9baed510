//! The newest events of the log.

use std::collections::BTreeMap;

use axum::Json;
use serde::{Deserialize, Serialize};
use unbroken_broker::{LogEvent, recent_logs};
use utoipa::{IntoParams, ToSchema};

use super::extract::{Query, text};
use super::listing::{Page, part};
use crate::problem::Problem;
use crate::time;

/// Which events.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Search {
    /// This severe or more so
    #[param(inline)]
    level: Option<Level>,
    /// Events with a text that contains this: message, target or value of a field
    search: Option<String>,
    /// Items of a page, 1 to 1,000
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u16>,
    /// The `next` of the page before
    cursor: Option<String>,
}

#[derive(Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Level {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

/// An event of the log
#[derive(Serialize, ToSchema)]
pub(crate) struct Log {
    /// Since the start of the process
    number: u64,
    #[schema(format = DateTime)]
    at: String,
    /// `error`, `warn`, `info`, `debug` or `trace`
    level: String,
    /// The module that logged it
    target: &'static str,
    /// What happened
    message: String,
    /// To which thing, and why
    fields: BTreeMap<&'static str, String>,
}

impl From<Level> for tracing::Level {
    fn from(level: Level) -> Self {
        match level {
            Level::Error => Self::ERROR,
            Level::Warn => Self::WARN,
            Level::Info => Self::INFO,
            Level::Debug => Self::DEBUG,
            Level::Trace => Self::TRACE,
        }
    }
}

impl From<&LogEvent> for Log {
    fn from(event: &LogEvent) -> Self {
        Self {
            number: event.number,
            at: time::of_system(event.at),
            level: event.level.as_str().to_lowercase(),
            target: event.target,
            message: event.message.clone(),
            fields: event.fields.iter().cloned().collect(),
        }
    }
}

/// The newest events of the log, the newest first
///
/// The broker keeps the last 1,000, of the levels that its log has.
#[utoipa::path(
    get, path = "/logs", tag = "logs", params(Search),
    responses((status = 200, body = Page<Log>))
)]
pub(crate) async fn list(Query(search): Query<Search>) -> Result<Json<Page<Log>>, Problem> {
    let wanted = text("search", search.search)?;
    let level = search.level.map(tracing::Level::from);
    let found = recent_logs().newest(usize::MAX, |event| {
        level.is_none_or(|level| event.level <= level)
            && wanted.as_deref().is_none_or(|part| has(event, part))
    });
    let page = part(
        found,
        (search.limit, search.cursor.as_deref()),
        |event| event.number,
        |event, last| event.number < *last,
    )?;
    Ok(Json(page.map(|event| Log::from(&*event))))
}

fn has(event: &LogEvent, part: &str) -> bool {
    let mut values = event.fields.iter().map(|(_, value)| value);
    event.message.contains(part)
        || event.target.contains(part)
        || values.any(|value| value.contains(part))
}
