//! What a reload changes while the broker runs, and what it leaves.

use std::fs;
use std::net::SocketAddr;

use unbroken_broker::config::{Applies, Listener, Role};

use crate::client::{Client, Received, connect, connect_as};
use crate::{HASHED_SECRET, config, listener, start};

#[test]
fn reload_replaces_the_password_file() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("passwords");
    fs::write(&file, HASHED_SECRET).unwrap();
    let mut config = config(2);
    config.listeners[0].allow_anonymous = false;
    config.listeners[0].password_file = Some(file.clone());
    let (server, address) = start(config.clone());
    let attempt = |bytes: &[u8], reason: u8| {
        let mut client = Client::open(address);
        client.send(bytes);
        client.expect_connack(reason);
        client
    };
    for n in 0..4 {
        let mut admitted = attempt(&connect_as(&format!("in-{n}"), "ann", "secret"), 0);
        admitted.ping();
        attempt(&connect_as(&format!("out-{n}"), "ann", "guess"), 0x86);
        attempt(&connect_as(&format!("out-{n}"), "bob", "secret"), 0x86);
        attempt(&connect(&format!("anonymous-{n}")), 0x87);
    }
    let mut inside = attempt(&connect_as("inside", "ann", "secret"), 0);

    fs::write(&file, "not a password file\n").unwrap();
    server.handle().reload(config.clone()).unwrap_err();
    attempt(&connect_as("still", "ann", "secret"), 0);

    fs::write(&file, "").unwrap();
    config.listeners[0].allow_anonymous = true;
    let changes = server.handle().reload(config).unwrap();
    assert_eq!(changes.len(), 1, "{changes:?}");
    for n in 0..8 {
        attempt(&connect(&format!("anonymous-{n}")), 0);
    }
    inside.ping();
}

/// Whether a client may connect with this CONNECT.
fn is_open_to(address: SocketAddr, connect: &[u8]) -> bool {
    let mut client = Client::open(address);
    client.send(connect);
    match client.receive() {
        Received::Packet(0x20, body) => body[1] == 0,
        _ => false,
    }
}

#[test]
fn a_removed_listener_keeps_what_it_has_though_its_files_are_gone() {
    let directory = tempfile::tempdir().unwrap();
    let passwords = directory.path().join("passwords");
    let list = directory.path().join("acl");
    fs::write(&passwords, HASHED_SECRET).unwrap();
    fs::write(&list, "user ann\ntopic read yes\n").unwrap();
    let mut config = config(1);
    config.listeners.push(Listener {
        bind: [127, 0, 0, 2].into(),
        allow_anonymous: false,
        password_file: Some(passwords.clone()),
        acl_file: Some(list.clone()),
        ..listener()
    });
    let (server, _) = start(config.clone());
    let removed = server.listeners()[1].address.tcp().unwrap();
    config.listeners.pop();
    fs::remove_file(passwords).unwrap();
    fs::remove_file(list).unwrap();
    config.limits.connections_max = 7;
    let changes = server.handle().reload(config.clone()).unwrap();
    assert_eq!(changes.len(), 2, "{changes:?}");
    assert_eq!(server.handle().config().limits.connections_max, 7);
    assert!(is_open_to(removed, &connect_as("a", "ann", "secret")));
    assert!(!is_open_to(removed, &connect_as("a", "ann", "guess")));
    assert!(!is_open_to(removed, &connect("a")));
}

#[test]
fn a_role_may_name_a_listener_that_is_opened_by_a_restart() {
    let mut config = config(1);
    let (server, address) = start(config.clone());
    config.listeners.push(Listener {
        bind: [127, 0, 0, 2].into(),
        name: Some("new".to_owned()),
        ..listener()
    });
    config.roles.push(Role {
        listeners: vec!["new".to_owned()],
        ..Role::default()
    });
    let changes = server.handle().reload(config.clone()).unwrap();
    assert!(changes.iter().any(|it| it.applies == Applies::Restart));
    // Rules are in force, and no client has the role.
    assert!(!is_open_to(address, &connect("a")));
}

#[test]
fn trusted_proxies_change_for_new_connections() {
    const HEADER: &[u8] = b"PROXY TCP4 192.0.2.7 127.0.0.1 4711 1883\r\n";
    let mut config = config(1);
    let (server, address) = start(config.clone());
    let mut inside = Client::connect(address, "inside");
    let behind = [HEADER, &connect("a")].concat();
    for is_trusted in [false, true, false] {
        config.listeners[0].trusted_proxies = if is_trusted {
            vec!["127.0.0.1".parse().unwrap()]
        } else {
            Vec::new()
        };
        let changes = server.handle().reload(config.clone()).unwrap();
        assert!(changes.iter().all(|it| it.applies == Applies::Live));
        assert_eq!(is_open_to(address, &behind), is_trusted);
        assert_eq!(is_open_to(address, &connect("a")), !is_trusted);
    }
    inside.ping();
}

