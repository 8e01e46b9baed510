//! Publishers that stamp themselves are judged where they come in, and rules say who is.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../access_rules/mod.rs"]
mod access_rules;
#[path = "../publisher_lanes/mod.rs"]
mod publisher_lanes;
#[path = "../shard_bus/mod.rs"]
mod shard_bus;

mod epochs;

use std::time::Duration;

use publisher_lanes::{Producer, SECOND, faults, found, pass_on, send_checkpoint};
use shard_bus::{Broker, connect, join, publish, stay, subscribe};
use unbroken_broker_core::{AuditAction, AuditRule, Limits, PublishersTotals, Settings, StoreFull};
use unbroken_merkle_log::{
    Algorithm, Checkpoint, Detail, Directory, Epoch, EpochEnd, Hash, Hasher, Key, Lane, LaneId,
    LaneLimits, OpenLane, Part, Property as Stamp, Tree, Xxh3,
};
use unbroken_mqtt_proto::{
    Connect, Disconnect, Packet, Properties, Property, PropertyBuf, Publish, QoS, ReasonCode,
    Version, Will,
};

#[test]
fn a_stamp_that_says_it_is_of_a_part_does_not_excuse_a_payload_that_does_not_fit() {
    let mut broker = Broker::new(1);
    let mut producer = Producer::join(&mut broker);
    let first = producer.stamp("0");
    producer.send(&mut broker, "0", &[&first], false);
    let part = Stamp {
        part: Part::new(1, 1),
        ..producer.stamp("1")
    };
    producer.send(&mut broker, "altered", &[&part], false);
    producer.checkpoint(&mut broker);
    assert_eq!(found(&broker).altered, 1);
    assert_eq!(faults(&mut broker), ["producer 7 altered 1 1"]);
}

#[test]
fn each_fault_on_the_way_to_the_broker_is_named_once() {
    for shards in [1, 2, 8] {
        let mut broker = Broker::new(shards);
        let mut producer = Producer::join(&mut broker);
        let stamps: Vec<_> = (0..6).map(|n| producer.stamp(&n.to_string())).collect();
        producer.send(&mut broker, "0", &[&stamps[0]], false);
        producer.send(&mut broker, "0", &[&stamps[0]], false); // twice
        producer.send(&mut broker, "0", &[&stamps[0]], true); // again, by the rules
        producer.send(&mut broker, "altered", &[&stamps[2]], false);
        producer.send(&mut broker, "3", &[&stamps[3], &stamps[3]], false); // two stamps
        producer.send(&mut broker, "3", &[&stamps[3]], false);
        producer.send(&mut broker, "2", &[&stamps[2]], false);
        producer.send(&mut broker, "5", &[&stamps[5]], false);
        producer.send(&mut broker, "4", &[&stamps[4]], false); // after the next one
        producer.checkpoint(&mut broker);
        // Number 1 never comes.
        broker.advance(SECOND);
        broker.advance(SECOND);
        let mut faults = faults(&mut broker);
        faults.retain(|fault| !fault.contains("reordered"));
        let expected = ["repeated 0 1", "altered 2 1", "injected 2 1", "lost 1 1"];
        assert_eq!(faults, expected.map(|fault| format!("producer 7 {fault}")));
        let found = found(&broker);
        assert_eq!((found.lost, found.repeated, found.altered), (1, 1, 1));
        assert_eq!(
            found.injected, 2,
            "the one with two stamps, and the one whose real one came"
        );
    }
}

#[test]
fn a_whole_lane_is_proven_by_its_checkpoint() {
    let mut broker = Broker::new(2);
    let mut producer = Producer::join(&mut broker);
    for n in 0..1_024 {
        let stamp = producer.stamp(&n.to_string());
        producer.send(&mut broker, &n.to_string(), &[&stamp], false);
    }
    producer.checkpoint(&mut broker);
    let found = found(&broker);
    assert_eq!((found.verified, found.windows_proven), (1_024, 1));
    assert_eq!(faults(&mut broker), [""; 0]);
}

