//! What a client can make the broker hold: bounded, whether it reads, is known, or neither.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod shard_bus;

use std::time::Duration;

use shard_bus::{Broker, Client, connect, join, publish, retained, stay, subscribe};
use unbroken_broker_core::{DropReason, Event, Limits, Settings};
use unbroken_mqtt_proto::{Ack, Connect, Packet, PacketId, QoS, ReasonCode, Version};

fn broker(change: impl FnOnce(&mut Limits)) -> Broker {
    with(Settings::default(), change)
}

fn durable(change: impl FnOnce(&mut Limits)) -> Broker {
    let mut settings = Settings::default();
    settings.durable = true;
    with(settings, change)
}

fn with(settings: Settings, change: impl FnOnce(&mut Limits)) -> Broker {
    let mut limits = Limits::default();
    change(&mut limits);
    limits.check().unwrap();
    Broker::with(1, limits, settings)
}

/// A client whose session stays, with everything it has asked for so far stored and read.
fn resident(broker: &mut Broker, filter: Option<(&str, QoS)>) -> Client {
    let client = stay(broker, "s", false);
    broker.stored();
    if let Some((filter, qos)) = filter {
        subscribe(broker, client, filter, qos);
        broker.stored();
    }
    broker.take(client);
    broker.take_asked();
    client
}

#[test]
fn a_client_that_takes_no_answers_is_not_read_until_it_does() {
    let mut broker = broker(|limits| limits.output_bytes_max = 20);
    let client = join(&mut broker, "a");
    assert!(broker.wants_input(client));
    broker.hold_writes = true;
    broker.send_bytes(client, &[0xC0, 0].repeat(600));
    broker.send_bytes(client, &[0xC0, 0].repeat(400));
    assert_eq!(broker.pending(client), 20);
    assert!(!broker.wants_input(client));
    broker.release_writes();
    assert!(broker.wants_input(client));
    assert_eq!(broker.take(client), vec!["PINGRESP"; 1_000]);
}

#[test]
fn taking_answers_keeps_a_client_alive_that_is_not_read() {
    // [MQTT-3.1.2-22]
    let mut broker = broker(|limits| limits.output_bytes_max = 20);
    let client = broker.open(Version::V5);
    let packet = Connect {
        keep_alive: 10,
        ..connect("a")
    };
    broker.send(client, Packet::Connect(packet));
    for _ in 0..5 {
        broker.hold_writes = true;
        broker.send_bytes(client, &[0xC0, 0].repeat(10));
        broker.advance(Duration::from_secs(9));
        broker.release_writes();
        broker.advance(Duration::from_secs(9));
        assert!(broker.is_open(client));
    }
    broker.advance(Duration::from_secs(9));
    assert!(!broker.is_open(client));
}

#[test]
fn a_first_packet_that_is_not_connect_ends_the_connection_at_its_first_byte() {
    // [MQTT-3.1.0-1]
    let mut broker = Broker::new(1);
    let stranger = broker.open(Version::V5);
    broker.send_bytes(stranger, &[0x30]);
    assert!(!broker.is_open(stranger));
}

#[test]
fn a_connect_larger_than_any_sensible_one_is_refused_at_its_header() {
    let mut broker = Broker::new(1);
    let stranger = broker.open(Version::V5);
    broker.send_bytes(stranger, &[0x10, 0xFD, 0xFF, 0x17]); // 384 KiB and a byte
    assert!(!broker.is_open(stranger));
    let client = broker.open(Version::V5);
    broker.send_bytes(client, &[0x10, 0xFC, 0xFF, 0x17]);
    assert!(broker.is_open(client));
}

#[test]
fn the_sender_of_a_connect_that_is_too_large_is_told_so_in_its_version() {
    let mut broker = broker(|limits| limits.connect_bytes_max = 100);
    for (level, answer) in [(5, vec!["CONNACK 0 95"]), (4, vec![])] {
        let stranger = broker.open(Version::V5);
        let begun = [&[0x10, 101, 0, 4][..], b"MQTT", &[level, 2]].concat();
        broker.send_bytes(stranger, &begun);
        assert_eq!(broker.take(stranger), answer);
        assert!(!broker.is_open(stranger));
    }
}

