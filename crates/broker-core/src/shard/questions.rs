//! An operator's questions about one shard: clients, sessions, subscriptions, groups and retained
//! messages.
//!
//! Each answer is a page, or about one thing, and costs a bounded number of looks.

use std::sync::Arc;

use unbroken_mqtt_proto::TopicName;

use super::Shard;
use crate::ids::SessionId;
use crate::message::Message;
use crate::retained::{RetainedPage, TopicLevels, WantedRetained};
use crate::session::{
    ClientInfo, Page, Place, SessionInfo, SubscriptionInfo, Wanted, WantedSubscriptions,
};
use crate::shared::GroupInfo;

impl Shard {
    /// Clients that are connected to this shard.
    pub fn connected_clients(&self, wanted: &Wanted, from: Place, most: usize) -> Page<ClientInfo> {
        let connections = &self.connections;
        self.sessions.connected(connections, wanted, from, most)
    }

    /// A client that is connected to this shard.
    pub fn connected_client(&self, client_id: &str) -> Option<ClientInfo> {
        self.sessions.client(&self.connections, client_id)
    }

    /// Sessions of this shard.
    pub fn sessions(&self, wanted: &Wanted, from: Place, most: usize) -> Page<SessionInfo> {
        self.sessions.list(wanted, from, most)
    }

    /// A session of this shard.
    pub fn session(&self, client_id: &str) -> Option<SessionInfo> {
        self.sessions.session(client_id)
    }

    /// Subscriptions of this shard's sessions.
    pub fn subscriptions(
        &self,
        wanted: &WantedSubscriptions,
        from: Place,
        most: usize,
    ) -> Page<SubscriptionInfo> {
        self.sessions.subscriptions(wanted, from, most)
    }

    /// Shared groups that live on this shard.
    pub fn groups(&self, from: Place, most: usize) -> Page<GroupInfo> {
        let (from, _) = from.parts();
        let (entries, next) = self.groups.list(from as usize, most);
        let next = next.and_then(|next| u32::try_from(next).ok());
        let next = next.map(|next| Place::from_parts((next, 0)));
        Page { entries, next }
    }

    /// The client ids of sessions, where there are any.
    pub fn client_ids(&self, sessions: &[SessionId]) -> Vec<Option<Arc<str>>> {
        let client_id = |id: &SessionId| Some(Arc::clone(&self.sessions.get(*id)?.client_id));
        sessions.iter().map(client_id).collect()
    }

    /// Retained messages of this shard's topics, behind the topic `after`.
    pub fn retained(
        &self,
        wanted: &WantedRetained,
        after: Option<&str>,
        most: usize,
    ) -> RetainedPage {
        self.retained.page(wanted, after, most)
    }

    /// The retained message of a topic of this shard.
    pub fn retained_message(&self, topic: &str) -> Option<Arc<Message>> {
        let topic = TopicName::parse(topic).ok()?;
        self.retained.get(topic).cloned()
    }

    /// The levels right beneath a topic, or the first levels, behind the level `after`: those of
    /// topics of this shard with retained messages.
    pub fn topic_levels(
        &self,
        parent: Option<&str>,
        after: Option<&str>,
        most: usize,
    ) -> TopicLevels {
        self.retained.levels(parent, after, most)
    }
}
