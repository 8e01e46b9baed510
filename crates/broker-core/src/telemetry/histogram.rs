//! How often a value was how large, in buckets that double.

use std::ops::AddAssign;

/// Counts of values by their size, and their sum. Bucket `i` has the values below 2 to the power of
/// `i` that are in no earlier one; the last has all that are larger.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    counts: [u64; Self::BUCKETS],
    sum: u64,
}

impl Histogram {
    /// The last but one ends at 2 to the power of 25: 34 seconds, where values are microseconds.
    pub const BUCKETS: usize = 27;

    /// Of counts that were made elsewhere; those beyond the last bucket are in the last.
    pub fn of(counts: impl IntoIterator<Item = u64>, sum: u64) -> Self {
        let mut histogram = Self {
            sum,
            ..Self::default()
        };
        for (index, count) in counts.into_iter().enumerate() {
            histogram.counts[index.min(Self::BUCKETS - 1)] += count;
        }
        histogram
    }

    /// Counts a value so many times.
    #[inline]
    pub(crate) fn observe(&mut self, value: u64, times: u64) {
        let bits = (u64::BITS - value.leading_zeros()) as usize;
        self.counts[bits.min(Self::BUCKETS - 1)] += times;
        self.sum = self.sum.saturating_add(value.saturating_mul(times));
    }

    /// How many values are in each bucket.
    pub fn counts(&self) -> &[u64; Self::BUCKETS] {
        &self.counts
    }

    /// All values together.
    pub fn sum(&self) -> u64 {
        self.sum
    }

    /// How many values were counted.
    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Of the values counted since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut since = *self;
        for (count, before) in since.counts.iter_mut().zip(&earlier.counts) {
            *count = count.saturating_sub(*before);
        }
        since.sum = since.sum.saturating_sub(earlier.sum);
        since
    }

    /// So many of 1,000 values are below this: at most twice the exact figure. `None` if there are
    /// no values; `u64::MAX` if it is in the last bucket.
    pub fn quantile(&self, per_mille: u64) -> Option<u64> {
        let rank = (u128::from(self.total()) * u128::from(per_mille.min(1_000))).div_ceil(1_000);
        let mut seen = 0;
        for (index, count) in self.counts.iter().enumerate() {
            seen += u128::from(*count);
            if *count > 0 && seen >= rank {
                let is_last = index == Self::BUCKETS - 1;
                return Some(if is_last { u64::MAX } else { 1 << index });
            }
        }
        None
    }
}

impl AddAssign for Histogram {
    fn add_assign(&mut self, other: Self) {
        for (mine, theirs) in self.counts.iter_mut().zip(other.counts) {
            *mine += theirs;
        }
        self.sum = self.sum.saturating_add(other.sum);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_in_the_first_bucket_that_ends_above_it() {
        let bucket = |value| {
            let mut histogram = Histogram::default();
            histogram.observe(value, 1);
            histogram.counts().iter().position(|count| *count == 1)
        };
        for (value, index) in [(0, 0), (1, 1), (2, 2), (3, 2), (4, 3), (1 << 20, 21)] {
            assert_eq!(bucket(value), Some(index), "{value}");
        }
        assert_eq!(bucket((1 << 25) - 1), Some(25));
        assert_eq!(bucket(1 << 25), Some(26));
        assert_eq!(bucket(u64::MAX), Some(26));
    }

    #[test]
    fn a_quantile_is_the_end_of_its_bucket() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.quantile(500), None);
        histogram.observe(300, 99);
        histogram.observe(5_000, 1);
        let quantiles = [0, 500, 990, 991, 1_000].map(|share| histogram.quantile(share));
        assert_eq!(quantiles, [512, 512, 512, 8_192, 8_192].map(Some));
        assert_eq!(
            (histogram.total(), histogram.sum()),
            (100, 99 * 300 + 5_000)
        );
        let before = histogram;
        histogram.observe(u64::MAX, 1);
        assert_eq!(histogram.since(&before).quantile(1), Some(u64::MAX));
    }

    #[test]
    fn counts_of_another_place_keep_their_buckets() {
        let mut counts = [0; 32];
        (counts[9], counts[26], counts[31]) = (3, 1, 1);
        let histogram = Histogram::of(counts, 7);
        assert_eq!((histogram.counts()[9], histogram.counts()[26]), (3, 2));
        let mut sum = histogram;
        sum += histogram;
        assert_eq!((sum.total(), sum.sum()), (10, 14));
    }
}