#[test]
fn path_and_origins_of_websocket_change_for_new_connections() {
    let mut config = config(1);
    config.listeners[0].protocol = unbroken_broker::config::Protocol::Ws;
    let (server, address) = start(config.clone());
    let is_upgraded = |path: &str, origin: &str| {
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n\
             Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n\
             Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nOrigin: {origin}\r\n\r\n"
        );
        let mut client = Client::open(address);
        client.send(request.as_bytes());
        client.wait_for_bytes();
        let mut answer = [0; 12];
        std::io::Read::read_exact(&mut client.stream(), &mut answer).unwrap();
        &answer == b"HTTP/1.1 101"
    };
    let (mine, other) = ("https://mine.example", "https://other.example");
    config.listeners[0].allowed_origins = vec![mine.to_owned()];
    server.handle().reload(config.clone()).unwrap();
    assert!(is_upgraded("/mqtt", mine));
    assert!(!is_upgraded("/mqtt", other));
    config.listeners[0].websocket_path = "/other".to_owned();
    config.listeners[0].allowed_origins = vec![other.to_owned()];
    server.handle().reload(config).unwrap();
    assert!(!is_upgraded("/mqtt", other));
    assert!(is_upgraded("/other", other));
    assert!(!is_upgraded("/other", mine));
}

#[test]
fn a_trusted_proxy_for_http_names_its_client_and_no_other_does() {
    use unbroken_broker::config::ForwardedHeader;
    use unbroken_broker::handle::{Cursor, Within};

    let (proxy, other) = ("127.0.0.1", "10.0.0.1");
    let own = "Forwarded: for=198.51.100.1\r\nX-Forwarded-For: 192.0.2.7";
    let (new, old) = (ForwardedHeader::Forwarded, ForwardedHeader::XForwardedFor);
    for (trusted, header, fields, client) in [
        (
            proxy,
            old,
            "X-Forwarded-For: 198.51.100.1, 192.0.2.7",
            Some("192.0.2.7"),
        ),
        (proxy, old, own, Some("192.0.2.7")),
        (
            proxy,
            new,
            "Forwarded: for=\"[2001:db8::1]:4711\"",
            Some("2001:db8::1"),
        ),
        (proxy, old, "X-Forwarded-For: 127.0.0.1", Some("127.0.0.1")),
        (proxy, old, "X-Forwarded-For: 192.0.2.7, unknown", None),
        (proxy, old, "Forwarded: for=192.0.2.7", None),
        (proxy, new, "Forwarded: for=\"x, for=192.0.2.7", None),
        (other, old, "X-Forwarded-For: 192.0.2.7", Some("127.0.0.1")),
    ] {
        let mut config = config(1);
        config.listeners[0].protocol = unbroken_broker::config::Protocol::Ws;
        config.listeners[0].trusted_proxies = vec![trusted.parse().unwrap()];
        config.listeners[0].forwarded_header = header;
        let (server, address) = start(config);
        let request = format!(
            "GET /mqtt HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n\
             Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n\
             Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n{fields}\r\n\r\n"
        );
        let packet = connect("a");
        // One frame, with a mask of zeros.
        let length = u8::try_from(packet.len()).unwrap();
        let frame = [&[0x82, 0x80 | length, 0, 0, 0, 0][..], &packet].concat();
        let mut proxy = Client::open(address);
        proxy.send(&[request.as_bytes(), &frame].concat());
        let mut answer = Vec::new();
        let frame = loop {
            let mut byte = [0];
            if std::io::Read::read(&mut proxy.stream(), &mut byte).unwrap() == 0 {
                break [0, 0];
            }
            answer.push(byte[0]);
            let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n");
            let frame = end.and_then(|end| answer.get(end + 4..end + 7));
            if let Some([kind @ 0x80..=0xff, _, first]) = frame {
                break [*kind, *first];
            }
        };
        let Some(client) = client else {
            let answer = String::from_utf8(answer).unwrap();
            assert!(answer.starts_with("HTTP/1.1 400 "), "{fields}: {answer}");
            assert!(answer.contains("does not say for whom"), "{answer}");
            continue;
        };
        assert_eq!(frame, [0x82, 0x20], "CONNACK in a binary frame: {fields}");
        let clients = server
            .handle()
            .clients(Cursor::default(), Within::default());
        let found = clients.unwrap().entries.remove(0).address.unwrap();
        assert_eq!(found.ip().to_string(), client, "{trusted}: {fields}");
    }
}
