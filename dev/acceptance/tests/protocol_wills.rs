//! Last wills: when they are published, when not, and that they arrive as they were given.

use unbroken_acceptance::raw::{
    Connect, Properties, Publish, Version, Will, disconnect, disconnect_with, id, reason,
};
use unbroken_acceptance::{Broker, Client};

/// A client that receives every will these tests leave.
#[track_caller]
fn watcher(broker: &Broker) -> Client {
    let mut watcher = broker.connect("watcher");
    watcher.subscribe_to("will/#", 2);
    watcher
}

fn with_will(version: Version) -> Connect {
    Connect::new(version, "dying").will(Will::new("will/dying", "gone"))
}

/// No will has come: whatever `dying` caused would be there before what it causes now.
#[track_caller]
fn expect_no_will(broker: &Broker, watcher: &mut Client) {
    let mut same_shard = broker.connect("dying");
    watcher.expect_nothing_from(&mut same_shard);
}

/// [MQTT-3.1.2-7, MQTT-3.1.2-8, MQTT-3.1.2-14, MQTT311-3.1.2-8, MQTT311-3.1.2-16]
#[test]
fn the_will_is_published_when_the_connection_is_lost() {
    for version in Version::ALL {
        let broker = Broker::start();
        let mut watcher = watcher(&broker);
        broker.accept(&with_will(version)).vanish();
        let message = watcher.expect_message("will/dying", "gone");
        assert!(!message.retain);
    }
}

/// [MQTT-3.1.2-10, MQTT-3.14.4-3, MQTT311-3.1.2-10, MQTT311-3.14.4-3]
#[test]
fn a_normal_end_discards_the_will() {
    for version in Version::ALL {
        let broker = Broker::start();
        let mut watcher = watcher(&broker);
        broker.accept(&with_will(version)).disconnect();
        expect_no_will(&broker, &mut watcher);
    }
}

/// [MQTT311-3.1.2-12]
#[test]
fn without_a_will_nothing_is_published() {
    for version in Version::ALL {
        let broker = Broker::start();
        let mut watcher = watcher(&broker);
        let mut client = broker.connect_as(version, "dying");
        client.finish_sending();
        client.expect_closed();
        expect_no_will(&broker, &mut watcher);
    }
}

/// [MQTT-3.1.2-8, MQTT-3.14.4-3]
#[test]
fn a_client_can_end_normally_and_ask_for_its_will() {
    let broker = Broker::start();
    let mut watcher = watcher(&broker);
    let client = broker.accept(&with_will(Version::V5));
    client.disconnect_with(&disconnect(reason::DISCONNECT_WITH_WILL));
    watcher.expect_message("will/dying", "gone");
}

/// [MQTT-3.1.2-8, MQTT-3.1.2-22, MQTT311-3.1.2-24]
#[test]
fn the_will_is_published_when_keep_alive_runs_out() {
    for version in [Version::V3_1_1, Version::V5] {
        let broker = Broker::start();
        let mut watcher = watcher(&broker);
        let _silent = broker.accept(&with_will(version).keep_alive(1));
        watcher.expect_message("will/dying", "gone");
    }
}

/// [MQTT-3.1.2-8, MQTT-4.13.1-1]
#[test]
fn the_will_is_published_after_a_protocol_error() {
    for version in Version::ALL {
        let broker = Broker::start();
        let mut watcher = watcher(&broker);
        let mut client = broker.accept(&with_will(version));
        client.send_hex("d0 00");
        client.expect_dropped(reason::PROTOCOL_ERROR);
        watcher.expect_message("will/dying", "gone");
    }
}

/// [MQTT-3.1.2-8, MQTT-3.1.4-3]
#[test]
fn the_will_is_published_when_the_session_is_taken_over() {
    for version in Version::ALL {
        let broker = Broker::start();
        let mut watcher = watcher(&broker);
        let _first = broker.accept(&with_will(version));
        let _second = broker.connect_as(version, "dying");
        watcher.expect_message("will/dying", "gone");
    }
}

/// [MQTT-3.1.2-8, MQTT-3.1.3-9, MQTT-3.1.4-3]
#[test]
fn a_delayed_will_is_cancelled_by_a_takeover_that_goes_on_with_the_session() {
    let broker = Broker::start();
    let mut watcher = watcher(&broker);
    let connect = Connect::v5("dying").persistent();
    let delayed = Will::new("will/dying", "gone").property(id::WILL_DELAY_INTERVAL, 1);
    let mut first = broker.accept(&connect.clone().will(delayed));
    let mut second = broker.accept(&connect);
    first.expect_disconnect(reason::SESSION_TAKEN_OVER);
    broker.let_a_second_pass();
    watcher.expect_nothing_from(&mut second);
}

