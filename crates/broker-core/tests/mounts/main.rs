//! Clients behind mount points: each names topics as if its part of the tree were all of it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../access_rules/mod.rs"]
mod access_rules;
#[path = "../shard_bus/mod.rs"]
mod shard_bus;

mod outside;
mod proof;
mod reference;

use std::sync::Arc;
use std::time::Duration;

use access_rules::{balances, denied, dropped, policy, set};
use shard_bus::{Broker, Client, connect, publish, retained, subscribe, unsubscribe};
use unbroken_broker_core::{
    Actions, Ceiling, Denial, DropReason, Effect, Event, Input, Limits, Member, MountPoint, Peer,
    Place, Policy, Role, Rule, RuleSet, Settings, Wanted, WantedSubscriptions,
};
use unbroken_mqtt_proto::{
    Connect, Packet, Properties, Property, PropertyBuf, Publish, QoS, Version, Will,
};

const NOTHING: [&str; 0] = [];
const QOS0: QoS = QoS::AtMostOnce;

/// Clients of listener 0 have no mount point, those of the next have these.
fn settings(points: &[&str]) -> Settings {
    let mut settings = Settings::default();
    settings.mount_points = mount_points(points);
    settings
}

fn mount_points(points: &[&str]) -> Arc<[Option<MountPoint>]> {
    let point = |text: &&str| Some(MountPoint::parse(text).unwrap());
    std::iter::once(None)
        .chain(points.iter().map(point))
        .collect()
}

fn mounted(shards: u8, points: &[&str]) -> Broker {
    Broker::with(shards, Limits::default(), settings(points))
}

/// A client of this listener.
fn open(broker: &mut Broker, listener: u16, packet: Connect<'_>) -> Client {
    let peer = Peer {
        listener,
        ..Peer::default()
    };
    let client = broker.open_from(packet.version, peer);
    broker.send(client, Packet::Connect(packet));
    client
}

fn join(broker: &mut Broker, listener: u16, id: &str) -> Client {
    let client = open(broker, listener, connect(id));
    assert_eq!(broker.take(client), ["CONNACK 0 00"]);
    client
}

/// The same with a session that stays.
fn stay(broker: &mut Broker, listener: u16, id: &str) -> (Client, Vec<String>) {
    let mut properties = PropertyBuf::new();
    let expiry = Property::SessionExpiryInterval(100);
    properties.push(expiry).unwrap();
    let packet = Connect {
        clean_start: false,
        properties: properties.as_properties(),
        ..connect(id)
    };
    let client = open(broker, listener, packet);
    let taken = broker.take(client);
    (client, taken)
}

fn message<'a>(topic: &'a str, properties: Properties<'a>) -> Packet<'a> {
    Packet::Publish(Publish {
        dup: false,
        qos: QOS0,
        retain: false,
        topic,
        packet_id: None,
        properties,
        payload: b"x",
    })
}

fn with(property: Property<'_>) -> PropertyBuf {
    let mut properties = PropertyBuf::new();
    properties.push(property).unwrap();
    properties
}

#[test]
fn two_tenants_use_the_same_topics_and_a_service_sees_both() {
    for shards in [1, 3] {
        let mut broker = mounted(shards, &["a/", "b/"]);
        let service = join(&mut broker, 0, "service");
        let [a, b] = [(1, "in-a"), (2, "in-b")].map(|(on, id)| join(&mut broker, on, id));
        for client in [service, a, b] {
            subscribe(&mut broker, client, "#", QoS::AtLeastOnce);
            broker.take(client);
        }
        broker.send(a, publish("t", "1", QoS::AtLeastOnce, 1));
        assert_eq!(broker.take(a), ["PUBACK #1 00", "PUBLISH t \"1\" q1 #1"]);
        assert_eq!(broker.take(b), NOTHING);
        assert_eq!(broker.take(service), ["PUBLISH a/t \"1\" q1 #1"]);
        broker.send(service, publish("b/t", "2", QOS0, 0));
        assert_eq!(broker.take(a), NOTHING);
        assert_eq!(broker.take(b), ["PUBLISH t \"2\" q0"]);
        broker.send(service, publish("t", "3", QOS0, 0));
        assert_eq!((broker.take(a), broker.take(b)), (vec![], vec![]));
        unsubscribe(&mut broker, a, "#");
        assert_eq!(broker.take(a), ["UNSUBACK #1 [00]"]);
        broker.send(a, publish("t", "4", QOS0, 0));
        assert_eq!(broker.take(a), NOTHING);
        balances(&broker);
    }
}

