//! Framing and validation: what the broker does with bytes that no correct client sends.
//!
//! 5.0 clients are told the reason before the connection ends; 3.x clients just lose it.

mod strings;

use unbroken_acceptance::raw::{
    self, AckKind, Connect, Properties, Publish, Subscribe, Version, Will, disconnect_with, field,
    frame, id, reason,
};
use unbroken_acceptance::{Broker, case};

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

/// Connects a fresh client of the version for each row, sends the bytes and expects it dropped.
#[track_caller]
fn dropped(version: Version, reason: u8, rows: &[(&str, &str)]) {
    let broker = Broker::start();
    for (name, bytes) in rows {
        case(name);
        let mut client = broker.connect_as(version, "sender");
        client.send_hex(bytes);
        client.expect_dropped(reason);
    }
}

/// The same for bytes made by the caller, for reasons either of which the standard allows.
#[track_caller]
fn dropped_for(broker: &Broker, name: &str, bytes: &[u8]) {
    case(name);
    let mut client = broker.connect("sender");
    client.send(bytes);
    client.expect_disconnect_one_of(&[MALFORMED, PROTOCOL_ERROR]);
}

/// [MQTT-4.13.1-1, MQTT311-4.8.0-1]
#[test]
fn remaining_length_of_more_than_four_bytes_ends_the_connection() {
    dropped(
        Version::V5,
        MALFORMED,
        &[("publish", "30 ff ff ff ff 7f"), ("ping", "c0 80 80 80 80")],
    );
    dropped(Version::V3_1_1, 0, &[("publish", "30 ff ff ff ff 7f")]);
}

/// [MQTT-1.5.5-1]
#[test]
fn lengths_written_with_more_bytes_than_needed_are_malformed() {
    dropped(
        Version::V5,
        MALFORMED,
        &[
            ("remaining length", "c0 80 00"),
            ("property length", "30 06 00 01 61 80 00 78"),
            (
                "subscription identifier",
                "82 0a 00 01 03 0b 81 00 00 01 61 00",
            ),
        ],
    );
}

/// [MQTT-3.12.4-1]
#[test]
fn packets_longer_than_their_content_are_malformed() {
    dropped(
        Version::V5,
        MALFORMED,
        &[
            ("PINGREQ", "c0 01 00"),
            ("PUBACK", "40 05 00 01 00 00 00"),
            ("PUBREL", "62 05 00 01 00 00 00"),
            ("PUBREC", "50 06 00 01 00 00 00 00"),
            ("DISCONNECT", "e0 03 00 00 00"),
        ],
    );
    dropped(
        Version::V3_1_1,
        0,
        &[
            ("PINGREQ", "c0 01 00"),
            ("PUBACK", "40 03 00 01 00"),
            ("PUBREL", "62 03 00 01 00"),
            ("DISCONNECT", "e0 01 00"),
        ],
    );
}

/// [MQTT-4.13.1-1, MQTT311-4.8.0-1]
#[test]
fn packets_shorter_than_their_content_are_malformed() {
    let rows = [
        ("SUBSCRIBE without options", "82 06 00 01 00 00 01 61"),
        (
            "SUBSCRIBE with a filter cut short",
            "82 07 00 01 00 00 05 61 62",
        ),
        ("SUBSCRIBE with half an identifier", "82 01 00"),
        (
            "UNSUBSCRIBE with a filter cut short",
            "a2 06 00 01 00 00 05 61",
        ),
        ("PUBLISH with a topic cut short", "30 03 00 05 61"),
        ("PUBLISH without a topic", "30 00"),
        ("PUBACK without an identifier", "40 00"),
        ("PUBREL with half an identifier", "62 01 00"),
    ];
    dropped(Version::V5, MALFORMED, &rows);
    let rows = [
        ("SUBSCRIBE without options", "82 05 00 01 00 01 61"),
        (
            "SUBSCRIBE with a filter cut short",
            "82 06 00 01 00 05 61 62",
        ),
        (
            "UNSUBSCRIBE with a filter cut short",
            "a2 05 00 01 00 05 61",
        ),
        ("PUBLISH with a topic cut short", "30 03 00 05 61"),
        ("PUBREL with half an identifier", "62 01 00"),
    ];
    dropped(Version::V3_1_1, 0, &rows);
}

