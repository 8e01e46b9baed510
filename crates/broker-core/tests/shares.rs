//! What one client, or one address, may have of what all clients share; and that nothing is
//! acknowledged that a limit then undoes.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod shard_bus;

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use shard_bus::{Broker, Client, connect, join, retained, subscribe};
use unbroken_broker_core::{DropReason, Event, Limits, Peer, Settings};
use unbroken_mqtt_proto::{Connect, Packet, QoS, Version};

fn broker(shards: u8, change: impl FnOnce(&mut Limits)) -> Broker {
    let mut limits = Limits::default();
    change(&mut limits);
    limits.check().unwrap();
    Broker::with(shards, limits, Settings::default())
}

fn join_from(broker: &mut Broker, client_id: &str, address: [u8; 4]) -> (Client, Vec<String>) {
    let peer = Peer {
        address: Some((Ipv4Addr::from(address), 1).into()),
        ..Peer::default()
    };
    let client = broker.open_from(Version::V5, peer);
    broker.send(client, Packet::Connect(connect(client_id)));
    let answer = broker.take(client);
    (client, answer)
}

/// The topics whose message was acknowledged with success: `t/1` is that of packet 1.
fn acknowledged(answers: &[String]) -> BTreeSet<String> {
    let success = |answer: &&String| answer.ends_with(" 00") || answer.ends_with(" 10");
    let topic = |answer: &String| {
        let id = answer.split(['#', ' ']).nth(2);
        format!("t/{}", id.unwrap())
    };
    answers.iter().filter(success).map(topic).collect()
}

/// The topics that have a retained message.
fn kept(broker: &mut Broker) -> BTreeSet<String> {
    let reader = join(broker, "reader");
    subscribe(broker, reader, "t/#", QoS::AtMostOnce);
    let got = broker.take(reader);
    let topic = |line: &String| Some(line.strip_prefix("PUBLISH ")?.split(' ').next()?.to_owned());
    got.iter().filter_map(topic).collect()
}

fn publish_many(broker: &mut Broker, client: Client, qos: QoS, ids: std::ops::Range<u16>) {
    for id in ids {
        let topic = format!("t/{id}");
        broker.send(client, retained(&topic, "x", qos, id));
    }
}

#[test]
fn an_address_has_nine_tenths_of_the_places_and_gets_back_what_it_leaves() {
    const ATTACKER: [u8; 4] = [10, 0, 0, 1];
    for shards in [1, 3] {
        let mut broker = broker(shards, |limits| limits.connections_max = 60);
        let (mut open, mut refused) = (Vec::new(), 0);
        for number in 0..60 {
            let (client, answer) = join_from(&mut broker, &format!("a{number}"), ATTACKER);
            if answer == ["CONNACK 0 00"] {
                open.push(client);
            } else {
                assert_eq!(answer, ["CONNACK 0 97"]);
                refused += 1;
            }
        }
        // Each shard takes the others to be like it, so a few more where they are not.
        assert!((50..=57).contains(&open.len()), "{} of 60", open.len());
        assert_eq!(open.len() + refused, 60);
        let mut others = Vec::new();
        for number in (0..60u8).skip(open.len()) {
            let from = [10, 0, 1, number];
            let (client, answer) = join_from(&mut broker, &format!("b{number}"), from);
            assert_eq!(answer, ["CONNACK 0 00"]);
            others.push(client);
        }
        for client in open.drain(..).chain(others) {
            broker.cut(client);
        }
        let (_, answer) = join_from(&mut broker, "again", ATTACKER);
        assert_eq!(answer, ["CONNACK 0 00"]);
    }
}

/// Behind a proxy the address is known only later.
#[test]
fn a_place_is_in_the_share_of_the_address_that_is_known_last() {
    const PROXY: [u8; 4] = [127, 0, 0, 1];
    let peer = |address: [u8; 4]| Peer {
        address: Some((Ipv4Addr::from(address), 1).into()),
        ..Peer::default()
    };
    let mut broker = broker(1, |limits| limits.connections_max = 60);
    for round in 0..200u8 {
        let client = broker.open_from(Version::V5, peer(PROXY));
        broker.identify(client, peer([10, 0, 0, round]));
        let id = format!("c{round}");
        broker.send(client, Packet::Connect(connect(&id)));
        assert_eq!(broker.take(client), ["CONNACK 0 00"], "round {round}");
        broker.cut(client);
    }
    // One client's address has its own share, though all come through the proxy.
    let answers: Vec<_> = (0..60)
        .map(|number| {
            let client = broker.open_from(Version::V5, peer(PROXY));
            broker.identify(client, peer([10, 0, 1, 1]));
            broker.send(client, Packet::Connect(connect(&format!("d{number}"))));
            broker.take(client)
        })
        .collect();
    let let_in = answers.iter().filter(|answer| **answer == ["CONNACK 0 00"]);
    assert_eq!(let_in.count(), 54);
}

