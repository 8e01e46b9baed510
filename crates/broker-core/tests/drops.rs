//! What is not delivered is told, in time and by name, also where nothing happens afterwards.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod shard_bus;

use std::time::Duration;

use shard_bus::{Broker, join, publish, stay, subscribe};
use unbroken_broker_core::{DropReason, Event, Limits, Settings};
use unbroken_mqtt_proto::{
    Connect, Disconnect, Packet, Property, PropertyBuf, QoS, ReasonCode, Version,
};

/// The drops that were told since the last call: client, topic, reason, how many.
fn told(broker: &mut Broker) -> Vec<(String, String, DropReason, u64)> {
    let tell = |event: Event| match event {
        Event::Dropped {
            client_id,
            topic,
            reason,
            count,
            ..
        } => Some((client_id.to_string(), topic.to_string(), reason, count)),
        _ => None,
    };
    broker.events.drain(..).filter_map(tell).collect()
}

fn drop_of(
    client: &str,
    topic: &str,
    reason: DropReason,
    count: u64,
) -> (String, String, DropReason, u64) {
    (client.into(), topic.into(), reason, count)
}

/// A broker with a session that is away, has room for one message, and has been sent `messages`,
/// each to a topic of its own.
fn overfull(messages: u16) -> Broker {
    let mut limits = Limits::default();
    limits.queue_messages_max = 1;
    let mut broker = Broker::with(1, limits, Settings::default());
    let sleeper = stay(&mut broker, "s", true);
    subscribe(&mut broker, sleeper, "t/#", QoS::AtLeastOnce);
    broker.cut(sleeper);
    let publisher = join(&mut broker, "p");
    for id in 1..=messages {
        let topic = format!("t/{id}");
        broker.send(publisher, publish(&topic, "x", QoS::AtLeastOnce, id));
    }
    broker
}

#[test]
fn drops_behind_the_first_are_told_a_second_later_with_the_newest_topic() {
    let mut broker = overfull(5);
    assert_eq!(
        told(&mut broker),
        [drop_of("s", "t/2", DropReason::QueueFull, 1)]
    );
    broker.advance(Duration::from_secs(1));
    assert_eq!(
        told(&mut broker),
        [drop_of("s", "t/5", DropReason::QueueFull, 3)]
    );
    broker.advance(Duration::from_secs(1));
    assert_eq!(told(&mut broker), []);
}

#[test]
fn drops_that_name_a_publisher_are_told_a_second_later() {
    let mut limits = Limits::default();
    limits.retained_messages_max = 1;
    let mut broker = Broker::with(1, limits, Settings::default());
    let publisher = join(&mut broker, "p");
    for topic in ["a", "b", "c", "d"] {
        broker.send(
            publisher,
            shard_bus::retained(topic, "x", QoS::AtMostOnce, 0),
        );
    }
    assert_eq!(
        told(&mut broker),
        [drop_of("p", "b", DropReason::RetainedFull, 1)]
    );
    broker.advance(Duration::from_secs(1));
    assert_eq!(
        told(&mut broker),
        [drop_of("p", "d", DropReason::RetainedFull, 2)]
    );
}

#[test]
fn a_session_that_ends_tells_what_it_dropped_and_what_waited_in_it() {
    let mut broker = overfull(3);
    told(&mut broker);
    let again = stay(&mut broker, "s", true);
    assert_eq!(broker.take(again), ["CONNACK 0 00"]);
    assert_eq!(
        told(&mut broker),
        [
            drop_of("s", "t/3", DropReason::QueueFull, 1),
            drop_of("s", "t/1", DropReason::SessionEnded, 1),
        ]
    );
}

#[test]
fn a_broker_that_stops_tells_what_is_lost_with_it() {
    let mut broker = overfull(3);
    told(&mut broker);
    broker.drain();
    assert_eq!(
        told(&mut broker),
        [
            drop_of("s", "t/3", DropReason::QueueFull, 1),
            drop_of("s", "t/1", DropReason::SessionEnded, 1),
        ]
    );
    assert_eq!(broker.shards[0].stats().messages_waiting, 0);
    assert_eq!(broker.shards[0].stats().messages_waiting_bytes, 0);
}

#[test]
fn qos_0_messages_that_a_broken_connection_takes_with_it_are_named() {
    let mut broker = Broker::new(1);
    let receiver = stay(&mut broker, "r", true);
    subscribe(&mut broker, receiver, "t/#", QoS::AtLeastOnce);
    let publisher = join(&mut broker, "p");
    broker.hold_writes = true;
    for topic in ["t/1", "t/2", "t/3"] {
        broker.send(publisher, publish(topic, "x", QoS::AtMostOnce, 0));
    }
    broker.send(publisher, publish("t/4", "kept", QoS::AtLeastOnce, 1));
    // All of the first message, and half of the second.
    let one = publish("t/1", "x", QoS::AtMostOnce, 0);
    let mut bytes = Vec::new();
    one.encode(Version::V5, &mut bytes).unwrap();
    broker.write(receiver, bytes.len() * 3 / 2);
    broker.cut(receiver);
    assert_eq!(
        told(&mut broker),
        [drop_of("r", "t/3", DropReason::ConnectionLost, 2)]
    );
    broker.release_writes();
    let again = stay(&mut broker, "r", false);
    assert_eq!(
        broker.take(again),
        ["CONNACK 1 00", "PUBLISH t/4 \"kept\" q1 #1 dup"]
    );
}

