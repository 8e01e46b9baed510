//! A session that is at the limit of what may wait for it, where publishers are refused for it.

use std::time::Duration;

use unbroken_broker_core::{DropReason, Event, Limits, QueueFull};
use unbroken_mqtt_proto::{
    Packet, PacketId, Properties, QoS, SubscriptionOptions, TopicFilters, Unsubscribe, Version,
};

use crate::kills::again;
use crate::limits::{dropped, is_balanced, pass, payloads, publish_all};
use crate::shard_bus::{Client, join, publish, send_subscribe, subscribe};
use crate::{QOS1, QOS2, World, ack};

const QOS0: QoS = QoS::AtMostOnce;

/// Publishers are refused when so many messages wait for a session.
fn refusing(messages: u32) -> Limits {
    let mut limits = Limits::default();
    limits.queue_full = QueueFull::Refuse;
    limits.queue_messages_max = messages;
    limits
}

fn world(shards: u8, limits: Limits) -> World {
    let mut world = World::new(shards);
    world.broker.reconfigure(limits);
    world
}

/// A publisher on each shard.
fn publishers(world: &mut World) -> Vec<Client> {
    let homes = 0..world.shards;
    let mut names = (0..).map(|n| format!("p{n}"));
    let at = |shard: u8| {
        let is_there = |name: &String| world.broker.shards[usize::from(shard)].is_home_of(name);
        names.by_ref().find(is_there).unwrap()
    };
    let names: Vec<_> = homes.map(at).collect();
    names
        .iter()
        .map(|name| join(&mut world.broker, name))
        .collect()
}

/// What a message of QoS 1 is answered, in hex.
fn answer(world: &mut World, publisher: Client, topic: &str) -> String {
    world
        .broker
        .send(publisher, publish(topic, "late", QOS1, 77));
    world.broker.stored();
    let answers = world.broker.take(publisher);
    let puback = answers
        .iter()
        .find_map(|packet| packet.strip_prefix("PUBACK #77 "));
    puback.unwrap().to_owned()
}

const TAKEN: &str = "00";
const UNWANTED: &str = "10";
const REFUSED: &str = "97";

#[test]
fn what_a_full_session_would_have_to_keep_is_refused_wherever_it_comes_in() {
    for shards in [1, 3] {
        let mut world = world(shards, refusing(3));
        let away = world.resident("s", &[("t/#", QOS1)]);
        world.broker.cut(away);
        let watcher = join(&mut world.broker, "watcher");
        subscribe(&mut world.broker, watcher, "#", QOS1);
        world.broker.stored();
        let publishers = publishers(&mut world);
        publish_all(&mut world, publishers[0], "t/1", 1..4);
        world.broker.take(watcher);
        world.broker.events.clear();
        for publisher in &publishers {
            for (packet, expected) in [
                (publish("t/1", "x", QOS1, 1), &["PUBACK #1 97"][..]),
                (publish("t/1", "x", QOS2, 2), &["PUBREC #2 97"]),
                (publish("t/1", "x", QOS2, 2), &["PUBREC #2 97"]),
                (publish("t/1", "for those who are there", QOS0, 0), &[]),
                (publish("u", "for another", QOS1, 3), &["PUBACK #3 00"]),
            ] {
                world.broker.send(*publisher, packet);
                world.broker.stored();
                assert_eq!(world.broker.take(*publisher), expected, "{shards}");
            }
            let received = world.broker.take_payloads(watcher);
            assert_eq!(received, [&b"for those who are there"[..], b"for another"]);
            let named = |event: &Event| {
                matches!(event, Event::Dropped { reason: DropReason::QueueFull, full: Some(full), .. }
                    if **full == *"s")
            };
            assert!(world.broker.events.drain(..).any(|event| named(&event)));
        }
        assert_eq!(
            dropped(&world, DropReason::QueueFull),
            3 * u64::from(shards)
        );
        assert_eq!(payloads(&mut world, "s"), ["1", "2", "3"]);
        is_balanced(&world);
    }
}

