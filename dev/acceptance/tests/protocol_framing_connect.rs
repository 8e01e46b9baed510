//! Framing and validation of CONNECT: what the broker does with a greeting that no correct client
//! sends.
//!
//! 5.0 clients may be told the reason; 3.1.1 clients are dropped without an answer.

use unbroken_acceptance::raw::{Connect, Version, Will, field, frame, id, reason};
use unbroken_acceptance::{Broker, Launch, case};

const MALFORMED: u8 = reason::MALFORMED_PACKET;

const PROTOCOL_ERROR: u8 = reason::PROTOCOL_ERROR;

/// Strings no MQTT packet may contain: ill-formed, a surrogate, overlong, and the null character.
const BAD_STRINGS: [(&str, &[u8]); 6] = [
    ("a lone continuation byte", b"a\x80"),
    ("a sequence cut short", b"a\xc3("),
    ("a byte UTF-8 never uses", b"\xffa"),
    ("a surrogate", b"\xed\xa0\x80"),
    ("an overlong null", b"\xc0\x80"),
    ("the null character", b"a\0b"),
];

/// [MQTT-1.5.4-1, MQTT-1.5.4-2, MQTT-3.1.3-4, MQTT-3.1.3-11, MQTT-3.1.3-12, MQTT-3.1.4-1,
/// MQTT-3.1.3-8]
#[test]
fn connect_with_strings_that_are_not_utf8_is_refused() {
    let broker = Broker::start();
    for (name, bad) in BAD_STRINGS {
        let head = |flags| [field("MQTT").as_slice(), &[5, flags, 0, 0, 0]].concat();
        let will = [&[0], field(bad).as_slice(), &field("x")].concat();
        let packets = [
            ("client id", frame(0x10, &[&head(0x02), &field(bad)])),
            (
                "user name",
                frame(0x10, &[&head(0x82), &field("c"), &field(bad)]),
            ),
            (
                "will topic",
                frame(0x10, &[&head(0x06), &field("c"), &will]),
            ),
        ];
        for (place, packet) in packets {
            case(&format!("{name} as {place}"));
            let mut client = broker.open();
            client.send(packet);
            client.expect_refused(&[MALFORMED, PROTOCOL_ERROR, 0x85, 0x90]);
        }
    }
}

/// [MQTT311-1.5.3-1, MQTT311-1.5.3-2, MQTT311-3.1.3-4, MQTT311-3.1.3-10, MQTT311-3.1.3-11]
#[test]
fn connect_of_3_1_1_with_strings_that_are_not_utf8_is_dropped_without_an_answer() {
    let broker = Broker::start();
    for (name, bad) in BAD_STRINGS {
        let head = |flags| [field("MQTT").as_slice(), &[4, flags, 0, 0]].concat();
        let packets = [
            ("client id", frame(0x10, &[&head(0x02), &field(bad)])),
            (
                "user name",
                frame(0x10, &[&head(0x82), &field("c"), &field(bad)]),
            ),
            (
                "will topic",
                frame(0x10, &[&head(0x06), &field("c"), &field(bad), &field("x")]),
            ),
        ];
        for (place, packet) in packets {
            case(&format!("{name} as {place}"));
            let mut client = broker.open_as(Version::V3_1_1);
            client.send(packet);
            client.expect_closed();
        }
    }
}

/// [MQTT-3.1.4-1, MQTT-4.9.0-1]
#[test]
fn connect_properties_out_of_range_are_refused() {
    let broker = Broker::start();
    for (name, property, value) in [
        ("receive maximum 0", id::RECEIVE_MAXIMUM, 0),
        ("maximum packet size 0", id::MAXIMUM_PACKET_SIZE, 0),
        (
            "request problem information 2",
            id::REQUEST_PROBLEM_INFORMATION,
            2,
        ),
        (
            "request response information 2",
            id::REQUEST_RESPONSE_INFORMATION,
            2,
        ),
    ] {
        case(name);
        let mut client = broker.attempt(&Connect::v5("c").property(property, value));
        client.expect_refused(&[MALFORMED, PROTOCOL_ERROR]);
    }
}

