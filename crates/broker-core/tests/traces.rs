//! Traces of one or several shards: which steps they show, and that they end.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod shard_bus;

use shard_bus::{Broker, Client, join, stay, subscribe};
use unbroken_broker_core::{DropReason, Event, TraceFilter, TraceStep, Traced};
use unbroken_mqtt_proto::{Packet, PacketId, Properties, Publish, QoS};

/// Traces on all shards.
fn begin(broker: &mut Broker, filter: &TraceFilter) {
    for shard in &mut broker.shards {
        shard.begin_trace(1, filter.clone());
    }
}

fn take(broker: &mut Broker) -> Vec<Traced> {
    let shards = broker.shards.iter_mut();
    shards.flat_map(|shard| shard.take_traced().0).collect()
}

fn publish(broker: &mut Broker, client: Client, topic: &str, qos: QoS) {
    let packet = Packet::Publish(Publish {
        dup: false,
        qos,
        retain: false,
        topic,
        packet_id: (qos > QoS::AtMostOnce).then_some(PacketId::FIRST),
        properties: Properties::EMPTY,
        payload: b"payload",
    });
    broker.send(client, packet);
    broker.deliver_messages();
}

fn of_client(name: &str) -> TraceFilter {
    TraceFilter {
        client_id: Some(name.into()),
        ..TraceFilter::default()
    }
}

/// The names of the steps, with the client of each.
fn names(steps: &[Traced]) -> Vec<String> {
    let name = |traced: &Traced| {
        let step = match &traced.step {
            TraceStep::Received { packet, .. } => packet.name(),
            TraceStep::Published { .. } => "published",
            TraceStep::Matched { .. } => "matched",
            TraceStep::Sent { .. } => "sent",
            TraceStep::Queued { .. } => "queued",
            TraceStep::Stored { .. } => "stored",
            TraceStep::Dropped { .. } => "dropped",
            TraceStep::Answered { .. } => "answered",
            TraceStep::Event(Event::Connected { .. }) => "connected",
            TraceStep::Event(Event::Subscribed { .. }) => "subscribed",
            TraceStep::Event(_) => "event",
            _ => "?",
        };
        let client = traced.client_id.as_deref().unwrap_or("-");
        format!("{step} {client}")
    };
    steps.iter().map(name).collect()
}

#[test]
fn a_publisher_is_followed_to_receivers_on_all_shards() {
    let mut broker = Broker::new(3);
    let receivers: Vec<_> = (0..6)
        .map(|n| join(&mut broker, &format!("r{n}")))
        .collect();
    for receiver in &receivers {
        subscribe(&mut broker, *receiver, "t/#", QoS::AtLeastOnce);
    }
    let publisher = join(&mut broker, "publisher");
    let shards: std::collections::BTreeSet<_> =
        receivers.iter().map(|one| broker.shard_of(*one)).collect();
    assert!(shards.len() > 1, "the receivers are spread");
    publish(&mut broker, publisher, "t/0", QoS::AtMostOnce);
    assert!(take(&mut broker).is_empty(), "there is no trace");
    begin(&mut broker, &of_client("publisher"));
    let away = stay(&mut broker, "away", true);
    subscribe(&mut broker, away, "t/#", QoS::AtMostOnce);
    broker.cut(away);
    publish(&mut broker, publisher, "t/1", QoS::AtMostOnce);
    let steps = take(&mut broker);
    let dropped = steps
        .iter()
        .filter(|one| matches!(one.step, TraceStep::Dropped { .. }));
    let dropped: Vec<_> = dropped
        .map(|one| (one.client_id.as_deref(), one.publisher.as_deref()))
        .collect();
    assert_eq!(dropped, [(Some("away"), Some("publisher"))]);
    let sent = steps
        .iter()
        .filter(|one| matches!(one.step, TraceStep::Sent { .. }));
    let mut sent: Vec<_> = sent
        .map(|one| one.client_id.clone().unwrap().to_string())
        .collect();
    sent.sort();
    assert_eq!(
        sent,
        ["r0", "r1", "r2", "r3", "r4", "r5"],
        "{:?}",
        names(&steps)
    );
    let matched = steps.iter().filter_map(|one| match &one.step {
        TraceStep::Matched { receivers, .. } => Some(*receivers),
        _ => None,
    });
    assert_eq!(matched.sum::<usize>(), 7, "each shard says its own");
    for shard in &mut broker.shards {
        shard.end_trace(1);
    }
    publish(&mut broker, publisher, "t/2", QoS::AtMostOnce);
    assert!(take(&mut broker).is_empty(), "it has ended");
}