#[test]
fn retained_messages_wills_and_shared_groups_are_the_tenants_own() {
    for shards in [1, 3] {
        let mut broker = mounted(shards, &["a/", "b/"]);
        let [a, b] = [(1, "in-a"), (2, "in-b")].map(|(on, id)| join(&mut broker, on, id));
        broker.send(a, retained("t", "a", QoS::AtLeastOnce, 1));
        broker.send(b, retained("t", "b", QoS::AtLeastOnce, 1));
        broker.take(a);
        subscribe(&mut broker, a, "+", QOS0);
        assert_eq!(
            broker.take(a),
            ["SUBACK #1 [00]", "PUBLISH t \"a\" q0 retain"]
        );
        let will = Will {
            qos: QOS0,
            retain: false,
            topic: "gone",
            payload: b"w",
            properties: Properties::EMPTY,
        };
        let packet = Connect {
            will: Some(will),
            ..connect("mortal")
        };
        let mortal = open(&mut broker, 1, packet);
        broker.cut(mortal);
        assert_eq!(broker.take(a), ["PUBLISH gone \"w\" q0"]);
        unsubscribe(&mut broker, a, "+");
        for (client, other) in [(a, b), (b, a)] {
            broker.take(client);
            broker.take(other);
            subscribe(&mut broker, client, "$share/g/work", QOS0);
            assert_eq!(broker.take(client), ["SUBACK #1 [00]"]);
            broker.send(client, publish("work", "x", QOS0, 0));
            assert_eq!(broker.take(client), ["PUBLISH work \"x\" q0"]);
            assert_eq!(broker.take(other), NOTHING);
        }
        unsubscribe(&mut broker, a, "$share/g/work");
        assert_eq!(broker.take(a), ["UNSUBACK #1 [00]"]);
        balances(&broker);
    }
}

#[test]
fn a_response_topic_is_in_the_tree_of_its_reader() {
    let mut broker = mounted(1, &["a/", "b/"]);
    let service = join(&mut broker, 0, "service");
    let [a, b] = [(1, "in-a"), (2, "in-b")].map(|(on, id)| join(&mut broker, on, id));
    subscribe(&mut broker, service, "+/request", QOS0);
    subscribe(&mut broker, b, "reply", QOS0);
    let request = with(Property::ResponseTopic("reply"));
    broker.take(service);
    broker.send(b, message("request", request.as_properties()));
    let taken = broker.take(service);
    assert_eq!(
        taken,
        ["PUBLISH b/request \"x\" q0 ResponseTopic(\"b/reply\")"]
    );
    broker.send(service, publish("b/reply", "y", QOS0, 0));
    assert_eq!(broker.take(b), ["SUBACK #1 [00]", "PUBLISH reply \"y\" q0"]);
    // One for which a client has no name is left out.
    subscribe(&mut broker, a, "request", QOS0);
    broker.take(a);
    for (response, expected) in [
        ("a/reply", " ResponseTopic(\"reply\")"),
        ("b/reply", ""),
        ("$x/reply", " ResponseTopic(\"$x/reply\")"),
    ] {
        let request = with(Property::ResponseTopic(response));
        broker.send(service, message("a/request", request.as_properties()));
        assert_eq!(
            broker.take(a),
            [format!("PUBLISH request \"x\" q0{expected}")]
        );
    }
    let long = "x".repeat(65_534);
    let request = with(Property::ResponseTopic(&long));
    broker.send(a, message("request", request.as_properties()));
    assert_eq!(broker.take(a), ["DISCONNECT 82"]);
}

#[test]
fn aliases_stand_for_the_clients_own_topics_in_both_directions() {
    let mut broker = mounted(1, &["a/"]);
    let service = join(&mut broker, 0, "service");
    subscribe(&mut broker, service, "#", QOS0);
    broker.take(service);
    let most = with(Property::TopicAliasMaximum(5));
    let packet = Connect {
        properties: most.as_properties(),
        ..connect("in-a")
    };
    let a = open(&mut broker, 1, packet);
    subscribe(&mut broker, a, "#", QOS0);
    broker.take(a);
    let alias = with(Property::TopicAlias(3));
    broker.send(a, message("t", alias.as_properties()));
    broker.send(a, message("", alias.as_properties()));
    let twice = ["PUBLISH a/t \"x\" q0"; 2];
    assert_eq!(broker.take(service), twice);
    assert_eq!(
        broker.take(a),
        [
            "PUBLISH t \"x\" q0 TopicAlias(1)",
            "PUBLISH  \"x\" q0 TopicAlias(1)"
        ]
    );
}

