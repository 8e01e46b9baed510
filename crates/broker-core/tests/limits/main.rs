//! What happens at each limit: the client is told what its protocol can say, and nothing is lost
//! unnamed.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../shard_bus/mod.rs"]
mod shard_bus;

mod connections;
mod groups;
mod matching;

use std::time::Duration;

use shard_bus::{
    Broker, Client, connect, join, publish, retained, send_subscribe, stay, subscribe,
};
use unbroken_broker_core::{DropReason, Event, Limits, RESERVE_MAX, Room, Settings};
use unbroken_mqtt_proto::{
    Ack, Connect, Packet, PacketId, Properties, Property, PropertyBuf, Publish, QoS, ReasonCode,
    Version, Will, next_frame,
};

fn broker(change: impl FnOnce(&mut Limits)) -> Broker {
    let mut limits = Limits::default();
    change(&mut limits);
    limits.check().unwrap();
    Broker::with(1, limits, Settings::default())
}

fn dropped(broker: &Broker, reason: DropReason) -> u64 {
    broker
        .shards
        .iter()
        .map(|shard| shard.stats().dropped[reason as usize])
        .sum()
}

/// The drops that were told, as (client, topic, reason).
fn told(broker: &Broker) -> Vec<(String, String, DropReason)> {
    let tell = |event: &Event| match event {
        Event::Dropped {
            client_id,
            topic,
            reason,
            ..
        } => Some((client_id.to_string(), topic.to_string(), *reason)),
        _ => None,
    };
    broker.events.iter().filter_map(tell).collect()
}

fn asked(broker: &mut Broker, version: Version, client_id: &str) -> (Client, Vec<String>) {
    let client = broker.open(version);
    broker.send(
        client,
        Packet::Connect(Connect {
            version,
            ..connect(client_id)
        }),
    );
    let answer = broker.take(client);
    (client, answer)
}

#[test]
fn one_session_too_many_is_refused_and_old_sessions_can_still_resume() {
    let mut broker = broker(|limits| limits.sessions_max = 1);
    let first = stay(&mut broker, "a", true);
    broker.cut(first);
    assert_eq!(asked(&mut broker, Version::V5, "b").1, ["CONNACK 0 97"]);
    let again = stay(&mut broker, "a", false);
    assert_eq!(broker.take(again), ["CONNACK 1 00"]);
}

#[test]
fn a_packet_over_the_limit_ends_the_connection_with_its_reason() {
    // [MQTT-3.2.2-15]
    let mut broker = broker(|limits| limits.packet_bytes_max = 100);
    let client = join(&mut broker, "a");
    broker.send_bytes(client, &[0x30, 0x80, 0x01]);
    assert_eq!(broker.take(client), ["DISCONNECT 95"]);
}

#[test]
fn a_client_with_more_in_flight_than_announced_is_told() {
    // [MQTT-3.3.4-7]
    let mut broker = broker(|limits| limits.receive_maximum = 2);
    let client = join(&mut broker, "a");
    for id in 1..=3 {
        broker.send(client, publish("t", "x", QoS::ExactlyOnce, id));
    }
    assert_eq!(
        broker.take(client),
        ["PUBREC #1 10", "PUBREC #2 10", "DISCONNECT 93"]
    );
}

#[test]
fn a_client_before_5_0_may_have_as_much_in_flight_as_it_likes() {
    let mut broker = broker(|limits| limits.receive_maximum = 2);
    let (client, _) = asked(&mut broker, Version::V3_1_1, "a");
    for id in 1..=10 {
        broker.send(client, publish("t", "x", QoS::ExactlyOnce, id));
    }
    assert_eq!(broker.take(client).len(), 10);
}

#[test]
fn a_full_queue_drops_the_newest_and_names_it() {
    let mut broker = broker(|limits| limits.queue_messages_max = 2);
    let sleeper = stay(&mut broker, "s", true);
    subscribe(&mut broker, sleeper, "t", QoS::AtLeastOnce);
    broker.cut(sleeper);
    let publisher = join(&mut broker, "p");
    for id in 1..=3 {
        broker.send(
            publisher,
            publish("t", &id.to_string(), QoS::AtLeastOnce, id),
        );
    }
    assert_eq!(dropped(&broker, DropReason::QueueFull), 1);
    assert_eq!(
        told(&broker),
        [("s".into(), "t".into(), DropReason::QueueFull)]
    );
    let again = stay(&mut broker, "s", false);
    assert_eq!(
        broker.take(again),
        [
            "CONNACK 1 00",
            "PUBLISH t \"1\" q1 #1",
            "PUBLISH t \"2\" q1 #2"
        ]
    );
}

