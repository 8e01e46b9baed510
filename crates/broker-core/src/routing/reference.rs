//! The index and the cache beside their reference model: a list of filters, each asked in turn.
//!
//! Filters and topics come from a small alphabet with empty levels, `$`, `+` and `#`, so that they
//! overlap, share nodes and differ in one level only.

use std::collections::HashMap;
use std::num::NonZeroU32;

use unbroken_mqtt_proto::{QoS, TopicFilter, TopicName};

use super::cache::Route;
use super::{Grant, RouteCache, Subscriber, SubscriptionIndex};
use crate::filter_size::FilterSize;
use crate::ids::{GroupId, SessionId, ShardId, Want};
use crate::limits::FREE_LEVELS;

/// Small, fast, and the same everywhere (xorshift64).
struct Dice(u64);

impl Dice {
    fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    fn below(&mut self, limit: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        u32::try_from((self.0 >> 33) % u64::from(limit)).unwrap()
    }

    fn pick<'a>(&mut self, words: &[&'a str]) -> &'a str {
        words[self.below(u32::try_from(words.len()).unwrap()) as usize]
    }

    /// One to five levels; the caller parses, and throws again if that fails.
    fn levels(&mut self, words: &[&str]) -> String {
        let mut text = self.pick(words).to_owned();
        for _ in 0..self.below(5) {
            text.push('/');
            text.push_str(self.pick(words));
        }
        text
    }

    fn topic(&mut self) -> String {
        loop {
            let text = self.levels(&["a", "b", "", "aa", "$", "$a", "é"]);
            if TopicName::parse(&text).is_ok() {
                return text;
            }
        }
    }

    fn filter(&mut self) -> String {
        loop {
            let text = self.levels(&["a", "b", "", "aa", "$", "$a", "é", "+", "+", "+", "#", "#"]);
            if TopicFilter::parse(&text).is_ok() {
                return text;
            }
        }
    }

    fn subscriber(&mut self) -> Subscriber {
        match self.below(10) {
            0 => {
                let shard = ShardId(u8::try_from(self.below(64)).unwrap());
                let wants = [Want::Passing, Want::Staying, Want::Sharing];
                Subscriber::Shard(shard, wants[self.below(3) as usize])
            }
            1 => Subscriber::Group(GroupId(self.below(20))),
            _ => Subscriber::Session(SessionId(self.below(12))),
        }
    }

    fn grant(&mut self) -> Grant {
        Grant {
            qos: QoS::try_from(u8::try_from(self.below(3)).unwrap()).unwrap(),
            no_local: self.below(4) == 0,
            retain_as_published: self.below(2) == 0,
            identifier: NonZeroU32::new(self.below(4)),
        }
    }
}

/// What the index is to agree with.
#[derive(Default)]
struct Naive {
    subscriptions: Vec<(String, Subscriber, Grant)>,
}

impl Naive {
    fn insert(&mut self, filter: &str, subscriber: Subscriber, grant: Grant) -> Option<Grant> {
        let replaced = self.remove(filter, subscriber);
        self.subscriptions
            .push((filter.to_owned(), subscriber, grant));
        replaced
    }

    fn remove(&mut self, filter: &str, subscriber: Subscriber) -> Option<Grant> {
        let at = self
            .subscriptions
            .iter()
            .position(|(f, s, _)| f == filter && *s == subscriber)?;
        Some(self.subscriptions.swap_remove(at).2)
    }

    fn matches(&self, topic: TopicName<'_>) -> Vec<(Subscriber, Grant)> {
        self.subscriptions
            .iter()
            .filter(|(filter, ..)| TopicFilter::parse(filter).unwrap().matches(topic))
            .map(|(_, subscriber, grant)| (*subscriber, *grant))
            .collect()
    }
}

fn index_matches(index: &SubscriptionIndex, topic: TopicName<'_>) -> Vec<(Subscriber, Grant)> {
    let mut matches = Vec::new();
    index.for_each_match(topic, |subscriber, grant| {
        matches.push((subscriber, *grant));
    });
    matches
}

fn sorted(mut matches: Vec<(Subscriber, Grant)>) -> Vec<(Subscriber, Grant)> {
    matches.sort_by_key(|(subscriber, grant)| {
        (
            *subscriber,
            grant.identifier,
            grant.qos,
            grant.no_local,
            grant.retain_as_published,
        )
    });
    matches
}

