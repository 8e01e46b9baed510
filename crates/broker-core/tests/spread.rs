//! A message with very many receivers goes to them over several turns. Nobody can tell but by the
//! clock: before anything else happens to a session it has what is on its way to it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod shard_bus;

use std::time::Duration;

use shard_bus::{Broker, Client, join, publish, stay, subscribe};
use unbroken_broker_core::{Limits, Settings};
use unbroken_mqtt_proto::{
    Disconnect, Packet, PacketId, Properties, Property, PropertyBuf, Publish, QoS, ReasonCode,
    TopicFilters, Unsubscribe, Version,
};

const NOTHING: [&str; 0] = [];
const X: &str = "PUBLISH t \"x\" q0";
const Y: &str = "PUBLISH t \"y\" q0";

/// A shard that gives a message to two receivers at once, and one with more to one a turn.
fn broker() -> Broker {
    with(Settings::default())
}

fn with(mut settings: Settings) -> Broker {
    settings.at_once = 2;
    Broker::with(1, Limits::default(), settings)
}

/// The same, with room for so many bytes to one client.
fn with_room_for(output_bytes_max: u32) -> Broker {
    let mut limits = Limits::default();
    limits.output_bytes_max = output_bytes_max;
    let mut settings = Settings::default();
    settings.at_once = 2;
    Broker::with(1, limits, settings)
}

/// Clients that have subscribed to `t`.
fn crowd(broker: &mut Broker, qos: QoS) -> Vec<Client> {
    let crowd: Vec<_> = (0..5).map(|n| join(broker, &format!("s{n}"))).collect();
    for &client in &crowd {
        subscribe(broker, client, "t", qos);
        broker.take(client);
    }
    crowd
}

fn turn(broker: &mut Broker) {
    broker.advance(Duration::from_nanos(1));
}

fn turns(broker: &mut Broker, count: usize) {
    (0..count).for_each(|_| turn(broker));
}

/// A message to `t`, so often.
fn repeated(payload: &str, count: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    publish("t", payload, QoS::AtMostOnce, 0)
        .encode(Version::V5, &mut bytes)
        .unwrap();
    bytes.repeat(count)
}

/// Publishes to `t` what holds for so many seconds.
fn publish_for(broker: &mut Broker, publisher: Client, seconds: u32) {
    let mut properties = PropertyBuf::new();
    let expiry = Property::MessageExpiryInterval(seconds);
    properties.push(expiry).unwrap();
    let Packet::Publish(packet) = publish("t", "x", QoS::AtMostOnce, 0) else {
        unreachable!()
    };
    let expiring = Publish {
        properties: properties.as_properties(),
        ..packet
    };
    broker.send(publisher, Packet::Publish(expiring));
}

fn leave(broker: &mut Broker, client: Client, reason: ReasonCode) {
    let properties = Properties::EMPTY;
    let packet = Disconnect { reason, properties };
    broker.send(client, Packet::Disconnect(packet));
}

#[test]
fn each_turn_brings_it_to_some_and_its_acknowledgement_leaves_with_the_last() {
    let mut broker = broker();
    let crowd = crowd(&mut broker, QoS::AtMostOnce);
    let publisher = join(&mut broker, "p");
    broker.send(publisher, publish("t", "x", QoS::AtLeastOnce, 1));
    for had in 0..crowd.len() {
        let reached = crowd.iter().filter(|&&client| broker.take(client) == [X]);
        assert_eq!(reached.count(), usize::from(had > 0), "turn {had}");
        assert_eq!(broker.take(publisher), NOTHING, "turn {had}");
        turn(&mut broker);
    }
    turn(&mut broker);
    assert_eq!(broker.take(crowd[4]), [X]);
    assert_eq!(broker.take(publisher), ["PUBACK #1 00"]);
    let soon = broker.now + Duration::from_secs(1);
    let next = broker.shards[0].next_timeout();
    assert!(next.is_none_or(|at| at > soon), "nothing goes on");
}