#[test]
fn nothing_is_lost_while_its_publisher_is_away() {
    let mut broker = Broker::new(1);
    let mut producer = Producer::join(&mut broker);
    let stamps: Vec<_> = (0..3).map(|n| producer.stamp(&n.to_string())).collect();
    producer.send(&mut broker, "0", &[&stamps[0]], false);
    producer.send(&mut broker, "2", &[&stamps[2]], false);
    producer.checkpoint(&mut broker);
    broker.cut(producer.client);
    for _ in 0..60 {
        broker.advance(SECOND);
    }
    assert_eq!(found(&broker).lost, 0);
    producer.client = stay(&mut broker, "producer", false);
    producer.send(&mut broker, "1", &[&stamps[1]], true);
    broker.advance(SECOND * 2);
    assert_eq!(found(&broker).lost, 0);
}

fn ruled(action: AuditAction, forward_stamp: bool) -> Broker {
    ruled_on("#", action, forward_stamp)
}

fn ruled_on(topic: &str, action: AuditAction, forward_stamp: bool) -> Broker {
    let mut rule = AuditRule::any();
    "producer".clone_into(&mut rule.client);
    topic.clone_into(&mut rule.topic);
    rule.action = action;
    rule.forward_stamp = forward_stamp;
    let mut settings = Settings::default();
    settings.audit.rules = vec![rule];
    Broker::with(2, Limits::default(), settings)
}

#[test]
fn a_rule_says_who_is_verified_and_who_is_stamped() {
    let cases = [
        (AuditAction::Verify, 1, 1),
        (AuditAction::Stamp, 1, 0),
        (AuditAction::Off, 0, 0),
    ];
    for (action, received, verified) in cases {
        let mut broker = ruled(action, false);
        let mut producer = Producer::join(&mut broker);
        let stamp = producer.stamp("x");
        producer.send(&mut broker, "x", &[&stamp], false);
        let sum: u64 = broker.shards.iter().map(|s| s.stats().audit.received).sum();
        assert_eq!((sum, found(&broker).verified), (received, verified));
    }
}

#[test]
fn a_checkpoint_opens_no_lane_on_the_shard_of_who_passes_it_on() {
    let mut broker = Broker::new(8);
    let mut producer = Producer::join(&mut broker);
    let processors: Vec<_> = (0..8)
        .map(|n| join(&mut broker, &format!("processor-{n}")))
        .collect();
    let bridges: Vec<_> = (0..8)
        .map(|n| join(&mut broker, &format!("bridge-{n}")))
        .collect();
    for count in [10, 1_020, 1_024] {
        producer.send_many(&mut broker, count);
        let checkpoint = producer.poll();
        producer.send_checkpoint(&mut broker, &checkpoint, &Xxh3);
        for (processor, bridge) in processors.iter().zip(&bridges) {
            pass_on(&mut broker, *processor, &checkpoint);
            send_checkpoint(&mut broker, *bridge, &checkpoint, &Xxh3, Properties::EMPTY);
        }
        for _ in 0..3 {
            broker.advance(SECOND);
        }
    }
    let named = faults(&mut broker);
    for n in 0..8 {
        let bridge = format!("bridge-{n} 7 of producer checkpoint 10 1");
        assert!(named.contains(&bridge), "{n} {named:?}");
    }
    let others = |fault: &&String| !fault.starts_with("bridge-");
    assert_eq!(named.iter().find(others), None);
    let found = found(&broker);
    assert_eq!((found.verified, found.lost), (2_054, 0));
    assert_eq!(found.intruded, 3 * 8, "what the bridges sent");
    assert_eq!(found.unaudited, 3 * 8, "what the bridges sent");
}

