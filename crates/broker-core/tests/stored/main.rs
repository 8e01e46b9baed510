//! Stored before it leaves: each packet that promises something to a session that stays, and what
//! is asked of the store for it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../shard_bus/mod.rs"]
mod shard_bus;

mod connack;
mod qos2;
mod ranges;

use std::time::Duration;

use shard_bus::{
    Broker, Client, connect, join, publish, resident, retained, stay, subscribe, unsubscribe,
};
use unbroken_broker_core::{DropReason, Event, Limits, Settings};
use unbroken_mqtt_proto::{
    Ack, Connect, Disconnect, Packet, PacketId, Properties, Property, PropertyBuf, Publish, QoS,
    ReasonCode, Version, Will,
};

const NOTHING: [&str; 0] = [];

fn durable(shards: u8) -> Broker {
    durable_with(shards, |_| {})
}

fn durable_with(shards: u8, change: impl FnOnce(&mut Limits)) -> Broker {
    let mut settings = Settings::default();
    settings.durable = true;
    let mut limits = Limits::default();
    change(&mut limits);
    limits.check().unwrap();
    Broker::with(shards, limits, settings)
}

fn ack(id: u16) -> Ack<'static> {
    Ack::success(PacketId::new(id).unwrap())
}

/// Nothing leaves before the store has answered; then all of `expected` does.
fn held(broker: &mut Broker, client: Client, record: &str, expected: &[&str]) {
    assert_eq!(broker.take_asked(), [record]);
    assert_eq!(broker.take(client), NOTHING, "before it is stored");
    broker.stored();
    assert_eq!(broker.take(client), expected);
}

fn join_when_stored(broker: &mut Broker, client_id: &str) -> Client {
    let client = broker.open(Version::V5);
    broker.send(client, Packet::Connect(connect(client_id)));
    broker.stored();
    assert_eq!(broker.take(client), ["CONNACK 0 00"]);
    client
}

#[test]
fn a_client_is_not_given_up_while_it_waits_for_the_store() {
    // [MQTT-3.1.2-22]
    let mut broker = durable(1);
    let mut properties = PropertyBuf::new();
    properties.push(Property::SessionExpiryInterval(7)).unwrap();
    let packet = Connect {
        keep_alive: 10,
        properties: properties.as_properties(),
        ..connect("s")
    };
    let client = broker.open(Version::V5);
    broker.send(client, Packet::Connect(packet));
    broker.advance(Duration::from_mins(1));
    assert!(broker.is_open(client));
    broker.stored();
    assert_eq!(broker.take(client), ["CONNACK 0 00"]);
    broker.advance(Duration::from_secs(14));
    assert!(broker.is_open(client));
    broker.advance(Duration::from_secs(30));
    assert!(!broker.is_open(client));
}

#[test]
fn a_client_that_takes_what_it_is_sent_is_not_given_up_for_what_is_not_read() {
    // [MQTT-3.1.2-22]
    let mut broker = durable_with(1, |limits| limits.output_bytes_max = 600);
    resident(&mut broker, "s", &[("t", QoS::AtLeastOnce)]);
    let client = broker.open(Version::V5);
    let packet = Connect {
        keep_alive: 10,
        ..connect("c")
    };
    broker.send(client, Packet::Connect(packet));
    broker.take(client);
    broker.hold_writes = true;
    // Some answers wait for the client, and others for the disk.
    broker.send_bytes(client, &[0x62, 2, 0, 1].repeat(70));
    for id in 1..=20 {
        broker.send(client, publish("t", "x", QoS::AtLeastOnce, id));
    }
    assert!(!broker.wants_input(client));
    assert!((300..600).contains(&broker.pending(client)));
    broker.advance(Duration::from_secs(10));
    broker.write(client, 1);
    broker.advance(Duration::from_secs(10));
    assert!(broker.is_open(client), "its keep alive is not read");
    broker.advance(Duration::from_secs(10));
    assert!(!broker.is_open(client), "it takes nothing any more");
}

#[test]
fn suback_does_not_leave_before_it_is_stored() {
    for shards in [1, 3] {
        let mut broker = durable(shards);
        let client = resident(&mut broker, "s", &[]);
        subscribe(&mut broker, client, "t", QoS::AtLeastOnce);
        held(
            &mut broker,
            client,
            "subscribed s t q1",
            &["SUBACK #1 [01]"],
        );
    }
}

