//! What must hold whatever the number of shards: the same clients see the same broker.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod shard_bus;

use std::time::Duration;

use shard_bus::{Broker, connect, join, publish, retained, stay, subscribe};
use unbroken_broker_core::{Limits, Settings};
use unbroken_mqtt_proto::{
    Ack, Connect, Packet, PacketId, Property, PropertyBuf, QoS, ReasonCode, Version, Will,
};

const SHARDS: [u8; 4] = [1, 2, 3, 8];

#[test]
fn every_subscriber_on_every_shard_gets_a_message_once() {
    for shards in SHARDS {
        let mut broker = Broker::new(shards);
        let clients: Vec<_> = (0..20)
            .map(|n| join(&mut broker, &format!("c{n}")))
            .collect();
        for &client in &clients {
            subscribe(&mut broker, client, "a/+", QoS::AtLeastOnce);
            assert_eq!(broker.take(client), ["SUBACK #1 [01]"]);
        }
        broker.send(clients[3], publish("a/b", "x", QoS::AtMostOnce, 0));
        broker.send(clients[4], publish("a/c", "y", QoS::AtLeastOnce, 9));
        assert_eq!(
            broker.take(clients[4]),
            [
                "PUBLISH a/b \"x\" q0",
                "PUBACK #9 00",
                "PUBLISH a/c \"y\" q1 #1"
            ],
            "{shards} shards"
        );
        for &client in &clients[5..] {
            assert_eq!(
                broker.take(client),
                ["PUBLISH a/b \"x\" q0", "PUBLISH a/c \"y\" q1 #1"],
                "{shards} shards"
            );
        }
    }
}

/// Those of QoS 0 go to another shard together, the others by themselves.
#[test]
fn what_one_read_brought_arrives_in_order_whatever_its_quality() {
    for shards in SHARDS {
        let mut broker = Broker::new(shards);
        let subscribers: Vec<_> = (0..8)
            .map(|n| join(&mut broker, &format!("s{n}")))
            .collect();
        for &subscriber in &subscribers {
            subscribe(&mut broker, subscriber, "a/#", QoS::AtLeastOnce);
            broker.take(subscriber);
        }
        let publisher = join(&mut broker, "p");
        let (mut bytes, mut expected) = (Vec::new(), Vec::new());
        for n in 0..40 {
            let qos = u16::from(n % 5 == 3);
            let (topic, payload, id) = (format!("a/{}", n % 2), n.to_string(), qos * (n + 1));
            let quality = [QoS::AtMostOnce, QoS::AtLeastOnce][usize::from(qos)];
            publish(&topic, &payload, quality, id)
                .encode(Version::V5, &mut bytes)
                .unwrap();
            expected.push(format!("PUBLISH {topic} \"{payload}\" q{qos}"));
        }
        broker.send_bytes(publisher, &bytes);
        for subscriber in subscribers {
            let mut got = broker.take(subscriber);
            for packet in &mut got {
                packet.truncate(packet.find(" #").unwrap_or(packet.len()));
            }
            assert_eq!(got, expected, "{shards} shards");
        }
    }
}

#[test]
fn what_one_read_brought_at_quality_0_is_one_letter_to_another_shard() {
    let mut broker = Broker::new(2);
    let clients: Vec<_> = (0..8)
        .map(|n| join(&mut broker, &format!("c{n}")))
        .collect();
    for &client in &clients {
        subscribe(&mut broker, client, "t", QoS::AtMostOnce);
        broker.take(client);
    }
    let mut bytes = Vec::new();
    for n in 0..100 {
        publish("t", &n.to_string(), QoS::AtMostOnce, 0)
            .encode(Version::V5, &mut bytes)
            .unwrap();
    }
    broker.hold_messages = true;
    broker.send_bytes(clients[0], &bytes);
    assert!(broker.deliver_message());
    assert!(!broker.deliver_message());
    for client in clients {
        assert_eq!(broker.take(client).len(), 100);
    }
}

