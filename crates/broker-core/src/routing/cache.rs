//! Routes: the merged answer of the index for one topic, and a cache of them.
//!
//! Invariants:
//! - A route is given out only if the index has not changed since it was made.
//! - A session is in a route once: highest QoS, all identifiers, in the index's order
//!   [MQTT-3.3.4-2] [MQTT-3.3.4-3] [MQTT-3.3.4-4].
//! - The cache holds at most [`ROUTES_MAX`] routes of at most [`ROUTE_RECEIVERS_MAX`] receivers,
//!   and one of any size, whose memory stays for the next of that kind. A hit allocates nothing; a
//!   miss only until its place has grown to fit, or for a receiver with several identifiers.
//!
//! Deliberately absent: recency. Within a set of [`WAYS`] places a stale route goes first, then
//! any other.
//!
//! Other sizes and other ways to replace routes were tried: `docs/notes/scheduler.md`.

use std::cell::Cell;
use std::fmt;
use std::hash::BuildHasher;
use std::num::NonZeroU32;
use std::sync::{Arc, Weak};

use foldhash::fast::RandomState;
use smallvec::SmallVec;
use unbroken_mqtt_proto::{QoS, TopicName};

use super::{Grant, Subscriber, SubscriptionIndex, WideRoute};
use crate::ids::{GroupId, SessionId, ShardId, Want};

/// Everybody a message on one topic goes to.
#[derive(Clone, Debug, Default)]
pub(crate) struct Route {
    /// Sessions of this shard, each once.
    pub(crate) receivers: Receivers,
    /// Other shards that want it: bit `n` is shard `n`.
    pub(crate) shards: u64,
    /// Of those, the ones where somebody keeps it: a session that stays, at QoS 1 or 2, or a shared
    /// group with such a member.
    pub(crate) staying: u64,
    /// Of those, the ones with such a group.
    pub(crate) sharing: u64,
    /// Shared groups of this shard that want it.
    pub(crate) groups: SmallVec<[GroupId; 2]>,
    /// It is known which receivers may have it: see [`RouteCache::judged`].
    pub(super) is_judged: bool,
    /// Its receivers once more, as long as somebody keeps them: they are megabytes.
    pub(super) wide: LastWide,
}

/// One or two lie in the route itself.
pub(crate) type Receivers = SmallVec<[Receiver; 2]>;

/// Does not hold on to it.
#[derive(Default)]
pub(super) struct LastWide(Cell<Weak<WideRoute>>);

/// Another route makes its own.
impl Clone for LastWide {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl fmt::Debug for LastWide {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LastWide").finish_non_exhaustive()
    }
}

impl Route {
    /// Nobody wants it.
    pub(crate) fn is_empty(&self) -> bool {
        self.receivers.is_empty() && self.shards == 0 && self.groups.is_empty()
    }

    /// Its receivers, to be kept; the same for all who ask while the route is good.
    pub(crate) fn wide(&self) -> Arc<WideRoute> {
        let last = self.wide.0.take();
        let wide = last.upgrade();
        let wide = wide.unwrap_or_else(|| Arc::new(WideRoute::of(&self.receivers)));
        self.wide.0.set(Arc::downgrade(&wide));
        wide
    }
}

/// One session and what all its matching subscriptions together ask for.
#[derive(Clone, Debug)]
pub(crate) struct Receiver {
    /// Who.
    pub(crate) session: SessionId,
    /// The highest granted [MQTT-3.3.4-2, MQTT311-3.3.5-1].
    pub(crate) qos: QoS,
    /// Whether one of them wants the retain flag as published.
    pub(crate) retain_as_published: bool,
    /// Whether one of them is No Local: if the session is the publisher, ask
    /// [`SubscriptionIndex::receiver_of_own`] instead.
    pub(crate) no_local_some: bool,
    /// Whether the client may not receive messages on the topic. Known of a judged route.
    pub(crate) is_denied: bool,
    /// Of all that have one [MQTT-3.3.4-4].
    pub(crate) identifiers: SmallVec<[NonZeroU32; 1]>,
}

/// Routes of recent topics.
#[derive(Debug, Default)]
pub(crate) struct RouteCache {
    hasher: RandomState,
    /// Hash of the topic in each place, 0 if there is none: one look at 32 bytes tells whether a
    /// set is worth searching.
    tags: Vec<u64>,
    /// A power of two times [`WAYS`] places, or none before the first use; as many as `tags`.
    places: Vec<Place>,
    /// Where a route is made, and where the last one stays that is too large for a place.
    bench: Place,
    merger: Merger,
    /// Chooses among routes that are all in use.
    hand: usize,
}

