//! What handlers of requests have: one field for each part of the server.

use axum::extract::FromRef;

use crate::broker::Broker;
use crate::traces::Traces;

/// Shared by all requests; cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct App {
    pub(crate) broker: Broker,
    pub(crate) traces: Traces,
}

impl FromRef<App> for Broker {
    fn from_ref(app: &App) -> Self {
        app.broker.clone()
    }
}