#[test]
fn a_receiver_sees_its_copies_wait_and_its_drops_by_name() {
    let mut broker = Broker::new(1);
    let away = stay(&mut broker, "away", true);
    subscribe(&mut broker, away, "t/#", QoS::AtLeastOnce);
    subscribe(&mut broker, away, "only/qos0", QoS::AtMostOnce);
    broker.cut(away);
    let publisher = join(&mut broker, "publisher");
    begin(&mut broker, &of_client("away"));
    publish(&mut broker, publisher, "t/1", QoS::AtLeastOnce);
    publish(&mut broker, publisher, "only/qos0", QoS::AtMostOnce);
    let steps = take(&mut broker);
    assert_eq!(names(&steps), ["queued away", "dropped away"]);
    assert_eq!(steps[0].publisher.as_deref(), Some("publisher"));
    let TraceStep::Dropped { reason, .. } = steps[1].step else {
        panic!("{steps:?}");
    };
    assert_eq!(reason, DropReason::NotConnected);
    stay(&mut broker, "away", false);
    let steps = names(&take(&mut broker));
    assert_eq!(steps, ["connected away", "sent away"]);
}

#[test]
fn a_publisher_sees_what_ends_with_the_session_of_a_receiver() {
    let mut broker = Broker::new(1);
    let away = stay(&mut broker, "away", true);
    subscribe(&mut broker, away, "t/#", QoS::AtLeastOnce);
    broker.cut(away);
    let publisher = join(&mut broker, "publisher");
    begin(&mut broker, &of_client("publisher"));
    publish(&mut broker, publisher, "t/1", QoS::AtLeastOnce);
    take(&mut broker);
    join(&mut broker, "away");
    let steps = take(&mut broker);
    assert_eq!(names(&steps), ["dropped away"]);
    assert_eq!(steps[0].topic.as_deref(), Some("t/1"));
}

#[test]
fn a_message_that_is_put_back_is_shown_once() {
    let mut broker = Broker::new(3);
    let publishers: Vec<_> = (0..3)
        .map(|n| join(&mut broker, &format!("p{n}")))
        .collect();
    begin(&mut broker, &of_client("p0"));
    // Room for it is asked for at the shard that has its topic.
    for number in 0..8 {
        let topic = format!("t/{number}");
        let packet = Packet::Publish(Publish {
            dup: false,
            qos: QoS::AtMostOnce,
            retain: true,
            topic: &topic,
            packet_id: None,
            properties: Properties::EMPTY,
            payload: b"payload",
        });
        broker.send(publishers[0], packet);
        broker.deliver_messages();
    }
    let steps = take(&mut broker);
    let received = |one: &&Traced| matches!(one.step, TraceStep::Published { .. });
    assert_eq!(
        steps.iter().filter(received).count(),
        8,
        "{:?}",
        names(&steps)
    );
}

#[test]
fn a_topic_shows_no_packet_without_it() {
    let mut broker = Broker::new(1);
    let client = join(&mut broker, "client");
    begin(
        &mut broker,
        &TraceFilter {
            topic: Some("t/+".into()),
            payload_bytes: 3,
            ..TraceFilter::default()
        },
    );
    subscribe(&mut broker, client, "#", QoS::AtMostOnce);
    publish(&mut broker, client, "other", QoS::AtLeastOnce);
    publish(&mut broker, client, "t/1", QoS::AtLeastOnce);
    let steps = take(&mut broker);
    assert_eq!(
        names(&steps),
        ["published client", "matched -", "sent client"]
    );
    let TraceStep::Published { payload, .. } = &steps[0].step else {
        panic!("{steps:?}");
    };
    assert_eq!(&**payload, b"pay");
}
