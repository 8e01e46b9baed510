//! A lane is its owner's: what other clients send of it is theirs.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod publisher_lanes;
mod shard_bus;

use std::sync::Arc;
use std::time::Duration;

use publisher_lanes::{Producer, SECOND, faults, found};
use shard_bus::{Broker, Client, connect, join, publish, subscribe};
use unbroken_broker_core::{AuditRule, ClientIdRules, Event, Limits, Settings};
use unbroken_merkle_log::{
    Directory, DropReason, DropRecord, DropRun, Epoch, EpochEnd, Lane, LaneId, LaneLimits,
    OpenLane, Property as Stamp, Xxh3,
};
use unbroken_mqtt_proto::{
    Connect, Disconnect, Packet, Properties, Property, PropertyBuf, Publish, QoS, ReasonCode,
    Version,
};

/// What a client says of lane 7 in its owner's place.
fn speak(
    broker: &mut Broker,
    client: Client,
    topic: &str,
    payload: &[u8],
    properties: Properties<'_>,
) {
    let packet = Publish {
        dup: false,
        qos: QoS::AtMostOnce,
        retain: false,
        topic,
        packet_id: None,
        properties,
        payload,
    };
    broker.send(client, Packet::Publish(packet));
}

/// Forwards the stamps of `producer` on so many shards.
fn forwarding(shards: u8) -> Broker {
    let mut rule = AuditRule::any();
    "producer".clone_into(&mut rule.client);
    rule.forward_stamp = true;
    let mut settings = Settings::default();
    settings.audit.rules = vec![rule];
    Broker::with(shards, Limits::default(), settings)
}

#[test]
fn a_client_that_speaks_of_a_lane_of_another_is_named() {
    for shards in [1, 2, 8] {
        for intruder in ["mallory", "eve", "trudy", "oscar"] {
            let mut broker = Broker::new(shards);
            let mut producer = Producer::join(&mut broker);
            producer.send_many(&mut broker, 3);
            let id = producer.lane.id();
            let mallory = join(&mut broker, intruder);
            let mut forged = producer.poll();
            (forged.size, forged.end) = (600, EpochEnd::Closed);
            let mut bytes = Vec::new();
            forged.encode(&Xxh3, &mut bytes);
            let topic = "audit/checkpoint/0000000000000007";
            speak(&mut broker, mallory, topic, &bytes, Properties::EMPTY);
            let later = producer.stamp("later");
            let record = DropRecord {
                lane: id,
                epoch: Epoch(1),
                reason: DropReason::QUEUE_FULL,
                runs: vec![DropRun {
                    first: 3,
                    leaves: vec![later.digest],
                }],
            };
            bytes.clear();
            record.encode(&Xxh3, &mut bytes).unwrap();
            let topic = "audit/drop/0000000000000007";
            speak(&mut broker, mallory, topic, &bytes, Properties::EMPTY);
            // A processor names what it left out.
            let processor = join(&mut broker, "processor");
            let mut through = PropertyBuf::new();
            let lane = Property::UserProperty("audit-through", "0000000000000009");
            through.push(lane).unwrap();
            speak(
                &mut broker,
                processor,
                topic,
                &bytes,
                through.as_properties(),
            );
            let directory = Directory {
                producer: 9,
                epoch: Epoch(1),
                number: 0,
                time_us: 0,
                lanes: vec![OpenLane {
                    lane: id,
                    epoch: Epoch(2),
                    size: 0,
                }],
            };
            bytes.clear();
            directory.encode(&Xxh3, &mut bytes).unwrap();
            let topic = "audit/directory/0000000000000009";
            speak(&mut broker, mallory, topic, &bytes, Properties::EMPTY);
            let mut named = faults(&mut broker);
            named.sort();
            let of = |sent: &str| format!("{intruder} 7 of producer {sent} 1");
            let expected = ["checkpoint 600", "directory 0", "drop-record 3"].map(of);
            assert_eq!(named, expected, "{shards}");
            producer.send(&mut broker, "later", &[&later], false);
            producer.send_many(&mut broker, 1_020);
            producer.checkpoint(&mut broker);
            // What it forged of the next epoch does not hide what the owner's next one misses.
            let mut next = Producer::join_as(&mut broker, "producer", 2);
            next.stamp("lost");
            next.send_many(&mut broker, 3);
            next.checkpoint(&mut broker);
            for _ in 0..3 {
                broker.advance(SECOND);
            }
            assert_eq!(faults(&mut broker), ["producer 7 lost 0 1"], "{shards}");
            let found = found(&broker);
            assert_eq!((found.windows_proven, found.intruded), (1, 3), "{shards}");
        }
    }
}