#[test]
fn an_older_publisher_is_disconnected_without_an_acknowledgement_and_its_message_is_new_later() {
    for shards in [1, 3] {
        let mut world = world(shards, refusing(1));
        let away = world.resident("s", &[("t", QOS2)]);
        world.broker.cut(away);
        let publisher = join(&mut world.broker, "p");
        publish_all(&mut world, publisher, "t", 1..2);
        let client = world.older("older");
        world.broker.send(client, publish("t", "x", QOS2, 7));
        assert!(!world.broker.is_open(client), "it sends it again");
        assert_eq!(world.broker.take(client), [""; 0]);
        let (_, received) = world.back("s");
        assert_eq!(received.len(), 2, "{received:?}");
        let client = world.older("older");
        world.broker.send(client, publish("t", "x", QOS2, 7));
        world.broker.stored();
        assert_eq!(world.broker.take(client), ["PUBREC #7 00"]);
    }
}

// [MQTT-4.3.3-9]
#[test]
fn a_message_whose_refusal_was_lost_with_its_connection_is_new_when_it_comes_again() {
    for shards in [1, 3] {
        let mut world = world(shards, refusing(1));
        let away = world.resident("s", &[("full", QOS2)]);
        world.broker.cut(away);
        let publisher = world.resident("p", &[]);
        publish_all(&mut world, publisher, "full", 1..2);
        // The refusal stands behind an answer that waits for the disk.
        world.broker.send(publisher, publish("u", "x", QOS2, 8));
        let refused = publish("full", "2", QOS2, 9);
        world.broker.send(publisher, refused);
        assert_eq!(world.broker.take(publisher), [""; 0], "{shards}");
        world.broker.cut(publisher);
        let (publisher, _) = world.back("p");
        world.broker.send(publisher, again(refused));
        world.broker.stored();
        assert_eq!(world.broker.take(publisher), ["PUBREC #9 97"], "{shards}");
        let (subscriber, received) = world.back("s");
        assert_eq!(received.len(), 2, "CONNACK and one message: {received:?}");
        world.broker.send(publisher, again(refused));
        world.broker.stored();
        assert_eq!(world.broker.take(publisher), ["PUBREC #9 00"], "{shards}");
        assert_eq!(world.broker.take_payloads(subscriber), [b"2"], "{shards}");
        is_balanced(&world);
    }
}

#[test]
fn what_an_older_publisher_sent_before_is_answered_before_it_is_disconnected() {
    for shards in [1, 3] {
        let mut world = world(shards, refusing(1));
        for (name, topic) in [("s", "full"), ("b", "ok")] {
            let away = world.resident(name, &[(topic, QOS1)]);
            world.broker.cut(away);
        }
        let publisher = join(&mut world.broker, "p");
        publish_all(&mut world, publisher, "full", 1..2);
        let client = world.older("older");
        let mut both = Vec::new();
        for (topic, id) in [("ok", 1), ("full", 2)] {
            let packet = publish(topic, "x", QOS1, id);
            packet.encode(Version::V3_1_1, &mut both).unwrap();
        }
        world.broker.send_bytes(client, &both);
        // The disk takes its time; the client is not read meanwhile, and that is not its fault.
        world.broker.advance(Duration::from_mins(1));
        assert!(world.broker.is_open(client), "{shards}");
        world.broker.stored();
        assert_eq!(world.broker.take(client), ["PUBACK #1 00"], "{shards}");
        assert!(!world.broker.is_open(client), "{shards}");
        let (_, received) = world.back("b");
        assert_eq!(received.len(), 2, "CONNACK and one copy: {received:?}");
    }
}

