//! What waits from before a restart is counted, though nobody comes for it.

use std::ops::Range;
use std::time::Duration;

use unbroken_broker_core::{DropReason, Event, Limits, LogId, SleepingSession};
use unbroken_mqtt_proto::Packet;

use crate::limits::{dropped, is_balanced, pass, payloads, publish_all};
use crate::shard_bus::{join, publish, stay, subscribe};
use crate::{QOS1, QOS2, World, ack};

const LOG: LogId = LogId(0);

/// What is known of the sessions whose clients are away.
fn sleepers(world: &World) -> Vec<SleepingSession> {
    let shards = world.broker.shards.iter();
    let mut all: Vec<_> = shards
        .flat_map(|shard| shard.sleeping(world.broker.now))
        .collect();
    all.sort_by(|one, other| one.client_id.cmp(&other.client_id));
    all
}

/// Nothing is read after the restart until the test does.
fn restart_unread(world: &mut World) {
    world.restart_quietly(world.shards);
    world.broker.hold_reads = true;
    world.broker.advance(Duration::from_secs(1));
    world.broker.stored();
}

/// These wait for a session.
fn waiting(payloads: Range<u16>) -> World {
    let mut world = World::new(1);
    let away = world.resident("s", &[("t", QOS1)]);
    world.broker.cut(away);
    let publisher = join(&mut world.broker, "p");
    publish_all(&mut world, publisher, "t", payloads);
    world
}

/// They do since before a restart, unread.
fn restarted_with(payloads: Range<u16>) -> World {
    let mut world = waiting(payloads);
    restart_unread(&mut world);
    world
}

#[test]
fn a_session_that_nothing_waits_for_does_not_hold_on_to_the_log_after_a_restart() {
    for shards in [1, 3] {
        let mut world = World::new(shards);
        for (client_id, filter) in [("quiet", "q"), ("other", "o/#")] {
            let away = world.resident(client_id, &[(filter, QOS1)]);
            world.broker.cut(away);
        }
        let reader = world.resident("r", &[("t", QOS1)]);
        world.settle();
        let publisher = join(&mut world.broker, "p");
        publish_all(&mut world, publisher, "t", 1..21);
        for id in 1..21 {
            world.broker.send(reader, Packet::PubAck(ack(id)));
        }
        world.settle();
        world.restart();
        world.settle();
        for shard in &world.broker.shards {
            let tails: u64 = shard.needed().iter().map(|(_, number)| number).sum();
            assert_eq!(tails, 20, "{shards}");
        }
        assert!(sleepers(&world).iter().all(|one| one.is_counted));
        // The disk knows it too.
        world.restart();
        assert_eq!(
            sleepers(&world)[0]
                .through
                .as_ref()
                .unwrap()
                .iter()
                .next()
                .unwrap()
                .1,
            20
        );
        is_balanced(&world);
    }
}

#[test]
fn what_waits_since_before_a_restart_is_counted_and_only_that_is_held() {
    let mut world = World::new(1);
    let away = world.resident("s", &[("t", QOS1)]);
    world.broker.cut(away);
    let other = world.resident("o", &[("u", QOS1)]);
    world.broker.cut(other);
    world.settle();
    let publisher = join(&mut world.broker, "p");
    publish_all(&mut world, publisher, "v", 1..2);
    publish_all(&mut world, publisher, "u", 1..6);
    pass(&mut world, 5);
    publish_all(&mut world, publisher, "t", 1..4);
    world.restart();
    let publisher = join(&mut world.broker, "p");
    publish_all(&mut world, publisher, "t", 4..5);
    let [other, sleeper] = &sleepers(&world)[..] else {
        panic!("two sleep");
    };
    assert_eq!((sleeper.messages, sleeper.bytes), (4, 8));
    assert_eq!((other.messages, other.bytes), (5, 10));
    assert!(sleeper.is_counted && other.is_counted);
    assert_eq!(
        sleeper.oldest,
        Some(Duration::from_secs(1)),
        "not as long as it sleeps"
    );
    assert_eq!(sleeper.through.as_ref().unwrap().of(LOG), 5);
    assert_eq!(world.broker.shards[0].needed().of(LOG), 0);
    let stats = world.broker.shards[0].stats();
    assert_eq!(
        (stats.messages_waiting, stats.messages_waiting_bytes),
        (9, 18)
    );
    assert_eq!(payloads(&mut world, "s"), ["1", "2", "3", "4"]);
    is_balanced(&world);
}

