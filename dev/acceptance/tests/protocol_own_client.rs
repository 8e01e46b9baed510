//! What the standards ask of a client, seen from the other end: our own `pub` and `sub` against a
//! broker that says exactly what a test makes it say.

use std::io::{Read, Write};
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::time::{Duration, Instant};

use unbroken_acceptance::raw::to_hex;
use unbroken_acceptance::{FakeBroker, Guest, process};

/// CONNACK of 5.0 and of 3.1.1: accepted, no session, nothing else to say.
const WELCOME_5: &str = "20 03 00 00 00";
const WELCOME_311: &str = "20 02 00 00";

/// A command of ours on its way; ended when dropped.
struct Ours(Child);

impl Ours {
    /// Starts `unbroken <arguments>` against the fake broker.
    fn start(broker: &FakeBroker, arguments: &[&str]) -> Self {
        let port = broker.port().to_string();
        let child = Command::new(process::binary())
            .args(arguments)
            .args(["-p", &port])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        Self(child)
    }

    fn input(&mut self) -> ChildStdin {
        self.0.stdin.take().expect("stdin is piped and taken once")
    }

    /// Waits for its end.
    fn finish(mut self) -> Output {
        drop(self.0.stdin.take());
        let output = std::mem::replace(
            &mut self.0,
            // Something to drop in its place.
            Command::new("true").spawn().expect("`true` is everywhere"),
        );
        output
            .wait_with_output()
            .expect("a child can be waited for")
    }
}

