//! The configuration in force, with the origin of each value.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use unbroken_broker::config::Origin;
use unbroken_broker::handle::ConfigValue;
use utoipa::{IntoParams, ToSchema};

use super::extract::{Query, text};
use super::listing::{Page, behind_named, part};
use crate::broker::Broker;
use crate::limits::CHANGE_TIMEOUT;
use crate::problem::Problem;

/// Which values.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Search {
    /// Names that contain this
    search: Option<String>,
    /// Only values that are not the default
    #[serde(default)]
    changed: bool,
    /// Items of a page, 1 to 1,000
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u16>,
    /// The `next` of the page before
    cursor: Option<String>,
}

/// A value of the configuration in force
#[derive(Serialize, ToSchema)]
pub(crate) struct Setting {
    /// `section.key`, or `listeners.0.key`
    name: String,
    /// As a configuration file has it
    value: String,
    /// `default`, `file`, `environment` or `flag`
    source: &'static str,
    /// The line of the file, the variable or the flag, as text
    origin: String,
    /// What it is after a restart, if that is another value
    after_restart: Option<String>,
}

/// What reading the configuration again has changed
#[derive(Serialize, ToSchema)]
pub(crate) struct Reloaded {
    /// One text for each value, with `(applied)` or `(needs a restart)`
    changes: Vec<String>,
}

impl From<ConfigValue> for Setting {
    fn from(value: ConfigValue) -> Self {
        let source = match &value.value.origin {
            Origin::Default => "default",
            Origin::File { .. } => "file",
            Origin::Environment { .. } | Origin::EnvironmentFile { .. } => "environment",
            Origin::Flag { .. } => "flag",
        };
        Self {
            name: value.value.name,
            value: value.value.value,
            source,
            origin: value.value.origin.to_string(),
            after_restart: value.after_restart,
        }
    }
}

/// Every value of the configuration in force, and where it comes from
///
/// The configuration has no secrets: passwords and keys are in files that it names.
#[utoipa::path(
    get, path = "/config", tag = "config", params(Search),
    responses((status = 200, body = Page<Setting>))
)]
pub(crate) async fn list(
    State(broker): State<Broker>,
    Query(search): Query<Search>,
) -> Result<Json<Page<Setting>>, Problem> {
    let wanted = text("search", search.search)?;
    let values = broker.answer(|handle| Ok(handle.config_values())).await?;
    let settings = values.into_iter().map(Setting::from).filter(|setting| {
        wanted
            .as_deref()
            .is_none_or(|part| setting.name.contains(part))
            && !(search.changed && setting.source == "default")
    });
    let page = part(
        settings,
        (search.limit, search.cursor.as_deref()),
        |setting| setting.name.clone(),
        behind_named(|setting: &Setting, last| setting.name == *last),
    )?;
    Ok(Json(page))
}

/// Reads the configuration again, as SIGHUP does
///
/// If all of it is valid, the parts that can change at run time are put in force; otherwise nothing
/// is changed, and the answer says why.
#[utoipa::path(
    post, path = "/config/reload", tag = "config",
    responses((status = 200, body = Reloaded))
)]
pub(crate) async fn reload(State(broker): State<Broker>) -> Result<Json<Reloaded>, Problem> {
    let reloaded = broker.change(|handle| Ok(handle.read_config_again(CHANGE_TIMEOUT)));
    match reloaded.await? {
        Ok(changes) => Ok(Json(Reloaded { changes })),
        Err(why) => Err(Problem::new(StatusCode::CONFLICT, why)),
    }
}