/// [MQTT-2.1.3-1, MQTT-3.6.1-1, MQTT-3.8.1-1, MQTT-3.10.1-1, MQTT-3.14.1-1]
#[test]
fn reserved_header_flags_are_malformed() {
    dropped(
        Version::V5,
        MALFORMED,
        &[
            ("PUBACK", "41 02 00 01"),
            ("PUBREC", "52 02 00 01"),
            ("PUBREL", "60 02 00 01"),
            ("PUBREL", "63 02 00 01"),
            ("PUBCOMP", "78 02 00 01"),
            ("SUBSCRIBE", "80 07 00 01 00 00 01 61 00"),
            ("SUBSCRIBE", "83 07 00 01 00 00 01 61 00"),
            ("UNSUBSCRIBE", "a0 06 00 01 00 00 01 61"),
            ("PINGREQ", "c1 00"),
            ("DISCONNECT", "e1 00"),
        ],
    );
}

/// AUTH is out of place here as well, which the broker may say instead.
/// [MQTT-3.15.1-1]
#[test]
fn auth_with_reserved_header_flags_ends_the_connection() {
    let broker = Broker::start();
    dropped_for(&broker, "AUTH", &raw::hex("f1 02 19 00"));
}

/// [MQTT311-2.2.2-1, MQTT311-2.2.2-2, MQTT311-3.6.1-1, MQTT311-3.8.1-1, MQTT311-3.10.1-1,
/// MQTT311-3.14.1-1]
#[test]
fn reserved_header_flags_end_a_3_1_1_connection() {
    dropped(
        Version::V3_1_1,
        0,
        &[
            ("PUBACK", "41 02 00 01"),
            ("PUBREL", "60 02 00 01"),
            ("SUBSCRIBE", "80 06 00 01 00 01 61 00"),
            ("UNSUBSCRIBE", "a0 05 00 01 00 01 61"),
            ("PINGREQ", "c1 00"),
            ("DISCONNECT", "e1 00"),
        ],
    );
}

/// A DISCONNECT with reserved flags is no normal end: the will is published.
/// [MQTT-3.14.1-1]
#[test]
fn disconnect_with_reserved_flags_does_not_cancel_the_will() {
    let broker = Broker::start();
    let mut watcher = broker.connect("watcher");
    watcher.subscribe_to("will", 0);
    let mut client = broker.accept(&Connect::v5("dying").will(Will::new("will", "gone")));
    client.send_hex("e1 00");
    client.expect_disconnect(MALFORMED);
    watcher.expect_message("will", "gone");
}

/// [MQTT-2.1.3-1, MQTT311-2.2.2-2]
#[test]
fn packet_type_0_is_malformed() {
    dropped(Version::V5, MALFORMED, &[("type 0", "00 00")]);
    dropped(
        Version::V3_1_1,
        0,
        &[("type 0", "00 00"), ("type 15", "f0 00")],
    );
}

/// [MQTT-3.3.1-4, MQTT311-3.3.1-4]
#[test]
fn quality_of_service_3_is_malformed() {
    dropped(
        Version::V5,
        MALFORMED,
        &[("publish", "36 07 00 01 61 00 01 00 78")],
    );
    dropped(
        Version::V3_1_1,
        0,
        &[("publish", "36 06 00 01 61 00 01 78")],
    );
}

/// [MQTT-3.3.1-2, MQTT-4.3.1-1, MQTT311-3.3.1-2]
#[test]
fn dup_on_quality_0_is_malformed() {
    dropped(
        Version::V5,
        MALFORMED,
        &[("publish", "38 05 00 01 61 00 78")],
    );
    dropped(Version::V3_1_1, 0, &[("publish", "38 04 00 01 61 78")]);
}

/// [MQTT-4.13.1-1, MQTT311-4.8.0-1]
#[test]
fn packets_only_a_server_sends_end_the_connection() {
    dropped(
        Version::V5,
        PROTOCOL_ERROR,
        &[
            ("CONNACK", "20 03 00 00 00"),
            ("SUBACK", "90 04 00 01 00 00"),
            ("UNSUBACK", "b0 04 00 01 00 00"),
            ("PINGRESP", "d0 00"),
        ],
    );
    dropped(
        Version::V3_1_1,
        0,
        &[
            ("CONNACK", "20 02 00 00"),
            ("SUBACK", "90 03 00 01 00"),
            ("UNSUBACK", "b0 02 00 01"),
            ("PINGRESP", "d0 00"),
        ],
    );
}

