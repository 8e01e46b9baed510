//! The plain client against real brokers: ours and Mosquitto, 5.0 and 3.1.1.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "../support/mod.rs"]
mod support;

mod connections;

use std::collections::BTreeSet;
use std::time::Duration;

use support::broker::{Broker, Kind};
use support::relay::{Fate, Relay};
use support::{options, within};
use unbroken_client::{
    Acknowledged, Acknowledging, Client, ConnectError, ConnectTo, Event, Filter, Limits, Message,
    Options, PublishError, QoS, RetainHandling, RetryDuration, Session, SubscribeError, TakenOver,
    TotalDuration, TrySendError, Version,
};

const VERSIONS: [Version; 2] = [Version::V5, Version::V3_1_1];

fn message(topic: &str, text: &str) -> Message {
    Message::new(topic, text.as_bytes()).unwrap()
}

fn filter(text: &str) -> Filter {
    Filter::new(text).unwrap()
}

async fn connect(options: Options) -> Client {
    within("a connection", options.connect()).await.unwrap()
}

#[tokio::test]
async fn messages_of_every_qos_arrive_once_and_in_order() {
    for kind in Kind::installed() {
        let broker = Broker::start(kind);
        for version in VERSIONS {
            let receiver = connect(options(broker.address(), "receiver").version(version)).await;
            let sender = connect(options(broker.address(), "sender").version(version)).await;
            let mut subscription = receiver.subscribe(filter("a/+")).await.unwrap();
            for qos in [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce] {
                let mut receipts = Vec::new();
                for number in 0..300 {
                    let message = message("a/b", &number.to_string()).qos(qos);
                    receipts.push(sender.send(message).await.unwrap());
                }
                for receipt in receipts {
                    let expect = match qos {
                        QoS::AtMostOnce => Acknowledged::Sent,
                        _ => Acknowledged::Taken,
                    };
                    let got = within("an acknowledgement", receipt.acknowledged()).await;
                    assert_eq!(got.unwrap(), expect, "{kind:?} {version} {qos}");
                }
                for number in 0..300 {
                    let received = within("a message", subscription.recv()).await.unwrap();
                    let text = std::str::from_utf8(received.payload()).unwrap();
                    assert_eq!(text, number.to_string(), "{kind:?} {version} {qos}");
                    assert_eq!((received.qos(), received.topic()), (qos, "a/b"));
                }
                assert!(subscription.try_recv().is_none());
            }
        }
    }
}

#[tokio::test]
async fn properties_of_a_message_reach_its_receiver() {
    for kind in Kind::installed() {
        let broker = Broker::start(kind);
        let client = connect(options(broker.address(), "one")).await;
        let mut subscription = client.subscribe(filter("a")).await.unwrap();
        let sent = message("a", "x")
            .user_property("colour", "red")
            .and_then(|message| message.user_property("colour", "blue"))
            .and_then(|message| message.response_topic("b"))
            .and_then(|message| message.correlation_data(&[7]))
            .and_then(|message| message.expiry_s(60));
        client.publish(sent.unwrap()).await.unwrap();
        let received = within("the message", subscription.recv()).await.unwrap();
        let colours: Vec<_> = received.user_properties("colour").collect();
        assert_eq!(colours, ["red", "blue"]);
        assert_eq!(received.properties().response_topic(), Some("b"));
        assert_eq!(received.properties().correlation_data(), Some(&[7][..]));
    }
}

#[tokio::test]
async fn overlapping_filters_bring_each_message_once_and_each_subscription_its_own() {
    for kind in Kind::installed() {
        let broker = Broker::start(kind);
        for version in VERSIONS {
            let client = connect(options(broker.address(), "overlap").version(version)).await;
            let filters = vec![filter("a/#"), filter("a/+"), filter("+/b")];
            let mut wide = client
                .subscribe_all(filters, Acknowledging::Automatic)
                .await
                .unwrap();
            let mut narrow = client.subscribe(filter("a/b")).await.unwrap();
            for text in ["1", "2", "end"] {
                client.publish(message("a/b", text)).await.unwrap();
            }
            for subscription in [&mut wide, &mut narrow] {
                for text in ["1", "2", "end"] {
                    let received = within("a message", subscription.recv()).await.unwrap();
                    assert_eq!(received.payload(), text.as_bytes(), "{kind:?} {version}");
                }
            }
            client.ping().await.unwrap();
            assert!(wide.try_recv().is_none() && narrow.try_recv().is_none());
        }
    }
}

