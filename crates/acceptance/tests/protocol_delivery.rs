//! Publishing and delivery: quality, order, flow control, sizes, aliases, expiry and properties.

use unbroken_acceptance::raw::{
    AckKind, Connect, Packet, Properties, Publish, Subscribe, Version, ack, ack_with_reason, id,
    reason,
};
use unbroken_acceptance::{Broker, Client, case};

/// A subscriber of `a` with the quality, and a publisher.
#[track_caller]
fn pair(broker: &Broker, version: Version, qos: u8) -> (Client, Client) {
    let mut subscriber = broker.connect_as(version, "subscriber");
    subscriber.subscribe_to("a", qos);
    (subscriber, broker.connect_as(version, "publisher"))
}

/// A persistent subscriber of `a` with the quality: how it connects, and its first connection.
#[track_caller]
fn persistent(broker: &Broker, version: Version, qos: u8) -> (Connect, Client) {
    let connect = Connect::new(version, "subscriber").persistent();
    let mut subscriber = broker.accept(&connect);
    subscriber.subscribe_to("a", qos);
    (connect, subscriber)
}

/// [MQTT-3.8.4-8, MQTT-3.8.4-7, MQTT-3.3.4-1, MQTT-4.3.1-1, MQTT-4.3.2-2, MQTT-4.3.3-2,
/// MQTT311-4.3.1-1, MQTT311-4.3.2-1, MQTT311-4.3.3-1, MQTT311-3.3.4-1, MQTT311-3.8.4-6,
/// MQTT311-2.3.1-5, MQTT-2.2.1-2]
#[test]
fn a_message_is_delivered_with_the_lower_of_published_and_granted_quality() {
    let broker = Broker::start();
    for version in Version::ALL {
        for granted in 0..=2 {
            for published in 0..=2 {
                case(&format!(
                    "{version:?}: published {published}, granted {granted}"
                ));
                let (mut subscriber, mut publisher) = pair(&broker, version, granted);
                publisher.publish(Publish::new("a", "x").qos(published));
                let message = subscriber.take_message("a", "x");
                assert_eq!(message.qos, granted.min(published));
                assert!(!message.dup);
            }
        }
    }
}

/// [MQTT-2.2.1-5, MQTT-4.3.2-4, MQTT311-2.3.1-6, MQTT-3.4.2-1, MQTT311-4.3.2-2]
#[test]
fn quality_1_is_acknowledged_with_its_identifier() {
    let broker = Broker::start();
    for version in Version::ALL {
        let mut client = broker.connect_as(version, "c");
        for packet_id in [1, 0x1234, u16::MAX] {
            client.send_publish(&Publish::new("a", "x").qos(1).packet_id(packet_id));
            let puback = client.expect_ack(AckKind::PubAck, packet_id);
            assert!(matches!(puback.reason, 0 | reason::NO_MATCHING_SUBSCRIBERS));
        }
    }
}

/// [MQTT-2.2.1-5, MQTT-4.3.3-8, MQTT-4.3.3-11, MQTT311-2.3.1-6, MQTT-3.5.2-1, MQTT-3.7.2-1,
/// MQTT311-4.3.3-2]
#[test]
fn quality_2_is_acknowledged_in_two_steps_with_its_identifier() {
    let broker = Broker::start();
    for version in Version::ALL {
        let mut client = broker.connect_as(version, "c");
        for packet_id in [1, 0x1234, u16::MAX] {
            client.send_publish(&Publish::new("a", "x").qos(2).packet_id(packet_id));
            client.expect_ack(AckKind::PubRec, packet_id);
            client.send_ack(AckKind::PubRel, packet_id);
            assert_eq!(client.expect_ack(AckKind::PubComp, packet_id).reason, 0);
        }
    }
}

/// [MQTT-3.3.1-3, MQTT311-3.3.1-3]
#[test]
fn dup_of_the_publisher_is_not_passed_on() {
    let broker = Broker::start();
    for version in Version::ALL {
        for qos in [1, 2] {
            let (mut subscriber, mut publisher) = pair(&broker, version, 2);
            publisher.publish(Publish::new("a", "x").qos(qos).dup());
            assert!(!subscriber.take_message("a", "x").dup);
        }
    }
}

/// [MQTT-3.3.1-1, MQTT-3.3.1-3, MQTT-4.5.0-1, MQTT311-3.1.2-5, MQTT311-4.5.0-1]
#[test]
fn the_first_delivery_from_the_offline_queue_is_not_marked_as_a_repetition() {
    let broker = Broker::start();
    for version in Version::ALL {
        let (connect, subscriber) = persistent(&broker, version, 2);
        subscriber.disconnect();
        let mut publisher = broker.connect("publisher");
        publisher.publish(Publish::new("a", "1").qos(1));
        publisher.publish(Publish::new("a", "2").qos(2));
        let mut subscriber = broker.accept(&connect);
        assert!(!subscriber.take_message("a", "1").dup);
        assert!(!subscriber.take_message("a", "2").dup);
        subscriber.unsubscribe(&["a"]);
        subscriber.disconnect();
        broker
            .accept(&Connect::new(version, "subscriber"))
            .disconnect();
    }
}

