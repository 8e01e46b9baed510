//! Access rules at each point where they are asked: connect, publish, subscribe, receive; on
//! resume, and after other rules are in force.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod access_rules;
mod shard_bus;

use std::time::Duration;

use access_rules::{QOS, balances, denied, dropped, join, policy, ruled, set, try_join};
use shard_bus::{Broker, Client, connect, publish, retained, send_subscribe, subscribe};
use unbroken_broker_core::{Denial, DropReason, Event, Limits, Settings};
use unbroken_mqtt_proto::{
    Ack, Connect, Packet, PacketId, Property, PropertyBuf, Publish, QoS, ReasonCode,
    SubscriptionOptions, Version, Will,
};

#[test]
fn without_a_policy_everything_is_allowed() {
    let mut broker = Broker::new(1);
    let a = join(&mut broker, "+", "a/b");
    subscribe(&mut broker, a, "#", QoS::AtMostOnce);
    broker.send(a, publish("t", "x", QoS::AtLeastOnce, 1));
    assert_eq!(
        broker.take(a),
        ["SUBACK #1 [00]", "PUBACK #1 00", "PUBLISH t \"x\" q0"]
    );
}

#[test]
fn a_denied_publish_is_answered_named_and_goes_to_nobody() {
    for shards in [1, 3] {
        let mut broker = ruled(shards, &[("*", "+sr", "#"), ("ann", "+p", "ann/#")]);
        let all = join(&mut broker, "all", "all");
        subscribe(&mut broker, all, "#", QoS::ExactlyOnce);
        broker.take(all);
        for (version, code) in [(Version::V5, "87"), (Version::V3_1_1, "00")] {
            let ann = try_join(&mut broker, version, "ann", "a", false);
            broker.take(ann);
            for (id, qos) in (1..).zip(QOS) {
                let id = if qos == QoS::AtMostOnce { 0 } else { id };
                broker.send(ann, publish("bob/x", "no", qos, id));
            }
            assert_eq!(
                broker.take(ann),
                [format!("PUBACK #2 {code}"), format!("PUBREC #3 {code}")]
            );
            if version == Version::V3_1_1 {
                // It does not know, and goes on.
                let id = PacketId::new(3).unwrap();
                broker.send(ann, Packet::PubRel(Ack::success(id)));
                assert_eq!(broker.take(ann), ["PUBCOMP #3 00"]);
            }
            assert_eq!(broker.take(all), [""; 0]);
            assert_eq!(
                dropped(&mut broker),
                [denied("a", "bob/x", 1), denied("a", "bob/x", 2)]
            );
            broker.send(ann, publish("ann/x", "yes", QoS::AtLeastOnce, 4));
            assert_eq!(broker.take(ann), ["PUBACK #4 00"]);
            let taken = broker.take(all);
            let is_it = |it: &String| it.starts_with("PUBLISH ann/x \"yes\" q1");
            assert!(taken.len() == 1 && taken.iter().all(is_it), "{taken:?}");
            broker.cut(ann);
        }
        balances(&broker);
    }
}

#[test]
fn an_alias_is_judged_by_its_topic() {
    let mut broker = ruled(1, &[("*", "+psr", "yes/#"), ("*", "+s", "#")]);
    let a = join(&mut broker, "ann", "a");
    subscribe(&mut broker, a, "#", QoS::AtMostOnce);
    broker.take(a);
    let mut properties = PropertyBuf::new();
    properties.push(Property::TopicAlias(1)).unwrap();
    for (id, topic) in [(1, "no"), (2, ""), (3, "yes/x"), (4, "")] {
        broker.send(
            a,
            Packet::Publish(Publish {
                dup: false,
                qos: QoS::AtLeastOnce,
                retain: false,
                topic,
                packet_id: PacketId::new(id),
                properties: properties.as_properties(),
                payload: b"x",
            }),
        );
    }
    assert_eq!(
        broker.take(a),
        [
            "PUBACK #1 87",
            "PUBACK #2 87",
            "PUBACK #3 00",
            "PUBLISH yes/x \"x\" q0",
            "PUBACK #4 00",
            "PUBLISH yes/x \"x\" q0",
        ]
    );
}