/// [MQTT-3.1.2-8, MQTT-3.1.3-9]
#[test]
fn a_delayed_will_is_cancelled_by_coming_back_in_time() {
    let broker = Broker::start();
    let mut watcher = watcher(&broker);
    let connect = Connect::v5("dying").persistent();
    let delayed = Will::new("will/dying", "gone").property(id::WILL_DELAY_INTERVAL, 1);
    broker.accept(&connect.clone().will(delayed)).vanish();
    let mut back = broker.accept(&connect);
    assert!(back.session_present());
    broker.let_a_second_pass();
    watcher.expect_nothing_from(&mut back);
}

/// [MQTT-3.1.2-8]
#[test]
fn a_delayed_will_waits_for_its_delay() {
    let broker = Broker::start();
    let mut watcher = watcher(&broker);
    let start = std::time::Instant::now();
    let delayed = Will::new("will/dying", "gone").property(id::WILL_DELAY_INTERVAL, 1);
    broker
        .accept(&Connect::v5("dying").persistent().will(delayed))
        .vanish();
    watcher.expect_message("will/dying", "gone");
    assert!(
        start.elapsed().as_millis() >= 950,
        "came after {:?}",
        start.elapsed()
    );
}

/// [MQTT-3.1.2-8]
#[test]
fn a_will_does_not_wait_longer_than_its_session_lives() {
    let broker = Broker::start();
    let mut watcher = watcher(&broker);
    let delayed = || Will::new("will/dying", "gone").property(id::WILL_DELAY_INTERVAL, 3600);
    // No session expiry: the session ends with the connection.
    broker
        .accept(&Connect::v5("dying").will(delayed()))
        .vanish();
    watcher.expect_message("will/dying", "gone");
    // A session of one second.
    let short = Connect::v5("dying").property(id::SESSION_EXPIRY_INTERVAL, 1);
    broker.accept(&short.will(delayed())).vanish();
    watcher.expect_message("will/dying", "gone");
}

/// [MQTT-3.1.2-8, MQTT-3.1.2-4]
#[test]
fn a_delayed_will_is_published_at_once_when_a_clean_start_ends_its_session() {
    let broker = Broker::start();
    let mut watcher = watcher(&broker);
    let delayed = Will::new("will/dying", "gone").property(id::WILL_DELAY_INTERVAL, 3600);
    broker
        .accept(&Connect::v5("dying").persistent().will(delayed))
        .vanish();
    let _back = broker.connect("dying");
    watcher.expect_message("will/dying", "gone");
}

/// [MQTT-3.1.2-10]
#[test]
fn a_will_is_published_once() {
    let broker = Broker::start();
    let mut watcher = watcher(&broker);
    broker.accept(&with_will(Version::V5).persistent()).vanish();
    watcher.expect_message("will/dying", "gone");
    let mut back = broker.accept(&Connect::v5("dying").persistent());
    assert!(back.session_present());
    back.finish_sending();
    back.expect_closed();
    expect_no_will(&broker, &mut watcher);
}

/// [MQTT-3.1.2-7]
#[test]
fn a_new_connection_brings_its_own_will() {
    let broker = Broker::start();
    let mut watcher = watcher(&broker);
    broker
        .accept(&with_will(Version::V5).persistent())
        .disconnect();
    let other = Will::new("will/dying", "second");
    broker
        .accept(&Connect::v5("dying").persistent().will(other))
        .vanish();
    watcher.expect_message("will/dying", "second");
}

/// [MQTT-3.1.3-10, MQTT-3.1.2-9]
#[test]
fn the_will_arrives_with_all_its_properties_in_order() {
    let broker = Broker::start();
    let mut watcher = watcher(&broker);
    let will = Will::new("will/dying", "gone")
        .property(id::PAYLOAD_FORMAT_INDICATOR, 1)
        .property(id::MESSAGE_EXPIRY_INTERVAL, 600)
        .property(id::CONTENT_TYPE, "text/plain")
        .property(id::RESPONSE_TOPIC, "reply")
        .property(id::CORRELATION_DATA, b"\x00\xff".as_slice())
        .property(id::USER_PROPERTY, ("b", "1"))
        .property(id::USER_PROPERTY, ("a", "2"))
        .property(id::USER_PROPERTY, ("b", "1"));
    broker.accept(&Connect::v5("dying").will(will)).vanish();
    let got = watcher.expect_message("will/dying", "gone").properties;
    assert_eq!(got.number(id::PAYLOAD_FORMAT_INDICATOR), Some(1));
    assert!(
        got.number(id::MESSAGE_EXPIRY_INTERVAL)
            .is_some_and(|left| (590..=600).contains(&left))
    );
    assert_eq!(got.text(id::CONTENT_TYPE), Some("text/plain"));
    assert_eq!(got.text(id::RESPONSE_TOPIC), Some("reply"));
    assert_eq!(
        got.binary(id::CORRELATION_DATA),
        Some(b"\x00\xff".as_slice())
    );
    assert_eq!(got.user(), [("b", "1"), ("a", "2"), ("b", "1")]);
    assert!(
        !got.has(id::WILL_DELAY_INTERVAL),
        "the delay is for the broker only"
    );
}

