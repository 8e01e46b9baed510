//! Limits of the whole store.

use super::*;

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
fn while_the_disk_lacks_space_publishers_are_refused_and_the_oldest_still_goes() {
    for shards in [1, 3] {
        let mut world = with_limits(shards, |limits| limits.store_bytes_max = 1_000);
        let away = world.resident("s", &[("t", QOS1)]);
        world.broker.cut(away);
        let publisher = join(&mut world.broker, "p");
        publish_all(&mut world, publisher, "t", 1..17);
        world.broker.disk_lacks_space(true);
        for (topic, answer) in [("t", "PUBACK #17 97"), ("nobody", "PUBACK #17 10")] {
            world.broker.send(publisher, publish(topic, "x", QOS1, 17));
            world.broker.stored();
            assert_eq!(world.broker.take(publisher), [answer], "{shards}");
        }
        world
            .broker
            .send(publisher, retained("kept", "x", QOS1, 18));
        world.broker.stored();
        assert_eq!(world.broker.take(publisher), ["PUBACK #18 97"]);
        let old = world.older("old");
        world.broker.send(old, publish("t", "x", QOS1, 1));
        world.broker.stored();
        assert!(!world.broker.is_open(old), "MQTT 3 has no word for it");
        // That is what makes room.
        world.broker.store_size_with(400, [0, 0], 400);
        world.broker.stored();
        let dropped = dropped(&world, DropReason::StoreFull);
        assert_eq!(dropped, 2 + 3, "of 16, and what was refused");
        world.broker.disk_lacks_space(false);
        publish_all(&mut world, publisher, "t", 17..18);
        let expected: Vec<_> = (3..18).map(|id| id.to_string()).collect();
        assert_eq!(payloads(&mut world, "s"), expected, "{shards}");
        is_balanced(&world);
    }
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