#[test]
fn a_broken_connection_that_was_written_in_pieces_loses_no_count() {
    let mut broker = Broker::new(1);
    let receiver = stay(&mut broker, "r", true);
    subscribe(&mut broker, receiver, "t", QoS::AtMostOnce);
    broker.take(receiver);
    let publisher = join(&mut broker, "p");
    broker.hold_writes = true;
    let payload = "x".repeat(99_990);
    let message = publish("t", &payload, QoS::AtMostOnce, 0);
    for _ in 0..40 {
        broker.send(publisher, message);
    }
    let mut size = Vec::new();
    message.encode(Version::V5, &mut size).unwrap();
    let waiting = broker.pending(receiver);
    assert_eq!(waiting, 40 * size.len());
    // Enough for the buffer to be moved up several times, never at the end of a message.
    for _ in 0..37 {
        broker.write(receiver, size.len() + 7);
    }
    broker.cut(receiver);
    assert_eq!(
        told(&mut broker),
        [drop_of("r", "t", DropReason::ConnectionLost, 3)]
    );
}

/// A connected subscriber that takes nothing of three messages on `t`, by these aliases, and then
/// no more than `taken` bytes of its last words when it leaves.
fn leaves_with(aliases: u16, taken: usize) -> Broker {
    let mut broker = Broker::new(1);
    let mut properties = PropertyBuf::new();
    properties
        .push(Property::TopicAliasMaximum(aliases))
        .unwrap();
    let receiver = broker.open(Version::V5);
    let packet = Connect {
        properties: properties.as_properties(),
        ..shard_bus::connect("r")
    };
    broker.send(receiver, Packet::Connect(packet));
    subscribe(&mut broker, receiver, "t", QoS::AtLeastOnce);
    let publisher = join(&mut broker, "p");
    broker.hold_writes = true;
    broker.last_words_max = taken;
    for payload in ["1", "2", "3"] {
        broker.send(publisher, publish("t", payload, QoS::AtMostOnce, 0));
    }
    broker.send(publisher, publish("t", "4", QoS::AtLeastOnce, 1));
    told(&mut broker);
    broker.send(
        receiver,
        Packet::Disconnect(Disconnect::new(ReasonCode::Success)),
    );
    broker
}

#[test]
fn qos_0_messages_that_a_leaving_client_does_not_take_are_named_and_not_sent() {
    let mut size = Vec::new();
    publish("t", "1", QoS::AtMostOnce, 0)
        .encode(Version::V5, &mut size)
        .unwrap();
    let size = size.len();
    for (taken, lost) in [
        (0, 3),
        (size - 1, 3),
        (size, 2),
        (2 * size + 1, 1),
        (3 * size, 0),
        (usize::MAX, 0),
    ] {
        let mut broker = leaves_with(0, taken);
        let expect = [
            drop_of("r", "t", DropReason::ConnectionLost, lost),
            drop_of("r", "t", DropReason::SessionEnded, 1),
        ];
        let mut told = told(&mut broker);
        told.sort_by_key(|drop| std::cmp::Reverse(drop.2));
        assert_eq!(told, expect[usize::from(lost == 0)..], "{taken} taken");
        let stats = broker.shards[0].stats();
        // The message at least once was sent, and is named as what its session had not finished.
        assert_eq!(stats.publishes_written(), 4 - lost, "{taken} taken");
        assert_eq!(stats.publish_bytes_written(), 4 - lost, "{taken} taken");
    }
}

#[test]
fn qos_0_messages_that_the_broker_cuts_off_are_named() {
    let mut broker = Broker::new(1);
    let receiver = join(&mut broker, "r");
    subscribe(&mut broker, receiver, "t", QoS::AtMostOnce);
    let publisher = join(&mut broker, "p");
    broker.hold_writes = true;
    broker.last_words_max = 0;
    broker.send(publisher, publish("t", "1", QoS::AtMostOnce, 0));
    broker.drain();
    assert_eq!(
        told(&mut broker),
        [drop_of("r", "t", DropReason::ConnectionLost, 1)]
    );
}

#[test]
fn a_message_lost_under_an_alias_is_named_by_its_topic() {
    let mut broker = leaves_with(1, 0);
    assert!(told(&mut broker).contains(&drop_of("r", "t", DropReason::ConnectionLost, 3)));
}