#[test]
fn a_session_is_not_full_any_more_when_an_eighth_is_free_and_not_before() {
    for shards in [1, 3] {
        let mut limits = refusing(16);
        limits.inflight_max = 1;
        let mut world = world(shards, limits);
        let slow = world.resident("s", &[("t", QOS1)]);
        let publishers = publishers(&mut world);
        // The first is under way.
        publish_all(&mut world, publishers[0], "t", 1..18);
        for (taken, expected) in [(0, REFUSED), (1, REFUSED), (2, TAKEN)] {
            if taken > 0 {
                world.broker.send(slow, Packet::PubAck(ack(taken)));
            }
            let asked = if expected == TAKEN {
                1
            } else {
                publishers.len()
            };
            for publisher in &publishers[..asked] {
                assert_eq!(
                    answer(&mut world, *publisher, "t"),
                    expected,
                    "{shards} {taken}"
                );
            }
        }
        is_balanced(&world);
    }
}

#[test]
fn bytes_make_a_session_full_too() {
    for shards in [1, 3] {
        let mut limits = refusing(1_000);
        limits.queue_bytes_max = 100;
        let mut world = world(shards, limits);
        let away = world.resident("s", &[("t", QOS1)]);
        world.broker.cut(away);
        let publishers = publishers(&mut world);
        let large = "x".repeat(98);
        world
            .broker
            .send(publishers[0], publish("t", &large, QOS1, 1));
        world.broker.stored();
        assert_eq!(world.broker.take(publishers[0]), ["PUBACK #1 00"]);
        assert_eq!(
            answer(&mut world, publishers[0], "t"),
            TAKEN,
            "one byte is free"
        );
        for publisher in publishers {
            assert_eq!(answer(&mut world, publisher, "t"), REFUSED);
        }
        assert_eq!(payloads(&mut world, "s"), [&*large, "late"]);
    }
}

#[test]
fn the_subscriptions_of_a_full_session_are_known_as_they_change() {
    for shards in [1, 3] {
        let mut limits = refusing(2);
        limits.inflight_max = 1;
        let mut world = world(shards, limits);
        let slow = world.resident("s", &[("a", QOS1), ("b", QOS0), ("c", QOS1)]);
        let publishers = publishers(&mut world);
        publish_all(&mut world, publishers[0], "a", 1..4);
        subscribe(&mut world.broker, slow, "c", QOS0);
        subscribe(&mut world.broker, slow, "d", QOS2);
        let filters = ["a"];
        let packet = Unsubscribe {
            packet_id: PacketId::FIRST,
            properties: Properties::EMPTY,
            filters: TopicFilters::new(&filters),
        };
        world.broker.send(slow, Packet::Unsubscribe(packet));
        world.broker.stored();
        for publisher in &publishers {
            for (topic, expected) in [("a", UNWANTED), ("b", TAKEN), ("c", TAKEN), ("d", REFUSED)] {
                assert_eq!(
                    answer(&mut world, *publisher, topic),
                    expected,
                    "{shards} {topic}"
                );
            }
        }
        // It has room again, and nothing is left behind of what was known of it.
        world.broker.send(slow, Packet::PubAck(ack(1)));
        world.broker.send(slow, Packet::PubAck(ack(2)));
        world.broker.stored();
        assert_eq!(answer(&mut world, publishers[0], "d"), TAKEN);
        is_balanced(&world);
    }
}

#[test]
fn a_full_session_may_publish_what_it_does_not_want_of_itself() {
    for shards in [1, 3] {
        let mut limits = refusing(1);
        limits.inflight_max = 1;
        let mut world = world(shards, limits);
        let slow = world.resident("s", &[]);
        let options = SubscriptionOptions {
            qos: QOS1,
            no_local: true,
            ..Default::default()
        };
        send_subscribe(&mut world.broker, slow, &[("t", options)]);
        world.broker.stored();
        let publisher = join(&mut world.broker, "p");
        publish_all(&mut world, publisher, "t", 1..3);
        assert_eq!(answer(&mut world, publisher, "t"), REFUSED);
        assert_ne!(answer(&mut world, slow, "t"), REFUSED);
        is_balanced(&world);
    }
}