#[test]
fn a_checkpoint_that_is_passed_on_is_not_the_lanes_own() {
    for shards in [1, 8] {
        let mut broker = Broker::new(shards);
        let mut producer = Producer::join(&mut broker);
        let processor = join(&mut broker, "processor");
        producer.send_many(&mut broker, 3);
        let _on_its_way = producer.stamp("x");
        let checkpoint = producer.poll();
        pass_on(&mut broker, processor, &checkpoint);
        send_checkpoint(
            &mut broker,
            processor,
            &checkpoint,
            &Xxh3,
            Properties::EMPTY,
        );
        for _ in 0..3 {
            broker.advance(SECOND);
        }
        assert_eq!(
            faults(&mut broker),
            ["processor 7 of producer checkpoint 4 1"]
        );
        producer.send_checkpoint(&mut broker, &checkpoint, &Xxh3);
        for _ in 0..3 {
            broker.advance(SECOND);
        }
        assert_eq!(faults(&mut broker), ["producer 7 lost 3 1"]);
    }
}

#[test]
fn nothing_is_lost_of_a_lane_that_the_rules_leave_out() {
    for action in [AuditAction::Stamp, AuditAction::Off] {
        let mut broker = ruled_on("raw/#", action, false);
        let mut producer = Producer::join(&mut broker);
        producer.topic = "raw/1";
        for count in [10, 1_020, 1_024] {
            producer.send_many(&mut broker, count);
            producer.checkpoint(&mut broker);
            for _ in 0..3 {
                broker.advance(SECOND);
            }
        }
        assert_eq!(faults(&mut broker), [""; 0]);
        let found = found(&broker);
        assert_eq!((found.verified, found.lost), (0, 0));
        assert_eq!(found.unaudited, 3, "its checkpoints");
    }
}

#[test]
fn of_a_lane_that_the_rules_leave_out_in_part_the_rest_is_judged_and_nothing_is_lost() {
    for action in [AuditAction::Stamp, AuditAction::Off] {
        let mut broker = ruled_on("raw/#", action, false);
        let mut producer = Producer::join(&mut broker);
        let watcher = join(&mut broker, "watcher");
        let filter = "$audit/0000000000000007/+";
        subscribe(&mut broker, watcher, filter, QoS::AtMostOnce);
        for _ in 0..6 {
            for topic in ["t", "raw/1"] {
                producer.topic = topic;
                producer.send_many(&mut broker, 512);
                producer.checkpoint(&mut broker);
                broker.advance(SECOND * 2);
            }
        }
        producer.topic = "t";
        let stamp = producer.stamp("x");
        producer.send(&mut broker, "y", &[&stamp], false);
        assert_eq!(faults(&mut broker), ["producer 7 altered 6144 1"]);
        let found = found(&broker);
        assert_eq!((found.lost, found.windows_faulty), (0, 0));
        let told = broker.take_payloads(watcher).into_iter();
        let told: Vec<_> = told.map(|told| String::from_utf8(told).unwrap()).collect();
        let mut parts = told
            .iter()
            .filter(|told| told.contains("\"state\":\"part\""));
        // When it begins, and with each checkpoint from then on.
        assert_eq!(parts.clone().count(), 1 + 11, "{told:?}");
        let last = parts.next_back().unwrap();
        assert!(last.contains("\"messages\":5632"), "{last}");
        assert!(last.contains("\"left_out\":3072"), "{last}");
    }
}

#[test]
fn what_only_the_checkpoints_show_is_named_as_what_it_is() {
    let mut broker = Broker::new(2);
    let mut producer = Producer::join(&mut broker);
    let watcher = join(&mut broker, "watcher");
    let filter = "$audit/0000000000000007/fault";
    subscribe(&mut broker, watcher, filter, QoS::AtMostOnce);
    broker.take(watcher);
    let mut stamps: Vec<_> = (0..3).map(|n| producer.stamp(&n.to_string())).collect();
    let lane = LaneId::new(7).unwrap();
    let forged = Stamp::stamp(&Xxh3, lane, Epoch(1), 1, b"t", b"forged");
    producer.send(&mut broker, "0", &[&stamps[0]], false);
    producer.send(&mut broker, "forged", &[&forged], false);
    producer.send(&mut broker, "2", &[&stamps[2]], false);
    producer.checkpoint(&mut broker);
    // The same window has grown, and differs as before: that is no news.
    stamps.push(producer.stamp("3"));
    producer.send(&mut broker, "3", &[&stamps[3]], false);
    let checkpoint = producer.poll();
    producer.send_checkpoint(&mut broker, &checkpoint, &Xxh3);
    // Another story about the same messages.
    let mut another = checkpoint;
    another.window_root = Hash::new(&[7; 16]).unwrap();
    producer.send_checkpoint(&mut broker, &another, &Xxh3);
    // The leaves tell which.
    stamps.push(producer.stamp("4"));
    producer.send(&mut broker, "4", &[&stamps[4]], false);
    let mut detailed = producer.poll();
    detailed.detail = Detail::Leaves(stamps.iter().map(|stamp| stamp.digest).collect());
    producer.send_checkpoint(&mut broker, &detailed, &Xxh3);
    let expected = ["root-differs 0 3", "contradicted 1 1", "forged 1 1"];
    assert_eq!(
        faults(&mut broker),
        expected.map(|fault| format!("producer 7 {fault}"))
    );
    let found = found(&broker);
    assert_eq!((found.roots_differing, found.contradicted), (1, 1));
    assert_eq!(found.forged, 1);
    let told = broker.take_payloads(watcher);
    let told = String::from_utf8(told[0].clone()).unwrap();
    assert!(
        told.contains("\"words\":\"window 0: root differs\""),
        "{told}"
    );
}