#[test]
fn a_queue_of_too_many_bytes_is_full() {
    let mut broker = broker(|limits| limits.queue_bytes_max = 10);
    let sleeper = stay(&mut broker, "s", true);
    subscribe(&mut broker, sleeper, "t", QoS::AtLeastOnce);
    broker.cut(sleeper);
    let publisher = join(&mut broker, "p");
    broker.send(publisher, publish("t", "12345", QoS::AtLeastOnce, 1));
    broker.send(publisher, publish("t", "12345", QoS::AtLeastOnce, 2));
    assert_eq!(dropped(&broker, DropReason::QueueFull), 1);
}

#[test]
fn a_slow_receiver_loses_qos_0_by_name_and_keeps_qos_1() {
    let mut broker = broker(|limits| limits.output_bytes_max = 20);
    let slow = join(&mut broker, "slow");
    subscribe(&mut broker, slow, "t", QoS::AtLeastOnce);
    broker.take(slow);
    let publisher = join(&mut broker, "p");
    broker.hold_writes = true;
    for _ in 0..5 {
        broker.send(publisher, publish("t", "12345", QoS::AtMostOnce, 0));
    }
    broker.send(publisher, publish("t", "kept", QoS::AtLeastOnce, 1));
    assert_eq!(dropped(&broker, DropReason::SlowReceiver), 3);
    assert_eq!(
        told(&broker),
        [("slow".into(), "t".into(), DropReason::SlowReceiver)]
    );
    broker.release_writes();
    assert_eq!(
        broker.take(slow).last().unwrap(),
        "PUBLISH t \"kept\" q1 #1"
    );
}

#[test]
fn a_topic_too_long_or_too_deep_is_refused() {
    let mut broker = broker(|limits| {
        limits.topic_bytes_max = 8;
        limits.topic_levels_max = 3;
    });
    for topic in ["123456789", "a/b/c/d"] {
        let client = join(&mut broker, "a");
        broker.send(client, publish(topic, "x", QoS::AtMostOnce, 0));
        assert_eq!(broker.take(client), ["DISCONNECT 90"]);
        let client = join(&mut broker, "b");
        subscribe(&mut broker, client, topic, QoS::AtMostOnce);
        assert_eq!(broker.take(client), ["SUBACK #1 [8f]"]);
    }
}

#[test]
fn one_subscription_too_many_is_refused_and_replacing_one_is_not() {
    let mut broker = broker(|limits| limits.subscriptions_per_session_max = 1);
    let client = join(&mut broker, "a");
    let options = unbroken_mqtt_proto::SubscriptionOptions::default();
    send_subscribe(&mut broker, client, &[("a", options), ("b", options)]);
    send_subscribe(&mut broker, client, &[("a", options)]);
    assert_eq!(
        broker.take(client),
        ["SUBACK #1 [00, 97]", "SUBACK #1 [00]"]
    );
}

#[test]
fn subscriptions_of_all_sessions_have_a_limit_and_are_given_back() {
    let mut broker = broker(|limits| limits.subscriptions_max = 1);
    let first = join(&mut broker, "a");
    subscribe(&mut broker, first, "a", QoS::AtMostOnce);
    let second = join(&mut broker, "b");
    subscribe(&mut broker, second, "b", QoS::AtMostOnce);
    assert_eq!(broker.take(second), ["SUBACK #1 [97]"]);
    broker.cut(first);
    subscribe(&mut broker, second, "b", QoS::AtMostOnce);
    assert_eq!(broker.take(second), ["SUBACK #1 [00]"]);
}