/// [MQTT-3.1.4-1]
#[test]
fn connect_properties_given_twice_or_misplaced_are_refused() {
    let broker = Broker::start();
    let connects = [
        Connect::v5("c")
            .property(id::RECEIVE_MAXIMUM, 5)
            .property(id::RECEIVE_MAXIMUM, 5),
        Connect::v5("c")
            .property(id::TOPIC_ALIAS_MAXIMUM, 5)
            .property(id::TOPIC_ALIAS_MAXIMUM, 5),
        Connect::v5("c")
            .property(id::SESSION_EXPIRY_INTERVAL, 5)
            .property(0x11, 5),
        Connect::v5("c").property(id::TOPIC_ALIAS, 1),
        Connect::v5("c").property(id::SUBSCRIPTION_IDENTIFIER, 1),
        Connect::v5("c").property(id::SERVER_KEEP_ALIVE, 1),
        Connect::v5("c").will(Will::new("w", "x").property(id::TOPIC_ALIAS, 1)),
        Connect::v5("c").will(
            Will::new("w", "x")
                .property(id::WILL_DELAY_INTERVAL, 1)
                .property(0x18, 1),
        ),
        Connect::v5("c").will(Will::new("w", "x").property(id::PAYLOAD_FORMAT_INDICATOR, 2)),
    ];
    for connect in connects {
        case(&format!("{connect:?}"));
        broker
            .attempt(&connect)
            .expect_refused(&[MALFORMED, PROTOCOL_ERROR]);
    }
}

/// [MQTT-3.1.2-3, MQTT-3.1.4-1]
#[test]
fn reserved_connect_flag_is_refused() {
    let broker = Broker::start();
    let mut client = broker.open();
    client.send_hex("10 0e 00 04 4d 51 54 54 05 03 00 00 00 00 01 63");
    client.expect_refused(&[MALFORMED]);
}

/// [MQTT311-3.1.2-3, MQTT311-3.1.4-1, MQTT311-3.2.2-6]
#[test]
fn reserved_connect_flag_of_3_1_1_is_dropped_without_an_answer() {
    let broker = Broker::start();
    let mut client = broker.open_as(Version::V3_1_1);
    client.send_hex("10 0d 00 04 4d 51 54 54 04 03 00 00 00 01 63");
    client.expect_closed();
}

/// [MQTT-3.1.2-11, MQTT-3.1.2-12, MQTT-3.1.2-13]
#[test]
fn will_quality_or_retain_without_a_will_is_refused() {
    let broker = Broker::start();
    for (name, flags) in [
        ("QoS 1", "0a"),
        ("QoS 2", "12"),
        ("retain", "22"),
        ("will with QoS 3", "1e"),
    ] {
        case(name);
        let mut client = broker.open();
        client.send_hex(&format!(
            "10 0e 00 04 4d 51 54 54 05 {flags} 00 00 00 00 01 63"
        ));
        client.expect_refused(&[MALFORMED]);
    }
}

/// [MQTT311-3.1.2-11, MQTT311-3.1.2-13, MQTT311-3.1.2-14, MQTT311-3.1.2-15]
#[test]
fn will_quality_or_retain_without_a_will_in_3_1_1_is_dropped_without_an_answer() {
    let broker = Broker::start();
    for (name, flags) in [("QoS 1", "0a"), ("QoS 2", "12"), ("retain", "22")] {
        case(name);
        let mut client = broker.open_as(Version::V3_1_1);
        client.send_hex(&format!(
            "10 0d 00 04 4d 51 54 54 04 {flags} 00 00 00 01 63"
        ));
        client.expect_closed();
    }
    case("will with QoS 3");
    let mut client = broker.open_as(Version::V3_1_1);
    client.send_hex("10 13 00 04 4d 51 54 54 04 1e 00 00 00 01 63 00 01 77 00 01 78");
    client.expect_closed();
}