#[tokio::test]
async fn what_was_under_way_when_the_connection_broke_arrives_in_order() {
    for kind in Kind::installed() {
        let broker = Broker::start(kind);
        for version in VERSIONS {
            let relay = Relay::to(broker.address()).await;
            let receiver = connect(options(broker.address(), "receiver").version(version)).await;
            let mut subscription = receiver.subscribe(filter("q")).await.unwrap();
            let session = Session::Kept { expiry_s: 60 };
            let id = format!("sender-{version}");
            let sender = options(relay.address(), &id)
                .version(version)
                .session(session);
            let sender = connect(sender).await;
            for qos in [QoS::AtLeastOnce, QoS::ExactlyOnce] {
                let mut receipts = Vec::new();
                for number in 0..500 {
                    if number % 100 == 50 {
                        relay.cut();
                    }
                    let message = message("q", &number.to_string()).qos(qos);
                    receipts.push(sender.send(message).await.unwrap());
                }
                for receipt in receipts {
                    within("an acknowledgement", receipt.acknowledged())
                        .await
                        .unwrap();
                }
                // QoS 1 may come more than once; first arrivals are in order.
                let (mut next, mut all) = (0, 0);
                while next < 500 {
                    let received = within("a message", subscription.recv()).await.unwrap();
                    let number: u32 = std::str::from_utf8(received.payload())
                        .unwrap()
                        .parse()
                        .unwrap();
                    assert!(
                        number <= next,
                        "{kind:?} {version} {qos}: {number} before {next}"
                    );
                    next += u32::from(number == next);
                    all += 1;
                }
                assert!(
                    qos == QoS::AtLeastOnce || all == 500,
                    "{kind:?} {version}: {all}"
                );
                // What is still to come of this round is a repetition.
                receiver.ping().await.unwrap();
                while subscription.try_recv().is_some() {}
            }
        }
    }
}

#[tokio::test]
async fn a_broker_that_lost_everything_is_subscribed_to_again_and_gets_what_it_did_not_take() {
    for kind in Kind::installed() {
        let mut broker = Broker::start(kind);
        let client = connect(options(broker.address(), "survivor")).await;
        let mut events = client.events();
        let mut subscription = client.subscribe(filter("a")).await.unwrap();
        broker.kill();
        let receipt = client
            .try_send(message("a", "kept").qos(QoS::ExactlyOnce))
            .unwrap();
        broker.kill_and_start_anew();
        within("an acknowledgement", receipt.acknowledged())
            .await
            .unwrap();
        let received = within("the message", subscription.recv()).await.unwrap();
        assert_eq!(received.payload(), b"kept");
        let mut seen = Vec::new();
        while !matches!(seen.last(), Some(Event::Connected { .. })) {
            seen.push(within("an event", events.next()).await.unwrap());
        }
        assert!(
            matches!(seen.first(), Some(Event::Disconnected { .. })),
            "{seen:?}"
        );
    }
}

#[tokio::test]
async fn a_message_that_is_not_acknowledged_by_hand_comes_again() {
    for kind in Kind::installed() {
        let broker = Broker::start(kind);
        for version in VERSIONS {
            for qos in [QoS::AtLeastOnce, QoS::ExactlyOnce] {
                let id = format!("hand-{version}-{qos}");
                let session = Session::Kept { expiry_s: 60 };
                let mine = || {
                    options(broker.address(), &id)
                        .version(version)
                        .session(session)
                };
                let by_hand = || (vec![filter(&id)], Acknowledging::ByHand);
                let client = connect(mine()).await;
                let (filters, acknowledging) = by_hand();
                let mut subscription = client.subscribe_all(filters, acknowledging).await.unwrap();
                for text in ["first", "second"] {
                    client.publish(message(&id, text).qos(qos)).await.unwrap();
                }
                let first = within("the first", subscription.recv()).await.unwrap();
                let second = within("the second", subscription.recv()).await.unwrap();
                assert_eq!(
                    (first.payload(), second.payload()),
                    (&b"first"[..], &b"second"[..])
                );
                first.acknowledge();
                client.ping().await.unwrap();
                // As a process that is killed: no goodbye, and the session stays.
                let address = broker.address();
                client.clone().disconnect().await;
                drop((second, subscription, client));

                let client = connect(mine()).await;
                let (filters, acknowledging) = by_hand();
                let mut subscription = client.subscribe_all(filters, acknowledging).await.unwrap();
                let again = within("the second again", subscription.recv())
                    .await
                    .unwrap();
                assert_eq!(
                    again.payload(),
                    b"second",
                    "{kind:?} {version} {qos} {address}"
                );
                again.acknowledge();
                client.ping().await.unwrap();
                assert!(subscription.try_recv().is_none());
            }
        }
    }
}

