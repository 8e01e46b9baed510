//! A broker that is killed between two records, or again before it has told the disk how far it is.

use std::time::Duration;

use unbroken_broker_core::{DropReason, Limits};
use unbroken_mqtt_proto::{Connect, Packet, Property, PropertyBuf, Publish, QoS, Version};
use unbroken_store::session::{Part, key};
use unbroken_store::{Kv, Space};

use crate::shard_bus::{connect, join, publish, retained, stay, subscribe, unsubscribe};
use crate::{QOS1, QOS2, World, ack};

fn faults(world: &World) -> u64 {
    let shards = world.broker.shards.iter();
    shards.map(|shard| shard.stats().audit.faults()).sum()
}

#[test]
fn what_ended_after_a_restart_does_not_come_again_after_another() {
    let mut world = World::new(1);
    let client = world.resident("s", &[("t", QOS2)]);
    let publisher = join(&mut world.broker, "p");
    world.broker.send(publisher, publish("t", "x", QOS2, 1));
    world.broker.stored();
    world.broker.stored();
    world.broker.send(client, Packet::PubRec(ack(1)));
    world.broker.stored();
    world.restart();
    // A disk that does not answer: the log is not read before the end of the message is told.
    stay(&mut world.broker, "other", true);
    let client = stay(&mut world.broker, "s", false);
    assert_eq!(world.broker.take(client), ["CONNACK 1 00", "PUBREL #1 00"]);
    world.broker.send(client, Packet::PubComp(ack(1)));
    world.broker.advance(Duration::from_secs(1));
    world.broker.stored();
    for _ in 0..2 {
        world.restart();
        let (_, received) = world.back("s");
        assert_eq!(received, ["CONNACK 1 00"]);
    }
}

#[test]
fn a_subscription_that_is_replaced_is_there_as_it_was_or_as_it_is() {
    for stored in 0..=2 {
        let mut world = World::new(1);
        let client = world.resident("s", &[("t", QOS1)]);
        let publisher = join(&mut world.broker, "p");
        // So that something has come by the first.
        world.broker.send(publisher, publish("t", "x", QOS1, 1));
        world.settle();
        world.broker.send(client, Packet::PubAck(ack(1)));
        world.settle();
        subscribe(&mut world.broker, client, "t", QOS2);
        world.broker.stored_at_most(stored);
        world.restart();
        let publisher = join(&mut world.broker, "p");
        world.broker.send(publisher, publish("t", "y", QOS1, 1));
        world.broker.stored();
        let (_, received) = world.back("s");
        assert_eq!(received.len(), 2, "with {stored} records: {received:?}");
    }
}

/// What leaves at QoS 0 waits for no disk.
#[test]
fn what_came_at_qos_0_comes_again_by_a_subscription_that_was_more_if_the_disk_knows_no_better() {
    for (ends, stored) in [(false, false), (false, true), (true, false), (true, true)] {
        let mut world = World::new(3);
        let client = world.resident("s", &[("t", QOS2), ("+", QoS::AtMostOnce)]);
        let elsewhere = world.resident("q", &[]);
        world.settle();
        world.broker.hold_messages = true;
        world.broker.send(elsewhere, publish("t", "x", QOS2, 1));
        world.broker.stored();
        if ends {
            unsubscribe(&mut world.broker, client, "t");
        } else {
            subscribe(&mut world.broker, client, "t", QoS::AtMostOnce);
        }
        world.broker.deliver_messages();
        assert_eq!(world.broker.take(client), ["PUBLISH t \"x\" q0"]);
        if stored {
            world.broker.stored();
        }
        world.restart();
        let (_, received) = world.back("s");
        let again: &[&str] = if stored {
            &[]
        } else {
            &["PUBLISH t \"x\" q2 #1"]
        };
        assert_eq!(received[1..], *again, "ends: {ends}, stored: {stored}");
    }
}

#[test]
fn a_session_that_was_to_end_with_its_connection_is_not_there() {
    let mut world = World::new(1);
    let client = world.resident("s", &[("t", QOS1)]);
    world.broker.cut(client);
    world.settle();
    let client = world.broker.open(Version::V5);
    let mut packet = connect("s");
    packet.clean_start = false;
    world.broker.send(client, Packet::Connect(packet));
    world.broker.stored();
    assert_eq!(world.broker.take(client), ["CONNACK 1 00"]);
    world.restart();
    let (_, received) = world.back("s");
    assert_eq!(received, ["CONNACK 0 00"]);
}

