//! Lanes of which nothing fits, because their producers have another key or another algorithm.
//!
//! Invariant: it is said once for a lane, of as many lanes as there is room for.

use unbroken_merkle_log::{Digest as _, LaneId, Property};

use super::{AuditedSubscriber, Delivery};

impl AuditedSubscriber {
    /// Whether something of a lane has fitted. That it is expected is not enough.
    pub(super) fn is_known(&self, lane: LaneId) -> bool {
        self.direct.contains(&lane)
            && (self.come.contains(&lane) || !self.expected.lanes.contains(&lane))
    }

    pub(super) fn make_known(&mut self, lane: LaneId) {
        self.direct.insert(lane);
        self.strangers.remove(&lane);
        if self.expected.lanes.contains(&lane) {
            self.come.insert(lane);
        }
    }

    /// Whether a message that does not fit is of another algorithm than this subscriber's, in a
    /// lane of which none has fitted. Such lanes are remembered, until something fits or a
    /// checkpoint shows that their key is another.
    pub(super) fn is_other_algorithm(&mut self, property: &Property) -> bool {
        let lane = property.lane;
        if self.is_known(lane) {
            return false;
        }
        if self.strangers.len() < STRANGERS_MAX || self.strangers.contains_key(&lane) {
            self.strangers.entry(lane).or_insert(false);
        }
        let (theirs, own) = (property.algorithm, self.hasher.algorithm());
        if theirs != own && self.strangers.get(&lane) == Some(&false) {
            let why = format!("its algorithm is {theirs:?}, and this subscriber's is {own:?}");
            self.name_other_key(lane, &why);
        }
        theirs != own
    }

    pub(super) fn name_other_key_once(&mut self, lane: LaneId, why: &str) {
        let has_room = self.strangers.len() < STRANGERS_MAX;
        let is_told = self.strangers.get(&lane).copied();
        if !is_told.unwrap_or(!has_room) {
            self.name_other_key(lane, why);
        }
    }

    pub(super) fn name_other_key(&mut self, lane: LaneId, why: &str) {
        self.strangers.insert(lane, true);
        let why = format!(
            "nothing of lane {lane} fits ({why}): give this subscriber the algorithm and the key of its producer"
        );
        self.ready.push_back(Delivery::OtherKey { lane, why });
    }
}

/// Lanes remembered of which nothing fits; about 50 bytes each. Of more it is not said why.
const STRANGERS_MAX: usize = 256;
