//! Connecting and sessions: who is let in, what is found again, and how it ends.

use unbroken_acceptance::raw::{
    self, AckKind, Connect, Properties, Publish, Subscribe, Version, Will, auth, disconnect, field,
    frame, id, reason,
};
use unbroken_acceptance::{Broker, case};

/// Connects, subscribes and ends normally.
#[track_caller]
fn leave_session(broker: &Broker, connect: &Connect) {
    let mut client = broker.accept(connect);
    client.subscribe_to("probe", 0);
    client.disconnect();
}

/// [MQTT-3.1.4-5, MQTT-3.2.2-2, MQTT311-3.1.4-4, MQTT311-3.2.2-1, MQTT311-7.0.0-2]
#[test]
fn every_version_is_accepted_on_one_port() {
    let broker = Broker::start();
    for version in Version::ALL {
        let client = broker.connect_as(version, "c");
        assert!(!client.session_present());
    }
}

/// [MQTT-3.1.2-2]
#[test]
fn a_newer_version_is_refused_in_the_words_of_5_0() {
    let broker = Broker::start();
    let mut client = broker.open();
    client.send_hex("10 0e 00 04 4d 51 54 54 06 02 00 00 00 00 01 63");
    client.expect_connack_refusal(reason::UNSUPPORTED_PROTOCOL_VERSION);
}

/// [MQTT311-3.1.2-2, MQTT311-3.2.2-4, MQTT311-3.2.2-5]
#[test]
fn an_older_unknown_version_is_refused_in_the_words_of_3_1_1() {
    let broker = Broker::start();
    let mut client = broker.open_as(Version::V3_1_1);
    client.send_hex("10 0d 00 04 4d 51 54 54 02 02 00 00 00 01 63");
    client.expect_connack_refusal(1);
}

/// [MQTT-3.1.2-1, MQTT311-3.1.2-1]
#[test]
fn an_unknown_protocol_name_is_refused() {
    let broker = Broker::start();
    for bytes in [
        "10 0e 00 04 4d 51 54 58 05 02 00 00 00 00 01 63",
        "10 0e 00 04 6d 71 74 74 05 02 00 00 00 00 01 63",
        "10 0a 00 00 05 02 00 00 00 00 01 63",
        "10 0f 00 06 4d 51 49 73 64 70 05 02 00 00 00 01 63",
    ] {
        case(bytes);
        let mut client = broker.open();
        client.send_hex(bytes);
        client.expect_refused(&[
            1,
            reason::MALFORMED_PACKET,
            reason::UNSUPPORTED_PROTOCOL_VERSION,
        ]);
    }
}

#[test]
fn connack_of_3_1_never_says_session_present() {
    let broker = Broker::start();
    let connect = Connect::new(Version::V3_1, "old").not_clean();
    let mut client = broker.accept(&connect);
    client.subscribe_to("a", 1);
    client.disconnect();
    let mut publisher = broker.connect("publisher");
    publisher.publish(Publish::new("a", "x").qos(1));
    let mut client = broker.accept(&connect);
    assert!(!client.session_present());
    client.take_message("a", "x");
}

#[test]
fn client_ids_of_3_1_have_1_to_23_characters() {
    let broker = Broker::start();
    broker.accept(&Connect::new(Version::V3_1, "a"));
    broker.accept(&Connect::new(Version::V3_1, "abcdefghijklmnopqrstuvw"));
    for client_id in ["", "abcdefghijklmnopqrstuvwx"] {
        let mut client = broker.attempt(&Connect::new(Version::V3_1, client_id));
        client.expect_connack_refusal(2);
    }
}

/// [MQTT-3.1.3-5, MQTT311-3.1.3-5]
#[test]
fn client_ids_of_letters_and_digits_up_to_23_bytes_are_accepted() {
    let broker = Broker::start();
    for version in Version::ALL {
        broker.connect_as(version, "0123456789abcdefghijklm");
        broker.connect_as(version, "NOPQRSTUVWXYZnopqrstuvw");
        broker.connect_as(version, "Z");
    }
}

