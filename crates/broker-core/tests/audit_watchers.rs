//! Clients that announce that they only verify what they receive: their deliveries obey the law,
//! and are in no sum that is shown, over 1, 2 and 8 shards.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod shard_bus;

use std::time::Duration;

use shard_bus::{Broker, Client, connect, join, publish, subscribe};
use unbroken_broker_core::{AuditTotals, Limits, Settings};
use unbroken_mqtt_proto::{
    Ack, Connect, Packet, PacketId, Property, PropertyBuf, QoS, ReasonCode, Version,
};

const SHARDS: [u8; 3] = [1, 2, 8];

/// Lets in a client whose CONNECT has these user properties.
fn announcing(broker: &mut Broker, client_id: &str, words: &[&str], expiry_s: u32) -> Client {
    let mut properties = PropertyBuf::new();
    let expiry = Property::SessionExpiryInterval(expiry_s);
    properties.push(expiry).unwrap();
    for word in words {
        properties
            .push(Property::UserProperty("audit", word))
            .unwrap();
    }
    let client = broker.open(Version::V5);
    let packet = Connect {
        clean_start: false,
        properties: properties.as_properties(),
        ..connect(client_id)
    };
    broker.send(client, Packet::Connect(packet));
    broker.take(client);
    client
}

fn watcher(broker: &mut Broker, expiry_s: u32) -> Client {
    announcing(broker, "watcher", &["watch"], expiry_s)
}

fn acknowledge(broker: &mut Broker, client: Client, id: u16, reason: ReasonCode) {
    let mut properties = PropertyBuf::new();
    let processed = Property::UserProperty("audit", "processed");
    properties.push(processed).unwrap();
    let ack = Ack {
        reason,
        properties: properties.as_properties(),
        ..Ack::success(PacketId::new(id).unwrap())
    };
    broker.send(client, Packet::PubAck(ack));
}

fn totals(broker: &Broker) -> AuditTotals {
    let mut sum = AuditTotals::default();
    for shard in &broker.shards {
        assert_eq!(shard.audit_imbalance(), 0);
        sum += shard.stats().audit;
    }
    assert_eq!(sum.faults(), 0);
    sum
}

/// The sentence, and the deliveries to watchers.
fn shown(broker: &mut Broker, name: &str) -> (String, u64) {
    let reader = join(broker, name);
    subscribe(broker, reader, "$SYS/audit/verdict", QoS::AtMostOnce);
    let found = broker.take_publishes(reader).remove(0);
    let sentence = String::from_utf8(found.payload).unwrap();
    (sentence, totals(broker).to_watchers)
}

/// Two messages of each quality of service to `t`, which its receiver acknowledges in part.
fn traffic(broker: &mut Broker, publisher: Client) {
    for id in 1..=2 {
        broker.send(publisher, publish("t", "x", QoS::AtMostOnce, 0));
        broker.send(publisher, publish("t", "x", QoS::AtLeastOnce, id));
    }
}

#[test]
fn a_watcher_changes_no_sum_that_is_shown() {
    for shards in SHARDS {
        let run = |watches: bool| {
            let mut broker = Broker::with_sys(shards);
            broker.advance(Duration::ZERO);
            let receiver = join(&mut broker, "r");
            subscribe(&mut broker, receiver, "t", QoS::AtLeastOnce);
            let watcher = watches.then(|| watcher(&mut broker, 0));
            if let Some(watcher) = watcher {
                subscribe(&mut broker, watcher, "#", QoS::ExactlyOnce);
            }
            let publisher = join(&mut broker, "p");
            traffic(&mut broker, publisher);
            acknowledge(&mut broker, receiver, 1, ReasonCode::Success);
            if let Some(watcher) = watcher {
                acknowledge(&mut broker, watcher, 1, ReasonCode::Success);
                acknowledge(&mut broker, watcher, 2, ReasonCode::UnspecifiedError);
                broker.cut(watcher);
            }
            shown(&mut broker, "reader")
        };
        let (without, none) = run(false);
        let expected = "4 received, 0 unrouted, 4 expected deliveries, \
                        2 handed to the network (QoS 0), 2 sent (QoS 1 and 2), 1 acknowledged, \
                        1 processed, 0 waiting, 0 dropped by name, ";
        assert!(without.starts_with(expected), "{without}");
        assert_eq!(run(true), (without, 4), "{shards} shards");
        assert_eq!(none, 0);
    }
}

