//! What waits for too long, or is too much.

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

#[test]
fn a_full_store_lets_go_of_the_oldest_and_names_it() {
    for shards in [1, 3] {
        let mut world = with_limits(shards, |limits| limits.store_bytes_max = 1_000);
        for client_id in ["a", "b"] {
            let away = world.resident(client_id, &[("t", QOS1)]);
            world.broker.cut(away);
        }
        let publisher = join(&mut world.broker, "p");
        publish_all(&mut world, publisher, "t", 1..17);
        world.broker.store_size(999);
        assert_eq!(dropped(&world, DropReason::StoreFull), 0);
        world.broker.store_size(1_000);
        world.broker.stored();
        assert_eq!(dropped(&world, DropReason::StoreFull), 4, "2 of 16, twice");
        world.broker.store_size(1_000);
        world.broker.stored();
        assert_eq!(dropped(&world, DropReason::StoreFull), 8);
        let expected: Vec<_> = (5..17).map(|id| id.to_string()).collect();
        for client_id in ["a", "b"] {
            assert_eq!(payloads(&mut world, client_id), expected, "{shards}");
        }
        is_balanced(&world);
    }
}

/// As after damage: a log then goes on far behind all numbers that may have been given.
#[test]
fn of_a_full_store_an_eighth_of_the_messages_goes_however_many_numbers_are_left_out() {
    for (before, let_go) in [(16, 4), (2, 4), (32, 4), (0, 4), (15, 4)] {
        let mut world = with_limits(1, |_| {});
        let away = world.resident("s", &[("t", QOS1)]);
        world.broker.cut(away);
        let publisher = join(&mut world.broker, "p");
        publish_all(&mut world, publisher, "t", 1..1 + before);
        world.settle();
        let log = log_of(LOG);
        let next = world.kept.store.bounds(log).unwrap().next.0;
        let goes_on = Sequence(next + (1 << 32));
        world.kept.store.go_on_at(log, goes_on).unwrap();
        world.restart();
        let mut limits = Limits::default();
        limits.store_bytes_max = 1_000;
        world.broker.reconfigure(limits);
        let publisher = join(&mut world.broker, "p");
        publish_all(&mut world, publisher, "t", 1 + before..33);
        for times in 1..3 {
            world.broker.store_size(1_000);
            world.broker.stored();
            let dropped = dropped(&world, DropReason::StoreFull);
            assert_eq!(dropped, times * let_go, "{before} before");
        }
        let expected: Vec<_> = (9..33).map(|id| id.to_string()).collect();
        assert_eq!(payloads(&mut world, "s"), expected, "{before} before");
    }
}

#[test]
fn a_disk_without_room_is_a_limit_of_the_store() {
    let mut world = with_limits(1, |limits| limits.store_bytes_max = 1_000);
    let away = world.resident("s", &[("t", QOS1)]);
    world.broker.cut(away);
    let publisher = join(&mut world.broker, "p");
    publish_all(&mut world, publisher, "t", 1..9);
    // 400 bytes are kept; how much of it stays on the disk, and what that has room for.
    for (staying, room, let_go) in [(399, 401, 0), (400, 400, 0), (399, 400, 1), (0, 2_000, 1)] {
        world.broker.store_size_with(400, [0, staying], room);
        world.broker.stored();
        assert_eq!(dropped(&world, DropReason::StoreFull), let_go);
    }
    world.broker.store_size_with(400, [0, 400], 400);
    world.broker.send(publisher, publish("t", "x", QOS1, 17));
    world.broker.stored();
    assert_eq!(world.broker.take(publisher), ["PUBACK #17 97"]);
    world.broker.store_size_with(400, [0, 400], 1_000);
    publish_all(&mut world, publisher, "t", 18..19);
    is_balanced(&world);
}

#[test]
fn nothing_is_let_go_where_values_alone_fill_the_store() {
    let mut world = with_limits(1, |limits| limits.store_bytes_max = 1_000);
    let away = world.resident("s", &[("t", QOS1)]);
    world.broker.cut(away);
    let publisher = join(&mut world.broker, "p");
    publish_all(&mut world, publisher, "t", 1..17);
    world
        .broker
        .store_size_with(2_000, [1_000, 1_000], u64::MAX);
    world.broker.stored();
    assert_eq!(dropped(&world, DropReason::StoreFull), 0);
    world.broker.send(publisher, publish("t", "x", QOS1, 17));
    world.broker.stored();
    assert_eq!(world.broker.take(publisher), ["PUBACK #17 97"]);
    world.broker.store_size_with(1_000, [999, 999], u64::MAX);
    world.broker.stored();
    assert_eq!(dropped(&world, DropReason::StoreFull), 1 + 2);
    let expected: Vec<_> = (3..17).map(|id| id.to_string()).collect();
    assert_eq!(payloads(&mut world, "s"), expected);
    is_balanced(&world);
}