#[test]
fn long_and_unusual_client_ids_are_accepted_since_3_1_1() {
    let broker = Broker::start();
    for version in [Version::V3_1_1, Version::V5] {
        broker.connect_as(version, &"long".repeat(60));
        broker.connect_as(version, "Küche/Fenster #1 + 🪟");
    }
}

/// [MQTT-3.1.3-6, MQTT-3.1.3-7, MQTT-3.2.2-16]
#[test]
fn an_empty_client_id_in_5_0_is_answered_with_an_assigned_one() {
    let broker = Broker::start();
    let assigned = |connect: Connect| {
        let client = broker.accept(&connect);
        let id = client
            .connack()
            .properties
            .text(id::ASSIGNED_CLIENT_IDENTIFIER)
            .map(str::to_owned);
        (client, id.expect("an identifier is assigned"))
    };
    let (_one, first) = assigned(Connect::v5(""));
    let (_two, second) = assigned(Connect::v5("").not_clean());
    assert_ne!(first, second);
    assert!(!first.is_empty());
}

/// A client that would not learn its id, or the limits it is held to, is told so and not let in.
/// [MQTT-3.2.2-16, MQTT-3.1.2-24]
#[test]
fn a_client_that_takes_no_connack_with_its_assigned_id_is_refused() {
    let broker = Broker::start();
    // Every CONNECT asks for packets of at most `limit` bytes and gives no client id.
    let ask = |limit: u8| {
        let mut client = broker.open();
        let head = b"\x10\x12\0\x04MQTT\x05\x02\0\0\x05\x27\0\0\0";
        client.send([head.as_slice(), &[limit, 0, 0]].concat());
        client
    };
    for limit in [5, 16, 39] {
        case(&format!("{limit} bytes"));
        let connack = ask(limit).expect_connack_refusal(reason::PACKET_TOO_LARGE);
        assert!(limit > 5 || connack.properties.is_empty(), "{connack:?}");
    }
    let connack = ask(40).expect_connack();
    assert_eq!(connack.reason, 0);
    assert!(connack.properties.has(id::ASSIGNED_CLIENT_IDENTIFIER));
}

#[test]
fn a_client_id_given_by_the_client_is_not_assigned() {
    let broker = Broker::start();
    assert!(
        !broker
            .connect("mine")
            .connack()
            .properties
            .has(id::ASSIGNED_CLIENT_IDENTIFIER)
    );
}

#[test]
fn connack_of_3_x_has_no_properties() {
    // The reader fails on bytes after the return code.
    let broker = Broker::start();
    broker.accept(&Connect::v311(""));
    broker.accept(&Connect::new(Version::V3_1, "c"));
}

/// [MQTT-3.2.2-6, MQTT-3.2.2-7, MQTT-3.2.2-8]
#[test]
fn a_refusal_never_says_session_present() {
    let broker = Broker::start();
    leave_session(&broker, &Connect::v5("c").persistent());
    let connect = Connect::v5("c")
        .persistent()
        .property(id::AUTHENTICATION_METHOD, "NONE");
    let mut client = broker.attempt(&connect);
    client.expect_connack_refusal(reason::BAD_AUTHENTICATION_METHOD);
}

/// [MQTT-3.1.4-5, MQTT-3.2.0-1]
#[test]
fn packets_sent_right_after_connect_are_handled() {
    let broker = Broker::start();
    let mut client = broker.open();
    let subscribe = Subscribe::to("a", 0).encode(Version::V5, 1);
    let publish = Publish::new("a", "x").encode(Version::V5);
    client.send([Connect::v5("c").encode(), subscribe, publish].concat());
    assert_eq!(client.expect_connack().reason, 0);
    // The message may arrive before the subscription is confirmed.
    let messages = client.messages_and_subacks(1, 1);
    assert_eq!(messages[0].text(), "x");
    client.expect_pong();
}

