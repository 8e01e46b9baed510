//! A broker that stops at any moment and begins again with what its store had.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[allow(
    unfulfilled_lint_expectations,
    reason = "what is disallowed depends on the crate"
)]
#[path = "../../../broker-core/tests/shard_bus/mod.rs"]
mod shard_bus;

mod backlog;
mod crash_recovery;
mod gaps;
mod groups;
mod hand_overs;
mod in_flight;
mod kills;
mod lane_users;
mod lanes;
mod limits;
mod moves;
mod order;
mod queue_limits;
mod recovery_scan;
mod replaced;
mod salvage;
mod values;
mod wills;

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant, UNIX_EPOCH};

use limits::is_balanced;
use shard_bus::{
    Broker, Client, Disk, connect, join, publish, retained, send_subscribe, stay, subscribe,
};
use unbroken_broker_core::{
    AuditRule, DropReason, Limits, LogId, ReadAnswer, ReadRequest, Record, Settings,
};
use unbroken_mqtt_proto::{
    Ack, Connect, Packet, PacketId, Properties, QoS, SubscriptionOptions, TopicFilters,
    Unsubscribe, Version,
};
use unbroken_persist::{Times, batch_of, left_out, read, restore};
use unbroken_store::{Log, Memory, Store};

/// What survives a broker.
#[derive(Clone)]
struct Kept {
    store: Arc<Memory>,
    times: Times,
}

impl Disk for Kept {
    fn store(&mut self, record: &Record, at: Instant) {
        let batch = batch_of(record, at, &self.times);
        let results = self.store.commit(&[batch]).unwrap();
        assert!(results.iter().all(Result::is_ok), "{record:?}: {results:?}");
    }

    fn read(&mut self, request: &ReadRequest) -> ReadAnswer {
        read(&*self.store, request, &self.times).unwrap()
    }

    fn left_out(&self) -> Vec<(LogId, Range<u64>)> {
        left_out(&*self.store).unwrap()
    }
}

/// A broker and its disk.
struct World {
    broker: Broker,
    kept: Kept,
    shards: u8,
    /// What the last start has said of what groups could give to nobody.
    undelivered: Vec<String>,
}

impl World {
    fn new(shards: u8) -> Self {
        let broker = begin(shards, Limits::default());
        let kept = Kept {
            store: Arc::new(Memory::new()),
            times: Times::new(broker.now, UNIX_EPOCH + Duration::from_secs(1_790_000_000)),
        };
        let mut world = Self {
            broker,
            kept,
            shards,
            undelivered: Vec::new(),
        };
        world.distribute();
        world.broker.advance(Duration::ZERO);
        world.broker.stored();
        world.broker.take_asked();
        world
    }

    /// Everything so far is stored, and told.
    fn settle(&mut self) {
        for _ in 0..3 {
            self.broker.stored();
            self.broker.advance(Duration::from_secs(1));
        }
        self.broker.stored();
    }

    /// The broker stops without a word; what it has asked for and not been answered is lost.
    fn restart(&mut self) {
        self.restart_with(self.shards);
    }

    fn restart_with(&mut self, shards: u8) {
        self.restart_quietly(shards);
        // What they have to say to each other.
        self.broker.advance(Duration::from_secs(1));
        self.broker.stored();
        self.broker.take_asked();
    }

    /// No shard has been told anything yet.
    fn restart_quietly(&mut self, shards: u8) {
        self.shards = shards;
        self.restart_limited(Limits::default());
    }

    /// The same with other limits.
    fn restart_limited(&mut self, limits: Limits) {
        let now = self.broker.now;
        self.broker = begin(self.shards, limits);
        self.broker.now = now;
        self.distribute();
    }

    /// Gives the shards what is on the disk.
    fn distribute(&mut self) {
        let now = self.broker.now;
        self.broker.keep_on(Box::new(self.kept.clone()));
        let restored = restore(&*self.kept.store, self.shards, now, &self.kept.times).unwrap();
        assert_eq!(restored.lost, Vec::<String>::new());
        self.undelivered.clone_from(&restored.undelivered);
        restored.distribute(now, &mut self.broker.shards).unwrap();
    }

    fn resident(&mut self, client_id: &str, filters: &[(&str, QoS)]) -> Client {
        let client = stay(&mut self.broker, client_id, false);
        self.broker.stored();
        for (filter, qos) in filters {
            subscribe(&mut self.broker, client, filter, *qos);
            self.broker.stored();
        }
        self.broker.take(client);
        client
    }