#[test]
fn limits_apply_to_what_waits_since_before_a_restart() {
    let mut world = restarted_with(1..19);
    let mut limits = Limits::default();
    limits.queue_messages_max = 3;
    world.broker.reconfigure(limits);
    world.broker.hold_reads = false;
    let publisher = join(&mut world.broker, "p");
    publish_all(&mut world, publisher, "t", 19..21);
    pass(&mut world, 22);
    assert_eq!(dropped(&world, DropReason::QueueFull), 17);
    assert_eq!(world.broker.shards[0].needed().of(LOG), 17);
    assert_eq!(payloads(&mut world, "s"), ["18", "19", "20"]);
    is_balanced(&world);
}

#[test]
fn only_a_few_sessions_are_counted_at_a_time() {
    let mut world = World::new(1);
    for number in 0..20 {
        let away = world.resident(&format!("s{number}"), &[("t", QOS1)]);
        world.broker.cut(away);
    }
    let publisher = join(&mut world.broker, "p");
    publish_all(&mut world, publisher, "t", 1..4);
    restart_unread(&mut world);
    let mut counted = 0;
    while counted < 20 {
        assert!((1..=2).contains(&world.broker.reads()));
        world.broker.read_one();
        counted += 1;
        let known = sleepers(&world).iter().filter(|one| one.is_counted).count();
        assert_eq!(known, counted);
    }
    assert_eq!(world.broker.reads(), 0);
    assert!(sleepers(&world).iter().all(|one| one.messages == 3));
}

#[test]
fn who_comes_at_any_moment_of_the_count_gets_everything_once() {
    // Several pieces each.
    let payload = "x".repeat(10_000);
    let total = 40_u16;
    for reads in 0..8 {
        for limit in [100_000, 25] {
            let mut world = World::new(1);
            let away = world.resident("s", &[("t/#", QOS1), ("t/+", QOS2)]);
            world.broker.cut(away);
            let publisher = join(&mut world.broker, "p");
            for id in 1..=total {
                let topic = format!("t/{id}");
                world
                    .broker
                    .send(publisher, publish(&topic, &payload, QOS1, id));
            }
            world.broker.stored();
            restart_unread(&mut world);
            let mut limits = Limits::default();
            limits.queue_messages_max = limit;
            world.broker.reconfigure(limits);
            for _ in 0..reads {
                if world.broker.reads() > 0 {
                    world.broker.read_one();
                }
            }
            let publisher = join(&mut world.broker, "p");
            world.broker.send(publisher, publish("t/41", "y", QOS1, 1));
            world.broker.stored();
            let client = stay(&mut world.broker, "s", false);
            world.broker.stored();
            world.broker.hold_reads = false;
            world.broker.stored();
            world.broker.stored();
            let received = world.broker.take_publishes(client);
            let skipped = usize::try_from(dropped(&world, DropReason::QueueFull)).unwrap();
            let topics: Vec<_> = received.into_iter().map(|one| one.topic).collect();
            let expected: Vec<_> = (skipped + 1..=41).map(|id| format!("t/{id}")).collect();
            assert_eq!(topics, expected, "{reads} reads");
            assert!(skipped == 0 || limit == 25, "{skipped}");
            is_balanced(&world);
        }
    }
}

#[test]
fn what_a_client_left_unread_is_counted_when_it_goes() {
    let mut world = World::new(1);
    let away = world.resident("s", &[("t", QOS1)]);
    world.broker.cut(away);
    let publisher = join(&mut world.broker, "p");
    let payload = "x".repeat(100_000);
    for id in 1..=20 {
        world
            .broker
            .send(publisher, publish("t", &payload, QOS1, id));
    }
    world.broker.stored();
    restart_unread(&mut world);
    let client = stay(&mut world.broker, "s", false);
    world.broker.stored();
    // The piece that was to be counted, and one that is sent.
    world.broker.read_one();
    world.broker.read_one();
    world.broker.stored();
    let sent = world.broker.take_publishes(client).len();
    assert!((1..20).contains(&sent));
    world.broker.cut(client);
    world.broker.hold_reads = false;
    world.settle();
    let sleeper = &sleepers(&world)[0];
    assert!(sleeper.is_counted);
    let in_flight = usize::try_from(sleeper.in_flight).unwrap();
    assert_eq!((in_flight, sleeper.messages), (sent, 20 - sent as u64));
    let (_, received) = world.back("s");
    let again = received.iter().filter(|packet| packet.contains("PUBLISH"));
    assert_eq!(again.count(), 20);
    is_balanced(&world);
}

