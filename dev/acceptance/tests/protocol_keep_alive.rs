//! Keep alive: who is taken for dead, and who is not.

use unbroken_acceptance::Broker;
use unbroken_acceptance::raw::{Connect, Packet, Publish, reason};

/// [MQTT-3.1.2-22, MQTT-3.2.2-22, MQTT311-3.1.2-24]
#[test]
fn a_silent_client_is_dropped_after_one_and_a_half_times_its_keep_alive() {
    let broker = Broker::start();
    let start = std::time::Instant::now();
    let mut old = broker.accept(&Connect::v311("old").keep_alive(1));
    let mut new = broker.accept(&Connect::v5("new").keep_alive(1));
    new.expect_disconnect(reason::KEEP_ALIVE_TIMEOUT);
    old.expect_closed();
    assert!(
        start.elapsed().as_millis() >= 1_450,
        "dropped too early: {:?}",
        start.elapsed()
    );
}

/// [MQTT-3.1.2-22]
#[test]
fn any_packet_keeps_a_client_alive() {
    let broker = Broker::start();
    let mut pinging = broker.accept(&Connect::v5("pinging").keep_alive(3));
    let mut publishing = broker.accept(&Connect::v5("publishing").keep_alive(3));
    let mut silent = broker.accept(&Connect::v5("silent").keep_alive(3));
    // Each round lasts 1.5 seconds, less than the 4.5 allowed; together they are longer.
    for _ in 0..4 {
        broker.let_a_second_pass();
        pinging.expect_pong();
        publishing.publish(Publish::new("a", "x"));
    }
    silent.expect_disconnect(reason::KEEP_ALIVE_TIMEOUT);
    pinging.expect_pong();
    publishing.expect_pong();
}

/// What the broker sends does not count, only what it receives.
/// [MQTT-3.1.2-22]
#[test]
fn receiving_messages_does_not_keep_a_client_alive() {
    let broker = Broker::start();
    let mut listening = broker.accept(&Connect::v5("listening").keep_alive(1));
    listening.subscribe_to("a", 0);
    let mut publisher = broker.connect("publisher");
    loop {
        publisher.publish(Publish::new("a", "x"));
        match listening.receive_or_close() {
            Some(Packet::Publish(_)) => {}
            Some(Packet::Disconnect(told)) => {
                assert_eq!(told.code, reason::KEEP_ALIVE_TIMEOUT);
                break;
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn keep_alive_0_switches_it_off() {
    let broker = Broker::start();
    let mut client = broker.accept(&Connect::v5("c").keep_alive(0));
    broker.let_a_second_pass();
    broker.let_a_second_pass();
    client.expect_pong();
}
