//! Publishing and delivery: quality, order, flow control, sizes, aliases, expiry and properties.

mod order;

use unbroken_acceptance::raw::{
    AckKind, Connect, Packet, Publish, Subscribe, Version, ack, ack_with_reason, id, reason,
};
use unbroken_acceptance::{Broker, Client, Launch, case};

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

/// The client that publishes receives what it publishes, by itself or in a group. On a durable
/// broker the answer waits for the disk if another session keeps the message, or its own does.
#[track_caller]
fn expect_answer_before_own_copy(launch: Launch, shards: u32) {
    let broker = launch.shards(shards).start();
    let mut witness = broker.accept(&Connect::v5("witness").persistent());
    witness.subscribe_to("a/kept", 2);
    // Some ids live on one shard, some on another, and so do groups.
    for number in 0..shards.pow(2) {
        for version in Version::ALL {
            for persistent in [false, true] {
                for filter in ["a/+".to_owned(), format!("$share/g{number}/a/+")] {
                    for granted in 0..=2 {
                        let id = format!("c{number}");
                        case(&format!(
                            "{version:?}, {id}, {persistent}, {filter}, {granted}"
                        ));
                        let mut connect = Connect::new(version, &id);
                        if persistent {
                            connect = connect.persistent();
                        }
                        let mut client = broker.accept(&connect);
                        client.subscribe_to(&filter, granted);
                        for topic in ["a/kept", "a/passing"] {
                            for published in 1..=2 {
                                publish_and_receive(&mut client, topic, published);
                            }
                        }
                        client.disconnect();
                        broker.accept(&Connect::new(version, &id)).disconnect();
                    }
                }
            }
        }
    }
}

/// Several messages at once: each answer comes before the copy, and copies in their order.
#[track_caller]
fn publish_and_receive(client: &mut Client, topic: &str, qos: u8) {
    const COUNT: u16 = 3;
    let answer = [AckKind::PubAck, AckKind::PubRec][usize::from(qos) - 1];
    for packet_id in 1..=COUNT {
        let message = Publish::new(topic, packet_id.to_string()).qos(qos);
        client.send_publish(&message.packet_id(packet_id));
    }
    let (mut answered, mut copies) = (0, Vec::new());
    while copies.len() < usize::from(COUNT) {
        match client.receive() {
            Packet::Ack(ack) if ack.kind == answer => {
                assert_eq!((ack.packet_id, ack.reason), (answered + 1, 0));
                answered += 1;
            }
            Packet::Publish(copy) => {
                copies.push(copy);
                assert!(
                    copies.len() <= usize::from(answered),
                    "{:?} before its answer",
                    copies.last()
                );
            }
            other => panic!("expected an answer or a message, got {other:?}"),
        }
    }
    let texts: Vec<_> = copies.iter().map(Publish::text).collect();
    assert_eq!(texts, ["1", "2", "3"]);
    for copy in &copies {
        client.complete(copy);
    }
    for packet_id in (1..=COUNT).filter(|_| qos == 2) {
        client.send_ack(AckKind::PubRel, packet_id);
        client.await_ack(AckKind::PubComp, packet_id);
    }
}

#[test]
fn a_publisher_is_answered_before_it_receives_its_own_message() {
    for shards in [1, 3] {
        expect_answer_before_own_copy(Launch::default(), shards);
    }
}

#[test]
fn a_publisher_is_answered_before_it_receives_its_own_message_from_disk() {
    for shards in [1, 3] {
        expect_answer_before_own_copy(Launch::default().durable(), shards);
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

/// [MQTT-3.4.2-1, MQTT-3.5.2-1]
#[test]
fn a_publisher_learns_that_there_is_no_subscriber() {
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