#[test]
fn limits_of_topics_hold_with_the_mount() {
    let mut limits = Limits::default();
    limits.topic_bytes_max = 10;
    limits.topic_levels_max = 3;
    let mut broker = Broker::with(1, limits, settings(&["abcde/", "a/b/c/"]));
    let check = |broker: &mut Broker, topic: &str, expected: &str| {
        let client = join(broker, 1, "c");
        broker.send(client, publish(topic, "x", QoS::AtLeastOnce, 1));
        assert_eq!(broker.take(client), [expected], "{topic}");
        broker.cut(client);
    };
    check(&mut broker, "four", "PUBACK #1 10");
    check(&mut broker, "fives", "DISCONNECT 90");
    check(&mut broker, "a/b", "PUBACK #1 10");
    check(&mut broker, "a/b/", "DISCONNECT 90");
    let client = join(&mut broker, 1, "c");
    subscribe(&mut broker, client, "four", QOS0);
    subscribe(&mut broker, client, "fives", QOS0);
    assert_eq!(broker.take(client), ["SUBACK #1 [00]", "SUBACK #1 [8f]"]);
    let long = Will {
        qos: QOS0,
        retain: false,
        topic: "fives",
        payload: b"",
        properties: Properties::EMPTY,
    };
    let packet = Connect {
        will: Some(long),
        ..connect("d")
    };
    let client = open(&mut broker, 1, packet);
    assert_eq!(broker.take(client), ["CONNACK 0 90"]);
    // No topic behind this one would do.
    let client = open(&mut broker, 2, connect("e"));
    assert_eq!(broker.take(client), ["CONNACK 0 87"]);
}

#[test]
fn what_begins_with_a_dollar_is_outside_and_only_rules_open_it() {
    let mut broker = mounted(1, &["a/"]);
    let service = join(&mut broker, 0, "service");
    let a = join(&mut broker, 1, "in-a");
    broker.send(a, publish("$x/y", "no", QoS::AtLeastOnce, 1));
    subscribe(&mut broker, a, "$x/#", QOS0);
    subscribe(&mut broker, a, "$share/g/$x/#", QOS0);
    let refused = ["PUBACK #1 87", "SUBACK #1 [87]", "SUBACK #1 [87]"];
    assert_eq!(broker.take(a), refused);
    // What a client would take for the broker's is not for it. [MQTT-4.7.2-1]
    subscribe(&mut broker, a, "#", QOS0);
    broker.take(a);
    dropped(&mut broker);
    broker.send(service, publish("a/$x/y", "no", QOS0, 0));
    assert_eq!(broker.take(a), NOTHING);
    assert_eq!(dropped(&mut broker), [denied("in-a", "a/$x/y", 1)]);
    set(
        &mut broker,
        &policy(1, &[("*", "+sr", "$x/#"), ("*", "+psr", "#")]),
    );
    subscribe(&mut broker, a, "$x/#", QOS0);
    assert_eq!(broker.take(a), ["SUBACK #1 [00]"]);
    set(
        &mut broker,
        &policy(2, &[("*", "+psr", "#"), ("*", "+psr", "$x/#")]),
    );
    broker.send(service, publish("$x/y", "yes", QOS0, 0));
    assert_eq!(broker.take(a), ["PUBLISH $x/y \"yes\" q0"]);
    broker.send(a, publish("$x/y", "no", QoS::AtLeastOnce, 2));
    assert_eq!(broker.take(a), ["PUBACK #2 87"]);
    balances(&broker);
}

#[test]
fn rules_are_about_whole_topics() {
    let mut broker = mounted(1, &["a/"]);
    let rules = policy(1, &[("*", "+psr", "a/open/#"), ("*", "+psr", "t")]);
    set(&mut broker, &rules);
    let a = join(&mut broker, 1, "in-a");
    subscribe(&mut broker, a, "open/#", QOS0);
    subscribe(&mut broker, a, "t", QOS0);
    broker.send(a, publish("open/t", "x", QoS::AtLeastOnce, 1));
    broker.send(a, publish("t", "x", QoS::AtLeastOnce, 2));
    assert_eq!(
        broker.take(a),
        [
            "SUBACK #1 [00]",
            "SUBACK #1 [87]",
            "PUBACK #1 00",
            "PUBLISH open/t \"x\" q0",
            "PUBACK #2 87"
        ]
    );
    assert_eq!(dropped(&mut broker), [denied("in-a", "a/t", 1)]);
}

