//! The API below `/api/v1`, with its OpenAPI document.
//!
//! One file for each resource. A route is registered once, for the router and the document, in the
//! function of the role that it needs.

#![expect(
    clippy::struct_field_names,
    reason = "names of fields are those of parameters and JSON"
)]
#![allow(
    unused_qualifications,
    reason = "what the macro that describes a handler makes of its parameters"
)]

mod access;
mod accounts;
mod bans;
mod clients;
mod config;
mod delivery;
mod demonstration;
mod document;
mod extract;
mod history;
mod incidents;
mod lanes;
mod listing;
mod live;
mod logs;
mod node;
mod publish;
mod roles;
mod series;
mod sessions;
mod sign_in;
mod subscriptions;
mod tokens;
mod topics;
mod traces;
mod users;

use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use axum::{Extension, Json, Router};
use utoipa::openapi::OpenApi as Document;
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityRequirement, SecurityScheme};
use utoipa::{Modify, OpenApi};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::App;
use crate::identity::{self, Caller, Role};

/// The API for clients of the admin server.
#[derive(OpenApi)]
#[openapi(info(title = "Unbroken admin API"), modifiers(&Credentials))]
struct Api;

/// How callers show who they are.
struct Credentials;

impl Modify for Credentials {
    fn modify(&self, document: &mut Document) {
        let bearer = Http::new(HttpAuthScheme::Bearer);
        let schemes = document.components.get_or_insert_default();
        schemes.add_security_scheme("token", SecurityScheme::Http(bearer));
        document.security = Some(vec![SecurityRequirement::new("token", [""; 0])]);
    }
}

/// All routes, and the document that describes them.
pub(crate) fn router() -> (Router<App>, Document) {
    let for_role = |role, routes: OpenApiRouter<App>| {
        routes.layer(from_fn(
            move |caller: Extension<Caller>, request: Request, next: Next| {
                identity::require(role, caller, request, next)
            },
        ))
    };
    let routes = OpenApiRouter::new()
        .merge(for_everyone())
        .merge(for_role(Role::Viewer, for_viewers()))
        .merge(for_role(Role::Operator, for_operators()))
        .merge(for_role(Role::Admin, for_admins()));
    let (routes, document) = OpenApiRouter::with_openapi(Api::openapi())
        .nest("/api/v1", routes)
        .split_for_parts();
    let document = document::complete(document);
    let published = document.clone();
    let open = axum::routing::get(async move || Json(published));
    (routes.route("/api/v1/openapi.json", open), document)
}

/// Open without credentials: `identity::guard` names these paths too.
fn for_everyone() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(sign_in::sign_in))
        .routes(routes!(sign_in::use_link))
}

fn for_viewers() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(node::show))
        .routes(routes!(sign_in::me))
        .routes(routes!(sign_in::own_password))
        .routes(routes!(sign_in::sign_out))
        .routes(routes!(traces::list))
        .merge(delivery_for_viewers())
        .routes(routes!(node::listeners))
        .routes(routes!(node::certificates))
        .routes(routes!(clients::list))
        .routes(routes!(clients::show))
        .routes(routes!(sessions::list))
        .routes(routes!(sessions::show))
        .routes(routes!(subscriptions::list))
        .routes(routes!(subscriptions::groups))
        .routes(routes!(topics::list))
        .routes(routes!(topics::value))
        .routes(routes!(topics::retained))
        .routes(routes!(bans::list))
        .routes(routes!(users::list))
        .routes(routes!(roles::list))
        .routes(routes!(access::explain))
        .routes(routes!(access::denied))
        .routes(routes!(config::list))
        .routes(routes!(logs::list))
}

fn for_operators() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(traces::begin))
        .routes(routes!(traces::end))
        .routes(routes!(traces::events))
        .routes(routes!(incidents::repair))
        .routes(routes!(incidents::note))
        .routes(routes!(demonstration::start, demonstration::stop))
        .routes(routes!(demonstration::inject))
        .routes(routes!(clients::disconnect))
        .routes(routes!(sessions::remove))
        .routes(routes!(topics::remove))
        .routes(routes!(publish::publish))
}

fn delivery_for_viewers() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(delivery::show))
        .routes(routes!(delivery::checkpoints))
        .routes(routes!(lanes::list))
        .routes(routes!(lanes::show))
        .routes(routes!(incidents::list))
        .routes(routes!(incidents::show))
        .routes(routes!(incidents::proof))
        .routes(routes!(series::show))
        .routes(routes!(live::stream))
        .routes(routes!(demonstration::show))
}

fn for_admins() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(accounts::list, accounts::add))
        .routes(routes!(accounts::change, accounts::remove))
        .routes(routes!(tokens::list, tokens::add))
        .routes(routes!(tokens::remove))
        .routes(routes!(history::list))
        .routes(routes!(sign_in::new_link))
        .routes(routes!(bans::add, bans::remove))
        .routes(routes!(users::put, users::remove))
        .routes(routes!(roles::put, roles::patch, roles::remove))
        .routes(routes!(config::reload))
}