#[test]
fn a_client_that_goes_while_it_is_read_for_is_counted_all_the_same() {
    let mut world = restarted_with(1..4);
    let client = stay(&mut world.broker, "s", false);
    world.broker.stored();
    world.broker.read_one();
    assert_eq!(world.broker.reads(), 1, "that for the client");
    world.broker.cut(client);
    world.broker.advance(Duration::from_secs(1));
    world.broker.hold_reads = false;
    world.settle();
    let sleeper = &sleepers(&world)[0];
    assert!(sleeper.is_counted);
    assert_eq!(sleeper.messages, 3);
    assert_eq!(payloads(&mut world, "s"), ["1", "2", "3"]);
    is_balanced(&world);
}

#[test]
fn a_client_does_not_wait_for_the_count() {
    let mut world = restarted_with(1..4);
    assert_eq!(world.broker.reads(), 1, "the count");
    let client = stay(&mut world.broker, "s", false);
    world.broker.stored();
    assert_eq!(world.broker.reads(), 2);
    world.broker.hold_reads = false;
    world.broker.stored();
    world.broker.stored();
    assert_eq!(world.broker.take_publishes(client).len(), 3);
    is_balanced(&world);
}

#[test]
fn what_is_under_way_or_done_is_not_counted_as_waiting() {
    let mut world = World::new(1);
    let client = world.resident("s", &[("t", QOS2)]);
    let publisher = join(&mut world.broker, "p");
    for id in 1..=3 {
        world.broker.send(publisher, publish("t", "x", QOS2, id));
    }
    world.broker.stored();
    world.broker.stored();
    assert_eq!(world.broker.take(client).len(), 3);
    // The disk has their ids, and not how far the session is.
    world.restart();
    let sleeper = &sleepers(&world)[0];
    assert_eq!((sleeper.in_flight, sleeper.messages), (3, 0));
    assert!(sleeper.is_counted);
    let later = join(&mut world.broker, "late");
    subscribe(&mut world.broker, later, "x", QOS1);
    world.broker.send(later, publish("t", "y", QOS2, 1));
    world.settle();
    let (_, received) = world.back("s");
    let dup = received.iter().filter(|packet| packet.ends_with("dup"));
    assert_eq!((dup.count(), received.len()), (3, 5));
    is_balanced(&world);
}

#[test]
fn how_long_a_client_is_away_does_not_begin_anew_with_each_restart() {
    let mut world = World::new(1);
    let away = world.resident("s", &[("t", QOS1)]);
    world.broker.cut(away);
    world.settle();
    for _ in 0..3 {
        pass(&mut world, 20);
        world.restart();
        world.settle();
    }
    let away = sleepers(&world)[0].away;
    assert!(away >= Duration::from_mins(1), "{away:?}");
    pass(&mut world, 41);
    assert_eq!(sleepers(&world).len(), 0, "it was to stay for 100 s");
}

/// What was said of the end of a session: messages that waited, and among how many more nobody
/// knew.
fn ended(world: &World) -> Option<(u64, u64)> {
    world.broker.events.iter().find_map(|event| match event {
        Event::SessionEnded {
            undelivered,
            uncounted_of,
            ..
        } => Some((*undelivered, *uncounted_of)),
        _ => None,
    })
}

#[test]
fn a_session_that_ends_uncounted_is_not_said_to_have_had_nothing() {
    let mut world = restarted_with(1..19);
    stay(&mut world.broker, "s", true);
    world.broker.stored();
    assert_eq!(ended(&world), Some((0, 18)));
    is_balanced(&world);
}

#[test]
fn a_session_that_expires_uncounted_is_not_said_to_have_had_nothing() {
    let mut world = waiting(1..19);
    let mut limits = Limits::default();
    limits.session_expiry_max_s = 5;
    world.restart_limited(limits);
    world.broker.hold_reads = true;
    pass(&mut world, 20);
    assert_eq!(ended(&world), Some((0, 18)));
    is_balanced(&world);
}

#[test]
fn a_session_that_is_counted_when_it_ends_has_nothing_uncounted() {
    let mut world = restarted_with(1..19);
    world.broker.hold_reads = false;
    pass(&mut world, 2);
    stay(&mut world.broker, "s", true);
    world.broker.stored();
    assert_eq!(ended(&world), Some((18, 0)));
    assert_eq!(dropped(&world, DropReason::SessionEnded), 18);
    is_balanced(&world);
}