#[test]
fn suback_leaves_only_when_every_shard_knows() {
    let mut broker = Broker::new(3);
    let client = join(&mut broker, "c");
    broker.hold_messages = true;
    subscribe(&mut broker, client, "a", QoS::AtMostOnce);
    assert_eq!(broker.take(client), Vec::<String>::new());
    broker.hold_messages = false;
    broker.deliver_messages();
    assert_eq!(broker.take(client), ["SUBACK #1 [00]"]);
}

#[test]
fn a_retained_message_is_found_from_every_shard() {
    for shards in SHARDS {
        let mut broker = Broker::new(shards);
        let publisher = join(&mut broker, "p");
        for n in 0..20 {
            broker.send(
                publisher,
                retained(&format!("r/{n:02}"), "v", QoS::AtLeastOnce, n + 1),
            );
        }
        broker.send(publisher, retained("r/07", "", QoS::AtMostOnce, 0));
        assert_eq!(broker.take(publisher).len(), 20);
        for n in 0..8 {
            let client = join(&mut broker, &format!("s{n}"));
            subscribe(&mut broker, client, "r/+", QoS::AtMostOnce);
            let mut got = broker.take(client);
            assert_eq!(got.remove(0), "SUBACK #1 [00]");
            got.sort();
            assert_eq!(got.len(), 19, "{shards} shards: {got:?}");
            assert_eq!(got[0], "PUBLISH r/00 \"v\" q0 retain");
            subscribe(&mut broker, client, "r/03", QoS::AtMostOnce);
            assert_eq!(
                broker.take(client),
                ["SUBACK #1 [00]", "PUBLISH r/03 \"v\" q0 retain"]
            );
        }
    }
}

#[test]
fn a_retained_publish_is_acknowledged_after_its_shard_has_it() {
    let mut broker = Broker::new(8);
    let publisher = join(&mut broker, "p");
    broker.hold_messages = true;
    for n in 0..8 {
        broker.send(
            publisher,
            retained(&format!("r/{n}"), "v", QoS::AtLeastOnce, n + 1),
        );
    }
    let early = broker.take(publisher).len();
    assert!(early < 8, "some of eight topics live on other shards");
    broker.hold_messages = false;
    broker.deliver_messages();
    assert_eq!(early + broker.take(publisher).len(), 8);
}

#[test]
fn one_member_of_a_shared_group_gets_each_message_and_turns_are_fair() {
    for shards in SHARDS {
        let mut broker = Broker::new(shards);
        let members: Vec<_> = (0..4)
            .map(|n| join(&mut broker, &format!("m{n}")))
            .collect();
        for &member in &members {
            subscribe(&mut broker, member, "$share/g/a/#", QoS::AtLeastOnce);
            assert_eq!(broker.take(member), ["SUBACK #1 [01]"]);
        }
        let publisher = join(&mut broker, "p");
        for n in 0..40 {
            broker.send(
                publisher,
                publish("a/b", &n.to_string(), QoS::AtLeastOnce, n + 1),
            );
        }
        let counts: Vec<_> = members
            .iter()
            .map(|&member| broker.take(member).len())
            .collect();
        assert_eq!(counts, [10, 10, 10, 10], "{shards} shards");
    }
}

#[test]
fn a_message_for_a_member_that_ends_goes_to_another() {
    for shards in SHARDS {
        let mut broker = Broker::new(shards);
        let (first, second) = (join(&mut broker, "m0"), join(&mut broker, "m1"));
        for member in [first, second] {
            subscribe(&mut broker, member, "$share/g/a", QoS::AtLeastOnce);
            broker.take(member);
        }
        let publisher = join(&mut broker, "p");
        for n in 1..=2 {
            broker.send(publisher, publish("a", &n.to_string(), QoS::AtLeastOnce, n));
        }
        assert_eq!(broker.take(second).len(), 1);
        broker.cut(first); // its session ends with it, and its message was not acknowledged
        assert_eq!(broker.take(second).len(), 1, "{shards} shards");
    }
}