#[test]
fn a_forwarded_lane_tells_its_windows_its_progress_and_its_end() {
    for shards in [1, 4] {
        let mut rule = AuditRule::any();
        rule.forward_stamp = true;
        let mut settings = Settings::default();
        settings.audit.rules = vec![rule];
        settings.audit.prefix = "proof/of".to_owned();
        let mut broker = Broker::with(shards, Limits::default(), settings);
        let receiver = join(&mut broker, "receiver");
        subscribe(
            &mut broker,
            receiver,
            "proof/of/checkpoint/+",
            QoS::AtMostOnce,
        );
        let sender = join(&mut broker, "sender");
        for n in 0..1_030 {
            broker.send(sender, publish("t", &n.to_string(), QoS::AtMostOnce, 0));
        }
        for _ in 0..30 {
            broker.advance(SECOND);
        }
        broker.send(
            sender,
            Packet::Disconnect(Disconnect::new(ReasonCode::Success)),
        );
        let told = broker.take_payloads(receiver);
        let mut tree = Tree::default();
        let mut sizes = Vec::new();
        for (number, payload) in (0..).zip(&told) {
            let checkpoint = Checkpoint::parse(payload).unwrap().open(&Xxh3).unwrap();
            let (lane, epoch) = (checkpoint.lane, checkpoint.epoch);
            for n in tree.size()..checkpoint.size {
                let text = n.to_string();
                let stamp = Stamp::stamp(&Xxh3, lane, epoch, n, b"t", text.as_bytes());
                tree.append(&Xxh3, stamp.digest);
            }
            let (first, size) = (checkpoint.first, checkpoint.size);
            assert_eq!(Some(checkpoint.lane_root), tree.root_at(&Xxh3, size));
            assert_eq!(
                Some(checkpoint.window_root),
                tree.window_root(&Xxh3, first, size)
            );
            assert_eq!(checkpoint.number, number);
            sizes.push((size, checkpoint.end == EpochEnd::Closed));
        }
        let idle = [(1_030, false); 4];
        let expect = [&[(1_024, false)], &idle[..], &[(1_030, true)]].concat();
        assert_eq!(sizes, expect, "{shards} shards");
    }
}

#[test]
fn what_is_refused_is_named_with_its_reason_and_is_not_lost() {
    let mut broker = Broker::new(1);
    let mut producer = Producer::join(&mut broker);
    let watcher = join(&mut broker, "watcher");
    let filter = "$audit/0000000000000007/+";
    subscribe(&mut broker, watcher, filter, QoS::AtMostOnce);
    producer.send_many(&mut broker, 3);
    // Where no client may publish.
    producer.topic = "$SYS/t";
    producer.send_many(&mut broker, 2);
    producer.topic = "t";
    producer.send_many(&mut broker, 1_019);
    producer.checkpoint(&mut broker);
    broker.advance(SECOND * 5);
    assert_eq!(faults(&mut broker), [""; 0]);
    let found = found(&broker);
    assert_eq!((found.refused, found.lost), (2, 0));
    assert_eq!((found.windows_proven, found.windows_faulty), (1, 0));
    let told = broker.take_payloads(watcher).into_iter();
    let told: Vec<_> = told.map(|told| String::from_utf8(told).unwrap()).collect();
    let names = |words: &str| told.iter().any(|told| told.contains(words));
    assert!(names("number 3: refused, denied"), "{told:?}");
    assert!(names("number 4: refused, denied"), "{told:?}");
    assert!(names("\"refused\":2,\"lost\":0"), "{told:?}");
}

