//! Memory that clients make the broker hold: at a limit the broker ends those that hold most, tells
//! them why and names them in the log.

use unbroken_acceptance::Broker;
use unbroken_acceptance::raw::{Version, reason};

/// CONNECT of 65,536 bytes, as far as its client id.
const BEGUN_CONNECT: &[u8] = b"\x10\xfc\xff\x03\0\x04MQTT\x05\x02\0\0\0";
/// PUBLISH of some 2 MiB, as far as its payload.
const BEGUN_PUBLISH: &[u8] = b"\x30\x80\x80\x80\x01\0\x01t\0";

#[test]
fn a_connect_beyond_its_limit_is_refused_with_its_reason() {
    let broker = Broker::with_config("[limits]\nconnect_bytes_max = \"1KiB\"\n");
    let mut client = broker.open();
    client.send_hex("10 80 08 00 04 4d 51 54 54 05 02");
    client.expect_connack_refusal(reason::PACKET_TOO_LARGE);
    let mut older = broker.open_as(Version::V3_1_1);
    older.send_hex("10 80 08 00 04 4d 51 54 54 04 02");
    older.expect_closed();
    broker.connect("small");
}

#[test]
fn clients_that_are_not_admitted_have_a_budget_and_those_beyond_it_are_named() {
    let broker = Broker::with_config("[limits]\nunadmitted_bytes_max = \"64KiB\"\n");
    let mut admitted = broker.connect("admitted");
    let mut strangers: Vec<_> = (0..3).map(|_| broker.open()).collect();
    for stranger in &mut strangers {
        stranger.send(begun(BEGUN_CONNECT, 50_000));
    }
    let line = broker.wait_for_log("limits.unadmitted_bytes_max is reached");
    assert!(line.contains("127.0.0.1"), "{line}");
    admitted.ping();
    broker.connect("another");
}

#[test]
fn the_client_that_holds_most_is_told_so_and_named() {
    let broker = Broker::with_config("[limits]\nmemory_bytes_max = \"1MiB\"\n");
    let mut modest = broker.connect("modest");
    modest.send(begun(BEGUN_PUBLISH, 10_000));
    let mut greedy = broker.connect("greedy");
    greedy.send(begun(BEGUN_PUBLISH, 1_500_000));
    greedy.expect_disconnect(reason::QUOTA_EXCEEDED);
    let line = broker.wait_for_log("limits.memory_bytes_max is reached");
    assert!(line.contains("greedy"), "{line}");
    modest.send(begun(b"", 10_000));
    broker.connect("another");
}

/// With so many bytes behind it.
fn begun(front: &[u8], bytes: usize) -> Vec<u8> {
    [front, &vec![b'x'; bytes]].concat()
}