#[test]
fn a_session_resumes_with_what_it_missed_in_order() {
    for shards in SHARDS {
        let mut broker = Broker::new(shards);
        let client = stay(&mut broker, "s", true);
        broker.take(client);
        subscribe(&mut broker, client, "a", QoS::ExactlyOnce);
        broker.take(client);
        let publisher = join(&mut broker, "p");
        broker.send(publisher, publish("a", "1", QoS::ExactlyOnce, 1));
        assert_eq!(broker.take(client), ["PUBLISH a \"1\" q2 #1"]);
        broker.cut(client);
        broker.send(publisher, publish("a", "2", QoS::AtLeastOnce, 2));
        broker.send(publisher, publish("a", "3", QoS::AtMostOnce, 0));
        let again = stay(&mut broker, "s", false);
        assert_eq!(
            broker.take(again),
            [
                "CONNACK 1 00",
                "PUBLISH a \"1\" q2 #1 dup",
                "PUBLISH a \"2\" q1 #2"
            ],
            "{shards} shards"
        );
    }
}

#[test]
fn takeover_disconnects_the_old_connection_and_keeps_the_session() {
    for shards in SHARDS {
        let mut broker = Broker::new(shards);
        let old = stay(&mut broker, "s", true);
        broker.take(old);
        let new = stay(&mut broker, "s", false);
        assert_eq!(broker.take(old), ["DISCONNECT 8e"]);
        assert!(!broker.is_open(old));
        assert_eq!(broker.take(new), ["CONNACK 1 00"]);
    }
}

#[test]
fn a_delayed_will_waits_and_is_cancelled_by_coming_back() {
    for shards in SHARDS {
        let mut broker = Broker::new(shards);
        let watcher = join(&mut broker, "w");
        subscribe(&mut broker, watcher, "will", QoS::AtMostOnce);
        broker.take(watcher);
        let mut will_properties = PropertyBuf::new();
        will_properties
            .push(Property::WillDelayInterval(10))
            .unwrap();
        let mut properties = PropertyBuf::new();
        properties
            .push(Property::SessionExpiryInterval(100))
            .unwrap();
        let with_will = |clean_start| Connect {
            clean_start,
            properties: properties.as_properties(),
            will: Some(Will {
                topic: "will",
                payload: b"gone",
                qos: QoS::AtMostOnce,
                retain: false,
                properties: will_properties.as_properties(),
            }),
            ..connect("dying")
        };
        let client = broker.open(Version::V5);
        broker.send(client, Packet::Connect(with_will(true)));
        broker.cut(client);
        broker.advance(Duration::from_secs(9));
        let client = broker.open(Version::V5);
        broker.send(client, Packet::Connect(with_will(false)));
        broker.advance(Duration::from_secs(9));
        assert_eq!(broker.take(watcher), Vec::<String>::new());
        broker.cut(client);
        broker.advance(Duration::from_secs(10));
        assert_eq!(
            broker.take(watcher),
            ["PUBLISH will \"gone\" q0"],
            "{shards} shards"
        );
    }
}

#[test]
fn an_acknowledgement_waits_until_the_message_is_stored() {
    let mut settings = Settings::default();
    settings.durable = true;
    let mut broker = Broker::with(1, Limits::default(), settings);
    let client = stay(&mut broker, "s", true);
    broker.stored();
    subscribe(&mut broker, client, "a", QoS::AtLeastOnce);
    let publisher = join(&mut broker, "p");
    broker.send(publisher, publish("a", "1", QoS::AtLeastOnce, 1));
    broker.send(publisher, publish("nobody", "2", QoS::AtLeastOnce, 2));
    assert_eq!(
        broker.take(publisher),
        Vec::<String>::new(),
        "the second stands behind the first"
    );
    broker.stored();
    assert_eq!(broker.take(publisher), ["PUBACK #1 00", "PUBACK #2 10"]);
}

#[test]
fn a_client_before_5_0_is_told_nothing_it_cannot_read() {
    let mut broker = Broker::new(1);
    let client = broker.open(Version::V3_1_1);
    broker.send(
        client,
        Packet::Connect(Connect {
            version: Version::V3_1_1,
            ..connect("old")
        }),
    );
    broker.send(client, publish("nobody", "x", QoS::AtLeastOnce, 1));
    broker.send(
        client,
        publish("$SYS/broker/version", "mine", QoS::AtLeastOnce, 2),
    );
    assert_eq!(
        broker.take(client),
        ["CONNACK 0 00", "PUBACK #1 00", "PUBACK #2 00"]
    );
}

