//! What an operator asks of shards, and has them do.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod shard_bus;

use std::collections::BTreeSet;

use shard_bus::{Broker, join, stay, subscribe};
use unbroken_broker_core::{
    ClientInfo, DropReason, Input, Limits, Operation, OwnMessage, Page, Place, Settings, Shard,
    Wanted, WantedSubscriptions,
};
use unbroken_mqtt_proto::{QoS, ReasonCode};

fn durable(shards: u8) -> Broker {
    let mut settings = Settings::default();
    settings.durable = true;
    Broker::with(shards, Limits::default(), settings)
}

fn message(topic: &str, qos: QoS, retain: bool) -> OwnMessage {
    OwnMessage {
        topic: topic.into(),
        payload: b"x"[..].into(),
        qos,
        retain,
    }
}

fn operate(broker: &mut Broker, shard: usize, operation: Operation) {
    broker.input(shard, Input::Operator(operation));
}

/// All pages of all shards, of so many entries each; none has more.
fn all<T>(broker: &Broker, most: usize, ask: impl Fn(&Shard, Place, usize) -> Page<T>) -> Vec<T> {
    let mut entries = Vec::new();
    for shard in &broker.shards {
        let mut next = Some(Place::default());
        while let Some(place) = next {
            let page = ask(shard, place, most);
            assert!(page.entries.len() <= most);
            entries.extend(page.entries);
            next = page.next;
        }
    }
    entries
}

fn connected(shard: &Shard, from: Place, most: usize) -> Page<ClientInfo> {
    shard.connected_clients(&Wanted::default(), from, most)
}

fn of(client_id: Option<&str>) -> WantedSubscriptions {
    WantedSubscriptions {
        client_id: client_id.map(Into::into),
        ..WantedSubscriptions::default()
    }
}

#[test]
fn a_client_that_stays_is_on_one_page_whatever_its_size() {
    for (shards, most) in [(1, 1), (1, 7), (3, 2), (3, 1_000)] {
        let mut broker = Broker::new(shards);
        let mut clients = Vec::new();
        for n in 0..30 {
            let client = join(&mut broker, &format!("c{n}"));
            for filter in 0..n % 5 {
                subscribe(
                    &mut broker,
                    client,
                    &format!("{n}/{filter}"),
                    QoS::ExactlyOnce,
                );
            }
            clients.push(client);
        }
        for client in clients.iter().step_by(3) {
            broker.cut(*client);
        }
        let clients = all(&broker, most, connected);
        let names: BTreeSet<_> = clients.iter().map(|it| &*it.client_id).collect();
        assert_eq!((clients.len(), names.len()), (20, 20));
        let sessions = all(&broker, most, |shard, from, most| {
            shard.sessions(&Wanted::default(), from, most)
        });
        assert_eq!(sessions.len(), 20);
        assert!(sessions.iter().all(|it| it.is_connected));
        let subscriptions = all(&broker, most, |shard, from, most| {
            shard.subscriptions(&of(None), from, most)
        });
        let filters: BTreeSet<_> = subscriptions.iter().map(|it| &*it.filter).collect();
        let expected = (0..30).filter(|n| n % 3 != 0).map(|n| n % 5).sum::<usize>();
        assert_eq!((subscriptions.len(), filters.len()), (expected, expected));
        assert!(subscriptions.iter().all(|it| it.qos == QoS::ExactlyOnce));
        let of_one = all(&broker, most, |shard, from, most| {
            shard.subscriptions(&of(Some("c4")), from, most)
        });
        assert_eq!(of_one.len(), 4);
        assert!(of_one.iter().all(|it| &*it.client_id == "c4"));
        let of_nobody = all(&broker, most, |shard, from, most| {
            shard.subscriptions(&of(Some("nobody")), from, most)
        });
        assert_eq!(of_nobody, []);
    }
}

#[test]
fn a_session_whose_client_is_away_is_listed_as_such() {
    let mut broker = durable(1);
    let client = stay(&mut broker, "sleeper", false);
    broker.stored();
    subscribe(&mut broker, client, "a", QoS::AtLeastOnce);
    broker.stored();
    broker.cut(client);
    operate(
        &mut broker,
        0,
        Operation::Publish(message("a", QoS::AtLeastOnce, false)),
    );
    broker.stored();
    let sessions = all(&broker, 10, |shard, from, most| {
        shard.sessions(&Wanted::default(), from, most)
    });
    let [session] = &sessions[..] else {
        panic!("{sessions:?}");
    };
    assert!(!session.is_connected && session.expiry_s > 0);
    assert_eq!((session.subscriptions, session.queued), (1, 1));
    assert_eq!(all(&broker, 10, connected), []);
    assert_eq!(broker.shards[0].audit_imbalance(), 0);
}

#[test]
fn a_client_that_an_operator_disconnects_is_told_why_and_keeps_its_session() {
    for shards in [1, 3] {
        let mut broker = durable(shards);
        let client = stay(&mut broker, "it", false);
        let other = join(&mut broker, "other");
        broker.stored();
        broker.take(client);
        let client_id = "it".into();
        let disconnect = Operation::Disconnect { client_id };
        let here = broker.shards.iter().filter(|it| it.is_connected("it"));
        assert_eq!(here.count(), 1);
        for shard in 0..usize::from(shards) {
            operate(&mut broker, shard, disconnect.clone());
        }
        let said = broker.take(client);
        let reason = format!("{:?}", ReasonCode::AdministrativeAction);
        assert!(
            said[0].starts_with("DISCONNECT"),
            "{said:?} is not {reason}"
        );
        assert!(!broker.is_open(client) && broker.is_open(other));
        assert!(!broker.shards.iter().any(|it| it.is_connected("it")));
        let again = stay(&mut broker, "it", false);
        broker.stored();
        let connack = broker.take(again).remove(0);
        assert!(connack.starts_with("CONNACK 1"), "{connack}");
    }
}