// What another shard retains lies with the id on disk until it is released.
#[test]
fn a_client_that_releases_nothing_has_no_more_on_disk_than_may_wait_for_it() {
    for has_reasons in [true, false] {
        let mut world = with_limits(3, |limits| limits.queue_bytes_max = 1_000);
        let mut refused = 0;
        for shard in &[0, 1, 2] {
            let shards = &world.broker.shards;
            let mut names = (0..).map(|n| format!("p{n}"));
            let name = names.find(|name| shards[*shard].is_home_of(name)).unwrap();
            let client = if has_reasons {
                world.resident(&name, &[])
            } else {
                world.older(&name)
            };
            let send = |world: &mut World, packet: Packet<'_>| {
                world.broker.send(client, packet);
                world.broker.stored();
                world.broker.stored();
                world.broker.take(client)
            };
            // One may always be.
            let large = "x".repeat(5_000);
            let answers = send(&mut world, retained("t", &large, QOS2, 9));
            assert!(answers[0].starts_with("PUBREC #9"), "{answers:?}");
            send(&mut world, Packet::PubRel(ack(9)));
            let text = "x".repeat(399);
            for id in [1, 2] {
                let answers = send(&mut world, retained("t", &text, QOS2, id));
                assert!(answers[0].starts_with("PUBREC"), "{answers:?}");
            }
            let answers = send(&mut world, retained("t", &text, QOS2, 3));
            if answers == ["PUBREC #3 97"] {
                refused += 1;
                send(&mut world, Packet::PubRel(ack(1)));
                let answers = send(&mut world, retained("t", &text, QOS2, 3));
                assert_eq!(answers, ["PUBREC #3 10"]);
            } else if !world.broker.is_open(client) {
                assert_eq!((answers.len(), has_reasons), (0, false));
                refused += 1;
            } else {
                assert!(answers[0].starts_with("PUBREC #3"), "{answers:?}");
            }
        }
        assert_eq!(refused, 2, "one shard keeps the topic itself");
        assert_eq!(dropped(&world, DropReason::QueueFull), 2);
    }
}

#[test]
fn a_client_that_does_not_acknowledge_does_not_hold_on_to_a_full_store() {
    for shards in [1, 3] {
        let mut world = with_limits(shards, |limits| limits.store_bytes_max = 1_000);
        let hung = world.resident("hung", &[("t", QOS1)]);
        let late = world.resident("late", &[("t", QOS1)]);
        let back = world.resident("back", &[("t", QOS1)]);
        let away = world.resident("away", &[("t", QOS1)]);
        world.broker.cut(away);
        let publisher = join(&mut world.broker, "p");
        publish_all(&mut world, publisher, "t", 1..17);
        world.broker.store_size(1_000);
        world.broker.stored();
        assert_eq!(dropped(&world, DropReason::StoreFull), 2, "of who is away");
        let take_two = |world: &mut World, client| {
            for id in [1, 2] {
                world.broker.send(client, Packet::PubAck(ack(id)));
            }
            world.broker.stored();
        };
        take_two(&mut world, late);
        // It could come back all the time, and acknowledge nothing.
        world.broker.cut(back);
        assert_eq!(dropped(&world, DropReason::StoreFull), 4);
        let (back, _) = world.back("back");
        world.broker.take(hung);
        // What was let go the last time is still under way to one.
        world.broker.store_size(1_000);
        world.broker.stored();
        assert_eq!(world.broker.take(hung), ["DISCONNECT 97"], "{shards}");
        assert!(!world.broker.is_open(hung) && world.broker.is_open(late));
        assert!(world.broker.is_open(back), "it has just come");
        assert_eq!(dropped(&world, DropReason::StoreFull), 6);
        let needed = world.broker.shards.iter().map(|shard| {
            let logs = shard.needed();
            logs.iter().map(|(_, number)| number).sum::<u64>()
        });
        assert_eq!(needed.min(), Some(2));
        world.settle();
        let expected: Vec<_> = (3..17).map(|id| id.to_string()).collect();
        for client_id in ["hung", "away"] {
            assert_eq!(payloads(&mut world, client_id), expected, "{client_id}");
        }
        is_balanced(&world);
    }
}

