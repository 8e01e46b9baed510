//! What sessions leave to their groups when they end, over kills.

use std::time::Duration;

use unbroken_broker_core::{DropReason, Shard};
use unbroken_mqtt_proto::{Packet, PacketId, Properties, QoS, TopicFilters, Unsubscribe};
use unbroken_persist::log_of;
use unbroken_store::{Kv, Sequence, Space, Store, hand_over};

use crate::shard_bus::{join, publish, stay, subscribe};
use crate::{QOS1, QOS2, World};

/// Groups of several shards, whose members are sessions of several shards.
const GROUPS: [&str; 4] = ["g", "h", "i", "j"];
/// More messages between shards than are sent about one message.
const MESSAGES: usize = 6;
/// More than two shards that have begun send each other first.
const MESSAGES_OF_A_START: usize = 20;

/// A session that is away, and that its group has given a message.
fn given(group: &str, qos: QoS) -> World {
    let mut world = World::new(3);
    let client = world.resident("s", &[(&format!("$share/{group}/t"), qos)]);
    world.broker.cut(client);
    world.settle();
    let publisher = join(&mut world.broker, "p");
    world.broker.send(publisher, publish("t", "x", qos, 1));
    world.settle();
    world
}

/// What the members get that are still there, when all come back.
fn came(world: &mut World, members: &[&str]) -> Vec<String> {
    let mut came = Vec::new();
    for member in members {
        let (_, received) = world.back(member);
        let received = received.into_iter();
        came.extend(received.filter(|packet| packet.starts_with("PUBLISH")));
    }
    came
}

fn noted(world: &World) -> usize {
    let store = &world.kept.store;
    let noted = store.scan(Space::Control, hand_over::PREFIX, None, usize::MAX);
    noted.unwrap().pairs.len()
}

fn named(world: &World, reason: DropReason) -> u64 {
    let shards = world.broker.shards.iter();
    shards
        .map(|shard| shard.stats().dropped[reason as usize])
        .sum()
}

#[test]
fn what_a_session_leaves_to_its_group_is_anothers_whenever_the_broker_is_killed() {
    for (group, qos) in GROUPS
        .into_iter()
        .flat_map(|group| [(group, QOS1), (group, QOS2)])
    {
        for (restarts, carried) in [0, 1]
            .into_iter()
            .flat_map(|n| (0..MESSAGES).map(move |l| (n, l)))
        {
            let mut world = given(group, qos);
            for _ in 0..restarts {
                world.restart();
            }
            let members = ["o", "r", "u"];
            for member in members {
                world.resident(member, &[(&format!("$share/{group}/t"), qos)]);
            }
            world.settle();
            world.broker.hold_messages = true;
            let again = stay(&mut world.broker, "s", true);
            for _ in 0..carried {
                world.broker.deliver_message();
            }
            world.broker.stored();
            assert_eq!(world.broker.take(again), ["CONNACK 0 00"]);
            world.restart();
            let came = came(&mut world, &members);
            let context = format!("{group} {qos:?}, {restarts} restarts, {carried} messages");
            assert_eq!(came.len(), 1, "{context}: {came:?}");
            assert_eq!(noted(&world), 0, "{context}");
            assert_eq!(named(&world, DropReason::SessionEnded), 0, "{context}");
        }
    }
}

#[test]
fn what_is_handed_over_is_noted_until_another_has_it_over_any_number_of_kills() {
    for group in GROUPS {
        let mut world = given(group, QOS2);
        world.resident("o", &[(&format!("$share/{group}/t"), QOS2)]);
        world.settle();
        world.broker.hold_messages = true;
        stay(&mut world.broker, "s", true);
        world.broker.stored();
        let first = noted(&world);
        for _ in 0..3 {
            // The shards have heard nothing of each other yet.
            world.restart_quietly(3);
            assert_eq!(noted(&world), first, "{group}");
        }
        world.restart();
        assert_eq!(noted(&world), 0, "{group}");
        // What is handed over now is not taken for what was.
        assert_eq!(came(&mut world, &["o"]).len(), 1, "{group}");
    }
}

#[test]
fn what_no_member_is_left_for_is_named_after_the_restart() {
    for group in GROUPS {
        let mut world = given(group, QOS1);
        world.broker.hold_messages = true;
        stay(&mut world.broker, "s", true);
        world.broker.stored();
        let before = named(&world, DropReason::SessionEnded);
        world.restart();
        // Where the session and its group are on one shard it was named before.
        let after = named(&world, DropReason::SessionEnded);
        assert_eq!(before + after, 1, "{group}");
        assert_eq!(noted(&world), 0, "{group}");
    }
}

