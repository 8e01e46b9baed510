//! The subscriptions that one shard knows of, as one part: the receivers of a topic, the interest
//! to announce to other shards, the receivers without room, and the SUBACKs that wait.
//!
//! The caller decides what is granted, and carries out what a change here leads to.

use std::sync::Arc;

use unbroken_mqtt_proto::{TopicFilter, TopicName};

use super::full_receivers::FullReceivers;
use super::interest::Interest;
use super::pending_subacks::PendingSubAcks;
use super::{Grant, Receiver, Route, RouteCache, Subscriber, SubscriptionIndex};
use crate::ids::{HolderRef, SessionId, Want};

/// The subscriptions of a shard.
#[derive(Debug)]
pub(crate) struct Router {
    index: SubscriptionIndex,
    routes: RouteCache,
    /// None with one shard, which announces nothing.
    interest: Option<Interest>,
    full: FullReceivers,
    subacks: PendingSubAcks,
}

/// A change that is to be announced to the other shards.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum InterestChange {
    /// The filter is wanted so from now on.
    Added(Want),
    /// It is not any more.
    Removed(Want),
}

impl Router {
    /// `seed` keeps clients from choosing filters that meet in a table.
    pub(crate) fn new(seed: u64, shards: u8) -> Self {
        Self {
            index: SubscriptionIndex::new(),
            routes: RouteCache::default(),
            interest: (shards > 1).then(|| Interest::new(seed)),
            full: FullReceivers::default(),
            subacks: PendingSubAcks::default(),
        }
    }

    /// The receivers of a message on `topic`.
    #[inline]
    pub(crate) fn route(&mut self, topic: TopicName<'_>) -> &Route {
        self.routes.route(&self.index, topic)
    }

    /// The same, with those receivers marked whose clients may not receive it.
    #[inline]
    pub(crate) fn judged(
        &mut self,
        topic: TopicName<'_>,
        may_receive: impl FnMut(SessionId) -> bool,
    ) -> &Route {
        self.routes.judged(&self.index, topic, may_receive)
    }

    /// Whether the receivers of this topic are known without a walk.
    pub(crate) fn knows(&self, topic: TopicName<'_>) -> bool {
        self.routes.has(&self.index, topic)
    }

    /// Nodes that topics have visited, ever.
    pub(crate) fn visited(&self) -> u64 {
        self.index.visited() + self.full.visited()
    }

    /// What clients may receive has changed: no route is good any more.
    pub(crate) fn judge_again(&mut self) {
        self.index.renew();
    }

    /// What a session gets of a message that it published itself [MQTT-3.8.3-3].
    pub(crate) fn receiver_of_own(
        &self,
        topic: TopicName<'_>,
        session: SessionId,
    ) -> Option<Receiver> {
        self.index.receiver_of_own(topic, session)
    }

    /// Whether a message on this topic has a receiver.
    pub(crate) fn has_route(&mut self, topic: &str) -> bool {
        TopicName::parse(topic).is_ok_and(|topic| !self.route(topic).is_empty())
    }

    /// Changes with every subscription, and with what clients may receive.
    pub(crate) fn generation(&self) -> u64 {
        self.index.generation()
    }

    /// Adds a subscription, in place of an older one of this subscriber and filter.
    pub(crate) fn insert(&mut self, filter: TopicFilter<'_>, subscriber: Subscriber, grant: Grant) {
        self.index.insert(filter, subscriber, grant);
    }

    /// Removes a subscription.
    pub(crate) fn remove(&mut self, filter: TopicFilter<'_>, subscriber: Subscriber) {
        self.index.remove(filter, subscriber);
    }

    /// Another subscriber here wants this filter.
    pub(crate) fn add_interest(&mut self, filter: &str, want: Want) -> Option<InterestChange> {
        let is_first = self.interest.as_mut()?.add(filter, want);
        is_first.then_some(InterestChange::Added(want))
    }

    /// One fewer wants it.
    pub(crate) fn remove_interest(&mut self, filter: &str, want: Want) -> Option<InterestChange> {
        let was_last = self.interest.as_mut()?.remove(filter, want);
        was_last.then_some(InterestChange::Removed(want))
    }

    /// Whether all shards know that a session or group has no room.
    pub(crate) fn has_full(&self) -> bool {
        !self.full.is_empty()
    }

    /// A session or group without room that has to keep what `publisher` publishes to this topic at
    /// QoS 1 or 2.
    pub(crate) fn full_receiver(
        &mut self,
        topic: TopicName<'_>,
        publisher: HolderRef,
    ) -> Option<Arc<str>> {
        self.full.receiver(topic, publisher).cloned()
    }

    /// Whether this session or group is known to have no room.
    pub(crate) fn is_full(&self, of: HolderRef) -> bool {
        self.full.contains(of)
    }

    /// It has no room, or has none and another subscription.
    pub(crate) fn add_full(
        &mut self,
        of: HolderRef,
        name: &Arc<str>,
        filters: &[(Box<str>, Grant)],
    ) {
        self.full.add(of, name, filters);
    }

    /// It has one subscription fewer.
    pub(crate) fn remove_full_filter(&mut self, of: HolderRef, filter: &str) {
        self.full.remove_filter(of, filter);
    }

    /// It has room again, or has ended.
    pub(crate) fn remove_full(&mut self, of: HolderRef) {
        self.full.remove(of);
    }

    /// The SUBACKs that wait.
    pub(crate) fn subacks(&mut self) -> &mut PendingSubAcks {
        &mut self.subacks
    }
}