#[test]
fn a_full_store_refuses_what_it_would_have_to_keep_if_that_is_the_answer() {
    for shards in [1, 3] {
        let mut world = with_limits(shards, |limits| {
            limits.store_bytes_max = 1_000;
            limits.store_full = StoreFull::Refuse;
        });
        world.resident("s", &[("t/#", QOS1)]);
        let publisher = join(&mut world.broker, "p");
        world.broker.store_size(1_000);
        for (packet, answer) in [
            (publish("t/1", "x", QOS1, 1), &["PUBACK #1 97"][..]),
            (publish("t/1", "x", QOS2, 2), &["PUBREC #2 97"]),
            (publish("t/1", "x", QoS::AtMostOnce, 0), &[]),
            (publish("u", "x", QOS1, 3), &["PUBACK #3 10"]),
            (retained("u", "x", QOS1, 4), &["PUBACK #4 97"]),
            (retained("u", "x", QoS::AtMostOnce, 0), &[]),
            (retained("u", "", QOS1, 5), &["PUBACK #5 10"]),
        ] {
            world.broker.send(publisher, packet);
            world.broker.stored();
            assert_eq!(world.broker.take(publisher), answer, "{shards}");
        }
        assert_eq!(dropped(&world, DropReason::StoreFull), 4);
        let later = join(&mut world.broker, "later");
        subscribe(&mut world.broker, later, "u", QOS1);
        world.broker.stored();
        let received = world.broker.take(later);
        assert_eq!(received, ["SUBACK #1 [01]"], "nothing was retained");

        let older = world.broker.open(Version::V3_1_1);
        let packet = Connect {
            version: Version::V3_1_1,
            ..connect("older")
        };
        world.broker.send(older, Packet::Connect(packet));
        world.broker.send(older, publish("t/1", "x", QOS1, 1));
        world.broker.stored();
        assert_eq!(world.broker.take(older), ["CONNACK 0 00"]);
        assert!(!world.broker.is_open(older), "it sends it again");

        world.broker.store_size(999);
        world.broker.send(publisher, publish("t/1", "y", QOS1, 1));
        world.broker.stored();
        assert_eq!(world.broker.take(publisher), ["PUBACK #1 00"]);
        is_balanced(&world);
    }
}

#[test]
fn an_older_publisher_that_was_refused_sends_its_message_again_and_it_is_taken_in() {
    let mut world = with_limits(1, |limits| {
        limits.store_bytes_max = 1_000;
        limits.store_full = StoreFull::Refuse;
    });
    let away = world.resident("s", &[("t", QOS2)]);
    world.broker.cut(away);
    world.broker.store_size(1_000);
    let client = world.older("older");
    world.broker.send(client, publish("t", "x", QOS2, 7));
    assert!(!world.broker.is_open(client));
    world.broker.store_size(999);
    let client = world.older("older");
    world.broker.send(client, publish("t", "x", QOS2, 7));
    world.broker.stored();
    assert_eq!(world.broker.take(client), ["PUBREC #7 00"]);
    assert_eq!(payloads(&mut world, "s"), ["x"]);
}

#[test]
fn who_sleeps_and_what_waits_for_them_can_be_asked() {
    let mut world = World::new(1);
    let away = world.resident("s", &[("t", QOS1), ("u", QOS1)]);
    let publisher = join(&mut world.broker, "p");
    world.broker.send(publisher, publish("t", "sent", QOS1, 9));
    world.broker.stored();
    assert_eq!(world.broker.shards[0].sleeping(world.broker.now).count(), 0);
    world.broker.cut(away);
    pass(&mut world, 5);
    publish_all(&mut world, publisher, "t", 1..4);
    pass(&mut world, 5);
    for restarted in [false, true] {
        let sleeping: Vec<_> = world.broker.shards[0].sleeping(world.broker.now).collect();
        let [sleeper] = &sleeping[..] else {
            panic!("{sleeping:?}");
        };
        assert_eq!(&*sleeper.client_id, "s");
        assert_eq!((sleeper.expiry_s, sleeper.subscriptions), (100, 2));
        assert_eq!((sleeper.in_flight, sleeper.is_counted), (1, true));
        assert_eq!((sleeper.messages, sleeper.bytes), (3, 6));
        let passed = Duration::from_secs(10 + u64::from(restarted));
        assert_eq!(sleeper.oldest, Some(passed));
        let told_late = Duration::from_secs(u64::from(restarted));
        assert_eq!(sleeper.away + told_late, passed);
        assert_eq!(sleeper.through.as_ref().unwrap().of(LOG), 0);
        world.restart();
    }
}

/// The clients whose sessions sleep.
fn asleep(world: &World) -> Vec<String> {
    let shards = world.broker.shards.iter();
    let sleeping = shards.flat_map(|shard| shard.sleeping(world.broker.now));
    let mut names: Vec<_> = sleeping.map(|one| one.client_id.to_string()).collect();
    names.sort();
    names
}

fn staying_at_most(seconds: u32) -> Limits {
    let mut limits = Limits::default();
    limits.session_expiry_max_s = seconds;
    limits
}

