//! How many lanes are judged, and of whom.
//!
//! A lane takes memory, and any client can open one by a stamp. So a client has a share, and the
//! last lanes are for clients with few: one that opens as many as it can takes none from a
//! publisher that comes later.
//!
//! Invariants:
//! - At most [`VERIFIED_LANES_MAX`] lanes a shard and [`LANES_A_CLIENT_MAX`] a client, and the last
//!   [`LANES_RESERVED`] are for clients with fewer than [`LANES_FEW`].
//! - A message of a lane that is not opened is delivered, counted as unaudited, and its client is
//!   named with the reason.

use std::sync::Arc;
use std::time::{Duration, Instant};

use unbroken_merkle_log::ledger::{Join, LaneLedger};
use unbroken_merkle_log::{Epoch, LaneId};

use super::super::Audit;
use super::super::json::Object;
use super::super::known::Origin;
use super::super::owners::Sender;
use super::super::watch::Watch;
use super::{Lane, Publishers};
use crate::limits::{
    LANES_A_CLIENT_MAX, LANES_FEW, LANES_REFUSED_TOLD_MAX, LANES_RESERVED, VERIFIED_LANES_MAX,
};
use crate::reason::LaneRefusal;
use crate::telemetry::{Event, Telemetry};

/// Messages of lanes of one client that were not opened.
#[derive(Debug)]
pub(super) struct Refusals {
    lane: LaneId,
    why: LaneRefusal,
    unreported: u64,
}

impl Audit {
    /// Opens a lane if it is not open, and there is room for it. Answers whether it is.
    pub(super) fn open_lane(
        &mut self,
        telemetry: &mut Telemetry,
        at: Instant,
        key: (LaneId, Epoch),
        sender: &Sender,
        origin: Origin,
    ) -> bool {
        if self.publishers.lanes.contains_key(&key) {
            return true;
        }
        let client_id = &sender.client_id;
        if let Some(why) = self.publishers.refusal(client_id) {
            self.refuse_lane(telemetry, key, client_id, why);
            return false;
        }
        let is_new = !self.publishers.is_open(key.0);
        let join = match origin {
            Origin::Begins => Join::Beginning,
            Origin::Unknown | Origin::GoesOn => Join::Late,
        };
        let mut lane = Lane::new(sender.clone(), LaneLedger::new(join), Duration::ZERO);
        if origin == Origin::GoesOn {
            // What it issued before its publisher's session ended has come, and is not known here.
            lane = lane.cut_off(&[]);
        }
        // Whose it is outlives the broker, even if none of its messages is ever stored.
        lane.is_unstored = true;
        self.publishers.insert(key, lane);
        self.note_epoch(key);
        if is_new {
            self.claim_lane(telemetry, at, key.0, sender.clone());
        }
        self.publishers.lanes.contains_key(&key)
    }

    /// Goes on with a lane of an earlier run.
    pub(in crate::audit) fn go_on_with(
        &mut self,
        telemetry: &mut Telemetry,
        key: (LaneId, Epoch),
        lane: Lane,
    ) {
        let owner = lane.owner.clone();
        if self.publishers.restore(key, lane) {
            self.note_epoch(key);
            self.claim_lane(telemetry, self.start, key.0, owner);
        }
    }

    /// A lane is not opened. The first message is reported at once, more from the same client
    /// once a second.
    #[cold]
    fn refuse_lane(
        &mut self,
        telemetry: &mut Telemetry,
        (lane, _): (LaneId, Epoch),
        client: &Arc<str>,
        why: LaneRefusal,
    ) {
        let totals = &mut telemetry.audit().publishers;
        totals.unaudited += 1;
        totals.lanes_refused += 1;
        let refusals = &mut self.publishers.refusals;
        if let Some(refusals) = refusals.get_mut(client) {
            refusals.unreported += 1;
            (refusals.lane, refusals.why) = (lane, why);
            return;
        }
        if refusals.len() < LANES_REFUSED_TOLD_MAX {
            let unreported = 0;
            refusals.insert(
                Arc::clone(client),
                Refusals {
                    lane,
                    why,
                    unreported,
                },
            );
            report_refusal(&mut self.watch, telemetry, client, lane, why, 1);
        }
    }

    /// Reports what was gathered of clients that sent what is not judged, and forgets those that
    /// have sent nothing more.
    pub(super) fn report_strangers(&mut self, telemetry: &mut Telemetry) {
        let Publishers {
            intrusions,
            refusals,
            ..
        } = &mut self.publishers;
        let watch = &mut self.watch;
        intrusions.retain(|key, intrusion| intrusion.report(key, None, watch, telemetry));
        refusals.retain(|client, refusals| {
            let count = std::mem::take(&mut refusals.unreported);
            if count > 0 {
                report_refusal(watch, telemetry, client, refusals.lane, refusals.why, count);
            }
            count > 0
        });
    }
}

impl Publishers {
    /// Why this client may not open another lane.
    fn refusal(&self, client_id: &Arc<str>) -> Option<LaneRefusal> {
        let its = self.counts.get(client_id).copied().unwrap_or_default();
        let left = VERIFIED_LANES_MAX.saturating_sub(self.lanes.len());
        if left == 0 {
            Some(LaneRefusal::Full)
        } else if its >= LANES_A_CLIENT_MAX {
            Some(LaneRefusal::Share)
        } else if left <= LANES_RESERVED && its >= LANES_FEW {
            Some(LaneRefusal::Reserved)
        } else {
            None
        }
    }
}

fn report_refusal(
    watch: &mut Watch,
    telemetry: &mut Telemetry,
    client_id: &Arc<str>,
    lane: LaneId,
    why: LaneRefusal,
    count: u64,
) {
    let words = match why {
        LaneRefusal::Share => format!("its client has {LANES_A_CLIENT_MAX} lanes open"),
        LaneRefusal::Reserved => {
            format!("the lanes that are left are for clients with fewer than {LANES_FEW}")
        }
        LaneRefusal::Full => format!("the shard judges {VERIFIED_LANES_MAX} lanes"),
    };
    let object = Object::new()
        .text("lane", &lane.to_string())
        .text("client", client_id)
        .text("state", "unaudited")
        .text("reason", why.name())
        .text("words", &words);
    watch.report_on_lane(lane, "state", object);
    telemetry.report(Event::LaneRefused {
        client_id: Arc::clone(client_id),
        lane: lane.value(),
        why,
        count,
    });
}
