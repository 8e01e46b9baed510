//! Limits of QoS and retain, of roles and of rules; and what follows a denied PUBLISH.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod access_rules;
mod shard_bus;

use std::sync::Arc;

use access_rules::{balances, denied, dropped, join, ruled, set, stay, try_join};
use shard_bus::{Broker, Client, connect, publish, retained, subscribe};
use unbroken_broker_core::{
    Action, Actions, Ceiling, DeniedPublish, Effect, Limits, Member, Policy, Role, Rule, RuleSet,
    Settings,
};
use unbroken_mqtt_proto::{Connect, Packet, QoS, Version, Will, next_frame};

const UP_TO_1: Ceiling = Ceiling {
    max_qos: QoS::AtLeastOnce,
    retain: true,
};
const NOT_RETAINED: Ceiling = Ceiling {
    retain: false,
    ..Ceiling::NONE
};
const VERSIONS: [(Version, &str); 2] = [(Version::V5, "87"), (Version::V3_1_1, "00")];

/// Everybody may do everything, but ann not beyond this, and this on some topics.
fn rules(generation: u64, of_ann: Ceiling, topics: &[(&str, Ceiling)]) -> Arc<Policy> {
    let rule = |filter: &str, ceiling| Rule {
        effect: Effect::Allow,
        actions: Actions::ALL,
        filter: filter.into(),
        ceiling,
        origin: "test".into(),
    };
    let role = |member, ceiling, rules| Role {
        mount_point: None,
        name: "test".into(),
        members: vec![member],
        connect: Effect::Allow,
        ceiling,
        client_id: None,
        rules,
    };
    let mut all = vec![rule("#", Ceiling::NONE)];
    all.extend(
        topics
            .iter()
            .map(|(filter, ceiling)| rule(filter, *ceiling)),
    );
    let roles = vec![
        role(Member::ANYBODY, Ceiling::NONE, all),
        role(Member::user("ann"), of_ann, Vec::new()),
    ];
    Arc::new(Policy::compile(generation, vec![RuleSet::of(roles)]).unwrap())
}

fn limited(shards: u8, of_ann: Ceiling, topics: &[(&str, Ceiling)]) -> Broker {
    let mut broker = Broker::new(shards);
    set(&mut broker, &rules(1, of_ann, topics));
    broker
}

#[test]
fn a_publish_above_the_limit_of_a_rule_is_denied() {
    let topics = [("low/#", UP_TO_1), ("plain/#", NOT_RETAINED)];
    for shards in [1, 3] {
        let mut broker = limited(shards, Ceiling::NONE, &topics);
        let all = join(&mut broker, "bob", "all");
        subscribe(&mut broker, all, "#", QoS::AtMostOnce);
        broker.take(all);
        for (version, code) in VERSIONS {
            let ann = try_join(&mut broker, version, "ann", "a", false);
            broker.take(ann);
            broker.send(ann, publish("low/x", "yes", QoS::AtLeastOnce, 1));
            broker.send(ann, publish("low/x", "no", QoS::ExactlyOnce, 2));
            broker.send(ann, retained("plain/x", "no", QoS::AtLeastOnce, 3));
            broker.send(ann, publish("plain/x", "yes", QoS::ExactlyOnce, 4));
            let answers = ["PUBACK #1 00", "PUBREC #2", "PUBACK #3", "PUBREC #4 00"];
            let answers = answers.map(|it| match it.len() {
                9 => format!("{it} {code}"),
                _ => it.to_owned(),
            });
            assert_eq!(broker.take(ann), answers);
            let mut taken = broker.take(all);
            taken.sort();
            assert_eq!(
                taken,
                ["PUBLISH low/x \"yes\" q0", "PUBLISH plain/x \"yes\" q0"]
            );
            assert_eq!(
                dropped(&mut broker),
                [denied("a", "low/x", 1), denied("a", "plain/x", 1)]
            );
            broker.cut(ann);
        }
        balances(&broker);
    }
}

#[test]
fn a_subscription_is_granted_with_the_qos_that_is_allowed() {
    for shards in [1, 3] {
        let mut broker = limited(shards, Ceiling::NONE, &[("low/#", UP_TO_1)]);
        let ann = join(&mut broker, "ann", "a");
        for (filter, granted) in [("low/+", 1), ("$share/g/low/+", 1), ("high/#", 2)] {
            subscribe(&mut broker, ann, filter, QoS::ExactlyOnce);
            assert_eq!(broker.take(ann), [format!("SUBACK #1 [{granted:02x}]")]);
        }
    }
}

