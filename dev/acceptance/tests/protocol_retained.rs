//! Retained messages: what is kept, for how long, and who is sent it with which flag.

use unbroken_acceptance::Broker;
use unbroken_acceptance::raw::{Connect, Publish, Subscribe, Version};

/// [MQTT-3.3.1-5, MQTT-3.3.1-9, MQTT311-3.3.1-5, MQTT311-3.3.1-6, MQTT311-3.3.1-8]
#[test]
fn the_latest_retained_message_is_sent_to_a_new_subscription_with_the_retain_flag() {
    let broker = Broker::start();
    for version in Version::ALL {
        let mut publisher = broker.connect_as(version, "publisher");
        publisher.publish(Publish::new("a/b", "old").qos(1).retained());
        publisher.publish(Publish::new("a/b", "new").qos(1).retained());
        for filter in ["a/b", "a/+", "a/#", "#", "+/b"] {
            let mut subscriber = broker.connect_as(version, "subscriber");
            subscriber.subscribe_to(filter, 1);
            assert!(subscriber.take_message("a/b", "new").retain);
            subscriber.expect_nothing_from(&mut publisher);
        }
    }
}

/// [MQTT-3.3.1-12, MQTT311-3.3.1-9]
#[test]
fn a_retained_message_goes_to_established_subscriptions_without_the_retain_flag() {
    let broker = Broker::start();
    for version in Version::ALL {
        let mut subscriber = broker.connect_as(version, "subscriber");
        subscriber.subscribe_to("a", 1);
        let mut publisher = broker.connect_as(version, "publisher");
        publisher.publish(Publish::new("a", "x").qos(1).retained());
        assert!(!subscriber.take_message("a", "x").retain);
        publisher.publish(Publish::new("a", "").qos(1).retained());
        subscriber.take_message("a", "");
    }
}

/// [MQTT-3.3.1-6, MQTT-3.3.1-7, MQTT311-3.3.1-10, MQTT311-3.3.1-11]
#[test]
fn an_empty_retained_message_clears_is_forwarded_and_is_not_stored() {
    let broker = Broker::start();
    for version in Version::ALL {
        let mut publisher = broker.connect_as(version, "publisher");
        publisher.publish(Publish::new("a", "kept").qos(1).retained());
        let mut early = broker.connect_as(version, "early");
        early.subscribe_to("a", 1);
        early.take_message("a", "kept");
        publisher.publish(Publish::new("a", "").qos(1).retained());
        assert!(!early.take_message("a", "").retain);
        let mut late = broker.connect_as(version, "late");
        late.subscribe_to("a", 1);
        late.expect_nothing_from(&mut publisher);
    }
}

/// [MQTT-3.3.1-8, MQTT311-3.3.1-12]
#[test]
fn a_message_that_is_not_retained_leaves_the_retained_one_alone() {
    let broker = Broker::start();
    for version in Version::ALL {
        let mut publisher = broker.connect_as(version, "publisher");
        publisher.publish(Publish::new("a", "kept").qos(1).retained());
        publisher.publish(Publish::new("a", "live").qos(1));
        publisher.publish(Publish::new("a", "").qos(1));
        publisher.publish(Publish::new("b", "live").qos(1));
        let mut subscriber = broker.connect_as(version, "subscriber");
        subscriber.subscribe(&Subscribe::to("a", 1).and("b", 1));
        subscriber.take_message("a", "kept");
        subscriber.expect_nothing_from(&mut publisher);
    }
}

/// [MQTT311-3.1.2-7, MQTT311-3.3.1-7]
#[test]
fn retained_messages_outlive_the_session_that_published_them() {
    let broker = Broker::start();
    for version in Version::ALL {
        let mut publisher = broker.connect_as(version, "publisher");
        publisher.publish(Publish::new("a", "first").qos(1).retained());
        publisher.publish(Publish::new("a", "kept").retained());
        publisher.disconnect();
        let mut subscriber = broker.connect_as(version, "subscriber");
        subscriber.subscribe_to("a", 0);
        subscriber.expect_message("a", "kept");
    }
}

