//! A running broker asked and steered from other threads.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use unbroken_broker::handle::{
    BrokerHandle, ClientInfo, Cursor, Event, EventsError, HandleError, OwnMessage, QoS, Within,
};
use unbroken_broker::{ReloadError, Server};

use crate::client::{Client, Received, subscribe_at};
use crate::restart::{kept, resume};
use crate::{config, start};

/// Long enough on any machine.
const PATIENCE: Duration = Duration::from_mins(1);

const fn within(entries: usize) -> Within {
    Within {
        entries,
        timeout: PATIENCE,
    }
}

/// Asks from another thread.
fn elsewhere<T: Send>(server: &Server, ask: impl FnOnce(BrokerHandle) -> T + Send) -> T {
    let handle = server.handle().clone();
    thread::scope(|scope| scope.spawn(|| ask(handle)).join().unwrap())
}

fn message(topic: &str, payload: &[u8]) -> OwnMessage {
    OwnMessage {
        topic: topic.into(),
        payload: payload.into(),
        qos: QoS::AtMostOnce,
        retain: false,
    }
}

#[test]
fn every_client_session_and_subscription_is_listed_once() {
    const CLIENTS: usize = 300;
    for shards in [1, 3] {
        let (server, address) = start(config(shards));
        let clients: Vec<_> = (0..CLIENTS)
            .map(|n| {
                let mut client = Client::connect(address, &format!("client-{n}"));
                client.subscribe(&format!("to/{n}"));
                client
            })
            .collect();
        let found = elsewhere(&server, |handle| {
            let (mut found, mut from) = (Vec::<ClientInfo>::new(), Some(Cursor::default()));
            while let Some(cursor) = from {
                let listing = handle.clients(cursor, within(70)).unwrap();
                assert!(listing.entries.len() <= 70);
                found.extend(listing.entries);
                from = listing.next;
            }
            found
        });
        let names: BTreeSet<_> = found.iter().map(|it| &*it.client_id).collect();
        assert_eq!((found.len(), names.len()), (CLIENTS, CLIENTS));
        let own = clients[7].stream().local_addr().unwrap();
        let its = found
            .iter()
            .find(|it| &*it.client_id == "client-7")
            .unwrap();
        assert_eq!((its.address, its.listener), (Some(own), 0));

        let handle = server.handle();
        let sessions = handle.sessions(Cursor::default(), within(1_000)).unwrap();
        assert_eq!((sessions.entries.len(), sessions.next), (CLIENTS, None));
        let start = Cursor::default();
        let all = handle.subscriptions(None, start, within(1_000)).unwrap();
        assert_eq!(all.entries.len(), CLIENTS);
        let one = handle.subscriptions(Some("client-7"), start, within(9));
        let filters: Vec<_> = one.unwrap().entries;
        assert_eq!(filters.len(), 1);
        assert_eq!(&*filters[0].filter, "to/7");
        let counters = handle.counters(PATIENCE).unwrap();
        assert_eq!(counters.clients_connected, CLIENTS as u64);
        assert_eq!(counters.subscriptions, CLIENTS as u64);
        assert_eq!(handle.connections(), 300);
    }
}

#[test]
fn a_client_is_disconnected_with_the_reason_and_an_unknown_one_is_reported() {
    let (server, address) = start(config(3));
    let mut clients: Vec<_> = (0..8)
        .map(|n| Client::connect(address, &format!("client-{n}")))
        .collect();
    for (n, client) in clients.iter_mut().enumerate() {
        let name = format!("client-{n}");
        assert!(elsewhere(&server, |it| it.disconnect(&name, PATIENCE)).unwrap());
        match client.receive() {
            Received::Packet(0xe0, body) => assert_eq!(body[0], 0x98),
            other => panic!("no DISCONNECT: {other:?}"),
        }
        assert_eq!(client.receive(), Received::Closed);
    }
    assert!(!server.handle().disconnect("client-0", PATIENCE).unwrap());
}

#[test]
fn messages_of_a_handle_arrive_in_order_and_may_be_retained() {
    for shards in [1, 3] {
        let (server, address) = start(config(shards));
        let mut subscriber = Client::connect(address, "subscriber");
        subscriber.subscribe("news/#");
        elsewhere(&server, |handle| {
            for n in 0..200 {
                let n = format!("{n}");
                handle
                    .publish(message("news/all", n.as_bytes()), PATIENCE)
                    .unwrap();
            }
            let mut last = message("news/last", b"stays");
            last.retain = true;
            handle.publish(last, PATIENCE).unwrap();
        });
        for n in 0..200 {
            let expected = ("news/all".to_owned(), format!("{n}").into_bytes());
            assert_eq!(subscriber.expect_message(), expected);
        }
        let last = ("news/last".to_owned(), b"stays".to_vec());
        assert_eq!(subscriber.expect_message(), last);
        let mut late = Client::connect(address, "late");
        late.subscribe("news/last");
        assert_eq!(late.expect_message(), last);

        let handle = server.handle();
        let wild = handle.publish(message("news/+", b""), PATIENCE);
        assert!(matches!(wild, Err(HandleError::Message(_))), "{wild:?}");
        let ours = handle.publish(message("$SYS/broker/uptime", b""), PATIENCE);
        assert!(matches!(ours, Err(HandleError::Refused(_))), "{ours:?}");
        let large = handle.publish(message("news", &vec![0; 5 << 20]), PATIENCE);
        assert!(matches!(large, Err(HandleError::Message(_))), "{large:?}");
    }
}

