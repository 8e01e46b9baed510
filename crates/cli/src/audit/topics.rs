//! Topics, and whether stamped messages come on them: on such a topic a message without a stamp is
//! injected, on another one it is the message of a publisher without the audit.

use std::collections::BTreeMap;

/// Topics that are remembered; about 100 bytes each. Of more, messages without a stamp are only
/// counted.
const TOPICS_MAX: usize = 16_384;

/// What has come on each topic.
#[derive(Debug, Default)]
pub(super) struct Topics(BTreeMap<String, On>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum On {
    Stamped,
    /// So many without a stamp, and none with one.
    Unstamped(u64),
}

impl Topics {
    /// A stamped message came. Returns how many came without a stamp before the first one.
    pub(super) fn stamped(&mut self, topic: &str) -> u64 {
        match self.0.get_mut(topic) {
            Some(On::Stamped) => 0,
            Some(on) => match std::mem::replace(on, On::Stamped) {
                On::Unstamped(count) => count,
                On::Stamped => 0,
            },
            None => {
                self.insert(topic, On::Stamped);
                0
            }
        }
    }

    /// A message without a stamp came. Returns whether stamped ones come on this topic.
    pub(super) fn unstamped(&mut self, topic: &str) -> bool {
        match self.0.get_mut(topic) {
            Some(On::Stamped) => true,
            Some(On::Unstamped(count)) => {
                *count += 1;
                false
            }
            None => {
                self.insert(topic, On::Unstamped(1));
                false
            }
        }
    }

    fn insert(&mut self, topic: &str, on: On) {
        if self.0.len() < TOPICS_MAX {
            self.0.insert(topic.to_owned(), on);
        }
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
    }
}
