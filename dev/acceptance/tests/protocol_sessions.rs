//! Sessions: what is found again, who takes over, and when a session ends.

use unbroken_acceptance::Broker;
use unbroken_acceptance::raw::{
    Connect, PINGREQ, Packet, Properties, Publish, Version, disconnect_with, id, reason,
};

/// A PUBLISH that tells whether the broker still remembers a session's subscription.
#[track_caller]
fn remembers(broker: &Broker, connect: Connect) -> bool {
    let mut client = broker.accept(&connect);
    let present = client.session_present();
    let mut publisher = broker.connect("prober");
    publisher.publish(Publish::new("probe", "x"));
    let got = client.messages_from(&mut publisher).len() == 1;
    assert_eq!(
        got, present,
        "session present and the subscriptions it holds disagree"
    );
    client.disconnect();
    present
}

/// Connects, subscribes to what [`remembers`] probes, and ends normally.
#[track_caller]
fn leave_session(broker: &Broker, connect: &Connect) {
    let mut client = broker.accept(connect);
    client.subscribe_to("probe", 0);
    client.disconnect();
}

/// [MQTT311-3.1.3-6]
#[test]
fn an_empty_client_id_in_3_1_1_with_a_clean_session_is_accepted() {
    let broker = Broker::start();
    let mut one = broker.accept(&Connect::v311(""));
    let mut two = broker.accept(&Connect::v311(""));
    one.expect_pong();
    two.expect_pong();
}

/// [MQTT311-3.1.3-7, MQTT311-3.1.3-8, MQTT311-3.1.3-9]
#[test]
fn an_empty_client_id_in_3_1_1_with_a_kept_session_is_refused() {
    let broker = Broker::start();
    let mut client = broker.attempt(&Connect::v311("").not_clean());
    client.expect_connack_refusal(2);
}

/// [MQTT-3.1.3-2, MQTT-3.1.3-7, MQTT311-3.1.3-2]
#[test]
fn an_assigned_client_id_finds_its_session_again() {
    let broker = Broker::start();
    let mut client = broker.accept(&Connect::v5("").persistent());
    let assigned = client
        .connack()
        .properties
        .text(id::ASSIGNED_CLIENT_IDENTIFIER)
        .unwrap()
        .to_owned();
    client.subscribe_to("probe", 0);
    client.disconnect();
    assert!(remembers(&broker, Connect::v5(&assigned).persistent()));
}

/// [MQTT-3.1.2-4, MQTT-3.1.2-5, MQTT-3.1.2-6, MQTT-3.2.2-2, MQTT-3.2.2-3, MQTT-3.1.4-4]
#[test]
fn session_present_is_right_in_every_combination_of_5_0() {
    let broker = Broker::start();
    let kept = Connect::v5("c").persistent();
    let resumed = kept.clone().not_clean();
    let mut fresh = kept.clone();
    fresh.clean = true;

    assert!(!remembers(&broker, resumed.clone()), "nothing to find");
    leave_session(&broker, &kept);
    assert!(remembers(&broker, resumed.clone()), "left and found");
    assert!(
        !remembers(&broker, fresh),
        "left and refused by clean start"
    );
    assert!(
        broker.accept(&resumed).session_present(),
        "the new one was left in turn"
    );
}

/// [MQTT311-3.1.2-4, MQTT311-3.1.2-6, MQTT311-3.1.4-3, MQTT311-3.2.2-1, MQTT311-3.2.2-2,
/// MQTT311-3.2.2-3, MQTT311-4.1.0-1]
#[test]
fn session_present_is_right_in_every_combination_of_3_1_1() {
    let broker = Broker::start();
    let kept = Connect::v311("c").not_clean();
    assert!(!remembers(&broker, kept.clone()), "nothing to find");
    leave_session(&broker, &kept);
    assert!(remembers(&broker, kept.clone()), "left and found");
    assert!(
        !remembers(&broker, Connect::v311("c")),
        "left and discarded"
    );
    assert!(
        !broker.accept(&kept).session_present(),
        "a clean session leaves nothing"
    );
}

