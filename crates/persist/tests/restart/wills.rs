//! Last wills of clients whose broker stops.

use std::sync::Arc;
use std::time::Duration;

use unbroken_broker_core::{
    Actions, Ceiling, DropReason, Effect, Event, Input, Member, Policy, Role, Rule, RuleSet,
};

use unbroken_mqtt_proto::{
    Connect, Disconnect, Packet, Properties, Property, PropertyBuf, QoS, ReasonCode, Version, Will,
};

use crate::shard_bus::{Client, connect, join, subscribe};
use crate::{QOS1, World};

/// What a client says of its will.
#[derive(Clone, Copy)]
struct Words {
    qos: QoS,
    retain: bool,
    delay_s: u32,
    lifetime_s: Option<u32>,
}

const PLAIN: Words = Words {
    qos: QOS1,
    retain: false,
    delay_s: 0,
    lifetime_s: None,
};

/// Connects with a will on `will/<client>`. With `stays_s` the session outlives its connection.
fn connect_with(world: &mut World, client_id: &str, stays_s: u32, words: Option<Words>) -> Client {
    let mut properties = PropertyBuf::new();
    let expiry = Property::SessionExpiryInterval(stays_s);
    properties.push(expiry).unwrap();
    let topic = format!("will/{client_id}");
    let mut of_will = PropertyBuf::new();
    if let Some(Words { delay_s, .. }) = words {
        of_will.push(Property::WillDelayInterval(delay_s)).unwrap();
    }
    if let Some(lifetime_s) = words.and_then(|words| words.lifetime_s) {
        let lifetime = Property::MessageExpiryInterval(lifetime_s);
        of_will.push(lifetime).unwrap();
    }
    let will = words.map(|words| Will {
        topic: &topic,
        payload: b"gone",
        qos: words.qos,
        retain: words.retain,
        properties: of_will.as_properties(),
    });
    let client = world.broker.open(Version::V5);
    let packet = Connect {
        clean_start: false,
        will,
        properties: properties.as_properties(),
        ..connect(client_id)
    };
    world.broker.send(client, Packet::Connect(packet));
    world.broker.stored();
    client
}

/// What a session that was away is sent when it comes back, but for CONNACK.
fn sent_to(world: &mut World, client_id: &str) -> Vec<String> {
    let (client, received) = world.back(client_id);
    world.broker.cut(client);
    received[1..].to_vec()
}

fn watcher(world: &mut World) {
    let watcher = world.resident("watcher", &[("will/#", QOS1)]);
    world.broker.cut(watcher);
    world.settle();
}

fn published(world: &World) -> usize {
    let is_will = |event: &&Event| matches!(event, Event::WillPublished { .. });
    world.broker.events.iter().filter(is_will).count()
}

#[test]
fn the_will_of_a_client_that_was_connected_when_the_broker_was_killed_is_published() {
    for shards in [1, 3] {
        for stays_s in [0, 100] {
            let mut world = World::new(shards);
            watcher(&mut world);
            connect_with(&mut world, "a", stays_s, Some(PLAIN));
            world.restart();
            world.settle();
            assert_eq!(
                sent_to(&mut world, "watcher"),
                ["PUBLISH will/a \"gone\" q1 #1"],
                "{shards} shards, a session that stays {stays_s} s"
            );
            world.settle();
            world.restart();
            world.settle();
            assert_eq!(published(&world), 0, "once");
        }
    }
}

#[test]
fn a_will_is_on_disk_before_its_client_is_let_in() {
    let mut world = World::new(1);
    let client = world.broker.open(Version::V5);
    let will = Will {
        topic: "t",
        payload: b"gone",
        qos: QOS1,
        retain: false,
        properties: Properties::EMPTY,
    };
    let packet = Connect {
        will: Some(will),
        ..connect("a")
    };
    world.broker.send(client, Packet::Connect(packet));
    assert_eq!(world.broker.take(client), [""; 0]);
    assert_eq!(world.broker.take_asked(), ["will of a"]);
    world.broker.stored();
    assert_eq!(world.broker.take(client), ["CONNACK 0 00"]);
}