#[test]
fn what_an_operator_publishes_is_delivered_stored_and_retained_like_any_message() {
    for shards in [1, 3] {
        let mut broker = durable(shards);
        let client = stay(&mut broker, "it", false);
        broker.stored();
        subscribe(&mut broker, client, "a/#", QoS::AtLeastOnce);
        broker.stored();
        broker.take(client);
        broker.take_asked();
        operate(
            &mut broker,
            0,
            Operation::Publish(message("a/b", QoS::AtLeastOnce, true)),
        );
        broker.stored();
        let got = broker.take_publishes(client);
        assert_eq!(got.len(), 1, "{shards} shards");
        assert_eq!((&*got[0].topic, &got[0].payload[..]), ("a/b", &b"x"[..]));
        let asked = broker.take_asked();
        assert!(asked.iter().any(|it| it.contains("a/b")), "{asked:?}");
        let late = join(&mut broker, "late");
        subscribe(&mut broker, late, "a/b", QoS::AtMostOnce);
        assert_eq!(broker.take_payloads(late), [b"x".to_vec()]);
        for shard in &broker.shards {
            assert_eq!(shard.audit_imbalance(), 0);
        }
    }
}

#[test]
fn what_may_not_be_published_or_cannot_be_stored_is_refused() {
    let mut broker = durable(1);
    let client = join(&mut broker, "it");
    subscribe(&mut broker, client, "#", QoS::AtMostOnce);
    broker.take(client);
    let long = "a".repeat(usize::from(Limits::default().topic_bytes_max) + 1);
    let qos = QoS::AtMostOnce;
    for topic in ["", "a/+", "#", "$SYS/broker/uptime", "$audit/x", &long] {
        let message = message(topic, qos, false);
        let refused = broker.shards[0].refuses(&message);
        assert_eq!(refused, Some(DropReason::NotAuthorized), "{topic:.20}");
        operate(&mut broker, 0, Operation::Publish(message));
    }
    broker.store_failed("a test");
    for (qos, retain, refused) in [
        (QoS::AtMostOnce, false, None),
        (QoS::AtLeastOnce, false, Some(DropReason::StoreFailed)),
        (QoS::AtMostOnce, true, Some(DropReason::StoreFailed)),
    ] {
        let message = message("a", qos, retain);
        assert_eq!(broker.shards[0].refuses(&message), refused);
        operate(&mut broker, 0, Operation::Publish(message));
    }
    assert_eq!(broker.take_publishes(client).len(), 1);
}

#[test]
fn only_what_is_wanted_is_on_the_pages() {
    let mut broker = Broker::new(2);
    let mut clients = Vec::new();
    for n in 0..30 {
        let client = stay(&mut broker, &format!("c{n}"), true);
        subscribe(&mut broker, client, &format!("{n}/+"), QoS::AtLeastOnce);
        subscribe(&mut broker, client, "all/#", QoS::AtMostOnce);
        clients.push(client);
    }
    for client in clients.iter().step_by(3) {
        broker.cut(*client);
    }
    let wanted = |search: Option<&str>, is_connected| Wanted {
        search: search.map(Into::into),
        is_connected,
        ..Wanted::default()
    };
    let sessions = |wanted: &Wanted| {
        let found = all(&broker, 4, |shard, from, most| {
            shard.sessions(wanted, from, most)
        });
        found.len()
    };
    assert_eq!(sessions(&wanted(Some("c1"), None)), 11);
    assert_eq!(sessions(&wanted(None, Some(false))), 10);
    assert_eq!(sessions(&wanted(Some("c2"), Some(true))), 8);
    assert_eq!(sessions(&wanted(Some("d"), None)), 0);
    let nobody = Wanted {
        user: Some("nobody".into()),
        ..Wanted::default()
    };
    assert_eq!(sessions(&nobody), 0);
    let subscriptions = |topic: Option<&str>, filter: Option<&str>| {
        let wanted = WantedSubscriptions {
            client_id: None,
            filter: filter.map(Into::into),
            topic: topic.map(Into::into),
        };
        let found = all(&broker, 4, |shard, from, most| {
            shard.subscriptions(&wanted, from, most)
        });
        found.len()
    };
    assert_eq!(subscriptions(Some("7/x"), None), 1);
    assert_eq!(subscriptions(Some("all/x/y"), None), 30);
    assert_eq!(subscriptions(None, Some("all/#")), 30);
    assert_eq!(subscriptions(Some("7/x"), Some("all/#")), 0);
    let shown = broker.shards.iter().find_map(|shard| shard.session("c3"));
    let shown = shown.unwrap();
    assert_eq!((shown.subscriptions, shown.is_connected), (2, false));
    assert!(shown.away_since.is_some());
    let known = |id| {
        broker
            .shards
            .iter()
            .any(|it| it.connected_client(id).is_some())
    };
    assert!(known("c1") && !known("c3") && !known("nobody"));
}
