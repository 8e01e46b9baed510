//! Epochs of lanes that this broker has judged: an epoch that begins differs from one that goes on.
//!
//! A publisher's ledger ends with its session, and its lane may come back on any shard. A broker
//! that has judged another epoch of the lane was there when the new epoch began, so it judges the
//! new one from number 0 on, whatever number comes first. An epoch that it has judged before goes
//! on: its earlier numbers came, and are not missing.
//!
//! Invariants:
//! - Each shard hears of each epoch that another shard opens.
//! - At most [`EPOCHS_KNOWN_MAX`] epochs are remembered; beyond it the oldest is forgotten. A lane
//!   of which no epoch is remembered is one that was under way before, and is joined late.

use std::collections::{BTreeSet, VecDeque};

use unbroken_merkle_log::{Epoch, LaneId};

use super::verify::epochs_of;
use crate::limits::EPOCHS_KNOWN_MAX;

/// The epochs that were open on any shard, in this run or before a restart.
#[derive(Debug, Default)]
pub(crate) struct KnownEpochs {
    epochs: BTreeSet<(LaneId, Epoch)>,
    /// The oldest first.
    order: VecDeque<(LaneId, Epoch)>,
}

/// What is known of an epoch that is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Origin {
    /// Neither it nor another epoch of its lane: it may have been under way before.
    Unknown,
    /// Another epoch of its lane: it begins now.
    Begins,
    /// It was judged before: what it issued then has come.
    GoesOn,
}

impl KnownEpochs {
    /// Notes an epoch that was opened.
    pub(crate) fn note(&mut self, key: (LaneId, Epoch)) {
        if !self.epochs.insert(key) {
            return;
        }
        if self.order.len() >= EPOCHS_KNOWN_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.epochs.remove(&oldest);
        }
        self.order.push_back(key);
    }

    pub(super) fn origin(&self, key: (LaneId, Epoch)) -> Origin {
        if self.epochs.contains(&key) {
            Origin::GoesOn
        } else if self.epochs.range(epochs_of(key.0)).next().is_some() {
            Origin::Begins
        } else {
            Origin::Unknown
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(lane: u64, epoch: u32) -> (LaneId, Epoch) {
        (LaneId::new(lane).expect("not 0"), Epoch(epoch))
    }

    #[test]
    fn an_epoch_begins_when_another_one_of_its_lane_is_known() {
        let mut known = KnownEpochs::default();
        assert_eq!(known.origin(key(7, 1)), Origin::Unknown);
        known.note(key(7, 1));
        assert_eq!(known.origin(key(7, 1)), Origin::GoesOn);
        assert_eq!(known.origin(key(7, 2)), Origin::Begins);
        assert_eq!(known.origin(key(8, 2)), Origin::Unknown);
    }

    #[test]
    fn the_oldest_epoch_is_forgotten() {
        let mut known = KnownEpochs::default();
        for lane in 1..=1 + EPOCHS_KNOWN_MAX as u64 {
            known.note(key(lane, 1));
            known.note(key(lane, 1));
        }
        assert_eq!(known.origin(key(1, 2)), Origin::Unknown);
        assert_eq!(known.origin(key(2, 2)), Origin::Begins);
        assert_eq!(known.epochs.len(), known.order.len());
    }
}
