//! Lanes with a key: who does not have it can forge nothing, and is told so.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use support::broker::{Broker, Kind};
use support::line::{
    Fault, Seen, connect, inject, keyed, lane, publish_all, publisher, subscriber, until_proven,
};
use support::options;
use support::relay::Relay;
use unbroken_client::Filter;
use unbroken_client::audit::{Delivery, Scope};
use unbroken_merkle_log::Hasher;
use unbroken_merkle_log::ledger::Verdict;

#[tokio::test]
async fn what_is_forged_without_the_key_is_named_and_the_real_one_comes_again() {
    for kind in Kind::installed() {
        let broker = Broker::start(kind);
        let relay = Relay::to(broker.address()).await;
        let receiver = connect(options(relay.address(), "c")).await;
        let line = subscriber("data").hasher(keyed(7));
        let line = line.scope(Scope::FromBeginning).open(&receiver).await;
        let mut line = line.unwrap();
        let sender = connect(options(broker.address(), "a")).await;
        let lane = publisher(1).hasher(keyed(7)).open_unspooled(&sender).await;
        let lane = lane.unwrap();
        let injections = vec![
            (30, Fault::Lose),
            (40, Fault::Forge),
            (50, Fault::ForgeWithKey),
            (60, Fault::Alter),
        ];
        inject(&relay, "data", injections);
        publish_all(&lane, "data", 0..1_024).await;
        let mut seen = Seen::default();
        until_proven(&mut line, &mut seen, 1_024).await;
        let mut faults = seen.faults();
        faults.retain(|(_, verdict)| *verdict != Verdict::Ahead);
        faults.sort_unstable_by_key(|(number, verdict)| (*number, *verdict != Verdict::Altered));
        let expect = [
            (30, Verdict::Repaired),
            (40, Verdict::Altered),
            (40, Verdict::Repaired),
            (50, Verdict::Altered),
            (50, Verdict::Repaired),
            (60, Verdict::Altered),
            (60, Verdict::Repaired),
        ];
        assert_eq!(faults, expect, "{kind:?}");
        assert_eq!(seen.lost(), [30], "{kind:?}");
        assert_eq!(seen.taken().len(), 1_024);
    }
}

#[tokio::test]
async fn another_key_or_algorithm_is_said_once_and_nothing_is_called_lost() {
    for (kind, hasher, word, verdict) in [
        (Kind::Unbroken, keyed(8), "key", Verdict::Injected),
        (
            Kind::Unbroken,
            Hasher::xxh3(),
            "algorithm",
            Verdict::NotAudited,
        ),
    ] {
        let broker = Broker::start(kind);
        let receiver = connect(options(broker.address(), "c")).await;
        let line = subscriber("data").hasher(hasher);
        let line = line.scope(Scope::FromBeginning).open(&receiver).await;
        let mut line = line.unwrap();
        let sender = connect(options(broker.address(), "a")).await;
        let publisher = publisher(1).hasher(keyed(7)).open_unspooled(&sender).await;
        let publisher = publisher.unwrap();
        publish_all(&publisher, "data", 0..50).await;
        let mut seen = Seen::default();
        let mut said = Vec::new();
        let observer = connect(options(broker.address(), "observer")).await;
        let filter = Filter::new("audit/checkpoint/+").unwrap();
        let mut checkpoints = observer.subscribe(filter).await.unwrap();
        // As many have come to the line by then.
        for _ in 0..3 {
            let next = support::within("a checkpoint", checkpoints.recv()).await;
            next.unwrap();
        }
        receiver.ping().await.unwrap();
        while seen.messages.len() < 50 || said.is_empty() {
            match support::within("what it says", line.next()).await.unwrap() {
                Delivery::OtherKey { lane, why } => said.push((lane, why)),
                other => seen.take(other),
            }
        }
        while let Some(delivery) = line.ready() {
            match delivery {
                Delivery::OtherKey { lane, why } => said.push((lane, why)),
                other => seen.take(other),
            }
        }
        let [(of, why)] = &said[..] else {
            panic!("{said:?}")
        };
        assert_eq!(*of, lane(1));
        assert!(why.contains(word), "{why}");
        let all: Vec<_> = (0..50).map(|number| (number, verdict)).collect();
        assert_eq!((seen.faults(), seen.lost()), (all, vec![]));
    }
}
