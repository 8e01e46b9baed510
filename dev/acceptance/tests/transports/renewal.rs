//! Certificates, authorities and revocation lists that are renewed while clients connect.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, ScopedJoinHandle};

use unbroken_acceptance::Launch;

use crate::certificates::Authority;
use crate::programs::port_of;
use crate::records::{CONNACK, PING, PONG, connect_packet, heard, open, said};
use crate::secured::Secured;

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