/// So many bytes of a CONNECT of 64 KiB.
fn begin_connect(broker: &mut Broker, bytes: usize) -> Client {
    let stranger = broker.open(Version::V5);
    let mut begun = [0x10, 0xFC, 0xFF, 0x03].to_vec();
    begun.extend(b"\0\x04MQTT\x05\x02\0\0");
    begun.resize(bytes, 0);
    broker.send_bytes(stranger, &begun);
    stranger
}

#[test]
fn of_clients_that_are_not_admitted_those_that_hold_most_make_room() {
    for shards in [1, 3] {
        let mut limits = Limits::default();
        limits.unadmitted_bytes_max = 600_000;
        let mut broker = Broker::with(shards, limits, Settings::default());
        let small: Vec<_> = (0..6).map(|_| begin_connect(&mut broker, 100)).collect();
        let large: Vec<_> = (0..30)
            .map(|_| begin_connect(&mut broker, 60_000))
            .collect();
        broker.advance(Duration::from_secs(1));
        assert!(small.iter().all(|client| broker.is_open(*client)));
        let left = large.iter().filter(|it| broker.is_open(**it)).count();
        assert!((6..=10).contains(&left), "{left}");
        let refused = |event: &&Event| {
            matches!(event, Event::Refused { reason: ReasonCode::QuotaExceeded, detail, .. }
                if detail.contains("limits.unadmitted_bytes_max") && detail.contains("bytes"))
        };
        let named = broker.events.iter().filter(refused).count();
        assert_eq!(named, 30 - left);
        // What they held is free again.
        for client in large {
            broker.cut(client);
        }
        let client = begin_connect(&mut broker, 60_000);
        broker.advance(Duration::from_secs(1));
        assert!(broker.is_open(client));
    }
}

#[test]
fn what_a_client_sends_behind_connect_counts_until_it_is_admitted() {
    let mut broker = broker(|limits| limits.unadmitted_bytes_max = 100_000);
    broker.hold_admissions = true;
    let mut bytes = Vec::new();
    Packet::Connect(connect("a"))
        .encode(Version::V5, &mut bytes)
        .unwrap();
    bytes.extend([0xC0, 0].repeat(30_000));
    let clients: Vec<_> = (0..3).map(|_| broker.open(Version::V5)).collect();
    for client in &clients {
        broker.send_bytes(*client, &bytes);
    }
    let open = |broker: &Broker| clients.iter().filter(|it| broker.is_open(**it)).count();
    assert_eq!(open(&broker), 1);
    broker.admit();
    assert_eq!(open(&broker), 1);
    let client = begin_connect(&mut broker, 60_000);
    assert!(broker.is_open(client));
}

/// So many bytes of a PUBLISH of 200,000 bytes.
fn begin_publish(broker: &mut Broker, client: Client, bytes: usize) {
    let mut begun = [0x30, 0xC0, 0x9A, 0x0C, 0, 1, b't', 0].to_vec();
    begun.resize(bytes, b'x');
    broker.send_bytes(client, &begun);
}