#[test]
fn a_retained_message_too_many_is_delivered_but_not_kept() {
    for change in [
        (|limits| limits.retained_messages_max = 1) as fn(&mut Limits),
        |limits| limits.retained_bytes_max = 3,
    ] {
        let mut broker = broker(change);
        let client = join(&mut broker, "a");
        subscribe(&mut broker, client, "#", QoS::AtMostOnce);
        broker.take(client);
        broker.send(client, retained("a", "1", QoS::AtMostOnce, 0));
        broker.send(client, retained("b", "2", QoS::AtMostOnce, 0));
        assert_eq!(
            broker.take(client),
            ["PUBLISH a \"1\" q0", "PUBLISH b \"2\" q0"]
        );
        assert_eq!(
            told(&broker),
            [("a".into(), "b".into(), DropReason::RetainedFull)]
        );
        broker.send(client, retained("a", "", QoS::AtMostOnce, 0));
        broker.send(client, retained("b", "3", QoS::AtMostOnce, 0));
        assert_eq!(dropped(&broker, DropReason::RetainedFull), 1);
    }
}

#[test]
fn an_alias_over_the_announced_maximum_ends_the_connection() {
    // [MQTT-3.3.2-9]
    let mut broker = broker(|limits| limits.topic_aliases_in_max = 2);
    let client = join(&mut broker, "a");
    let mut properties = PropertyBuf::new();
    properties.push(Property::TopicAlias(3)).unwrap();
    broker.send(
        client,
        Packet::Publish(Publish {
            dup: false,
            qos: QoS::AtMostOnce,
            retain: false,
            topic: "t",
            packet_id: None,
            properties: properties.as_properties(),
            payload: b"x",
        }),
    );
    assert_eq!(broker.take(client), ["DISCONNECT 94"]);
}

#[test]
fn the_broker_sets_no_more_aliases_than_its_own_limit() {
    // [MQTT-3.1.2-26]
    let mut broker = broker(|limits| limits.topic_aliases_out_max = 1);
    let mut properties = PropertyBuf::new();
    properties.push(Property::TopicAliasMaximum(10)).unwrap();
    let client = broker.open(Version::V5);
    broker.send(
        client,
        Packet::Connect(Connect {
            properties: properties.as_properties(),
            ..connect("a")
        }),
    );
    subscribe(&mut broker, client, "#", QoS::AtMostOnce);
    broker.take(client);
    for topic in ["a", "b", "a", "b"] {
        broker.send(client, publish(topic, "x", QoS::AtMostOnce, 0));
    }
    let got = broker.take(client);
    assert!(
        got.iter().all(|packet| !packet.contains("TopicAlias(2)")),
        "{got:?}"
    );
    assert!(
        got.iter().any(|packet| packet.contains("TopicAlias(1)")),
        "{got:?}"
    );
}

#[test]
fn a_message_too_large_for_its_receiver_is_dropped_by_name_and_the_next_comes() {
    // [MQTT-3.1.2-24] [MQTT-3.1.2-25]
    for qos in [QoS::AtMostOnce, QoS::AtLeastOnce] {
        let mut broker = Broker::new(1);
        let mut properties = PropertyBuf::new();
        properties.push(Property::MaximumPacketSize(40)).unwrap();
        let client = broker.open(Version::V5);
        let packet = Connect {
            properties: properties.as_properties(),
            ..connect("small")
        };
        broker.send(client, Packet::Connect(packet));
        subscribe(&mut broker, client, "t", qos);
        broker.take(client);
        let publisher = join(&mut broker, "p");
        broker.send(
            publisher,
            publish("t", &"x".repeat(50), qos, u16::from(qos as u8)),
        );
        broker.send(publisher, publish("t", "y", qos, 2 * u16::from(qos as u8)));
        assert_eq!(broker.take(client).len(), 1);
        assert_eq!(
            told(&broker),
            [("small".into(), "t".into(), DropReason::TooLargeForReceiver)]
        );
    }
}

#[test]
fn a_session_stays_no_longer_than_the_limit_and_the_client_is_told() {
    let mut broker = broker(|limits| limits.session_expiry_max_s = 10);
    let client = stay(&mut broker, "a", true);
    broker.cut(client);
    broker.advance(Duration::from_secs(10));
    let again = stay(&mut broker, "a", false);
    assert_eq!(broker.take(again), ["CONNACK 0 00"]);
}