/// A role of these members that names a mount point and allows everything.
fn role(name: &str, members: Vec<Member>, point: Option<&str>) -> Role {
    Role {
        name: name.into(),
        members,
        connect: Effect::Allow,
        client_id: None,
        ceiling: Ceiling::NONE,
        rules: vec![Rule {
            effect: Effect::Allow,
            actions: Actions::ALL,
            filter: "#".into(),
            ceiling: Ceiling::NONE,
            origin: "test".into(),
        }],
        mount_point: point.map(|text| MountPoint::parse(text).unwrap()),
    }
}

fn in_force(broker: &mut Broker, generation: u64, roles: Vec<Role>, points: &[&str]) {
    let policy = Policy::compile(generation, vec![RuleSet::of(roles)]).unwrap();
    set(broker, &Arc::new(policy));
    for shard in 0..broker.shards.len() {
        let points = mount_points(points);
        broker.input(shard, Input::MountPointsReplaced(points));
    }
}

/// What others call the topic `t` of a client of this user on listener 1; or its CONNACK.
fn topic_of(broker: &mut Broker, user: &str, id: &str) -> String {
    let service = join(broker, 0, "service");
    subscribe(broker, service, "#", QOS0);
    broker.take(service);
    let packet = Connect {
        user_name: (!user.is_empty()).then_some(user),
        ..connect(id)
    };
    let client = open(broker, 1, packet);
    let connack = broker.take(client).swap_remove(0);
    if connack != "CONNACK 0 00" {
        return connack;
    }
    broker.send(client, publish("t", "x", QOS0, 0));
    let taken = broker.take_publishes(service);
    broker.cut(client);
    taken[0].topic.clone()
}

#[test]
fn a_users_role_beats_another_role_and_that_the_listener() {
    let mut broker = mounted(1, &["listener/"]);
    let ann = || vec![Member::user("ann")];
    let all = || vec![Member::ANYBODY];
    let open = || role("open", all(), None);
    assert_eq!(topic_of(&mut broker, "ann", "c"), "listener/t");
    in_force(&mut broker, 1, vec![open()], &["listener/"]);
    assert_eq!(topic_of(&mut broker, "ann", "c"), "listener/t");
    // Of the listener of those that are asked about.
    let there = Member {
        listener: Some(1),
        ..Member::ANYBODY
    };
    let every = || role("every", vec![there.clone()], Some("role/{user}/"));
    in_force(&mut broker, 2, vec![open(), every()], &["listener/"]);
    assert_eq!(topic_of(&mut broker, "ann", "c"), "role/ann/t");
    let own = || role("own", ann(), Some("own/"));
    in_force(&mut broker, 3, vec![open(), every(), own()], &["listener/"]);
    assert_eq!(topic_of(&mut broker, "ann", "c"), "own/t");
    assert_eq!(topic_of(&mut broker, "bob", "c"), "role/bob/t");
    let other = role("other", ann(), Some("other/"));
    in_force(
        &mut broker,
        4,
        vec![open(), every(), own(), other],
        &["listener/"],
    );
    assert_eq!(topic_of(&mut broker, "ann", "c"), "CONNACK 0 87");
    assert_eq!(topic_of(&mut broker, "bob", "c"), "role/bob/t");
}

#[test]
fn names_in_a_mount_point_open_no_other_part_of_the_tree() {
    let mut broker = mounted(1, &["x/{user}/{client}/"]);
    assert_eq!(topic_of(&mut broker, "ann", "c"), "x/ann/c/t");
    for (user, id) in [
        ("", "c"),
        ("a/b", "c"),
        ("+", "c"),
        ("#", "c"),
        ("$SYS", "c"),
        ("ann", "a/b"),
        ("ann", "c+"),
        ("ann", "$c"),
    ] {
        let answer = topic_of(&mut broker, user, id);
        assert_eq!(answer, "CONNACK 0 87", "{user} {id}");
    }
}

