//! A client that is slow to take what it is sent, but acknowledges and pings: it is read all the
//! time.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod shard_bus;

use std::time::Duration;

use shard_bus::{Broker, Client, connect, join, publish, retained, subscribe};
use unbroken_broker_core::{Limits, Settings};
use unbroken_mqtt_proto::{Ack, Connect, Packet, PacketId, QoS, Version};

const OUTPUT_BYTES_MAX: u32 = 4_000;
const KEEP_ALIVE: Duration = Duration::from_secs(10);

fn broker() -> Broker {
    let mut limits = Limits::default();
    limits.output_bytes_max = OUTPUT_BYTES_MAX;
    limits.check().unwrap();
    Broker::with(1, limits, Settings::default())
}

/// A client with a subscription to `t`, and a publisher.
fn clients(broker: &mut Broker, qos: QoS) -> (Client, Client) {
    let slow = broker.open(Version::V5);
    let packet = Connect {
        keep_alive: 10,
        ..connect("slow")
    };
    broker.send(slow, Packet::Connect(packet));
    subscribe(broker, slow, "t", qos);
    broker.take(slow);
    (slow, join(broker, "p"))
}

/// Publishes until the output of the subscriber is full, and what follows waits for it.
fn fill(broker: &mut Broker, publisher: Client, qos: QoS) {
    broker.hold_writes = true;
    for number in 1..=60 {
        let payload = format!("{number:0>100}");
        let id = if qos == QoS::AtMostOnce { 0 } else { number };
        broker.send(publisher, publish("t", &payload, qos, id));
    }
}

fn ack(id: u16) -> Packet<'static> {
    Packet::PubAck(Ack::success(PacketId::new(id).unwrap()))
}

#[test]
fn a_client_that_pings_is_not_cut_while_it_takes_nothing() {
    // [MQTT-3.1.2-22]
    for qos in [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce] {
        let mut broker = broker();
        let (slow, publisher) = clients(&mut broker, qos);
        fill(&mut broker, publisher, qos);
        for _ in 0..20 {
            broker.advance(KEEP_ALIVE);
            assert!(broker.wants_input(slow), "{qos:?}");
            broker.send(slow, Packet::PingReq);
        }
        assert!(broker.is_open(slow), "{qos:?}");
        broker.advance(2 * KEEP_ALIVE);
        assert!(!broker.is_open(slow), "{qos:?}: it was silent");
    }
}

#[test]
fn acknowledgements_behind_what_a_client_publishes_are_used_while_it_takes_nothing() {
    let mut broker = broker();
    let (slow, publisher) = clients(&mut broker, QoS::AtLeastOnce);
    fill(&mut broker, publisher, QoS::AtLeastOnce);
    let waiting = broker.shards[0].stats().messages_waiting;
    broker.send(slow, publish("own", "1", QoS::AtLeastOnce, 1));
    subscribe(&mut broker, slow, "u", QoS::AtMostOnce);
    for id in 1..=10 {
        broker.send(slow, ack(id));
    }
    assert_eq!(broker.shards[0].stats().messages_waiting, waiting - 10);
    broker.release_writes();
    let packets = broker.take(slow).into_iter();
    let answers: Vec<_> = packets.filter(|it| !it.starts_with("PUBLISH")).collect();
    assert_eq!(answers, ["PUBACK #1 10", "SUBACK #1 [00]"]);
}

#[test]
fn a_message_that_is_longer_than_the_output_stops_no_acknowledgement() {
    let mut broker = broker();
    let (slow, publisher) = clients(&mut broker, QoS::AtLeastOnce);
    broker.hold_writes = true;
    let long = "x".repeat(10 * OUTPUT_BYTES_MAX as usize);
    broker.send(publisher, publish("t", &long, QoS::AtLeastOnce, 1));
    broker.send(slow, publish("own", "1", QoS::AtLeastOnce, 1));
    broker.send(slow, ack(1));
    assert_eq!(broker.shards[0].stats().messages_waiting, 0);
    assert!(broker.wants_input(slow));
}

#[test]
fn an_answer_to_a_ping_leaves_behind_the_packet_that_is_being_written() {
    let mut broker = broker();
    let (slow, publisher) = clients(&mut broker, QoS::AtMostOnce);
    fill(&mut broker, publisher, QoS::AtMostOnce);
    broker.write(slow, 250); // within the third message
    broker.send(slow, Packet::PingReq);
    broker.send(slow, Packet::PingReq);
    broker.write(slow, 10);
    broker.release_writes();
    let packets = broker.take(slow);
    let pongs = packets.iter().enumerate();
    let at: Vec<_> = pongs
        .filter(|(_, it)| *it == "PINGRESP")
        .map(|(at, _)| at)
        .collect();
    assert_eq!(at, [3, 4], "{packets:?}");
}

