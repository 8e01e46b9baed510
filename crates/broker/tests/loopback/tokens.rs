//! Clients that show tokens: from a file's key and from keys that an issuer publishes.

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use serde_json::json;
use unbroken_broker::config::{Config, Jwt, Listener, Role};

use super::client::{Client, Received, connect_as, packet, publish, string};
use super::service::Service;
use super::{config, listener, start};

const SECRET: &[u8] = b"a secret of the test, which is long enough for it";

fn now_s() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.unwrap().as_secs()
}

fn token(user: &str, ends_in_s: u64, roles: &[&str]) -> String {
    let claims = json!({ "sub": user, "exp": now_s() + ends_in_s, "roles": roles });
    let key = EncodingKey::from_secret(SECRET).unwrap();
    encode(&Header::new(Algorithm::HS256), &claims, &key).unwrap()
}

fn with_tokens(directory: &Path) -> Config {
    let path = directory.join("secret");
    std::fs::write(&path, SECRET).unwrap();
    let jwt = Jwt {
        name: "plant".to_owned(),
        algorithms: vec!["HS256".to_owned()],
        key_file: Some(path),
        leeway: Duration::ZERO,
        ..Jwt::default()
    };
    Config {
        listeners: vec![Listener {
            allow_anonymous: false,
            jwt: vec!["plant".to_owned()],
            ..listener()
        }],
        jwt: vec![jwt],
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
fn a_token_lets_its_user_in_and_nothing_else_does() {
    let directory = tempfile::tempdir().unwrap();
    let (_server, address) = start(with_tokens(directory.path()));
    let good = token("ann", 3600, &[]);
    assert_eq!(connack(address, &connect_as("a", "whoever", &good)), 0);
    assert_eq!(connack(address, &connect_as("a", "", &good)), 0);
    let mut broken = good.clone();
    broken.truncate(good.len() - 2);
    assert_eq!(connack(address, &connect_as("a", "ann", &broken)), 0x86);
    assert_eq!(connack(address, &connect_as("a", "ann", "password")), 0x86);
    let expired = {
        let claims = json!({ "sub": "ann", "exp": now_s() - 1 });
        let key = EncodingKey::from_secret(SECRET).unwrap();
        encode(&Header::new(Algorithm::HS256), &claims, &key).unwrap()
    };
    assert_eq!(connack(address, &connect_as("a", "ann", &expired)), 0x87);
    assert_eq!(connack(address, &super::connect("nobody")), 0x87);
}

/// Pitfall of others: an expired token keeps its connection.
#[test]
fn the_end_of_a_token_ends_the_connection_and_publishes_the_will() {
    let directory = tempfile::tempdir().unwrap();
    let (_server, address) = start(with_tokens(directory.path()));
    let mut heir = Client::open(address);
    heir.send(&connect_as("heir", "", &token("heir", 3600, &[])));
    heir.expect_connack(0);
    heir.subscribe("wills");

    let header = b"\0\x04MQTT\x05\xc6\0\0\0".as_slice();
    let will = [b"\0".as_slice(), &string("wills"), &string("gone")].concat();
    let login = [string("ann"), string(&token("ann", 2, &[]))].concat();
    let connect = packet(0x10, &[header, &string("device"), &will, &login].concat());
    let mut client = Client::open(address);
    client.send(&connect);
    client.expect_connack(0);
    let Received::Packet(0xe0, body) = client.receive() else {
        panic!("no DISCONNECT");
    };
    assert_eq!(body[0], 0x87);
    assert_eq!(client.receive(), Received::Closed);
    assert_eq!(
        heir.expect_message(),
        ("wills".to_owned(), b"gone".to_vec())
    );
}

#[test]
fn roles_of_a_token_decide_what_its_client_may_do() {
    let directory = tempfile::tempdir().unwrap();
    let role = |granted: &[&str], allow: &[&str]| Role {
        granted: granted.iter().map(|it| (*it).to_owned()).collect(),
        allow: allow.iter().map(|it| (*it).to_owned()).collect(),
        ..Role::default()
    };
    let roles = vec![
        role(&[], &["all own/{user}/#"]),
        role(&["operator"], &["all plant/#"]),
    ];
    let config = Config {
        roles,
        ..with_tokens(directory.path())
    };
    let (_server, address) = start(config);
    for (roles, reason) in [(&["operator"][..], 0x10), (&["guest"], 0x87), (&[], 0x87)] {
        let mut client = Client::open(address);
        client.send(&connect_as("c", "", &token("ann", 3600, roles)));
        client.expect_connack(0);
        let mut publish = publish("plant/1", b"x");
        // At QoS 1, with a packet id behind the topic.
        publish[0] = 0x32;
        publish[1] += 2;
        publish.splice(11..11, [0, 7]);
        client.send(&publish);
        let Received::Packet(0x40, body) = client.receive() else {
            panic!("no PUBACK");
        };
        assert_eq!(body.get(2).copied().unwrap_or(0), reason, "{roles:?}");
    }
}

fn published_key(secret: &[u8], id: &str) -> String {
    let secret = URL_SAFE_NO_PAD.encode(secret);
    json!({ "keys": [{ "kty": "oct", "kid": id, "alg": "HS256", "k": secret }] }).to_string()
}

/// A broker whose issuer publishes its keys, and the service that does it.
fn with_issuer(directory: &Path) -> (Config, Service) {
    let (issuer, authority) = Service::with_tls(&published_key(SECRET, "1"), directory);
    let mut config = with_tokens(directory);
    let jwt = &mut config.jwt[0];
    jwt.key_file = None;
    jwt.jwks_url = Some(issuer.url.clone());
    jwt.ca_file = Some(authority);
    (config, issuer)
}

/// Tries until the answer is this one: keys come in the background.
fn expect_soon(address: SocketAddr, connect: &[u8], reason: u8) {
    for _ in 0..2_000 {
        if connack(address, connect) == reason {
            return;
        }
        std::thread::yield_now();
    }
    panic!("never answered {reason:#x}");
}

#[test]
fn keys_are_fetched_from_their_issuer_and_the_last_ones_stay_in_force() {
    let directory = tempfile::tempdir().unwrap();
    let (config, issuer) = with_issuer(directory.path());
    let (server, address) = start(config.clone());
    assert!(
        issuer.request().starts_with("GET /ask "),
        "it is asked at once"
    );
    let good = connect_as("a", "", &token("ann", 3600, &[]));
    expect_soon(address, &good, 0);

    // The issuer is down, and the configuration is read again: the keys stay.
    issuer.answer(Some((500, String::new())));
    server.handle().reload(config).unwrap();
    issuer.request();
    assert_eq!(connack(address, &good), 0);
    // It answers nonsense: they stay.
    issuer.answer(Some((200, "{}".to_owned())));
    issuer.request();
    assert_eq!(connack(address, &good), 0);
    // It has another key: the old one is none any more.
    let other = b"another secret of the test, which is long enough too";
    issuer.answer(Some((200, published_key(other, "1"))));
    issuer.request();
    expect_soon(address, &good, 0x86);
}

#[test]
fn an_issuer_whose_certificate_is_of_another_authority_is_not_believed() {
    let directory = tempfile::tempdir().unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let (mut config, issuer) = with_issuer(directory.path());
    let (_other, authority) = Service::with_tls("", elsewhere.path());
    config.jwt[0].ca_file = Some(authority);
    let (_server, address) = start(config);
    while issuer.connections() < 2 {
        std::thread::yield_now();
    }
    assert_eq!(issuer.requests(), [""; 0], "the handshake failed");
    let good = connect_as("a", "", &token("ann", 3600, &[]));
    assert_eq!(connack(address, &good), 0x88, "no key is known");
}

#[test]
fn a_user_of_the_password_file_needs_its_password_and_others_may_show_tokens() {
    let directory = tempfile::tempdir().unwrap();
    let users = concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/users");
    let mut config = with_tokens(directory.path());
    config.listeners[0].password_file = Some(users.into());
    let (_server, address) = start(config);
    let token = token("ann", 3600, &[]);
    for (user, password, reason) in [
        ("alice", "secret", 0),
        ("alice", &*token, 0x86),
        ("ann", &*token, 0),
        ("", &*token, 0),
        ("ann", "secret", 0x86),
    ] {
        let connect = connect_as("c", user, password);
        assert_eq!(connack(address, &connect), reason, "{user} {password}");
    }
}
