//! Access rules in short lines, and clients that are somebody.

#![allow(dead_code, reason = "each test file uses its part")]

use std::sync::Arc;
use std::time::Duration;

use unbroken_broker_core::{
    Action, Actions, Ceiling, DropReason, Effect, Event, Input, Member, Policy, Role, Rule, RuleSet,
};
use unbroken_mqtt_proto::{Connect, Packet, Property, PropertyBuf, QoS, Version};

use crate::shard_bus::{Broker, Client, connect};

pub(crate) const QOS: [QoS; 3] = [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce];

/// One line of rules: who (a user, or `*`), effect and actions (`+psr` allows all three, `-r`
/// denies receiving), and a filter. `!` is a role whose members may not connect.
pub(crate) fn policy(generation: u64, lines: &[(&str, &str, &str)]) -> Arc<Policy> {
    let roles = lines.iter().map(|(who, what, filter)| {
        let (effect, actions) = what.split_at(1);
        let effect = if effect == "+" {
            Effect::Allow
        } else {
            Effect::Deny
        };
        let actions = actions
            .chars()
            .fold(Actions::NONE, |all, action| match action {
                'p' => all.and(Action::Publish),
                's' => all.and(Action::Subscribe),
                _ => all.and(Action::Receive),
            });
        Role {
            name: (*who).into(),
            members: vec![match *who {
                "*" => Member::ANYBODY,
                user => Member::user(user),
            }],
            connect: if *what == "!" {
                Effect::Deny
            } else {
                Effect::Allow
            },
            ceiling: Ceiling::NONE,
            client_id: None,
            rules: vec![Rule {
                effect,
                actions,
                filter: (*filter).into(),
                ceiling: Ceiling::NONE,
                origin: "test".into(),
            }],
            mount_point: None,
        }
    });
    Arc::new(Policy::compile(generation, vec![RuleSet::of(roles.collect())]).unwrap())
}

pub(crate) fn set(broker: &mut Broker, policy: &Arc<Policy>) {
    for shard in 0..broker.shards.len() {
        let policy = Some(Arc::clone(policy));
        broker.input(shard, Input::PolicyReplaced(policy));
    }
}

/// A broker with these rules.
pub(crate) fn ruled(shards: u8, lines: &[(&str, &str, &str)]) -> Broker {
    let mut broker = Broker::new(shards);
    set(&mut broker, &policy(1, lines));
    broker
}

/// A CONNECT of this user, whose session ends with its connection or stays.
pub(crate) fn try_join(
    broker: &mut Broker,
    version: Version,
    user: &str,
    id: &str,
    stays: bool,
) -> Client {
    let mut properties = PropertyBuf::new();
    if stays && version == Version::V5 {
        properties
            .push(Property::SessionExpiryInterval(100))
            .unwrap();
    }
    let client = broker.open(version);
    let packet = Connect {
        version,
        user_name: Some(user),
        clean_start: !stays,
        properties: properties.as_properties(),
        ..connect(id)
    };
    broker.send(client, Packet::Connect(packet));
    client
}

pub(crate) fn join(broker: &mut Broker, user: &str, id: &str) -> Client {
    let client = try_join(broker, Version::V5, user, id, false);
    assert_eq!(broker.take(client), ["CONNACK 0 00"]);
    client
}

pub(crate) fn stay(broker: &mut Broker, user: &str, id: &str) -> Client {
    let client = try_join(broker, Version::V5, user, id, true);
    broker.stored();
    let taken = broker.take(client);
    assert!(taken[0].starts_with("CONNACK"), "{taken:?}");
    client
}

/// The drops that were told since the last call.
pub(crate) fn dropped(broker: &mut Broker) -> Vec<(String, String, DropReason, u64)> {
    broker.advance(Duration::from_secs(1));
    let tell = |event: Event| match event {
        Event::Dropped {
            client_id,
            topic,
            reason,
            count,
            ..
        } => Some((client_id.to_string(), topic.to_string(), reason, count)),
        _ => None,
    };
    broker.events.drain(..).filter_map(tell).collect()
}

pub(crate) fn denied(client: &str, topic: &str, count: u64) -> (String, String, DropReason, u64) {
    (
        client.into(),
        topic.into(),
        DropReason::NotAuthorized,
        count,
    )
}

pub(crate) fn balances(broker: &Broker) {
    for shard in &broker.shards {
        assert_eq!(shard.audit_imbalance(), 0);
    }
}
