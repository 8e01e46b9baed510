//! What clients may not receive: a message that the broker takes while its receiver's shard denies
//! it never comes, and a message that is denied is owed to no client.

use std::collections::{BTreeMap, BTreeSet};

use super::{Oracle, Received};
use crate::message::identify;

/// By client.
#[derive(Debug, Default)]
pub(super) struct Rights(BTreeMap<usize, OfClient>);

#[derive(Debug, Default)]
struct OfClient {
    /// Topics that are denied, and since when.
    denied: BTreeMap<&'static str, u64>,
    /// Those that were at some time.
    ever: BTreeSet<&'static str>,
}

impl Rights {
    pub(super) fn deny(&self, client: usize, topic: &str) -> bool {
        let of_client = self.0.get(&client);
        of_client.is_some_and(|it| it.denied.contains_key(topic))
    }

    pub(super) fn have_denied(&self, client: usize, topic: &str) -> bool {
        self.0
            .get(&client)
            .is_some_and(|it| it.ever.contains(topic))
    }

    /// Whether a topic is denied to somebody.
    pub(super) fn concern(&self, topic: &str) -> bool {
        let mut all = self.0.values();
        all.any(|it| it.denied.contains_key(topic))
    }
}

impl Oracle {
    /// The shard of this client denies it these topics from now on, and no others.
    pub(crate) fn rights_changed(&mut self, client: usize, denied: &BTreeSet<&'static str>) {
        let tick = self.tick();
        let rights = self.rights.0.entry(client).or_default();
        let before = std::mem::take(&mut rights.denied);
        let since = |topic: &&'static str| before.get(topic).copied().unwrap_or(tick);
        rights.denied = denied.iter().map(|topic| (*topic, since(topic))).collect();
        rights.ever.extend(denied);
        // What is on its way is dropped.
        let messages = &self.messages;
        let session = &mut self.sessions[client];
        let stays = |topic: &str| !denied.contains(topic);
        session
            .outstanding
            .retain(|id, _| stays(messages[*id].topic));
        session.retained.retain(|expected| stays(expected.topic));
        for text in &self.shared_texts {
            self.groups.excuse(text, |id| !stays(messages[id].topic));
        }
    }

    /// A PUBLISH has come that may have been denied.
    pub(crate) fn check_rights(&self, client: usize, received: &Received<'_>) {
        let of_client = self.rights.0.get(&client);
        let since = of_client.and_then(|it| it.denied.get(received.topic));
        let message = identify(received.payload).and_then(|id| self.messages.get(id));
        if let (Some(since), Some(message)) = (since, message) {
            assert!(
                message.first_accept <= *since,
                "client {client} received {received:?}, which it may not since step {since}"
            );
        }
    }
}
