//! The store has failed, and the broker goes on for those who need nothing stored.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod shard_bus;

use std::time::Duration;

use shard_bus::{Broker, Client, connect, join, publish, retained, stay, subscribe};
use unbroken_broker_core::{DropReason, Event, Limits, Settings};
use unbroken_mqtt_proto::{Connect, Packet, Properties, QoS, Version, Will};

const NOTHING: [&str; 0] = [];
const FAILED: &str = "DISCONNECT 83";
const UNAVAILABLE: &str = "CONNACK 0 88";

fn durable(shards: u8) -> Broker {
    let mut settings = Settings::default();
    settings.durable = true;
    Broker::with(shards, Limits::default(), settings)
}

fn resident(broker: &mut Broker, client_id: &str, filter: &str) -> Client {
    let client = stay(broker, client_id, false);
    broker.stored();
    subscribe(broker, client, filter, QoS::ExactlyOnce);
    broker.stored();
    broker.take(client);
    client
}

/// A client with a will, and with a session that ends with its connection.
fn with_will(broker: &mut Broker, client_id: &str, qos: QoS) -> Client {
    let client = broker.open(Version::V5);
    let will = Will {
        qos,
        retain: false,
        properties: Properties::EMPTY,
        topic: "gone",
        payload: client_id.as_bytes(),
    };
    let packet = Connect {
        will: Some(will),
        ..connect(client_id)
    };
    broker.send(client, Packet::Connect(packet));
    client
}

/// Nothing is stored from now on, whatever was asked for, and nobody is asked for anything more.
fn fail(broker: &mut Broker) {
    broker.take_asked();
    broker.store_failed("no space");
}

#[test]
fn what_waits_for_the_store_is_never_answered_and_its_client_is_disconnected() {
    for qos in [QoS::AtLeastOnce, QoS::ExactlyOnce] {
        for shards in [1, 3] {
            let mut broker = durable(shards);
            let receiver = resident(&mut broker, "s", "t");
            let publisher = join(&mut broker, "p");
            let keeper = join(&mut broker, "q");
            let late = stay(&mut broker, "late", true);
            let bystander = join(&mut broker, "b");
            broker.send(publisher, publish("t", "x", qos, 1));
            broker.send(keeper, retained("u", "x", qos, 1));
            fail(&mut broker);
            let disconnected = [FAILED];
            assert_eq!(broker.take(publisher), disconnected, "{qos:?} {shards}");
            assert_eq!(broker.take(keeper), disconnected, "{qos:?} {shards}");
            assert_eq!(broker.take(receiver).last().unwrap(), FAILED);
            assert_eq!(broker.take(late), [UNAVAILABLE]);
            assert!(broker.is_open(bystander));
            assert_eq!(broker.take_asked(), NOTHING);
        }
    }
}

#[test]
fn sessions_that_end_with_their_connections_go_on() {
    for shards in [1, 3] {
        let mut broker = durable(shards);
        resident(&mut broker, "s", "other");
        let receiver = join(&mut broker, "r");
        fail(&mut broker);
        let publisher = join(&mut broker, "p");
        subscribe(&mut broker, receiver, "t", QoS::ExactlyOnce);
        assert_eq!(broker.take(receiver), ["SUBACK #1 [02]"]);
        for (qos, answer) in [
            (QoS::AtMostOnce, &[][..]),
            (QoS::AtLeastOnce, &["PUBACK #1 00"]),
            (QoS::ExactlyOnce, &["PUBREC #1 00"]),
        ] {
            let id = u16::from(qos > QoS::AtMostOnce);
            broker.send(publisher, publish("t", "x", qos, id));
            assert_eq!(broker.take(publisher), answer, "{shards}");
            assert_eq!(broker.take_payloads(receiver), [b"x"]);
        }
        broker.cut(receiver);
        assert_eq!(broker.take_asked(), NOTHING);
        assert!(
            broker
                .shards
                .iter()
                .all(|shard| shard.audit_imbalance() == 0)
        );
    }
}

#[test]
fn what_would_have_to_be_stored_is_refused_and_named() {
    for shards in [1, 3] {
        let mut broker = durable(shards);
        resident(&mut broker, "s", "t");
        let publisher = join(&mut broker, "p");
        broker.send(publisher, retained("u", "old", QoS::AtLeastOnce, 9));
        broker.stored();
        broker.take(publisher);
        fail(&mut broker);
        for (packet, answer) in [
            (publish("t", "x", QoS::AtLeastOnce, 1), "PUBACK #1 83"),
            (publish("t", "x", QoS::ExactlyOnce, 2), "PUBREC #2 83"),
            (retained("u", "x", QoS::AtLeastOnce, 3), "PUBACK #3 83"),
            (retained("u", "", QoS::AtLeastOnce, 4), "PUBACK #4 83"),
        ] {
            broker.send(publisher, packet);
            assert_eq!(broker.take(publisher), [answer], "{shards}");
        }
        broker.send(publisher, retained("u", "x", QoS::AtMostOnce, 0));
        broker.send(publisher, retained("u", "", QoS::AtMostOnce, 0));
        let named = |shard: &unbroken_broker_core::Shard| {
            shard.stats().dropped[DropReason::StoreFailed as usize]
        };
        assert_eq!(broker.shards.iter().map(named).sum::<u64>(), 6);
        let later = join(&mut broker, "later");
        subscribe(&mut broker, later, "u", QoS::AtMostOnce);
        let shown = broker.take_payloads(later);
        assert_eq!(shown, [b"old"], "what is on disk stays");
        assert_eq!(broker.take_asked(), NOTHING);
    }
}