    /// Comes back; what it receives until it is asked for more.
    fn back(&mut self, client_id: &str) -> (Client, Vec<String>) {
        let client = stay(&mut self.broker, client_id, false);
        self.broker.stored();
        self.broker.stored();
        let received = self.broker.take(client);
        (client, received)
    }

    /// It answers what it has received, and receives the rest: a connection begins with few
    /// messages in flight.
    fn take_rest(&mut self, client: Client, mut received: Vec<String>) -> Vec<String> {
        let mut answered = 0;
        while answered < received.len() {
            for packet in &received[answered..] {
                let Some((kind, behind)) = packet.split_once('#') else {
                    continue;
                };
                let id = behind.split(' ').next().unwrap().parse().unwrap();
                let answer = if kind.starts_with("PUBREL") {
                    Packet::PubComp(ack(id))
                } else if kind.ends_with("q2 ") {
                    Packet::PubRec(ack(id))
                } else {
                    Packet::PubAck(ack(id))
                };
                self.broker.send(client, answer);
            }
            answered = received.len();
            self.settle();
            received.extend(self.broker.take(client));
        }
        received
    }

    /// A client of MQTT 3.1.1 whose session stays.
    fn older(&mut self, client_id: &str) -> Client {
        let client = self.broker.open(Version::V3_1_1);
        let packet = Connect {
            version: Version::V3_1_1,
            clean_start: false,
            keep_alive: 10,
            ..connect(client_id)
        };
        self.broker.send(client, Packet::Connect(packet));
        self.broker.stored();
        self.broker.take(client);
        client
    }
}

fn begin(shards: u8, limits: Limits) -> Broker {
    let mut settings = Settings::default();
    settings.durable = true;
    settings.audit.enabled = true;
    let mut rule = AuditRule::any();
    "forwarded".clone_into(&mut rule.client);
    rule.forward_stamp = true;
    settings.audit.rules = vec![rule];
    Broker::with(shards, limits, settings)
}

fn ack(id: u16) -> Ack<'static> {
    Ack::success(PacketId::new(id).unwrap())
}

const QOS1: QoS = QoS::AtLeastOnce;
const QOS2: QoS = QoS::ExactlyOnce;

#[test]
fn in_flight_messages_of_qos_2_keep_their_ids_and_are_not_given_again() {
    let mut world = World::new(1);
    let client = world.resident("s", &[("t", QOS2)]);
    let publisher = join(&mut world.broker, "p");
    for id in 1..=4 {
        world
            .broker
            .send(publisher, publish("t", &id.to_string(), QOS2, id));
    }
    world.broker.stored();
    world.broker.stored();
    assert_eq!(world.broker.take(client).len(), 4);
    // The first is done with, the second is received, the third and fourth are under way.
    for id in [1, 2] {
        world.broker.send(client, Packet::PubRec(ack(id)));
    }
    world.broker.stored();
    world.broker.send(client, Packet::PubComp(ack(1)));
    world.restart();
    let (client, received) = world.back("s");
    let expected = [
        "CONNACK 1 00",
        // That the first is done with was to be told later: its receiver knows it.
        "PUBREL #1 00",
        "PUBREL #2 00",
        "PUBLISH t \"3\" q2 #3 dup",
        "PUBLISH t \"4\" q2 #4 dup",
    ];
    assert_eq!(received, expected);
    for id in [1, 2] {
        world.broker.send(client, Packet::PubComp(ack(id)));
    }
    world.settle();
    world.broker.take(client);
    world.broker.cut(client);
    world.restart();
    let (_, received) = world.back("s");
    assert_eq!(received[1..], expected[3..]);
}

#[test]
fn a_packet_id_that_is_used_again_does_not_bring_back_what_had_it_before() {
    let mut world = World::new(1);
    let client = world.resident("s", &[("t", QOS2)]);
    let publisher = join(&mut world.broker, "p");
    world.broker.send(publisher, publish("t", "first", QOS2, 1));
    world.broker.stored();
    world.broker.stored();
    world.broker.send(client, Packet::PubRec(ack(1)));
    world.broker.stored();
    world.broker.send(client, Packet::PubComp(ack(1)));
    // 65,534 ids later in life: the next message has the same id.
    for id in 2..=u16::MAX {
        world.broker.send(publisher, publish("t", "x", QOS2, id));
        world.broker.stored();
        world.broker.stored();
        if id < 50 {
            let expected = PacketId::new(id).unwrap();
            world
                .broker
                .send(client, Packet::PubRec(Ack::success(expected)));
            world.broker.stored();
            world
                .broker
                .send(client, Packet::PubComp(Ack::success(expected)));
            world.broker.take(client);
        } else {
            break;
        }
    }
    world.restart();
    let (_, received) = world.back("s");
    let given: Vec<_> = received
        .iter()
        .filter(|p| p.starts_with("PUBLISH"))
        .collect();
    assert_eq!(given, ["PUBLISH t \"x\" q2 #50 dup"]);
}