/// [MQTT-3.1.4-6, MQTT311-3.1.4-5]
#[test]
fn packets_sent_right_after_a_refused_connect_are_not_handled() {
    let broker = Broker::start();
    let mut watcher = broker.connect("watcher");
    watcher.subscribe_to("a", 0);
    let refused = Connect::v5("c")
        .property(id::AUTHENTICATION_METHOD, "NONE")
        .encode();
    let mut client = broker.open();
    client.send([refused, Publish::new("a", "5.0").encode(Version::V5)].concat());
    client.expect_connack_refusal(reason::BAD_AUTHENTICATION_METHOD);
    let refused = Connect::v311("").not_clean().encode();
    let mut client = broker.open_as(Version::V3_1_1);
    client.send([refused, Publish::new("a", "3.1.1").encode(Version::V3_1_1)].concat());
    client.expect_connack_refusal(2);
    let mut publisher = broker.connect("publisher");
    watcher.expect_nothing_from(&mut publisher);
}

/// [MQTT-4.12.0-1, MQTT-4.12.0-4, MQTT-3.2.2-7]
#[test]
fn an_unknown_authentication_method_is_refused() {
    let broker = Broker::start();
    let connect = Connect::v5("c").property(id::AUTHENTICATION_METHOD, "SCRAM-SHA-1");
    broker
        .attempt(&connect)
        .expect_connack_refusal(reason::BAD_AUTHENTICATION_METHOD);
    let connect = connect.property(id::AUTHENTICATION_DATA, b"data".as_slice());
    broker
        .attempt(&connect)
        .expect_connack_refusal(reason::BAD_AUTHENTICATION_METHOD);
}

#[test]
fn authentication_data_without_a_method_is_refused() {
    let broker = Broker::start();
    let connect = Connect::v5("c").property(id::AUTHENTICATION_DATA, b"data".as_slice());
    broker
        .attempt(&connect)
        .expect_refused(&[reason::PROTOCOL_ERROR]);
}

/// [MQTT-4.12.0-7, MQTT-4.12.1-2]
#[test]
fn auth_from_a_client_that_connected_without_a_method_is_a_protocol_error() {
    let broker = Broker::start();
    let method = Properties::one(id::AUTHENTICATION_METHOD, "SCRAM-SHA-1");
    for packet in [
        auth(reason::REAUTHENTICATE, &method),
        auth(reason::CONTINUE_AUTHENTICATION, &method),
        auth(reason::REAUTHENTICATE, &Properties::none()),
        auth(reason::SUCCESS, &method),
    ] {
        let mut client = broker.connect("c");
        client.send(packet);
        client.expect_disconnect(reason::PROTOCOL_ERROR);
    }
}

/// [MQTT-3.15.2-1]
#[test]
fn auth_with_a_reason_that_does_not_exist_ends_the_connection() {
    let broker = Broker::start();
    let mut client = broker.connect("c");
    client.send(auth(0x42, &Properties::one(id::AUTHENTICATION_METHOD, "m")));
    client.expect_disconnect_one_of(&[reason::PROTOCOL_ERROR, reason::MALFORMED_PACKET]);
}

/// [MQTT-4.12.0-6]
#[test]
fn the_broker_does_not_authenticate_who_did_not_ask_for_it() {
    let broker = Broker::start();
    let client = broker.connect("c");
    assert!(!client.connack().properties.has(id::AUTHENTICATION_METHOD));
    assert!(!client.connack().properties.has(id::AUTHENTICATION_DATA));
}

/// [MQTT-3.1.2-28]
#[test]
fn response_information_is_sent_only_to_who_asks_for_it() {
    let broker = Broker::start();
    assert!(
        !broker
            .connect("silent")
            .connack()
            .properties
            .has(id::RESPONSE_INFORMATION)
    );
    let connect = Connect::v5("declined").property(id::REQUEST_RESPONSE_INFORMATION, 0);
    assert!(
        !broker
            .accept(&connect)
            .connack()
            .properties
            .has(id::RESPONSE_INFORMATION)
    );
}