#[tokio::test]
async fn an_unacknowledged_message_holds_up_no_other_subscription() {
    for kind in Kind::installed() {
        let broker = Broker::start(kind);
        for session in [Session::Temporary, Session::Kept { expiry_s: 60 }] {
            let mut limits = Limits::default();
            limits.receive_maximum = 8;
            let of_session = |id: &str| options(broker.address(), id).session(session);
            let client = connect(of_session("two").limits(limits)).await;
            let sender = connect(options(broker.address(), "sender")).await;
            let mut read = client.subscribe(filter("read")).await.unwrap();
            let filters = |text| (vec![filter(text)], Acknowledging::ByHand);
            let (unread, by_hand) = filters("unread");
            let unread = client.subscribe_all(unread, by_hand).await.unwrap();
            let (ended, by_hand) = filters("ended");
            let ended = client.subscribe_all(ended, by_hand).await.unwrap();
            let (dropped, by_hand) = filters("dropped");
            let mut dropped = client.subscribe_all(dropped, by_hand).await.unwrap();
            for topic in ["unread", "ended", "dropped"] {
                sender.publish(message(topic, "x")).await.unwrap();
            }
            drop(within("it", dropped.recv()).await.unwrap());
            client.ping().await.unwrap();
            assert_eq!((unread.waiting(), ended.waiting()), (1, 1));
            drop(unread);
            ended.unsubscribe().await.unwrap();
            for number in 0..100 {
                let text = number.to_string();
                sender.publish(message("read", &text)).await.unwrap();
            }
            for number in 0..100 {
                let received = within("a message", read.recv()).await.unwrap();
                assert_eq!(received.payload(), number.to_string().as_bytes());
            }
            assert_eq!(client.connection(), Some(1), "{kind:?} {session:?}");
        }
    }
}

#[tokio::test]
async fn messages_that_are_dropped_come_again_however_many_they_are() {
    for kind in Kind::installed() {
        let broker = Broker::start(kind);
        for version in VERSIONS {
            for qos in [QoS::AtLeastOnce, QoS::ExactlyOnce] {
                let id = format!("dropping-{version}-{qos}");
                let session = Session::Kept { expiry_s: 60 };
                let mut limits = Limits::default();
                limits.receive_maximum = 6;
                let relay = Relay::to(broker.address()).await;
                let client = options(relay.address(), &id).version(version);
                let client = connect(client.session(session).limits(limits)).await;
                let mut events = client.events();
                let subscription = client.subscribe_all(vec![filter(&id)], Acknowledging::ByHand);
                let mut subscription = subscription.await.unwrap();
                let sender = connect(options(broker.address(), "sender")).await;
                let texts: BTreeSet<_> = (0..30).map(|number| number.to_string()).collect();
                for text in &texts {
                    sender.publish(message(&id, text).qos(qos)).await.unwrap();
                }
                let (mut seen, mut taken) = (BTreeSet::new(), BTreeSet::new());
                while taken != texts {
                    let received = within("a message", subscription.recv()).await.unwrap();
                    let text = String::from_utf8(received.payload().to_vec()).unwrap();
                    // Each is dropped the first time.
                    if !seen.insert(text.clone()) {
                        received.acknowledge();
                        taken.insert(text);
                    } else if seen == texts {
                        // The last few are too few for a new connection on their account.
                        relay.cut();
                    }
                }
                let first = within("an event", events.next()).await;
                assert!(
                    matches!(
                        first,
                        Some(Event::Disconnected {
                            why: ConnectError::LeftOpen { count: 3.. }
                        })
                    ),
                    "{kind:?} {version} {qos}: {first:?}"
                );
            }
        }
    }
}