#[test]
fn what_groups_gave_to_a_session_that_is_removed_without_a_broker_is_anothers_when_one_begins() {
    for (group, shards) in GROUPS
        .into_iter()
        .flat_map(|group| [(group, 3), (group, 1)])
    {
        let mut world = given(group, QOS1);
        world.resident("o", &[(&format!("$share/{group}/t"), QOS1)]);
        world.settle();
        let batch = hand_over::end_session(&*world.kept.store, "s").unwrap();
        world.kept.store.commit(&[batch]).unwrap();
        world.restart_with(shards);
        assert_eq!(
            came(&mut world, &["o"]),
            ["PUBLISH t \"x\" q1 #1"],
            "{group}"
        );
        assert_eq!(noted(&world), 0, "{group}");
    }
}

#[test]
fn what_is_sent_at_qos_2_is_no_others() {
    for group in GROUPS {
        let mut world = given(group, QOS2);
        let (client, received) = world.back("s");
        assert_eq!(received[1..], ["PUBLISH t \"x\" q2 #1"]);
        world.broker.cut(client);
        world.settle();
        world.resident("o", &[(&format!("$share/{group}/t"), QOS2)]);
        let batch = hand_over::end_session(&*world.kept.store, "s").unwrap();
        world.kept.store.commit(&[batch]).unwrap();
        world.restart();
        assert_eq!(came(&mut world, &["o"]), Vec::<String>::new(), "{group}");
    }
}

/// Its publisher's shard still notes it as owed.
#[test]
fn a_message_of_qos_2_that_was_dropped_by_name_is_not_given_at_a_restart() {
    let mut dropped = 0;
    for (group, publisher) in GROUPS
        .into_iter()
        .flat_map(|g| ["p", "q", "r", "v"].map(|p| (g, p)))
    {
        for carried in 1..2 * MESSAGES {
            let filter = format!("$share/{group}/t");
            let mut world = World::new(3);
            let client = world.resident("s", &[(&filter, QOS2)]);
            let from = world.resident(publisher, &[]);
            let late = world.resident("o", &[]);
            world.settle();
            world.broker.hold_messages = true;
            world.broker.send(from, publish("t", "x", QOS2, 1));
            let filters = [&*filter];
            let packet = Unsubscribe {
                packet_id: PacketId::FIRST,
                properties: Properties::EMPTY,
                filters: TopicFilters::new(&filters),
            };
            world.broker.send(client, Packet::Unsubscribe(packet));
            for _ in 0..carried {
                world.broker.deliver_message();
            }
            let was_named = named(&world, DropReason::SessionEnded);
            dropped += was_named;
            subscribe(&mut world.broker, late, &filter, QOS2);
            world.broker.stored();
            world.restart();
            if was_named == 1 {
                let came = came(&mut world, &["o"]);
                assert_eq!(came, Vec::<String>::new(), "{group} {publisher} {carried}");
            }
        }
    }
    assert!(dropped > 0, "none was dropped");
}

/// Lets go of what no shard needs.
fn trim(world: &World) {
    let needed: Vec<_> = world.broker.shards.iter().map(Shard::needed).collect();
    for (log, _) in needed[0].iter() {
        let lowest = needed.iter().map(|needed| needed.of(log)).min();
        let below = Sequence(lowest.unwrap()).next();
        world.kept.store.trim(log_of(log), below).unwrap();
    }
}

#[test]
fn what_passes_through_a_session_that_ends_with_its_connection_is_still_in_the_log() {
    for group in GROUPS {
        let filter = format!("$share/{group}/t");
        let mut world = given(group, QOS1);
        let passing = join(&mut world.broker, "passing");
        subscribe(&mut world.broker, passing, &filter, QOS1);
        world.settle();
        // The session ends, and the other gets its message, and does not acknowledge it.
        stay(&mut world.broker, "s", true);
        world.settle();
        assert_eq!(world.broker.take_payloads(passing), [b"x"], "{group}");
        world.resident("s2", &[(&filter, QOS1)]);
        trim(&world);
        world.broker.cut(passing);
        world.settle();
        world.restart();
        assert_eq!(came(&mut world, &["s2"]).len(), 1, "{group}");
    }
}

#[test]
fn what_is_on_its_way_to_another_member_is_still_in_the_log_however_long_it_takes() {
    for (group, restarts) in GROUPS
        .into_iter()
        .flat_map(|group| [(group, 0), (group, 1)])
    {
        for carried in 0..MESSAGES + restarts * MESSAGES_OF_A_START {
            let mut world = given(group, QOS1);
            world.resident("o", &[(&format!("$share/{group}/t"), QOS1)]);
            world.settle();
            world.broker.hold_messages = true;
            stay(&mut world.broker, "s", true);
            for _ in 0..restarts {
                world.broker.stored();
                world.restart_quietly(2);
                world.broker.hold_messages = true;
                world.broker.advance(Duration::ZERO);
            }
            for _ in 0..carried {
                world.broker.deliver_message();
            }
            world.broker.stored();
            trim(&world);
            world.restart();
            let came = came(&mut world, &["o"]);
            let context = format!("{group}, {restarts} restarts, {carried} messages");
            assert_eq!(came.len(), 1, "{context}: {came:?}");
        }
    }
}
