//! What happens between the moment a shard decides something and the moment another one learns
//! of it: numbers are used again, clocks differ by a turn, answers come late. The simulator found
//! these.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod shard_bus;

use std::time::Duration;

use shard_bus::{Broker, Client, join, publish, retained, stay, subscribe, unsubscribe};
use unbroken_broker_core::{Limits, Settings};
use unbroken_mqtt_proto::{Packet, Property, PropertyBuf, Publish, QoS};

const SHARDS: [u8; 4] = [1, 2, 3, 8];

/// Clients on all shards, most likely.
fn crowd(broker: &mut Broker, name: &str) -> Vec<Client> {
    (0..24)
        .map(|n| join(broker, &format!("{name}{n}")))
        .collect()
}

#[test]
fn a_session_does_not_end_by_the_timer_of_the_one_before_it() {
    let mut broker = Broker::new(1);
    let first = stay(&mut broker, "c", true);
    broker.cut(first);
    broker.advance(Duration::from_mins(1));
    let second = stay(&mut broker, "c", true);
    broker.cut(second);
    // 110 s after the end of the first, which would have stayed for 100; 50 s after the second's.
    broker.advance(Duration::from_secs(50));
    let third = stay(&mut broker, "c", false);
    assert_eq!(broker.take(third), ["CONNACK 1 00"]);
}

// [MQTT-4.3.3-10]
#[test]
fn a_qos_2_message_that_comes_again_is_answered_when_it_is_stored() {
    let mut settings = Settings::default();
    settings.durable = true;
    let mut broker = Broker::with(1, Limits::default(), settings);
    let subscriber = join(&mut broker, "s");
    subscribe(&mut broker, subscriber, "a", QoS::ExactlyOnce);
    let mut publisher = stay(&mut broker, "p", true);
    broker.stored();
    broker.send(publisher, publish("a", "x", QoS::ExactlyOnce, 1));
    assert_eq!(broker.take(publisher), ["CONNACK 0 00"]);
    broker.cut(publisher);
    publisher = stay(&mut broker, "p", false);
    let Packet::Publish(packet) = publish("a", "x", QoS::ExactlyOnce, 1) else {
        unreachable!()
    };
    let again = Publish {
        dup: true,
        ..packet
    };
    broker.send(publisher, Packet::Publish(again));
    assert_eq!(broker.take(publisher), [""; 0]);
    broker.stored();
    assert_eq!(broker.take(publisher), ["CONNACK 1 00", "PUBREC #1 00"]);
}

#[test]
fn the_last_acknowledged_retained_message_wins_though_its_shard_has_an_older_clock() {
    for shards in SHARDS {
        let mut broker = Broker::new(shards);
        let publishers = crowd(&mut broker, "p");
        let start = broker.now;
        for (at, &publisher) in publishers.iter().enumerate() {
            let behind = Duration::from_millis(u64::try_from(at).unwrap());
            broker.now = start + Duration::from_secs(1).saturating_sub(behind);
            let value = format!("{at}");
            broker.send(publisher, retained("t", &value, QoS::AtLeastOnce, 1));
            assert!(broker.take(publisher)[0].starts_with("PUBACK #1"));
        }
        broker.now = start + Duration::from_secs(2);
        let reader = join(&mut broker, "r");
        subscribe(&mut broker, reader, "t", QoS::AtMostOnce);
        let last = ["SUBACK #1 [00]", "PUBLISH t \"23\" q0 retain"];
        assert_eq!(broker.take(reader), last, "{shards} shards");
    }
}

