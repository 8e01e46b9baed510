//! What handlers of requests have: one field for each part of the server.

use axum::extract::FromRef;

use crate::broker::Broker;
use crate::demonstration::Demonstration;
use crate::denials::Denials;
use crate::identity::Identity;
use crate::recorder::Recorder;
use crate::traces::Traces;

/// Shared by all requests; cheap to clone.
#[derive(Clone, Debug, FromRef)]
pub(crate) struct App {
    pub(crate) broker: Broker,
    pub(crate) denials: Denials,
    pub(crate) identity: Identity,
    pub(crate) recorder: Recorder,
    pub(crate) demonstration: Demonstration,
    pub(crate) traces: Traces,
}
