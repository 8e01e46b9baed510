//! TLS in memory: rustls as the client, certificates by rcgen, and no shard.

mod authority;
mod client;
mod clients_certificates;

use std::fs;

use rustls::version::{TLS12, TLS13};
use rustls::{HandshakeKind, SupportedProtocolVersion};
use tempfile::TempDir;
use unbroken_broker_core::CloseCause;

use super::*;
use crate::bounds::TLS_SESSION_BYTES;
use crate::transport::ReadOutcome;
use authority::Authority;
use client::Client;

/// The files of a listener.
struct Files {
    directory: TempDir,
    authority: Authority,
    tls: Tls,
}

impl Files {
    /// With a certificate for `localhost`.
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let authority = Authority::new("servers");
        let mut files = Self {
            directory,
            authority,
            tls: Tls::default(),
        };
        files.add("localhost", &rcgen::PKCS_ECDSA_P256_SHA256);
        files
    }

    /// Adds a certificate for this host.
    fn add(&mut self, host: &str, algorithm: &'static rcgen::SignatureAlgorithm) {
        let (certificate, key) = self.authority.server(host, algorithm);
        let count = self.tls.certificate_files.len();
        let certificate = self.write(&format!("{count}.pem"), &certificate);
        let key = self.write(&format!("{count}.key"), &key);
        self.tls.certificate_files.push(certificate);
        self.tls.key_files.push(key);
    }

    fn write(&self, name: &str, text: &str) -> std::path::PathBuf {
        let path = self.directory.path().join(name);
        fs::write(&path, text).unwrap();
        path
    }

    fn listener(&self) -> Arc<TlsListener> {
        Arc::new(TlsListener::new(&self.tls, b"mqtt").unwrap())
    }

    /// A client that trusts the authority of the servers.
    fn client(&self, versions: &[&'static SupportedProtocolVersion]) -> Client {
        Client::new(&self.authority, versions, None)
    }
}

#[test]
fn bytes_arrive_in_both_directions_with_each_version_and_kind_of_key() {
    for algorithm in [&rcgen::PKCS_ECDSA_P256_SHA256, &rcgen::PKCS_RSA_SHA256] {
        for version in [&TLS12, &TLS13] {
            let mut files = Files::new();
            files.tls = Tls::default();
            files.add("localhost", algorithm);
            let listener = files.listener();
            let mut client = files.client(&[version]);
            client.connect(&listener, "localhost").unwrap();
            assert_eq!(client.version(), version.version);
            client.say(b"to the broker");
            assert_eq!(client.broker_read(), b"to the broker");
            let long = vec![7; 100_000];
            client.broker_says(&long);
            assert!(client.heard() == long);
        }
    }
}

#[test]
fn the_version_may_be_limited() {
    let mut files = Files::new();
    files.tls.min_version = crate::config::TlsVersion::V1_3;
    let listener = files.listener();
    let error = files.client(&[&TLS12]).connect(&listener, "localhost");
    assert!(error.unwrap_err().contains("ProtocolVersion"));
    assert!(
        files
            .client(&[&TLS13])
            .connect(&listener, "localhost")
            .is_ok()
    );
}

#[test]
fn records_and_packets_need_not_fit() {
    let files = Files::new();
    let listener = files.listener();
    let mut client = files.client(&[&TLS13]);
    client.connect(&listener, "localhost").unwrap();
    // Three and a half packets in one record, and the next one in five.
    client.say(b"one two three fo");
    assert_eq!(client.broker_read(), b"one two three fo");
    for part in [b"u", b"r", b" ", b"f", b"i"] {
        client.say(part);
    }
    client.deliver_bytewise();
    assert_eq!(client.broker_read(), b"ur fi");
}

#[test]
fn a_handshake_may_come_byte_by_byte() {
    let files = Files::new();
    let listener = files.listener();
    for version in [&TLS12, &TLS13] {
        let mut client = files.client(&[version]);
        client.is_bytewise = true;
        client.connect(&listener, "localhost").unwrap();
        client.say(b"hello");
        assert_eq!(client.broker_read(), b"hello");
    }
}

#[test]
fn keys_are_renewed_on_an_idle_connection() {
    let files = Files::new();
    let mut client = files.client(&[&TLS13]);
    client.connect(&files.listener(), "localhost").unwrap();
    for round in 0..3 {
        client.renew_keys();
        assert_eq!(client.broker_read(), b"");
        client.broker_says(b"after");
        assert_eq!(client.heard(), b"after", "{round}");
        client.say(b"before");
        assert_eq!(client.broker_read(), b"before", "{round}");
    }
}