#[test]
fn of_admitted_clients_those_that_hold_most_make_room_and_are_told_why() {
    for shards in [1, 3] {
        let mut limits = Limits::default();
        limits.memory_bytes_max = 1_000_000;
        let mut broker = Broker::with(shards, limits, Settings::default());
        let join_all = |broker: &mut Broker, kind: &str, count: u32| -> Vec<Client> {
            let ids = (0..count).map(|number| format!("{kind}-{number}"));
            ids.map(|id| join(broker, &id)).collect()
        };
        let small = join_all(&mut broker, "small", 3);
        let large = join_all(&mut broker, "large", 12);
        for client in &small {
            begin_publish(&mut broker, *client, 1_000);
        }
        for client in &large {
            begin_publish(&mut broker, *client, 150_000);
        }
        broker.advance(Duration::from_secs(1));
        assert!(small.iter().all(|client| broker.is_open(*client)));
        let is_open = |it: &&Client| broker.is_open(**it);
        let left = large.iter().filter(is_open).count();
        assert!((4..=6).contains(&left), "{left}");
        let ended = large.iter().find(|it| !broker.is_open(**it)).unwrap();
        assert_eq!(broker.take(*ended).last().unwrap(), "DISCONNECT 97");
        let told = |event: &&Event| {
            matches!(event, Event::Disconnected { why, .. }
                if format!("{why:?}").contains("limits.memory_bytes_max is reached, and it holds"))
        };
        assert_eq!(broker.events.iter().filter(told).count(), 12 - left);
    }
}

#[test]
fn a_receiver_that_does_not_read_is_ended_when_all_hold_too_much() {
    for qos in [QoS::AtMostOnce, QoS::AtLeastOnce] {
        let mut broker = broker(|limits| limits.memory_bytes_max = 1_000_000);
        let receiver = join(&mut broker, "r");
        subscribe(&mut broker, receiver, "t", qos);
        let publisher = join(&mut broker, "p");
        broker.take(receiver);
        broker.hold_writes = true;
        let payload = "x".repeat(100_000);
        for id in 1..=30 {
            let id = if qos == QoS::AtMostOnce { 0 } else { id };
            broker.send(publisher, publish("t", &payload, qos, id));
        }
        assert!(!broker.is_open(receiver));
        assert!(broker.is_open(publisher));
        assert_eq!(broker.take(receiver), ["DISCONNECT 97"]);
    }
}

#[test]
fn what_waits_in_memory_for_a_client_that_is_away_is_dropped_by_name() {
    let mut broker = broker(|limits| limits.memory_bytes_max = 1_000_000);
    let receiver = stay(&mut broker, "r", true);
    subscribe(&mut broker, receiver, "t", QoS::AtLeastOnce);
    broker.cut(receiver);
    let publisher = join(&mut broker, "p");
    let payload = "x".repeat(100_000);
    for id in 1..=12 {
        broker.send(publisher, publish("t", &payload, QoS::AtLeastOnce, id));
    }
    let stats = broker.shards[0].stats();
    let dropped = stats.dropped[DropReason::QueueFull as usize];
    assert!(dropped >= 8, "{dropped}");
    assert_eq!(stats.messages_waiting + dropped, 12);
    let receiver = stay(&mut broker, "r", false);
    assert_eq!(broker.take(receiver).len() as u64, 13 - dropped);
}

#[test]
fn a_message_that_waits_for_memory_leaves_when_there_is_some() {
    let mut settings = Settings::default();
    settings.at_once = 1;
    let mut broker = with(settings, |limits| limits.memory_bytes_max = 500_000);
    for number in 0..2 {
        let client = join(&mut broker, &format!("many-{number}"));
        subscribe(&mut broker, client, "wide", QoS::AtMostOnce);
    }
    let receiver = join(&mut broker, "r");
    subscribe(&mut broker, receiver, "t", QoS::AtLeastOnce);
    broker.take(receiver);
    let publisher = join(&mut broker, "p");
    // On its way to many, and in no client's account.
    broker.send(
        publisher,
        publish("wide", &"x".repeat(600_000), QoS::AtMostOnce, 0),
    );
    broker.send(
        publisher,
        publish("t", &"x".repeat(100_000), QoS::AtLeastOnce, 1),
    );
    assert_eq!(broker.take(receiver), [""; 0]);
    for _ in 0..3 {
        broker.advance(Duration::from_secs(1));
    }
    assert_eq!(broker.take(receiver).len(), 1);
}