#[test]
fn what_a_rule_denies_is_named_as_refused_and_the_window_is_proven() {
    let mut broker = Broker::new(1);
    let rules = [
        ("*", "+psr", "#"),
        ("*", "+sr", "$audit/#"),
        ("*", "-p", "t/no"),
    ];
    access_rules::set(&mut broker, &access_rules::policy(1, &rules));
    let mut producer = Producer::join(&mut broker);
    let watcher = join(&mut broker, "watcher");
    let filter = "$audit/0000000000000007/+";
    subscribe(&mut broker, watcher, filter, QoS::AtMostOnce);
    producer.send_many(&mut broker, 3);
    producer.topic = "t/no";
    producer.send_many(&mut broker, 2);
    producer.topic = "t";
    producer.send_many(&mut broker, 1_019);
    producer.checkpoint(&mut broker);
    broker.advance(SECOND * 5);
    assert_eq!(faults(&mut broker), [""; 0]);
    let found = found(&broker);
    assert_eq!((found.refused, found.lost), (2, 0));
    assert_eq!((found.windows_proven, found.windows_faulty), (1, 0));
    let told = broker.take_payloads(watcher).into_iter();
    let told: Vec<_> = told.map(|told| String::from_utf8(told).unwrap()).collect();
    let names = |words: &str| told.iter().any(|told| told.contains(words));
    assert!(names("number 3: refused, denied"), "{told:?}");
    assert!(names("number 4: refused, denied"), "{told:?}");
}

#[test]
fn what_a_full_store_refused_may_come_later_and_is_no_duplicate() {
    let (mut limits, mut settings) = (Limits::default(), Settings::default());
    limits.store_full = StoreFull::Refuse;
    settings.durable = true;
    let full = limits.store_bytes_max;
    let mut broker = Broker::with(1, limits, settings);
    let sleeper = stay(&mut broker, "sleeper", true);
    broker.stored();
    subscribe(&mut broker, sleeper, "t", QoS::AtLeastOnce);
    let mut producer = Producer::join(&mut broker);
    broker.stored();
    producer.send_many(&mut broker, 1);
    broker.store_size(full);
    let stamp = producer.stamp("x");
    producer.send(&mut broker, "x", &[&stamp], false);
    assert_eq!(found(&broker).refused, 1);
    broker.store_size(0);
    producer.send(&mut broker, "x", &[&stamp], false);
    for count in [2, 510, 510] {
        broker.stored();
        producer.send_many(&mut broker, count);
    }
    producer.checkpoint(&mut broker);
    broker.advance(SECOND * 5);
    assert_eq!(faults(&mut broker), [""; 0]);
    let found = found(&broker);
    assert_eq!((found.duplicated + found.repeated, found.lost), (0, 0));
    assert_eq!((found.windows_proven, found.windows_faulty), (1, 0));
}

#[test]
fn a_refused_message_says_nothing_of_the_lane_of_another() {
    let mut broker = Broker::new(1);
    let mut producer = Producer::join(&mut broker);
    producer.send_many(&mut broker, 1);
    producer.topic = "$SYS/t";
    producer.client = stay(&mut broker, "stranger", true);
    producer.send_many(&mut broker, 1);
    assert_eq!(found(&broker).refused, 0);
}

