//! What the broker announces in CONNACK because its configuration says so, and that it keeps to it.

use unbroken_acceptance::Broker;
use unbroken_acceptance::raw::{Connect, Packet, Publish, Version, id, reason};

/// [MQTT-3.2.2-21, MQTT-3.1.2-21, MQTT-3.1.2-22]
#[test]
fn the_brokers_keep_alive_rules_when_it_announces_one() {
    let broker = Broker::with_config("[mqtt]\nserver_keep_alive = \"1s\"\n");
    for own in [0, 600] {
        let mut client = broker.accept(&Connect::v5("c").keep_alive(own));
        assert_eq!(
            client.connack().properties.number(id::SERVER_KEEP_ALIVE),
            Some(1)
        );
        client.expect_disconnect(reason::KEEP_ALIVE_TIMEOUT);
    }
}

/// 3.x clients cannot be told, so their own keep alive holds.
#[test]
fn a_3_1_1_client_keeps_its_own_keep_alive() {
    let broker = Broker::with_config("[mqtt]\nserver_keep_alive = \"1s\"\n");
    let mut client = broker.connect_as(Version::V3_1_1, "c");
    let mut told = broker.connect("told");
    told.expect_disconnect(reason::KEEP_ALIVE_TIMEOUT);
    client.expect_pong();
}

/// It begins response topics of the client's own.
/// [MQTT-3.1.2-28]
#[test]
fn response_information_is_given_to_who_asks() {
    let broker = Broker::start();
    let given = ["one", "other"].map(|name| {
        let asks = Connect::v5(name).property(id::REQUEST_RESPONSE_INFORMATION, 1);
        let connack = broker.accept(&asks).connack().clone();
        connack
            .properties
            .text(id::RESPONSE_INFORMATION)
            .map(str::to_owned)
    });
    assert!(given.iter().all(Option::is_some), "{given:?}");
    assert_ne!(given[0], given[1]);
    let silent = broker.connect("silent");
    assert!(!silent.connack().properties.has(id::RESPONSE_INFORMATION));
}

/// A session is cut to the longest one the broker keeps, and the client is told.
/// [MQTT-3.1.2-23, MQTT-4.1.0-2]
#[test]
fn a_longer_session_than_allowed_is_shortened_and_announced() {
    let broker = Broker::with_config("[limits]\nsession_expiry_max = \"1s\"\n");
    let connect = Connect::v5("c").persistent();
    let mut client = broker.accept(&connect);
    assert_eq!(
        client
            .connack()
            .properties
            .number(id::SESSION_EXPIRY_INTERVAL),
        Some(1)
    );
    client.subscribe_to("a", 1);
    client.disconnect();
    broker.let_a_second_pass();
    assert!(!broker.accept(&connect).session_present());
}

/// [MQTT-3.2.2-15, MQTT-3.3.4-7, MQTT-3.2.2-17]
#[test]
fn limits_of_the_configuration_are_announced() {
    let broker = Broker::with_config(
        "[limits]\npacket_bytes_max = \"2KiB\"\nreceive_maximum = 7\ntopic_aliases_in_max = 9\n",
    );
    let announced = broker.connect("c").connack().properties.clone();
    assert_eq!(announced.number(id::MAXIMUM_PACKET_SIZE), Some(2048));
    assert_eq!(announced.number(id::RECEIVE_MAXIMUM), Some(7));
    assert_eq!(announced.number(id::TOPIC_ALIAS_MAXIMUM), Some(9));
}

/// [MQTT-3.2.2-18, MQTT-3.3.2-9]
#[test]
fn a_broker_that_takes_no_aliases_announces_none_and_refuses_them() {
    let broker = Broker::with_config("[limits]\ntopic_aliases_in_max = 0\n");
    let mut client = broker.connect("c");
    let announced = client.connack().properties.number(id::TOPIC_ALIAS_MAXIMUM);
    assert_eq!(announced.unwrap_or(0), 0);
    client.send_publish(&Publish::new("a", "x").property(id::TOPIC_ALIAS, 1));
    client.expect_disconnect(reason::TOPIC_ALIAS_INVALID);
}

/// Messages in flight to a client are limited by the broker too, whatever the client allows.
/// [MQTT-3.3.4-9, MQTT-4.9.0-1]
#[test]
fn the_brokers_own_window_holds_for_clients_of_every_version() {
    let broker = Broker::with_config("[limits]\ninflight_max = 2\n");
    for version in Version::ALL {
        let mut subscriber = broker.connect_as(version, "subscriber");
        subscriber.subscribe_to("a", 1);
        let mut publisher = broker.connect("publisher");
        for text in ["1", "2", "3"] {
            publisher.publish(Publish::new("a", text).qos(1));
        }
        let first = subscriber.expect_message("a", "1");
        subscriber.expect_message("a", "2");
        subscriber.expect_pong();
        subscriber.complete(&first);
        assert!(matches!(subscriber.receive(), Packet::Publish(third) if third.text() == "3"));
    }
}