#[test]
fn a_client_that_lists_a_lane_of_another_is_named_once_for_that() {
    for shards in [1, 2, 8] {
        for intruder in ["mallory", "eve", "trudy", "oscar"] {
            let mut broker = Broker::new(shards);
            let mut producer = Producer::join(&mut broker);
            producer.send_many(&mut broker, 3);
            let mallory = join(&mut broker, intruder);
            let directory = Directory {
                producer: 9,
                epoch: Epoch(1),
                number: 0,
                time_us: 0,
                lanes: vec![OpenLane {
                    lane: producer.lane.id(),
                    epoch: Epoch(2),
                    size: 0,
                }],
            };
            let mut bytes = Vec::new();
            directory.encode(&Xxh3, &mut bytes).unwrap();
            let topic = "audit/directory/0000000000000009";
            speak(&mut broker, mallory, topic, &bytes, Properties::EMPTY);
            let named = format!("{intruder} 7 of producer directory 0 1");
            assert_eq!(faults(&mut broker), [named], "{shards}");
        }
    }
}

#[test]
fn a_client_that_sends_a_directory_of_the_producer_of_another_is_named() {
    for shards in [1, 2, 8] {
        for intruder in ["mallory", "eve", "trudy", "oscar"] {
            let mut broker = Broker::new(shards);
            let owner = join(&mut broker, "producer");
            let other = join(&mut broker, intruder);
            let topic = "audit/directory/0000000000000009";
            let mut say = |client, start, number| {
                let directory = Directory {
                    producer: 9,
                    epoch: Epoch(start),
                    number,
                    time_us: 0,
                    lanes: Vec::new(),
                };
                let mut bytes = Vec::new();
                directory.encode(&Xxh3, &mut bytes).unwrap();
                speak(&mut broker, client, topic, &bytes, Properties::EMPTY);
                faults(&mut broker)
            };
            assert_eq!(say(owner, 1, 0), [""; 0], "{shards}");
            let named = format!("{intruder} 9 of producer directory 0 1");
            assert_eq!(say(other, u32::MAX - 1, 0), [named], "{shards}");
            assert_eq!(say(owner, 1, 1), [""; 0], "{shards}");
        }
    }
}

#[test]
fn a_lane_is_its_first_clients_though_the_claim_of_another_comes_before() {
    for shards in [1, 2, 3, 8] {
        for intruder in ["mallory", "eve", "trudy", "oscar"] {
            let mut broker = Broker::new(shards);
            let mut producer = Producer::join(&mut broker);
            let mut other = Producer::join_as(&mut broker, intruder, 2);
            let first = broker.now;
            broker.hold_messages = true;
            producer.send_many(&mut broker, 1);
            broker.now = first + Duration::from_millis(1);
            other.send_many(&mut broker, 1);
            broker.hold_messages = false;
            broker.deliver_messages_of_others_first();
            other.send_many(&mut broker, 1);
            producer.send_many(&mut broker, 1_023);
            producer.checkpoint(&mut broker);
            for _ in 0..3 {
                broker.advance(SECOND);
            }
            let named = faults(&mut broker);
            let of = format!("{intruder} 7 of producer");
            let is_intruder = |fault: &String| fault.starts_with(&of);
            assert!(!named.is_empty(), "{shards} {intruder}");
            assert!(named.iter().all(is_intruder), "{shards} {named:?}");
            assert_eq!(found(&broker).windows_proven, 1, "{shards} {intruder}");
        }
    }
}