/// [MQTT-4.3.3-10, MQTT-4.3.3-12, MQTT311-4.3.3-2]
#[test]
fn a_repeated_quality_2_publish_is_answered_again_but_not_delivered_again() {
    let broker = Broker::start();
    for version in Version::ALL {
        let (mut subscriber, mut publisher) = pair(&broker, version, 2);
        let message = Publish::new("a", "x").qos(2).packet_id(7);
        publisher.send_publish(&message);
        publisher.expect_ack(AckKind::PubRec, 7);
        publisher.send_publish(&message.clone().dup());
        publisher.expect_ack(AckKind::PubRec, 7);
        publisher.send_ack(AckKind::PubRel, 7);
        publisher.expect_ack(AckKind::PubComp, 7);
        assert_eq!(subscriber.messages_from(&mut publisher).len(), 1);

        publisher.send_publish(&message);
        publisher.expect_ack(AckKind::PubRec, 7);
        publisher.send_ack(AckKind::PubRel, 7);
        publisher.expect_ack(AckKind::PubComp, 7);
        assert_eq!(
            subscriber.messages_from(&mut publisher).len(),
            1,
            "a new message"
        );
    }
}

/// The identifiers of unfinished quality 2 exchanges belong to the session.
/// [MQTT-4.3.3-10, MQTT-4.4.0-1, MQTT-4.1.0-1]
#[test]
fn a_quality_2_publish_repeated_after_a_reconnect_is_not_delivered_again() {
    let broker = Broker::start();
    let mut subscriber = broker.connect("subscriber");
    subscriber.subscribe_to("a", 2);
    let connect = Connect::v5("publisher").persistent();
    let mut publisher = broker.accept(&connect);
    let message = Publish::new("a", "x").qos(2).packet_id(7);
    publisher.send_publish(&message);
    publisher.expect_ack(AckKind::PubRec, 7);
    publisher.vanish();
    let mut publisher = broker.accept(&connect);
    publisher.send_publish(&message.dup());
    publisher.expect_ack(AckKind::PubRec, 7);
    publisher.send_ack(AckKind::PubRel, 7);
    assert_eq!(publisher.expect_ack(AckKind::PubComp, 7).reason, 0);
    assert_eq!(subscriber.messages_from(&mut publisher).len(), 1);
}

/// [MQTT-4.3.2-5]
#[test]
fn a_quality_1_publish_with_a_known_identifier_is_a_new_message() {
    let broker = Broker::start();
    let (mut subscriber, mut publisher) = pair(&broker, Version::V5, 1);
    for dup in [false, true] {
        let mut message = Publish::new("a", "x").qos(1).packet_id(7);
        message.dup = dup;
        publisher.send_publish(&message);
        publisher.expect_ack(AckKind::PubAck, 7);
    }
    assert_eq!(subscriber.messages_from(&mut publisher).len(), 2);
}

/// [MQTT-4.3.3-11, MQTT-3.7.2-1]
#[test]
fn a_release_of_an_unknown_identifier_is_answered() {
    let broker = Broker::start();
    for version in Version::ALL {
        let mut client = broker.connect_as(version, "c");
        client.send_ack(AckKind::PubRel, 99);
        let pubcomp = client.expect_ack(AckKind::PubComp, 99);
        let expected = if version == Version::V5 {
            reason::PACKET_IDENTIFIER_NOT_FOUND
        } else {
            0
        };
        assert_eq!(pubcomp.reason, expected);
    }
}

/// [MQTT-3.6.2-1]
#[test]
fn a_receipt_for_an_unknown_identifier_is_answered_with_not_found() {
    let broker = Broker::start();
    let mut client = broker.connect("c");
    client.send_ack(AckKind::PubRec, 99);
    let pubrel = client.expect_ack(AckKind::PubRel, 99);
    assert_eq!(pubrel.reason, reason::PACKET_IDENTIFIER_NOT_FOUND);
    client.expect_pong();
}

/// Acknowledgements nobody waits for are no reason to end a connection.
#[test]
fn acknowledgements_of_unknown_identifiers_do_no_harm() {
    let broker = Broker::start();
    for version in Version::ALL {
        let mut client = broker.connect_as(version, "c");
        client.send_ack(AckKind::PubAck, 99);
        client.send_ack(AckKind::PubComp, 99);
        client.expect_pong();
    }
}