/// Merges as a route does, with a hash map. `identifiers` are the sum of all, to compare sets with.
fn check_route(route: &Route, matches: &[(Subscriber, Grant)], context: &str) {
    let mut sessions: HashMap<SessionId, Vec<Grant>> = HashMap::new();
    let (mut shards, mut staying, mut sharing) = (0, 0, 0);
    let mut groups = Vec::new();
    for (subscriber, grant) in matches {
        match *subscriber {
            Subscriber::Session(session) => sessions.entry(session).or_default().push(*grant),
            Subscriber::Shard(shard, want) => {
                shards |= 1_u64 << shard.0;
                staying |= u64::from(want != Want::Passing) << shard.0;
                sharing |= u64::from(want == Want::Sharing) << shard.0;
            }
            Subscriber::Group(group) => groups.push(group),
        }
    }
    assert_eq!(route.shards, shards, "{context}");
    assert_eq!(route.staying, staying, "{context}");
    assert_eq!(route.sharing, sharing, "{context}");
    let mut route_groups = route.groups.to_vec();
    route_groups.sort_unstable();
    groups.sort_unstable();
    assert_eq!(route_groups, groups, "{context}");
    assert_eq!(
        route.receivers.len(),
        sessions.len(),
        "each session once: {context}"
    );
    for receiver in &route.receivers {
        let grants = &sessions[&receiver.session];
        assert_eq!(
            Some(receiver.qos),
            grants.iter().map(|g| g.qos).max(),
            "{context}"
        );
        let as_published = grants.iter().any(|g| g.retain_as_published);
        assert_eq!(receiver.retain_as_published, as_published, "{context}");
        assert_eq!(
            receiver.no_local_some,
            grants.iter().any(|g| g.no_local),
            "{context}"
        );
        let mut mine: Vec<_> = receiver.identifiers.to_vec();
        let mut theirs: Vec<_> = grants.iter().filter_map(|g| g.identifier).collect();
        mine.sort_unstable();
        theirs.sort_unstable();
        assert_eq!(mine, theirs, "{context}");
    }
}

// [MQTT-4.7.1-1] [MQTT-4.7.1-2] [MQTT-4.7.2-1] [MQTT-4.7.3-4] [MQTT-3.3.4-2..5] [MQTT-3.8.4-3]
#[test]
fn the_index_agrees_with_a_list_of_filters() {
    let mut cases = 0;
    for seed in 0..CASES_SEEDS {
        let mut dice = Dice::new(seed);
        let mut index = SubscriptionIndex::new();
        let mut naive = Naive::default();
        let mut cache = RouteCache::default();
        // Some runs hold a handful of subscriptions, some a few hundred.
        let wanted = 1 << (seed % 9);
        for step in 0..400 {
            let context = || format!("seed {seed}, step {step}");
            let before = index.generation();
            if naive.subscriptions.len() < wanted || dice.below(2) == 0 {
                let (filter, subscriber, grant) = (dice.filter(), dice.subscriber(), dice.grant());
                let parsed = TopicFilter::parse(&filter).unwrap();
                let replaced = index.insert(parsed, subscriber, grant);
                assert_eq!(
                    replaced,
                    naive.insert(&filter, subscriber, grant),
                    "{}",
                    context()
                );
                assert_ne!(index.generation(), before, "{}", context());
            } else if dice.below(4) == 0 {
                // Probably not there.
                let (filter, subscriber) = (dice.filter(), dice.subscriber());
                let parsed = TopicFilter::parse(&filter).unwrap();
                let removed = index.remove(parsed, subscriber);
                assert_eq!(removed, naive.remove(&filter, subscriber), "{}", context());
            } else {
                let at = dice.below(u32::try_from(naive.subscriptions.len()).unwrap());
                let (filter, subscriber, grant) = naive.subscriptions[at as usize].clone();
                let parsed = TopicFilter::parse(&filter).unwrap();
                assert_eq!(
                    index.remove(parsed, subscriber),
                    Some(grant),
                    "{}",
                    context()
                );
                naive.remove(&filter, subscriber);
                assert_ne!(index.generation(), before, "{}", context());
            }

            let text = dice.topic();
            let topic = TopicName::parse(&text).unwrap();
            let context = || format!("{}, topic {text:?}", context());
            let expected = naive.matches(topic);
            cases += naive.subscriptions.len();
            let found = index_matches(&index, topic);
            assert_eq!(sorted(found), sorted(expected.clone()), "{}", context());
            check_route(cache.route(&index, topic), &expected, &context());
            // The second time from the cache.
            check_route(cache.route(&index, topic), &expected, &context());

            let own = SessionId(dice.below(12));
            let left: Vec<_> = expected
                .iter()
                .filter(|(s, grant)| *s == Subscriber::Session(own) && !grant.no_local)
                .copied()
                .collect();
            let route = Route {
                receivers: index.receiver_of_own(topic, own).into_iter().collect(),
                ..Route::default()
            };
            check_route(&route, &left, &context());
        }
        for (filter, subscriber, grant) in naive.subscriptions {
            let filter = TopicFilter::parse(&filter).unwrap();
            assert_eq!(index.remove(filter, subscriber), Some(grant), "seed {seed}");
        }
        assert_eq!(
            index.parts(),
            (1, 0, 0),
            "something stays behind: seed {seed}"
        );
    }
    assert!(cases >= 1_000_000, "only {cases} pairs of filter and topic");
}

