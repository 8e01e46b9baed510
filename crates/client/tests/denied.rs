//! What another client says of a message withholds it from no receiver: a message that was declared
//! dropped, or that others say they were made of, is handed on when it comes.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use support::broker::{Broker, Kind};
use support::line::{Seen, connect, lane, publish_all, publisher, subscriber, until};
use support::options;
use unbroken_client::audit::{AuditedSubscriber, Scope};
use unbroken_client::{Client, Message};
use unbroken_merkle_log::ledger::Event;
use unbroken_merkle_log::{DropReason, DropRecord, Epoch, Hash, Hasher, LaneId, Parents, Property};

/// The victim's lane.
const VICTIM: u64 = 1;

/// A receiver of `data`, and clients of the victim and of the intruder.
struct Scene {
    _broker: Broker,
    line: AuditedSubscriber,
    _receiver: Client,
    victim: Client,
    intruder: Client,
}

impl Scene {
    async fn begin(kind: Kind) -> Self {
        let broker = Broker::start(kind);
        let receiver = connect(options(broker.address(), "c")).await;
        let line = subscriber("data").scope(Scope::FromBeginning);
        let line = line.open(&receiver).await.unwrap();
        let victim = connect(options(broker.address(), "a")).await;
        let intruder = connect(options(broker.address(), "intruder")).await;
        Self {
            _broker: broker,
            line,
            _receiver: receiver,
            victim,
            intruder,
        }
    }

    async fn until_messages(&mut self, seen: &mut Seen, count: usize) {
        until(&mut self.line, seen, "the messages", |seen| {
            seen.messages.len() == count
        })
        .await;
    }

    /// A message of the intruder's own lane, with one more property.
    async fn publish_with(&self, number: u64, name: &str, value: &str) {
        let stamp = Property::stamp(&Hasher::xxh3(), lane(9), Epoch(0), number, b"data", b"evil");
        let message = Message::new("data", &b"evil"[..]).unwrap();
        let message = message.user_property("audit", &stamp.to_text()).unwrap();
        let message = message.user_property(name, value).unwrap();
        self.intruder.publish(message).await.unwrap();
    }
}

/// These numbers of a lane, with leaves that are not theirs.
fn forged(lane: LaneId, epoch: Epoch, numbers: std::ops::Range<u64>) -> Vec<Property> {
    let stamp = |number| {
        let property = Property::stamp(&Hasher::xxh3(), lane, epoch, number, b"data", b"p");
        Property {
            digest: Hash::from([7; 16]),
            ..property
        }
    };
    numbers.map(stamp).collect()
}

#[tokio::test]
async fn a_forged_drop_record_denies_no_message_and_is_named_where_it_is_used() {
    for kind in Kind::installed() {
        for receiver in [None, Some("c")] {
            let mut scene = Scene::begin(kind).await;
            let producer = publisher(VICTIM).open_unspooled(&scene.victim);
            let producer = producer.await.unwrap();
            let mut seen = Seen::default();
            publish_all(&producer, "data", 0..10).await;
            scene.until_messages(&mut seen, 10).await;
            let (lane, epoch) = (producer.lane(), producer.epoch());
            let record =
                DropRecord::of(DropReason::QUEUE_FULL, &forged(lane, epoch, 10..300)).unwrap();
            let mut bytes = Vec::new();
            record.encode(&Hasher::xxh3(), &mut bytes).unwrap();
            let mut message = Message::new(format!("audit/drop/{lane}"), bytes).unwrap();
            if let Some(receiver) = receiver {
                message = message.user_property("audit-receiver", receiver).unwrap();
            }
            let published = scene.intruder.publish(message).await;
            // Our broker lets no client speak in its own name.
            let is_let = receiver.is_none() || kind == Kind::Mosquitto;
            assert_eq!(published.is_ok(), is_let, "{kind:?} {receiver:?}");
            publish_all(&producer, "data", 10..300).await;
            scene.until_messages(&mut seen, 300).await;
            let taken = seen.taken().len();
            assert_eq!(taken, 300, "{kind:?} {receiver:?}: {:?}", seen.faults());
            let is_named = seen.events.contains(&Event::DropContradicted(10));
            assert_eq!(is_named, receiver.is_some() && is_let, "{:?}", seen.events);
        }
    }
}

