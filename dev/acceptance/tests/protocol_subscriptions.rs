//! Subscriptions and retained messages: who gets what, in how many copies, and what is kept.

use std::collections::HashSet;

use unbroken_acceptance::raw::{
    AckKind, Connect, Packet, Publish, Subscribe, Unsubscribe, Version, frame, id, reason,
};
use unbroken_acceptance::{Broker, case};

/// What a fresh subscriber of `filter` receives of messages published to each topic, in order.
#[track_caller]
fn matched(broker: &Broker, version: Version, filter: &str, topics: &[&str]) -> Vec<String> {
    let mut subscriber = broker.connect_as(version, "subscriber");
    subscriber.subscribe_to(filter, 0);
    let mut publisher = broker.connect_as(version, "publisher");
    for topic in topics {
        publisher.publish(Publish::new(topic, "x"));
    }
    let messages = subscriber.messages_from(&mut publisher);
    messages.into_iter().map(|message| message.topic).collect()
}

/// [MQTT-3.8.4-1, MQTT-3.8.4-2, MQTT-3.8.4-6, MQTT-3.9.3-1, MQTT-2.2.1-6, MQTT311-3.8.4-1,
/// MQTT311-3.8.4-2, MQTT311-3.8.4-5, MQTT311-2.3.1-7, MQTT311-3.9.3-1, MQTT311-3.9.3-2]
#[test]
fn suback_has_the_identifier_and_one_code_for_each_filter_in_order() {
    let broker = Broker::start();
    for version in Version::ALL {
        let mut client = broker.connect_as(version, "c");
        let subscribe = Subscribe::to("a", 2).and("b", 0).and("c/#", 1).and("a", 1);
        client.send(subscribe.encode(version, 0xabcd));
        let suback = client.expect_suback();
        assert_eq!(
            (suback.packet_id, suback.codes.as_slice()),
            (0xabcd, [2, 0, 1, 1].as_slice())
        );
    }
}

/// [MQTT-3.9.3-1, MQTT-3.9.3-2, MQTT-3.8.4-7]
#[test]
fn a_refused_filter_does_not_take_the_others_with_it() {
    let broker = Broker::with_config("[limits]\ntopic_levels_max = 2");
    let mut client = broker.connect("c");
    let codes = client.subscribe(&Subscribe::to("a", 1).and("a/b/c", 1).and("b", 2));
    assert_eq!(codes, [1, reason::TOPIC_FILTER_INVALID, 2]);
    let mut publisher = broker.connect("publisher");
    publisher.publish(Publish::new("a", "x"));
    publisher.publish(Publish::new("b", "x"));
    client.expect_message("a", "x");
    client.expect_message("b", "x");
}

/// [MQTT-3.10.4-4, MQTT-3.10.4-5, MQTT-3.11.3-1, MQTT-3.11.3-2, MQTT-3.10.4-6, MQTT-2.2.1-6]
#[test]
fn unsuback_has_the_identifier_and_one_code_for_each_filter_in_order() {
    let broker = Broker::start();
    let mut client = broker.connect("c");
    client.subscribe(&Subscribe::to("a", 0).and("b/#", 0));
    let unsubscribe = Unsubscribe::from(&["nothing", "a", "b/#", "a"]);
    client.send(unsubscribe.encode(Version::V5, 0xabcd));
    match client.receive() {
        Packet::UnsubAck(unsuback) => {
            assert_eq!(unsuback.packet_id, 0xabcd);
            assert_eq!(unsuback.codes, [0x11, 0, 0, 0x11]);
        }
        other => panic!("{other:?}"),
    }
}

/// [MQTT311-2.3.1-7, MQTT311-3.10.4-4, MQTT311-3.10.4-5, MQTT311-3.10.4-6]
#[test]
fn unsuback_of_3_x_has_no_payload() {
    let broker = Broker::start();
    for version in [Version::V3_1, Version::V3_1_1] {
        let mut client = broker.connect_as(version, "c");
        client.subscribe_to("a", 0);
        assert!(client.unsubscribe(&["nothing", "a"]).codes.is_empty());
        assert!(client.unsubscribe(&["a"]).codes.is_empty());
    }
}