#[test]
fn a_message_of_qos_2_that_comes_again_after_a_restart_is_not_delivered_again() {
    let mut world = World::new(1);
    let away = world.resident("s", &[("t", QOS2)]);
    world.broker.cut(away);
    let publisher = world.resident("p", &[]);
    world.broker.send(publisher, publish("t", "once", QOS2, 7));
    world.broker.stored();
    assert_eq!(world.broker.take(publisher), ["PUBREC #7 00"]);
    world.restart();
    let (publisher, _) = world.back("p");
    world.broker.send(publisher, publish("t", "once", QOS2, 7));
    assert_eq!(world.broker.take(publisher), ["PUBREC #7 00"]);
    world.broker.send(publisher, Packet::PubRel(ack(7)));
    world.broker.stored();
    assert_eq!(world.broker.take(publisher), ["PUBCOMP #7 00"]);
    let (_, received) = world.back("s");
    assert_eq!(received[1..], ["PUBLISH t \"once\" q2 #1"]);
}

#[test]
fn retained_messages_are_there_after_a_restart_and_forgotten_ones_are_not() {
    for shards in [1, 2] {
        let mut world = World::new(shards);
        let publisher = join(&mut world.broker, "p");
        world.broker.send(publisher, retained("a", "old", QOS1, 1));
        world.broker.send(publisher, retained("a", "new", QOS1, 2));
        world.broker.send(publisher, retained("b", "gone", QOS1, 3));
        world.broker.send(publisher, retained("b", "", QOS1, 4));
        world.broker.stored();
        world.restart();
        let client = join(&mut world.broker, "c");
        subscribe(&mut world.broker, client, "#", QoS::AtMostOnce);
        let mut received = world.broker.take(client);
        received.retain(|packet| packet.starts_with("PUBLISH"));
        assert_eq!(received, ["PUBLISH a \"new\" q0 retain"], "{shards}");
    }
}

#[test]
fn a_retained_message_that_a_session_was_given_needs_no_log() {
    for (shards, qos) in [(1, QOS1), (1, QOS2), (3, QOS1), (3, QOS2)] {
        let mut world = World::new(shards);
        let logger = world.resident("logger", &[("#", QOS1)]);
        let publisher = join(&mut world.broker, "p");
        world.broker.send(publisher, retained("t", "x", qos, 1));
        world.broker.stored();
        world.broker.send(logger, Packet::PubAck(ack(1)));
        world.settle();
        world.resident("s", &[("t", qos)]);
        world.settle();
        for log in world.kept.store.logs().unwrap() {
            let next = world.kept.store.bounds(log).unwrap().next;
            for shard in &world.broker.shards {
                let needed = shard.needed().of(LogId(log.0));
                assert_eq!(needed + 1, next.0, "{shards} {qos:?}");
            }
            world.kept.store.trim(log, next).unwrap();
        }
        world.restart();
        let (_, received) = world.back("s");
        let number = u8::from(qos);
        let expected = format!("PUBLISH t \"x\" q{number} #1 dup retain");
        assert_eq!(received[1..], [expected], "{shards}");
    }
}

#[test]
fn a_message_that_a_group_has_given_to_a_session_is_there_after_a_restart() {
    let mut world = World::new(1);
    let away = world.resident("s", &[("$share/g/t", QOS1), ("t", QOS1)]);
    world.broker.cut(away);
    world.settle();
    let publisher = join(&mut world.broker, "p");
    world.broker.send(publisher, publish("t", "x", QOS1, 1));
    world.broker.stored();
    assert_eq!(world.broker.take(publisher), ["PUBACK #1 00"]);
    world.restart();
    let (_, received) = world.back("s");
    let expected = ["PUBLISH t \"x\" q1 #1", "PUBLISH t \"x\" q1 #2"];
    assert_eq!(
        received[1..],
        expected,
        "once by the group and once by itself"
    );
}

