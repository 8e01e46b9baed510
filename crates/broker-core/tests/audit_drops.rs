//! What a limit or a rule keeps from a receiver is told to that receiver, and to nobody else: its
//! own audit then knows why each missing message is missing.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod shard_bus;

use std::time::Duration;

use shard_bus::{Broker, Client, Received, connect, join, publish, retained, stay, subscribe};
use unbroken_broker_core::{AuditRule, DropReason, Limits, Settings};
use unbroken_merkle_log::ledger::{Event, Join, Ledger, LedgerLimits, State};
use unbroken_merkle_log::{
    Checkpoint, DropRecord, DropRun, Epoch, Lane, LaneId, LaneLimits, Property as Stamp, Xxh3,
};
use unbroken_mqtt_proto::{
    Ack, Connect, Packet, PacketId, Property, PropertyBuf, Publish, QoS, Version,
};

const SECOND: Duration = Duration::from_secs(1);
const DROPS: &str = "audit/drop/+";

/// A client that stamps what it publishes on `t`.
struct Producer {
    client: Client,
    lane: Lane,
    packet_id: u16,
}

impl Producer {
    fn join(broker: &mut Broker) -> Self {
        let id = LaneId::new(7).unwrap();
        Self {
            client: join(broker, "producer"),
            lane: Lane::new(id, Epoch(1), LaneLimits::default(), Duration::ZERO),
            packet_id: 0,
        }
    }

    fn send(&mut self, broker: &mut Broker, payload: &str) {
        self.publish(broker, payload, QoS::AtLeastOnce, None);
    }

    fn send_expiring(&mut self, broker: &mut Broker, payload: &str, seconds: u32) {
        self.publish(broker, payload, QoS::AtLeastOnce, Some(seconds));
    }

    fn publish(&mut self, broker: &mut Broker, payload: &str, qos: QoS, expiry: Option<u32>) {
        let stamp = self.lane.issue(*b"t", payload.as_bytes(), &Xxh3).to_text();
        let mut properties = PropertyBuf::new();
        let stamp = Property::UserProperty("audit", &stamp);
        properties.push(stamp).unwrap();
        if let Some(seconds) = expiry {
            let expiry = Property::MessageExpiryInterval(seconds);
            properties.push(expiry).unwrap();
        }
        self.packet_id += 1;
        let packet = Publish {
            dup: false,
            qos,
            retain: false,
            topic: "t",
            packet_id: PacketId::new(self.packet_id).filter(|_| qos > QoS::AtMostOnce),
            properties: properties.as_properties(),
            payload: payload.as_bytes(),
        };
        broker.send(self.client, Packet::Publish(packet));
    }

    /// The checkpoint over all that was issued.
    fn end(self) -> Checkpoint {
        self.lane.close(0, &Xxh3).unwrap()
    }
}

/// What this client was sent, and what it is sent when it acknowledges that.
fn acknowledged(broker: &mut Broker, client: Client) -> Vec<Received> {
    let mut all = Vec::new();
    loop {
        let more = broker.take_publishes(client);
        if more.is_empty() {
            return all;
        }
        for id in more.iter().filter_map(|received| received.packet_id) {
            broker.send(client, Packet::PubAck(Ack::success(id)));
        }
        broker.stored();
        all.extend(more);
    }
}

/// What the audit of this client makes of what it was sent: each message and each record, in the
/// order in which they came, and what is lost in the end.
fn judged(broker: &mut Broker, client: Client, end: Option<&Checkpoint>) -> Vec<String> {
    let mut ledger = Ledger::new(Xxh3, LedgerLimits::default(), Join::Beginning);
    let mut said = Vec::new();
    for received in acknowledged(broker, client) {
        let value = |name| {
            let mut named = received.properties.iter().filter(|(key, _)| key == name);
            named.next().map(|(_, value)| value.clone())
        };
        if received.topic.starts_with("audit/drop/") {
            let sealed = DropRecord::parse(&received.payload).unwrap();
            assert_eq!(received.topic, format!("audit/drop/{}", sealed.lane()));
            let record = sealed.open(&Xxh3).unwrap();
            ledger.dropped(&record, SECOND).unwrap();
            let runs: Vec<_> = record.runs.iter().map(DropRun::numbers).collect();
            let whose = value("audit-receiver").unwrap();
            said.push(format!("{whose} {} {runs:?}", record.reason));
        } else {
            let stamp = Stamp::parse_text(&value("audit").unwrap()).unwrap();
            let (topic, payload) = (received.topic.as_bytes(), &received.payload);
            let verdict = ledger.message(&stamp, topic, payload, SECOND);
            said.push(format!("{} {verdict:?}", stamp.sequence));
        }
    }
    let Some(end) = end else { return said };
    ledger.resume(Duration::ZERO);
    ledger.checkpoint(end, SECOND);
    ledger.poll(SECOND * 60);
    for (_, _, event) in ledger.take_events() {
        match event {
            Event::Lost { numbers, .. } => said.push(format!("lost {numbers:?}")),
            Event::Window { state, account, .. } => {
                assert!(account.is_lawful());
                said.push(format!("{state:?} {} dropped", account.dropped));
                assert_eq!(state == State::Proven, account.lost == 0);
            }
            _ => {}
        }
    }
    said
}