/// [MQTT-3.10.4-1, MQTT-3.10.4-2, MQTT311-3.10.4-1, MQTT311-3.10.4-2]
#[test]
fn unsubscribing_ends_exactly_the_filter_named() {
    let broker = Broker::start();
    for version in Version::ALL {
        let mut client = broker.connect_as(version, "c");
        for filter in ["a/+", "a/b", "a/#"] {
            client.subscribe_to(filter, 0);
        }
        client.unsubscribe(&["a/#", "A/b", "a"]);
        client.unsubscribe(&["a/+"]);
        let mut publisher = broker.connect_as(version, "publisher");
        publisher.publish(Publish::new("a/b", "x"));
        publisher.publish(Publish::new("a/c", "x"));
        let messages = client.messages_from(&mut publisher);
        assert_eq!(messages.len(), 1);
        assert_eq!(messages[0].topic, "a/b");
    }
}

/// [MQTT-3.10.4-3, MQTT311-3.10.4-3]
#[test]
fn deliveries_begun_are_completed_after_unsubscribing() {
    let broker = Broker::start();
    let mut subscriber = broker.connect("subscriber");
    subscriber.subscribe_to("a", 2);
    let mut publisher = broker.connect("publisher");
    publisher.publish(Publish::new("a", "x").qos(2));
    let message = subscriber.expect_message("a", "x");
    subscriber.unsubscribe(&["a"]);
    subscriber.send_ack(AckKind::PubRec, message.packet_id);
    subscriber.expect_ack(AckKind::PubRel, message.packet_id);
    subscriber.send_ack(AckKind::PubComp, message.packet_id);
    subscriber.expect_pong();
}

/// [MQTT-4.7.1-1, MQTT-4.7.1-2, MQTT-3.3.2-3, MQTT-3.8.4-6]
#[test]
fn wildcards_match_whole_levels() {
    let broker = Broker::start();
    let rows: [(&str, &[&str], &[&str]); 14] = [
        ("a", &["a"], &["A", "a/", "/a", "b", "a/b"]),
        ("a/b", &["a/b"], &["a", "a/b/c", "a//b"]),
        ("#", &["a", "a/b", "/", "/a"], &[]),
        ("a/#", &["a", "a/b", "a/b/c", "a/"], &["ab", "b/a", "/a"]),
        ("+", &["a", "b"], &["a/b", "/a", "/"]),
        ("+/+", &["a/b", "/a", "/", "a/"], &["a", "a/b/c", "//"]),
        ("/+", &["/a", "/"], &["a", "a/b"]),
        ("+/", &["a/", "/"], &["a", "/a"]),
        ("a/+", &["a/b", "a/"], &["a", "a/b/c"]),
        ("a/+/c", &["a/b/c", "a//c"], &["a/c", "a/b/b/c"]),
        ("a/+/#", &["a/b", "a/b/c", "a/"], &["a"]),
        ("+/b/#", &["a/b", "/b", "x/b/c"], &["b", "a/a/b"]),
        ("a//b", &["a//b"], &["a/b", "a///b"]),
        ("//#", &["//", "///", "//a"], &["a", "/a/b"]),
    ];
    for (filter, matching, others) in rows {
        case(filter);
        let topics = [matching, others].concat();
        assert_eq!(matched(&broker, Version::V5, filter, &topics), matching);
    }
}

/// [MQTT-4.7.3-4, MQTT-4.7.3-1, MQTT311-4.7.3-4]
#[test]
fn topics_are_compared_without_any_normalization() {
    let broker = Broker::start();
    // One letter with an accent, and the same as letter plus combining accent; case; spaces.
    let topics = [
        "caf\u{e9}",
        "cafe\u{301}",
        "Café",
        "caf\u{e9} ",
        " caf\u{e9}",
        "🪟",
        "a b",
    ];
    for version in [Version::V3_1_1, Version::V5] {
        for filter in topics {
            assert_eq!(matched(&broker, version, filter, &topics), [filter]);
        }
    }
}