/// The properties of the CONNACK that a client was sent.
fn announced(broker: &mut Broker, client: Client) -> Ceiling {
    let bytes = broker.take_bytes(client);
    let frame = next_frame(&bytes, u32::MAX).unwrap().unwrap();
    let Packet::ConnAck(connack) = Packet::decode(frame, Version::V5).unwrap() else {
        panic!("it is not CONNACK");
    };
    Ceiling {
        max_qos: connack.properties.maximum_qos(),
        retain: connack.properties.retain_available(),
    }
}

// [MQTT-3.2.2-9] [MQTT-3.2.2-10] [MQTT-3.2.2-11] [MQTT-3.2.2-14]
#[test]
fn the_limit_of_a_client_is_in_its_connack_and_more_is_a_protocol_error() {
    let of_ann = UP_TO_1.and(NOT_RETAINED);
    for shards in [1, 3] {
        let mut broker = limited(shards, of_ann, &[]);
        let bob = try_join(&mut broker, Version::V5, "bob", "b", false);
        assert_eq!(announced(&mut broker, bob), Ceiling::NONE);
        for (packet, code) in [
            (publish("t", "no", QoS::ExactlyOnce, 1), "9b"),
            (retained("t", "no", QoS::AtLeastOnce, 1), "9a"),
        ] {
            let ann = try_join(&mut broker, Version::V5, "ann", "a", false);
            assert_eq!(announced(&mut broker, ann), of_ann);
            subscribe(&mut broker, ann, "t", QoS::ExactlyOnce);
            assert_eq!(broker.take(ann), ["SUBACK #1 [01]"]);
            broker.send(ann, packet);
            assert_eq!(broker.take(ann), [format!("DISCONNECT {code}")]);
            assert_eq!(dropped(&mut broker), [denied("a", "t", 1)]);
        }
        // One before 5.0 cannot know.
        let old = try_join(&mut broker, Version::V3_1_1, "ann", "a", false);
        broker.take(old);
        broker.send(old, publish("t", "no", QoS::ExactlyOnce, 1));
        broker.send(old, retained("t", "no", QoS::AtLeastOnce, 2));
        assert_eq!(broker.take(old), ["PUBREC #1 00", "PUBACK #2 00"]);
        balances(&broker);
    }
}