#[test]
fn a_denied_publish_neither_sets_nor_clears_a_retained_message() {
    for shards in [1, 3] {
        let mut broker = ruled(shards, &[("*", "+sr", "#"), ("ann", "+p", "#")]);
        let ann = join(&mut broker, "ann", "a");
        let bob = join(&mut broker, "bob", "b");
        broker.send(ann, retained("t", "kept", QoS::AtLeastOnce, 1));
        broker.send(bob, retained("t", "", QoS::AtLeastOnce, 1));
        broker.send(bob, retained("u", "no", QoS::AtLeastOnce, 2));
        assert_eq!(broker.take(bob), ["PUBACK #1 87", "PUBACK #2 87"]);
        subscribe(&mut broker, bob, "#", QoS::AtMostOnce);
        assert_eq!(
            broker.take(bob),
            ["SUBACK #1 [00]", "PUBLISH t \"kept\" q0 retain"]
        );
    }
}

#[test]
fn the_brokers_own_topics_are_denied_whatever_the_rules_say() {
    let mut broker = ruled(1, &[("*", "+psr", "$SYS/#"), ("*", "+psr", "$audit/#")]);
    let a = join(&mut broker, "ann", "a");
    broker.send(a, publish("$SYS/x", "no", QoS::AtLeastOnce, 1));
    broker.send(a, publish("$audit/x", "no", QoS::AtLeastOnce, 2));
    assert_eq!(broker.take(a), ["PUBACK #1 87", "PUBACK #2 87"]);
}

#[test]
fn each_filter_of_a_subscribe_is_judged_and_a_shared_one_by_what_it_asks_for() {
    let mut broker = ruled(1, &[("*", "+psr", "yes/#"), ("*", "-s", "yes/but/#")]);
    let filters = [
        "yes/#",
        "no",
        "#",
        "$share/g/no",
        "$share/yes/yes/+",
        "yes/but/this",
        "yes/+",
        "$queue/yes/x",
    ];
    let list = filters.map(|filter| (filter, SubscriptionOptions::default()));
    for (version, codes) in [
        (Version::V5, "[00, 87, 87, 87, 00, 87, 00, 87]"),
        (Version::V3_1_1, "[00, 80, 80, 80, 00, 80, 00, 80]"),
    ] {
        let a = try_join(&mut broker, version, "ann", "a", false);
        broker.take(a);
        send_subscribe(&mut broker, a, &list);
        assert_eq!(broker.take(a), [format!("SUBACK #1 {codes}")]);
    }
}

#[test]
fn a_broad_filter_does_not_bring_what_its_client_may_not_receive() {
    for shards in [1, 3] {
        let mut broker = ruled(shards, &[("*", "+psr", "#"), ("bob", "-r", "secret/#")]);
        let ann = join(&mut broker, "ann", "a");
        let bob = join(&mut broker, "bob", "b");
        for client in [ann, bob] {
            subscribe(&mut broker, client, "#", QoS::ExactlyOnce);
            broker.take(client);
        }
        for qos in QOS {
            let id = if qos == QoS::AtMostOnce { 0 } else { 7 };
            broker.send(ann, publish("secret/x", "s", qos, id));
            let taken = broker.take(ann).join(" ");
            assert!(taken.contains("PUBLISH secret/x"), "{taken}");
        }
        broker.send(ann, retained("secret/x", "s", QoS::AtMostOnce, 0));
        broker.send(ann, publish("open", "o", QoS::AtMostOnce, 0));
        assert_eq!(broker.take(bob), ["PUBLISH open \"o\" q0"]);
        assert_eq!(
            dropped(&mut broker),
            [denied("b", "secret/x", 1), denied("b", "secret/x", 3)]
        );
        subscribe(&mut broker, bob, "+/x", QoS::ExactlyOnce);
        assert_eq!(broker.take(bob), ["SUBACK #1 [02]"], "nothing retained");
        balances(&broker);
    }
}