#[test]
fn a_lane_with_a_key_is_unverifiable_and_no_fault_is_named() {
    let mut broker = Broker::new(1);
    let mut producer = Producer::join(&mut broker);
    let watcher = join(&mut broker, "watcher");
    let filter = "$audit/0000000000000007/state";
    subscribe(&mut broker, watcher, filter, QoS::AtMostOnce);
    let hasher = Hasher::new(Algorithm::Blake3, Some(&Key([7; 32]))).unwrap();
    let id = LaneId::new(7).unwrap();
    let stamp = Stamp::stamp(&hasher, id, Epoch(1), 0, b"t", b"x");
    producer.send(&mut broker, "x", &[&stamp], false);
    producer.lane.issue(*b"t", *b"x", &hasher);
    let checkpoint = producer
        .lane
        .poll_checkpoint(SECOND * 1_000, 0, &hasher)
        .unwrap();
    producer.send_checkpoint(&mut broker, &checkpoint, &hasher);
    let found = found(&broker);
    assert_eq!((found.unverifiable, found.unaudited), (2, 0));
    assert_eq!(found.verified + found.altered + found.injected, 0);
    assert_eq!(faults(&mut broker), [""; 0]);
    let told = broker.take_payloads(watcher).remove(0);
    let told = String::from_utf8(told).unwrap();
    let figures = "\"state\":\"unverifiable\",\"messages\":1";
    assert!(told.contains(figures), "{told}");
}

#[test]
fn a_will_that_bears_a_stamp_is_verified() {
    let mut broker = Broker::new(2);
    let id = LaneId::new(7).unwrap();
    for (number, payload, altered) in [(0, b"gone".as_slice(), 0), (1, b"changed", 1)] {
        let stamp = Stamp::stamp(&Xxh3, id, Epoch(1), number, b"t", b"gone").to_text();
        let mut properties = PropertyBuf::new();
        let stamp = Property::UserProperty("audit", &stamp);
        properties.push(stamp).unwrap();
        let will = Will {
            topic: "t",
            payload,
            qos: QoS::AtMostOnce,
            retain: false,
            properties: properties.as_properties(),
        };
        let client = broker.open(Version::V5);
        let packet = Connect {
            will: Some(will),
            ..connect("producer")
        };
        broker.send(client, Packet::Connect(packet));
        broker.cut(client);
        let found = found(&broker);
        assert_eq!((found.verified, found.altered), (number + 1, altered));
    }
}

#[test]
fn a_forwarded_stamp_fits_its_message() {
    let mut broker = ruled(AuditAction::Verify, true);
    let receiver = join(&mut broker, "receiver");
    subscribe(&mut broker, receiver, "t", QoS::AtMostOnce);
    let producer = join(&mut broker, "producer");
    let other = join(&mut broker, "other");
    broker.take(receiver);
    broker.send(producer, publish("t", "x", QoS::AtMostOnce, 0));
    broker.send(other, publish("t", "x", QoS::AtMostOnce, 0));
    let packets = broker.take(receiver);
    let (_, stamp) = packets[0].split_once("UserProperty(\"audit\", \"").unwrap();
    let stamp = Stamp::parse_text(stamp.trim_end_matches("\")")).unwrap();
    assert!(stamp.fits(&Xxh3, b"t", b"x"));
    assert_eq!(packets[1], "PUBLISH t \"x\" q0");
}

#[test]
fn a_fault_of_one_message_tells_its_topic() {
    let mut broker = Broker::new(1);
    let auditor = join(&mut broker, "auditor");
    subscribe(&mut broker, auditor, "$audit/+/fault", QoS::AtMostOnce);
    let mut producer = Producer::join(&mut broker);
    let stamp = producer.stamp("0");
    producer.send(&mut broker, "0", &[&stamp], false);
    producer.send(&mut broker, "0", &[&stamp], false);
    let stamp = producer.stamp("1");
    producer.send(&mut broker, "other", &[&stamp], false);
    let mut mallory = Producer::join_as(&mut broker, "mallory", 1);
    mallory.send_many(&mut broker, 1);
    let told = broker.take_payloads(auditor);
    assert_eq!(told.len(), 3);
    for told in told {
        let told = String::from_utf8_lossy(&told).into_owned();
        assert!(told.contains(r#""topic":"t""#), "{told}");
    }
}