#[test]
fn a_message_can_be_sent_while_the_half_of_a_key_update_has_come() {
    let files = Files::new();
    let mut client = files.client(&[&TLS13]);
    client.connect(&files.listener(), "localhost").unwrap();
    // Type 24 (KeyUpdate) and the first byte of its length: rustls waits for the rest.
    client.say_in_a_handshake_record(&[24, 0]);
    assert_eq!(client.broker_read(), b"");
    client.broker_says(b"a message");
    client.broker_closes();
}

#[test]
fn the_end_is_said_and_heard() {
    let files = Files::new();
    let mut client = files.client(&[&TLS12, &TLS13]);
    client.connect(&files.listener(), "localhost").unwrap();
    client.broker_says(b"last");
    client.broker_closes();
    assert_eq!(client.heard(), b"last");
    assert!(client.has_heard_end);

    let mut client = files.client(&[&TLS12, &TLS13]);
    client.connect(&files.listener(), "localhost").unwrap();
    client.say(b"last");
    client.say_end();
    assert_eq!(client.broker_read(), b"last");
    let ended = ReadOutcome::Ended(CloseCause::Peer);
    assert_eq!(client.broker_read_once(), ended);
}

#[test]
fn a_client_that_has_ended_its_side_is_sent_the_answers() {
    for version in [&TLS12, &TLS13] {
        let files = Files::new();
        let mut client = files.client(&[version]);
        client.connect(&files.listener(), "localhost").unwrap();
        client.say(b"last");
        client.say_end();
        assert_eq!(client.broker_read(), b"last");
        client.broker_says(b"an answer");
        assert_eq!(client.heard(), b"an answer");
        assert!(!client.has_heard_end);
        client.broker_closes();
        client.heard();
        assert!(client.has_heard_end);
    }
}

#[test]
fn what_is_no_tls_is_refused_with_a_reason_and_an_alert() {
    let files = Files::new();
    let listener = files.listener();
    for junk in [
        &b"GET / HTTP/1.1\r\n\r\n"[..],
        b"\x10\x10\x00\x04MQTT\x04\x02\x00\x3c\x00\x04abcd",
        &[0x16, 3, 1, 0x50, 0, 0, 0, 0],
        &[0xff; 10_000],
    ] {
        let mut client = files.client(&[&TLS13]);
        client.accept(&listener);
        client.peer.send(junk);
        let mut outcome = client.broker_read_once();
        while matches!(outcome, ReadOutcome::Bytes { .. }) {
            outcome = client.broker_read_once();
        }
        assert!(matches!(outcome, ReadOutcome::Ended(_)), "{outcome:?}");
        assert!(client.refusal().is_some());
        // An alert has type 21.
        assert_eq!(client.peer.received().first(), Some(&21), "{junk:?}");
    }
}

#[test]
fn unfinished_handshakes_are_counted() {
    let mut files = Files::new();
    files.tls.max_handshakes = 2;
    let listener = files.listener();
    let mut first = files.client(&[&TLS13]);
    first.accept(&listener);
    let mut second = files.client(&[&TLS13]);
    second.accept(&listener);
    assert!(listener.is_full());
    first.shake_hands("localhost").unwrap();
    assert!(!listener.is_full());
    first.accept(&listener);
    assert!(listener.is_full());
    drop(second);
    assert!(!listener.is_full(), "the connection is gone");
}

#[test]
fn a_client_behind_a_proxy_has_its_own_share_of_unfinished_handshakes() {
    let mut files = Files::new();
    files.tls.max_handshakes = 100;
    let listener = files.listener();
    let [greedy, other] = [[10, 0, 0, 1], [10, 0, 0, 2]].map(IpAddr::from);
    let begin = |client| {
        let (session, permit) = listener.accept(None).unwrap();
        permit.has_share(client).then_some((session, permit))
    };
    let begun: Vec<_> = std::iter::from_fn(|| begin(greedy)).collect();
    assert!((80..100).contains(&begun.len()), "{}", begun.len());
    assert!(begin(other).is_some());
    drop(begun);
    assert!(begin(greedy).is_some());
    assert_eq!(listener.handshakes.free(), 100);
}

#[test]
fn the_certificate_is_the_one_for_the_host_that_is_asked_for() {
    let mut files = Files::new();
    files.add("*.example.org", &rcgen::PKCS_ECDSA_P256_SHA256);
    let listener = files.listener();
    for (host, is_there) in [
        ("localhost", true),
        ("a.example.org", true),
        ("A.Example.org", true),
        ("a.b.example.org", false),
        ("example.org", false),
    ] {
        let connected = files.client(&[&TLS13]).connect(&listener, host);
        assert_eq!(connected.is_ok(), is_there, "{host}: {connected:?}");
    }
}

