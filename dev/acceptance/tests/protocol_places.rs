//! The limit of connections: it keeps no client from the place that its own connection has, and
//! tells a stranger nothing.

use std::fs;
use std::net::Ipv4Addr;

use unbroken_acceptance::raw::{Connect, Version, reason};
use unbroken_acceptance::{Broker, Client, Launch};

/// A broker with one place.
fn with_one_place() -> Launch {
    Launch::config("[limits]\nconnections_max = 1\n")
}

/// So many connections that say nothing.
fn silent(broker: &Broker, count: usize) -> Vec<Client> {
    (0..count).map(|_| broker.open()).collect()
}

/// [MQTT-3.1.4-3, MQTT311-3.1.4-2]
#[test]
fn silent_connections_do_not_keep_a_client_from_its_place() {
    let broker = with_one_place().shards(1).start();
    let mut before = broker.connect("owner");
    let silent = silent(&broker, 400);
    let mut now = broker.connect("owner");
    before.expect_disconnect(reason::SESSION_TAKEN_OVER);
    now.ping();
    drop(silent);
}

/// Connections that only wait for their peer to close make room.
#[test]
fn connections_that_are_not_closed_do_not_keep_a_client_from_its_place() {
    let broker = with_one_place().start();
    let connections: Vec<_> = (0..400).map(|_| broker.connect("owner")).collect();
    let refused: Vec<_> = (0..400)
        .map(|_| {
            let mut stranger = broker.attempt(&Connect::v5("stranger"));
            assert_eq!(stranger.expect_connack().reason, reason::QUOTA_EXCEEDED);
            stranger
        })
        .collect();
    broker.connect("owner").ping();
    drop((connections, refused));
}

#[test]
fn a_connection_without_a_place_may_send_a_small_connect_only() {
    let broker = with_one_place().start();
    let _owner = broker.connect("owner");
    let mut stranger = broker.open();
    stranger.send_hex("10 80 80 08"); // and 128 KiB more
    stranger.expect_closed();
    let log = broker.wait_for_log("65536");
    let line = log.lines().find(|line| line.contains("65536"));
    assert!(
        line.is_some_and(|line| line.contains("connections_max")),
        "{log}"
    );
}

/// [MQTT-3.1.4-2]
#[test]
fn a_wrong_password_is_answered_the_same_whether_or_not_the_client_is_connected() {
    let users = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../crates/broker/testdata/users"
    );
    let users = fs::read_to_string(users).expect("it is a part of the repository");
    let broker = Launch::listeners(
        "[[listeners]]\nport = 0\nmax_connections = 1\npassword_file = \"users\"\n",
    )
    .file("users", &users)
    .start();
    let _owner = broker.accept(&Connect::v5("owner").user_name("alice").password("secret"));
    for client_id in ["owner", "stranger"] {
        for version in [Version::V5, Version::V3_1_1] {
            let connect = Connect::new(version, client_id)
                .user_name("alice")
                .password("wrong");
            let expected = if version == Version::V5 { 0x86 } else { 4 };
            broker.attempt(&connect).expect_connack_refusal(expected);
        }
    }
}

#[test]
fn the_limit_of_open_files_leaves_a_client_its_place_and_is_named() {
    let broker = Launch::config("").open_files(256).shards(1).start();
    // One address alone would not get all places.
    let connect_from = |n: u8| {
        let connect = Connect::v5(&format!("c{n}"));
        let mut client = broker.attempt_from(Ipv4Addr::new(127, 0, 0, n + 1), &connect);
        assert_eq!(client.expect_connack().reason, 0);
        client
    };
    let mut clients: Vec<_> = (0..96).map(connect_from).collect();
    let mut stranger = broker.attempt(&Connect::v5("stranger"));
    stranger.expect_connack_refusal(reason::QUOTA_EXCEEDED);
    let silent = silent(&broker, 100);
    broker.connect("c0").ping();
    clients[0].expect_disconnect(reason::SESSION_TAKEN_OVER);
    let log = broker.wait_for_log("client=stranger");
    let line = log.lines().find(|line| line.contains("client=stranger"));
    assert!(
        line.is_some_and(|line| line.contains("LimitNOFILE")),
        "{log}"
    );
    drop(silent);
}