#[test]
fn a_will_may_be_empty() {
    for version in [Version::V3_1_1, Version::V5] {
        let broker = Broker::start();
        let mut watcher = watcher(&broker);
        let connect = Connect::new(version, "dying").will(Will::new("will/dying", ""));
        broker.accept(&connect).vanish();
        watcher.expect_message("will/dying", "");
    }
}

/// [MQTT-3.1.2-15, MQTT311-3.1.2-17]
#[test]
fn a_retained_will_is_found_by_later_subscribers() {
    for version in Version::ALL {
        let broker = Broker::start();
        let mut watcher = watcher(&broker);
        let will = Will::new("will/dying", "gone").qos(1).retained();
        broker
            .accept(&Connect::new(version, "dying").will(will))
            .vanish();
        let live = watcher.take_message("will/dying", "gone");
        assert!(!live.retain);
        let mut late = broker.connect("late");
        late.subscribe_to("will/dying", 1);
        let message = late.take_message("will/dying", "gone");
        assert!(message.retain);
        assert_eq!(message.qos, 1);
    }
}

/// [MQTT-3.1.2-14, MQTT311-3.1.2-16]
#[test]
fn a_will_that_is_not_retained_is_not_found_later() {
    let broker = Broker::start();
    let mut watcher = watcher(&broker);
    broker.accept(&with_will(Version::V5)).vanish();
    watcher.expect_message("will/dying", "gone");
    let mut late = broker.connect("late");
    late.subscribe_to("will/dying", 1);
    let mut publisher = broker.connect("publisher");
    late.expect_nothing_from(&mut publisher);
}

/// An empty retained will clears what was retained there.
#[test]
fn an_empty_retained_will_clears_the_retained_message() {
    let broker = Broker::start();
    let mut watcher = watcher(&broker);
    let mut publisher = broker.connect("publisher");
    publisher.publish(Publish::new("will/dying", "alive").qos(1).retained());
    watcher.take_message("will/dying", "alive");
    let connect = Connect::v5("dying").will(Will::new("will/dying", "").retained());
    broker.accept(&connect).vanish();
    watcher.expect_message("will/dying", "");
    let mut late = broker.connect("late");
    late.subscribe_to("will/dying", 1);
    late.expect_nothing_from(&mut publisher);
}

/// [MQTT-3.1.2-12, MQTT311-3.1.2-14]
#[test]
fn the_will_is_delivered_with_its_quality() {
    for version in [Version::V3_1_1, Version::V5] {
        for qos in [0, 1, 2] {
            let broker = Broker::start();
            let mut watcher = watcher(&broker);
            let will = Will::new("will/dying", "gone").qos(qos);
            broker
                .accept(&Connect::new(version, "dying").will(will))
                .vanish();
            assert_eq!(watcher.take_message("will/dying", "gone").qos, qos);
        }
    }
}

/// [MQTT-4.7.0-1, MQTT-3.1.4-1]
#[test]
fn a_will_topic_with_wildcards_is_refused() {
    let broker = Broker::start();
    for topic in ["will/#", "will/+", "#"] {
        let refused = [
            reason::TOPIC_NAME_INVALID,
            reason::MALFORMED_PACKET,
            reason::PROTOCOL_ERROR,
        ];
        broker
            .attempt(&Connect::v5("dying").will(Will::new(topic, "gone")))
            .expect_refused(&refused);
        broker
            .attempt(&Connect::v311("dying").will(Will::new(topic, "gone")))
            .expect_closed();
    }
}

/// [MQTT-3.1.2-8, MQTT-4.1.0-2]
#[test]
fn disconnecting_with_a_shorter_session_brings_the_will_forward() {
    let broker = Broker::start();
    let mut watcher = watcher(&broker);
    let delayed = Will::new("will/dying", "gone").property(id::WILL_DELAY_INTERVAL, 3600);
    let client = broker.accept(&Connect::v5("dying").persistent().will(delayed));
    let now = Properties::one(id::SESSION_EXPIRY_INTERVAL, 0);
    client.disconnect_with(&disconnect_with(reason::DISCONNECT_WITH_WILL, &now));
    watcher.expect_message("will/dying", "gone");
}
