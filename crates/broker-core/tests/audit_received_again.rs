//! What a publisher sends again is told apart from what it sends first: over the connection that
//! carried it before, or after a reconnect.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod shard_bus;

use shard_bus::{Broker, Client, join, publish, stay, subscribe};
use unbroken_broker_core::AuditTotals;
use unbroken_mqtt_proto::{Packet, Publish, QoS};

const SHARDS: [u8; 3] = [1, 2, 8];

/// Received first, received again on one connection, received again after a reconnect.
fn received(broker: &Broker) -> (u64, u64, u64) {
    let mut sum = AuditTotals::default();
    for shard in &broker.shards {
        assert_eq!(shard.audit_imbalance(), 0);
        sum += shard.stats().audit;
    }
    assert_eq!(sum.faults(), 0, "sent again is no fault");
    (sum.received, sum.retransmitted, sum.redelivered_in)
}

fn again<'a>(topic: &'a str, payload: &'a str, qos: QoS, id: u16) -> Packet<'a> {
    let Packet::Publish(packet) = publish(topic, payload, qos, id) else {
        unreachable!()
    };
    Packet::Publish(Publish {
        dup: true,
        ..packet
    })
}

fn payloads(broker: &mut Broker, client: Client) -> Vec<String> {
    let payloads = broker.take_payloads(client).into_iter();
    payloads
        .map(|payload| String::from_utf8(payload).unwrap())
        .collect()
}

#[test]
fn a_message_that_comes_again_on_its_connection_is_a_retransmission() {
    for shards in SHARDS {
        let mut broker = Broker::new(shards);
        let reader = join(&mut broker, "reader");
        subscribe(&mut broker, reader, "t", QoS::AtMostOnce);
        let publisher = join(&mut broker, "publisher");
        broker.send(publisher, publish("t", "1", QoS::AtLeastOnce, 1));
        broker.send(publisher, again("t", "1", QoS::AtLeastOnce, 1));
        assert_eq!(received(&broker), (2, 1, 0), "at least once: two copies");
        broker.send(publisher, publish("t", "2", QoS::ExactlyOnce, 2));
        broker.send(publisher, again("t", "2", QoS::ExactlyOnce, 2));
        broker.send(publisher, again("t", "2", QoS::ExactlyOnce, 2));
        assert_eq!(received(&broker), (3, 3, 0), "exactly once: one copy");
        assert_eq!(payloads(&mut broker, reader), ["1", "1", "2"]);
    }
}

#[test]
fn a_message_that_comes_again_after_a_reconnect_is_a_redelivery() {
    for shards in SHARDS {
        let mut broker = Broker::new(shards);
        let reader = join(&mut broker, "reader");
        subscribe(&mut broker, reader, "t", QoS::AtMostOnce);
        let publisher = stay(&mut broker, "publisher", true);
        broker.send(publisher, publish("t", "1", QoS::AtLeastOnce, 1));
        broker.send(publisher, publish("t", "2", QoS::ExactlyOnce, 2));
        broker.cut(publisher);
        let publisher = stay(&mut broker, "publisher", false);
        broker.send(publisher, again("t", "1", QoS::AtLeastOnce, 1));
        broker.send(publisher, again("t", "2", QoS::ExactlyOnce, 2));
        assert_eq!(received(&broker), (3, 0, 2));
        assert_eq!(payloads(&mut broker, reader), ["1", "2", "1"]);
        // And once it goes on, what comes again was carried by this connection.
        broker.send(publisher, publish("t", "3", QoS::AtLeastOnce, 3));
        broker.send(publisher, again("t", "3", QoS::AtLeastOnce, 3));
        assert_eq!(received(&broker), (5, 1, 2));
    }
}

#[test]
fn a_message_whose_first_copy_never_came_is_received_all_the_same() {
    let mut broker = Broker::new(1);
    let publisher = stay(&mut broker, "publisher", true);
    broker.cut(publisher);
    let publisher = stay(&mut broker, "publisher", false);
    broker.send(publisher, again("t", "1", QoS::ExactlyOnce, 1));
    assert_eq!(received(&broker), (1, 0, 1));
}