#[test]
fn a_lower_limit_ends_sessions_that_sleep_and_those_that_will() {
    let mut world = World::new(1);
    let endless = world.older("endless");
    let away = world.resident("100 s", &[("t", QOS1)]);
    let here = world.resident("here", &[("t", QOS1)]);
    world.broker.cut(endless);
    world.broker.cut(away);
    pass(&mut world, 20);
    world.broker.reconfigure(staying_at_most(35));
    world.broker.cut(here);
    assert_eq!(asleep(&world), ["100 s", "endless", "here"]);
    pass(&mut world, 14);
    assert_eq!(asleep(&world), ["100 s", "endless", "here"]);
    pass(&mut world, 1);
    assert_eq!(asleep(&world), ["here"], "35 s");
    pass(&mut world, 20);
    assert_eq!(asleep(&world), [""; 0]);
    is_balanced(&world);
}

#[test]
fn sessions_that_are_over_by_a_lower_limit_have_a_moment_left_and_a_higher_one_saves_them() {
    for raised in [100, u32::MAX] {
        let mut world = World::new(1);
        for client_id in ["endless", "too"] {
            let away = world.older(client_id);
            world.broker.cut(away);
        }
        pass(&mut world, 50);
        world.broker.reconfigure(staying_at_most(35));
        pass(&mut world, 5);
        world.broker.reconfigure(staying_at_most(raised));
        pass(&mut world, 44);
        assert_eq!(asleep(&world), ["endless", "too"]);
        pass(&mut world, 1);
        assert_eq!(asleep(&world).is_empty(), raised == 100);
        world.broker.reconfigure(staying_at_most(0));
        pass(&mut world, 10);
        assert_eq!(asleep(&world), [""; 0]);
    }
}

#[test]
fn a_restart_with_a_lower_limit_ends_sessions_that_sleep() {
    for shards in [1, 3] {
        let mut world = World::new(shards);
        for (client_id, seconds) in [("a", 20), ("b", 0)] {
            let away = world.older(client_id);
            world.broker.cut(away);
            pass(&mut world, seconds);
        }
        world.settle();
        world.restart_limited(staying_at_most(35));
        pass(&mut world, 10);
        assert_eq!(asleep(&world), ["a", "b"], "{shards}");
        pass(&mut world, 10);
        assert_eq!(asleep(&world), ["b"], "{shards}");
        pass(&mut world, 20);
        assert_eq!(asleep(&world), [""; 0], "{shards}");
        world.restart();
        assert_eq!(asleep(&world), [""; 0], "{shards}");
    }
}

#[test]
fn more_sessions_than_a_lower_limit_allows_are_there_after_a_restart_and_others_are_refused() {
    for shards in [1, 3] {
        let mut world = World::new(shards);
        for client_id in ["a", "b", "c"] {
            let away = world.resident(client_id, &[("t", QOS1)]);
            world.broker.cut(away);
        }
        let mut limits = Limits::default();
        limits.sessions_max = 2;
        limits.subscriptions_max = 2;
        world.restart_limited(limits);
        world.settle();
        let connect_new = |world: &mut World| {
            let client = world.broker.open(Version::V5);
            world.broker.send(client, Packet::Connect(connect("new")));
            world.broker.take(client).concat()
        };
        assert_eq!(connect_new(&mut world), "CONNACK 0 97", "{shards}");
        let (a, received) = world.back("a");
        assert_eq!(received, ["CONNACK 1 00"]);
        subscribe(&mut world.broker, a, "u", QOS1);
        world.broker.stored();
        assert_eq!(world.broker.take(a), ["SUBACK #1 [97]"]);
        for client_id in ["b", "c"] {
            let clean = stay(&mut world.broker, client_id, true);
            world.broker.stored();
            let taken = world.broker.take(clean).concat();
            let expected = if client_id == "b" { "97" } else { "00" };
            assert_eq!(taken, format!("CONNACK 0 {expected}"), "{client_id}");
        }
        is_balanced(&world);
    }
}

#[test]
fn a_retained_message_that_the_limits_did_not_let_in_can_be_removed() {
    for shards in [1, 3] {
        let mut world = World::new(shards);
        let publisher = join(&mut world.broker, "p");
        for (id, topic) in (1..).zip(["a", "b", "c"]) {
            world.broker.send(publisher, retained(topic, "x", QOS1, id));
        }
        world.settle();
        let mut limits = Limits::default();
        limits.retained_messages_max = 0;
        world.restart_limited(limits);
        world.settle();
        for topic in ["a", "b", "c"] {
            let topic = topic.into();
            world.broker.forget(&Forget::Retained { topic });
        }
        world.settle();
        let kept = world.kept.store.scan(Space::Retained, &[], None, 1_000);
        assert!(kept.unwrap().pairs.is_empty(), "{shards} shards");
    }
}
