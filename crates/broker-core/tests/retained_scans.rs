//! What is retained reaches a subscriber whole, however slow it is and however much there is, and
//! nobody else waits for it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod shard_bus;

use std::collections::BTreeSet;
use std::time::Duration;

use shard_bus::{Broker, connect, join, publish, retained, send_subscribe, stay, subscribe};
use unbroken_broker_core::{DropReason, Limits, Settings};
use unbroken_mqtt_proto::{
    Ack, Connect, Packet, PacketId, Property, PropertyBuf, QoS, SubscriptionOptions, Version,
};

fn broker(shards: u8, change: impl FnOnce(&mut Limits)) -> Broker {
    let mut limits = Limits::default();
    change(&mut limits);
    Broker::with(shards, limits, Settings::default())
}

fn keep(broker: &mut Broker, count: usize, payload: &str) {
    let publisher = join(broker, "publisher");
    for n in 0..count {
        let topic = format!("r/{n:05}");
        broker.send(publisher, retained(&topic, payload, QoS::AtLeastOnce, 1));
    }
}

fn dropped(broker: &Broker) -> u64 {
    broker
        .shards
        .iter()
        .map(|shard| shard.stats().dropped_total())
        .sum()
}

#[test]
fn more_than_the_output_holds_reaches_a_subscriber_that_reads() {
    for shards in [1, 3] {
        let mut broker = broker(shards, |limits| limits.output_bytes_max = 4_000);
        keep(&mut broker, 300, &"x".repeat(1_000));
        let client = join(&mut broker, "client");
        subscribe(&mut broker, client, "r/#", QoS::AtMostOnce);
        for _ in 0..300 {
            broker.advance(Duration::from_micros(1));
        }
        assert_eq!(broker.take(client).len(), 1 + 300, "{shards} shards");
        assert_eq!(dropped(&broker), 0);
    }
}

#[test]
fn more_than_the_queue_holds_reaches_a_subscriber_that_answers_one_by_one() {
    for shards in [1, 3] {
        let mut broker = broker(shards, |limits| limits.queue_messages_max = 2);
        keep(&mut broker, 50, "x");
        let mut properties = PropertyBuf::new();
        properties.push(Property::ReceiveMaximum(1)).unwrap();
        let client = broker.open(Version::V5);
        let packet = Connect {
            properties: properties.as_properties(),
            ..connect("client")
        };
        broker.send(client, Packet::Connect(packet));
        subscribe(&mut broker, client, "r/#", QoS::AtLeastOnce);
        let mut got = broker.take(client).len() - 2;
        for _ in 0..200 {
            let id = PacketId::new(u16::try_from(got).unwrap()).unwrap();
            broker.send(client, Packet::PubAck(Ack::success(id)));
            broker.advance(Duration::from_micros(1));
            got += broker.take(client).len();
        }
        assert_eq!(got, 50, "{shards} shards");
        assert_eq!(dropped(&broker), 0);
    }
}

#[test]
fn a_long_scan_lets_others_have_their_turn() {
    let mut broker = Broker::new(1);
    keep(&mut broker, 5_000, "x");
    let client = join(&mut broker, "client");
    broker.hold_writes = true;
    subscribe(&mut broker, client, "r/#", QoS::AtMostOnce);
    let mut turns = 1;
    while broker.shards[0].stats().publishes_sent < 5_000 {
        let before = broker.shards[0].stats().publishes_sent;
        broker.advance(Duration::from_micros(1));
        let sent = broker.shards[0].stats().publishes_sent - before;
        assert!(sent <= 1_024, "{sent} messages in one turn");
        turns += 1;
        assert!(turns < 100, "the scan has stopped");
    }
    assert!(turns >= 5);
}

#[test]
fn the_same_filter_many_times_in_one_packet_is_bounded() {
    let mut broker = broker(1, |limits| limits.subscriptions_per_session_max = 100);
    keep(&mut broker, 1, "x");
    let client = join(&mut broker, "client");
    let list = vec![("r/#", SubscriptionOptions::default()); 1_000];
    send_subscribe(&mut broker, client, &list);
    for _ in 0..100 {
        broker.advance(Duration::from_micros(1));
    }
    let got = broker.take(client);
    assert_eq!(got[0].matches("97").count(), 900);
    assert_eq!(got.len(), 1 + 100);
    assert!(broker.is_open(client));
}