/// Empty filters and misplaced wildcards.
/// [MQTT-4.7.1-1, MQTT-4.7.1-2, MQTT-4.7.3-1, MQTT-4.13.1-1]
/// [MQTT311-4.7.1-2, MQTT311-4.7.1-3, MQTT311-4.7.3-1, MQTT311-4.8.0-1]
#[test]
fn a_filter_that_is_none_ends_the_connection() {
    let broker = Broker::start();
    for filter in [
        "", "sport+", "+sport", "a/b+", "a+/b", "tennis#", "#/a", "a/#/b", "##", "++", "a/##",
    ] {
        for version in Version::ALL {
            case(&format!("{version:?}: {filter:?}"));
            let mut client = broker.connect_as(version, "c");
            client.send(Subscribe::to(filter, 0).encode(version, 1));
            client.expect_dropped(reason::PROTOCOL_ERROR);
            let mut client = broker.connect_as(version, "c");
            client.send(Unsubscribe::from(&[filter]).encode(version, 1));
            client.expect_dropped(reason::PROTOCOL_ERROR);
        }
    }
}

/// [MQTT-4.13.1-1, MQTT311-4.8.0-1]
#[test]
fn nothing_of_a_packet_with_such_a_filter_takes_effect() {
    let broker = Broker::start();
    for version in Version::ALL {
        let connect = Connect::new(version, "c").persistent();
        let mut client = broker.accept(&connect);
        client.subscribe_to("kept", 0);
        client.send(Subscribe::to("new", 0).and("a/#/b", 0).encode(version, 1));
        client.expect_dropped(reason::PROTOCOL_ERROR);
        let mut client = broker.accept(&connect);
        client.send(Unsubscribe::from(&["kept", "#a"]).encode(version, 1));
        client.expect_dropped(reason::PROTOCOL_ERROR);
        let mut client = broker.accept(&connect);
        let mut publisher = broker.connect("publisher");
        publisher.publish(Publish::new("new", "x"));
        publisher.publish(Publish::new("kept", "x"));
        client.expect_message("kept", "x");
        client.disconnect();
        broker.accept(&Connect::new(version, "c")).disconnect();
    }
}

/// [MQTT-4.7.3-3, MQTT311-4.7.3-3]
#[test]
fn a_topic_of_any_length_the_standard_allows_is_delivered() {
    let broker = Broker::start();
    for version in Version::ALL {
        let mut client = broker.connect_as(version, "c");
        for length in [1, 1_000, 65_535] {
            let topic = "t".repeat(length);
            client.subscribe_to(&topic, 0);
            client.publish(Publish::new(&topic, "x"));
            client.expect_message(&topic, "x");
        }
    }
}

/// [MQTT-4.7.2-1, MQTT311-4.7.2-1]
#[test]
fn leading_wildcards_do_not_match_topics_that_start_with_a_dollar() {
    let broker = Broker::start();
    for version in Version::ALL {
        let topics = ["$other/a", "a/$other"];
        assert_eq!(matched(&broker, version, "#", &topics), ["a/$other"]);
        assert_eq!(matched(&broker, version, "+/a", &topics), [""; 0]);
        assert_eq!(matched(&broker, version, "$other/#", &topics), ["$other/a"]);
        assert_eq!(matched(&broker, version, "$other/+", &topics), ["$other/a"]);
    }
}

/// [MQTT-3.3.4-2, MQTT311-3.3.5-1]
#[test]
fn overlapping_subscriptions_give_one_copy_of_the_highest_quality() {
    let broker = Broker::start();
    for version in Version::ALL {
        let mut subscriber = broker.connect_as(version, "subscriber");
        subscriber.subscribe(&Subscribe::to("a/#", 0).and("a/b", 2).and("+/b", 1));
        let mut publisher = broker.connect_as(version, "publisher");
        publisher.publish(Publish::new("a/b", "x").qos(2));
        let messages = subscriber.messages_from(&mut publisher);
        assert_eq!(messages.len(), 1, "{messages:?}");
        assert_eq!(messages[0].qos, 2);
    }
}