const CASES_SEEDS: u64 = 120;

fn topic(text: &str) -> TopicName<'_> {
    TopicName::parse(text).unwrap()
}

fn filter(text: &str) -> TopicFilter<'_> {
    TopicFilter::parse(text).unwrap()
}

const PLAIN: Grant = Grant {
    qos: QoS::AtMostOnce,
    no_local: false,
    retain_as_published: false,
    identifier: None,
};

/// An index with one session, numbered from 0, for each filter.
fn index_of(filters: &[&str]) -> SubscriptionIndex {
    let mut index = SubscriptionIndex::new();
    for (number, text) in (0..).zip(filters) {
        index.insert(filter(text), Subscriber::Session(SessionId(number)), PLAIN);
    }
    index
}

#[test]
fn wildcards_match_what_the_standard_says() {
    fn check(filters: &[&str], topic_text: &str, expect: &[u32]) {
        let index = index_of(filters);
        let mut sessions: Vec<_> = index_matches(&index, topic(topic_text))
            .into_iter()
            .map(|(subscriber, _)| match subscriber {
                Subscriber::Session(session) => session.0,
                other => unreachable!("{other:?} did not subscribe"),
            })
            .collect();
        sessions.sort_unstable();
        assert_eq!(sessions, expect, "{filters:?} on {topic_text}");
    }
    let sport = [
        "sport/tennis/player1/#",
        "sport/#",
        "sport/+",
        "sport/tennis/+",
        "+",
        "#",
        "+/+",
    ];
    check(&sport, "sport/tennis/player1", &[0, 1, 3, 5]);
    check(&sport, "sport/tennis/player1/score/wimbledon", &[0, 1, 5]);
    check(&sport, "sport", &[1, 4, 5]);
    check(&sport, "sport/", &[1, 2, 5, 6]);
    check(
        &["+/+", "/+", "+", "/finance", "finance"],
        "/finance",
        &[0, 1, 3],
    );
    // [MQTT-4.7.2-1]
    let dollar = [
        "#",
        "+/monitor/Clients",
        "$SYS/#",
        "$SYS/monitor/+",
        "+/#",
        "$SYS/monitor/Clients",
    ];
    check(&dollar, "$SYS/monitor/Clients", &[2, 3, 5]);
    check(&dollar, "a/$SYS", &[0, 4]);
    check(&["ACCOUNTS", "Accounts", "accounts"], "Accounts", &[1]);
    check(&["a//b", "a/+/b", "a/b"], "a//b", &[0, 1]);
}

#[test]
fn overlapping_subscriptions_make_one_receiver_with_all_identifiers_in_a_stable_order() {
    let session = Subscriber::Session(SessionId(7));
    let identifier = |n| Grant {
        identifier: NonZeroU32::new(n),
        ..PLAIN
    };
    let entries = [
        (
            "a/b",
            Grant {
                qos: QoS::AtLeastOnce,
                ..identifier(4)
            },
        ),
        (
            "a/+",
            Grant {
                qos: QoS::ExactlyOnce,
                no_local: true,
                ..identifier(3)
            },
        ),
        ("#", identifier(1)),
        (
            "a/#",
            Grant {
                retain_as_published: true,
                ..identifier(2)
            },
        ),
        ("+/b", PLAIN),
    ];
    let mut orders = Vec::new();
    for rotation in 0..entries.len() {
        let mut index = SubscriptionIndex::new();
        for (text, grant) in entries.iter().cycle().skip(rotation).take(entries.len()) {
            index.insert(filter(text), session, *grant);
        }
        let mut cache = RouteCache::default();
        let [receiver] = cache.route(&index, topic("a/b")).receivers.as_slice() else {
            panic!("one session, one receiver");
        };
        assert_eq!(receiver.qos, QoS::ExactlyOnce);
        assert!(receiver.retain_as_published && receiver.no_local_some);
        orders.push(receiver.identifiers.clone());

        let own = index.receiver_of_own(topic("a/b"), SessionId(7)).unwrap();
        assert_eq!(own.qos, QoS::AtLeastOnce);
        assert_eq!(own.identifiers.len(), 3);
        assert!(!own.no_local_some);
    }
    assert!(
        orders
            .iter()
            .all(|order| order == &orders[0] && order.len() == 4),
        "{orders:?}"
    );
}

