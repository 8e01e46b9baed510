//! The API below `/api/v1`, with its OpenAPI document.
//!
//! One file for each resource. A route is registered once, for the router and the document, in the
//! function of the role that it needs.

#![expect(unused_qualifications, reason = "macros of utoipa expand to them")]

mod delivery;
mod demonstration;
mod incidents;
mod input;
mod lanes;
mod live;
mod node;
mod series;

use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use axum::{Extension, Json, Router};
use utoipa::OpenApi;
use utoipa::openapi::OpenApi as Document;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::App;
use crate::identity::{self, Caller, Role};

/// The API for clients of the admin server.
#[derive(OpenApi)]
#[openapi(info(title = "Unbroken admin API"))]
struct Api;

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
        .merge(for_role(Role::Viewer, for_viewers()))
        .merge(for_role(Role::Operator, for_operators()))
        .merge(for_role(Role::Admin, for_admins()))
        .layer(from_fn(identity::identify));
    let (routes, document) = OpenApiRouter::with_openapi(Api::openapi())
        .nest("/api/v1", routes)
        .split_for_parts();
    let published = document.clone();
    let open = axum::routing::get(async move || Json(published));
    (routes.route("/api/v1/openapi.json", open), document)
}

fn for_viewers() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(node::show))
        .merge(delivery_for_viewers())
}

fn for_operators() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(incidents::repair))
        .routes(routes!(incidents::note))
        .routes(routes!(demonstration::start, demonstration::stop))
        .routes(routes!(demonstration::inject))
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
}
