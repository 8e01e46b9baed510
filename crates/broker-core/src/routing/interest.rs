//! What this shard wants from the others: each filter of its sessions and groups, once for each
//! [`Want`], however many have it.

use std::collections::HashMap;

use foldhash::fast::FixedState;

use crate::ids::Want;

#[derive(Debug)]
pub(crate) struct Interest {
    filters: HashMap<Box<str>, Counts, FixedState>,
}

/// How many there are, by [`Want`].
type Counts = [u32; 3];

impl Interest {
    /// `seed` keeps clients from choosing filters that meet in the table.
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            filters: HashMap::with_hasher(FixedState::with_seed(seed)),
        }
    }

    /// Another one here wants it. Answers whether that is news for the other shards.
    pub(crate) fn add(&mut self, filter: &str, want: Want) -> bool {
        if let Some(counts) = self.filters.get_mut(filter) {
            let count = &mut counts[want as usize];
            *count += 1;
            return *count == 1;
        }
        let mut counts = Counts::default();
        counts[want as usize] = 1;
        self.filters.insert(filter.into(), counts);
        true
    }

    /// One fewer wants it. Answers whether that was the last.
    pub(crate) fn remove(&mut self, filter: &str, want: Want) -> bool {
        let Some(counts) = self.filters.get_mut(filter) else {
            return false;
        };
        let count = &mut counts[want as usize];
        let last = *count == 1;
        *count = count.saturating_sub(1);
        if counts.iter().all(|count| *count == 0) {
            self.filters.remove(filter);
        }
        last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_and_the_last_of_a_kind_are_news() {
        let mut interest = Interest::new(7);
        for want in [Want::Passing, Want::Staying, Want::Sharing] {
            assert!(interest.add("a/#", want));
            assert!(!interest.add("a/#", want));
        }
        for want in [Want::Staying, Want::Passing, Want::Sharing] {
            assert!(!interest.remove("a/#", want));
            assert!(interest.remove("a/#", want));
            assert!(!interest.remove("a/#", want));
        }
        assert!(interest.filters.is_empty());
    }
}
