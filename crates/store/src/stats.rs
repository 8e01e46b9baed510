//! What the committer has done, in counters that anybody may read.

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
    /// How many commits took less than 2 to the power of the index in microseconds, and no less
    /// than half of that.
    latency: [AtomicU64; BUCKETS],
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

    /// How long a commit takes, fsync included: this share (0 to 1) took less. At most twice the
    /// exact figure; zero if there was none.
    pub fn latency(&self, share: f64) -> Duration {
        let counts: Vec<u64> = self
            .latency
            .iter()
            .map(|count| count.load(Ordering::Relaxed))
            .collect();
        let total: u64 = counts.iter().sum();
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a rank among at most 2^53 commits"
        )]
        let rank = (total as f64 * share.clamp(0.0, 1.0)).ceil() as u64;
        let mut seen = 0;
        for (count, bucket) in counts.iter().zip(0..) {
            seen += count;
            if *count > 0 && seen >= rank {
                return Duration::from_micros(1 << bucket);
            }
        }
        Duration::ZERO
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
        if let Some(count) = self.latency.get(bucket) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_the_commits_took_less_than_it_says() {
        let stats = CommitStats::default();
        assert_eq!(stats.latency(0.99), Duration::ZERO);
        for _ in 0..99 {
            stats.committed(&[], &[], Duration::from_micros(300));
        }
        stats.committed(&[], &[], Duration::from_secs(2));
        assert_eq!(stats.latency(0.5), Duration::from_micros(512));
        assert_eq!(stats.latency(0.99), Duration::from_micros(512));
        assert_eq!(stats.latency(1.0), Duration::from_micros(1 << 21));
    }
}