// [MQTT-3.3.2-6]
#[test]
fn a_message_never_says_that_it_lives_longer_than_its_publisher_said() {
    let mut broker = Broker::new(3);
    let subscribers = crowd(&mut broker, "s");
    for &subscriber in &subscribers {
        subscribe(&mut broker, subscriber, "t", QoS::AtMostOnce);
        broker.take(subscriber);
    }
    let publisher = join(&mut broker, "p");
    let mut properties = PropertyBuf::new();
    properties
        .push(Property::MessageExpiryInterval(10))
        .unwrap();
    let Packet::Publish(packet) = publish("t", "x", QoS::AtMostOnce, 0) else {
        unreachable!()
    };
    let expiring = Publish {
        properties: properties.as_properties(),
        ..packet
    };
    broker.hold_messages = true;
    broker.advance(Duration::from_secs(1));
    broker.send(publisher, Packet::Publish(expiring));
    broker.now -= Duration::from_millis(5);
    broker.deliver_messages();
    for subscriber in subscribers {
        let expected = ["PUBLISH t \"x\" q0 MessageExpiryInterval(10)"];
        assert_eq!(broker.take(subscriber), expected);
    }
}

// [MQTT-3.3.1-9]
#[test]
fn a_message_that_is_not_retained_does_not_stand_for_the_retained_one() {
    for shards in SHARDS {
        let mut broker = Broker::new(shards);
        let publisher = join(&mut broker, "p");
        broker.send(publisher, retained("t", "kept", QoS::AtLeastOnce, 1));
        let subscribers = crowd(&mut broker, "s");
        broker.hold_messages = true;
        for &subscriber in &subscribers {
            subscribe(&mut broker, subscriber, "t", QoS::AtMostOnce);
        }
        broker.advance(Duration::from_secs(1));
        for &publisher in &subscribers {
            broker.send(publisher, publish("t", "passing", QoS::AtMostOnce, 0));
        }
        broker.deliver_messages();
        for subscriber in subscribers {
            let kept = "PUBLISH t \"kept\" q0 retain".to_owned();
            let packets = broker.take(subscriber);
            assert!(packets.contains(&kept), "{shards} shards: {packets:?}");
        }
    }
}

// [MQTT-4.8.2-4]
#[test]
fn a_message_for_a_member_that_has_gone_is_not_given_to_the_next_session_in_its_place() {
    for shards in SHARDS {
        let mut broker = Broker::new(shards);
        let members = crowd(&mut broker, "m");
        for &member in &members {
            subscribe(&mut broker, member, "$share/g/t", QoS::AtLeastOnce);
        }
        let publishers = crowd(&mut broker, "p");
        broker.hold_messages = true;
        for &publisher in &publishers {
            broker.send(publisher, publish("t", "x", QoS::AtLeastOnce, 1));
            broker.send(publisher, publish("t", "y", QoS::AtLeastOnce, 2));
        }
        for &member in &members {
            broker.cut(member);
        }
        let strangers = crowd(&mut broker, "n");
        broker.deliver_messages();
        for stranger in strangers {
            assert_eq!(broker.take(stranger), [""; 0], "{shards} shards");
        }
    }
}

// [MQTT-3.10.4-2]
#[test]
fn a_shared_message_for_a_member_that_leaves_goes_to_one_that_stays() {
    for shards in SHARDS {
        let mut broker = Broker::new(shards);
        let members = crowd(&mut broker, "m");
        for &member in &members {
            subscribe(&mut broker, member, "$share/g/t", QoS::AtLeastOnce);
            broker.take(member);
        }
        let publishers = crowd(&mut broker, "p");
        broker.hold_messages = true;
        for &publisher in &publishers {
            broker.send(publisher, publish("t", "x", QoS::AtLeastOnce, 1));
        }
        let mut got = 0;
        for &member in &members[1..] {
            unsubscribe(&mut broker, member, "$share/g/t");
            let packets = broker.take(member);
            let (last, before) = packets.split_last().unwrap();
            assert_eq!(last, "UNSUBACK #1 [00]");
            got += before.len();
        }
        broker.deliver_messages();
        for &member in &members[1..] {
            assert_eq!(broker.take(member), [""; 0], "{shards} shards");
        }
        got += broker.take(members[0]).len();
        assert_eq!(got, publishers.len(), "{shards} shards");
    }
}