#[test]
fn a_wide_fan_out_passes_over_those_who_may_not_receive_it() {
    let mut settings = Settings::default();
    settings.at_once = 2;
    let mut broker = Broker::with(1, Limits::default(), settings);
    set(
        &mut broker,
        &policy(1, &[("*", "+psr", "#"), ("bob", "-r", "secret")]),
    );
    let clients: Vec<_> = (0..10)
        .map(|n| {
            let user = if n % 2 == 0 { "ann" } else { "bob" };
            let client = join(&mut broker, user, &format!("c{n}"));
            subscribe(&mut broker, client, "#", QOS[n % 3]);
            broker.take(client);
            client
        })
        .collect();
    let ann = join(&mut broker, "ann", "p");
    broker.send(ann, publish("secret", "s", QoS::AtLeastOnce, 1));
    for _ in 0..20 {
        broker.advance(Duration::from_millis(1));
    }
    for (n, client) in clients.into_iter().enumerate() {
        let expected = usize::from(n % 2 == 0);
        assert_eq!(broker.take(client).len(), expected, "{n}");
    }
    balances(&broker);
}

#[test]
fn two_clients_alternate_on_one_topic_and_each_gets_its_own_verdict() {
    for shards in [1, 3] {
        let first = [("*", "+sr", "#"), ("ann", "+p", "t")];
        let mut broker = ruled(shards, &first);
        let all = join(&mut broker, "all", "all");
        subscribe(&mut broker, all, "t", QoS::AtMostOnce);
        broker.take(all);
        let clients = [("ann", "a"), ("bob", "b"), ("ann", "c"), ("bob", "d")];
        let clients = clients.map(|(user, id)| (user, join(&mut broker, user, id)));
        let second = policy(2, &[("*", "+sr", "#"), ("bob", "+p", "t")]);
        for allowed in ["ann", "bob"] {
            for id in 1..=20 {
                for (user, client) in clients {
                    broker.send(client, publish("t", user, QoS::AtLeastOnce, id));
                    let code = if user == allowed { "00" } else { "87" };
                    assert_eq!(broker.take(client), [format!("PUBACK #{id} {code}")]);
                }
            }
            let expected = vec![format!("PUBLISH t {allowed:?} q0"); 40];
            assert_eq!(broker.take(all), expected);
            set(&mut broker, &second);
        }
    }
}

#[test]
fn a_group_gives_to_the_members_that_may_receive_it() {
    for shards in [1, 3] {
        let rules = [("*", "+psr", "#"), ("bob", "-r", "secret")];
        let mut broker = ruled(shards, &rules);
        let publisher = join(&mut broker, "ann", "p");
        let members = [
            ("ann", "a"),
            ("bob", "b"),
            ("bob", "c"),
            ("ann", "d"),
            ("bob", "e"),
        ];
        let members = members.map(|(user, id)| {
            let client = join(&mut broker, user, id);
            subscribe(&mut broker, client, "$share/g/#", QoS::AtMostOnce);
            broker.take(client);
            (user, client)
        });
        for _ in 0..20 {
            broker.send(publisher, publish("secret", "s", QoS::AtMostOnce, 0));
        }
        let had = |broker: &mut Broker| {
            let counts = members.map(|(user, client)| (user, broker.take(client).len()));
            let of = |who| counts.iter().filter(move |(user, _)| *user == who);
            ["ann", "bob"].map(|who| of(who).map(|(_, count)| count).sum::<usize>())
        };
        assert_eq!(had(&mut broker), [20, 0]);
        // Now the other way round, for members that are there.
        set(
            &mut broker,
            &policy(2, &[("*", "+psr", "#"), ("ann", "-r", "secret")]),
        );
        for _ in 0..20 {
            broker.send(publisher, publish("secret", "s", QoS::AtMostOnce, 0));
        }
        assert_eq!(had(&mut broker), [0, 20]);
        // Nobody may: that is named.
        set(
            &mut broker,
            &policy(3, &[("*", "+psr", "#"), ("*", "-r", "secret")]),
        );
        dropped(&mut broker);
        broker.send(publisher, publish("secret", "s", QoS::AtMostOnce, 0));
        assert_eq!(had(&mut broker), [0, 0]);
        let dropped = dropped(&mut broker);
        assert!(
            matches!(&dropped[..], [(_, _, DropReason::NotAuthorized, 1)]),
            "{dropped:?}"
        );
        balances(&broker);
    }
}

