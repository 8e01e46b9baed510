//! Flow control: how many messages may be under way at once, and how large they may be.

use std::collections::{BTreeMap, BTreeSet};

use unbroken_acceptance::raw::{AckKind, Connect, Packet, Publish, Version, id, reason};
use unbroken_acceptance::{Broker, Client, Launch};

/// A persistent subscriber of `a` with the quality: how it connects, and its first connection.
#[track_caller]
fn persistent(broker: &Broker, version: Version, qos: u8) -> (Connect, Client) {
    let connect = Connect::new(version, "subscriber").persistent();
    let mut subscriber = broker.accept(&connect);
    subscriber.subscribe_to("a", qos);
    (connect, subscriber)
}

/// [MQTT-3.3.4-9, MQTT-4.9.0-1, MQTT-4.9.0-2]
#[test]
fn no_more_messages_are_in_flight_than_the_receiver_allows() {
    for qos in [1, 2] {
        let broker = Broker::start();
        let connect = Connect::v5("subscriber").property(id::RECEIVE_MAXIMUM, 2);
        let mut subscriber = broker.accept(&connect);
        subscriber.subscribe_to("a", qos);
        subscriber.subscribe_to("free", 0);
        let mut publisher = broker.connect("publisher");
        for text in ["1", "2", "3", "4"] {
            publisher.publish(Publish::new("a", text).qos(qos));
        }
        publisher.publish(Publish::new("free", "x"));
        let first = subscriber.expect_message("a", "1");
        let second = subscriber.expect_message("a", "2");
        subscriber.expect_message("free", "x");
        subscriber.complete(&first);
        let third = subscriber.expect_message("a", "3");
        subscriber.expect_nothing_from(&mut publisher);
        subscriber.complete(&second);
        subscriber.complete(&third);
        subscriber.take_message("a", "4");
    }
}

/// [MQTT-3.3.4-10, MQTT-4.9.0-3]
#[test]
fn a_full_window_holds_up_nothing_but_messages_of_quality_1_and_2() {
    let broker = Broker::start();
    let connect = Connect::v5("subscriber").property(id::RECEIVE_MAXIMUM, 1);
    let mut subscriber = broker.accept(&connect);
    subscriber.subscribe_to("a", 1);
    let mut publisher = broker.connect("publisher");
    publisher.publish(Publish::new("a", "1").qos(1));
    publisher.publish(Publish::new("a", "2").qos(1));
    subscriber.expect_message("a", "1");
    subscriber.expect_pong();
    subscriber.subscribe_to("b", 0);
    subscriber.unsubscribe(&["b"]);
    assert!(subscriber.publish(Publish::new("c", "x").qos(2)) < 0x80);
    publisher.publish(Publish::new("a", "quality 0"));
    subscriber.expect_message("a", "quality 0");
}

/// PUBREC alone frees no slot: the exchange ends with PUBCOMP.
/// [MQTT-3.3.4-9]
#[test]
fn a_quality_2_exchange_holds_its_slot_until_it_is_complete() {
    let broker = Broker::start();
    let connect = Connect::v5("subscriber").property(id::RECEIVE_MAXIMUM, 1);
    let mut subscriber = broker.accept(&connect);
    subscriber.subscribe_to("a", 2);
    let mut publisher = broker.connect("publisher");
    publisher.publish(Publish::new("a", "1").qos(2));
    publisher.publish(Publish::new("a", "2").qos(2));
    let first = subscriber.expect_message("a", "1");
    subscriber.send_ack(AckKind::PubRec, first.packet_id);
    subscriber.expect_ack(AckKind::PubRel, first.packet_id);
    subscriber.expect_nothing_from(&mut publisher);
    subscriber.send_ack(AckKind::PubComp, first.packet_id);
    subscriber.take_message("a", "2");
}

