//! What an authenticator vouches for beside a name: until when, which roles, which values.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod shard_bus;

use std::sync::Arc;
use std::time::Duration;

use shard_bus::{Broker, Client, connect, join, publish, subscribe};
use unbroken_broker_core::{
    Actions, Ceiling, Claims, Effect, Event, Grant, Input, Member, Policy, Role, Rule, RuleSet,
};
use unbroken_mqtt_proto::{Connect, Packet, Properties, QoS, Version, Will};

const HOUR: Duration = Duration::from_hours(1);

fn connect_with_will(broker: &mut Broker, client_id: &str, version: Version) -> Client {
    let client = broker.open(version);
    let will = Will {
        topic: "wills",
        payload: client_id.as_bytes(),
        qos: QoS::AtMostOnce,
        retain: false,
        properties: Properties::EMPTY,
    };
    let connect = Connect {
        version,
        will: Some(will),
        ..connect(client_id)
    };
    broker.send(client, Packet::Connect(connect));
    broker.take(client);
    client
}

/// Pitfall of others: an expired token keeps its connection.
#[test]
fn a_connection_ends_with_its_token_and_the_will_is_published() {
    for version in [Version::V5, Version::V3_1_1] {
        for shards in [1, 3] {
            let mut broker = Broker::new(shards);
            let watcher = join(&mut broker, "watcher");
            subscribe(&mut broker, watcher, "wills", QoS::AtMostOnce);
            broker.take(watcher);
            broker.vouched.until = Some(broker.now + HOUR);
            let client = connect_with_will(&mut broker, "device", version);
            broker.advance(Duration::from_mins(59));
            assert!(broker.is_open(client));
            broker.advance(Duration::from_mins(1));
            assert!(!broker.is_open(client), "{version:?}");
            let is_expiry =
                |event: &Event| matches!(event, Event::Disconnected { why, .. } if why.is_expiry());
            assert_eq!(broker.events.iter().filter(|it| is_expiry(it)).count(), 1);
            let last: &[&str] = match version {
                Version::V5 => &["DISCONNECT 87"],
                _ => &[],
            };
            assert_eq!(broker.take(client), last);
            assert_eq!(broker.take(watcher), ["PUBLISH wills \"device\" q0"]);
            assert!(broker.is_open(watcher), "it has no end");
        }
    }
}

#[test]
fn a_client_that_comes_again_with_a_later_token_stays() {
    let mut broker = Broker::new(1);
    broker.vouched.until = Some(broker.now + HOUR);
    let first = connect_with_will(&mut broker, "device", Version::V5);
    broker.vouched.until = Some(broker.now + 3 * HOUR);
    let second = connect_with_will(&mut broker, "device", Version::V5);
    broker.advance(2 * HOUR);
    assert!(!broker.is_open(first) && broker.is_open(second));
    broker.advance(HOUR);
    assert!(!broker.is_open(second));
}

fn claims(roles: &[&str], values: &[(&str, &str)]) -> Arc<Claims> {
    let roles = roles.iter().map(|role| Arc::from(*role)).collect();
    let values = values.iter().map(|(k, v)| ((*k).into(), (*v).into()));
    Arc::new(Claims::new(roles, values.collect()).unwrap())
}

/// Each granted role may publish on its topics, and to its own.
fn roles() -> Policy {
    let role = |granted: Option<&str>, filters: &[&str]| Role {
        name: granted.unwrap_or("all").into(),
        members: vec![Member {
            granted: granted.map(Into::into),
            ..Member::ANYBODY
        }],
        connect: Effect::Allow,
        ceiling: Ceiling::NONE,
        client_id: None,
        rules: filters
            .iter()
            .map(|filter| Rule {
                effect: Effect::Allow,
                actions: Actions::ALL,
                filter: (*filter).into(),
                ceiling: Ceiling::NONE,
                origin: "test".into(),
            })
            .collect(),
        mount_point: None,
    };
    let roles = vec![
        role(None, &["role/{role}", "site/{claim.site}/#"]),
        role(Some("sensors"), &["sensors/#"]),
    ];
    Policy::compile(1, vec![RuleSet::of(roles)]).unwrap()
}

#[test]
fn roles_and_values_of_a_token_decide_what_its_client_may_do() {
    let mut broker = Broker::new(1);
    let policy = Some(Arc::new(roles()));
    broker.input(0, Input::PolicyReplaced(policy));
    let check = |broker: &mut Broker, claims, topic, code| {
        broker.vouched.claims = claims;
        let client = join(broker, "c");
        broker.send(client, publish(topic, "x", QoS::AtLeastOnce, 1));
        assert_eq!(
            broker.take(client),
            [format!("PUBACK #1 {code}")],
            "{topic}"
        );
    };
    check(&mut broker, None, "sensors/1", "87");
    check(
        &mut broker,
        Some(claims(&["sensors"], &[])),
        "sensors/1",
        "10",
    );
    check(
        &mut broker,
        Some(claims(&["others"], &[])),
        "sensors/1",
        "87",
    );
    check(&mut broker, Some(claims(&["a", "b"], &[])), "role/a", "10");
    check(&mut broker, Some(claims(&["a", "b"], &[])), "role/b", "10");
    check(&mut broker, Some(claims(&["a", "b"], &[])), "role/c", "87");
    check(
        &mut broker,
        Some(claims(&[], &[("site", "s1")])),
        "site/s1/x",
        "10",
    );
    check(
        &mut broker,
        Some(claims(&[], &[("site", "s1")])),
        "site/s2/x",
        "87",
    );
    check(
        &mut broker,
        Some(claims(&[], &[("other", "s1")])),
        "site/s1/x",
        "87",
    );
    check(&mut broker, None, "site//x", "87");
}

/// Pitfall of others: a name with a wildcard in it opens other people's topics.
#[test]
fn a_role_or_a_value_that_means_more_than_itself_in_a_filter_does_not_connect() {
    let mut broker = Broker::new(1);
    let policy = Some(Arc::new(roles()));
    broker.input(0, Input::PolicyReplaced(policy));
    for bad in ["+", "#", "a/b", "a+", "$SYS"] {
        for claims in [
            Some(claims(&["sensors", bad], &[])),
            Some(claims(&[], &[("site", bad)])),
        ] {
            broker.vouched.claims = claims;
            let client = broker.open(Version::V5);
            broker.send(client, Packet::Connect(connect("c")));
            let answer = broker.take(client);
            assert!(answer[0].starts_with("CONNACK 0 87"), "{bad}: {answer:?}");
        }
        broker.vouched.claims = Some(claims(&[], &[("unnamed", bad)]));
        let client = join(&mut broker, "c");
        assert!(broker.is_open(client), "no rule names it: {bad}");
    }
}

#[test]
fn what_is_claimed_of_a_client_is_bounded() {
    let long = "x".repeat(5_000);
    assert!(!claims(&[&long], &[]).is_empty(), "it fits");
    let two = Claims::new(
        vec![long.as_str().into(), "y".repeat(4_000).into()],
        [].into(),
    );
    let error = two.unwrap_err().to_string();
    assert!(error.contains("8192 bytes"), "{error}");
    assert_eq!(Grant::anonymous(), Grant::default());
}
