//! Limits of offline sessions and of their number.

use super::*;

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