#[test]
fn a_will_without_a_persistent_receiver_does_not_touch_the_disk() {
    let mut world = World::new(1);
    let words = Words {
        qos: QoS::AtMostOnce,
        ..PLAIN
    };
    let client = connect_with(&mut world, "a", 0, Some(words));
    assert_eq!(world.broker.take(client), ["CONNACK 0 00"]);
    world.broker.cut(client);
    assert_eq!(world.broker.take_asked(), [""; 0]);
}

#[test]
fn a_retained_will_is_found_by_those_who_come_later() {
    for shards in [1, 3] {
        let mut world = World::new(shards);
        let words = Words {
            qos: QoS::AtMostOnce,
            retain: true,
            ..PLAIN
        };
        for client_id in ["a", "b", "c"] {
            connect_with(&mut world, client_id, 0, Some(words));
        }
        for again in [false, true] {
            world.restart();
            world.settle();
            assert_eq!(published(&world), if again { 0 } else { 3 });
        }
        let client = join(&mut world.broker, "later");
        subscribe(&mut world.broker, client, "will/#", QoS::AtMostOnce);
        let mut received = world.broker.take(client);
        received.retain(|packet| packet.starts_with("PUBLISH"));
        received.sort();
        let expected =
            ["a", "b", "c"].map(|client| format!("PUBLISH will/{client} \"gone\" q0 retain"));
        assert_eq!(received, expected, "{shards} shards");
    }
}

#[test]
fn a_will_goes_on_waiting_for_what_is_left_of_its_delay() {
    let mut world = World::new(1);
    watcher(&mut world);
    let words = Words {
        delay_s: 60,
        lifetime_s: Some(30),
        ..PLAIN
    };
    let client = connect_with(&mut world, "a", 1_000, Some(words));
    world.broker.cut(client);
    world.settle();
    world.broker.advance(Duration::from_secs(20));
    world.restart();
    // 24 s of 60 have passed.
    world.broker.advance(Duration::from_secs(35));
    assert_eq!(published(&world), 0);
    world.broker.advance(Duration::from_secs(2));
    assert_eq!(published(&world), 1);
    world.broker.stored();
    assert_eq!(
        sent_to(&mut world, "watcher"),
        ["PUBLISH will/a \"gone\" q1 #1 MessageExpiryInterval(30)"]
    );
}

#[test]
fn a_client_that_was_connected_has_the_whole_delay_to_come_back() {
    for comes_back in [false, true] {
        let mut world = World::new(1);
        watcher(&mut world);
        let words = Words {
            delay_s: 60,
            ..PLAIN
        };
        connect_with(&mut world, "a", 1_000, Some(words));
        world.broker.advance(Duration::from_secs(100));
        world.restart();
        world.broker.advance(Duration::from_secs(50));
        assert_eq!(published(&world), 0);
        if comes_back {
            connect_with(&mut world, "a", 1_000, Some(words));
        }
        world.broker.advance(Duration::from_secs(15));
        assert_eq!(published(&world), usize::from(!comes_back));
    }
}

#[test]
fn a_delay_that_ended_while_the_broker_was_down_leaves_a_moment_to_come_back() {
    let mut world = World::new(1);
    let words = Words {
        delay_s: 5,
        ..PLAIN
    };
    let client = connect_with(&mut world, "a", 1_000, Some(words));
    world.broker.cut(client);
    world.broker.advance(Duration::from_secs(1));
    world.broker.stored();
    world.broker.now += Duration::from_mins(10);
    world.restart();
    world.broker.advance(Duration::from_secs(3));
    assert_eq!(published(&world), 0);
    world.broker.advance(Duration::from_secs(2));
    assert_eq!(published(&world), 1);
}

#[test]
fn a_will_is_void_after_disconnect_and_in_place_of_the_next() {
    for stays_s in [0, 100] {
        let mut world = World::new(1);
        let client = connect_with(&mut world, "a", stays_s, Some(PLAIN));
        let packet = Disconnect {
            reason: ReasonCode::Success,
            properties: Properties::EMPTY,
        };
        world.broker.send(client, Packet::Disconnect(packet));
        world.broker.stored();
        world.restart();
        world.settle();
        assert_eq!(published(&world), 0, "DISCONNECT removes it");
        let words = Words {
            delay_s: 60,
            ..PLAIN
        };
        let client = connect_with(&mut world, "b", 1_000, Some(words));
        world.broker.cut(client);
        connect_with(&mut world, "b", 1_000, None);
        world.settle();
        world.restart();
        world.broker.advance(Duration::from_secs(70));
        assert_eq!(published(&world), 0, "who comes back without one has none");
    }
}