/// [MQTT-3.1.4-3]
#[test]
fn a_second_connection_takes_the_session_over_and_the_first_learns_why() {
    let broker = Broker::start();
    let connect = Connect::v5("c").persistent();
    let mut first = broker.accept(&connect);
    first.subscribe_to("a", 0);
    let mut second = broker.accept(&connect);
    assert!(second.session_present());
    first.expect_disconnect(reason::SESSION_TAKEN_OVER);
    let mut publisher = broker.connect("publisher");
    publisher.publish(Publish::new("a", "x"));
    second.expect_message("a", "x");
}

/// [MQTT311-3.1.4-2]
#[test]
fn a_second_connection_closes_the_first_in_3_x() {
    let broker = Broker::start();
    for version in [Version::V3_1, Version::V3_1_1] {
        let mut first = broker.connect_as(version, "c");
        let mut second = broker.connect_as(version, "c");
        first.expect_closed();
        second.expect_pong();
    }
}

/// [MQTT-3.1.4-3, MQTT311-3.1.4-2]
#[test]
fn a_takeover_works_across_versions() {
    let broker = Broker::start();
    let mut first = broker.accept(&Connect::v5("c").persistent());
    first.subscribe_to("probe", 1);
    let mut second = broker.accept(&Connect::v311("c").not_clean());
    assert!(second.session_present());
    first.expect_disconnect(reason::SESSION_TAKEN_OVER);
    let mut third = broker.connect("c");
    assert!(!third.session_present());
    second.expect_closed();
    third.expect_pong();
}

/// [MQTT-3.1.2-4, MQTT-3.1.4-3, MQTT-3.1.4-4]
#[test]
fn a_takeover_with_clean_start_discards_the_session() {
    let broker = Broker::start();
    let mut first = broker.accept(&Connect::v5("c").persistent());
    first.subscribe_to("a", 1);
    let mut second = broker.connect("c");
    assert!(!second.session_present());
    first.expect_disconnect(reason::SESSION_TAKEN_OVER);
    let mut publisher = broker.connect("publisher");
    publisher.publish(Publish::new("a", "x").qos(1));
    second.expect_nothing_from(&mut publisher);
}

/// [MQTT-3.1.4-3, MQTT-4.4.0-1]
#[test]
fn messages_in_flight_at_a_takeover_are_sent_again_to_the_new_connection() {
    let broker = Broker::start();
    let connect = Connect::v5("c").persistent();
    let mut first = broker.accept(&connect);
    first.subscribe_to("a", 1);
    let mut publisher = broker.connect("publisher");
    publisher.publish(Publish::new("a", "x").qos(1));
    let sent = first.expect_message("a", "x");
    let mut second = broker.accept(&connect);
    let again = second.take_message("a", "x");
    assert!(again.dup);
    assert_eq!(again.packet_id, sent.packet_id);
}

/// A burst of connections under one name: one is left, and it works.
/// [MQTT-3.1.4-3]
#[test]
fn of_many_connections_with_one_client_id_exactly_one_stays() {
    let broker = Broker::start();
    let connect = Connect::v5("c").persistent();
    let mut clients: Vec<_> = (0..20).map(|_| broker.attempt(&connect)).collect();
    let mut outcomes: Vec<_> = clients
        .iter_mut()
        .map(|client| {
            assert_eq!(client.expect_connack().reason, 0);
            client.send(PINGREQ);
            loop {
                match client.receive_or_close() {
                    Some(Packet::PingResp) => {}
                    Some(Packet::Disconnect(told)) => break told.code,
                    None => break 0,
                    Some(other) => panic!("{other:?}"),
                }
                // Whether this one stays is known when the broker says so or has nothing to say.
                if client.is_silent() {
                    break 1;
                }
            }
        })
        .collect();
    outcomes.sort_unstable();
    let mut expected = vec![1];
    expected.extend([reason::SESSION_TAKEN_OVER; 19]);
    assert_eq!(
        outcomes, expected,
        "one stays, the others are told why they do not"
    );
}

/// [MQTT-3.1.2-23, MQTT-4.1.0-2]
#[test]
fn a_session_without_expiry_ends_with_its_connection() {
    let broker = Broker::start();
    leave_session(&broker, &Connect::v5("c").not_clean());
    assert!(!remembers(&broker, Connect::v5("c").persistent()));
}

