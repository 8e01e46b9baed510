//! Random numbers: SplitMix64 (Steele, Lea, Flood 2014), which can begin at any place.

/// A sequence of random numbers.
#[derive(Clone, Debug)]
pub(super) struct Random {
    state: u64,
}

/// What the state grows by from number to number.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

impl Random {
    pub(super) const fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// The sequence that begins behind so many numbers of this one.
    pub(super) const fn skipped(&self, numbers: u64) -> Self {
        Self {
            state: self.state.wrapping_add(STEP.wrapping_mul(numbers)),
        }
    }

    pub(super) const fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(STEP);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `limit`, which is at least 1. Lemire's multiplication; the deviation from
    /// equal chances is at most `limit` in 2^64.
    fn below(&mut self, limit: usize) -> usize {
        let wide = u128::from(self.next()) * limit as u128;
        usize::try_from(wide >> 64).expect("it is below a limit of this type")
    }

    /// Brings the first `count` places of `items` to a random selection of all, in random order
    /// (Fisher and Yates).
    pub(super) fn shuffle<T>(&mut self, items: &mut [T], count: usize) {
        for place in 0..count.min(items.len()) {
            let from = place + self.below(items.len() - place);
            items.swap(place, from);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sequence_is_that_of_the_published_algorithm() {
        // The first numbers for the seed 1234567, as they are given for other implementations.
        let mut random = Random::new(1_234_567);
        assert_eq!(random.next(), 6_457_827_717_110_365_317);
        assert_eq!(random.next(), 3_203_168_211_198_807_973);
        let mut skipped = Random::new(1_234_567).skipped(1);
        assert_eq!(skipped.next(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn a_shuffle_keeps_all_items_and_moves_most() {
        let mut items: Vec<usize> = (0..1_000).collect();
        Random::new(1).shuffle(&mut items, 1_000);
        let moved = items.iter().enumerate().filter(|(i, item)| i != *item);
        assert!(moved.count() > 900);
        items.sort_unstable();
        assert!(items.iter().enumerate().all(|(i, item)| i == *item));
    }
}