/// [MQTT-4.13.1-1]
#[test]
fn a_property_given_twice_is_a_protocol_error() {
    dropped(
        Version::V5,
        PROTOCOL_ERROR,
        &[
            ("payload format", "30 0a 00 01 61 04 01 01 01 01 78 78"),
            (
                "message expiry",
                "30 0f 00 01 61 0a 02 00 00 00 05 02 00 00 00 05 78",
            ),
            (
                "content type",
                "30 0d 00 01 61 08 03 00 01 61 03 00 01 61 78",
            ),
            (
                "response topic",
                "30 0d 00 01 61 08 08 00 01 61 08 00 01 61 78",
            ),
            (
                "correlation data",
                "30 0d 00 01 61 08 09 00 01 61 09 00 01 61 78",
            ),
            ("topic alias", "30 0b 00 01 61 06 23 00 01 23 00 01 78"),
            (
                "subscription identifier",
                "82 0b 00 01 04 0b 01 0b 02 00 01 61 00",
            ),
            (
                "session expiry",
                "e0 0c 00 0a 11 00 00 00 00 11 00 00 00 00",
            ),
        ],
    );
}

/// [MQTT-4.13.1-1]
#[test]
fn a_property_in_the_wrong_packet_is_an_error() {
    let broker = Broker::start();
    for (name, bytes) in [
        (
            "reason string in PUBLISH",
            "30 09 00 01 61 04 1f 00 01 61 78",
        ),
        (
            "session expiry in PUBLISH",
            "30 0a 00 01 61 05 11 00 00 00 01 78",
        ),
        (
            "topic alias in SUBSCRIBE",
            "82 0a 00 01 03 23 00 01 00 01 61 00",
        ),
        (
            "content type in UNSUBSCRIBE",
            "a2 0a 00 01 04 03 00 01 61 00 01 61",
        ),
        (
            "subscription identifier in UNSUBSCRIBE",
            "a2 08 00 01 02 0b 01 00 01 61",
        ),
        (
            "will delay in PUBLISH",
            "30 0a 00 01 61 05 18 00 00 00 01 78",
        ),
        ("topic alias in DISCONNECT", "e0 05 00 03 23 00 01"),
        ("an unknown property", "30 07 00 01 61 02 7f 01 78"),
    ] {
        dropped_for(&broker, name, &raw::hex(bytes));
    }
}

/// [MQTT-4.13.1-1]
#[test]
fn property_values_out_of_range_are_errors() {
    let broker = Broker::start();
    for (name, bytes) in [
        ("payload format 2", "30 07 00 01 61 02 01 02 78"),
        (
            "subscription identifier 0",
            "82 09 00 01 02 0b 00 00 01 61 00",
        ),
    ] {
        dropped_for(&broker, name, &raw::hex(bytes));
    }
}

/// [MQTT-3.1.0-2, MQTT311-3.1.0-2]
#[test]
fn a_second_connect_ends_the_connection() {
    let broker = Broker::start();
    for version in Version::ALL {
        let mut client = broker.connect_as(version, "c");
        client.send(Connect::new(version, "c").encode());
        client.expect_dropped(PROTOCOL_ERROR);
    }
}

/// [MQTT-3.1.0-1, MQTT-3.14.0-1, MQTT311-3.1.0-1, MQTT311-3.2.0-1]
#[test]
fn anything_before_connect_is_dropped_without_an_answer() {
    let broker = Broker::start();
    for bytes in [
        "c0 00",
        "30 05 00 01 61 00 78",
        "82 07 00 01 00 00 01 61 00",
        "e0 00",
        "f0 00",
        "20 03 00 00 00",
        "47 45 54 20 2f 20 48 54 54 50 2f 31 2e 31 0d 0a 0d 0a",
        "16 03 01 00 05 01 00 00 01 00",
    ] {
        case(bytes);
        let mut client = broker.open();
        client.send_hex(bytes);
        client.expect_closed();
    }
}

/// [MQTT-2.2.1-3, MQTT311-2.3.1-1]
#[test]
fn packet_identifier_0_ends_the_connection() {
    let broker = Broker::start();
    for (name, bytes) in [
        ("PUBLISH of QoS 1", "32 06 00 01 61 00 00 00"),
        ("PUBLISH of QoS 2", "34 06 00 01 61 00 00 00"),
        ("SUBSCRIBE", "82 07 00 00 00 00 01 61 00"),
        ("UNSUBSCRIBE", "a2 06 00 00 00 00 01 61"),
    ] {
        dropped_for(&broker, name, &raw::hex(bytes));
    }
    dropped(
        Version::V3_1_1,
        0,
        &[
            ("PUBLISH of QoS 1", "32 05 00 01 61 00 00"),
            ("SUBSCRIBE", "82 06 00 00 00 01 61 00"),
            ("UNSUBSCRIBE", "a2 05 00 00 00 01 61"),
        ],
    );
}

/// [MQTT-3.8.3-2, MQTT-3.10.3-2]
#[test]
fn subscribe_or_unsubscribe_without_filters_is_a_protocol_error() {
    dropped(
        Version::V5,
        PROTOCOL_ERROR,
        &[
            ("SUBSCRIBE", "82 03 00 01 00"),
            ("UNSUBSCRIBE", "a2 03 00 01 00"),
        ],
    );
}