/// [MQTT-4.3.3-4, MQTT-4.3.3-5, MQTT-3.6.1-1, MQTT311-4.3.3-1]
#[test]
fn a_receipt_is_answered_with_a_release() {
    let broker = Broker::start();
    for version in Version::ALL {
        let (mut subscriber, mut publisher) = pair(&broker, version, 2);
        publisher.publish(Publish::new("a", "x").qos(2));
        let message = subscriber.expect_message("a", "x");
        subscriber.send_ack(AckKind::PubRec, message.packet_id);
        subscriber.expect_ack(AckKind::PubRel, message.packet_id);
        subscriber.send_ack(AckKind::PubComp, message.packet_id);
        subscriber.expect_nothing_from(&mut publisher);
    }
}

/// [MQTT-4.4.0-2, MQTT-4.3.3-4, MQTT-3.3.4-9]
#[test]
fn a_receipt_with_an_error_ends_the_exchange_and_frees_the_slot() {
    let broker = Broker::start();
    let connect = Connect::v5("subscriber")
        .persistent()
        .property(id::RECEIVE_MAXIMUM, 1);
    let mut subscriber = broker.accept(&connect);
    subscriber.subscribe_to("a", 2);
    let mut publisher = broker.connect("publisher");
    publisher.publish(Publish::new("a", "refused").qos(2));
    publisher.publish(Publish::new("a", "next").qos(2));
    let refused = subscriber.expect_message("a", "refused");
    subscriber.send(ack_with_reason(
        AckKind::PubRec,
        refused.packet_id,
        reason::QUOTA_EXCEEDED,
    ));
    subscriber.take_message("a", "next");
    subscriber.disconnect();
    let mut subscriber = broker.accept(&connect);
    assert!(subscriber.session_present());
    subscriber.expect_nothing_from(&mut publisher);
}

/// [MQTT-4.4.0-2]
#[test]
fn an_acknowledgement_with_an_error_is_still_an_acknowledgement() {
    let broker = Broker::start();
    let (connect, mut subscriber) = persistent(&broker, Version::V5, 1);
    let mut publisher = broker.connect("publisher");
    publisher.publish(Publish::new("a", "x").qos(1));
    let message = subscriber.expect_message("a", "x");
    subscriber.send(ack_with_reason(
        AckKind::PubAck,
        message.packet_id,
        reason::UNSPECIFIED,
    ));
    subscriber.disconnect();
    broker.accept(&connect).expect_nothing_from(&mut publisher);
}

/// [MQTT-3.3.1-1, MQTT-4.4.0-1, MQTT-4.3.2-3, MQTT-4.6.0-1, MQTT311-3.3.1-1, MQTT311-4.4.0-1,
/// MQTT311-2.3.1-3, MQTT311-4.6.0-1, MQTT311-4.3.2-1, MQTT311-2.3.1-4]
#[test]
fn unacknowledged_messages_are_sent_again_in_order_before_new_ones() {
    for version in Version::ALL {
        let broker = Broker::start();
        let (connect, mut subscriber) = persistent(&broker, version, 2);
        let mut publisher = broker.connect("publisher");
        publisher.publish(Publish::new("a", "1").qos(1));
        publisher.publish(Publish::new("a", "2").qos(2));
        publisher.publish(Publish::new("a", "3").qos(1));
        let ids: Vec<u16> = ["1", "2", "3"]
            .map(|text| subscriber.expect_message("a", text).packet_id)
            .to_vec();
        subscriber.vanish();
        publisher.publish(Publish::new("a", "4").qos(1));
        let mut subscriber = broker.accept(&connect);
        for (text, packet_id) in ["1", "2", "3"].into_iter().zip(ids) {
            let again = subscriber.expect_message("a", text);
            assert!(again.dup, "{text} is a repetition");
            assert_eq!(again.packet_id, packet_id, "{text} keeps its identifier");
        }
        assert!(!subscriber.expect_message("a", "4").dup, "4 is new");
    }
}

/// [MQTT-4.4.0-1, MQTT-4.3.3-6, MQTT-4.3.3-5, MQTT311-4.4.0-1, MQTT311-4.3.3-1]
#[test]
fn an_unfinished_release_is_sent_again_and_the_message_is_not() {
    for version in Version::ALL {
        let broker = Broker::start();
        let (connect, mut subscriber) = persistent(&broker, version, 2);
        let mut publisher = broker.connect("publisher");
        publisher.publish(Publish::new("a", "x").qos(2));
        let message = subscriber.expect_message("a", "x");
        subscriber.send_ack(AckKind::PubRec, message.packet_id);
        subscriber.expect_ack(AckKind::PubRel, message.packet_id);
        subscriber.vanish();
        let mut subscriber = broker.accept(&connect);
        subscriber.expect_ack(AckKind::PubRel, message.packet_id);
        subscriber.send_ack(AckKind::PubComp, message.packet_id);
        subscriber.expect_nothing_from(&mut publisher);
    }
}

