//! What waits for too long, or is too much.

mod sessions;
mod store;

use std::time::Duration;

use unbroken_broker_core::{DropReason, Forget, Limits, LogId, StoreFull};
use unbroken_mqtt_proto::{
    Connect, Packet, Property, PropertyBuf, QoS, SubscriptionOptions, Version,
};
use unbroken_persist::log_of;
use unbroken_store::{Kv, Log, Sequence, Space, Store};

use crate::shard_bus::{Client, connect, join, publish, retained, send_subscribe, stay, subscribe};
use crate::{QOS1, QOS2, World, ack};

const LOG: LogId = LogId(0);

fn with_limits(shards: u8, set: impl FnOnce(&mut Limits)) -> World {
    let mut world = World::new(shards);
    let mut limits = Limits::default();
    set(&mut limits);
    world.broker.reconfigure(limits);
    world
}

/// Lets seconds pass, one by one, on a disk that answers.
pub(crate) fn pass(world: &mut World, seconds: u64) {
    for _ in 0..seconds {
        world.broker.advance(Duration::from_secs(1));
        world.broker.stored();
    }
}

pub(crate) fn publish_all(
    world: &mut World,
    publisher: Client,
    topic: &str,
    payloads: std::ops::Range<u16>,
) {
    for id in payloads {
        let payload = id.to_string();
        let packet = publish(topic, &payload, QOS1, id);
        world.broker.send(publisher, packet);
        world.broker.stored();
    }
    world.broker.take(publisher);
}

pub(crate) fn dropped(world: &World, reason: DropReason) -> u64 {
    let shards = world.broker.shards.iter();
    shards
        .map(|shard| shard.stats().dropped[reason as usize])
        .sum()
}

pub(crate) fn is_balanced(world: &World) {
    for shard in &world.broker.shards {
        assert_eq!(shard.audit_imbalance(), 0);
        assert_eq!(shard.stats().audit.faults(), 0);
    }
}

/// The payloads that a session is sent when it comes back.
pub(crate) fn payloads(world: &mut World, client_id: &str) -> Vec<String> {
    let (_, received) = world.back(client_id);
    let published = received
        .iter()
        .filter_map(|packet| packet.split('"').nth(1));
    published.map(str::to_owned).collect()
}

#[test]
fn what_has_waited_for_too_long_is_dropped_by_name_while_its_session_sleeps() {
    for restarts in [false, true] {
        let mut world = with_limits(1, |limits| limits.queue_age_max_s = 40);
        let away = world.resident("s", &[("t", QOS1)]);
        world.broker.cut(away);
        let publisher = join(&mut world.broker, "p");
        publish_all(&mut world, publisher, "t", 1..4);
        pass(&mut world, 30);
        publish_all(&mut world, publisher, "t", 4..6);
        if restarts {
            world.restart();
            world.broker.reconfigure({
                let mut limits = Limits::default();
                limits.queue_age_max_s = 40;
                limits
            });
        }
        pass(&mut world, 25);
        assert_eq!(dropped(&world, DropReason::TooOld), 3, "{restarts}");
        assert_eq!(world.broker.shards[0].needed().of(LOG), 3);
        assert_eq!(payloads(&mut world, "s"), ["4", "5"]);
        is_balanced(&world);
    }
}

#[test]
fn what_waits_in_memory_for_a_slow_client_ages_too() {
    let mut world = with_limits(1, |limits| {
        limits.queue_age_max_s = 40;
        limits.inflight_max = 1;
    });
    let slow = world.resident("s", &[("t", QOS1)]);
    let publisher = join(&mut world.broker, "p");
    publish_all(&mut world, publisher, "t", 1..4);
    assert_eq!(world.broker.take(slow), ["PUBLISH t \"1\" q1 #1"]);
    pass(&mut world, 60);
    assert_eq!(dropped(&world, DropReason::TooOld), 2);
    // What it was sent over this connection is its own.
    world.broker.send(slow, Packet::PubAck(ack(1)));
    assert_eq!(world.broker.take(slow), [""; 0]);
    is_balanced(&world);
}

#[test]
fn what_a_dead_device_was_sent_does_not_hold_on_to_the_log() {
    let mut world = with_limits(1, |limits| limits.queue_age_max_s = 40);
    let dead = world.resident("s", &[("t/1", QOS1), ("t/2", QOS2)]);
    let publisher = join(&mut world.broker, "p");
    world.broker.send(publisher, publish("t/1", "1", QOS1, 1));
    world.broker.send(publisher, publish("t/2", "2", QOS2, 2));
    world.broker.stored();
    world.broker.stored();
    assert_eq!(world.broker.take(dead).len(), 2);
    world.broker.cut(dead);
    world.settle();
    assert_eq!(world.broker.shards[0].needed().of(LOG), 0);
    pass(&mut world, 60);
    assert_eq!(world.broker.shards[0].needed().of(LOG), 2);
    assert_eq!(dropped(&world, DropReason::TooOld), 2);
    is_balanced(&world);
    world.restart();
    assert_eq!(payloads(&mut world, "s"), [""; 0]);
}