#[test]
fn the_end_of_a_full_session_is_known() {
    for shards in [1, 3] {
        let mut world = world(shards, refusing(1));
        let away = world.resident("s", &[("t", QOS1)]);
        world.broker.cut(away);
        let publishers = publishers(&mut world);
        publish_all(&mut world, publishers[0], "t", 1..2);
        for publisher in &publishers {
            assert_eq!(answer(&mut world, *publisher, "t"), REFUSED);
        }
        pass(&mut world, 101);
        for publisher in &publishers {
            assert_eq!(answer(&mut world, *publisher, "t"), UNWANTED, "{shards}");
        }
    }
}

#[test]
fn what_was_under_way_between_shards_is_kept_beyond_the_limit() {
    let mut world = world(3, refusing(2));
    let away = world.resident("s", &[("t", QOS1)]);
    world.broker.cut(away);
    let publishers = publishers(&mut world);
    world.broker.hold_messages = true;
    for publisher in &publishers {
        for id in 1..=4 {
            world.broker.send(*publisher, publish("t", "x", QOS1, id));
        }
    }
    world.broker.hold_messages = false;
    world.broker.deliver_messages();
    world.broker.stored();
    let mut taken = 0;
    for publisher in &publishers {
        let answers = world.broker.take(*publisher);
        assert_eq!(answers.len(), 4);
        taken += answers
            .iter()
            .filter(|packet| packet.ends_with(" 00"))
            .count();
    }
    assert_eq!(taken, 10, "the shard of the session knows at once");
    for publisher in &publishers {
        assert_eq!(answer(&mut world, *publisher, "t"), REFUSED);
    }
    assert_eq!(payloads(&mut world, "s").len(), taken);
    assert_eq!(dropped(&world, DropReason::QueueFull), 2 + 3);
    is_balanced(&world);
}

#[test]
fn a_session_that_was_full_is_full_after_a_restart_without_its_client() {
    for shards in [1, 3] {
        let mut world = world(shards, refusing(3));
        let away = world.resident("s", &[("t", QOS1)]);
        world.broker.cut(away);
        let publisher = join(&mut world.broker, "p");
        publish_all(&mut world, publisher, "t", 1..4);
        world.restart_quietly(shards);
        world.broker.reconfigure(refusing(3));
        world.broker.advance(Duration::from_secs(1));
        world.broker.stored();
        for publisher in publishers(&mut world) {
            assert_eq!(answer(&mut world, publisher, "t"), REFUSED, "{shards}");
        }
        assert_eq!(payloads(&mut world, "s"), ["1", "2", "3"]);
        is_balanced(&world);
    }
}

#[test]
fn the_answer_may_be_changed_while_the_broker_runs() {
    for shards in [1, 3] {
        let mut world = World::new(shards);
        let away = world.resident("s", &[("t", QOS1)]);
        world.broker.cut(away);
        let publishers = publishers(&mut world);
        publish_all(&mut world, publishers[0], "t", 1..6);
        let mut dropping = refusing(3);
        dropping.queue_full = QueueFull::DropOldest;
        for (limits, expected) in [
            (refusing(3), REFUSED),
            (refusing(6), TAKEN),
            (refusing(6), REFUSED),
            (dropping, TAKEN),
        ] {
            world.broker.reconfigure(limits);
            let asked = if expected == TAKEN {
                1
            } else {
                publishers.len()
            };
            for publisher in &publishers[..asked] {
                assert_eq!(answer(&mut world, *publisher, "t"), expected, "{shards}");
            }
        }
        world.settle();
        assert_eq!(payloads(&mut world, "s"), ["5", "late", "late"]);
        is_balanced(&world);
    }
}