#[test]
fn one_large_message_to_many_fills_what_is_left_and_ends_no_client_at_once() {
    for qos in [QoS::AtMostOnce, QoS::AtLeastOnce] {
        let mut broker = broker(|limits| limits.memory_bytes_max = 2_000_000);
        let receivers = (0..60).map(|number| join(&mut broker, &format!("r-{number}")));
        let receivers: Vec<_> = receivers.collect();
        for receiver in &receivers {
            subscribe(&mut broker, *receiver, "t", qos);
            broker.take(*receiver);
        }
        let publisher = join(&mut broker, "p");
        broker.hold_writes = true;
        let payload = "x".repeat(100_000);
        let id = u16::from(qos == QoS::AtLeastOnce);
        broker.send(publisher, publish("t", &payload, qos, id));
        let pending =
            |broker: &Broker| -> usize { receivers.iter().map(|it| broker.pending(*it)).sum() };
        assert!((1_600_000..2_000_000).contains(&pending(&broker)));
        assert!(receivers.iter().all(|it| broker.is_open(*it)));
        broker.hold_writes = false;
        broker.release_writes();
        for _ in 0..9 {
            broker.advance(Duration::from_secs(1));
        }
        assert!(receivers.iter().all(|it| broker.is_open(*it)));
        let got = receivers.iter().map(|it| broker.take(*it).len());
        let got: usize = got.collect::<Vec<_>>().iter().sum();
        let dropped = broker.shards[0].stats().dropped[DropReason::SlowReceiver as usize];
        assert_eq!(got as u64 + dropped, 60);
        assert_eq!(dropped > 0, qos == QoS::AtMostOnce);
    }
}

#[test]
fn retained_messages_have_a_limit_of_their_own() {
    let mut broker = broker(|limits| limits.memory_bytes_max = 100_000);
    let publisher = join(&mut broker, "p");
    for number in 0..10 {
        let topic = format!("t/{number}");
        let payload = "x".repeat(50_000);
        broker.send(publisher, retained(&topic, &payload, QoS::AtMostOnce, 0));
    }
    assert!(broker.is_open(publisher));
    let stats = broker.shards[0].stats();
    assert_eq!(stats.retained_messages, 10);
}

#[test]
fn messages_in_flight_have_a_limit_of_bytes_and_the_next_waits_for_room() {
    let mut broker = broker(|limits| limits.queue_bytes_max = 20);
    let receiver = join(&mut broker, "r");
    subscribe(&mut broker, receiver, "t", QoS::ExactlyOnce);
    broker.take(receiver);
    let publisher = join(&mut broker, "p");
    for (id, qos) in [
        (1, QoS::AtLeastOnce),
        (2, QoS::ExactlyOnce),
        (3, QoS::AtLeastOnce),
    ] {
        let payload = id.to_string().repeat(15);
        broker.send(publisher, publish("t", &payload, qos, id));
    }
    let first_two = broker.take(receiver);
    assert_eq!(first_two.len(), 2, "{first_two:?}");
    broker.send(receiver, Packet::PubAck(Ack::success(PacketId::FIRST)));
    let third = broker.take(receiver);
    assert_eq!(third, ["PUBLISH t \"333333333333333\" q1 #3"]);
    let second = PacketId::new(2).unwrap();
    broker.send(receiver, Packet::PubRec(Ack::success(second)));
    broker.send(receiver, Packet::PubComp(Ack::success(second)));
    broker.send(
        receiver,
        Packet::PubAck(Ack::success(PacketId::new(3).unwrap())),
    );
    assert_eq!(broker.shards[0].stats().messages_waiting, 0);
}

