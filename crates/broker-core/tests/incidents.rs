//! Events name the message that they are about, and lanes are listed page by page.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod publisher_lanes;
mod shard_bus;

use std::collections::BTreeSet;

use publisher_lanes::{Producer, SECOND};
use shard_bus::{Broker, join, publish, stay, subscribe};
use unbroken_broker_core::{
    DropPlace, Event, LaneFilter, LaneInfo, LanePlace, Limits, Numbers, Settings,
};
use unbroken_merkle_log::Xxh3;
use unbroken_mqtt_proto::QoS;

fn drops(broker: &mut Broker) -> Vec<(DropPlace, u64, Option<Numbers>)> {
    let drop = |event: Event| match event {
        Event::Dropped {
            place,
            count,
            numbers,
            ..
        } => Some((place, count, numbers.map(|numbers| *numbers))),
        _ => None,
    };
    broker.events.drain(..).filter_map(drop).collect()
}

fn lanes(broker: &Broker, filter: &LaneFilter, most: usize) -> Vec<LaneInfo> {
    let mut entries = Vec::new();
    for shard in &broker.shards {
        let mut next = Some(LanePlace::default());
        while let Some(place) = next {
            let page = shard.lanes(broker.now, filter, place, most);
            assert!(page.entries.len() <= most);
            entries.extend(page.entries);
            next = page.next;
        }
    }
    entries
}

#[test]
fn a_drop_names_the_message_by_its_publisher_and_number() {
    for shards in [1, 3] {
        let mut limits = Limits::default();
        limits.queue_messages_max = 1;
        let mut broker = Broker::with(shards, limits, Settings::default());
        let sleeper = stay(&mut broker, "s", true);
        subscribe(&mut broker, sleeper, "t/#", QoS::AtLeastOnce);
        broker.cut(sleeper);
        let publisher = join(&mut broker, "p");
        for id in 1..=4 {
            broker.send(publisher, publish("t/1", "x", QoS::AtLeastOnce, id));
        }
        let [(DropPlace::Receiver, 1, Some(first))] = &drops(&mut broker)[..] else {
            panic!("one drop for a receiver");
        };
        assert_eq!(first.publisher.as_deref(), Some("p"));
        assert_eq!(
            (first.first, first.last, first.qos),
            (1, 1, QoS::AtLeastOnce)
        );
        broker.advance(SECOND);
        let [(DropPlace::Receiver, 2, Some(others))] = &drops(&mut broker)[..] else {
            panic!("the others together");
        };
        assert_eq!((others.first, others.last, others.count), (2, 3, 2));
        assert_eq!((others.lane, others.epoch), (first.lane, first.epoch));
    }
}

#[test]
fn drops_of_two_publishers_say_how_many_have_the_numbers() {
    let mut limits = Limits::default();
    limits.queue_messages_max = 1;
    let mut broker = Broker::with(1, limits, Settings::default());
    let sleeper = stay(&mut broker, "s", true);
    subscribe(&mut broker, sleeper, "t/#", QoS::AtLeastOnce);
    broker.cut(sleeper);
    let publishers = ["p", "q"].map(|name| join(&mut broker, name));
    for id in 1..=4 {
        for publisher in publishers {
            broker.send(publisher, publish("t/1", "x", QoS::AtLeastOnce, id));
        }
    }
    assert_eq!(drops(&mut broker).len(), 1, "the first one");
    broker.advance(SECOND);
    let [(DropPlace::Receiver, 6, Some(numbers))] = &drops(&mut broker)[..] else {
        panic!("the others together");
    };
    assert_eq!(numbers.publisher.as_deref(), Some("q"));
    assert_eq!((numbers.first, numbers.last, numbers.count), (3, 3, 1));
}

#[test]
fn a_message_that_a_group_cannot_hand_on_was_taken_in() {
    let mut broker = Broker::new(1);
    let member = stay(&mut broker, "member", true);
    subscribe(&mut broker, member, "$share/g/t", QoS::AtLeastOnce);
    broker.cut(member);
    let publisher = join(&mut broker, "p");
    broker.send(publisher, publish("t", "x", QoS::AtLeastOnce, 1));
    assert_eq!(drops(&mut broker), []);
    join(&mut broker, "member");
    let [(DropPlace::Broker, 1, Some(numbers))] = &drops(&mut broker)[..] else {
        panic!("it has no member to go to");
    };
    assert_eq!(numbers.publisher.as_deref(), Some("p"));
}