impl Drop for Ours {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The packet identifier at the front of an acknowledgement or after the topic of a PUBLISH.
fn id_of_publish(body: &[u8]) -> u16 {
    let topic = usize::from(u16::from_be_bytes([body[0], body[1]]));
    u16::from_be_bytes([body[2 + topic], body[3 + topic]])
}

/// Answers a SUBSCRIBE of one filter by granting what it asks for.
#[track_caller]
fn grant(guest: &mut Guest, v5: bool) {
    let body = guest.expect(0x82);
    let properties = if v5 { "00" } else { "" };
    let (id, qos) = (to_hex(&body[..2]), body[body.len() - 1] & 3);
    let length = if v5 { 4 } else { 3 };
    guest.send_hex(&format!("90 {length:02x} {id} {properties} {qos:02x}"));
}

/// [MQTT-3.1.0-1, MQTT-3.14.4-1, MQTT-3.14.4-2, MQTT-4.3.2-2, MQTT311-3.1.0-1, MQTT311-3.14.4-1,
/// MQTT311-3.14.4-2, MQTT311-7.1.2-1]
#[test]
fn pub_connects_publishes_says_goodbye_and_closes() {
    for (version, welcome) in [("5", WELCOME_5), ("311", WELCOME_311)] {
        let broker = FakeBroker::listen();
        let ours = Ours::start(
            &broker,
            &["pub", "-V", version, "-t", "a", "-m", "x", "-q", "1"],
        );
        let mut guest = broker.welcome(welcome);
        let body = guest.expect(0x32);
        let id = id_of_publish(&body);
        assert_ne!(id, 0);
        guest.send_hex(&format!("40 02 {id:04x}"));
        guest.expect(0xe0);
        guest.expect_closed();
        assert!(ours.finish().status.success());
    }
}

/// [MQTT-4.3.3-4, MQTT-4.3.3-6, MQTT311-4.3.3-1]
#[test]
fn pub_releases_a_quality_2_message_that_was_received() {
    let broker = FakeBroker::listen();
    let ours = Ours::start(
        &broker,
        &["pub", "-t", "a", "-m", "x", "-q", "2", "-V", "5"],
    );
    let mut guest = broker.welcome(WELCOME_5);
    let id = id_of_publish(&guest.expect(0x34));
    guest.send_hex(&format!("50 02 {id:04x}"));
    assert_eq!(guest.expect(0x62)[..2], id.to_be_bytes());
    guest.send_hex(&format!("70 02 {id:04x}"));
    guest.expect(0xe0);
    guest.expect_closed();
    assert!(ours.finish().status.success());
}

/// A broker must not fill the memory of its client: 5.0 brokers are told, and no client waits for
/// the rest of a packet that is too large.
#[test]
fn sub_reads_no_packet_that_is_larger_than_its_limit() {
    for (version, welcome) in [("5", WELCOME_5), ("311", WELCOME_311)] {
        let broker = FakeBroker::listen();
        let _ours = Ours::start(&broker, &["sub", "-V", version, "-t", "a"]);
        let mut guest = broker.accept();
        let connect = guest.expect(0x10);
        let announced = [&[0x27], &(16_u32 << 20).to_be_bytes()[..]].concat();
        let is_announced = connect.windows(5).any(|bytes| bytes == announced);
        assert_eq!(is_announced, version == "5");
        guest.send_hex(welcome);
        grant(&mut guest, version == "5");
        // A PUBLISH of 256 MB begins.
        guest.send_hex("30 ff ff ff 7f 00 01 61 00");
        if version == "5" {
            let reason = guest.expect(0xe0);
            assert_eq!(reason.first(), Some(&0x95), "Packet too large");
        }
        guest.expect_closed();
    }
}

/// [MQTT-2.2.1-3, MQTT-4.3.2-1, MQTT311-2.3.1-2]
#[test]
fn messages_under_way_have_different_identifiers() {
    let broker = FakeBroker::listen();
    let mut ours = Ours::start(&broker, &["pub", "-t", "a", "-l", "-q", "1", "-V", "5"]);
    let mut input = ours.input();
    let mut guest = broker.welcome(WELCOME_5);
    input.write_all(b"1\n2\n3\n").unwrap();
    drop(input);
    let mut ids: Vec<u16> = (0..3).map(|_| id_of_publish(&guest.expect(0x32))).collect();
    ids.sort_unstable();
    ids.dedup();
    assert!(ids.len() == 3 && ids[0] > 0, "{ids:?}");
    for id in ids {
        guest.send_hex(&format!("40 02 {id:04x}"));
    }
    guest.expect(0xe0);
    assert!(ours.finish().status.success());
}

/// [MQTT-3.3.4-7, MQTT-4.9.0-1, MQTT-4.9.0-2]
#[test]
fn pub_keeps_to_the_receive_maximum_of_the_broker() {
    let broker = FakeBroker::listen();
    let mut ours = Ours::start(&broker, &["pub", "-t", "a", "-l", "-q", "1", "-V", "5"]);
    let mut input = ours.input();
    let mut guest = broker.welcome("20 06 00 00 03 21 00 02");
    input.write_all(b"1\n2\n3\n").unwrap();
    drop(input);
    let first = id_of_publish(&guest.expect(0x32));
    let second = id_of_publish(&guest.expect(0x32));
    assert_eq!(
        guest.poll(Duration::from_millis(300)),
        None,
        "a third while two are under way"
    );
    guest.send_hex(&format!("40 02 {first:04x}"));
    let third = id_of_publish(&guest.expect(0x32));
    guest.send_hex(&format!("40 02 {second:04x} 40 02 {third:04x}"));
    guest.expect(0xe0);
    assert!(ours.finish().status.success());
}

/// [MQTT-3.2.2-11]
#[test]
fn pub_does_not_publish_above_the_maximum_quality_of_the_broker() {
    let broker = FakeBroker::listen();
    let ours = Ours::start(
        &broker,
        &["pub", "-t", "a", "-m", "x", "-q", "2", "-V", "5"],
    );
    let mut guest = broker.welcome("20 05 00 00 02 24 01");
    while let Some((first_byte, _)) = guest.receive() {
        assert_ne!(first_byte & 0xf6, 0x34, "published at quality 2");
        if first_byte & 0xf0 == 0x30 {
            break;
        }
    }
    drop(guest);
    drop(ours);
}

/// [MQTT-3.2.2-17] [MQTT-3.2.2-18]
#[test]
fn pub_sends_no_alias_that_the_broker_did_not_allow() {
    let broker = FakeBroker::listen();
    let alias = ["-D", "PUBLISH", "topic-alias", "5"];
    let args = [&["pub", "-t", "a", "-m", "x", "-V", "5"], &alias[..]].concat();
    let ours = Ours::start(&broker, &args);
    let mut guest = broker.welcome("20 06 00 00 03 22 00 04");
    while let Some((first_byte, _)) = guest.receive() {
        assert_ne!(
            first_byte & 0xf0,
            0x30,
            "published with alias 5 of at most 4"
        );
    }
    drop(ours);
}

/// [MQTT-3.2.2-14]
#[test]
fn pub_does_not_retain_where_the_broker_keeps_nothing() {
    let broker = FakeBroker::listen();
    let ours = Ours::start(&broker, &["pub", "-t", "a", "-m", "x", "-r", "-V", "5"]);
    let mut guest = broker.welcome("20 05 00 00 02 25 00");
    while let Some((first_byte, _)) = guest.receive() {
        assert_ne!(first_byte & 0xf1, 0x31, "published with the retain flag");
        if first_byte & 0xf0 == 0x30 {
            break;
        }
    }
    drop(guest);
    drop(ours);
}

/// [MQTT-3.2.2-15]
#[test]
fn pub_sends_nothing_larger_than_the_broker_takes() {
    let broker = FakeBroker::listen();
    let large = "x".repeat(200);
    let ours = Ours::start(&broker, &["pub", "-t", "a", "-m", &large, "-V", "5"]);
    let mut guest = broker.welcome("20 08 00 00 05 27 00 00 00 64");
    while let Some((first_byte, body)) = guest.receive() {
        assert_ne!(first_byte & 0xf0, 0x30, "published {} bytes", body.len());
    }
    assert!(
        !ours.finish().status.success(),
        "it must say that nothing was published"
    );
}

/// [MQTT-3.2.2-17, MQTT-3.2.2-18, MQTT-3.3.2-9]
#[test]
fn pub_uses_no_alias_that_the_broker_did_not_allow() {
    let broker = FakeBroker::listen();
    let mut ours = Ours::start(&broker, &["pub", "-t", "a/long/topic", "-l", "-V", "5"]);
    let mut input = ours.input();
    let mut guest = broker.welcome(WELCOME_5);
    input.write_all(b"1\n2\n").unwrap();
    drop(input);
    for text in [b"1", b"2"] {
        let body = guest.expect(0x30);
        assert_eq!(
            body,
            [b"\x00\x0ca/long/topic\x00", text.as_slice()].concat()
        );
    }
    assert!(ours.finish().status.success());
}

/// [MQTT-3.1.2-20, MQTT311-3.1.2-23]
#[test]
fn sub_pings_within_its_keep_alive() {
    let broker = FakeBroker::listen();
    let _ours = Ours::start(&broker, &["sub", "-V", "311", "-t", "a", "-k", "5"]);
    let mut guest = broker.welcome(WELCOME_311);
    grant(&mut guest, false);
    let start = Instant::now();
    guest.expect(0xc0);
    assert!(
        start.elapsed() <= Duration::from_secs(6),
        "pinged after {:?}",
        start.elapsed()
    );
}

/// [MQTT-3.1.2-21, MQTT-3.2.2-21]
#[test]
fn sub_keeps_to_the_keep_alive_of_the_broker() {
    let broker = FakeBroker::listen();
    let _ours = Ours::start(&broker, &["sub", "-V", "5", "-t", "a", "-k", "3600"]);
    let mut guest = broker.welcome("20 06 00 00 03 13 00 02");
    grant(&mut guest, true);
    let start = Instant::now();
    guest.expect(0xc0);
    assert!(
        start.elapsed() <= Duration::from_secs(3),
        "pinged after {:?}",
        start.elapsed()
    );
}

/// [MQTT-4.5.0-2, MQTT-4.3.2-4, MQTT-4.3.3-8, MQTT-4.3.3-11, MQTT311-4.5.0-2, MQTT311-4.3.2-2,
/// MQTT311-4.3.3-2]
#[test]
fn sub_acknowledges_messages_even_if_it_does_not_print_them() {
    for (version, welcome) in [("5", WELCOME_5), ("311", WELCOME_311)] {
        let v5 = version == "5";
        let broker = FakeBroker::listen();
        let arguments = ["sub", "-V", version, "-t", "#", "-T", "hidden", "-q", "2"];
        let _ours = Ours::start(&broker, &arguments);
        let mut guest = broker.welcome(welcome);
        grant(&mut guest, v5);
        let (length, properties) = if v5 { (12, "00") } else { (11, "") };
        // "hidden" with packet identifier 7 and one byte of payload.
        let message = format!("{length:02x} 00 06 68 69 64 64 65 6e 00 07 {properties} 78");
        guest.send_hex(&format!("32 {message}"));
        assert_eq!(guest.expect(0x40)[..2], [0, 7]);
        guest.send_hex(&format!("34 {message}"));
        assert_eq!(guest.expect(0x50)[..2], [0, 7]);
        guest.send_hex("62 02 00 07");
        assert_eq!(guest.expect(0x70)[..2], [0, 7]);
    }
}

#[test]
fn sub_acknowledges_a_message_after_it_is_written() {
    // More than a pipe holds, so that it is written only while the test reads.
    let payload = "x".repeat(1 << 20);
    let broker = FakeBroker::listen();
    let mut ours = Ours::start(&broker, &["sub", "-t", "a", "-q", "1"]);
    let mut output = ours.0.stdout.take().expect("stdout is piped");
    let mut guest = broker.welcome(WELCOME_311);
    grant(&mut guest, false);
    guest.send([b"\x32\x85\x80\x40\0\x01a\0\x07", payload.as_bytes()].concat());
    let early = guest.poll(Duration::from_millis(300));
    assert_eq!(early, None, "acknowledged before it was written");
    let mut printed = vec![0; payload.len() + 1];
    output.read_exact(&mut printed).unwrap();
    assert_eq!(guest.expect(0x40), [0, 7]);
}

#[test]
fn sub_does_not_acknowledge_what_it_cannot_write() {
    let broker = FakeBroker::listen();
    let mut ours = Ours::start(&broker, &["sub", "-t", "a", "-q", "1"]);
    drop(ours.0.stdout.take());
    let mut guest = broker.welcome(WELCOME_311);
    grant(&mut guest, false);
    guest.send_hex("32 06 00 01 61 00 07 78");
    guest.expect_closed();
    assert!(ours.finish().status.success());
}

/// [MQTT-3.2.2-4]
#[test]
fn sub_closes_when_told_of_a_session_that_it_does_not_have() {
    let broker = FakeBroker::listen();
    let _ours = Ours::start(&broker, &["sub", "-V", "5", "-t", "a"]);
    let mut guest = broker.welcome("20 03 01 00 00");
    // A DISCONNECT that says why may come first; a subscription must not.
    match guest.receive() {
        None => {}
        Some((0xe0, _)) => guest.expect_closed(),
        Some((first_byte, _)) => panic!("went on with {first_byte:02x}"),
    }
}

/// [MQTT-3.2.2-5]
#[test]
fn sub_forgets_its_session_when_the_broker_has_none() {
    let broker = FakeBroker::listen();
    let arguments = [
        "sub", "-V", "5", "-t", "a", "-q", "2", "-c", "-i", "kept", "-C", "2",
    ];
    let ours = Ours::start(&broker, &arguments);
    // Quality 2, identifier 7, on "a": received, but not released before the connection is lost.
    let message = "34 07 00 01 61 00 07 00 78";
    let mut guest = broker.welcome(WELCOME_5);
    grant(&mut guest, true);
    guest.send_hex(message);
    guest.expect(0x50);
    drop(guest);
    // The broker has lost the session, so the same identifier is another message.
    let mut guest = broker.welcome(WELCOME_5);
    grant(&mut guest, true);
    guest.send_hex(message);
    guest.expect(0x50);
    guest.send_hex("62 02 00 07");
    let output = ours.finish();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "x\nx\n");
}

