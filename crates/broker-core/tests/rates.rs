//! A client that is over its rate: what waits, for how long, and what becomes of it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod shard_bus;

use std::sync::Arc;
use std::time::Duration;

use shard_bus::{Broker, Client, connect, join, publish, subscribe};
use unbroken_broker_core::{ConnectionId, Input, Limits, RateLimits, RateScope, Rates, Settings};
use unbroken_mqtt_proto::{Connect, Packet, QoS, Version};

const SECOND: Duration = Duration::from_secs(1);

fn broker(patience: Option<Duration>) -> Broker {
    let mut limits = Limits::default();
    limits.rate_patience = patience;
    Broker::with(1, limits, Settings::default())
}

fn connection(broker: &Broker, client_id: &str) -> ConnectionId {
    let all = broker.shards[0].identities();
    let found = all.iter().find(|(_, it)| *it.client_id == *client_id);
    found.unwrap().0
}

fn scope(broker: &Broker, messages_per_second: u32) -> Arc<RateScope> {
    let limits = RateLimits {
        messages_per_second: Some(messages_per_second),
        ..RateLimits::default()
    };
    Arc::new(RateScope::new(0, "a rate".into(), limits, broker.now))
}

/// Gives a client these rates; none: it has none.
fn limit(broker: &mut Broker, client_id: &str, scope: Option<&Arc<RateScope>>) {
    let now = broker.now;
    let rates = scope.map(|scope| Box::new(Rates::new(vec![scope.join()], now)));
    let connection = connection(broker, client_id);
    broker.input(0, Input::RatesSet { connection, rates });
}

fn send_all(broker: &mut Broker, client: Client, count: u16) {
    for number in 1..=count {
        let payload = number.to_string();
        broker.send(client, publish("t", &payload, QoS::AtMostOnce, 0));
    }
}

fn payloads(broker: &mut Broker, client: Client) -> Vec<String> {
    let payloads = broker.take_payloads(client).into_iter();
    payloads.map(|it| String::from_utf8(it).unwrap()).collect()
}

#[test]
fn what_is_over_a_rate_arrives_in_its_order_when_it_is_due() {
    let mut broker = broker(None);
    let receiver = join(&mut broker, "r");
    subscribe(&mut broker, receiver, "t", QoS::AtMostOnce);
    broker.take(receiver);
    let publisher = join(&mut broker, "p");
    let scope = scope(&broker, 2);
    limit(&mut broker, "p", Some(&scope));
    send_all(&mut broker, publisher, 6);
    assert_eq!(payloads(&mut broker, receiver), ["1", "2"]);
    for due in 3..=6 {
        assert!(!broker.wants_input(publisher));
        broker.advance(SECOND / 2);
        assert_eq!(payloads(&mut broker, receiver), [due.to_string()]);
    }
    assert!(broker.wants_input(publisher));
    assert_eq!(broker.shards[0].stats().rate_pauses, 4);
}

#[test]
fn a_client_that_waits_is_not_silent_and_one_that_has_waited_may_be() {
    // [MQTT-3.1.2-22]
    let mut broker = broker(None);
    let publisher = broker.open(Version::V5);
    let packet = Connect {
        keep_alive: 2,
        ..connect("p")
    };
    broker.send(publisher, Packet::Connect(packet));
    let limits = RateLimits {
        bytes_per_second: Some(10),
        ..RateLimits::default()
    };
    let scope = RateScope::new(0, "a rate".into(), limits, broker.now);
    limit(&mut broker, "p", Some(&Arc::new(scope)));
    let long = "x".repeat(200);
    broker.send(publisher, publish("t", &long, QoS::AtMostOnce, 0));
    for _ in 0..19 {
        assert!(broker.is_open(publisher) && !broker.wants_input(publisher));
        broker.advance(SECOND);
    }
    broker.advance(2 * SECOND);
    assert!(broker.wants_input(publisher));
    broker.advance(2 * SECOND);
    assert!(broker.is_open(publisher), "its time began when it was read");
    broker.advance(2 * SECOND);
    assert!(!broker.is_open(publisher));
}

#[test]
fn a_client_without_patience_left_is_told_the_reason() {
    let mut broker = broker(Some(3 * SECOND));
    let publisher = join(&mut broker, "p");
    let scope = scope(&broker, 1);
    limit(&mut broker, "p", Some(&scope));
    send_all(&mut broker, publisher, 20);
    for _ in 0..3 {
        assert!(broker.is_open(publisher));
        broker.advance(SECOND);
    }
    broker.advance(Duration::ZERO);
    assert!(!broker.is_open(publisher));
    assert_eq!(broker.take(publisher), ["DISCONNECT 96"]);
    assert_eq!(broker.shards[0].stats().publishes_received, 4);
}

#[test]
fn other_rates_or_none_hold_for_a_client_that_waits() {
    let mut broker = broker(None);
    let publisher = join(&mut broker, "p");
    let (slow, fast) = (scope(&broker, 1), scope(&broker, 5));
    limit(&mut broker, "p", Some(&slow));
    send_all(&mut broker, publisher, 20);
    let received = |broker: &Broker| broker.shards[0].stats().publishes_received;
    assert_eq!(received(&broker), 1);
    limit(&mut broker, "p", Some(&fast));
    assert_eq!(received(&broker), 6);
    assert!(slow.is_idle(broker.now + 9 * SECOND), "its place is free");
    broker.advance(SECOND / 5);
    assert_eq!(received(&broker), 7);
    limit(&mut broker, "p", None);
    assert_eq!(received(&broker), 20);
    assert!(broker.wants_input(publisher));
}

#[test]
fn a_client_that_leaves_gives_its_place_back() {
    let mut broker = broker(None);
    let publisher = join(&mut broker, "p");
    let scope = scope(&broker, 1);
    limit(&mut broker, "p", Some(&scope));
    send_all(&mut broker, publisher, 3);
    let later = broker.now + 9 * SECOND;
    assert!(!scope.is_idle(later));
    broker.cut(publisher);
    assert!(scope.is_idle(later));
    broker.advance(9 * SECOND);
}

#[test]
fn a_shorter_patience_holds_for_clients_that_wait() {
    let mut broker = broker(None);
    let publisher = join(&mut broker, "p");
    let scope = scope(&broker, 1);
    limit(&mut broker, "p", Some(&scope));
    send_all(&mut broker, publisher, 2);
    let mut limits = Limits::default();
    limits.rate_patience = Some(Duration::ZERO);
    broker.input(0, Input::Reconfigured(Box::new(limits)));
    broker.advance(Duration::ZERO);
    assert!(!broker.is_open(publisher));
}