/// [MQTT-3.1.2-29]
#[test]
fn reason_strings_on_acknowledgements_can_be_declined() {
    let broker = Broker::with_config("[limits]\ntopic_levels_max = 2");
    let connect = Connect::v5("c").property(id::REQUEST_PROBLEM_INFORMATION, 0);
    let mut client = broker.accept(&connect);
    let id = client.next_id();
    client.send(Subscribe::to("a/b/c", 0).encode(Version::V5, id));
    let suback = client.expect_suback();
    assert!(suback.codes[0] >= 0x80);
    assert!(suback.properties.is_empty(), "{suback:?}");
    let unsuback = client.unsubscribe(&["nothing"]);
    assert!(unsuback.properties.is_empty(), "{unsuback:?}");
    client.send_ack(AckKind::PubRel, 77);
    let pubcomp = client.expect_ack(AckKind::PubComp, 77);
    assert_eq!(pubcomp.reason, reason::PACKET_IDENTIFIER_NOT_FOUND);
    assert!(pubcomp.properties.is_empty(), "{pubcomp:?}");
}

/// [MQTT-3.1.2-24, MQTT-3.2.2-19, MQTT-3.2.2-20, MQTT-3.9.2-1, MQTT-3.9.2-2, MQTT-3.11.2-1,
/// MQTT-3.11.2-2, MQTT-3.7.2-2, MQTT-3.7.2-3, MQTT-3.4.2-2, MQTT-3.4.2-3, MQTT-3.5.2-2,
/// MQTT-3.5.2-3, MQTT-3.6.2-2, MQTT-3.6.2-3]
#[test]
fn explanations_never_push_an_answer_over_the_clients_maximum_packet_size() {
    let broker = Broker::with_config("[limits]\ntopic_levels_max = 2");
    // The longest plain answer here has six bytes: SUBACK with one code.
    let connect = Connect::v5("c").property(id::MAXIMUM_PACKET_SIZE, 20);
    let mut client = broker.open();
    client.send(connect.encode());
    let size = client.expect_frame_length();
    assert!(size <= 20, "CONNACK has {size} bytes");
    client.send(Subscribe::to("a/b/c", 0).encode(Version::V5, 1));
    let size = client.expect_frame_length();
    assert!(size <= 20, "SUBACK has {size} bytes");
    client.send(raw::Unsubscribe::from(&["nothing"]).encode(Version::V5, 2));
    let size = client.expect_frame_length();
    assert!(size <= 20, "UNSUBACK has {size} bytes");
    for (answer, packet) in [
        (
            "PUBACK",
            Publish::new("nobody", "")
                .qos(1)
                .packet_id(1)
                .encode(Version::V5),
        ),
        (
            "PUBREC",
            Publish::new("nobody", "")
                .qos(2)
                .packet_id(2)
                .encode(Version::V5),
        ),
        ("PUBCOMP", raw::ack(AckKind::PubRel, 77)),
        ("PUBREL", raw::ack(AckKind::PubRec, 77)),
    ] {
        client.send(packet);
        let size = client.expect_frame_length();
        assert!(size <= 20, "{answer} has {size} bytes");
    }
}

/// [MQTT-3.14.2-3, MQTT-3.14.2-4, MQTT-3.1.2-24]
#[test]
fn an_explanation_never_pushes_disconnect_over_the_clients_maximum_packet_size() {
    let broker = Broker::start();
    let mut client = broker.accept(&Connect::v5("c").property(id::MAXIMUM_PACKET_SIZE, 20));
    client.send_publish(&Publish::new("a/#", "x"));
    let size = client.expect_frame_length();
    assert!(size <= 20, "DISCONNECT has {size} bytes");
    client.expect_closed();
}

/// [MQTT-3.14.1-1, MQTT-3.14.2-1]
#[test]
fn disconnect_with_a_reason_only_a_server_gives_ends_the_connection() {
    let broker = Broker::start();
    let mut client = broker.connect("c");
    client.send(disconnect(reason::SESSION_TAKEN_OVER));
    client.drain_to_close();
}

