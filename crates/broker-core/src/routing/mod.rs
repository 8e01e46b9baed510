//! From a topic to those who want it.
//!
//! [`Router`] is the part that a shard sees. Its index holds every subscription of the shard, the
//! shared groups that live on it, and what the other shards asked for. Its cache keeps the merged
//! answer for recent topics, and its interest is what this shard asks of the others.
//!
//! Invariants:
//! - One subscriber has at most one subscription per filter; a second one replaces the first
//!   [MQTT-3.8.4-3].
//! - A [`Route`] names each session once, however many of its subscriptions match [MQTT-3.3.4-2].
//! - The order of subscribers, receivers and identifiers depends only on the calls made before,
//!   never on a hash seed, so a run can be repeated.
//!
//! Deliberately absent: the text `$share/…` (a group subscribes with its bare filter), rights, and
//! limits on what one session may hold; the caller has decided those before it inserts.

mod cache;
mod full_receivers;
mod interest;
mod list;
mod pending_subacks;
#[cfg(test)]
mod reference;
mod routed;
mod router;
mod terms;
mod tree;
mod wide;

use std::num::NonZeroU32;

use unbroken_mqtt_proto::QoS;

use crate::ids::{GroupId, SessionId, ShardId, Want};

pub(crate) use cache::{Receiver, Route};
pub(crate) use pending_subacks::{Granted, PendingSubAck};
pub(crate) use routed::Routed;
pub(crate) use router::{InterestChange, Router};
pub(crate) use terms::Terms;
pub(crate) use wide::WideRoute;

use cache::RouteCache;
use tree::SubscriptionIndex;

/// Who subscribed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Subscriber {
    /// A session of this shard.
    Session(SessionId),
    /// Another shard, on behalf of anything that lives there; once for each kind.
    Shard(ShardId, Want),
    /// A shared group that lives on this shard: one of its members gets the message.
    Group(GroupId),
}

/// What a subscription was granted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Grant {
    /// The most a message is delivered with [MQTT-3.8.4-8].
    pub(crate) qos: QoS,
    /// Nothing the subscriber itself published [MQTT-3.8.3-3].
    pub(crate) no_local: bool,
    /// The retain flag is forwarded as the publisher set it [MQTT-3.3.1-13].
    pub(crate) retain_as_published: bool,
    /// Sent along with each message that matched [MQTT-3.3.4-3].
    pub(crate) identifier: Option<NonZeroU32>,
}