#[test]
fn two_receivers_have_it_at_once() {
    let mut broker = broker();
    let subscribers = ["a", "b"].map(|name| join(&mut broker, name));
    for client in subscribers {
        subscribe(&mut broker, client, "t", QoS::AtMostOnce);
        broker.take(client);
    }
    let publisher = join(&mut broker, "p");
    broker.send(publisher, publish("t", "x", QoS::AtMostOnce, 0));
    assert_eq!(subscribers.map(|client| broker.take(client)), [[X], [X]]);
}

// [MQTT-4.6.0-5]
#[test]
fn others_are_served_meanwhile_and_nobody_is_overtaken() {
    let mut broker = broker();
    let crowd = crowd(&mut broker, QoS::AtMostOnce);
    subscribe(&mut broker, crowd[4], "quiet", QoS::AtMostOnce);
    broker.take(crowd[4]);
    let [loud, quiet] = ["p", "q"].map(|name| join(&mut broker, name));
    broker.send(loud, publish("t", "x", QoS::AtMostOnce, 0));
    broker.send(quiet, publish("t", "y", QoS::AtMostOnce, 0));
    broker.send(quiet, publish("quiet", "z", QoS::AtMostOnce, 0));
    let all = [X, Y, "PUBLISH quiet \"z\" q0"];
    assert_eq!(broker.take(crowd[4]), all);
    assert_eq!(broker.take(crowd[0]), NOTHING);
    turn(&mut broker);
    assert_eq!(broker.take(crowd[0]), [X, Y], "both in one turn");
    turns(&mut broker, 3);
    for client in &crowd[1..4] {
        assert_eq!(broker.take(*client), [X, Y]);
    }
    assert_eq!(broker.take(crowd[4]), NOTHING, "it had them before");
}

#[test]
fn who_unsubscribes_or_subscribes_meanwhile_has_it_before_that() {
    let mut broker = broker();
    let crowd = crowd(&mut broker, QoS::AtMostOnce);
    let publisher = join(&mut broker, "p");
    broker.send(publisher, publish("t", "x", QoS::AtMostOnce, 0));
    let filters = ["t"];
    let unsubscribe = Packet::Unsubscribe(Unsubscribe {
        packet_id: PacketId::FIRST,
        properties: Properties::EMPTY,
        filters: TopicFilters::new(&filters),
    });
    broker.send(crowd[4], unsubscribe);
    assert_eq!(broker.take(crowd[4]), [X, "UNSUBACK #1 [00]"]);
    subscribe(&mut broker, crowd[3], "t", QoS::ExactlyOnce);
    assert_eq!(broker.take(crowd[3]), [X, "SUBACK #1 [02]"]);
    let late = join(&mut broker, "late");
    subscribe(&mut broker, late, "t", QoS::AtMostOnce);
    turns(&mut broker, 6);
    assert_eq!(broker.take(late), ["SUBACK #1 [00]"]);
    for client in &crowd[..3] {
        assert_eq!(broker.take(*client), [X]);
    }
}

// A session's number is used again when it has ended.
#[test]
fn who_goes_meanwhile_has_it_as_last_words_and_who_comes_in_its_place_does_not() {
    let mut broker = broker();
    let crowd = crowd(&mut broker, QoS::AtMostOnce);
    let publisher = join(&mut broker, "p");
    broker.send(publisher, publish("t", "x", QoS::AtMostOnce, 0));
    leave(&mut broker, crowd[4], ReasonCode::Success);
    assert_eq!(broker.take(crowd[4]), [X]);
    let next = join(&mut broker, "next");
    broker.last_words_max = 0;
    broker.cut(crowd[3]);
    turns(&mut broker, 5);
    assert_eq!(broker.take(next), NOTHING);
    assert_eq!(broker.shards[0].stats().dropped_total(), 1, "not taken");
    assert_eq!(broker.shards[0].audit_imbalance(), 0);
}

