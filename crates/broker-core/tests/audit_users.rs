//! A lane is its user's: what another user sends of it is refused.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod publisher_lanes;
mod shard_bus;

use publisher_lanes::{Producer, found};
use shard_bus::{Broker, Client, connect, join, subscribe};
use unbroken_broker_core::Event;
use unbroken_mqtt_proto::{Connect, Packet, Property, PropertyBuf, QoS, Version};

/// A client of this user, whose session stays.
fn of_user(broker: &mut Broker, user: &str, client_id: &str) -> Client {
    let mut properties = PropertyBuf::new();
    let expiry = Property::SessionExpiryInterval(100);
    properties.push(expiry).unwrap();
    let client = broker.open(Version::V5);
    let packet = Connect {
        user_name: Some(user),
        properties: properties.as_properties(),
        ..connect(client_id)
    };
    broker.send(client, Packet::Connect(packet));
    broker.take(client);
    client
}

#[test]
fn what_another_user_sends_of_a_lane_is_refused() {
    for shards in [1, 3] {
        let mut broker = Broker::new(shards);
        let reader = join(&mut broker, "reader");
        subscribe(&mut broker, reader, "t", QoS::AtMostOnce);
        subscribe(&mut broker, reader, "audit/#", QoS::AtMostOnce);
        let mut producer = Producer::join(&mut broker);
        producer.client = of_user(&mut broker, "ann", "producer");
        producer.send_many(&mut broker, 1_000);
        let mut mallory = Producer::join(&mut broker);
        mallory.client = of_user(&mut broker, "mallory", "mallory");
        mallory.lane = producer.lane.clone();
        // The shard of the lane answers the first, if it is another one's.
        mallory.send_many(&mut broker, 1);
        let at_first = broker.take_payloads(reader).len();
        broker.take(mallory.client);
        mallory.send_many(&mut broker, 2);
        mallory.checkpoint(&mut broker);
        let answers = broker.take(mallory.client);
        let refused = answers.iter().filter(|it| it.ends_with(" 87"));
        assert_eq!(refused.count(), 2, "{shards} {answers:?}");
        assert_eq!(broker.take_payloads(reader).len(), 0, "after {at_first}");
        // Another client of the same user is only named.
        let mut second = Producer::join(&mut broker);
        second.client = of_user(&mut broker, "ann", "second");
        second.lane = producer.lane.clone();
        second.send_many(&mut broker, 1);
        assert_eq!(broker.take_payloads(reader).len(), 1);
        producer.send_many(&mut broker, 24);
        producer.checkpoint(&mut broker);
        let found = found(&broker);
        assert_eq!((found.intruded, found.windows_proven), (5, 1), "{shards}");
        let named = broker.events.iter().filter_map(|event| match event {
            Event::LaneIntruded { user, owner, .. } => {
                Some((user.as_deref().map(str::to_owned), owner.to_string()))
            }
            _ => None,
        });
        let named: Vec<_> = named.collect();
        let expected = (Some("mallory".to_owned()), "producer".to_owned());
        assert!(named.contains(&expected), "{named:?}");
    }
}

#[test]
fn a_lane_that_no_user_has_opened_passes_with_its_session() {
    let mut broker = Broker::new(1);
    let mut producer = Producer::join(&mut broker);
    producer.send_many(&mut broker, 2);
    broker.take(producer.client);
    producer.client = of_user(&mut broker, "ann", "producer");
    producer.send_many(&mut broker, 2);
    let answers = broker.take(producer.client);
    assert!(!answers.iter().any(|it| it.ends_with(" 87")), "{answers:?}");
    assert_eq!(found(&broker).intruded, 0);
}