/// [MQTT-4.13.1-1, MQTT-3.3.2-7]
/// A broker that stops waits for it.
#[test]
fn sub_closes_its_old_connection_while_it_tries_again() {
    let broker = FakeBroker::listen();
    let _ours = Ours::start(&broker, &["sub", "-t", "a"]);
    let mut guest = broker.welcome(WELCOME_311);
    grant(&mut guest, false);
    // Nothing listens any more: there is no new connection that could replace the old one.
    drop(broker);
    guest.finish();
    guest.expect_closed();
}

#[test]
fn sub_closes_on_what_a_broker_must_not_send() {
    for (name, bytes) in [
        ("quality 3", "36 07 00 01 61 00 07 00 78"),
        ("an alias never set", "30 07 00 00 03 23 00 01 78"),
        ("a packet only clients send", "c0 00"),
        ("a second CONNACK", WELCOME_5),
    ] {
        unbroken_acceptance::case(name);
        let broker = FakeBroker::listen();
        let _ours = Ours::start(&broker, &["sub", "-V", "5", "-t", "a"]);
        let mut guest = broker.welcome(WELCOME_5);
        grant(&mut guest, true);
        guest.send_hex(bytes);
        match guest.receive() {
            None => {}
            Some((0xe0, body)) => {
                assert!(
                    body.first().is_some_and(|&code| code >= 0x80),
                    "{body:02x?}"
                );
                guest.expect_closed();
            }
            Some((first_byte, _)) => panic!("went on with {first_byte:02x}"),
        }
    }
}