/// [MQTT-4.4.0-1]
#[test]
fn publishes_and_releases_are_repeated_in_their_original_order() {
    let broker = Broker::start();
    let (connect, mut subscriber) = persistent(&broker, Version::V5, 2);
    let mut publisher = broker.connect("publisher");
    for text in ["1", "2", "3"] {
        publisher.publish(Publish::new("a", text).qos(2));
    }
    let ids = ["1", "2", "3"].map(|text| subscriber.expect_message("a", text).packet_id);
    subscriber.send_ack(AckKind::PubRec, ids[0]);
    subscriber.expect_ack(AckKind::PubRel, ids[0]);
    subscriber.vanish();
    let mut subscriber = broker.accept(&connect);
    subscriber.expect_ack(AckKind::PubRel, ids[0]);
    assert_eq!(subscriber.expect_message("a", "2").packet_id, ids[1]);
    assert_eq!(subscriber.expect_message("a", "3").packet_id, ids[2]);
}

/// [MQTT-4.4.0-1]
#[test]
fn nothing_is_sent_again_while_the_connection_lasts() {
    let broker = Broker::start();
    let (mut subscriber, mut publisher) = pair(&broker, Version::V5, 2);
    publisher.publish(Publish::new("a", "1").qos(1));
    publisher.publish(Publish::new("a", "2").qos(2));
    subscriber.expect_message("a", "1");
    subscriber.expect_message("a", "2");
    broker.let_a_second_pass();
    broker.let_a_second_pass();
    subscriber.expect_nothing_from(&mut publisher);
}

/// [MQTT-2.2.1-4, MQTT-4.3.2-1, MQTT-4.3.3-1, MQTT311-2.3.1-4]
#[test]
fn messages_in_flight_have_different_identifiers() {
    let broker = Broker::start();
    let (mut subscriber, mut publisher) = pair(&broker, Version::V5, 2);
    let mut ids = Vec::new();
    for number in 0..10 {
        publisher.publish(Publish::new("a", "x").qos(1 + number % 2));
        ids.push(subscriber.expect_message("a", "x").packet_id);
    }
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 10);
    assert!(!ids.contains(&0));
}

