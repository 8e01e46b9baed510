//! SUBACKs that wait for other shards and then for the store.
//!
//! ```text
//! hold -> a shard has reached the barrier -> answered_by        what is granted begins in its log
//!      -> all have -> joins answered -> take_passed             it is in force, and to be stored
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
    /// That of its SUBSCRIBE; none if no client waits for it.
    pub(crate) packet_id: Option<PacketId>,
    pub(crate) codes: Vec<u8>,
    /// What is granted and was not in force everywhere, in the order of its barriers.
    pub(crate) filters: Vec<Granted>,
    /// Every shard has applied what this one announced up to here.
    pub(crate) barrier: u64,
    /// Joins of groups on other shards that have not been answered.
    pub(crate) joins: Vec<u64>,
    /// The record of the last of its filters.
    pub(crate) stored: StoreId,
    /// Tokens of the queries for retained messages that begin with it.
    pub(crate) retained: Range<u64>,
}

/// A subscription that is granted, and is in force on another shard once that knows of it.
#[derive(Debug)]
pub(crate) struct Granted {
    pub(crate) filter: Box<str>,
    /// Which of those with this filter: see [`StoredSubscription`](crate::StoredSubscription).
    pub(crate) era: u32,
    /// A shard that has applied what this one announced up to here knows of it.
    pub(crate) barrier: u64,
}

impl PendingSubAck {
    /// What a shard knows of that has reached the barrier `reached`, and had reached `before`.
    pub(crate) fn known(&self, before: u64, reached: u64) -> &[Granted] {
        let within = |barrier| move |granted: &Granted| granted.barrier <= barrier;
        let first = self.filters.partition_point(within(before));
        let behind = self.filters.partition_point(within(reached));
        &self.filters[first..behind.max(first)]
    }

    /// What it counts towards `output_bytes_max` while it waits: a filter may be a join.
    pub(crate) fn cost(&self) -> usize {
        let filter = 1 + size_of::<u64>() + size_of::<Granted>();
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

    /// Those that may grant something of which a shard [knows](PendingSubAck::known) that has
    /// reached the barrier `reached`, and had reached `before`.
    pub(crate) fn answered_by(
        &self,
        before: u64,
        reached: u64,
    ) -> impl Iterator<Item = &PendingSubAck> {
        let waiting = &self.behind_barriers;
        let first = waiting.partition_point(|suback| suback.barrier <= before);
        // Of the first that waits for more some may be known, of those behind it nothing: what they
        // grant was announced later.
        let last = waiting.partition_point(|suback| suback.barrier <= reached);
        let behind = waiting.len().min(last + 1);
        waiting.range(first..behind.max(first))
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
            packet_id: Some(PacketId::FIRST),
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
    fn a_shards_answer_is_for_the_subacks_since_its_last_one() {
        let mut subacks = PendingSubAcks::default();
        for (number, barriers) in (0..).zip([&[1][..], &[2, 3], &[3, 3], &[4, 5, 6], &[]]) {
            let granted = |barrier: &u64| Granted {
                filter: "t".into(),
                era: number,
                barrier: *barrier,
            };
            subacks.hold(PendingSubAck {
                filters: barriers.iter().map(granted).collect(),
                ..suback(barriers.last().copied().unwrap_or(6), &[])
            });
        }
        let known = |before, reached| {
            let subacks = subacks.answered_by(before, reached);
            let known = subacks.flat_map(|suback| suback.known(before, reached));
            known.map(|it| (it.era, it.barrier)).collect::<Vec<_>>()
        };
        assert_eq!(known(0, 1), [(0, 1)]);
        assert_eq!(known(1, 2), [(1, 2)]);
        assert_eq!(known(2, 3), [(1, 3), (2, 3), (2, 3)]);
        assert_eq!(known(3, 5), [(3, 4), (3, 5)]);
        assert_eq!(known(5, 9), [(3, 6)]);
        assert_eq!(known(6, 9), []);
        assert_eq!(known(9, 3), []);
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
