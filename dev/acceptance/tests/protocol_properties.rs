//! Topic aliases, expiry and the other properties of a message on their way through the broker.

use unbroken_acceptance::raw::{Connect, Properties, Publish, Version, id, reason};
use unbroken_acceptance::{Broker, Client, case};

/// A subscriber of `a` with the quality, and a publisher.
#[track_caller]
fn pair(broker: &Broker, version: Version, qos: u8) -> (Client, Client) {
    let mut subscriber = broker.connect_as(version, "subscriber");
    subscriber.subscribe_to("a", qos);
    (subscriber, broker.connect_as(version, "publisher"))
}

/// A persistent subscriber of `a` with the quality: how it connects, and its first connection.
#[track_caller]
fn persistent(broker: &Broker, version: Version, qos: u8) -> (Connect, Client) {
    let connect = Connect::new(version, "subscriber").persistent();
    let mut subscriber = broker.accept(&connect);
    subscriber.subscribe_to("a", qos);
    (connect, subscriber)
}

/// [MQTT-3.3.2-12, MQTT-3.2.2-17, MQTT-3.2.2-18]
#[test]
fn a_publisher_can_use_every_alias_the_broker_allows() {
    let broker = Broker::start();
    let (mut subscriber, mut publisher) = pair(&broker, Version::V5, 1);
    subscriber.subscribe_to("b", 1);
    let maximum = publisher
        .connack()
        .properties
        .number(id::TOPIC_ALIAS_MAXIMUM)
        .unwrap_or(0);
    assert!(maximum > 0, "the broker accepts aliases");
    for alias in [1, maximum] {
        publisher.publish(Publish::new("a", "sets").property(id::TOPIC_ALIAS, alias));
        publisher.publish(Publish::new("", "uses").property(id::TOPIC_ALIAS, alias));
        publisher.publish(
            Publish::new("", "uses 1")
                .qos(1)
                .property(id::TOPIC_ALIAS, alias),
        );
        publisher.publish(Publish::new("b", "changes").property(id::TOPIC_ALIAS, alias));
        publisher.publish(Publish::new("", "uses 2").property(id::TOPIC_ALIAS, alias));
        for (topic, text) in [
            ("a", "sets"),
            ("a", "uses"),
            ("a", "uses 1"),
            ("b", "changes"),
            ("b", "uses 2"),
        ] {
            let message = subscriber.take_message(topic, text);
            assert!(
                !message.properties.has(id::TOPIC_ALIAS),
                "aliases are not passed on"
            );
        }
    }
}

/// [MQTT-3.3.2-8, MQTT-3.3.2-9, MQTT-3.2.2-17]
#[test]
fn alias_0_and_aliases_above_the_maximum_end_the_connection() {
    let broker = Broker::start();
    let mut probe = broker.connect("c");
    let maximum = probe
        .connack()
        .properties
        .number(id::TOPIC_ALIAS_MAXIMUM)
        .unwrap_or(0);
    probe.expect_pong();
    for alias in [0, maximum + 1, 65_535] {
        case(&format!("alias {alias} of {maximum}"));
        let mut client = broker.connect("c");
        client.send_publish(&Publish::new("a", "x").property(id::TOPIC_ALIAS, alias));
        client.expect_disconnect(reason::TOPIC_ALIAS_INVALID);
    }
}

#[test]
fn an_alias_that_was_never_set_ends_the_connection() {
    let broker = Broker::start();
    let mut client = broker.connect("c");
    client.send_publish(&Publish::new("", "x").property(id::TOPIC_ALIAS, 1));
    client.expect_disconnect_one_of(&[reason::PROTOCOL_ERROR, reason::TOPIC_ALIAS_INVALID]);
}

/// [MQTT-3.3.2-7]
#[test]
fn aliases_of_a_publisher_are_gone_after_a_reconnect() {
    let broker = Broker::start();
    let connect = Connect::v5("publisher").persistent();
    let mut publisher = broker.accept(&connect);
    publisher.publish(Publish::new("a", "x").qos(1).property(id::TOPIC_ALIAS, 1));
    publisher.vanish();
    let mut publisher = broker.accept(&connect);
    assert!(publisher.session_present());
    publisher.send_publish(&Publish::new("", "x").property(id::TOPIC_ALIAS, 1));
    publisher.expect_disconnect_one_of(&[reason::PROTOCOL_ERROR, reason::TOPIC_ALIAS_INVALID]);
}

/// [MQTT-3.1.2-26, MQTT-3.1.2-27, MQTT-3.3.2-11]
#[test]
fn the_broker_sends_no_aliases_to_a_client_that_allows_none() {
    let broker = Broker::start();
    let (mut subscriber, mut publisher) = pair(&broker, Version::V5, 1);
    for _ in 0..5 {
        publisher.publish(Publish::new("a", "x").qos(1));
        assert!(
            !subscriber
                .take_message("a", "x")
                .properties
                .has(id::TOPIC_ALIAS)
        );
    }
}