/// Messages get their ids before they have their places in the window. The connection is lost after
/// ever more packets, by itself or with the broker.
/// [MQTT-3.3.4-9, MQTT-4.4.0-1, MQTT-4.6.0-6, MQTT-4.3.3-10]
#[test]
fn a_small_window_holds_over_reconnects_and_kills_and_nothing_is_lost_or_doubled() {
    const COUNT: usize = 12;
    for (window, kills) in [(1_u32, false), (2, false), (3, true)] {
        let mut broker = Launch::default().durable().start();
        let connect = Connect::v5("subscriber").persistent();
        let connect = connect.property(id::RECEIVE_MAXIMUM, window);
        let mut subscriber = broker.accept(&connect);
        subscriber.subscribe_to("a", 2);
        subscriber.disconnect();
        let mut publisher = broker.connect("publisher");
        let texts: Vec<_> = (1..=COUNT).map(|number| number.to_string()).collect();
        for text in &texts {
            publisher.publish(Publish::new("a", text).qos(2));
        }
        let (mut received, mut unreleased) = (Vec::new(), BTreeMap::new());
        for packets in 1.. {
            let mut subscriber = broker.accept(&connect);
            let mut unfinished = BTreeSet::new();
            for _ in 0..packets {
                match subscriber.receive() {
                    Packet::Publish(message) => {
                        unfinished.insert(message.packet_id);
                        assert!(unfinished.len() <= window as usize, "{unfinished:?}");
                        let text = message.text();
                        match unreleased.insert(message.packet_id, text.clone()) {
                            None => received.push(text),
                            Some(before) => assert_eq!(before, text, "a repetition"),
                        }
                        subscriber.send_ack(AckKind::PubRec, message.packet_id);
                    }
                    Packet::Ack(ack) if ack.kind == AckKind::PubRel => {
                        unreleased.remove(&ack.packet_id);
                        unfinished.remove(&ack.packet_id);
                        subscriber.send_ack(AckKind::PubComp, ack.packet_id);
                    }
                    other => panic!("expected PUBLISH or PUBREL, got {other:?}"),
                }
                if received.len() == COUNT && unreleased.is_empty() {
                    break;
                }
            }
            if received.len() == COUNT && unreleased.is_empty() {
                break;
            }
            if kills {
                broker.kill();
                broker.start_again();
            } else {
                subscriber.vanish();
            }
        }
        assert_eq!(received, texts);
    }
}

/// What was in flight before a reconnect still counts.
/// [MQTT-3.3.4-9]
#[test]
fn the_window_counts_across_a_reconnect() {
    let broker = Broker::start();
    let connect = Connect::v5("subscriber")
        .persistent()
        .property(id::RECEIVE_MAXIMUM, 2);
    let mut subscriber = broker.accept(&connect);
    subscriber.subscribe_to("a", 1);
    let mut publisher = broker.connect("publisher");
    for text in ["1", "2", "3"] {
        publisher.publish(Publish::new("a", text).qos(1));
    }
    subscriber.expect_message("a", "1");
    subscriber.expect_message("a", "2");
    subscriber.vanish();
    let mut subscriber = broker.accept(&connect);
    let first = subscriber.expect_message("a", "1");
    subscriber.expect_message("a", "2");
    subscriber.expect_nothing_from(&mut publisher);
    subscriber.complete(&first);
    subscriber.take_message("a", "3");
}

/// [MQTT-3.3.4-9, MQTT-4.4.0-1]
#[test]
fn a_smaller_window_after_a_reconnect_is_respected() {
    let broker = Broker::start();
    let wide = Connect::v5("subscriber").persistent();
    let mut subscriber = broker.accept(&wide);
    subscriber.subscribe_to("a", 1);
    let mut publisher = broker.connect("publisher");
    for text in ["1", "2", "3"] {
        publisher.publish(Publish::new("a", text).qos(1));
        subscriber.expect_message("a", text);
    }
    subscriber.vanish();
    let mut subscriber = broker.accept(&wide.property(id::RECEIVE_MAXIMUM, 1));
    for text in ["1", "2", "3"] {
        let message = subscriber.expect_message("a", text);
        subscriber.expect_nothing_from(&mut publisher);
        subscriber.complete(&message);
    }
}

