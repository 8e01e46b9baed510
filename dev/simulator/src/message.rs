//! The messages of a run, each known by its payload wherever it turns up.

use std::time::Instant;

use unbroken_mqtt_proto::QoS;

/// Position in [`Messages`].
pub(crate) type MessageId = usize;

/// A message that some client has published, or left as its will.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) publisher: usize,
    pub(crate) topic: &'static str,
    pub(crate) qos: QoS,
    pub(crate) retain: bool,
    /// Retained with an empty payload. Receivers cannot tell one from another.
    pub(crate) clear: bool,
    pub(crate) expiry_s: Option<u32>,
    pub(crate) padding: usize,
    /// How often the broker has taken it: more than once only at QoS 1, when it was sent again.
    pub(crate) accepts: u32,
    /// Steps. Meaningful once it was accepted. If it may have been refused before it was taken, and
    /// nobody heard of that, it was taken in one of these steps or between them.
    pub(crate) first_accept: u64,
    pub(crate) last_accept: u64,
    pub(crate) accepted_at: Option<Instant>,
    /// The step in which the publisher saw PUBACK or PUBREC.
    pub(crate) acknowledged: Option<u64>,
    /// Since this step it is certainly on disk as the retained message of its topic.
    pub(crate) found: Option<u64>,
    /// The broker was killed, and it is not the retained message of its topic any more.
    pub(crate) erased: bool,
    /// A will, and its client was told that it is let in.
    pub(crate) promised: bool,
}

impl Message {
    /// The step before which it certainly was the retained message, if it is one.
    pub(crate) fn in_force(&self) -> Option<u64> {
        match (self.acknowledged, self.found) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        }
    }

    pub(crate) fn payload(&self, id: MessageId) -> Vec<u8> {
        if self.clear {
            return Vec::new();
        }
        let mut payload = format!("m{id}:").into_bytes();
        let letters = (b'a'..=b'z').cycle().skip(id % 26);
        payload.extend(letters.take(self.padding));
        payload
    }
}

/// Which message has this payload.
pub(crate) fn identify(payload: &[u8]) -> Option<MessageId> {
    let text = std::str::from_utf8(payload).ok()?;
    text.strip_prefix('m')?.split_once(':')?.0.parse().ok()
}

/// Topics that ordinary subscriptions match.
pub(crate) const TOPICS: [&str; 6] = ["a", "a/b", "a/c", "b", "b/x/y", "d/e"];
/// Topics that only shared subscriptions match, so that every copy is a group's.
pub(crate) const SHARED_TOPICS: [&str; 3] = ["s/1", "s/2", "s/3"];
/// Overlapping on purpose.
pub(crate) const FILTERS: [&str; 9] = ["a", "a/b", "a/+", "a/#", "b/#", "+", "b", "+/x/y", "d/e"];
/// Would match the topics of the groups: only where there are none.
pub(crate) const WIDE_FILTERS: [&str; 3] = ["#", "+/+", "+/#"];
/// One that some runs ask for at QoS 0 only, so that there are topics that nobody keeps.
pub(crate) fn is_meek(filter: &str) -> bool {
    !filter.starts_with(['a', '$'])
}
/// Every filter that anybody asks for.
pub(crate) const TEXTS: [&[&str]; 4] = [
    &FILTERS,
    &WIDE_FILTERS,
    &SHARED_FILTERS,
    &[RECEIPTS, CHECKPOINTS],
];
/// Receipts of all lanes.
pub(crate) const RECEIPTS: &str = "$audit/+/receipt";
/// Checkpoints of all lanes.
pub(crate) const CHECKPOINTS: &str = "audit/checkpoint/+";
pub(crate) const SHARED_FILTERS: [&str; 5] = [
    "$share/g/s/+",
    "$share/h/s/+",
    "$share/g/s/1",
    "$share/h/s/#",
    "$share/k/s/2",
];
