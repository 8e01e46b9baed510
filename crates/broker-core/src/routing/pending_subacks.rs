//! SUBACKs that wait for other shards and then for the store.
//!
//! ```text
//! hold -> barrier reached -> joins answered -> take_passed      what is granted is put in force
//!      -> hold_until_stored -> stored -> take_ready             the SUBACK leaves
//! ```

use std::collections::{HashMap, HashSet, VecDeque};
use std::ops::Range;

use foldhash::fast::FixedState;
use unbroken_mqtt_proto::PacketId;

use crate::ids::{ConnectionId, SessionId, StoreId};

/// A SUBACK that waits until the subscription is stored, and in force on every shard.
#[derive(Debug)]
pub(crate) struct PendingSubAck {
    pub(crate) connection: ConnectionId,
    pub(crate) session: SessionId,
    /// Which one of that number: see [`crate::session::Session::serial`].
    pub(crate) serial: u64,
    pub(crate) packet_id: PacketId,
    pub(crate) codes: Vec<u8>,
    /// Filter and era of what is granted and was not in force: it is on every shard once the SUBACK
    /// leaves, and from when on it is known only then.
    pub(crate) filters: Vec<(Box<str>, u32)>,
    /// Every shard has applied what this one announced up to here.
    pub(crate) barrier: u64,
    /// Joins of groups on other shards that have not been answered.
    pub(crate) joins: Vec<u64>,
    /// The record of the last of its filters.
    pub(crate) stored: StoreId,
    /// Tokens of the queries for retained messages that begin with it.
    pub(crate) retained: Range<u64>,
}

impl PendingSubAck {
    /// What it counts towards `output_bytes_max` while it waits: a filter may be a join.
    pub(crate) fn cost(&self) -> usize {
        let filter = 1 + size_of::<u64>() + size_of::<(Box<str>, u32)>();
        size_of::<Self>() + self.codes.len() * filter
    }
}

/// The SUBACKs of one shard that wait.
#[derive(Debug)]
pub(crate) struct PendingSubAcks {
    /// Those whose barrier is not reached yet. Oldest first, so the numbers only grow.
    behind_barriers: VecDeque<PendingSubAck>,
    /// Joins of groups on other shards that have not been answered.
    unanswered: HashSet<u64, FixedState>,
    /// Those whose barrier is reached, by one of the joins that they still wait for.
    joining: HashMap<u64, PendingSubAck, FixedState>,
    /// Those that have got what they wait for from other shards.
    passed: VecDeque<PendingSubAck>,
    /// Those that wait for the store and nothing else, in the order of its requests.
    unstored: VecDeque<PendingSubAck>,
}

impl Default for PendingSubAcks {
    fn default() -> Self {
        Self {
            behind_barriers: VecDeque::new(),
            unanswered: HashSet::with_hasher(FixedState::with_seed(0)),
            joining: HashMap::with_hasher(FixedState::with_seed(0)),
            passed: VecDeque::new(),
            unstored: VecDeque::new(),
        }
    }
}

impl PendingSubAcks {
    /// Keeps a SUBACK until its barrier is reached and its joins are answered. Its barrier is the
    /// newest.
    pub(crate) fn hold(&mut self, suback: PendingSubAck) {
        debug_assert!(
            self.behind_barriers
                .back()
                .is_none_or(|last| last.barrier <= suback.barrier),
            "the newest waits longest"
        );
        self.unanswered.extend(&suback.joins);
        self.behind_barriers.push_back(suback);
    }

    /// Takes a SUBACK that waits for no other shard any more: what it grants can be put in force.
    /// Every shard has reached the barrier `reached`.
    pub(crate) fn take_passed(&mut self, reached: u64) -> Option<PendingSubAck> {
        while let Some(suback) = self
            .behind_barriers
            .pop_front_if(|suback| suback.barrier <= reached)
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
}

#[cfg(test)]
mod tests {
    use super::*;

    fn suback(barrier: u64, joins: &[u64]) -> PendingSubAck {
        PendingSubAck {
            connection: ConnectionId {
                index: 0,
                serial: 0,
            },
            session: SessionId(0),
            packet_id: PacketId::FIRST,
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
        let mut subacks = PendingSubAcks::default();
        subacks.hold(suback(1, &[7, 8, 9]));
        subacks.handle_joined(8);
        assert!(subacks.take_passed(0).is_none());
        assert!(subacks.take_passed(1).is_none());
        subacks.handle_joined(7);
        assert!(subacks.take_passed(1).is_none());
        subacks.handle_joined(9);
        assert!(subacks.take_passed(1).is_some());
        assert!(subacks.take_passed(1).is_none());
    }

    #[test]
    fn a_suback_that_waits_for_the_store_does_not_hold_up_others() {
        let mut subacks = PendingSubAcks::default();
        for stored in [StoreId(2), StoreId::NOTHING, StoreId(3)] {
            subacks.hold_until_stored(PendingSubAck {
                stored,
                ..suback(0, &[])
            });
        }
        let mut next = |stored| subacks.take_ready(StoreId(stored)).map(|s| s.stored.0);
        assert_eq!((next(0), next(0)), (Some(0), None));
        assert_eq!((next(2), next(2)), (Some(2), None));
        assert_eq!((next(3), next(3)), (Some(3), None));
    }
}
