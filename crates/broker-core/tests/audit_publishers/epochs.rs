//! Epochs: their first message, their producer, and the end of its session.

use super::*;

/// Sends messages 1 to 4 of an epoch whose number 0 does not come, and then their checkpoint.
fn send_without_the_first(broker: &mut Broker, producer: &mut Producer) -> PublishersTotals {
    producer.stamp("x");
    producer.send_many(broker, 4);
    producer.checkpoint(broker);
    for _ in 0..3 {
        broker.advance(SECOND);
    }
    found(broker)
}

#[test]
fn the_first_message_of_a_new_epoch_is_missed() {
    let mut broker = Broker::new(1);
    let mut producer = Producer::join(&mut broker);
    let totals = send_without_the_first(&mut broker, &mut producer);
    assert_eq!(totals.lost, 0, "it may have been sent before this session");
    let id = producer.lane.id();
    producer.lane = Lane::new(id, Epoch(2), LaneLimits::default(), Duration::ZERO);
    let totals = send_without_the_first(&mut broker, &mut producer);
    assert_eq!((totals.lost, totals.windows_proven), (1, 0));
}

#[test]
fn the_first_message_of_an_epoch_that_was_announced_is_missed() {
    for announced in [Epoch(1), Epoch(2)] {
        let mut broker = Broker::new(1);
        let mut producer = Producer::join(&mut broker);
        let directory = Directory {
            producer: 9,
            epoch: Epoch(1),
            number: 0,
            time_us: 0,
            lanes: vec![OpenLane {
                lane: LaneId::new(if announced == Epoch(1) { 7 } else { 8 }).unwrap(),
                epoch: Epoch(1),
                size: 0,
            }],
        };
        let mut payload = Vec::new();
        directory.encode(&Xxh3, &mut payload).unwrap();
        let packet = Publish {
            dup: false,
            qos: QoS::AtMostOnce,
            retain: false,
            topic: "audit/directory/0000000000000009",
            packet_id: None,
            properties: Properties::EMPTY,
            payload: &payload,
        };
        broker.send(producer.client, Packet::Publish(packet));
        let totals = send_without_the_first(&mut broker, &mut producer);
        assert_eq!(
            totals.lost,
            u64::from(announced == Epoch(1)),
            "{announced:?}"
        );
    }
}

#[test]
fn a_producer_that_comes_back_goes_on_with_its_lane() {
    for shards in [1, 8] {
        let mut broker = Broker::new(shards);
        let mut producer = Producer::join(&mut broker);
        producer.send_many(&mut broker, 500);
        broker.cut(producer.client);
        broker.advance(SECOND);
        producer.client = stay(&mut broker, "producer", false);
        producer.send_many(&mut broker, 524);
        producer.checkpoint(&mut broker);
        // And with another epoch.
        let mut again = Producer::join_as(&mut broker, "producer", 2);
        again.send_many(&mut broker, 1_024);
        again.checkpoint(&mut broker);
        assert_eq!(found(&broker).windows_proven, 2);
        assert_eq!(faults(&mut broker), [""; 0]);
    }
}

/// Ends the session of a producer, and waits until its lanes are free.
fn end_session(broker: &mut Broker, producer: &Producer) {
    broker.cut(producer.client);
    for _ in 0..102 {
        broker.advance(SECOND);
    }
}

#[test]
fn an_epoch_that_begins_after_its_owners_session_has_ended_is_judged_from_its_number_0() {
    for shards in [1, 8] {
        for heir in ["producer", "heir", "heir2", "heir3"] {
            let mut broker = Broker::new(shards);
            let mut producer = Producer::join(&mut broker);
            producer.send_many(&mut broker, 3);
            producer.checkpoint(&mut broker);
            end_session(&mut broker, &producer);
            // Its announcement does not come either.
            let mut heir = Producer::join_as(&mut broker, heir, 2);
            heir.stamp("x");
            heir.send_many(&mut broker, 1_023);
            heir.checkpoint(&mut broker);
            for _ in 0..3 {
                broker.advance(SECOND);
            }
            let found = found(&broker);
            assert_eq!((found.lost, found.windows_faulty), (1, 1), "{shards}");
            assert_eq!((found.windows_proven, found.lanes_joined_late), (0, 0));
        }
    }
}

#[test]
fn an_epoch_that_goes_on_after_its_owners_session_has_ended_has_lost_nothing() {
    for shards in [1, 8] {
        let mut broker = Broker::new(shards);
        let mut producer = Producer::join(&mut broker);
        producer.send_many(&mut broker, 3);
        producer.checkpoint(&mut broker);
        let first = producer.lane.clone();
        end_session(&mut broker, &producer);
        for heir in ["heir", "heir2", "heir3"] {
            // It was not told of the acknowledgement of the first, and sends it again.
            let mut heir = Producer::join_as(&mut broker, heir, 1);
            let again = heir.stamp("x");
            heir.send(&mut broker, "x", &[&again], false);
            (heir.lane, heir.later) = (first.clone(), producer.later);
            heir.send_many(&mut broker, 3);
            heir.checkpoint(&mut broker);
            for _ in 0..3 {
                broker.advance(SECOND);
            }
            end_session(&mut broker, &heir);
        }
        assert_eq!(found(&broker).lost, 0, "{shards}");
    }
}

#[test]
fn what_is_out_of_scope_of_a_lane_that_was_under_way_is_told() {
    let mut broker = Broker::new(1);
    let auditor = join(&mut broker, "auditor");
    for filter in ["$audit/+/state", "$audit/+/window"] {
        subscribe(&mut broker, auditor, filter, QoS::AtMostOnce);
    }
    let mut producer = Producer::join(&mut broker);
    for _ in 0..1_000 {
        producer.stamp("x");
    }
    producer.checkpoint_later();
    producer.send_many(&mut broker, 24 + 1_024);
    producer.checkpoint(&mut broker);
    producer.checkpoint(&mut broker);
    let found = found(&broker);
    assert_eq!((found.windows_proven, found.lanes_joined_late), (1, 1));
    assert_eq!((found.verified, found.unaudited), (1_024, 24));
    let told = broker.take_payloads(auditor);
    let told: Vec<_> = told.iter().map(|t| String::from_utf8_lossy(t)).collect();
    let is_told = |what: &str| {
        let mut told = told.iter().filter(|told| told.contains(what));
        told.any(|told| told.contains(r#""out_of_scope":1024"#))
    };
    assert!(is_told(r#""state":"part""#), "{told:?}");
    assert!(is_told("numbers below 1024 are out of scope"), "{told:?}");
    assert!(is_told(r#""state":"proven""#), "{told:?}");
}

#[test]
fn two_copies_of_a_producer_under_one_client_id_are_named() {
    let mut broker = Broker::new(1);
    let mut first = Producer::join(&mut broker);
    first.send_many(&mut broker, 10);
    let mut copy = Producer::join(&mut broker);
    copy.lane = first.lane.clone();
    faults(&mut broker);
    for round in 0..3 {
        for (producer, payload) in [(&mut first, "first"), (&mut copy, "copy")] {
            producer.client = stay(&mut broker, "producer", false);
            let stamp = producer.stamp(payload);
            producer.send(&mut broker, payload, &[&stamp], false);
        }
        let named = faults(&mut broker);
        assert_ne!(named, [""; 0], "{round}");
    }
    let found = found(&broker);
    assert_eq!((found.repeated, found.injected), (1, 2));
    assert!(found.contradicted > 0, "{found:?}");
}