/// [MQTT-3.1.2-23, MQTT-4.1.0-1]
#[test]
fn a_session_with_expiry_survives_a_lost_connection() {
    let broker = Broker::start();
    let connect = Connect::v5("c").persistent();
    let mut client = broker.accept(&connect);
    client.subscribe_to("probe", 0);
    client.vanish();
    assert!(remembers(&broker, connect));
}

/// [MQTT-4.1.0-2]
#[test]
fn a_session_is_forgotten_when_its_expiry_has_passed() {
    let broker = Broker::start();
    leave_session(
        &broker,
        &Connect::v5("short").property(id::SESSION_EXPIRY_INTERVAL, 1),
    );
    leave_session(
        &broker,
        &Connect::v5("long").property(id::SESSION_EXPIRY_INTERVAL, 600),
    );
    broker.let_a_second_pass();
    assert!(!remembers(&broker, Connect::v5("short").persistent()));
    assert!(remembers(&broker, Connect::v5("long").persistent()));
}

#[test]
fn a_session_that_never_expires_is_kept() {
    let broker = Broker::start();
    let connect = Connect::v5("c").property(id::SESSION_EXPIRY_INTERVAL, u32::MAX);
    leave_session(&broker, &connect);
    broker.let_a_second_pass();
    assert!(remembers(&broker, connect.not_clean()));
}

/// [MQTT-3.1.2-23, MQTT-4.1.0-2]
#[test]
fn disconnect_can_shorten_and_prolong_a_session() {
    let broker = Broker::start();
    let with_expiry = |seconds| Connect::v5("c").property(id::SESSION_EXPIRY_INTERVAL, seconds);
    let end = |seconds| disconnect_with(0, &Properties::one(id::SESSION_EXPIRY_INTERVAL, seconds));

    let mut client = broker.accept(&with_expiry(600));
    client.subscribe_to("probe", 0);
    client.disconnect_with(&end(0));
    assert!(
        !remembers(&broker, with_expiry(0).not_clean()),
        "shortened to nothing"
    );

    let mut client = broker.accept(&with_expiry(1));
    client.subscribe_to("probe", 0);
    client.disconnect_with(&end(600));
    broker.let_a_second_pass();
    assert!(
        remembers(&broker, with_expiry(600).not_clean()),
        "prolonged"
    );
}

/// [MQTT-4.1.0-2]
#[test]
fn the_expiry_of_a_session_is_the_one_of_its_latest_connection() {
    let broker = Broker::start();
    leave_session(
        &broker,
        &Connect::v5("c").property(id::SESSION_EXPIRY_INTERVAL, 600),
    );
    let client = broker.accept(&Connect::v5("c").not_clean());
    assert!(client.session_present());
    client.disconnect();
    assert!(!remembers(&broker, Connect::v5("c").persistent()));
}

/// [MQTT-3.14.2-2]
#[test]
fn the_broker_never_sends_a_session_expiry_when_it_disconnects() {
    let broker = Broker::start();
    let connect = Connect::v5("c").persistent();
    let mut first = broker.accept(&connect);
    let mut second = broker.accept(&connect);
    let told = first.expect_disconnect(reason::SESSION_TAKEN_OVER);
    assert!(!told.properties.has(id::SESSION_EXPIRY_INTERVAL));
    second.send_hex("d0 00");
    let told = second.expect_any_disconnect();
    assert!(!told.properties.has(id::SESSION_EXPIRY_INTERVAL));
}

/// [MQTT-4.1.0-1, MQTT311-4.1.0-2]
#[test]
fn a_session_lasts_at_least_as_long_as_its_connection() {
    let broker = Broker::start();
    let mut old = broker.accept(&Connect::v311("old"));
    let mut new = broker.accept(&Connect::v5("new"));
    old.subscribe_to("a", 1);
    new.subscribe_to("a", 1);
    broker.let_a_second_pass();
    let mut publisher = broker.connect("publisher");
    publisher.publish(Publish::new("a", "x").qos(1));
    old.take_message("a", "x");
    new.take_message("a", "x");
}