/// [MQTT-3.3.4-3, MQTT-3.3.4-4, MQTT-3.3.4-5]
#[test]
fn overlapping_subscriptions_carry_all_their_identifiers() {
    let broker = Broker::start();
    let mut subscriber = broker.connect("subscriber");
    subscriber.subscribe(&Subscribe::to("a/#", 0).identified(1));
    subscriber.subscribe(&Subscribe::to("a/b", 1).identified(268_435_455));
    subscriber.subscribe(&Subscribe::to("+/b", 0));
    subscriber.subscribe(&Subscribe::to("other", 0).identified(3));
    let mut publisher = broker.connect("publisher");
    publisher.publish(Publish::new("a/b", "x").qos(1));
    let messages = subscriber.messages_from(&mut publisher);
    assert_eq!(messages.len(), 1);
    let identifiers = messages[0].properties.numbers(id::SUBSCRIPTION_IDENTIFIER);
    assert_eq!(identifiers, [1, 268_435_455]);
}

/// [MQTT-3.3.4-3]
#[test]
fn a_new_identifier_replaces_the_old_one() {
    let broker = Broker::start();
    let mut subscriber = broker.connect("subscriber");
    let mut publisher = broker.connect("publisher");
    for (subscribe, expected) in [
        (Subscribe::to("a", 0).identified(1), vec![1]),
        (Subscribe::to("a", 0).identified(2), vec![2]),
        (Subscribe::to("a", 0), vec![]),
    ] {
        subscriber.subscribe(&subscribe);
        publisher.publish(Publish::new("a", "x"));
        let message = subscriber.expect_message("a", "x");
        assert_eq!(
            message.properties.numbers(id::SUBSCRIPTION_IDENTIFIER),
            expected
        );
    }
}

/// [MQTT-3.3.4-3]
#[test]
fn identifiers_are_on_retained_and_on_queued_messages_too() {
    let broker = Broker::start();
    let mut publisher = broker.connect("publisher");
    publisher.publish(Publish::new("a", "kept").qos(1).retained());
    let connect = Connect::v5("subscriber").persistent();
    let mut subscriber = broker.accept(&connect);
    subscriber.subscribe(&Subscribe::to("a", 1).identified(7));
    let message = subscriber.take_message("a", "kept");
    assert_eq!(message.properties.numbers(id::SUBSCRIPTION_IDENTIFIER), [7]);
    subscriber.disconnect();
    publisher.publish(Publish::new("a", "queued").qos(1));
    let mut subscriber = broker.accept(&connect);
    let message = subscriber.take_message("a", "queued");
    assert_eq!(message.properties.numbers(id::SUBSCRIPTION_IDENTIFIER), [7]);
}

/// [MQTT-3.8.4-3, MQTT-3.8.4-4, MQTT311-3.8.4-3]
#[test]
fn subscribing_again_replaces_the_subscription_and_sends_retained_messages_again() {
    let broker = Broker::start();
    for version in Version::ALL {
        let mut publisher = broker.connect_as(version, "publisher");
        publisher.publish(Publish::new("a", "kept").qos(1).retained());
        let mut subscriber = broker.connect_as(version, "subscriber");
        subscriber.subscribe_to("a", 1);
        assert_eq!(subscriber.take_message("a", "kept").qos, 1);
        subscriber.subscribe_to("a", 0);
        assert_eq!(subscriber.take_message("a", "kept").qos, 0);
        publisher.publish(Publish::new("a", "live").qos(1));
        assert_eq!(subscriber.take_message("a", "live").qos, 0);
        subscriber.expect_nothing_from(&mut publisher);
    }
}