/// Follows aliases as a client must: the topic each message is really for.
fn follow(aliases: &mut Vec<String>, maximum: usize, message: &Publish) -> String {
    aliases.resize(maximum + 1, String::new());
    let Some(alias) = message.properties.number(id::TOPIC_ALIAS) else {
        assert!(!message.topic.is_empty(), "neither topic nor alias");
        return message.topic.clone();
    };
    // [MQTT-3.3.2-8, MQTT-3.3.2-11]
    let alias = alias as usize;
    assert!((1..=maximum).contains(&alias), "alias {alias} of {maximum}");
    if !message.topic.is_empty() {
        aliases[alias].clone_from(&message.topic);
    }
    assert!(!aliases[alias].is_empty(), "alias {alias} was never set");
    aliases[alias].clone()
}

/// [MQTT-3.1.2-26, MQTT-3.3.2-11, MQTT-3.3.2-3]
#[test]
fn the_broker_uses_only_aliases_that_the_client_allows() {
    let broker = Broker::start();
    let mut subscriber =
        broker.accept(&Connect::v5("subscriber").property(id::TOPIC_ALIAS_MAXIMUM, 2));
    subscriber.subscribe_to("t/#", 0);
    let mut publisher = broker.connect("publisher");
    let mut aliases = Vec::new();
    for round in 0..5 {
        for topic in ["t/1", "t/2", "t/3", "t/4"] {
            let text = format!("{topic} {round}");
            publisher.publish(Publish::new(topic, &text));
            let message = subscriber.expect_publish();
            assert_eq!(message.text(), text);
            assert_eq!(follow(&mut aliases, 2, &message), topic);
        }
    }
}

/// [MQTT-3.3.2-7, MQTT-4.4.0-1]
#[test]
fn redelivery_and_the_offline_queue_carry_the_full_topic() {
    let broker = Broker::start();
    let connect = Connect::v5("subscriber")
        .persistent()
        .property(id::TOPIC_ALIAS_MAXIMUM, 5);
    let mut subscriber = broker.accept(&connect);
    subscriber.subscribe_to("a", 1);
    let mut publisher = broker.connect("publisher");
    for text in ["1", "2", "3"] {
        publisher.publish(Publish::new("a", text).qos(1));
        assert_eq!(subscriber.expect_publish().text(), text);
    }
    subscriber.vanish();
    publisher.publish(Publish::new("a", "4").qos(1));
    publisher.publish(Publish::new("a", "5").qos(1));
    let mut subscriber = broker.accept(&connect);
    let mut aliases = Vec::new();
    for text in ["1", "2", "3", "4", "5"] {
        let message = subscriber.expect_publish();
        assert_eq!(message.text(), text);
        assert_eq!(follow(&mut aliases, 5, &message), "a");
    }
}

/// [MQTT-3.3.2-6]
#[test]
fn the_expiry_interval_is_counted_down_by_the_time_waited() {
    let broker = Broker::start();
    let (connect, subscriber) = persistent(&broker, Version::V5, 1);
    subscriber.disconnect();
    let mut publisher = broker.connect("publisher");
    let expiring = |topic| {
        Publish::new(topic, "x")
            .qos(1)
            .property(id::MESSAGE_EXPIRY_INTERVAL, 100)
    };
    publisher.publish(expiring("a"));
    publisher.publish(expiring("kept").retained());
    broker.let_a_second_pass();
    let mut subscriber = broker.accept(&connect);
    let left = |message: Publish| {
        message
            .properties
            .number(id::MESSAGE_EXPIRY_INTERVAL)
            .unwrap()
    };
    assert!(
        (80..=99).contains(&left(subscriber.take_message("a", "x"))),
        "queued"
    );
    subscriber.subscribe_to("kept", 1);
    assert!(
        (80..=99).contains(&left(subscriber.take_message("kept", "x"))),
        "retained"
    );
    publisher.publish(expiring("a"));
    assert!(
        (99..=100).contains(&left(subscriber.take_message("a", "x"))),
        "live"
    );
}

/// [MQTT-3.3.2-5]
#[test]
fn expired_messages_are_not_delivered() {
    let broker = Broker::start();
    let (connect, subscriber) = persistent(&broker, Version::V5, 2);
    subscriber.disconnect();
    let mut publisher = broker.connect("publisher");
    for (text, expiry) in [("short", 1), ("long", 100)] {
        let expiring = |topic| {
            Publish::new(topic, text)
                .qos(1)
                .property(id::MESSAGE_EXPIRY_INTERVAL, expiry)
        };
        publisher.publish(expiring("a"));
        publisher.publish(expiring(&format!("kept/{text}")).retained());
    }
    broker.let_a_second_pass();
    let mut subscriber = broker.accept(&connect);
    subscriber.take_message("a", "long");
    subscriber.subscribe_to("kept/+", 1);
    subscriber.take_message("kept/long", "long");
    subscriber.expect_nothing_from(&mut publisher);
}

#[test]
fn expired_messages_are_not_delivered_to_3_1_1_clients_either() {
    let broker = Broker::start();
    let (connect, subscriber) = persistent(&broker, Version::V3_1_1, 1);
    subscriber.disconnect();
    let mut publisher = broker.connect("publisher");
    publisher.publish(
        Publish::new("a", "short")
            .qos(1)
            .property(id::MESSAGE_EXPIRY_INTERVAL, 1),
    );
    publisher.publish(Publish::new("a", "stays").qos(1));
    broker.let_a_second_pass();
    broker.accept(&connect).take_message("a", "stays");
}