#[tokio::test]
async fn try_send_gives_the_message_back_when_as_many_as_allowed_are_unfinished() {
    let broker = Broker::start(Kind::Unbroken);
    let relay = Relay::to(broker.address()).await;
    let mut limits = Limits::default();
    limits.unfinished_max = 3;
    let client = connect(options(relay.address(), "full").limits(limits)).await;
    relay.close();
    let receipts: Vec<_> = (0..3)
        .map(|_| client.try_send(message("a", "x")).unwrap())
        .collect();
    let refused = client.try_send(message("a", "over")).unwrap_err();
    assert!(matches!(
        refused,
        TrySendError::Full {
            unfinished_max: 3,
            ..
        }
    ));
    assert_eq!(refused.into_message().payload(), b"over");
    relay.open();
    for receipt in receipts {
        within("an acknowledgement", receipt.acknowledged())
            .await
            .unwrap();
    }
    let receipt = client.try_send(message("a", "y")).unwrap();
    within("an acknowledgement", receipt.acknowledged())
        .await
        .unwrap();
}

#[tokio::test]
async fn an_owner_that_reads_nothing_loses_qos_0_by_name_and_nothing_else() {
    let broker = Broker::start(Kind::Unbroken);
    let mut limits = Limits::default();
    limits.qos0_waiting_max = 2;
    let client = connect(options(broker.address(), "slow").limits(limits)).await;
    let mut events = client.events();
    let mut subscription = client.subscribe(filter("a")).await.unwrap();
    for number in 0..5 {
        let qos0 = message("a", &number.to_string()).qos(QoS::AtMostOnce);
        client.publish(qos0).await.unwrap();
        client.publish(message("a", "safe")).await.unwrap();
    }
    client.ping().await.unwrap();
    let mut texts = Vec::new();
    while let Some(received) = subscription.try_recv() {
        texts.push(String::from_utf8(received.unwrap().payload().to_vec()).unwrap());
    }
    assert_eq!(texts, ["0", "safe", "1", "safe", "safe", "safe", "safe"]);
    for _ in 0..3 {
        let event = within("an event", events.next()).await;
        assert!(matches!(event, Some(Event::Dropped { .. })), "{event:?}");
    }
}

#[tokio::test]
async fn a_message_beyond_what_the_broker_takes_is_refused_with_its_size() {
    let broker = Broker::start(Kind::Unbroken);
    let relay = Relay::to(broker.address()).await;
    // CONNACK with Maximum Packet Size 20 and Maximum QoS 1.
    relay.inject_to_client(|packet| match packet.first() {
        Some(0x20) => Fate::pass(&[0x20, 10, 0, 0, 7, 0x27, 0, 0, 0, 20, 0x24, 1]),
        _ => Fate::pass(packet),
    });
    let client = connect(options(relay.address(), "small")).await;
    let refused = client.publish(message("topic", &"x".repeat(20))).await;
    let Err(PublishError::TooLarge { bytes, max: 20, .. }) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!(bytes, 2 + 2 + 5 + 2 + 1 + 20);
    let refused = client
        .publish(message("t", "x").qos(QoS::ExactlyOnce))
        .await;
    assert!(matches!(
        refused,
        Err(PublishError::QosNotSupported {
            max: QoS::AtLeastOnce
        })
    ));
    assert_eq!(
        client.publish(message("t", "x")).await.unwrap(),
        Acknowledged::NoSubscribers
    );
}

// The broker has it, and would take another message with its id for a repetition.
#[tokio::test]
async fn the_id_of_a_message_that_is_too_large_by_now_is_released() {
    let broker = Broker::start(Kind::Unbroken);
    let relay = Relay::to(broker.address()).await;
    let (lost, mut losses) = tokio::sync::mpsc::unbounded_channel();
    relay.inject_to_client(move |packet| match packet.first() {
        Some(0x50) => {
            lost.send(packet.to_vec()).unwrap();
            Fate::default()
        }
        _ => Fate::pass(packet),
    });
    let session = Session::Kept { expiry_s: 60 };
    let client = connect(options(relay.address(), "less").session(session)).await;
    let long = message("topic", &"x".repeat(20)).qos(QoS::ExactlyOnce);
    let receipt = client.send(long).await.unwrap();
    let pubrec = within("PUBREC", losses.recv()).await.unwrap();
    let (released, mut releases) = tokio::sync::mpsc::unbounded_channel();
    relay.inject_to_broker(move |packet| {
        if packet.first() == Some(&0x62) {
            released.send(packet.to_vec()).unwrap();
        }
        Fate::pass(packet)
    });
    // CONNACK with the session present and Maximum Packet Size 20.
    relay.inject_to_client(|packet| match packet.first() {
        Some(0x20) => Fate::pass(&[0x20, 8, 1, 0, 5, 0x27, 0, 0, 0, 20]),
        _ => Fate::pass(packet),
    });
    relay.cut();
    let refused = within("its end", receipt.acknowledged()).await;
    assert!(
        matches!(refused, Err(PublishError::TooLarge { max: 20, .. })),
        "{refused:?}"
    );
    let pubrel = within("PUBREL", releases.recv()).await.unwrap();
    assert_eq!(pubrel[2..4], pubrec[2..4], "its id");
}