fn with(change: impl FnOnce(&mut Limits, &mut Settings)) -> Broker {
    let (mut limits, mut settings) = (Limits::default(), Settings::default());
    change(&mut limits, &mut settings);
    limits.check().unwrap();
    Broker::with(1, limits, settings)
}

/// A session that stays and hears of drops, whose client is away.
fn sleeper(broker: &mut Broker) {
    let sleeper = stay(broker, "sleeper", true);
    broker.stored();
    subscribe(broker, sleeper, "t", QoS::AtLeastOnce);
    subscribe(broker, sleeper, DROPS, QoS::AtLeastOnce);
    broker.stored();
    broker.cut(sleeper);
    broker.stored();
}

fn wakes(broker: &mut Broker) -> Client {
    let client = stay(broker, "sleeper", false);
    broker.stored();
    client
}

#[test]
fn a_full_queue_is_told_behind_what_it_holds_and_nothing_is_lost() {
    let mut broker = with(|limits, _| limits.queue_messages_max = 2);
    sleeper(&mut broker);
    let mut producer = Producer::join(&mut broker);
    for payload in ["0", "1", "2", "3", "4"] {
        producer.send(&mut broker, payload);
    }
    let sleeper = wakes(&mut broker);
    producer.send(&mut broker, "5");
    let end = producer.end();
    let expect = [
        "0 InOrder",
        "1 InOrder",
        "sleeper queue-full [2..5]",
        "5 InOrder",
        "Proven 3 dropped",
    ];
    assert_eq!(judged(&mut broker, sleeper, Some(&end)), expect);
}

#[test]
fn a_full_queue_is_told_when_it_is_empty_though_nothing_comes_behind_it() {
    for (inflight, durable) in [(1, false), (8, false), (1, true)] {
        let mut broker = with(|limits, settings| {
            limits.queue_messages_max = 2;
            limits.inflight_max = inflight;
            settings.durable = durable;
        });
        sleeper(&mut broker);
        let mut producer = Producer::join(&mut broker);
        for payload in ["0", "1", "2", "3", "4"] {
            producer.send(&mut broker, payload);
            broker.stored();
        }
        let sleeper = wakes(&mut broker);
        let end = producer.end();
        let said = judged(&mut broker, sleeper, Some(&end));
        let last = said.last().map(String::as_str);
        assert_eq!(
            last,
            Some("Proven 3 dropped"),
            "{inflight} {durable} {said:?}"
        );
    }
}

#[test]
fn a_connected_receiver_that_acknowledges_nothing_is_told_when_it_does() {
    for shards in [1, 3] {
        let mut limits = Limits::default();
        limits.queue_messages_max = 2;
        limits.inflight_max = 1;
        let mut broker = Broker::with(shards, limits, Settings::default());
        let slow = join(&mut broker, "slow");
        subscribe(&mut broker, slow, "t", QoS::AtLeastOnce);
        subscribe(&mut broker, slow, DROPS, QoS::AtLeastOnce);
        broker.take(slow);
        let mut producer = Producer::join(&mut broker);
        for payload in ["0", "1", "2", "3", "4"] {
            producer.send(&mut broker, payload);
        }
        let end = producer.end();
        let said = judged(&mut broker, slow, Some(&end));
        let last = said.last().map(String::as_str);
        assert_eq!(last, Some("Proven 2 dropped"), "{shards} {said:?}");
    }
}

