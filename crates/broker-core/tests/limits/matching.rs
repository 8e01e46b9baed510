//! What filters may take of the subscription tree, and what matching may take of a turn.

use std::time::Duration;

use unbroken_broker_core::Limits;
use unbroken_mqtt_proto::{Packet, QoS, SubscriptionOptions, Version};

use super::broker;
use super::shard_bus::{
    Broker, Client, join, publish, retained, send_subscribe, subscribe, unsubscribe,
};

const TURN: Duration = Duration::from_nanos(1);

/// All filters whose first so many levels are `a` or `+`, with this behind.
fn doubling(free: usize, behind: &str) -> Vec<String> {
    let filter = |number: usize| {
        let level = |at| if number >> at & 1 == 1 { "+" } else { "a" };
        let levels: Vec<_> = (0..free).map(level).collect();
        format!("{}{behind}", levels.join("/"))
    };
    (0..1 << free).map(filter).collect()
}

/// Subscribes to each, and answers how many were granted.
fn subscribe_all(broker: &mut Broker, client: Client, filters: &[String]) -> usize {
    let options = SubscriptionOptions::default();
    let mut granted = 0;
    for some in filters.chunks(100) {
        let list: Vec<_> = some.iter().map(|filter| (&**filter, options)).collect();
        send_subscribe(broker, client, &list);
        broker.advance(TURN);
        let answers = broker.take(client).join(" ");
        granted += answers.matches("00").count();
    }
    granted
}

#[test]
fn the_filters_of_a_session_have_so_many_levels_at_most() {
    let mut broker = broker(|limits| limits.filter_levels_per_session_max = 5);
    let client = join(&mut broker, "a");
    let options = SubscriptionOptions::default();
    send_subscribe(&mut broker, client, &[("a/b/c", options)]);
    send_subscribe(&mut broker, client, &[("d/e", options)]);
    send_subscribe(&mut broker, client, &[("f", options), ("a/b/c", options)]);
    assert_eq!(
        broker.take(client),
        ["SUBACK #1 [00]", "SUBACK #1 [00]", "SUBACK #1 [97, 00]"]
    );
    unsubscribe(&mut broker, client, "d/e");
    broker.take(client);
    send_subscribe(&mut broker, client, &[("f", options), ("g", options)]);
    assert_eq!(broker.take(client), ["SUBACK #1 [00, 00]"]);
}

#[test]
fn one_subscribe_has_so_many_levels_though_all_are_the_same_filter() {
    let mut broker = broker(|limits| limits.filter_levels_per_session_max = 5);
    let client = join(&mut broker, "a");
    let same = ("a/b", SubscriptionOptions::default());
    send_subscribe(&mut broker, client, &[same; 4]);
    assert_eq!(broker.take(client), ["SUBACK #1 [00, 00, 97, 97]"]);
}

#[test]
fn levels_of_all_sessions_have_a_limit_and_are_given_back() {
    for change in [
        (|limits| limits.filter_levels_max = 12) as fn(&mut Limits),
        |limits| limits.deep_levels_max = 1,
    ] {
        let mut broker = broker(change);
        let deep = "+/2/3/4/5/6/7/8/9/10/11";
        let first = join(&mut broker, "a");
        subscribe(&mut broker, first, deep, QoS::AtMostOnce);
        assert_eq!(broker.take(first), ["SUBACK #1 [00]"]);
        let second = join(&mut broker, "b");
        subscribe(&mut broker, second, deep, QoS::AtMostOnce);
        assert_eq!(broker.take(second), ["SUBACK #1 [97]"]);
        subscribe(&mut broker, second, "1", QoS::AtMostOnce);
        assert_eq!(broker.take(second), ["SUBACK #1 [00]"]);
        broker.cut(first);
        subscribe(&mut broker, second, deep, QoS::AtMostOnce);
        assert_eq!(broker.take(second), ["SUBACK #1 [00]"]);
    }
}

#[test]
fn one_session_has_an_eighth_of_the_deep_levels_shared_subscriptions_among_them() {
    let mut broker = broker(|limits| limits.deep_levels_max = 16);
    let behind = |group: &str, last: u32| format!("{group}+/2/3/4/5/6/7/8/9/10/{last}");
    let client = join(&mut broker, "a");
    let filters: Vec<_> = (0..2).map(|last| behind("$share/g/", last)).collect();
    assert_eq!(subscribe_all(&mut broker, client, &filters), 2);
    assert_eq!(subscribe_all(&mut broker, client, &[behind("", 7)]), 0);
    let plain = ["1/2/3/4/5/6/7/8/9/10/11/12/13".to_owned()];
    assert_eq!(subscribe_all(&mut broker, client, &plain), 1, "not deep");
    let other = join(&mut broker, "b");
    assert_eq!(subscribe_all(&mut broker, other, &[behind("", 7)]), 1);
}

