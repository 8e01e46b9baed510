//! Messages of QoS 2 wait until they and their packet ids are stored.

use super::*;

/// A client whose session stays, with this Receive Maximum.
fn with_window(broker: &mut Broker, client_id: &str, window: u16) -> Client {
    let mut properties = PropertyBuf::new();
    for property in [
        Property::SessionExpiryInterval(100),
        Property::ReceiveMaximum(window),
    ] {
        properties.push(property).unwrap();
    }
    let client = broker.open(Version::V5);
    let packet = Connect {
        clean_start: false,
        properties: properties.as_properties(),
        ..connect(client_id)
    };
    broker.send(client, Packet::Connect(packet));
    broker.stored();
    broker.take_asked();
    client
}

/// A client with such a window, which three messages of QoS 2 are stored for.
fn owed_three(window: u16) -> (Broker, Client) {
    let mut broker = durable(1);
    let client = with_window(&mut broker, "s", window);
    subscribe(&mut broker, client, "t", QoS::ExactlyOnce);
    broker.stored();
    broker.take(client);
    let publisher = join(&mut broker, "p");
    for (id, text) in [(1, "a"), (2, "b"), (3, "c")] {
        broker.send(publisher, publish("t", text, QoS::ExactlyOnce, id));
    }
    broker.stored();
    (broker, client)
}

/// [MQTT-3.3.4-9]
#[test]
fn a_window_of_qos_2_waits_for_the_store_once() {
    let (mut broker, client) = owed_three(1);
    assert_eq!(broker.take(client), ["PUBLISH t \"a\" q2 #1"]);
    broker.take_asked();
    broker.send(client, Packet::PubRec(ack(1)));
    assert_eq!(broker.take_asked(), ["received s #1", "given s #2"]);
    broker.stored();
    assert_eq!(broker.take(client), ["PUBREL #1 00"]);
    broker.send(client, Packet::PubComp(ack(1)));
    assert_eq!(broker.take(client), ["PUBLISH t \"b\" q2 #2"]);
    assert_eq!(broker.take_asked(), NOTHING);
    // The next one has its id when the connection is lost, and was not sent.
    broker.send(client, Packet::PubRec(ack(2)));
    assert_eq!(broker.take_asked(), ["received s #2", "given s #3"]);
    broker.cut(client);
    let client = with_window(&mut broker, "s", 1);
    assert_eq!(broker.take(client), ["CONNACK 1 00", "PUBREL #2 00"]);
    broker.send(client, Packet::PubComp(ack(2)));
    assert_eq!(broker.take(client), ["PUBLISH t \"c\" q2 #3"]);
}

/// The id is given while the window is full, and its place is free before it is stored.
#[test]
fn what_has_its_id_ahead_does_not_leave_before_that_is_stored() {
    let (mut broker, client) = owed_three(2);
    broker.take(client);
    broker.send(client, Packet::PubRec(ack(1)));
    let refused = Ack::new(PacketId::new(2).unwrap(), ReasonCode::UnspecifiedError);
    broker.send(client, Packet::PubRec(refused));
    assert_eq!(broker.take(client), NOTHING);
    broker.stored();
    assert_eq!(
        broker.take(client),
        ["PUBREL #1 00", "PUBLISH t \"c\" q2 #3"]
    );
}

#[test]
fn a_qos_2_message_does_not_leave_before_it_and_its_id_are_stored() {
    let mut broker = durable(1);
    let client = resident(&mut broker, "s", &[("t", QoS::ExactlyOnce)]);
    let publisher = join(&mut broker, "p");
    broker.send(publisher, publish("t", "x", QoS::ExactlyOnce, 9));
    assert_eq!(broker.take_asked(), ["message t", "given s #1"]);
    broker.stored_one();
    assert_eq!(broker.take(publisher), ["PUBREC #9 00"]);
    assert_eq!(broker.take(client), NOTHING, "the message is stored");
    broker.stored_one();
    assert_eq!(broker.take(client), ["PUBLISH t \"x\" q2 #1"]);
}