/// Identifiers run round: 70,000 messages, with one held back all along.
/// [MQTT-2.2.1-4]
#[test]
fn an_identifier_still_in_flight_is_passed_over_when_the_numbers_run_round() {
    const BURST: u16 = 16;
    let broker = Broker::start();
    let (mut subscriber, mut publisher) = pair(&broker, Version::V5, 1);
    publisher.publish(Publish::new("a", "held").qos(1));
    let held = subscriber.expect_message("a", "held").packet_id;
    for _ in 0..70_000 / u32::from(BURST) {
        for packet_id in 1..=BURST {
            publisher.send_publish(&Publish::new("a", "x").qos(1).packet_id(packet_id));
        }
        let mut acks = Vec::new();
        for _ in 0..BURST {
            let message = subscriber.expect_message("a", "x");
            assert_ne!(message.packet_id, held);
            acks.extend(ack(AckKind::PubAck, message.packet_id));
        }
        subscriber.send(acks);
        for _ in 0..BURST {
            assert!(matches!(publisher.receive(), Packet::Ack(_)));
        }
    }
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

/// [MQTT-3.3.2-12, MQTT-3.2.2-17, MQTT-3.2.2-18]
#[test]
fn a_publisher_can_use_every_alias_the_broker_allows() {
    let broker = Broker::start();
    let (mut subscriber, mut publisher) = pair(&broker, Version::V5, 1);
    subscriber.subscribe_to("b", 1);
    let maximum = publisher
        .connack()
        .properties
        .number(id::TOPIC_ALIAS_MAXIMUM)
        .unwrap_or(0);
    assert!(maximum > 0, "the broker accepts aliases");
    for alias in [1, maximum] {
        publisher.publish(Publish::new("a", "sets").property(id::TOPIC_ALIAS, alias));
        publisher.publish(Publish::new("", "uses").property(id::TOPIC_ALIAS, alias));
        publisher.publish(
            Publish::new("", "uses 1")
                .qos(1)
                .property(id::TOPIC_ALIAS, alias),
        );
        publisher.publish(Publish::new("b", "changes").property(id::TOPIC_ALIAS, alias));
        publisher.publish(Publish::new("", "uses 2").property(id::TOPIC_ALIAS, alias));
        for (topic, text) in [
            ("a", "sets"),
            ("a", "uses"),
            ("a", "uses 1"),
            ("b", "changes"),
            ("b", "uses 2"),
        ] {
            let message = subscriber.take_message(topic, text);
            assert!(
                !message.properties.has(id::TOPIC_ALIAS),
                "aliases are not passed on"
            );
        }
    }
}

/// [MQTT-3.3.2-8, MQTT-3.3.2-9, MQTT-3.2.2-17]
#[test]
fn alias_0_and_aliases_above_the_maximum_end_the_connection() {
    let broker = Broker::start();
    let mut probe = broker.connect("c");
    let maximum = probe
        .connack()
        .properties
        .number(id::TOPIC_ALIAS_MAXIMUM)
        .unwrap_or(0);
    probe.expect_pong();
    for alias in [0, maximum + 1, 65_535] {
        case(&format!("alias {alias} of {maximum}"));
        let mut client = broker.connect("c");
        client.send_publish(&Publish::new("a", "x").property(id::TOPIC_ALIAS, alias));
        client.expect_disconnect(reason::TOPIC_ALIAS_INVALID);
    }
}

#[test]
fn an_alias_that_was_never_set_ends_the_connection() {
    let broker = Broker::start();
    let mut client = broker.connect("c");
    client.send_publish(&Publish::new("", "x").property(id::TOPIC_ALIAS, 1));
    client.expect_disconnect_one_of(&[reason::PROTOCOL_ERROR, reason::TOPIC_ALIAS_INVALID]);
}

/// [MQTT-3.3.2-7]
#[test]
fn aliases_of_a_publisher_are_gone_after_a_reconnect() {
    let broker = Broker::start();
    let connect = Connect::v5("publisher").persistent();
    let mut publisher = broker.accept(&connect);
    publisher.publish(Publish::new("a", "x").qos(1).property(id::TOPIC_ALIAS, 1));
    publisher.vanish();
    let mut publisher = broker.accept(&connect);
    assert!(publisher.session_present());
    publisher.send_publish(&Publish::new("", "x").property(id::TOPIC_ALIAS, 1));
    publisher.expect_disconnect_one_of(&[reason::PROTOCOL_ERROR, reason::TOPIC_ALIAS_INVALID]);
}

/// [MQTT-3.1.2-26, MQTT-3.1.2-27, MQTT-3.3.2-11]
#[test]
fn the_broker_sends_no_aliases_to_a_client_that_allows_none() {
    let broker = Broker::start();
    let (mut subscriber, mut publisher) = pair(&broker, Version::V5, 1);
    for _ in 0..5 {
        publisher.publish(Publish::new("a", "x").qos(1));
        assert!(
            !subscriber
                .take_message("a", "x")
                .properties
                .has(id::TOPIC_ALIAS)
        );
    }
}

/// Follows aliases as a client must: the topic each message is really for.
fn follow(aliases: &mut Vec<String>, maximum: usize, message: &Publish) -> String {
    aliases.resize(maximum + 1, String::new());
    let Some(alias) = message.properties.number(id::TOPIC_ALIAS) else {
        assert!(!message.topic.is_empty(), "neither topic nor alias");
        return message.topic.clone();
    };
    // [MQTT-3.3.2-8, MQTT-3.3.2-11]
    let alias = alias as usize;
    assert!((1..=maximum).contains(&alias), "alias {alias} of {maximum}");
    if !message.topic.is_empty() {
        aliases[alias].clone_from(&message.topic);
    }
    assert!(!aliases[alias].is_empty(), "alias {alias} was never set");
    aliases[alias].clone()
}

/// [MQTT-3.1.2-26, MQTT-3.3.2-11, MQTT-3.3.2-3]
#[test]
fn the_broker_uses_only_aliases_that_the_client_allows() {
    let broker = Broker::start();
    let mut subscriber =
        broker.accept(&Connect::v5("subscriber").property(id::TOPIC_ALIAS_MAXIMUM, 2));
    subscriber.subscribe_to("t/#", 0);
    let mut publisher = broker.connect("publisher");
    let mut aliases = Vec::new();
    for round in 0..5 {
        for topic in ["t/1", "t/2", "t/3", "t/4"] {
            let text = format!("{topic} {round}");
            publisher.publish(Publish::new(topic, &text));
            let message = subscriber.expect_publish();
            assert_eq!(message.text(), text);
            assert_eq!(follow(&mut aliases, 2, &message), topic);
        }
    }
}

/// [MQTT-3.3.2-7, MQTT-4.4.0-1]
#[test]
fn redelivery_and_the_offline_queue_carry_the_full_topic() {
    let broker = Broker::start();
    let connect = Connect::v5("subscriber")
        .persistent()
        .property(id::TOPIC_ALIAS_MAXIMUM, 5);
    let mut subscriber = broker.accept(&connect);
    subscriber.subscribe_to("a", 1);
    let mut publisher = broker.connect("publisher");
    for text in ["1", "2", "3"] {
        publisher.publish(Publish::new("a", text).qos(1));
        assert_eq!(subscriber.expect_publish().text(), text);
    }
    subscriber.vanish();
    publisher.publish(Publish::new("a", "4").qos(1));
    publisher.publish(Publish::new("a", "5").qos(1));
    let mut subscriber = broker.accept(&connect);
    let mut aliases = Vec::new();
    for text in ["1", "2", "3", "4", "5"] {
        let message = subscriber.expect_publish();
        assert_eq!(message.text(), text);
        assert_eq!(follow(&mut aliases, 5, &message), "a");
    }
}

/// [MQTT-3.3.2-6]
#[test]
fn the_expiry_interval_is_counted_down_by_the_time_waited() {
    let broker = Broker::start();
    let (connect, subscriber) = persistent(&broker, Version::V5, 1);
    subscriber.disconnect();
    let mut publisher = broker.connect("publisher");
    let expiring = |topic| {
        Publish::new(topic, "x")
            .qos(1)
            .property(id::MESSAGE_EXPIRY_INTERVAL, 100)
    };
    publisher.publish(expiring("a"));
    publisher.publish(expiring("kept").retained());
    broker.let_a_second_pass();
    let mut subscriber = broker.accept(&connect);
    let left = |message: Publish| {
        message
            .properties
            .number(id::MESSAGE_EXPIRY_INTERVAL)
            .unwrap()
    };
    assert!(
        (80..=99).contains(&left(subscriber.take_message("a", "x"))),
        "queued"
    );
    subscriber.subscribe_to("kept", 1);
    assert!(
        (80..=99).contains(&left(subscriber.take_message("kept", "x"))),
        "retained"
    );
    publisher.publish(expiring("a"));
    assert!(
        (99..=100).contains(&left(subscriber.take_message("a", "x"))),
        "live"
    );
}

/// [MQTT-3.3.2-5]
#[test]
fn expired_messages_are_not_delivered() {
    let broker = Broker::start();
    let (connect, subscriber) = persistent(&broker, Version::V5, 2);
    subscriber.disconnect();
    let mut publisher = broker.connect("publisher");
    for (text, expiry) in [("short", 1), ("long", 100)] {
        let expiring = |topic| {
            Publish::new(topic, text)
                .qos(1)
                .property(id::MESSAGE_EXPIRY_INTERVAL, expiry)
        };
        publisher.publish(expiring("a"));
        publisher.publish(expiring(&format!("kept/{text}")).retained());
    }
    broker.let_a_second_pass();
    let mut subscriber = broker.accept(&connect);
    subscriber.take_message("a", "long");
    subscriber.subscribe_to("kept/+", 1);
    subscriber.take_message("kept/long", "long");
    subscriber.expect_nothing_from(&mut publisher);
}

#[test]
fn expired_messages_are_not_delivered_to_3_1_1_clients_either() {
    let broker = Broker::start();
    let (connect, subscriber) = persistent(&broker, Version::V3_1_1, 1);
    subscriber.disconnect();
    let mut publisher = broker.connect("publisher");
    publisher.publish(
        Publish::new("a", "short")
            .qos(1)
            .property(id::MESSAGE_EXPIRY_INTERVAL, 1),
    );
    publisher.publish(Publish::new("a", "stays").qos(1));
    broker.let_a_second_pass();
    broker.accept(&connect).take_message("a", "stays");
}

/// [MQTT-4.3.3-7, MQTT-4.3.3-13]
#[test]
fn a_quality_2_message_once_sent_does_not_expire() {
    let broker = Broker::start();
    let (connect, mut subscriber) = persistent(&broker, Version::V5, 2);
    let mut publisher = broker.connect("publisher");
    publisher.publish(
        Publish::new("a", "x")
            .qos(2)
            .property(id::MESSAGE_EXPIRY_INTERVAL, 1),
    );
    subscriber.expect_message("a", "x");
    subscriber.vanish();
    broker.let_a_second_pass();
    let mut subscriber = broker.accept(&connect);
    let again = subscriber.take_message("a", "x");
    assert!(again.dup);
}

#[test]
fn no_expiry_is_invented_for_a_message_without_one() {
    let broker = Broker::start();
    let (connect, subscriber) = persistent(&broker, Version::V5, 1);
    subscriber.disconnect();
    let mut publisher = broker.connect("publisher");
    publisher.publish(Publish::new("a", "x").qos(1));
    publisher.publish(Publish::new("kept", "x").qos(1).retained());
    let mut subscriber = broker.accept(&connect);
    assert!(subscriber.take_message("a", "x").properties.is_empty());
    subscriber.subscribe_to("kept", 1);
    assert!(subscriber.take_message("kept", "x").properties.is_empty());
}

fn with_every_property(topic: &str) -> Publish {
    Publish::new(topic, "x")
        .property(id::USER_PROPERTY, ("b", "1"))
        .property(id::PAYLOAD_FORMAT_INDICATOR, 1)
        .property(id::CONTENT_TYPE, "text/plain; charset=ütf")
        .property(id::USER_PROPERTY, ("a", "2"))
        .property(id::RESPONSE_TOPIC, "reply/to")
        .property(id::CORRELATION_DATA, b"\x00\xff\x80".as_slice())
        .property(id::USER_PROPERTY, ("b", "1"))
        .property(id::USER_PROPERTY, ("", ""))
}

#[track_caller]
fn assert_every_property(got: &Properties) {
    assert_eq!(got.number(id::PAYLOAD_FORMAT_INDICATOR), Some(1));
    assert_eq!(got.text(id::CONTENT_TYPE), Some("text/plain; charset=ütf"));
    assert_eq!(got.text(id::RESPONSE_TOPIC), Some("reply/to"));
    assert_eq!(
        got.binary(id::CORRELATION_DATA),
        Some(b"\x00\xff\x80".as_slice())
    );
    assert_eq!(got.user(), [("b", "1"), ("a", "2"), ("b", "1"), ("", "")]);
}

/// [MQTT-3.3.2-4, MQTT-3.3.2-15, MQTT-3.3.2-16, MQTT-3.3.2-17, MQTT-3.3.2-18, MQTT-3.3.2-20]
#[test]
fn properties_are_passed_on_unaltered_and_in_order() {
    let broker = Broker::start();
    for qos in 0..=2 {
        let (mut subscriber, mut publisher) = pair(&broker, Version::V5, qos);
        publisher.publish(with_every_property("a").qos(qos));
        assert_every_property(&subscriber.take_message("a", "x").properties);
    }
}

/// [MQTT-3.3.2-4, MQTT-3.3.2-15, MQTT-3.3.2-16, MQTT-3.3.2-17, MQTT-3.3.2-18, MQTT-3.3.2-20]
#[test]
fn properties_are_kept_in_the_offline_queue_and_when_retained() {
    let broker = Broker::start();
    let (connect, subscriber) = persistent(&broker, Version::V5, 1);
    subscriber.disconnect();
    let mut publisher = broker.connect("publisher");
    publisher.publish(with_every_property("a").qos(1));
    publisher.publish(with_every_property("kept").qos(1).retained());
    let mut subscriber = broker.accept(&connect);
    assert_every_property(&subscriber.take_message("a", "x").properties);
    subscriber.subscribe_to("kept", 1);
    assert_every_property(&subscriber.take_message("kept", "x").properties);
}

/// [MQTT-2.2.2-1]
#[test]
fn messages_pass_between_versions_and_lose_only_properties() {
    let broker = Broker::start();
    for from in Version::ALL {
        for to in Version::ALL {
            case(&format!("{from:?} to {to:?}"));
            let mut subscriber = broker.connect_as(to, "subscriber");
            subscriber.subscribe_to("a", 2);
            let mut publisher = broker.connect_as(from, "publisher");
            let message = if from == Version::V5 {
                with_every_property("a")
            } else {
                Publish::new("a", "x")
            };
            publisher.publish(message.qos(2));
            let got = subscriber.take_message("a", "x");
            if from == Version::V5 && to == Version::V5 {
                assert_every_property(&got.properties);
            } else {
                assert!(got.properties.is_empty());
            }
        }
    }
}

/// [MQTT-4.6.0-5, MQTT-4.6.0-6, MQTT311-4.6.0-5, MQTT311-4.6.0-6]
#[test]
fn messages_of_one_topic_arrive_in_the_order_they_were_published() {
    let broker = Broker::start();
    for version in Version::ALL {
        for qos in 0..=2 {
            case(&format!("{version:?}, quality {qos}"));
            let (mut subscriber, mut publisher) = pair(&broker, version, qos);
            for number in 0..100 {
                publisher.publish(Publish::new("a", number.to_string()).qos(qos));
            }
            for number in 0..100 {
                subscriber.take_message("a", &number.to_string());
            }
        }
    }
}

/// [MQTT-4.6.0-5, MQTT-4.5.0-1]
#[test]
fn queued_messages_arrive_in_order_before_live_ones() {
    let broker = Broker::start();
    let (connect, subscriber) = persistent(&broker, Version::V5, 1);
    subscriber.disconnect();
    let mut publisher = broker.connect("publisher");
    for number in 0..100 {
        publisher.publish(Publish::new("a", number.to_string()).qos(1));
    }
    let mut subscriber = broker.attempt(&connect);
    for number in 100..200 {
        publisher.publish(Publish::new("a", number.to_string()).qos(1));
    }
    assert!(subscriber.expect_connack().session_present);
    for number in 0..200 {
        subscriber.take_message("a", &number.to_string());
    }
}

/// [MQTT-4.6.0-2, MQTT-4.6.0-3, MQTT311-4.6.0-2, MQTT311-4.6.0-3]
#[test]
fn acknowledgements_come_in_the_order_of_the_messages() {
    let broker = Broker::start();
    let mut publisher = broker.connect("publisher");
    for (qos, kind) in [(1, AckKind::PubAck), (2, AckKind::PubRec)] {
        // Identifiers in no order of their own.
        let ids: Vec<u16> = (0..15).map(|number| 1 + number * 7 % 15).collect();
        for &packet_id in &ids {
            publisher.send_publish(&Publish::new("a", "x").qos(qos).packet_id(packet_id));
        }
        for &packet_id in &ids {
            publisher.expect_ack(kind, packet_id);
        }
    }
}

/// [MQTT-4.6.0-4, MQTT311-4.6.0-4]
#[test]
fn releases_come_in_the_order_of_the_receipts() {
    let broker = Broker::start();
    let (mut subscriber, mut publisher) = pair(&broker, Version::V5, 2);
    let ids: Vec<u16> = (0..5)
        .map(|_| {
            publisher.publish(Publish::new("a", "x").qos(2));
            subscriber.expect_message("a", "x").packet_id
        })
        .collect();
    for &packet_id in &ids {
        subscriber.send_ack(AckKind::PubRec, packet_id);
    }
    for &packet_id in &ids {
        subscriber.expect_ack(AckKind::PubRel, packet_id);
    }
}

/// [MQTT-3.4.2-1, MQTT-3.5.2-1]
#[test]
fn a_publisher_learns_that_nobody_subscribes() {
    let broker = Broker::start();
    let mut publisher = broker.connect("publisher");
    for qos in [1, 2] {
        let told = publisher.publish(Publish::new("nobody", "x").qos(qos));
        assert_eq!(told, reason::NO_MATCHING_SUBSCRIBERS);
    }
    let mut subscriber = broker.connect("subscriber");
    subscriber.subscribe_to("somebody", 0);
    for qos in [1, 2] {
        assert_eq!(publisher.publish(Publish::new("somebody", "x").qos(qos)), 0);
    }
}

#[test]
fn empty_and_large_payloads_arrive_as_sent() {
    let broker = Broker::start();
    for version in Version::ALL {
        let (mut subscriber, mut publisher) = pair(&broker, version, 2);
        // Around the steps of the remaining length, and larger than one read.
        for length in [0, 1, 121, 122, 123, 16_377, 16_378, 16_379, 200_000] {
            case(&format!("{version:?}: {length} bytes"));
            let payload: Vec<u8> = (0..length).map(|n: u32| n.to_le_bytes()[0]).collect();
            publisher.publish(Publish::new("a", &payload).qos(1));
            let message = subscriber.expect_publish();
            subscriber.complete(&message);
            assert!(message.payload == payload, "the payload has changed");
        }
    }
}

/// [MQTT-4.5.0-1, MQTT-3.3.2-3, MQTT311-3.3.2-3]
#[test]
fn a_message_reaches_every_subscriber_and_no_one_else() {
    let broker = Broker::start();
    let mut subscribers: Vec<Client> = (0..20)
        .map(|number| {
            let mut client = broker.connect(&format!("subscriber {number}"));
            client.subscribe_to(if number % 2 == 0 { "a" } else { "b" }, 1);
            client
        })
        .collect();
    let mut publisher = broker.connect("publisher");
    publisher.publish(Publish::new("a", "x").qos(1));
    for (number, subscriber) in subscribers.iter_mut().enumerate() {
        assert_eq!(
            subscriber.messages_from(&mut publisher).len(),
            usize::from(number % 2 == 0)
        );
    }
}

/// [MQTT-4.5.0-1, MQTT311-3.1.2-5]
#[test]
fn quality_0_is_not_kept_for_a_client_that_is_away() {
    let broker = Broker::start();
    let (connect, subscriber) = persistent(&broker, Version::V5, 1);
    subscriber.disconnect();
    let mut publisher = broker.connect("publisher");
    publisher.publish(Publish::new("a", "quality 0"));
    publisher.publish(Publish::new("a", "quality 1").qos(1));
    let mut subscriber = broker.accept(&connect);
    subscriber.take_message("a", "quality 1");
    subscriber.expect_nothing_from(&mut publisher);
}

/// Two subscriptions, one to what it publishes itself: a client may be both ends.
#[test]
fn a_client_receives_what_it_publishes_itself() {
    let broker = Broker::start();
    for version in Version::ALL {
        for qos in 0..=2 {
            let mut client = broker.connect_as(version, "both");
            client.subscribe(&Subscribe::to("a", qos));
            client.publish(Publish::new("a", "x").qos(qos));
            client.take_message("a", "x");
        }
    }
}

/// Only the broker speaks under `$SYS`.
/// [MQTT311-3.3.5-2]
#[test]
fn a_publish_that_is_not_allowed_is_acknowledged_or_ends_the_connection() {
    let broker = Broker::start();
    let mut watcher = broker.connect("watcher");
    watcher.subscribe_to("$SYS/broker/mine", 1);
    for version in Version::ALL {
        let mut client = broker.connect_as(version, "liar");
        client.send_publish(&Publish::new("$SYS/broker/mine", "x").qos(1).packet_id(1));
        match client.receive_or_close() {
            None => {}
            Some(Packet::Ack(ack)) => assert_eq!((ack.kind, ack.packet_id), (AckKind::PubAck, 1)),
            Some(other) => panic!("{other:?}"),
        }
        let mut publisher = broker.connect("publisher");
        watcher.expect_nothing_from(&mut publisher);
    }
}