/// [MQTT-3.8.4-4]
#[test]
fn replacing_a_subscription_loses_no_message() {
    let broker = Broker::start();
    let mut subscriber = broker.connect("subscriber");
    subscriber.subscribe_to("a", 1);
    let mut publisher = broker.connect("publisher");
    let mut packet_id = 1000;
    for number in 0..100 {
        publisher.publish(Publish::new("a", number.to_string()).qos(1));
        packet_id += 1;
        subscriber.send(Subscribe::to("a", 1).encode(Version::V5, packet_id));
    }
    let messages = subscriber.messages_and_subacks(100, 100);
    let texts: Vec<String> = messages.iter().map(Publish::text).collect();
    let expected: Vec<String> = (0..100).map(|number: i32| number.to_string()).collect();
    assert_eq!(texts, expected);
}

/// [MQTT-3.8.4-5, MQTT311-3.8.4-4]
#[test]
fn one_subscribe_with_many_filters_is_like_many() {
    let broker = Broker::start();
    for version in Version::ALL {
        let mut publisher = broker.connect_as(version, "publisher");
        publisher.publish(Publish::new("a", "kept a").retained());
        publisher.publish(Publish::new("b", "kept b").qos(1).retained());
        let mut subscriber = broker.connect_as(version, "subscriber");
        subscriber.subscribe(&Subscribe::to("a", 0).and("b", 1).and("c", 2));
        let kept: HashSet<String> = (0..2).map(|_| subscriber.expect_publish().text()).collect();
        assert_eq!(
            kept,
            HashSet::from(["kept a".to_owned(), "kept b".to_owned()])
        );
        publisher.publish(Publish::new("c", "x").qos(2));
        subscriber.take_message("c", "x");
    }
}

/// [MQTT-3.8.3-3]
#[test]
fn no_local_keeps_a_clients_own_messages_from_it() {
    let broker = Broker::start();
    let mut client = broker.connect("c");
    client.subscribe_to("a", 1 | Subscribe::NO_LOCAL);
    let mut other = broker.connect("other");
    client.publish(Publish::new("a", "mine").qos(1));
    other.publish(Publish::new("a", "theirs").qos(1));
    client.take_message("a", "theirs");
    client.subscribe_to("a", 1);
    client.publish(Publish::new("a", "mine now").qos(1));
    client.take_message("a", "mine now");
}

/// [MQTT-3.8.3-3]
#[test]
fn no_local_survives_a_reconnect() {
    let broker = Broker::start();
    let connect = Connect::v5("c").persistent();
    let mut client = broker.accept(&connect);
    client.subscribe_to("a", 1 | Subscribe::NO_LOCAL);
    client.vanish();
    let mut client = broker.accept(&connect);
    assert!(client.session_present());
    client.publish(Publish::new("a", "mine").qos(1));
    broker
        .connect("other")
        .publish(Publish::new("a", "theirs").qos(1));
    client.take_message("a", "theirs");
}

/// [MQTT-3.8.3-1]
#[test]
fn a_subscription_to_many_filters_at_once_is_answered_completely() {
    let broker = Broker::start();
    let mut client = broker.connect("c");
    let mut subscribe = Subscribe::default();
    for number in 0..500 {
        subscribe = subscribe.and(&format!("filter/{number}"), 1);
    }
    let codes = client.subscribe(&subscribe);
    assert_eq!(codes, [1; 500]);
}

/// A client that sends half a SUBSCRIBE and goes leaves the broker standing.
#[test]
fn a_truncated_subscribe_harms_no_other_client() {
    let broker = Broker::start();
    let mut other = broker.connect("other");
    let whole = Subscribe::to("some/filter", 1).encode(Version::V5, 1);
    for length in 1..whole.len() {
        let mut client = broker.connect("c");
        client.send(&whole[..length]);
        client.finish_sending();
        client.expect_closed();
        // The same bytes as a complete packet whose content is short.
        let mut client = broker.connect("c");
        client.send(frame(0x82, &[&whole[2..length.max(2)]]));
        client.expect_any_disconnect();
    }
    other.expect_pong();
}
