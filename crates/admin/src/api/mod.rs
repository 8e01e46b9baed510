//! The API below `/api/v1`, with its OpenAPI document.
//!
//! One file for each resource. A route is registered once, for the router and the document, in the
//! function of the role that it needs.

mod node;
mod traces;

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
        .routes(routes!(traces::list))
        .routes(routes!(traces::events))
}

fn for_operators() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(traces::begin))
        .routes(routes!(traces::end))
}

fn for_admins() -> OpenApiRouter<App> {
    OpenApiRouter::new()
}
