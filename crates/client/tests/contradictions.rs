//! Restarts, forged checkpoints and copied producers over real brokers: nothing that is lost stays
//! unseen, and nothing that is real is refused.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::fs;
use std::path::Path;
use std::time::Duration;

use support::broker::{Broker, Kind};
use support::line::{
    Fault, Seen, connect, inject, lane, publish_all, publisher, subscriber, until, until_proven,
};
use support::options;
use support::relay::Relay;
use unbroken_client::audit::Scope;
use unbroken_client::{Message, TotalDuration};
use unbroken_merkle_log::ledger::Event;
use unbroken_merkle_log::{Checkpoint, Detail, EpochEnd, Hash, Hasher};

const AT_ONCE: TotalDuration = TotalDuration(Duration::ZERO);

#[tokio::test]
async fn a_listener_misses_the_first_message_of_a_producer_that_begins_again() {
    for kind in Kind::installed() {
        let broker = Broker::start(kind);
        let relay = Relay::to(broker.address()).await;
        let receiver = connect(options(relay.address(), "c")).await;
        let line = subscriber("data").scope(Scope::FromNow);
        let mut line = line.open(&receiver).await.unwrap();
        let mut seen = Seen::default();
        for begins_again in [false, true] {
            let sender = connect(options(broker.address(), "a")).await;
            let producer = publisher(1).open_unspooled(&sender).await.unwrap();
            if begins_again {
                inject(&relay, "data", vec![(0, Fault::Lose), (50, Fault::Lose)]);
            }
            publish_all(&producer, "data", 0..100).await;
            producer.close(AT_ONCE).await.unwrap();
            sender.disconnect().await;
            until(&mut line, &mut seen, "the end", |seen| {
                if begins_again {
                    seen.lost().len() == 2
                } else {
                    seen.proven() == 100
                }
            })
            .await;
        }
        assert_eq!(seen.lost(), [0, 50], "{kind:?}");
        assert!(!seen.two_producers, "{kind:?}");
        let is_scope = |event: &Event| matches!(event, Event::OutOfScope(_));
        assert!(!seen.events.iter().any(is_scope), "{:?}", seen.events);
    }
}

#[tokio::test]
async fn a_checkpoint_alone_is_a_sign_of_a_lane_whose_next_epoch_begins_here() {
    for kind in Kind::installed() {
        let broker = Broker::start(kind);
        let relay = Relay::to(broker.address()).await;
        let receiver = connect(options(relay.address(), "c")).await;
        let line = subscriber("data").scope(Scope::FromNow);
        let mut line = line.open(&receiver).await.unwrap();
        let mut seen = Seen::default();
        for lost in [0..3, 0..1] {
            let sender = connect(options(broker.address(), "a")).await;
            let producer = publisher(1).open_unspooled(&sender).await.unwrap();
            let injections = lost.clone().map(|number| (number, Fault::Lose));
            inject(&relay, "data", injections.collect());
            publish_all(&producer, "data", 0..3).await;
            producer.close(AT_ONCE).await.unwrap();
            sender.disconnect().await;
        }
        until(&mut line, &mut seen, "the loss", |seen| {
            !seen.lost().is_empty()
        })
        .await;
        assert_eq!(seen.lost(), [0], "{kind:?}");
        assert!(!seen.two_producers, "{kind:?}");
    }
}

#[tokio::test]
async fn a_recorded_checkpoint_of_another_epoch_loses_nothing_of_the_one_under_way() {
    for kind in Kind::installed() {
        let broker = Broker::start(kind);
        let sender = connect(options(broker.address(), "a")).await;
        let producer = publisher(1).open_unspooled(&sender).await.unwrap();
        publish_all(&producer, "data", 0..1_500).await;
        let (lane, epoch) = (producer.lane(), producer.epoch());
        let recorded = Checkpoint {
            lane,
            epoch: unbroken_merkle_log::Epoch(epoch.0 ^ 1),
            number: 0,
            window_log2: 10,
            first: 0,
            size: 5,
            time_us: 0,
            window_root: Hash::from([7; 16]),
            lane_root: Hash::from([7; 16]),
            end: EpochEnd::Closed,
            detail: Detail::None,
        };
        let mut bytes = Vec::new();
        recorded.encode(&Hasher::xxh3(), &mut bytes);
        let receiver = connect(options(broker.address(), "c")).await;
        let line = subscriber("data").scope(Scope::FromNow);
        let mut line = line.open(&receiver).await.unwrap();
        let intruder = connect(options(broker.address(), "intruder")).await;
        let topic = format!("audit/checkpoint/{lane}");
        intruder
            .publish(Message::new(topic, bytes).unwrap())
            .await
            .unwrap();
        publish_all(&producer, "data", 1_500..2_100).await;
        producer.close(AT_ONCE).await.unwrap();
        let mut seen = Seen::default();
        until(&mut line, &mut seen, "the end", |seen| {
            seen.proven() > 0 || !seen.lost().is_empty()
        })
        .await;
        assert_eq!(seen.lost(), [0; 0], "{kind:?}");
        assert!(seen.events.contains(&Event::OutOfScope(2_048)), "{kind:?}");
    }
}

