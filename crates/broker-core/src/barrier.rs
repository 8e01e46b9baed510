//! When every other shard has applied what this one announced.
//!
//! Announcements are numbered. Mail is in order, so a shard that has answered number n has applied
//! everything up to n; whoever must wait (a SUBACK, a shared group's new member elsewhere) waits
//! for the number that was last given out when it asked. With one shard every number is reached at
//! once. A SUBACK then waits until its subscriptions are stored.

use std::collections::{HashMap, HashSet, VecDeque};

use foldhash::fast::FixedState;

use crate::ids::{ShardId, StoreId};
use crate::routing::PendingSubAck;

#[derive(Debug)]
pub(crate) struct Barriers {
    issued: u64,
    /// What each shard has answered; this shard's own entry is always at the end.
    reached: Vec<u64>,
    /// SUBACKs whose number is not reached yet. Oldest first, so the numbers only grow.
    subacks: VecDeque<PendingSubAck>,
    /// Joins of groups on other shards that have not been answered.
    unanswered: HashSet<u64, FixedState>,
    /// SUBACKs whose number is reached, by one of the joins that they still wait for.
    joining: HashMap<u64, PendingSubAck, FixedState>,
    /// SUBACKs that have got what they wait for from other shards.
    passed: VecDeque<PendingSubAck>,
    /// SUBACKs that wait for the store and nothing else, in the order of its requests.
    unstored: VecDeque<PendingSubAck>,
    /// Joins of other shards' sessions into groups here: (barrier, shard to answer, its token).
    pub(crate) joins: VecDeque<(u64, ShardId, u64)>,
}

impl Barriers {
    pub(crate) fn new(me: ShardId, shards: u8) -> Self {
        let mut reached = vec![0; usize::from(shards)];
        reached[usize::from(me.0)] = u64::MAX;
        Self {
            issued: 0,
            reached,
            subacks: VecDeque::new(),
            unanswered: HashSet::with_hasher(FixedState::with_seed(0)),
            joining: HashMap::with_hasher(FixedState::with_seed(0)),
            passed: VecDeque::new(),
            unstored: VecDeque::new(),
            joins: VecDeque::new(),
        }
    }

    /// Keeps a SUBACK until everything announced up to now is in force.
    pub(crate) fn hold(&mut self, suback: PendingSubAck) {
        debug_assert_eq!(suback.barrier, self.issued, "the newest waits longest");
        self.unanswered.extend(&suback.joins);
        self.subacks.push_back(suback);
    }

    /// Takes a SUBACK that waits for no other shard any more: what it grants can be put in force.
    pub(crate) fn take_passed(&mut self) -> Option<PendingSubAck> {
        let reached = self.reached();
        while self
            .subacks
            .front()
            .is_some_and(|suback| suback.barrier <= reached)
            && let Some(suback) = self.subacks.pop_front()
        {
            self.pass_barrier(suback);
        }
        self.passed.pop_front()
    }

    /// Keeps a SUBACK until what it grants is stored.
    pub(crate) fn hold_until_stored(&mut self, suback: PendingSubAck) {
        let at = self
            .unstored
            .partition_point(|other| other.stored <= suback.stored);
        self.unstored.insert(at, suback);
    }

    /// Takes a SUBACK that waits for nothing any more. Everything up to `stored` is on disk.
    pub(crate) fn take_ready(&mut self, stored: StoreId) -> Option<PendingSubAck> {
        self.unstored.pop_front_if(|suback| suback.stored <= stored)
    }

    /// A join was answered.
    pub(crate) fn handle_joined(&mut self, token: u64) {
        self.unanswered.remove(&token);
        if let Some(suback) = self.joining.remove(&token) {
            self.pass_barrier(suback);
        }
    }

    /// Puts it where its next unanswered join finds it, or to those that have none.
    fn pass_barrier(&mut self, mut suback: PendingSubAck) {
        while let Some(token) = suback.joins.pop() {
            if self.unanswered.contains(&token) {
                self.joining.insert(token, suback);
                return;
            }
        }
        self.passed.push_back(suback);
    }

    /// A number for another announcement.
    pub(crate) fn issue(&mut self) -> u64 {
        self.issued += 1;
        self.issued
    }

    /// The number to wait for so that everything announced up to now is in force.
    pub(crate) fn latest(&self) -> u64 {
        self.issued
    }

    /// The number that every shard has reached.
    pub(crate) fn reached(&self) -> u64 {
        self.reached.iter().copied().min().unwrap_or(u64::MAX)
    }

    pub(crate) fn handle_reached(&mut self, shard: ShardId, barrier: u64) {
        if let Some(reached) = self.reached.get_mut(usize::from(shard.0)) {
            *reached = barrier.max(*reached);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lone_shard_waits_for_nobody() {
        let mut barriers = Barriers::new(ShardId(0), 1);
        let barrier = barriers.issue();
        assert!(barriers.reached() >= barrier);
    }

    #[test]
    fn the_slowest_shard_decides() {
        let mut barriers = Barriers::new(ShardId(1), 3);
        let barrier = barriers.issue();
        assert!(barriers.reached() < barrier);
        barriers.handle_reached(ShardId(0), barrier);
        assert!(barriers.reached() < barrier);
        barriers.handle_reached(ShardId(2), barrier);
        assert!(barriers.reached() >= barrier);
    }

    fn suback(barrier: u64, joins: &[u64]) -> PendingSubAck {
        PendingSubAck {
            connection: crate::ConnectionId {
                index: 0,
                serial: 0,
            },
            session: crate::SessionId(0),
            packet_id: unbroken_mqtt_proto::PacketId::FIRST,
            serial: 0,
            codes: Vec::new(),
            filters: Vec::new(),
            barrier,
            joins: joins.to_vec(),
            stored: StoreId::NOTHING,
            retained: 0..0,
        }
    }

    #[test]
    fn a_suback_waits_for_its_number_and_for_every_join_in_any_order() {
        let mut barriers = Barriers::new(ShardId(0), 2);
        let barrier = barriers.issue();
        barriers.hold(suback(barrier, &[7, 8, 9]));
        let ready = |barriers: &mut Barriers| barriers.take_passed().is_some();
        barriers.handle_joined(8);
        assert!(!ready(&mut barriers));
        barriers.handle_reached(ShardId(1), barrier);
        assert!(!ready(&mut barriers));
        barriers.handle_joined(7);
        assert!(!ready(&mut barriers));
        barriers.handle_joined(9);
        assert!(ready(&mut barriers));
        assert!(!ready(&mut barriers));
    }

    #[test]
    fn a_suback_that_waits_for_the_store_does_not_hold_up_others() {
        let mut barriers = Barriers::new(ShardId(0), 1);
        for stored in [StoreId(2), StoreId::NOTHING, StoreId(3)] {
            barriers.hold_until_stored(PendingSubAck {
                stored,
                ..suback(0, &[])
            });
        }
        let mut next = |stored| barriers.take_ready(StoreId(stored)).map(|s| s.stored.0);
        assert_eq!((next(0), next(0)), (Some(0), None));
        assert_eq!((next(2), next(2)), (Some(2), None));
        assert_eq!((next(3), next(3)), (Some(3), None));
    }
}
