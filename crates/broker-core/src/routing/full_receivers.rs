//! The sessions and shared groups of all shards that are at the limit of what may wait for them, by
//! what they subscribe to.
//!
//! Deliberately absent: when one of them has become full or has room again. Its own shard decides
//! that, and announces it to every shard.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use foldhash::fast::FixedState;
use slab::Slab;
use unbroken_mqtt_proto::{QoS, TopicFilter, TopicName};

use super::{Grant, RouteCache, Subscriber, SubscriptionIndex};
use crate::ids::{HolderRef, SessionId};

/// The full sessions and groups of all shards, found by topic.
#[derive(Debug)]
pub(super) struct FullReceivers {
    /// What they subscribe to; each is [`Subscriber::Session`] by its place in `receivers`.
    index: SubscriptionIndex,
    routes: RouteCache,
    receivers: Slab<FullReceiver>,
    places: HashMap<HolderRef, usize, FixedState>,
}

#[derive(Debug)]
struct FullReceiver {
    of: HolderRef,
    /// The client's id, or the group as its members write it.
    name: Arc<str>,
    filters: BTreeSet<Box<str>>,
}

impl Default for FullReceivers {
    fn default() -> Self {
        Self {
            index: SubscriptionIndex::new(),
            routes: RouteCache::default(),
            receivers: Slab::new(),
            places: HashMap::with_hasher(FixedState::with_seed(0)),
        }
    }
}

impl FullReceivers {
    pub(super) fn is_empty(&self) -> bool {
        self.receivers.is_empty()
    }

    pub(super) fn contains(&self, of: HolderRef) -> bool {
        self.places.contains_key(&of)
    }

    /// Nodes that topics have visited, ever.
    pub(super) fn visited(&self) -> u64 {
        self.index.visited()
    }

    /// It is full, or is and has another subscription.
    pub(super) fn add(&mut self, of: HolderRef, name: &Arc<str>, filters: &[(Box<str>, Grant)]) {
        let place = *self.places.entry(of).or_insert_with(|| {
            self.receivers.insert(FullReceiver {
                of,
                name: Arc::clone(name),
                filters: BTreeSet::new(),
            })
        });
        for (text, grant) in filters {
            if let Ok(filter) = TopicFilter::parse(text)
                && self
                    .index
                    .insert(filter, subscriber(place), *grant)
                    .is_none()
            {
                self.receivers[place].filters.insert(text.clone());
            }
        }
    }

    pub(super) fn remove_filter(&mut self, of: HolderRef, filter: &str) {
        if let Some(&place) = self.places.get(&of) {
            self.forget(place, filter);
            self.receivers[place].filters.remove(filter);
        }
    }

    /// It has room again, or has ended.
    pub(super) fn remove(&mut self, of: HolderRef) {
        if let Some(place) = self.places.remove(&of) {
            for filter in self.receivers.remove(place).filters {
                self.forget(place, &filter);
            }
        }
    }

    fn forget(&mut self, place: usize, filter: &str) {
        if let Ok(filter) = TopicFilter::parse(filter) {
            self.index.remove(filter, subscriber(place));
        }
    }

    /// The name of one that has to keep what this one publishes to this topic at QoS 1 or 2.
    pub(super) fn receiver(
        &mut self,
        topic: TopicName<'_>,
        publisher: HolderRef,
    ) -> Option<&Arc<str>> {
        let Self {
            index,
            routes,
            receivers: full,
            ..
        } = self;
        let mut receivers = routes.route(index, topic).receivers.iter();
        let receiver = receivers.find(|receiver| {
            let is_own = || full[receiver.session.index()].of == publisher;
            if receiver.no_local_some && is_own() {
                // [MQTT-3.8.3-3]
                let own = index.receiver_of_own(topic, receiver.session);
                return own.is_some_and(|own| own.qos > QoS::AtMostOnce);
            }
            receiver.qos > QoS::AtMostOnce
        })?;
        Some(&full[receiver.session.index()].name)
    }
}

fn subscriber(place: usize) -> Subscriber {
    let number = u32::try_from(place).expect("sessions are numbered with 32 bits, on few shards");
    Subscriber::Session(SessionId(number))
}