#[test]
fn the_messages_of_a_session_that_ends_are_counted() {
    let mut broker = Broker::new(1);
    let sleeper = stay(&mut broker, "s", true);
    subscribe(&mut broker, sleeper, "t", QoS::AtLeastOnce);
    broker.cut(sleeper);
    let publisher = join(&mut broker, "p");
    broker.send(publisher, publish("t", "1", QoS::AtLeastOnce, 1));
    broker.advance(Duration::from_secs(100));
    assert_eq!(dropped(&broker, DropReason::SessionEnded), 1);
    let ended = |event: &Event| matches!(event, Event::SessionEnded { undelivered: 1, .. });
    assert!(broker.events.iter().any(ended));
}

#[test]
fn an_unanswered_message_is_not_counted_twice() {
    let mut broker = Broker::new(1);
    let client = stay(&mut broker, "s", true);
    subscribe(&mut broker, client, "t", QoS::AtLeastOnce);
    let publisher = join(&mut broker, "p");
    broker.send(publisher, publish("t", "1", QoS::AtLeastOnce, 1));
    assert_eq!(broker.shards[0].stats().messages_waiting, 1);
    let ack = Ack {
        packet_id: PacketId::FIRST,
        reason: ReasonCode::Success,
        properties: Properties::EMPTY,
    };
    broker.send(client, Packet::PubAck(ack));
    assert_eq!(broker.shards[0].stats().messages_waiting, 0);
}

#[test]
fn a_wills_topic_obeys_what_a_published_one_does() {
    let mut broker = broker(|limits| limits.topic_levels_max = 3);
    let mut answer = |topic| {
        let client = broker.open(Version::V5);
        let will = Will {
            qos: QoS::AtMostOnce,
            retain: false,
            properties: Properties::EMPTY,
            topic,
            payload: b"x",
        };
        let packet = Connect {
            will: Some(will),
            ..connect("a")
        };
        broker.send(client, Packet::Connect(packet));
        broker.take(client)
    };
    assert_eq!(answer("a/b/c/d"), ["CONNACK 0 90"]);
    assert_eq!(answer("$SYS/x"), ["CONNACK 0 87"]);
    assert_eq!(answer("a/b/c"), ["CONNACK 0 00"]);
}

#[test]
fn a_client_that_takes_no_connack_with_all_it_must_know_is_not_let_in() {
    // [MQTT-3.1.2-24] [MQTT-3.2.2-16]
    for (client_id, limit, answer) in [
        ("a", 4, None),
        ("a", 5, Some("CONNACK 0 95")),
        ("a", 15, Some("CONNACK 0 95")),
        ("a", 16, Some("CONNACK 0 00")),
        ("", 39, Some("CONNACK 0 95")),
        ("", 40, Some("CONNACK 0 00")),
    ] {
        let mut broker = Broker::new(1);
        let client = broker.open(Version::V5);
        let mut properties = PropertyBuf::new();
        properties.push(Property::MaximumPacketSize(limit)).unwrap();
        properties
            .push(Property::RequestResponseInformation(true))
            .unwrap();
        let packet = Connect {
            properties: properties.as_properties(),
            ..connect(client_id)
        };
        broker.send(client, Packet::Connect(packet));
        let admitted = answer == Some("CONNACK 0 00");
        assert_eq!(broker.is_open(client), admitted, "{client_id:?} {limit}");
        let heard = broker.take(client);
        assert_eq!(
            heard.first().map(String::as_str),
            answer,
            "{client_id:?} {limit}"
        );
        let refused = |event: &Event| {
            matches!(event, Event::Refused { reason, .. }
                if *reason == ReasonCode::PacketTooLarge)
        };
        assert_eq!(broker.events.iter().any(refused), !admitted);
    }
}

#[test]
fn a_client_that_is_not_let_in_for_its_packet_size_leaves_its_session_alone() {
    let mut broker = Broker::new(1);
    let first = stay(&mut broker, "a", true);
    subscribe(&mut broker, first, "t", QoS::AtMostOnce);
    let mut properties = PropertyBuf::new();
    properties.push(Property::MaximumPacketSize(15)).unwrap();
    let second = broker.open(Version::V5);
    let packet = Connect {
        properties: properties.as_properties(),
        ..connect("a")
    };
    broker.send(second, Packet::Connect(packet));
    assert!(broker.is_open(first));
    broker.cut(first);
    let again = stay(&mut broker, "a", false);
    assert_eq!(broker.take(again), ["CONNACK 1 00"]);
}