#[test]
fn the_ingress_lane_of_a_client_is_its_own() {
    for shards in [1, 2, 8] {
        for intruder in ["mallory", "eve", "trudy", "oscar"] {
            for is_early in [false, true] {
                let mut broker = forwarding(shards);
                let receiver = join(&mut broker, "receiver");
                subscribe(&mut broker, receiver, "t", QoS::AtMostOnce);
                let mut client = join(&mut broker, "producer");
                broker.send(client, publish("t", "x", QoS::AtMostOnce, 0));
                let packets = broker.take(receiver);
                let (_, stamp) = packets
                    .iter()
                    .find_map(|packet| packet.split_once("UserProperty(\"audit\", \""))
                    .unwrap();
                let stamp = Stamp::parse_text(stamp.trim_end_matches("\")")).unwrap();
                let mut mallory = Producer::join_as(&mut broker, intruder, 1);
                let limits = LaneLimits::default();
                mallory.lane = Lane::new(stamp.lane, stamp.epoch, limits, Duration::ZERO);
                if is_early {
                    // It knows the client id, and comes before the client does.
                    broker.send(
                        client,
                        Packet::Disconnect(Disconnect::new(ReasonCode::Success)),
                    );
                    broker.advance(SECOND);
                    mallory.send_many(&mut broker, 2);
                    faults(&mut broker);
                    client = join(&mut broker, "producer");
                    broker.send(client, publish("t", "x", QoS::AtMostOnce, 0));
                } else {
                    mallory.send_many(&mut broker, 2);
                    broker.advance(SECOND);
                }
                let lane = stamp.lane.value();
                let of = format!("{intruder} {lane} of producer intruded");
                let named = faults(&mut broker);
                let is_intruder = |fault: &String| fault.starts_with(&of);
                assert!(!named.is_empty(), "{shards} {intruder} {is_early}");
                assert!(named.iter().all(is_intruder), "{named:?}");
                mallory.send_many(&mut broker, 1);
                for _ in 0..2 {
                    broker.advance(SECOND);
                }
                let named = faults(&mut broker);
                assert!(!named.is_empty(), "{shards} {intruder} {is_early}");
                assert!(named.iter().all(is_intruder), "{named:?}");
                let totals = found(&broker);
                assert_eq!(totals.injected + totals.duplicated + totals.repeated, 0);
                // The lane is free when its session has ended.
                broker.send(
                    client,
                    Packet::Disconnect(Disconnect::new(ReasonCode::Success)),
                );
                broker.advance(SECOND);
                let before = totals.intruded;
                mallory.send_many(&mut broker, 1);
                assert_eq!(found(&broker).intruded, before);
            }
        }
    }
}

#[test]
fn whose_a_lane_is_outlives_a_broker_that_has_stored_nothing_of_it() {
    let mut settings = Settings::default();
    settings.durable = true;
    let mut broker = Broker::with(2, Limits::default(), settings);
    let mut producer = Producer::join(&mut broker);
    broker.stored();
    producer.send_many(&mut broker, 3);
    broker.take_asked();
    broker.advance(SECOND);
    assert_eq!(broker.take_asked(), ["lane of producer so far"]);
    producer.send_many(&mut broker, 3);
    broker.advance(SECOND);
    assert_eq!(broker.take_asked(), [""; 0], "it was told once");
    let passing = join(&mut broker, "passing");
    broker.stored();
    let id = LaneId::new(8).unwrap();
    producer.client = passing;
    producer.lane = Lane::new(id, Epoch(1), LaneLimits::default(), Duration::ZERO);
    broker.take_asked();
    producer.send_many(&mut broker, 3);
    broker.advance(SECOND);
    assert_eq!(broker.take_asked(), [""; 0], "its session does not stay");
}