#[test]
fn a_qos_2_message_from_another_shard_is_asked_to_be_stored_before_its_id() {
    let mut broker = durable(3);
    for n in 0..9 {
        let topic = format!("t{n}");
        resident(&mut broker, &format!("s{n}"), &[(&topic, QoS::ExactlyOnce)]);
        let publisher = join(&mut broker, "p");
        broker.send(publisher, publish(&topic, "x", QoS::ExactlyOnce, 9));
        let expected = [format!("message {topic}"), format!("given s{n} #1")];
        assert_eq!(broker.take_asked(), expected);
        broker.stored();
    }
}

// [MQTT-4.3.3-6]
#[test]
fn pubrel_does_not_leave_before_it_is_stored_that_pubrec_came() {
    let mut broker = durable(1);
    let client = resident(&mut broker, "s", &[("t", QoS::ExactlyOnce)]);
    let publisher = join(&mut broker, "p");
    broker.send(publisher, publish("t", "x", QoS::ExactlyOnce, 9));
    broker.stored();
    broker.take(client);
    broker.take_asked();
    broker.send(client, Packet::PubRec(ack(1)));
    held(&mut broker, client, "received s #1", &["PUBREL #1 00"]);
    broker.send(client, Packet::PubRec(ack(1)));
    assert_eq!(broker.take_asked(), NOTHING, "it is known");
    assert_eq!(broker.take(client), ["PUBREL #1 00"]);
}

// [MQTT-4.6.0-5] [MQTT-4.6.0-6]
#[test]
fn nothing_of_qos_1_or_2_overtakes_a_message_that_waits_for_its_id() {
    let mut broker = durable(1);
    let client = resident(&mut broker, "s", &[("t", QoS::ExactlyOnce)]);
    let publisher = join(&mut broker, "p");
    broker.send(publisher, publish("t", "a", QoS::ExactlyOnce, 1));
    broker.send(publisher, publish("t", "b", QoS::AtLeastOnce, 2));
    broker.send(publisher, publish("t", "c", QoS::ExactlyOnce, 3));
    let asked = [
        "message t",
        "given s #1",
        "message t",
        "message t",
        "given s #3",
    ];
    assert_eq!(broker.take_asked(), asked);
    assert_eq!(broker.take(client), NOTHING);
    broker.stored_one();
    assert_eq!(broker.take(client), NOTHING);
    broker.stored_one();
    let first_two = ["PUBLISH t \"a\" q2 #1", "PUBLISH t \"b\" q1 #2"];
    assert_eq!(broker.take(client), first_two);
    broker.stored();
    assert_eq!(broker.take(client), ["PUBLISH t \"c\" q2 #3"]);
}

// [MQTT-3.3.1-1] [MQTT-4.4.0-1]
#[test]
fn a_message_whose_connection_broke_before_it_left_is_sent_without_dup_when_its_id_is_stored() {
    let mut broker = durable(1);
    let mut client = resident(&mut broker, "s", &[("t", QoS::ExactlyOnce)]);
    let publisher = join(&mut broker, "p");
    broker.send(publisher, publish("t", "a", QoS::ExactlyOnce, 1));
    broker.send(publisher, publish("t", "b", QoS::AtLeastOnce, 2));
    broker.cut(client);
    client = stay(&mut broker, "s", false);
    assert_eq!(broker.take(client), NOTHING, "the ids are not stored");
    broker.stored();
    let expected = [
        "CONNACK 1 00",
        "PUBLISH t \"a\" q2 #1",
        "PUBLISH t \"b\" q1 #2",
    ];
    assert_eq!(broker.take(client), expected);
}

#[test]
fn a_pubrel_whose_connection_broke_is_sent_when_it_is_stored_that_pubrec_came() {
    let mut broker = durable(1);
    let mut client = resident(&mut broker, "s", &[("t", QoS::ExactlyOnce)]);
    let publisher = join(&mut broker, "p");
    broker.send(publisher, publish("t", "a", QoS::ExactlyOnce, 1));
    broker.stored();
    broker.send(client, Packet::PubRec(ack(1)));
    broker.cut(client);
    client = stay(&mut broker, "s", false);
    assert_eq!(broker.take(client), NOTHING);
    broker.stored();
    assert_eq!(broker.take(client), ["CONNACK 1 00", "PUBREL #1 00"]);
}