#[test]
fn a_full_store_still_takes_a_new_value_for_a_topic_it_has() {
    let mut broker = broker(1, |limits| limits.retained_messages_max = 3);
    let client = join(&mut broker, "client");
    for (topic, payload) in [("a", "1"), ("b", "1"), ("a", "2")] {
        broker.send(client, retained(topic, payload, QoS::AtMostOnce, 0));
    }
    subscribe(&mut broker, client, "a", QoS::AtMostOnce);
    assert_eq!(
        broker.take(client),
        ["SUBACK #1 [00]", "PUBLISH a \"2\" q0 retain"]
    );
    assert_eq!(dropped(&broker), 0);
}

#[test]
fn a_message_that_has_expired_is_not_handed_over() {
    let mut broker = Broker::new(1);
    let mut properties = PropertyBuf::new();
    properties.push(Property::MessageExpiryInterval(5)).unwrap();
    let (first, second) = (join(&mut broker, "m0"), join(&mut broker, "m1"));
    for member in [first, second] {
        subscribe(&mut broker, member, "$share/g/a", QoS::AtLeastOnce);
        broker.take(member);
    }
    let publisher = join(&mut broker, "p");
    for id in 1..=2 {
        let Packet::Publish(packet) = publish("a", "x", QoS::AtLeastOnce, id) else {
            unreachable!()
        };
        let properties = properties.as_properties();
        broker.send(
            publisher,
            Packet::Publish(unbroken_mqtt_proto::Publish {
                properties,
                ..packet
            }),
        );
    }
    broker.take(second);
    broker.advance(Duration::from_secs(6));
    broker.cut(first);
    assert_eq!(broker.take(second), Vec::<String>::new());
    let expired = broker.shards[0].stats().dropped[DropReason::Expired as usize];
    assert_eq!(expired, 1);
}

#[test]
fn what_waits_over_a_lost_connection_is_not_followed_by_an_older_retained_message() {
    let mut broker = broker(1, |limits| limits.inflight_max = 1);
    let publisher = join(&mut broker, "publisher");
    broker.send(publisher, retained("r", "old", QoS::AtLeastOnce, 1));
    let client = stay(&mut broker, "client", true);
    subscribe(&mut broker, client, "x", QoS::AtLeastOnce);
    // It fills the window, so that what is retained waits, and what is newer waits before that.
    broker.send(publisher, publish("x", "x", QoS::AtLeastOnce, 1));
    subscribe(&mut broker, client, "r", QoS::AtLeastOnce);
    broker.send(publisher, retained("r", "new", QoS::AtLeastOnce, 1));
    broker.cut(client);
    let client = stay(&mut broker, "client", false);
    let mut got = Vec::new();
    for id in 1..=4 {
        got.extend(broker.take_payloads(client));
        let ack = Ack::success(PacketId::new(id).unwrap());
        broker.send(client, Packet::PubAck(ack));
    }
    assert_eq!(got, [b"x".to_vec(), b"new".to_vec()]);
}

#[test]
fn a_live_message_that_a_slow_receiver_loses_does_not_stand_for_the_retained_one() {
    let mut broker = broker(1, |limits| limits.output_bytes_max = 4_000);
    keep(&mut broker, 300, &"x".repeat(1_000));
    let client = join(&mut broker, "client");
    let publisher = join(&mut broker, "other");
    broker.hold_writes = true;
    subscribe(&mut broker, client, "r/#", QoS::AtMostOnce);
    // What is retained fills half of the output, and what passes by the rest.
    let passing = "p".repeat(1_000);
    for _ in 0..4 {
        broker.send(publisher, publish("r/x", &passing, QoS::AtMostOnce, 0));
    }
    broker.send(publisher, retained("r/x", "new", QoS::AtMostOnce, 0));
    assert!(dropped(&broker) > 0);
    broker.release_writes();
    for _ in 0..300 {
        broker.advance(Duration::from_micros(1));
    }
    assert_eq!(broker.take_payloads(client).last().unwrap(), b"new");
}

