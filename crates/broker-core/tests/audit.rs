//! What was owed, what became of it, and what is told about it, over 1, 2 and 8 shards.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod shard_bus;

use std::time::Duration;

use shard_bus::{Broker, Client, connect, join, publish, retained, stay, subscribe};
use unbroken_broker_core::{AuditTotals, Limits, Settings};
use unbroken_mqtt_proto::{
    Ack, Connect, Packet, PacketId, Properties, Property, PropertyBuf, QoS, ReasonCode, Version,
    Will,
};

const SHARDS: [u8; 3] = [1, 2, 8];

/// What all shards have counted together.
fn totals(broker: &Broker) -> AuditTotals {
    let mut sum = AuditTotals::default();
    for shard in &broker.shards {
        assert_eq!(shard.audit_imbalance(), 0);
        sum += shard.stats().audit;
    }
    assert_eq!(sum.faults(), 0);
    sum
}

/// What the client was told on topics that end so, without the topics.
fn told(broker: &mut Broker, client: Client, end: &str) -> Vec<String> {
    let packets = broker.take(client);
    let payload = |packet: &String| {
        let rest = packet.strip_prefix("PUBLISH ")?;
        let (topic, rest) = rest.split_once(" \"")?;
        let (payload, _) = rest.rsplit_once("\" q")?;
        topic.ends_with(end).then(|| payload.replace("\\\"", "\""))
    };
    packets.iter().filter_map(payload).collect()
}

fn mentions(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part} in {text}");
    }
}

fn acknowledge(broker: &mut Broker, client: Client, id: u16) {
    let id = PacketId::new(id).unwrap();
    broker.send(client, Packet::PubAck(Ack::success(id)));
}

#[test]
fn a_receipt_names_how_many_had_the_message_wherever_they_live() {
    for shards in SHARDS {
        let mut broker = Broker::new(shards);
        let auditor = join(&mut broker, "auditor");
        subscribe(&mut broker, auditor, "$audit/+/receipt", QoS::AtMostOnce);
        let receivers = ["a", "b", "c"].map(|name| join(&mut broker, name));
        for receiver in receivers {
            subscribe(&mut broker, receiver, "t", QoS::AtLeastOnce);
        }
        let publisher = join(&mut broker, "p");
        broker.take(auditor);
        broker.send(publisher, publish("t", "x", QoS::AtLeastOnce, 1));
        for receiver in &receivers[..2] {
            acknowledge(&mut broker, *receiver, 1);
        }
        assert_eq!(told(&mut broker, auditor, "receipt"), [""; 0], "{shards}");
        acknowledge(&mut broker, receivers[2], 1);
        let receipts = told(&mut broker, auditor, "receipt");
        assert_eq!(receipts.len(), 1, "{shards} shards");
        mentions(
            &receipts[0],
            &[
                r#""number":0,"topic":"t","expected":3,"handed_to_network":0,"acknowledged":3"#,
                r#""dropped":{},"open":0"#,
                r#""finished":true,"words":"acknowledged by 3 of 3, last at 1970-01-01T"#,
            ],
        );
        assert_eq!(totals(&broker).received, 1);
    }
}

