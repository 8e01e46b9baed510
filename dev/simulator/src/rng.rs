//! Random numbers that are the same on every machine: SplitMix64.

/// A stream of numbers that one seed decides.
#[derive(Clone, Debug)]
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Below `bound`, which is not 0. The bias of the remainder does not matter here.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound as u64).expect("a remainder of a usize is one")
    }

    /// `low..=high`.
    pub(crate) fn between(&mut self, low: usize, high: usize) -> usize {
        low + self.below(high - low + 1)
    }

    /// The same for small numbers that go into packets.
    pub(crate) fn number(&mut self, low: u32, high: u32) -> u32 {
        let span = u64::from(high - low) + 1;
        low + u32::try_from(self.next() % span).expect("the span is that of two u32")
    }

    pub(crate) fn percent(&mut self, percent: u32) -> bool {
        self.next() % 100 < u64::from(percent)
    }

    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    /// Mostly all of it, sometimes a part: how many of `available` (at least 1) go at once.
    pub(crate) fn part(&mut self, available: usize) -> usize {
        if self.percent(60) {
            available
        } else {
            self.between(1, available)
        }
    }
}
