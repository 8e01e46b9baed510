//! Counters of the committer, readable from any thread.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::batch::Batch;
use crate::error::Conflict;
use crate::store::Committed;

/// Counters since the committer was started. Each is right by itself; read one after the other they
/// may be a commit apart.
#[derive(Debug, Default)]
pub struct CommitStats {
    commits: AtomicU64,
    batches: AtomicU64,
    conflicts: AtomicU64,
    bytes: AtomicU64,
    /// As in [`CommitTimes`].
    took: [AtomicU64; BUCKETS],
    took_us: AtomicU64,
}

/// How long commits took, fsync included. Those that had nothing to write do not count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommitTimes {
    /// How many took less than 2 to the power of the index in microseconds, and no less than half
    /// of that.
    counts: [u64; BUCKETS],
    /// All of them together, in microseconds.
    sum_us: u64,
}

/// The last takes all that is longer: about 36 minutes.
const BUCKETS: usize = 32;

impl CommitStats {
    /// Commits that succeeded.
    pub fn commits(&self) -> u64 {
        self.commits.load(Ordering::Relaxed)
    }

    /// Batches in them that were written.
    pub fn batches(&self) -> u64 {
        self.batches.load(Ordering::Relaxed)
    }

    /// Batches in them that were refused, because what is there is not what they expected.
    pub fn conflicts(&self) -> u64 {
        self.conflicts.load(Ordering::Relaxed)
    }

    /// Keys, values and messages in the batches written, in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// How long they took so far.
    pub fn times(&self) -> CommitTimes {
        let mut times = CommitTimes::default();
        for (count, took) in times.counts.iter_mut().zip(&self.took) {
            *count = took.load(Ordering::Relaxed);
        }
        times.sum_us = self.took_us.load(Ordering::Relaxed);
        times
    }

    pub(crate) fn committed(
        &self,
        batches: &[Batch],
        results: &[Result<Committed, Conflict>],
        took: Duration,
    ) {
        let written = batches.iter().zip(results);
        let written = written.filter(|(_, result)| result.is_ok());
        let (mut count, mut bytes) = (0, 0);
        for (batch, _) in written {
            count += 1;
            bytes += batch.bytes() as u64;
        }
        let refused = results.len() as u64 - count;
        self.commits.fetch_add(1, Ordering::Relaxed);
        self.batches.fetch_add(count, Ordering::Relaxed);
        self.conflicts.fetch_add(refused, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let bits = u128::BITS - took.as_micros().leading_zeros();
        let bucket = (bits as usize).min(BUCKETS - 1);
        if let Some(count) = self.took.get(bucket).filter(|_| bytes > 0) {
            count.fetch_add(1, Ordering::Relaxed);
            let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
            self.took_us.fetch_add(us, Ordering::Relaxed);
        }
    }
}

impl CommitTimes {
    /// Of the commits since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut since = self.clone();
        for (count, before) in since.counts.iter_mut().zip(&earlier.counts) {
            *count = count.saturating_sub(*before);
        }
        since.sum_us = since.sum_us.saturating_sub(earlier.sum_us);
        since
    }

    /// How many took less than 2 to the power of the index in microseconds, and no less than half
    /// of that.
    pub fn counts(&self) -> &[u64] {
        &self.counts
    }

    /// All of them together, in microseconds.
    pub fn sum_us(&self) -> u64 {
        self.sum_us
    }

    /// This share of the commits (0 to 1) took less. At most twice the exact figure; none if there
    /// was no commit.
    pub fn share(&self, share: f64) -> Option<Duration> {
        let total: u64 = self.counts.iter().sum();
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a rank among at most 2^53 commits"
        )]
        let rank = (total as f64 * share.clamp(0.0, 1.0)).ceil() as u64;
        let mut seen = 0;
        for (count, bucket) in self.counts.iter().zip(0..) {
            seen += count;
            if *count > 0 && seen >= rank {
                return Some(Duration::from_micros(1 << bucket));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::{Revision, Space};

    const COMMITTED: Committed = Committed {
        revision: Revision(1),
    };

    fn commit(stats: &CommitStats, took: Duration) {
        let mut batch = Batch::new();
        batch.delete(Space::Control, b"key".to_vec());
        stats.committed(&[batch], &[Ok(COMMITTED)], took);
    }

    fn shares(times: &CommitTimes) -> [Option<u128>; 3] {
        let took = [0.5, 0.99, 1.0].map(|share| times.share(share));
        took.map(|took| took.map(|took| took.as_micros()))
    }

    #[test]
    fn a_share_of_the_commits_took_less_than_it_says() {
        let stats = CommitStats::default();
        assert_eq!(shares(&stats.times()), [None; 3]);
        for _ in 0..99 {
            commit(&stats, Duration::from_micros(300));
        }
        commit(&stats, Duration::from_secs(2));
        let times = stats.times();
        assert_eq!(shares(&times), [Some(512), Some(512), Some(1 << 21)]);
        commit(&stats, Duration::from_micros(9));
        assert_eq!(shares(&stats.times().since(&times)), [Some(16); 3]);
        assert_eq!(shares(&times.since(&times)), [None; 3]);
    }

    #[test]
    fn a_commit_of_nothing_is_none_to_be_timed() {
        let stats = CommitStats::default();
        stats.committed(&[Batch::new()], &[Ok(COMMITTED)], Duration::ZERO);
        assert_eq!(stats.times(), CommitTimes::default());
        assert_eq!(stats.commits(), 1);
    }
}