/// [MQTT311-3.8.3-3, MQTT311-3.10.3-2]
#[test]
fn subscribe_or_unsubscribe_without_filters_ends_a_3_1_1_connection() {
    dropped(
        Version::V3_1_1,
        0,
        &[("SUBSCRIBE", "82 02 00 01"), ("UNSUBSCRIBE", "a2 02 00 01")],
    );
}

/// [MQTT-3.8.3-5, MQTT-2.1.3-1]
#[test]
fn reserved_subscription_option_bits_are_malformed() {
    let broker = Broker::start();
    for options in [0x40, 0x80, 0xc1, 0x03, 0x30] {
        let packet = Subscribe::to("a", options).encode(Version::V5, 1);
        dropped_for(&broker, &format!("options {options:#04x}"), &packet);
    }
}

/// [MQTT311-3.8.3-4]
#[test]
fn reserved_bits_of_the_requested_quality_end_a_3_1_1_connection() {
    let broker = Broker::start();
    for options in [0x03, 0x04, 0x08, 0x20, 0x80] {
        case(&format!("options {options:#04x}"));
        let mut client = broker.connect_as(Version::V3_1_1, "c");
        client.send(Subscribe::to("a", options).encode(Version::V3_1_1, 1));
        client.expect_closed();
    }
}

/// [MQTT-4.7.3-1, MQTT311-4.7.3-1]
#[test]
fn an_empty_topic_without_an_alias_ends_the_connection() {
    let broker = Broker::start();
    for version in Version::ALL {
        let mut client = broker.connect_as(version, "c");
        client.send_publish(&Publish::new("", "x"));
        if version == Version::V5 {
            client.expect_disconnect_one_of(&[PROTOCOL_ERROR, reason::TOPIC_NAME_INVALID]);
        } else {
            client.expect_closed();
        }
    }
}

/// [MQTT-3.3.4-6]
#[test]
fn a_client_that_sends_a_subscription_identifier_is_dropped() {
    let broker = Broker::start();
    let mut client = broker.connect("c");
    client.send_publish(&Publish::new("a", "x").property(id::SUBSCRIPTION_IDENTIFIER, 7));
    client.expect_disconnect(PROTOCOL_ERROR);
}

/// [MQTT-2.2.1-5, MQTT-4.13.1-1]
#[test]
fn the_wrong_acknowledgement_for_a_quality_ends_the_connection() {
    let broker = Broker::start();
    let mut publisher = broker.connect("publisher");
    for (qos, wrong) in [
        (1, AckKind::PubRec),
        (2, AckKind::PubAck),
        (1, AckKind::PubComp),
    ] {
        case(&format!("{wrong:?} for QoS {qos}"));
        let mut subscriber = broker.connect("subscriber");
        subscriber.subscribe_to("a", qos);
        publisher.publish(Publish::new("a", "x").qos(qos));
        let message = subscriber.expect_message("a", "x");
        subscriber.send_ack(wrong, message.packet_id);
        subscriber.expect_disconnect(PROTOCOL_ERROR);
    }
}

/// [MQTT-3.1.2-23]
#[test]
fn a_session_of_no_length_cannot_be_prolonged_at_its_end() {
    let broker = Broker::start();
    let mut client = broker.connect("c");
    client.send(disconnect_with(
        0,
        &Properties::one(id::SESSION_EXPIRY_INTERVAL, 60),
    ));
    client.expect_disconnect(PROTOCOL_ERROR);
}

/// A large valid packet arrives in as many pieces as the network likes.
/// [MQTT-4.2-1, MQTT311-7.1.1-1]
#[test]
fn packets_split_at_every_byte_and_packets_sent_together_are_read_alike() {
    let broker = Broker::start();
    let mut client = broker.open();
    for byte in Connect::v5("c").encode() {
        client.send([byte]);
    }
    assert_eq!(client.expect_connack().reason, 0);
    for byte in Subscribe::to("a", 0).encode(Version::V5, 1) {
        client.send([byte]);
    }
    assert_eq!(client.expect_suback().codes, [0]);
    let one = Publish::new("a", "1").encode(Version::V5);
    let two = Publish::new("a", "2").encode(Version::V5);
    client.send([one, two].concat());
    client.expect_message("a", "1");
    client.expect_message("a", "2");
}

/// [MQTT-3.12.4-1, MQTT311-3.12.4-1]
#[test]
fn a_ping_is_answered() {
    let broker = Broker::start();
    for version in Version::ALL {
        broker.connect_as(version, "c").expect_pong();
    }
}