#[test]
fn a_record_that_was_lost_with_its_connection_comes_with_the_session() {
    let mut broker = with(|limits, _| limits.queue_messages_max = 2);
    sleeper(&mut broker);
    let mut producer = Producer::join(&mut broker);
    for payload in ["0", "1", "2", "3", "4"] {
        producer.send(&mut broker, payload);
    }
    let client = wakes(&mut broker);
    broker.hold_writes = true;
    producer.send(&mut broker, "5");
    // The record and what stands behind it are under way, and nobody reads them.
    broker.cut(client);
    broker.hold_writes = false;
    let client = wakes(&mut broker);
    let end = producer.end();
    let said = judged(&mut broker, client, Some(&end));
    let record = "sleeper queue-full [2..5]".to_owned();
    assert!(said.contains(&record), "{said:?}");
    let last = said.last().map(String::as_str);
    assert_eq!(last, Some("Proven 3 dropped"), "{said:?}");
}

#[test]
fn nobody_hears_what_another_session_missed() {
    let mut broker = with(|limits, _| limits.queue_messages_max = 1);
    sleeper(&mut broker);
    let awake = join(&mut broker, "awake");
    subscribe(&mut broker, awake, "t", QoS::AtLeastOnce);
    subscribe(&mut broker, awake, DROPS, QoS::AtLeastOnce);
    let watcher = join(&mut broker, "watcher");
    subscribe(&mut broker, watcher, "audit/#", QoS::AtLeastOnce);
    let mut producer = Producer::join(&mut broker);
    producer.send(&mut broker, "0");
    producer.send(&mut broker, "1");
    wakes(&mut broker);
    let whole = ["0 InOrder", "1 InOrder"];
    assert_eq!(judged(&mut broker, awake, None), whole);
    assert_eq!(judged(&mut broker, watcher, None), [""; 0]);
}

#[test]
fn what_expired_is_told_in_its_place() {
    for durable in [false, true] {
        let mut broker = with(|_, settings| settings.durable = durable);
        sleeper(&mut broker);
        let mut producer = Producer::join(&mut broker);
        producer.send(&mut broker, "0");
        producer.send_expiring(&mut broker, "1", 5);
        producer.send_expiring(&mut broker, "2", 5);
        producer.send(&mut broker, "3");
        producer.send_expiring(&mut broker, "4", 5);
        broker.stored();
        broker.advance(SECOND * 6);
        let sleeper = wakes(&mut broker);
        let end = producer.end();
        let expect = [
            "0 InOrder",
            "sleeper expired [1..3]",
            "3 InOrder",
            "sleeper expired [4..5]",
            "Proven 3 dropped",
        ];
        assert_eq!(judged(&mut broker, sleeper, Some(&end)), expect);
    }
}

#[test]
fn what_was_skipped_on_disk_is_told_before_what_is_left() {
    let mut broker = with(|limits, settings| {
        limits.queue_messages_max = 2;
        settings.durable = true;
    });
    sleeper(&mut broker);
    let mut producer = Producer::join(&mut broker);
    for payload in ["0", "1", "2", "3", "4"] {
        producer.send(&mut broker, payload);
        broker.stored();
    }
    let sleeper = wakes(&mut broker);
    let end = producer.end();
    let expect = [
        "sleeper queue-full [0..3]",
        "3 InOrder",
        "4 InOrder",
        "Proven 3 dropped",
    ];
    assert_eq!(judged(&mut broker, sleeper, Some(&end)), expect);
}

#[test]
fn what_is_too_large_for_a_receiver_is_told_at_once() {
    let mut broker = with(|_, _| {});
    let mut properties = PropertyBuf::new();
    let largest = Property::MaximumPacketSize(200);
    properties.push(largest).unwrap();
    let small = broker.open(Version::V5);
    let packet = Connect {
        properties: properties.as_properties(),
        ..connect("small")
    };
    broker.send(small, Packet::Connect(packet));
    subscribe(&mut broker, small, "t", QoS::AtLeastOnce);
    subscribe(&mut broker, small, "audit/drop/#", QoS::AtMostOnce);
    let mut producer = Producer::join(&mut broker);
    producer.send(&mut broker, "0");
    producer.send(&mut broker, &"x".repeat(200));
    let told = ["0 InOrder", "small too-large [1..2]"];
    assert_eq!(judged(&mut broker, small, None), told);
}