/// [MQTT-3.1.2-9, MQTT-3.1.2-17, MQTT-3.1.2-19, MQTT-3.1.3-1, MQTT-3.1.3-3]
#[test]
fn connect_without_the_fields_its_flags_announce_is_refused() {
    let broker = Broker::start();
    for (name, rest) in [
        ("no client id", "10 0b 00 04 4d 51 54 54 05 02 00 00 00"),
        ("no will", "10 0e 00 04 4d 51 54 54 05 06 00 00 00 00 01 63"),
        (
            "no user name",
            "10 0e 00 04 4d 51 54 54 05 82 00 00 00 00 01 63",
        ),
        (
            "no password",
            "10 0e 00 04 4d 51 54 54 05 42 00 00 00 00 01 63",
        ),
    ] {
        case(name);
        let mut client = broker.open();
        client.send_hex(rest);
        client.expect_refused(&[MALFORMED]);
    }
}

/// [MQTT-3.1.2-16, MQTT-3.1.2-18]
#[test]
fn connect_with_fields_its_flags_do_not_announce_is_refused() {
    let broker = Broker::start();
    let mut client = broker.open();
    client.send_hex("10 11 00 04 4d 51 54 54 05 02 00 00 00 00 01 63 00 01 75");
    client.expect_refused(&[MALFORMED]);
}

/// [MQTT311-3.1.2-9, MQTT311-3.1.2-18, MQTT311-3.1.2-19, MQTT311-3.1.2-20, MQTT311-3.1.2-21,
/// MQTT311-3.1.3-1, MQTT311-3.1.3-3]
#[test]
fn connect_of_3_1_1_whose_flags_and_fields_disagree_is_dropped_without_an_answer() {
    let broker = Broker::start();
    for (name, rest) in [
        ("no client id", "10 0a 00 04 4d 51 54 54 04 02 00 00"),
        ("no will", "10 0d 00 04 4d 51 54 54 04 06 00 00 00 01 63"),
        (
            "no user name",
            "10 0d 00 04 4d 51 54 54 04 82 00 00 00 01 63",
        ),
        (
            "no password",
            "10 10 00 04 4d 51 54 54 04 c2 00 00 00 01 63 00 01 75",
        ),
        (
            "a field too many",
            "10 10 00 04 4d 51 54 54 04 02 00 00 00 01 63 00 01 75",
        ),
    ] {
        case(name);
        let mut client = broker.open_as(Version::V3_1_1);
        client.send_hex(rest);
        client.expect_closed();
    }
}

/// [MQTT311-3.1.2-22]
#[test]
fn password_without_user_name_in_3_1_1_is_dropped_without_an_answer() {
    let broker = Broker::start();
    let mut client = broker.attempt(&Connect::v311("c").password("secret"));
    client.expect_closed();
}

/// 5.0 allows what 3.1.1 forbids.
#[test]
fn password_without_user_name_in_5_0_is_accepted() {
    let broker = Broker::start();
    broker.accept(&Connect::v5("c").password("token"));
}

/// They are "not used" in 3.1. The session is found where every other CONNECT of its client finds
/// it.
#[test]
fn a_3_1_client_may_set_the_unused_flags_of_its_first_byte() {
    let broker = Launch::default().shards(3).start();
    let connect = |first_byte: u8, client_id: &str| {
        let head = [field("MQIsdp").as_slice(), &[3, 0, 0, 0]].concat();
        let mut client = broker.open_as(Version::V3_1);
        client.send(frame(first_byte, &[&head, &field(client_id)]));
        assert_eq!(client.expect_connack().reason, 0, "{first_byte:#04x}");
        client
    };
    for number in 0..8 {
        for flags in [0x4, 0x1, 0xf] {
            let client_id = format!("c{number}");
            let mut first = connect(0x10, &client_id);
            let mut second = connect(0x10 | flags, &client_id);
            first.expect_closed();
            second.expect_pong();
        }
    }
}

/// [MQTT-2.1.3-1, MQTT311-2.2.2-1, MQTT311-2.2.2-2]
#[test]
fn later_clients_may_not_set_the_reserved_flags_of_their_first_byte() {
    let broker = Broker::start();
    for version in [Version::V3_1_1, Version::V5] {
        let mut connect = Connect::new(version, "c").encode();
        connect[0] = 0x14;
        let mut client = broker.open_as(version);
        client.send(connect);
        client.expect_refused(&[MALFORMED]);
    }
}
