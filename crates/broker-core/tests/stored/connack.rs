//! CONNACK waits until session and will are stored.

use super::*;

#[test]
fn connack_of_a_session_that_stays_does_not_leave_before_it_is_stored() {
    let mut broker = durable(1);
    let client = stay(&mut broker, "s", true);
    held(
        &mut broker,
        client,
        "session s 100 s new",
        &["CONNACK 0 00"],
    );
}

#[test]
fn connack_after_a_clean_start_waits_until_the_old_session_is_gone() {
    let mut broker = durable(1);
    let first = resident(&mut broker, "s", &[]);
    broker.cut(first);
    let client = broker.open(Version::V5);
    broker.send(client, Packet::Connect(connect("s")));
    held(&mut broker, client, "end s", &["CONNACK 0 00"]);
}

#[test]
fn connack_says_that_there_is_no_session_only_when_the_one_that_was_ended_is_gone() {
    let mut broker = durable(1);
    let client = resident(&mut broker, "s", &[]);
    let mut properties = PropertyBuf::new();
    properties.push(Property::SessionExpiryInterval(0)).unwrap();
    let goodbye = Disconnect {
        reason: ReasonCode::Success,
        properties: properties.as_properties(),
    };
    broker.send(client, Packet::Disconnect(goodbye));
    let client = broker.open(Version::V5);
    broker.send(client, Packet::Connect(connect("s")));
    held(&mut broker, client, "end s", &["CONNACK 0 00"]);
}

/// A client with a will that waits for it, and that is on disk. `expiry_s`: of its session.
fn with_will(broker: &mut Broker, client_id: &str, expiry_s: u32) -> Client {
    let mut of_will = PropertyBuf::new();
    of_will.push(Property::WillDelayInterval(10)).unwrap();
    let mut properties = PropertyBuf::new();
    properties
        .push(Property::SessionExpiryInterval(expiry_s))
        .unwrap();
    let packet = Connect {
        clean_start: false,
        properties: properties.as_properties(),
        will: Some(Will {
            qos: QoS::AtLeastOnce,
            retain: false,
            topic: "t",
            properties: of_will.as_properties(),
            payload: b"gone",
        }),
        ..connect(client_id)
    };
    let client = broker.open(Version::V5);
    broker.send(client, Packet::Connect(packet));
    broker.stored();
    broker.take(client);
    broker.take_asked();
    client
}

/// [MQTT-3.1.3-9]
#[test]
fn connack_waits_until_the_will_of_the_connection_before_is_gone() {
    let mut broker = durable(1);
    let client = with_will(&mut broker, "s", 100);
    broker.cut(client);
    broker.take_asked();
    let client = stay(&mut broker, "s", false);
    held(&mut broker, client, "will over s", &["CONNACK 1 00"]);
}

/// [MQTT-3.1.2-10]
#[test]
fn connack_waits_until_a_will_that_was_discarded_is_gone() {
    let mut broker = durable(1);
    let client = with_will(&mut broker, "s", 0);
    let goodbye = Disconnect {
        reason: ReasonCode::Success,
        properties: Properties::EMPTY,
    };
    broker.send(client, Packet::Disconnect(goodbye));
    let client = broker.open(Version::V5);
    broker.send(client, Packet::Connect(connect("s")));
    held(&mut broker, client, "will over s", &["CONNACK 0 00"]);
}

#[test]
fn connack_waits_for_another_time_to_stay() {
    let mut broker = durable(1);
    let client = resident(&mut broker, "s", &[]);
    broker.cut(client);
    let mut properties = PropertyBuf::new();
    properties.push(Property::SessionExpiryInterval(7)).unwrap();
    let packet = Connect {
        clean_start: false,
        properties: properties.as_properties(),
        ..connect("s")
    };
    let client = broker.open(Version::V5);
    broker.send(client, Packet::Connect(packet));
    held(&mut broker, client, "session s 7 s", &["CONNACK 1 00"]);
}

#[test]
fn connack_of_an_unchanged_session_leaves_at_once() {
    let mut broker = durable(1);
    let first = resident(&mut broker, "s", &[]);
    broker.cut(first);
    let client = stay(&mut broker, "s", false);
    assert_eq!(broker.take(client), ["CONNACK 1 00"]);
    assert_eq!(broker.take_asked(), NOTHING);
}

#[test]
fn connack_of_a_session_whose_first_connection_broke_waits_for_it_all_the_same() {
    let mut broker = durable(1);
    let first = stay(&mut broker, "s", true);
    broker.cut(first);
    let client = stay(&mut broker, "s", false);
    held(
        &mut broker,
        client,
        "session s 100 s new",
        &["CONNACK 1 00"],
    );
}

// [MQTT-3.1.4-6]
#[test]
fn nothing_is_ahead_of_connack_that_waits() {
    let mut broker = durable(1);
    let first = resident(&mut broker, "s", &[("t", QoS::AtMostOnce)]);
    broker.cut(first);
    let mut properties = PropertyBuf::new();
    properties.push(Property::SessionExpiryInterval(7)).unwrap();
    let packet = Connect {
        clean_start: false,
        properties: properties.as_properties(),
        ..connect("s")
    };
    let client = broker.open(Version::V5);
    broker.send(client, Packet::Connect(packet));
    broker.send(client, Packet::PingReq);
    let publisher = join(&mut broker, "p");
    broker.send(publisher, publish("t", "x", QoS::AtMostOnce, 0));
    assert!(!broker.wants_input(client));
    let all = ["CONNACK 1 00", "PUBLISH t \"x\" q0", "PINGRESP"];
    held(&mut broker, client, "session s 7 s", &all);
    assert!(broker.wants_input(client));
}

// [MQTT-3.1.4-3]
#[test]
fn a_client_that_is_replaced_before_its_connack_may_leave_is_not_told_that_it_is_in() {
    let mut broker = durable(1);
    let first = stay(&mut broker, "s", true);
    let second = stay(&mut broker, "s", false);
    assert_eq!(broker.take(first), NOTHING);
    assert!(!broker.is_open(first));
    broker.stored();
    assert_eq!(broker.take(second), ["CONNACK 1 00"]);
}

#[test]
fn what_was_written_behind_a_connack_that_never_left_is_named_as_dropped() {
    let mut broker = durable(1);
    let first = resident(&mut broker, "s", &[("t", QoS::AtMostOnce)]);
    broker.cut(first);
    let client = stay(&mut broker, "s", true);
    broker.cut(client);
    let client = stay(&mut broker, "s", true);
    let publisher = join_when_stored(&mut broker, "p");
    subscribe(&mut broker, client, "t", QoS::AtMostOnce);
    broker.stored();
    broker.take(client);
    broker.cut(client);
    // Another session in its place, whose CONNACK waits.
    let mut properties = PropertyBuf::new();
    properties.push(Property::SessionExpiryInterval(7)).unwrap();
    let packet = Connect {
        clean_start: false,
        properties: properties.as_properties(),
        ..connect("s")
    };
    let client = broker.open(Version::V5);
    broker.send(client, Packet::Connect(packet));
    broker.send(publisher, publish("t", "x", QoS::AtMostOnce, 0));
    stay(&mut broker, "s", false);
    let named = broker.events.iter().any(|event| {
        matches!(event, Event::Dropped { client_id, topic, reason: DropReason::ConnectionLost, count: 1, .. }
            if &**client_id == "s" && &**topic == "t")
    });
    assert!(named, "{:?}", broker.events);
}