#[test]
fn a_session_that_ended_is_not_there_after_a_restart() {
    let mut world = World::new(1);
    let client = world.resident("s", &[("t", QOS1)]);
    world.broker.cut(client);
    world.broker.advance(Duration::from_secs(101));
    world.broker.stored();
    world.restart();
    let (_, received) = world.back("s");
    assert_eq!(received, ["CONNACK 0 00"]);
}

#[test]
fn a_clean_start_leaves_nothing_of_the_session_before_it() {
    let mut world = World::new(1);
    let client = world.resident("s", &[("t", QOS1)]);
    world.broker.cut(client);
    let client = stay(&mut world.broker, "s", true);
    world.broker.stored();
    world.broker.cut(client);
    let publisher = join(&mut world.broker, "p");
    world.broker.send(publisher, publish("t", "x", QOS1, 1));
    world.broker.stored();
    world.restart();
    let (_, received) = world.back("s");
    assert_eq!(received, ["CONNACK 1 00"]);
}

#[test]
fn the_number_of_shards_may_change() {
    let mut world = World::new(3);
    let subscribers = ["s1", "s2", "s3", "s4"];
    for name in subscribers {
        let client = world.resident(name, &[("t/+", QOS1)]);
        world.broker.cut(client);
    }
    for name in ["p1", "p2", "p3", "p4", "p5"] {
        let publisher = join(&mut world.broker, name);
        let topic = format!("t/{name}");
        world.broker.send(publisher, publish(&topic, "x", QOS1, 1));
    }
    world.broker.stored();
    for shards in [1, 2, 3] {
        world.restart_with(shards);
        for name in subscribers {
            let (client, mut received) = world.back(name);
            received.retain(|packet| packet.starts_with("PUBLISH"));
            assert_eq!(
                received.len(),
                5,
                "{name} with {shards} shards: {received:?}"
            );
            world.broker.cut(client);
        }
    }
}

#[test]
fn options_of_a_subscription_survive() {
    let mut world = World::new(1);
    let client = world.resident("s", &[]);
    let options = SubscriptionOptions {
        qos: QOS1,
        no_local: true,
        retain_as_published: true,
        ..SubscriptionOptions::default()
    };
    send_subscribe(&mut world.broker, client, &[("t", options)]);
    world.broker.stored();
    world.broker.take(client);
    world.broker.send(client, publish("t", "own", QOS1, 1));
    world.broker.stored();
    world.broker.cut(client);
    world.restart();
    let publisher = join(&mut world.broker, "p");
    world.broker.send(publisher, retained("t", "kept", QOS1, 2));
    world.broker.stored();
    let (_, received) = world.back("s");
    assert_eq!(received[1..], ["PUBLISH t \"kept\" q1 #1 retain"]);
}

#[test]
fn what_is_retained_and_was_still_to_be_sent_for_a_subscription_is_sent_after_a_restart() {
    for shards in [1, 3] {
        for qos in [QOS1, QOS2] {
            for stops_in_order in [false, true] {
                let mut world = World::new(shards);
                let publisher = join(&mut world.broker, "p");
                let topics = ["r/1", "r/2", "r/3", "r/4", "r/5"];
                for (id, topic) in (1..).zip(topics) {
                    world.broker.send(publisher, retained(topic, "x", qos, id));
                    world.broker.stored();
                }
                let mut limits = Limits::default();
                limits.inflight_max = 1;
                world.broker.reconfigure(limits);
                world.resident("s", &[("r/+", qos)]);
                world.settle();
                if stops_in_order {
                    world.broker.drain();
                    world.broker.stored();
                }
                world.restart();
                let (client, received) = world.back("s");
                let mut came: Vec<_> = received
                    .iter()
                    .filter_map(|packet| packet.strip_prefix("PUBLISH ")?.split(' ').next())
                    .collect();
                came.sort_unstable();
                came.dedup();
                assert_eq!(came, topics, "{shards} {qos:?} {received:?}");
                // When they were all sent, that is over.
                world.settle();
                world.broker.cut(client);
                world.settle();
                world.restart();
                let (_, again) = world.back("s");
                let again = again.iter().filter(|packet| packet.contains("PUBLISH"));
                assert_eq!(again.count(), received.len() - 1, "only what is under way");
                is_balanced(&world);
            }
        }
    }
}
