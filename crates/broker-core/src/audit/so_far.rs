//! What a crash leaves of a lane, and of an epoch that has ended.
//!
//! ```text
//! a message is stored, its stamp forwarded ---> LaneSoFar: the ingress lane up to this message
//! a second has passed                      ---> LaneSoFar: new ledgers, and those with stored
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

use unbroken_merkle_log::ledger::LaneLedger;
use unbroken_merkle_log::{Epoch, EpochEnd, LaneId, Xxh3};

use super::lane::IngressLane;
use super::owners::{Sender, User};
use super::verify;
use crate::clients::Clients;
use crate::durability::{LaneState, Record};
use crate::ids::SessionId;
use crate::item::Item;
use crate::limits::OVER_EPOCHS_MAX;
use crate::shard::Shard;

/// Epochs of ingress lanes that are over and still told, the oldest first.
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
    /// Whether there is any to be told again.
    pub(super) fn goes_on(&self) -> bool {
        !self.0.is_empty()
    }
}

impl Shard {
    /// A message of this session was routed. If it is stored, so is how far its lanes are: that of
    /// the session, if its stamps are forwarded, and the one that its publisher stamps.
    #[inline]
    pub(crate) fn note_so_far(
        &mut self,
        session_id: SessionId,
        item: &Item<'_>,
        own: Option<(LaneId, Epoch)>,
    ) {
        if item.position().is_none() {
            return;
        }
        if let Some(own) = own {
            self.publishers.note_stored(own);
        }
        self.clients.ask_for_so_far(session_id);
    }

    /// A session has ended, and its lane with it.
    pub(crate) fn end_lane(
        &mut self,
        now: Instant,
        client_id: &Arc<str>,
        lane: Option<Box<IngressLane>>,
    ) {
        if let Some(mut lane) = lane {
            lane.tell_last_checkpoint(&mut self.clients.home);
            let second = self.second(now);
            self.lanes.close(&lane, second);
            self.end_epoch(now, client_id, &lane);
            self.clients.take_leave(client_id, lane);
        }
        self.release_ingress(client_id);
    }

    /// A session has ended, and its lane is over, which was told. Until those who are away have
    /// that, the disk knows of it.
    fn end_epoch(&mut self, now: Instant, client_id: &Arc<str>, lane: &IngressLane) {
        if !lane.is_on_disk {
            return;
        }
        let state = lane.state(Arc::clone(client_id));
        if let Some(over) = restored(&state) {
            self.clients.ask(Record::LaneSoFar(state));
            self.add_over(now, client_id, over, EpochEnd::Closed);
        }
    }

    /// Takes over what an earlier run has said of a lane while it ran, after lanes at rest: what
    /// was not at rest was cut off by a crash.
    pub fn restore_lane_so_far(&mut self, now: Instant, state: LaneState) {
        let session = self.clients.by_client_id.get(state.client_id()).copied();
        match &state {
            LaneState::Ingress {
                client_id, epoch, ..
            } => {
                let found = session.and_then(|id| self.clients.session_mut(id));
                let lane = found.and_then(|session| session.lane.as_deref_mut());
                if let Some(lane) = lane.filter(|lane| lane.epoch.0 == *epoch) {
                    lane.is_on_disk = true;
                } else if let Some(lane) = restored(&state)
                    && self.options.settings.audit.enabled
                {
                    if session.is_some() {
                        self.claim_ingress(client_id);
                    }
                    self.add_over(now, client_id, lane, EpochEnd::Cut);
                } else {
                    self.clients.ask_to_forget_epoch(client_id, *epoch);
                }
            }
            LaneState::Own {
                client_id,
                lane,
                epoch,
                connected,
                refused,
                ledger,
            } => {
                if session.is_some()
                    && let Some(lane) = LaneId::new(*lane)
                    && let Ok(ledger) = LaneLedger::restore(ledger, &Xxh3)
                {
                    let owner = Sender {
                        client_id: Arc::clone(client_id),
                        user: User::Unknown,
                    };
                    let cut = verify::Lane::new(owner, ledger, *connected);
                    let cut = cut.cut_off(refused);
                    self.go_on_with((lane, Epoch(*epoch)), cut);
                    self.start_ticking(now);
                }
            }
        }
    }

    fn add_over(&mut self, now: Instant, client_id: &Arc<str>, lane: IngressLane, end: EpochEnd) {
        if self.over.0.len() >= OVER_EPOCHS_MAX
            && let Some(oldest) = self.over.0.pop_front()
        {
            oldest.forget(&mut self.clients);
        }
        self.over.0.push_back(Over {
            client_id: Arc::clone(client_id),
            lane,
            end,
            ticks: 0,
        });
        self.start_ticking_audit(now);
    }

    /// A second has passed.
    pub(super) fn tell_over(&mut self) {
        let clients = &mut self.clients;
        self.over.0.retain_mut(|over| {
            over.ticks += 1;
            if over.ticks == KEPT_TICKS {
                over.forget(clients);
            }
            let is_cut = over.end == EpochEnd::Cut;
            if is_cut {
                over.lane.tick_beacon(over.end, &mut clients.home);
            }
            over.ticks < if is_cut { TOLD_TICKS } else { KEPT_TICKS }
        });
    }
}

impl Over {
    fn forget(&self, clients: &mut Clients) {
        if self.ticks <= KEPT_TICKS {
            clients.ask_to_forget_epoch(&self.client_id, self.lane.epoch.0);
        }
    }
}

impl Clients {
    fn ask_for_so_far(&mut self, session_id: SessionId) {
        if let Some(session) = self.sessions.get_mut(session_id.index())
            && let Some(lane) = session.lane.as_deref_mut()
            && lane.beacon.is_some()
        {
            lane.is_on_disk = true;
            let state = lane.state(Arc::clone(&session.client_id));
            self.ask(Record::LaneSoFar(state));
        }
    }

    fn ask_to_forget_epoch(&mut self, client_id: &Arc<str>, epoch: u32) {
        let client_id = Arc::clone(client_id);
        self.ask(Record::LaneForgotten { client_id, epoch });
    }
}

/// An ingress lane of which there is something to tell.
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

/// Seconds for which the end of an epoch that was cut is told.
const TOLD_TICKS: u32 = 60;

/// Seconds after which those who are away have the end of an epoch on disk: it is told after the
/// first of them, and how far sessions are is on disk half a second later.
const KEPT_TICKS: u32 = 5;
