//! What this shard wants from the others: each filter that somebody here has, once, however many
//! have it.

use std::collections::HashMap;

use foldhash::fast::FixedState;

#[derive(Debug)]
pub(crate) struct Interest {
    filters: HashMap<Box<str>, u32, FixedState>,
}

impl Interest {
    /// `seed` keeps clients from choosing filters that meet in the table.
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            filters: HashMap::with_hasher(FixedState::with_seed(seed)),
        }
    }

    /// Another one here wants it. Answers whether that is news for the other shards.
    pub(crate) fn add(&mut self, filter: &str) -> bool {
        if let Some(count) = self.filters.get_mut(filter) {
            *count += 1;
            return false;
        }
        self.filters.insert(filter.into(), 1);
        true
    }

    /// One fewer wants it. Answers whether that was the last.
    pub(crate) fn remove(&mut self, filter: &str) -> bool {
        let Some(count) = self.filters.get_mut(filter) else {
            return false;
        };
        *count -= 1;
        let last = *count == 0;
        if last {
            self.filters.remove(filter);
        }
        last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_and_the_last_are_news() {
        let mut interest = Interest::new(7);
        assert!(interest.add("a/#"));
        assert!(!interest.add("a/#"));
        assert!(!interest.remove("a/#"));
        assert!(interest.remove("a/#"));
        assert!(!interest.remove("a/#"));
    }
}
