//! A session that the broker keeps: which subscriptions it has when its client comes back.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::sync::{Arc, Mutex};

use support::broker::{Broker, Kind};
use support::relay::{Fate, Relay};
use support::{options, within};
use unbroken_client::{Acknowledging, Client, Filter, Limits, Message, Options, Session, Version};

const VERSIONS: [Version; 3] = [Version::V3_1, Version::V3_1_1, Version::V5];

fn message(topic: &str, text: &str) -> Message {
    Message::new(topic, text.as_bytes()).unwrap()
}

fn filter(text: &str) -> Filter {
    Filter::new(text).unwrap()
}

async fn connect(options: Options) -> Client {
    within("a connection", options.connect()).await.unwrap()
}

/// The client ends in the middle of something, say with `?`: its subscription is dropped first.
#[tokio::test]
async fn a_dropped_subscription_of_a_kept_session_goes_on_at_the_broker() {
    for kind in Kind::installed() {
        let broker = Broker::start(kind);
        for version in VERSIONS {
            let id = format!("kept-{version}");
            let session = Session::Kept { expiry_s: 60 };
            let relay = Relay::to(broker.address()).await;
            let ends = Arc::new(Mutex::new(0));
            let counted = Arc::clone(&ends);
            relay.inject_to_broker(move |packet| {
                *counted.lock().unwrap() += usize::from(packet[0] >> 4 == UNSUBSCRIBE);
                Fate::pass(packet)
            });
            let mine = || {
                options(relay.address(), &id)
                    .version(version)
                    .session(session)
            };
            let sender = connect(options(broker.address(), "sender")).await;
            let client = connect(mine()).await;
            let waiting = vec![filter(&id)];
            let waiting = client.subscribe_all(waiting, Acknowledging::ByHand);
            let waiting = waiting.await.unwrap();
            sender.publish(message(&id, "waits")).await.unwrap();
            client.ping().await.unwrap();
            drop(waiting);
            client.ping().await.unwrap();
            sender.publish(message(&id, "unread")).await.unwrap();
            client.ping().await.unwrap();
            client.disconnect().await;
            sender.publish(message(&id, "away")).await.unwrap();

            let client = connect(mine()).await;
            let mut subscription = client.subscribe(filter(&id)).await.unwrap();
            for text in ["waits", "unread", "away"] {
                let what = format!("{text} of {kind:?}, {version}");
                let received = within(&what, subscription.recv()).await.unwrap();
                assert_eq!(received.payload(), text.as_bytes(), "{what}");
            }
            assert_eq!(*ends.lock().unwrap(), 0, "{kind:?} {version}");

            // What is asked for is done.
            subscription.unsubscribe().await.unwrap();
            assert_eq!(*ends.lock().unwrap(), 1, "{kind:?} {version}");
            client.disconnect().await;
            sender.publish(message(&id, "later")).await.unwrap();
            let client = connect(mine()).await;
            let mut subscription = client.subscribe(filter(&id)).await.unwrap();
            client.ping().await.unwrap();
            assert!(subscription.try_recv().is_none(), "{kind:?} {version}");
            client.disconnect().await;
        }
    }
}

/// A filter that is subscribed to again, by the same client, has a reader again.
#[tokio::test]
async fn a_dropped_subscription_of_a_kept_session_is_taken_up_again() {
    for kind in Kind::installed() {
        let broker = Broker::start(kind);
        let session = Session::Kept { expiry_s: 60 };
        let mut limits = Limits::default();
        limits.receive_maximum = 8;
        let mine = options(broker.address(), "again").session(session);
        let client = connect(mine.limits(limits)).await;
        drop(client.subscribe(filter("a/+")).await.unwrap());
        let mut subscription = client.subscribe(filter("a/+")).await.unwrap();
        for number in 0..32 {
            let text = number.to_string();
            client.publish(message("a/b", &text)).await.unwrap();
            let received = within(&text, subscription.recv()).await.unwrap();
            assert_eq!(received.payload(), text.as_bytes(), "{kind:?}");
        }
        assert_eq!(client.connection(), Some(1), "{kind:?}");
    }
}

/// Its first byte without flags.
const UNSUBSCRIBE: u8 = 10;