#[test]
fn a_client_that_too_much_waits_for_is_not_read_until_some_of_it_leaves() {
    for version in [Version::V3_1_1, Version::V5] {
        let mut broker = durable(|limits| limits.output_bytes_max = 300);
        resident(&mut broker, Some(("t", QoS::AtLeastOnce)));
        let publisher = broker.open(version);
        let packet = Connect {
            version,
            ..connect("p")
        };
        broker.send(publisher, Packet::Connect(packet));
        broker.take(publisher);
        for id in 1..=100 {
            broker.send(publisher, publish("t", "x", QoS::AtLeastOnce, id));
        }
        let asked = broker.take_asked().len();
        assert!((2..10).contains(&asked), "{asked} messages were taken");
        assert!(!broker.wants_input(publisher));
        broker.stored_one();
        assert_eq!(broker.take_asked().len(), 1, "one leaves, one comes");
        let mut rounds = 0;
        while !broker.stores.is_empty() {
            broker.stored_one();
            rounds += 1;
        }
        assert_eq!(rounds, 99);
        assert!(broker.wants_input(publisher));
        let answers = broker.take(publisher);
        let expected: Vec<_> = (1..=100).map(|id| format!("PUBACK #{id} 00")).collect();
        assert_eq!(answers, expected);
    }
}

#[test]
fn subacks_that_wait_count_towards_what_a_client_may_make_the_broker_hold() {
    let mut broker = durable(|limits| limits.output_bytes_max = 600);
    let client = resident(&mut broker, None);
    for _ in 0..50 {
        subscribe(&mut broker, client, "t", QoS::AtLeastOnce);
    }
    let asked = broker.take_asked().len();
    assert!((2..10).contains(&asked), "{asked} packets were taken");
    assert!(!broker.wants_input(client));
    while !broker.stores.is_empty() {
        broker.stored_one();
    }
    assert!(broker.wants_input(client));
    assert_eq!(broker.take(client), vec!["SUBACK #1 [01]"; 50]);
}

#[test]
fn messages_that_were_held_leave_as_the_receiver_takes_them() {
    let mut broker = durable(|limits| limits.output_bytes_max = 400);
    let client = resident(&mut broker, Some(("t", QoS::ExactlyOnce)));
    let publisher = join(&mut broker, "p");
    let long = "x".repeat(150);
    for id in 1..=20 {
        broker.send(publisher, publish("t", &long, QoS::AtLeastOnce, id));
        broker.send(publisher, publish("t", &long, QoS::ExactlyOnce, 100 + id));
    }
    broker.hold_writes = true;
    while !broker.stores.is_empty() {
        broker.stored();
    }
    assert!(
        broker.pending(client) < 400 + 200,
        "{}",
        broker.pending(client)
    );
    broker.release_writes();
    broker.stored();
    while !broker.stores.is_empty() {
        broker.stored();
    }
    assert_eq!(broker.take(client).len(), 40);
}

#[test]
fn what_a_transport_holds_counts_for_its_client_before_and_after_it_is_admitted() {
    let mut broker = broker(|limits| {
        limits.unadmitted_bytes_max = 100_000;
        limits.memory_bytes_max = 100_000;
    });
    let all_hold = |broker: &mut Broker, clients: &[Client]| {
        for client in clients {
            broker.transport_holds(*client, 30_000);
        }
        broker.advance(Duration::from_secs(1));
        clients.iter().filter(|it| broker.is_open(**it)).count()
    };
    let strangers: Vec<_> = (0..4).map(|_| broker.open(Version::V5)).collect();
    assert_eq!(all_hold(&mut broker, &strangers), 2);
    for stranger in strangers {
        broker.transport_holds(stranger, 0);
    }
    let clients: Vec<_> = ["a", "b", "c", "d"]
        .map(|id| join(&mut broker, id))
        .to_vec();
    assert_eq!(all_hold(&mut broker, &clients), 2);
    let ended = clients.iter().find(|it| !broker.is_open(**it)).unwrap();
    assert_eq!(broker.take(*ended), ["DISCONNECT 97"]);
    // It moves to the other budget with its client, and is given back at the end.
    for client in clients {
        broker.cut(client);
    }
    let client = broker.open(Version::V5);
    broker.transport_holds(client, 80_000);
    broker.send(client, Packet::Connect(connect("e")));
    let stranger = broker.open(Version::V5);
    broker.transport_holds(stranger, 80_000);
    broker.advance(Duration::from_secs(1));
    assert!(broker.is_open(client) && broker.is_open(stranger));
}
