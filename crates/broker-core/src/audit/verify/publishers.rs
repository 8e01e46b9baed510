//! The lanes of the publishers of one shard.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Instant;

use unbroken_merkle_log::ledger::LedgerLimits;
use unbroken_merkle_log::{Epoch, LaneId};

use super::epochs_of;
use super::lane::Lane;
use super::shares::Refusals;
use crate::audit::owners::{Intrusion, LaneOwners, Sender, Spot};
use crate::limits::VERIFIED_LANES_MAX;
use crate::reason::Sent;

/// The lanes of the publishers of one shard.
#[derive(Debug, Default)]
pub(crate) struct Publishers {
    pub(super) lanes: BTreeMap<(LaneId, Epoch), Lane>,
    /// How many of them each client has.
    pub(super) counts: BTreeMap<Arc<str>, usize>,
    /// What clients sent of lanes of others, within the last second or two.
    pub(in crate::audit) intrusions: BTreeMap<(LaneId, Sent, Sender), Intrusion>,
    /// Messages of lanes that were not opened, by client, within the last second or two.
    pub(super) refusals: BTreeMap<Arc<str>, Refusals>,
    /// Limits of each ledger.
    pub(super) limits: Limits,
    /// When the clocks of the lanes were last moved on.
    pub(super) ticked: Option<Instant>,
    /// Up to which lane ledgers were stored, if there was too much for one tick, and how many bytes
    /// in this one.
    pub(super) stored_through: Option<(LaneId, Epoch)>,
    pub(super) stored_bytes: usize,
}

#[derive(Debug)]
pub(super) struct Limits(pub(super) LedgerLimits);

impl Default for Limits {
    fn default() -> Self {
        let mut limits = LedgerLimits::default();
        limits.lanes_max = VERIFIED_LANES_MAX;
        limits.open_windows_max = 4;
        limits.gaps_max = 1_024;
        limits.suspects_max = 256;
        Self(limits)
    }
}

impl Publishers {
    /// A lane that is open here, and is this client's; and the limits of its ledger.
    pub(super) fn own(
        &mut self,
        key: (LaneId, Epoch),
        sender: &Sender,
    ) -> Option<(&mut Lane, &LedgerLimits)> {
        let lane = self.lanes.get_mut(&key);
        let lane = lane.filter(|lane| lane.owner.is_same(sender))?;
        Some((lane, &self.limits.0))
    }

    /// The lane behind this one, or the first, and the client whose it is.
    pub(super) fn next(
        &self,
        after: Option<(LaneId, Epoch)>,
    ) -> Option<((LaneId, Epoch), &Arc<str>)> {
        let after = after.map_or(Bound::Unbounded, Bound::Excluded);
        let (key, lane) = self.lanes.range((after, Bound::Unbounded)).next()?;
        Some((*key, &lane.owner.client_id))
    }

    /// Goes on with a lane, if there is room for it and it does not go on already. Answers whether
    /// it does for the first time.
    pub(in crate::audit) fn restore(&mut self, key: (LaneId, Epoch), lane: Lane) -> bool {
        let goes_on = self.lanes.len() < VERIFIED_LANES_MAX && !self.lanes.contains_key(&key);
        if goes_on {
            self.insert(key, lane);
        }
        goes_on
    }

    pub(super) fn insert(&mut self, key: (LaneId, Epoch), lane: Lane) {
        let client_id = Arc::clone(&lane.owner.client_id);
        *self.counts.entry(client_id).or_default() += 1;
        self.lanes.insert(key, lane);
    }

    /// Whose lane this is, if it is open here.
    pub(super) fn owner(&self, lane: LaneId) -> Option<&Sender> {
        let open = self.lanes.range(epochs_of(lane)).next();
        open.map(|(_, lane)| &lane.owner)
    }

    /// Whose lane this is, if it is not this sender's.
    pub(in crate::audit) fn other_owner(
        &self,
        lane: LaneId,
        sender: &Sender,
        owners: &LaneOwners,
    ) -> Option<Arc<str>> {
        let open = self.lanes.range(epochs_of(lane)).next();
        let owner = match (owners.forwarded(lane), open) {
            (None, Some((_, lane))) if lane.owner.is_same(sender) => return None,
            (None, Some((_, lane))) => return Some(Arc::clone(&lane.owner.client_id)),
            _ => owners.owner(lane)?,
        };
        (*owner != sender.client_id).then(|| Arc::clone(owner))
    }

    /// An epoch is over: those of its lane that were over before it take no room any more.
    pub(super) fn forget_before(&mut self, (lane, epoch): (LaneId, Epoch)) {
        let before = self.lanes.range((lane, Epoch(0))..(lane, epoch));
        let over = before.filter(|(_, lane)| lane.is_over());
        let over: Vec<_> = over.map(|(key, _)| *key).collect();
        for key in over {
            self.remove(key);
        }
    }

    pub(super) fn remove(&mut self, key: (LaneId, Epoch)) -> Option<Lane> {
        let lane = self.lanes.remove(&key)?;
        let client_id = &lane.owner.client_id;
        if let Some(count) = self.counts.get_mut(client_id) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.counts.remove(client_id);
            }
        }
        Some(lane)
    }

    /// Whether a publisher here has opened this lane.
    pub(in crate::audit) fn is_open(&self, lane: LaneId) -> bool {
        self.lanes.range(epochs_of(lane)).next().is_some()
    }

    /// A lane that was opened here is another's. Answers who sent messages of it, and how far it
    /// came.
    pub(in crate::audit) fn drop_lane(&mut self, lane: LaneId) -> Option<(Sender, Spot)> {
        let mut opened = None;
        while let Some((key, _)) = self.lanes.range(epochs_of(lane)).next() {
            let key = *key;
            let lane = self.remove(key)?;
            let spot = Spot {
                lane: key.0,
                epoch: key.1,
                number: lane.seen.saturating_sub(1),
            };
            if lane.seen > 0 {
                opened = Some((lane.owner, spot));
            }
        }
        opened
    }

    pub(super) fn is_at_rest(&self) -> bool {
        self.lanes.is_empty() && self.intrusions.is_empty() && self.refusals.is_empty()
    }

    /// A message of this lane is stored.
    pub(in crate::audit) fn note_stored(&mut self, key: (LaneId, Epoch)) {
        if let Some(lane) = self.lanes.get_mut(&key) {
            lane.is_unstored = true;
        }
    }
}