#[test]
fn an_older_publisher_is_disconnected_without_an_acknowledgement() {
    let mut broker = durable(1);
    resident(&mut broker, "s", "t");
    fail(&mut broker);
    let older = broker.open(Version::V3_1_1);
    let packet = Connect {
        version: Version::V3_1_1,
        ..connect("older")
    };
    broker.send(older, Packet::Connect(packet));
    broker.send(older, publish("t", "x", QoS::AtLeastOnce, 1));
    assert_eq!(broker.take(older), ["CONNACK 0 00"]);
    assert!(!broker.is_open(older));
}

#[test]
fn who_would_have_something_on_disk_or_has_is_not_let_in() {
    let mut broker = durable(1);
    resident(&mut broker, "s", "t");
    let gone = resident(&mut broker, "gone", "t");
    broker.forget(&unbroken_broker_core::Forget::Session {
        client_id: "gone".into(),
    });
    assert!(!broker.is_open(gone));
    fail(&mut broker);
    let come = |broker: &mut Broker, client_id| {
        let client = broker.open(Version::V5);
        broker.send(client, Packet::Connect(connect(client_id)));
        broker.take(client)
    };
    let new = stay(&mut broker, "new", true);
    assert_eq!(broker.take(new), [UNAVAILABLE]);
    assert_eq!(come(&mut broker, "s"), [UNAVAILABLE], "it has a session");
    let why = "that its session has ended is not on disk";
    assert_eq!(come(&mut broker, "gone"), [UNAVAILABLE], "{why}");
    let client = with_will(&mut broker, "w", QoS::AtLeastOnce);
    assert_eq!(
        broker.take(client),
        [UNAVAILABLE],
        "its will has to be kept"
    );
    let client = with_will(&mut broker, "w", QoS::AtMostOnce);
    assert_eq!(broker.take(client), ["CONNACK 0 00"]);
    assert_eq!(come(&mut broker, "c"), ["CONNACK 0 00"]);
}

#[test]
fn a_will_on_disk_waits_there_for_the_restart() {
    let mut broker = durable(1);
    let client = with_will(&mut broker, "w", QoS::AtLeastOnce);
    broker.stored();
    fail(&mut broker);
    assert_eq!(broker.take(client), ["CONNACK 0 00", FAILED]);
    let told = |event: &Event| matches!(event, Event::WillPublished { .. });
    assert!(!broker.events.iter().any(told));
    let listener = join(&mut broker, "l");
    subscribe(&mut broker, listener, "gone", QoS::AtMostOnce);
    let light = with_will(&mut broker, "light", QoS::AtMostOnce);
    broker.take(listener);
    broker.cut(light);
    assert_eq!(broker.take_payloads(listener), [b"light"]);
    // The restart publishes it, so its client is not here meanwhile, though its session has ended.
    let back = broker.open(Version::V5);
    broker.send(back, Packet::Connect(connect("w")));
    assert_eq!(broker.take(back), [UNAVAILABLE]);
}

/// A session with a message that a group gave it, whose client is away, and another member.
fn with_a_message_of_a_group(broker: &mut Broker) -> Client {
    let away = resident(broker, "s", "$share/g/t");
    broker.cut(away);
    let publisher = join(broker, "p");
    broker.send(publisher, publish("t", "x", QoS::ExactlyOnce, 1));
    broker.stored();
    let other = join(broker, "o");
    subscribe(broker, other, "$share/g/t", QoS::ExactlyOnce);
    broker.stored();
    broker.take(other);
    broker.advance(Duration::from_secs(1));
    broker.stored();
    other
}

fn is_as_on_disk(broker: &mut Broker, other: Client) {
    broker.advance(Duration::from_secs(200));
    assert_eq!(broker.take(other), NOTHING, "it is the first one's");
    let stats = broker.shards[0].stats();
    let named: Vec<_> = stats.dropped.iter().filter(|count| **count > 0).collect();
    assert!(named.is_empty(), "{named:?}");
    assert_eq!(stats.sessions_expired, 0);
}

#[test]
fn a_session_that_is_on_disk_does_not_end() {
    let mut broker = durable(1);
    let other = with_a_message_of_a_group(&mut broker);
    fail(&mut broker);
    is_as_on_disk(&mut broker, other);
}

#[test]
fn a_session_that_is_on_disk_as_one_that_stays_does_not_end_with_its_connection() {
    let mut broker = durable(1);
    let other = with_a_message_of_a_group(&mut broker);
    let client = broker.open(Version::V5);
    let packet = Connect {
        clean_start: false,
        ..connect("s")
    };
    broker.send(client, Packet::Connect(packet));
    fail(&mut broker);
    assert_eq!(broker.take(client), [UNAVAILABLE]);
    is_as_on_disk(&mut broker, other);
}

#[test]
fn what_is_on_disk_does_not_become_too_old() {
    let mut settings = Settings::default();
    settings.durable = true;
    let mut limits = Limits::default();
    limits.queue_age_max_s = 40;
    let mut broker = Broker::with(1, limits, settings);
    let other = with_a_message_of_a_group(&mut broker);
    let away = resident(&mut broker, "u", "u");
    broker.cut(away);
    let publisher = join(&mut broker, "q");
    broker.send(publisher, publish("u", "x", QoS::AtLeastOnce, 1));
    broker.stored();
    fail(&mut broker);
    is_as_on_disk(&mut broker, other);
}

#[test]
fn the_counters_say_that_the_store_has_failed() {
    let mut broker = durable(3);
    let failed = |broker: &Broker| -> Vec<u64> {
        let shards = broker.shards.iter();
        shards.map(|shard| shard.stats().store_failed).collect()
    };
    assert_eq!(failed(&broker), [0, 0, 0]);
    fail(&mut broker);
    assert_eq!(failed(&broker), [1, 1, 1]);
}