#[test]
fn a_live_message_that_a_full_queue_loses_does_not_stand_for_the_retained_one() {
    let mut broker = broker(1, |limits| {
        limits.inflight_max = 1;
        limits.queue_messages_max = 1;
    });
    keep(&mut broker, 300, "x");
    let publisher = join(&mut broker, "other");
    let client = join(&mut broker, "client");
    // The first that is retained fills the window, and what passes by the queue.
    subscribe(&mut broker, client, "r/#", QoS::AtLeastOnce);
    broker.send(publisher, publish("r/x", "passing", QoS::AtLeastOnce, 1));
    broker.send(publisher, retained("r/x", "new", QoS::AtLeastOnce, 2));
    assert_eq!(dropped(&broker), 1);
    let mut got = Vec::new();
    for id in 1..=303 {
        got.extend(broker.take_payloads(client));
        let ack = Ack::success(PacketId::new(id).unwrap());
        broker.send(client, Packet::PubAck(ack));
        broker.advance(Duration::from_micros(1));
    }
    assert_eq!(got.len(), 302);
    assert_eq!(got.last().unwrap(), b"new");
}

#[test]
fn what_is_retained_when_a_client_comes_back_is_what_it_is_sent() {
    for shards in [1, 3] {
        let mut broker = broker(shards, |limits| limits.output_bytes_max = 4_000);
        keep(&mut broker, 30, &"x".repeat(1_000));
        let client = stay(&mut broker, "client", true);
        broker.hold_writes = true;
        subscribe(&mut broker, client, "r/#", QoS::AtMostOnce);
        broker.cut(client);
        broker.hold_writes = false;
        let publisher = join(&mut broker, "other");
        for n in 0..30 {
            let value = if n % 2 == 0 { "new" } else { "" };
            let topic = format!("r/{n:05}");
            broker.send(publisher, retained(&topic, value, QoS::AtLeastOnce, 1));
        }
        broker.send(publisher, retained("r/99999", "more", QoS::AtLeastOnce, 1));
        let client = stay(&mut broker, "client", false);
        for _ in 0..30 {
            broker.advance(Duration::from_micros(1));
        }
        let got = broker.take_publishes(client);
        let old = got.iter().filter(|got| got.payload.len() > 4).count();
        assert_eq!(old, 0, "{shards} shards");
        // Those that the lost connection took along are gone with it.
        let new = got.iter().filter(|got| got.payload == b"new").count();
        assert!((12..=15).contains(&new), "{new} of 15, {shards} shards");
        assert!(got.iter().any(|got| got.payload == b"more"));
        let mut topics: Vec<_> = got.iter().map(|got| &got.topic).collect();
        topics.sort();
        topics.dedup();
        assert_eq!(topics.len(), got.len(), "each once, {shards} shards");
    }
}

#[test]
fn what_was_found_before_an_absence_is_not_sent_after_it_whenever_it_arrives() {
    let mut carried = 0;
    while came_back_after(carried) {
        carried += 1;
    }
    assert!(carried > 2, "a question and an answer were among them");
}

/// A subscriber goes when so many messages between shards have arrived, and comes back. Answers
/// whether there were as many.
fn came_back_after(carried: usize) -> bool {
    let mut broker = Broker::new(2);
    keep(&mut broker, 20, "old");
    let publishers: Vec<_> = (0..8)
        .map(|n| join(&mut broker, &format!("p{n}")))
        .collect();
    let client = stay(&mut broker, "client", true);
    broker.hold_messages = true;
    subscribe(&mut broker, client, "r/#", QoS::AtMostOnce);
    let arrived = (0..carried).all(|_| broker.deliver_message());
    let mut topics = BTreeSet::new();
    for got in broker.take_publishes(client) {
        topics.insert(got.topic);
    }
    broker.cut(client);
    // Some of them are where the topic is: there it has its new value at once.
    for publisher in publishers {
        for n in 0..20 {
            let topic = format!("r/{n:05}");
            broker.send(publisher, retained(&topic, "new", QoS::AtMostOnce, 0));
        }
    }
    let client = stay(&mut broker, "client", false);
    broker.hold_messages = false;
    broker.deliver_messages();
    for got in broker.take_publishes(client) {
        assert_eq!(got.payload, b"new", "{} after {carried}", got.topic);
        topics.insert(got.topic);
    }
    assert_eq!(topics.len(), 20, "after {carried} messages");
    arrived
}
