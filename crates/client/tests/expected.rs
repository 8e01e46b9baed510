//! Lanes of which nothing comes: a subscriber that expects them says so, and has them sent again.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::time::Duration;

use support::broker::{Broker, Kind};
use support::line::{
    Fault, Seen, connect, inject, lane, publish_all, publisher, subscriber, until_proven,
};
use support::relay::Relay;
use support::{options, within};
use unbroken_client::audit::{AuditedSubscriber, Delivery, Scope, SubscriberOptions};
use unbroken_client::{Filter, Message, TotalDuration};
use unbroken_merkle_log::ledger::{LedgerLimits, Presence};
use unbroken_merkle_log::{Directory, Epoch, Hasher, LaneId, OpenLane};

/// A subscriber from now on that loses the first five messages of a lane, which are all.
async fn lost_whole(expecting: impl Fn(SubscriberOptions) -> SubscriberOptions) {
    for kind in Kind::installed() {
        let broker = Broker::start(kind);
        let relay = Relay::to(broker.address()).await;
        let receiver = connect(options(relay.address(), "c")).await;
        let line = expecting(subscriber("data").scope(Scope::FromNow));
        let mut line = line.open(&receiver).await.unwrap();
        let sender = connect(options(broker.address(), "a")).await;
        let lane = publisher(1).open_unspooled(&sender).await.unwrap();
        let injections = (0..5).map(|number| (number, Fault::Lose));
        inject(&relay, "data", injections.collect());
        publish_all(&lane, "data", 0..5).await;
        let mut seen = Seen::default();
        until_missed_and_proven(&mut line, &mut seen).await;
        assert_eq!(seen.lost(), [0, 1, 2, 3, 4], "{kind:?}");
        assert_eq!(seen.taken().len(), 5, "{kind:?}");
    }
}

async fn until_missed_and_proven(line: &mut AuditedSubscriber, seen: &mut Seen) {
    let proven = async {
        while seen.proven() < 5 {
            match line.next().await.unwrap() {
                Delivery::Expected { .. } => {}
                delivery => seen.take(delivery),
            }
        }
    };
    within("the proof", proven).await;
}

#[tokio::test]
async fn an_expected_lane_that_is_lost_whole_is_named_and_repaired() {
    lost_whole(|subscriber| subscriber.expect(lane(1))).await;
}

#[tokio::test]
async fn who_takes_all_lanes_misses_one_of_which_nothing_came() {
    lost_whole(SubscriberOptions::expect_listed).await;
}

#[tokio::test]
async fn who_was_there_first_and_takes_all_lanes_calls_none_injected() {
    let broker = Broker::start(Kind::Unbroken);
    let receiver = connect(options(broker.address(), "c")).await;
    let line = subscriber("data").scope(Scope::FromBeginning);
    let mut line = line.expect_listed().open(&receiver).await.unwrap();
    let sender = connect(options(broker.address(), "a")).await;
    let lane = publisher(1).open_unspooled(&sender).await.unwrap();
    publish_all(&lane, "data", 0..50).await;
    lane.close(TotalDuration(Duration::ZERO)).await.unwrap();
    let mut seen = Seen::default();
    until_proven(&mut line, &mut seen, 50).await;
    assert_eq!(seen.faults(), []);
}

#[tokio::test]
async fn a_lane_of_which_there_is_no_sign_is_absent_until_it_comes() {
    let broker = Broker::start(Kind::Unbroken);
    let receiver = connect(options(broker.address(), "c")).await;
    let mut limits = LedgerLimits::default();
    limits.idle_heartbeat = Duration::from_millis(100);
    let line = SubscriberOptions::new(vec![Filter::new("data").unwrap()]).limits(limits);
    let line = line.expect(lane(1)).expect(lane(2));
    let mut line = line.open(&receiver).await.unwrap();
    let mut told = [presence(&mut line).await, presence(&mut line).await];
    told.sort_unstable();
    assert_eq!(told, [(lane(1), false), (lane(2), false)]);
    let sender = connect(options(broker.address(), "a")).await;
    // It publishes nothing: its directory shows that it is there.
    let there = publisher(2).open_unspooled(&sender).await.unwrap();
    assert_eq!(presence(&mut line).await, (there.lane(), true));
}

#[tokio::test]
async fn a_retained_directory_is_no_sign_of_its_producer() {
    let broker = Broker::start(Kind::Unbroken);
    let sender = connect(options(broker.address(), "a")).await;
    let open = OpenLane {
        lane: lane(1),
        epoch: Epoch(1),
        size: 0,
    };
    let directory = Directory {
        producer: 9,
        epoch: Epoch(1),
        number: 5,
        time_us: 0,
        lanes: vec![open],
    };
    let mut payload = Vec::new();
    directory.encode(&Hasher::xxh3(), &mut payload).unwrap();
    let directory = Message::new("audit/directory/0000000000000009", payload).unwrap();
    sender.publish(directory.retained()).await.unwrap();
    let receiver = connect(options(broker.address(), "c")).await;
    let mut limits = LedgerLimits::default();
    limits.idle_heartbeat = Duration::from_millis(100);
    let line = SubscriberOptions::new(vec![Filter::new("data").unwrap()]).limits(limits);
    let mut line = line.expect(lane(1)).open(&receiver).await.unwrap();
    assert_eq!(presence(&mut line).await, (lane(1), false));
}

/// The next that is told of an expected lane, and whether it is there.
async fn presence(line: &mut AuditedSubscriber) -> (LaneId, bool) {
    let told = async {
        loop {
            if let Delivery::Expected { lane, presence } = line.next().await.unwrap() {
                return (lane, matches!(presence, Presence::Come(_)));
            }
        }
    };
    within("an expected lane", told).await
}
