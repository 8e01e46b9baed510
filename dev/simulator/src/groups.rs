//! Shared subscriptions as the oracle sees them: each message to one member of each group.

use std::collections::{BTreeMap, BTreeSet};

use unbroken_mqtt_proto::QoS;

use crate::message::MessageId;
use crate::oracle::matches;

/// A client and the serial number of its session.
type Member = (usize, u64);

#[derive(Debug, Default)]
pub(crate) struct Groups {
    expected: Vec<Expected>,
    received: BTreeMap<MessageId, u32>,
    /// Messages of which a copy was sent at QoS 1: it is handed over if its receiver's session
    /// ends, though that may have got it.
    repeatable: BTreeSet<MessageId>,
    /// Copies that left before it was on disk that they had been given.
    unnoted: BTreeMap<MessageId, u32>,
}

/// One message for one group.
#[derive(Debug)]
struct Expected {
    message: MessageId,
    text: &'static str,
    /// Those that were certain when it was taken and have been ever since.
    members: BTreeSet<Member>,
}

impl Groups {
    /// A message was taken. `members`: every subscription there may be, and whether it is certain.
    pub(crate) fn accepted(
        &mut self,
        message: MessageId,
        topic: &str,
        members: impl Iterator<Item = (&'static str, Member, bool)>,
    ) {
        let mut groups: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
        for (text, member, certain) in members {
            if certain && matches(text, topic) {
                groups.entry(text).or_default().insert(member);
            }
        }
        let again = self.expected.iter().any(|e| e.message == message);
        if again || self.received.contains_key(&message) {
            return;
        }
        self.expected
            .extend(groups.into_iter().map(|(text, members)| Expected {
                message,
                text,
                members,
            }));
    }

    /// A copy came at QoS 0, or to a session that ends with its connection: it waited for no disk,
    /// so for a broker that was killed the group may owe the message still.
    pub(crate) fn note_unnoted(&mut self, message: MessageId) {
        *self.unnoted.entry(message).or_insert(0) += 1;
    }

    /// How many of those there are.
    pub(crate) fn unnoted(&self, message: MessageId) -> u32 {
        self.unnoted.get(&message).copied().unwrap_or(0)
    }

    /// Counts a copy; answers how many there are, and whether one was sent at QoS 1.
    pub(crate) fn received(&mut self, message: MessageId, qos: QoS) -> (u32, bool) {
        if qos == QoS::AtLeastOnce {
            self.repeatable.insert(message);
        }
        let received = self.received.entry(message).or_insert(0);
        *received += 1;
        (*received, self.repeatable.contains(&message))
    }

    /// Somebody has got it.
    pub(crate) fn has_received(&self, message: MessageId) -> bool {
        self.received.contains_key(&message)
    }

    /// A member is no longer certain. A group that nobody is left in owes nothing.
    pub(crate) fn left(&mut self, text: &str, member: Member) {
        self.expected.retain_mut(|expected| {
            if expected.text == text {
                expected.members.remove(&member);
            }
            !expected.members.is_empty()
        });
    }

    /// A member's connection ended, on which these messages may have been lost.
    pub(crate) fn excuse(&mut self, text: &str, lost: impl Fn(MessageId) -> bool) {
        self.expected
            .retain(|expected| expected.text != text || !lost(expected.message));
    }

    /// The broker was killed: what groups owe is what it knows to have been given to somebody and
    /// not done with, once for each time it is named here.
    pub(crate) fn restarted(&mut self, given: &[MessageId]) {
        let mut owed: BTreeMap<MessageId, u32> = BTreeMap::new();
        let received = &self.received;
        self.expected.retain(|expected| {
            let id = expected.message;
            let got = received.get(&id).copied().unwrap_or(0);
            let more = given.iter().filter(|other| **other == id).count();
            let owed = owed.entry(id).or_insert(0);
            *owed += 1;
            more > 0 && *owed as usize <= got as usize + more
        });
    }

    /// Messages that too few groups have got.
    pub(crate) fn missing(&self) -> Vec<MessageId> {
        let mut missing = Vec::new();
        let mut owed: BTreeMap<MessageId, u32> = BTreeMap::new();
        for expected in &self.expected {
            *owed.entry(expected.message).or_insert(0) += 1;
        }
        for (message, groups) in owed {
            let received = self.received.get(&message).copied().unwrap_or(0);
            missing.extend((received..groups).map(|_| message));
        }
        missing
    }
}
