//! A server that is started again on its directory.

use std::path::Path;

use unbroken_broker::config::Config;
use unbroken_broker::{Server, StartError};

use crate::client::{Client, Received, packet, publish, string, subscribe_at};
use crate::{config, start};

pub(crate) fn kept(shards: u8, directory: &Path) -> Config {
    let mut config = config(shards);
    config.storage.in_memory = false;
    config.storage.directory = Some(directory.to_owned());
    config
}

/// CONNECT whose session is to stay without end.
fn stay(id: &str) -> Vec<u8> {
    let head = b"\0\x04MQTT\x05\0\0\0\x05\x11\xff\xff\xff\xff".as_slice();
    packet(0x10, &[head, &string(id)].concat())
}

fn publish_at_1(topic: &str, id: u8, payload: &[u8]) -> Vec<u8> {
    let id = [0, id, 0];
    packet(0x32, &[&string(topic), id.as_slice(), payload].concat())
}

/// Comes back to its session; whether there was one.
pub(crate) fn resume(client: &mut Client, id: &str) -> bool {
    client.send(&stay(id));
    match client.receive() {
        Received::Packet(0x20, body) if body[1] == 0 => body[0] == 1,
        other => panic!("not CONNACK: {other:?}"),
    }
}

#[test]
fn offline_sessions_and_retained_messages_survive_a_change_of_shards() {
    let directory = tempfile::tempdir().unwrap();
    let (server, address) = start(kept(1, directory.path()));
    for n in 0..8 {
        let mut session = Client::open(address);
        assert!(!resume(&mut session, &format!("sleeper-{n}")));
        session.send(&subscribe_at(&format!("to/{n}"), 1));
        assert!(matches!(session.receive(), Received::Packet(0x90, _)));
    }
    let mut publisher = Client::connect(address, "publisher");
    for n in 0..8_u8 {
        for payload in [b"first", b"later"] {
            publisher.send(&publish_at_1(&format!("to/{n}"), 1, payload));
            assert!(matches!(publisher.receive(), Received::Packet(0x40, _)));
        }
    }
    let mut retained = publish("kept", b"here");
    retained[0] |= 1;
    publisher.send(&retained);
    publisher.ping();
    drop(server);

    // The messages are in the log of a shard that is one of three now, and of three in the end.
    for shards in [3, 2] {
        let (_server, address) = start(kept(shards, directory.path()));
        let mut late = Client::connect(address, "late");
        late.subscribe("kept");
        assert_eq!(late.expect_message(), ("kept".to_owned(), b"here".to_vec()));
        for n in 0..8 {
            let mut session = Client::open(address);
            assert!(resume(&mut session, &format!("sleeper-{n}")));
            for payload in [b"first", b"later"] {
                match session.receive() {
                    // In the last round they are under way, and sent again.
                    Received::Packet(0x32 | 0x3a, body) => assert!(body.ends_with(payload), "{n}"),
                    other => panic!("{other:?}"),
                }
            }
        }
    }
}

#[test]
fn a_message_is_routed_to_a_restored_session_of_another_shard_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let (server, address) = start(kept(3, directory.path()));
    for n in 0..8 {
        let mut session = Client::open(address);
        resume(&mut session, &format!("sleeper-{n}"));
        session.send(&subscribe_at("all", 1));
        assert!(matches!(session.receive(), Received::Packet(0x90, _)));
    }
    drop(server);
    let (_server, address) = start(kept(3, directory.path()));
    for publisher in 0..4 {
        let mut publisher = Client::connect(address, &format!("publisher-{publisher}"));
        publisher.send(&publish_at_1("all", 1, b"x"));
        assert!(matches!(publisher.receive(), Received::Packet(0x40, _)));
    }
    for n in 0..8 {
        let mut session = Client::open(address);
        assert!(resume(&mut session, &format!("sleeper-{n}")));
        for _ in 0..4 {
            assert!(matches!(session.receive(), Received::Packet(0x32, _)));
        }
    }
}

#[test]
fn a_second_broker_reports_which_process_has_the_directory() {
    let directory = tempfile::tempdir().unwrap();
    let (_server, _) = start(kept(1, directory.path()));
    let refused = Server::start(kept(1, directory.path())).unwrap_err();
    assert!(matches!(refused, StartError::Disk(_)), "{refused}");
    let error = refused.to_string();
    let process = format!("process {}", std::process::id());
    assert!(
        error.contains("in use by") && error.contains(&process),
        "{error}"
    );
}
