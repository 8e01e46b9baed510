//! What handlers of requests have: one field for each part of the server.

use axum::extract::FromRef;

use crate::broker::Broker;
use crate::demonstration::Demonstration;
use crate::recorder::Recorder;

/// Shared by all requests; cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct App {
    pub(crate) broker: Broker,
    pub(crate) recorder: Recorder,
    pub(crate) demonstration: Demonstration,
}

impl FromRef<App> for Broker {
    fn from_ref(app: &App) -> Self {
        app.broker.clone()
    }
}

impl FromRef<App> for Recorder {
    fn from_ref(app: &App) -> Self {
        app.recorder.clone()
    }
}

impl FromRef<App> for Demonstration {
    fn from_ref(app: &App) -> Self {
        app.demonstration.clone()
    }
}