#[test]
fn what_is_acknowledged_is_retained_and_what_is_refused_reaches_no_client() {
    for shards in [1, 3] {
        for qos in [QoS::AtLeastOnce, QoS::ExactlyOnce] {
            for hold_messages in [false, true] {
                let mut broker = broker(shards, |limits| limits.retained_messages_max = 8);
                let reader = join(&mut broker, "live");
                subscribe(&mut broker, reader, "t/#", QoS::AtMostOnce);
                broker.take(reader);
                let client = join(&mut broker, "a");
                broker.hold_messages = hold_messages;
                publish_many(&mut broker, client, qos, 1..31);
                broker.hold_messages = false;
                broker.deliver_messages();
                // A question for each, one behind the other.
                for _ in 0..30 {
                    broker.advance(Duration::from_micros(1));
                }
                let answers = broker.take(client);
                assert_eq!(answers.len(), 30, "each is answered: {answers:?}");
                let acknowledged = acknowledged(&answers);
                // With several shards each takes the others to be like it.
                let most = if shards == 1 { 4 } else { 6 };
                assert!((1..=most).contains(&acknowledged.len()), "{answers:?}");
                assert_eq!(kept(&mut broker), acknowledged, "{shards} shards");
                assert_eq!(broker.take(reader).len(), acknowledged.len());
            }
        }
    }
}

#[test]
fn one_client_leaves_room_for_others_and_is_named() {
    let mut broker = broker(2, |limits| limits.retained_messages_max = 100);
    let greedy = join(&mut broker, "greedy");
    publish_many(&mut broker, greedy, QoS::AtLeastOnce, 1..201);
    let taken = acknowledged(&broker.take(greedy)).len();
    assert!((40..=60).contains(&taken), "{taken} of 100");
    let modest = join(&mut broker, "modest");
    publish_many(&mut broker, modest, QoS::AtLeastOnce, 301..311);
    let answers = broker.take(modest);
    assert_eq!(acknowledged(&answers).len(), 10, "{answers:?}");
    let named = broker.events.iter().any(|event| {
        matches!(event, Event::Dropped { client_id, reason: DropReason::RetainedFull, full, .. }
            if **client_id == *"greedy" && full.as_deref() == Some("share of the client"))
    });
    assert!(named, "{:?}", broker.events);
}

#[test]
fn the_clients_of_one_address_leave_room_for_others() {
    let mut broker = broker(1, |limits| limits.retained_bytes_max = 1_000);
    let mut taken = 0;
    for number in 0..20 {
        let (client, _) = join_from(&mut broker, &format!("c{number}"), [10, 0, 0, 1]);
        let begin = 100 * number + 1;
        publish_many(&mut broker, client, QoS::AtLeastOnce, begin..begin + 100);
        taken += acknowledged(&broker.take(client)).len();
    }
    let bytes = broker.shards[0].stats().retained_bytes;
    assert!(
        (850..=900).contains(&bytes),
        "{taken} messages, {bytes} bytes"
    );
    let shares: BTreeSet<Arc<str>> = broker.events.iter().filter_map(share).collect();
    assert!(shares.contains("share of address 10.0.0.1"), "{shares:?}");
    let (other, _) = join_from(&mut broker, "other", [10, 0, 0, 2]);
    publish_many(&mut broker, other, QoS::AtLeastOnce, 4_001..4_004);
    assert_eq!(acknowledged(&broker.take(other)).len(), 3);
}

fn share(event: &Event) -> Option<Arc<str>> {
    match event {
        Event::Dropped { full, .. } => full.clone(),
        _ => None,
    }
}

#[test]
fn a_full_store_takes_a_new_value_for_a_topic_it_has_from_any_shard() {
    let mut broker = broker(3, |limits| limits.retained_messages_max = 4);
    for number in 0..8 {
        let client = join(&mut broker, &format!("c{number}"));
        let begin = 10 * number + 1;
        publish_many(&mut broker, client, QoS::AtLeastOnce, begin..begin + 10);
        broker.take(client);
    }
    let topics = kept(&mut broker);
    assert_eq!(topics.len(), 4, "a newcomer gets what is free");
    for name in ["a", "d"] {
        let client = join(&mut broker, name);
        for topic in &topics {
            broker.send(client, retained(topic, name, QoS::ExactlyOnce, 1));
            broker.advance(Duration::from_micros(1));
            let answers = broker.take(client);
            assert!(
                answers
                    .iter()
                    .any(|answer| answer.starts_with("PUBREC #1 0") || answer == "PUBREC #1 10"),
                "{answers:?}"
            );
            let released = unbroken_mqtt_proto::Ack::new(
                unbroken_mqtt_proto::PacketId::FIRST,
                unbroken_mqtt_proto::ReasonCode::Success,
            );
            broker.send(client, Packet::PubRel(released));
            broker.take(client);
        }
    }
    assert_eq!(kept(&mut broker), topics);
}