#[test]
fn what_may_stay_does_not_hide_what_was_sent_behind_it_to_a_dead_device() {
    let mut world = with_limits(1, |limits| limits.queue_age_max_s = 40);
    let dead = world.resident("s", &[("t", QOS2)]);
    let publisher = join(&mut world.broker, "p");
    for id in [1, 2] {
        world.broker.send(publisher, publish("t", "x", QOS2, id));
        world.settle();
    }
    world.broker.send(dead, Packet::PubRec(ack(1)));
    world.settle();
    world.broker.cut(dead);
    pass(&mut world, 60);
    assert_eq!(dropped(&world, DropReason::TooOld), 1);
    assert_eq!(world.broker.shards[0].needed().of(LOG), 2);
    let (_, received) = world.back("s");
    assert_eq!(received, ["CONNACK 1 00", "PUBREL #1 00", "PUBREL #2 00"]);
    is_balanced(&world);
}

// The client has it, though its PUBREC was lost: what comes with the same id is a repetition to it.
#[test]
fn the_id_of_a_message_that_was_let_go_is_not_given_to_another_before_its_client_has_let_go_of_it()
{
    for restarts in [false, true] {
        let mut world = with_limits(1, |limits| limits.queue_age_max_s = 40);
        let away = world.resident("s", &[("t", QOS2)]);
        let publisher = join(&mut world.broker, "p");
        world.broker.send(publisher, publish("t", "1", QOS2, 1));
        world.settle();
        assert_eq!(world.broker.take(away), ["PUBLISH t \"1\" q2 #1"]);
        world.broker.cut(away);
        pass(&mut world, 60);
        assert_eq!(dropped(&world, DropReason::TooOld), 1);
        assert_eq!(world.broker.shards[0].needed().of(LOG), 1);
        world.settle();
        if restarts {
            world.restart();
        }
        let publisher = join(&mut world.broker, "q");
        world.broker.send(publisher, publish("t", "2", QOS2, 1));
        world.settle();
        let (back, received) = world.back("s");
        let expected = ["CONNACK 1 00", "PUBREL #1 00", "PUBLISH t \"2\" q2 #2"];
        assert_eq!(received, expected, "{restarts}");
        world.broker.send(back, Packet::PubComp(ack(1)));
        world.settle();
        is_balanced(&world);
    }
}

// [MQTT-3.1.2-25]
#[test]
fn the_id_of_a_message_that_is_too_large_by_now_stays_until_its_client_has_let_go_of_it() {
    for restarts in [false, true] {
        let mut world = World::new(1);
        let away = world.resident("s", &[("t", QOS2)]);
        let publisher = join(&mut world.broker, "p");
        let long = "1".repeat(100);
        world.broker.send(publisher, publish("t", &long, QOS2, 1));
        world.settle();
        assert_eq!(world.broker.take(away).len(), 1);
        // The client has it; its PUBREC is lost. It comes back and takes less.
        world.broker.cut(away);
        let away = back_for_less(&mut world, "s", 60);
        let received = world.broker.take(away);
        assert_eq!(received, ["CONNACK 1 00"], "before that is stored");
        world.broker.stored();
        assert_eq!(world.broker.take(away), ["PUBREL #1 00"]);
        assert_eq!(dropped(&world, DropReason::TooLargeForReceiver), 1);
        // So is its PUBCOMP.
        world.broker.cut(away);
        world.settle();
        if restarts {
            world.restart();
        }
        assert_eq!(world.broker.shards[0].needed().of(LOG), 1);
        let publisher = join(&mut world.broker, "q");
        world.broker.send(publisher, publish("t", "2", QOS2, 1));
        world.settle();
        let back = back_for_less(&mut world, "s", 60);
        world.settle();
        let expected = ["CONNACK 1 00", "PUBREL #1 00", "PUBLISH t \"2\" q2 #2"];
        assert_eq!(world.broker.take(back), expected, "{restarts}");
        world.broker.send(back, Packet::PubComp(ack(1)));
        world.settle();
        is_balanced(&world);
    }
}