#[test]
fn what_clients_are_refused_is_counted_by_reason() {
    let mut broker = broker(|limits| {
        limits.connections_max = 1;
        limits.subscriptions_per_session_max = 1;
        limits.packet_bytes_max = 100;
    });
    let client = join(&mut broker, "a");
    asked(&mut broker, Version::V5, "b");
    subscribe(&mut broker, client, "x", QoS::AtMostOnce);
    subscribe(&mut broker, client, "y", QoS::AtMostOnce);
    broker.send_bytes(client, &[0x30, 0x80, 0x01]);
    let refused = &broker.shards[0].stats().refused;
    assert_eq!(refused[&ReasonCode::QuotaExceeded], 2);
    assert_eq!(refused[&ReasonCode::PacketTooLarge], 1);
}

#[test]
fn a_session_that_is_kept_on_disk_has_as_many_messages_in_flight_as_any_other() {
    for durable in [true, false] {
        let mut settings = Settings::default();
        settings.durable = durable;
        let mut broker = Broker::with(1, Limits::default(), settings);
        let resident = stay(&mut broker, "r", true);
        broker.stored();
        subscribe(&mut broker, resident, "t", QoS::AtLeastOnce);
        broker.stored();
        broker.take(resident);
        let publisher = join(&mut broker, "p");
        // The window grows with what is acknowledged.
        let mut in_flight = 0;
        for id in 1..=2_030 {
            broker.send(publisher, publish("t", "x", QoS::AtLeastOnce, id));
            broker.stored();
            broker.take(publisher);
            for message in broker.take_publishes(resident) {
                if id <= 1_000 {
                    let ack = Ack::success(message.packet_id.unwrap());
                    broker.send(resident, Packet::PubAck(ack));
                } else {
                    in_flight += 1;
                }
            }
        }
        assert_eq!(in_flight, 1_030, "{durable}");
    }
}

/// The Response Information that a client of this id is given.
fn response_information(client_id: &str) -> Option<String> {
    let mut broker = Broker::new(1);
    let client = broker.open(Version::V5);
    let mut properties = PropertyBuf::new();
    properties
        .push(Property::RequestResponseInformation(true))
        .unwrap();
    let packet = Connect {
        properties: properties.as_properties(),
        ..connect(client_id)
    };
    broker.send(client, Packet::Connect(packet));
    let bytes = broker.take_bytes(client);
    let frame = next_frame(&bytes, u32::MAX).unwrap().unwrap();
    let Packet::ConnAck(packet) = Packet::decode(frame, Version::V5).unwrap() else {
        panic!("{frame:?}");
    };
    assert_eq!(packet.reason, ReasonCode::Success);
    packet
        .properties
        .into_iter()
        .find_map(|property| match property {
            Property::ResponseInformation(text) => Some(text.to_owned()),
            _ => None,
        })
}

#[test]
fn response_information_is_one_clients_alone() {
    assert_eq!(response_information("a").unwrap(), "response/a");
    let ids = ["a/b", "a_b", "a+b", "a#b", "a$b", "a%2Fb", "a%b", "a%"];
    let mut given: Vec<_> = ids.map(|id| response_information(id).unwrap()).into();
    for prefix in &given {
        let level = prefix.strip_prefix("response/").unwrap();
        assert!(!level.contains(['/', '+', '#', '$']), "{prefix}");
    }
    given.sort();
    given.dedup();
    assert_eq!(given.len(), ids.len());
}

#[test]
fn a_client_whose_id_leaves_no_room_for_response_information_does_without() {
    let fits = "x".repeat(65_000);
    assert_eq!(response_information(&fits).unwrap().len(), 65_009);
    for id in ["x".repeat(65_535), "/".repeat(30_000)] {
        assert_eq!(response_information(&id), None);
    }
}

#[test]
fn more_in_flight_than_there_are_ids_for_is_no_limit() {
    let mut limits = Limits::default();
    limits.inflight_max = 32_767;
    limits.check().unwrap();
    limits.inflight_max = 32_768;
    let error = limits.check().unwrap_err().to_string();
    assert_eq!(
        error,
        "limits.inflight_max is 32768; it can be at most 32767"
    );
}