/// Three lines of the processor's cache, with nothing elsewhere where the topic is short and the
/// receivers are few.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Place {
    topic: Text,
    /// Of the index when the route was made; 0, which no index has, if there is none.
    generation: u64,
    route: Route,
}

/// The bytes of a topic.
type Text = SmallVec<[u8; TOPIC_INLINE]>;

/// Where a route was found or put.
enum At {
    Place(usize),
    Bench,
}

impl RouteCache {
    /// Everybody a message on `topic` goes to. The caller may change sessions while it walks the
    /// receivers, but not the index.
    pub(crate) fn route(&mut self, index: &SubscriptionIndex, topic: TopicName<'_>) -> &Route {
        self.route_mut(index, topic)
    }

    /// The same, with those receivers marked whose clients may not receive it. Each is asked about
    /// once while the route is good.
    #[inline]
    pub(crate) fn judged(
        &mut self,
        index: &SubscriptionIndex,
        topic: TopicName<'_>,
        mut may_receive: impl FnMut(SessionId) -> bool,
    ) -> &Route {
        let route = self.route_mut(index, topic);
        if !route.is_judged {
            for receiver in &mut route.receivers {
                receiver.is_denied = !may_receive(receiver.session);
            }
            route.is_judged = true;
        }
        route
    }

    fn route_mut(&mut self, index: &SubscriptionIndex, topic: TopicName<'_>) -> &mut Route {
        let tag = self.hasher.hash_one(topic.as_str()) | 1;
        let at = match self.find(tag, topic, index.generation()) {
            Some(at) => at,
            None => self.make(tag, topic, index),
        };
        match at {
            At::Place(place) => &mut self.places[place].route,
            At::Bench => &mut self.bench.route,
        }
    }

    /// Whether the route of this topic is here.
    pub(crate) fn has(&self, index: &SubscriptionIndex, topic: TopicName<'_>) -> bool {
        let tag = self.hasher.hash_one(topic.as_str()) | 1;
        self.find(tag, topic, index.generation()).is_some()
    }

    fn find(&self, tag: u64, topic: TopicName<'_>, generation: u64) -> Option<At> {
        for place in self.set(tag) {
            if self.tags[place] == tag && self.places[place].is(topic, generation) {
                return Some(At::Place(place));
            }
        }
        self.bench.is(topic, generation).then_some(At::Bench)
    }

    fn make(&mut self, tag: u64, topic: TopicName<'_>, index: &SubscriptionIndex) -> At {
        let generation = index.generation();
        self.merger.route(index, topic, &mut self.bench.route);
        let receivers = &self.bench.route.receivers;
        if receivers.len() > ROUTE_RECEIVERS_MAX || topic.as_str().len() > TOPIC_BYTES_MAX {
            self.bench.set_topic(topic, generation);
            return At::Bench;
        }
        self.bench.generation = 0;
        let place = self.place_for(tag, topic, generation);
        self.tags[place] = tag;
        let chosen = &mut self.places[place];
        chosen.set_topic(topic, generation);
        chosen.route.copy_from(&self.bench.route);
        At::Place(place)
    }

    /// A place of the topic's set whose route may go: the topic's own from before, an unused or
    /// stale one, or, when the cache cannot grow, any.
    fn place_for(&mut self, tag: u64, topic: TopicName<'_>, generation: u64) -> usize {
        loop {
            let own = |place: &usize| self.places[*place].has(topic);
            let stale = |place: &usize| self.places[*place].generation != generation;
            if let Some(place) = self
                .set(tag)
                .find(own)
                .or_else(|| self.set(tag).find(stale))
            {
                return place;
            }
            if self.places.len() >= ROUTES_MAX {
                self.hand = self.hand.wrapping_add(1);
                return self.set(tag).start + self.hand % WAYS;
            }
            self.grow(generation);
        }
    }

    /// Doubles the places. Stale routes are left behind.
    #[cold]
    fn grow(&mut self, generation: u64) {
        let places = (self.places.len() * 2).max(ROUTES_MIN);
        let old_places = std::mem::take(&mut self.places);
        let old_tags = std::mem::replace(&mut self.tags, vec![0; places]);
        self.places.resize_with(places, Place::default);
        for (tag, old) in old_tags.into_iter().zip(old_places) {
            // A set splits into two, so there is room for each.
            if old.generation == generation
                && let Some(place) = self.set(tag).find(|place| self.tags[*place] == 0)
            {
                self.tags[place] = tag;
                self.places[place] = old;
            }
        }
    }