#[test]
fn a_client_that_comes_back_with_another_mount_begins_a_session_and_what_waited_is_named() {
    for shards in [1, 3] {
        let mut broker = mounted(shards, &["a/", "a/b/"]);
        let service = join(&mut broker, 0, "service");
        let (client, _) = stay(&mut broker, 1, "c");
        subscribe(&mut broker, client, "#", QoS::AtLeastOnce);
        broker.cut(client);
        for topic in ["a/x", "a/b/y"] {
            broker.send(service, publish(topic, "x", QoS::AtLeastOnce, 1));
        }
        dropped(&mut broker);
        let (client, taken) = stay(&mut broker, 2, "c");
        assert_eq!(taken, ["CONNACK 0 00"]);
        let revoked = broker.events.iter().filter_map(|event| match event {
            Event::SubscriptionRevoked { filter, why, .. } => Some((&**filter, *why)),
            _ => None,
        });
        assert_eq!(revoked.collect::<Vec<_>>(), [("a/#", Denial::MountChanged)]);
        let ended = dropped(&mut broker);
        let counts = ended.iter().map(|(_, _, why, count)| (*why, *count));
        assert_eq!(counts.collect::<Vec<_>>(), [(DropReason::SessionEnded, 2)]);
        broker.send(service, publish("a/b/y", "x", QoS::AtLeastOnce, 2));
        assert_eq!(broker.take(client), NOTHING);
        // With the same mount the session goes on.
        subscribe(&mut broker, client, "z", QoS::AtLeastOnce);
        broker.cut(client);
        broker.send(service, publish("a/b/z", "x", QoS::AtLeastOnce, 3));
        let (_, taken) = stay(&mut broker, 2, "c");
        assert_eq!(taken, ["CONNACK 1 00", "PUBLISH z \"x\" q1 #1"]);
        balances(&broker);
    }
}

#[test]
fn a_client_whose_mount_point_changes_is_disconnected_and_others_stay() {
    let mut broker = mounted(1, &["a/", "b/"]);
    let [a, b] = [(1, "in-a"), (2, "in-b")].map(|(on, id)| join(&mut broker, on, id));
    let service = join(&mut broker, 0, "service");
    let replace = |broker: &mut Broker, points: &[&str]| {
        broker.input(0, Input::MountPointsReplaced(mount_points(points)));
    };
    replace(&mut broker, &["a/", "b/"]);
    assert_eq!((broker.take(a), broker.take(b)), (vec![], vec![]));
    replace(&mut broker, &["other/", "b/"]);
    assert_eq!(broker.take(a), ["DISCONNECT 98"]);
    assert_eq!((broker.take(b), broker.take(service)), (vec![], vec![]));
    subscribe(&mut broker, service, "#", QOS0);
    broker.send(b, publish("t", "x", QOS0, 0));
    assert!(
        broker
            .take(service)
            .contains(&"PUBLISH b/t \"x\" q0".into())
    );
    replace(&mut broker, &[]);
    assert_eq!(broker.take(b), ["DISCONNECT 98"]);
    broker.advance(Duration::from_secs(1));
    balances(&broker);
}

#[test]
fn what_an_operator_is_shown_has_the_mount() {
    let mut broker = mounted(1, &["a/"]);
    let client = join(&mut broker, 1, "in-a");
    subscribe(&mut broker, client, "$share/g/t", QOS0);
    let shard = &broker.shards[0];
    let start = Place::default();
    let clients = shard
        .connected_clients(&Wanted::default(), start, 9)
        .entries;
    assert_eq!(clients[0].mount.as_deref(), Some("a/"));
    assert_eq!(
        shard.sessions(&Wanted::default(), start, 9).entries[0]
            .mount
            .as_deref(),
        Some("a/")
    );
    let subscriptions = shard
        .subscriptions(&WantedSubscriptions::default(), start, 9)
        .entries;
    assert_eq!(&*subscriptions[0].filter, "$share/g/a/t");
}

#[test]
fn before_5_0_it_is_the_same() {
    let mut broker = mounted(1, &["a/"]);
    let packet = Connect {
        version: Version::V3_1_1,
        ..connect("old")
    };
    let old = open(&mut broker, 1, packet);
    let new = join(&mut broker, 1, "new");
    subscribe(&mut broker, old, "+", QoS::ExactlyOnce);
    let signed = with(Property::ResponseTopic("reply"));
    broker.send(new, message("t", signed.as_properties()));
    let taken = broker.take(old);
    assert_eq!(taken[1..], ["SUBACK #1 [02]", "PUBLISH t \"x\" q0"]);
}