#[test]
fn what_waits_is_accounted_for_behind_what_was_sent() {
    let mut world = World::new(1);
    let client = world.resident("s", &[("$share/g/t", QOS1), ("u", QOS2)]);
    world.broker.cut(client);
    world.settle();
    let publisher = join(&mut world.broker, "p");
    world.broker.send(publisher, publish("t", "x", QOS1, 1));
    world.broker.stored();
    let (client, received) = world.back("s");
    assert_eq!(received[1..], ["PUBLISH t \"x\" q1 #1"]);
    // The disk is told of the first id late, and of the second at once.
    world.broker.send(publisher, publish("u", "y", QOS2, 2));
    world.broker.stored();
    world.broker.stored();
    assert_eq!(world.broker.take(client), ["PUBLISH u \"y\" q2 #2"]);
    world.restart();
    let (_, received) = world.back("s");
    let expected = ["PUBLISH u \"y\" q2 #2 dup", "PUBLISH t \"x\" q1 #3"];
    assert_eq!(received[1..], expected);
    assert_eq!(faults(&world), 0);
}

#[test]
fn what_a_group_gave_and_was_acknowledged_at_once_does_not_come_again() {
    let mut world = World::new(1);
    let client = world.resident("s", &[("$share/g/t", QOS1)]);
    world.broker.cut(client);
    world.settle();
    let publisher = join(&mut world.broker, "p");
    world.broker.send(publisher, publish("t", "x", QOS1, 1));
    world.broker.stored();
    let (client, received) = world.back("s");
    assert_eq!(received[1..], ["PUBLISH t \"x\" q1 #1"]);
    // Before the disk is told of its id.
    world.broker.send(client, Packet::PubAck(ack(1)));
    world.settle();
    world.restart();
    let (_, received) = world.back("s");
    assert_eq!(received, ["CONNACK 1 00"]);
}

#[test]
fn what_a_group_gave_to_a_session_that_ends_goes_to_another_member_also_after_a_restart() {
    for (shards, restarts) in [(1, 0), (1, 1), (3, 0), (3, 1), (3, 2)] {
        let mut world = World::new(shards);
        let client = world.resident("s", &[("$share/g/t", QOS1)]);
        world.broker.cut(client);
        world.settle();
        let publisher = join(&mut world.broker, "p");
        world.broker.send(publisher, publish("t", "x", QOS1, 1));
        world.settle();
        for _ in 0..restarts {
            world.restart();
        }
        let other = world.resident("o", &[("$share/g/t", QOS1)]);
        world.broker.advance(Duration::from_secs(100));
        world.broker.stored();
        world.broker.advance(Duration::from_secs(1));
        world.broker.stored();
        let handed_on = world.broker.take_payloads(other);
        assert_eq!(handed_on, [b"x"], "{shards} shards, {restarts} restarts");
        let ended = DropReason::SessionEnded as usize;
        let dropped = world
            .broker
            .shards
            .iter()
            .map(|shard| shard.stats().dropped[ended]);
        assert_eq!(dropped.sum::<u64>(), 0);
    }
}

#[test]
fn what_a_group_gave_to_a_client_that_is_here_is_on_disk_when_its_publisher_hears() {
    let mut world = World::new(1);
    world.resident("s", &[("$share/g/t", QOS1)]);
    world.settle();
    let publisher = join(&mut world.broker, "p");
    world.broker.take(publisher);
    world.broker.send(publisher, publish("t", "x", QOS1, 1));
    world.broker.stored();
    let heard = world.broker.take(publisher);
    assert!(heard[0].starts_with("PUBACK"), "{heard:?}");
    // Before the disk is told how far the session is.
    world.restart();
    let (_, received) = world.back("s");
    assert_eq!(received[1..], ["PUBLISH t \"x\" q1 #1 dup"]);
}

