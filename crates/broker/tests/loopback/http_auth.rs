//! A service of the test's own that says which clients may connect.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::{Value, json};
use unbroken_broker::config::{Config, HttpAuth, Listener};

use super::client::{Client, Received, connect_as};
use super::service::Service;
use super::{config, listener, start};

fn asking(service: &Service, change: impl FnOnce(&mut HttpAuth)) -> Config {
    let mut hook = HttpAuth {
        name: "hook".to_owned(),
        url: service.url.clone(),
        connections: 2,
        cache_ttl: None,
        ..HttpAuth::default()
    };
    change(&mut hook);
    Config {
        listeners: vec![Listener {
            name: Some("plant".to_owned()),
            allow_anonymous: false,
            http_auth: vec!["hook".to_owned()],
            ..listener()
        }],
        http_auth: vec![hook],
        ..config(2)
    }
}

/// The reason code of CONNACK.
fn connack(address: SocketAddr, connect: &[u8]) -> u8 {
    let mut client = Client::open(address);
    client.send(connect);
    match client.receive() {
        Received::Packet(0x20, body) => body[1],
        other => panic!("not CONNACK: {other:?}"),
    }
}

#[test]
fn a_service_is_asked_over_https_and_its_answer_decides() {
    let directory = tempfile::tempdir().unwrap();
    let secret = directory.path().join("secret");
    std::fs::write(&secret, "Bearer of the test\n").unwrap();
    let (service, authority) = Service::with_tls(r#"{"result":"allow"}"#, directory.path());
    let config = asking(&service, |hook| {
        hook.ca_file = Some(authority);
        hook.authorization_file = Some(secret);
    });
    let (_server, address) = start(config);
    let connect = connect_as("c1", "ann", "secret");
    assert_eq!(connack(address, &connect), 0);
    let request = service.request();
    assert!(request.starts_with("POST /ask "), "{request}");
    let headers = request.to_lowercase();
    assert!(
        headers.contains("authorization: bearer of the test\r\n"),
        "{request}"
    );
    assert!(
        headers.contains("content-type: application/json"),
        "{request}"
    );
    let (_, body) = request.split_once("\r\n\r\n").unwrap();
    let expected = json!({
        "user": "ann", "password": "secret", "client_id": "c1",
        "listener": "plant", "address": "127.0.0.1",
    });
    assert_eq!(serde_json::from_str::<Value>(body).unwrap(), expected);

    service.answer(Some((200, r#"{"result":"deny"}"#.to_owned())));
    assert_eq!(connack(address, &connect), 0x87);
    service.answer(Some((200, r#"{"result":"ignore"}"#.to_owned())));
    assert_eq!(connack(address, &connect), 0x86, "nobody else is asked");
    assert_eq!(service.connections(), 1, "the connection is kept");
}

#[test]
fn a_service_that_does_not_answer_lets_in_nobody() {
    let service = Service::start("");
    let config = asking(&service, |hook| hook.timeout = Duration::from_secs(2));
    let (_server, address) = start(config);
    let connect = connect_as("c1", "ann", "secret");
    for answer in [
        Some((500, r#"{"result":"allow"}"#)),
        Some((302, r#"{"result":"allow"}"#)),
        Some((200, "allow")),
        Some((200, r#"{"result":"yes"}"#)),
        None,
    ] {
        service.answer(answer.map(|(status, body)| (status, body.to_owned())));
        assert_eq!(connack(address, &connect), 0x88, "{answer:?}");
    }
    service.answer(Some((200, r#"{"result":"allow"}"#.to_owned())));
    assert_eq!(
        connack(address, &connect),
        0,
        "it has not cost the client anything"
    );
}

#[test]
fn a_certificate_of_another_authority_is_not_believed() {
    let (own, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (service, _) = Service::with_tls(r#"{"result":"allow"}"#, own.path());
    let (_, authority) = Service::with_tls("", other.path());
    let (_server, address) = start(asking(&service, |hook| hook.ca_file = Some(authority)));
    assert_eq!(connack(address, &connect_as("c1", "ann", "secret")), 0x88);
    assert_eq!(service.requests(), [""; 0], "nothing was sent to it");
}

#[test]
fn an_answer_holds_for_the_same_client_and_ends_with_a_reload() {
    let service = Service::start(r#"{"result":"allow"}"#);
    let config = asking(&service, |hook| {
        hook.cache_ttl = Some(Duration::from_hours(1));
    });
    let (server, address) = start(config.clone());
    let connect = connect_as("c1", "ann", "secret");
    for _ in 0..3 {
        assert_eq!(connack(address, &connect), 0);
    }
    service.answer(Some((200, r#"{"result":"deny"}"#.to_owned())));
    assert_eq!(connack(address, &connect), 0);
    assert_eq!(service.requests().len(), 1);
    for other in [
        connect_as("c2", "ann", "secret"),
        connect_as("c1", "bob", "secret"),
        connect_as("c1", "ann", "Secret"),
    ] {
        assert_eq!(connack(address, &other), 0x87);
    }
    assert_eq!(service.requests().len(), 3);
    server.handle().reload(config).unwrap();
    assert_eq!(connack(address, &connect), 0x87);
}

#[test]
fn more_clients_than_connections_are_asked_about_one_after_the_other() {
    let service = Service::start(r#"{"result":"allow"}"#);
    let (_server, address) = start(asking(&service, |_| {}));
    let clients = (0..20).map(|n| {
        let mut client = Client::open(address);
        client.send(&connect_as(&format!("c{n}"), "ann", "secret"));
        client
    });
    for mut client in clients.collect::<Vec<_>>() {
        client.expect_connack(0);
    }
    assert_eq!(service.requests().len(), 20);
    assert!(service.connections() <= 2, "{}", service.connections());
}

#[test]
fn what_an_answer_vouches_for_ends_the_connection_and_decides_its_rights() {
    let service = Service::start("");
    let (_server, address) = start(asking(&service, |_| {}));
    let soon = std::time::SystemTime::now() + Duration::from_secs(2);
    let soon = soon
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap()
        .as_secs_f64();
    let answer = json!({ "result": "allow", "roles": ["r"], "expires": soon });
    service.answer(Some((200, answer.to_string())));
    let mut client = Client::open(address);
    client.send(&connect_as("c1", "ann", "secret"));
    client.expect_connack(0);
    let Received::Packet(0xe0, body) = client.receive() else {
        panic!("no DISCONNECT");
    };
    assert_eq!(body[0], 0x87);
}