// Nobody takes what comes with its id for a repetition: there is nothing to let go of.
#[test]
fn a_message_of_qos_1_that_is_too_large_by_now_is_done_with() {
    let mut world = World::new(1);
    let away = world.resident("s", &[("t", QOS1)]);
    let publisher = join(&mut world.broker, "p");
    let long = "1".repeat(100);
    world.broker.send(publisher, publish("t", &long, QOS1, 1));
    world.broker.send(publisher, publish("t", "2", QOS1, 2));
    world.settle();
    assert_eq!(world.broker.take(away).len(), 2);
    world.broker.cut(away);
    let away = back_for_less(&mut world, "s", 60);
    world.settle();
    let expected = ["CONNACK 1 00", "PUBLISH t \"2\" q1 #2 dup"];
    assert_eq!(world.broker.take(away), expected);
    assert_eq!(dropped(&world, DropReason::TooLargeForReceiver), 1);
    is_balanced(&world);
}

/// Comes back, and takes packets of so many bytes.
fn back_for_less(world: &mut World, client_id: &str, packet_bytes_max: u32) -> Client {
    let mut properties = PropertyBuf::new();
    for property in [
        Property::SessionExpiryInterval(100),
        Property::MaximumPacketSize(packet_bytes_max),
    ] {
        properties.push(property).unwrap();
    }
    let client = world.broker.open(Version::V5);
    let packet = Connect {
        clean_start: false,
        properties: properties.as_properties(),
        ..connect(client_id)
    };
    world.broker.send(client, Packet::Connect(packet));
    client
}

#[test]
fn what_may_stay_does_not_hide_what_waits_behind_it_in_memory() {
    let mut world = with_limits(1, |limits| {
        limits.queue_age_max_s = 40;
        limits.inflight_max = 1;
    });
    let slow = world.resident("s", &[]);
    let options = SubscriptionOptions {
        qos: QOS1,
        retain_as_published: true,
        ..SubscriptionOptions::default()
    };
    send_subscribe(&mut world.broker, slow, &[("t", options)]);
    world.broker.stored();
    let publisher = join(&mut world.broker, "p");
    for packet in [
        publish("t", "1", QOS1, 1),
        retained("t", "2", QOS1, 2),
        publish("t", "3", QOS1, 3),
    ] {
        world.broker.send(publisher, packet);
        world.broker.stored();
    }
    world.broker.take(slow);
    pass(&mut world, 60);
    assert_eq!(dropped(&world, DropReason::TooOld), 1);
    world.broker.send(slow, Packet::PubAck(ack(1)));
    world.broker.send(slow, Packet::PubAck(ack(2)));
    assert_eq!(world.broker.take(slow), ["PUBLISH t \"2\" q1 #2 retain"]);
    is_balanced(&world);
}

#[test]
fn what_is_too_much_for_a_session_does_not_hold_on_to_the_log() {
    let mut world = with_limits(1, |limits| limits.queue_messages_max = 3);
    let away = world.resident("s", &[("t", QOS1)]);
    world.broker.cut(away);
    let publisher = join(&mut world.broker, "p");
    publish_all(&mut world, publisher, "t", 1..21);
    pass(&mut world, 11);
    assert_eq!(world.broker.shards[0].needed().of(LOG), 17);
    assert_eq!(dropped(&world, DropReason::QueueFull), 17);
    assert_eq!(payloads(&mut world, "s"), ["18", "19", "20"]);
    is_balanced(&world);
}

#[test]
fn bytes_count_as_they_come_and_as_they_go_whatever_their_sizes_are() {
    // Messages, and bytes of each with its topic.
    let (few_large, many_large, many_small) = ((10, 100), (20, 100), (50, 10));
    for (earlier, later, expected) in [
        (few_large, many_small, (55, 1_000)),
        (many_small, many_large, (10, 1_000)),
        ((1, 100), (1, 5_000), (1, 5_000)),
    ] {
        for restarts in [false, true] {
            let mut limits = Limits::default();
            limits.queue_bytes_max = 1_000;
            let mut world = World::new(1);
            world.broker.reconfigure(limits.clone());
            let away = world.resident("s", &[("t", QOS1)]);
            world.broker.cut(away);
            let publisher = join(&mut world.broker, "p");
            for (count, bytes) in [earlier, later] {
                for id in 1..=count {
                    let payload = "x".repeat(bytes - 1);
                    let packet = publish("t", &payload, QOS1, id);
                    world.broker.send(publisher, packet);
                    world.broker.stored();
                }
            }
            if restarts {
                world.restart();
                world.broker.reconfigure(limits);
            }
            pass(&mut world, 11);
            let sleepers: Vec<_> = world.broker.shards[0].sleeping(world.broker.now).collect();
            assert_eq!((sleepers[0].messages, sleepers[0].bytes), expected);
            let gone = u64::from(earlier.0 + later.0) - expected.0;
            assert_eq!(dropped(&world, DropReason::QueueFull), gone);
            let received = payloads(&mut world, "s");
            let bytes: usize = received.iter().map(|payload| payload.len() + 1).sum();
            assert_eq!((received.len() as u64, bytes as u64), expected);
            is_balanced(&world);
        }
    }
}