// [MQTT-3.3.2-5]
#[test]
fn a_message_that_expires_before_its_id_is_stored_is_dropped_and_named() {
    let mut broker = durable(1);
    let client = resident(&mut broker, "s", &[("t", QoS::ExactlyOnce)]);
    let publisher = join(&mut broker, "p");
    let mut properties = PropertyBuf::new();
    properties.push(Property::MessageExpiryInterval(1)).unwrap();
    let Packet::Publish(packet) = publish("t", "a", QoS::ExactlyOnce, 1) else {
        unreachable!()
    };
    let packet = Publish {
        properties: properties.as_properties(),
        ..packet
    };
    broker.send(publisher, Packet::Publish(packet));
    broker.advance(Duration::from_secs(2));
    broker.stored();
    assert_eq!(broker.take(client), NOTHING);
    let stats = broker.shards[0].stats();
    assert_eq!(stats.dropped[DropReason::Expired as usize], 1);
    assert_eq!(stats.messages_waiting, 0);
}

// [MQTT-3.1.2-25]
#[test]
fn a_held_message_that_is_dropped_makes_room_for_the_next() {
    let mut broker = durable(1);
    let mut properties = PropertyBuf::new();
    for property in [
        Property::SessionExpiryInterval(100),
        Property::ReceiveMaximum(1),
        Property::MaximumPacketSize(60),
    ] {
        properties.push(property).unwrap();
    }
    let packet = Connect {
        properties: properties.as_properties(),
        ..connect("s")
    };
    let client = broker.open(Version::V5);
    broker.send(client, Packet::Connect(packet));
    subscribe(&mut broker, client, "t", QoS::ExactlyOnce);
    broker.stored();
    broker.stored();
    broker.take(client);
    let publisher = join(&mut broker, "p");
    let long = "x".repeat(100);
    broker.send(publisher, publish("t", &long, QoS::ExactlyOnce, 1));
    broker.send(publisher, publish("t", "short", QoS::ExactlyOnce, 2));
    broker.stored();
    broker.stored();
    assert_eq!(broker.take(client), ["PUBLISH t \"short\" q2 #2"]);
}

// [MQTT-3.3.2-5]
#[test]
fn a_message_that_never_left_and_has_expired_is_not_sent_after_a_reconnect() {
    for qos in [QoS::AtLeastOnce, QoS::ExactlyOnce] {
        let mut broker = durable(1);
        let client = resident(&mut broker, "s", &[("t", QoS::ExactlyOnce)]);
        let publisher = join(&mut broker, "p");
        // Its id is being stored, and what comes behind it waits for that too.
        broker.send(publisher, publish("t", "first", QoS::ExactlyOnce, 1));
        let mut properties = PropertyBuf::new();
        properties.push(Property::MessageExpiryInterval(5)).unwrap();
        let Packet::Publish(packet) = publish("t", "brief", qos, 2) else {
            unreachable!()
        };
        let brief = Publish {
            properties: properties.as_properties(),
            ..packet
        };
        broker.send(publisher, Packet::Publish(brief));
        assert_eq!(broker.take(client), NOTHING);
        broker.cut(client);
        broker.stored();
        broker.advance(Duration::from_secs(6));
        let client = stay(&mut broker, "s", false);
        broker.stored();
        assert_eq!(
            broker.take(client),
            ["CONNACK 1 00", "PUBLISH t \"first\" q2 #1"],
            "{qos:?}"
        );
        let dropped = &broker.shards[0].stats().dropped;
        assert_eq!(dropped[DropReason::Expired as usize], 1);
        assert_eq!(broker.shards[0].audit_imbalance(), 0);
    }
}