#[test]
fn what_a_client_subscribes_to_twice_is_stored_once_and_both_answers_wait_for_it() {
    let mut broker = durable(3);
    let client = resident(&mut broker, "s", &[]);
    broker.hold_messages = true;
    for _ in 0..2 {
        subscribe(&mut broker, client, "t", QoS::AtLeastOnce);
    }
    broker.hold_messages = false;
    broker.deliver_messages();
    let expected = ["SUBACK #1 [01]", "SUBACK #1 [01]"];
    held(&mut broker, client, "subscribed s t q1", &expected);
}

#[test]
fn unsuback_does_not_leave_before_it_is_stored() {
    let mut broker = durable(1);
    let client = resident(&mut broker, "s", &[("t", QoS::AtLeastOnce)]);
    unsubscribe(&mut broker, client, "t");
    held(
        &mut broker,
        client,
        "unsubscribed s t",
        &["UNSUBACK #1 [00]"],
    );
    unsubscribe(&mut broker, client, "t");
    assert_eq!(
        broker.take(client),
        ["UNSUBACK #1 [11]"],
        "there was nothing"
    );
}

#[test]
fn puback_does_not_leave_before_the_message_is_stored() {
    for shards in [1, 3] {
        let mut broker = durable(shards);
        let client = resident(&mut broker, "s", &[("t", QoS::AtLeastOnce)]);
        broker.cut(client);
        let publisher = join(&mut broker, "p");
        broker.send(publisher, publish("t", "x", QoS::AtLeastOnce, 1));
        held(&mut broker, publisher, "message t", &["PUBACK #1 00"]);
    }
}

#[test]
fn puback_of_a_retained_message_waits_for_the_store_of_the_shard_that_keeps_it() {
    for shards in [1, 2, 3] {
        for topic in ["a", "b", "c", "d"] {
            let mut broker = durable(shards);
            let publisher = join(&mut broker, "p");
            broker.send(publisher, retained(topic, "x", QoS::AtLeastOnce, 1));
            let record = format!("retained {topic}");
            held(&mut broker, publisher, &record, &["PUBACK #1 10"]);
            broker.send(publisher, retained(topic, "", QoS::AtLeastOnce, 2));
            let record = format!("unretained {topic}");
            held(&mut broker, publisher, &record, &["PUBACK #2 10"]);
            broker.send(publisher, retained(topic, "y", QoS::AtMostOnce, 0));
            assert_eq!(broker.take_asked(), [format!("retained {topic}")]);
        }
    }
}

#[test]
fn what_only_sessions_get_that_end_with_their_connection_is_not_stored() {
    for shards in [1, 3] {
        let mut broker = durable(shards);
        let publisher = join(&mut broker, "p");
        let mut receivers = Vec::new();
        for client_id in ["a", "b", "c", "d", "e", "f"] {
            let client = join(&mut broker, client_id);
            subscribe(&mut broker, client, "t", QoS::AtLeastOnce);
            subscribe(&mut broker, client, "$share/g/t", QoS::AtLeastOnce);
            receivers.push(client);
        }
        broker.send(publisher, publish("t", "x", QoS::AtLeastOnce, 1));
        assert_eq!(broker.take_asked(), Vec::<String>::new());
        assert_eq!(broker.take(publisher), ["PUBACK #1 00"]);
        let copies = receivers
            .iter()
            .flat_map(|client| broker.take_payloads(*client));
        assert_eq!(copies.count(), 7, "{shards} shards");
    }
}

#[test]
fn what_a_session_gets_that_stays_among_others_is_stored_from_its_suback_on() {
    for filter in ["t", "$share/g/t"] {
        for client_id in ["s", "u", "v", "w"] {
            let mut broker = durable(3);
            let publisher = join(&mut broker, "p");
            for passing in ["a", "b", "c", "d"] {
                let client = join(&mut broker, passing);
                subscribe(&mut broker, client, filter, QoS::AtLeastOnce);
            }
            resident(&mut broker, client_id, &[(filter, QoS::AtLeastOnce)]);
            broker.take_asked();
            broker.send(publisher, publish("t", "x", QoS::AtLeastOnce, 1));
            let asked = broker.take_asked();
            assert!(
                asked.contains(&"message t".to_owned()),
                "{client_id}: {asked:?}"
            );
        }
    }
}

// [MQTT-4.3.3-10]
#[test]
fn pubrec_waits_for_the_marker_though_nobody_wants_the_message() {
    let mut broker = durable(1);
    let publisher = resident(&mut broker, "p", &[]);
    broker.send(publisher, publish("t", "x", QoS::ExactlyOnce, 5));
    held(&mut broker, publisher, "marker p #5", &["PUBREC #5 10"]);
}