#[test]
fn a_message_that_is_published_has_been_stored() {
    let directory = tempfile::tempdir().unwrap();
    let (server, address) = start(kept(1, directory.path()));
    let mut session = Client::open(address);
    resume(&mut session, "sleeper");
    session.send(&subscribe_at("news", 1));
    assert!(matches!(session.receive(), Received::Packet(0x90, _)));
    drop(session);
    let mut news = message("news", b"for later");
    news.qos = QoS::AtLeastOnce;
    elsewhere(&server, |handle| handle.publish(news, PATIENCE)).unwrap();
    drop(server);
    let (_server, address) = start(kept(1, directory.path()));
    let mut session = Client::open(address);
    assert!(resume(&mut session, "sleeper"));
    match session.receive() {
        // The broker may have sent it before it saw the connection end.
        Received::Packet(0x32 | 0x3a, body) => assert!(body.ends_with(b"for later")),
        other => panic!("{other:?}"),
    }
}

#[test]
fn events_are_received_and_those_without_room_are_counted() {
    let (server, address) = start(config(3));
    let events = server.handle().events(1_000).unwrap();
    let narrow = server.handle().events(1).unwrap();
    let names: BTreeSet<_> = (0..20).map(|n| format!("client-{n}")).collect();
    let clients: Vec<_> = names
        .iter()
        .map(|it| Client::connect(address, it))
        .collect();
    let found = elsewhere(&server, |_| {
        let mut found = BTreeSet::new();
        while found.len() < names.len() {
            if let Event::Connected { client_id, .. } = events.next(PATIENCE).unwrap() {
                found.insert(client_id.to_string());
            }
        }
        (found, events)
    });
    assert_eq!(found.0, names);
    let events = found.1;
    assert_eq!(events.take_missed(), 0);
    assert_eq!(narrow.take_missed(), 19);
    assert!(narrow.next(PATIENCE).is_ok());
    assert_eq!(narrow.next(Duration::ZERO), Err(EventsError::Timeout));
    drop((clients, server));
    while events.next(PATIENCE).is_ok() {}
    assert_eq!(events.next(PATIENCE), Err(EventsError::Stopped));
}

#[test]
fn there_are_so_many_receivers_of_events_and_a_dropped_one_makes_room() {
    let (server, _) = start(config(1));
    let handle = server.handle();
    let mut open: Vec<_> = (0..16).map(|_| handle.events(10).unwrap()).collect();
    let refused = handle.events(10);
    assert!(matches!(refused, Err(HandleError::Busy(_))), "{refused:?}");
    open.pop();
    assert!(handle.events(10).is_ok());
}

#[test]
fn another_thread_reloads_the_configuration() {
    let mut config = config(2);
    let (server, address) = start(config.clone());
    let mut inside = Client::connect(address, "inside");
    config.listeners[0].allow_anonymous = false;
    let changes = elsewhere(&server, |it| it.reload(config.clone())).unwrap();
    assert_eq!(changes.len(), 1, "{changes:?}");
    assert_eq!(server.handle().config().listeners, config.listeners);
    let mut outside = Client::open(address);
    outside.send(&crate::client::connect("outside"));
    outside.expect_connack(0x87);
    inside.ping();
    config.limits.packet_bytes_max = 0;
    let refused = elsewhere(&server, |it| it.reload(config));
    assert!(
        matches!(refused, Err(ReloadError::Limits(_))),
        "{refused:?}"
    );
}

#[test]
fn requests_to_a_stopping_broker_are_answered_or_fail() {
    for shards in [1, 3] {
        let (server, address) = start(config(shards));
        let clients: Vec<_> = (0..20)
            .map(|n| Client::connect(address, &format!("client-{n}")))
            .collect();
        let handle = server.handle().clone();
        let asked = Arc::new(std::sync::Barrier::new(5));
        thread::scope(|scope| {
            for kind in 0..4 {
                let (handle, asked) = (handle.clone(), Arc::clone(&asked));
                scope.spawn(move || {
                    let ask = || match kind {
                        0 => handle.clients(Cursor::default(), within(100)).map(drop),
                        1 => handle.counters(PATIENCE).map(drop),
                        2 => handle.publish(message("a", b"x"), PATIENCE),
                        _ => handle.disconnect("nobody", PATIENCE).map(drop),
                    };
                    ask().unwrap();
                    asked.wait();
                    let error = loop {
                        match ask() {
                            Ok(()) | Err(HandleError::Busy(_)) => {}
                            Err(error) => break error,
                        }
                    };
                    assert_eq!(error, HandleError::Stopped);
                });
            }
            asked.wait();
            drop(clients);
            server.drain(PATIENCE).unwrap();
        });
        assert_eq!(handle.counters(PATIENCE), Err(HandleError::Stopped));
        let reloaded = handle.reload(config(1));
        let stopped = Err(HandleError::Stopped);
        assert!(
            matches!(&reloaded, Err(ReloadError::Handle(it)) if Err::<(), _>(it.clone()) == stopped)
        );
        assert!(handle.events(1).is_err());
    }
}