#[tokio::test]
async fn a_forged_end_is_named_and_denies_no_delivery() {
    for kind in Kind::installed() {
        let broker = Broker::start(kind);
        let receiver = connect(options(broker.address(), "c")).await;
        let line = subscriber("data").scope(Scope::FromBeginning);
        let mut line = line.open(&receiver).await.unwrap();
        let sender = connect(options(broker.address(), "a")).await;
        let producer = publisher(1).open_unspooled(&sender).await.unwrap();
        publish_all(&producer, "data", 0..100).await;
        let mut seen = Seen::default();
        until(&mut line, &mut seen, "a checkpoint", |seen| {
            !seen.checkpoints.is_empty()
        })
        .await;
        let (lane, epoch) = (producer.lane(), producer.epoch());
        let forged = Checkpoint {
            lane,
            epoch,
            number: 99,
            window_log2: 10,
            first: 0,
            size: 100,
            time_us: 0,
            window_root: Hash::from([7; 16]),
            lane_root: Hash::from([7; 16]),
            end: EpochEnd::Closed,
            detail: Detail::None,
        };
        let mut bytes = Vec::new();
        forged.encode(&Hasher::xxh3(), &mut bytes);
        let intruder = connect(options(broker.address(), "intruder")).await;
        let topic = format!("audit/checkpoint/{lane}");
        let checkpoint = Message::new(topic, bytes).unwrap();
        intruder.publish(checkpoint).await.unwrap();
        publish_all(&producer, "data", 100..300).await;
        until(&mut line, &mut seen, "all messages", |seen| {
            seen.messages.len() == 300
        })
        .await;
        assert_eq!(seen.taken().len(), 300, "{kind:?}: {:?}", seen.faults());
        let contradicted =
            |event: &Event| matches!(event, Event::EndContradicted { size: 100, .. });
        assert!(seen.events.iter().any(contradicted), "{:?}", seen.events);
    }
}

#[tokio::test]
async fn two_copies_of_one_producer_are_named_as_two() {
    let broker = Broker::start(Kind::Unbroken);
    let receiver = connect(options(broker.address(), "c")).await;
    let line = subscriber("data").scope(Scope::FromBeginning);
    let mut line = line.open(&receiver).await.unwrap();
    let (spool, copy) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let sender = connect(options(broker.address(), "a")).await;
    let original = publisher(1).open(&sender, spool.path()).await.unwrap();
    publish_all(&original, "data", 0..10).await;
    original.leave().await.unwrap();
    copy_files(spool.path(), copy.path());
    let mut producers = Vec::new();
    for (client, spool, from) in [("a2", &spool, 10), ("b", &copy, 1_000)] {
        let sender = connect(options(broker.address(), client)).await;
        let producer = publisher(1).open(&sender, spool.path()).await.unwrap();
        publish_all(&producer, "data", from..from + 20).await;
        producers.push(producer);
    }
    let mut seen = Seen::default();
    until(&mut line, &mut seen, "two producers", |seen| {
        seen.events.contains(&Event::TwoProducers)
    })
    .await;
    assert_eq!(producers[0].lane(), lane(1));
}

#[tokio::test]
async fn a_producer_that_goes_on_with_its_spool_is_one_producer() {
    let broker = Broker::start(Kind::Unbroken);
    let receiver = connect(options(broker.address(), "c")).await;
    let line = subscriber("data").scope(Scope::FromBeginning);
    let mut line = line.open(&receiver).await.unwrap();
    let spool = tempfile::tempdir().unwrap();
    for round in 0..4 {
        let sender = connect(options(broker.address(), "a")).await;
        let producer = publisher(1).open(&sender, spool.path()).await.unwrap();
        publish_all(&producer, "data", round * 10..round * 10 + 10).await;
        if round < 3 {
            producer.leave().await.unwrap();
        } else {
            producer.close(AT_ONCE).await.unwrap();
        }
        sender.disconnect().await;
    }
    let mut seen = Seen::default();
    until_proven(&mut line, &mut seen, 40).await;
    let is_contradiction = |event: &Event| {
        matches!(
            event,
            Event::TwoProducers | Event::CheckpointContradicts(_) | Event::EndContradicted { .. }
        )
    };
    assert!(
        !seen.events.iter().any(is_contradiction),
        "{:?}",
        seen.events
    );
}

fn copy_files(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            fs::create_dir(&to).unwrap();
            copy_files(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), to).unwrap();
        }
    }
}