#[test]
fn a_client_that_may_not_connect_is_refused_and_takes_no_session_over() {
    let mut broker = ruled(3, &[("ann", "+psr", "#"), ("eve", "!", "#")]);
    let ann = join(&mut broker, "ann", "a");
    let connacks: [(_, &[u8]); 2] = [(Version::V5, &[0x87]), (Version::V3_1_1, &[5])];
    for (version, connack) in connacks {
        for user in ["eve", "nobody"] {
            let client = try_join(&mut broker, version, user, "a", false);
            let taken = broker.take_bytes(client);
            assert!(taken[3..].starts_with(connack), "{taken:x?}");
            assert!(!broker.is_open(client));
        }
    }
    assert!(broker.is_open(ann));
    let detail = broker.events.iter().find_map(|event| match event {
        Event::Refused { detail, .. } => Some(detail.to_string()),
        _ => None,
    });
    assert_eq!(detail.as_deref(), Some("an access rule denies it"));
}

#[test]
fn a_name_that_means_more_in_a_filter_opens_no_other_topics() {
    let mut broker = ruled(
        1,
        &[("*", "+psr", "dev/{user}/#"), ("*", "+psr", "id/{client}")],
    );
    for (user, id) in [
        ("+", "a"),
        ("a", "+"),
        ("#", "a"),
        ("x/y", "a"),
        ("$SYS", "a"),
    ] {
        let client = try_join(&mut broker, Version::V5, user, id, false);
        assert_eq!(broker.take(client), ["CONNACK 0 87"], "{user} {id}");
    }
    let ann = join(&mut broker, "ann", "a");
    let filters = ["dev/ann/#", "dev/+/#", "id/a", "id/+", "dev/bob/#"];
    let list = filters.map(|filter| (filter, SubscriptionOptions::default()));
    send_subscribe(&mut broker, ann, &list);
    assert_eq!(broker.take(ann), ["SUBACK #1 [00, 87, 00, 87, 87]"]);
}

fn with_will(broker: &mut Broker, user: &str, id: &str, topic: &str) -> Client {
    with_delayed_will(broker, user, id, topic, 0)
}

/// Its session stays for longer than its will waits.
fn with_delayed_will(
    broker: &mut Broker,
    user: &str,
    id: &str,
    topic: &str,
    delay_s: u32,
) -> Client {
    let client = broker.open(Version::V5);
    let (mut of_will, mut properties) = (PropertyBuf::new(), PropertyBuf::new());
    let delay = Property::WillDelayInterval(delay_s);
    of_will.push(delay).unwrap();
    let expiry = Property::SessionExpiryInterval(2 * delay_s);
    properties.push(expiry).unwrap();
    let will = Will {
        qos: QoS::AtLeastOnce,
        retain: true,
        topic,
        properties: of_will.as_properties(),
        payload: b"gone",
    };
    let packet = Connect {
        user_name: Some(user),
        will: Some(will),
        properties: properties.as_properties(),
        ..connect(id)
    };
    broker.send(client, Packet::Connect(packet));
    client
}

