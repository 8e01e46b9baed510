//! What an operator removes.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod shard_bus;

use shard_bus::{Broker, join, publish, retained, stay, subscribe};
use unbroken_broker_core::{Event, Forget, Limits, Settings};
use unbroken_mqtt_proto::QoS;

fn durable(shards: u8) -> Broker {
    let mut settings = Settings::default();
    settings.durable = true;
    Broker::with(shards, Limits::default(), settings)
}

fn session(client_id: &str) -> Forget {
    let client_id = client_id.into();
    Forget::Session { client_id }
}

/// A client with a session that stays, on one topic.
fn resident(broker: &mut Broker, client_id: &str) -> shard_bus::Client {
    let client = stay(broker, client_id, false);
    broker.stored();
    subscribe(broker, client, "a", QoS::AtLeastOnce);
    broker.stored();
    broker.take(client);
    broker.take_asked();
    client
}

#[test]
fn a_session_that_is_removed_ends_and_what_waited_is_named() {
    for shards in [1, 3] {
        let mut broker = durable(shards);
        let client = resident(&mut broker, "sleeper");
        broker.cut(client);
        let publisher = join(&mut broker, "publisher");
        broker.send(publisher, publish("a", "x", QoS::AtLeastOnce, 1));
        broker.stored();
        broker.take_asked();
        broker.forget(&session("sleeper"));
        assert!(broker.take_asked().contains(&"end sleeper".to_owned()));
        let ended = broker.events.iter().find_map(|event| match event {
            Event::SessionEnded {
                client_id,
                undelivered,
                uncounted_of,
            } => Some((client_id.to_string(), *undelivered, *uncounted_of)),
            _ => None,
        });
        assert_eq!(ended, Some(("sleeper".to_owned(), 1, 0)), "{shards} shards");
        broker.stored();
        let again = stay(&mut broker, "sleeper", false);
        broker.stored();
        let connack = broker.take(again).remove(0);
        assert!(connack.starts_with("CONNACK 0"), "{connack}");
        broker.forget(&session("nobody"));
    }
}

#[test]
fn a_client_whose_session_is_removed_is_told() {
    let mut broker = durable(1);
    let client = resident(&mut broker, "here");
    broker.forget(&session("here"));
    assert_eq!(broker.take(client), ["DISCONNECT 98"]);
    assert!(!broker.is_open(client));
    assert!(broker.take_asked().contains(&"end here".to_owned()));
}

#[test]
fn a_retained_message_that_is_removed_is_gone_and_nobody_is_sent_anything() {
    for shards in [1, 3] {
        let mut broker = durable(shards);
        let client = join(&mut broker, "client");
        broker.send(client, retained("a", "1", QoS::AtLeastOnce, 1));
        broker.stored();
        subscribe(&mut broker, client, "a", QoS::AtMostOnce);
        broker.stored();
        broker.take(client);
        broker.take_asked();
        let topic = "a".into();
        let removed = Forget::Retained { topic };
        broker.forget(&removed);
        assert_eq!(broker.take_asked(), ["unretained a"], "{shards} shards");
        broker.stored();
        assert_eq!(broker.take(client), [""; 0]);
        let other = join(&mut broker, "other");
        subscribe(&mut broker, other, "a", QoS::AtMostOnce);
        assert_eq!(broker.take(other), ["SUBACK #1 [00]"]);
        let kept = broker
            .shards
            .iter()
            .map(|shard| shard.stats().retained_messages);
        assert_eq!(kept.sum::<u64>(), 0);
    }
}