#[test]
fn a_client_that_comes_before_its_old_will_was_published_finds_no_session() {
    let mut world = World::new(1);
    watcher(&mut world);
    connect_with(&mut world, "a", 0, Some(PLAIN));
    world.restart_quietly(1);
    let client = connect_with(&mut world, "a", 0, None);
    assert_eq!(world.broker.take(client), ["CONNACK 0 00"]);
    assert_eq!(published(&world), 1);
}

#[test]
fn a_will_that_is_given_to_somebody_while_the_broker_stops_is_there_after_the_restart() {
    for filter in ["will/#", "$share/g/will/#"] {
        for client_id in ["a", "b", "c", "d"] {
            for receiver in ["m", "n", "o", "q"] {
                let mut world = World::new(2);
                let away = world.resident(receiver, &[(filter, QOS1)]);
                world.broker.cut(away);
                world.settle();
                connect_with(&mut world, client_id, 0, Some(PLAIN));
                // Every shard stops before it hears of the others' last messages.
                world.broker.hold_messages = true;
                world.broker.drain();
                for _ in 0..4 {
                    world.broker.deliver_messages();
                    world.broker.stored();
                }
                let shards = world.broker.shards.iter();
                let ended = DropReason::SessionEnded as usize;
                let dropped: u64 = shards.map(|shard| shard.stats().dropped[ended]).sum();
                assert_eq!(dropped, 0, "{filter}: {client_id} to {receiver}");
                world.restart();
                let expected = [format!("PUBLISH will/{client_id} \"gone\" q1 #1")];
                let sent = sent_to(&mut world, receiver);
                assert_eq!(sent, expected, "{filter}: {client_id} to {receiver}");
                assert_eq!(published(&world), 0, "it was before");
            }
        }
    }
}

/// Everybody may do everything, but one of them may not publish.
fn all_but(member: Member) -> Arc<Policy> {
    let role = |member, effect| Role {
        name: "r".into(),
        members: vec![member],
        connect: Effect::Allow,
        ceiling: Ceiling::NONE,
        client_id: None,
        rules: vec![Rule {
            effect,
            actions: Actions::ALL,
            filter: "#".into(),
            ceiling: Ceiling::NONE,
            origin: "test".into(),
        }],
        mount_point: None,
    };
    let roles = vec![
        role(Member::ANYBODY, Effect::Allow),
        role(member, Effect::Deny),
    ];
    Arc::new(Policy::compile(1, vec![RuleSet::of(roles)]).unwrap())
}

#[test]
fn a_stored_will_is_judged_by_the_rules_that_the_broker_begins_with() {
    for (denied_user, is_published) in [("ann", false), ("bob", true)] {
        let mut world = World::new(1);
        watcher(&mut world);
        let client = world.broker.open(Version::V5);
        let mut delay = PropertyBuf::new();
        delay.push(Property::WillDelayInterval(30)).unwrap();
        let mut expiry = PropertyBuf::new();
        expiry.push(Property::SessionExpiryInterval(100)).unwrap();
        let packet = Connect {
            user_name: Some("ann"),
            will: Some(Will {
                topic: "will/a",
                payload: b"gone",
                qos: QOS1,
                retain: false,
                properties: delay.as_properties(),
            }),
            properties: expiry.as_properties(),
            ..connect("a")
        };
        world.broker.send(client, Packet::Connect(packet));
        world.broker.stored();
        world.restart();
        let policy = all_but(Member::user(denied_user));
        world.broker.input(0, Input::PolicyReplaced(Some(policy)));
        world.broker.advance(Duration::from_secs(31));
        world.settle();
        assert_eq!(published(&world) == 1, is_published);
        let denied = |event: &&Event| {
            matches!(event, Event::Dropped { reason: DropReason::NotAuthorized, client_id, .. }
                if &**client_id == "a")
        };
        let denied = world.broker.events.iter().filter(denied).count();
        assert_eq!(denied == 1, !is_published);
    }
}