#[test]
fn filters_that_share_every_beginning_are_refused_before_a_walk_takes_long() {
    let mut broker = Broker::new(1);
    let client = join(&mut broker, "attacker");
    let behind = format!("{}/z", "/a".repeat(186));
    let granted = subscribe_all(&mut broker, client, &doubling(13, &behind));
    assert!((1..=22).contains(&granted), "{granted} of 190 deep levels");
}

/// A broker in which a topic of 13 levels visits some 16,000 nodes, and `heavy` clients.
fn prepared(heavy: usize) -> (Broker, Vec<Client>) {
    let mut broker = broker(|limits| {
        limits.deep_levels_max = 1_000_000;
        limits.filter_levels_per_session_max = 1_000_000;
    });
    let attacker = join(&mut broker, "attacker");
    let filters = doubling(13, "/z");
    assert_eq!(
        subscribe_all(&mut broker, attacker, &filters),
        filters.len()
    );
    let name = |number| format!("heavy-{number}");
    let clients: Vec<_> = (0..heavy).map(|at| join(&mut broker, &name(at))).collect();
    broker.advance(TURN);
    (broker, clients)
}

fn deep(last: &str) -> String {
    format!("{}{last}", "a/".repeat(13))
}

fn bytes(packets: &[Packet<'_>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for packet in packets {
        packet.encode(Version::V5, &mut bytes).unwrap();
    }
    bytes
}

#[test]
fn a_connection_that_matches_much_goes_on_in_later_turns_in_its_order() {
    let (mut broker, clients) = prepared(1);
    let client = clients[0];
    let topics = ["p", "q", "r"].map(deep);
    let sent = (1..)
        .zip(&topics)
        .map(|(id, topic)| publish(topic, "", QoS::AtLeastOnce, id));
    let sent = sent
        .chain([publish("t", "", QoS::AtLeastOnce, 4)])
        .collect::<Vec<_>>();
    broker.send_bytes(client, &bytes(&sent));
    for id in 1..=3 {
        assert_eq!(broker.take(client), [format!("PUBACK #{id} 10")]);
        assert!(!broker.wants_input(client), "more waits");
        broker.advance(TURN);
    }
    assert_eq!(broker.take(client), ["PUBACK #4 10"]);
    assert!(broker.wants_input(client));
}

#[test]
fn topics_of_few_levels_and_known_ones_do_not_wait_for_the_deep_topics_of_others() {
    let (mut broker, clients) = prepared(4);
    let topics = ["p", "q", "r"].map(deep);
    for (client, topic) in clients.iter().zip(&topics) {
        broker.send(*client, publish(topic, "", QoS::AtLeastOnce, 1));
    }
    let answered = |broker: &mut Broker| {
        let answers = clients.iter().map(|client| broker.take(*client).len());
        answers.collect::<Vec<_>>()
    };
    assert_eq!(answered(&mut broker), [1, 0, 0, 0], "one walk a turn");
    broker.send(clients[3], publish("a/a/light", "", QoS::AtLeastOnce, 1));
    broker.send(clients[3], publish(&topics[0], "", QoS::AtLeastOnce, 2));
    assert_eq!(answered(&mut broker), [0, 0, 0, 2]);
    let mut all = 0;
    while all < 2 {
        broker.advance(TURN);
        let now = answered(&mut broker);
        assert!(now[1] >= now[2], "the first in line is the first served");
        all += now.iter().sum::<usize>();
    }
}

#[test]
fn a_connection_that_ends_in_line_is_forgotten() {
    let (mut broker, clients) = prepared(2);
    let topics = ["p", "q"].map(deep);
    for (client, topic) in clients.iter().zip(&topics) {
        broker.send(*client, publish(topic, "", QoS::AtLeastOnce, 1));
    }
    broker.cut(clients[1]);
    broker.advance(TURN);
    assert!(broker.wants_input(clients[0]));
}

#[test]
fn queries_for_retained_messages_share_a_turn() {
    let mut broker = Broker::new(1);
    let publisher = join(&mut broker, "p");
    for number in 0..10_000 {
        let topic = format!("site/{number}/state");
        broker.send(publisher, retained(&topic, "x", QoS::AtMostOnce, 0));
    }
    broker.send(publisher, retained("z/z/found", "x", QoS::AtMostOnce, 0));
    let name = |number| format!("s{number}");
    let clients: Vec<_> = (0..5)
        .map(|number| join(&mut broker, &name(number)))
        .collect();
    broker.advance(TURN);
    for client in &clients {
        subscribe(&mut broker, *client, "+/+/found", QoS::AtMostOnce);
    }
    let mut found = vec![0; clients.len()];
    let mut turns = 0;
    while found.iter().any(|found| *found < 2) {
        for (client, found) in clients.iter().zip(&mut found) {
            *found += broker.take(*client).len();
        }
        turns += 1;
        assert!(turns < 20, "{found:?}");
        broker.advance(TURN);
    }
    assert!((3..=5).contains(&turns), "{turns} turns for 50,000 topics");
}