#[test]
fn a_receipt_names_why_a_message_was_not_delivered() {
    for shards in SHARDS {
        let mut limits = Limits::default();
        limits.queue_messages_max = 1;
        let mut broker = Broker::with(shards, limits, Settings::default());
        let auditor = join(&mut broker, "auditor");
        subscribe(&mut broker, auditor, "$audit/#", QoS::AtMostOnce);
        let away = stay(&mut broker, "away", true);
        subscribe(&mut broker, away, "t", QoS::AtLeastOnce);
        broker.cut(away);
        let publisher = join(&mut broker, "p");
        broker.take(auditor);
        broker.send(publisher, publish("t", "0", QoS::AtMostOnce, 0));
        broker.send(publisher, publish("t", "1", QoS::AtLeastOnce, 1));
        broker.send(publisher, publish("t", "2", QoS::AtLeastOnce, 2));
        broker.send(publisher, publish("nobody", "3", QoS::AtLeastOnce, 3));
        let receipts = told(&mut broker, auditor, "receipt");
        assert_eq!(receipts.len(), 3, "{receipts:?}");
        mentions(
            &receipts[0],
            &[r#""number":0"#, r#""dropped":{"not-connected":1}"#],
        );
        mentions(
            &receipts[1],
            &[r#""number":2"#, r#""dropped":{"queue-full":1}"#],
        );
        mentions(&receipts[2], &[r#""number":3"#, "acknowledged by 0 of 0"]);
        // The one that waits is told when its session ends.
        broker.advance(Duration::from_secs(101));
        let receipts = told(&mut broker, auditor, "receipt");
        mentions(
            &receipts[0],
            &[r#""number":1"#, r#""dropped":{"session-ended":1}"#],
        );
        let totals = totals(&broker);
        assert_eq!((totals.received, totals.dropped), (4, 3));
    }
}

#[test]
fn a_receipt_follows_a_message_of_a_group_to_the_member_that_has_it() {
    for shards in SHARDS {
        let mut broker = Broker::new(shards);
        let auditor = join(&mut broker, "auditor");
        subscribe(&mut broker, auditor, "$audit/+/receipt", QoS::AtMostOnce);
        let first = join(&mut broker, "first");
        subscribe(&mut broker, first, "$share/g/t", QoS::AtLeastOnce);
        let publisher = join(&mut broker, "p");
        broker.send(publisher, publish("t", "x", QoS::AtLeastOnce, 1));
        let second = join(&mut broker, "second");
        subscribe(&mut broker, second, "$share/g/t", QoS::AtLeastOnce);
        broker.take(auditor);
        broker.cut(first);
        acknowledge(&mut broker, second, 1);
        let receipts = told(&mut broker, auditor, "receipt");
        assert_eq!(receipts.len(), 1, "{shards} shards");
        mentions(&receipts[0], &[r#""expected":1"#, "acknowledged by 1 of 1"]);
    }
}

#[test]
fn what_is_found_retained_later_is_owed_and_not_in_the_receipt() {
    let mut broker = Broker::new(1);
    let auditor = join(&mut broker, "auditor");
    subscribe(&mut broker, auditor, "$audit/+/receipt", QoS::AtMostOnce);
    let receiver = join(&mut broker, "r");
    subscribe(&mut broker, receiver, "t", QoS::AtLeastOnce);
    let publisher = join(&mut broker, "p");
    broker.send(publisher, retained("t", "x", QoS::AtLeastOnce, 1));
    let late = join(&mut broker, "late");
    subscribe(&mut broker, late, "t", QoS::AtLeastOnce);
    acknowledge(&mut broker, late, 1);
    broker.take(auditor);
    acknowledge(&mut broker, receiver, 1);
    let receipts = told(&mut broker, auditor, "receipt");
    mentions(&receipts[0], &["acknowledged by 1 of 1"]);
    // The copies of both, and the receipt.
    assert_eq!(totals(&broker).expected, 3);
}

#[test]
fn a_will_has_the_next_number_of_its_client() {
    let mut broker = Broker::new(2);
    let auditor = join(&mut broker, "auditor");
    subscribe(&mut broker, auditor, "$audit/+/receipt", QoS::AtMostOnce);
    let client = broker.open(Version::V5);
    let will = Will {
        topic: "w",
        payload: b"gone",
        qos: QoS::AtMostOnce,
        retain: false,
        properties: Properties::EMPTY,
    };
    let packet = Connect {
        will: Some(will),
        ..connect("mortal")
    };
    broker.send(client, Packet::Connect(packet));
    broker.send(client, publish("t", "x", QoS::AtMostOnce, 0));
    broker.cut(client);
    let receipts = told(&mut broker, auditor, "receipt");
    mentions(&receipts[1], &[r#""number":1,"topic":"w""#]);
}

#[test]
fn a_receipt_comes_also_after_its_publisher_has_gone() {
    for shards in SHARDS {
        let mut broker = Broker::new(shards);
        let auditor = join(&mut broker, "auditor");
        subscribe(&mut broker, auditor, "$audit/+/receipt", QoS::AtMostOnce);
        let receiver = join(&mut broker, "r");
        subscribe(&mut broker, receiver, "t", QoS::AtLeastOnce);
        broker.take(auditor);
        for number in 1..=2 {
            let publisher = join(&mut broker, "p");
            broker.send(publisher, publish("t", "x", QoS::AtLeastOnce, 1));
            broker.cut(publisher);
            assert_eq!(told(&mut broker, auditor, "receipt"), [""; 0]);
            acknowledge(&mut broker, receiver, number);
            let receipts = told(&mut broker, auditor, "receipt");
            let epoch = format!(r#""epoch":{},"number":0"#, number - 1);
            mentions(&receipts[0], &[&epoch, "acknowledged by 1 of 1"]);
        }
    }
}

#[test]
fn windows_and_states_are_told_to_who_watches() {
    for shards in SHARDS {
        let mut broker = Broker::new(shards);
        let auditor = join(&mut broker, "auditor");
        subscribe(&mut broker, auditor, "$audit/+/window", QoS::AtMostOnce);
        subscribe(&mut broker, auditor, "$audit/+/state", QoS::AtMostOnce);
        let receiver = join(&mut broker, "r");
        subscribe(&mut broker, receiver, "t", QoS::AtMostOnce);
        let publisher = join(&mut broker, "p");
        for _ in 0..1_500 {
            broker.send(publisher, publish("t", "x", QoS::AtMostOnce, 0));
        }
        let windows = told(&mut broker, auditor, "window");
        assert_eq!(windows.len(), 1, "{shards} shards");
        let window = [r#""first":0,"size":1024,"root":""#, r#""state":"proven""#];
        mentions(&windows[0], &window);
        mentions(
            &windows[0],
            &[r#""expected":1024,"handed_to_network":1024"#],
        );
        broker.advance(Duration::from_secs(1));
        let states = told(&mut broker, auditor, "state");
        mentions(&states[0], &[r#""messages":1500"#, r#""state":"proven""#]);
        broker.advance(Duration::from_secs(1));
        assert_eq!(told(&mut broker, auditor, "state"), [""; 0], "no news");
        assert_eq!(totals(&broker).windows_proven, 1, "of the receiver");
    }
}

#[test]
fn the_lane_of_a_client_is_told_to_who_asks_for_it_by_its_id() {
    let mut broker = Broker::new(2);
    let auditor = join(&mut broker, "auditor");
    subscribe(
        &mut broker,
        auditor,
        "$audit/client/site/1/p",
        QoS::AtLeastOnce,
    );
    subscribe(&mut broker, auditor, "$audit/+/receipt", QoS::AtMostOnce);
    let answer = &told(&mut broker, auditor, "site/1/p")[0];
    let (_, lane) = answer.split_once(r#""lane":""#).unwrap();
    let publisher = join(&mut broker, "site/1/p");
    broker.send(publisher, publish("t", "x", QoS::AtMostOnce, 0));
    let receipts = told(&mut broker, auditor, "receipt");
    mentions(&receipts[0], &[lane.trim_end_matches('}')]);
}

#[test]
fn nobody_but_the_broker_speaks_of_lanes() {
    let mut broker = Broker::new(1);
    let liar = join(&mut broker, "liar");
    let lie = publish("$audit/0123456789abcdef/receipt", "x", QoS::AtLeastOnce, 1);
    broker.send(liar, lie);
    assert_eq!(broker.take(liar), ["PUBACK #1 87"]);
    assert_eq!(totals(&broker).received, 0, "it was not accepted");
}

#[test]
fn a_receiver_says_in_its_acknowledgement_that_it_has_processed() {
    let mut broker = Broker::new(2);
    let auditor = join(&mut broker, "auditor");
    subscribe(&mut broker, auditor, "$audit/+/receipt", QoS::AtMostOnce);
    let receiver = join(&mut broker, "r");
    subscribe(&mut broker, receiver, "t", QoS::AtLeastOnce);
    let publisher = join(&mut broker, "p");
    broker.take(auditor);
    broker.send(publisher, publish("t", "x", QoS::AtLeastOnce, 1));
    let mut properties = PropertyBuf::new();
    let processed = Property::UserProperty("audit", "processed");
    properties.push(processed).unwrap();
    let ack = Ack {
        packet_id: PacketId::FIRST,
        reason: ReasonCode::Success,
        properties: properties.as_properties(),
    };
    broker.send(receiver, Packet::PubAck(ack));
    let receipts = told(&mut broker, auditor, "receipt");
    mentions(&receipts[0], &[r#""acknowledged":1,"processed":1"#]);
    assert_eq!(totals(&broker).processed, 1);
}

#[test]
fn what_is_sent_again_after_a_reconnect_is_no_duplicate() {
    let mut broker = Broker::new(1);
    let receiver = stay(&mut broker, "r", true);
    subscribe(&mut broker, receiver, "t", QoS::AtLeastOnce);
    let publisher = join(&mut broker, "p");
    broker.send(publisher, publish("t", "x", QoS::AtLeastOnce, 1));
    broker.cut(receiver);
    let receiver = stay(&mut broker, "r", false);
    acknowledge(&mut broker, receiver, 1);
    let totals = totals(&broker);
    assert_eq!((totals.sent, totals.redelivered), (1, 1));
    assert_eq!((totals.acknowledged, totals.waiting()), (1, 0));
}

#[test]
fn a_session_that_ends_with_unacknowledged_messages_leaves_its_window_unproven() {
    let mut broker = Broker::new(1);
    let receiver = join(&mut broker, "r");
    subscribe(&mut broker, receiver, "t", QoS::AtLeastOnce);
    let publisher = join(&mut broker, "p");
    broker.send(publisher, publish("t", "x", QoS::AtLeastOnce, 1));
    broker.cut(receiver);
    let totals = totals(&broker);
    assert_eq!(totals.given_up, 1);
    assert_eq!((totals.windows_proven, totals.windows_unproven), (0, 1));
}

#[test]
fn a_window_that_fills_while_much_becomes_too_old_is_proven() {
    let mut limits = Limits::default();
    limits.queue_age_max_s = 40;
    let mut broker = Broker::with(1, limits, Settings::default());
    let away = stay(&mut broker, "r", true);
    subscribe(&mut broker, away, "t", QoS::AtLeastOnce);
    broker.cut(away);
    let publisher = join(&mut broker, "p");
    // More than a window.
    for id in 1..=1_100 {
        broker.send(publisher, publish("t", "x", QoS::AtLeastOnce, id));
    }
    broker.advance(Duration::from_secs(50));
    let totals = totals(&broker);
    assert_eq!((totals.dropped, totals.waiting()), (1_100, 0));
    assert_eq!((totals.windows_proven, totals.windows_faulty), (1, 0));
}

#[test]
fn unwatched_messages_are_told_to_nobody() {
    let mut settings = Settings::default();
    settings.audit.enabled = false;
    let mut broker = Broker::with(1, Limits::default(), settings);
    let auditor = join(&mut broker, "auditor");
    subscribe(&mut broker, auditor, "$audit/#", QoS::AtMostOnce);
    broker.take(auditor);
    let publisher = join(&mut broker, "p");
    broker.send(publisher, publish("t", "x", QoS::AtMostOnce, 0));
    assert_eq!(told(&mut broker, auditor, "receipt"), [""; 0]);
    assert_eq!(totals(&broker).received, 0);
}

/// The sentence as a new subscriber finds it.
fn verdict(broker: &mut Broker, name: &str, filter: &str) -> String {
    let auditor = join(broker, name);
    subscribe(broker, auditor, filter, QoS::AtLeastOnce);
    let mut verdicts = told(broker, auditor, "$SYS/audit/verdict");
    assert_eq!(verdicts.len(), 1, "{verdicts:?}");
    verdicts.remove(0)
}

#[test]
fn the_verdict_is_counted_when_somebody_subscribes_and_not_changed_by_it() {
    for shards in SHARDS {
        let mut broker = Broker::with_sys(shards);
        broker.advance(Duration::ZERO);
        let receiver = join(&mut broker, "r");
        subscribe(&mut broker, receiver, "t", QoS::AtLeastOnce);
        let publisher = join(&mut broker, "p");
        for id in 1..=3 {
            broker.send(publisher, publish("t", "x", QoS::AtLeastOnce, id));
        }
        broker.send(publisher, publish("t", "x", QoS::AtMostOnce, 0));
        broker.send(publisher, publish("nobody", "x", QoS::AtMostOnce, 0));
        acknowledge(&mut broker, receiver, 1);
        let expected = "5 received, 1 unrouted, 4 expected deliveries, \
                        1 handed to the network (QoS 0), 3 sent (QoS 1 and 2), 1 acknowledged, \
                        0 processed, 0 waiting, 0 dropped by name, 0 lost, 0 duplicated, \
                        0 reordered, 0 altered; since 1970-01-01 00:00:00 UTC";
        assert_eq!(
            verdict(&mut broker, "a", "$SYS/audit/verdict"),
            expected,
            "{shards}"
        );
        // Others who look, at more, and what the audit's own topics carry, change nothing.
        for checkpoint in ["audit/checkpoint/0000000000000007", "audit/answer/7/1"] {
            broker.send(publisher, publish(checkpoint, "x", QoS::AtMostOnce, 0));
        }
        let client = join(&mut broker, "b");
        subscribe(&mut broker, client, "$SYS/#", QoS::AtLeastOnce);
        subscribe(&mut broker, client, "audit/#", QoS::AtLeastOnce);
        subscribe(&mut broker, client, "$audit/#", QoS::AtLeastOnce);
        let checkpoint = "audit/checkpoint/0000000000000007";
        broker.send(publisher, publish(checkpoint, "x", QoS::AtLeastOnce, 9));
        broker.advance(Duration::from_secs(11));
        assert_eq!(
            verdict(&mut broker, "c", "$SYS/audit/+"),
            expected,
            "{shards}"
        );
        totals(&broker);
    }
}

#[test]
fn who_subscribed_to_the_verdict_gets_the_next_ones() {
    for shards in SHARDS {
        let mut broker = Broker::with_sys(shards);
        let auditor = join(&mut broker, "auditor");
        subscribe(&mut broker, auditor, "$SYS/audit/verdict", QoS::AtMostOnce);
        let publisher = join(&mut broker, "p");
        broker.send(publisher, publish("t", "x", QoS::AtMostOnce, 0));
        broker.advance(Duration::from_secs(11));
        broker.advance(Duration::from_secs(11));
        let last = told(&mut broker, auditor, "$SYS/audit/verdict")
            .pop()
            .unwrap();
        assert!(last.starts_with("1 received, 1 unrouted, "), "{last}");
    }
}
