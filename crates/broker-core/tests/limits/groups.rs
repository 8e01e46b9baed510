//! What is too large for a member of a shared group goes to one that takes it.

use unbroken_broker_core::{DropReason, Limits, Settings};
use unbroken_mqtt_proto::{Connect, Packet, Property, PropertyBuf, QoS, Version};

use super::shard_bus::{Broker, connect, join, publish, stay, subscribe};
use super::{dropped, told};

#[test]
fn a_group_gets_back_what_is_too_large_for_a_member_that_comes_back() {
    for (shards, qos, in_flight) in [
        (1, QoS::AtLeastOnce, false),
        (1, QoS::AtLeastOnce, true),
        (1, QoS::ExactlyOnce, false),
        (3, QoS::AtLeastOnce, false),
        (3, QoS::AtLeastOnce, true),
        (3, QoS::ExactlyOnce, false),
    ] {
        let case = (shards, qos, in_flight);
        let mut broker = Broker::with(shards, Limits::default(), Settings::default());
        let member = stay(&mut broker, "member", true);
        subscribe(&mut broker, member, "$share/g/t", qos);
        if !in_flight {
            broker.cut(member);
        }
        let publisher = join(&mut broker, "p");
        for id in 1..=3 {
            broker.send(publisher, publish("t", &"x".repeat(200), qos, id));
        }
        broker.send(publisher, publish("t", "y", qos, 4));
        if in_flight {
            broker.cut(member);
        }
        let other = join(&mut broker, "other");
        subscribe(&mut broker, other, "$share/g/t", qos);
        broker.take(other);
        let mut properties = PropertyBuf::new();
        properties.push(Property::MaximumPacketSize(100)).unwrap();
        let again = broker.open(Version::V5);
        let packet = Connect {
            clean_start: false,
            properties: properties.as_properties(),
            ..connect("member")
        };
        broker.send(again, Packet::Connect(packet));
        assert_eq!(broker.take(other).len(), 3, "{case:?}");
        let got = broker.take(again);
        assert_eq!(got.len(), 2, "CONNACK and the small one, {case:?}: {got:?}");
        assert_eq!(told(&broker), [], "{case:?}");
    }
}

#[test]
fn what_is_too_large_for_every_member_of_a_group_is_dropped_by_name_once() {
    let mut broker = Broker::new(1);
    let member = stay(&mut broker, "member", true);
    subscribe(&mut broker, member, "$share/g/t", QoS::AtLeastOnce);
    broker.cut(member);
    let publisher = join(&mut broker, "p");
    let large = "x".repeat(200);
    broker.send(publisher, publish("t", &large, QoS::AtLeastOnce, 1));
    let mut properties = PropertyBuf::new();
    properties.push(Property::MaximumPacketSize(100)).unwrap();
    let again = broker.open(Version::V5);
    let packet = Connect {
        clean_start: false,
        properties: properties.as_properties(),
        ..connect("member")
    };
    broker.send(again, Packet::Connect(packet));
    assert_eq!(broker.take(again).len(), 1);
    let reason = DropReason::TooLargeForReceiver;
    assert_eq!(told(&broker), [("member".into(), "t".into(), reason)]);
    assert_eq!(dropped(&broker, reason), 1);
}
