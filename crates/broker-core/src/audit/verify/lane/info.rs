//! What an operator is shown of a lane.

use std::sync::Arc;
use std::time::{Duration, Instant};

use unbroken_merkle_log::{Epoch, LaneId};

use super::Lane;
use crate::audit::lane::IngressLane;

/// An epoch of a lane.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct LaneInfo {
    /// The lane.
    pub lane: u64,
    /// Its epoch.
    pub epoch: u32,
    /// Who publishes it.
    pub client_id: Arc<str>,
    /// As whom it was let in, if that is known.
    pub user: Option<Arc<str>>,
    /// Its publisher numbers it. Otherwise the broker does, for its client.
    pub is_stamped: bool,
    /// The number of the next message.
    pub next: u64,
    /// Numbers below this are not judged.
    pub scope_start: u64,
    /// What its publisher last said of it.
    pub checkpoint: Option<LaneCheckpoint>,
    /// For how long messages have waited that no checkpoint covers: since the first of them came,
    /// or since the last checkpoint, which left them out.
    pub open_for: Option<Duration>,
    /// How long the messages that the last checkpoint covered had waited for it, at most.
    pub proof_took: Option<Duration>,
    /// Windows that are proven, faulty and unproven.
    pub windows: [u64; 3],
    /// Messages that were lost, and not sent again since.
    pub lost: u64,
}

/// A checkpoint that has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct LaneCheckpoint {
    /// The messages that it covers.
    pub size: u64,
    /// How long ago it came.
    pub age: Duration,
}

impl Lane {
    pub(in super::super) fn info(&self, (lane, epoch): (LaneId, Epoch), now: Instant) -> LaneInfo {
        let since = |at: Instant| now.saturating_duration_since(at);
        let proof = &self.proof;
        LaneInfo {
            lane: lane.value(),
            epoch: epoch.0,
            client_id: Arc::clone(&self.owner.client_id),
            user: self.owner.user.name().cloned(),
            is_stamped: true,
            next: self.seen,
            scope_start: self.ledger.scope_start(),
            checkpoint: proof.checkpoint.map(|(size, at)| LaneCheckpoint {
                size,
                age: since(at),
            }),
            open_for: proof.open_since.map(since),
            proof_took: proof.took,
            windows: proof.windows,
            lost: proof.lost,
        }
    }
}

impl IngressLane {
    /// The lane that the broker numbers for this client.
    pub(crate) fn info(&self, client_id: &Arc<str>, user: Option<&Arc<str>>) -> LaneInfo {
        LaneInfo {
            lane: self.id.value(),
            epoch: self.epoch.0,
            client_id: Arc::clone(client_id),
            user: user.cloned(),
            is_stamped: false,
            next: self.size(),
            scope_start: 0,
            checkpoint: None,
            open_for: None,
            proof_took: None,
            windows: [0; 3],
            lost: 0,
        }
    }
}