#[test]
fn who_is_away_and_comes_back_meanwhile_was_away() {
    let mut broker = broker();
    let crowd = crowd(&mut broker, QoS::AtMostOnce);
    let sleeper = stay(&mut broker, "z", true);
    subscribe(&mut broker, sleeper, "t", QoS::AtMostOnce);
    leave(&mut broker, sleeper, ReasonCode::Success);
    let publisher = join(&mut broker, "p");
    broker.send(publisher, publish("t", "x", QoS::AtMostOnce, 0));
    let awake = stay(&mut broker, "z", false);
    assert_eq!(broker.take(awake), ["CONNACK 1 00"]);
    turns(&mut broker, 6);
    assert_eq!(broker.take(awake), NOTHING);
    assert_eq!(broker.take(crowd[4]), [X]);
    assert_eq!(broker.shards[0].stats().dropped_total(), 1);
}

#[test]
fn a_session_that_stays_has_what_is_stored_for_it_at_once() {
    let mut settings = Settings::default();
    settings.durable = true;
    let mut broker = with(settings);
    let crowd = crowd(&mut broker, QoS::AtLeastOnce);
    let stays = stay(&mut broker, "z", true);
    broker.stored();
    subscribe(&mut broker, stays, "t", QoS::AtLeastOnce);
    let publisher = join(&mut broker, "p");
    broker.stored();
    broker.take(stays);
    broker.take_asked();
    broker.send(publisher, publish("t", "x", QoS::AtLeastOnce, 1));
    assert_eq!(broker.take_asked(), ["message t"]);
    assert_eq!(broker.take(stays), ["PUBLISH t \"x\" q1 #1"]);
    turns(&mut broker, 6);
    for client in crowd {
        assert_eq!(broker.take(client), ["PUBLISH t \"x\" q1 #1"]);
    }
    assert_eq!(broker.take(publisher), NOTHING, "it is not stored");
    broker.stored();
    assert_eq!(broker.take(publisher), ["PUBACK #1 00"]);
}

// [MQTT-4.3.3-10]
#[test]
fn a_publisher_that_goes_meanwhile_and_sends_it_again_is_answered_with_the_last() {
    let mut broker = broker();
    let crowd = crowd(&mut broker, QoS::AtMostOnce);
    let publisher = stay(&mut broker, "p", true);
    broker.send(publisher, publish("t", "x", QoS::ExactlyOnce, 1));
    broker.cut(publisher);
    let publisher = stay(&mut broker, "p", false);
    let Packet::Publish(first) = publish("t", "x", QoS::ExactlyOnce, 1) else {
        unreachable!()
    };
    let again = Publish { dup: true, ..first };
    broker.send(publisher, Packet::Publish(again));
    assert_eq!(broker.take(publisher), ["CONNACK 1 00"]);
    turns(&mut broker, 6);
    assert_eq!(broker.take(publisher), ["PUBREC #1 00"]);
    for client in crowd {
        assert_eq!(broker.take(client), [X]);
    }
}

#[test]
fn a_publisher_of_many_is_not_read_while_many_are_on_their_way() {
    let mut broker = broker();
    let crowd = crowd(&mut broker, QoS::AtMostOnce);
    let [publisher, other] = ["p", "q"].map(|name| join(&mut broker, name));
    broker.send_bytes(publisher, &repeated("x", 40));
    assert!(!broker.wants_input(publisher));
    assert!(broker.wants_input(other));
    turn(&mut broker);
    let first = broker.take(crowd[0]);
    assert!((1..40).contains(&first.len()), "{}", first.len());
    turns(&mut broker, 40);
    assert!(broker.wants_input(publisher));
    assert_eq!(first.len() + broker.take(crowd[0]).len(), 40);
    for client in &crowd[1..] {
        assert_eq!(broker.take(*client).len(), 40);
    }
}

#[test]
fn too_many_on_their_way_make_the_oldest_hurry() {
    let mut broker = broker();
    let crowd = crowd(&mut broker, QoS::AtMostOnce);
    for n in 0..33 {
        let publisher = join(&mut broker, &format!("p{n}"));
        broker.send(publisher, publish("t", "x", QoS::AtMostOnce, 0));
    }
    for &client in &crowd {
        assert!(broker.take(client).contains(&X.to_owned()));
    }
    turns(&mut broker, 10);
    assert_eq!(broker.shards[0].stats().publishes_sent, 33 * 5);
}

