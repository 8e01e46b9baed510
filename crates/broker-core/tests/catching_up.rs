//! Order of what comes to a session that reads from the disk what came before, while its
//! subscriptions change. The simulator found the first of these.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod shard_bus;

use shard_bus::{Broker, Client, join, publish, retained, stay, subscribe, unsubscribe};
use unbroken_broker_core::{DropReason, Limits, Settings, Shard};
use unbroken_mqtt_proto::QoS;

/// Some of these are on the other shard of two.
const PUBLISHERS: [&str; 6] = ["p0", "p1", "p2", "p3", "p4", "p5"];

fn durable() -> Broker {
    let mut settings = Settings::default();
    settings.durable = true;
    let mut limits = Limits::default();
    limits.queue_messages_max = 10_000;
    Broker::with(2, limits, settings)
}

/// Each shard sends to the other what matches, and has it on disk, whatever it knows of a session
/// that subscribes then.
fn others_stay(broker: &mut Broker) {
    for other in PUBLISHERS {
        let other = stay(broker, &format!("o{other}"), false);
        broker.stored();
        subscribe(broker, other, "a", QoS::AtLeastOnce);
        broker.stored();
    }
}

/// A client whose session stays comes back, and "1" waits for it on disk.
fn comes_back(broker: &mut Broker, publisher: Client) -> Client {
    let client = stay(broker, "s", false);
    broker.stored();
    subscribe(broker, client, "a", QoS::AtLeastOnce);
    broker.stored();
    broker.cut(client);
    broker.send(publisher, publish("a", "1", QoS::AtLeastOnce, 1));
    broker.stored();
    broker.hold_reads = true;
    let client = stay(broker, "s", false);
    broker.stored();
    assert_eq!(broker.take(client), ["CONNACK 1 00"]);
    client
}

/// What the client was sent, when everything has been read and is stored.
fn published_to(broker: &mut Broker, client: Client) -> Vec<String> {
    broker.stored();
    broker.hold_reads = false;
    broker.stored();
    let packets = broker.take(client).into_iter();
    packets
        .filter(|packet| packet.starts_with("PUBLISH"))
        .collect()
}

// [MQTT-4.6.0-5] [MQTT-4.6.0-6]
#[test]
fn what_comes_by_a_subscription_before_its_suback_does_not_overtake_what_waits_on_disk() {
    for name in PUBLISHERS {
        let mut broker = durable();
        others_stay(&mut broker);
        let publisher = join(&mut broker, name);
        let client = comes_back(&mut broker, publisher);
        broker.hold_messages = true;
        unsubscribe(&mut broker, client, "a");
        subscribe(&mut broker, client, "+", QoS::AtLeastOnce);
        broker.send(publisher, publish("a", "2", QoS::AtLeastOnce, 2));
        broker.hold_messages = false;
        broker.deliver_messages();
        broker.send(publisher, publish("a", "3", QoS::AtLeastOnce, 3));
        let expected = [
            "PUBLISH a \"1\" q1 #1",
            "PUBLISH a \"2\" q1 #2",
            "PUBLISH a \"3\" q1 #3",
        ];
        assert_eq!(published_to(&mut broker, client), expected, "from {name}");
    }
}

// [MQTT-4.6.0-5] [MQTT-3.3.1-9]
#[test]
fn what_is_on_no_disk_before_suback_comes_behind_what_waits_there_or_as_retained() {
    for name in PUBLISHERS {
        let mut broker = durable();
        // Each shard sends to the other what matches, and does not have it on disk for these.
        for other in PUBLISHERS {
            let other = join(&mut broker, &format!("o{other}"));
            subscribe(&mut broker, other, "a", QoS::AtLeastOnce);
        }
        let publisher = join(&mut broker, name);
        let client = comes_back(&mut broker, publisher);
        unsubscribe(&mut broker, client, "a");
        broker.hold_messages = true;
        subscribe(&mut broker, client, "a", QoS::AtLeastOnce);
        broker.send(publisher, retained("a", "2", QoS::AtLeastOnce, 2));
        broker.hold_messages = false;
        broker.deliver_messages();
        let received = published_to(&mut broker, client);
        assert_eq!(received[0], "PUBLISH a \"1\" q1 #1", "from {name}");
        assert!(received[1].starts_with("PUBLISH a \"2\" q1"), "from {name}");
        assert_eq!(received.len(), 2, "from {name}: {received:?}");
    }
}

#[test]
fn what_a_session_that_is_behind_gets_before_suback_has_a_limit_and_a_name() {
    let dropped = PUBLISHERS.map(|name| {
        let mut broker = durable();
        others_stay(&mut broker);
        let publisher = join(&mut broker, name);
        let client = comes_back(&mut broker, publisher);
        unsubscribe(&mut broker, client, "a");
        broker.hold_messages = true;
        subscribe(&mut broker, client, "+", QoS::AtLeastOnce);
        for id in 1..=4_100 {
            broker.send(publisher, publish("a", "x", QoS::AtLeastOnce, id));
            broker.stored(); // so that it is acknowledged, and more may come
        }
        broker.hold_messages = false;
        broker.deliver_messages();
        let full = |shard: &Shard| shard.stats().dropped[DropReason::QueueFull as usize];
        broker.shards.iter().map(full).sum::<u64>()
    });
    // Those from its own shard are none too many.
    assert_eq!(dropped.iter().min(), Some(&0));
    assert_eq!(dropped.iter().max(), Some(&4));
}