#[test]
fn a_loss_names_its_epoch_and_its_end() {
    let mut broker = Broker::new(1);
    let mut producer = Producer::join(&mut broker);
    producer.send_many(&mut broker, 1);
    let lost = producer.stamp("x");
    let also_lost = producer.stamp("x");
    let arrived = producer.stamp("x");
    producer.send(&mut broker, "x", &[&arrived], false);
    producer.checkpoint(&mut broker);
    broker.advance(SECOND);
    broker.advance(SECOND);
    let epochs = |event: &Event| match event {
        Event::PublisherFault { epoch, first, .. } => Some((*epoch, *first)),
        _ => None,
    };
    let faults: Vec<_> = broker.events.iter().filter_map(epochs).collect();
    assert_eq!(faults, [(1, 1)]);
    let [info] = &lanes(&broker, &stamped(), 9)[..] else {
        panic!("one lane");
    };
    assert_eq!((info.lost, info.next), (2, 4));
    producer.topic = "audit/answer/token";
    for stamp in [&lost, &lost, &arrived, &lost] {
        producer.send(&mut broker, "x", &[stamp], false);
    }
    let again = |event: &Event| match event {
        Event::SentAgain { lane, number, .. } => Some((*lane, *number)),
        _ => None,
    };
    let repaired: Vec<_> = broker.events.iter().filter_map(again).collect();
    assert_eq!(repaired, [(7, 1)], "once for each message that was lost");
    assert_eq!(lanes(&broker, &stamped(), 9)[0].lost, 1);
    producer.send(&mut broker, "x", &[&also_lost], false);
    assert_eq!(lanes(&broker, &stamped(), 9)[0].lost, 0);
}

#[test]
fn a_lane_says_what_its_last_checkpoint_covers() {
    let mut broker = Broker::new(1);
    let mut producer = Producer::join(&mut broker);
    producer.send_many(&mut broker, 3);
    broker.advance(SECOND);
    let open = lanes(&broker, &stamped(), 9).remove(0);
    assert_eq!((open.checkpoint, open.open_for), (None, Some(SECOND)));
    producer.checkpoint(&mut broker);
    let proven = lanes(&broker, &stamped(), 9).remove(0);
    assert_eq!(proven.checkpoint.map(|checkpoint| checkpoint.size), Some(3));
    assert_eq!((proven.open_for, proven.proof_took), (None, Some(SECOND)));
    assert_eq!(&*proven.client_id, "producer");
}

#[test]
fn what_a_checkpoint_covers_is_not_open_when_it_comes_again() {
    let mut broker = Broker::new(1);
    let mut producer = Producer::join(&mut broker);
    let stamp = producer.stamp("x");
    producer.send(&mut broker, "x", &[&stamp], false);
    producer.checkpoint(&mut broker);
    producer.send(&mut broker, "x", &[&stamp], true);
    broker.advance(SECOND);
    assert_eq!(lanes(&broker, &stamped(), 9)[0].open_for, None);
    // One that waited for ten seconds is covered, and the newest is not.
    producer.send_many(&mut broker, 1);
    broker.advance(10 * SECOND);
    let checkpoint = producer.poll();
    producer.send_many(&mut broker, 1);
    producer.send_checkpoint(&mut broker, &checkpoint, &Xxh3);
    broker.advance(SECOND);
    let info = lanes(&broker, &stamped(), 9).remove(0);
    assert_eq!(info.open_for, Some(SECOND));
    assert_eq!(info.proof_took, Some(10 * SECOND));
}

#[test]
fn each_lane_is_on_one_page_whatever_its_size() {
    for (shards, most) in [(1, 1), (1, 7), (3, 2), (3, 1_000)] {
        let mut broker = Broker::new(shards);
        for number in 0..30 {
            let client = join(&mut broker, &format!("pump{number}"));
            broker.send(client, publish("t", "x", QoS::AtMostOnce, 0));
        }
        Producer::join(&mut broker).send_many(&mut broker, 2);
        let all = lanes(&broker, &LaneFilter::default(), most);
        let ids: BTreeSet<_> = all.iter().map(|info| info.lane).collect();
        // The producer's own, and the one that the broker numbers for it.
        assert_eq!(
            (all.len(), ids.len()),
            (32, 32),
            "{shards} shards, pages of {most}"
        );
        let named = LaneFilter {
            lane: None,
            text: Some("pump1".into()),
        };
        assert_eq!(lanes(&broker, &named, most).len(), 11);
        assert_eq!(lanes(&broker, &stamped(), most).len(), 1);
    }
}

/// The producer's.
fn stamped() -> LaneFilter {
    LaneFilter {
        lane: Some(7),
        text: None,
    }
}
