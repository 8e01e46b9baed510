//! A producer, two processors and a consumer: each injected fault is named where it was made, and
//! the consumer proves every lane on the way.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use support::broker::{Broker, Kind};
use support::line::{
    Fault, Seen, connect, inject, publish_all, publisher, subscriber, until_windows,
};
use support::options;
use support::relay::Relay;
use unbroken_client::Message;
use unbroken_client::audit::{Processor, Scope, Step};
use unbroken_merkle_log::ledger::{State, Verdict};

/// A stage that passes everything on, and what it has seen.
async fn stage(to: SocketAddr, id: u64, from: &str, into: &'static str) -> Arc<Mutex<Seen>> {
    let client = connect(options(to, &format!("b{id}"))).await;
    let line = subscriber(from).scope(Scope::FromBeginning);
    let input = line.acknowledged_by_hand().open(&client).await.unwrap();
    let output = publisher(id).open_unspooled(&client).await.unwrap();
    let mut processor = Processor::new(input, output);
    let seen = Arc::new(Mutex::new(Seen::default()));
    let shared = Arc::clone(&seen);
    tokio::spawn(async move {
        // Ends with its client.
        while let Ok(step) = processor.next().await {
            match step {
                Step::Input(input) => {
                    shared.lock().unwrap().note(input.message());
                    let copy = Message::new(into, input.payload()).unwrap();
                    processor.emit(input, copy).await.unwrap();
                }
                Step::Other(delivery) => shared.lock().unwrap().take(delivery),
            }
        }
    });
    seen
}

/// A relay that injects faults into what passes to its client.
async fn injected(broker: &Broker, topic: &'static str) -> Relay {
    let relay = Relay::to(broker.address()).await;
    let injections = vec![
        (3, Fault::Lose),
        (90, Fault::Alter),
        (120, Fault::Duplicate),
        (200, Fault::Swap),
    ];
    inject(&relay, topic, injections);
    relay
}

/// Exactly the faults injected on the hop to here, in this lane.
#[track_caller]
fn check(seen: &Seen, lane: u64) {
    let faults = seen.faults();
    let named = |number, verdict| faults.iter().filter(|it| **it == (number, verdict)).count();
    assert_eq!(named(90, Verdict::Altered), 1, "{faults:?}");
    assert_eq!(named(120, Verdict::Duplicate), 1, "{faults:?}");
    assert_eq!(named(3, Verdict::Repaired), 1, "{faults:?}");
    assert_eq!(named(90, Verdict::Repaired), 1, "{faults:?}");
    assert_eq!(named(200, Verdict::Late), 1, "{faults:?}");
    let mut others = faults.clone();
    others.retain(|(number, _)| ![3, 90, 120, 200].contains(number));
    others.retain(|(_, verdict)| *verdict != Verdict::Ahead);
    assert_eq!(others, [], "lane {lane}");
    let here = |of: &&(u64, u64)| of.0 == lane;
    let lost: Vec<_> = seen.lost_of.iter().filter(here).collect();
    assert_eq!(lost, [&(lane, 3)]);
    let moved = seen.moved_of.iter().filter(|of| **of == lane);
    assert_eq!(moved.count(), 1, "lane {lane}");
    // What a injected message was made of is missed with it, and nothing else.
    let carried: Vec<u64> = (seen.messages.iter())
        .filter(|(number, verdict, _)| [3, 90].contains(number) && *verdict == Verdict::Repaired)
        .map(|(_, _, text)| text.parse().unwrap())
        .collect();
    let mut of_a = seen.lost_of.iter().filter(|of| of.0 == 1 && lane != 1);
    assert!(
        of_a.all(|(_, number)| carried.contains(number)),
        "{:?}",
        seen.lost_of
    );
}

#[tokio::test]
async fn each_injected_fault_is_named_once_at_its_hop_and_the_consumer_proves_every_lane() {
    for kind in Kind::installed() {
        let broker = Broker::start(kind);
        let (to_b1, to_b2, to_c) = (
            injected(&broker, "in").await,
            injected(&broker, "mid").await,
            injected(&broker, "out").await,
        );
        let client = connect(options(to_c.address(), "c")).await;
        let line = subscriber("out").scope(Scope::FromBeginning);
        let mut line = line.open(&client).await.unwrap();
        let second = stage(to_b2.address(), 3, "mid", "out").await;
        let first = stage(to_b1.address(), 2, "in", "mid").await;
        let sender = connect(options(broker.address(), "a")).await;
        let lane = publisher(1).open_unspooled(&sender).await.unwrap();
        publish_all(&lane, "in", 0..2_048).await;
        let mut seen = Seen::default();
        let lanes = [1, 2, 3];
        let proven = lanes.map(|lane| [0, 1_024].map(|first| (lane, first, State::Proven, 0)));
        until_windows(&mut line, &mut seen, &proven.concat()).await;
        check(&first.lock().unwrap(), 1);
        check(&second.lock().unwrap(), 2);
        check(&seen, 3);
        let mut texts: Vec<u64> = seen
            .taken()
            .iter()
            .map(|(_, text)| text.parse().unwrap())
            .collect();
        texts.sort_unstable();
        assert_eq!(texts, (0..2_048).collect::<Vec<u64>>(), "{kind:?}");
    }
}