#[test]
fn a_receiver_that_is_too_slow_at_qos_0_is_told_when_it_reads_again() {
    let mut broker = with(|limits, _| limits.output_bytes_max = 4_096);
    let slow = join(&mut broker, "slow");
    subscribe(&mut broker, slow, "t", QoS::AtMostOnce);
    subscribe(&mut broker, slow, DROPS, QoS::AtMostOnce);
    let mut producer = Producer::join(&mut broker);
    broker.hold_writes = true;
    for payload in ["0", "1", "2", "3"] {
        let payload = payload.repeat(2_000);
        producer.publish(&mut broker, &payload, QoS::AtMostOnce, None);
    }
    broker.release_writes();
    producer.publish(&mut broker, "4", QoS::AtMostOnce, None);
    let end = producer.end();
    let expect = [
        "0 InOrder",
        "1 InOrder",
        "slow slow-receiver [2..4]",
        "4 InOrder",
        "Proven 2 dropped",
    ];
    assert_eq!(judged(&mut broker, slow, Some(&end)), expect);
}

#[test]
fn lanes_of_the_broker_itself_are_told_of_too() {
    let mut broker = with(|limits, settings| {
        let mut rule = AuditRule::any();
        rule.forward_stamp = true;
        settings.audit.rules = vec![rule];
        limits.queue_messages_max = 1;
    });
    sleeper(&mut broker);
    let plain = join(&mut broker, "plain");
    for (id, payload) in (1..).zip(["0", "1", "2"]) {
        broker.send(plain, publish("t", payload, QoS::AtLeastOnce, id));
    }
    let sleeper = wakes(&mut broker);
    let told = ["0 InOrder", "sleeper queue-full [1..3]"];
    assert_eq!(judged(&mut broker, sleeper, None), told);
}

#[test]
fn a_stamp_that_fits_no_message_names_nothing() {
    let mut broker = with(|limits, _| limits.queue_messages_max = 1);
    sleeper(&mut broker);
    let mut producer = Producer::join(&mut broker);
    producer.send(&mut broker, "0");
    let forged = producer.lane.issue(*b"t", *b"1", &Xxh3).to_text();
    let mut properties = PropertyBuf::new();
    let stamp = Property::UserProperty("audit", &forged);
    properties.push(stamp).unwrap();
    let Packet::Publish(packet) = publish("t", "altered", QoS::AtLeastOnce, 9) else {
        unreachable!()
    };
    let packet = Publish {
        properties: properties.as_properties(),
        ..packet
    };
    broker.send(producer.client, Packet::Publish(packet));
    let sleeper = wakes(&mut broker);
    let end = producer.end();
    let expect = ["0 InOrder", "lost 1..2", "Faulty 0 dropped"];
    assert_eq!(judged(&mut broker, sleeper, Some(&end)), expect);
}

#[test]
fn who_does_not_hear_of_drops_is_sent_what_it_asked_for_and_nothing_else() {
    let mut broker = with(|limits, _| limits.queue_messages_max = 1);
    let sleeper = stay(&mut broker, "sleeper", true);
    subscribe(&mut broker, sleeper, "#", QoS::AtLeastOnce);
    broker.cut(sleeper);
    let mut producer = Producer::join(&mut broker);
    producer.send(&mut broker, "0");
    producer.send(&mut broker, "1");
    let sleeper = wakes(&mut broker);
    assert_eq!(judged(&mut broker, sleeper, None), ["0 InOrder"]);
    let dropped = broker.shards[0].stats().dropped;
    assert_eq!(dropped[DropReason::QueueFull as usize], 1);
}

#[test]
fn messages_without_a_stamp_and_retained_copies_are_not_told() {
    let mut broker = with(|limits, _| limits.queue_messages_max = 1);
    let plain = join(&mut broker, "plain");
    broker.send(plain, retained("t", "kept", QoS::AtLeastOnce, 1));
    sleeper(&mut broker);
    broker.send(plain, publish("t", "1", QoS::AtLeastOnce, 2));
    broker.send(plain, publish("t", "2", QoS::AtLeastOnce, 3));
    let sleeper = wakes(&mut broker);
    let topics: Vec<_> = broker
        .take_publishes(sleeper)
        .into_iter()
        .map(|received| received.topic)
        .collect();
    assert!(topics.iter().all(|topic| topic == "t"), "{topics:?}");
}
