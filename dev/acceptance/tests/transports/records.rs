//! Records of TLS that do not fit packets, and those that carry none.

use std::io::Write as _;
use std::process::Stdio;

use unbroken_acceptance::raw::{Connect, Publish, Subscribe, Version, Will};
use unbroken_acceptance::tools::Tool;
use unbroken_acceptance::{Broker, Launch};

use crate::certificates::Authority;
use crate::programs::{has, port_of};
use crate::secured::Secured;
use crate::websocket::{REQUEST, frame};

const CONFIG: &str = "\
[[listeners]]
port = 0

[[listeners]]
protocol = \"mqtts\"
port = 0
certificate_file = \"DIRECTORY/server.pem\"
key_file = \"DIRECTORY/server.key\"

[[listeners]]
protocol = \"wss\"
port = 0
certificate_file = \"DIRECTORY/server.pem\"
key_file = \"DIRECTORY/server.key\"
";

pub(crate) const PING: &[u8] = b"\xc0\x00";
pub(crate) const PONG: &[u8] = b"\xd0\x00";
pub(crate) const CONNACK: &[u8] = b"\x20\x02\x00\x00";

fn start(authority: &Authority, shards: u32) -> Broker {
    Launch::listeners(&authority.in_config(CONFIG))
        .shards(shards)
        .start()
}

pub(crate) fn connect_packet(client_id: &str) -> Vec<u8> {
    Connect::new(Version::V3_1_1, client_id).encode()
}

/// A client of the listener with this protocol, on which MQTT can begin.
#[track_caller]
pub(crate) fn open(authority: &Authority, broker: &Broker, protocol: &str) -> Secured {
    let mut client = Secured::connect(authority, port_of(broker, protocol));
    upgrade(&mut client, protocol);
    client
}

/// Asks for WebSocket, where the protocol has it.
#[track_caller]
pub(crate) fn upgrade(client: &mut Secured, protocol: &str) {
    if protocol != "wss" {
        return;
    }
    client.send(REQUEST.as_bytes());
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        answer.extend(client.receive(1));
    }
    assert!(answer.starts_with(b"HTTP/1.1 101 "));
}

/// What a client writes to say this: itself, or a frame.
pub(crate) fn said(protocol: &str, bytes: &[u8]) -> Vec<u8> {
    match protocol {
        "wss" => frame(0x82, bytes),
        _ => bytes.to_owned(),
    }
}

/// The next bytes of MQTT, whatever frames they come in.
#[track_caller]
pub(crate) fn heard(client: &mut Secured, protocol: &str, count: usize) -> Vec<u8> {
    if protocol != "wss" {
        return client.receive(count);
    }
    let mut bytes = Vec::new();
    while bytes.len() < count {
        let header = client.receive(2);
        assert_eq!(header[0], 0x82, "a binary message");
        let length = match header[1] {
            126 => client
                .receive(2)
                .iter()
                .fold(0, |sum, byte| sum << 8 | usize::from(*byte)),
            short => usize::from(short),
        };
        bytes.extend(client.receive(length));
    }
    bytes
}

#[test]
fn packets_and_records_need_not_fit() {
    let authority = Authority::new();
    for (shards, protocol) in [(1, "mqtts"), (3, "mqtts"), (1, "wss"), (3, "wss")] {
        let broker = start(&authority, shards);
        let mut client = open(&authority, &broker, protocol);
        // Three packets and a half in one record.
        let session = [&connect_packet("halves")[..], PING, PING, PING].concat();
        let bytes = said(protocol, &session);
        let (first, rest) = bytes.split_at(bytes.len() - 1);
        client.send(first);
        let answer = [CONNACK, PONG, PONG].concat();
        let waits = protocol == "wss"; // a frame is opened as far as it has come, too
        assert_eq!(
            heard(&mut client, protocol, answer.len()),
            answer,
            "{waits}"
        );
        client.send(rest);
        assert_eq!(heard(&mut client, protocol, 2), PONG);
        // One packet in five records, which come together, and which come byte by byte.
        let message = Publish::new("news", "in pieces").qos(1).packet_id(7);
        let bytes = said(protocol, &message.encode(Version::V3_1_1));
        for size in [usize::MAX, 1] {
            let pieces = bytes.chunks(bytes.len().div_ceil(5));
            let records: Vec<_> = pieces.map(|piece| client.sealed(piece)).collect();
            assert_eq!(records.len(), 5);
            for piece in records.concat().chunks(size) {
                client.stream.write_all(piece).expect("it is sent");
            }
            assert_eq!(heard(&mut client, protocol, 4), b"\x40\x02\x00\x07");
        }
    }
}