/// [MQTT-3.8.4-8, MQTT311-3.3.1-5]
#[test]
fn a_retained_message_keeps_its_quality_up_to_the_granted_one() {
    let broker = Broker::start();
    for published in 0..=2 {
        let mut publisher = broker.connect("publisher");
        publisher.publish(Publish::new("a", "x").qos(published).retained());
        for granted in 0..=2 {
            let mut subscriber = broker.connect("subscriber");
            subscriber.subscribe_to("a", granted);
            assert_eq!(
                subscriber.take_message("a", "x").qos,
                granted.min(published)
            );
        }
    }
}

/// [MQTT-3.3.1-9, MQTT-3.3.1-10, MQTT-3.3.1-11]
#[test]
fn retain_handling_decides_what_a_subscription_starts_with() {
    let broker = Broker::start();
    let mut publisher = broker.connect("publisher");
    publisher.publish(Publish::new("a", "kept").qos(1).retained());
    let mut subscriber = broker.connect("subscriber");
    let mut starts_with = |options| {
        subscriber.subscribe_to("a", 1 | options);
        subscriber.messages_from(&mut publisher).len()
    };
    assert_eq!(starts_with(Subscribe::NO_RETAINED), 0, "2, new");
    assert_eq!(starts_with(Subscribe::RETAINED_IF_NEW), 0, "1, existed");
    assert_eq!(starts_with(0), 1, "0, existed");
    assert_eq!(starts_with(0), 1, "0, existed still");
    assert_eq!(starts_with(Subscribe::NO_RETAINED), 0, "2, existed");
    let mut other = broker.connect("other");
    other.subscribe_to("a", 1 | Subscribe::RETAINED_IF_NEW);
    assert_eq!(other.messages_from(&mut publisher).len(), 1, "1, new");
    other.unsubscribe(&["a"]);
    other.subscribe_to("a", 1 | Subscribe::RETAINED_IF_NEW);
    assert_eq!(other.messages_from(&mut publisher).len(), 1, "1, new again");
}

/// [MQTT-3.3.1-12, MQTT-3.3.1-13]
#[test]
fn retain_as_published_keeps_the_flag() {
    let broker = Broker::start();
    let mut keeping = broker.connect("keeping");
    keeping.subscribe_to("a", 1 | Subscribe::RETAIN_AS_PUBLISHED);
    let mut plain = broker.connect("plain");
    plain.subscribe_to("a", 1);
    let mut publisher = broker.connect("publisher");
    publisher.publish(Publish::new("a", "1").qos(1).retained());
    publisher.publish(Publish::new("a", "2").qos(1));
    assert!(keeping.take_message("a", "1").retain);
    assert!(!keeping.take_message("a", "2").retain);
    assert!(!plain.take_message("a", "1").retain);
    assert!(!plain.take_message("a", "2").retain);
    let mut late = broker.connect("late");
    late.subscribe_to("a", 1);
    assert!(
        late.take_message("a", "1").retain,
        "sent because of a subscription"
    );
}

/// The flag of the offline queue follows the same option.
/// [MQTT-3.3.1-13]
#[test]
fn retain_as_published_holds_for_queued_messages() {
    let broker = Broker::start();
    let connect = Connect::v5("subscriber").persistent();
    let mut subscriber = broker.accept(&connect);
    subscriber.subscribe_to("a", 1 | Subscribe::RETAIN_AS_PUBLISHED);
    subscriber.disconnect();
    let mut publisher = broker.connect("publisher");
    publisher.publish(Publish::new("a", "1").qos(1).retained());
    publisher.publish(Publish::new("a", "2").qos(1));
    let mut subscriber = broker.accept(&connect);
    assert!(subscriber.take_message("a", "1").retain);
    assert!(!subscriber.take_message("a", "2").retain);
}