#[test]
fn a_client_that_asks_for_another_protocol_than_mqtt_is_refused() {
    let files = Files::new();
    let listener = files.listener();
    for (protocols, is_there) in [
        (vec![], true),
        (vec!["mqtt"], true),
        (vec!["h2", "mqtt"], true),
        (vec!["h2"], false),
    ] {
        let mut client = files.client(&[&TLS13]);
        client.protocols(&protocols);
        let connected = client.connect(&listener, "localhost");
        assert_eq!(connected.is_ok(), is_there, "{protocols:?}");
    }
}

#[test]
fn a_ticket_resumes_with_its_own_listener_while_the_trust_is_the_same() {
    let files = Files::new();
    let (listener, other) = (files.listener(), files.listener());
    for version in [&TLS12, &TLS13] {
        let mut client = files.client(&[version]);
        client.connect(&listener, "localhost").unwrap();
        client.connect(&listener, "localhost").unwrap();
        assert_eq!(client.handshake_kind(), Some(HandshakeKind::Resumed));
        let new = listener.read_again(&files.tls).unwrap();
        listener.put_in_force(new);
        client.connect(&listener, "localhost").unwrap();
        assert_eq!(client.handshake_kind(), Some(HandshakeKind::Resumed));
        client.connect(&other, "localhost").unwrap();
        assert_ne!(client.handshake_kind(), Some(HandshakeKind::Resumed));
    }
}

#[test]
fn renewed_files_serve_new_connections_and_old_ones_stay() {
    let files = Files::new();
    let listener = files.listener();
    let mut client = files.client(&[&TLS13]);
    client.connect(&listener, "localhost").unwrap();
    let other = Files::new();
    listener.put_in_force(listener.read_again(&other.tls).unwrap());
    client.say(b"still here");
    assert_eq!(client.broker_read(), b"still here");
    assert!(
        other
            .client(&[&TLS13])
            .connect(&listener, "localhost")
            .is_ok()
    );
    assert!(
        files
            .client(&[&TLS13])
            .connect(&listener, "localhost")
            .is_err()
    );
}

#[test]
fn files_that_cannot_be_used_are_named_and_change_nothing() {
    let mut files = Files::new();
    let listener = files.listener();
    let tls = files.tls.clone();
    let (_, other_key) = files.authority.server("x", &rcgen::PKCS_ECDSA_P256_SHA256);
    let other_key = files.write("other.key", &other_key);
    let empty = files.write("empty.pem", "");
    let half = files.write("half.pem", "-----BEGIN CERTIFICATE-----\nMIIB\n");
    let none = files.directory.path().join("none.pem");
    let mut refused = |change: &dyn Fn(&mut Tls), part: &str| {
        files.tls = tls.clone();
        change(&mut files.tls);
        let error = listener.read_again(&files.tls).map(|_| ()).unwrap_err();
        assert!(error.to_string().contains(part), "{error}, not {part}");
    };
    refused(
        &|tls| tls.key_files[0].clone_from(&other_key),
        "does not belong to",
    );
    refused(&|tls| tls.key_files[0].clone_from(&empty), "no private key");
    refused(
        &|tls| tls.certificate_files[0].clone_from(&empty),
        "no certificate",
    );
    refused(
        &|tls| tls.certificate_files[0].clone_from(&half),
        "half.pem",
    );
    refused(
        &|tls| tls.certificate_files[0].clone_from(&none),
        "cannot read",
    );
    refused(
        &|tls| tls.client_ca_file = Some(empty.clone()),
        "no certificate",
    );
    let list = |tls: &mut Tls| {
        tls.client_ca_file = Some(tls.certificate_files[0].clone());
        tls.crl_file = Some(empty.clone());
    };
    refused(&list, "no certificate revocation list");
    files.tls = tls;
    assert!(
        files
            .client(&[&TLS13])
            .connect(&listener, "localhost")
            .is_ok()
    );
}

#[test]
fn a_session_counts_its_keys_and_what_has_not_come_whole() {
    let files = Files::new();
    let mut client = files.client(&[&TLS13]);
    client.accept(&files.listener());
    assert_eq!(client.broker_holds(), TLS_SESSION_BYTES);
    client.shake_hands("localhost").unwrap();
    let idle = client.broker_holds();
    assert!(idle < 2 * TLS_SESSION_BYTES, "{idle}");
    client.say_all_but_a_byte(&[7; 16_000]);
    assert_eq!(client.broker_read(), b"");
    let partial = client.broker_holds();
    assert!(partial >= idle + 16_000, "{partial}");
}
