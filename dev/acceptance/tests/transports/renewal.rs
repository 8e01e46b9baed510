//! Certificates, authorities and revocation lists that are renewed while clients connect.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, ScopedJoinHandle};
use std::time::Instant;

use rustls::{ClientConfig, HandshakeKind};
use unbroken_acceptance::process::binary;
use unbroken_acceptance::{Broker, DEADLINE, Launch};

use crate::certificates::Authority;
use crate::programs::port_of;
use crate::records::{CONNACK, PING, PONG, connect_packet, heard, open, said};
use crate::secured::{Secured, identified};

const CONFIG: &str = "\
[[listeners]]
port = 0

[[listeners]]
protocol = \"PROTOCOL\"
port = 0
certificate_file = \"DIRECTORY/server.pem\"
key_file = \"DIRECTORY/server.key\"
client_ca_file = \"DIRECTORY/ca.pem\"
crl_file = \"DIRECTORY/list.pem\"
require_client_certificate = false
allow_anonymous = true
";

const RENEWALS: usize = 12;

/// Every handshake succeeds, before, during and after; and who is connected stays.
#[test]
fn no_handshake_fails_while_files_are_renewed() {
    for (shards, protocol) in [(1, "mqtts"), (3, "wss")] {
        let authority = Authority::new();
        authority.revoke(&[]);
        let config = authority.in_config(&CONFIG.replace("PROTOCOL", protocol));
        let broker = Launch::listeners(&config).shards(shards).start();
        let port = port_of(&broker, protocol);
        let mut first = open(&authority, &broker, protocol);
        first.send(&said(protocol, &connect_packet("first")));
        assert_eq!(heard(&mut first, protocol, 4), CONNACK);
        let (is_over, done) = (AtomicBool::new(false), AtomicUsize::new(0));
        thread::scope(|scope| {
            let clients = [(); 2].map(|()| {
                scope.spawn(|| {
                    while !is_over.load(Ordering::Relaxed) {
                        // Panics if it fails.
                        Secured::connect(&authority, port);
                        done.fetch_add(1, Ordering::Relaxed);
                    }
                })
            });
            for renewal in 1..=RENEWALS {
                authority.issue_server();
                authority.revoke(&[u64::try_from(renewal).expect("it is small")]);
                let before = done.load(Ordering::Relaxed);
                broker.reload();
                broker.wait_for_log_times("configuration reloaded", renewal);
                // Some that begin now are done.
                while done.load(Ordering::Relaxed) < before + 3 {
                    let has_failed = clients.iter().any(ScopedJoinHandle::is_finished);
                    assert!(!has_failed, "{}", broker.log());
                    thread::yield_now();
                }
            }
            is_over.store(true, Ordering::Relaxed);
        });
        first.send(&said(protocol, PING));
        assert_eq!(heard(&mut first, protocol, 2), PONG);
    }
}

/// Two lists of authorities, one after the other: each lets in its own clients alone.
#[test]
fn another_authority_of_clients_is_in_force_at_once() {
    let (old, new) = (Authority::new(), Authority::new());
    for authority in [&old, &new] {
        authority.issue_client(1, "ann");
    }
    let config = "\
[[listeners]]
port = 0

[[listeners]]
protocol = \"mqtts\"
port = 0
certificate_file = \"DIRECTORY/server.pem\"
key_file = \"DIRECTORY/server.key\"
client_ca_file = \"DIRECTORY/clients.pem\"
";
    let trust = |authority: &Authority| {
        let text = std::fs::read_to_string(authority.path("ca.pem")).expect("it was written");
        old.write("clients.pem", &text);
    };
    trust(&old);
    let broker = Launch::listeners(&old.in_config(config)).start();
    let port = port_of(&broker, "mqtts");
    let is_let_in = |of: &Authority| {
        let mut client = Secured::connect_as(&old, port, of, "ann");
        client.try_send(b"\x10\x10\x00\x04MQTT\x04\x02\x00\x3c\x00\x04abcd");
        client.try_receive(4) == Some(b"\x20\x02\x00\x00".to_vec())
    };
    assert!(is_let_in(&old) && !is_let_in(&new));
    trust(&new);
    broker.reload();
    broker.wait_for_log("configuration reloaded");
    assert!(is_let_in(&new) && !is_let_in(&old));
}

const CLIENTS: &str = "\
[[listeners]]
port = 0