/// [MQTT-3.14.4-1, MQTT-3.14.4-2]
#[test]
fn after_a_disconnect_the_broker_closes_and_handles_nothing_more() {
    let broker = Broker::start();
    for version in Version::ALL {
        let mut watcher = broker.connect("watcher");
        watcher.subscribe_to("a", 0);
        let mut client = broker.connect_as(version, "c");
        let late = Publish::new("a", "too late").encode(version);
        client.send([raw::DISCONNECT.to_vec(), late].concat());
        client.expect_closed();
        let mut publisher = broker.connect("c");
        watcher.expect_nothing_from(&mut publisher);
    }
}

/// [MQTT-3.2.0-2]
#[test]
fn there_is_one_connack_in_a_connection() {
    let broker = Broker::start();
    let mut client = broker.connect("c");
    client.expect_pong();
    client.send(Connect::v5("c").encode());
    client.expect_disconnect(reason::PROTOCOL_ERROR);
}

/// Everything optional, so that the duties of a broker without it do not arise.
#[test]
fn what_connack_does_not_deny_is_available() {
    let broker = Broker::start();
    let mut client = broker.accept(&Connect::v5("c").will(Will::new("w", "x").qos(2).retained()));
    let properties = client.connack().properties.clone();
    for (property, all) in [
        (id::MAXIMUM_QOS, 2),
        (id::RETAIN_AVAILABLE, 1),
        (id::WILDCARD_SUBSCRIPTION_AVAILABLE, 1),
        (id::SUBSCRIPTION_IDENTIFIER_AVAILABLE, 1),
        (id::SHARED_SUBSCRIPTION_AVAILABLE, 1),
    ] {
        assert_eq!(
            properties.number(property).unwrap_or(all),
            all,
            "property {property:#04x}"
        );
    }
    client.subscribe_to("a/#", 2);
    client.subscribe_to("$share/g/a", 1);
    assert_eq!(
        client.publish(Publish::new("b", "x").qos(2).retained()),
        0x10
    );
}

/// An unusual but valid CONNECT: every property, a will with every property, user and password.
#[test]
fn a_connect_with_everything_in_it_is_accepted() {
    let broker = Broker::start();
    let will = Will::new("will", "x")
        .property(id::WILL_DELAY_INTERVAL, 0)
        .property(id::PAYLOAD_FORMAT_INDICATOR, 1)
        .property(id::MESSAGE_EXPIRY_INTERVAL, 10)
        .property(id::CONTENT_TYPE, "text/plain")
        .property(id::RESPONSE_TOPIC, "reply")
        .property(id::CORRELATION_DATA, b"1".as_slice())
        .property(id::USER_PROPERTY, ("a", "1"));
    let connect = Connect::v5("c")
        .will(will)
        .user_name("user")
        .password("secret")
        .property(id::SESSION_EXPIRY_INTERVAL, 10)
        .property(id::RECEIVE_MAXIMUM, 10)
        .property(id::MAXIMUM_PACKET_SIZE, 10_000)
        .property(id::TOPIC_ALIAS_MAXIMUM, 10)
        .property(id::REQUEST_RESPONSE_INFORMATION, 1)
        .property(id::REQUEST_PROBLEM_INFORMATION, 1)
        .property(id::USER_PROPERTY, ("a", "1"))
        .property(id::USER_PROPERTY, ("a", "2"));
    broker.accept(&connect).expect_pong();
}

/// Half a CONNECT and then nothing: the broker closes, it does not wait for ever.
#[test]
fn a_connection_that_never_completes_its_connect_is_closed() {
    let broker = Broker::start();
    let mut client = broker.open();
    client.send(&frame(0x10, &[&field("MQTT"), &[5, 2, 0, 0, 0], &field("c")])[..10]);
    client.finish_sending();
    client.expect_closed();
}