#[test]
fn a_will_is_judged_with_its_connect_and_when_it_is_published() {
    let mut broker = ruled(1, &[("*", "+psr", "#"), ("ann", "-p", "no")]);
    let refused = with_will(&mut broker, "ann", "a", "no");
    assert_eq!(broker.take(refused), ["CONNACK 0 87"]);
    let observer = join(&mut broker, "bob", "o");
    subscribe(&mut broker, observer, "#", QoS::AtMostOnce);
    broker.take(observer);
    let first = with_will(&mut broker, "ann", "a", "will");
    broker.cut(first);
    assert_eq!(broker.take(observer), ["PUBLISH will \"gone\" q0"]);
    let second = with_will(&mut broker, "ann", "a", "will");
    set(
        &mut broker,
        &policy(2, &[("*", "+psr", "#"), ("ann", "-p", "will")]),
    );
    broker.cut(second);
    assert_eq!(broker.take(observer), [""; 0]);
    assert_eq!(dropped(&mut broker), [denied("a", "will", 1)]);
    balances(&broker);
}

#[test]
fn other_rules_end_connections_and_subscriptions_that_they_do_not_allow() {
    for shards in [1, 3] {
        let mut broker = ruled(shards, &[("*", "+psr", "#")]);
        let ann = join(&mut broker, "ann", "a");
        let bob = join(&mut broker, "bob", "b");
        for filter in ["t/#", "u", "$share/g/t/x"] {
            subscribe(&mut broker, ann, filter, QoS::AtMostOnce);
        }
        broker.take(ann);
        broker.events.clear();
        let rules = [
            ("ann", "+psr", "#"),
            ("ann", "-s", "t/#"),
            ("bob", "!", "#"),
        ];
        set(&mut broker, &policy(2, &rules));
        assert_eq!(broker.take(bob), ["DISCONNECT 87"]);
        assert!(!broker.is_open(bob));
        let revoked = broker.events.iter().filter_map(|event| match event {
            Event::SubscriptionRevoked { filter, why, .. } => Some((&**filter, *why)),
            _ => None,
        });
        let revoked: Vec<_> = revoked.collect();
        assert_eq!(
            revoked,
            [("$share/g/t/x", Denial::Rule), ("t/#", Denial::Rule)]
        );
        broker.send(ann, publish("t/x", "no", QoS::AtMostOnce, 0));
        broker.send(ann, publish("u", "yes", QoS::AtMostOnce, 0));
        assert_eq!(broker.take(ann), ["PUBLISH u \"yes\" q0"]);
        balances(&broker);
    }
}

#[test]
fn the_shards_count_what_they_deny() {
    let mut broker = ruled(1, &[("*", "+sr", "#")]);
    let ann = join(&mut broker, "ann", "a");
    broker.send(ann, publish("t", "x", QoS::AtMostOnce, 0));
    let reasons = broker.shards[0].stats().dropped;
    assert_eq!(reasons[DropReason::NotAuthorized as usize], 1);
    let refused = ReasonCode::NotAuthorized;
    subscribe(&mut broker, ann, "x", QoS::AtMostOnce);
    assert_eq!(broker.take(ann), ["SUBACK #1 [00]"]);
    set(&mut broker, &policy(2, &[("*", "+p", "#")]));
    subscribe(&mut broker, ann, "y", QoS::AtMostOnce);
    assert_eq!(
        broker.take(ann),
        [format!("SUBACK #1 [{:02x}]", refused as u8)]
    );
}

#[test]
fn a_will_that_waits_is_judged_by_the_rules_in_force_when_it_is_due() {
    let all = ("*", "+psr", "#");
    for (rules, denied_by_rules) in [
        (&[all, ("ann", "-p", "will")][..], true),
        (&[all, ("bob", "-p", "will")][..], false),
    ] {
        let mut broker = ruled(1, &[all]);
        let observer = join(&mut broker, "bob", "o");
        subscribe(&mut broker, observer, "#", QoS::AtMostOnce);
        broker.take(observer);
        let client = with_delayed_will(&mut broker, "ann", "a", "will", 60);
        broker.cut(client);
        set(&mut broker, &policy(2, rules));
        broker.advance(Duration::from_secs(61));
        if denied_by_rules {
            assert_eq!(broker.take(observer), [""; 0]);
            assert_eq!(dropped(&mut broker), [denied("a", "will", 1)]);
        } else {
            assert_eq!(broker.take(observer), ["PUBLISH will \"gone\" q0"]);
        }
        balances(&broker);
    }
}