#[tokio::test]
async fn a_drop_record_counts_only_in_the_name_of_a_processor_that_is_heard() {
    for kind in Kind::installed() {
        for (through, counts) in [(None, false), (Some(8), false), (Some(9), true)] {
            let mut scene = Scene::begin(kind).await;
            let dropped = forged(lane(VICTIM), Epoch(0), 0..3);
            let text = dropped[0].to_text();
            scene.publish_with(0, "audit-origin", &text).await;
            let record = DropRecord::of(DropReason::FILTERED, &dropped[1..]).unwrap();
            let mut bytes = Vec::new();
            record.encode(&Hasher::xxh3(), &mut bytes).unwrap();
            let topic = format!("audit/drop/{}", lane(VICTIM));
            let mut message = Message::new(topic, bytes).unwrap();
            if let Some(through) = through {
                let through = lane(through).to_string();
                message = message.user_property("audit-through", &through).unwrap();
            }
            scene.intruder.publish(message).await.unwrap();
            scene.publish_with(1, "other", "").await;
            let mut seen = Seen::default();
            scene.until_messages(&mut seen, 2).await;
            assert_eq!(!seen.dropped.is_empty(), counts, "{kind:?} {through:?}");
        }
    }
}

#[tokio::test]
async fn what_others_say_they_were_made_of_denies_no_message_of_a_lane_that_begins_to_be_heard() {
    for kind in Kind::installed() {
        let mut scene = Scene::begin(kind).await;
        let producer = publisher(VICTIM).open_unspooled(&scene.victim);
        let producer = producer.await.unwrap();
        let (lane, epoch) = (producer.lane(), producer.epoch());
        for property in forged(lane, epoch, 0..5) {
            let (number, text) = (property.sequence, property.to_text());
            scene.publish_with(number, "audit-origin", &text).await;
        }
        let parents = Parents::of(&Hasher::xxh3(), &forged(lane, epoch, 16..32)).unwrap();
        let parents = parents.to_text().unwrap();
        scene.publish_with(5, "audit-parents", &parents).await;
        let mut seen = Seen::default();
        scene.until_messages(&mut seen, 6).await;
        publish_all(&producer, "data", 0..100).await;
        scene.until_messages(&mut seen, 106).await;
        assert_eq!(seen.taken().len(), 106, "{kind:?}: {:?}", seen.faults());
        assert_eq!(seen.inputs, [0], "{kind:?}");
    }
}

#[tokio::test]
async fn parents_in_a_lane_that_is_heard_itself_take_no_number_of_it_with_others_neither() {
    for kind in Kind::installed() {
        for others in [0..0, 0..4] {
            let mut scene = Scene::begin(kind).await;
            let producer = publisher(VICTIM).open_unspooled(&scene.victim);
            let producer = producer.await.unwrap();
            let mut seen = Seen::default();
            publish_all(&producer, "data", 0..16).await;
            scene.until_messages(&mut seen, 16).await;
            let (victim, epoch) = (producer.lane(), producer.epoch());
            let mut named = forged(victim, epoch, 16..32);
            named.extend(forged(lane(8), Epoch(0), others.clone()));
            let parents = Parents::of(&Hasher::xxh3(), &named).unwrap();
            let parents = parents.to_text().unwrap();
            scene.publish_with(0, "audit-parents", &parents).await;
            scene.until_messages(&mut seen, 17).await;
            publish_all(&producer, "data", 16..100).await;
            scene.until_messages(&mut seen, 101).await;
            let taken = seen.taken().len();
            assert_eq!(taken, 101, "{kind:?} {others:?}: {:?}", seen.faults());
        }
    }
}