#[test]
fn what_is_too_old_goes_all_the_same_and_makes_room() {
    for shards in [1, 3] {
        let mut limits = refusing(3);
        limits.queue_age_max_s = 40;
        let mut world = world(shards, limits);
        let away = world.resident("s", &[("t", QOS1)]);
        world.broker.cut(away);
        let publishers = publishers(&mut world);
        publish_all(&mut world, publishers[0], "t", 1..4);
        pass(&mut world, 30);
        for publisher in &publishers {
            assert_eq!(answer(&mut world, *publisher, "t"), REFUSED);
        }
        pass(&mut world, 30);
        assert_eq!(dropped(&world, DropReason::TooOld), 3);
        for publisher in publishers {
            assert_eq!(answer(&mut world, publisher, "t"), TAKEN);
        }
        is_balanced(&world);
    }
}

#[test]
fn a_client_that_does_not_take_its_messages_is_full_where_these_wait_in_memory_too() {
    let mut limits = refusing(2);
    limits.inflight_max = 1;
    let mut world = world(1, limits);
    let slow = world.resident("s", &[("t", QOS1)]);
    let publisher = join(&mut world.broker, "p");
    for id in 1..=6 {
        world
            .broker
            .send(publisher, publish("t", &id.to_string(), QOS1, id));
    }
    world.broker.stored();
    let answers = world.broker.take(publisher);
    let taken = answers.iter().filter(|packet| packet.ends_with(" 00"));
    assert_eq!(taken.count(), 3, "one under way, and two that wait");
    for id in 1..=3 {
        world.broker.send(slow, Packet::PubAck(ack(id)));
        world.broker.stored();
    }
    assert_eq!(world.broker.take_payloads(slow), [b"1", b"2", b"3"]);
    is_balanced(&world);
}

#[test]
fn a_group_gives_to_members_with_room_and_is_refused_when_it_has_none() {
    for shards in [1, 3] {
        let mut world = world(shards, refusing(2));
        for (client_id, own) in [("a", "a/own"), ("b", "b/own")] {
            let away = world.resident(client_id, &[("$share/g/t", QOS1), (own, QOS1)]);
            world.broker.cut(away);
        }
        let publishers = publishers(&mut world);
        publish_all(&mut world, publishers[0], "a/own", 1..3);
        for _ in 0..2 {
            assert_eq!(answer(&mut world, publishers[0], "t"), TAKEN, "for b");
        }
        world.broker.events.clear();
        for publisher in &publishers {
            assert_eq!(answer(&mut world, *publisher, "t"), REFUSED, "{shards}");
        }
        let named = |event: &Event| matches!(event, Event::Dropped { full: Some(full), .. } if **full == *"$share/g/t");
        assert!(world.broker.events.iter().any(named));
        assert_eq!(payloads(&mut world, "a"), ["1", "2"]);
        assert_eq!(answer(&mut world, publishers[0], "t"), TAKEN, "for a");
        assert_eq!(payloads(&mut world, "b"), ["late", "late"]);
        is_balanced(&world);
    }
}

#[test]
fn a_group_with_a_member_that_is_here_is_not_refused_for_the_full_ones() {
    for shards in [1, 3] {
        let mut world = world(shards, refusing(1));
        let away = world.resident("a", &[("$share/g/t", QOS1)]);
        world.broker.cut(away);
        let publishers = publishers(&mut world);
        assert_eq!(answer(&mut world, publishers[0], "t"), TAKEN);
        assert_eq!(answer(&mut world, publishers[0], "t"), REFUSED);
        let here = join(&mut world.broker, "here");
        subscribe(&mut world.broker, here, "$share/g/t", QOS1);
        world.broker.stored();
        for publisher in &publishers {
            assert_eq!(answer(&mut world, *publisher, "t"), TAKEN, "{shards}");
        }
        world.broker.cut(here);
        world.settle();
        assert_eq!(answer(&mut world, publishers[0], "t"), REFUSED);
    }
}