#[tokio::test]
async fn what_was_processed_is_said_in_the_acknowledgement_and_stands_in_the_receipt() {
    let broker = Broker::start(Kind::Unbroken);
    let watcher = connect(options(broker.address(), "watcher")).await;
    let sender = connect(options(broker.address(), "sender")).await;
    let mut who = watcher
        .subscribe(filter("$audit/client/sender"))
        .await
        .unwrap();
    let told = within("the lane", who.recv()).await.unwrap();
    let told = String::from_utf8(told.payload().to_vec()).unwrap();
    let (_, lane) = told.split_once("\"lane\":\"").unwrap();
    let receipts = format!("$audit/{}/receipt", &lane[..16]);
    let mut receipts = watcher.subscribe(filter(&receipts)).await.unwrap();
    let receiver = connect(options(broker.address(), "receiver")).await;
    let by_hand = receiver.subscribe_all(vec![filter("a")], Acknowledging::ByHand);
    let mut subscription = by_hand.await.unwrap();
    for qos in [QoS::AtLeastOnce, QoS::ExactlyOnce] {
        for processed in [0, 1] {
            sender.publish(message("a", "x").qos(qos)).await.unwrap();
            let received = within("a message", subscription.recv()).await.unwrap();
            if processed == 1 {
                received.acknowledge_processed();
            } else {
                received.acknowledge();
            }
            let receipt = within("a receipt", receipts.recv()).await.unwrap();
            let receipt = String::from_utf8(receipt.payload().to_vec()).unwrap();
            let expect = format!("\"acknowledged\":1,\"processed\":{processed},");
            assert!(receipt.contains(&expect), "{receipt}");
        }
    }
}

#[tokio::test]
async fn retained_messages_come_as_the_filter_asks() {
    for kind in Kind::installed() {
        let broker = Broker::start(kind);
        let client = connect(options(broker.address(), "keeper")).await;
        client
            .publish(message("r", "old").retained())
            .await
            .unwrap();
        let without = filter("r").retained(RetainHandling::DoNotSend);
        let mut none = client.subscribe(without).await.unwrap();
        client.ping().await.unwrap();
        assert!(none.try_recv().is_none(), "{kind:?}");
        none.unsubscribe().await.unwrap();
        let mut some = client.subscribe(filter("r")).await.unwrap();
        let received = within("the retained message", some.recv()).await.unwrap();
        assert!(received.is_retained());
    }
}

#[tokio::test]
async fn a_filter_beyond_the_limit_is_refused_here() {
    let broker = Broker::start(Kind::Unbroken);
    let mut limits = Limits::default();
    limits.filters_max = 1;
    let client = connect(options(broker.address(), "one").limits(limits)).await;
    let first = client.subscribe(filter("a")).await.unwrap();
    let refused = client.subscribe(filter("b")).await.unwrap_err();
    assert!(matches!(
        refused,
        SubscribeError::TooMany { filters_max: 1 }
    ));
    first.unsubscribe().await.unwrap();
    client.subscribe(filter("b")).await.unwrap();
}

#[tokio::test]
async fn topics_are_named_by_alias_after_the_first_time_and_arrive_whole() {
    for kind in Kind::installed() {
        let broker = Broker::start(kind);
        let relay = Relay::to(broker.address()).await;
        let mut limits = Limits::default();
        limits.topic_aliases_max = 2;
        let receiver = connect(options(broker.address(), "r")).await;
        let mut subscription = receiver.subscribe(filter("#")).await.unwrap();
        let sender = connect(options(relay.address(), "s").limits(limits)).await;
        for round in 0..2 {
            for topic in [
                "long/topic/1",
                "long/topic/2",
                "long/topic/3",
                "long/topic/1",
            ] {
                sender.publish(message(topic, "x")).await.unwrap();
                let received = within("a message", subscription.recv()).await.unwrap();
                assert_eq!(received.topic(), topic, "{kind:?} round {round}");
            }
            relay.cut();
        }
    }
}