#[test]
fn what_a_group_gave_to_a_session_of_any_shard_is_on_disk_when_its_publisher_hears() {
    for (group, publisher) in ["g", "h", "i", "j"].into_iter().zip(["p", "q", "r", "o"]) {
        for (is_here, qos) in [(true, QOS1), (true, QOS2), (false, QOS1), (false, QOS2)] {
            let mut world = World::new(3);
            let client = world.resident("s", &[(&format!("$share/{group}/t"), qos)]);
            if !is_here {
                world.broker.cut(client);
            }
            world.settle();
            let from = stay(&mut world.broker, publisher, true);
            world.settle();
            world.broker.take(from);
            world.broker.hold_messages = true;
            world.broker.send(from, publish("t", "x", qos, 1));
            let mut heard = Vec::new();
            while heard.is_empty() {
                world.broker.stored_at_most(1);
                heard = world.broker.take(from);
                if heard.is_empty() {
                    world.broker.deliver_messages();
                }
            }
            world.restart();
            let (_, received) = world.back("s");
            let publishes = received
                .iter()
                .filter(|packet| packet.starts_with("PUBLISH"));
            assert_eq!(
                publishes.count(),
                1,
                "{group} {publisher} {qos:?}: {received:?}"
            );
        }
    }
}

/// [MQTT-3.3.1-1]
#[test]
fn what_was_acknowledged_just_before_a_kill_comes_again_with_dup() {
    for shards in [1, 3] {
        let mut world = World::new(shards);
        let client = world.resident("s", &[("t", QOS1), ("u", QOS2)]);
        let away = world.resident("a", &[("t", QOS1)]);
        world.broker.cut(away);
        world.settle();
        let publisher = join(&mut world.broker, "p");
        world.broker.send(publisher, publish("t", "x", QOS1, 1));
        world.broker.stored();
        assert_eq!(world.broker.take(client), ["PUBLISH t \"x\" q1 #1"]);
        // Before the disk is told of it.
        world.broker.send(client, Packet::PubAck(ack(1)));
        world.restart();
        let publisher = join(&mut world.broker, "p");
        world.broker.send(publisher, publish("t", "y", QOS1, 2));
        world.broker.send(publisher, publish("u", "z", QOS2, 3));
        world.settle();
        let (client, received) = world.back("s");
        let mut published: Vec<_> = received[1..].to_vec();
        published.sort_unstable();
        let [first, second, third] = &published[..] else {
            panic!("{received:?}");
        };
        assert_eq!(first, "PUBLISH t \"x\" q1 #1 dup");
        assert!(second.starts_with("PUBLISH t \"y\"") && !second.ends_with("dup"));
        assert!(third.starts_with("PUBLISH u \"z\"") && !third.ends_with("dup"));
        // Once more, over another connection, it is sent again as everything is.
        world.broker.cut(client);
        let (_, received) = world.back("s");
        assert!(received[1..].iter().all(|packet| packet.ends_with("dup")));
        let (_, received) = world.back("a");
        let expected = ["PUBLISH t \"x\" q1 #1", "PUBLISH t \"y\" q1 #2"];
        assert_eq!(received[1..], expected, "it was away");
        assert_eq!(faults(&world), 0);
    }
}

/// [MQTT-3.3.1-1]
#[test]
fn what_may_have_been_sent_comes_with_dup_however_often_the_broker_is_started_before() {
    for (shards, filter) in [(1, "t"), (3, "t"), (1, "$share/g/t"), (3, "$share/g/t")] {
        let mut world = World::new(shards);
        let client = world.resident("s", &[(filter, QOS1)]);
        world.settle();
        let publisher = join(&mut world.broker, "p");
        world.broker.send(publisher, publish("t", "x", QOS1, 1));
        world.broker.stored();
        assert_eq!(world.broker.take(client), ["PUBLISH t \"x\" q1 #1"]);
        for _ in 0..3 {
            world.restart();
        }
        let publisher = join(&mut world.broker, "p");
        world.broker.send(publisher, publish("t", "y", QOS1, 2));
        world.settle();
        world.restart();
        let (client, received) = world.back("s");
        let expected = ["PUBLISH t \"x\" q1 #1 dup", "PUBLISH t \"y\" q1 #2"];
        assert_eq!(received[1..], expected, "{shards} shards, {filter}");
        for id in [1, 2] {
            world.broker.send(client, Packet::PubAck(ack(id)));
        }
        world.broker.cut(client);
        world.settle();
        let sent = key("s", Part::MaybeSent);
        let sent = world.kept.store.get(Space::Sessions, &sent).unwrap();
        assert_eq!(sent, None, "{shards} shards, {filter}: it has all");
    }
}

