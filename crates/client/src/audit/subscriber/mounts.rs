//! The topic that a stamp covers, where the broker gives clients mount points.

use crate::Received;
use crate::audit::TOPIC;

/// The topic that the stamp of a message covers: the one it came on, or across mounts the one that
/// it says.
pub(super) fn signed_topic(received: &Received, crosses_mounts: bool) -> &str {
    let topic = received.topic();
    let signed = received.user_property(TOPIC).filter(|_| crosses_mounts);
    signed
        .filter(|signed| is_end(signed, topic) || is_end(topic, signed))
        .unwrap_or(topic)
}

/// Whether a topic ends with this one, behind a mount.
fn is_end(end: &str, topic: &str) -> bool {
    let mount = topic.strip_suffix(end);
    mount.is_some_and(|mount| mount.ends_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_end_of_a_topic_may_be_what_was_signed() {
        for (end, topic, expected) in [
            ("t", "a/t", true),
            ("b/t", "a/b/t", true),
            ("t", "a/bt", false),
            ("t", "t", false),
            ("", "a/", true),
            ("a/t", "t", false),
        ] {
            assert_eq!(is_end(end, topic), expected, "{end} {topic}");
        }
    }
}
