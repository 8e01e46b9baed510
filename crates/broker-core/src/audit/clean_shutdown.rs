//! Lanes at rest: what goes on after a restart, because it is exact.
//!
//! A broker that stops in good order knows how far each lane is. What the sessions that stay have
//! published, and what was found in the lanes of publishers that stamp themselves, is put on disk
//! then, as the last thing; the next run goes on with it, and makes it void with the first thing
//! that it asks for.
//!
//! A broker that was killed left nothing at rest, and what it numbered last may be nowhere on disk:
//! given to another message the number would contradict the first one at its receiver. So its
//! lanes begin a later epoch; what becomes of the one before is in [`super::crash_recovery`].
//! Each run has a floor under its epochs, on disk before the first client is let in, so that no two
//! runs begin the same.
//!
//! Invariants:
//! - Between the last number that was given and the lane at rest no number is given.
//! - What does not read begins anew, as after a crash.
//!
//! Deliberately absent: lanes of sessions that end with their connection. They have ended.

use std::sync::Arc;

use unbroken_merkle_log::ledger::LaneLedger;
use unbroken_merkle_log::{Algorithm, CompactRange, Epoch, LaneId, Xxh3};

use super::beacon::Beacon;
use super::lane::{IngressLane, lane_of};
use super::ledger::Ledger;
use super::owners::Sender;
use super::watch::Wants;
use super::{Audit, verify};
use crate::durability::{LaneState, LaneTold};
use crate::ids::SessionId;
use crate::telemetry::Telemetry;

impl Audit {
    /// What this run begins anew has epochs from this floor on, which is above that of the run
    /// before by [`EPOCHS_AHEAD_MAX`] at least.
    pub(crate) fn begin_epochs_from(&mut self, floor: u32) {
        self.lanes.begin_from(floor);
    }

    /// Goes on with the ingress lane of a session that was restored. Leaves a state of another kind
    /// alone.
    pub(crate) fn restore_ingress(
        &mut self,
        telemetry: &mut Telemetry,
        session: SessionId,
        ledger: &mut Ledger,
        state: &LaneState,
    ) {
        if let LaneState::Ingress {
            client_id,
            epoch,
            leaves,
            told,
        } = state
            && let Some(lane) = IngressLane::restore(client_id, *epoch, leaves, told.clone())
        {
            let has_checkpoints = lane.beacon.is_some();
            ledger.lane = Some(Box::new(lane));
            if has_checkpoints {
                self.follow(session);
                self.claim_ingress(telemetry, client_id);
            }
        }
    }

    /// Goes on with a lane that a publisher stamps. `is_cut`: the broker was killed. Leaves a state
    /// of another kind alone.
    pub(crate) fn restore_own(
        &mut self,
        telemetry: &mut Telemetry,
        state: &LaneState,
        is_cut: bool,
    ) {
        let LaneState::Own {
            client_id,
            user,
            lane,
            epoch,
            connected,
            refused,
            ledger,
        } = state
        else {
            return;
        };
        if let Some(lane) = LaneId::new(*lane)
            && let Ok(ledger) = LaneLedger::restore(ledger, &Xxh3)
        {
            let owner = Sender {
                client_id: Arc::clone(client_id),
                user: user.clone(),
            };
            let mut restored = verify::Lane::new(owner, ledger, *connected);
            if is_cut {
                restored = restored.cut_off(refused);
            }
            self.go_on_with(telemetry, (lane, Epoch(*epoch)), restored);
        }
    }
}

impl IngressLane {
    /// As it is put on disk.
    pub(crate) fn state(&self, client_id: Arc<str>) -> LaneState {
        let mut leaves = Vec::new();
        self.leaves.encode(&mut leaves);
        LaneState::Ingress {
            client_id,
            epoch: self.epoch.0,
            leaves,
            told: self.beacon.as_deref().map(Beacon::told),
        }
    }

    pub(super) fn restore(
        client_id: &str,
        epoch: u32,
        leaves: &[u8],
        told: Option<LaneTold>,
    ) -> Option<Self> {
        let leaves = CompactRange::parse(Algorithm::Xxh3, leaves).ok()?;
        if leaves.begin() != 0 {
            return None;
        }
        Some(Self {
            id: lane_of(client_id),
            epoch: Epoch(epoch),
            leaves,
            beacon: told.map(|told| Box::new(Beacon::restore(&told))),
            looked_at: 0,
            wants: Wants::default(),
            tracking: None,
            is_on_disk: false,
        })
    }
}

/// A run that begins epochs faster than one in a second is ahead of the time by fewer than this:
/// only a client that comes and goes again and again within a second, and publishes each time,
/// makes it.
pub const EPOCHS_AHEAD_MAX: u32 = 60;
