//! What handlers of requests have: one field for each part of the server.

use axum::extract::FromRef;

use crate::broker::Broker;
use crate::identity::Identity;

/// Shared by all requests; cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct App {
    pub(crate) broker: Broker,
    pub(crate) identity: Identity,
}

impl FromRef<App> for Identity {
    fn from_ref(app: &App) -> Self {
        app.identity.clone()
    }
}

impl FromRef<App> for Broker {
    fn from_ref(app: &App) -> Self {
        app.broker.clone()
    }
}