#[test]
fn a_message_and_its_marker_are_one_record() {
    let mut broker = durable(1);
    resident(&mut broker, "s", &[("t", QoS::AtLeastOnce)]);
    let publisher = resident(&mut broker, "p", &[]);
    broker.send(publisher, publish("t", "x", QoS::ExactlyOnce, 5));
    held(&mut broker, publisher, "message t #5", &["PUBREC #5 00"]);
}

// [MQTT-4.3.3-11]
#[test]
fn pubcomp_does_not_leave_before_it_is_stored_that_the_id_is_free() {
    let mut broker = durable(1);
    let publisher = resident(&mut broker, "p", &[]);
    broker.send(publisher, publish("t", "x", QoS::ExactlyOnce, 5));
    broker.stored();
    broker.take(publisher);
    broker.take_asked();
    broker.send(publisher, Packet::PubRel(ack(5)));
    held(&mut broker, publisher, "released p #5", &["PUBCOMP #5 00"]);
    broker.send(publisher, Packet::PubRel(ack(6)));
    assert_eq!(
        broker.take(publisher),
        ["PUBCOMP #6 92"],
        "nothing was freed"
    );
}

#[test]
fn a_publisher_gets_its_own_message_behind_the_answer() {
    use QoS::{AtLeastOnce, AtMostOnce, ExactlyOnce};
    for filter in ["t", "$share/g/t"] {
        for stays in [true, false] {
            for (published, answer) in
                [(AtLeastOnce, "PUBACK #5 00"), (ExactlyOnce, "PUBREC #5 00")]
            {
                for granted in [AtMostOnce, AtLeastOnce, ExactlyOnce] {
                    let mut broker = durable(1);
                    resident(&mut broker, "witness", &[("t", AtLeastOnce)]);
                    let client = if stays {
                        resident(&mut broker, "s", &[(filter, granted)])
                    } else {
                        let client = join_when_stored(&mut broker, "s");
                        subscribe(&mut broker, client, filter, granted);
                        broker.take(client);
                        client
                    };
                    broker.send(client, publish("t", "x", published, 5));
                    assert_eq!(broker.take(client), NOTHING, "before it is stored");
                    broker.stored();
                    let copy = match granted.min(published) {
                        AtMostOnce => "PUBLISH t \"x\" q0",
                        AtLeastOnce => "PUBLISH t \"x\" q1 #1",
                        ExactlyOnce => "PUBLISH t \"x\" q2 #1",
                    };
                    assert_eq!(broker.take(client), [answer, copy], "{filter}, {stays}");
                }
            }
        }
    }
}

#[test]
fn a_qos_0_copy_that_waits_for_the_answer_is_named_if_the_connection_ends_first() {
    let mut broker = durable(1);
    let client = resident(&mut broker, "s", &[("t", QoS::AtMostOnce)]);
    broker.send(client, publish("t", "x", QoS::ExactlyOnce, 5));
    broker.cut(client);
    let named = broker.events.iter().any(|event| {
        matches!(event, Event::Dropped { client_id, topic, reason: DropReason::ConnectionLost, count: 1, .. }
            if &**client_id == "s" && &**topic == "t")
    });
    assert!(named, "{:?}", broker.events);
    broker.stored();
    let client = stay(&mut broker, "s", false);
    broker.stored();
    let again = Publish {
        dup: true,
        qos: QoS::ExactlyOnce,
        retain: false,
        topic: "t",
        packet_id: PacketId::new(5),
        properties: Properties::EMPTY,
        payload: b"x",
    };
    broker.send(client, Packet::Publish(again));
    assert_eq!(broker.take(client), ["CONNACK 1 00", "PUBREC #5 00"]);
}

// [MQTT-4.6.0-2] [MQTT-4.6.0-3]
#[test]
fn answers_leave_in_the_order_of_what_they_answer() {
    let mut broker = durable(1);
    resident(&mut broker, "s", &[("t", QoS::AtLeastOnce)]);
    let publisher = resident(&mut broker, "p", &[]);
    broker.send(publisher, publish("t", "a", QoS::AtLeastOnce, 1));
    broker.send(publisher, publish("nobody", "b", QoS::AtLeastOnce, 2));
    broker.send(publisher, publish("nobody", "c", QoS::ExactlyOnce, 3));
    broker.send(publisher, publish("nobody", "d", QoS::AtLeastOnce, 4));
    broker.send(publisher, Packet::PubRel(ack(3)));
    assert_eq!(broker.take(publisher), NOTHING);
    broker.stored_one();
    assert_eq!(broker.take(publisher), ["PUBACK #1 00", "PUBACK #2 10"]);
    broker.stored_one();
    assert_eq!(broker.take(publisher), ["PUBREC #3 10", "PUBACK #4 10"]);
    broker.stored_one();
    assert_eq!(broker.take(publisher), ["PUBCOMP #3 00"]);
}

