//! Messages that a subscriber did not ask for, sent to where it hears answers.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::time::Duration;

use support::broker::{Broker, Kind};
use support::line::{
    Seen, connect, keyed, lane, publish_all, publisher, subscriber, until, until_proven,
};
use support::options;
use unbroken_client::audit::Scope;
use unbroken_client::{Message, TotalDuration};
use unbroken_merkle_log::ledger::Verdict;
use unbroken_merkle_log::{Hasher, Property};
use xxhash_rust::xxh3::xxh3_128;

#[tokio::test]
async fn what_was_not_asked_for_is_injected_and_not_handed_on() {
    for hasher in [Hasher::xxh3(), keyed(1)] {
        let broker = Broker::start(Kind::Unbroken);
        let receiver = connect(options(broker.address(), "c")).await;
        let line = subscriber("data/#").scope(Scope::FromBeginning);
        let mut line = line.hasher(hasher.clone()).open(&receiver).await.unwrap();
        let sender = connect(options(broker.address(), "a")).await;
        let producer = publisher(1).hasher(hasher.clone());
        let producer = producer.open_unspooled(&sender).await.unwrap();
        publish_all(&producer, "data/1", 0..10).await;
        let mut seen = Seen::default();
        until(&mut line, &mut seen, "ten", |seen| {
            seen.messages.len() == 10
        })
        .await;
        // Each fits its stamp: recorded elsewhere, or forged where there is no key.
        let hostile = connect(options(broker.address(), "hostile")).await;
        let answer = format!("audit/answer/{:032x}", xxh3_128(b"c\0data/#"));
        for (id, number, topic) in [
            (1, 10, "data/1"),
            (1, 3, "other"),
            (1, 10, "other"),
            (2, 0, "data/2"),
            (2, 1, "other"),
        ] {
            let (epoch, bytes) = (producer.epoch(), topic.as_bytes());
            let stamp = Property::stamp(&hasher, lane(id), epoch, number, bytes, b"x");
            let message = Message::new(&*answer, *b"x").unwrap();
            let message = message.user_property(Property::NAME, &stamp.to_text());
            let message = message.unwrap().user_property("audit-topic", topic);
            hostile.publish(message.unwrap()).await.unwrap();
        }
        publish_all(&producer, "data/1", 10..20).await;
        producer.close(TotalDuration(Duration::ZERO)).await.unwrap();
        until_proven(&mut line, &mut seen, 20).await;
        let injected = [10, 3, 10, 0, 1].map(|number| (number, Verdict::Injected));
        assert_eq!(seen.faults(), injected);
        assert_eq!(seen.taken().len(), 20);
    }
}
