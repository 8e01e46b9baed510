//! When every other shard has applied what this one announced.
//!
//! Announcements are numbered. Messages between shards are in order, so a shard that has answered
//! number n has applied everything up to n. A SUBACK, or the answer to a join of a shared group,
//! waits for the number that was given out last when it began to wait. With one shard every number
//! is reached at once.

use crate::ids::ShardId;

#[derive(Debug)]
pub(crate) struct Barriers {
    issued: u64,
    /// What each shard has answered; this shard's own entry is always at the end.
    reached: Vec<u64>,
}

impl Barriers {
    pub(crate) fn new(me: ShardId, shards: u8) -> Self {
        let mut reached = vec![0; usize::from(shards)];
        reached[usize::from(me.0)] = u64::MAX;
        Self { issued: 0, reached }
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
}