#[test]
fn what_waits_for_a_watcher_and_what_is_dropped_for_it_is_in_no_sum() {
    for shards in SHARDS {
        let mut limits = Limits::default();
        limits.queue_messages_max = 1;
        let mut broker = Broker::with(shards, limits, Settings::default());
        let watcher = watcher(&mut broker, 100);
        subscribe(&mut broker, watcher, "t", QoS::AtLeastOnce);
        broker.cut(watcher);
        let publisher = join(&mut broker, "p");
        traffic(&mut broker, publisher);
        let sum = totals(&broker);
        // One waits, one found the queue full, two of QoS 0 found no connection.
        assert_eq!((sum.waiting(), sum.shown_waiting()), (1, 0));
        assert_eq!(
            (sum.expected, sum.aside.expected, sum.to_watchers),
            (4, 4, 4)
        );
        assert_eq!((sum.dropped, sum.aside.dropped), (3, 3));
        // It comes back as a client like any other: what waits stays left out, the rest is shown.
        let reader = announcing(&mut broker, "watcher", &[], 100);
        acknowledge(&mut broker, reader, 1, ReasonCode::Success);
        broker.send(publisher, publish("t", "x", QoS::AtLeastOnce, 3));
        let sum = totals(&broker);
        assert_eq!((sum.acknowledged, sum.aside.acknowledged), (1, 1));
        assert_eq!(
            (sum.expected, sum.aside.expected, sum.to_watchers),
            (5, 4, 4)
        );
    }
}

#[test]
fn messages_that_go_with_the_session_of_a_watcher_are_in_no_sum() {
    for shards in SHARDS {
        let mut broker = Broker::with_sys(shards);
        let watcher = watcher(&mut broker, 100);
        subscribe(&mut broker, watcher, "t", QoS::AtLeastOnce);
        broker.cut(watcher);
        let publisher = join(&mut broker, "p");
        broker.send(publisher, publish("t", "x", QoS::AtLeastOnce, 1));
        broker.advance(Duration::from_secs(101));
        let sum = totals(&broker);
        assert_eq!((sum.dropped, sum.aside.dropped), (1, 1), "{shards} shards");
        let (sentence, _) = shown(&mut broker, "reader");
        assert!(sentence.contains(" 0 dropped by name"), "{sentence}");
    }
}

#[test]
fn only_the_word_itself_announces_a_watcher() {
    let mut broker = Broker::new(1);
    let client = announcing(&mut broker, "c", &["watcher", "Watch", ""], 0);
    subscribe(&mut broker, client, "t", QoS::AtMostOnce);
    let publisher = join(&mut broker, "p");
    broker.send(publisher, publish("t", "x", QoS::AtMostOnce, 0));
    assert_eq!(totals(&broker).to_watchers, 0);
}

#[test]
fn a_receipt_leaves_a_watcher_out_unless_a_group_chose_it() {
    for shards in SHARDS {
        let mut broker = Broker::new(shards);
        let auditor = join(&mut broker, "auditor");
        subscribe(&mut broker, auditor, "$audit/+/receipt", QoS::AtMostOnce);
        let watcher = watcher(&mut broker, 0);
        subscribe(&mut broker, watcher, "t", QoS::AtLeastOnce);
        subscribe(&mut broker, watcher, "$share/g/u", QoS::AtLeastOnce);
        let receiver = join(&mut broker, "r");
        subscribe(&mut broker, receiver, "t", QoS::AtMostOnce);
        let publisher = join(&mut broker, "p");
        broker.take(auditor);
        for (topic, id) in [("t", 1), ("u", 2)] {
            broker.send(publisher, publish(topic, "x", QoS::AtLeastOnce, id));
            acknowledge(&mut broker, watcher, id, ReasonCode::Success);
        }
        let receipts = broker.take_publishes(auditor).into_iter();
        let receipts = receipts.map(|told| String::from_utf8(told.payload).unwrap());
        let receipts: Vec<_> = receipts.collect();
        assert_eq!(receipts.len(), 2, "{receipts:?}");
        for (receipt, words) in receipts.iter().zip([
            "acknowledged by 0 of 1, handed to the network for 1",
            "acknowledged by 1 of 1, last at",
        ]) {
            assert!(receipt.contains(words), "{words} in {receipt}");
            assert!(receipt.contains(r#""open":0"#), "{receipt}");
        }
    }
}