#[test]
fn the_window_holds_back_and_acknowledgements_open_it() {
    let mut broker = Broker::new(1);
    let mut properties = PropertyBuf::new();
    properties.push(Property::ReceiveMaximum(2)).unwrap();
    let client = broker.open(Version::V5);
    broker.send(
        client,
        Packet::Connect(Connect {
            properties: properties.as_properties(),
            ..connect("slow")
        }),
    );
    subscribe(&mut broker, client, "a", QoS::AtLeastOnce);
    broker.take(client);
    let publisher = join(&mut broker, "p");
    for n in 1..=4 {
        broker.send(publisher, publish("a", &n.to_string(), QoS::AtLeastOnce, n));
    }
    assert_eq!(
        broker.take(client),
        ["PUBLISH a \"1\" q1 #1", "PUBLISH a \"2\" q1 #2"]
    );
    broker.send(client, Packet::PubAck(Ack::success(PacketId::FIRST)));
    assert_eq!(broker.take(client), ["PUBLISH a \"3\" q1 #3"]);
}

#[test]
fn a_repeated_qos_2_publish_is_answered_again_and_delivered_once() {
    // [MQTT-4.3.3-10]
    let mut broker = Broker::new(1);
    let client = join(&mut broker, "c");
    subscribe(&mut broker, client, "a", QoS::AtMostOnce);
    broker.take(client);
    broker.send(client, publish("a", "x", QoS::ExactlyOnce, 5));
    broker.send(client, publish("a", "x", QoS::ExactlyOnce, 5));
    assert_eq!(
        broker.take(client),
        ["PUBREC #5 00", "PUBLISH a \"x\" q0", "PUBREC #5 00"]
    );
}

#[test]
fn an_empty_topic_without_an_alias_is_a_protocol_error() {
    let mut broker = Broker::new(1);
    let client = join(&mut broker, "c");
    broker.send(client, publish("", "x", QoS::AtMostOnce, 0));
    assert_eq!(broker.take(client), ["DISCONNECT 82"]);
}

#[test]
fn a_member_that_is_away_is_passed_over_and_comes_back() {
    for shards in SHARDS {
        let mut broker = Broker::new(shards);
        let away = stay(&mut broker, "m0", true);
        let here = join(&mut broker, "m1");
        for member in [away, here] {
            subscribe(&mut broker, member, "$share/g/a", QoS::AtLeastOnce);
            broker.take(member);
        }
        broker.cut(away);
        let publisher = join(&mut broker, "p");
        for n in 1..=4 {
            broker.send(publisher, publish("a", "x", QoS::AtLeastOnce, n));
        }
        assert_eq!(broker.take(here).len(), 4, "{shards} shards");
        let back = stay(&mut broker, "m0", false);
        assert_eq!(broker.take(back), ["CONNACK 1 00"]);
        for n in 1..=4 {
            broker.send(publisher, publish("a", "x", QoS::AtLeastOnce, n));
        }
        assert_eq!(broker.take(back).len(), 2, "{shards} shards");
    }
}

#[test]
fn a_client_before_5_0_is_cut_off_without_a_word() {
    for version in [Version::V3_1, Version::V3_1_1] {
        let mut broker = Broker::new(1);
        let client = broker.open(version);
        broker.send(
            client,
            Packet::Connect(Connect {
                version,
                ..connect("old")
            }),
        );
        broker.take(client);
        broker.send_bytes(client, &[0xF0, 0x00]);
        assert_eq!(broker.take(client), Vec::<String>::new());
        assert!(!broker.is_open(client));
    }
}

