//! A client that speaks in the name of a processor, or of the broker.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod publisher_lanes;
mod shard_bus;

use std::time::Duration;

use publisher_lanes::{Producer, faults, pass_on};
use shard_bus::{Broker, Client, connect, join, subscribe};
use unbroken_broker_core::Event;
use unbroken_merkle_log::{DropReason, DropRecord, Epoch, Lane, LaneId, LaneLimits, Xxh3};
use unbroken_mqtt_proto::{
    Connect, Packet, PacketId, Property, PropertyBuf, Publish, QoS, Version, Will,
};

/// A drop record of the first message of lane 7, in the words of a processor of lane 9 or of the
/// broker.
fn drop_record(broker: &mut Broker, client: Client, name: &str, value: &str, qos: QoS) {
    let mut lane = Lane::new(
        LaneId::new(7).unwrap(),
        Epoch(1),
        LaneLimits::default(),
        Duration::ZERO,
    );
    let dropped = lane.issue(*b"t", *b"x", &Xxh3);
    let record = DropRecord::of(DropReason::FILTERED, &[dropped]).unwrap();
    let mut bytes = Vec::new();
    record.encode(&Xxh3, &mut bytes).unwrap();
    let mut properties = PropertyBuf::new();
    let said = Property::UserProperty(name, value);
    properties.push(said).unwrap();
    let packet = Publish {
        dup: false,
        qos,
        retain: false,
        topic: "audit/drop/0000000000000007",
        packet_id: PacketId::new(9).filter(|_| qos > QoS::AtMostOnce),
        properties: properties.as_properties(),
        payload: &bytes,
    };
    broker.send(client, Packet::Publish(packet));
}

#[test]
fn who_speaks_in_the_name_of_a_processor_is_named() {
    const NINE: &str = "0000000000000009";
    for shards in [1, 2, 8] {
        for intruder in ["mallory", "eve", "trudy", "oscar"] {
            let mut broker = Broker::new(shards);
            let mut processor = Producer::join_as(&mut broker, "processor", 1);
            let nine = LaneId::new(9).unwrap();
            processor.lane = Lane::new(nine, Epoch(1), LaneLimits::default(), Duration::ZERO);
            processor.send_many(&mut broker, 3);
            let (none, through) = (QoS::AtMostOnce, "audit-through");
            drop_record(&mut broker, processor.client, through, NINE, none);
            assert_eq!(faults(&mut broker), [""; 0], "{shards}");
            let mallory = join(&mut broker, intruder);
            drop_record(&mut broker, mallory, through, NINE, none);
            let named = format!("{intruder} 9 of processor drop-record 0 1");
            assert_eq!(faults(&mut broker), [named], "{shards}");
            let mut producer = Producer::join(&mut broker);
            producer.send_many(&mut broker, 3);
            let checkpoint = producer.poll();
            pass_on(&mut broker, processor.client, &checkpoint);
            assert_eq!(faults(&mut broker), [""; 0], "{shards}");
            pass_on(&mut broker, mallory, &checkpoint);
            let named = format!("{intruder} 9 of processor checkpoint 3 1");
            assert_eq!(faults(&mut broker), [named], "{shards}");
            // A name that is no lane hides nobody.
            drop_record(&mut broker, mallory, through, "nine", none);
            let named = format!("{intruder} 7 of producer drop-record 0 1");
            assert_eq!(faults(&mut broker), [named], "{shards}");
        }
    }
}

#[test]
fn a_client_cannot_speak_as_the_broker() {
    let mut broker = Broker::new(1);
    let receiver = join(&mut broker, "receiver");
    subscribe(&mut broker, receiver, "audit/drop/+", QoS::AtLeastOnce);
    let mallory = join(&mut broker, "mallory");
    broker.take(mallory);
    drop_record(
        &mut broker,
        mallory,
        "audit-receiver",
        "receiver",
        QoS::AtLeastOnce,
    );
    assert_eq!(broker.take(mallory), ["PUBACK #9 87"]);
    assert_eq!(broker.take_publishes(receiver).len(), 0);
    let is_named = |event: &Event| {
        matches!(event, Event::Dropped { client_id, reason, .. }
            if **client_id == *"mallory" && *reason == unbroken_broker_core::DropReason::NotAuthorized)
    };
    assert!(broker.events.iter().any(is_named), "{:?}", broker.events);
}

#[test]
fn a_will_cannot_speak_as_the_broker() {
    let mut broker = Broker::new(1);
    let mut properties = PropertyBuf::new();
    let name = Property::UserProperty("audit-receiver", "receiver");
    properties.push(name).unwrap();
    for (topic, expected) in [("audit/drop/7", "CONNACK 0 87"), ("t", "CONNACK 0 00")] {
        let will = Will {
            qos: QoS::AtLeastOnce,
            retain: false,
            topic,
            payload: b"a record",
            properties: properties.as_properties(),
        };
        let client = broker.open(Version::V5);
        let packet = Connect {
            will: Some(will),
            ..connect("mallory")
        };
        broker.send(client, Packet::Connect(packet));
        let taken = broker.take(client);
        assert!(taken[0].starts_with(expected), "{taken:?}");
    }
}