/// [MQTT-4.3.3-7, MQTT-4.3.3-13]
#[test]
fn a_quality_2_message_once_sent_does_not_expire() {
    let broker = Broker::start();
    let (connect, mut subscriber) = persistent(&broker, Version::V5, 2);
    let mut publisher = broker.connect("publisher");
    publisher.publish(
        Publish::new("a", "x")
            .qos(2)
            .property(id::MESSAGE_EXPIRY_INTERVAL, 1),
    );
    subscriber.expect_message("a", "x");
    subscriber.vanish();
    broker.let_a_second_pass();
    let mut subscriber = broker.accept(&connect);
    let again = subscriber.take_message("a", "x");
    assert!(again.dup);
}

#[test]
fn no_expiry_is_invented_for_a_message_without_one() {
    let broker = Broker::start();
    let (connect, subscriber) = persistent(&broker, Version::V5, 1);
    subscriber.disconnect();
    let mut publisher = broker.connect("publisher");
    publisher.publish(Publish::new("a", "x").qos(1));
    publisher.publish(Publish::new("kept", "x").qos(1).retained());
    let mut subscriber = broker.accept(&connect);
    assert!(subscriber.take_message("a", "x").properties.is_empty());
    subscriber.subscribe_to("kept", 1);
    assert!(subscriber.take_message("kept", "x").properties.is_empty());
}

fn with_every_property(topic: &str) -> Publish {
    Publish::new(topic, "x")
        .property(id::USER_PROPERTY, ("b", "1"))
        .property(id::PAYLOAD_FORMAT_INDICATOR, 1)
        .property(id::CONTENT_TYPE, "text/plain; charset=ütf")
        .property(id::USER_PROPERTY, ("a", "2"))
        .property(id::RESPONSE_TOPIC, "reply/to")
        .property(id::CORRELATION_DATA, b"\x00\xff\x80".as_slice())
        .property(id::USER_PROPERTY, ("b", "1"))
        .property(id::USER_PROPERTY, ("", ""))
}

#[track_caller]
fn assert_every_property(got: &Properties) {
    assert_eq!(got.number(id::PAYLOAD_FORMAT_INDICATOR), Some(1));
    assert_eq!(got.text(id::CONTENT_TYPE), Some("text/plain; charset=ütf"));
    assert_eq!(got.text(id::RESPONSE_TOPIC), Some("reply/to"));
    assert_eq!(
        got.binary(id::CORRELATION_DATA),
        Some(b"\x00\xff\x80".as_slice())
    );
    assert_eq!(got.user(), [("b", "1"), ("a", "2"), ("b", "1"), ("", "")]);
}

/// [MQTT-3.3.2-4, MQTT-3.3.2-15, MQTT-3.3.2-16, MQTT-3.3.2-17, MQTT-3.3.2-18, MQTT-3.3.2-20]
#[test]
fn properties_are_passed_on_unaltered_and_in_order() {
    let broker = Broker::start();
    for qos in 0..=2 {
        let (mut subscriber, mut publisher) = pair(&broker, Version::V5, qos);
        publisher.publish(with_every_property("a").qos(qos));
        assert_every_property(&subscriber.take_message("a", "x").properties);
    }
}

/// [MQTT-3.3.2-4, MQTT-3.3.2-15, MQTT-3.3.2-16, MQTT-3.3.2-17, MQTT-3.3.2-18, MQTT-3.3.2-20]
#[test]
fn properties_are_kept_in_the_offline_queue_and_when_retained() {
    let broker = Broker::start();
    let (connect, subscriber) = persistent(&broker, Version::V5, 1);
    subscriber.disconnect();
    let mut publisher = broker.connect("publisher");
    publisher.publish(with_every_property("a").qos(1));
    publisher.publish(with_every_property("kept").qos(1).retained());
    let mut subscriber = broker.accept(&connect);
    assert_every_property(&subscriber.take_message("a", "x").properties);
    subscriber.subscribe_to("kept", 1);
    assert_every_property(&subscriber.take_message("kept", "x").properties);
}

/// [MQTT-2.2.2-1]
#[test]
fn messages_pass_between_versions_and_lose_only_properties() {
    let broker = Broker::start();
    for from in Version::ALL {
        for to in Version::ALL {
            case(&format!("{from:?} to {to:?}"));
            let mut subscriber = broker.connect_as(to, "subscriber");
            subscriber.subscribe_to("a", 2);
            let mut publisher = broker.connect_as(from, "publisher");
            let message = if from == Version::V5 {
                with_every_property("a")
            } else {
                Publish::new("a", "x")
            };
            publisher.publish(message.qos(2));
            let got = subscriber.take_message("a", "x");
            if from == Version::V5 && to == Version::V5 {
                assert_every_property(&got.properties);
            } else {
                assert!(got.properties.is_empty());
            }
        }
    }
}
