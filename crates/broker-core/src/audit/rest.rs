//! Lanes at rest: what goes on after a restart, because it is exact.
//!
//! A broker that stops in good order knows how far each lane is. What the sessions that stay have
//! published, and what was found in the lanes of publishers that stamp themselves, is put on disk
//! then, as the last thing; the next run goes on with it, and makes it void with the first thing
//! that it asks for.
//!
//! A broker that was killed left nothing at rest, and what it numbered last may be nowhere on disk:
//! given to another message the number would be a contradiction to whoever has the first. So its
//! lanes begin a later epoch; what becomes of the one before says [`super::so_far`]. Each run has a
//! floor under its epochs, on disk before anybody is let in, so that no two runs begin the same.
//!
//! Invariants:
//! - Between the last number that was given and the lane at rest no number is given.
//! - What does not read begins anew, as after a crash.
//!
//! Deliberately absent: lanes of sessions that end with their connection. They have ended.

use std::sync::Arc;
use std::time::Instant;

use unbroken_merkle_log::ledger::LaneLedger;
use unbroken_merkle_log::{Algorithm, CompactRange, Epoch, LaneId, Xxh3};

use super::beacon::Beacon;
use super::lane::{IngressLane, lane_of};
use super::owners::{Sender, User};
use super::verify;
use super::watch::Wants;
use crate::clients::Clients;
use crate::durability::{LaneState, LaneTold, Record};
use crate::ids::SessionId;
use crate::session::Session;
use crate::shard::Shard;
use crate::timers::Timer;

impl Shard {
    /// The broker stops, and numbers nothing any more.
    pub(crate) fn lay_lanes_to_rest(&mut self) {
        debug_assert!(self.clients.stopping, "a lane that goes on is not at rest");
        // Those that are not at rest, because they are not exact, go on as after a crash.
        self.tell_ledgers();
        let Clients {
            sessions,
            by_client_id,
            promises,
            outputs,
            ..
        } = &mut self.clients;
        let staying = sessions.iter().filter(|(_, session)| session.is_durable());
        for (_, session) in staying {
            if let Some(lane) = session.lane.as_deref() {
                let lane = lane.state(Arc::clone(&session.client_id));
                promises.ask(outputs, Record::LaneAtRest(lane));
            }
        }
        let stays = |client_id: &Arc<str>| {
            let session = by_client_id.get(client_id);
            session
                .and_then(|id| sessions.get(id.index()))
                .is_some_and(Session::is_durable)
        };
        for lane in self.publishers.at_rest(stays) {
            promises.ask(outputs, Record::LaneAtRest(lane));
        }
    }

    /// Goes on with a lane of an earlier run, after its session was restored.
    pub fn restore_lane(&mut self, now: Instant, lane: LaneState) {
        let Some(id) = self.clients.by_client_id.get(lane.client_id()).copied() else {
            return;
        };
        match lane {
            LaneState::Ingress {
                client_id,
                epoch,
                leaves,
                told,
            } => {
                let lane = IngressLane::restore(&client_id, epoch, &leaves, told);
                if let Some(lane) = lane {
                    self.restore_ingress(now, id, lane);
                }
            }
            LaneState::Own {
                client_id,
                lane,
                epoch,
                connected,
                refused: _,
                ledger,
            } => {
                if let Some(lane) = LaneId::new(lane)
                    && let Ok(ledger) = LaneLedger::restore(&ledger, &Xxh3)
                {
                    let owner = Sender {
                        client_id,
                        user: User::Unknown,
                    };
                    let restored = verify::Lane::new(owner, ledger, connected);
                    self.go_on_with((lane, Epoch(epoch)), restored);
                    self.start_ticking(now);
                }
            }
        }
    }

    /// What is at rest on disk is void from now on: this run goes on with it. What it begins anew
    /// has epochs from this floor on, which is above that of the run before by
    /// [`EPOCHS_AHEAD_MAX`] at least. Every shard asks for that, and lets nobody in before.
    pub fn wake_lanes(&mut self, now: Instant, floor: u32) {
        self.timers.set(now, Timer::Ask);
        self.lanes.begin_from(floor);
        let Clients {
            promises, outputs, ..
        } = &mut self.clients;
        promises.awake = promises.ask(outputs, Record::LanesAwake { floor });
    }

    fn restore_ingress(&mut self, now: Instant, id: SessionId, lane: IngressLane) {
        let tells = lane.beacon.is_some();
        if let Some(session) = self.clients.session_mut(id) {
            session.lane = Some(Box::new(lane));
            if tells {
                let client_id = Arc::clone(&session.client_id);
                self.follow(now, id);
                self.claim_ingress(&client_id);
            }
        }
    }
}

impl IngressLane {
    /// As it is put on disk.
    pub(super) fn state(&self, client_id: Arc<str>) -> LaneState {
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
