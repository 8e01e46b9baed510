//! Strings, topics and filters that are malformed.

use super::*;

/// [MQTT-1.5.4-1, MQTT-1.5.4-2, MQTT-3.3.2-1, MQTT-4.7.3-2]
#[test]
fn topic_names_that_are_not_utf8_are_malformed() {
    let broker = Broker::start();
    for (name, bad) in BAD_STRINGS {
        dropped_for(&broker, name, &frame(0x30, &[&field(bad), &[0], b"x"]));
    }
}

/// [MQTT311-1.5.3-1, MQTT311-1.5.3-2, MQTT311-3.3.2-1, MQTT311-3.8.3-1, MQTT311-3.10.3-1,
/// MQTT311-4.7.3-2]
#[test]
fn strings_that_are_not_utf8_end_a_3_1_1_connection() {
    let broker = Broker::start();
    for (name, bad) in BAD_STRINGS {
        let packets = [
            ("topic", frame(0x30, &[&field(bad), b"x"])),
            ("filter", frame(0x82, &[&[0, 1], &field(bad), &[0]])),
            ("unsubscribed filter", frame(0xa2, &[&[0, 1], &field(bad)])),
        ];
        for (place, packet) in packets {
            case(&format!("{name} in a {place}"));
            let mut client = broker.connect_as(Version::V3_1_1, "sender");
            client.send(packet);
            client.expect_closed();
        }
    }
}

/// [MQTT-1.5.4-1, MQTT-1.5.4-2, MQTT-3.8.3-1, MQTT-3.10.3-1, MQTT-4.7.3-2]
#[test]
fn topic_filters_that_are_not_utf8_are_malformed() {
    let broker = Broker::start();
    for (name, bad) in BAD_STRINGS {
        dropped_for(
            &broker,
            name,
            &frame(0x82, &[&[0, 1, 0], &field(bad), &[0]]),
        );
        dropped_for(&broker, name, &frame(0xa2, &[&[0, 1, 0], &field(bad)]));
    }
}

/// A U+0000 makes the packet malformed, not the filter invalid: the same for both packets.
/// [MQTT-1.5.4-2, MQTT311-1.5.3-2]
#[test]
fn a_null_character_in_a_filter_makes_subscribe_and_unsubscribe_malformed() {
    let filter = field(b"a\0b");
    for (version, properties) in [(Version::V5, &[0][..]), (Version::V3_1_1, &[])] {
        let broker = Broker::start();
        for (name, packet) in [
            (
                "subscribe",
                frame(0x82, &[&[0, 1], properties, &filter, &[0]]),
            ),
            ("unsubscribe", frame(0xa2, &[&[0, 1], properties, &filter])),
        ] {
            case(name);
            let mut client = broker.connect_as(version, "sender");
            client.send(packet);
            client.expect_dropped(MALFORMED);
        }
    }
}

/// [MQTT-1.5.4-1, MQTT-1.5.4-2, MQTT-1.5.7-1, MQTT-3.3.2-13, MQTT-3.3.2-19]
#[test]
fn string_properties_that_are_not_utf8_are_malformed() {
    let broker = Broker::start();
    for (name, bad) in BAD_STRINGS {
        let sections = [
            (
                "content type",
                [&[id::CONTENT_TYPE], field(bad).as_slice()].concat(),
            ),
            (
                "response topic",
                [&[id::RESPONSE_TOPIC], field(bad).as_slice()].concat(),
            ),
            (
                "user name",
                [&[id::USER_PROPERTY], field(bad).as_slice(), &field("v")].concat(),
            ),
            (
                "user value",
                [&[id::USER_PROPERTY], field("n").as_slice(), &field(bad)].concat(),
            ),
        ];
        for (place, section) in sections {
            let length = [u8::try_from(section.len()).unwrap()];
            let packet = frame(0x30, &[&field("t"), &length, &section, b"x"]);
            dropped_for(&broker, &format!("{name} in {place}"), &packet);
        }
    }
}

/// [MQTT-1.5.4-3, MQTT311-1.5.3-3, MQTT-4.7.3-4]
#[test]
fn a_byte_order_mark_is_kept_and_means_a_different_topic() {
    for version in [Version::V3_1_1, Version::V5] {
        let broker = Broker::start();
        let mut subscriber = broker.connect_as(version, "subscriber");
        let mut publisher = broker.connect_as(version, "publisher");
        subscriber.subscribe_to("\u{feff}topic", 0);
        publisher.publish(Publish::new("topic", "without"));
        publisher.publish(Publish::new("\u{feff}topic", "with"));
        subscriber.expect_message("\u{feff}topic", "with");
    }
}

/// [MQTT-3.3.2-2, MQTT-4.7.0-1]
#[test]
fn wildcards_in_a_published_topic_end_the_connection() {
    let broker = Broker::start();
    for topic in ["#", "+", "a/#", "a/+/b", "a+", "a#b"] {
        case(topic);
        let mut client = broker.connect("c");
        client.send_publish(&Publish::new(topic, "x"));
        client.expect_disconnect(reason::TOPIC_NAME_INVALID);
    }
}

/// [MQTT311-3.3.2-2, MQTT311-4.7.1-1]
#[test]
fn wildcards_in_a_published_topic_end_a_3_1_1_connection() {
    let broker = Broker::start();
    for topic in ["#", "a/+"] {
        let mut client = broker.connect_as(Version::V3_1_1, "c");
        client.send_publish(&Publish::new(topic, "x"));
        client.expect_closed();
    }
}

/// [MQTT-3.3.2-14]
#[test]
fn wildcards_in_a_response_topic_are_a_protocol_error() {
    let broker = Broker::start();
    for topic in ["#", "reply/+", "reply/#"] {
        let mut client = broker.connect("c");
        client.send_publish(&Publish::new("a", "x").property(id::RESPONSE_TOPIC, topic));
        client.expect_disconnect_one_of(&[PROTOCOL_ERROR, reason::TOPIC_NAME_INVALID]);
    }
}