#[test]
fn unsubscribing_and_a_published_will_are_part_of_a_clients_story() {
    let mut broker = Broker::new(1);
    let client = broker.open(Version::V5);
    let will = Will {
        topic: "will",
        payload: b"gone",
        qos: QoS::AtMostOnce,
        retain: false,
        properties: unbroken_mqtt_proto::Properties::EMPTY,
    };
    let packet = Connect {
        will: Some(will),
        ..connect("c")
    };
    broker.send(client, Packet::Connect(packet));
    subscribe(&mut broker, client, "a", QoS::AtMostOnce);
    let filters = unbroken_mqtt_proto::TopicFilters::new(&["a", "never"]);
    broker.send(
        client,
        Packet::Unsubscribe(unbroken_mqtt_proto::Unsubscribe {
            packet_id: PacketId::FIRST,
            properties: unbroken_mqtt_proto::Properties::EMPTY,
            filters,
        }),
    );
    broker.cut(client);
    let events = format!("{:?}", broker.events);
    assert!(events.contains("Unsubscribed { client_id: \"c\", filter: \"a\""));
    assert!(!events.contains("never"));
    assert!(events.contains("WillPublished { client_id: \"c\", topic: \"will\" }"));
}

#[test]
fn packets_are_whole_wherever_the_reads_cut_them() {
    let payloads: Vec<_> = (0..6).map(|n| "x".repeat(n * n * 8)).collect();
    let mut stream = Vec::new();
    for (id, payload) in (1..).zip(&payloads) {
        let packet = publish("a", payload, QoS::AtLeastOnce, id);
        packet.encode(Version::V5, &mut stream).unwrap();
    }
    for first in 1..stream.len() {
        let mut broker = Broker::new(1);
        let (from, to) = (join(&mut broker, "from"), join(&mut broker, "to"));
        subscribe(&mut broker, to, "a", QoS::AtMostOnce);
        let (front, behind) = stream.split_at(first);
        broker.send_bytes(from, front);
        for read in behind.chunks(first) {
            broker.send_bytes(from, read);
        }
        let received = broker.take_payloads(to);
        let lengths = received.iter().map(Vec::len);
        assert!(
            lengths.eq(payloads.iter().map(String::len)),
            "cut at {first}"
        );
    }
}

// [MQTT-4.3.3-4]
#[test]
fn a_pubrec_that_ends_an_exchange_nobody_knows_is_not_answered() {
    for version in [Version::V5, Version::V3_1_1] {
        let mut broker = Broker::new(1);
        let client = broker.open(version);
        let packet = Connect {
            version,
            ..connect("c")
        };
        broker.send(client, Packet::Connect(packet));
        broker.take(client);
        let pubrec = |reason| {
            Packet::PubRec(Ack {
                reason,
                ..Ack::success(PacketId::FIRST)
            })
        };
        broker.send(client, pubrec(ReasonCode::Success));
        let answers = broker.take(client);
        assert!(answers[0].starts_with("PUBREL #1"), "{answers:?}");
        if version == Version::V5 {
            broker.send(client, pubrec(ReasonCode::UnspecifiedError));
            assert_eq!(broker.take(client), [""; 0]);
        }
        assert!(broker.is_open(client));
    }
}

#[test]
fn a_member_that_is_away_and_cannot_keep_a_message_gets_none_that_another_keeps() {
    for shards in SHARDS {
        let mut broker = Broker::new(shards);
        let members: Vec<_> = (0..4)
            .map(|n| stay(&mut broker, &format!("m{n}"), true))
            .collect();
        for (n, &member) in members.iter().enumerate() {
            let qos = [QoS::AtMostOnce, QoS::AtLeastOnce][n % 2];
            subscribe(&mut broker, member, "$share/g/t", qos);
        }
        for &member in &members {
            broker.cut(member);
        }
        let publisher = join(&mut broker, "p");
        for id in 1..=8 {
            broker.send(publisher, publish("t", "x", QoS::AtLeastOnce, id));
        }
        let dropped: u64 = broker
            .shards
            .iter()
            .map(|shard| shard.stats().dropped_total())
            .sum();
        assert_eq!(dropped, 0, "{shards} shards");
        for n in 0..4 {
            let member = stay(&mut broker, &format!("m{n}"), false);
            let count = broker.take_payloads(member).len();
            assert_eq!(count, [0, 4][n % 2], "{shards} shards");
        }
    }
}