#[test]
fn an_answer_to_a_ping_leaves_behind_what_is_sealed() {
    let mut broker = broker();
    let (slow, publisher) = clients(&mut broker, QoS::AtMostOnce);
    fill(&mut broker, publisher, QoS::AtMostOnce);
    broker.send(slow, Packet::PingReq);
    broker.seal(slow, 500);
    broker.write(slow, 250);
    broker.release_writes();
    let packets = broker.take(slow);
    let at = packets.iter().position(|it| it == "PINGRESP").unwrap();
    assert_eq!(at, 5, "{packets:?}");
}

#[test]
fn pings_of_a_client_that_takes_nothing_cost_no_memory_and_are_answered() {
    let mut broker = broker();
    let (slow, publisher) = clients(&mut broker, QoS::AtMostOnce);
    fill(&mut broker, publisher, QoS::AtMostOnce);
    let pending = broker.pending(slow);
    broker.send_bytes(slow, &[0xC0, 0].repeat(10_000));
    assert_eq!(broker.pending(slow), pending);
    assert!(broker.wants_input(slow));
    broker.release_writes();
    let packets = broker.take(slow);
    let pongs = packets.iter().filter(|it| *it == "PINGRESP").count();
    assert_eq!(pongs, 10_000);
}

#[test]
fn a_client_that_takes_neither_messages_nor_answers_is_not_read_without_end() {
    let mut broker = broker();
    let (slow, publisher) = clients(&mut broker, QoS::AtMostOnce);
    fill(&mut broker, publisher, QoS::AtMostOnce);
    let messages = broker.pending(slow);
    let mut sent = 0;
    while broker.wants_input(slow) {
        sent += 1;
        broker.send(slow, publish("own", "x", QoS::AtLeastOnce, 1 + sent % 100));
        assert!(sent < 2_000, "it is read without end");
    }
    let answers = broker.pending(slow) - messages;
    assert!(answers < OUTPUT_BYTES_MAX as usize + 10, "{answers} bytes");
    broker.send(slow, publish("own", "x", QoS::AtLeastOnce, 1));
    // It is read again once it has taken enough, and not only when half is free.
    broker.write(slow, messages + 100);
    assert!(broker.wants_input(slow));
    let received = broker.shards[0].stats().publishes_received;
    assert_eq!(received, 60 + u64::from(sent) + 1);
}

#[test]
fn what_a_client_has_published_is_taken_in_before_its_disconnect_or_end() {
    for is_cut in [false, true] {
        let mut broker = broker();
        let (slow, publisher) = clients(&mut broker, QoS::AtMostOnce);
        subscribe(&mut broker, publisher, "own", QoS::AtMostOnce);
        broker.take(publisher);
        fill(&mut broker, publisher, QoS::AtMostOnce);
        for payload in ["1", "2"] {
            broker.send(slow, publish("own", payload, QoS::AtMostOnce, 0));
        }
        if is_cut {
            broker.cut(slow);
        } else {
            broker.send_bytes(slow, &[0xE0, 0]);
        }
        broker.release_writes();
        let received = broker.take_payloads(publisher);
        assert_eq!(received, [b"1", b"2"], "cut: {is_cut}");
    }
}

#[test]
fn the_window_grows_with_what_is_acknowledged_while_the_client_keeps_up() {
    let mut broker = Broker::new(1);
    let (receiver, publisher) = clients(&mut broker, QoS::AtLeastOnce);
    for id in 1..=400 {
        broker.send(publisher, publish("t", "x", QoS::AtLeastOnce, id));
    }
    let count = |broker: &mut Broker| broker.take(receiver).len();
    assert_eq!(count(&mut broker), 64);
    for id in 1..=64 {
        broker.send(receiver, ack(id));
    }
    assert_eq!(count(&mut broker), 128);
    // A client that does not take what is there gets no more places.
    broker.hold_writes = true;
    broker.send(receiver, ack(65));
    broker.write(receiver, 1);
    for id in 66..=128 {
        broker.send(receiver, ack(id));
    }
    broker.release_writes();
    assert_eq!(count(&mut broker), 65);
}

#[test]
fn a_ping_is_answered_in_front_of_what_is_retained() {
    let mut broker = broker();
    let publisher = join(&mut broker, "p");
    for number in 0..100 {
        let topic = format!("r/{number}");
        let payload = "x".repeat(100);
        broker.send(publisher, retained(&topic, &payload, QoS::AtMostOnce, 0));
    }
    let slow = join(&mut broker, "slow");
    broker.take(slow);
    broker.hold_writes = true;
    subscribe(&mut broker, slow, "r/#", QoS::AtMostOnce);
    broker.write(slow, 50);
    broker.send(slow, Packet::PingReq);
    broker.write(slow, 1);
    broker.release_writes();
    let packets = broker.take(slow);
    let at = packets.iter().position(|it| it == "PINGRESP").unwrap();
    assert!(at < 4, "behind {at} packets");
}