#[test]
fn a_fan_out_of_a_hundred_thousand_is_merged_and_kept_on_the_bench() {
    let mut index = SubscriptionIndex::new();
    for n in 0..100_000 {
        index.insert(filter("news/+"), Subscriber::Session(SessionId(n)), PLAIN);
        if n % 2 == 0 {
            index.insert(filter("news/#"), Subscriber::Session(SessionId(n)), PLAIN);
        }
    }
    index.insert(
        filter("other"),
        Subscriber::Shard(ShardId(63), Want::Passing),
        PLAIN,
    );
    let mut cache = RouteCache::default();
    assert_eq!(
        cache.route(&index, topic("news/1")).receivers.len(),
        100_000
    );
    let other = cache.route(&index, topic("other"));
    assert_eq!((other.receivers.len(), other.shards), (0, 1 << 63));
    let nobody = cache.route(&index, topic("nobody"));
    assert_eq!((nobody.receivers.len(), nobody.shards), (0, 0));
    assert_eq!(
        cache.route(&index, topic("news/1")).receivers.len(),
        100_000
    );
    for n in 0..100_000 {
        index
            .remove(filter("news/+"), Subscriber::Session(SessionId(n)))
            .unwrap();
    }
    assert_eq!(cache.route(&index, topic("news/1")).receivers.len(), 50_000);
}

#[test]
fn more_topics_than_places_are_still_routed_right() {
    let index = index_of(&["t/+", "t/7", "#"]);
    let mut cache = RouteCache::default();
    for round in 0..2 {
        for n in 0..20_000 {
            let expect = 2 + usize::from(n == 7);
            let text = format!("t/{n}");
            let route = cache.route(&index, topic(&text));
            assert_eq!(route.receivers.len(), expect, "round {round}, {text}");
        }
    }
}

#[test]
fn a_very_deep_topic_or_filter_needs_no_stack() {
    let deep = "a/".repeat(30_000);
    let mut index = index_of(&["#", "a/+/#"]);
    assert_eq!(index_matches(&index, topic(&deep)).len(), 2);
    let session = Subscriber::Session(SessionId(9));
    index.insert(filter(&deep), session, PLAIN);
    assert_eq!(index_matches(&index, topic(&deep)).len(), 3);
    assert_eq!(index.remove(filter(&deep), session), Some(PLAIN));
    assert_eq!(index.parts(), (3, 1, 1));
}

/// Most of these levels match, so that a topic goes many ways.
fn crowded(dice: &mut Dice) -> String {
    let levels = 1 + dice.below(16);
    let level = |_| dice.pick(&["a", "a", "+", "+", "b"]);
    (0..levels).map(level).collect::<Vec<_>>().join("/")
}

#[test]
fn a_topic_visits_no_more_than_the_free_levels_one_way_and_the_deep_levels() {
    for seed in 1..=40 {
        let mut dice = Dice::new(seed);
        let (mut index, mut naive) = (SubscriptionIndex::new(), Naive::default());
        let mut size = FilterSize::default();
        for number in 0..400 {
            let text = crowded(&mut dice);
            let session = Subscriber::Session(SessionId(number));
            index.insert(filter(&text), session, PLAIN);
            naive.insert(&text, session, PLAIN);
            size.add(FilterSize::of_text(&text));
        }
        for levels in 1..=18 {
            let text = vec!["a"; levels].join("/");
            let before = index.visited();
            let found = index_matches(&index, topic(&text));
            let visited = index.visited() - before;
            let free = (1 << (FREE_LEVELS + 1)) - 1;
            let most = free + levels as u64 + u64::from(size.deep);
            assert!(
                visited <= most,
                "seed {seed}: {visited} of {most} for {text}"
            );
            assert_eq!(sorted(found), sorted(naive.matches(topic(&text))), "{text}");
        }
    }
}
