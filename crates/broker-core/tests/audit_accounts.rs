//! How far deliveries have come, for all sessions and for one: stored, sent, acknowledged,
//! processed, or dropped and why.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod shard_bus;

use std::time::Duration;

use shard_bus::{Broker, Client, join, publish, stay, subscribe};
use unbroken_broker_core::{Limits, Settings, Shard};
use unbroken_mqtt_proto::{Ack, Packet, PacketId, Property, PropertyBuf, QoS};

const SHARDS: [u8; 3] = [1, 2, 8];
const SECOND: Duration = Duration::from_secs(1);

fn stored(broker: &Broker) -> u64 {
    broker.shards.iter().map(Shard::audit_stored).sum()
}

#[test]
fn a_delivery_to_a_session_that_stays_is_stored_when_its_message_is_on_disk() {
    for shards in SHARDS {
        let mut settings = Settings::default();
        settings.durable = true;
        let mut broker = Broker::with(shards, Limits::default(), settings);
        let reader = stay(&mut broker, "reader", true);
        broker.stored();
        subscribe(&mut broker, reader, "t", QoS::AtLeastOnce);
        broker.stored();
        let publisher = join(&mut broker, "publisher");
        for id in 1..=3 {
            broker.send(publisher, publish("t", "x", QoS::AtLeastOnce, id));
        }
        assert_eq!(stored(&broker), 0, "{shards} shards, asked for");
        broker.stored();
        // What another shard has on disk is heard of a little later.
        broker.advance(SECOND * 6);
        assert_eq!(stored(&broker), 3, "{shards} shards, on disk");
    }
}

#[test]
fn a_delivery_to_any_other_session_is_stored_when_it_is_in_its_queue() {
    for shards in SHARDS {
        let mut broker = Broker::new(shards);
        let reader = stay(&mut broker, "reader", true);
        subscribe(&mut broker, reader, "t", QoS::AtLeastOnce);
        let publisher = join(&mut broker, "publisher");
        broker.send(publisher, publish("t", "0", QoS::AtMostOnce, 0));
        assert_eq!(stored(&broker), 0, "what needs no queue");
        broker.send(publisher, publish("t", "1", QoS::AtLeastOnce, 1));
        broker.cut(reader);
        broker.send(publisher, publish("t", "2", QoS::AtLeastOnce, 2));
        assert_eq!(stored(&broker), 2);
    }
}

/// The last account that the client was told, or nothing.
fn account(broker: &mut Broker, client: Client) -> Option<String> {
    let told = broker.take_publishes(client).into_iter();
    let mut told = told.filter(|told| told.topic == "$audit/account/reader");
    let last = told.next_back()?;
    Some(String::from_utf8(last.payload).unwrap())
}

#[track_caller]
fn says(account: Option<&String>, parts: &[&str]) {
    let account = account.unwrap();
    for part in parts {
        assert!(account.contains(part), "{part} is not in {account}");
    }
}

#[test]
fn the_account_of_one_session_is_told_while_it_changes() {
    for shards in SHARDS {
        let mut limits = Limits::default();
        limits.queue_messages_max = 1;
        let mut broker = Broker::with(shards, limits, Settings::default());
        let watcher = join(&mut broker, "watcher");
        subscribe(
            &mut broker,
            watcher,
            "$audit/account/reader",
            QoS::AtMostOnce,
        );
        broker.advance(SECOND);
        let nobody = account(&mut broker, watcher);
        says(
            nobody.as_ref(),
            &[r#""client":"reader""#, r#""session":false"#],
        );

        let reader = stay(&mut broker, "reader", true);
        subscribe(&mut broker, reader, "t", QoS::AtLeastOnce);
        let publisher = join(&mut broker, "publisher");
        for id in 1..=2 {
            broker.send(publisher, publish("t", "x", QoS::AtLeastOnce, id));
        }
        let mut properties = PropertyBuf::new();
        let processed = Property::UserProperty("audit", "processed");
        properties.push(processed).unwrap();
        let ack = Ack {
            properties: properties.as_properties(),
            ..Ack::success(PacketId::FIRST)
        };
        broker.send(reader, Packet::PubAck(ack));
        broker.advance(SECOND);
        let there = account(&mut broker, watcher);
        let parts = [
            r#""connected":true,"on_disk":0,"expected":2,"stored":2,"handed_to_network":0,"sent":2,"acknowledged":1"#,
            r#""processed":1,"waiting":0,"in_flight":1"#,
            r#""dropped":{},"windows":{"proven":0,"faulty":0}"#,
        ];
        says(there.as_ref(), &parts);

        broker.advance(SECOND);
        assert_eq!(account(&mut broker, watcher), None, "nothing has changed");
        broker.cut(reader);
        for id in 3..=5 {
            broker.send(publisher, publish("t", "x", QoS::AtLeastOnce, id));
        }
        broker.advance(SECOND);
        let away = account(&mut broker, watcher);
        let parts = [
            r#""connected":false,"on_disk":0,"expected":5,"stored":3"#,
            r#""waiting":1,"in_flight":1"#,
            r#""dropped":{"queue-full":2}"#,
        ];
        says(away.as_ref(), &parts);
        for _ in 0..9 {
            broker.advance(SECOND);
        }
        assert_eq!(account(&mut broker, watcher), None);
        broker.advance(SECOND);
        assert_eq!(account(&mut broker, watcher), away, "for who came later");
    }
}

#[test]
fn a_full_window_of_a_session_is_in_its_account() {
    let mut broker = Broker::new(1);
    let watcher = join(&mut broker, "watcher");
    let filter = "$audit/account/reader";
    subscribe(&mut broker, watcher, filter, QoS::AtMostOnce);
    let reader = join(&mut broker, "reader");
    subscribe(&mut broker, reader, "t", QoS::AtMostOnce);
    let publisher = join(&mut broker, "publisher");
    for _ in 0..1_024 {
        broker.send(publisher, publish("t", "x", QoS::AtMostOnce, 0));
    }
    broker.advance(SECOND);
    let windows = [r#""windows":{"proven":1,"faulty":0}"#];
    says(account(&mut broker, watcher).as_ref(), &windows);
}

#[test]
fn the_accounts_of_all_sessions_are_told_to_who_asks_for_all() {
    for shards in SHARDS {
        let mut broker = Broker::new(shards);
        let watcher = join(&mut broker, "watcher");
        subscribe(&mut broker, watcher, "$audit/account/#", QoS::AtMostOnce);
        let reader = join(&mut broker, "reader");
        join(&mut broker, "a/b");
        let told = |broker: &mut Broker| {
            broker.advance(SECOND);
            let told = broker.take_publishes(watcher).into_iter();
            let others = told.filter(|told| told.topic != "$audit/account/watcher");
            let is_there = |payload: &[u8]| payload.windows(14).any(|it| it == b"\"session\":true");
            let mut told: Vec<_> = others
                .map(|told| (told.topic, is_there(&told.payload)))
                .collect();
            told.sort_unstable();
            told
        };
        let both = ["$audit/account/a/b", "$audit/account/reader"];
        assert_eq!(told(&mut broker), both.map(|of| (of.to_owned(), true)));
        assert_eq!(told(&mut broker), [], "nothing has changed");
        broker.cut(reader);
        let ended = ("$audit/account/reader".to_owned(), false);
        assert_eq!(told(&mut broker), [ended]);
        assert_eq!(told(&mut broker), []);
    }
}