#[test]
fn an_intrusion_that_is_told_in_sum_has_an_epoch_that_was_sent() {
    for shards in [1, 3] {
        let mut broker = Broker::new(shards);
        let auditor = join(&mut broker, "auditor");
        subscribe(&mut broker, auditor, "$audit/+/fault", QoS::AtMostOnce);
        let mut producer = Producer::join_as(&mut broker, "producer", 3);
        producer.send_many(&mut broker, 1);
        let mut later = Producer::join_as(&mut broker, "producer", 10);
        later.send_many(&mut broker, 1);
        let mut mallory = Producer::join_as(&mut broker, "mallory", 3);
        mallory.send_many(&mut broker, 3);
        broker.advance(SECOND);
        broker.advance(SECOND);
        let told = broker.take_payloads(auditor);
        assert_eq!(told.len(), 2, "{shards}");
        for told in told {
            let told = String::from_utf8_lossy(&told).into_owned();
            assert!(told.contains(r#""epoch":3,"#), "{told}");
        }
    }
}

#[test]
fn epochs_that_are_over_are_not_of_a_clients_share() {
    let mut broker = Broker::new(1);
    for epoch in 1..=1_100 {
        let mut producer = Producer::join_as(&mut broker, "producer", epoch);
        producer.send_many(&mut broker, 1);
        let mut end = producer.poll();
        end.end = EpochEnd::Closed;
        producer.send_checkpoint(&mut broker, &end, &Xxh3);
    }
    assert_eq!(faults(&mut broker), [""; 0]);
    let found = found(&broker);
    assert_eq!((found.windows_proven, found.lanes_refused), (1_100, 0));
}

#[test]
fn a_part_of_a_lane_says_how_far_it_was_seen() {
    let mut broker = Broker::new(1);
    let mut producer = Producer::join(&mut broker);
    for _ in 0..140 {
        producer.stamp("x");
    }
    producer.send_many(&mut broker, 10);
    let auditor = join(&mut broker, "auditor");
    subscribe(&mut broker, auditor, "$audit/+/state", QoS::AtMostOnce);
    broker.take(auditor);
    producer.checkpoint(&mut broker);
    let told = broker.take_payloads(auditor);
    let told: Vec<_> = told.iter().map(|t| String::from_utf8_lossy(t)).collect();
    assert!(
        told.iter().any(|told| told.contains(r#""messages":150,"#)),
        "{told:?}"
    );
}

#[test]
fn the_sums_of_a_lane_leave_out_what_is_the_audits_own() {
    let mut broker = Broker::new(1);
    let auditor = join(&mut broker, "auditor");
    for filter in ["$audit/+/state", "audit/checkpoint/+", "t"] {
        subscribe(&mut broker, auditor, filter, QoS::AtMostOnce);
    }
    let sender = join(&mut broker, "sender");
    for topic in ["audit/checkpoint/0000000000000009", "t"] {
        broker.send(sender, publish(topic, "x", QoS::AtMostOnce, 0));
    }
    broker.take(auditor);
    broker.advance(SECOND);
    broker.advance(SECOND);
    let told = broker.take_payloads(auditor);
    let told: Vec<_> = told.iter().map(|t| String::from_utf8_lossy(t)).collect();
    let sums = r#""expected":1,"handed_to_network":1,"#;
    assert!(told.iter().any(|told| told.contains(sums)), "{told:?}");
}

#[test]
fn what_another_client_sends_in_a_lane_is_named_and_does_not_spoil_it() {
    for shards in [1, 2, 8] {
        for intruder in ["mallory", "eve", "trudy", "oscar"] {
            let mut broker = Broker::new(shards);
            let auditor = join(&mut broker, "auditor");
            subscribe(&mut broker, auditor, "$audit/+/fault", QoS::AtMostOnce);
            let mut producer = Producer::join(&mut broker);
            let first = producer.stamp("0");
            producer.send(&mut broker, "0", &[&first], false);
            // The same again, another message for a number to come, one that does not fit, and one
            // of an epoch that its owner has not begun.
            let mut mallory = Producer::join_as(&mut broker, intruder, 1);
            mallory.send(&mut broker, "0", &[&first], false);
            mallory.lane = producer.lane.clone();
            let forged = mallory.stamp("forged");
            mallory.send(&mut broker, "forged", &[&forged], false);
            mallory.send(&mut broker, "altered", &[&forged], false);
            let mut later = Producer::join_as(&mut broker, &format!("{intruder}2"), 2);
            let early = later.stamp("early");
            later.send(&mut broker, "early", &[&early], false);
            for n in 1..1_024 {
                let stamp = producer.stamp(&n.to_string());
                producer.send(&mut broker, &n.to_string(), &[&stamp], false);
            }
            producer.checkpoint(&mut broker);
            broker.advance(SECOND);
            broker.advance(SECOND);
            let named = faults(&mut broker);
            let is_named = |name: &str| {
                let of = format!("{name} 7 of producer intruded");
                named.iter().any(|fault| fault.starts_with(&of))
            };
            assert!(is_named(intruder), "{shards} {named:?}");
            assert!(is_named(&format!("{intruder}2")), "{shards} {named:?}");
            let others = |fault: &&String| !fault.contains("of producer intruded");
            assert_eq!(named.iter().find(others), None, "nothing else");
            let found = found(&broker);
            assert_eq!(found.windows_proven, 1, "{shards}");
            assert_eq!(found.intruded, 4, "{shards}");
            assert_eq!(found.duplicated + found.repeated + found.injected, 0);
            let told = broker.take_payloads(auditor);
            let told: Vec<_> = told.iter().map(|t| String::from_utf8_lossy(t)).collect();
            let names =
                format!(r#""kind":"intruded","place":"before the broker","client":"{intruder}"#);
            assert!(told.iter().any(|told| told.contains(&names)), "{told:?}");
            assert!(
                told.iter()
                    .all(|told| told.contains(r#""owner":"producer""#)),
                "{told:?}"
            );
        }
    }
}

#[test]
fn a_lane_whose_owner_has_gone_is_free_and_its_new_owner_is_named() {
    for shards in [1, 8] {
        let mut broker = Broker::new(shards);
        let mut producer = Producer::join(&mut broker);
        producer.send_many(&mut broker, 3);
        let mut heir = Producer::join_as(&mut broker, "heir", 1);
        heir.send_many(&mut broker, 1);
        faults(&mut broker);
        broker.cut(producer.client);
        for _ in 0..102 {
            broker.advance(SECOND); // its session expires
        }
        faults(&mut broker);
        let mut heir = Producer::join_as(&mut broker, "heir", 2);
        heir.send_many(&mut broker, 1_024);
        heir.checkpoint(&mut broker);
        assert_eq!(faults(&mut broker), ["heir 7 was of producer"], "{shards}");
        assert_eq!(found(&broker).windows_proven, 1);
    }
}

#[test]
fn each_client_that_sends_in_a_lane_of_another_is_named() {
    let mut broker = Broker::new(1);
    let mut producer = Producer::join(&mut broker);
    producer.send_many(&mut broker, 1);
    let mut mallory = Producer::join_as(&mut broker, "mallory", 1);
    let mut eve = Producer::join_as(&mut broker, "eve", 1);
    for _ in 0..3 {
        mallory.send_many(&mut broker, 1);
        eve.send_many(&mut broker, 1);
    }
    let of = |name: &str, count: u64, number: u64| {
        format!("{name} 7 of producer intruded {number} {count}")
    };
    assert_eq!(faults(&mut broker), [of("mallory", 1, 0), of("eve", 1, 0)]);
    broker.advance(SECOND);
    broker.advance(SECOND);
    assert_eq!(faults(&mut broker), [of("eve", 2, 1), of("mallory", 2, 1)]);
}

#[test]
fn one_client_does_not_open_all_lanes() {
    let mut broker = Broker::new(1);
    let open = |broker: &mut Broker, client_id: &str, from: u64, count: u64| {
        let client = join(broker, client_id);
        for id in from..from + count {
            let id = LaneId::new(id).unwrap();
            let lane = Lane::new(id, Epoch(1), LaneLimits::default(), Duration::ZERO);
            let mut producer = Producer {
                client,
                lane,
                topic: "t",
                packet_id: 0,
                later: 0,
            };
            producer.send_many(broker, 1);
        }
    };
    open(&mut broker, "greedy", 1_000, 1_030);
    broker.advance(SECOND);
    broker.advance(SECOND);
    let named = faults(&mut broker);
    assert_eq!(named, ["greedy share-used-up 1", "greedy share-used-up 5"]);
    open(&mut broker, "greedy2", 10_000, 1_024);
    open(&mut broker, "greedy3", 20_000, 1_025);
    assert_eq!(faults(&mut broker), ["greedy3 share-used-up 1"]);
    open(&mut broker, "greedy4", 30_000, 6);
    assert_eq!(faults(&mut broker), ["greedy4 rest-reserved 1"]);
    // A client with few lanes finds room.
    let mut producer = Producer::join(&mut broker);
    producer.send_many(&mut broker, 1_024);
    producer.checkpoint(&mut broker);
    let found = found(&broker);
    assert_eq!(found.windows_proven, 1);
    assert_eq!((found.lanes_refused, found.unaudited), (9, 9));
}

#[test]
fn another_user_under_the_client_id_of_an_owner_is_another_client() {
    let rules = ClientIdRules {
        takeover_by_anyone: true,
        ..ClientIdRules::default()
    };
    let mut settings = Settings::default();
    settings.client_ids = Arc::new([rules]);
    let mut broker = Broker::with(1, Limits::default(), settings);
    let mut properties = PropertyBuf::new();
    let expiry = Property::SessionExpiryInterval(100);
    properties.push(expiry).unwrap();
    let come = |broker: &mut Broker, user: Option<&str>| {
        let client = broker.open(Version::V5);
        let packet = Connect {
            clean_start: false,
            user_name: user,
            properties: properties.as_properties(),
            ..connect("producer")
        };
        broker.send(client, Packet::Connect(packet));
        client
    };
    let mut producer = Producer::join(&mut broker);
    producer.client = come(&mut broker, Some("alice"));
    producer.send_many(&mut broker, 1_000);
    producer.client = come(&mut broker, Some("mallory"));
    let lane = producer.lane.clone();
    producer.send_many(&mut broker, 2);
    producer.client = come(&mut broker, None);
    producer.send_many(&mut broker, 2);
    producer.lane = lane;
    producer.client = come(&mut broker, Some("alice"));
    producer.send_many(&mut broker, 24);
    producer.checkpoint(&mut broker);
    let found = found(&broker);
    assert_eq!((found.intruded, found.windows_proven), (4, 1));
    let mut users: Vec<_> = broker
        .events
        .drain(..)
        .filter_map(|event| match event {
            Event::LaneIntruded { user, .. } => Some(user.map(|user| user.to_string())),
            _ => None,
        })
        .collect();
    users.dedup();
    let mallory = Some("mallory".to_owned());
    assert_eq!(
        users,
        [mallory.clone(), mallory, None][1..],
        "each is named"
    );
}