#[test]
fn a_client_that_goes_while_another_shard_is_asked_leaves_no_room_taken() {
    let mut broker = broker(2, |limits| limits.retained_messages_max = 4);
    let first = join(&mut broker, "first");
    publish_many(&mut broker, first, QoS::AtLeastOnce, 1..20);
    broker.take(first);
    broker.hold_messages = true;
    for number in 0..10 {
        let client = join(&mut broker, &format!("gone{number}"));
        broker.deliver_messages();
        publish_many(&mut broker, client, QoS::AtLeastOnce, 21..23);
        broker.cut(client);
        broker.deliver_messages();
    }
    broker.hold_messages = false;
    broker.deliver_messages();
    for topic in kept(&mut broker) {
        broker.send(first, retained(&topic, "", QoS::AtMostOnce, 0));
    }
    assert!(kept(&mut broker).is_empty());
    let mut taken = 0;
    for number in 0..20 {
        let client = join(&mut broker, &format!("next{number}"));
        let begin = 100 + 10 * number;
        publish_many(&mut broker, client, QoS::AtLeastOnce, begin..begin + 10);
        taken += acknowledged(&broker.take(client)).len();
    }
    assert_eq!(taken, 4, "all of it is free again");
}

#[test]
fn a_client_before_5_0_keeps_what_is_refused() {
    // [MQTT311-4.8.0-2]
    for shards in [1, 2] {
        let mut broker = broker(shards, |limits| limits.retained_messages_max = 1);
        let first = join(&mut broker, "first");
        publish_many(&mut broker, first, QoS::AtLeastOnce, 1..2);
        let client = broker.open(Version::V3_1_1);
        let version = Version::V3_1_1;
        let packet = Connect {
            version,
            ..connect("old")
        };
        broker.send(client, Packet::Connect(packet));
        broker.take(client);
        publish_many(&mut broker, client, QoS::AtLeastOnce, 2..4);
        assert!(broker.take(client).is_empty(), "no acknowledgement");
        assert!(!broker.is_open(client));
    }
}

#[test]
fn an_address_has_its_share_of_sessions_and_others_get_one() {
    let mut broker = broker(1, |limits| limits.sessions_max = 100);
    let mut taken = 0;
    for number in 0..150 {
        let (_, answer) = join_from(&mut broker, &format!("c{number}"), [10, 0, 0, 1]);
        taken += usize::from(answer == ["CONNACK 0 00"]);
    }
    assert_eq!(taken, 90);
    let (_, again) = join_from(&mut broker, "c7", [10, 0, 0, 1]);
    assert_eq!(again, ["CONNACK 0 00"], "it has a session");
    let (_, more) = join_from(&mut broker, "c149", [10, 0, 0, 1]);
    assert_eq!(more, ["CONNACK 0 97"]);
    let (_, other) = join_from(&mut broker, "other", [10, 0, 0, 2]);
    assert_eq!(other, ["CONNACK 0 00"]);
    // Who comes from elsewhere is in the share of that address.
    for number in 0..5 {
        join_from(&mut broker, &format!("c{number}"), [10, 0, 0, 3]);
    }
    let (_, more) = join_from(&mut broker, "c149", [10, 0, 0, 1]);
    assert_eq!(more, ["CONNACK 0 97"], "what is free has become no more");
}

#[test]
fn a_client_and_an_address_have_their_shares_of_subscriptions() {
    let mut broker = broker(1, |limits| limits.subscriptions_max = 100);
    let mut granted = Vec::new();
    for number in 0..10 {
        let (client, _) = join_from(&mut broker, &format!("c{number}"), [10, 0, 0, 1]);
        for filter in 0..60 {
            subscribe(&mut broker, client, &format!("f/{filter}"), QoS::AtMostOnce);
        }
        let answers = broker.take(client);
        granted.push(
            answers
                .iter()
                .filter(|answer| answer.ends_with("[00]"))
                .count(),
        );
    }
    assert_eq!(granted[0], 50);
    assert_eq!(granted.iter().sum::<usize>(), 90, "{granted:?}");
    let (other, _) = join_from(&mut broker, "other", [10, 0, 0, 2]);
    subscribe(&mut broker, other, "f", QoS::AtMostOnce);
    assert_eq!(broker.take(other), ["SUBACK #1 [00]"]);
}

#[test]
fn messages_of_an_earlier_run_stay_when_the_limit_is_lower() {
    let mut before = broker(1, |limits| limits.retained_messages_max = 100);
    let client = join(&mut before, "a");
    publish_many(&mut before, client, QoS::AtLeastOnce, 1..4);
    assert_eq!(kept(&mut before).len(), 3);
    before.reconfigure({
        let mut limits = Limits::default();
        limits.retained_messages_max = 1;
        limits
    });
    before.take(client);
    before.send(client, retained("t/1", "new", QoS::AtLeastOnce, 1));
    assert_eq!(before.take(client).len(), 1);
    before.send(client, retained("t/9", "new", QoS::AtLeastOnce, 9));
    assert_eq!(before.take(client), ["PUBACK #9 97"]);
    assert_eq!(kept(&mut before).len(), 3);
}
