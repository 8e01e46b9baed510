//! The order of messages and answers, and messages that are sent again.

use super::*;

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
