//! What a crash leaves of a lane, and of an epoch that has ended.
//!
//! ```text
//! a message is stored, its stamp forwarded ---> LaneSnapshot: the ingress lane up to this message
//! a second has passed                      ---> LaneSnapshot: new ledgers, and those with stored
//!                                               messages
//! after a crash    ingress lane: the epoch is cut there; what comes is of a later one
//!                  ledger: goes on from there; what may have come since is unproven, not lost
//!                  its end is reported: to offline sessions once, then for a minute to the others
//! an epoch has ended, and is reported: LaneForgotten
//! ```
//!
//! Invariants:
//! - A message that is not stored touches no disk. One exception: the ledger of an epoch that a
//!   persistent session opened is written once, so that the lane stays that client's.
//! - A checkpoint after a crash says that the epoch was cut. It covers only messages that were
//!   numbered so, and contradicts none that a receiver has. Messages behind it may have left before
//!   they were stored: their receivers know that they came, and that is not proven.
//! - The end of an epoch stays on disk until it is reported and offline sessions have it there.
//! - A number is called lost only if it cannot have come before the crash: it is above what the
//!   publisher's first checkpoint after it covers.
//!
//! Deliberately absent: to go on with the epoch after a crash. A copy leaves before its message is
//! stored, and its number would be given again (ADR 46).

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use unbroken_merkle_log::EpochEnd;

use super::Audit;
use super::lane::{self, IngressLane};
use super::ledger::Ledger;
use crate::durability::{LaneState, Record};
use crate::limits::OVER_EPOCHS_MAX;
use crate::telemetry::Telemetry;

/// Epochs of ingress lanes that are over and still reported, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct OverEpochs(VecDeque<Over>);

#[derive(Debug)]
struct Over {
    client_id: Arc<str>,
    lane: IngressLane,
    end: EpochEnd,
    /// Since it is over.
    ticks: u32,
}

impl OverEpochs {
    /// Whether there is any to be reported again.
    pub(super) fn goes_on(&self) -> bool {
        !self.0.is_empty()
    }
}

impl Ledger {
    /// A message of this session was stored. If its stamps are forwarded, so is how far its lane
    /// is.
    pub(crate) fn lane_so_far(&mut self, client_id: &Arc<str>) -> Option<Record> {
        let lane = self.lane.as_deref_mut()?;
        lane.beacon.as_ref()?;
        lane.is_on_disk = true;
        Some(Record::LaneSnapshot(lane.state(Arc::clone(client_id))))
    }
}

impl Audit {
    /// A session has ended, and its lane with it.
    pub(crate) fn end_lane(
        &mut self,
        now: Instant,
        client_id: &Arc<str>,
        lane: Option<Box<IngressLane>>,
    ) {
        if let Some(mut lane) = lane {
            lane.send_last_checkpoint(now, &mut self.watch);
            let second = lane::second(self.settings.started_us, self.start, now);
            self.lanes.close(&lane, second);
            self.end_epoch(client_id, &lane);
            self.follow_to_the_end(client_id, lane);
        }
        self.release_ingress(client_id);
        self.release_producers(client_id);
    }

    /// A session has ended, and its lane is over, which was reported. Until offline sessions have
    /// that, the disk knows of it.
    fn end_epoch(&mut self, client_id: &Arc<str>, lane: &IngressLane) {
        if !lane.is_on_disk {
            return;
        }
        let state = lane.state(Arc::clone(client_id));
        if let Some(over) = restored(&state) {
            self.records.push_back(Record::LaneSnapshot(state));
            self.add_over(client_id, over, EpochEnd::Closed);
        }
    }

    /// Takes over what an earlier run has stored of an ingress lane while it ran: what was not at
    /// rest was cut off by a crash. `ledger`: of its session, if that was restored. Leaves a state
    /// of another kind alone.
    pub(crate) fn restore_ingress_so_far(
        &mut self,
        telemetry: &mut Telemetry,
        ledger: Option<&mut Ledger>,
        state: &LaneState,
    ) {
        let LaneState::Ingress {
            client_id, epoch, ..
        } = state
        else {
            return;
        };
        let has_session = ledger.is_some();
        let lane = ledger.and_then(|ledger| ledger.lane.as_deref_mut());
        if let Some(lane) = lane.filter(|lane| lane.epoch.0 == *epoch) {
            lane.is_on_disk = true;
        } else if let Some(lane) = restored(state)
            && self.settings.enabled
        {
            if has_session {
                self.claim_ingress(telemetry, client_id);
            }
            self.add_over(client_id, lane, EpochEnd::Cut);
        } else {
            self.forget_epoch(Arc::clone(client_id), *epoch);
        }
    }

    fn add_over(&mut self, client_id: &Arc<str>, lane: IngressLane, end: EpochEnd) {
        if self.over.0.len() >= OVER_EPOCHS_MAX
            && let Some(oldest) = self.over.0.pop_front()
        {
            self.records.extend(oldest.forget());
        }
        self.over.0.push_back(Over {
            client_id: Arc::clone(client_id),
            lane,
            end,
            ticks: 0,
        });
    }

    /// A second has passed.
    pub(crate) fn tick_over(&mut self, now: Instant) {
        let (records, watch) = (&mut self.records, &mut self.watch);
        self.over.0.retain_mut(|over| {
            over.ticks += 1;
            if over.ticks == KEPT_TICKS {
                records.extend(over.forget());
            }
            let is_cut = over.end == EpochEnd::Cut;
            if is_cut {
                over.lane.tick_beacon(now, over.end, watch);
            }
            over.ticks < if is_cut { REPORTED_TICKS } else { KEPT_TICKS }
        });
    }

    fn forget_epoch(&mut self, client_id: Arc<str>, epoch: u32) {
        let record = Record::LaneForgotten { client_id, epoch };
        self.records.push_back(record);
    }
}

impl Over {
    fn forget(&self) -> Option<Record> {
        (self.ticks <= KEPT_TICKS).then(|| Record::LaneForgotten {
            client_id: Arc::clone(&self.client_id),
            epoch: self.lane.epoch.0,
        })
    }
}

/// An ingress lane that has checkpoints.
fn restored(state: &LaneState) -> Option<IngressLane> {
    let LaneState::Ingress {
        client_id,
        epoch,
        leaves,
        told: Some(told),
    } = state
    else {
        return None;
    };
    IngressLane::restore(client_id, *epoch, leaves, Some(told.clone()))
}

/// Seconds for which the end of an epoch that was cut is reported.
const REPORTED_TICKS: u32 = 60;

/// Seconds after which offline sessions have the end of an epoch on disk: it is reported after the
/// first of them, and the progress of sessions is on disk half a second later.
const KEPT_TICKS: u32 = 5;
