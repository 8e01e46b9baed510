//! A publisher that knows nothing of the audit, stamped by the broker: who receives the stamps
//! proves its lane from the broker on.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use support::broker::Broker;
use support::line::{Fault, Seen, connect, inject, numbered, subscriber, until, until_proven};
use support::relay::Relay;
use support::{options, within};
use unbroken_client::audit::Scope;
use unbroken_client::{QoS, Session, Version};

const CONFIG: &str = "[[audit.rule]]\nclient = \"device\"\nforward_stamp = true\n";

#[tokio::test]
async fn what_a_plain_device_publishes_is_proven_from_the_broker_to_its_end() {
    let broker = Broker::configured(CONFIG);
    for (version, qos) in [
        (Version::V3_1_1, QoS::AtLeastOnce),
        (Version::V5, QoS::AtMostOnce),
    ] {
        let receiver = connect(options(broker.address(), "c")).await;
        let line = subscriber("data/#").scope(Scope::FromBeginning);
        let mut line = line.open(&receiver).await.unwrap();
        let device = options(broker.address(), "device").version(version);
        let device = connect(device.session(Session::Temporary)).await;
        let mut receipts = Vec::new();
        for number in 0..1_500 {
            let message = numbered("data/1", number).qos(qos);
            receipts.push(within("room", device.send(message)).await.unwrap());
        }
        for receipt in receipts {
            within("an answer", receipt.acknowledged()).await.unwrap();
        }
        device.disconnect().await;
        let mut seen = Seen::default();
        until_proven(&mut line, &mut seen, 1_500).await;
        assert_eq!((seen.faults(), seen.lost()), (vec![], vec![]));
        assert_eq!(seen.messages.len(), 1_500);
        receiver.disconnect().await;
    }
}

#[tokio::test]
async fn what_is_lost_behind_the_broker_is_named_and_cannot_come_again() {
    let broker = Broker::configured(CONFIG);
    let relay = Relay::to(broker.address()).await;
    inject(&relay, "data", vec![(5, Fault::Lose), (9, Fault::Alter)]);
    let receiver = connect(options(relay.address(), "c")).await;
    let line = subscriber("data").scope(Scope::FromBeginning);
    let mut line = line.open(&receiver).await.unwrap();
    let device = connect(options(broker.address(), "device")).await;
    for number in 0..100 {
        device.publish(numbered("data", number)).await.unwrap();
    }
    let mut seen = Seen::default();
    until(&mut line, &mut seen, "the loss", |seen| {
        !seen.lost().is_empty()
    })
    .await;
    assert_eq!(seen.lost(), [5]);
    let altered: Vec<u64> = seen.faults().iter().map(|(number, _)| *number).collect();
    assert!(altered.contains(&9), "{altered:?}");
}

#[tokio::test]
async fn what_waits_when_the_broker_is_killed_is_proven_behind_it() {
    for stays in [true, false] {
        let mut broker = Broker::durable(CONFIG);
        let kept = Session::Kept { expiry_s: 3_600 };
        let line = || subscriber("data/#").scope(Scope::FromBeginning);
        let receiver = connect(options(broker.address(), "c").session(kept)).await;
        let before = line().open(&receiver).await.unwrap();
        receiver.disconnect().await;
        drop(before); // one that is dropped before unsubscribes
        let session = [Session::Temporary, kept][usize::from(stays)];
        let device = connect(options(broker.address(), "device").session(session)).await;
        for number in 0..10 {
            device.publish(numbered("data/1", number)).await.unwrap();
        }
        broker.kill_and_start_again();
        let receiver = connect(options(broker.address(), "c").session(kept)).await;
        let mut line = line().open(&receiver).await.unwrap();
        let mut seen = Seen::default();
        until_proven(&mut line, &mut seen, 10).await;
        assert_eq!((seen.faults(), seen.lost()), (vec![], vec![]));
        assert_eq!(seen.messages.len(), 10);
        assert!(seen.cut && !seen.closed, "how far it went is not known");
        // What it publishes then is of a later epoch, whole from its beginning.
        let device = connect(options(broker.address(), "device").session(session)).await;
        device.publish(numbered("data/1", 10)).await.unwrap();
        let more = "the next";
        until(&mut line, &mut seen, more, |seen| seen.messages.len() == 11).await;
        assert_eq!(seen.messages[10].0, 0, "its number");
        device.disconnect().await;
        receiver.disconnect().await;
    }
}
