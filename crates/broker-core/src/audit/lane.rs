//! The ingress lane of a client: the number and the leaf that each message it publishes gets.
//!
//! HOT: `stamp` runs for each accepted PUBLISH: one hash over topic and payload, and on average one
//! over two leaves.
//!
//! A lane covers a whole client, because the broker knows who should get what. Its id is made of
//! the client id, so that it is the same in every run. An epoch is one session: a session that ends
//! forgets its number, and what the client publishes in the next one begins at 0 in a later epoch.
//! A session that stays goes on with its epoch after a restart, if that was exact:
//! [`super::clean_shutdown`]. After a crash the epoch ends where the disk has it:
//! [`super::crash_recovery`].

use std::collections::HashMap;
use std::time::Instant;

use foldhash::fast::FixedState;
use unbroken_merkle_log::ledger::limits::WINDOW;
use unbroken_merkle_log::{CompactRange, Digest, Epoch, Hash, LaneId, Xxh3};

use super::receipt::Tracking;
use super::watch::Wants;
use crate::audit::beacon::Beacon;
use crate::message::{Mark, Publication};

/// The lane of a client whose connection is here. About 100 bytes, and 33 for each doubling of what
/// was published.
#[derive(Debug)]
pub(crate) struct IngressLane {
    pub(super) id: LaneId,
    pub(super) epoch: Epoch,
    pub(super) leaves: CompactRange,
    /// Where receivers get its stamps.
    pub(super) beacon: Option<Box<Beacon>>,
    /// The generation of the index when it was last looked at, and what was wanted then.
    pub(super) looked_at: u64,
    pub(super) wants: Wants,
    pub(super) tracking: Option<Box<Tracking>>,
    /// This epoch was stored while the broker ran: [`super::crash_recovery`].
    pub(super) is_on_disk: bool,
}

/// Which epochs are over.
#[derive(Debug)]
pub(crate) struct Lanes {
    /// Epochs that are not before the present second, of lanes that have ended. Bounded by the
    /// sessions that end within a second.
    ended: HashMap<LaneId, Epoch, FixedState>,
    pruned: Epoch,
    /// Epochs before this may have been begun by an earlier run.
    floor: u32,
}

impl IngressLane {
    /// Numbers a message.
    pub(crate) fn stamp(&mut self, publication: &Publication<'_>) -> Mark {
        let number = self.leaves.end();
        let mark = Mark::new(self.id, self.epoch, number, publication);
        if self.beacon.is_some() && (number + 1).is_multiple_of(WINDOW) {
            self.note_full_window(mark.leaf());
        }
        self.leaves.append(&Xxh3, mark.leaf());
        mark
    }

    /// How many messages it has numbered.
    pub(crate) fn size(&self) -> u64 {
        self.leaves.end()
    }

    /// The hash of all of them.
    pub(crate) fn root(&self) -> Hash {
        self.leaves.root(&Xxh3).unwrap_or_else(|| Xxh3.empty())
    }
}

impl Default for Lanes {
    fn default() -> Self {
        Self {
            ended: HashMap::with_hasher(FixedState::with_seed(0)),
            pruned: Epoch(0),
            floor: 0,
        }
    }
}

impl Lanes {
    /// Epochs below this may have been begun by an earlier run.
    pub(crate) fn begin_from(&mut self, floor: u32) {
        self.floor = floor;
    }

    /// Opens the lane of a client. `second`: of the present time, since 1970.
    pub(crate) fn open(&mut self, client_id: &str, second: u32) -> IngressLane {
        let second = second.max(self.floor);
        let id = lane_of(client_id);
        let ended = self.ended.get(&id).copied();
        // Two epochs within one second: the later one is called after the next.
        let epoch = ended.map_or(second, |Epoch(ended)| second.max(ended.saturating_add(1)));
        IngressLane {
            id,
            epoch: Epoch(epoch),
            leaves: CompactRange::new(0),
            beacon: None,
            looked_at: 0,
            wants: Wants::default(),
            tracking: None,
            is_on_disk: false,
        }
    }

    /// A session ends, and its lane with it.
    pub(crate) fn close(&mut self, lane: &IngressLane, second: u32) {
        let second = second.max(self.floor);
        if self.pruned < Epoch(second) {
            self.pruned = Epoch(second);
            self.ended.retain(|_, epoch| *epoch >= Epoch(second));
        }
        if lane.epoch >= Epoch(second) {
            self.ended.insert(lane.id, lane.epoch);
        }
    }
}

/// The lane of a client: the first 8 bytes of the XXH3-128 leaf over `unbroken client ` and its id.
pub(crate) fn lane_of(client_id: &str) -> LaneId {
    let hash = Xxh3.leaf(&[b"unbroken client ", client_id.as_bytes()]);
    let (first, _) = hash.padded().split_at(8);
    let number = first.iter().fold(0, |n, byte| n << 8 | u64::from(*byte));
    // There is no lane 0.
    LaneId::new(number.max(1)).expect("it is at least 1")
}

/// Whole seconds since 1970.
pub(crate) fn second(started_us: u64, start: Instant, now: Instant) -> u32 {
    let since = now.saturating_duration_since(start).as_secs();
    u32::try_from(started_us / 1_000_000 + since).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use unbroken_merkle_log::Tree;
    use unbroken_mqtt_proto::{Properties, QoS};

    use super::*;

    #[expect(clippy::disallowed_methods, reason = "a test's epoch")]
    fn publication(payload: &[u8]) -> Publication<'_> {
        Publication {
            topic: "a/b",
            properties: Properties::EMPTY,
            payload,
            qos: QoS::AtMostOnce,
            retain: false,
            expires: None,
            stamp: Instant::now(),
            mark: None,
        }
    }

    #[test]
    fn numbers_have_no_holes_and_the_root_is_that_of_the_plain_tree() {
        let mut lane = Lanes::default().open("pump", 7);
        let mut tree = Tree::default();
        for number in 0..2_000_u64 {
            let payload = number.to_be_bytes();
            let mark = lane.stamp(&publication(&payload));
            assert_eq!(mark.number, number);
            tree.append(&Xxh3, mark.leaf());
        }
        assert_eq!(Some(lane.root()), tree.root_at(&Xxh3, 2_000));
    }

    #[test]
    fn a_mark_fits_its_message_only() {
        let mark = Lanes::default().open("pump", 7).stamp(&publication(b"1"));
        assert!(mark.fits(&publication(b"1")));
        assert!(!mark.fits(&publication(b"2")));
    }

    #[test]
    fn a_lane_never_begins_an_epoch_twice() {
        let mut lanes = Lanes::default();
        let mut epochs = Vec::new();
        for second in [5, 5, 5, 6, 6, 9, 9] {
            let lane = lanes.open("pump", second);
            epochs.push(lane.epoch.0);
            lanes.close(&lane, second);
        }
        assert_eq!(epochs, [5, 6, 7, 8, 9, 10, 11]);
        assert_eq!(lanes.open("other", 9).epoch, Epoch(9));
    }

    #[test]
    fn a_client_has_the_same_lane_in_every_run() {
        assert_eq!(lane_of("pump"), lane_of("pump"));
        assert_ne!(lane_of("pump"), lane_of("pump2"));
    }
}