fn sent_again(topic: &'static str, qos: QoS) -> Packet<'static> {
    let mut packet = publish(topic, "no", qos, 7);
    if let Packet::Publish(publish) = &mut packet {
        publish.dup = true;
    }
    packet
}

// [MQTT-4.3.3-10] [MQTT-4.4.0-1]
#[test]
fn what_is_refused_at_the_limit_of_a_client_is_refused_again_and_its_id_is_free() {
    let mut broker = limited(1, UP_TO_1, &[]);
    let reader = join(&mut broker, "bob", "reader");
    subscribe(&mut broker, reader, "t", QoS::AtMostOnce);
    broker.take(reader);
    let ann = stay(&mut broker, "ann", "a");
    broker.send(ann, publish("t", "no", QoS::ExactlyOnce, 7));
    assert_eq!(broker.take(ann), ["DISCONNECT 9b"]);
    let ann = stay(&mut broker, "ann", "a");
    broker.send(ann, sent_again("t", QoS::ExactlyOnce));
    assert_eq!(broker.take(ann), ["PUBREC #7 87"]);
    assert_eq!(broker.take_payloads(reader).len(), 0);
    set(&mut broker, &rules(2, Ceiling::NONE, &[]));
    broker.send(ann, publish("t", "new", QoS::ExactlyOnce, 7));
    broker.stored();
    assert_eq!(broker.take(ann), ["PUBREC #7 00"]);
    assert_eq!(broker.take_payloads(reader).len(), 1);
    balances(&broker);
}

fn with_will(broker: &mut Broker, version: Version, topic: &str, qos: QoS, retain: bool) -> String {
    let client = broker.open(version);
    let will = Will {
        qos,
        retain,
        topic,
        payload: b"gone",
        properties: unbroken_mqtt_proto::Properties::EMPTY,
    };
    let packet = Connect {
        version,
        user_name: Some("ann"),
        will: Some(will),
        ..connect("a")
    };
    broker.send(client, Packet::Connect(packet));
    broker.take(client).join(", ")
}

// [MQTT-3.2.2-12] [MQTT-3.2.2-13]
#[test]
fn a_will_above_the_limit_refuses_its_client() {
    let of_ann = UP_TO_1.and(NOT_RETAINED);
    let mut broker = limited(1, of_ann, &[]);
    let mut check = |version, qos, retain, expected: &str| {
        assert_eq!(with_will(&mut broker, version, "t", qos, retain), expected);
    };
    check(Version::V5, QoS::ExactlyOnce, false, "CONNACK 0 9b");
    check(Version::V5, QoS::AtLeastOnce, true, "CONNACK 0 9a");
    check(Version::V3_1_1, QoS::ExactlyOnce, false, "CONNACK 0 87");
    check(Version::V5, QoS::AtLeastOnce, false, "CONNACK 0 00");
    let mut broker = limited(1, Ceiling::NONE, &[("t", of_ann)]);
    let refused = with_will(&mut broker, Version::V5, "t", QoS::ExactlyOnce, false);
    assert_eq!(refused, "CONNACK 0 87", "not above what it was told");
}

#[test]
fn new_limits_hold_for_clients_that_are_connected() {
    for shards in [1, 3] {
        let mut broker = limited(shards, Ceiling::NONE, &[]);
        let ann = stay(&mut broker, "ann", "a");
        let bob = join(&mut broker, "bob", "b");
        for filter in ["t/#", "$share/g/u"] {
            subscribe(&mut broker, ann, filter, QoS::ExactlyOnce);
            broker.stored();
        }
        broker.take(ann);
        let of_ann = UP_TO_1.and(NOT_RETAINED);
        set(&mut broker, &rules(2, of_ann, &[]));
        broker.stored();
        for topic in ["t/x", "u"] {
            broker.send(bob, publish(topic, "lower", QoS::ExactlyOnce, 1));
            broker.stored();
            let taken = broker.take(ann);
            let is_it = |it: &String| it.starts_with(&format!("PUBLISH {topic} \"lower\" q1"));
            assert!(taken.len() == 1 && is_it(&taken[0]), "{taken:?}");
            let id = unbroken_mqtt_proto::PacketId::new(1).unwrap();
            broker.send(bob, Packet::PubRel(unbroken_mqtt_proto::Ack::success(id)));
        }
        // It was not told, so it stays.
        broker.send(ann, publish("t/x", "no", QoS::ExactlyOnce, 9));
        broker.send(ann, retained("t/x", "no", QoS::AtLeastOnce, 8));
        assert_eq!(broker.take(ann), ["PUBREC #9 87", "PUBACK #8 87"]);
        // An offline session is judged when its client comes back.
        set(&mut broker, &rules(3, Ceiling::NONE, &[]));
        subscribe(&mut broker, ann, "v", QoS::ExactlyOnce);
        broker.stored();
        assert_eq!(broker.take(ann), ["SUBACK #1 [02]"]);
        broker.cut(ann);
        set(&mut broker, &rules(4, UP_TO_1, &[]));
        let ann = stay(&mut broker, "ann", "a");
        broker.take(ann);
        broker.send(bob, publish("v", "lower", QoS::ExactlyOnce, 2));
        broker.stored();
        let taken = broker.take(ann);
        let is_it = |it: &String| it.starts_with("PUBLISH v \"lower\" q1");
        assert!(taken.iter().any(is_it), "{taken:?}");
        balances(&broker);
    }
}

#[test]
fn a_denied_publish_may_end_the_connection_behind_its_answer() {
    let topics = [("low", UP_TO_1)];
    for shards in [1, 3] {
        let mut limits = Limits::default();
        limits.denied_publish = DeniedPublish::Disconnect;
        let mut broker = Broker::with(shards, limits.clone(), Settings::default());
        set(&mut broker, &rules(1, Ceiling::NONE, &topics));
        for (version, code) in VERSIONS {
            let ann = try_join(&mut broker, version, "ann", "a", false);
            broker.take(ann);
            broker.send(ann, publish("high", "yes", QoS::AtLeastOnce, 1));
            broker.send(ann, publish("low", "no", QoS::ExactlyOnce, 2));
            broker.send(ann, publish("high", "too late", QoS::AtLeastOnce, 3));
            let mut expected = vec!["PUBACK #1 10".to_owned(), format!("PUBREC #2 {code}")];
            if version == Version::V5 {
                expected.push("DISCONNECT 87".to_owned());
            } else {
                expected[0] = "PUBACK #1 00".to_owned();
            }
            assert_eq!(broker.take(ann), expected);
            assert!(!broker.is_open(ann));
            assert_eq!(dropped(&mut broker), [denied("a", "low", 1)]);
        }
        // Whether a message is one that only the broker publishes is no question of rules.
        let ann = join(&mut broker, "ann", "a");
        broker.send(ann, publish("$SYS/x", "no", QoS::AtMostOnce, 0));
        assert_eq!(broker.take(ann), ["DISCONNECT 87"]);
        limits.denied_publish = DeniedPublish::Acknowledge;
        broker.reconfigure(limits);
        let ann = join(&mut broker, "ann", "a");
        broker.send(ann, publish("low", "no", QoS::ExactlyOnce, 2));
        assert_eq!(broker.take(ann), ["PUBREC #2 87"]);
        balances(&broker);
    }
}

/// Checkpoints and the like are messages; what the broker says is read by rules of its own topics.
#[test]
fn topics_of_the_broker_and_of_the_audit_obey_the_rules() {
    let rules = [
        ("*", "+psr", "#"),
        ("ann", "+sr", "$audit/#"),
        ("ann", "+sr", "$SYS/#"),
        ("bob", "-psr", "audit/#"),
    ];
    for shards in [1, 3] {
        let mut broker = ruled(shards, &rules);
        let ann = join(&mut broker, "ann", "a");
        let bob = join(&mut broker, "bob", "b");
        for (filter, of_bob) in [
            ("$audit/#", "87"),
            ("$SYS/#", "87"),
            ("audit/#", "87"),
            ("#", "00"),
        ] {
            for (client, code) in [(ann, "00"), (bob, of_bob)] {
                subscribe(&mut broker, client, filter, QoS::AtMostOnce);
                assert_eq!(
                    broker.take(client),
                    [format!("SUBACK #1 [{code}]")],
                    "{filter}"
                );
            }
        }
        let checkpoint = "audit/checkpoint/0000000000000007";
        for (topic, of_ann) in [
            (checkpoint, "00"),
            ("$audit/7/fault", "87"),
            ("$SYS/x", "87"),
        ] {
            broker.send(bob, publish(topic, "no", QoS::AtLeastOnce, 1));
            assert_eq!(broker.take(bob), ["PUBACK #1 87"], "{topic}");
            assert_eq!(broker.take(ann), [""; 0], "{topic}");
            broker.send(ann, publish(topic, "x", QoS::AtLeastOnce, 1));
            let answers = broker.take(ann);
            assert!(
                answers.contains(&format!("PUBACK #1 {of_ann}")),
                "{answers:?}"
            );
            assert_eq!(
                broker.take(bob),
                [""; 0],
                "{topic}: its broad filter brings nothing"
            );
        }
        balances(&broker);
    }
}

/// The rules of an action that is not asked about limit nothing.
#[test]
fn a_limit_is_about_the_actions_of_its_rule() {
    let rule = |actions, ceiling| Rule {
        effect: Effect::Allow,
        actions,
        filter: "#".into(),
        ceiling,
        origin: "test".into(),
    };
    let role = Role {
        mount_point: None,
        name: "test".into(),
        members: vec![Member::ANYBODY],
        connect: Effect::Allow,
        ceiling: Ceiling::NONE,
        client_id: None,
        rules: vec![
            rule(Actions::ALL, Ceiling::NONE),
            rule(Action::Subscribe.into(), UP_TO_1),
        ],
    };
    let policy = Policy::compile(1, vec![RuleSet::of(vec![role])]).unwrap();
    let mut broker = Broker::new(1);
    set(&mut broker, &Arc::new(policy));
    let ann = join(&mut broker, "ann", "a");
    subscribe(&mut broker, ann, "t", QoS::ExactlyOnce);
    broker.send(ann, publish("u", "yes", QoS::ExactlyOnce, 1));
    assert_eq!(broker.take(ann), ["SUBACK #1 [01]", "PUBREC #1 10"]);
}