#[test]
fn what_is_under_way_comes_again_in_the_order_in_which_it_was_sent() {
    let mut world = World::new(1);
    let client = world.resident("s", &[("$share/g/t", QOS1), ("u", QOS1)]);
    world.settle();
    let publisher = join(&mut world.broker, "p");
    // The disk is told of the first late, and of the second when the group gives it.
    world.broker.send(publisher, publish("u", "x", QOS1, 1));
    world.broker.cut(client);
    world.broker.send(publisher, publish("t", "x", QOS1, 2));
    world.broker.stored();
    let (_, received) = world.back("s");
    let expected = ["PUBLISH u \"x\" q1 #1 dup", "PUBLISH t \"x\" q1 #2"];
    assert_eq!(received[1..], expected);
    world.settle();
    world.restart();
    let (_, received) = world.back("s");
    let expected = ["PUBLISH u \"x\" q1 #1 dup", "PUBLISH t \"x\" q1 #2 dup"];
    assert_eq!(received[1..], expected);
}

pub(crate) fn again(packet: Packet<'_>) -> Packet<'_> {
    match packet {
        Packet::Publish(publish) => Packet::Publish(Publish {
            dup: true,
            ..publish
        }),
        other => other,
    }
}

#[test]
fn a_message_of_qos_2_that_is_recognized_after_a_kill_is_retained_on_any_shard() {
    for topic in ["a", "b", "c", "d"] {
        for (carried, stored) in [(0, 1), (0, 9), (1, 0), (1, 1), (1, 2), (1, 3), (1, 9)] {
            for payloads in [&["x"][..], &["x", "y"], &["x", ""]] {
                let mut world = World::new(3);
                let publisher = world.resident("p", &[]);
                world.broker.hold_messages = true;
                let packets = || payloads.iter().zip(1..);
                for (payload, id) in packets() {
                    world
                        .broker
                        .send(publisher, retained(topic, payload, QOS2, id));
                }
                for _ in 0..carried {
                    world.broker.deliver_messages();
                }
                world.broker.stored_at_most(stored);
                world.restart();
                let (publisher, _) = world.back("p");
                for (payload, id) in packets() {
                    let packet = again(retained(topic, payload, QOS2, id));
                    world.broker.send(publisher, packet);
                }
                world.settle();
                assert_eq!(world.broker.take(publisher).len(), payloads.len());
                let reader = join(&mut world.broker, "r");
                subscribe(&mut world.broker, reader, topic, QOS2);
                let found = world.broker.take_payloads(reader);
                let mut expected = vec![payloads[payloads.len() - 1].as_bytes().to_vec()];
                expected.retain(|payload| !payload.is_empty());
                assert_eq!(found, expected, "{topic} {carried} {stored} {payloads:?}");
            }
        }
    }
}

/// What a subscriber to this topic finds when the publisher has sent its message again.
fn found_after_a_kill(world: &mut World, topic: &str, unanswered: &str) -> Vec<Vec<u8>> {
    world.restart();
    let (publisher, _) = world.back("p");
    let packet = again(retained(topic, unanswered, QOS2, 1));
    world.broker.send(publisher, packet);
    world.settle();
    let reader = join(&mut world.broker, "r");
    subscribe(&mut world.broker, reader, topic, QOS2);
    world.broker.take_payloads(reader)
}

#[test]
fn what_was_acknowledged_is_not_undone_by_an_older_retained_message_after_a_kill() {
    for topic in ["a", "b", "c", "d"] {
        let others = ["k", "l", "m", "n", "o", "q"];
        for (other, newer) in others.into_iter().flat_map(|id| [(id, "y"), (id, "")]) {
            let mut world = World::new(3);
            let publisher = world.resident("p", &[]);
            let other = join(&mut world.broker, other);
            world.broker.take(other);
            world.broker.hold_messages = true;
            world.broker.send(publisher, retained(topic, "x", QOS2, 1));
            world.broker.stored();
            world.broker.deliver_messages();
            world.broker.stored();
            // Its publisher's shard has not heard of that.
            world.broker.send(other, retained(topic, newer, QOS1, 1));
            world.broker.stored();
            let mut heard = world.broker.take(other);
            while heard.is_empty() {
                world.broker.deliver_messages();
                world.broker.stored();
                heard = world.broker.take(other);
            }
            let found = found_after_a_kill(&mut world, topic, "x");
            let mut expected = vec![newer.as_bytes().to_vec()];
            expected.retain(|payload| !payload.is_empty());
            assert_eq!(found, expected, "{topic} {newer:?}");
            // Nor by the next kill.
            assert_eq!(found_after_a_kill(&mut world, topic, "x"), expected);
        }
    }
}

#[test]
fn what_its_keeper_has_refused_is_not_retained_after_a_kill_and_is_new_when_it_comes_again() {
    for topic in ["a", "b", "c", "d"] {
        let mut world = World::new(3);
        let publisher = world.resident("p", &[]);
        let mut limits = Limits::default();
        limits.retained_messages_max = 0;
        world.broker.reconfigure(limits);
        world.broker.hold_messages = true;
        world.broker.send(publisher, retained(topic, "x", QOS2, 1));
        world.broker.stored();
        world.broker.deliver_messages();
        world.broker.stored();
        world.restart();
        let reader = join(&mut world.broker, "r");
        subscribe(&mut world.broker, reader, topic, QOS2);
        let found = world.broker.take_payloads(reader);
        assert_eq!(found, Vec::<Vec<u8>>::new(), "{topic}");
        // [MQTT-4.3.3-9]
        let found = found_after_a_kill(&mut world, topic, "x");
        assert_eq!(found, [b"x"], "{topic}");
    }
}

#[test]
fn what_became_of_an_earlier_message_says_nothing_of_the_next_one_with_its_id() {
    for topics in [["a", "b"], ["b", "c"], ["c", "d"], ["d", "a"], ["a", "a"]] {
        for stored in 0..6 {
            let mut world = World::new(3);
            let first = world.resident("p", &[]);
            world.broker.hold_messages = true;
            world.broker.send(first, retained(topics[0], "x", QOS2, 1));
            world.broker.stored();
            world.broker.deliver_messages();
            world.broker.stored();
            world.broker.cut(first);
            let second = stay(&mut world.broker, "p", true);
            world.broker.stored_at_most(3);
            world.broker.send(second, retained(topics[1], "y", QOS2, 1));
            world.broker.deliver_messages();
            world.broker.stored_at_most(stored);
            let found = found_after_a_kill(&mut world, topics[1], "y");
            assert_eq!(found, [b"y"], "{topics:?} {stored}");
        }
    }
}

#[test]
fn a_retained_message_that_has_expired_is_not_on_disk() {
    let mut world = World::new(1);
    let publisher = join(&mut world.broker, "p");
    let mut properties = PropertyBuf::new();
    properties.push(Property::MessageExpiryInterval(1)).unwrap();
    let Packet::Publish(mut packet) = retained("t", "x", QOS1, 1) else {
        unreachable!()
    };
    packet.properties = properties.as_properties();
    world.broker.send(publisher, Packet::Publish(packet));
    world.settle();
    let kept = world.kept.store.get(Space::Retained, b"t").unwrap();
    assert_eq!(kept, None);
}

#[test]
fn nothing_is_left_of_a_session_that_was_to_end_with_its_connection() {
    for shards in [1, 3] {
        let mut world = World::new(shards);
        let client = world.resident("s", &[("t", QOS1)]);
        world.broker.cut(client);
        let publisher = join(&mut world.broker, "p");
        for id in 1..=3 {
            world.broker.send(publisher, publish("t", "x", QOS1, id));
        }
        world.settle();
        // It has something to read, and does not stay this time.
        let client = world.broker.open(Version::V5);
        let packet = Connect {
            clean_start: false,
            ..connect("s")
        };
        world.broker.send(client, Packet::Connect(packet));
        world.broker.stored_at_most(1);
        world.restart();
        let leftovers = world.kept.store.scan(Space::Sessions, &[], None, 1_000_000);
        let leftovers: Vec<_> = leftovers
            .unwrap()
            .pairs
            .into_iter()
            .map(|p| p.key)
            .collect();
        assert_eq!(leftovers, [[0_u8; 0]; 0], "{shards} shards");
        let (_, received) = world.back("s");
        assert_eq!(received, ["CONNACK 0 00"]);
    }
}
