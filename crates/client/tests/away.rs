//! What is published while a subscriber is not connected: a loss that says so, unless the broker
//! keeps its session.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use support::broker::{Broker, Kind};
use support::line::{Seen, connect, publish_all, publisher, subscriber, until};
use support::options;
use support::relay::Relay;
use unbroken_client::Session;
use unbroken_client::audit::Scope;

#[tokio::test]
async fn a_loss_while_the_subscriber_was_away_says_so() {
    for kind in Kind::installed() {
        for is_kept in [false, true] {
            let broker = Broker::start(kind);
            let relay = Relay::to(broker.address()).await;
            let session = if is_kept {
                Session::WhileRunning { expiry_s: 60 }
            } else {
                Session::Temporary
            };
            let mine = options(relay.address(), "c").session(session);
            let receiver = connect(mine).await;
            let line = subscriber("data").scope(Scope::FromBeginning);
            let mut line = line.open(&receiver).await.unwrap();
            let sender = connect(options(broker.address(), "a")).await;
            let producer = publisher(1).open_unspooled(&sender).await.unwrap();
            let mut seen = Seen::default();
            publish_all(&producer, "data", 0..50).await;
            until(&mut line, &mut seen, "the first", |seen| {
                seen.messages.len() == 50
            })
            .await;
            let connection = receiver.connection();
            relay.close();
            while receiver.connection().is_some() {
                tokio::task::yield_now().await;
            }
            publish_all(&producer, "data", 50..100).await;
            relay.open();
            while receiver.connection() <= connection {
                tokio::select! {
                    delivery = line.next() => seen.take(delivery.unwrap()),
                    () = tokio::task::yield_now() => {}
                }
            }
            // A temporary session has its subscriptions again behind this.
            receiver.ping().await.unwrap();
            publish_all(&producer, "data", 100..110).await;
            until(&mut line, &mut seen, "all of them", |seen| {
                seen.taken().len() == 110
            })
            .await;
            let (lane, epoch) = (producer.lane(), producer.epoch());
            let absence = line.absence(lane, epoch, &(50..100));
            if is_kept {
                assert_eq!((absence, &*seen.absences), (None, &[][..]), "{kind:?}");
                continue;
            }
            assert_eq!(seen.lost(), (50..100).collect::<Vec<_>>(), "{kind:?}");
            assert_eq!(absence.as_ref(), seen.absences.first(), "{kind:?}");
            let absence = absence.unwrap();
            assert!(absence.from <= absence.until, "{absence:?}");
            let text = absence.to_string();
            assert!(text.starts_with("this listener was not connected from "));
            // What comes in its turn behind it is no longer missed for that reason.
            assert_eq!(line.absence(lane, epoch, &(0..50)), None);
            assert_eq!(line.absence(lane, epoch, &(100..200)), None);
        }
    }
}

#[tokio::test]
async fn what_an_epoch_lost_that_began_while_the_subscriber_was_away_is_explained_by_that() {
    for kind in Kind::installed() {
        let broker = Broker::start(kind);
        let relay = Relay::to(broker.address()).await;
        let mine = options(relay.address(), "c").session(Session::Temporary);
        let receiver = connect(mine).await;
        let line = subscriber("data").scope(Scope::FromBeginning);
        let mut line = line.open(&receiver).await.unwrap();
        let sender = connect(options(broker.address(), "a")).await;
        let before = publisher(1).open_unspooled(&sender).await.unwrap();
        let mut seen = Seen::default();
        publish_all(&before, "data", 0..10).await;
        until(&mut line, &mut seen, "the first", |seen| {
            seen.messages.len() == 10
        })
        .await;
        let connection = receiver.connection();
        relay.close();
        while receiver.connection().is_some() {
            tokio::task::yield_now().await;
        }
        let producer = publisher(1).open_unspooled(&sender).await.unwrap();
        publish_all(&producer, "data", 0..20).await;
        relay.open();
        while receiver.connection() <= connection {
            tokio::select! {
                delivery = line.next() => seen.take(delivery.unwrap()),
                () = tokio::task::yield_now() => {}
            }
        }
        receiver.ping().await.unwrap();
        publish_all(&producer, "data", 20..30).await;
        until(&mut line, &mut seen, "all of them", |seen| {
            seen.taken().len() == 40
        })
        .await;
        assert_eq!(seen.lost(), (0..20).collect::<Vec<_>>(), "{kind:?}");
        let (lane, epoch) = (producer.lane(), producer.epoch());
        let absence = line.absence(lane, epoch, &(0..20));
        assert!(absence.is_some(), "{kind:?}");
        assert_eq!(absence.as_ref(), seen.absences.first(), "{kind:?}");
        assert_eq!(line.absence(lane, epoch, &(20..30)), None);
    }
}