#[test]
fn another_time_to_stay_at_goodbye_is_stored() {
    let mut broker = durable(1);
    let client = resident(&mut broker, "s", &[]);
    let mut properties = PropertyBuf::new();
    properties.push(Property::SessionExpiryInterval(7)).unwrap();
    let goodbye = Disconnect {
        reason: ReasonCode::Success,
        properties: properties.as_properties(),
    };
    broker.send(client, Packet::Disconnect(goodbye));
    assert_eq!(broker.take_asked(), ["session s 7 s"]);
}

#[test]
fn sessions_that_end_with_their_connection_ask_for_nothing() {
    let mut broker = durable(1);
    let client = join(&mut broker, "s");
    let old = broker.open(Version::V3_1_1);
    let packet = Connect {
        version: Version::V3_1_1,
        ..connect("old")
    };
    broker.send(old, Packet::Connect(packet));
    assert_eq!(broker.take(old), ["CONNACK 0 00"]);
    subscribe(&mut broker, client, "t", QoS::ExactlyOnce);
    subscribe(&mut broker, client, "u", QoS::ExactlyOnce);
    unsubscribe(&mut broker, client, "u");
    broker.send(old, publish("t", "x", QoS::ExactlyOnce, 5));
    broker.send(old, Packet::PubRel(ack(5)));
    broker.send(old, publish("t", "y", QoS::AtLeastOnce, 6));
    broker.send(old, publish("t", "z", QoS::AtMostOnce, 0));
    broker.send(client, Packet::PubRec(ack(1)));
    assert_eq!(
        broker.take(old),
        ["PUBREC #5 00", "PUBCOMP #5 00", "PUBACK #6 00"]
    );
    let expected = [
        "SUBACK #1 [02]",
        "SUBACK #1 [02]",
        "UNSUBACK #1 [00]",
        "PUBLISH t \"x\" q2 #1",
        "PUBLISH t \"y\" q1 #2",
        "PUBLISH t \"z\" q0",
        "PUBREL #1 00",
    ];
    assert_eq!(broker.take(client), expected);
    broker.cut(client);
    broker.cut(old);
    assert_eq!(broker.take_asked(), NOTHING);
}

#[test]
fn qos_0_is_not_stored_and_waits_for_nothing() {
    let mut broker = durable(3);
    let client = resident(
        &mut broker,
        "s",
        &[("t", QoS::ExactlyOnce), ("u", QoS::AtMostOnce)],
    );
    let publisher = join(&mut broker, "p");
    broker.send(publisher, publish("t", "x", QoS::AtMostOnce, 0));
    assert_eq!(broker.take_asked(), NOTHING);
    assert_eq!(broker.take(client), ["PUBLISH t \"x\" q0"]);
}

#[test]
fn nothing_is_asked_where_nothing_is_durable() {
    let mut broker = Broker::new(2);
    let client = stay(&mut broker, "s", true);
    subscribe(&mut broker, client, "t", QoS::ExactlyOnce);
    let publisher = stay(&mut broker, "p", true);
    broker.send(publisher, retained("t", "x", QoS::ExactlyOnce, 5));
    broker.send(publisher, Packet::PubRel(ack(5)));
    broker.send(client, Packet::PubRec(ack(1)));
    broker.cut(client);
    broker.advance(Duration::from_secs(101));
    assert_eq!(broker.take_asked(), NOTHING);
}

#[test]
fn a_will_and_the_end_of_its_session_are_stored_though_nobody_waits_for_them() {
    let mut broker = durable(1);
    resident(&mut broker, "s", &[("t", QoS::AtLeastOnce)]);
    let mut properties = PropertyBuf::new();
    properties.push(Property::SessionExpiryInterval(7)).unwrap();
    let packet = Connect {
        properties: properties.as_properties(),
        will: Some(Will {
            qos: QoS::AtLeastOnce,
            retain: false,
            topic: "t",
            properties: Properties::EMPTY,
            payload: b"gone",
        }),
        ..connect("c")
    };
    let client = broker.open(Version::V5);
    broker.send(client, Packet::Connect(packet));
    broker.stored();
    broker.take_asked();
    broker.cut(client);
    broker.advance(Duration::from_secs(8));
    let mut asked = broker.take_asked();
    asked.retain(|record| !record.starts_with("progress"));
    assert_eq!(asked, ["will t", "end c"]);
}