/// [MQTT-3.3.4-7]
#[test]
fn a_publisher_that_exceeds_the_brokers_window_is_dropped() {
    let broker = Broker::start();
    let mut publisher = broker.connect("publisher");
    let window = publisher
        .connack()
        .properties
        .number(id::RECEIVE_MAXIMUM)
        .unwrap_or(65_535);
    if window == 65_535 {
        // Every identifier there is can be in flight: the window cannot be exceeded.
        return;
    }
    for packet_id in 1..=u16::try_from(window + 1).unwrap() {
        publisher.send_publish(&Publish::new("a", "x").qos(2).packet_id(packet_id));
    }
    loop {
        match publisher.receive() {
            Packet::Ack(_) => {}
            Packet::Disconnect(told) => {
                assert_eq!(told.code, reason::RECEIVE_MAXIMUM_EXCEEDED);
                break;
            }
            other => panic!("{other:?}"),
        }
    }
}

/// [MQTT-3.1.2-24, MQTT-3.1.2-25]
#[test]
fn a_message_too_large_for_a_client_is_passed_over_as_if_delivered() {
    let broker = Broker::start();
    for qos in 0..=2 {
        let connect = Connect::v5("subscriber").property(id::MAXIMUM_PACKET_SIZE, 100);
        let mut subscriber = broker.accept(&connect);
        subscriber.subscribe_to("a", qos);
        let mut publisher = broker.connect("publisher");
        publisher.publish(Publish::new("a", "x".repeat(100)).qos(qos));
        publisher.publish(Publish::new("a", "small").qos(qos));
        subscriber.take_message("a", "small");
        subscriber.expect_nothing_from(&mut publisher);
    }
}

/// The size that fits exactly is sent, one byte more is not.
/// [MQTT-3.1.2-24]
#[test]
fn the_maximum_packet_size_counts_the_whole_packet() {
    let broker = Broker::start();
    let connect = Connect::v5("subscriber").property(id::MAXIMUM_PACKET_SIZE, 50);
    let mut subscriber = broker.accept(&connect);
    subscriber.subscribe_to("a", 0);
    let mut publisher = broker.connect("publisher");
    let fits = Publish::new("a", "x".repeat(44));
    assert_eq!(fits.encode(Version::V5).len(), 50);
    publisher.publish(Publish::new("a", "y".repeat(45)));
    publisher.publish(fits);
    subscriber.expect_message("a", &"x".repeat(44));
}

/// [MQTT-3.1.2-25]
#[test]
fn a_message_too_large_for_a_client_is_passed_over_in_its_queue_and_when_retained() {
    let broker = Broker::start();
    let (connect, subscriber) = persistent(&broker, Version::V5, 1);
    subscriber.disconnect();
    let mut publisher = broker.connect("publisher");
    publisher.publish(Publish::new("a", "x".repeat(100)).qos(1));
    publisher.publish(Publish::new("a", "small").qos(1));
    publisher.publish(Publish::new("kept", "x".repeat(100)).qos(1).retained());
    let mut subscriber = broker.accept(&connect.property(id::MAXIMUM_PACKET_SIZE, 80));
    subscriber.take_message("a", "small");
    subscriber.subscribe_to("kept", 1);
    subscriber.expect_nothing_from(&mut publisher);
}

/// [MQTT-3.2.2-15]
#[test]
fn a_packet_over_the_brokers_maximum_is_refused_by_its_header() {
    let broker = Broker::start();
    let mut client = broker.connect("c");
    let maximum = client.connack().properties.number(id::MAXIMUM_PACKET_SIZE);
    let maximum = maximum.expect("the broker has a limit and says so");
    let mut header = vec![0x30];
    header.extend(unbroken_acceptance::raw::varint(maximum));
    client.send(header);
    client.expect_disconnect(reason::PACKET_TOO_LARGE);
}