/// A record holds far more packets than one read of a fair loop would take.
#[test]
fn all_packets_of_a_full_record_are_answered_without_another_byte() {
    let authority = Authority::new();
    for protocol in ["mqtts", "wss"] {
        let broker = start(&authority, 1);
        let mut client = open(&authority, &broker, protocol);
        client.send(&said(protocol, &connect_packet("full")));
        assert_eq!(heard(&mut client, protocol, 4), CONNACK);
        let mut packets = Vec::new();
        for id in 1..=1_000 {
            let message = Publish::new("n", "").qos(1).packet_id(id);
            packets.extend(said(protocol, &message.encode(Version::V3_1_1)));
        }
        assert!(packets.len() < 16 * 1024, "they fit in one record");
        client.send(&packets);
        let answers = heard(&mut client, protocol, 4_000);
        for (id, answer) in (1u16..).zip(answers.chunks(4)) {
            assert_eq!(answer, [&[0x40, 2][..], &id.to_be_bytes()].concat());
        }
    }
}

/// RFC 8446 lets the broker answer with its next record, which may be any time later: then it has
/// new keys, and so have both sides whoever speaks first.
#[test]
fn keys_are_updated_on_an_idle_connection_and_both_ways_go_on() {
    let authority = Authority::new();
    for (shards, protocol) in [(1, "mqtts"), (3, "wss")] {
        let broker = start(&authority, shards);
        let mut publisher = broker.connect("publisher");
        let mut client = open(&authority, &broker, protocol);
        client.send(&said(protocol, &connect_packet("idle")));
        assert_eq!(heard(&mut client, protocol, 4), CONNACK);
        let subscribe = Subscribe::to("news", 0).encode(Version::V3_1_1, 1);
        client.send(&said(protocol, &subscribe));
        assert_eq!(heard(&mut client, protocol, 5), b"\x90\x03\x00\x01\x00");
        for _ in 0..3 {
            client.tls.refresh_traffic_keys().expect("TLS 1.3 has them");
            let record = client.sealed(b"");
            assert!(!record.is_empty());
            client.stream.write_all(&record).expect("it is sent");
            publisher.publish(Publish::new("news", "x").qos(1));
            assert_eq!(heard(&mut client, protocol, 9), b"\x30\x07\x00\x04newsx");
            client.send(&said(protocol, PING));
            assert_eq!(heard(&mut client, protocol, 2), PONG);
        }
    }
}

#[test]
fn junk_behind_the_end_of_tls_is_ignored_and_harms_nobody() {
    let authority = Authority::new();
    for protocol in ["mqtts", "wss"] {
        let broker = start(&authority, 1);
        let mut bystander = broker.connect("bystander");
        bystander.subscribe_to("will", 1);
        let mut client = open(&authority, &broker, protocol);
        let connect = Connect::new(Version::V3_1_1, "leaving");
        let will = Will::new("will", "gone").qos(1);
        client.send(&said(protocol, &connect.will(will).encode()));
        assert_eq!(heard(&mut client, protocol, 4), CONNACK);
        client.tls.send_close_notify();
        let mut end = client.sealed(b"");
        end.extend([0x17, 3, 3, 0, 2, 0xff, 0xff]);
        end.extend([0x55; 100]);
        client.stream.write_all(&end).expect("it is sent");
        // It has left without a DISCONNECT: its will is published.
        bystander.take_message("will", "gone");
        client.expect_closed();
        bystander.expect_pong();
    }
}

#[test]
fn renegotiation_of_tls_1_2_is_refused() {
    if !has(Tool::OpenSsl) {
        return;
    }
    let authority = Authority::new();
    let broker = start(&authority, 1);
    let mut bystander = broker.connect("bystander");
    let port = port_of(&broker, "mqtts");
    let mut client = Tool::OpenSsl
        .program()
        .args([
            "s_client",
            "-tls1_2",
            "-connect",
            &format!("localhost:{port}"),
        ])
        .args(["-CAfile", &authority.name("ca.pem")])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut input = client.stdin.take().expect("it is piped");
    // A line with this letter alone asks for it.
    input.write_all(b"R\n").expect("it is sent");
    let output = client.wait_with_output().expect("it ends");
    drop(input);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(text.contains("RENEGOTIATING"), "{text}");
    assert!(text.contains("no renegotiation"), "{text}");
    bystander.expect_pong();
}
