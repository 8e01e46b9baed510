//! Topics, and whether stamped messages come on them: on such a topic a message without a stamp is
//! injected, on another one it is the message of a publisher without the audit.
//!
//! Invariant: topics without a stamp take no place of those with one.

use std::collections::{BTreeMap, BTreeSet};

/// Topics of each kind that are remembered; about 100 bytes each.
const TOPICS_MAX: usize = 65_536;

/// What has come on each topic.
#[derive(Debug, Default)]
pub(super) struct Topics {
    stamped: BTreeSet<String>,
    /// So many without a stamp, and none with one.
    unstamped: BTreeMap<String, u64>,
    is_full: bool,
}

impl Topics {
    /// What it means that there was no room for a topic.
    pub(super) const FULL: &str = "messages came on more topics than are remembered (65,536 with stamps and 65,536 \
         without): of the others it is not known whether a message without a stamp was injected";

    /// A stamped message came. Returns how many came without a stamp before the first one.
    pub(super) fn stamped(&mut self, topic: &str) -> u64 {
        if self.stamped.contains(topic) {
            return 0;
        }
        if self.stamped.len() < TOPICS_MAX {
            self.stamped.insert(topic.to_owned());
        } else {
            self.is_full = true;
        }
        self.unstamped.remove(topic).unwrap_or(0)
    }

    /// A message without a stamp came. Returns whether stamped ones come on this topic.
    pub(super) fn unstamped(&mut self, topic: &str) -> bool {
        if self.stamped.contains(topic) {
            return true;
        }
        if let Some(count) = self.unstamped.get_mut(topic) {
            *count += 1;
        } else if self.unstamped.len() < TOPICS_MAX {
            self.unstamped.insert(topic.to_owned(), 1);
        } else {
            self.is_full = true;
        }
        false
    }

    /// Whether there was no room for a topic.
    pub(super) fn is_full(&self) -> bool {
        self.is_full
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_without_a_stamp_count_where_stamped_ones_come() {
        let mut topics = Topics::default();
        assert!(!topics.unstamped("a"));
        assert!(!topics.unstamped("a"));
        assert_eq!(topics.stamped("a"), 2);
        assert_eq!(topics.stamped("a"), 0);
        assert!(topics.unstamped("a"));
        assert!(!topics.unstamped("b"));
        assert!(!topics.is_full());
    }

    #[test]
    fn topics_without_a_stamp_take_no_place_of_those_with_one_and_a_full_table_is_reported() {
        let mut topics = Topics::default();
        for number in 0..TOPICS_MAX {
            assert!(!topics.unstamped(&format!("junk/{number}")));
        }
        assert!(!topics.is_full());
        assert_eq!(topics.stamped("plant"), 0);
        assert!(topics.unstamped("plant"));
        assert!(!topics.is_full());
        topics.unstamped("junk/more");
        assert!(topics.is_full());
    }
}