[[listeners]]
protocol = \"mqtts\"
port = 0
certificate_file = \"DIRECTORY/server.pem\"
key_file = \"DIRECTORY/server.key\"
client_ca_file = \"DIRECTORY/clients.pem\"
crl_file = \"DIRECTORY/list.pem\"
";

/// The kind of the handshake of a client that may come in.
fn admitted(config: &Arc<ClientConfig>, port: u16, client_id: &str) -> Option<HandshakeKind> {
    let mut client = Secured::attempt(config, port)?;
    client.try_send(&connect_packet(client_id));
    let connack = client.try_receive(4)?;
    (connack == CONNACK).then(|| client.tls.handshake_kind())?
}

/// Replaces the broker's certificate, the authorities of clients and the list of revoked ones.
fn renew(authority: &Authority, other: &Authority, revoked: &[u64]) {
    authority.issue_server();
    let texts = [authority, other]
        .map(|of| std::fs::read_to_string(of.path("ca.pem")).expect("it was written"));
    authority.write("clients.pem", &texts.concat());
    authority.revoke(revoked);
}

/// How a broker comes to read its files again.
#[derive(Debug, Clone, Copy)]
enum Reading {
    Signal,
    Command,
    Watching,
}

impl Reading {
    fn ask(self, broker: &Broker) {
        match self {
            Self::Signal => broker.reload(),
            Self::Command => {
                let mut reload = Command::new(binary());
                reload.args(["reload", "--data"]).arg(broker.data());
                let ended = reload.output().expect("it starts");
                assert!(ended.status.success(), "{ended:?}");
            }
            Self::Watching => {}
        }
    }
}

/// Clients with certificates, half of them with a ticket: one that is allowed never fails, and one
/// that is revoked cannot resume, however the broker comes to read the files.
#[test]
fn no_client_with_a_certificate_fails_while_authorities_and_lists_are_renewed() {
    for shards in [1, 3] {
        let (authority, mut other) = (Authority::new(), Authority::new());
        authority.issue_client(1, "ann");
        renew(&authority, &other, &[]);
        let config = authority.in_config(CLIENTS);
        let broker = Launch::listeners(&config).shards(shards).durable().start();
        let port = port_of(&broker, "mqtts");
        let (is_over, done) = (AtomicBool::new(false), AtomicUsize::new(0));
        let resumed = AtomicUsize::new(0);
        let load = |client_id: &str, has_tickets: bool| {
            let mut config = identified(&authority, &authority, "ann");
            while !is_over.load(Ordering::Relaxed) {
                let kind = admitted(&config, port, client_id);
                let kind = kind.expect("an allowed client comes in");
                resumed.fetch_add(
                    usize::from(kind == HandshakeKind::Resumed),
                    Ordering::Relaxed,
                );
                done.fetch_add(1, Ordering::Relaxed);
                if !has_tickets {
                    config = identified(&authority, &authority, "ann");
                }
            }
        };
        thread::scope(|scope| {
            let load = &load;
            let clients = [("one", true), ("two", false)];
            let clients = clients.map(|(id, tickets)| scope.spawn(move || load(id, tickets)));
            let mut revoked = Vec::new();
            let readings = [Reading::Signal, Reading::Command, Reading::Watching];
            for (serial, reading) in (2..).zip(readings.into_iter().cycle().take(6)) {
                authority.issue_client(serial, "eve");
                let eve = identified(&authority, &authority, "eve");
                for expected in [HandshakeKind::Full, HandshakeKind::Resumed] {
                    assert_eq!(admitted(&eve, port, "eve"), Some(expected));
                }
                revoked.push(serial);
                other = Authority::new();
                renew(&authority, &other, &revoked);
                reading.ask(&broker);
                let began = Instant::now();
                while admitted(&eve, port, "eve").is_some() {
                    let has_failed = clients.iter().any(ScopedJoinHandle::is_finished);
                    assert!(!has_failed, "{}", broker.log());
                    assert!(began.elapsed() < DEADLINE, "{reading:?}: {}", broker.log());
                }
                let before = done.load(Ordering::Relaxed);
                while done.load(Ordering::Relaxed) < before + 3 {
                    let has_failed = clients.iter().any(ScopedJoinHandle::is_finished);
                    assert!(!has_failed, "{reading:?}: {}", broker.log());
                    thread::yield_now();
                }
            }
            is_over.store(true, Ordering::Relaxed);
        });
        assert!(resumed.load(Ordering::Relaxed) > 0, "tickets are of use");
    }
}