#[test]
fn a_publisher_of_large_ones_is_not_read_so_that_receivers_have_room_for_all() {
    let mut broker = with_room_for(1_000);
    let crowd = crowd(&mut broker, QoS::AtMostOnce);
    let publisher = join(&mut broker, "p");
    broker.send_bytes(publisher, &repeated(&"x".repeat(300), 10));
    assert!(!broker.wants_input(publisher));
    turns(&mut broker, 60);
    assert!(broker.wants_input(publisher));
    assert_eq!(broker.shards[0].stats().dropped_total(), 0);
    for client in crowd {
        assert_eq!(broker.take(client).len(), 10);
    }
}

#[test]
fn too_many_bytes_on_their_way_make_the_oldest_hurry() {
    let mut broker = with_room_for(1_000);
    let crowd = crowd(&mut broker, QoS::AtMostOnce);
    for n in 0..10 {
        let publisher = join(&mut broker, &format!("p{n}"));
        broker.send_bytes(publisher, &repeated(&"x".repeat(300), 1));
    }
    turns(&mut broker, 10);
    assert_eq!(broker.shards[0].stats().dropped_total(), 0);
    for client in crowd {
        assert_eq!(broker.take(client).len(), 10);
    }
}

#[test]
fn a_publisher_waits_for_its_own_messages_and_not_for_those_of_others() {
    let mut broker = broker();
    crowd(&mut broker, QoS::AtMostOnce);
    let mut others = 0;
    let mut publish_as_others = |broker: &mut Broker, count| {
        for n in others..others + count {
            let other = join(broker, &format!("p{n}"));
            broker.send(other, publish("t", "y", QoS::AtMostOnce, 0));
        }
        others += count;
    };
    publish_as_others(&mut broker, 15);
    let publisher = join(&mut broker, "p");
    broker.send(publisher, publish("t", "x", QoS::AtMostOnce, 0));
    for _ in 0..4 {
        turn(&mut broker);
        publish_as_others(&mut broker, 3);
        assert!(!broker.wants_input(publisher));
    }
    turn(&mut broker);
    assert!(broker.wants_input(publisher), "everybody has its message");
}

// [MQTT-3.3.2-6]
#[test]
fn who_has_it_later_is_told_how_long_it_holds_then() {
    let mut broker = broker();
    let crowd = crowd(&mut broker, QoS::AtMostOnce);
    let publisher = join(&mut broker, "p");
    publish_for(&mut broker, publisher, 100);
    for (client, left) in crowd.into_iter().zip([100, 90, 80, 70, 60]) {
        turn(&mut broker);
        let expected = format!("{X} MessageExpiryInterval({left})");
        assert_eq!(broker.take(client), [expected]);
        broker.now += Duration::from_secs(10);
    }
}

// [MQTT-3.3.2-5]
#[test]
fn what_expires_on_its_way_is_named() {
    let mut broker = broker();
    let crowd = crowd(&mut broker, QoS::AtMostOnce);
    let publisher = join(&mut broker, "p");
    publish_for(&mut broker, publisher, 1);
    turn(&mut broker);
    assert_eq!(broker.take(crowd[0]).len(), 1);
    broker.now += Duration::from_secs(1);
    turns(&mut broker, 6);
    assert_eq!(broker.shards[0].stats().dropped_total(), 4);
    assert_eq!(broker.shards[0].audit_imbalance(), 0);
}

#[test]
fn a_broker_that_stops_delivers_before_it_closes() {
    let mut broker = broker();
    let crowd = crowd(&mut broker, QoS::AtMostOnce);
    let publisher = join(&mut broker, "p");
    broker.send(publisher, publish("t", "x", QoS::AtLeastOnce, 1));
    broker.drain();
    assert_eq!(broker.take(publisher), ["PUBACK #1 00"]);
    for client in crowd {
        assert_eq!(broker.take(client), [X]);
        assert!(!broker.is_open(client));
    }
}