    /// The places a topic with this hash may be in.
    fn set(&self, tag: u64) -> std::ops::Range<usize> {
        let sets = self.places.len() / WAYS;
        if sets == 0 {
            return 0..0;
        }
        // The upper half: the lowest bit is always set, and the lower ones are as good.
        let upper = usize::try_from(tag >> 32).unwrap_or_default();
        let first = (upper & (sets - 1)) * WAYS;
        first..first + WAYS
    }
}

impl Place {
    fn is(&self, topic: TopicName<'_>, generation: u64) -> bool {
        self.generation == generation && self.has(topic)
    }

    fn has(&self, topic: TopicName<'_>) -> bool {
        self.topic.as_slice() == topic.as_str().as_bytes()
    }

    fn set_topic(&mut self, topic: TopicName<'_>, generation: u64) {
        self.topic.clear();
        self.topic.extend_from_slice(topic.as_str().as_bytes());
        self.generation = generation;
    }
}

impl Route {
    fn clear(&mut self) {
        self.receivers.clear();
        (self.shards, self.staying, self.sharing) = (0, 0, 0);
        self.groups.clear();
        self.is_judged = false;
        self.wide.0.take();
    }

    /// `clone`, into the memory that is there.
    fn copy_from(&mut self, other: &Self) {
        self.receivers.clone_from(&other.receivers);
        (self.shards, self.staying) = (other.shards, other.staying);
        self.sharing = other.sharing;
        self.groups.clone_from(&other.groups);
        self.is_judged = other.is_judged;
        self.wide.0.take();
    }
}

impl Receiver {
    pub(super) fn new(session: SessionId, grant: Grant) -> Self {
        Self {
            session,
            qos: grant.qos,
            retain_as_published: grant.retain_as_published,
            no_local_some: grant.no_local,
            is_denied: false,
            identifiers: grant.identifier.into_iter().collect(),
        }
    }

    /// Takes in one more matching subscription of the same session.
    pub(super) fn merge(&mut self, grant: Grant) {
        self.qos = self.qos.max(grant.qos);
        self.retain_as_published |= grant.retain_as_published;
        self.no_local_some |= grant.no_local;
        self.identifiers.extend(grant.identifier);
    }
}

/// Makes one receiver of all matches of a session. A table over all sessions remembers where in the
/// route each one is, stamped with the number of the route, so that nothing is cleared in between:
/// merging costs the same for each match, be there one or a hundred thousand. 8 bytes a session.
#[derive(Debug, Default)]
struct Merger {
    stamps: Vec<Stamp>,
    round: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Stamp {
    round: u32,
    position: u32,
}

impl Merger {
    fn route(&mut self, index: &SubscriptionIndex, topic: TopicName<'_>, route: &mut Route) {
        self.next_round();
        route.clear();
        index.for_each_match(topic, |subscriber, grant| match subscriber {
            Subscriber::Session(session) => self.add(session, *grant, &mut route.receivers),
            Subscriber::Shard(ShardId(shard), want) => {
                debug_assert!(
                    u32::from(shard) < u64::BITS,
                    "the limits keep shards below 64"
                );
                let bit = 1_u64.wrapping_shl(u32::from(shard));
                route.shards |= bit;
                route.staying |= if want == Want::Passing { 0 } else { bit };
                route.sharing |= if want == Want::Sharing { bit } else { 0 };
            }
            Subscriber::Group(group) => route.groups.push(group),
        });
    }

    fn add(&mut self, session: SessionId, grant: Grant, receivers: &mut Receivers) {
        if self.stamps.len() <= session.index() {
            self.stamps.resize(session.index() + 1, Stamp::default());
        }
        let stamp = &mut self.stamps[session.index()];
        if stamp.round == self.round
            && let Some(receiver) = receivers.get_mut(stamp.position as usize)
        {
            receiver.merge(grant);
            return;
        }
        // Sessions are numbered with 32 bits, and each is in the list once.
        let position = u32::try_from(receivers.len()).unwrap_or(u32::MAX);
        *stamp = Stamp {
            round: self.round,
            position,
        };
        receivers.push(Receiver::new(session, grant));
    }

