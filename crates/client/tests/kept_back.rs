//! What a limit of the broker's keeps from one receiver: that receiver names each message and why,
//! calls none of them lost, and asks for none.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::time::Duration;

use support::broker::Broker;
use support::line::{Seen, connect, publish_all, publisher, subscriber, until, until_proven};
use support::options;
use support::relay::Relay;
use unbroken_client::audit::Scope;
use unbroken_client::{Session, TotalDuration};

const CONFIG: &str = "[limits]\nqueue_messages_max = 10\n";
/// More than a connection that has just been cut can hold in flight.
const ISSUED: u64 = 3_000;

#[tokio::test]
async fn a_queue_that_overflows_is_named_message_by_message() {
    let broker = Broker::configured(CONFIG);
    let relay = Relay::to(broker.address()).await;
    let away = connect(options(relay.address(), "away")).await;
    let line = subscriber("data").scope(Scope::FromBeginning);
    let mut line = line.open(&away).await.unwrap();
    let here = connect(options(broker.address(), "here")).await;
    let other = subscriber("data").scope(Scope::FromBeginning);
    let mut other = other.open(&here).await.unwrap();
    let sender = connect(options(broker.address(), "sender")).await;
    let lane = publisher(1).open_unspooled(&sender).await.unwrap();
    let mut heard = Seen::default();
    publish_all(&lane, "data", 0..5).await;
    until(&mut other, &mut heard, "5 messages", |heard| {
        heard.messages.len() == 5
    })
    .await;
    // It keeps up, so its queue never fills.
    let other = tokio::spawn(async move {
        until_proven(&mut other, &mut heard, ISSUED).await;
        heard
    });
    relay.close();
    for number in 5..ISSUED {
        publish_all(&lane, "data", number..number + 1).await;
    }
    relay.open();
    let mut seen = Seen::default();
    until(&mut line, &mut seen, "the drops", |seen| {
        !seen.dropped.is_empty()
    })
    .await;
    // Earlier its last checkpoint would have met a full queue as well.
    lane.close(TotalDuration(Duration::ZERO)).await.unwrap();
    until_proven(&mut line, &mut seen, ISSUED).await;
    assert_eq!((seen.lost(), seen.asked), (vec![], 0));
    let arrived = seen.messages.iter().map(|(number, ..)| *number);
    let dropped = seen.dropped.iter().map(|(number, ..)| *number);
    let mut accounted: Vec<u64> = arrived.chain(dropped).collect();
    accounted.sort_unstable();
    accounted.dedup();
    assert_eq!(accounted, (0..ISSUED).collect::<Vec<_>>());
    let why = |(_, reason, by_broker): &(u64, String, bool)| reason == "queue-full" && *by_broker;
    assert!(!seen.dropped.is_empty() && seen.dropped.iter().all(why));
    // Who was there had everything, and hears nothing of what another missed.
    let heard = other.await.unwrap();
    assert_eq!((heard.dropped, heard.asked), (vec![], 0));
}

#[tokio::test]
async fn what_a_full_queue_kept_back_is_named_though_it_comes_before_the_subscription() {
    let broker = Broker::configured(CONFIG);
    let mine = || options(broker.address(), "away").session(Session::Kept { expiry_s: 60 });
    let away = connect(mine()).await;
    let line = subscriber("data").scope(Scope::FromBeginning);
    drop(line.open(&away).await.unwrap());
    let sender = connect(options(broker.address(), "sender")).await;
    let lane = publisher(1).open_unspooled(&sender).await.unwrap();
    away.disconnect().await;
    // One after the other: a broker that is slow to read DISCONNECT has read it before the last.
    for number in 0..300 {
        publish_all(&lane, "data", number..number + 1).await;
    }
    let back = connect(mine()).await;
    // Everything that waited is here, before the first subscription.
    back.ping().await.unwrap();
    let line = subscriber("data").scope(Scope::FromBeginning);
    let mut line = line.open(&back).await.unwrap();
    let mut seen = Seen::default();
    until(&mut line, &mut seen, "the drops", |seen| {
        !seen.dropped.is_empty()
    })
    .await;
    let why = |(_, reason, by_broker): &(u64, String, bool)| reason == "queue-full" && *by_broker;
    assert!(seen.dropped.iter().all(why), "{:?}", seen.dropped);
    assert_eq!(seen.lost(), [0; 0]);
}