    fn next_round(&mut self) {
        self.round = self.round.checked_add(1).unwrap_or_else(|| {
            self.stamps.fill(Stamp::default());
            1
        });
    }
}

/// Routes kept. 200 bytes each with a receiver or two and a short topic, and at most 20 MiB if all
/// of them are as large as is kept.
const ROUTES_MAX: usize = 4096;
/// The places a cache begins with.
const ROUTES_MIN: usize = 64;
/// Places a topic may be in. With four, 500 topics in 4,096 places practically never displace each
/// other; with one, a tenth would.
const WAYS: usize = 4;
/// Receivers of a route that is worth keeping: beyond it making the route is little beside
/// delivering.
const ROUTE_RECEIVERS_MAX: usize = 128;
/// Length of a topic that needs no memory of its own.
const TOPIC_INLINE: usize = 36;
/// Length of a topic that is worth keeping.
const TOPIC_BYTES_MAX: usize = 512;

const _: () = assert!(ROUTES_MAX.is_power_of_two() && ROUTES_MIN.is_power_of_two());
const _: () = assert!(WAYS <= ROUTES_MIN && ROUTES_MIN <= ROUTES_MAX);

#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<Receiver>() == 32 && size_of::<Place>() == 192);

#[cfg(test)]
mod tests {
    use unbroken_mqtt_proto::TopicFilter;

    use super::*;

    const PLAIN: Grant = Grant {
        qos: QoS::AtMostOnce,
        no_local: false,
        retain_as_published: false,
        identifier: None,
    };

    fn subscribe(index: &mut SubscriptionIndex, filter: &str, session: u32) {
        let filter = TopicFilter::parse(filter).unwrap();
        index.insert(filter, Subscriber::Session(SessionId(session)), PLAIN);
    }

    fn sessions(cache: &mut RouteCache, index: &SubscriptionIndex, topic: &str) -> Vec<u32> {
        let route = cache.route(index, TopicName::parse(topic).unwrap());
        route
            .receivers
            .iter()
            .map(|receiver| receiver.session.0)
            .collect()
    }

    #[test]
    fn a_route_is_made_anew_when_the_index_has_changed() {
        let mut index = SubscriptionIndex::new();
        let mut cache = RouteCache::default();
        assert!(sessions(&mut cache, &index, "a").is_empty());
        subscribe(&mut index, "a", 1);
        assert_eq!(sessions(&mut cache, &index, "a"), [1]);
        index.remove(
            TopicFilter::parse("a").unwrap(),
            Subscriber::Session(SessionId(1)),
        );
        assert!(sessions(&mut cache, &index, "a").is_empty());
    }

    #[test]
    fn the_cache_grows_with_the_topics_in_use_and_no_further() {
        let mut index = SubscriptionIndex::new();
        let mut cache = RouteCache::default();
        for n in 0..500 {
            subscribe(&mut index, &format!("pair/{n}"), n);
        }
        // The hash is another one in each run: now and then five of ten topics meet in one set.
        for (topics, most) in [
            (10, 2 * ROUTES_MIN),
            (500, ROUTES_MAX),
            (20_000, ROUTES_MAX),
        ] {
            for n in 0..topics {
                let expect: &[u32] = if n < 500 { &[n] } else { &[] };
                assert_eq!(sessions(&mut cache, &index, &format!("pair/{n}")), expect);
            }
            assert!(
                cache.places.len() <= most,
                "{} for {topics}",
                cache.places.len()
            );
        }
        assert_eq!(cache.places.len(), cache.tags.len());
    }

    #[test]
    fn what_is_not_worth_keeping_is_not_kept() {
        let mut index = SubscriptionIndex::new();
        let mut cache = RouteCache::default();
        let many = u32::try_from(ROUTE_RECEIVERS_MAX).unwrap() + 1;
        for n in 0..many {
            subscribe(&mut index, "many", n);
        }
        subscribe(&mut index, "+", 0);
        assert_eq!(sessions(&mut cache, &index, "many").len(), many as usize);
        assert_eq!(sessions(&mut cache, &index, &"long".repeat(1_000)), [0]);
        assert!(cache.places.is_empty());
    }

    #[test]
    fn a_route_number_that_wraps_mixes_up_nothing() {
        let mut index = SubscriptionIndex::new();
        let mut cache = RouteCache::default();
        for session in 0..3 {
            subscribe(&mut index, "a/+", session);
            subscribe(&mut index, "+/b", session);
        }
        cache.merger.round = u32::MAX - 2;
        for n in 0..5 {
            assert_eq!(sessions(&mut cache, &index, &format!("a/{n}")), [0, 1, 2]);
            assert_eq!(sessions(&mut cache, &index, &format!("{n}/b")), [0, 1, 2]);
        }
        assert_eq!(sessions(&mut cache, &index, "a/b"), [0, 1, 2]);
    }
}
